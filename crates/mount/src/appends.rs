//! The order of appends, whose offset is a guess of the kernel.
//!
//! The kernel appends where it believes the end to be. It learns of changes of the source when it
//! asks for attributes, which a program that only appends never makes it do. So each append goes to
//! the end that the file has, and the offset only gives the order. A long append of asynchronous
//! I/O comes in parts, served by several threads:
//!
//! ```text
//! kernel's end K, real end E    parts at K, K + 1 MiB, K + 2 MiB
//! K = E                         a part beyond the end waits for those before it
//! K > E: the file was cut       no part is at the end: after a moment the first one goes there
//! K < E: others have appended   the first part is before the end, and goes there
//! ```
//!
//! K - E is remembered and gives the order from then on, until the kernel asks for the size.

use std::io;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use crate::limits::{PART_BYTES, PARTS_APART};

/// Appends to one open file.
#[derive(Debug, Default)]
pub(crate) struct Appends {
    order: Mutex<Order>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Order {
    /// Distance from the real end to the kernel's.
    ahead: i64,
    /// Offsets of parts that wait.
    waiting: Vec<u64>,
}

impl Order {
    /// Returns whether no other part is before one with this distance to the end.
    fn is_next(&self, distance: i64) -> bool {
        distance <= 0 || distance.abs_diff(self.ahead) < PART_BYTES
    }
}

impl Appends {
    /// Calls `append` with the end once it is the turn of the part that the kernel puts at
    /// `offset`. One part at a time is appended.
    pub(crate) fn in_turn(
        &self,
        offset: u64,
        end: impl Fn() -> io::Result<u64>,
        append: impl FnOnce(u64) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let mut deadline = None;
        let end = loop {
            let (end, now) = (end()?, Instant::now());
            let distance = offset.cast_signed().saturating_sub_unsigned(end);
            let is_first = order.waiting.iter().all(|other| offset <= *other);
            let is_late = deadline.is_some_and(|deadline| deadline <= now);
            if order.is_next(distance) || is_late && is_first {
                order.ahead = distance;
                break end;
            }
            let until = *deadline.get_or_insert(now + PARTS_APART);
            order.waiting.push(offset);
            // A part that is late and not the first waits for the first one.
            let wait = until.saturating_duration_since(now).max(PARTS_APART / 10);
            let waited = self.changed.wait_timeout(order, wait);
            order = waited.unwrap_or_else(PoisonError::into_inner).0;
            order.waiting.retain(|other| *other != offset);
        };
        let done = append(end);
        drop(order);
        self.changed.notify_all();
        done
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// A file that remembers the offsets of its appends.
    struct Model {
        appends: Appends,
        end: AtomicU64,
        order: Mutex<Vec<u64>>,
    }

    impl Model {
        fn new(end: u64) -> Self {
            let (appends, end) = (Appends::default(), AtomicU64::new(end));
            Self { appends, end, order: Mutex::default() }
        }

        fn append(&self, offset: u64, bytes: u64) {
            let end = || Ok(self.end.load(Ordering::Relaxed));
            let append = |end| {
                self.end.store(end + bytes, Ordering::Relaxed);
                self.order.lock().unwrap().push(offset);
                Ok(0)
            };
            self.appends.in_turn(offset, end, append).unwrap();
        }

        /// Appends five parts, the last one first.
        fn append_reversed(&self, offset: u64) {
            thread::scope(|scope| {
                for part in (0..5).rev() {
                    scope.spawn(move || self.append(offset + part * PART_BYTES, PART_BYTES));
                    thread::sleep(Duration::from_millis(1));
                }
            });
            let expected: Vec<u64> = (0..5).map(|part| offset + part * PART_BYTES).collect();
            let order = self.order.lock().unwrap();
            assert_eq!(order[order.len() - 5..], expected);
        }

        fn end(&self) -> u64 {
            self.end.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn parts_are_appended_in_their_order_also_after_a_cut() {
        let model = Model::new(100);
        model.append_reversed(100);
        let end = 100 + 5 * PART_BYTES;
        assert_eq!(model.end(), end);
        model.end.store(0, Ordering::Relaxed);
        // The kernel goes on where the end was.
        model.append_reversed(end);
        assert_eq!(model.end(), 5 * PART_BYTES);
        let before = Instant::now();
        let end = end + 5 * PART_BYTES;
        (0..1000).for_each(|turn| model.append(end + turn, 1));
        // The kernel has asked for the size.
        model.append_reversed(model.end());
        assert_eq!(model.end(), 10 * PART_BYTES + 1000);
        assert!(before.elapsed() < 10 * PARTS_APART, "each append waits");
    }

    #[test]
    fn an_append_after_those_of_others_does_not_wait() {
        let model = Model::new(100);
        let before = Instant::now();
        for turn in 0..1000 {
            model.append(turn, 1);
            model.end.fetch_add(PART_BYTES, Ordering::Relaxed);
        }
        // Nor does the first one after a small cut, or after the kernel has asked for the size.
        model.append(model.end(), 1);
        model.end.store(0, Ordering::Relaxed);
        model.append(1, 1);
        assert!(before.elapsed() < 10 * PARTS_APART);
    }
}
