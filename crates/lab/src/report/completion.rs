//! The tables of the suite `completion`: for each job a block of metrics in the shape in which the
//! kernel's own delay of completions was argued about, a column for each policy; then the job's
//! arms, the kernel's with them, against the best bounded one of those.

use crate::schema::{Against, Document, Part, Row};
use crate::statistics::Verdict;

use super::Block;
use super::column::{Cell, Column, RATIO, column};
use super::figures::{delta, plain, time, with_deviation};
use super::files::{MEMORY, RATE, SYNC};
use super::reader::Reader;
use super::table::{Head, Table, absent, head, marked};

/// The arms of the columns; a delta is to the first.
pub(super) const POLICIES: [&str; 3] = [DELAY, OWN, "forebay-realtime"];

/// Completions held for a fixed time.
pub(super) const DELAY: &str = "forebay-delay";

/// Forebay as it is by default.
pub(super) const OWN: &str = "forebay-immediate";

/// The same bytes in large pieces: another job, so it is compared with nobody's rate.
const REFERENCE: &str = "kernel-direct-1m";

const BLOCK: [Head; 6] = [
    head(15, "", ""),
    head(12, "", "delay"),
    head(12, "", "immediate"),
    head(8, "", "delta"),
    head(12, "", "realtime"),
    head(8, "", "delta"),
];

const ARMS: &[Column] = &[
    column(24, "", "arm", Cell::Arm),
    RATE,
    RATIO,
    MEMORY,
    column(5, "", "p99", Cell::Mean("write_latency_p99_us", time)),
    column(6, "system", "cs/GiB", Cell::Mean("system_context_switches_per_gib", plain)),
];

/// The place of the ratio among them.
const RATIO_AT: usize = 2;

const BESIDE: &[Column] = &[
    column(24, "", "arm", Cell::Arm),
    column(9, "bulk", "MB/s", Cell::Spread("write_bytes_per_s", 1e6)),
    column(5, "sync", "p50", Cell::Mean("sync_probe_p50_us", time)),
    SYNC,
    column(17, "sync p99", "ratio [95 %]", Cell::ToBase),
    MEMORY,
];

const COPIES: &[Column] = &[
    column(24, "", "arm", Cell::Arm),
    column(12, "", "ns per call", Cell::Spread("ns_per_io", 1.0)),
    RATIO,
    column(8, "", "MB/s", Cell::Mean("write_bytes_per_s", |bytes| plain(bytes / 1e6))),
];

const LEGEND: &str = "cs = context switches, of the whole system unless own; io = one of the caller's. bios/run: of \
    Forebay's writeback; run = bytes of one of its bios; holds = runs of completions that \
    waited for more, hold = how long; written, \
    durable: from a write's acceptance until it was that. Mean +- sd; delta: of means, to delay. ~ = not shown";

/// Below that, where it ran.
const REFERENCE_LEGEND: &str =
    "reference: as many bytes in pieces of 1 MiB, front to back, past the cache";

/// A line of a block: its name, the metric, and by how much that is divided.
type Line = (&'static str, &'static str, f64);

/// Those of a job that writes alone.
const WRITES: [Line; 3] = [
    ("BW (MB/s)", "write_bytes_per_s", 1e6),
    ("p99 (us)", "write_latency_p99_us", 1.0),
    ("p999 (us)", "write_latency_p999_us", 1.0),
];

/// Those of one that reads too.
const MIXED: [Line; 6] = [
    ("write BW (MB/s)", "write_bytes_per_s", 1e6),
    ("write p99 (us)", "write_latency_p99_us", 1.0),
    ("write p999 (us)", "write_latency_p999_us", 1.0),
    ("read BW (MB/s)", "read_bytes_per_s", 1e6),
    ("read p99 (us)", "read_latency_p99_us", 1.0),
    ("read p999 (us)", "read_latency_p999_us", 1.0),
];

/// Those of every job.
const REST: [Line; 12] = [
    ("ctx-switches", "system_context_switches", 1.0),
    ("cs / io", "system_context_switches_per_io", 1.0),
    ("avg bios/run", "bios_per_run", 1.0),
    ("own switches", "context_switches", 1.0),
    ("own cs / io", "context_switches_per_io", 1.0),
    ("run (KiB)", "run_bytes", 1024.0),
    ("holds", "completion_holds", 1.0),
    ("hold mean (us)", "hold_mean_us", 1.0),
    ("hold p99 (us)", "hold_p99_us", 1.0),
    ("written p99(us)", "written_latency_p99_us", 1.0),
    ("durable p99(us)", "writeback_latency_p99_us", 1.0),
    ("memory (MiB)", "peak_memory_bytes", (1u64 << 20) as f64),
];

