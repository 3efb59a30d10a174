//! The tables of requests: arms beside each other in one job; the batch from which on it pays; what
//! each saving is worth alone; and the policy that decides as it goes against the best of the fixed
//! ones.

use crate::metric::Better;
use crate::plan::again;
use crate::schema::{Against, Comparison, Difference, Document, Part, PartJob};
use crate::statistics::{Verdict, distance};

use super::Block;
use super::column::{Cell, Column, RATIO, column};
use super::figures::{mean_and_deviation, per_io, percent, plain, ratio, time};
use super::reader::Reader;
use super::table::{Table, absent, head, named_head};

const ARMS: &[Column] = &[
    column(21, "", "arm", Cell::Arm),
    column(9, "", "IOPS", Cell::Spread("iops", 1.0)),
    RATIO,
    column(5, "", "p50", Cell::Latency("latency_p50_us", time)),
    column(5, "", "p99", Cell::Latency("latency_p99_us", time)),
    column(5, "CPU", "us/IO", Cell::Mean("cpu_us_per_io", per_io)),
    column(4, "bell", "/ IO", Cell::Mean("doorbells_per_io", ratio)),
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

/// Loss that the deciding policy may have against the best fixed one, or the noise floor if that is
/// more.
const MAY_LOSE: f64 = 0.02;

const LOST_IN: [(&str, &str); 2] = [("iops", "IOPS"), ("latency_p50_us", "p50")];

pub(super) fn arms(document: &Document, part: &Part) -> Vec<Block> {
    let jobs = Reader::all(document, part).flat_map(|reader| reader.titled(ARMS));
    jobs.chain([Block::Text(ARMS_LEGEND.to_owned())]).collect()
}

/// A table for each depth: a line for each arm (a batch), a column for each device.
pub(super) fn ladder(document: &Document, part: &Part) -> Vec<Block> {
    let mut blocks = Vec::new();
    for (workload, depth) in distinct(part.jobs.iter().map(|job| (&job.workload, job.depth))) {
        let of_both =
            |reader: &Reader<'_>| reader.job.workload == *workload && reader.job.depth == depth;
        let jobs: Vec<Reader<'_>> = Reader::all(document, part).filter(of_both).collect();
        let Some(base) = jobs.iter().find_map(|reader| reader.job.base.as_deref()) else {
            continue;
        };
        let depth = depth.map(|depth| format!(", depth {depth}")).unwrap_or_default();
        blocks.push(Block::Gap);
        let name = metric_name(&part.metric);
        blocks.push(Block::Text(format!("{workload}{depth}, {name} against {base}:")));
        for jobs in jobs.chunks(RATIOS_IN_A_TABLE) {
            let device = |job: &PartJob| job.device.clone().unwrap_or_else(|| job.title.clone());
            let heads = jobs.iter().map(|reader| named_head(17, &device(reader.job)));
            let line = |arm: &str| {
                let cells = jobs.iter().map(|reader| reader.to_base(arm));
                (arm.trim_start_matches("batch-").to_owned(), cells.collect())
            };
            let lines = arms_of(jobs).into_iter().map(line);
            blocks.push(Block::Table(Table::of_lines(head(6, "", "batch"), heads, lines)));
        }
    }
    blocks.push(Block::Text("~ = not shown".to_owned()));
    blocks
}

/// A line for each arm, a column for each job: how much more the metric is than on the base.
pub(super) fn worth(document: &Document, part: &Part) -> Vec<Block> {
    let mut blocks = Vec::new();
    let jobs: Vec<Reader<'_>> = Reader::all(document, part).collect();
    for jobs in jobs.chunks(DIFFERENCES_IN_A_TABLE) {
        let heads = jobs.iter().map(|reader| named_head(22, &reader.job.place()));
        let line = |arm: &str| {
            let cells = jobs.iter().map(|reader| above_base(*reader, arm));
            (arm.to_owned(), cells.collect())
        };
        let lines = arms_of(jobs).into_iter().map(line);
        blocks.push(Block::Gap);
        blocks.push(Block::Table(Table::of_lines(head(24, "", "arm"), heads, lines)));
    }
    let unit = crate::metric::find(&part.metric).map_or("", |metric| metric.unit);
    let legend = "more than the base: medians, paired by round, 95 %.  ~ = not shown";
    blocks.push(Block::Text(format!("{unit} {legend}")));
    blocks
}

/// Shows the base with its unit, and any other arm as a difference to it.
fn above_base(reader: Reader<'_>, arm: &str) -> String {
    if reader.job.base.as_deref() == Some(arm) {
        return reader.row(arm, &reader.part.metric).map_or_else(absent, |row| {
            format!("{} {}", mean_and_deviation(row.mean, row.stddev).trim_end(), row.unit)
        });
    }
    let mut differences = reader.document.differences.iter();
    let found = differences.find(|one| one.job == reader.job.name && one.arm == arm);
    found.map_or_else(absent, difference)
}

/// A line for each device, a column for each depth: the arm that runs twice against the best of the
/// fixed ones in that metric; then in how many of these it loses.
pub(super) fn policies(document: &Document, part: &Part) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut counts = Vec::new();
    let jobs: Vec<Reader<'_>> = Reader::all(document, part).collect();
    let depths = distinct(part.jobs.iter().filter_map(|job| job.depth));
    let rows = distinct(part.jobs.iter().map(|job| (&job.workload, &job.device)));
    for (metric, name) in LOST_IN {
        for depths in depths.chunks(POLICIES_IN_A_TABLE) {
            let heads = depths.iter().map(|depth| named_head(6, &depth.to_string()));
            let line = |&(workload, device): &(&String, &Option<String>)| {
                let cells = depths.iter().map(|depth| {
                    let here = |reader: &&Reader<'_>| {
                        let PartJob { workload: own, device: at, depth: in_flight, .. } =
                            reader.job;
                        own == workload && at == device && *in_flight == Some(*depth)
                    };
                    jobs.iter().find(here).map_or_else(absent, |reader| policy(*reader, metric))
                });
                (device.clone().unwrap_or_default(), cells.collect())
            };
            let title = format!("{name}, {} against the best fixed policy:", part.again);
            blocks.extend([Block::Gap, Block::Text(title)]);
            let lines = rows.iter().map(line);
            blocks.push(Block::Table(Table::of_lines(head(10, "", "depth"), heads, lines)));
        }
        let judged: Vec<bool> = jobs.iter().filter_map(|reader| lost_in(*reader, metric)).collect();
        let losing = judged.iter().filter(|lost| **lost).count();
        counts.push(format!("{losing} of {} in {name}{}", judged.len(), floors(&jobs, metric)));
    }
    blocks.push(Block::Text(
        "the letter names the fixed policy that was best.  ~ = not shown  ! = worse".to_owned(),
    ));
    let margin = format!("by more than {:.0} % and the noise floor", MAY_LOSE * 100.0);
    blocks.push(Block::Text(format!("{} is worse {margin}: {}.", part.again, counts.join(", "))));
    blocks
}

