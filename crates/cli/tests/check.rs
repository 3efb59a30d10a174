//! The checks of the lab as they are built, as small as they can be: what they find on a machine
//! that does other things meanwhile is not asserted, only that they come to their end, tell what
//! they say, and leave nothing.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn check(words: &[&str], directory: &Path, json: &Path) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["compare", "--seed", "7f3a", "--scale", "0.02"])
        .args(words)
        .arg("--dir")
        .arg(directory)
        .arg("--json")
        .arg(json)
        .output()
        .unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn document(json: &Path) -> serde_json::Value {
    serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap()
}

#[test]
fn every_load_is_set_beside_fio() {
    if !Command::new("fio").arg("--version").output().is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("CI").is_none(), "fio has to be installed");
        eprintln!("skipped: fio is not installed");
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let json = directory.path().join("result.json");
    let (code, out, err) =
        check(&["--check-against-fio", "--rounds", "1"], directory.path(), &json);
    let apart = out.matches(" APART\n").count();
    assert_eq!(code, Some(i32::from(apart > 0)), "{out}{err}");
    assert_eq!(apart > 0, err.contains("figures differ from fio"), "{out}{err}");
    assert!(out.starts_with("Forebay's load generator beside fio-"), "{out}");
    for load in [
        "direct read 4k 1 ",
        "direct write 128k 32 ",
        "buffered read 128k 1 ",
        "buffered write 4k 32 ",
    ] {
        assert_eq!(out.matches(load).count(), 3, "{load}: {out}");
    }
    assert!(out.contains("Of 48 figures "), "{out}");
    assert!(
        err.contains("16 loads through the lab and through fio-") && err.contains("Writes "),
        "{err}"
    );

    let document = document(&json);
    assert_eq!(document["suite"], "check-against-fio");
    assert_eq!(document["rows"].as_array().unwrap().len(), 16 * 4 * 3);
    let comparisons = document["comparisons"].as_array().unwrap();
    assert!(
        comparisons.len() == 48 && comparisons.iter().all(|one| one["p"].is_f64()),
        "{comparisons:?}"
    );
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "only the result is left");
}

#[test]
fn without_fio_the_remedy_is_told_before_anything_is_made() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let Output { status, stderr, .. } = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["compare", "--check-against-fio", "--dir"])
        .arg(directory.path())
        .env("PATH", "/no/such/place")
        .output()
        .unwrap();
    let err = String::from_utf8(stderr).unwrap();
    assert_eq!(
        (status.code(), err.as_str()),
        (Some(2), "forebay: fio is not installed (apt install fio)\n")
    );
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn verdicts_are_tried_where_the_answer_is_known() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let json = directory.path().join("result.json");
    let (code, out, err) =
        check(&["--check-against-itself", "--rounds", "1"], directory.path(), &json);
    assert!(
        out.contains("20 comparisons of an arm with itself 0 were shown"),
        "one round shows nothing: {out}"
    );
    assert_eq!(code, Some(i32::from(!out.contains("was found 3 times of 3"))), "{out}{err}");
    assert!(
        err.contains("20 of 20: ") && err.contains("planted, 3 of 3: modelled 20000 ns"),
        "{err}"
    );
    let document = document(&json);
    assert_eq!(document["suite"], "check-against-itself");
    assert_eq!(document["comparisons"].as_array().unwrap().len(), 23);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "only the result is left");
}