/// Both tables of each job that ran.
pub(super) fn completion(document: &Document, part: &Part) -> Vec<Block> {
    let mut blocks = Vec::new();
    for reader in Reader::ran(document, part) {
        let reads = POLICIES.iter().any(|arm| reader.row(arm, "read_bytes_per_s").is_some());
        let own: &[Line] = if reads { &MIXED } else { &WRITES };
        let lines = own.iter().chain(&REST).filter_map(|line| block_line(reader, line));
        let mut lines: Vec<_> = lines.collect();
        blocks.extend([Block::Gap, Block::Text(reader.job.title.clone())]);
        if !lines.is_empty() {
            let has_realtime = reader.arms().contains(&POLICIES[2]);
            let shown = if has_realtime { BLOCK.len() } else { BLOCK.len() - 2 };
            lines.iter_mut().for_each(|line| line.truncate(shown));
            blocks
                .extend([Block::Table(Table { heads: BLOCK[..shown].into(), lines }), Block::Gap]);
        }
        let mut table = Table::of_arms(ARMS, reader, &reader.arms());
        if let Some(line) = table.lines.iter_mut().find(|line| line[0] == REFERENCE) {
            line[RATIO_AT] = "reference".to_owned();
        }
        blocks.extend([Block::Table(table), Block::Text(reader.noise())]);
        blocks.extend(to_reference(reader).map(Block::Text));
    }
    blocks.push(Block::Gap);
    let referred = Reader::all(document, part).any(|reader| reader.arms().contains(&REFERENCE));
    let reference = if referred { format!(". {REFERENCE_LEGEND}") } else { String::new() };
    blocks.push(Block::Text(format!("{LEGEND}{reference}")));
    blocks
}

/// A line for each arm of a bulk writer beside one that syncs.
pub(super) fn beside(document: &Document, part: &Part) -> Vec<Block> {
    Reader::ran(document, part).flat_map(|reader| reader.of_arms(BESIDE)).collect()
}

/// A line for each arm, a table for each size of a copy.
pub(super) fn copies(document: &Document, part: &Part) -> Vec<Block> {
    Reader::ran(document, part).flat_map(|reader| reader.titled(COPIES)).collect()
}

/// What the switches of the system are against those of the same bytes in large pieces.
fn to_reference(reader: Reader<'_>) -> Option<String> {
    let pair = Against { arm: OWN, base: REFERENCE };
    let found = reader.compared("system_context_switches_per_gib", pair)?;
    Some(format!("cs/GiB of {OWN} against {REFERENCE}: {}", marked(Some(found))))
}

