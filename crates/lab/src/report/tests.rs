use super::*;
use crate::arm::Arm;
use crate::cell::CellResult;
use crate::compare::Measured;
use crate::compare::judge::{Judging, THROUGHPUT, judge};
use crate::manifest::{ArmLeftOut, Machine, Manifest, Storage};
use crate::plan::again;
use crate::suite::{Base, Pair};

const MIB: f64 = (1u64 << 20) as f64;

struct Fixed {
    arm: String,
    mega_bytes_per_s: f64,
    memory_mib: f64,
    sync_us: f64,
    extents: f64,
}

fn fixed(arm: Arm, mega_bytes_per_s: f64) -> Fixed {
    Fixed {
        arm: arm.name().to_owned(),
        mega_bytes_per_s,
        memory_mib: 64.0,
        sync_us: 38_000.0,
        extents: 1.0,
    }
}

/// Five rounds around a mean; every arm with a ripple of its own.
fn measured(fixed: &Fixed) -> Measured {
    let ripples = [0.96, 1.03, 0.99, 1.04, 0.98];
    let rounds = (0..ripples.len()).map(|round| {
        let ripple = ripples[(round * 2 + fixed.arm.len()) % ripples.len()];
        let metrics = [
            (THROUGHPUT, fixed.mega_bytes_per_s * 1e6 * ripple),
            ("peak_memory_bytes", fixed.memory_mib * MIB),
            ("sync_probe_p99_us", fixed.sync_us * ripple),
            ("extents_per_file", fixed.extents),
            ("context_switches_per_io", 0.02),
            ("system_context_switches_per_io", 0.25 * ripple),
            ("cpu_us_per_io", 4.2),
            ("written_per_asked", 1.0),
            ("peak_dirty_bytes", fixed.memory_mib * MIB / 2.0),
        ];
        let metrics = metrics.map(|(name, value)| (name.to_owned(), value)).into();
        CellResult { metrics, ..CellResult::default() }
    });
    Measured { job: "job".into(), arm: fixed.arm.clone(), rounds: rounds.collect() }
}

fn document(arms: &[Fixed]) -> Document {
    let manifest = Manifest {
        machine: Machine { release: "6.18.44".into(), cpus: 8, ..Machine::default() },
        storage: Storage {
            file_system: "ext4".into(),
            device: "/dev/nvme0n1".into(),
            ..Storage::default()
        },
        engine: "io_uring: full".into(),
        title: "Random 4k writes, 12 new files".into(),
        seed: "7f3a".into(),
        rounds: 5,
        cell_bytes: Some(288 << 20),
        budget_bytes: Some(64 << 20),
        ..Manifest::default()
    };
    let bounded = ["kernel-bounded", "kernel-direct-prealloc", "kernel-uncached-prealloc"];
    let base = Base::BestOf(bounded.map(str::to_owned).to_vec());
    let also = [Pair { arm: "forebay".into(), base: "kernel-buffered".into() }];
    let judging = Judging { base: &base, metric: THROUGHPUT, again: "forebay", also: &also };
    let judged = judge(&arms.iter().map(measured).collect::<Vec<_>>(), judging, 0x7f3a);
    Document::new(manifest, "layout", judged.rows, judged.comparisons)
}

/// The same program under another name.
fn twin(mega_bytes_per_s: f64) -> Fixed {
    Fixed { arm: again("forebay"), ..fixed(Arm::Forebay, mega_bytes_per_s) }
}

/// Two kernel arms, and forebay twice at a speed.
fn with_forebay_at(speed: f64) -> Document {
    document(&[
        Fixed {
            memory_mib: 288.0,
            sync_us: 410_000.0,
            extents: 10.0,
            ..fixed(Arm::KernelBuffered, 640.0)
        },
        Fixed { extents: 24_576.0, ..fixed(Arm::KernelBounded, 246.0) },
        Fixed { memory_mib: 66.0, sync_us: 12_000.0, ..fixed(Arm::Forebay, speed) },
        Fixed { memory_mib: 66.0, sync_us: 12_100.0, ..twin(speed * 1.004) },
    ])
}

