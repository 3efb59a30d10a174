//! From cells to rows and comparisons.
//!
//! Each job is judged by itself. The base is an arm the suite names, or the best of several by
//! mean: the best alternative that a reader has. That it is chosen after the fact can only hurt the
//! arms it is set against, never help them. Beside every arm against the base stand the A/A pair,
//! whose spread is the noise floor of each metric, and the pairs the suite asks for.
//!
//! If the base is the best of several, it may differ by metric: the arm with the best rate may not
//! have the best latency. So in each of [`BEST_BESIDES`] the arms stand against the best in that
//! metric too.
//!
//! For a metric that is a cost the difference is reported too, in its own unit: nanoseconds add up
//! over arms, ratios do not.

use std::collections::BTreeMap;

use crate::cell::CellResult;
use crate::metric::{Better, Metric};
use crate::probes;
use crate::schema::{Against, Comparison, Difference, Document, Row, again};
use crate::statistics::difference::{difference, difference_floor, is_shown};
use crate::statistics::{Paired, Ratio, mean, noise_floor, ratio, sample_stddev};
use crate::suite::model::{Base, Pair};

use super::outcome::Measured;

/// Metrics with a best arm of their own, besides the metric of the judging.
pub const BEST_BESIDES: [&str; 2] = ["latency_p50_us", "latency_p99_us"];

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
    /// Bases in [`BEST_BESIDES`], if the base is the best of several.
    pub best: Vec<Best>,
}

impl Judged {
    /// Returns the best of several in a job, by metric.
    pub fn best_of(&self, job: &str) -> BTreeMap<String, String> {
        let of_job = self.best.iter().filter(|best| best.job == job);
        of_job.map(|best| (best.metric.to_owned(), best.arm.clone())).collect()
    }
}

/// The best of several in one metric.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Best {
    pub job: String,
    pub metric: &'static str,
    pub arm: String,
}

/// Judges a comparison. The seed is that of the plan: intervals are repeatable.
pub fn judge(measured: &[Measured], judging: Judging<'_>, seed: u64) -> Judged {
    let mut jobs: Vec<&str> = Vec::new();
    for one in measured {
        if !jobs.contains(&one.job.as_str()) {
            jobs.push(&one.job);
        }
    }
    let mut judged = Judged::default();
    for job in jobs {
        let mut rounds = measured.iter().filter(|one| one.job == job).map(|one| one.rounds.len());
        let first = rounds.next();
        assert!(rounds.all(|many| Some(many) == first), "{job}: an arm lacks a round of others");
        let (rows, arms) = rows_and_arms(measured, job);
        let base = base_of(&rows, &arms, judging);
        let of_job = OfJob { rows: &rows, floor: Floor { job, again: judging.again }, seed };
        let pairs = pairs(base, &arms, judging);
        if let Base::BestOf(_) = judging.base {
            let best = BEST_BESIDES.iter().filter_map(|&metric| {
                let arm = base_of(&rows, &arms, Judging { metric, ..judging })?;
                Some(Best { job: job.to_owned(), metric, arm: arm.to_owned() })
            });
            for best in best {
                let others =
                    against(&best.arm, &arms).into_iter().filter(|pair| !pairs.contains(pair));
                let found = probes::metric(best.metric).expect("it is one of those there are");
                judged.comparisons.extend(others.filter_map(|pair| of_job.compare(&pair, found)));
                judged.best.push(best);
            }
        }
        for pair in pairs {
            let found = probes::metrics().filter_map(|metric| of_job.compare(&pair, metric));
            judged.comparisons.extend(found);
            if Some(pair.base.as_str()) == base && is_cost(judging.metric) {
                judged.differences.extend(of_job.differ(&pair, judging.metric));
            }
        }
        judged.bases.extend(base.map(|base| (job.to_owned(), base.to_owned())));
        judged.rows.extend(rows);
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

/// Returns the rows of a job, and its arms in their order.
fn rows_and_arms<'a>(measured: &'a [Measured], job: &str) -> (Vec<Row>, Vec<&'a str>) {
    let of_job = || measured.iter().filter(|measured| measured.job == job);
    let rows = of_job().flat_map(|one| rows(job, &one.arm, &one.rounds)).collect();
    (rows, of_job().map(|measured| measured.arm.as_str()).collect())
}

/// The A/A pair that gives the noise.
#[derive(Clone, Copy, Debug)]
struct Floor<'a> {
    job: &'a str,
    /// The arm that runs twice.
    again: &'a str,
}