/// None where nobody has the metric.
fn block_line(reader: Reader<'_>, (name, metric, unit): &Line) -> Option<Vec<String>> {
    let rows = POLICIES.map(|arm| reader.row(arm, metric));
    rows.iter().any(Option::is_some).then_some(())?;
    let value = |row: Option<&Row>| {
        row.map_or_else(absent, |row| {
            with_deviation(row.mean / unit, row.stddev.map(|sd| sd / unit))
        })
    };
    let to_first = |place: usize| {
        let change = rows[place].zip(rows[0]).map(|(row, first)| delta(row.mean, first.mean));
        let pair = Against { arm: POLICIES[place], base: POLICIES[0] };
        let compared = reader.compared(metric, pair);
        let shown = compared.is_some_and(|found| found.verdict != Verdict::NotShown);
        change.map_or_else(absent, |change| if shown { change } else { format!("~{change}") })
    };
    let [delay, immediate, realtime] = rows;
    Some(vec![
        (*name).to_owned(),
        value(delay),
        value(immediate),
        to_first(1),
        value(realtime),
        to_first(2),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::CellResult;
    use crate::compare::Measured;
    use crate::compare::judge::{Judging, judge};
    use crate::manifest::Manifest;
    use crate::report::comparison;
    use crate::report::table::{assert_fits, assert_heads_fit};
    use crate::schema::PartJob;
    use crate::suite::{Base, Pair, TableKind};

    #[test]
    fn the_columns_fit_the_width() {
        for columns in [ARMS, BESIDE, COPIES] {
            assert_fits(columns);
        }
        assert_heads_fit(&BLOCK);
        let lines = WRITES.iter().chain(&MIXED).chain(&REST);
        for (name, metric, unit) in lines {
            assert!(name.len() <= 15 && *unit >= 1.0, "{name}");
            assert!(crate::metric::find(metric).is_some(), "{metric}");
        }
    }

    /// Five rounds with a ripple around a speed, and so many switches.
    fn measured(arm: &str, speed: f64, switches: f64) -> Measured {
        let cell = |ripple: &f64| {
            let metrics = [
                ("write_bytes_per_s", speed * 1e6 * ripple),
                ("write_latency_p99_us", 36.2 * ripple),
                ("write_latency_p999_us", 3260.0),
                ("system_context_switches", switches * ripple),
                ("system_context_switches_per_io", switches / 2e6),
                ("system_context_switches_per_gib", switches / 250.0 * ripple),
                ("peak_memory_bytes", 67e6),
                ("completion_holds", if arm == "forebay-delay" { 2000.0 } else { 0.0 }),
                ("hold_p99_us", if arm == "forebay-delay" { 1000.0 } else { 0.0 }),
            ];
            let metrics = metrics.map(|(name, value)| (name.to_owned(), value)).into();
            CellResult { metrics, ..CellResult::default() }
        };
        let rounds = [1.0, 1.01, 0.99, 1.004, 0.996].iter().map(cell).collect();
        Measured { job: "A".into(), arm: arm.into(), rounds }
    }

    #[test]
    fn the_whole_block() {
        let cells = [
            measured("forebay-delay", 4333.0, 184e3),
            measured("forebay-immediate", 4374.0, 3.68e6),
            measured("forebay-realtime", 4380.0, 190e3),
            measured("forebay-immediate-again", 4375.0, 3.69e6),
            measured("kernel-uncached", 2190.0, 9e6),
            measured("kernel-direct-1m", 4400.0, 95e3),
        ];
        let base = Base::BestOf(vec!["kernel-uncached".into()]);
        let pair = |arm: &str, base: &str| Pair { arm: arm.into(), base: base.into() };
        let also = [
            pair("forebay-immediate", "forebay-delay"),
            pair("forebay-realtime", "forebay-delay"),
            pair("forebay-immediate", "kernel-direct-1m"),
        ];
        let metric = "write_bytes_per_s";
        let judging = Judging { base: &base, metric, again: "forebay-immediate", also: &also };
        let judged = judge(&cells, judging, 1);
        let mut document =
            Document::new(Manifest::default(), "completion", judged.rows, judged.comparisons);
        let job = PartJob {
            name: "A".into(),
            title: "A seq 128k qd1".into(),
            base: Some("kernel-uncached".into()),
            ..PartJob::default()
        };
        let absent =
            PartJob { name: "E".into(), title: "E raw 128k qd128".into(), ..PartJob::default() };
        document.parts.push(Part {
            title: "Held, or not".into(),
            table: TableKind::Completion,
            metric: metric.into(),
            again: "forebay-immediate".into(),
            rounds: 5,
            jobs: vec![job, absent],
            ..Part::default()
        });
        let text = comparison(&document);
        let expected = "
A seq 128k qd1
                       delay    immediate    delta     realtime    delta
BW (MB/s)         4333+-33.0   4374+-33.3    +0.9%   4380+-33.4    +1.1%
p99 (us)          36.2+-0.28   36.2+-0.28   ~+0.0%   36.2+-0.28   ~+0.0%
p999 (us)         3260+-0.00   3260+-0.00   ~+0.0%   3260+-0.00   ~+0.0%
ctx-switches      184k+-1401 3.68M+-28.0k   +1900%   190k+-1447    +3.3%
cs / io           0.09+-0.00   1.84+-0.00   +1900%   0.10+-0.00    +3.3%
holds             2000+-0.00   0.00+-0.00   ~-100%   0.00+-0.00   ~-100%
hold p99 (us)     1000+-0.00   0.00+-0.00   ~-100%   0.00+-0.00   ~-100%
memory (MiB)      63.9+-0.00   63.9+-0.00   ~+0.0%   63.9+-0.00   ~+0.0%

                                                                  system
arm                           MB/s      ratio [95 %] memory   p99 cs/GiB
forebay-delay            4333+-33   1.98 [1.98-1.98]  64MiB  36us    736
forebay-immediate        4374+-33   2.00 [2.00-2.00]  64MiB  36us    15k
forebay-realtime         4380+-33   2.00 [2.00-2.00]  64MiB  36us    760
forebay-immediate-again  4375+-33   2.00 [2.00-2.00]  64MiB  36us    15k
kernel-uncached          2190+-17           1 (base)  64MiB  36us    36k
kernel-direct-1m         4400+-34          reference  64MiB  36us    380
noise floor 0.0 %.  ~ = not shown
cs/GiB of forebay-immediate against kernel-direct-1m: 38.7 [38.7-38.7]

cs = context switches";
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains("E raw"), "a job that did not run is noted, not shown");
        assert!(text.lines().all(|line| line.chars().count() <= 72), "{text}");
    }
}
