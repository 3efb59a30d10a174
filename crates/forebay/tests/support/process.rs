//! Other processes: this test program executed again as a child, and ordinary programs.
//!
//! The test process has threads, so it is never forked. A child starts from `exec`, finds its task
//! in its environment, and runs the one test written for it. That test does nothing in the parent.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Environment variable that holds the task of a child.
pub(crate) const TASK: &str = "FOREBAY_TEST_CHILD";

/// Start of the lines that a child writes for its parent; the test harness prints others.
const SIGN: &str = "@ ";

/// This test program again, to run `test` alone and do what `task` says.
pub(crate) fn start_child(test: &str, task: &str) -> Child {
    start_child_saying(test, task, Stdio::inherit())
}

/// As [`start_child`], with a standard error of its own.
pub(crate) fn start_child_saying(test: &str, task: &str, error: Stdio) -> Child {
    start_child_of(&std::env::current_exe().unwrap(), test, task, error)
}

/// As [`start_child_saying`], of a copy of this program.
pub(crate) fn start_child_of(program: &Path, test: &str, task: &str, error: Stdio) -> Child {
    Command::new(program)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(TASK, task)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(error)
        .spawn()
        .unwrap()
}

/// Replaces a program file by another build of this program: with other bytes at its end.
pub(crate) fn replace_by_another_build(program: &Path) {
    // By another process: a child that this one starts meanwhile would have the file open to write,
    // and then nobody may run it.
    let line =
        r#"cp "$2" "$1.new" && cat /proc/sys/kernel/random/uuid >>"$1.new" && mv "$1.new" "$1""#;
    let this = std::env::current_exe().unwrap();
    let words = ["-c", line, "sh"].map(OsStr::new);
    run("/bin/sh", &[&words[..], &[program.as_os_str(), this.as_os_str()]].concat()).unwrap();
}

/// The task, in a child.
pub(crate) fn task() -> Option<String> {
    std::env::var(TASK).ok()
}

/// A child tells its parent something.
pub(crate) fn report(what: std::fmt::Arguments<'_>) {
    let line = format!("{SIGN}{what}\n");
    // In one write, past the harness: the parent reads the whole line or nothing.
    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
}

/// Returns the report in a line of a child's output, if it has one.
pub(crate) fn reported(line: &str) -> Option<&str> {
    // The harness leaves its own line open while a test runs.
    line.split_once(SIGN).map(|(_, reported)| reported)
}

/// Runs a program to its end; its output when it ended well.
pub(crate) fn run(program: &str, arguments: &[&OsStr]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let Output { status, stdout, stderr } =
        output.map_err(|error| format!("{program}: {error}"))?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).trim().to_owned());
    }
    Err(format!("{program} {arguments:?}: {status}: {}", String::from_utf8_lossy(&stderr).trim()))
}

/// Whether there is such a program; those of the administrator too.
pub(crate) fn exists(program: &str) -> bool {
    Command::new(program).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// A shell runs a line with the path as `$1`.
pub(crate) fn shell(line: &str, path: &Path) -> Result<String, String> {
    run("/bin/sh", &[OsStr::new("-c"), OsStr::new(line), OsStr::new("sh"), path.as_os_str()])
}

/// A shell line that has to end well, and how long it took.
pub(crate) fn shell_timed(line: &str, path: &Path) -> (String, Duration) {
    let start = Instant::now();
    let output = shell(line, path).unwrap();
    (output, start.elapsed())
}

/// Fills a file system to the last block.
pub(crate) fn fill_up(directory: &Path) -> std::path::PathBuf {
    let path = directory.join("filler");
    // `dd` ends with an error when nothing more fits, which is what is wanted.
    let _ = shell(
        "dd if=/dev/zero of=\"$1\" bs=64k 2>/dev/null; dd if=/dev/zero bs=4k >>\"$1\" 2>/dev/null",
        &path,
    );
    shell("sync -f \"$1\"", &path).unwrap();
    path
}

/// Root has every permission: runs one test of this program again as a user without any.
pub(crate) fn as_nobody(test: &str) {
    const NOBODY: u32 = 65534;
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    shell("chmod -R 755 \"$1\"", directory.path()).unwrap();
    let output = Command::new(&program)
        .args(["--exact", test])
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
