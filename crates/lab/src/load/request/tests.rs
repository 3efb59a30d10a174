use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::*;
use crate::probes::{by_name, request_cell};
use crate::request::{DATA_FILE, Operation, Pattern, Poll, RequestDevice, Way};

/// A small cell: sequential reads at depth 4, for two milliseconds.
pub(crate) fn spec(device: &str) -> RequestSpec {
    RequestSpec {
        depth: 4,
        pattern: Pattern::Sequential,
        seconds: 0.002,
        seed: 7,
        ..RequestSpec::random_reads(device.parse().unwrap())
    }
}

#[test]
fn what_cannot_be_meant_is_refused_with_the_remedy() {
    let knob = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    for (spec, remedy) in [
        (RequestSpec { depth: 0, ..spec("null") }, "between 1 and 4096"),
        (RequestSpec { depth: MOST_DEPTH + 1, ..spec("null") }, "between 1 and 4096"),
        (RequestSpec { batch: Some(0), ..spec("null") }, "one bio at least"),
        (RequestSpec { block_bytes: 1000, ..spec("null") }, "multiple of 512"),
        (RequestSpec { block_bytes: 512, ..spec("file") }, "multiple of 4096"),
        (RequestSpec { file_bytes: 4097, ..spec("null") }, "multiple of block_bytes"),
        (RequestSpec { seconds: f64::NAN, ..spec("null") }, "not a time"),
        (RequestSpec { from: Submitter::Thread, ..spec("gen4") }, "take null"),
        (RequestSpec { knobs: knob("plug", "often"), ..spec("null") }, "never, always, adaptive"),
        (RequestSpec { knobs: knob("plugs", "never"), ..spec("null") }, "there are: plug, merge"),
        (RequestSpec { fixed_files: Switch::On, ..spec("null") }, "device=file"),
    ] {
        let cell = cell(Way::Queue, spec, Path::new("/nowhere"));
        let refused = run(&cell).unwrap_err().to_string();
        assert!(refused.contains(remedy), "{refused}");
    }
}

/// A cell on a file at depth 16, for 50 milliseconds.
pub(crate) fn on_file(pattern: Pattern) -> RequestSpec {
    RequestSpec {
        depth: 16,
        pattern,
        fixed_files: Switch::On,
        seed: 7,
        ..RequestSpec::random_reads(RequestDevice::file())
    }
}

/// Beside the tests' own binaries: a real file system, where `/tmp` may be memory.
fn directory() -> tempfile::TempDir {
    let target = std::env::current_exe().unwrap();
    tempfile::tempdir_in(target.parent().unwrap()).unwrap()
}

fn cell(way: Way, spec: RequestSpec, directory: &Path) -> RequestCell {
    let directory = directory.to_owned();
    RequestCell { way, spec, poll: Poll::WhereItCan, directory, target: None }
}

#[test]
fn every_way_reads_and_writes_the_file_at_every_batch() {
    let directory = directory();
    for way in [Way::Pread, Way::Uring, Way::Fio] {
        for (batch, operation) in
            [(None, Operation::Read), (Some(1), Operation::Write), (Some(7), Operation::Read)]
        {
            for switch in [Switch::On, Switch::Off] {
                let spec = RequestSpec {
                    batch,
                    operation,
                    fixed_files: switch,
                    ..on_file(Pattern::Random)
                };
                let result = match run(&cell(way, spec, directory.path())) {
                    Err(CellError::Unavailable { reason }) => {
                        eprintln!("skipped: {way:?}: {reason}");
                        continue;
                    }
                    other => other.unwrap(),
                };
                let metrics = &result.metrics;
                assert!(
                    metrics["iops"] > 0.0 && metrics["latency_p99_us"] > 0.0,
                    "{way:?}: {result:?}"
                );
                assert!(
                    (metrics["ns_per_io"] * metrics["iops"] - 1e9).abs() < 1e3,
                    "{way:?}: {metrics:?}"
                );
                if (way, batch) == (Way::Uring, Some(7)) {
                    assert!((6.0..8.0).contains(&metrics["requests_per_doorbell"]), "{metrics:?}");
                }
            }
        }
    }
    let left = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 1, "the file and nothing else");
    assert_eq!(std::fs::metadata(directory.path().join(DATA_FILE)).unwrap().len(), 1 << 20);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let directory = directory();
    let refused = |change: fn(&mut RequestSpec)| {
        let mut spec = on_file(Pattern::Random);
        change(&mut spec);
        run(&cell(Way::Uring, spec, directory.path())).unwrap_err().to_string()
    };
    assert!(
        refused(|spec| spec.device = "gen4".parse().unwrap())
            .contains("goes to a file alone, not to gen4")
    );
    assert!(refused(|spec| spec.file_bytes = 512).contains("multiple of block_bytes"));
    assert!(refused(|spec| spec.depth = 0).contains("between 1 and 4096"));
    assert!(refused(|spec| spec.seconds = f64::NAN).contains("not a time"));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// A device that is mounted is held exclusively; it is read all the same, and is the one that is
