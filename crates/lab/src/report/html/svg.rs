//! A picture: shapes one after the other in a space of its own units, and the axes that place
//! values in it. Colours are classes of the page's style, so that they follow light and dark.

use std::fmt::Write;

/// Width of a letter of a text: the style's face is of fixed width.
pub(super) const LETTER: f64 = 7.25;

/// Height of a line of text.
pub(super) const LINE: f64 = 18.0;

/// Width of a picture.
pub(super) const WIDTH: f64 = 760.0;

/// Colours in the style.
pub(super) const COLOURS: usize = 8;

/// Numbers of pictures, so that no two share an id.
#[derive(Debug, Default)]
pub(super) struct Numbers(u32);

/// Returns the classes of an arm's line: one colour for each arm, and a stroke that tells apart
/// those of one colour.
pub(super) fn class_of(arm: usize) -> String {
    format!("c{} d{}", arm % COLOURS, arm / COLOURS % 3)
}

/// Returns the class of an arm's area.
pub(super) fn fill(arm: usize) -> String {
    format!("f{}", arm % COLOURS)
}

#[derive(Debug)]
pub(super) struct Svg {
    body: String,
    height: f64,
}

impl Svg {
    pub(super) fn new(height: f64) -> Self {
        assert!(height > 0.0, "a picture has a height");
        Self { body: String::new(), height }
    }

    /// Draws a shape of one class at places.
    fn shape(&mut self, tag: &str, class: &str, places: &[(&str, f64)], inside: &str) {
        let places: String =
            places.iter().map(|(name, place)| format!(" {name}=\"{place:.1}\"")).collect();
        let _ = writeln!(self.body, "<{tag} class=\"{class}\"{places}>{inside}</{tag}>");
    }

    pub(super) fn line(&mut self, class: &str, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2]) {
        self.shape("line", class, &[("x1", x1), ("y1", y1), ("x2", x2), ("y2", y2)], "");
    }

    pub(super) fn path(&mut self, class: &str, points: &[[f64; 2]]) {
        let step = |(number, [x, y]): (usize, &[f64; 2])| {
            format!("{}{x:.1} {y:.1}", if number == 0 { "M" } else { "L" })
        };
        let steps: String = points.iter().enumerate().map(step).collect();
        let _ = writeln!(self.body, "<path class=\"{class}\" d=\"{steps}\"/>");
    }

    /// Draws a disc with a tooltip.
    pub(super) fn dot(&mut self, class: &str, [x, y]: [f64; 2], tooltip: &str) {
        let tooltip = format!("<title>{}</title>", escape(tooltip));
        self.shape("circle", class, &[("cx", x), ("cy", y), ("r", 3.0)], &tooltip);
    }

    /// Draws a rectangle with a tooltip.
    pub(super) fn rectangle(
        &mut self,
        class: &str,
        [x, y]: [f64; 2],
        [width, height]: [f64; 2],
        tooltip: &str,
    ) {
        let places = [("x", x), ("y", y), ("width", width.max(0.5)), ("height", height.max(0.5))];
        self.shape("rect", class, &places, &format!("<title>{}</title>", escape(tooltip)));
    }

    /// Writes a text whose base line is at the point. The class says which end of it, too.
    pub(super) fn text(&mut self, class: &str, [x, y]: [f64; 2], text: &str) {
        self.shape("text", class, &[("x", x), ("y", y)], &escape(text));
    }

    /// Writes a text under the whole picture.
    pub(super) fn below(&mut self, y: f64, text: &str) {
        self.text("mark middle", [WIDTH / 2.0, y], text);
    }

    /// Returns the picture with its caption.
    pub(super) fn figure(self, numbers: &mut Numbers, title: &str, description: &str) -> String {
        numbers.0 += 1;
        let number = numbers.0;
        let (title, description) = (escape(title), escape(description));
        let Self { body, height } = self;
        format!(
            "<figure>\n<figcaption>{title}</figcaption>\n\
             <svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" \
             aria-labelledby=\"title-{number} about-{number}\">\n\
             <title id=\"title-{number}\">{title}</title>\n<desc id=\"about-{number}\">{description}</desc>\n\
             {body}</svg>\n</figure>\n"
        )
    }
}

