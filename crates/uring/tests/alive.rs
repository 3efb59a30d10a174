//! Another process learns when the rings of a killed one are gone, and not before.

mod support;

use std::ffi::OsStr;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_block::{Device as _, Operation, Tag, Wait};
use forebay_uring::passing::{Channel, Process, Received};
use forebay_uring::{
    Access, Alive, Arena, Backend, Choice, Create, Gone, How, OpenFile, Register, Ring, Truncate,
};
use support::loop_device::{LoopDevice, Shape};
use support::process::{is_child, is_root, run, skip, skip_or_fail, start_child};
use support::{FILE, PAGE_BYTES, directory, frames, moving};
use tempfile::TempDir;

const SOON: Option<Duration> = Some(Duration::from_secs(20));
/// Long enough to notice an early report.
const A_WHILE: Option<Duration> = Some(Duration::from_millis(300));

const CHILD: &str = "child_with_a_request_in_flight";

/// A child whose request is in flight.
struct Started {
    child: Child,
    process: Process,
    gone: Gone,
    /// Its other words.
    reported: String,
    _channel: Channel,
}

impl Started {
    /// Command of the child: backend, registered files or not, and the file to read or write.
    fn new(backend: &str, operation: &str, path: &Path) -> Self {
        let (channel, theirs) = Channel::pair().unwrap();
        let child = start_child(CHILD, theirs.into());
        channel
            .send(format!("{backend}\n{operation}\n{}", path.display()).as_bytes(), &[])
            .unwrap();
        let Ok(Received::Message(mut message)) = channel.receive(SOON) else {
            panic!("the child says nothing")
        };
        let process = Process::of(child.id()).unwrap();
        let gone = Gone::of_descriptor(message.descriptors.pop().unwrap());
        let reported = String::from_utf8(message.bytes).unwrap();
        Self { child, process, gone, reported, _channel: channel }
    }

    /// Ends it, and waits until it has.
    fn kill(&mut self) {
        assert!(!self.gone.wait(Some(Duration::ZERO)).unwrap(), "it lives");
        self.process.kill().unwrap();
        assert!(self.process.wait(SOON).unwrap());
        self.child.wait().unwrap();
    }
}

#[test]
fn child_with_a_request_in_flight() {
    if !is_child() {
        return;
    }
    let channel = Channel::inherited(0).unwrap();
    let Ok(Received::Message(message)) = channel.receive(SOON) else {
        panic!("nothing is to be done")
    };
    let task = String::from_utf8(message.bytes).unwrap();
    let [backend, operation, path] = task.split('\n').collect::<Vec<_>>().try_into().unwrap();
    let (alive, gone) = Alive::pair().unwrap();
    let choice = if backend == "threads" { Choice::Threads } else { Choice::IoUring };
    let mut device = Backend::chosen(choice, Arc::new(Arena::shared(8).unwrap()), 8).unwrap();
    assert!(device.set_alive(&alive));
    if let (Backend::Ring(ring), "ring without files") = (&mut device, backend) {
        ring.set_registered(Register::No);
    }
    let how =
        How { access: Access::ReadWrite, create: Create::No, truncate: Truncate::Keep, mode: 0 };
    device.attach(FILE, Arc::new(OpenFile::open(path.as_ref(), &how).unwrap().file));
    let operation = if operation == "write" { Operation::Write } else { Operation::Read };
    device.prepare(Tag(0), &moving(operation, 0, &[frames(0, PAGE_BYTES)])).unwrap();
    device.doorbell(Wait::Not).unwrap();
    let reported = if backend == "ring and a fork" {
        fork_and_sleep().to_string()
    } else {
        "in flight".into()
    };
    channel.send(reported.as_bytes(), &[gone.as_fd()]).unwrap();
    drop(gone);
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// A child of the child, which has copies of all its descriptors and goes on.
fn fork_and_sleep() -> libc::pid_t {
    // SAFETY: the child does nothing but sleep, which is allowed after a fork of a program with
    // threads.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        loop {
            // SAFETY: as above.
            unsafe { libc::sleep(100) };
        }
    }
    child
}

/// A pipe that nobody ever writes to.
fn silent_pipe(directory: &TempDir) -> PathBuf {
    let path = directory.path().join("pipe");
    run("mkfifo", &[path.as_os_str()]).unwrap();
    path
}

