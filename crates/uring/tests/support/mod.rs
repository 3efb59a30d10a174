//! Shared by the tests: a place for files, a ring with an arena, and short ways to ask.
#![allow(dead_code)]

pub(crate) mod loop_device;
pub(crate) mod process;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_block::limits::PAGE;
use forebay_block::{
    Bio, Class, Completion, Device, Frame, Operation, Segment, Segments, Source, Tag, Target, Wait,
};
use forebay_uring::{Access, Arena, Create, How, OpenFile, Opened, Ring, Truncate};
use tempfile::TempDir;

/// One page, as the length of a segment.
pub(crate) const PAGE_BYTES: u32 = PAGE as u32;

/// Where files go: `FOREBAY_TEST_DIR`, so that one build can be run over each file system, or the
/// usual place.
pub(crate) fn directory() -> TempDir {
    match std::env::var_os("FOREBAY_TEST_DIR") {
        Some(place) => tempfile::tempdir_in(place).unwrap(),
        None => tempfile::tempdir().unwrap(),
    }
}

pub(crate) fn create(path: &Path) -> Opened {
    let how = How {
        access: Access::ReadWrite,
        create: Create::IfMissing,
        truncate: Truncate::Keep,
        mode: 0o644,
    };
    OpenFile::open(path, &how).unwrap()
}

/// A ring with one file attached as target 0.
pub(crate) struct Bench {
    pub(crate) ring: Ring,
    pub(crate) arena: Arc<Arena>,
    pub(crate) file: Arc<OpenFile>,
    pub(crate) path: PathBuf,
    _directory: TempDir,
}

pub(crate) const FILE: Target = Target(0);

impl Bench {
    pub(crate) fn new(frames: u32, entries: u32) -> Self {
        let directory = directory();
        let path = directory.path().join("file");
        let arena = Arc::new(Arena::new(frames).unwrap());
        let mut ring = match Ring::new(Arc::clone(&arena), entries) {
            Ok(ring) => ring,
            Err(error) => panic!("these tests need io_uring: {error}"),
        };
        let file = Arc::new(create(&path).file);
        ring.attach(FILE, Arc::clone(&file));
        Self { ring, arena, file, path, _directory: directory }
    }

    /// Fills a frame with one byte.
    pub(crate) fn fill(&self, frame: Frame, byte: u8) {
        // SAFETY: the test has one thread and nothing in flight.
        unsafe { self.arena.copy_in(frame, 0, &[byte; PAGE]) };
    }

    pub(crate) fn bytes(&self, frame: Frame) -> Vec<u8> {
        let mut bytes = vec![0; PAGE];
        // SAFETY: as above.
        unsafe { self.arena.copy_out(frame, 0, &mut bytes) };
        bytes
    }

    /// Does one request and gives its result.
    pub(crate) fn ask(&mut self, request: &Bio) -> Result<u64, i32> {
        self.ring.prepare(Tag(0), request).unwrap();
        let done = wait_for(&mut self.ring, 1);
        assert_eq!(done[0].tag, Tag(0));
        done[0].result.map_err(|error| error.0)
    }

    /// Content of the file, as other programs see it.
    pub(crate) fn content(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }
}

/// Rings and reaps until `count` have ended.
pub(crate) fn wait_for(device: &mut impl Device, count: usize) -> Vec<Completion> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut done = Vec::new();
    while done.len() < count {
        assert!(Instant::now() < deadline, "{} of {count} ended in time", done.len());
        device.doorbell(Wait::Something(Some(Duration::from_secs(1)))).unwrap();
        device.reap(&mut done);
    }
    done
}

pub(crate) fn moving(operation: Operation, offset: u64, segments: &[Segment]) -> Bio {
    let length = segments.iter().map(|segment| u64::from(segment.length())).sum();
    Bio {
        operation,
        target: FILE,
        offset,
        length,
        segments: segments.into(),
        class: Class::Waited,
        source: Source(0),
        owner: 0,
    }
}

pub(crate) fn still(operation: Operation, offset: u64, length: u64) -> Bio {
    let (segments, class, source) = (Segments::new(), Class::Waited, Source(0));
    Bio { operation, target: FILE, offset, length, segments, class, source, owner: 0 }
}

pub(crate) fn frames(first: u32, length: u32) -> Segment {
    Segment::frames(Frame(first), length)
}
