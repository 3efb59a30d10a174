//! A source, a mount point, and the program.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

pub(crate) const FOREBAY: &str = env!("CARGO_BIN_EXE_forebay");

pub(crate) fn forebay(words: &[&str]) -> (Option<i32>, String, String) {
    run(&[&[FOREBAY], words].concat())
}

/// Runs a program.
pub(crate) fn run(words: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).output().unwrap();
    let Output { status, stdout, stderr } = output;
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// Held by the tests that run beside each other, and alone by one that needs both processors.
static TURN: RwLock<()> = RwLock::new(());

/// Turn of a test, until it is dropped.
enum Turn {
    Beside {
        _others: RwLockReadGuard<'static, ()>,
    },
    Alone {
        _turn: RwLockWriteGuard<'static, ()>,
    },
    /// That of another place of the same test.
    Shared,
}

/// Source and mount point in a directory of their own.
pub(crate) struct Place {
    pub(crate) source: PathBuf,
    pub(crate) mount: PathBuf,
    /// The program that mounts and unmounts.
    pub(crate) program: PathBuf,
    /// Removed after the rest.
    pub(crate) directory: tempfile::TempDir,
    _turn: Turn,
}

impl Place {
    /// Returns `None`, after a message, where nothing can be mounted.
    pub(crate) fn new() -> Option<Self> {
        let others = || TURN.read().unwrap_or_else(PoisonError::into_inner);
        Self::in_turn(|| Turn::Beside { _others: others() })
    }

    /// As [`Place::new`], for a test beside which no other one has a mount. A test that keeps a
    /// mount namespace is one: the namespace has the mounts of the others, too, and these would not
    /// end.
    pub(crate) fn alone() -> Option<Self> {
        let turn = || TURN.write().unwrap_or_else(PoisonError::into_inner);
        Self::in_turn(|| Turn::Alone { _turn: turn() })
    }

    fn in_turn(turn: impl FnOnce() -> Turn) -> Option<Self> {
        if !Path::new("/dev/fuse").exists() || !is_root() {
            let reason = "a mount needs /dev/fuse, and root in this test";
            assert!(std::env::var_os("CI").is_none() || !is_root(), "{reason}");
            eprintln!("skipped: {reason}");
            return None;
        }
        let turn = turn();
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (source, mount) = (directory.path().join("source"), directory.path().join("mount"));
        fs::create_dir(&source).unwrap();
        fs::create_dir(&mount).unwrap();
        Some(Self { source, mount, program: FOREBAY.into(), directory, _turn: turn })
    }

    /// Another source beside this one, with an own log.
    pub(crate) fn inner(&self, source: &str, mount: PathBuf) -> Self {
        let directory = tempfile::tempdir_in(self.directory.path()).unwrap();
        let source = self.directory.path().join(source);
        fs::create_dir(&source).unwrap();
        Self { source, mount, program: FOREBAY.into(), directory, _turn: Turn::Shared }
    }

    /// Kills the process that serves the mount, and waits for its end.
    pub(crate) fn kill(&self) -> i32 {
        let server = self.server();
        assert_eq!(run(&["kill", "-9", &server.to_string()]).0, Some(0));
        wait_until("the process ends", || has_ended(server));
        server
    }

    pub(crate) fn mount(&self, options: &[&str]) -> String {
        self.mount_by(&[], options)
    }

    /// Mounts by a program that starts another one.
    pub(crate) fn mount_by(&self, prefix: &[&str], options: &[&str]) -> String {
        let (code, out, err) = self.run_mount(prefix, options);
        assert_eq!(code, Some(0), "{err}");
        out
    }

    /// The same. Returns `None` if it refuses to.
    pub(crate) fn try_to_mount_by(&self, prefix: &[&str], options: &[&str]) -> Option<String> {
        let (code, out, _) = self.run_mount(prefix, options);
        (code == Some(0)).then_some(out)
    }

    fn run_mount(&self, prefix: &[&str], options: &[&str]) -> (Option<i32>, String, String) {
        let log = self.directory.path().join("log");
        let places = [self.source.to_str().unwrap(), self.mount.to_str().unwrap()];
        let more = ["--background", "--log", log.to_str().unwrap()];
        // Once with each transport.
        let rings: &[&str] =
            if std::env::var_os("FOREBAY_TEST_RINGS").is_some() && !options.contains(&"--rings") {
                &["--rings"]
            } else {
                &[]
            };
        let program = [self.program.to_str().unwrap(), "mount"];
        let words = [prefix, &program, &places, &more, rings, options].concat();
        run(&words)
    }

    pub(crate) fn unmount(&self) {
        let program = self.program.to_str().unwrap();
        let (code, _, err) = run(&[program, "unmount", self.mount.to_str().unwrap()]);
        assert_eq!(code, Some(0), "{err}");
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    /// The process that serves the mount.
    pub(crate) fn server(&self) -> i32 {
        let mount = self.mount.to_str().unwrap();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let line = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
            if line.contains(mount) {
                found.push(number);
            }
        }
        assert_eq!(found.len(), 1, "{found:?}");
        found[0]
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // After a failed test.
        let _ = Command::new("umount").arg("-l").arg(&self.mount).stderr(Stdio::null()).status();
    }
}

pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(20), "it does not happen that {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process has ended, although its parent may not know.
pub(crate) fn has_ended(process: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"));
    stat.map_or(true, |stat| stat.contains(") Z "))
}

pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0)
}

/// Bytes that depend on their position.
pub(crate) fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8).collect()
}

/// The inode of the program that a process runs.
pub(crate) fn build_of(process: i32) -> u64 {
    fs::metadata(format!("/proc/{process}/exe")).unwrap().ino()
}

/// The keeper of the engine of a mount.
pub(crate) fn keeper_of(server: i32) -> Option<i32> {
    let tasks = fs::read_dir(format!("/proc/{server}/task")).unwrap().flatten();
    let mut children =
        tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    children.find_map(|children| children.split_whitespace().next()?.parse().ok())
}
