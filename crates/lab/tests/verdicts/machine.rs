//! Machines of some noise, in virtual time: a seed gives the same figures everywhere.
//!
//! Figures are made up cell after cell: every round runs all arms in an order of its own, and the
//! noise goes on from one cell to the next. [`forebay_lab::compare`] judges them as it judges what
//! was measured.

use std::collections::BTreeMap;
use std::f64::consts::TAU;

use forebay_block::random::Random;
use forebay_lab::cell::CellResult;
use forebay_lab::compare::Measured;
use forebay_lab::compare::trial::{ARMS, BASE, METRIC, judged, order};
use forebay_lab::statistics::Verdict;

/// How a machine is noisy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Noise {
    /// Each cell by itself.
    Independent,
    /// It gets faster or slower as hours go by, by a walk.
    Drifting,
    /// Now and then a cell is far off.
    HeavyTailed,
    /// A cell is much like the one before it.
    Autocorrelated,
    /// It is in one of two states, and stays there for a while.
    Bimodal,
    /// It slows down in the course of each round, and has recovered by the next.
    TrendingWithinRounds,
    /// At one moment it becomes another machine.
    Stepping,
    /// It becomes noisier from round to round.
    Widening,
}

/// All of them.
pub(crate) const NOISES: [Noise; 8] = [
    Noise::Independent,
    Noise::Drifting,
    Noise::HeavyTailed,
    Noise::Autocorrelated,
    Noise::Bimodal,
    Noise::TrendingWithinRounds,
    Noise::Stepping,
    Noise::Widening,
];

impl Noise {
    /// As it is called in a table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Noise::Independent => "independent",
            Noise::Drifting => "drifting",
            Noise::HeavyTailed => "heavy-tailed",
            Noise::Autocorrelated => "autocorrelated",
            Noise::Bimodal => "bimodal",
            Noise::TrendingWithinRounds => "trending within rounds",
            Noise::Stepping => "stepping",
            Noise::Widening => "widening",
        }
    }
}

/// Comparisons without an effect under one noise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tried {
    pub(crate) noise: Noise,
    /// Comparisons.
    pub(crate) comparisons: u32,
    /// Those with a verdict.
    pub(crate) false_verdicts: u32,
}

/// Tries every noise `each` times without an effect.
pub(crate) fn nothing_planted(each: u32, rounds: u32, seed: u64) -> Vec<Tried> {
    let tried = |(stream, noise): (u64, Noise)| {
        let seeds = (0..each).map(|trial| seed_of(seed, stream, trial));
        let shown = seeds.filter(|&seed| {
            let machine = Machine::new(noise, rounds, seed);
            verdict(machine, rounds, seed, |_| 1.0) != Verdict::NotShown
        });
        Tried { noise, comparisons: each, false_verdicts: shown.count() as u32 }
    };
    (0..).zip(NOISES).map(tried).collect()
}

/// Returns the verdict on the arm. `figure` is the value of each arm without noise.
pub(crate) fn verdict(
    mut machine: Machine,
    rounds: u32,
    seed: u64,
    mut figure: impl FnMut(&str) -> f64,
) -> Verdict {
    let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for round in 0..rounds {
        for (place, arm) in order(seed, round).into_iter().enumerate() {
            let value = figure(arm) * machine.speed(round, place as u32);
            values.entry(arm).or_default().push(value);
        }
    }
    let measured = ARMS.map(|arm| measured(arm, &values[arm]));
    judged(&measured, seed).map_or(Verdict::NotShown, |comparison| comparison.verdict)
}

/// One arm's figures as cells would have brought them.
fn measured(arm: &str, values: &[f64]) -> Measured {
    let cell = |value: &f64| CellResult {
        metrics: [(METRIC.to_owned(), *value)].into(),
        ..CellResult::default()
    };
    Measured { job: "trial".into(), arm: arm.into(), rounds: values.iter().map(cell).collect() }
}

fn seed_of(seed: u64, stream: u64, trial: u32) -> u64 {
    Random::stream(seed, stream << 32 | u64::from(trial)).draw()
}

/// A machine of some noise.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    noise: Noise,
    random: Random,
    /// How much of its noise there is: a hundredth to a fifth.
    amount: f64,
    /// Of the cell before: a deviation, or which state it was in.
    state: f64,
    /// The round of its change.
    steps_in: u32,
}

impl Machine {
    pub(crate) fn new(noise: Noise, rounds: u32, seed: u64) -> Self {
        let mut random = Random::stream(seed, 5);
        // As many quiet machines as loud ones.
        let amount = 0.01 * 20f64.powf(unit(&mut random));
        Self::of(noise, amount, rounds, random)
    }

