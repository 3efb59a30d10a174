//! The threads and their jobs.
//!
//! One lock around two lists, not a lock-free list: a thread with nothing to do must sleep anyway,
//! and a doorbell takes the lock once for all it hands over. Within a class jobs of a device are
//! begun in the order they came; waited jobs go before background ones, but for one in [`TURN`], so
//! that neither waits for ever.
//!
//! ```text
//! a job's device has a thread to spare? --yes--> an idle thread, or a new one
//!                     \--no: as many as WORKERS are inside its calls--> stays, others pass it
//! ```

use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

use forebay_block::Class;
use forebay_block::limits::TAGS;
use forebay_lists::fifo;

use super::WORKERS;
use super::bell::Bell;
use super::masked;
use crate::arena::Arena;
use crate::job::{Ended, Job};

/// After so many that somebody waits for, one that nobody does.
const TURN: u32 = 8;

/// Bytes of a thread's stack: its calls are a few frames deep.
const STACK_BYTES: usize = 128 << 10;

/// State shared by the threads and their owner.
#[derive(Debug)]
pub(super) struct Pool {
    jobs: Mutex<Jobs>,
    more: Condvar,
    ended: fifo::Sender<Ended>,
    pub(super) bell: Bell,
    /// Held here so that a thread inside a call keeps the memory.
    pub(super) arena: Arc<Arena>,
    /// Likewise: a thread inside a call is not gone.
    pub(super) alive: OnceLock<OwnedFd>,
}

#[derive(Debug, Default)]
struct Jobs {
    waited: VecDeque<Job>,
    background: VecDeque<Job>,
    /// How many were taken from the first since one was from the second.
    passed: u32,
    /// Threads with nothing to do.
    idle: usize,
    /// Threads that are inside a call, by the device.
    inside: HashMap<u64, usize>,
    /// Threads started because others were all inside calls.
    more: Vec<JoinHandle<()>>,
    stop: bool,
}

const _: () = assert!(WORKERS < TAGS, "a device that hangs leaves tags, and threads, to others");

impl Jobs {
    /// The next one whose device may have one more thread; it has, from here on.
    fn next(&mut self) -> Option<Job> {
        let Self { waited, background, inside, .. } = self;
        let first = |jobs: &VecDeque<Job>| {
            jobs.iter().position(|job| has_room(inside, job.file.identity().device))
        };
        let (mut from_waited, mut from_background) = (first(waited), first(background));
        if self.passed >= TURN && from_background.is_some() {
            from_waited = None;
        } else if from_waited.is_some() {
            from_background = None;
        }
        let job = match (from_waited, from_background) {
            (Some(at), _) => {
                self.passed = self.passed.saturating_add(1);
                self.waited.remove(at)
            }
            (None, Some(at)) => {
                self.passed = 0;
                self.background.remove(at)
            }
            (None, None) => None,
        }?;
        *self.inside.entry(job.file.identity().device).or_default() += 1;
        Some(job)
    }

    /// A thread is through with a call.
    fn end(&mut self, device: u64) {
        let inside = self.inside.get_mut(&device).expect("it was begun");
        assert!(*inside > 0, "a thread is through with a call once");
        *inside -= 1;
    }

    /// Jobs that may begin as soon as a thread is free.
    fn ready(&self) -> usize {
        let mut ready = 0;
        let mut inside = self.inside.clone();
        for job in self.waited.iter().chain(&self.background) {
            let device = job.file.identity().device;
            if has_room(&inside, device) {
                *inside.entry(device).or_default() += 1;
                ready += 1;
            }
        }
        ready
    }
}

fn has_room(inside: &HashMap<u64, usize>, device: u64) -> bool {
    inside.get(&device).is_none_or(|inside| *inside < WORKERS)
}

impl Pool {
    pub(super) fn new(arena: Arc<Arena>, ended: fifo::Sender<Ended>) -> io::Result<Self> {
        let (bell, alive) = (Bell::new()?, OnceLock::new());
        Ok(Self { jobs: Mutex::default(), more: Condvar::new(), ended, bell, arena, alive })
    }

    /// Hands jobs over, and wakes as many threads as there is work for; starts some where all are
    /// inside calls, of other devices.
    pub(super) fn give(self: &Arc<Self>, staged: &mut Vec<Job>) {
        let count = staged.len();
        let mut jobs = self.jobs();
        for job in staged.drain(..) {
            match job.class {
                Class::Waited => jobs.waited.push_back(job),
                Class::Background => jobs.background.push_back(job),
            }
        }
        let wake = jobs.idle.min(count);
        let threads = WORKERS + jobs.more.len();
        // Those not inside a call take jobs, sooner or later.
        let free = threads.saturating_sub(jobs.inside.values().sum());
        let missing =
            if free < count { jobs.ready().saturating_sub(free).min(TAGS - threads) } else { 0 };
        drop(jobs);
        for _ in 0..wake {
            self.more.notify_one();
        }
        if missing > 0 {
            match start(self, threads..threads + missing) {
                Ok(more) => self.jobs().more.extend(more),
                Err(error) => tracing::warn!(%error, "a device that hangs may hold up others"),
            }
        }
    }

