//! From cells to rows and comparisons.
//!
//! Each job is judged by itself. The base is an arm the suite names, or the best of several by
//! mean: the best alternative that a reader has. That it is chosen after the fact can only hurt the
//! arms it is set against, never help them. Beside every arm against the base stand the A/A pair,
//! whose spread is the noise floor of each metric, and the pairs the suite asks for.
//!
//! For a metric that is a cost the difference is reported too, in its own unit: nanoseconds add up
//! over arms, ratios do not.

use crate::cell::CellResult;
use crate::metric::{Better, Metric};
use crate::probes;
use crate::schema::{Against, Comparison, Difference, Document, Row, again};
use crate::statistics::difference::{difference, difference_floor};
use crate::statistics::{Paired, mean, noise_floor, ratio, sample_stddev};
use crate::suite::model::{Base, Pair};

use super::outcome::Measured;

/// How a part of a suite is judged.
#[derive(Clone, Copy, Debug)]
pub struct Judging<'a> {
    pub base: &'a Base,
    /// Metric that chooses the best arm, and whose difference is reported.
    pub metric: &'a str,
    /// The arm that runs twice.
    pub again: &'a str,
    /// Pairs besides.
    pub also: &'a [Pair],
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Judged {
    pub rows: Vec<Row>,
    pub comparisons: Vec<Comparison>,
    /// Differences of every pair with the base in the metric of the judging, if that is a cost.
    pub differences: Vec<Difference>,
    /// Base of each job that has one.
    pub bases: Vec<(String, String)>,
}

/// Judges a comparison, whose arms stand job by job. The seed is that of the plan: intervals are
/// repeatable.
pub fn judge(measured: &[Measured], judging: Judging<'_>, seed: u64) -> Judged {
    let twin = again(judging.again);
    let noise = Against { arm: &twin, base: judging.again };
    let mut judged = Judged::default();
    for of_job in measured.chunk_by(|one, next| one.job == next.job) {
        let job = of_job[0].job.as_str();
        let rounds = of_job[0].rounds.len();
        let whole = of_job.iter().all(|one| one.rounds.len() == rounds);
        assert!(whole, "{job}: an arm lacks a round of others");
        let arms: Vec<&str> = of_job.iter().map(|one| one.arm.as_str()).collect();
        let rows = of_job.iter().flat_map(|one| rows(job, &one.arm, &one.rounds)).collect();
        let job = OfJob { job, rows, noise, seed };
        let base = job.base(&arms, judging);
        for pair in pairs(base, &arms, judging.also, noise) {
            judged.comparisons.extend(probes::metrics().filter_map(|one| job.compare(pair, one)));
            if Some(pair.base) == base && is_cost(judging.metric) {
                judged.differences.extend(job.differ(pair, judging.metric));
            }
        }
        judged.bases.extend(base.map(|base| (job.job.to_owned(), base.to_owned())));
        judged.rows.extend(job.rows);
    }
    judged
}

/// Returns the rows of one arm: each metric that any of its rounds has.
pub fn rows(job: &str, arm: &str, rounds: &[CellResult]) -> Vec<Row> {
    let of = |metric: &'static Metric| {
        let value = |result: &CellResult| {
            result.metrics.get(metric.name).copied().filter(|value| value.is_finite())
        };
        let values: Vec<Option<f64>> = rounds.iter().map(value).collect();
        let measured: Vec<f64> = values.iter().flatten().copied().collect();
        let mean = mean(&measured)?;
        let stddev = sample_stddev(&measured);
        Some(Row { stddev, rounds: values, ..Row::of(job, arm, metric, mean) })
    };
    probes::metrics().filter_map(of).collect()
}

/// Returns the noise floor of a metric, from the rows of the A/A pair.
fn floor_of(rows: &[Row], job: &str, noise: Against<'_>, metric: &str) -> Option<f64> {
    let (arm, base) = with_ratios(in_both(rows, job, noise, metric)?);
    noise_floor(Paired { arm: &arm, base: &base })
}

impl Document {
    /// Returns the noise floor of a metric in a job; `again` is the arm that ran twice.
    pub fn floor(&self, job: &str, base: &str, metric: &str) -> Option<f64> {
        floor_of(&self.rows, job, Against { arm: &again(base), base }, metric)
    }
}

/// Returns every other arm against the base, the A/A pair, and those asked for, each once.
fn pairs<'a>(
    base: Option<&'a str>,
    arms: &[&'a str],
    also: &'a [Pair],
    noise: Against<'a>,
) -> Vec<Against<'a>> {
    let others = |base| arms.iter().filter(move |arm| **arm != base);
    let with_base =
        base.into_iter().flat_map(|base| others(base).map(move |arm| Against { arm, base }));
    let mut pairs: Vec<Against<'_>> = with_base.collect();
    let also = also.iter().map(|Pair { arm, base }| Against { arm, base });
    for pair in [noise].into_iter().chain(also) {
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    pairs
}

/// Returns whether less of a metric is better.
fn is_cost(metric: &str) -> bool {
    probes::metric(metric).is_some_and(|metric| metric.better == Better::Lower)
}

