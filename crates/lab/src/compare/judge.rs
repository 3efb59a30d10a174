//! From cells to rows and comparisons.
//!
//! The base is the *bounded* kernel arm with the best mean throughput: what a reader would otherwise use with the
//! same memory, at its best. That it is chosen after the fact can only hurt Forebay's figures, never help them.
//! Beside every arm against the base stand two pairs more: the A/A pair, whose spread is the noise floor of each
//! metric, and Forebay against plain buffering, which has no bound.

use crate::arm::Arm;
use crate::metric::{self, METRICS, Metric};
use crate::schema::{self, Comparison, Row};
use crate::statistics::{Paired, noise_floor, ratio, verdict};

use super::Measured;

/// The metric that decides which arm is the base.
pub const THROUGHPUT: &str = "write_bytes_per_s";

/// What was measured, and what may be said of it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Judged {
    /// Every metric of every arm.
    pub rows: Vec<Row>,
    /// Every metric of every pair.
    pub comparisons: Vec<Comparison>,
    /// What the others were compared with; none if no bounded kernel arm ran.
    pub base: Option<Arm>,
}

/// Judges a comparison. The seed is that of the plan: intervals are repeatable.
#[must_use]
pub fn judge(job: &str, measured: &[Measured], seed: u64) -> Judged {
    let rows: Vec<Row> =
        measured.iter().flat_map(|measured| schema::rows(job, measured.arm, &measured.rounds)).collect();
    let arms: Vec<Arm> = measured.iter().map(|measured| measured.arm).collect();
    let base = base_of(&rows, &arms);
    let comparisons = pairs(base, &arms)
        .into_iter()
        .flat_map(|pair| METRICS.iter().map(move |metric| (pair, metric)))
        .filter_map(|(pair, metric)| compare(&rows, job, pair, metric, seed))
        .collect();
    Judged { rows, comparisons, base }
}

/// The noise floor of a metric, from the rows of the A/A pair.
#[must_use]
pub fn floor_of(rows: &[Row], metric: &str) -> Option<f64> {
    let pair = Pair { arm: Arm::ForebayAgain, base: Arm::Forebay };
    let (arm, base) = paired(rows, pair, metric)?;
    noise_floor(Paired { arm: &arm, base: &base })
}

#[derive(Clone, Copy)]
struct Pair {
    arm: Arm,
    base: Arm,
}

fn pairs(base: Option<Arm>, arms: &[Arm]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    if let Some(base) = base {
        pairs.extend(arms.iter().filter(|arm| **arm != base).map(|arm| Pair { arm: *arm, base }));
    }
    pairs.push(Pair { arm: Arm::ForebayAgain, base: Arm::Forebay });
    pairs.push(Pair { arm: Arm::Forebay, base: Arm::KernelBuffered });
    pairs
}

fn base_of(rows: &[Row], arms: &[Arm]) -> Option<Arm> {
    let speed = |arm: Arm| {
        let row = rows.iter().find(|row| row.arm == arm.name() && row.metric == THROUGHPUT);
        row.map(|row| row.mean)
    };
    arms.iter()
        .copied()
        .filter(|arm| arm.is_bounded_kernel())
        .filter_map(|arm| Some((arm, speed(arm)?)))
        .max_by(|left, right| left.1.total_cmp(&right.1))
        .map(|(arm, _)| arm)
}

fn compare(rows: &[Row], job: &str, pair: Pair, metric: &Metric, seed: u64) -> Option<Comparison> {
    let (arm, base) = paired(rows, pair, metric.name)?;
    let found = ratio(Paired { arm: &arm, base: &base }, seed)?;
    Some(Comparison {
        job: job.to_owned(),
        metric: metric.name.to_owned(),
        base: pair.base.name().to_owned(),
        arm: pair.arm.name().to_owned(),
        ratio: found.ratio,
        ci_low: found.low,
        ci_high: found.high,
        p: found.p,
        verdict: verdict(&found, floor_of(rows, metric.name), metric.better),
    })
}

