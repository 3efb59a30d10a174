//! Small programs, each through the standard library and through Forebay: every figure is there,
//! and the files that they leave are whole.

use std::fs;
use std::path::Path;

use forebay_lab::cell::{Cell, CellResult};
use forebay_lab::load::CellError;
use forebay_lab::programs::run;
use forebay_lab::programs::spec::{Beside, Form, Program, ProgramLoad, ProgramWay};

const METRICS: [&str; 6] = [
    "operations_per_s",
    "latency_p50_us",
    "latency_p99_us",
    "latency_p999_us",
    "resident_bytes",
    "elapsed_s",
];

fn load(name: &str) -> ProgramLoad {
    ProgramLoad {
        probe: Program::by_name(name).unwrap(),
        threads: 1,
        every: 1,
        warm: 0,
        operations: None,
        rate: None,
        beside: Beside::Nothing,
        file_mib: 0,
        memory_mib: 0,
        sizes: (0, 0),
        form: Form::Usual,
    }
}

fn cell(way: ProgramWay, load: ProgramLoad, directory: &Path) -> Cell {
    let cell = Cell::new(load.probe.name(), way.name(), &load);
    let (directory, source) = (directory.to_owned(), directory.to_owned());
    Cell { seconds: 0.05, seed: 7, directory, source, ..cell }
}

/// Runs it through the ways of this process; a keeper needs the program `forebay`.
fn both(load: ProgramLoad, check: impl Fn(&Path, &CellResult)) {
    both_for(0.05, load, check);
}

/// As [`both`], for as many seconds if nothing else ends the program.
fn both_for(seconds: f64, load: ProgramLoad, check: impl Fn(&Path, &CellResult)) {
    let ways = ProgramWay::ALL.into_iter().filter(|way| *way != ProgramWay::ForebaySurvive);
    for way in ways.filter(|way| way.suits(load.probe)) {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let result = match run(&Cell { seconds, ..cell(way, load, directory.path()) }) {
            Ok(result) => result,
            Err(CellError::Unavailable { reason }) => {
                eprintln!("skipped: {}: {reason}", way.name());
                continue;
            }
            Err(error) => panic!("{} {:?}: {error}", way.name(), load.probe),
        };
        for metric in METRICS {
            assert!(result.metrics.contains_key(metric), "{} {metric}: {result:?}", way.name());
        }
        let costs = result.metrics.contains_key("cpu_us_per_operation");
        assert_eq!(costs, load.beside != Beside::Bulk, "{result:?}");
        check(directory.path(), &result);
    }
}

fn files(directory: &Path) -> Vec<u64> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let entries = entries.filter(|entry| entry.file_name() != forebay::intent_log::NAME);
    entries.map(|entry| entry.metadata().unwrap().len()).collect()
}

#[test]
fn puts_are_whole_under_their_names() {
    for form in [Form::Usual, Form::AnyFile] {
        let put = ProgramLoad { threads: 3, operations: Some(30), form, ..load("put") };
        both(put, |directory, _| {
            assert_eq!(files(directory), [16_384; 30]);
            let temporary = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
            assert!(temporary.into_iter().all(|path| path.extension().is_none()));
        });
    }
}

#[test]
fn a_log_has_every_record() {
    let usual = Form::Usual;
    for (every, sizes, form) in
        [(1, (0, 0), usual), (100, (0, 0), usual), (1, (2048, 2048), Form::OwnSync)]
    {
        // The cell itself compares the length of the log with that of all records.
        both(ProgramLoad { threads: 4, every, sizes, form, ..load("log") }, |directory, result| {
            let bytes = result.metrics["write_bytes_per_s"] * result.metrics["elapsed_s"];
            assert_eq!(files(directory), [bytes.round() as u64]);
        });
    }
}

#[test]
fn tasks_have_files_of_whole_bursts() {
    both(ProgramLoad { threads: 10, ..load("tasks") }, |directory, result| {
        let files = files(directory);
        assert_eq!(files.len(), 10);
        assert!(files.iter().all(|bytes| *bytes > 0 && bytes % 16_384 == 0), "{files:?}");
        let bursts = result.metrics["operations_per_s"] * result.metrics["elapsed_s"];
        assert_eq!(files.iter().sum::<u64>() / 16_384, bursts.round() as u64);
    });
}

#[test]
fn tasks_begin_before_the_clock() {
    both(ProgramLoad { threads: 10, warm: 3, ..load("tasks") }, |directory, result| {
        let bursts = result.metrics["operations_per_s"] * result.metrics["elapsed_s"];
        let all = files(directory).iter().sum::<u64>() / 16_384;
        assert_eq!(all, bursts.round() as u64 + 30);
    });
}

#[test]
fn a_rewrite_changes_files_in_place_or_writes_a_log_alone() {
    let rewrite = ProgramLoad { threads: 3, warm: 4, sizes: (1 << 20, 1 << 20), ..load("rewrite") };
    both(ProgramLoad { rate: Some(200), ..rewrite }, |directory, result| {
        let rate = result.metrics["operations_per_s"];
        assert!(rate < 400.0, "{rate} a second");
        let files = files(directory);
        assert!(files == [1 << 20; 3] || files == [64 << 20], "{files:?}");
    });
}

