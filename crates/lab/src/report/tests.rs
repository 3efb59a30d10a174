use super::*;
use crate::arm::Arm;
use crate::cell::CellResult;
use crate::compare::Measured;
use crate::compare::judge::{Judging, judge};
use crate::manifest::{ArmLeftOut, Machine, Manifest, Storage};
use crate::schema::Part;
use crate::schema::PartJob;
use crate::schema::again;
use crate::suite::{Base, Pair};

const THROUGHPUT: &str = "write_bytes_per_s";

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
    let mut document = Document::new(manifest, "layout", judged.rows, judged.comparisons);
    document.parts.push(Part {
        name: "layout".into(),
        title: "Random 4k writes, 12 new files".into(),
        metric: THROUGHPUT.into(),
        again: "forebay".into(),
        rounds: 5,
        cell_bytes: Some(288 << 20),
        jobs: vec![PartJob {
            name: "job".into(),
            probe: "new-files".into(),
            base: judged.bases.first().map(|(_, base)| base.clone()),
            ..PartJob::default()
        }],
        ..Part::default()
    });
    document
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

fn flat(document: &Document) -> String {
    comparison(document).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_whole_table() {
    let mut document = with_forebay_at(415.0);
    document.manifest.left_out = vec![ArmLeftOut {
        arm: "kernel-uncached".into(),
        reason: "RWF_DONTCACHE needs Linux 6.14".into(),
        failed: false,
    }];
    document.manifest.notes = vec!["4 rounds of 5 fit in 60 s".into()];
    let expected = "\
ext4 on /dev/nvme0n1 with large folios, Linux 6.18, 8 cores, io_uring
Random 4k writes, 12 new files, 288 MiB, until synced
5 rounds, seed 7f3a
                                                  sync pieces  own cs
arm                 MB/s     ratio [95 %] memory   p99 a file per I/O
kernel-buffered  640+-22 2.60 [2.49-2.72] 288MiB 410ms   10.0   0.020
kernel-bounded  246+-8.3         1 (base)  64MiB  38ms  24576   0.020
forebay          415+-14 1.69 [1.63-1.76]  66MiB  12ms   1.00   0.020
forebay-again    417+-14 1.69 [1.62-1.77]  66MiB  12ms   1.00   0.020

                system  CPU us written   peak
arm              cs/IO per I/O / asked  dirty
kernel-buffered   0.25   4.2us    1.00 144MiB
kernel-bounded    0.25   4.2us    1.00  32MiB
forebay           0.25   4.2us    1.00  33MiB
forebay-again     0.25   4.2us    1.00  33MiB

pair                                  MB/s
forebay : kernel-buffered 0.65 [0.62-0.67]
noise floor 5.8 %.  ~ = not shown
forebay writes 1.69x (1.63-1.76) the bytes per second of the best
bounded kernel arm (kernel-bounded), with 66 MiB of memory against 64
MiB.

own cs per I/O: the same for each I/O; system cs/IO: the same for each
I/O; CPU us per I/O: processor time of the process; sync p99: a write of
4 KiB and its sync, beside the work; pieces a file: extents; written /
asked: bytes of the device per byte of the caller; memory: for data, at
its peak. - = not measured
left out: kernel-uncached: RWF_DONTCACHE needs Linux 6.14
note: 4 rounds of 5 fit in 60 s
";
    let text = comparison(&document);
    assert_eq!(text, expected, "\n{text}");
    assert!(text.lines().all(|line| line.len() <= 72));
}

#[test]
fn only_shown_differences_are_said() {
    let worse = flat(&with_forebay_at(164.0));
    assert!(worse.contains("forebay writes 0.67x (0.6"), "{worse}");
    let same = flat(&with_forebay_at(247.0));
    assert!(
        same.contains("forebay shows no difference from the best bounded kernel arm"),
        "{same}"
    );
    let noisy =
        document(&[fixed(Arm::KernelBounded, 246.0), fixed(Arm::Forebay, 415.0), twin(830.0)]);
    assert!(flat(&noisy).contains("shows no difference from"), "{}", flat(&noisy));
    let alone = document(&[fixed(Arm::KernelBounded, 246.0), fixed(Arm::Forebay, 415.0)]);
    assert!(flat(&alone).contains("noise floor unknown"), "{}", flat(&alone));
}

#[test]
fn memory_is_named_and_so_are_missing_arms() {
    let document = document(&[
        Fixed { memory_mib: 2.0, ..fixed(Arm::KernelDirectPrealloc, 246.0) },
        Fixed { memory_mib: 66.0, ..fixed(Arm::Forebay, 415.0) },
        Fixed { memory_mib: 66.0, ..twin(416.0) },
    ]);
    let said = flat(&document);
    assert!(said.contains("with 66 MiB of memory against 2 MiB."), "{said}");

    let no_base = self::document(&[fixed(Arm::KernelBuffered, 640.0), fixed(Arm::Forebay, 415.0)]);
    assert!(flat(&no_base).contains("no bounded arm of the kernel ran here"));
    let mut no_forebay =
        self::document(&[fixed(Arm::KernelBuffered, 640.0), fixed(Arm::KernelBounded, 246.0)]);
    let reason = "wrong byte at 4096".to_owned();
    no_forebay.manifest.left_out = vec![ArmLeftOut { arm: "forebay".into(), reason, failed: true }];
    let said = flat(&no_forebay);
    assert!(said.contains("forebay did not run here: wrong byte at 4096."), "{said}");
    assert!(said.contains("FAILED: forebay: wrong byte at 4096"), "{said}");
}

/// Costs are compared in their own unit, pairs besides those with the base have a line, and a part
/// may have several jobs.
#[test]
fn pairs_differences_and_jobs_stand_in_the_same_table() {
    let cells = |job: &str, arm: &str, nanos: f64| {
        let cell = |ripple: &f64| CellResult {
            metrics: [("ns_per_io".to_owned(), nanos * ripple)].into(),
            ..CellResult::default()
        };
        let rounds = [1.0, 1.01, 0.99, 1.004, 0.996].iter().map(cell).collect();
        Measured { job: job.into(), arm: arm.into(), rounds }
    };
    let measured: Vec<Measured> = ["null", "gen4"]
        .into_iter()
        .flat_map(|job| {
            [("all-on", 250.0), ("clock-each", 500.0), ("tags", 251.0), ("all-on-again", 251.0)]
                .map(|(arm, nanos)| cells(job, arm, nanos))
        })
        .collect();
    let base = Base::Arm("all-on".into());
    let also = [Pair { arm: "clock-each".into(), base: "tags".into() }];
    let judging = Judging { base: &base, metric: "ns_per_io", again: "all-on", also: &also };
    let judged = judge(&measured, judging, 1);
    let mut document = Document::new(Manifest::default(), "plug", judged.rows, judged.comparisons);
    document.differences = judged.differences;
    let job = |name: &str| PartJob {
        name: name.into(),
        title: format!("on {name}"),
        probe: "requests".into(),
        base: Some("all-on".into()),
        ..PartJob::default()
    };
    document.parts.push(Part {
        metric: "ns_per_io".into(),
        again: "all-on".into(),
        jobs: vec![job("null"), job("gen4")],
        ..Part::default()
    });
    let text = comparison(&document);
    for line in ["on null:", "on gen4:"] {
        assert_eq!(text.matches(line).count(), 1, "{text}");
    }
    assert_eq!(text.matches("ns more [95 %]").count(), 2, "{text}");
    assert!(text.contains("+250 [+24") && text.contains("clock-each : tags"), "{text}");
    assert!(text.contains("clock-each has 2.00x"), "{text}");
    assert!(text.lines().all(|line| line.len() <= 72), "{text}");
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
