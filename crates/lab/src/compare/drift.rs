//! Trends and outliers: whether all arms went up or down together, and which round of an arm is far
//! from its others. Both are reported and nothing is removed: pairing by round cancels a common
//! trend, and a mean over chosen rounds is no mean.

use std::collections::BTreeMap;

use statrs::distribution::{ContinuousCDF, Normal};

use crate::statistics::median;

use super::outcome::Measured;

/// Rounds that a trend needs: by chance, five are in order 1 time in 60.
const ROUNDS_FOR_A_TREND: usize = 5;

/// A trend is reported if its chance is at most this.
const RARE: f64 = 0.05;

/// One smaller than this is nobody's trouble.
const SMALL: f64 = 0.05;

/// So many deviations from the median, by the median deviation, is apart.
const FAR: f64 = 3.5;

/// An outlier is at least this share of the median away.
const APART: f64 = 0.1;

/// Outliers of more arms than this get one common note.
const SHOWN_EACH: usize = 6;

/// The median deviation of normal values is this share of their standard deviation.
const OF_NORMAL: f64 = 0.6745;

pub(super) fn notes(measured: &[Measured], metric: &str) -> Vec<String> {
    let mut jobs: BTreeMap<&str, Vec<(&str, Vec<f64>)>> = BTreeMap::new();
    for one in measured {
        let values: Option<Vec<f64>> =
            one.rounds.iter().map(|round| round.metrics.get(metric).copied()).collect();
        let sound =
            values.filter(|values| values.iter().all(|value| *value > 0.0 && value.is_finite()));
        if let Some(values) = sound {
            jobs.entry(&one.job).or_default().push((&one.arm, values));
        }
    }
    let mut notes: Vec<String> =
        jobs.iter().filter_map(|(job, arms)| drift(job, metric, arms)).collect();
    let arms = jobs
        .iter()
        .flat_map(|(job, arms)| arms.iter().map(move |(arm, values)| (*job, *arm, values)));
    let apart: Vec<Apart<'_>> =
        arms.filter_map(|(job, arm, values)| Apart::of(job, arm, values)).collect();
    if apart.len() <= SHOWN_EACH {
        notes.extend(apart.iter().map(|one| one.reported(metric)));
    } else {
        notes.push(format_together(&apart, metric));
    }
    notes
}

/// Returns the note on a drift over all arms of a job, each as a share of its own median.
fn drift(job: &str, metric: &str, arms: &[(&str, Vec<f64>)]) -> Option<String> {
    let rounds = arms.iter().map(|(_, values)| values.len()).min()?;
    if rounds < ROUNDS_FOR_A_TREND {
        return None;
    }
    let of_arms: Vec<(&Vec<f64>, f64)> =
        arms.iter().map(|(_, values)| Some((values, median(values)?))).collect::<Option<_>>()?;
    let level = |round: usize| {
        let logs = of_arms.iter().map(|(values, middle)| (values[round] / middle).ln());
        logs.sum::<f64>() / of_arms.len() as f64
    };
    let levels: Vec<f64> = (0..rounds).map(level).collect();
    let third = (rounds / 3).max(1);
    let mean = |levels: &[f64]| levels.iter().sum::<f64>() / levels.len() as f64;
    let change = (mean(&levels[rounds - third..]) - mean(&levels[..third])).exp() - 1.0;
    let chance = trend_by_chance(&levels);
    if chance > RARE || change.abs() < SMALL {
        return None;
    }
    let (word, share) = (if change > 0.0 { "rose" } else { "fell" }, change.abs() * 100.0);
    Some(format!(
        "drift in {job}: {metric} of all arms {word} by {share:.0} % over the rounds (p {chance:.3}); ratios are \
         paired by round, means are not; let the machine rest first, or use more --rounds"
    ))
}

/// Returns the chance of at least as many ordered pairs, either way, if the order of the rounds
/// meant nothing. Kendall's test: exact for few rounds, by the normal distribution for many.
fn trend_by_chance(values: &[f64]) -> f64 {
    const EXACT_UP_TO: usize = 20;
    let count = values.len();
    let pairs = count * (count - 1) / 2;
    let mut falling = 0;
    for (place, value) in values.iter().enumerate() {
        falling += values[place + 1..].iter().filter(|later| *later < value).count();
    }
    let least = falling.min(pairs - falling);
    if count <= EXACT_UP_TO {
        let ways = inversions(count);
        let all: f64 = ways.iter().sum();
        return (2.0 * ways[..=least].iter().sum::<f64>() / all).min(1.0);
    }
    let variance = (count * (count - 1) * (2 * count + 5)) as f64 / 18.0;
    let distance = (pairs as f64 - 2.0 * least as f64 - 1.0).max(0.0) / variance.sqrt();
    (2.0 * Normal::standard().sf(distance)).min(1.0)
}

/// Returns the number of orders of `count` values by their falling pairs, which are the index.
fn inversions(count: usize) -> Vec<f64> {
    let mut ways = vec![1.0];
    for one in 2..=count {
        let mut next = vec![0.0; ways.len() + one - 1];
        for (place, way) in ways.iter().enumerate() {
            next[place..place + one].iter_mut().for_each(|sum| *sum += way);
        }
        ways = next;
    }
    ways
}

