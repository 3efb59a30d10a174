//! A comparison on what the user has: his file, his device, his processors, his arms, his job file;
//! and one that goes on. Real cells, as small as they can be.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use forebay_lab::loop_device::LoopDevice;

fn forebay(words: &[&str], directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(words).arg("--dir").arg(directory).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(words: &[&str], directory: &Path) -> (Option<i32>, String, String) {
    let output = forebay(words, directory).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn kill(process: u32, signal: &str) {
    let status = Command::new("kill").args([signal, &process.to_string()]).status();
    assert!(status.unwrap().success());
}

fn wait_for<T>(mut what: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = what() {
            return found;
        }
        assert!(Instant::now() < until, "it never came");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn end(mut child: Child) -> (Option<i32>, String) {
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (child.wait().unwrap().code(), said)
}

/// A comparison of the user's own arms alone, on an existing file.
const READS: [&str; 13] = [
    "compare",
    "plug",
    "--part",
    "file",
    "--quick",
    "--scale",
    "0.1",
    "--arms",
    "none",
    "--arm",
    "plain=uring",
    "--arm",
    "ours=forebay,plug=never",
];

fn json(path: &Path) -> serde_json::Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn a_file_of_the_user_s_is_read_and_not_written() {
    let directory = directory();
    let (target, result) = (directory.path().join("mine"), directory.path().join("result.json"));
    fs::write(&target, vec![7; (3 << 20) + 123]).unwrap();
    let mut permissions = fs::metadata(&target).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&target, permissions).unwrap();
    let before = fs::metadata(&target).unwrap().modified().unwrap();
    let (target_word, result_word) = (target.to_str().unwrap(), result.to_str().unwrap());
    let more = [
        "--rounds",
        "2",
        "--cpus",
        "0",
        "--target",
        target_word,
        "--json",
        result_word,
        "--verbose",
    ];
    let (code, out, err) = run(&[&READS[..], &more].concat(), directory.path());
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("reading") && !out.contains("left out"), "{err}\n{out}");
    let document = json(&result);
    assert_eq!(document["manifest"]["machine"]["cpus"], 1, "that of --cpus alone");
    let arms: Vec<&str> = document["parts"][0]["orders"][0]
        .as_array()
        .unwrap()
        .iter()
        .map(|arm| arm.as_str().unwrap())
        .collect();
    assert!(["plain", "plain-again", "ours"].iter().all(|arm| arms.contains(arm)), "{arms:?}");
    assert_eq!(document["parts"][0]["again"], "plain", "of one's own the first runs twice");
    assert_eq!(document["parts"][0]["cells"].as_array().unwrap().len(), 6);
    assert_eq!(fs::metadata(&target).unwrap().modified().unwrap(), before);
    assert_eq!(fs::read(&target).unwrap(), vec![7; (3 << 20) + 123]);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "the file and the result");
}

#[test]
fn a_job_file_is_a_suite_of_one() {
    let directory = directory();
    let (job, result) = (directory.path().join("job.fio"), directory.path().join("result.json"));
    fs::write(&job, "[w]\nrw=randwrite\nbs=4k\nsize=1m\nioengine=io_uring\niodepth=8\n").unwrap();
    let words = [
        "compare",
        job.to_str().unwrap(),
        "--quick",
        "--rounds",
        "1",
        "--json",
        result.to_str().unwrap(),
    ];
    let (code, out, err) = run(&words, directory.path());
    assert_eq!(code, Some(0), "{err}");
    let document = json(&result);
    let rows = document["rows"].as_array().unwrap();
    let ran = |arm: &str| rows.iter().any(|row| row["arm"] == arm && row["metric"] == "write_iops");
    for arm in ["kernel", "kernel-buffered", "forebay", "forebay-again"] {
        assert!(ran(arm), "{arm}: {out}");
    }
    let has_fio = Command::new("fio").arg("--version").output().is_ok();
    assert!(ran("fio") || !has_fio, "{out}");
    assert!(has_fio || std::env::var_os("CI").is_none(), "fio is not installed");
}