#[test]
fn the_end_of_a_killed_process_is_reported() {
    let directory = directory();
    let path = silent_pipe(&directory);
    for backend in ["ring", "ring without files", "threads"] {
        let mut started = Started::new(backend, "read", &path);
        assert_eq!(started.reported, "in flight");
        started.kill();
        assert!(started.gone.wait(SOON).unwrap(), "{backend}");
    }
}

#[test]
fn a_fork_that_lives_on_keeps_it_from_being_reported() {
    let directory = directory();
    let mut started = Started::new("ring and a fork", "read", &silent_pipe(&directory));
    let fork = Process::of(started.reported.parse().unwrap()).unwrap();
    started.kill();
    assert!(!started.gone.wait(A_WHILE).unwrap(), "the fork has the ring");
    fork.kill().unwrap();
    assert!(started.gone.wait(SOON).unwrap());
}

#[test]
fn what_ends_well_is_reported_too_and_a_ring_alone_is_enough_to_live() {
    let (alive, gone) = Alive::pair().unwrap();
    let arena = Arc::new(Arena::new(1).unwrap());
    let mut rings: Vec<Ring> = (0..3).map(|_| Ring::new(Arc::clone(&arena), 4).unwrap()).collect();
    assert!(rings.iter_mut().all(|ring| ring.set_alive(&alive)));
    // Set anew, and without entries for files; one more of the same does no harm.
    rings[0].set_registered(Register::No);
    rings[1].set_registered(Register::No);
    rings[1].set_registered(Register::Yes);
    assert!(rings[2].set_alive(&alive));
    drop(alive);
    while let Some(ring) = rings.pop() {
        assert!(!gone.wait(Some(Duration::from_millis(30))).unwrap());
        drop(ring);
    }
    assert!(gone.wait(SOON).unwrap());
}

/// A disk on a file of a file system that can be frozen: then what it was sent stays in flight.
struct SlowDisk {
    disk: Option<LoopDevice>,
    place: PathBuf,
    _below: TempDir,
}

impl SlowDisk {
    /// `None`, with the reason printed, if that is not possible.
    fn new(test: &str) -> Option<Self> {
        if !is_root() {
            skip(test, "only root can mount");
            return None;
        }
        let below = directory();
        let (image, place) = (below.path().join("image"), below.path().join("mount"));
        std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        std::fs::create_dir(&place).unwrap();
        let made = run("mkfs.ext4", &[OsStr::new("-q"), OsStr::new("-F"), image.as_os_str()]);
        let options = ["-o", "loop"].map(OsStr::new);
        let mounted = made.and_then(|_| {
            run("mount", &[options[0], options[1], image.as_os_str(), place.as_os_str()])
        });
        if let Err(error) = mounted {
            skip_or_fail(test, &error);
            return None;
        }
        let mut slow = Self { disk: None, place, _below: below };
        let directory = tempfile::tempdir_in(&slow.place).unwrap();
        slow.disk = LoopDevice::new(test, directory, Shape { bytes: 1 << 20, logical_block: 512 });
        slow.disk.is_some().then_some(slow)
    }

    fn path(&self) -> &Path {
        self.disk.as_ref().unwrap().path()
    }

    fn freeze(&self) {
        run("fsfreeze", &[OsStr::new("--freeze"), self.place.as_os_str()]).unwrap();
    }

    fn thaw(&self) -> Result<String, String> {
        run("fsfreeze", &[OsStr::new("--unfreeze"), self.place.as_os_str()])
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // Refused where it is not frozen.
        let _ = self.thaw();
        drop(self.disk.take());
        // The image is let go of when the last write has ended.
        let deadline = Instant::now() + SOON.unwrap();
        while let Err(error) = run("umount", &[self.place.as_os_str()]) {
            if Instant::now() > deadline {
                eprintln!("{error}");
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn it_is_reported_when_the_last_write_has_ended_and_not_when_the_process_has() {
    let Some(disk) = SlowDisk::new("alive") else { return };
    for backend in ["ring", "ring without files"] {
        disk.freeze();
        let mut started = Started::new(backend, "write", disk.path());
        started.kill();
        assert!(!started.gone.wait(A_WHILE).unwrap(), "a write is in flight: {backend}");
        disk.thaw().unwrap();
        assert!(started.gone.wait(SOON).unwrap(), "{backend}");
    }
}
