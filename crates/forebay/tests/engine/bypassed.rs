//! A file system that grants leases and whose files others reach past them: bindfs, where the other
//! program uses the directory below.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::support::{self, how, made_by_root, pattern, process};
use forebay::Engine;
use tempfile::TempDir;

/// A directory, and bindfs over it at another place.
struct Bound {
    directory: TempDir,
}

impl Bound {
    fn new(test: &str) -> Option<Self> {
        made_by_root(test, "mount bindfs", || {
            if !process::exists("bindfs") {
                return Err("there is no bindfs".to_owned());
            }
            let bound = Self { directory: support::directory() };
            let [below, at] = [bound.below(), bound.at()];
            std::fs::create_dir(&below).unwrap();
            std::fs::create_dir(&at).unwrap();
            let arguments = [OsStr::new("--no-allow-other"), below.as_os_str(), at.as_os_str()];
            process::run("bindfs", &arguments)?;
            Ok(bound)
        })
    }

    fn below(&self) -> PathBuf {
        self.directory.path().join("below")
    }

    fn at(&self) -> PathBuf {
        self.directory.path().join("at")
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let unmounted = process::run("umount", &[self.at().as_os_str()]);
        assert!(unmounted.is_ok() || std::thread::panicking(), "{unmounted:?}");
    }
}

fn append_below(path: &Path, line: &[u8]) {
    std::fs::OpenOptions::new().append(true).open(path).unwrap().write_all(line).unwrap();
}

#[test]
fn contract_06_lines_of_a_program_below_are_not_overwritten() {
    let Some(bound) = Bound::new("lines_below") else { return };
    let engine = Engine::new().unwrap();
    let log = engine.open(bound.at().join("log"), &how::append()).unwrap();
    assert!(log.describe().contains("shared: a lease on fuse"), "{}", log.describe());
    let (mut expected, below) = (Vec::new(), bound.below().join("log"));
    for line in 0..20 {
        let ours = format!("ours {line}\n");
        log.append(ours.as_bytes()).unwrap();
        log.sync_data().unwrap();
        let theirs = format!("theirs {line}\n");
        append_below(&below, theirs.as_bytes());
        expected.extend_from_slice(format!("{ours}{theirs}").as_bytes());
    }
    log.close().unwrap();
    let found = std::fs::read(&below).unwrap();
    assert_eq!(String::from_utf8_lossy(&found), String::from_utf8_lossy(&expected));
}

#[test]
fn contract_06_a_page_that_was_changed_below_is_read_anew() {
    let Some(bound) = Bound::new("page_below") else { return };
    let engine = Engine::new().unwrap();
    let file = engine.open(bound.at().join("file"), &how::create()).unwrap();
    file.write_at(&pattern(1, 16_384), 0).unwrap();
    file.sync_data().unwrap();
    let other = std::fs::OpenOptions::new().write(true).open(bound.below().join("file")).unwrap();
    let mut found = vec![0; 16_384];
    for round in 0..20 {
        file.read_at(&mut found, 0).unwrap();
        let theirs = pattern(100 + round, 4096);
        other.write_all_at(&theirs, 4096).unwrap();
        file.read_at(&mut found, 0).unwrap();
        assert!(found[4096..8192] == theirs, "an older page in round {round}");
    }
    file.close().unwrap();
}

#[test]
fn contract_06_a_promise_to_be_alone_takes_the_place_of_the_lease() {
    let Some(bound) = Bound::new("promise") else { return };
    let engine = Engine::new().unwrap();
    let path = bound.at().join("file");
    let expected = pattern(3, 1_000_123);
    let file = engine.open(&path, how::create().assume_exclusive(true)).unwrap();
    assert!(file.describe().ends_with("; alone as promised"), "{}", file.describe());
    for (number, piece) in expected.chunks(10_001).enumerate() {
        file.write_at(piece, number as u64 * 10_001).unwrap();
    }
    file.sync_data().unwrap();
    // Another engine is kept out by the lock.
    let second = Engine::new().unwrap().open(&path, &how::write()).unwrap_err();
    assert_eq!(second.kind(), forebay::ErrorKind::Busy, "{second}");
    let again = engine.open(&path, &how::write()).unwrap();
    assert!(again.describe().ends_with("; alone as promised"), "{}", again.describe());
    again.close().unwrap();
    file.close().unwrap();
    assert!(std::fs::read(bound.below().join("file")).unwrap() == expected);
}