/// The rounds that both arms have, and in which both are positive: nothing is a ratio to nothing.
fn paired(rows: &[Row], pair: Pair, metric: &str) -> Option<(Vec<f64>, Vec<f64>)> {
    debug_assert!(metric::find(metric).is_some());
    let row = |arm: Arm| rows.iter().find(|row| row.arm == arm.name() && row.metric == metric);
    let (arm, base) = (row(pair.arm)?, row(pair.base)?);
    let both = arm.rounds.iter().zip(&base.rounds);
    Some(
        both.filter_map(|(arm, base)| Some(((*arm)?, (*base)?)))
            .filter(|(a, b)| *a > 0.0 && *b > 0.0)
            .unzip(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::CellResult;
    use crate::statistics::Verdict;

    fn measured(arm: Arm, metric: &str, rounds: &[f64]) -> Measured {
        let cell = |value: &f64| CellResult { metrics: [(metric.to_owned(), *value)].into(), notes: vec![] };
        Measured { arm, rounds: rounds.iter().map(cell).collect() }
    }

    fn verdict_of(judged: &Judged, base: Arm, arm: Arm) -> Option<Verdict> {
        let mut comparisons = judged.comparisons.iter();
        comparisons.find(|one| one.base == base.name() && one.arm == arm.name()).map(|one| one.verdict)
    }

    #[test]
    fn the_base_is_the_fastest_bounded_kernel_arm() {
        let judged = judge(
            "job",
            &[
                measured(Arm::KernelBuffered, THROUGHPUT, &[900.0; 5]),
                measured(Arm::KernelBounded, THROUGHPUT, &[200.0, 210.0, 205.0, 190.0, 208.0]),
                measured(Arm::KernelDirectPrealloc, THROUGHPUT, &[300.0, 310.0, 305.0, 290.0, 308.0]),
                measured(Arm::Forebay, THROUGHPUT, &[450.0, 455.0, 452.0, 440.0, 449.0]),
                measured(Arm::ForebayAgain, THROUGHPUT, &[451.0, 453.0, 450.0, 443.0, 450.0]),
            ],
            1,
        );
        assert_eq!(judged.base, Some(Arm::KernelDirectPrealloc));
        let base = Arm::KernelDirectPrealloc;
        assert_eq!(verdict_of(&judged, base, Arm::Forebay), Some(Verdict::Better));
        assert_eq!(verdict_of(&judged, base, Arm::KernelBounded), Some(Verdict::Worse));
        assert_eq!(verdict_of(&judged, base, base), None);
        assert_eq!(verdict_of(&judged, Arm::KernelBuffered, Arm::Forebay), Some(Verdict::Worse));
        assert_eq!(verdict_of(&judged, Arm::Forebay, Arm::ForebayAgain), Some(Verdict::NotShown));
        assert!(floor_of(&judged.rows, THROUGHPUT).unwrap() < 0.01);
    }

    #[test]
    fn less_is_better_where_the_metric_says_so() {
        let judged = judge(
            "job",
            &[
                measured(Arm::Forebay, "sync_probe_p99_us", &[100.0, 101.0, 99.0, 100.0]),
                measured(Arm::ForebayAgain, "sync_probe_p99_us", &[100.0, 100.0, 99.5, 101.0]),
                measured(Arm::KernelBuffered, "sync_probe_p99_us", &[900.0, 910.0, 905.0, 890.0]),
            ],
            1,
        );
        assert_eq!(judged.base, None, "without throughput there is no base");
        assert_eq!(verdict_of(&judged, Arm::KernelBuffered, Arm::Forebay), Some(Verdict::Better));
    }

    #[test]
    fn without_the_second_of_the_pair_nothing_is_shown() {
        let judged = judge(
            "job",
            &[
                measured(Arm::KernelBounded, THROUGHPUT, &[200.0; 5]),
                measured(Arm::Forebay, THROUGHPUT, &[400.0; 5]),
            ],
            1,
        );
        assert_eq!(verdict_of(&judged, Arm::KernelBounded, Arm::Forebay), Some(Verdict::NotShown));
    }

    #[test]
    fn rounds_without_a_value_are_left_out_of_the_pair() {
        let judged = judge(
            "job",
            &[
                measured(Arm::KernelBounded, THROUGHPUT, &[200.0, 0.0, 200.0, f64::NAN, 200.0]),
                measured(Arm::Forebay, THROUGHPUT, &[400.0; 5]),
            ],
            1,
        );
        assert_eq!(judged.comparisons[0].ratio, 2.0);
    }
}
