//! Block devices: loop devices over images, whole and failing.

mod support;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_block::{Completion, Device, Errno, Frame, Operation, Refused, Tag, Wait};
use forebay_uring::{
    Access, Arena, Create, Direct, How, Kind, OpenFile, Register, Ring, Truncate, probe,
};
use support::loop_device::{LoopDevice, Shape};
use support::{FILE, PAGE_BYTES, directory, frames, moving, process, still, wait_for};
use tempfile::TempDir;

const PAGE: u64 = PAGE_BYTES as u64;
const MIB: u64 = 1 << 20;
const READ: How =
    How { access: Access::Read, create: Create::No, truncate: Truncate::Keep, mode: 0 };
const WRITE: How = How { access: Access::ReadWrite, ..READ };

/// A ring with a loop device as its one target.
struct Bench {
    ring: Ring,
    arena: Arc<Arena>,
    /// After the ring, which has it open.
    device: LoopDevice,
}

impl Bench {
    fn new(test: &str, shape: Shape, files: Register) -> Option<Self> {
        let device = LoopDevice::new(test, directory(), shape)?;
        Some(Self::over(device, files))
    }

    fn over(device: LoopDevice, files: Register) -> Self {
        let arena = Arc::new(Arena::new(1024).unwrap());
        let mut ring = Ring::new(Arc::clone(&arena), 64).unwrap();
        ring.attach(FILE, Arc::new(OpenFile::open(device.path(), &WRITE).unwrap().file));
        ring.set_registered(files);
        Self { ring, arena, device }
    }

    fn fill(&self, frame: u32, byte: u8) {
        // SAFETY: the test has one thread and nothing in flight that uses the frame.
        unsafe { self.arena.copy_in(Frame(frame), 0, &[byte; 4096]) };
    }

    fn ask(&mut self, request: &forebay_block::Bio) -> Result<u64, Errno> {
        self.ring.prepare(Tag(0), request).unwrap();
        wait_for(&mut self.ring, 1)[0].result
    }

    /// The first byte of a page of the image.
    fn stored(&self, page: u64) -> u8 {
        let mut byte = [0];
        fs::File::open(self.device.image()).unwrap().read_exact_at(&mut byte, page * PAGE).unwrap();
        byte[0]
    }

    /// Puts this many requests of 64 KiB into flight over the device, so that more than the half is
    /// on its way.
    fn start(&mut self, count: u16, operation: Operation) {
        for tag in 0..count {
            let request = moving(
                operation,
                u64::from(tag) * 16 * PAGE,
                &[frames(u32::from(tag) % 64 * 16, 16 * PAGE_BYTES)],
            );
            while self.ring.prepare(Tag(tag), &request) == Err(Refused) {
                self.ring.doorbell(Wait::Not).unwrap();
            }
        }
        self.ring.doorbell(Wait::Not).unwrap();
    }
}

fn sorted(tags: impl Iterator<Item = Tag>) -> Vec<u16> {
    let mut tags: Vec<u16> = tags.map(|tag| tag.0).collect();
    tags.sort_unstable();
    tags
}

const SMALL: Shape = Shape { bytes: 8 * MIB, logical_block: 512 };

#[test]
fn contract_10_a_device_is_opened_exclusively_and_reports_its_size() {
    let Some(device) = LoopDevice::new("contract_10", directory(), SMALL) else { return };
    let file = OpenFile::open(device.path(), &WRITE).unwrap().file;
    assert_eq!((file.kind(), file.direct()), (Kind::Block, &Direct::Yes));
    assert_eq!((file.length().unwrap(), file.logical_block().unwrap()), (8 * MIB, 512));
    let alignment = file.alignment();
    assert_eq!(alignment.offset, 512);
    assert!(alignment.memory.is_power_of_two() && alignment.memory <= 4096, "{alignment:?}");
    assert_eq!(
        OpenFile::open(device.path(), &WRITE).unwrap_err().raw_os_error(),
        Some(libc::EBUSY)
    );
    assert_eq!(OpenFile::open(device.path(), &READ).unwrap_err().raw_os_error(), Some(libc::EBUSY));
    assert_eq!(OpenFile::identity_of(device.path()).unwrap(), file.identity());
    let reported = probe::block_device(device.path()).unwrap();
    assert_eq!(reported.logical_block(), Some(512));
    let file = Arc::new(file);
    let shared = Arc::clone(&file);
    file.close().unwrap();
    drop(OpenFile::open(device.path(), &WRITE).unwrap());
    drop((file, shared));
    let reader = OpenFile::open(device.path(), &READ).unwrap().file;
    assert_eq!((reader.length().unwrap(), reader.access()), (8 * MIB, Access::Read));
    assert_eq!(
        OpenFile::open(device.path(), &WRITE).unwrap_err().raw_os_error(),
        Some(libc::EBUSY)
    );
}

