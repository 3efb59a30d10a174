//! Every arm does real I/O on a small real file, and its data is read back.

use std::path::Path;

use forebay_lab::arm::Arm;
use forebay_lab::cell::{CellResult, CellSpec, SyncProbe, Verify};
use forebay_lab::job::{
    Access, Amount, Caching, Create, Devices, Direction, IoEngine, Job, Order, Workload, YesNo,
};
use forebay_lab::load::{CellError, run_cell};

const MIB: u64 = 1 << 20;

const ARMS: [Arm; 12] = [
    Arm::KernelBuffered,
    Arm::KernelBounded,
    Arm::KernelBoundedPrealloc,
    Arm::KernelUncached,
    Arm::KernelUncachedPrealloc,
    Arm::KernelDirect,
    Arm::KernelDirectPrealloc,
    Arm::KernelDirect1m,
    Arm::Kernel,
    Arm::Forebay,
    Arm::ForebayDeclared,
    Arm::Null,
];

fn spec(arm: Arm, workload: Workload, directory: &Path) -> CellSpec {
    CellSpec {
        workload,
        arm,
        directory: directory.to_owned(),
        // The least that an engine takes; the kernel's arms have to do with less than the data.
        budget_bytes: if arm.is_forebay() { 8 * MIB } else { MIB },
        settings: Vec::new(),
        control: None,
        seed: 9,
        verify: Verify::After,
        sync_probe: SyncProbe::On,
        text: None,
    }
}

/// Beside the tests' own binaries: a real file system, where `/tmp` may be memory.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// None where the arm cannot run here, with the reason on standard error.
fn run(spec: &CellSpec) -> Option<CellResult> {
    match run_cell(spec) {
        Ok(result) => Some(result),
        Err(CellError::ArmRefused { arm, reason }) => {
            eprintln!("{}: {reason}", arm.name());
            None
        }
        Err(error) => panic!("{}: {error}", spec.arm.name()),
    }
}

fn get(result: &CellResult, name: &str) -> f64 {
    *result.metrics.get(name).unwrap_or_else(|| panic!("no {name} in {result:?}"))
}

#[test]
fn every_arm_writes_new_files_and_reads_them_back() {
    for arm in ARMS {
        for declared in [YesNo::No, YesNo::Yes] {
            let directory = directory();
            let workload =
                Workload::random_writes_into_new_files(3, 2 * MIB, 4096).declared(declared);
            let Some(result) = run(&spec(arm, workload, directory.path())) else { continue };
            let rate = get(&result, "write_bytes_per_s") * get(&result, "elapsed_s");
            assert!((rate - 6.0 * MIB as f64).abs() < 1.0, "{}: {rate} bytes", arm.name());
            assert!(!result.metrics.contains_key("read_iops"));
            if arm == Arm::Null {
                assert!(!directory.path().join("writer-00").exists());
                continue;
            }
            assert!(result.notes.contains(&format!("verified {} bytes", 6 * MIB)), "{result:?}");
            for number in 0..3 {
                let path = directory.path().join(format!("writer-{number:02}/data"));
                assert_eq!(std::fs::metadata(path).unwrap().len(), 2 * MIB, "{}", arm.name());
            }
            assert!(get(&result, "write_latency_p50_us") <= get(&result, "write_latency_p999_us"));
        }
    }
}

#[test]
fn a_declared_file_lies_in_one_or_two_pieces() {
    let directory = directory();
    let workload = Workload::random_writes_into_new_files(4, 8 * MIB, 4096).declared(YesNo::Yes);
    let Some(result) = run(&spec(Arm::ForebayDeclared, workload, directory.path())) else { return };
    // Not every file system can tell.
    if let Some(&extents) = result.metrics.get("extents_per_file") {
        assert!(extents <= 2.0, "{extents} extents per file");
    }
}

