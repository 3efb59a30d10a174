//! `forebay compare plug` as it is built, as small as it can be: real cells, through every way it
//! has.

use std::fs;
use std::process::{Command, Output};

#[test]
fn the_quick_form_comes_to_its_end_with_every_table() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let json = directory.path().join("result.json");
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["compare", "plug", "--quick", "--scale", "0.01", "--rounds", "1", "--seed", "7f3a"])
        .args(["--set", "order=fifo", "--dir"])
        .arg(directory.path())
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert_eq!(status.code(), Some(0), "{err}");
    for word in [
        "Direct reads of a file",
        "random-4k, depth 32, file:",
        "kernel-uring-1 ",
        "adaptive-again ",
        "batch-32 ",
        "clock-each ",
        "ns more [95 %]",
        "batching shows no difference from single submission",
        "1 round, seed 7f3a",
    ] {
        assert!(out.contains(word), "{word}: {out}{err}");
    }
    assert!(out.lines().all(|line| line.chars().count() <= 72), "{out}");
    // fio may not be installed here: then that is said.
    assert!(
        out.contains("fio: fio-") || out.contains("left out: fio: fio is not installed"),
        "{out}"
    );
    assert!(out.contains("fewer than 4 rounds show no difference"), "{out}");

    let json = fs::read_to_string(&json).unwrap();
    for word in [
        r#""suite": "plug""#,
        r#""probe": "requests""#,
        r#""differences""#,
        r#""device": "free:200""#,
    ] {
        assert!(json.contains(word), "{word}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "only the result is left");
}
