use super::*;
use crate::cell::CellResult;
use crate::compare::Measured;
use crate::compare::judge::{Judging, judge};
use crate::compare::state::Pressure;
use crate::manifest::{ArmLeftOut, Machine, Manifest, Storage};
use crate::schema::PartJob;
use crate::suite::{Base, Pair};

const THROUGHPUT: &str = "write_bytes_per_s";
const OWN: &str = "forebay-immediate";
const DELAY: &str = "forebay-delay";

/// An arm and the means of its metrics.
type Figures<'a> = (&'a str, &'a [(&'a str, f64)]);

/// Rounds around these means, each arm with a ripple of its own.
fn measured(job: &str, (arm, figures): &Figures<'_>, rounds: usize) -> Measured {
    let ripples = [0.98, 1.01, 1.0, 1.02, 0.99];
    let round = |round: usize| {
        let ripple = ripples[(round * 2 + arm.len()) % ripples.len()];
        let metric = |(name, value): &(&str, f64)| ((*name).to_owned(), value * ripple);
        CellResult { metrics: figures.iter().map(metric).collect(), ..CellResult::default() }
    };
    Measured { job: job.into(), arm: arm.to_string(), rounds: (0..rounds).map(round).collect() }
}

struct Asked<'a> {
    part: Part,
    arms: &'a [Figures<'a>],
    bases: &'a [&'a str],
    also: &'a [(&'a str, &'a str)],
}

fn add(document: &mut Document, asked: Asked<'_>) {
    let Asked { mut part, arms, bases, also } = asked;
    let rounds = part.rounds as usize;
    for job in &mut part.jobs {
        let cells: Vec<Measured> =
            arms.iter().map(|arm| measured(&job.name, arm, rounds)).collect();
        let base = Base::BestOf(bases.iter().map(|base| (*base).to_owned()).collect());
        let also: Vec<Pair> = also
            .iter()
            .map(|(arm, base)| Pair { arm: (*arm).into(), base: (*base).into() })
            .collect();
        let judging =
            Judging { base: &base, metric: &part.metric, again: &part.again, also: &also };
        let judged = judge(&cells, judging, 0x7f3a);
        job.base = judged.bases.first().map(|(_, base)| base.clone());
        document.rows.extend(judged.rows);
        document.comparisons.extend(judged.comparisons);
    }
    document.parts.push(part);
}

fn files_of(rounds: u32) -> Part {
    Part {
        title: "Random 4 KiB writes, 12 new files".into(),
        metric: THROUGHPUT.into(),
        again: "forebay".into(),
        rounds,
        seconds: Some(17.2),
        cell_bytes: Some(180 << 20),
        jobs: vec![PartJob {
            name: "new-files".into(),
            probe: "new-files".into(),
            ..PartJob::default()
        }],
        ..Part::default()
    }
}

fn document(rounds: u32) -> Document {
    let machine = Machine { cpus: 2, release: "6.18.44".into(), ..Machine::default() };
    let storage =
        Storage { file_system: "ext4".into(), device: "/dev/vda".into(), ..Storage::default() };
    let engine = "io_uring: full".to_owned();
    let manifest = Manifest { machine, storage, engine, ..Manifest::default() };
    let mut document = Document::new(manifest, "bare", Vec::new(), Vec::new());
    let mib = f64::from(1 << 20);
    let files = |speed: f64, memory: f64, sync: f64| {
        [
            (THROUGHPUT, speed * 1e6),
            ("peak_memory_bytes", memory * mib),
            ("sync_probe_p99_us", sync * 1e3),
        ]
    };
    add(
        &mut document,
        Asked {
            part: files_of(rounds),
            arms: &[
                ("kernel-buffered", &files(1008.0, 187.0, 79.0)),
                ("kernel-bounded-prealloc", &files(339.0, 29.0, 11.0)),
                ("kernel-direct-prealloc", &files(444.0, 7.0, 17.0)),
                ("forebay", &files(901.0, 53.0, 12.0)),
                ("forebay-again", &files(903.0, 53.0, 12.0)),
                ("forebay-survive", &files(447.0, 51.0, 15.0)),
            ],
            bases: &["kernel-bounded-prealloc", "kernel-direct-prealloc"],
            also: &[("forebay", "kernel-buffered")],
        },
    );
    let requests = |iops: f64, calls: f64| [("iops", iops), ("doorbells_per_io", calls)];
    add(
        &mut document,
        Asked {
            part: Part {
                title: "Direct reads of a file".into(),
                question: Some("What does batching cost and save?".into()),
                metric: "iops".into(),
                again: "adaptive".into(),
                rounds,
                jobs: vec![PartJob {
                    name: "32".into(),
                    probe: "requests".into(),
                    depth: Some(32),
                    ..PartJob::default()
                }],
                ..Part::default()
            },
            arms: &[
                ("kernel-uring", &requests(57e3, 0.08)),
                ("never", &requests(45e3, 1.0)),
                ("always", &requests(57e3, 0.07)),
                ("adaptive", &requests(58e3, 0.16)),
                ("adaptive-again", &requests(58.1e3, 0.16)),
            ],
            bases: &["kernel-uring"],
            also: &[("adaptive", "never"), ("adaptive", "always")],
        },
    );
    let writes = |speed: f64, p99: f64, memory: f64| {
        [
            (THROUGHPUT, speed * 1e6),
            ("write_latency_p99_us", p99 * 1e3),
            ("peak_memory_bytes", memory * mib),
        ]
    };
    add(
        &mut document,
        Asked {
            part: Part {
                question: Some("Who pays for a held completion?".into()),
                metric: THROUGHPUT.into(),
                again: OWN.into(),
                rounds,
                jobs: vec![PartJob {
                    name: "C".into(),
                    probe: "jobs".into(),
                    title: "C: random 4 KiB writes, depth 32".into(),
                    ..PartJob::default()
                }],
                ..Part::default()
            },
            arms: &[
                ("forebay-delay", &writes(296.0, 12.3, 21.0)),
                ("forebay-immediate", &writes(354.0, 10.6, 21.0)),
                ("forebay-immediate-again", &writes(354.5, 10.7, 21.0)),
                ("kernel-direct-prealloc", &writes(128.0, 7.3, 1.0)),
            ],
            bases: &["kernel-direct-prealloc"],
            also: &[(OWN, DELAY)],
        },
    );
    document
}