#[test]
fn contract_10_a_device_has_whole_blocks_and_refuses_what_it_cannot_write() {
    for (bytes, logical_block, reachable) in
        [(MIB + 512, 512, MIB + 512), (MIB + 512, 4096, MIB), (MIB + 2048 + 100, 512, MIB + 2048)]
    {
        let shape = Shape { bytes, logical_block };
        let Some(mut device) = LoopDevice::new("whole_blocks", directory(), shape) else { return };
        let file = OpenFile::open(device.path(), &WRITE).unwrap().file;
        assert_eq!(file.length().unwrap(), reachable);
        drop(file);
        device.make_read_only(shape);
        assert_eq!(
            OpenFile::open(device.path(), &WRITE).unwrap_err().raw_os_error(),
            Some(libc::EROFS)
        );
        assert_eq!(OpenFile::open(device.path(), &READ).unwrap().file.length().unwrap(), reachable);
    }
}

#[test]
fn every_operation_on_a_device() {
    for files in [Register::No, Register::Yes] {
        let Some(mut bench) = Bench::new("every_operation", SMALL, files) else { return };
        for frame in 0..4 {
            bench.fill(frame, b'a' + u8::try_from(frame).unwrap());
        }
        let page = |frame: u32| frames(frame, PAGE_BYTES);
        assert_eq!(
            bench.ask(&moving(Operation::Write, 0, &[page(0), page(2), page(1)])),
            Ok(3 * PAGE)
        );
        assert_eq!(bench.ask(&moving(Operation::WriteFua, 3 * PAGE, &[page(3)])), Ok(PAGE));
        assert_eq!(
            bench.ask(&moving(Operation::WriteBuffered, 4 * PAGE, &[frames(1, 100)])),
            Ok(100)
        );
        assert_eq!(bench.ask(&still(Operation::FlushData, 0, 0)), Ok(0));
        assert_eq!(bench.ask(&still(Operation::FlushAll, 0, 0)), Ok(0));
        assert_eq!(bench.ask(&still(Operation::FlushDirectory, 0, 0)), Ok(0));
        assert_eq!([0, 1, 2, 3, 4, 5].map(|page| bench.stored(page)), *b"acbdb\0");
        assert_eq!(bench.ask(&moving(Operation::Read, PAGE, &[page(9), page(7)])), Ok(2 * PAGE));

        assert_eq!(bench.ask(&still(Operation::WriteZeroes, PAGE, PAGE)), Ok(0));
        match bench.ask(&still(Operation::Discard, 2 * PAGE, PAGE)) {
            Err(Errno::UNSUPPORTED) => println!("the image's file system cannot punch"),
            result => assert_eq!((result, bench.stored(2)), (Ok(0), 0)),
        }
        assert_eq!([0, 1, 3, 4].map(|page| bench.stored(page)), *b"a\0db", "and nothing else");
        // A device has one size, and no space to reserve.
        assert_eq!(bench.ask(&still(Operation::Allocate, 0, PAGE)), Err(Errno::UNSUPPORTED));
        assert_eq!(bench.ask(&still(Operation::SetLength, PAGE, 0)), Err(Errno(libc::EINVAL)));
        // At the end reads end short, and writes have no space.
        assert_eq!(
            bench.ask(&moving(Operation::Read, 8 * MIB - PAGE, &[page(0), page(2)])),
            Ok(PAGE)
        );
        assert_eq!(
            bench.ask(&moving(Operation::Write, 8 * MIB, &[page(0)])),
            Err(Errno(libc::ENOSPC))
        );
        let half = Operation::Discard;
        assert_eq!(
            bench.ask(&still(half, 100, PAGE)),
            Err(Errno(libc::EINVAL)),
            "not in whole blocks"
        );
    }
}

