//! Room in the ring, promises, and the time after a failed write.

use forebay_log::{Point, Wall};

use super::Writer;
use crate::core::context::senders::Message;
use crate::core::error::{Error, ErrorKind};
use crate::core::intent_log::marks::promise_of;
use crate::core::logged::bounds::{LOG_PROMISE, LOG_PROMISE_LEFT};
use crate::platform::clock;

impl Writer {
    /// Frees the blocks of dead records if they are worth the write of a head.
    pub(super) fn make_room(&mut self) {
        if self.has_failed {
            return self.restart();
        }
        let next = self.file.ring().next();
        let first = self.log.first_live().unwrap_or(next.sequence);
        while self.points.len() > 1 && self.points[1].sequence <= first {
            self.points.pop_front();
        }
        let start = self.points[0];
        let freed = start.position - self.file.ring().start().position;
        let ring = self.file.ring();
        if freed == 0 || freed * 8 < ring.blocks() && ring.used() * 2 < ring.blocks() {
            return;
        }
        let promise = promise_of(LOG_PROMISE);
        self.advance(start, promise);
    }

    fn advance(&mut self, start: Point, promise: Wall) {
        match self.file.advance(start, promise) {
            Ok(()) => self.note_ring(),
            Err(error) => self.fail(&error),
        }
    }

    /// Makes a log whose write has failed usable again, once no record is live.
    fn restart(&mut self) {
        if self.log.first_live().is_some_and(|first| !self.may_exclude(first)) {
            return;
        }
        let (end, promise) = (self.file.ring().next(), promise_of(LOG_PROMISE));
        match self.file.restart(end, promise) {
            Ok(()) => {
                self.note_excluded();
                self.points = [self.file.ring().next()].into();
                self.has_failed = false;
                self.note_ring();
            }
            Err(error) => tracing::warn!(%error, "could not empty the intent log"),
        }
    }

    pub(super) fn look(&mut self) {
        self.make_room();
        if self.is_promise_due() {
            let (start, promise) = (self.file.ring().start(), promise_of(LOG_PROMISE));
            self.advance(start, promise);
        }
        if self.is_promise_due() {
            self.log.promise_in_marks(&self.shared);
        }
    }

    /// Returns whether a new promise is needed.
    fn is_promise_due(&self) -> bool {
        let left = self.file.promise().0 - clock::wall();
        left < LOG_PROMISE_LEFT.as_nanos() as i64 && self.log.first_live().is_some()
    }

    pub(super) fn note_ring(&self) {
        let was_over = !self.log.is_promised();
        self.log.note_ring(&self.file, self.has_failed);
        if was_over && self.log.first_live().is_some() {
            // They may hold writes back.
            self.shared.send(Message::Look);
        }
    }

    /// Leaves an empty log behind if no record is live.
    pub(super) fn end(mut self) {
        if self.log.first_live().is_none_or(|first| self.may_exclude(first)) {
            let (end, promise) = (self.file.ring().next(), promise_of(LOG_PROMISE));
            let is_empty = self.file.ring().used() == 0 && !self.file.is_uncertain();
            let ended = if is_empty { Ok(()) } else { self.file.restart(end, promise) };
            if let Err(error) = ended {
                tracing::warn!(%error, "could not empty the intent log; its records are dead");
            }
        }
        if self.shared.keeper.is_some() {
            // It shares the lock, and may have files to bring into place.
            self.file.file().leave();
        }
    }

    /// Lets nothing be logged before all files are emptied and the log is restarted.
    pub(super) fn fail(&mut self, error: &std::io::Error) {
        let is_reported = std::mem::replace(&mut self.has_failed, true);
        self.note_ring();
        if !is_reported {
            let cause = copy_of(error);
            let what = "could not write the intent log; syncs write and flush their files instead";
            let error = Error::new(ErrorKind::at_device(&cause), what).at_path(self.file.path());
            self.shared.report(&error.because(cause));
        }
    }
}

/// Returns the same error: each report has its own.
pub(super) fn copy_of(error: &std::io::Error) -> std::io::Error {
    error
        .raw_os_error()
        .map_or_else(|| std::io::Error::other(error.to_string()), std::io::Error::from_raw_os_error)
}
