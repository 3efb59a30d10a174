//! The program as a keeper, and its reports about the images that keepers saved.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use forebay::{Engine, Keeper, OpenOptions, Options};

const FOREBAY: &str = env!("CARGO_BIN_EXE_forebay");

fn run(words: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(FOREBAY).args(words).stdin(Stdio::null()).output().unwrap();
    let Output { status, stdout, stderr } = output;
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn it_stands_by_an_engine() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("file");
    let engine = Engine::builder(Options { cache_bytes: Some(8 << 20), ..Options::default() })
        .survive(Keeper::program(FOREBAY))
        .build()
        .unwrap();
    let keeper = engine.keeper().unwrap().process.unwrap();
    let name = fs::read_to_string(format!("/proc/{keeper}/comm")).unwrap();
    assert_eq!(name.trim(), "forebay-keeper");
    let file = engine.open(&path, OpenOptions::new().read(true).write(true).create(true)).unwrap();
    file.append(b"kept").unwrap();
    file.close().unwrap();
    engine.shutdown(Duration::from_secs(10)).unwrap();
    assert!(!Path::new(&format!("/proc/{keeper}")).exists());
    assert_eq!(fs::read(&path).unwrap(), b"kept");
}

#[test]
fn a_job_runs_with_a_keeper() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let job = directory.path().join("job.fio");
    fs::write(&job, "[write]\nrw=randwrite\nbs=4k\nsize=4m\nend_fsync=1\n").unwrap();
    let (job, place) = (job.to_str().unwrap(), directory.path().to_str().unwrap());
    let (code, out, err) = run(&["run", job, "--dir", place, "--survive"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("forebay-survive"), "{out}");
    let (code, _, err) = run(&["run", job, "--dir", place, "--survive", "--engine", "kernel"]);
    assert!(code == Some(2) && err.contains("--survive"), "{err}");
}

#[test]
fn what_is_no_image_is_refused() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("image");
    let (code, _, err) = run(&["recover", path.to_str().unwrap()]);
    assert!(code == Some(1) && err.contains("No such file"), "{err}");
    fs::write(&path, [7; 100_000]).unwrap();
    let (code, _, err) = run(&["recover", path.to_str().unwrap(), "--dry-run"]);
    assert!(code == Some(2) && err.contains("no arena"), "{err}");
    assert_eq!(err.lines().count(), 1);
}

#[test]
fn an_image_of_a_later_version_is_refused_and_stays() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("image");
    let mut image = [7; 100_000];
    image[..8].copy_from_slice(b"FOREBAY\x05");
    image[8..16].copy_from_slice(&5_u64.to_ne_bytes());
    fs::write(&path, image).unwrap();
    for more in [&["--dry-run"][..], &[]] {
        let (code, out, err) = run(&[&["recover", path.to_str().unwrap()], more].concat());
        let says = "its layout is of version 5, and this program reads 2 to 4: use the program";
        assert!(code == Some(2) && out.is_empty() && err.contains(says), "{err}");
    }
    assert_eq!(fs::read(&path).unwrap(), image);
}

#[test]
fn a_keeper_is_not_started_by_hand() {
    for number in ["0", "7", "-1", "99999"] {
        let (code, _, err) = run(&["keeper", &format!("--channel={number}")]);
        assert!(code == Some(2) && err.contains("not by hand"), "{number}: {err}");
    }
    let (_, out, _) = run(&["--help"]);
    assert!(out.contains("recover") && !out.contains("keeper  "), "{out}");
}