#[test]
fn every_arm_reads_and_writes_mixed() {
    for arm in ARMS {
        for order in [Order::Sequential, Order::Random] {
            let directory = directory();
            let job = Job {
                name: "mixed".into(),
                access: Access { direction: Direction::Mixed { read_percent: 50 }, order },
                files: vec!["a".into(), "b".into()],
                size: Some(Amount::Bytes(MIB)),
                depth: 8,
                io_engine: IoEngine::Ring,
                ..Job::default()
            };
            let workload = Workload { jobs: vec![job], devices: Devices::Refuse };
            let Some(result) = run(&spec(arm, workload, directory.path())) else { continue };
            assert!(
                get(&result, "read_iops") > 0.0 && get(&result, "write_iops") > 0.0,
                "{}",
                arm.name()
            );
        }
    }
}

#[test]
fn the_kernel_arm_follows_the_job() {
    for (io_engine, caching) in [
        (IoEngine::Calls, Caching::Buffered),
        (IoEngine::Calls, Caching::Direct),
        (IoEngine::Calls, Caching::Uncached),
        (IoEngine::Ring, Caching::Buffered),
        (IoEngine::Ring, Caching::Direct),
        (IoEngine::Ring, Caching::Uncached),
    ] {
        let directory = directory();
        let mut workload = Workload::random_writes_into_new_files(1, MIB, 4096);
        let job = &mut workload.jobs[0];
        (job.io_engine, job.caching, job.depth, job.fdatasync_every) =
            (io_engine, caching, 16, 100);
        let Some(result) = run(&spec(Arm::Kernel, workload, directory.path())) else { continue };
        let batches = result.metrics.contains_key("requests_per_doorbell");
        assert_eq!(batches, io_engine == IoEngine::Ring, "{io_engine:?} {caching:?}");
    }
}

/// Single calls and a depth, on every arm with a cache: writes in flight at the end are there too,
/// and as much as was written is found.
#[test]
fn a_depth_is_kept_for_a_time_and_what_was_written_is_there() {
    for arm in [
        Arm::KernelBounded,
        Arm::KernelUncached,
        Arm::KernelDirect,
        Arm::Forebay,
        Arm::ForebayDeclared,
    ] {
        for (io_engine, depth) in [(IoEngine::Calls, 1), (IoEngine::Ring, 32)] {
            let directory = directory();
            let mut workload = Workload::random_writes_into_new_files(2, 16 * MIB, 65_536);
            for job in &mut workload.jobs {
                (job.io_engine, job.depth, job.caching) = (io_engine, depth, Caching::Uncached);
                (job.time_based, job.runtime_us) = (YesNo::Yes, Some(200_000));
            }
            let Some(result) = run(&spec(arm, workload, directory.path())) else { continue };
            let operations = get(&result, "iops") * get(&result, "elapsed_s");
            assert!(operations >= f64::from(depth), "{}: {operations}", arm.name());
            let verified = result.notes.iter().find(|note| note.starts_with("verified ")).unwrap();
            let verified: f64 = verified.split(' ').nth(1).unwrap().parse().unwrap();
            assert!(verified > 0.0 && verified <= 32.0 * MIB as f64);
            assert!(get(&result, "system_context_switches_per_gib") > 0.0);
            let reported = result.metrics.contains_key("bios_per_run");
            assert_eq!(reported, arm.is_forebay() || io_engine == IoEngine::Ring, "{}", arm.name());
            let held = result.detail.as_ref().is_some_and(|detail| detail.holds.count() > 0);
            assert_eq!(held, arm.is_forebay(), "{}", arm.name());
        }
    }
}

