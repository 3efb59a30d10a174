//! One file, its byte array, and random operations on both.
//!
//! ```text
//!   in turn: one operation after the other, each through a random handle
//!      |  ^
//!      v  |  several handles only
//!   side by side: each thread reads, writes and copies in a part of its own; the end stays
//! ```

use std::collections::VecDeque;
use std::path::Path;

use forebay::Engine;
use forebay_block::random::Random;

use crate::operation::{Operation, difference};
use crate::part::Part;
use crate::support::disturb;
use crate::support::handle::{Handle, Kind};
use crate::support::how;
use crate::support::pattern;

/// Largest sizes of files: of fsx, small, and with all files together more than the cache.
const SIZES: [u64; 3] = [256 << 10, 40_000, 3 << 20];

/// Operations in a message about a failure.
const LOGGED: usize = 400;

/// How a file is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) kind: Kind,
    /// Threads that use the file at the same time, each with a handle.
    pub(crate) threads: usize,
}

/// Events of a run.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counts {
    pub(crate) operations: u64,
    syncs: u64,
    /// Comparisons of the whole file, read by the standard library.
    on_disk: u64,
    /// Times that an open of the other program took the lease.
    lease_breaks: u64,
    /// Operations that found the lease held.
    leased: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, more: Self) {
        self.operations += more.operations;
        self.syncs += more.syncs;
        self.on_disk += more.on_disk;
        self.lease_breaks += more.lease_breaks;
        self.leased += more.leased;
    }
}

/// Operations that a handle allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Writer,
    Reader,
    Appender,
}

struct Opened {
    handle: Handle,
    role: Role,
}

pub(crate) struct Exerciser<'a> {
    engine: &'a Engine,
    path: &'a Path,
    shape: Shape,
    seed: u64,
    random: Random,
    size: u64,
    model: Vec<u8>,
    /// The first is a writer.
    handles: Vec<Opened>,
    /// Whether each sync is followed by a comparison on disk, which takes the lease.
    is_watched: bool,
    was_leased: bool,
    log: VecDeque<Operation>,
    counts: Counts,
}

