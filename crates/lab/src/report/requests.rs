//! The tables of requests: arms beside each other in one job; the batch from which on it pays; what
//! each saving is worth alone; and the policy that decides as it goes against the best of the fixed
//! ones.

use crate::compare::judge::{Floor, floor_of};
use crate::plan::again;
use crate::schema::{Against, Comparison, Difference, Direction, Document, Part, PartJob};
use crate::statistics::{Verdict, distance};

use super::figures::{mean_and_deviation, per_io, percent, plain, ratio, time};
use super::table::{Column, Table, absent, column, mean_of, named_column, spread_of};
use super::{Block, of_arms, to_base};

const ARMS: &[Column] = &[
    column(21, "", "arm"),
    column(9, "", "IOPS"),
    column(17, "", "ratio [95 %]"),
    column(5, "", "p50"),
    column(5, "", "p99"),
    column(5, "CPU", "us/IO"),
    column(4, "bell", "/ IO"),
];

/// Below a table of arms. On none of them is a call that only waits told apart from one that hands
/// over.
const ARMS_LEGEND: &str = "bell = a call that hands over or waits; - = not told";

/// Columns of ratios with their intervals beside each other.
const RATIOS_IN_A_TABLE: usize = 3;

/// Columns of differences with their intervals beside each other.
const DIFFERENCES_IN_A_TABLE: usize = 2;

/// Columns of bare ratios beside each other.
const POLICIES_IN_A_TABLE: usize = 8;

/// Deciding as it goes may lose so much against the best fixed policy, or the noise floor if that
/// is more.
const MAY_LOSE: f64 = 0.02;

/// Both metrics in which that is looked at.
const LOST_IN: [(&str, &str); 2] = [("iops", "IOPS"), ("latency_p50_us", "p50")];

/// A table for each job, a line for each arm.
pub(super) fn arms(document: &Document, part: &Part) -> Vec<Block> {
    let mut blocks = Vec::new();
    for job in &part.jobs {
        let row = |arm: &str, metric: &str| document.row_of(&job.name, arm, metric);
        // Job files tell of reads and writes apart; of both there is no one figure.
        let latency = |arm: &str, metric: &str| {
            let [read, write] =
                ["read", "write"].map(|which| row(arm, &format!("{which}_{metric}")));
            row(arm, metric).or(if read.is_some() && write.is_some() {
                None
            } else {
                read.or(write)
            })
        };
        let line = |arm: &str| {
            vec![
                arm.to_owned(),
                spread_of(row(arm, "iops"), 1.0),
                to_base(document, part, job, arm),
                mean_of(latency(arm, "latency_p50_us"), time),
                mean_of(latency(arm, "latency_p99_us"), time),
                mean_of(row(arm, "cpu_us_per_io"), per_io),
                mean_of(row(arm, "doorbells_per_io"), ratio),
            ]
        };
        blocks.extend([Block::Gap, Block::Text(format!("{}:", job.title))]);
        blocks.extend(of_arms(document, part, job, ARMS, line));
    }
    blocks.push(Block::Text(ARMS_LEGEND.to_owned()));
    blocks
}

/// A table for each depth: a line for each arm (a batch), a column for each device.
pub(super) fn ladder(document: &Document, part: &Part) -> Vec<Block> {
    let mut blocks = Vec::new();
    for (workload, depth) in workloads_and_depths(part) {
        let of_both = |job: &&PartJob| job.workload == workload && job.depth == depth;
        let jobs: Vec<&PartJob> = part.jobs.iter().filter(of_both).collect();
        let Some(base) = jobs.iter().find_map(|job| job.base.as_deref()) else { continue };
        let depth = depth.map(|depth| format!(", depth {depth}")).unwrap_or_default();
        blocks.push(Block::Gap);
        let name = metric_name(&part.metric);
        blocks.push(Block::Text(format!("{workload}{depth}, {name} against {base}:")));
        for jobs in jobs.chunks(RATIOS_IN_A_TABLE) {
            let mut columns = vec![column(6, "", "batch")];
            columns.extend(jobs.iter().map(|job| named_column(17, &heading(job))));
            let arms = arms_of(document, part, jobs);
            let lines = arms.into_iter().map(|arm| {
                let cells = jobs.iter().map(|job| to_base(document, part, job, arm));
                std::iter::once(arm.trim_start_matches("batch-").to_owned()).chain(cells).collect()
            });
            blocks.push(Block::Table(Table { columns: columns.into(), lines: lines.collect() }));
        }
    }
    blocks.push(Block::Text("~ = not shown".to_owned()));
    blocks
}