impl Floor<'_> {
    fn pair(self) -> Pair {
        Pair { arm: again(self.again), base: self.again.to_owned() }
    }
}

/// Returns the noise floor of a metric, from the rows of the A/A pair.
fn floor_of(rows: &[Row], floor: Floor<'_>, metric: &str) -> Option<f64> {
    let (arm, base) = paired(rows, floor.job, &floor.pair(), metric)?;
    noise_floor(Paired { arm: &arm, base: &base })
}

impl Document {
    /// Returns the noise floor of a metric in a job; `again` is the arm that ran twice.
    pub fn floor(&self, job: &str, again: &str, metric: &str) -> Option<f64> {
        floor_of(&self.rows, Floor { job, again }, metric)
    }
}

/// Returns the pairs of every other arm with one.
fn against(base: &str, arms: &[&str]) -> Vec<Pair> {
    let others = arms.iter().filter(|arm| **arm != base);
    others.map(|arm| Pair { arm: (*arm).to_owned(), base: base.to_owned() }).collect()
}

fn pairs(base: Option<&str>, arms: &[&str], judging: Judging<'_>) -> Vec<Pair> {
    let mut pairs = base.map(|base| against(base, arms)).unwrap_or_default();
    let own = Floor { job: "", again: judging.again }.pair();
    for pair in std::iter::once(&own).chain(judging.also) {
        if !pairs.contains(pair) {
            pairs.push(pair.clone());
        }
    }
    pairs
}

fn base_of<'a>(rows: &[Row], arms: &[&'a str], judging: Judging<'_>) -> Option<&'a str> {
    let mean = |arm: &str| {
        rows.iter().find(|row| row.arm == arm && row.metric == judging.metric).map(|row| row.mean)
    };
    let candidates = |known: &[String]| {
        let arms = arms.iter().copied().filter(|arm| known.iter().any(|name| name == arm));
        arms.filter_map(|arm| Some((arm, mean(arm)?))).collect::<Vec<_>>()
    };
    let lower = is_cost(judging.metric);
    match judging.base {
        Base::Arm(name) => arms.iter().copied().find(|arm| arm == name),
        Base::BestOf(names) => candidates(names)
            .into_iter()
            .max_by(|left, right| {
                let order = left.1.total_cmp(&right.1);
                if lower { order.reverse() } else { order }
            })
            .map(|(arm, _)| arm),
    }
}

/// Returns whether less of a metric is better.
fn is_cost(metric: &str) -> bool {
    probes::metric(metric).is_some_and(|metric| metric.better == Better::Lower)
}

/// The rows of a job, and all that its comparisons need.
#[derive(Clone, Copy)]
struct OfJob<'a> {
    rows: &'a [Row],
    floor: Floor<'a>,
    seed: u64,
}

