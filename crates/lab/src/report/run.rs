//! The output of `run`: a line per job and direction, then the total cost.
//!
//! Latencies are of single reads and writes; write rates and the time are until the final sync.

use crate::run::is_total;
use crate::schema::{Document, Row};

use crate::figures::{ABSENT, bytes, count, microseconds, per_io, plain, time};
use crate::probes;
use crate::text::{ends, shortened};

use super::head::{folded, head};
use super::table::{Column, Table, WIDTH, absent, shown};

/// Most characters of a job's name.
const NAME: usize = 27;

/// Heads of the columns.
const HEADS: [&str; 7] = ["job", "", "MB/s", "IOPS", "p50", "p99", "p999"];

/// Formats a run as plain text of at most 72 columns. Ends with a newline.
pub fn run(document: &Document) -> String {
    let manifest = &document.manifest;
    let mut lines = head(manifest);
    let asked = format!("{}, until synced", manifest.title);
    lines.extend(ends(&asked, format!("seed {}", manifest.seed), WIDTH));
    let jobs = Job::all(document);
    let all: Vec<[String; 7]> = jobs.iter().flat_map(Job::lines).collect();
    let column = |(place, head): (usize, &str)| {
        Column::new(head, all.iter().map(|line| line[place].clone()))
    };
    lines.extend(Table { columns: HEADS.into_iter().enumerate().map(column).collect() }.text());
    let totals: Vec<&Job<'_>> = jobs.iter().filter(|job| is_total(job.name)).collect();
    for total in &totals {
        lines.push(String::new());
        if totals.len() > 1 {
            lines.push(format!("  {}", total.name));
        }
        lines.extend(total.costs());
    }
    lines.extend(batching(&totals));
    if !manifest.notes.is_empty() {
        lines.push(String::new());
    }
    lines.extend(manifest.notes.iter().flat_map(|note| folded(&format!("note: {note}"))));
    lines.join("\n") + "\n"
}

/// Returns what the kernel batched in each group, if that was counted.
fn batching(groups: &[&Job<'_>]) -> Vec<String> {
    let counted =
        probes::metrics().filter(|metric| metric.name.starts_with(crate::batching::PREFIX));
    let counted =
        counted.filter(|metric| groups.iter().any(|job| job.value(metric.name).is_some()));
    let columns = counted.map(|metric| {
        let cell = |job: &&Job<'_>| {
            job.value(metric.name).map_or_else(absent, |value| shown(metric, value))
        };
        Column::new(metric.head, groups.iter().map(cell))
    });
    let names = Column::names("group", groups.iter().map(|job| job.name));
    let tables: Vec<String> =
        Table::split(&names, columns.collect()).iter().flat_map(Table::text).collect();
    let title = (!tables.is_empty()).then(|| "Did the kernel batch?".to_owned());
    let gap = title.is_some().then(String::new);
    gap.into_iter().chain(title).chain(tables).collect()
}

/// The rows of one job, or of a group.
struct Job<'a> {
    name: &'a str,
    rows: Vec<&'a Row>,
}

impl<'a> Job<'a> {
    /// Returns the jobs in the order of their first rows.
    fn all(document: &'a Document) -> Vec<Self> {
        let mut jobs: Vec<Self> = Vec::new();
        for row in &document.rows {
            match jobs.last_mut().filter(|job| job.name == row.job) {
                Some(job) => job.rows.push(row),
                None => jobs.push(Self { name: &row.job, rows: vec![row] }),
            }
        }
        jobs
    }

    fn value(&self, metric: &str) -> Option<f64> {
        self.rows.iter().find(|row| row.metric == metric).map(|row| row.mean)
    }

    /// Returns a line for reads and one for writes, if there were any.
    fn lines(&self) -> Vec<[String; 7]> {
        let directions = ["read", "write"].into_iter();
        let present = directions.filter(|name| self.value(&format!("{name}_iops")).is_some());
        let mut lines: Vec<_> = present.map(|direction| self.line(direction)).collect();
        if lines.is_empty() {
            lines.push(self.line(ABSENT));
        }
        lines
    }

    fn line(&self, direction: &str) -> [String; 7] {
        let show = |metric: &str, shown: fn(f64) -> String| {
            self.value(&format!("{direction}_{metric}")).map_or_else(|| ABSENT.to_owned(), shown)
        };
        [
            shortened(self.name, NAME, 10),
            direction.to_owned(),
            show("bytes_per_s", |value| plain(value / 1e6)),
            show("iops", plain),
            show("latency_p50_us", time),
            show("latency_p99_us", time),
            show("latency_p999_us", time),
        ]
    }

