//! Interrupted comparisons and runs leave nothing of ours behind, and end with a code and a line.
//! Real cells, real signals, sent to the program alone and not to its children.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SIGKILL: i32 = 9;
const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

/// The smallest comparison there is.
const COMPARE: [&str; 9] =
    ["compare", "--scale", "0.01", "--rounds", "4", "layout", "--part", "layout", "--dir"];

fn start(words: &[&str], directory: &Path) -> Child {
    started_by(&["env", "--default-signal"], words, directory)
}

/// Starts it by a program that sets its signals.
fn started_by(prefix: &[&str], words: &[&str], directory: &Path) -> Child {
    let mut command = Command::new(prefix[0]);
    command.args(&prefix[1..]).arg(env!("CARGO_BIN_EXE_forebay")).args(words);
    command.arg(directory).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// By the system's own program, for the library has no safe call for it.
fn kill(process: u32, signal: i32) {
    let status = Command::new("kill").args([format!("-{signal}"), process.to_string()]).status();
    assert!(status.unwrap().success());
}

/// The code and all that is left to be read, within a time no wait of ours may take.
fn end(mut child: Child) -> (Option<i32>, String, String) {
    let until = Instant::now() + Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            let _ = child.kill();
            panic!("it did not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut said = [String::new(), String::new()];
    child.stdout.take().unwrap().read_to_string(&mut said[0]).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut said[1]).unwrap();
    let [out, err] = said;
    assert!(!err.contains("panicked"), "{err}");
    (child.wait().unwrap().code(), out, err)
}

/// The cell that runs now: the same program once more, not one that is asked about the file system.
fn cell_of(process: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?;
    let program = |process: &str| fs::read_link(format!("/proc/{process}/exe")).ok();
    let ours = program(&process.to_string());
    children.split_whitespace().find(|child| program(child) == ours)?.parse().ok()
}

fn wait_for<T>(mut what: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = what() {
            return found;
        }
        assert!(Instant::now() < until, "it never came");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

#[test]
fn a_comparison_that_is_ended_leaves_nothing() {
    for signal in [SIGINT, SIGTERM] {
        let directory = directory();
        let child = start(&COMPARE, directory.path());
        // Its directory is there while it runs.
        let cell = wait_for(|| cell_of(child.id()).filter(|_| entries(directory.path()) > 0));
        kill(child.id(), signal);
        let (code, out, err) = end(child);
        assert_eq!((code, out.as_str()), (Some(130), ""), "{err}");
        assert!(err.ends_with("forebay: interrupted; nothing was left behind\n"), "{err}");
        assert_eq!(entries(directory.path()), 0);
        assert!(!Path::new(&format!("/proc/{cell}")).exists(), "the cell has ended before");
    }
}

#[test]
fn a_comparison_that_was_started_with_a_signal_ignored_goes_on() {
    let directory = directory();
    let ignoring = ["sh", "-c", r#"trap "" HUP INT; exec "$0" "$@""#];
    let child = started_by(&ignoring, &COMPARE, directory.path());
    wait_for(|| cell_of(child.id()));
    kill(child.id(), SIGHUP);
    kill(child.id(), SIGINT);
    let (code, _, err) = end(child);
    assert_eq!(code, Some(0), "{err}");
}

#[test]
fn a_killed_comparison_takes_its_cell_along_and_the_next_one_cleans_up() {
    let directory = directory();
    let child = start(&COMPARE, directory.path());
    let cell = wait_for(|| cell_of(child.id()).filter(|_| entries(directory.path()) > 0));
    kill(child.id(), SIGKILL);
    end(child);
    wait_for(|| {
        fs::read_to_string(format!("/proc/{cell}/stat"))
            .map_or(true, |stat| stat.contains(") Z "))
            .then_some(())
    });
    assert_eq!(entries(directory.path()), 1);
    // Refused only after the leftover was looked for.
    let next = start(&["compare", "--rounds", "500", "--dir"], directory.path());
    let (code, _, err) = end(next);
    assert_eq!(code, Some(2));
    let said = err.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("left by a killed run"), "{err}");
    assert_eq!(entries(directory.path()), 0);
}

#[test]
fn a_cell_that_is_killed_fails_its_arm_and_the_rest_is_shown() {
    let directory = directory();
    let words = ["compare", "--verbose", "--scale", "0.01", "--rounds", "1", "layout", "--dir"];
    let mut child = start(&words, directory.path());
    // None of those of the warm-ups, which do not count: the one after the first that does.
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    lines.by_ref().find(|line| line.as_ref().unwrap().starts_with("[  1/")).unwrap().unwrap();
    let cell = wait_for(|| cell_of(child.id()));
    kill(cell, SIGKILL);
    let err: Vec<String> = lines.map(Result::unwrap).collect();
    let err = err.join("\n");
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{err}");
    assert!(err.contains("failed: the process of the cell failed: signal: 9"), "{err}");
    assert!(out.contains("FAILED: ") && out.contains("kernel-b"), "{out}");
    assert_eq!(entries(directory.path()), 0);
}

#[test]
fn a_comparison_comes_to_its_end_and_names_the_engine_that_ran() {
    let directory = directory();
    let mut words = COMPARE;
    words[4] = "1";
    let (code, out, err) = end(start(&words, directory.path()));
    assert_eq!(code, Some(0), "{err}");
    assert!(out.lines().next().unwrap().contains("io_uring"), "{out}");
    assert!(out.contains("every arm: verified") && out.contains("noise floor"), "{out}");
    assert_eq!(entries(directory.path()), 0);
}

#[test]
fn a_run_that_is_ended_keeps_its_files_but_those_that_were_to_go() {
    let directory = directory();
    let job = directory.path().join("job.fio");
    let text =
        "[global]\nsize=1m\nrw=randwrite\ntime_based\nruntime=60\n[stays]\n[goes]\nunlink=1\n";
    fs::write(&job, text).unwrap();
    for (engine, signal) in [("forebay", SIGTERM), ("kernel", SIGINT)] {
        let words = ["run", job.to_str().unwrap(), "--engine", engine, "--dir"];
        let child = start(&words, directory.path());
        wait_for(|| directory.path().join("goes.0.0").exists().then_some(()));
        kill(child.id(), signal);
        let (code, out, err) = end(child);
        assert_eq!((code, out.as_str()), (Some(130), ""), "{err}");
        assert!(err.starts_with("forebay: interrupted; the job's files stay"), "{err}");
        assert!(
            directory.path().join("stays.0.0").exists()
                && !directory.path().join("goes.0.0").exists()
        );
    }
}
