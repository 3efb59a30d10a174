//! Writes and flushes of a batch, by several threads.
//!
//! The last bytes of a file, or all of a small one, are written by a thread of the pool, while the
//! program creates the next file. A file that is written is gathered. A full window is flushed by
//! several threads, while the next one is gathered. Flushes that run at the same time share a
//! commit of the journal and a flush of the device's cache; one after the other, each would cost
//! both. Where the file system has little else to write, one `syncfs` serves the whole window: a
//! `fsync` of a file whose commit has ended still flushes the device.
//!
//! Nothing grows without bound: a program that is ahead writes and flushes itself. So a batch has
//! two windows of descriptors at most. Pages are dropped once they are written, and a writer that
//! is faster than the device waits for the oldest bytes it has written.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Weak};

use super::place::Place;
use crate::core::limits::{
    BATCH_BUFFER, BATCH_QUEUED_BYTES, BATCH_QUEUED_FILES, BATCH_UNWRITTEN_BYTES, BATCH_WINDOW,
    BATCH_WRITERS, FLUSH_THREADS,
};
use crate::core::shared::Shared;
use crate::core::threads::Workers;
use crate::platform::PrivateFile;
use crate::platform::sync::{Condvar, Mutex, MutexGuard};
use forebay_cache::limits::PAGE;

/// Flushes of one batch.
pub(super) struct Flushing {
    pool: Arc<Workers>,
    /// Files of a window.
    most: usize,
    unwritten_limit: u64,
    state: Mutex<State>,
    /// Notified when nothing is being written, or nothing is being flushed, any longer.
    idle: Condvar,
}

#[derive(Default)]
struct State {
    /// Files to write, oldest first, and the bytes of their writes.
    writes: VecDeque<Write>,
    write_bytes: usize,
    /// Threads that write, and files that they are writing.
    writers: usize,
    in_writing: usize,
    gathered: Vec<Flush>,
    /// The window that is being flushed.
    window: VecDeque<Flush>,
    in_flight: usize,
    failed: Vec<(usize, io::Error)>,
    /// Bytes that may not be written to the device yet, oldest first.
    unwritten: VecDeque<Unwritten>,
    unwritten_bytes: u64,
}

/// The last write of a file.
pub(super) struct Write {
    pub(super) number: usize,
    pub(super) file: Arc<PrivateFile>,
    pub(super) data: Vec<u8>,
    pub(super) offset: u64,
}

/// Something to flush, and its number for the error.
pub(super) struct Flush {
    pub(super) number: usize,
    pub(super) what: What,
}

pub(super) enum What {
    File(Arc<PrivateFile>),
    Directory(Arc<Place>),
}

impl Flushing {
    /// Creates the flushes of a process that may have this many descriptors.
    pub(super) fn new(shared: &Shared, descriptor_limit: usize) -> Self {
        Self {
            pool: Arc::clone(&shared.flushes),
            // A quarter, for two windows.
            most: (descriptor_limit / 8).clamp(1, BATCH_WINDOW),
            unwritten_limit: BATCH_UNWRITTEN_BYTES.min(shared.level.limit() * PAGE),
            state: Mutex::default(),
            idle: Condvar::new(),
        }
    }

    /// Adds the last write of a file, which is then flushed. The calling thread writes files itself
    /// if the threads are behind.
    pub(super) fn add(self: &Arc<Self>, write: Write) {
        let mut state = self.state.lock();
        state.write_bytes += write.data.len();
        state.writes.push_back(write);
        let is_behind = state.write_bytes > BATCH_QUEUED_BYTES || state.writes.len() > self.most;
        let starts = state.writers < BATCH_WRITERS
            && (state.write_bytes >= BATCH_BUFFER || state.writes.len() >= BATCH_QUEUED_FILES);
        state.writers += usize::from(starts);
        drop(state);
        if starts {
            let writer = Writer(Arc::clone(self));
            // Without a thread, the caller that is ahead writes.
            drop(self.pool.call(move || {
                while writer.0.write_one() {}
                drop(writer);
                Ok(())
            }));
        }
        if is_behind {
            self.write_one();
        }
    }

