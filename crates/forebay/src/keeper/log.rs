//! The log of a keeper: one line per event, to a file or to standard error. A keeper logs nothing
//! while its program lives.
//!
//! A slow reader must not block the keeper: a pipe may be full, or a file may be on a hung device.
//! So a separate thread writes the lines. At the end the keeper waits for it, for a bounded time.

use std::collections::VecDeque;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::core::limits::{KEEPER_LOG_LINES, KEEPER_LOG_PATIENCE};
use crate::platform::sync::{Condvar, Mutex};

/// Log of a keeper.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Log file; if unset, standard error.
    file: Option<Arc<File>>,
    lines: Arc<Lines>,
}

/// Lines that are not written yet.
#[derive(Debug, Default)]
struct Lines {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Lines in order; the first one is being written.
    lines: VecDeque<String>,
    has_writer: bool,
    /// Number of lines written.
    written: u64,
    /// Value of `written` when the last wait ran out of time.
    stuck_at: Option<u64>,
}

impl Log {
    /// Creates a log that appends to a file, or writes to standard error.
    pub(crate) fn to(path: Option<&Path>) -> io::Result<Self> {
        let open = |path| {
            OpenOptions::new().append(true).create(true).mode(0o600).open(path).map(Arc::new)
        };
        Ok(Self { file: path.map(open).transpose()?, lines: Arc::default() })
    }

    /// Logs one line. Never fails: a line that cannot be logged is dropped.
    pub(crate) fn say(&self, what: fmt::Arguments<'_>) {
        let process = std::process::id();
        let line = match &self.file {
            Some(_) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                format!(
                    "{}.{:03} forebay-keeper[{process}]: {what}\n",
                    now.as_secs(),
                    now.subsec_millis()
                )
            }
            None => format!("forebay-keeper[{process}]: {what}\n"),
        };
        // While lines are being written, however slowly, no line is dropped.
        if self.lines.wait_for_fewer_than(KEEPER_LOG_LINES) {
            let mut state = self.lines.state.lock();
            state.lines.push_back(line);
            state.has_writer = state.has_writer || self.start_writer();
            self.lines.changed.notify_all();
        }
    }

    /// Waits until all lines are written, or none was written for a while.
    pub(crate) fn flush(&self) {
        let _ = self.lines.wait_for_fewer_than(1);
    }

    fn start_writer(&self) -> bool {
        let file = match &self.file {
            Some(file) => Ok(Arc::clone(file)),
            // Without the lock of standard error, which the panic handler needs too.
            None => io::stderr().as_fd().try_clone_to_owned().map(File::from).map(Arc::new),
        };
        let Ok(file) = file else { return false };
        let lines = Arc::clone(&self.lines);
        std::thread::Builder::new()
            .name("forebay-log".into())
            .spawn(move || lines.write(&file))
            .is_ok()
    }
}

impl Lines {
    fn write(&self, mut file: &File) {
        let mut state = self.state.lock();
        loop {
            let Some(line) = state.lines.front().cloned() else {
                state = self.changed.wait(state);
                continue;
            };
            drop(state);
            let _ = file.write_all(line.as_bytes());
            state = self.state.lock();
            state.lines.pop_front();
            state.written += 1;
            self.changed.notify_all();
        }
    }

    /// Returns whether fewer than `count` lines are left. Waits as long as lines are being written.
    /// After a wait without progress, does not wait again before the next line is written.
    fn wait_for_fewer_than(&self, count: usize) -> bool {
        let mut state = self.state.lock();
        while state.lines.len() >= count && state.stuck_at != Some(state.written) {
            let before = state.written;
            let deadline = Instant::now() + KEEPER_LOG_PATIENCE;
            let mut is_late = false;
            while state.written == before && !is_late {
                (state, is_late) = self.changed.wait_until(state, Some(deadline));
            }
            state.stuck_at = (state.written == before).then_some(before);
        }
        state.lines.len() < count
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::os::fd::OwnedFd;

    use super::*;

    /// Returns a log to a pipe, and the reader.
    fn piped() -> (Log, BufReader<io::PipeReader>) {
        let (reader, writer) = io::pipe().unwrap();
        let file = Some(Arc::new(File::from(OwnedFd::from(writer))));
        (Log { file, lines: Arc::default() }, BufReader::new(reader))
    }

    #[test]
    fn a_reader_that_is_late_blocks_nothing_and_gets_the_first_lines() {
        let (log, heard) = piped();
        let long = "x".repeat(4000);
        // More than a pipe and the queue hold.
        for number in 0..2 * KEEPER_LOG_LINES {
            log.say(format_args!("{number} {long}"));
        }
        log.flush();
        let mut heard = heard.lines().map(Result::unwrap);
        for number in 0..KEEPER_LOG_LINES {
            assert!(heard.next().unwrap().contains(&format!(": {number} x")), "{number}");
        }
    }

    #[test]
    fn a_reader_gets_all_lines() {
        let (log, heard) = piped();
        let count = 4 * KEEPER_LOG_LINES;
        let listening =
            std::thread::spawn(move || heard.lines().map(Result::unwrap).take(count).count());
        (0..count).for_each(|number| log.say(format_args!("{number}")));
        log.flush();
        assert_eq!(listening.join().unwrap(), count);
        assert!(log.lines.state.lock().lines.is_empty());
    }
}