/// Returns text that may stand in a page.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            // XML has no form for control characters.
            letter if letter < ' ' && !"\n\t".contains(letter) => safe.push('?'),
            letter => safe.push(letter),
        }
    }
    safe
}

/// Marks that a scale has at most.
const MOST_MARKS: usize = 8;

/// From values to places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    is_logarithmic: bool,
    ends: [f64; 2],
    places: [f64; 2],
}

impl Axis {
    /// Returns an axis from nothing to somewhat more than the most.
    pub(super) fn from_zero(most: f64, places: [f64; 2]) -> Self {
        let most = if most > 0.0 { most } else { 1.0 };
        Self { is_logarithmic: false, ends: [0.0, most * 1.05], places }
    }

    /// Returns an axis by powers over these values, which are above nothing, with room at both
    /// ends.
    pub(super) fn of_powers(values: impl Iterator<Item = f64> + Clone, places: [f64; 2]) -> Self {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let most = values.fold(0.0, f64::max);
        assert!(0.0 < least && least <= most, "{least} to {most}: nothing has no power");
        // Never so near that noise looks like a canyon.
        let half = (most / least).max(1.2).sqrt() * 1.06;
        let middle = (least * most).sqrt();
        Self { is_logarithmic: true, ends: [middle / half, middle * half], places }
    }

    /// Returns the place of a value; one outside is at the end.
    pub(super) fn place(&self, value: f64) -> f64 {
        let [low, high] = self.ends;
        let share = if self.is_logarithmic {
            (value / low).ln() / (high / low).ln()
        } else {
            (value - low) / (high - low)
        };
        let [first, last] = self.places;
        first + share.clamp(0.0, 1.0) * (last - first)
    }

    /// Returns round values to mark, not more than there is room for.
    pub(super) fn marks(&self) -> Vec<f64> {
        let [low, high] = self.ends;
        let within = |value: &f64| (low..=high).contains(value);
        let decades = low.max(1e-9).log10().floor() as i32..=high.log10().ceil() as i32;
        let powers = |steps: &[f64]| -> Vec<f64> {
            let of = |decade| steps.iter().map(move |step| step * 10f64.powi(decade));
            decades.clone().flat_map(of).filter(within).collect()
        };
        let sets = [powers(&[1.0]), powers(&[1.0, 3.0]), powers(&[1.0, 2.0, 5.0])];
        let found = sets.into_iter().find(|marks| self.is_logarithmic && marks.len() >= 3);
        if let Some(marks) = found {
            let every = marks.len().div_ceil(MOST_MARKS);
            return marks.into_iter().step_by(every).collect();
        }
        let step = round_step((high - low) / 4.0);
        let first = (low / step).ceil();
        let marks = (0..).map(|number| (first + f64::from(number)) * step);
        marks.take_while(|value| *value <= high).collect()
    }
}

/// Returns the least of 1, 2, 2.5, 5 times a power of ten that is not less.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let factors = [1.0, 2.0, 2.5, 5.0, 10.0];
    factors.into_iter().find(|factor| factor * power >= step * 0.999).unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_places_and_marks_are_round() {
        let axis = Axis::from_zero(95.0, [0.0, 100.0]);
        assert_eq!(axis.marks(), [0.0, 25.0, 50.0, 75.0]);
        assert_eq!((axis.place(0.0), axis.place(1e9)), (0.0, 100.0));
        let powers = Axis::of_powers([1e3, 1e7].into_iter(), [100.0, 0.0]);
        assert_eq!(powers.marks(), [1e3, 1e4, 1e5, 1e6, 1e7]);
        assert!((powers.place(1e5) - 50.0).abs() < 1e-9);
        let near = Axis::of_powers([100.0, 101.0].into_iter(), [0.0, 1.0]);
        assert!(near.marks().len() >= 2, "{:?}", near.marks());
    }
}
