//! Wakers of tasks that wait for a change of a file's pages, or for room in the pace of an uncached
//! file.
//!
//! Pages change at any time, so all that wait for one look again. Writers that wait for room are in
//! a line, by their arrival, and only as many are woken as there is room for. A woken writer has
//! left the line: if its task is never polled again, it keeps back no other. A writer that finds
//! the room taken goes back to its place.

use std::task::Waker;

use forebay_cache::Rare;

use crate::core::user_code;

/// Wakers of one file.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    of_pages: Rare<Vec<Waker>>,
    /// In order of their numbers.
    line: Rare<Vec<InLine>>,
    /// Number of writers that have come to the line, and the number of the next one.
    came: u64,
}

/// Writer that waits for room.
#[derive(Debug)]
struct InLine {
    number: u64,
    /// Pages that it writes at once.
    pages: u64,
    waker: Waker,
}

impl Wakers {
    pub(super) fn push(&mut self, waker: Waker) {
        self.of_pages.push(waker);
    }

    /// Returns whether no task waits for a page.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.of_pages.is_empty()
    }

    /// Returns whether a writer has to wait for others that came before it.
    pub(crate) fn has_line_before(&self, number: Option<u64>) -> bool {
        self.line.first().is_some_and(|first| number.is_none_or(|number| first.number < number))
    }

    /// Puts a writer of `pages` pages into the line, at its earlier place if it had one. Returns
    /// its number.
    pub(crate) fn stand_in_line(&mut self, number: Option<u64>, pages: u64, waker: Waker) -> u64 {
        let number = number.unwrap_or_else(|| {
            self.came += 1;
            self.came - 1
        });
        debug_assert!(number < self.came, "it would stand before writers that came earlier");
        let writer = InLine { number, pages, waker };
        match self.line.binary_search_by_key(&number, |other| other.number) {
            Ok(at) => self.line[at] = writer,
            Err(at) => self.line.insert(at, writer),
        }
        number
    }

    /// Removes the writer that has come through.
    pub(crate) fn leave_line(&mut self, number: u64) {
        if let Ok(at) = self.line.binary_search_by_key(&number, |other| other.number) {
            self.line.remove(at);
            self.line.tidy();
        }
    }

    #[inline]
    pub(super) fn is_line_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// Moves the wakers of the first writers to `wakers`, as far as there is `room` in pages.
    pub(super) fn let_through(&mut self, mut room: u64, wakers: &mut Vec<Waker>) {
        let count = self.line.iter().take_while(|writer| {
            let has_room = room > 0;
            room = room.saturating_sub(writer.pages);
            has_room
        });
        let count = count.count();
        wakers.extend(self.line.drain(..count).map(|writer| writer.waker));
        self.line.tidy();
    }

    /// Moves the wakers of those that wait for a page to `wakers`, for the caller to wake.
    pub(super) fn drain_of_pages(&mut self, wakers: &mut Vec<Waker>) {
        if !self.is_empty() {
            wakers.append(&mut self.of_pages);
            self.of_pages.tidy();
        }
    }

    /// Moves all wakers to `wakers`, for the caller to wake.
    pub(super) fn drain_into(&mut self, wakers: &mut Vec<Waker>) {
        self.drain_of_pages(wakers);
        self.let_through(u64::MAX, wakers);
    }
}

/// A dropped future leaves its waker behind. Its waker is woken, not dropped, so that no waiting
/// task is forgotten. A panic of it is caught.
impl Drop for Wakers {
    fn drop(&mut self) {
        let mut wakers = Vec::new();
        self.drain_into(&mut wakers);
        user_code::wake_all(wakers);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::task::Wake;

    use super::*;

    /// Notes the names of those that are woken.
    struct Named(u64, Arc<Mutex<Vec<u64>>>);

    impl Wake for Named {
        fn wake(self: Arc<Self>) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    #[test]
    fn contract_15_writers_in_line_come_through_by_arrival_and_as_room_allows() {
        let (woken, mut line) = (Arc::default(), Wakers::default());
        let waker = |name| Waker::from(Arc::new(Named(name, Arc::clone(&woken))));
        let numbers: Vec<_> =
            (0..4).map(|name| line.stand_in_line(None, 32, waker(name))).collect();
        assert!(!line.has_line_before(Some(numbers[0])) && line.has_line_before(None));
        let let_through = |line: &mut Wakers, room| {
            let mut wakers = Vec::new();
            line.let_through(room, &mut wakers);
            user_code::wake_all(wakers);
            std::mem::take(&mut *woken.lock().unwrap())
        };
        assert_eq!(let_through(&mut line, 33), [0, 1], "a page of room is enough to begin");
        // The first one came too late, and is in front again; so is one that was polled in between.
        line.stand_in_line(Some(numbers[0]), 32, waker(0));
        line.stand_in_line(Some(numbers[2]), 32, waker(2));
        assert!(line.has_line_before(Some(numbers[1])));
        assert_eq!(let_through(&mut line, 0), []);
        assert_eq!(let_through(&mut line, 1), [0]);
        line.leave_line(numbers[2]);
        assert_eq!(let_through(&mut line, u64::MAX), [3]);
        assert!(line.is_line_empty() && !line.has_line_before(None));
    }
}
