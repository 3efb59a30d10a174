//! The threads and what they have to do.
//!
//! One lock around two lists, not a lock-free list: a thread with nothing to do must sleep anyway,
//! and a doorbell takes the lock once for all it hands over. Within a class jobs are begun in the
//! order they came; what somebody waits for goes before what nobody does, but for one in [`TURN`],
//! so that neither waits for ever.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

use forebay_block::Class;
use forebay_lists::fifo;

use super::bell::Bell;
use super::job::{Ended, Job};
use super::signals;
use crate::arena::Arena;

/// After so many that somebody waits for, one that nobody does.
const TURN: u32 = 8;

/// Bytes of a thread's stack: its calls are a few frames deep.
const STACK_BYTES: usize = 128 << 10;

/// What the threads share with their owner.
#[derive(Debug)]
pub(super) struct Pool {
    jobs: Mutex<Jobs>,
    more: Condvar,
    ended: fifo::Sender<Ended>,
    pub(super) bell: Bell,
    /// Held here so that a thread inside a call keeps the memory, whoever else is gone.
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
    stop: bool,
}

impl Jobs {
    fn next(&mut self) -> Option<Job> {
        let turn = self.passed >= TURN || self.waited.is_empty();
        if turn && let Some(job) = self.background.pop_front() {
            self.passed = 0;
            return Some(job);
        }
        self.passed = self.passed.saturating_add(1);
        self.waited.pop_front()
    }
}

impl Pool {
    pub(super) fn new(arena: Arc<Arena>, ended: fifo::Sender<Ended>) -> io::Result<Self> {
        let (bell, alive) = (Bell::new()?, OnceLock::new());
        Ok(Self { jobs: Mutex::default(), more: Condvar::new(), ended, bell, arena, alive })
    }

    /// Hands jobs over, and wakes as many threads as there is work for.
    pub(super) fn give(&self, staged: &mut Vec<Job>) {
        let count = staged.len();
        let mut jobs = self.jobs();
        for job in staged.drain(..) {
            match job.class {
                Class::Waited => jobs.waited.push_back(job),
                Class::Background => jobs.background.push_back(job),
            }
        }
        let wake = jobs.idle.min(count);
        drop(jobs);
        for _ in 0..wake {
            self.more.notify_one();
        }
    }

    /// What no thread has begun is not done any more, and the threads end.
    pub(super) fn stop(&self) {
        let mut jobs = self.jobs();
        jobs.stop = true;
        let given_up = (std::mem::take(&mut jobs.waited), std::mem::take(&mut jobs.background));
        drop(jobs);
        self.more.notify_all();
        // Files are closed without the lock.
        drop(given_up);
    }

    /// The next job; `None` when the thread is to end.
    fn next(&self) -> Option<Job> {
        let mut jobs = self.jobs();
        loop {
            if jobs.stop {
                return None;
            }
            if let Some(job) = jobs.next() {
                return Some(job);
            }
            jobs.idle += 1;
            jobs = self.more.wait(jobs).unwrap_or_else(PoisonError::into_inner);
            jobs.idle -= 1;
        }
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            // The bell counts, so whether the list was empty does not matter.
            let _ = self.ended.push(job.run());
            self.bell.count();
        }
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts so many threads; none stays where one cannot be started.
pub(super) fn start(pool: &Arc<Pool>, count: usize) -> io::Result<Vec<JoinHandle<()>>> {
    let start_one = |number: usize| {
        let pool = Arc::clone(pool);
        let name = format!("forebay-io-{number}");
        thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(move || pool.work())
    };
    let started: io::Result<Vec<JoinHandle<()>>> =
        signals::blocked(|| (0..count).map(start_one).collect())?;
    if started.is_err() {
        pool.stop();
    }
    started
}

#[cfg(test)]
mod tests {
    use forebay_block::{Operation, Tag};

    use super::*;
    use crate::vectors::Shape;
    use crate::{Access, Create, File, How, Truncate};

    #[test]
    fn contract_15_jobs_are_begun_in_order_and_neither_class_waits_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let how = How {
            access: Access::ReadWrite,
            create: Create::New,
            truncate: Truncate::Keep,
            mode: 0o600,
        };
        let file = Arc::new(File::open(&directory.path().join("file"), &how).unwrap().file);
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
        let order: Vec<u16> = std::iter::from_fn(|| jobs.next()).map(|job| job.tag.0).collect();
        let expected: Vec<u16> =
            (0..8).chain([100]).chain(8..16).chain([101]).chain(16..20).chain(102..120).collect();
        assert_eq!(order, expected);
    }
}