fn reading_of(document: &Document) -> String {
    let text = comparison(document);
    let start = text.find("Reading:").unwrap();
    text[start..].split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_whole_table() {
    let mut document = with_forebay_at(415.0);
    document.manifest.left_out = vec![ArmLeftOut {
        arm: "kernel-uncached".into(),
        reason: "RWF_DONTCACHE needs Linux 6.14 and a file system that knows it (use the other arms, or ext4, XFS)"
            .into(),
        failed: false,
    }];
    document.manifest.notes = vec!["4 rounds of 5 fit in 60 s".into()];
    let expected = "\
ext4 on /dev/nvme0n1 with large folios, Linux 6.18, 8 cores, io_uring
Random 4k writes, 12 new files, 288 MiB, until synced
5 rounds, seed 7f3a
                                                             sync pieces
arm                           MB/s      ratio [95 %] memory   p99 a file
kernel buffered           640+-22   2.60 [2.49-2.72] 288MiB 410ms     10
kernel bounded            246+-8.3          1 (base)  64MiB  38ms  24576
forebay                   415+-14   1.69 [1.63-1.76]  66MiB  12ms      1
forebay again             417+-14   1.69 [1.62-1.77]  66MiB  12ms      1
noise floor 5.8 %.  ~ = not shown

                            own system CPU us bells written   peak
arm                      cs/I/O cs/I/O  / I/O / I/O / asked  dirty
kernel buffered           0.020   0.25   4.20     -    1.00 144MiB
kernel bounded            0.020   0.25   4.20     -    1.00  32MiB
forebay                   0.020   0.25   4.20     -    1.00  33MiB
forebay again             0.020   0.25   4.20     -    1.00  33MiB
cs: context switches of the arm's process and of the whole system;
bells: system calls that submit requests; written / asked: bytes of the
device per byte of the caller
left out: kernel uncached: RWF_DONTCACHE needs Linux 6.14 and a file
system that knows it (use the other arms, or ext4, XFS)
note: 4 rounds of 5 fit in 60 s

Reading: with equal memory forebay ends 1.69x sooner than the best
bounded kernel arm (kernel bounded). Unbounded buffering ends 1.54x
sooner than forebay, with 4.36x forebay's memory.
Until a sync returns, data written through forebay does not survive kill
-9; the kernel's arms do, and forebay with a keeper (--survive). No
arm's survives a loss of power.
";
    let text = comparison(&document);
    assert_eq!(text, expected, "\n{text}");
    assert!(text.lines().all(|line| line.len() <= 72));
}

#[test]
fn forebay_is_worse() {
    let reading = reading_of(&with_forebay_at(164.0));
    assert!(reading.contains("with equal memory forebay ends 1.50x later than"), "{reading}");
    assert!(reading.contains("Unbounded buffering ends 3.90x sooner than forebay"), "{reading}");
}

#[test]
fn of_several_parts_it_is_told_which_is_read() {
    let mut document = with_forebay_at(164.0);
    let title = document.manifest.title.clone();
    let job =
        PartJob { name: "job".into(), base: Some("kernel-bounded".into()), ..PartJob::default() };
    let metric = "write_bytes_per_s".into();
    let files = Part {
        title,
        metric,
        again: "forebay".into(),
        rounds: 5,
        jobs: vec![job],
        ..Part::default()
    };
    let other = Part { table: TableKind::Worth, metric: "ns_per_io".into(), ..Part::default() };
    document.parts = vec![files, other];
    let reading = reading_of(&document);
    let expected =
        "Reading: Random 4k writes, 12 new files: with equal memory forebay ends 1.50x later than";
    assert!(reading.starts_with(expected), "{reading}");
}

#[test]
fn forebay_beats_plain_buffering_too() {
    let reading = reading_of(&with_forebay_at(1280.0));
    assert!(
        reading.contains("Unbounded buffering ends 2.00x later than forebay, with 4.36x"),
        "{reading}"
    );
}

#[test]
fn nothing_is_shown_and_why() {
    let reading = reading_of(&with_forebay_at(247.0));
    assert!(
        reading.contains("no difference between forebay and the best bounded kernel arm"),
        "{reading}"
    );
    assert!(reading.contains("which includes 1."), "{reading}");
    let same = reading_of(&with_forebay_at(640.0));
    assert!(
        same.contains("Between forebay and unbounded buffering, with 4.36x forebay's memory, no"),
        "{same}"
    );

    let mut few = with_forebay_at(415.0);
    few.manifest.rounds = 3;
    few.comparisons.iter_mut().for_each(|one| one.verdict = crate::statistics::Verdict::NotShown);
    assert!(reading_of(&few).contains("from fewer than 4 rounds"));
    assert!(comparison(&few).contains("~1.69 [1.63-1.76]"));

    let noisy =
        document(&[fixed(Arm::KernelBounded, 246.0), fixed(Arm::Forebay, 415.0), twin(830.0)]);
    assert!(reading_of(&noisy).contains("within the noise floor"), "{}", reading_of(&noisy));
    let alone = document(&[fixed(Arm::KernelBounded, 246.0), fixed(Arm::Forebay, 415.0)]);
    assert!(reading_of(&alone).contains("without a noise floor"));
    assert!(comparison(&alone).contains("noise floor unknown"));
}

#[test]
fn unequal_memory_is_named() {
    let document = document(&[
        Fixed { memory_mib: 2.0, ..fixed(Arm::KernelDirectPrealloc, 246.0) },
        Fixed { memory_mib: 66.0, ..fixed(Arm::Forebay, 415.0) },
        Fixed { memory_mib: 66.0, ..twin(416.0) },
    ]);
    let reading = reading_of(&document);
    assert!(
        reading.starts_with("Reading: with 66 MiB of memory against 2 MiB forebay ends"),
        "{reading}"
    );
    assert!(!reading.contains("Unbounded"), "{reading}");
}

#[test]
fn missing_arms() {
    let no_base =
        document(&[fixed(Arm::KernelBuffered, 640.0), fixed(Arm::Forebay, 415.0), twin(416.0)]);
    assert!(reading_of(&no_base).contains("no bounded kernel arm ran here"));
    assert!(comparison(&no_base).contains("Unbounded buffering ends"));

    let mut no_forebay =
        document(&[fixed(Arm::KernelBuffered, 640.0), fixed(Arm::KernelBounded, 246.0)]);
    let reason = "wrong byte at 4096".to_owned();
    no_forebay.manifest.left_out = vec![ArmLeftOut { arm: "forebay".into(), reason, failed: true }];
    assert_eq!(reading_of(&no_forebay), "Reading: forebay did not run here: wrong byte at 4096.");
    assert!(comparison(&no_forebay).contains("FAILED: forebay: wrong byte at 4096"));

    let empty = Document::new(Manifest::default(), "layout", vec![], vec![]);
    assert!(comparison(&empty).contains("forebay did not run here."));
}

#[test]
fn no_line_is_too_long_whatever_is_measured() {
    for (speed, memory, sync, extents) in
        [(1e-3, 1e-3, 1e-3, 0.0), (1e6, 1e6, 8e10, 1e9), (99_999.0, 1023.7, 9.99e5, 1.5)]
    {
        let arms = ["kernel-buffered", "kernel-uncached-prealloc", "forebay", "forebay-again"];
        let arms = arms.map(|arm| Fixed {
            arm: arm.to_owned(),
            mega_bytes_per_s: if arm == "forebay" { speed } else { 100.0 },
            memory_mib: memory,
            sync_us: sync,
            extents,
        });
        let text = comparison(&document(&arms));
        assert!(text.lines().all(|line| line.len() <= 72), "\n{text}");
    }
}

#[test]
fn each_job_on_new_files_has_its_own_ratios() {
    let arms = [fixed(Arm::KernelBounded, 246.0), fixed(Arm::Forebay, 492.0), twin(492.0)];
    let of_job = |name: &str, factor: f64| {
        let slower = |arm: &Fixed| {
            let speed = if arm.arm == "kernel-bounded" {
                arm.mega_bytes_per_s
            } else {
                arm.mega_bytes_per_s * factor
            };
            Measured {
                job: name.into(),
                ..measured(&Fixed { arm: arm.arm.clone(), mega_bytes_per_s: speed, ..*arm })
            }
        };
        arms.iter().map(slower).collect::<Vec<_>>()
    };
    let cells = [of_job("first", 1.0), of_job("second", 2.0)].concat();
    let base = Base::Arm("kernel-bounded".into());
    let judging = Judging { base: &base, metric: THROUGHPUT, again: "forebay", also: &[] };
    let judged = judge(&cells, judging, 0x7f3a);
    let mut document = Document::new(Manifest::default(), "two", judged.rows, judged.comparisons);
    let job = |name: &str| PartJob {
        name: name.into(),
        base: Some("kernel-bounded".into()),
        ..PartJob::default()
    };
    document.parts.push(Part {
        metric: THROUGHPUT.into(),
        again: "forebay".into(),
        jobs: vec![job("first"), job("second")],
        ..Part::default()
    });
    let text = comparison(&document);
    let ratios: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("forebay  ") && line.contains('['))
        .map(|line| line.split_whitespace().nth(2).unwrap())
        .collect();
    assert_eq!(ratios.len(), 2, "{text}");
    assert!(ratios[0].starts_with("2.") && ratios[1].starts_with("4."), "{ratios:?}: {text}");
}