impl OfJob<'_> {
    fn compare(self, pair: &Pair, metric: &Metric) -> Option<Comparison> {
        let found = self.ratio(pair, metric.name)?;
        let floor = floor_of(self.rows, self.floor, metric.name);
        let pair = Against { arm: &pair.arm, base: &pair.base };
        Some(Comparison::of(self.floor.job, metric, pair, &found, floor))
    }

    fn ratio(self, pair: &Pair, metric: &str) -> Option<Ratio> {
        let (arm, base) = paired(self.rows, self.floor.job, pair, metric)?;
        ratio(Paired { arm: &arm, base: &base }, self.seed)
    }

    fn differ(self, pair: &Pair, metric: &str) -> Option<Difference> {
        let job = self.floor.job;
        let (arm, base) = in_both(self.rows, job, pair, metric)?;
        let found = difference(Paired { arm: &arm, base: &base }, self.seed)?;
        debug_assert!(found.low <= found.high, "{metric}: {found:?}");
        let noise = in_both(self.rows, job, &self.floor.pair(), metric)
            .and_then(|(arm, base)| difference_floor(Paired { arm: &arm, base: &base }));
        Some(Difference {
            job: job.to_owned(),
            metric: metric.to_owned(),
            unit: probes::metric(metric)?.unit.to_owned(),
            base: pair.base.clone(),
            arm: pair.arm.clone(),
            value: found.value,
            ci_low: found.low,
            ci_high: found.high,
            p: Some(found.p),
            floor: noise,
            shown: is_shown(&found, noise),
        })
    }
}

/// Returns the values of both arms, without rounds that have no ratio.
fn paired(rows: &[Row], job: &str, pair: &Pair, metric: &str) -> Option<(Vec<f64>, Vec<f64>)> {
    let (arm, base) = in_both(rows, job, pair, metric)?;
    let both = arm.into_iter().zip(base);
    Some(both.filter(|(arm, base)| *arm > 0.0 && *base > 0.0).unzip())
}

/// Returns the rounds that both arms have; of a difference nothing is a value too.
fn in_both(rows: &[Row], job: &str, pair: &Pair, metric: &str) -> Option<(Vec<f64>, Vec<f64>)> {
    debug_assert!(probes::metric(metric).is_some());
    let row = |arm: &str| {
        rows.iter().find(|row| row.job == job && row.arm == arm && row.metric == metric)
    };
    let (arm, base) = (row(&pair.arm)?, row(&pair.base)?);
    Some(
        arm.rounds
            .iter()
            .zip(&base.rounds)
            .filter_map(|(arm, base)| Some(((*arm)?, (*base)?)))
            .unzip(),
    )
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
        let floor = Floor { job: "job", again: "forebay" };
        assert!(floor_of(&judged.rows, floor, THROUGHPUT).unwrap() < 0.01);
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
    fn in_a_latency_the_best_is_another() {
        let both = |arm: &str, rate: f64, latency: f64| {
            let metrics = [("iops", rate), ("latency_p50_us", latency)];
            let metrics = metrics.map(|(name, value)| (name.to_owned(), value)).into();
            let cell = CellResult { metrics, ..CellResult::default() };
            Measured { job: "job".into(), arm: arm.into(), rounds: vec![cell; 5] }
        };
        let cells = [
            both("kernel-bounded", 1e5, 10.0),
            both("kernel-direct", 4e5, 40.0),
            both("forebay", 4e5, 20.0),
            both("forebay-again", 4e5, 20.0),
        ];
        let judged = judged(&cells, &best_of_two(), "iops");
        assert_eq!(base(&judged, "job"), Some("kernel-direct"));
        assert_eq!(judged.best_of("job")["latency_p50_us"], "kernel-bounded");
        assert_eq!(judged.best_of("other").len(), 0);
        let ratio = |base: &str, metric: &str| {
            let mut comparisons = judged.comparisons.iter();
            let here = comparisons
                .find(|one| one.base == base && one.arm == "forebay" && one.metric == metric);
            here.map(|one| format!("{:.3}", one.ratio))
        };
        assert_eq!(ratio("kernel-bounded", "latency_p50_us").as_deref(), Some("2.000"));
        assert_eq!(ratio("kernel-bounded", "iops"), None, "in IOPS the base is another");
        assert_eq!(ratio("kernel-direct", "latency_p50_us").as_deref(), Some("0.500"));
        let single = judge(
            &cells,
            Judging {
                base: &Base::Arm("kernel-direct".into()),
                metric: "iops",
                again: "forebay",
                also: &[],
            },
            1,
        );
        assert!(single.best.is_empty());
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