/// The rows of a job, and all that its comparisons need.
struct OfJob<'a> {
    job: &'a str,
    rows: Vec<Row>,
    /// The A/A pair that gives the noise.
    noise: Against<'a>,
    seed: u64,
}

impl OfJob<'_> {
    fn base<'a>(&self, arms: &[&'a str], judging: Judging<'_>) -> Option<&'a str> {
        let arms = arms.iter().copied();
        let names = match judging.base {
            Base::Arm(name) => return arms.into_iter().find(|arm| arm == name),
            Base::BestOf(names) => names,
        };
        let value = |arm: &str| {
            let mut rows = self.rows.iter();
            let mean = rows.find(|row| row.arm == arm && row.metric == judging.metric)?.mean;
            Some(if is_cost(judging.metric) { -mean } else { mean })
        };
        let candidates = arms.filter(|arm| names.iter().any(|name| name == arm));
        let valued = candidates.filter_map(|arm| Some((arm, value(arm)?)));
        valued.max_by(|left, right| left.1.total_cmp(&right.1)).map(|(arm, _)| arm)
    }

    fn compare(&self, pair: Against<'_>, metric: &Metric) -> Option<Comparison> {
        let (arm, base) = with_ratios(in_both(&self.rows, self.job, pair, metric.name)?);
        let found = ratio(Paired { arm: &arm, base: &base }, self.seed)?;
        let floor = floor_of(&self.rows, self.job, self.noise, metric.name);
        Some(Comparison::of(self.job, metric, pair, &found, floor))
    }

    fn differ(&self, pair: Against<'_>, metric: &str) -> Option<Difference> {
        let (arm, base) = in_both(&self.rows, self.job, pair, metric)?;
        let found = difference(Paired { arm: &arm, base: &base }, self.seed)?;
        debug_assert!(found.low <= found.high, "{metric}: {found:?}");
        let noise = in_both(&self.rows, self.job, self.noise, metric)
            .and_then(|(arm, base)| difference_floor(Paired { arm: &arm, base: &base }));
        Some(Difference {
            job: self.job.to_owned(),
            metric: metric.to_owned(),
            unit: probes::metric(metric)?.unit.to_owned(),
            base: pair.base.to_owned(),
            arm: pair.arm.to_owned(),
            value: found.value,
            ci_low: found.low,
            ci_high: found.high,
            p: Some(found.p),
            floor: noise,
            shown: found.is_difference_shown(noise),
        })
    }
}

/// The rounds of an arm and of its base.
type Rounds = (Vec<f64>, Vec<f64>);

/// Returns the rounds that have a ratio.
fn with_ratios((arm, base): Rounds) -> Rounds {
    arm.into_iter().zip(base).filter(|(arm, base)| *arm > 0.0 && *base > 0.0).unzip()
}

