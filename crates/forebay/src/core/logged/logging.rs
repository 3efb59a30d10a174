//! The part of an open file that the intent log needs, under the file's lock.
//!
//! ```text
//! Plain --small syncs--> Marking --mark durable--> Marked: its syncs may be logged
//!
//! record taken: live --emptied (in place, flush, mark, flush)--> dead
//! ```
//!
//! A record is *live* from the moment its bytes are copied. While a file has live records, no
//! flush of it makes its syncs return: it is emptied instead. A record that is taken later than a
//! sync was asked for holds every byte that was accepted before, so a replay of it makes no byte
//! of that sync older.

mod unpublished;
mod waits;

use std::collections::VecDeque;
use std::task::Waker;

use forebay_block::Errno;
use forebay_log::{Counts, FileId, Mark, Wall};

use self::unpublished::Unpublished;

/// Relation of a file to the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Its syncs are ordinary. The number of those that ended well.
    Plain(u32),
    /// Its mark is being made durable.
    Marking,
    /// Its syncs may be logged.
    Marked,
    /// It cannot be logged.
    Never,
}

impl Default for Stage {
    fn default() -> Self {
        Self::Plain(0)
    }
}

/// Record that is not known to be dead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Live {
    pub(crate) sequence: u64,
    pub(crate) bytes: u64,
}

/// Something that a caller waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Awaited {
    /// The record for the request with this number.
    Record(u64),
    /// The emptying with this number, or a later one.
    Emptying(u64),
}

/// The end of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The bytes are durable in the log.
    Logged,
    /// The sync cannot be logged.
    Refused,
    /// The file is emptied.
    Emptied,
    /// The file could not be emptied.
    NotEmptied(Errno),
}

/// An emptying that has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Emptying {
    /// The first sequence number that counts after it.
    pub(crate) counts_from: u64,
    /// Whether it gives the file its first mark.
    pub(crate) marks: bool,
}

/// The part of a file in the intent log. Without a log it takes no memory.
#[derive(Debug, Default)]
pub(crate) struct Logging(Option<Box<Parts>>);

#[derive(Debug, Default)]
struct Parts {
    stage: Stage,
    /// Identity and path for records, once the file is marked.
    name: Option<(FileId, Vec<u8>)>,
    /// The mark as it was last written.
    mark: Option<Mark>,
    /// Whether the file may be changed without a promise: it is poisoned.
    needs_no_promise: bool,
    /// Promises in a row that could not be written to the mark.
    unrenewed: u32,
    live: VecDeque<Live>,
    /// Bytes of all of them.
    live_bytes: u64,
    /// Numbers of requests for a record: asked for, taken into a batch, durable, refused.
    asked: u64,
    taken: u64,
    logged: u64,
    refused: u64,
    is_queued: bool,
    unpublished: Option<Unpublished>,
    /// Numbers of emptyings: begun and ended; and the error of the last one.
    begun: u64,
    ended: u64,
    failure: Option<Errno>,
    is_emptying_asked: bool,
    /// Calls in progress that change the file past the log.
    holds: u32,
    waiters: Vec<(Awaited, Waker)>,
}

impl Logging {
    fn parts(&mut self) -> &mut Parts {
        self.0.get_or_insert_default()
    }

