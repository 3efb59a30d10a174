//! Memory: a copy that stalls holds nobody up (contract 11), the arena is nobody else's (14), and
//! an engine that is dropped where it would wait for itself is not waited for (12).

mod support;

use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay::{Engine, ErrorKind, Options};
use support::faulty::{Disk, Fails};
use support::load::elsewhere_all_is_well;
use support::mount::FileSystem;
use support::{MIB, assert_on_disk, eventually, how, kind_of, pattern, within};

/// Upper bound for every wait in this file.
const SOON: Duration = Duration::from_secs(30);

/// A file's bytes in memory, read in when they are touched.
struct Mapped {
    start: *const u8,
    length: usize,
}

// SAFETY: it is memory that nobody writes to.
unsafe impl Send for Mapped {}

impl Mapped {
    fn new(path: &Path) -> Self {
        let file = std::fs::File::open(path).unwrap();
        let length = file.metadata().unwrap().len() as usize;
        let (protection, flags) = (libc::PROT_READ, libc::MAP_PRIVATE);
        // SAFETY: a new mapping of a file that stays as it is, wherever there is room.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), length, protection, flags, file.as_raw_fd(), 0)
        };
        assert_ne!(start, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Self { start: start.cast(), length }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for as long as this lives, and never written to.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and borrowed by nobody any more.
        unsafe { libc::munmap(self.start.cast_mut().cast(), self.length) };
    }
}

/// Bytes of the source that are not in memory. They are in the middle of the file, so no read-ahead
/// loads them.
const MIDDLE: std::ops::Range<usize> = 8 << 20..(8 << 20) + 65536;

fn source(test: &str) -> Option<(Disk, Mapped)> {
    let mut disk = Disk::new(test, FileSystem::Ext4, 128 * MIB, Fails::Writes)?;
    let source = disk.path().join("source");
    std::fs::write(&source, pattern(1, 16 << 20)).unwrap();
    std::fs::File::open(&source).unwrap().sync_all().unwrap();
    // Not in the kernel's memory any more.
    disk.reboot();
    let mapped = Mapped::new(&source);
    Some((disk, mapped))
}

/// Freezes the device while its own file system is at rest: later requests come from the test
/// alone.
fn freeze_when_quiet(disk: &Disk) {
    support::process::shell("sync -f \"$1\"", &disk.path()).unwrap();
    assert!(eventually(SOON, || !disk.is_busy()), "the file system is never at rest");
    disk.freeze();
}

/// The source of a write must be read from a device that hangs. Other calls go on: on other pages
/// of the same file, syncs included, and on other files.
#[test]
fn contract_11_a_copy_that_stalls_holds_nobody_up() {
    let Some((disk, mapped)) = source("a_copy_that_stalls") else { return };
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine =
        Engine::start(Options { cache_bytes: Some(8 << 20), ..Options::default() }).unwrap();
    let file = Arc::new(engine.open(&path, &how::create()).unwrap());
    file.set_len(1 << 20).unwrap();
    freeze_when_quiet(&disk);
    let stalled = std::thread::spawn({
        let file = Arc::clone(&file);
        move || file.write_at(&mapped.bytes()[MIDDLE], 0).unwrap()
    });
    assert!(eventually(SOON, || disk.is_busy()), "nobody has to wait for the source");
    within(SOON, "others beside a copy that stalls", {
        let (file, engine) = (Arc::clone(&file), engine.clone());
        move || {
            for round in 0..20 {
                file.write_at(&pattern(round, 100_000), 200_000).unwrap();
                let mut through = vec![0; 100_000];
                file.read_at(&mut through, 200_000).unwrap();
                assert!(through == pattern(round, 100_000));
                file.sync_data().unwrap();
            }
            elsewhere_all_is_well(&engine);
        }
    });
    assert!(!stalled.is_finished());
    disk.thaw();
    stalled.join().unwrap();
    file.sync_data().unwrap();
    let mut expected = vec![0; 1 << 20];
    expected[..65536].copy_from_slice(&pattern(1, 16 << 20)[MIDDLE]);
    expected[200_000..300_000].copy_from_slice(&pattern(19, 100_000));
    assert_on_disk(&path, &expected, "after the copy went on");
}

/// An engine that shuts down during such a copy waits for the write that it may still accept, but
/// no longer than its deadline.
#[test]
fn contract_05_a_copy_that_stalls_does_not_hold_the_engine() {
    let Some((disk, mapped)) = source("a_copy_that_stalls_an_engine") else { return };
    let directory = support::directory();
    let engine =
        Engine::start(Options { cache_bytes: Some(8 << 20), ..Options::default() }).unwrap();
    let file = engine.open(directory.path().join("file"), &how::create()).unwrap();
    freeze_when_quiet(&disk);
    let stalled = std::thread::spawn(move || file.write_at(&mapped.bytes()[MIDDLE], 0));
    assert!(eventually(SOON, || disk.is_busy()), "nobody has to wait for the source");
    let ended = within(SOON, "shutting down", move || engine.shutdown(Duration::from_millis(200)));
    assert_eq!(kind_of(ended), ErrorKind::TimedOut);
    disk.thaw();
    // In whole, or up to where it was when the engine ended.
    if let Err(error) = stalled.join().unwrap() {
        assert_eq!(error.kind(), ErrorKind::Shutdown, "{error}");
    }
}

/// The kernel's own word on an engine's memory: not for a child, and not for a core dump. The
/// kernel shows neighbours with the same flags as one mapping, and another test's arena may be one.
#[test]
fn contract_14_the_arena_is_neither_inherited_nor_dumped() {
    // More than any other mapping here that is as hidden.
    let bytes: u64 = 509 * MIB;
    let _engine =
        Engine::start(Options { cache_bytes: Some(bytes), ..Options::default() }).unwrap();
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_hidden = false;
    let mut size = 0;
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("Size:") => size = words.next().unwrap().parse::<u64>().unwrap() << 10,
            Some("VmFlags:") if size >= bytes => {
                let flags: Vec<&str> = words.collect();
                is_hidden |= flags.contains(&"dc") && flags.contains(&"dd");
            }
            _ => {}
        }
    }
    assert!(is_hidden, "no hidden mapping of {bytes} bytes:\n{maps}");
}
