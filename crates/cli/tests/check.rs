//! The check of the lab as it is built, as small as it can be. The verdicts that it finds on a busy
//! machine are not asserted, only that it ends, prints them, and leaves nothing.

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
