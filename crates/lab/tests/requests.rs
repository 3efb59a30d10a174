//! Request cells: every device and every knob for some milliseconds, and the relations of their
//! counts.
//!
//! The loop itself asserts that every bio ends once; a cell that returns has passed it.

use std::path::Path;

use forebay_lab::cell::CellResult;
use forebay_lab::load::request;
use forebay_lab::request::{
    Operation, Pattern, Poll, RequestCell, RequestSpec, Submitter, Switch, Way,
};

const BLOCK: u32 = 4096;

fn spec(device: &str) -> RequestSpec {
    RequestSpec {
        depth: 32,
        block_bytes: BLOCK,
        file_bytes: 4 << 20,
        seconds: 0.004,
        seed: 1,
        ..RequestSpec::random_reads(device.parse().unwrap())
    }
}

/// Runs a cell that needs no files.
fn run(spec: &RequestSpec) -> CellResult {
    run_in(Path::new("/nowhere"), spec)
}

fn run_in(directory: &Path, spec: &RequestSpec) -> CellResult {
    let cell = RequestCell {
        way: Way::Queue,
        spec: spec.clone(),
        poll: Poll::Never,
        directory: directory.to_owned(),
        target: None,
    };
    let result = request::run(&cell).unwrap();
    let metric = |name: &str| {
        *result.metrics.get(name).unwrap_or_else(|| panic!("{name} is missing: {spec:?}"))
    };
    let bios = metric("iops") * metric("elapsed_s");
    assert!(bios >= 1.0, "{spec:?}");
    assert!((metric("ns_per_io") * metric("iops") / 1e9 - 1.0).abs() < 1e-6);
    assert!(metric("driver_ns_per_io") > 0.0);
    assert!((0.0..1.0).contains(&metric("merged_share")), "{spec:?}");
    // Bios in flight when the clock stopped are not counted, but were handed over. If completions
    // are delayed, it takes more calls to wait for them.
    let on_their_way = f64::from(spec.depth);
    let is_delayed = spec.knobs.iter().any(|(_, value)| value.starts_with("delay"));
    let doorbells = metric("doorbells_per_io") * bios;
    assert!(is_delayed || doorbells <= bios + on_their_way + 1e-3, "{spec:?}: {result:?}");
    assert!(metric("bios_per_run") >= 1.0, "{spec:?}");
    result
}

#[test]
fn every_device_without_files_serves_reads_and_writes() {
    for device in ["null", "free:200", "gen4", "gen5", "optane"] {
        for operation in [Operation::Read, Operation::Write] {
            let result = run(&RequestSpec { operation, ..spec(device) });
            let (done, other) = match operation {
                Operation::Read => ("read", "write"),
                Operation::Write => ("write", "read"),
            };
            let latency = |name: &str| result.metrics[&format!("{done}_latency_{name}_us")];
            assert!(latency("p50") <= latency("p99") && latency("p99") <= latency("p999"));
            assert!(!result.metrics.keys().any(|name| name.starts_with(other)));
        }
    }
}

#[test]
fn every_form_of_every_knob_keeps_the_counts() {
    let forms = [
        ("plug", "never"),
        ("plug", "always"),
        ("plug", "adaptive"),
        ("merge", "off"),
        ("merge", "on"),
        ("tags", "single"),
        ("clock", "each"),
        ("doorbell", "each"),
        ("completion", "immediate"),
        ("completion", "delay=20"),
        ("order", "lifo"),
    ];
    for (name, value) in forms {
        for device in ["null", "optane"] {
            for batch in [None, Some(4)] {
                let knobs = vec![(name.to_owned(), value.to_owned())];
                run(&RequestSpec { knobs, batch, ..spec(device) });
            }
        }
    }
}

/// Every completion is counted. The loop waits for its bios, so none is held.
#[test]
fn completions_that_are_waited_for_are_not_held() {
    for (value, from) in [
        ("immediate", Submitter::Local),
        ("immediate", Submitter::Thread),
        ("delay=200", Submitter::Local),
    ] {
        let knobs = vec![("completion".to_owned(), value.to_owned())];
        let device = if from == Submitter::Local { "optane" } else { "null" };
        let unmerged = RequestSpec { file_bytes: 1 << 40, seconds: 0.02, ..spec(device) };
        let result = run(&RequestSpec { knobs, from, ..unmerged });
        let reported = result.metrics["iops"] * result.metrics["elapsed_s"];
        let holds = result.detail.unwrap().holds;
        assert!((holds.count() as f64 - reported).abs() < 0.5, "{value}: {holds:?} of {reported}");
        assert!(holds.0.iter().all(|(least, _)| *least == 0), "{value}: {holds:?}");
    }
}

