//! A job file from its text to its figures.

use std::path::Path;

use forebay_lab::arm::Arm;
use forebay_lab::cell::{Cell, CellSpec};
use forebay_lab::fio::Leniency;
use forebay_lab::job::Devices;
use forebay_lab::load::{CellError, CellReport};
use forebay_lab::probes;
use forebay_lab::run::{RunError, RunOptions, run};
use forebay_lab::scratch::Stop;

struct Bench {
    directory: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { directory: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn run(&self, text: &str, arm: Arm) -> (Result<Vec<CellReport>, RunError>, String) {
        let job_file = self.path().join("job.fio");
        std::fs::write(&job_file, text).unwrap();
        let options = RunOptions {
            job_file,
            arm,
            settings: Vec::new(),
            control: None,
            leniency: Leniency::Strict,
            devices: Devices::Refuse,
            directory: Some(self.path().to_owned()),
            seed: 1,
        };
        let mut reported = Vec::new();
        let mut runner = |cell: &Cell| probes::run(cell, |_| ());
        let report = run(&options, &mut reported, &mut runner, &Stop::default());
        (report, String::from_utf8(reported).unwrap())
    }

    fn refused(&self, text: &str) -> String {
        self.run(text, Arm::Kernel).0.unwrap_err().to_string()
    }
}

const JOB: &str = "[global]\nsize=1m\nbs=4k\ngroup_reporting\nverify=crc32c\n\
    [w]\nrw=randwrite\nnumjobs=2\n[r]\nstonewall\nrw=randread\nfilename=w.0.0\n";

#[test]
fn groups_run_one_after_the_other_and_files_stay() {
    for arm in [Arm::Kernel, Arm::Forebay] {
        let bench = Bench::new();
        let (report, reported) = bench.run(JOB, arm);
        let report = report.unwrap();
        assert_eq!(report.len(), 2);
        let names: Vec<_> = report[0].jobs.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["w.0", "w.1"]);
        let written = &report[0].total;
        assert!(written.notes.contains(&"verified 2097152 bytes".into()), "{written:?}");
        assert!(report[1].jobs[0].metrics["read_iops"] > 0.0);
        assert_eq!(std::fs::metadata(bench.path().join("w.1.0")).unwrap().len(), 1 << 20);
        assert_eq!(reported.matches("group_reporting").count(), 1, "{reported}");
    }
}

#[test]
fn nothing_is_made_without_io() {
    let bench = Bench::new();
    let (report, _) = bench.run("[w]\nsize=1m\nrw=write\n", Arm::Null);
    assert!(report.unwrap()[0].total.metrics["write_iops"] > 0.0);
    assert!(!bench.path().join("w.0.0").exists());
}

#[test]
fn unlink_removes_what_the_job_named() {
    let bench = Bench::new();
    std::fs::write(bench.path().join("other"), "x").unwrap();
    bench.run("[w]\nsize=64k\nrw=write\nunlink=1\n", Arm::Kernel).0.unwrap();
    assert!(!bench.path().join("w.0.0").exists());
    assert!(bench.path().join("other").exists());
}

#[test]
fn refusals_come_before_anything_is_made() {
    let bench = Bench::new();
    let missing =
        bench.refused("[a]\nsize=4k\nrw=write\n[b]\nstonewall\nsize=4k\ndirectory=nowhere\n");
    assert!(missing.contains("nowhere: there is no such directory"), "{missing}");
    assert!(!bench.path().join("a.0.0").exists());
    let typo = bench.refused("[a]\nsize=4k\nrw=write\n[b]\nstonewal\n");
    assert!(
        typo.contains("job.fio:5: stonewal: no such option; did you mean stonewall?"),
        "{typo}"
    );
    assert!(!bench.path().join("a.0.0").exists());
    let empty = bench.refused("[a]\nrw=write\n");
    assert!(empty.contains("no size= or filesize="), "{empty}");
}

#[test]
fn a_device_is_not_written_unasked() {
    let bench = Bench::new();
    let device =
        std::fs::read_dir("/dev").into_iter().flatten().flatten().map(|entry| entry.path()).find(
            |path| {
                use std::os::unix::fs::FileTypeExt;
                std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
            },
        );
    // A container may have none.
    if let Some(device) = device {
        let refused =
            bench.refused(&format!("[a]\nsize=4k\nrw=write\nfilename={}\n", device.display()));
        assert!(refused.contains("--allow-write-device"), "{refused}");
    }
}

