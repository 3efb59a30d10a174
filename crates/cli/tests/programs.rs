//! `forebay compare programs` as it is built: every probe with every arm, as small as it can be.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

fn forebay(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_forebay")).args(arguments).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn the_quick_form_runs_every_probe_with_every_arm() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().to_str().unwrap();
    let json = directory.path().join("result.json");
    let began = Instant::now();
    let (code, out, err) = forebay(&[
        "compare",
        "programs",
        "--quick",
        "--scale",
        "0.005",
        "--dir",
        path,
        "--json",
        json.to_str().unwrap(),
    ]);
    let took = began.elapsed();
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(took < Duration::from_secs(120), "{took:?}");
    assert!(err.starts_with("About "), "{err}");
    assert!(out.lines().all(|line| line.chars().count() <= 72), "{out}");
    for word in ["Durable puts", " : std", "forebay-io-copy", "noise floor", "calls"] {
        assert!(out.contains(word), "{word}: {out}{err}");
    }
    let document: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let rows: BTreeSet<(&str, &str, &str)> = document["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let word = |key: &str| row[key].as_str().unwrap();
            assert!(row["mean"].as_f64().unwrap() >= 0.0, "{row}");
            (word("job"), word("arm"), word("metric"))
        })
        .collect();
    let jobs: BTreeSet<&str> = rows.iter().map(|(job, ..)| *job).collect();
    assert_eq!(jobs.len(), 18, "{jobs:?}");
    // A machine without an engine or a keeper leaves their arms out, and says so.
    let left_out = |arm: &str| out.contains(&format!("left out: {arm}"));
    for job in &jobs {
        for arm in ["std", "forebay", "forebay-survive"] {
            for metric in [
                "operations_per_s",
                "latency_p50_us",
                "latency_p99_us",
                "latency_p999_us",
                "resident_bytes",
            ] {
                assert!(
                    rows.contains(&(job, arm, metric)) || left_out(arm),
                    "{job} {arm} {metric}: {out}{err}"
                );
            }
            let costs = rows.contains(&(job, arm, "cpu_us_per_operation"));
            assert_eq!(costs, *job != "small-sync-bulk", "{job} {arm}");
        }
    }
    assert!(
        rows.contains(&("copy", "forebay-io-copy", "write_bytes_per_s")) || left_out("forebay")
    );
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "only the result is left");
}

#[test]
fn files_are_published_by_every_arm_and_the_batch_stands_against_each() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().to_str().unwrap();
    let (code, out, err) = forebay(&["compare", "files", "--quick", "--dir", path]);
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.lines().all(|line| line.chars().count() <= 72), "{out}");
    let left_out = out.contains("left out: forebay-batch");
    for arm in
        ["fsync-each", "fsync-8-threads", "range-then-fsync", "ring-of-fsyncs", "syncfs", "no-sync"]
    {
        // In each of four jobs with its figures, and against the batch.
        let lines = out.lines().filter(|line| line.starts_with(&format!("{arm} "))).count();
        assert!(lines >= 4 || left_out || out.contains("left out: "), "{arm}: {out}{err}");
        let pairs = out.matches(&format!("forebay-batch : {arm} ")).count();
        assert!(pairs == 4 || left_out || out.contains("left out: "), "{arm}: {out}{err}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn one_probe_runs_alone_with_an_arm_and_a_knob_of_the_user() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().to_str().unwrap();
    let run = |more: &[&str]| {
        let first = ["compare", "programs", "--part", "log", "--quick", "--rounds", "1", "--dir"];
        forebay(&[&first, &[path][..], more].concat())
    };
    let (code, out, err) = run(&["--arm", "small=program-forebay,cache_bytes=16m"]);
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains("small ") && out.contains("log-each"), "{out}");
    assert!(!out.contains("put-1"), "{out}");
    let (code, _, err) = run(&["--arm", "small=forebay"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("program-forebay"), "{err}");
}