    /// Writes the oldest file, and lets it be flushed. Returns whether there was one.
    fn write_one(self: &Arc<Self>) -> bool {
        let mut state = self.state.lock();
        let Some(Write { number, file, data, offset }) = state.writes.pop_front() else {
            return false;
        };
        assert!(
            state.write_bytes >= data.len(),
            "writers would be held for bytes that are written"
        );
        state.write_bytes -= data.len();
        state.in_writing += 1;
        drop(state);
        let bytes = offset..offset + data.len() as u64;
        let written = file.write_all_at(&data, offset);
        if written.is_ok() {
            self.note_written(number, &file, bytes);
        }
        let mut state = self.state.lock();
        assert!(state.in_writing > 0, "the commit would not wait for a write");
        state.in_writing -= 1;
        if let Err(error) = written {
            state.failed.push((number, error));
        } else {
            state.gathered.push(Flush { number, what: What::File(file) });
        }
        if !state.is_writing() {
            self.idle.notify_all();
        }
        while state.gathered.len() >= self.most {
            if !state.is_flushing() {
                match self.start(state) {
                    Some(oldest) => {
                        let flushing = Arc::clone(self);
                        drop(self.pool.call(move || {
                            flushing.flush_together(&oldest);
                            Ok(())
                        }));
                    }
                    None => self.flush_each(0),
                }
                break;
            }
            drop(state);
            self.help();
            state = self.wait_while(State::is_flushing);
        }
        true
    }

    /// Flushes everything that was added. Returns the errors, and forgets them.
    pub(super) fn finish(
        self: &Arc<Self>,
        more: impl IntoIterator<Item = Flush>,
    ) -> Vec<(usize, io::Error)> {
        while self.write_one() {}
        let mut state = self.wait_while(State::is_writing);
        state.gathered.extend(more);
        match self.start(state) {
            Some(oldest) => self.flush_together(&oldest),
            None => self.flush_each(1),
        }
        self.help();
        let mut state = self.wait_while(State::is_flushing);
        assert!(state.gathered.is_empty(), "a file would get its name before it is durable");
        std::mem::take(&mut state.failed)
    }

    /// Drops everything that is not being flushed, and does not wait for the rest.
    pub(super) fn give_up(&self) {
        let mut state = self.state.lock();
        let flushes = (std::mem::take(&mut state.gathered), std::mem::take(&mut state.window));
        let dropped = (std::mem::take(&mut state.writes), flushes);
        state.write_bytes = 0;
        drop(state);
        drop(dropped);
    }

    /// Begins the flush of the gathered files. Returns the file that can make all of them durable
    /// with one call; without one, they are flushed side by side.
    fn start(&self, mut state: MutexGuard<'_, State>) -> Option<Arc<PrivateFile>> {
        let State { gathered, window, unwritten_bytes, .. } = &mut *state;
        window.extend(gathered.drain(..));
        let (bytes, count) = (*unwritten_bytes, window.len());
        // The kernel reports an error to those that were open when it came.
        let oldest = window.iter().min_by_key(|flush| flush.number);
        let oldest = match oldest.map(|flush| &flush.what) {
            Some(What::File(file)) => Some(Arc::clone(file)),
            _ => None,
        };
        drop(state);
        oldest.filter(|file| file.may_sync_all(count, bytes))
    }