/// A line for each arm, a column for each job: how much more the metric is than on the base.
pub(super) fn worth(document: &Document, part: &Part) -> Vec<Block> {
    let mut blocks = Vec::new();
    for jobs in part.jobs.chunks(DIFFERENCES_IN_A_TABLE) {
        let jobs: Vec<&PartJob> = jobs.iter().collect();
        let mut columns = vec![column(24, "", "arm")];
        columns.extend(jobs.iter().map(|job| named_column(22, &job.place())));
        let lines = arms_of(document, part, &jobs).into_iter().map(|arm| {
            let cells = jobs.iter().map(|job| {
                if job.base.as_deref() == Some(arm) {
                    let row = document.row_of(&job.name, arm, &part.metric);
                    return row.map_or_else(absent, |row| {
                        format!(
                            "{} {}",
                            mean_and_deviation(row.mean, row.stddev).trim_end(),
                            row.unit
                        )
                    });
                }
                let mut differences = document.differences.iter();
                let found = differences.find(|one| one.job == job.name && one.arm == arm);
                found.map_or_else(absent, difference)
            });
            std::iter::once(arm.to_owned()).chain(cells).collect()
        });
        blocks.push(Block::Gap);
        blocks.push(Block::Table(Table { columns: columns.into(), lines: lines.collect() }));
    }
    let unit = crate::metric::find(&part.metric).map_or("", |metric| metric.unit);
    let legend = "more than the base: medians, paired by round, 95 %.  ~ = not shown";
    blocks.push(Block::Text(format!("{unit} {legend}")));
    blocks
}

/// A line for each device, a column for each depth: the arm that runs twice against the best of the
/// fixed ones in that metric; then in how many of these it loses.
pub(super) fn policies(document: &Document, part: &Part) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut counts = Vec::new();
    for (metric, name) in LOST_IN {
        let lost = |job: &PartJob| lost_in(document, part, job, metric);
        let depths = distinct(part.jobs.iter().filter_map(|job| job.depth));
        let rows =
            distinct(part.jobs.iter().map(|job| (job.workload.as_str(), job.device.as_deref())));
        for depths in depths.chunks(POLICIES_IN_A_TABLE) {
            let mut columns = vec![column(10, "", "depth")];
            columns.extend(depths.iter().map(|depth| named_column(6, &depth.to_string())));
            let lines = rows.iter().map(|(workload, device)| {
                let cells = depths.iter().map(|depth| {
                    let here = |job: &&PartJob| {
                        job.workload == *workload
                            && job.device.as_deref() == *device
                            && job.depth == Some(*depth)
                    };
                    part.jobs
                        .iter()
                        .find(here)
                        .map_or_else(absent, |job| policy(document, part, job, metric))
                });
                std::iter::once(device.unwrap_or_default().to_owned()).chain(cells).collect()
            });
            blocks.push(Block::Gap);
            blocks.push(Block::Text(format!(
                "{name}, {} against the best fixed policy:",
                part.again
            )));
            blocks.push(Block::Table(Table { columns: columns.into(), lines: lines.collect() }));
        }
        let judged = part.jobs.iter().filter_map(lost).collect::<Vec<bool>>();
        let losing = judged.iter().filter(|lost| **lost).count();
        counts.push(format!(
            "{losing} of {} in {name}{}",
            judged.len(),
            floors(document, part, metric)
        ));
    }
    blocks.push(Block::Text(
        "the letter names the fixed policy that was best.  ~ = not shown  ! = worse".to_owned(),
    ));
    let margin = format!("by more than {:.0} % and the noise floor", MAY_LOSE * 100.0);
    blocks.push(Block::Text(format!("{} is worse {margin}: {}.", part.again, counts.join(", "))));
    blocks
}