#[test]
fn a_discard_by_a_system_call_does_the_same() {
    let Some(mut bench) = Bench::new("discard", SMALL, Register::No) else { return };
    bench.fill(0, b'x');
    let write = moving(Operation::Write, PAGE, &[frames(0, PAGE_BYTES)]);
    assert_eq!(bench.ask(&write), Ok(PAGE));
    let file = bench.ring.detach(FILE);
    if let Err(error) = file.discard(PAGE, PAGE) {
        return assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
    }
    assert_eq!(bench.stored(1), 0);
    assert_eq!(file.discard(100, PAGE).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    bench.ring.attach(FILE, file);
}

#[test]
fn large_blocks_are_reported_and_kept_to() {
    let shape = Shape { bytes: 8 * MIB, logical_block: 4096 };
    let Some(mut bench) = Bench::new("large_blocks", shape, Register::Yes) else { return };
    let file = bench.ring.detach(FILE);
    assert_eq!((file.logical_block().unwrap(), file.alignment().offset), (4096, 4096));
    bench.ring.attach(FILE, file);
    assert_eq!(
        bench.ask(&moving(Operation::Write, 512, &[frames(0, 512)])),
        Err(Errno(libc::EINVAL))
    );
    assert_eq!(bench.ask(&moving(Operation::Write, PAGE, &[frames(0, PAGE_BYTES)])), Ok(PAGE));
}

#[test]
fn files_are_aligned_as_their_device_is() {
    let directory = directory();
    let file = support::create(&directory.path().join("file")).file;
    let alignment = file.alignment();
    println!("{alignment:?}, {}", file.direct());
    match file.direct() {
        Direct::Yes => {
            assert!(alignment.offset.is_power_of_two() && (512..=4096).contains(&alignment.offset));
        }
        Direct::Refused(_) => assert_eq!((alignment.memory, alignment.offset), (1, 1)),
    }
    assert_eq!(file.logical_block().unwrap_err().kind(), std::io::ErrorKind::Unsupported);
}

#[test]
fn contract_16_an_image_cut_short_under_requests_ends_them_all() {
    let shape = Shape { bytes: 64 * MIB, logical_block: 512 };
    for operation in [Operation::Read, Operation::Write] {
        let Some(mut bench) = Bench::new("cut_short", shape, Register::Yes) else { return };
        bench.start(400, operation);
        let image = fs::OpenOptions::new().write(true).open(bench.device.image()).unwrap();
        image.set_len(0).unwrap();
        let done = wait_for(&mut bench.ring, 400);
        let failed = done.iter().filter(|done| done.result.is_err()).count();
        println!("{operation:?}: {failed} of 400 failed");
        assert!(sorted(done.iter().map(|done| done.tag)).into_iter().eq(0..400), "each once");
        // Once the device knows, a request beyond its end is reported as such.
        image.set_len(0).unwrap();
        bench.device.take_size();
        assert_eq!(bench.ask(&moving(Operation::Read, 0, &[frames(0, PAGE_BYTES)])), Ok(0));
        let full = Err(Errno(libc::ENOSPC));
        assert_eq!(bench.ask(&moving(Operation::Write, 0, &[frames(0, PAGE_BYTES)])), full);
        assert_eq!(bench.ring.in_flight(), 0);
    }
}

#[test]
fn contract_16_a_device_detached_under_requests_ends_them_all() {
    let shape = Shape { bytes: 64 * MIB, logical_block: 512 };
    let Some(mut bench) = Bench::new("detached", shape, Register::Yes) else { return };
    bench.start(400, Operation::Write);
    bench.device.detach();
    let done = wait_for(&mut bench.ring, 400);
    assert!(sorted(done.iter().map(|done| done.tag)).into_iter().eq(0..400), "each once");
    assert!(done.iter().all(|done| done.result == Ok(16 * PAGE)), "who has it open keeps it");
    let Bench { ring, device, .. } = bench;
    drop(ring);
    let deadline = Instant::now() + Duration::from_secs(20);
    while device.has_image() {
        assert!(Instant::now() < deadline, "the ring's end leaves the device open");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A full file system in memory: writes that the device cannot store fail, and others do not.
#[test]
fn contract_16_a_device_that_cannot_store_says_so() {
    let Some(full) = Full::mount("full") else { return };
    let shape = Shape { bytes: 16 * MIB, logical_block: 512 };
    let inside = tempfile::tempdir_in(full.0.path()).unwrap();
    let Some(device) = LoopDevice::new("full", inside, shape) else { return };
    let mut bench = Bench::over(device, Register::Yes);
    bench.start(256, Operation::Write);
    let done = wait_for(&mut bench.ring, 256);
    assert!(sorted(done.iter().map(|done| done.tag)).into_iter().eq(0..256), "each once");
    let (good, bad): (Vec<&Completion>, Vec<&Completion>) =
        done.iter().partition(|done| done.result.is_ok());
    println!("{} good, {} bad, the first {:?}", good.len(), bad.len(), bad.first());
    assert!(good.len() >= 16 && bad.len() >= 128, "{} good, {} bad", good.len(), bad.len());
    let reported =
        |error: Result<u64, Errno>| error == Err(Errno::IO) || error == Err(Errno(libc::ENOSPC));
    assert!(bad.iter().all(|done| reported(done.result)), "{bad:?}");
    drop(bench);
}

/// A memory file system of 4 MiB.
struct Full(TempDir);

impl Full {
    fn mount(test: &str) -> Option<Self> {
        if !process::is_root() {
            process::skip(test, "only root can mount a file system");
            return None;
        }
        let place = tempfile::tempdir().unwrap();
        let options = ["-t", "tmpfs", "-o", "size=4m", "forebay"].map(OsStr::new);
        let arguments: Vec<&OsStr> =
            options.into_iter().chain([place.path().as_os_str()]).collect();
        if let Err(error) = process::run("mount", &arguments) {
            process::skip_or_fail(test, &error);
            return None;
        }
        Some(Self(place))
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        let unmounted = |path: &Path| process::run("umount", &[path.as_os_str()]).is_ok();
        let deadline = Instant::now() + Duration::from_secs(10);
        while !unmounted(self.0.path()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