    /// Flushes the window with one call, or what is left of it. If that fails, each file is
    /// flushed: it may be the failure of another program.
    fn flush_together(self: &Arc<Self>, oldest: &PrivateFile) {
        let mut state = self.state.lock();
        let all = std::mem::take(&mut state.window);
        if all.is_empty() {
            // The batch was given up, or others have flushed it.
            return;
        }
        state.in_flight += all.len();
        drop(state);
        let (count, result) = (all.len(), oldest.sync_all());
        let again = if result.is_ok() { VecDeque::new() } else { all };
        let mut state = self.state.lock();
        assert!(state.in_flight >= count, "the commit would not wait for a flush");
        state.in_flight -= count;
        state.window.extend(again);
        let is_idle = !state.is_flushing();
        drop(state);
        if is_idle {
            self.idle.notify_all();
        } else {
            self.flush_each(1);
            self.help();
        }
    }

    /// Has threads flush the window, beside `helpers` callers.
    fn flush_each(self: &Arc<Self>, helpers: usize) {
        let threads = self.state.lock().window.len().saturating_sub(helpers).min(FLUSH_THREADS);
        for _ in 0..threads {
            let flushing = Arc::clone(self);
            // Without a thread, the caller that waits flushes everything.
            drop(self.pool.call(move || {
                flushing.help();
                Ok(())
            }));
        }
    }

    /// Flushes one thing after the other until none is left to begin.
    fn help(&self) {
        loop {
            let mut state = self.state.lock();
            let Some(Flush { number, what }) = state.window.pop_front() else { return };
            state.in_flight += 1;
            drop(state);
            let result = what.sync();
            // Closes the file.
            drop(what);
            let mut state = self.state.lock();
            assert!(state.in_flight > 0, "the commit would not wait for a flush");
            state.in_flight -= 1;
            state.failed.extend(result.err().map(|error| (number, error)));
            let is_idle = !state.is_flushing();
            drop(state);
            if is_idle {
                self.idle.notify_all();
            }
        }
    }

    fn wait_while(&self, is_busy: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        while is_busy(&state) {
            state = self.idle.wait(state);
        }
        state
    }

    /// Notes bytes that were given to the kernel. Waits for the oldest ones if too many may not be
    /// written yet.
    pub(super) fn note_written(&self, number: usize, file: &Arc<PrivateFile>, bytes: Range<u64>) {
        let mut state = self.state.lock();
        state.unwritten_bytes += charge(&bytes);
        state.unwritten.push_back(Unwritten { number, file: Arc::downgrade(file), bytes });
        while state.unwritten_bytes > self.unwritten_limit
            && let Some(Unwritten { number, file, bytes }) = state.unwritten.pop_front()
        {
            assert!(state.unwritten_bytes >= charge(&bytes), "writers would wait for the device");
            state.unwritten_bytes -= charge(&bytes);
            drop(state);
            // A file that is flushed already is closed.
            let written = file.upgrade().map_or(Ok(()), |file| file.write_back(bytes));
            state = self.state.lock();
            // The kernel reports it once, so the flush may end well without these bytes.
            state.failed.extend(written.err().map(|error| (number, error)));
        }
    }
}

/// Returns the bytes that a write counts for: whole pages, so that the list of writes is short.
fn charge(bytes: &Range<u64>) -> u64 {
    (bytes.end - bytes.start).next_multiple_of(PAGE).max(PAGE)
}

/// Bytes that may not be written to the device yet.
struct Unwritten {
    number: usize,
    file: Weak<PrivateFile>,
    bytes: Range<u64>,
}

/// A thread that writes, until dropped.
struct Writer(Arc<Flushing>);

impl Drop for Writer {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        assert!(state.writers > 0, "no thread would be started for writes");
        state.writers -= 1;
    }
}

impl State {
    fn is_writing(&self) -> bool {
        !self.writes.is_empty() || self.in_writing > 0
    }

    fn is_flushing(&self) -> bool {
        !self.window.is_empty() || self.in_flight > 0
    }
}

impl What {
    fn sync(&self) -> io::Result<()> {
        match self {
            Self::File(file) => file.sync(),
            Self::Directory(place) => place.sync(),
        }
    }
}