#[test]
fn neighbours_merge_and_strangers_do_not() {
    let sequential = RequestSpec { pattern: Pattern::Sequential, ..spec("null") };
    let merged = |spec: &RequestSpec| run(spec).metrics["merged_share"];
    // 32 bios in one request, but where the file begins again.
    assert!(merged(&sequential) > 0.9);
    let knobs = vec![("merge".to_owned(), "off".to_owned())];
    assert_eq!(merged(&RequestSpec { knobs, ..sequential.clone() }), 0.0);
    assert!(merged(&RequestSpec { file_bytes: 1 << 40, ..spec("null") }) < 0.01);
}

#[test]
fn never_plugged_is_a_doorbell_for_each() {
    for knob in [("plug", "never"), ("doorbell", "each")] {
        let knobs = vec![(knob.0.to_owned(), knob.1.to_owned())];
        for (depth, batch) in [(1, None), (32, None), (32, Some(8)), (100, None)] {
            let knobs = knobs.clone();
            let result =
                run(&RequestSpec { knobs, depth, batch, file_bytes: 1 << 40, ..spec("null") });
            assert_eq!(result.metrics["doorbells_per_io"], 1.0, "{knob:?} at {depth}: {result:?}");
        }
    }
}

#[test]
fn a_batch_goes_when_it_is_whole_whatever_the_policy() {
    for plug in ["always", "adaptive"] {
        let knobs = vec![("plug".to_owned(), plug.to_owned())];
        let result =
            run(&RequestSpec { knobs, batch: Some(8), file_bytes: 1 << 40, ..spec("null") });
        assert_eq!(result.metrics["requests_per_doorbell"], 8.0, "{plug}: {result:?}");
    }
}

#[test]
fn a_batch_rings_once() {
    let unmerged = RequestSpec { file_bytes: 1 << 40, ..spec("null") };
    let result = run(&unmerged);
    assert!(result.metrics["requests_per_doorbell"] > 31.0, "{result:?}");
    let one_by_one = run(&RequestSpec { depth: 1, ..unmerged });
    assert_eq!(one_by_one.metrics["doorbells_per_io"], 1.0);
}

#[test]
fn a_batch_is_exactly_that() {
    for (device, batch, depth) in [("null", 8, 32), ("gen5", 16, 16), ("null", 64, 32)] {
        let result =
            run(&RequestSpec { batch: Some(batch), depth, file_bytes: 1 << 40, ..spec(device) });
        let handed_over = result.metrics["requests_per_doorbell"];
        assert!(handed_over <= f64::from(batch.min(depth)), "{device}: {handed_over}");
        if device == "null" {
            assert!(handed_over > f64::from(batch.min(depth)) - 1.0, "{device}: {handed_over}");
        }
    }
}

#[test]
fn more_bios_than_tags_are_served() {
    for device in ["null", "gen5"] {
        run(&RequestSpec { depth: 1000, file_bytes: 1 << 30, ..spec(device) });
    }
}

#[test]
fn bios_come_from_another_thread() {
    for device in ["null", "free:200"] {
        for depth in [1, 32] {
            let result =
                run(&RequestSpec { from: Submitter::Thread, depth, seconds: 0.2, ..spec(device) });
            assert!(!result.metrics.contains_key("latency_p50_us"), "nobody measured it");
        }
    }
}

#[test]
fn a_file_is_laid_out_once_and_read_and_written() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (operation, block_bytes) in
        [(Operation::Read, BLOCK), (Operation::Write, 16 * BLOCK), (Operation::Read, BLOCK)]
    {
        let fixed_files = if operation == Operation::Read { Switch::On } else { Switch::Off };
        let seconds = 0.02;
        let spec = RequestSpec { operation, block_bytes, fixed_files, seconds, ..spec("file") };
        let result = run_in(directory.path(), &spec);
        assert!(result.notes.iter().any(|note| note.starts_with("io_uring")), "{:?}", result.notes);
    }
    let mut files = std::fs::read_dir(directory.path()).unwrap();
    let file = files.next().unwrap().unwrap();
    assert_eq!(file.metadata().unwrap().len(), 4 << 20);
    assert!(files.next().is_none());
}

/// Through the library a batch is one plug: it goes together, and its neighbours merge.
#[test]
fn a_batch_of_the_library_is_one_plug() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let run = |plug: &str| {
        let knobs = vec![("plug".to_owned(), plug.to_owned())];
        let pattern = Pattern::Sequential;
        let of_file = RequestSpec { knobs, pattern, seconds: 0.05, ..spec("file") };
        let spec = RequestSpec { batch: Some(32), depth: 128, ..of_file };
        let directory = directory.path().to_owned();
        let (way, poll, target) = (Way::Library, Poll::Never, None);
        let result = request::run(&RequestCell { way, spec, poll, directory, target }).unwrap();
        assert!(result.metrics["iops"] > 0.0 && result.metrics["latency_p99_us"] > 0.0);
        (result.metrics["merged_share"], result.metrics["doorbells_per_io"])
    };
    let ((merged, calls), (unmerged, single)) = (run("always"), run("never"));
    assert!(merged > 0.8 && unmerged < merged, "{merged} with the plug, {unmerged} without");
    assert!(calls < single, "{calls} calls for an I/O with the plug, {single} without");
}