/// asked and counted.
#[test]
fn a_device_that_somebody_has_is_read_and_is_the_one_that_is_asked() {
    let directory = directory();
    let file = tempfile::NamedTempFile::new_in(directory.path()).unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let device = match crate::loop_device::LoopDevice::over(file.path()) {
        Ok(device) => device,
        Err(error) => {
            eprintln!("skipped: no loop device: {error}");
            return;
        }
    };
    let _held =
        OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(device.path()).unwrap();
    assert!(crate::load::is_held(device.path()) && !crate::load::is_held(file.path()));
    let queue = crate::manifest::mount::queue_directory_of(device.path()).unwrap();
    for way in [Way::Queue, Way::Pread, Way::Uring] {
        let target = Some(device.path().to_owned());
        let cell = RequestCell { target, ..cell(way, on_file(Pattern::Random), directory.path()) };
        assert_eq!(cell.place(), device.path());
        match run(&cell) {
            Ok(result) if way == Way::Uring => {
                let on_this = format!("{} says 0", queue.join("io_poll").display());
                assert!(
                    result.notes.iter().any(|note| note.contains(&on_this)),
                    "{:?}",
                    result.notes
                );
            }
            Ok(result) => assert!(result.metrics["iops"] > 0.0),
            Err(CellError::Unavailable { reason }) => eprintln!("skipped: {way:?}: {reason}"),
            Err(error) => panic!("{way:?}: {error}"),
        }
        let cell = request_cell(cell);
        let work = (by_name(&cell.probe).unwrap().work)(&cell).unwrap();
        assert_eq!(work.works_on(&cell), Some(device.path()));
    }
}

#[test]
fn sequential_blocks_begin_again_at_the_end() {
    let mut blocks = Blocks::new(&RequestSpec { file_bytes: 3 * 4096, ..spec("null") });
    let seen: Vec<u64> = (0..5).map(|_| blocks.draw().offset).collect();
    assert_eq!(seen, [0, 4096, 8192, 0, 4096]);
}

#[test]
fn random_blocks_are_spread_over_the_file_and_come_again_for_the_same_seed() {
    let spec = RequestSpec { pattern: Pattern::Random, file_bytes: 16 * 4096, ..spec("null") };
    let draw = |spec: &RequestSpec| -> Vec<u64> {
        let mut blocks = Blocks::new(spec);
        (0..1600).map(|_| blocks.draw().offset).collect()
    };
    let mut seen = [0_u32; 16];
    for offset in draw(&spec) {
        assert_eq!(offset % 4096, 0);
        seen[(offset / 4096) as usize] += 1;
    }
    assert!(seen.iter().all(|&count| (50..200).contains(&count)), "{seen:?}");
    assert_eq!(draw(&spec), draw(&spec));
    assert_ne!(draw(&spec), draw(&RequestSpec { seed: spec.seed + 1, ..spec.clone() }));
}
