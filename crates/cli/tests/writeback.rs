//! `forebay compare writeback` as it is built, as small as it can be; and file systems of a
//! comparison's own: made, refused, and gone again however it ends.

#[path = "../../lab/tests/support/attached.rs"]
mod attached;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use attached::{assert_detached, attached_below};

fn forebay(words: &[&str], directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(["compare", "writeback", "--quick", "--seed", "7f3a"]).args(words);
    command.arg("--dir").arg(directory);
    command
}

fn said(Output { status, stdout, stderr }: Output) -> (Option<i32>, String, String) {
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Whether this user can mount something; in continuous integration root has to be able to.
fn is_root(test: &str) -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    let root = id.stdout == b"0\n";
    if !root {
        eprintln!("skipped {test}: only root can make a file system");
    }
    root
}

fn assert_nothing_is_left(directory: &Path) {
    assert_detached(directory);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(directory.to_str().unwrap()), "{mounts}");
}

#[test]
fn the_quick_form_comes_to_its_end_with_every_table() {
    let directory = directory();
    let json = directory.path().join("result.json");
    let words = ["--rounds", "1", "--scale", "0.25", "--json", json.to_str().unwrap()];
    let (code, out, err) = said(forebay(&words, directory.path()).output().unwrap());
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.lines().all(|line| line.chars().count() <= 72), "{out}");
    for word in [
        "A-12x12 random 4k, 12 jobs x 12 files, 12 directories",
        "C-6-one-directory-sequential",
        "kernel-direct-prealloc ",
        "forebay-one-context ",
        "pieces",
        "Concurrency, affinity, layout, each alone",
        "contexts-2-group-holes : contexts-2-hash-holes",
        "contexts-2-hash-written : contexts-1-written",
        "not shown",
        "By the number of writeback contexts",
        "Files that grow by appends",
    ] {
        assert!(out.contains(word), "{word}: {out}");
    }
    assert!(out.contains("ways: every arm: verified ") || out.contains("left out: "), "{out}");
    let json = fs::read_to_string(&json).unwrap();
    for word in [r#""probe": "writers""#, r#""job": "factors/A-12x12""#] {
        assert!(json.contains(word), "{word}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "only the result is left");
    assert_nothing_is_left(directory.path());
}

#[test]
fn a_file_system_for_each_cell_is_made_reported_and_gone() {
    if !is_root("a_file_system_for_each_cell") {
        return;
    }
    let directory = directory();
    let words = [
        "--rounds",
        "1",
        "--scale",
        "0.25",
        "--part",
        "append",
        "--scratch",
        "ext4,size=256m,sparse",
    ];
    let (code, out, err) = said(forebay(&words, directory.path()).output().unwrap());
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.starts_with("ext4 on /dev/loop"), "{out}");
    // Wherever its lines are broken.
    let words = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("mkfs.ext4 -F -E nodiscard"), "{out}");
    assert!(!out.contains("By the number of"), "one part alone: {out}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    assert_nothing_is_left(directory.path());
}

#[test]
fn it_is_gone_after_the_user_ended_it_and_after_it_was_killed() {
    if !is_root("it_is_gone_after") {
        return;
    }
    for (signal, code) in [("-INT", Some(130)), ("-TERM", Some(130)), ("-KILL", None)] {
        let directory = directory();
        let words = ["--part", "contexts", "--scratch", "ext4,size=1g,sparse"];
        let mut command = forebay(&words, directory.path());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        // Its cell, which has the file system open.
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let until = Instant::now() + Duration::from_secs(60);
        while attached_below(directory.path()).is_empty()
            || fs::read_to_string(&children).is_ok_and(|list| list.is_empty())
        {
            assert!(Instant::now() < until, "no cell ever ran");
            std::thread::sleep(Duration::from_millis(5));
        }
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        assert_eq!(child.wait().unwrap().code(), code);
        assert_nothing_is_left(directory.path());
    }
}

#[test]
fn what_cannot_be_had_is_refused_before_anything_is_done() {
    let directory = directory();
    let cases: &[(&[&str], &str)] = &[
        (&["--scratch", "xsf"], "did you mean xfs?"),
        (&["--scratch", "xfs,agcuont=4"], "agcuont: no such key; did you mean agcount?"),
        (&["--scratch", "xfs,device=/dev/null"], "add --allow-write-device to confirm"),
        (&["--part", "factor"], "--part factor: writeback has no such part; did you mean factors?"),
        (&["--set", "contexts=0"], "invalid value `0` for knob `contexts`"),
        (&["--set", "contexts=10000"], "invalid value `10000` for knob `contexts`"),
        (&["--set", "contexts=many"], "invalid value `many` for knob `contexts`"),
        (&["--set", "affinity=grop"], "group"),
    ];
    let as_root: &[(&[&str], &str)] = &[
        (
            &["--scratch", "xfs,device=/dev/null", "--allow-write-device"],
            "/dev/null: not a block device",
        ),
        (&["--scratch", "xfs,size=900000g"], "MiB are free"),
        (&["--scratch", "xfs,size=2g,sparse,agcount=100000"], "mkfs.xfs: "),
    ];
    let as_root = if is_root("what_cannot_be_had") { as_root } else { &[] };
    for (words, expected) in cases.iter().chain(as_root) {
        let (code, out, err) = said(forebay(words, directory.path()).output().unwrap());
        assert_eq!(code, Some(2), "{words:?}: {out}{err}");
        assert!(err.lines().last().unwrap().contains(expected), "{words:?}: {err}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "{words:?}");
    }
    assert_nothing_is_left(directory.path());
    let plain = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["compare", "--part", "ways"])
        .output()
        .unwrap();
    assert!(said(plain).2.contains("--part: no suite is named"));
}
