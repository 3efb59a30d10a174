//! Programs with a keeper, and their keepers' ends.
//!
//! A keeper is this test program executed again, in the test `keeper`. It outlives the child it
//! stands by, and becomes this process's: so its exit status can be heard.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use forebay::Keeper;

use super::process;

/// The name of the test that is the keeper.
pub(crate) const NAME: &str = "keeper";

/// The name of the test that is a child which is survived.
pub(crate) const CHILD: &str = "child_that_is_survived";

/// No keeper of a test has more to do than this takes.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// A keeper for an engine of this test program.
pub(crate) fn keeper() -> Keeper {
    Keeper {
        arguments: ["--exact", NAME, "--nocapture", "--test-threads=1"].map(Into::into).to_vec(),
        ..Keeper::this_program()
    }
}

/// The keeper's side.
pub(crate) fn serve() {
    forebay::keeper::run_if_asked();
}

/// From now on children's children that lose their parent are this process's.
pub(crate) fn adopt_orphans() {
    // SAFETY: takes numbers.
    let result = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Waits for an orphan's end; its exit status.
pub(crate) fn wait_for_orphan(process: u32, patience: Duration) -> i32 {
    let end = Instant::now() + patience;
    let number = libc::pid_t::try_from(process).unwrap();
    loop {
        let mut status = 0;
        // SAFETY: the status is written during the call.
        let waited = unsafe { libc::waitpid(number, &raw mut status, libc::WNOHANG) };
        if waited == number {
            assert!(libc::WIFEXITED(status), "the keeper was killed: status {status:#x}");
            return libc::WEXITSTATUS(status);
        }
        let error = std::io::Error::last_os_error();
        // It becomes ours when its parent's end has been seen.
        assert!(waited == 0 || error.raw_os_error() == Some(libc::ECHILD), "{error}");
        assert!(Instant::now() < end, "keeper {process} has not ended after {patience:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Kills a child, and waits for it.
pub(crate) fn kill(child: &mut Child, signal: libc::c_int) {
    // SAFETY: takes numbers; the child has not been waited for, so its number is its own.
    let result = unsafe { libc::kill(child.id().cast_signed(), signal) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    child.wait().unwrap();
}

/// Returns the log of a keeper.
pub(crate) fn said(log: &Path) -> String {
    std::fs::read_to_string(log).unwrap_or_default()
}

/// A child, and its keepers' numbers.
pub(crate) struct Survived {
    pub(crate) child: Child,
    pub(crate) keepers: Vec<u32>,
    directory: PathBuf,
}

impl Survived {
    /// A child that does something with its file, and tells its keeper's number when it has.
    pub(crate) fn start(what: &str, directory: &Path, file: &Path) -> Self {
        Self::start_with(1, Stdio::inherit(), what, directory, file)
    }

    /// One that has several keepers, or whose standard error goes elsewhere.
    pub(crate) fn start_with(
        keepers: usize,
        error: Stdio,
        what: &str,
        directory: &Path,
        file: &Path,
    ) -> Self {
        adopt_orphans();
        let directory = directory.canonicalize().unwrap();
        let task = format!("{what}\n{}\n{}", directory.display(), file.display());
        let mut child = process::start_child_saying(CHILD, &task, error);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let reported =
            lines.filter_map(|line| process::reported(&line.unwrap()).map(str::to_owned));
        let keepers: Vec<u32> =
            reported.take(keepers).map(|reported| reported.parse().unwrap()).collect();
        assert!(!keepers.is_empty(), "the child ended before it was ready");
        Self { child, keepers, directory }
    }

    /// Kills it; the keeper's status, and what that said.
    pub(crate) fn die(mut self) -> (i32, String) {
        kill(&mut self.child, libc::SIGKILL);
        self.ended()
    }

    pub(crate) fn ended(self) -> (i32, String) {
        let status = wait_for_orphan(self.keepers[0], SOON);
        let said = said(&self.directory.join("log"));
        println!("{said}");
        (status, said)
    }
}