/// From which noise floor to which: under a high one nothing can be seen to be lost.
fn floors(document: &Document, part: &Part, metric: &str) -> String {
    let of_job = |job: &PartJob| {
        floor_of(&document.rows, Floor { job: &job.name, again: &part.again }, metric)
    };
    let mut floors: Vec<f64> = part.jobs.iter().filter_map(of_job).collect();
    floors.sort_unstable_by(f64::total_cmp);
    match floors.as_slice() {
        [] => String::new(),
        [one] => format!(" (floor {})", percent(*one)),
        [least, .., most] => format!(" (floors {} to {})", percent(*least), percent(*most)),
    }
}

/// `1.02a`, with its marks.
fn policy(document: &Document, part: &Part, job: &PartJob, metric: &str) -> String {
    let Some(found) = against_base(document, part, job, metric) else { return absent() };
    let mark = match lost_in(document, part, job, metric) {
        Some(true) => "!",
        _ if found.verdict == Verdict::NotShown => "~",
        _ => "",
    };
    format!("{mark}{}{}", ratio(found.ratio), found.base.chars().next().unwrap_or(' '))
}

/// Whether it is worse by more than it may be; none where it was not measured.
fn lost_in(document: &Document, part: &Part, job: &PartJob, metric: &str) -> Option<bool> {
    let found = against_base(document, part, job, metric)?;
    let row = document.row_of(&job.name, &part.again, metric)?;
    let floor = floor_of(&document.rows, Floor { job: &job.name, again: &part.again }, metric)?;
    let lost = match row.better {
        Direction::Higher => found.ratio < 1.0 - MAY_LOSE,
        Direction::Lower => found.ratio > 1.0 + MAY_LOSE,
    };
    Some(lost && distance(found.ratio) > floor)
}

/// With the best in this metric, which may be another than in the next.
fn against_base<'a>(
    document: &'a Document,
    part: &Part,
    job: &PartJob,
    metric: &str,
) -> Option<&'a Comparison> {
    document.compared(&job.name, metric, Against { arm: &part.again, base: job.base_in(metric)? })
}

/// `+12 [10..15]`, in the unit of the metric.
fn difference(found: &Difference) -> String {
    let signed = |value: f64| {
        let sign = if value < 0.0 { "-" } else { "+" };
        format!("{sign}{}", plain(value.abs()))
    };
    let mark = if found.shown { "" } else { "~" };
    format!("{mark}{} [{}..{}]", signed(found.value), signed(found.ci_low), signed(found.ci_high))
}

/// Arms of several jobs, in the order of the first that has them; without the one that is there for
/// the noise alone.
fn arms_of<'a>(document: &'a Document, part: &Part, jobs: &[&PartJob]) -> Vec<&'a str> {
    let twin = again(&part.again);
    let all = jobs.iter().flat_map(|job| document.arms_of(&job.name));
    distinct(all.filter(|arm| *arm != twin))
}

fn workloads_and_depths(part: &Part) -> Vec<(&str, Option<u32>)> {
    distinct(part.jobs.iter().map(|job| (job.workload.as_str(), job.depth)))
}

/// Each once, in the order of the first.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

fn heading(job: &PartJob) -> String {
    job.device.clone().unwrap_or_else(|| job.title.clone())
}

fn metric_name(metric: &str) -> String {
    match metric {
        "iops" => "IOPS".to_owned(),
        other => other.replace('_', " "),
    }
}

impl PartJob {
    /// `free:200`, or with what was asked where it is a real file.
    fn place(&self) -> String {
        match self.device.as_deref() {
            Some("file") => self.workload.clone(),
            Some(device) => device.to_owned(),
            None => self.title.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