/// Sizes of the test below, so that some operations are shorter than their buffer.
const DIRECT: &str = "[global]\nsize=4m\ndirect=1\nioengine=io_uring\niodepth=16\n\
    [w]\nrw=randwrite\nbssplit=4k/50:16k/50\nverify=crc32c\n\
    [r]\nstonewall\nrw=randread\nbs=4k\nfilename=w.0.0\niodepth_batch_submit=BATCH\n\
    [m]\nstonewall\nrw=randrw\nbs=4k,16k\nfilename=w.0.0\nverify=crc32c\n\
    [c]\nstonewall\nioengine=psync\nrw=write\nbs=1000\nsize=50000\nverify=crc32c\n";

#[test]
fn a_direct_job_goes_past_the_cache_in_batches_of_any_size() {
    let run = |batch: &str| {
        let bench = Bench::new();
        let report = bench.run(&DIRECT.replace("BATCH", batch), Arm::Forebay).0;
        match report {
            Ok(report) => {
                assert_eq!(std::fs::metadata(bench.path().join("c.0.0")).unwrap().len(), 50_000);
                Some(report)
            }
            Err(error) if error.to_string().contains("set direct=0") => {
                eprintln!("skipped: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    };
    let Some((single, batched)) = run("1").zip(run("16")) else { return };
    for groups in [&single, &batched] {
        for written in [0, 2, 3] {
            let notes = &groups[written].total.notes;
            assert!(notes.iter().any(|note| note.starts_with("verified ")), "{notes:?}");
        }
        // Whole blocks of the device from aligned memory: nothing is copied but in the last group.
        let copied = |group: usize| {
            groups[group]
                .total
                .notes
                .iter()
                .any(|note| note.ends_with("were not aligned and copied"))
        };
        assert_eq!([0, 1, 2, 3].map(copied), [false, false, false, true]);
    }
}

#[test]
fn a_file_system_without_direct_io_refuses_a_direct_job() {
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() {
        eprintln!("skipped: there is no {}", memory.display());
        return;
    }
    let bench = Bench { directory: tempfile::tempdir_in(memory).unwrap() };
    match bench.run("[a]\nsize=4k\ndirect=1\nrw=write\n", Arm::Forebay).0 {
        // Since Linux 6.6 there is direct I/O to memory.
        Ok(_) => {}
        Err(error) => {
            let error = error.to_string();
            assert!(error.contains("job a: direct=1, but") && error.contains("--dir"), "{error}");
        }
    }
}

#[test]
fn a_stop_ends_it_after_the_group_and_removes_what_was_to_go() {
    let bench = Bench::new();
    let job_file = bench.path().join("job.fio");
    std::fs::write(&job_file, "[a]\nsize=64k\nrw=write\nunlink=1\n[b]\nsize=64k\nrw=write\n")
        .unwrap();
    let options = RunOptions {
        job_file,
        arm: Arm::Kernel,
        settings: Vec::new(),
        control: None,
        leniency: Leniency::Strict,
        devices: Devices::Refuse,
        directory: Some(bench.path().to_owned()),
        seed: 1,
    };
    let stop = Stop::default();
    let mut interrupted = |cell: &Cell| {
        for job in cell.shape::<CellSpec>().unwrap().workload.jobs {
            std::fs::write(cell.directory.join(&job.files[0]), "some of it").unwrap();
        }
        stop.set();
        Err(CellError::Process { what: "ended by signal 9".into() })
    };
    let ended = run(&options, &mut Vec::new(), &mut interrupted, &stop);
    assert!(matches!(ended, Err(RunError::Interrupted)));
    assert!(!bench.path().join("a.0.0").exists() && bench.path().join("b.0.0").exists());
}

#[test]
fn a_missing_job_file_is_named() {
    let bench = Bench::new();
    std::fs::write(bench.path().join("job.fio"), "").unwrap();
    let empty = bench.refused("");
    assert!(empty.contains("there is no job"), "{empty}");
}