impl<'a> Exerciser<'a> {
    pub(crate) fn new(engine: &'a Engine, path: &'a Path, shape: Shape, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let size = SIZES[random.below(3) as usize];
        let handle = Handle::open(engine, shape.kind, path, &how::create_new()).unwrap();
        Self {
            engine,
            path,
            shape,
            seed,
            random,
            size,
            model: Vec::new(),
            was_leased: handle.is_leased(),
            handles: vec![Opened { handle, role: Role::Writer }],
            is_watched: false,
            log: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    pub(crate) fn run(mut self, operations: u64) -> Counts {
        while self.counts.operations < operations {
            self.step();
            if self.shape.threads > 1 && self.random.below(60) == 0 {
                self.side_by_side();
            }
        }
        for opened in std::mem::take(&mut self.handles) {
            self.done(opened.handle.close());
        }
        self.check_on_disk();
        self.counts
    }

    fn step(&mut self) {
        let operation = Operation::draw(&mut self.random, self.size, self.model.len() as u64);
        self.log(operation);
        self.counts.operations += 1;
        match operation {
            Operation::Read { at, length } => self.read(at, length),
            Operation::Stream { at, length, pieces } => {
                (0..pieces).for_each(|piece| self.read(at + piece * length as u64, length));
            }
            Operation::Write { at, length, salt } => self.write(at, &pattern(salt, length)),
            Operation::WriteAligned { at, length, salt } => {
                let mut memory = vec![0; length + 4096];
                let skew = memory.as_ptr().align_offset(4096);
                memory[skew..skew + length].copy_from_slice(&pattern(salt, length));
                self.write(at, &memory[skew..skew + length]);
            }
            Operation::Append { length, salt } => self.append(&pattern(salt, length)),
            Operation::Copy { from, to, length } => {
                let end = (from as usize + length).min(self.model.len());
                let data = self.model[(from as usize).min(end)..end].to_vec();
                let found = self.any(|_| true).read(from, length);
                let found = self.done(found);
                self.compare(from, &found, &data);
                self.write(to, &found);
            }
            Operation::SetLength(length) => {
                let result = self.any(|role| role == Role::Writer).set_len(length);
                self.done(result);
                self.model.resize(length as usize, 0);
            }
            Operation::SyncData | Operation::SyncAll => self.sync(operation),
            Operation::Reopen => self.reopen(),
            Operation::Open => self.open_another(),
            Operation::Close => self.close_one(),
            Operation::Pause(time) => std::thread::sleep(time),
        }
        let found = self.any(|_| true).len();
        if found != self.model.len() as u64 {
            self.fail(&format!("the length is {found}, not {}", self.model.len()));
        }
        let is_leased = self.handles[0].handle.is_leased();
        self.counts.lease_breaks += u64::from(self.was_leased && !is_leased);
        self.counts.leased += u64::from(is_leased);
        self.was_leased = is_leased;
    }

    /// A random handle among those that may do something. The first may do everything.
    fn any(&mut self, may: impl Fn(Role) -> bool) -> &Handle {
        let which = self.random.below(self.handles.len() as u64) as usize;
        let opened = &self.handles[which];
        if may(opened.role) { &opened.handle } else { &self.handles[0].handle }
    }

    fn read(&mut self, at: u64, length: usize) {
        let found = self.any(|_| true).read(at, length);
        let found = self.done(found);
        let end = (at as usize + length).min(self.model.len());
        let expected = &self.model[(at as usize).min(end)..end];
        self.compare(at, &found, expected);
    }

    fn write(&mut self, at: u64, data: &[u8]) {
        let result = self.any(|role| role == Role::Writer).write(data, at);
        self.done(result);
        self.put(at as usize, data);
    }

    fn append(&mut self, data: &[u8]) {
        let at = self.any(|role| role != Role::Reader).append(data);
        let at = self.done(at);
        if at != self.model.len() as u64 {
            self.fail(&format!("appended at {at}, not {}", self.model.len()));
        }
        self.put(at as usize, data);
    }

    fn put(&mut self, at: usize, data: &[u8]) {
        // A write of nothing does not move the end.
        if !data.is_empty() {
            self.model.resize(self.model.len().max(at + data.len()), 0);
            self.model[at..at + data.len()].copy_from_slice(data);
        }
    }

    fn sync(&mut self, how: Operation) {
        let handle = self.any(|_| true);
        let result = match how {
            Operation::SyncData => handle.sync_data(),
            _ => handle.sync_all(),
        };
        self.done(result);
        self.counts.syncs += 1;
        let size = std::fs::metadata(self.path).unwrap().len();
        if size != self.model.len() as u64 {
            self.fail(&format!("after a sync the file has {size} bytes, not {}", self.model.len()));
        }
        // The comparison opens the file, and so takes the lease: not in every life of the file.
        if self.is_watched || self.random.below(32) == 0 {
            self.note_break();
            self.check_on_disk();
            self.was_leased = false;
        }
    }

    fn reopen(&mut self) {
        for opened in std::mem::take(&mut self.handles) {
            self.done(opened.handle.close());
        }
        self.check_on_disk();
        self.is_watched = self.random.below(2) == 0;
        let writer = self.open(Role::Writer);
        self.was_leased = writer.is_leased();
        self.handles.push(Opened { handle: writer, role: Role::Writer });
    }

    fn open_another(&mut self) {
        let roles = [Role::Writer, Role::Reader, Role::Appender];
        let role = match roles[self.random.below(3) as usize] {
            // A direct file has no handles for appending.
            Role::Appender if self.shape.kind == Kind::Direct => Role::Reader,
            role => role,
        };
        if self.handles.len() < 4 {
            self.note_break();
            let handle = self.open(role);
            self.handles.push(Opened { handle, role });
            // It may have taken the lease again.
            self.was_leased = self.handles[0].handle.is_leased();
        }
    }

    fn open(&mut self, role: Role) -> Handle {
        let mut open = match role {
            Role::Writer => how::write(),
            Role::Reader => how::read(),
            Role::Appender => how::append(),
        };
        if self.random.below(4) == 0 {
            open.uncached(self.random.below(2) == 0);
        }
        let opened = Handle::open(self.engine, self.shape.kind, self.path, &open);
        self.done(opened)
    }

    fn close_one(&mut self) {
        if self.handles.len() > 1 {
            let which = 1 + self.random.below(self.handles.len() as u64 - 1) as usize;
            let Opened { handle, .. } = self.handles.swap_remove(which);
            if self.random.below(2) == 0 {
                drop(handle);
            } else {
                self.done(handle.close());
            }
        }
    }

    /// Counts a break that happened since the last operation, before this test takes the lease.
    fn note_break(&mut self) {
        let is_leased = self.handles[0].handle.is_leased();
        self.counts.lease_breaks += u64::from(self.was_leased && !is_leased);
        self.was_leased = is_leased;
    }

    /// Threads read, write, copy and sync, each through a handle and in a part of its own. Parts
    /// meet within a page, and the end of the file stays where it is.
    fn side_by_side(&mut self) {
        let part = self.model.len() / self.shape.threads + 1;
        if part < 500 {
            return;
        }
        while self.handles.iter().filter(|opened| opened.role == Role::Writer).count()
            < self.shape.threads
        {
            let handle = self.open(Role::Writer);
            self.handles.push(Opened { handle, role: Role::Writer });
        }
        self.was_leased = self.handles[0].handle.is_leased();
        let operations = 1 + self.random.below(100);
        let seeds: Vec<u64> = (0..self.shape.threads).map(|_| self.random.draw()).collect();
        let writers =
            self.handles.iter().filter(|opened| opened.role == Role::Writer).map(|one| &one.handle);
        let parts = self.model.chunks_mut(part).zip(writers).zip(seeds);
        let failed: Vec<String> = std::thread::scope(|scope| {
            let start = |(number, ((model, handle), seed)): (usize, ((&'_ mut [u8], _), _))| {
                let start = (number * part) as u64;
                Part { model, start, handle, random: Random::new(seed) }.run(operations)
            };
            let running: Vec<_> =
                parts.enumerate().map(|part| scope.spawn(move || start(part))).collect();
            running.into_iter().filter_map(|part| part.join().unwrap().err()).collect()
        });
        if !failed.is_empty() {
            self.fail(&format!("side by side: {}", failed.join("; ")));
        }
        self.counts.operations += operations * self.shape.threads as u64;
    }

    fn check_on_disk(&mut self) {
        let found = std::fs::read(self.path).unwrap();
        self.compare(0, &found, &self.model);
        self.counts.on_disk += 1;
    }

    fn compare(&self, at: u64, found: &[u8], expected: &[u8]) {
        if let Some(wrong) = difference(at, found, expected) {
            self.fail(&wrong);
        }
    }

    fn done<T>(&self, result: forebay::Result<T>) -> T {
        result.unwrap_or_else(|error| self.fail(&error.to_string()))
    }

    fn log(&mut self, operation: Operation) {
        if self.log.len() == LOGGED {
            self.log.pop_front();
        }
        self.log.push_back(operation);
    }

    fn fail(&self, what: &str) -> ! {
        for operation in &self.log {
            println!("{operation:?}");
        }
        panic!(
            "{}, file of seed {}, operation {}: {what}; {}; the operations before are above",
            self.path.display(),
            self.seed,
            self.counts.operations,
            disturb::settings(self.engine),
        );
    }
}