#[test]
fn what_was_ended_goes_on_and_two_do_not_run_in_one_place() {
    let directory = directory();
    let (target, rounds) = (directory.path().join("mine"), directory.path().join("rounds"));
    fs::write(&target, vec![7; 1 << 20]).unwrap();
    let rounds_word = rounds.to_str().unwrap();
    let more = ["--target", target.to_str().unwrap(), "--rounds", "12", "--resume", rounds_word];
    let mut reads = READS;
    reads[6] = "0.5";
    let words = [&reads[..], &more].concat();
    let child = forebay(&words, directory.path()).spawn().unwrap();
    let lines = || fs::read_to_string(&rounds).map_or(0, |text| text.lines().count());
    wait_for(|| (lines() > 2).then_some(()));
    let (code, _, err) = run(&[&reads[..], &more[..4]].concat(), directory.path());
    assert_eq!(code, Some(1), "{err}");
    assert!(
        err.contains("another comparison is running there") && err.contains("wait until it ends"),
        "{err}"
    );
    kill(child.id(), "-2");
    let (code, err) = end(child);
    assert_eq!(code, Some(130), "{err}");
    assert!(err.contains("interrupted; the same command with --resume continues"), "{err}");
    let had = lines() - 1;
    assert!((1..12).contains(&had), "{had} rounds");
    let (code, out, err) = run(&words, directory.path());
    assert_eq!(code, Some(0), "{err}");
    assert!(flat(&err).contains(&format!("{had} finished round")), "{err}");
    assert!(out.contains("12 rounds") && lines() == 13, "{out}");
    // Another number of rounds is the same comparison, other arms are not.
    let other = [&words[..], &["--arm", "third=pread"]].concat();
    let (code, _, err) = run(&other, directory.path());
    assert!(code == Some(2) && err.contains("has other arms, jobs or sizes"), "{err}");
}

/// Messages without the line ends that their length brought.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A device whose settings are ours to change; none without root.
fn device(directory: &Path) -> Option<(LoopDevice, PathBuf)> {
    let image = directory.join("image");
    fs::write(&image, vec![1; 16 << 20]).unwrap();
    match LoopDevice::over(&image) {
        Ok(device) => {
            let name = device.path().file_name().unwrap().to_owned();
            Some((device, Path::new("/sys/block").join(name).join("queue")))
        }
        Err(error) => {
            eprintln!("skipped: no loop device: {error}");
            None
        }
    }
}

#[test]
fn settings_of_the_machine_go_back_whatever_ends_the_comparison() {
    let images = directory();
    let Some((device, queue)) = device(images.path()) else { return };
    let directory = directory();
    let set = || fs::read_to_string(queue.join("nomerges")).unwrap().trim().to_owned();
    let before = set();
    assert_ne!(before, "2");
    let target = device.path().to_str().unwrap();
    let words = [
        "compare",
        "plug",
        "--part",
        "file",
        "--quick",
        "--arms",
        "none",
        "--arm",
        "plain=uring",
        "--arm",
        "unmerged=uring,queue.nomerges=2",
        "--rounds",
        "3",
        "--target",
        target,
    ];
    // To its end.
    let (code, out, err) = run(&[&words[..], &["--scale", "0.1"]].concat(), directory.path());
    assert_eq!((code, set()), (Some(0), before.clone()), "{err}");
    assert!(out.contains("unmerged") && !out.contains("left out"), "{out}");

    // By a signal, and by one that cannot be caught: then the next one does it.
    for signal in ["-15", "-9"] {
        let child =
            forebay(&[&words[..], &["--scale", "1"]].concat(), directory.path()).spawn().unwrap();
        // For longer than the trial at the start sets it.
        wait_for(|| {
            let is_set = || set() == "2";
            let was_set = is_set();
            std::thread::sleep(Duration::from_millis(5));
            (was_set && is_set()).then_some(())
        });
        kill(child.id(), signal);
        let (_, err) = end(child);
        let left = if signal == "-9" { "2" } else { before.as_str() };
        assert_eq!(set(), left, "{err}");
    }
    let (code, _, err) = run(&["compare", "--rounds", "500"], directory.path());
    assert_eq!((code, set()), (Some(2), before.clone()), "{err}");
    let put_back = format!("nomerges to {before}, which a killed run had changed");
    let said = flat(&err);
    assert!(said.contains(&put_back) && said.contains("left by a killed run"), "{err}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn settings_that_cannot_be_are_refused_before_anything_has_run() {
    let images = directory();
    let Some((device, _)) = device(images.path()) else { return };
    let directory = directory();
    let target = device.path().to_str().unwrap();
    let words = [
        "compare",
        "plug",
        "--part",
        "file",
        "--quick",
        "--target",
        target,
        "--arm",
        "x=uring,queue.nomerge=2",
    ];
    let (code, _, err) = run(&words, directory.path());
    assert_eq!(code, Some(2), "{err}");
    assert!(
        err.contains(
            "--arm x: queue.nomerge: no such setting on this machine; did you mean queue.nomerges?"
        ),
        "{err}"
    );
    assert_eq!(err.lines().count(), 1, "{err}");
}