    /// Returns whether the file has records that are not known to be dead.
    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        self.0.as_ref().is_some_and(|parts| !parts.live.is_empty())
    }

    /// Returns the bytes of the live records. A page that has several counts for each.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |parts| parts.live_bytes)
    }

    /// Returns whether the file stays open: it is being emptied, has live records, or has one in
    /// the batch that is being written. The next open would count that one again.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        let is_busy = |parts: &Parts| {
            !parts.live.is_empty()
                || parts.begun > parts.ended
                || parts.taken > parts.logged.max(parts.refused)
        };
        self.0.as_ref().is_some_and(|parts| is_busy(parts))
    }

    /// Returns the sequence number of the oldest live record.
    pub(crate) fn first_live(&self) -> Option<u64> {
        self.0.as_ref().and_then(|parts| Some(parts.live.front()?.sequence))
    }

    pub(crate) fn stage(&self) -> Stage {
        self.0.as_ref().map_or(Stage::default(), |parts| parts.stage)
    }

    pub(crate) fn set_stage(&mut self, stage: Stage) {
        self.parts().stage = stage;
    }

    /// Returns identity and path for records.
    pub(crate) fn name(&self) -> Option<(FileId, Vec<u8>)> {
        self.0.as_ref().and_then(|parts| parts.name.clone())
    }

    /// Returns the mark as it was last written.
    pub(crate) fn mark(&self) -> Option<Mark> {
        self.0.as_ref().and_then(|parts| parts.mark)
    }

    /// Notes the mark that was written.
    pub(crate) fn note_mark(&mut self, mark: Mark) {
        let parts = self.parts();
        parts.mark = Some(mark);
        parts.unrenewed = 0;
    }

    /// Notes that a promise could not be written to the mark. Returns how often in a row.
    pub(crate) fn note_unrenewed(&mut self) -> u32 {
        let parts = self.parts();
        parts.unrenewed += 1;
        parts.unrenewed
    }

    /// Lets the file be changed without a promise. A recovery takes these changes for those of
    /// another program, and only saves the records.
    pub(crate) fn need_no_promise(&mut self) {
        self.parts().needs_no_promise = true;
    }

    /// Returns whether the file may be changed in place at a time, by the promise in its mark.
    pub(crate) fn may_change(&self, now: Wall) -> bool {
        let promised = |parts: &Parts| parts.mark.is_some_and(|mark| now < mark.promise);
        self.0.as_ref().is_some_and(|parts| parts.needs_no_promise || promised(parts))
    }

    /// Returns whether syncs may be logged, as far as this part is concerned.
    pub(crate) fn may_log(&self) -> bool {
        let may = |parts: &Parts| {
            parts.stage == Stage::Marked
                && parts.holds == 0
                && parts.failure.is_none()
                && !parts.is_uncertain()
        };
        self.0.as_ref().is_some_and(|parts| may(parts))
    }

    /// Returns whether an emptying is in progress.
    pub(crate) fn is_emptying(&self) -> bool {
        self.0.as_ref().is_some_and(|parts| parts.begun > parts.ended)
    }

    /// Keeps the file from being logged until [`Logging::end_hold`].
    pub(crate) fn hold(&mut self) {
        self.parts().holds += 1;
    }

    pub(crate) fn end_hold(&mut self) {
        let parts = self.parts();
        parts.holds = parts.holds.checked_sub(1).expect("a hold ends once");
    }

    // Records

    /// Asks for a record. Returns what to wait for, and whether the file has to be queued.
    pub(crate) fn ask_for_record(&mut self) -> (Awaited, bool) {
        let parts = self.parts();
        parts.asked += 1;
        (Awaited::Record(parts.asked), !std::mem::replace(&mut parts.is_queued, true))
    }

    /// Enters the file in the queue again. Returns false if it is there.
    pub(crate) fn queue_again(&mut self) -> bool {
        !std::mem::replace(&mut self.parts().is_queued, true)
    }

    /// Notes that the file has left the queue. Returns whether a request waits for a record.
    pub(crate) fn leave_queue(&mut self) -> bool {
        let parts = self.parts();
        parts.is_queued = false;
        parts.asked > parts.logged.max(parts.refused)
    }

    /// Notes a record with the bytes of all requests so far. Without bytes they need none.
    pub(crate) fn take_record(&mut self, record: Option<Live>) {
        let parts = self.parts();
        assert!(parts.taken <= parts.logged.max(parts.refused), "a file is in a batch twice");
        if let Some(record) = record {
            assert!(parts.unpublished.is_none(), "a replay would put older bytes over it");
            parts.push_live(record);
        }
        parts.taken = parts.asked;
    }

    /// Notes that the batch with the taken requests is durable.
    pub(crate) fn end_record(&mut self) {
        let parts = self.parts();
        parts.logged = parts.logged.max(parts.taken);
    }

    /// Refuses all requests that are not logged.
    pub(crate) fn refuse(&mut self) {
        let parts = self.parts();
        parts.refused = parts.asked;
    }

    // Emptying

    /// Asks for an emptying that covers everything until now. Returns what to wait for, and whether
    /// the file has to be queued for it.
    pub(crate) fn ask_to_empty(&mut self) -> (Awaited, bool) {
        let parts = self.parts();
        let is_new = !std::mem::replace(&mut parts.is_emptying_asked, true);
        (Awaited::Emptying(parts.begun + 1), is_new)
    }

    /// Returns a wait for the emptying in progress.
    pub(crate) fn emptying_in_progress(&self) -> Option<Awaited> {
        let parts = self.0.as_ref()?;
        (parts.begun > parts.ended).then_some(Awaited::Emptying(parts.begun))
    }

    /// Returns whether an emptying was asked for and has not begun.
    pub(crate) fn is_emptying_asked(&self) -> bool {
        self.0.as_ref().is_some_and(|parts| parts.is_emptying_asked)
    }

    /// Begins an emptying. `next` is a sequence number that no record of the file has yet.
    pub(crate) fn begin_emptying(&mut self, next: u64) -> Emptying {
        let parts = self.parts();
        assert_eq!(parts.begun, parts.ended, "two threads would empty the file");
        parts.begun += 1;
        parts.is_emptying_asked = false;
        // A dead record may be in the batch that is being written: the mark never moves back.
        let marked = match parts.mark {
            Some(Mark { counts: Counts::From(first), .. }) => first,
            _ => 0,
        };
        let behind = parts.live.back().map_or(next, |live| live.sequence + 1);
        let counts_from = parts.first_unpublished().unwrap_or(behind).max(marked);
        Emptying { counts_from, marks: parts.stage == Stage::Marking }
    }

    /// Ends an emptying. Records that it covers are dead now, if it ended well.
    pub(crate) fn end_emptying(
        &mut self,
        emptying: Emptying,
        result: Result<Option<(FileId, Vec<u8>)>, Errno>,
    ) {
        let parts = self.parts();
        assert!(parts.begun > parts.ended, "an emptying ends once");
        parts.ended = parts.begun;
        let is_uncertain = parts.is_uncertain().then_some(Errno::IO);
        parts.failure = result.as_ref().err().copied().or(is_uncertain);
        let is_done = result.is_ok();
        if let Ok(Some(name)) = result {
            parts.name = Some(name);
        }
        if emptying.marks {
            parts.stage = match parts.name {
                Some(_) if is_done => Stage::Marked,
                _ if is_done => Stage::Never,
                _ => Stage::default(),
            };
        }
        while is_done
            && let Some(first) = parts.live.front()
            && first.sequence < emptying.counts_from
        {
            parts.live_bytes -= first.bytes;
            parts.live.pop_front();
        }
    }

    /// Gives up the records: they are saved only, and the file is not logged again. Returns the
    /// sequence number of the oldest.
    pub(crate) fn save_only(&mut self) -> Option<u64> {
        let first = self.first_live();
        let parts = self.parts();
        parts.live.clear();
        parts.live_bytes = 0;
        parts.unpublished = None;
        parts.stage = Stage::Never;
        first
    }
}

impl Parts {
    fn push_live(&mut self, record: Live) {
        let last = self.live.back().map_or(0, |live| live.sequence);
        assert!(record.sequence > last, "a mark could not tell two records apart");
        self.live.push_back(record);
        self.live_bytes += record.bytes;
    }
}
