//! `forebay compare completion` as it is built, as small as it can be: real cells, every job, every
//! kind of arm.

#[path = "../../lab/tests/support/attached.rs"]
mod attached;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use attached::assert_detached;

/// Runs it once round, on files of 32 MiB and for a fiftieth of a second a cell.
fn compare(suite: &str, directory: &Path) -> (String, String, String) {
    let json = directory.join("result.json");
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args([
            "compare", suite, "--quick", "--scale", "0.0001", "--rounds", "1", "--seed", "7f3a",
            "--dir",
        ])
        .arg(directory)
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert_eq!(status.code(), Some(0), "{out}{err}");
    assert!(out.lines().all(|line| line.chars().count() <= 72), "{out}");
    (out, err, fs::read_to_string(&json).unwrap())
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// The tables of a job, from its heading on.
fn block<'a>(out: &'a str, job: &str) -> &'a str {
    let start = out.find(&format!("\n{job}:\n")).unwrap_or_else(|| panic!("no {job} in {out}"));
    let rest = &out[start + 1..];
    &rest[..rest.find("noise floor").unwrap()]
}

#[test]
fn the_quick_form_comes_to_its_end_with_every_table() {
    let directory = directory();
    let (out, err, json) = compare("completion", directory.path());
    for job in ["A sequential 128 KiB writes, depth 1", "C random 4 KiB writes, depth 32"] {
        let block = block(&out, job);
        let arms = ["forebay-delay ", "forebay-immediate ", "forebay-immediate-again ", "MB/s"];
        for word in [&arms[..], &["kernel-direct-1m ", "cs/GiB", "bios/run", "p999"]].concat() {
            assert!(block.contains(word), "{word}: {block}");
        }
        assert!(block.contains("forebay-immediate : forebay-delay"), "{block}");
    }
    let mixed = block(&out, "D 64 KiB, half reads and half writes, depth 32");
    assert!(mixed.contains(" read "), "{mixed}");
    for word in [
        "Who pays for a held completion?",
        "copy-4k:",
        "copy-128k:",
        "per I/O",
        "forebay-depth-32 ",
    ] {
        assert!(out.contains(word), "{word}: {out}{err}");
    }
    // One line covers every arm of every part; their numbers of bytes may differ.
    assert!(
        out.contains("completion: every arm: verified ") || out.contains("left out: "),
        "{out}"
    );
    assert!(out.contains("copy: every arm: verified 33554432 bytes"), "{out}");
    assert!(out.contains("sync-beside: every arm: verified "), "{out}");
    for word in [r#""probe": "jobs""#, r#""run_bytes""#, r#""system_context_switches_per_gib""#] {
        assert!(json.contains(word), "{word}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "only the result is left");
}

#[test]
fn the_jobs_at_depth_on_a_device_and_under_pressure() {
    let directory = directory();
    let text = include_str!("../../../suites/completion.toml");
    let (first, _) = text.split_once("[[part]]\nname = \"copy\"").unwrap();
    let own =
        first.replace("workloads = [\"A\", \"C\", \"D\"]", "workloads = [\"B\", \"E\", \"F\"]");
    let own = own.replace("name = \"completion\"\ntitle = \"Who", "name = \"mine\"\ntitle = \"Who");
    assert!(own.contains("\"B\", \"E\", \"F\"]\narms") && own.contains("name = \"mine\""), "{own}");
    let suite = directory.path().join("mine.toml");
    fs::write(&suite, own).unwrap();
    let limits = || {
        ["dirty_bytes", "dirty_background_bytes", "dirty_ratio", "dirty_background_ratio"]
            .map(|name| fs::read_to_string(format!("/proc/sys/vm/{name}")).unwrap())
    };
    let before = limits();
    let (out, err, json) = compare(suite.to_str().unwrap(), directory.path());
    assert_eq!(limits(), before, "the kernel's limits are restored");
    // F bounds the kernel's own arms by these limits, which needs root.
    let is_limited = json.contains("sysctl.vm.dirty_bytes: ");
    let limit = fs::OpenOptions::new().write(true).open("/proc/sys/vm/dirty_bytes");
    assert_eq!(is_limited, limit.is_err(), "{out}");
    for job in ["B sequential 128 KiB writes, depth 128", "F four writers, at most 64 MiB dirty"] {
        assert!(block(&out, job).contains("MB/s"), "{out}");
    }
    if let Some(skipped) = err
        .lines()
        .find(|line| line.starts_with("E 128 KiB writes to a device, depth 128 is skipped: "))
    {
        // Nobody but root makes a loop device, and not everywhere.
        eprintln!("{skipped}");
    } else {
        assert!(block_of_device(&out).contains("kernel-direct-1m "), "{out}");
    }
    assert_eq!(
        fs::read_dir(directory.path()).unwrap().count(),
        2,
        "only the suite and the result are left"
    );
    assert_detached(directory.path());
}

fn block_of_device(out: &str) -> &str {
    block(out, "E 128 KiB writes to a device, depth 128")
}
