//! Readahead: pages are read before a sequential reader needs them.
//!
//! The idea is on-demand readahead (F. Wu, H. Xi, C. Xu: "On the design of a new Linux readahead
//! framework", ACM SIGOPS Operating Systems Review 42(5), 2008): nothing is read ahead until reads
//! go on where earlier ones ended (a small one twice, for among many random ones some do so by
//! chance); then a window, and as soon as the reader enters a window the next one, twice as large,
//! up to a bound. So the reader is one window behind the device, and no more is read in vain than
//! was read before.
//!
//! ```text
//!   read    read  read ...                  here the next window is asked for
//!  |------|------|......................|......................................|...
//!     1st    2nd   first window           second window, twice as large
//!             \____ asked for here        ^ mark
//! ```
//!
//! Differences: a file has several streams (readers of one file, or one reader of several parts),
//! distinguished by their positions. The caller sets how much may be read ahead, from the memory
//! that is free.

use std::ops::Range;

use crate::limits::{PAGE, READAHEAD_FIRST_PAGES, READAHEAD_PAGES, STREAMS};
use crate::rare::Empty;

/// A proven stream outlives two to this power as many reads elsewhere as an unproven one.
const SHOWN_LIVES: u32 = 4;

/// Smallest window for want of memory: below it, requests cost more than they bring.
const LEAST_PAGES: u64 = 4;

/// Sequential readers of one file.
#[derive(Debug, Default)]
pub struct Streams {
    streams: Vec<Stream>,
    /// Place of the stream that was used last.
    last: usize,
    reads: u64,
}

impl Empty for Streams {
    const EMPTY: &'static Self = &Self { streams: Vec::new(), last: 0, reads: 0 };

    fn is_empty(&self) -> bool {
        self.reads == 0
    }
}

/// One sequence of reads.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// The first byte of its last read.
    from: u64,
    /// The byte after its last read.
    next: u64,
    /// Pages below this one were asked for; 0 before anything was.
    ahead: u64,
    /// The same when its last read began. A page below that is missing was dropped.
    asked: u64,
    /// Pages of its last window.
    window: u64,
    /// Where its last window begins: a read beyond asks for the next one.
    mark: u64,
    /// The read it was last used by.
    used: u64,
    /// Reads went on where one had ended, often enough that it is no chance.
    is_shown: bool,
    /// How many did.
    gone_on: u32,
}

/// Limits of readahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadaheadRoom {
    /// Pages in the file, including a partial last one.
    pub end: u64,
    /// Pages that memory is available for.
    pub pages: u64,
}

/// Advice for one read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advice {
    /// Pages to read ahead; empty if none.
    pub ahead: Range<u64>,
    /// Whether the read continues in the page that was read last, which is the same use of it.
    pub is_same_page: bool,
}

impl Streams {
    /// Records a read and returns the advice for it.
    pub fn read(&mut self, bytes: Range<u64>, room: ReadaheadRoom) -> Advice {
        self.reads += 1;
        let first = bytes.start / PAGE;
        let last_used = self.streams.get(self.last);
        debug_assert!(
            self.streams.iter().all(|stream| Some(stream.used) <= last_used.map(|last| last.used)),
            "another stream was used later"
        );
        let is_same_page = last_used.is_some_and(|stream| stream.is_in_last_page(first));
        let found = self.streams.iter().position(|stream| stream.goes_on_with(&bytes));
        self.last = found.unwrap_or_else(|| self.start(&bytes));
        let Some(at) = found else { return Advice { ahead: 0..0, is_same_page } };
        let stream = &mut self.streams[at];
        let is_same_page = is_same_page || stream.is_in_last_page(first);
        (stream.from, stream.next, stream.asked) = (bytes.start, bytes.end, stream.ahead);
        (stream.used, stream.gone_on) = (self.reads, stream.gone_on.saturating_add(1));
        let pages = bytes.end.div_ceil(PAGE) - first;
        stream.is_shown |= stream.gone_on >= 2 || pages >= READAHEAD_FIRST_PAGES;
        let ahead = if stream.is_shown { stream.window_after(pages, room) } else { 0..0 };
        Advice { ahead, is_same_page }
    }

    /// Records that only the pages below `end` of an advised window are read.
    pub fn cut(&mut self, advised: &Range<u64>, end: u64) {
        let cut = self
            .streams
            .iter_mut()
            .find(|stream| stream.ahead == advised.end && stream.ahead > end);
        if let Some(stream) = cut {
            stream.ahead = end;
        }
    }

    /// Records that a page read ahead had been dropped before it was used, so that windows become
    /// smaller.
    pub fn missed(&mut self, page: u64) {
        let ahead = |stream: &&mut Stream| (stream.from / PAGE..stream.asked).contains(&page);
        if let Some(stream) = self.streams.iter_mut().find(ahead) {
            (stream.ahead, stream.asked) = (0, 0);
            stream.window = (stream.window / 4).max(1);
        }
    }

    /// A stream may begin here. Returns its place.
    fn start(&mut self, bytes: &Range<u64>) -> usize {
        let (from, next) = (bytes.start, bytes.end);
        let stream = Stream {
            from,
            next,
            ahead: 0,
            asked: 0,
            window: 0,
            mark: 0,
            used: self.reads,
            is_shown: false,
            gone_on: 0,
        };
        if self.streams.len() < STREAMS {
            self.streams.push(stream);
            return self.streams.len() - 1;
        }
        let idle = |stream: &Stream| {
            (self.reads - stream.used) >> (u32::from(stream.is_shown) * SHOWN_LIVES)
        };
        // One number for the comparison and the place.
        let numbers = (0..).zip(&self.streams).map(|(at, of)| idle(of) * STREAMS as u64 + at);
        let idlest = numbers.max().expect("there are streams") as usize % STREAMS;
        self.streams[idlest] = stream;
        idlest
    }
}

impl Stream {
    /// Whether a read goes on where the last one ended: there, or before it (that may have got less
    /// than it asked for), or in the same page again, or a little further on, within what was read
    /// ahead.
    fn goes_on_with(&self, bytes: &Range<u64>) -> bool {
        // Most reads are far away.
        let is_near = bytes.end > self.next
            && (bytes.start.saturating_sub(PAGE) <= self.next || bytes.start / PAGE < self.ahead);
        if !is_near {
            return false;
        }
        let least = (self.next / PAGE * PAGE).min(self.from + 1);
        let most = self.next.next_multiple_of(PAGE).max((self.ahead * PAGE).saturating_sub(1));
        (least..=most).contains(&bytes.start)
    }

    fn is_in_last_page(&self, page: u64) -> bool {
        self.next > 0 && (self.next - 1) / PAGE == page
    }

    /// The window to read after a read of `pages` pages up to `next`.
    fn window_after(&mut self, pages: u64, room: ReadaheadRoom) -> Range<u64> {
        let reached = self.next.div_ceil(PAGE);
        if reached <= self.mark && self.ahead > 0 {
            return 0..0;
        }
        let start = reached.max(self.ahead);
        let window = match self.window {
            0 => (2 * pages).next_power_of_two().max(READAHEAD_FIRST_PAGES),
            before => 2 * before,
        };
        let window = window.min(READAHEAD_PAGES);
        let granted = window.min(room.pages).min(room.end.saturating_sub(start));
        if granted == 0 || granted < window.min(LEAST_PAGES) && granted == room.pages {
            return 0..0;
        }
        (self.mark, self.ahead, self.window) = (start, start + granted, window);
        start..start + granted
    }
}

#[cfg(test)]
mod tests;