    /// Makes a machine whose noise is this share of its speed.
    pub(crate) fn with_amount(noise: Noise, amount: f64, rounds: u32, seed: u64) -> Self {
        Self::of(noise, amount, rounds, Random::stream(seed, 5))
    }

    fn of(noise: Noise, amount: f64, rounds: u32, mut random: Random) -> Self {
        let steps_in = random.below(u64::from(rounds.max(1))) as u32;
        let state = if noise == Noise::Bimodal { f64::from(random.below(2) as u32) } else { 0.0 };
        Self { noise, random, amount, state, steps_in }
    }

    /// How fast the next cell is, 1 being without noise. It is the so-many-th of its round.
    pub(crate) fn speed(&mut self, round: u32, place: u32) -> f64 {
        // Beside what is asked about, every cell differs a little by itself.
        let amount = self.amount;
        let little = 0.2 * amount * self.normal();
        let deviation = match self.noise {
            Noise::Independent => amount * self.normal(),
            Noise::Drifting => {
                self.state += amount * self.normal();
                self.state
            }
            Noise::HeavyTailed => amount * self.heavy(),
            Noise::Autocorrelated => {
                self.state = 0.8 * self.state + amount * self.normal();
                self.state
            }
            Noise::Bimodal => {
                if self.random.below(4) == 0 {
                    self.state = 1.0 - self.state;
                }
                -3.0 * amount * self.state
            }
            Noise::TrendingWithinRounds => -amount * f64::from(place),
            Noise::Stepping => {
                let another = round > self.steps_in || (round == self.steps_in && place > 0);
                if another { -5.0 * amount } else { 0.0 }
            }
            Noise::Widening => amount * f64::from(round + 1) / 4.0 * self.normal(),
        };
        (deviation + little).exp()
    }

    /// Of mean 0 and deviation 1 (Box and Muller).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * unit(&mut self.random).ln()).sqrt();
        radius * (TAU * unit(&mut self.random)).cos()
    }

    /// Student's t with two degrees of freedom, which has no variance; cut off where a cell would
    /// end the comparison.
    fn heavy(&mut self) -> f64 {
        let chi = -2.0 * unit(&mut self.random).ln();
        (self.normal() / (chi / 2.0).sqrt()).clamp(-20.0, 20.0)
    }
}

/// Above 0, at most 1.
fn unit(random: &mut Random) -> f64 {
    ((random.draw() >> 11) + 1) as f64 / (1u64 << 53) as f64
}

#[test]
fn a_machine_replays_and_is_of_its_kind() {
    let speeds = |noise, seed| -> Vec<f64> {
        let mut machine = Machine::with_amount(noise, 0.05, 10, seed);
        (0..30).map(|cell| machine.speed(cell / 3, cell % 3)).collect()
    };
    for noise in NOISES {
        assert_eq!(speeds(noise, 1), speeds(noise, 1), "{}", noise.name());
        assert_ne!(speeds(noise, 1), speeds(noise, 2), "{}", noise.name());
        assert!(speeds(noise, 3).iter().all(|speed| *speed > 0.0 && speed.is_finite()));
    }
    let trending = speeds(Noise::TrendingWithinRounds, 1);
    assert!(trending.chunks(3).all(|round| round[0] > round[2]));
    let two: Vec<f64> = speeds(Noise::Bimodal, 1);
    assert!(
        two.iter().any(|speed| *speed > 0.95) && two.iter().any(|speed| *speed < 0.9),
        "{two:?}"
    );
    let walk = speeds(Noise::Drifting, 1);
    let (least, most) =
        walk.iter().fold((1.0f64, 1.0f64), |(l, m), speed| (l.min(*speed), m.max(*speed)));
    assert!(most / least > 1.1, "{walk:?}");
}

#[test]
fn what_is_large_is_found_and_what_is_not_there_is_not() {
    let quiet = |seed| Machine::with_amount(Noise::Independent, 0.01, 10, seed);
    let planted = |arm: &str| if arm == BASE { 1.0 } else { 1.5 };
    assert_eq!(verdict(quiet(1), 10, 1, planted), Verdict::Better);
    assert_eq!(verdict(quiet(1), 10, 1, |arm| 1.0 / planted(arm)), Verdict::Worse);
    assert_eq!(verdict(quiet(1), 3, 1, planted), Verdict::NotShown, "three rounds are too few");
}