/// Rounds of an arm that stand apart from its others, from 0, and what share of the median they
/// are.
#[derive(Debug)]
struct Apart<'a> {
    job: &'a str,
    arm: &'a str,
    rounds: Vec<(usize, f64)>,
}

impl<'a> Apart<'a> {
    fn of(job: &'a str, arm: &'a str, values: &[f64]) -> Option<Self> {
        if values.len() < ROUNDS_FOR_A_TREND {
            return None;
        }
        let middle = median(values)?;
        let deviations: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
        let usual = median(&deviations)?;
        let far = |value: f64| {
            let apart = (value - middle).abs();
            OF_NORMAL * apart > FAR * usual && apart > APART * middle
        };
        let rounds = values.iter().enumerate().filter(|(_, value)| far(**value));
        let rounds: Vec<(usize, f64)> =
            rounds.map(|(round, value)| (round, value / middle)).collect();
        (!rounds.is_empty()).then_some(Self { job, arm, rounds })
    }

    fn reported(&self, metric: &str) -> String {
        let rounds = self.rounds.iter().map(|(round, share)| format_round(*round, *share));
        let rounds = rounds.collect::<Vec<_>>().join(", ");
        format!("outliers (kept): {} in {}, {metric}: {rounds}", self.arm, self.job)
    }
}

/// Returns one note on many outliers: how many, and the one that is furthest away.
fn format_together(apart: &[Apart<'_>], metric: &str) -> String {
    let each = || apart.iter().flat_map(|one| one.rounds.iter().map(move |found| (one, *found)));
    let distance = |share: f64| share.ln().abs();
    let furthest =
        each().max_by(|(_, one), (_, other)| distance(one.1).total_cmp(&distance(other.1)));
    let furthest = furthest.map(|(Apart { job, arm, .. }, (round, share))| {
        format!("; the furthest is {arm} in {job}: {}", format_round(round, share))
    });
    format!(
        "outliers (kept): {} values of {metric} in {} arms (--html shows them){}",
        each().count(),
        apart.len(),
        furthest.unwrap_or_default()
    )
}

fn format_round(round: usize, share: f64) -> String {
    format!("round {} at {share:.2} of the median", round + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::CellResult;
    use forebay_block::random::Random;

    fn measured(arm: &str, values: &[f64]) -> Measured {
        let result = |value: &f64| CellResult {
            metrics: [("iops".to_owned(), *value)].into(),
            ..CellResult::default()
        };
        Measured { job: "job".into(), arm: arm.into(), rounds: values.iter().map(result).collect() }
    }

    #[test]
    fn a_trend_of_all_arms_is_reported_and_a_difference_between_them_is_none() {
        let falling = [
            measured("a", &[100.0, 95.0, 90.0, 84.0, 80.0]),
            measured("b", &[50.0, 48.0, 45.0, 43.0, 40.0]),
        ];
        let reported = notes(&falling, "iops");
        assert!(
            reported.len() == 1
                && reported[0].contains("fell by 20 %")
                && reported[0].contains("p 0.017"),
            "{reported:?}"
        );
        let steady = [measured("a", &[100.0, 99.0, 101.0, 100.0, 98.0]), measured("b", &[10.0; 5])];
        assert_eq!(notes(&steady, "iops"), Vec::<String>::new());
        let few = [measured("a", &[100.0, 50.0, 25.0, 12.0])];
        assert_eq!(notes(&few, "iops"), Vec::<String>::new());
    }

    #[test]
    fn chance_is_counted_and_near_the_normal_one_above() {
        assert!((trend_by_chance(&[1.0, 2.0, 3.0, 4.0, 5.0]) - 2.0 / 120.0).abs() < 1e-12);
        assert!((trend_by_chance(&[2.0, 1.0, 3.0]) - 1.0).abs() < 1e-12);
        assert_eq!(inversions(4), [1.0, 3.0, 5.0, 6.0, 5.0, 3.0, 1.0]);
        let rising: Vec<f64> = (0..30).map(f64::from).collect();
        assert!(trend_by_chance(&rising) < 1e-6);
        let mut random = Random::stream(7, 1);
        let found = (0..400).filter(|_| {
            let values: Vec<f64> = (0..24).map(|_| random.draw() as f64).collect();
            trend_by_chance(&values) <= RARE
        });
        assert!((5..40).contains(&found.count()), "one in twenty has a trend by chance");
    }

    #[test]
    fn what_stands_apart_is_marked_and_kept() {
        let one = [measured("a", &[100.0, 101.0, 99.0, 40.0, 100.0, 102.0])];
        let reported = notes(&one, "iops");
        assert_eq!(reported, ["outliers (kept): a in job, iops: round 4 at 0.40 of the median"]);
        assert_eq!(one[0].rounds.len(), 6);
        let many: Vec<Measured> = (0..7)
            .map(|arm| {
                measured(&arm.to_string(), &[100.0, 99.0, 101.0, 100.0, 40.0 + f64::from(arm)])
            })
            .collect();
        let together = "outliers (kept): 7 values of iops in 7 arms (--html shows them); the furthest is \
                        0 in job: round 5 at 0.40 of the median";
        assert_eq!(notes(&many, "iops"), [together]);
    }
}
