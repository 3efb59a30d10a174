//! From values to places, and where marks are put between.

#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    kind: Kind,
    ends: [f64; 2],
    places: [f64; 2],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Linear,
    Logarithmic,
}

/// Marks within each power of ten; the fewest that are enough are taken.
const STEPS: [&[f64]; 3] = [&[1.0], &[1.0, 3.0], &[1.0, 2.0, 5.0]];

/// Fewer marks say too little of a scale.
const ENOUGH_MARKS: usize = 3;

impl Axis {
    /// From nothing to somewhat more than the most.
    pub(super) fn from_zero(most: f64, places: [f64; 2]) -> Self {
        let most = if most > 0.0 { most } else { 1.0 };
        Self { kind: Kind::Linear, ends: [0.0, most * 1.05], places }
    }

    /// By powers, over all these values, which are above nothing; with room at both ends.
    pub(super) fn of_powers(values: impl Iterator<Item = f64> + Clone, places: [f64; 2]) -> Self {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let most = values.fold(0.0, f64::max);
        let (least, most) = if least <= most { (least, most) } else { (0.5, 2.0) };
        // Never so near that noise looks like a canyon.
        let spread = (most / least).max(1.2);
        let room = spread.powf(0.06);
        let middle = (least * most).sqrt();
        let half = spread.sqrt() * room;
        Self { kind: Kind::Logarithmic, ends: [middle / half, middle * half], places }
    }

    /// Where a value is; what lies outside is at the end.
    pub(super) fn place(&self, value: f64) -> f64 {
        let [low, high] = self.ends;
        let share = match self.kind {
            Kind::Linear => (value - low) / (high - low),
            Kind::Logarithmic => (value / low).ln() / (high / low).ln(),
        };
        let [first, last] = self.places;
        first + share.clamp(0.0, 1.0) * (last - first)
    }

    /// Round values to mark, not more than there is room for.
    pub(super) fn marks(&self) -> Vec<f64> {
        match self.kind {
            Kind::Linear => self.even_marks(),
            Kind::Logarithmic => self.power_marks(),
        }
    }

    fn even_marks(&self) -> Vec<f64> {
        let [low, high] = self.ends;
        let step = round_step((high - low) / 4.0);
        (0..).map(|number| f64::from(number) * step).take_while(|value| *value <= high).collect()
    }

    fn power_marks(&self) -> Vec<f64> {
        let [low, high] = self.ends;
        let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let within = |steps: &[f64]| -> Vec<f64> {
            let values = decades
                .clone()
                .flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)));
            values.filter(|value| (low..=high).contains(value)).collect()
        };
        for steps in STEPS {
            let found = within(steps);
            if found.len() >= ENOUGH_MARKS {
                return thinned(found);
            }
        }
        // Less than a power of ten in all.
        even_marks(round_step((high - low) / 4.0), [low, high])
    }

    /// The same for bytes: multiples of KiB, MiB and so on.
    pub(super) fn marks_of_bytes(&self) -> Vec<f64> {
        let [low, high] = self.ends;
        let doublings = low.max(1.0).log2().ceil() as i32..=high.log2().floor() as i32;
        if doublings.clone().count() >= ENOUGH_MARKS {
            return thinned(doublings.map(|doubling| 2f64.powi(doubling)).collect());
        }
        let unit = 1024f64.powf(high.max(1.0).log(1024.0).floor());
        even_marks(round_step((high - low) / 4.0 / unit) * unit, [low, high])
    }
}

/// Every multiple of a step between two ends.
fn even_marks(step: f64, [low, high]: [f64; 2]) -> Vec<f64> {
    let first = (low / step).ceil();
    (0..)
        .map(|number| (first + f64::from(number)) * step)
        .take_while(|value| *value <= high)
        .collect()
}

/// Leaves out marks if there are many powers of ten.
fn thinned(marks: Vec<f64>) -> Vec<f64> {
    const MOST: usize = 8;
    let every = marks.len().div_ceil(MOST);
    marks.into_iter().step_by(every).collect()
}

/// The least of 1, 2, 2.5, 5 times a power of ten that is not less.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let found =
        [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|factor| factor * power >= step * 0.999);
    found.unwrap_or(10.0) * power
}

/// A share of operations on the axis of percentiles: 0, 0.9, 0.99 and 0.999 are equally far from
/// each other.
pub(super) fn nines(share: f64) -> f64 {
    -(1.0 - share).max(1e-9).log10()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_few() {
        let marks = |values: &[f64]| Axis::of_powers(values.iter().copied(), [0.0, 100.0]).marks();
        assert_eq!(marks(&[0.9, 90.0]), [1.0, 10.0, 100.0]);
        for (least, most) in [(1.0, 1.01), (0.5, 2.0), (10.0, 1e9), (3e3, 4e3), (1.0, 30.0)] {
            let marks = marks(&[least, most]);
            assert!((2..=9).contains(&marks.len()), "{least} to {most}: {marks:?}");
        }
        let bytes =
            |values: &[f64]| Axis::of_powers(values.iter().copied(), [0.0, 100.0]).marks_of_bytes();
        assert_eq!(bytes(&[5000.0, 40_000.0]), [8192.0, 16_384.0, 32_768.0]);
        assert_eq!(bytes(&[20e6, 22e6]), [20.0 * 1_048_576.0, 22.0 * 1_048_576.0]);
        assert!(bytes(&[1.0, 2f64.powi(40)]).len() <= 8);
        let even = Axis::from_zero(590e6, [0.0, 100.0]).marks();
        assert_eq!(even, [0.0, 200e6, 400e6, 600e6]);
    }

    #[test]
    fn places_are_within() {
        let axis = Axis::of_powers([0.5, 2.0].into_iter(), [10.0, 110.0]);
        assert!((axis.place(1.0) - 60.0).abs() < 1e-9);
        assert_eq!((axis.place(1e-9), axis.place(1e9)), (10.0, 110.0));
        assert!(axis.place(0.5) > 10.0 && axis.place(2.0) < 110.0);
        assert!((nines(0.99) - 2.0).abs() < 1e-9 && nines(0.0).abs() < 1e-9);
    }
}