    /// Drops the jobs that were not begun and ends the threads. Returns those that were started
    /// later.
    pub(super) fn stop(&self) -> Vec<JoinHandle<()>> {
        let mut jobs = self.jobs();
        jobs.stop = true;
        let given_up = (std::mem::take(&mut jobs.waited), std::mem::take(&mut jobs.background));
        let more = std::mem::take(&mut jobs.more);
        drop(jobs);
        self.more.notify_all();
        // Files are closed without the lock.
        drop(given_up);
        more
    }

    /// The next job, after one of a device; `None` when the thread is to end.
    fn next(&self, ended: Option<u64>) -> Option<Job> {
        let mut jobs = self.jobs();
        if let Some(device) = ended {
            jobs.end(device);
        }
        loop {
            if jobs.stop {
                return None;
            }
            if let Some(job) = jobs.next() {
                // The end of a call may have made room for a job that an idle thread can take.
                let is_left = !jobs.waited.is_empty() || !jobs.background.is_empty();
                if jobs.idle > 0 && is_left && !jobs.more.is_empty() {
                    self.more.notify_one();
                }
                return Some(job);
            }
            jobs.idle += 1;
            jobs = self.more.wait(jobs).unwrap_or_else(PoisonError::into_inner);
            jobs.idle -= 1;
        }
    }

    fn work(&self) {
        let mut ended = None;
        while let Some(job) = self.next(ended) {
            ended = Some(job.file.identity().device);
            // The bell counts, so whether the list was empty does not matter.
            let _ = self.ended.push(job.run());
            self.bell.count();
        }
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the threads of these numbers; those that could be started stay where one could not.
pub(super) fn start(pool: &Arc<Pool>, numbers: Range<usize>) -> io::Result<Vec<JoinHandle<()>>> {
    let start_one = |number: usize| {
        let pool = Arc::clone(pool);
        let name = format!("forebay-io-{number}");
        thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(move || pool.work())
    };
    masked::blocked(|| numbers.map(start_one).collect())?
}

#[cfg(test)]
mod tests {
    use forebay_block::{Operation, Tag};

    use super::*;
    use crate::vectors::Shape;
    use crate::{Access, Create, How, OpenFile, Truncate};

    #[test]
    fn contract_15_jobs_are_begun_in_order_and_neither_class_waits_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let how = How {
            access: Access::ReadWrite,
            create: Create::New,
            truncate: Truncate::Keep,
            mode: 0o600,
        };
        let file = Arc::new(OpenFile::open(&directory.path().join("file"), &how).unwrap().file);
        let mut jobs = Jobs::default();
        let job = |tag: u16, class: Class| Job {
            tag: Tag(tag),
            operation: Operation::FlushData,
            offset: 0,
            length: 0,
            class,
            file: Arc::clone(&file),
            shape: Shape::default(),
        };
        for tag in 0..20 {
            jobs.background.push_back(job(100 + tag, Class::Background));
            jobs.waited.push_back(job(tag, Class::Waited));
        }
        let next = || {
            let job = jobs.next()?;
            jobs.end(job.file.identity().device);
            Some(job.tag.0)
        };
        let order: Vec<u16> = std::iter::from_fn(next).collect();
        let expected: Vec<u16> =
            (0..8).chain([100]).chain(8..16).chain([101]).chain(16..20).chain(102..120).collect();
        assert_eq!(order, expected);
    }

    #[test]
    fn contract_15_a_device_has_no_more_threads_than_its_share() {
        let places = ["/dev/shm", "."].map(|place| tempfile::tempdir_in(place).unwrap());
        let [hung, other] = places.each_ref().map(|place| {
            let how = How {
                access: Access::ReadWrite,
                create: Create::New,
                truncate: Truncate::Keep,
                mode: 0o600,
            };
            Arc::new(OpenFile::open(&place.path().join("file"), &how).unwrap().file)
        });
        if hung.identity().device == other.identity().device {
            return println!("skipped: /dev/shm is no file system of its own");
        }
        let mut jobs = Jobs::default();
        let job = |tag: usize, file: &Arc<OpenFile>| Job {
            tag: Tag(u16::try_from(tag).unwrap()),
            operation: Operation::FlushData,
            offset: 0,
            length: 0,
            class: Class::Waited,
            file: Arc::clone(file),
            shape: Shape::default(),
        };
        jobs.waited.extend((0..WORKERS + 5).map(|tag| job(tag, &hung)));
        jobs.waited.extend((200..203).map(|tag| job(tag, &other)));
        assert_eq!(jobs.ready(), WORKERS + 3);
        let begun: Vec<u16> = std::iter::from_fn(|| jobs.next()).map(|job| job.tag.0).collect();
        assert!(begun.iter().copied().eq((0..WORKERS as u16).chain(200..203)), "{begun:?}");
        assert_eq!(jobs.ready(), 0);
        jobs.end(hung.identity().device);
        assert_eq!(jobs.next().map(|job| job.tag), Some(Tag(WORKERS as u16)));
    }
}