#[test]
fn tasks_write_the_same_again() {
    both(ProgramLoad { threads: 10, form: Form::Again, ..load("tasks") }, |directory, _| {
        assert_eq!(files(directory), [16_384; 10]);
    });
}

#[test]
fn small_syncs_run_beside_other_writers() {
    for beside in [Beside::Nothing, Beside::Bulk, Beside::Dd] {
        let file_mib = if beside == Beside::Nothing { 0 } else { 16 };
        // A busy disk may hold the bulk writer up for longer than the other programs run.
        let seconds = if beside == Beside::Bulk { 1.0 } else { 0.05 };
        let load = ProgramLoad { beside, file_mib, ..load("small-sync") };
        both_for(seconds, load, |directory, result| {
            let large = directory.join("large");
            assert_eq!(large.exists(), beside != Beside::Nothing);
            if beside == Beside::Bulk {
                assert!(result.metrics["write_bytes_per_s"] > 1e6, "{result:?}");
            }
        });
    }
}

#[test]
fn a_copy_is_the_same() {
    both(ProgramLoad { file_mib: 3, ..load("copy") }, |directory, _| {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let mut contents = entries.filter(|path| !path.ends_with(forebay::intent_log::NAME));
        let (one, other) = (contents.next().unwrap(), contents.next().unwrap());
        assert_eq!(contents.next(), None);
        assert!(fs::read(one).unwrap() == fs::read(other).unwrap());
    });
}

#[test]
fn files_become_durable_together_alone_and_beside_dd() {
    for beside in [Beside::Nothing, Beside::Dd] {
        let file_mib = if beside == Beside::Nothing { 0 } else { 16 };
        let (operations, sizes) = (Some(100), (4096, 65_536));
        let load = ProgramLoad { operations, sizes, beside, file_mib, ..load("files") };
        for way in ProgramWay::ALL.into_iter().filter(|way| way.suits(load.probe)) {
            let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let source = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let source = source.path().to_owned();
            let cell = Cell { source: source.clone(), ..cell(way, load, directory.path()) };
            let result = match run(&cell) {
                Ok(result) => result,
                Err(CellError::Unavailable { reason }) => {
                    eprintln!("skipped: {}: {reason}", way.name());
                    continue;
                }
                Err(error) => panic!("{}: {error}", way.name()),
            };
            let figure = |metric: &str| result.metrics.get(metric).copied();
            let made = figure("files_per_s").unwrap() * figure("elapsed_s").unwrap();
            assert_eq!(made.round(), 100.0, "{result:?}");
            assert!(figure("cpu_us_per_operation").is_some(), "{result:?}");
            assert_eq!(figure("beside_bytes_per_s").is_some(), beside == Beside::Dd);
            assert_eq!(fs::read_dir(&source).unwrap().count(), usize::from(file_mib > 0));
            let made: Vec<u64> = (0..16)
                .flat_map(|number| files(&directory.path().join(format!("{number:02}"))))
                .collect();
            assert_eq!(made.len(), 100, "{}", way.name());
        }
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let files = ProgramLoad { operations: Some(1), sizes: (1, 1), ..load("files") };
    let refused = run(&cell(ProgramWay::Std, files, directory.path())).unwrap_err();
    assert!(refused.to_string().contains("program-std cannot publish files"), "{refused}");
}

#[test]
fn the_other_programs_write_and_read_what_they_say() {
    both(ProgramLoad { operations: Some(20), ..load("create") }, |directory, _| {
        assert_eq!(files(directory), [4096; 20]);
    });
    both(load("resident"), |directory, result| {
        assert_eq!(files(directory), [48_000_000]);
        assert!(result.metrics["resident_bytes"] < 4e9, "{result:?}");
    });
    both(load("commit"), |directory, _| assert_eq!(files(directory), [64 << 20]));
    both(ProgramLoad { threads: 2, file_mib: 16, ..load("read-miss") }, |directory, result| {
        assert_eq!(files(directory), [16 << 20]);
        assert!(!result.metrics.contains_key("write_bytes_per_s"), "{result:?}");
    });
}

#[test]
fn a_load_that_cannot_run_is_refused() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let refused = run(&cell(ProgramWay::Std, load("copy"), directory.path())).unwrap_err();
    assert!(refused.to_string().contains("needs file_mib"), "{refused}");
    let bad = Cell { seconds: 0.0, ..cell(ProgramWay::Std, load("put"), directory.path()) };
    assert!(run(&bad).unwrap_err().to_string().contains("not a time"));
    let settings = vec![("no_such".into(), "1".into())];
    let bad = Cell { settings, ..cell(ProgramWay::Forebay, load("put"), directory.path()) };
    assert!(run(&bad).unwrap_err().to_string().contains("unknown knob `no_such`"));
}
