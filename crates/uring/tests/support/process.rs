//! Other processes: ordinary programs, and this test program executed again as a child.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Output, Stdio};

/// Variable that makes this program the child.
const CHILD: &str = "FOREBAY_TEST_CHILD";

/// Whether this is the child.
pub(crate) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Executes this program again, for one test, and gives what it printed when that went well.
pub(crate) fn run_child(test: &str) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{stdout}{stderr}");
    stdout.into_owned()
}

/// Executes this program again, for one test, with a descriptor as its standard input.
pub(crate) fn start_child(test: &str, input: OwnedFd) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(CHILD, "1");
    command.stdin(Stdio::from(input)).stdout(Stdio::null()).spawn().unwrap()
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

pub(crate) fn is_root() -> bool {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Says, past the capturing of output, why a test did not run.
#[allow(clippy::explicit_write, reason = "the macro's output is captured")]
pub(crate) fn skip(test: &str, reason: &str) {
    let line = format!("skipped {test}: {reason}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// As [`skip`], for something that is there where these tests run by themselves: its lack is a
/// failure then.
pub(crate) fn skip_or_fail(test: &str, reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "{test} must run here, and cannot: {reason}");
    skip(test, reason);
}