/// From which noise floor to which: under a high one nothing can be seen to be lost.
fn floors(jobs: &[Reader<'_>], metric: &str) -> String {
    let mut floors: Vec<f64> = jobs.iter().filter_map(|reader| reader.floor(metric)).collect();
    floors.sort_unstable_by(f64::total_cmp);
    match floors.as_slice() {
        [] => String::new(),
        [one] => format!(" (floor {})", percent(*one)),
        [least, .., most] => format!(" (floors {} to {})", percent(*least), percent(*most)),
    }
}

/// `1.02a`, with its marks.
fn policy(reader: Reader<'_>, metric: &str) -> String {
    let Some(found) = against_best(reader, metric) else { return absent() };
    let mark = match lost_in(reader, metric) {
        Some(true) => "!",
        _ if found.verdict == Verdict::NotShown => "~",
        _ => "",
    };
    format!("{mark}{}{}", ratio(found.ratio), found.base.chars().next().unwrap_or(' '))
}

/// Whether it is worse by more than it may be; none where it was not measured.
fn lost_in(reader: Reader<'_>, metric: &str) -> Option<bool> {
    let found = against_best(reader, metric)?;
    let row = reader.row(&reader.part.again, metric)?;
    let floor = reader.floor(metric)?;
    let lost = match row.better {
        Better::Higher => found.ratio < 1.0 - MAY_LOSE,
        Better::Lower => found.ratio > 1.0 + MAY_LOSE,
    };
    Some(lost && distance(found.ratio) > floor)
}

/// With the best in this metric, which may be another than in the next.
fn against_best<'a>(reader: Reader<'a>, metric: &str) -> Option<&'a Comparison> {
    let base = reader.job.base_in(metric)?;
    reader.compared(metric, Against { arm: &reader.part.again, base })
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
fn arms_of<'a>(jobs: &[Reader<'a>]) -> Vec<&'a str> {
    let all = jobs.iter().flat_map(|reader| {
        let twin = again(&reader.part.again);
        reader.arms().into_iter().filter(move |arm| *arm != twin)
    });
    distinct(all)
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

fn metric_name(metric: &str) -> String {
    match metric {
        "iops" => "IOPS".to_owned(),
        other => other.replace('_', " "),
    }
}

impl PartJob {
    /// `free:200`; with the workload for a real file.
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
