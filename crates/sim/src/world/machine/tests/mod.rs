//! The machine as its users see it: files, backends, leases and losses of power.

mod backends;
mod directories;
mod leases;
mod losses;
mod moves;
mod names;
mod puts;
mod requests;
mod space;
mod swarm;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_block::limits::PAGE;
use forebay_block::{
    Bio, Class, Completion, Device as _, Errno, Frame, Operation, Segment, Segments, Source, Tag,
    Target, Wait,
};
use forebay_uring::{Access, Arena, Choice, Create, How, Truncate};

use super::{MachinePlan, VolumePlan, install};
use crate::platform::{Backend, OpenFile, Opened};
use crate::random::PerMille;
use crate::trace::Tracing;
use crate::world::{self, Settings, memory, run};

/// Settings with some preemption, and events that come early at times.
fn settings(seed: u64) -> Settings {
    Settings {
        seed,
        preemption: PerMille(200),
        events: PerMille(300),
        leaps: PerMille(0),
        spurious: PerMille(0),
        processors: 0,
        tracing: Tracing::Off,
        steps: 1_000_000,
    }
}

/// Runs a test on a machine.
fn on<T: 'static>(plan: MachinePlan, seed: u64, body: impl FnOnce() -> T + 'static) -> T {
    let run = run(settings(seed), move || {
        install(plan);
        body()
    });
    run.unwrap_or_else(|failure| panic!("seed {seed}: {failure}")).0
}

/// Runs a test on a machine with one file system like XFS, without faults.
fn calm<T: 'static>(body: impl FnOnce() -> T + 'static) -> T {
    on(MachinePlan::calm(vec![VolumePlan::xfs()]), 1, body)
}

fn how(create: Create) -> How {
    How { access: Access::ReadWrite, create, truncate: Truncate::Keep, mode: 0o600 }
}

fn open(path: &str, create: Create) -> std::io::Result<Opened> {
    OpenFile::open(Path::new(path), &how(create))
}

fn make(path: &str) -> OpenFile {
    let Opened { file, created } = open(path, Create::New).unwrap();
    assert!(created);
    file
}

fn errno(error: &std::io::Error) -> i32 {
    error.raw_os_error().unwrap_or(0)
}

/// A backend with an arena and one file, as number 0.
struct Rig {
    arena: Arc<Arena>,
    backend: Backend,
    file: Arc<OpenFile>,
    tag: u16,
}

const TARGET: Target = Target(0);

impl Rig {
    fn new(choice: Choice, file: Arc<OpenFile>) -> Self {
        let arena = Arc::new(Arena::private(64).unwrap());
        let mut backend = Backend::chosen(choice, Arc::clone(&arena), 64).unwrap();
        backend.attach(TARGET, Arc::clone(&file));
        Self { arena, backend, file, tag: 0 }
    }

    fn fill(&self, frame: u32, byte: u8) {
        memory::scatter(&self.arena, Segment::frames(Frame(frame), PAGE as u32), &[byte; PAGE]);
    }

    fn frame(&self, frame: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        memory::gather(&self.arena, Segment::frames(Frame(frame), PAGE as u32), &mut bytes);
        bytes
    }

    /// Stages a request under the next tag.
    fn prepare(&mut self, bio: &Bio) -> Tag {
        self.tag += 1;
        self.backend.prepare(Tag(self.tag), bio).unwrap();
        Tag(self.tag)
    }

    /// Rings the doorbell until `count` requests have ended.
    fn wait(&mut self, count: usize) -> Vec<Completion> {
        let mut ended = Vec::new();
        while ended.len() < count {
            self.backend.doorbell(Wait::Something(None)).unwrap();
            self.backend.reap(&mut ended);
        }
        ended
    }

    /// Does one request.
    fn act(&mut self, bio: &Bio) -> Result<u64, Errno> {
        let tag = self.prepare(bio);
        let [Completion { tag: ended, result }] = self.wait(1)[..] else {
            panic!("one request has one end")
        };
        assert_eq!(tag, ended);
        result
    }

    /// Writes whole pages of one byte, from one frame each.
    fn write(&mut self, page: u64, frames: std::ops::Range<u32>, byte: u8) -> Result<u64, Errno> {
        frames.clone().for_each(|frame| self.fill(frame, byte));
        self.act(&pages(Operation::Write, page, frames))
    }

    fn flush(&mut self) -> Result<u64, Errno> {
        self.act(&plain(Operation::FlushData, 0, 0))
    }
}

fn bio(operation: Operation, offset: u64, length: u64, segments: Segments) -> Bio {
    Bio {
        operation,
        target: TARGET,
        offset,
        length,
        segments,
        class: Class::Waited,
        source: Source(0),
        owner: 0,
    }
}

fn plain(operation: Operation, offset: u64, length: u64) -> Bio {
    bio(operation, offset, length, Segments::new())
}

fn pages(operation: Operation, page: u64, frames: std::ops::Range<u32>) -> Bio {
    let length = frames.len() as u32 * PAGE as u32;
    let segment = Segment::frames(Frame(frames.start), length);
    bio(operation, page * PAGE as u64, u64::from(length), [segment].into_iter().collect())
}

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// Spawns a task of another process.
fn spawn_other(name: &str, body: impl FnOnce() + 'static) -> world::Process {
    let process = world::new_process(name);
    world::spawn(process, name, body);
    process
}
