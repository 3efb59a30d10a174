//! Tables of the same comparison on several disks. The measurement of a suite on a disk is named
//! `SUITE-DISK`.
//!
//! A ratio above 1 is in favour of Forebay, and below 0.95 it is bold.

use forebay_lab::metric::Better;
use forebay_lab::report::{arm_name, bytes, microseconds};
use forebay_lab::schema::{Document, Part, PartJob, Row};

use crate::aim::ratio_to;

/// Below this ratio a row needs a cause.
const LEAST: f64 = 0.95;

/// A disk, and the result measured on it.
#[derive(Debug)]
pub struct Column {
    /// Its heading.
    pub disk: String,
    /// The result, if there is one.
    pub document: Option<Document>,
}

/// Returns the ratio of Forebay to the best bounded arm of the kernel, by job and disk.
#[must_use]
pub fn ratios(columns: &[Column]) -> String {
    let mut text = heading(columns.iter().map(|column| column.disk.clone()));
    let mut jobs: Vec<(&str, &str)> = Vec::new();
    // The page cache is in no figure of a process, so memory cannot be compared so.
    let all = columns.iter().flat_map(parts).filter(|part| part.metric != "resident_bytes");
    for part in all {
        for job in &part.jobs {
            if !jobs.iter().any(|(name, _)| *name == job.name) {
                jobs.push((&job.name, &part.metric));
            }
        }
    }
    for (job, metric) in jobs {
        let cells: Vec<Option<String>> =
            columns.iter().map(|column| ratio_of(column, job, metric)).collect();
        if cells.iter().any(Option::is_some) {
            let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
            let cells: Vec<String> = cells.collect();
            text.push_str(&format!("| `{job}` | {} |\n", cells.join(" | ")));
        }
    }
    text
}

/// Returns the memory of each arm of the first job; by disk its speed, and the small sync beside.
#[must_use]
pub fn first_page(columns: &[Column]) -> String {
    let by_disk = columns.iter().flat_map(|one| [one.disk.clone(), "small sync beside".to_owned()]);
    let mut text = heading(["memory".to_owned()].into_iter().chain(by_disk));
    let first = |column: &Column| {
        let part = parts(column).next()?;
        Some((part.clone(), part.jobs.first()?.clone()))
    };
    let Some((part, job)) = columns.iter().find_map(first) else { return text };
    let mean = |column: &Column, arm: &str, metric: &str| {
        Some(column.document.as_ref()?.row_of(&job.name, arm, metric)?.mean)
    };
    let document = columns.iter().find_map(|column| column.document.as_ref());
    let mut arms: Vec<&str> = document.map_or_else(Vec::new, |one| one.arms_of(&job.name));
    arms.retain(|arm| columns.iter().all(|one| mean(one, arm, &part.metric).is_some()));
    arms.retain(|arm| !arm.ends_with("again"));
    let speed = |arm: &str| mean(columns.last()?, arm, &part.metric);
    arms.sort_by(|one, other| speed(other).partial_cmp(&speed(one)).expect("numbers"));
    for arm in arms {
        let memory = mean(&columns[0], arm, "peak_memory_bytes");
        let memory = memory.map_or_else(|| "-".to_owned(), bytes);
        let mut line = format!("| {} | {memory} |", arm_name(arm));
        for column in columns {
            let speed = mean(column, arm, &part.metric).unwrap_or_default() / 1e6;
            let sync = mean(column, arm, "sync_probe_p99_us");
            let sync = sync.map_or_else(|| "-".to_owned(), microseconds);
            let against = factor(column, &job, arm, &part.metric);
            line.push_str(&format!(" {speed:.0} MB/s{against} | {sync} |"));
        }
        text.push_str(&line);
        text.push('\n');
    }
    text
}

fn parts(column: &Column) -> impl Iterator<Item = &Part> {
    column.document.iter().flat_map(|document| &document.parts)
}

fn heading(columns: impl Iterator<Item = String>) -> String {
    let columns: Vec<String> = columns.collect();
    format!("| | {} |\n|---|{}\n", columns.join(" | "), "---|".repeat(columns.len()))
}

/// The arm that stands for Forebay in a job: without a keeper, with its defaults.
fn forebay<'a>(document: &'a Document, job: &str) -> Option<&'a str> {
    let usual = ["forebay", "forebay-immediate", "forebay-batch", "forebay-time"];
    document.arms_of(job).into_iter().find(|arm| usual.contains(arm))
}