#[test]
fn a_small_writer_beside_syncs_one_after_the_other() {
    let directory = directory();
    let mut workload = Workload::random_writes_into_new_files(1, 4 * MIB, 65_536);
    (workload.jobs[0].time_based, workload.jobs[0].runtime_us) = (YesNo::Yes, Some(100_000));
    for arm in [Arm::KernelBounded, Arm::Forebay] {
        let spec = CellSpec {
            sync_probe: SyncProbe::Always,
            ..spec(arm, workload.clone(), directory.path())
        };
        let result = run(&spec).unwrap();
        assert!(
            get(&result, "sync_probe_p50_us") <= get(&result, "sync_probe_p99_us"),
            "{result:?}"
        );
    }
}

#[test]
fn time_and_rate_are_kept() {
    let directory = directory();
    let mut workload = Workload::random_writes_into_new_files(1, MIB, 4096);
    let job = &mut workload.jobs[0];
    job.create = Create::Before;
    job.time_based = YesNo::Yes;
    job.runtime_us = Some(200_000);
    job.ramp_us = 50_000;
    job.pace.write.operations_per_s = 1000;
    let result = run(&spec(Arm::KernelBuffered, workload, directory.path())).unwrap();
    let operations = get(&result, "iops") * get(&result, "elapsed_s");
    // Operations late at the end of the ramp are started at once.
    assert!(
        (150.0..=250.0).contains(&operations),
        "{operations} operations in 200 ms at 1000 a second"
    );
}

/// Operations that could not be started in time are reported too: as many as were due, on a busy
/// machine as well.
#[test]
fn a_rate_is_a_schedule_on_every_way() {
    for arm in [Arm::KernelBuffered, Arm::KernelDirect, Arm::Forebay, Arm::Null] {
        for (io_engine, depth) in [(IoEngine::Calls, 1), (IoEngine::Ring, 8)] {
            let directory = directory();
            let mut workload = Workload::random_writes_into_new_files(1, MIB, 4096);
            let job = &mut workload.jobs[0];
            (job.io_engine, job.depth) = (io_engine, depth);
            (job.time_based, job.runtime_us) = (YesNo::Yes, Some(100_000));
            job.pace.write.operations_per_s = 1000;
            let Some(result) = run(&spec(arm, workload, directory.path())) else { continue };
            let started = get(&result, "iops") * get(&result, "elapsed_s");
            let due = started + get(&result, "never_started");
            assert!((due - 100.0).abs() < 0.01, "{}: {due} were due in 100 ms", arm.name());
            assert!(get(&result, "backlog_peak") >= 1.0 && get(&result, "start_late_p99_us") > 0.0);
            assert!(
                result.notes.iter().any(|note| note.starts_with("a rate to keep: ")),
                "{result:?}"
            );
        }
    }
}

#[test]
fn a_probe_is_answered_and_kept_apart() {
    let directory = directory();
    let mut workload = Workload::random_writes_into_new_files(1, MIB, 4096);
    let job = &mut workload.jobs[0];
    (job.time_based, job.runtime_us) = (YesNo::Yes, Some(150_000));
    for arm in [Arm::KernelBounded, Arm::Forebay] {
        let result = run(&spec(arm, workload.clone(), directory.path())).unwrap();
        assert!(get(&result, "sync_probe_p50_us") > 0.0);
        assert!(get(&result, "sync_probe_p50_us") <= get(&result, "sync_probe_p99_us"));
    }
}

#[test]
fn a_refusal_is_typed_and_a_bad_directory_is_named() {
    let directory = directory();
    // No file system on a disk reads 1000 bytes past the page cache.
    let mut workload = Workload::random_writes_into_new_files(1, 50_000, 1000);
    workload.jobs[0].caching = Caching::Direct;
    let refused = run_cell(&spec(Arm::Kernel, workload.clone(), directory.path())).unwrap_err();
    assert!(matches!(refused, CellError::ArmRefused { arm: Arm::Kernel, .. }), "{refused}");
    let missing = directory.path().join("missing");
    let error = run_cell(&spec(Arm::Kernel, workload, &missing)).unwrap_err().to_string();
    assert!(error.contains("there is no such directory"), "{error}");
}
