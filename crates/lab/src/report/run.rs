//! The output of `run`: a line per job and direction, then the total cost.
//!
//! Latencies are of single reads and writes; write rates and the time are until the final sync.

use crate::run::is_total;
use crate::schema::{Document, Row};

use super::figures::{ABSENT, bytes, count, microseconds, per_io, plain, time};
use super::table::{Head, Table, head};
use super::{apart, batching, disk, folded, place};

/// Most characters of a job's name.
const NAME: usize = 27;

/// The widths, with the spaces between and the two before, make the width of a text.
const HEADS: [Head; 7] = [
    head(NAME, "", "job"),
    head(5, "", ""),
    head(7, "", "MB/s"),
    head(7, "", "IOPS"),
    head(6, "", "p50"),
    head(6, "", "p99"),
    head(6, "", "p999"),
];

/// A run as plain text of at most 72 columns. Ends with a newline.
pub fn run(document: &Document) -> String {
    let manifest = &document.manifest;
    let mut lines = folded(&place(manifest));
    lines.extend(disk(manifest).iter().flat_map(|line| folded(line)));
    lines.extend(apart(
        format!("{}, until synced", manifest.title),
        format!("seed {}", manifest.seed),
    ));
    let jobs = Job::all(document);
    let table = Table { heads: HEADS.into(), lines: jobs.iter().flat_map(Job::lines).collect() };
    lines.extend(table.text());
    let totals: Vec<&Job<'_>> = jobs.iter().filter(|job| is_total(job.name)).collect();
    for total in &totals {
        lines.push(String::new());
        if totals.len() > 1 {
            lines.push(format!("  {}", total.name));
        }
        lines.extend(total.costs());
    }
    lines.extend(batching::of_run(document, &groups(&jobs)));
    if !manifest.notes.is_empty() {
        lines.push(String::new());
    }
    lines.extend(manifest.notes.iter().flat_map(|note| folded(&format!("note: {note}"))));
    lines.join("\n") + "\n"
}

/// Each group by the name of its first job.
fn groups<'a>(jobs: &[Job<'a>]) -> Vec<batching::Group<'a>> {
    let mut groups = Vec::new();
    let mut first = None;
    for job in jobs {
        if is_total(job.name) {
            groups.push(batching::Group { name: first.take().unwrap_or(job.name), rows: job.name });
        } else {
            first = first.or(Some(job.name));
        }
    }
    groups
}

/// The rows of one job, or of a group.
struct Job<'a> {
    name: &'a str,
    rows: Vec<&'a Row>,
}

impl<'a> Job<'a> {
    /// In the order of their first rows.
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

    /// One for reads and one for writes, where there were any.
    fn lines(&self) -> Vec<Vec<String>> {
        let directions = ["read", "write"].into_iter();
        let present = directions.filter(|name| self.value(&format!("{name}_iops")).is_some());
        let mut lines: Vec<_> = present.map(|direction| self.line(direction)).collect();
        if lines.is_empty() {
            lines.push(self.line(ABSENT));
        }
        lines
    }

    fn line(&self, direction: &str) -> Vec<String> {
        let show = |metric: &str, shown: fn(f64) -> String| {
            self.value(&format!("{direction}_{metric}")).map_or_else(|| ABSENT.to_owned(), shown)
        };
        vec![
            shortened(self.name, NAME, 10),
            direction.to_owned(),
            show("bytes_per_s", |value| plain(value / 1e6)),
            show("iops", plain),
            show("latency_p50_us", time),
            show("latency_p99_us", time),
            show("latency_p999_us", time),
        ]
    }

    /// Known costs of a group as a whole.
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

/// A name of more than `most` letters by its two ends: names differ at the end.
pub(super) fn shortened(name: &str, most: usize, end: usize) -> String {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= most {
        return name.to_owned();
    }
    let start = &letters[..most - end - 2];
    start.iter().chain(&['.', '.']).chain(&letters[letters.len() - end..]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::CellResult;
    use crate::manifest::{Machine, Manifest, Storage};
    use crate::schema;

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
        let mut rows = schema::rows(name, "forebay", &[cell(&both)]);
        rows.extend(schema::rows("total", "forebay", &[cell(&[&both[..], &whole].concat())]));
        Document::new(manifest, "mixed.fio", rows, vec![])
    }

    #[test]
    fn the_whole_text() {
        let expected = "\
ext4 on /dev/nvme0n1 with large folios, Linux 6.18, 2 cores, io_uring
mixed.fio on forebay, until synced                             seed 7f3a
job                                  MB/s    IOPS    p50    p99   p999
a-name-of-more-..letters.11  read     300    4578   12us      -      -
a-name-of-more-..letters.11 write     301    4592  9.0us      -   15ms
total                        read     300    4578   12us      -      -
total                       write     301    4592  9.0us      -   15ms

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