/// The best arm of the kernel in a job that keeps its memory within a limit, or syncs as the others
/// do.
fn best<'a>(document: &'a Document, job: &str, metric: &str) -> Option<&'a str> {
    let references = ["kernel-buffered", "kernel-buffered-prealloc", "no-sync", "memcpy"];
    let is_other = |arm: &&str| {
        let own = ["forebay", "hold", "contexts", "raw"];
        !own.iter().any(|prefix| arm.starts_with(prefix)) && !references.contains(arm)
    };
    let arms = document.arms_of(job).into_iter().filter(is_other);
    let rows: Vec<&Row> = arms
        .filter_map(|arm| document.row_of(job, arm, metric))
        .filter(|row| row.mean > 0.0)
        .collect();
    let speed = |row: &Row| if row.better == Better::Lower { -row.mean } else { row.mean };
    let best = rows.into_iter().max_by(|one, other| speed(one).total_cmp(&speed(other)));
    best.map(|row| row.arm.as_str())
}

fn ratio_of(column: &Column, job: &str, metric: &str) -> Option<String> {
    let document = column.document.as_ref()?;
    let arm = forebay(document, job)?;
    let base = best(document, job, metric)?;
    let (ratio, low, high) = inverted(document, job, arm, metric, base)?;
    let text = format!("{ratio:.2} [{low:.2}-{high:.2}]");
    Some(if ratio < LEAST { format!("**{text}**") } else { text })
}

/// The ratio and its interval, so that above 1 the arm is better.
fn inverted(
    document: &Document,
    job: &str,
    arm: &str,
    metric: &str,
    base: &str,
) -> Option<(f64, f64, f64)> {
    if arm == base {
        return None;
    }
    let row = document.row_of(job, arm, metric)?;
    let (ratio, low, high) = ratio_to(document, row, base)?;
    Some(match row.better {
        Better::Lower => (ratio.recip(), high.recip(), low.recip()),
        _ => (ratio, low, high),
    })
}

/// `, 1.3x`, or nothing for the base itself.
fn factor(column: &Column, job: &PartJob, arm: &str, metric: &str) -> String {
    let document = column.document.as_ref();
    let base = parts(column).flat_map(|part| &part.jobs).find(|one| one.name == job.name);
    let base = base.and_then(|job| job.base_in(metric));
    if base == Some(arm) {
        return " (best bounded)".to_owned();
    }
    document
        .zip(base)
        .and_then(|(document, base)| inverted(document, &job.name, arm, metric, base))
        .map_or_else(String::new, |(ratio, ..)| format!(", {ratio:.1}x"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_lab::manifest::Manifest;

    fn row(arm: &str, metric: &str, mean: f64) -> Row {
        Row {
            job: "j".into(),
            arm: arm.into(),
            metric: metric.into(),
            unit: "B/s".into(),
            better: Better::Higher,
            mean,
            stddev: None,
            rounds: vec![Some(mean), Some(mean * 1.01)],
        }
    }

    fn column(disk: &str, speed: f64) -> Column {
        let rows = [
            row("forebay", "bytes_per_s", speed),
            row("forebay-again", "bytes_per_s", speed),
            row("kernel-direct-prealloc", "bytes_per_s", 1e8),
            row("forebay", "sync_probe_p99_us", 21_000.0),
        ];
        let job = PartJob {
            name: "j".into(),
            base: Some("kernel-direct-prealloc".into()),
            ..PartJob::default()
        };
        let part = Part { metric: "bytes_per_s".into(), jobs: vec![job], ..Part::default() };
        let mut document = Document::new(Manifest::default(), "suite", rows.into(), Vec::new());
        document.parts = vec![part];
        Column { disk: disk.into(), document: Some(document) }
    }

    #[test]
    fn a_row_below_the_least_ratio_is_bold_and_a_disk_without_a_result_has_none() {
        let none = Column { disk: "none".into(), document: None };
        let table = ratios(&[column("fast", 2e8), column("slow", 5e7), none]);
        assert_eq!(
            table,
            "| | fast | slow | none |\n|---|---|---|---|\n\
             | `j` | 2.00 [2.00-2.00] | **0.50 [0.50-0.50]** | - |\n"
        );
    }

    #[test]
    fn the_first_page_has_each_arm_once() {
        let table = first_page(&[column("fast", 2e8), column("slow", 5e7)]);
        let lines: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "| kernel O_DIRECT | - | 100 MB/s (best bounded) | - | 100 MB/s (best bounded) \
                 | - |",
                "| Forebay | - | 200 MB/s, 2.0x | 21 ms | 50 MB/s, 0.5x | 21 ms |",
            ]
        );
    }
}