/// Returns the rounds that both arms have; of a difference nothing is a value too.
fn in_both(rows: &[Row], job: &str, pair: Against<'_>, metric: &str) -> Option<Rounds> {
    debug_assert!(probes::metric(metric).is_some());
    let row = |arm: &str| {
        rows.iter().find(|row| row.job == job && row.arm == arm && row.metric == metric)
    };
    let (arm, base) = (row(pair.arm)?, row(pair.base)?);
    let both = arm.rounds.iter().zip(&base.rounds);
    Some(both.filter_map(|(arm, base)| Some(((*arm)?, (*base)?))).unzip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::CellResult;
    use crate::statistics::Verdict;

    const THROUGHPUT: &str = "write_bytes_per_s";

    fn measured(job: &str, arm: &str, metric: &str, rounds: &[f64]) -> Measured {
        let cell = |value: &f64| CellResult {
            metrics: [(metric.to_owned(), *value)].into(),
            ..CellResult::default()
        };
        Measured { job: job.into(), arm: arm.into(), rounds: rounds.iter().map(cell).collect() }
    }

    fn best_of_two() -> Base {
        Base::BestOf(vec!["kernel-bounded".into(), "kernel-direct".into()])
    }

    fn judged(measured: &[Measured], base: &Base, metric: &str) -> Judged {
        let also = [Pair { arm: "forebay".into(), base: "kernel-buffered".into() }];
        judge(measured, Judging { base, metric, again: "forebay", also: &also }, 1)
    }

    fn verdict_of(judged: &Judged, base: &str, arm: &str) -> Option<Verdict> {
        let mut comparisons = judged.comparisons.iter();
        comparisons.find(|one| one.base == base && one.arm == arm).map(|one| one.verdict)
    }

    fn base<'a>(judged: &'a Judged, job: &str) -> Option<&'a str> {
        judged.bases.iter().find(|(known, _)| known == job).map(|(_, base)| base.as_str())
    }

    #[test]
    fn the_base_is_the_best_of_those_named() {
        let cells = [
            measured("job", "kernel-buffered", THROUGHPUT, &[900.0; 5]),
            measured("job", "kernel-bounded", THROUGHPUT, &[200.0, 210.0, 205.0, 190.0, 208.0]),
            measured("job", "kernel-direct", THROUGHPUT, &[300.0, 310.0, 305.0, 290.0, 308.0]),
            measured("job", "forebay", THROUGHPUT, &[450.0, 455.0, 452.0, 440.0, 449.0]),
            measured("job", "forebay-again", THROUGHPUT, &[451.0, 453.0, 450.0, 443.0, 450.0]),
        ];
        let judged = judged(&cells, &best_of_two(), THROUGHPUT);
        assert_eq!(base(&judged, "job"), Some("kernel-direct"));
        assert_eq!(verdict_of(&judged, "kernel-direct", "forebay"), Some(Verdict::Better));
        assert_eq!(verdict_of(&judged, "kernel-direct", "kernel-bounded"), Some(Verdict::Worse));
        assert_eq!(verdict_of(&judged, "kernel-direct", "kernel-direct"), None);
        assert_eq!(verdict_of(&judged, "kernel-buffered", "forebay"), Some(Verdict::Worse));
        assert_eq!(verdict_of(&judged, "forebay", "forebay-again"), Some(Verdict::NotShown));
        let noise = Against { arm: "forebay-again", base: "forebay" };
        assert!(floor_of(&judged.rows, "job", noise, THROUGHPUT).unwrap() < 0.01);
    }

    #[test]
    fn each_job_has_a_base_of_its_own() {
        let cells = [
            measured("one", "kernel-bounded", "ns_per_io", &[200.0; 5]),
            measured("one", "kernel-direct", "ns_per_io", &[300.0; 5]),
            measured("two", "kernel-bounded", "ns_per_io", &[500.0; 5]),
            measured("two", "kernel-direct", "ns_per_io", &[300.0; 5]),
            measured("two", "forebay", "ns_per_io", &[200.0; 5]),
        ];
        let judged = judged(&cells, &best_of_two(), "ns_per_io");
        assert_eq!(base(&judged, "one"), Some("kernel-bounded"), "of a cost the least is best");
        assert_eq!(base(&judged, "two"), Some("kernel-direct"));
        let of_two: Vec<_> = judged.comparisons.iter().filter(|one| one.job == "two").collect();
        assert_eq!(of_two.len(), 2);
        assert_eq!(judged.differences.len(), 3);
        let forebay = judged.differences.iter().find(|one| one.arm == "forebay").unwrap();
        assert_eq!((forebay.value, forebay.unit.as_str(), forebay.shown), (-100.0, "ns", false));
    }

    #[test]
    fn less_is_better_where_the_metric_says_so() {
        let cells = [
            measured("job", "forebay", "sync_probe_p99_us", &[100.0, 101.0, 99.0, 100.0]),
            measured("job", "forebay-again", "sync_probe_p99_us", &[100.0, 100.0, 99.5, 101.0]),
            measured("job", "kernel-buffered", "sync_probe_p99_us", &[900.0, 910.0, 905.0, 890.0]),
        ];
        let judged = judged(&cells, &best_of_two(), THROUGHPUT);
        assert_eq!(base(&judged, "job"), None, "without throughput there is no base");
        assert_eq!(verdict_of(&judged, "kernel-buffered", "forebay"), Some(Verdict::Better));
    }

    #[test]
    fn without_the_second_of_the_pair_nothing_is_shown() {
        let cells = [
            measured("job", "kernel-bounded", THROUGHPUT, &[200.0; 5]),
            measured("job", "forebay", THROUGHPUT, &[400.0; 5]),
        ];
        let judged = judged(&cells, &Base::Arm("kernel-bounded".into()), THROUGHPUT);
        assert_eq!(verdict_of(&judged, "kernel-bounded", "forebay"), Some(Verdict::NotShown));
    }

    #[test]
    fn rounds_without_a_value_are_left_out_of_the_pair() {
        let cells = [
            measured("job", "kernel-bounded", THROUGHPUT, &[200.0, 0.0, 200.0, f64::NAN, 200.0]),
            measured("job", "forebay", THROUGHPUT, &[400.0; 5]),
        ];
        let judged = judged(&cells, &best_of_two(), THROUGHPUT);
        assert_eq!(judged.comparisons[0].ratio, 2.0);
    }

    #[test]
    fn nothing_is_a_value_of_a_difference_and_none_of_a_ratio() {
        let cells = [
            measured("job", "kernel-bounded", "context_switches", &[2.0, 2.0, 2.0, 2.0, 2.0]),
            measured("job", "forebay", "context_switches", &[0.0, 0.0, 0.0, 1.0, 0.0]),
            measured("job", "forebay-again", "context_switches", &[0.0, 0.0, 0.0, 0.0, 0.0]),
        ];
        let judged = judged(&cells, &Base::Arm("kernel-bounded".into()), "context_switches");
        let found = judged.differences.iter().find(|one| one.arm == "forebay").unwrap();
        assert_eq!((found.value, found.shown), (-2.0, true), "{found:?}");
        assert!(found.floor.is_some_and(|floor| floor < 1.0), "{found:?}");
        let ratio = judged.comparisons.iter().find(|one| one.base == "kernel-bounded").unwrap();
        assert_eq!(ratio.ratio, 0.5, "of the one round in which it is one");
    }
}