    /// Returns the known costs of a group as a whole.
    fn costs(&self) -> Vec<String> {
        let show = |metric: &str, shown: fn(f64) -> String| self.value(metric).map(shown);
        let own = show("context_switches_per_io", |value| format!("{} own", per_io(value)));
        let system = show("system_context_switches_per_io", |value| {
            format!("{} of the whole system", per_io(value))
        });
        let memory = show("peak_memory_bytes", bytes);
        let dirty = show("peak_dirty_bytes", |value| format!("dirty {}", bytes(value)));
        let both = |one: Option<String>, other: Option<String>, between: &str| {
            let parts: Vec<_> = one.into_iter().chain(other).collect();
            Some(parts.join(between)).filter(|text| !text.is_empty())
        };
        let probe = show("sync_probe_p99_us", |value| format!("p99 {}", microseconds(value)));
        let lines = [
            ("elapsed, until synced", show("elapsed_s", |value| microseconds(value * 1e6))),
            ("context switches per I/O", both(own, system, ", ")),
            ("CPU per I/O", show("cpu_us_per_io", |value| format!("{} us", per_io(value)))),
            ("peak memory", both(memory, dirty, "; ")),
            ("extents per file", show("extents_per_file", count)),
            ("sync probe", Some(probe.unwrap_or_else(|| "none".to_owned()))),
        ];
        let known = lines.into_iter().filter_map(|(label, value)| Some((label, value?)));
        known.map(|(label, value)| format!("{label:<NAME$} {value}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::CellResult;
    use crate::compare::judge;
    use crate::manifest::{Machine, Manifest, Storage};

    fn document() -> Document {
        let manifest = Manifest {
            machine: Machine { release: "6.18.44".into(), cpus: 2, ..Machine::default() },
            storage: Storage {
                file_system: "ext4".into(),
                device: "/dev/nvme0n1".into(),
                ..Storage::default()
            },
            engine: "io_uring: full".into(),
            title: "mixed.fio on forebay".into(),
            seed: "7f3a".into(),
            notes: vec!["mixed block sizes".into()],
            ..Manifest::default()
        };
        let both = [
            ("elapsed_s", 1.25),
            ("read_bytes_per_s", 300e6),
            ("read_iops", 4577.6),
            ("read_latency_p50_us", 12.0),
            ("write_bytes_per_s", 301e6),
            ("write_iops", 4592.0),
            ("write_latency_p50_us", 9.0),
            ("write_latency_p999_us", 15_200.0),
        ];
        let whole = [
            ("context_switches_per_io", 0.02),
            ("system_context_switches_per_io", 0.25),
            ("cpu_us_per_io", 4.2),
            ("peak_memory_bytes", 66.0 * 1024.0 * 1024.0),
            ("extents_per_file", 1.0),
        ];
        let cell = |metrics: &[(&str, f64)]| CellResult {
            metrics: metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            ..CellResult::default()
        };
        let name = "a-name-of-more-than-twenty-seven-letters.11";
        let mut rows = judge::rows(name, "forebay", &[cell(&both)]);
        rows.extend(judge::rows("total", "forebay", &[cell(&[&both[..], &whole].concat())]));
        Document::new(manifest, "mixed.fio", rows, vec![])
    }

    #[test]
    fn the_whole_text() {
        let expected = "\
ext4 on /dev/nvme0n1 with large folios, Linux 6.18, 2 cores, io_uring
mixed.fio on forebay, until synced                             seed 7f3a
job                               MB/s IOPS   p50 p99 p999
a-name-of-more-..letters.11  read  300 4578  12us   -    -
a-name-of-more-..letters.11 write  301 4592 9.0us   - 15ms
total                        read  300 4578  12us   -    -
total                       write  301 4592 9.0us   - 15ms

elapsed, until synced       1.2 s
context switches per I/O    0.020 own, 0.25 of the whole system
CPU per I/O                 4.20 us
peak memory                 66 MiB
extents per file            1
sync probe                  none

note: mixed block sizes
";
        let text = run(&document());
        assert_eq!(text, expected, "\n{text}");
        assert!(text.lines().all(|line| line.len() <= 72));
    }
}