fn of(document: &Document) -> String {
    summary(document, Some("forebay report --last"), WIDTH)
}

#[test]
fn the_whole_summary() {
    let text = of(&document(5));
    let expected = "\
Random 4 KiB writes, 12 new files, 180 MiB, until synced        5 rounds, 17 s
ext4 on /dev/vda with large folios, Linux 6.18, 2 cores, io_uring

                        speed  vs best bounded      memory   small sync beside
  kernel page cache 1008 MB/s  2.3x (2.2-2.3)      187 MiB    79 ms  unbounded
  Forebay            901 MB/s  2.0x (2.0-2.0)       53 MiB    12 ms
  Forebay + keeper   447 MB/s  ~1.01x (0.99-1.03)   51 MiB    15 ms
  kernel O_DIRECT    444 MB/s  1 (best bounded)      7 MiB    17 ms
  kernel bounded     339 MB/s  0.8x (0.7-0.8)       29 MiB    11 ms
";
    assert!(text.starts_with(expected), "{text}");
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [
        "Small sync: p99 of another thread's 4 KiB write + fdatasync. Differences below",
        "~: no difference is shown. Until a sync returns, only \"+ keeper\" and the kernel survive \
         kill -9; nothing survives a power cut.",
        "What does batching cost and save? 5 rounds At depth 32, batching gives 1.29x (",
        "the IOPS of single submission and shows no difference from the best kernel path \
         (kernel-uring); it makes 0.16 system calls per I/O instead of 1.00.",
        "Random 4 KiB writes, depth 32: ending completions at once gives 1.20x (",
        "of holding them for 1 ms. It gives 2.77x (",
        "of the best bounded kernel arm, kernel O_DIRECT (21 MiB of memory against 1 MiB).",
    ] {
        assert!(flat.contains(said), "{said}\n{text}");
    }
    assert!(text.ends_with("All tables and notes: forebay report --last\n"), "{text}");
    assert!(!text.contains("-again") && !text.contains("Warning"), "{text}");
}

#[test]
fn it_fits_a_screen_and_a_narrow_terminal() {
    let mut rough = document(5);
    let pressure = Pressure { processor: Some(0.68), ..Pressure::default() };
    let cell = CellState { pressure, steal: Some(0.2), ..CellState::default() };
    rough.parts[0].cells = vec![cell; 30];
    let text = of(&rough);
    assert!(text.contains("Warning: 30 of 30 runs competed for CPU (up to 68 % of the time)"));
    assert!(text.contains("(1 further warning)"), "{text}");
    for width in [WIDTH, 60] {
        let text = summary(&rough, Some("forebay report --last"), width);
        assert!(text.lines().count() <= 40, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
    }
}

#[test]
fn one_round_has_no_interval_and_no_noise() {
    let text = of(&document(1));
    assert!(text.contains("1 round, 17 s") && text.contains("~2.0x "), "{text}");
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("The noise is unknown."), "{text}");
    assert!(flat.contains("Warning: fewer than 4 rounds show no difference; use"), "{text}");
    assert!(!text.contains("2.0-2.0"), "{text}");
}

#[test]
fn an_arm_that_failed_is_the_first_warning() {
    let mut document = document(1);
    let left_out =
        ArmLeftOut { arm: "forebay-survive".into(), reason: "wrong byte".into(), failed: true };
    document.manifest.left_out = vec![left_out];
    document.rows.retain(|row| row.arm != "forebay-survive");
    let text = of(&document);
    assert!(text.contains("Warning: Forebay + keeper failed: wrong byte (1 further warning)."));
    assert!(text.contains("without a keeper does not"), "{text}");
}
