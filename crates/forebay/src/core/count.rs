//! Counts that threads share and that progress depends on: room, flight, waiters.
//!
//! A count below zero would be a huge one: every writer would wait for room that never comes. So
//! each subtraction is checked in every build.

use std::sync::atomic::{AtomicU64, Ordering};

/// Subtracts from a count, and returns what it was.
///
/// # Panics
/// If it was less; it stays what it was. `slip` names the fault.
#[track_caller]
pub(crate) fn subtract(count: &AtomicU64, by: u64, ordering: Ordering, slip: &str) -> u64 {
    let was = count.fetch_sub(by, ordering);
    if was < by {
        count.fetch_add(by, ordering);
        panic!("{slip}: {by} subtracted from {was}");
    }
    was
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn contract_18_a_count_is_never_below_zero() {
        let count = AtomicU64::new(3);
        assert_eq!(subtract(&count, 2, Ordering::Relaxed, "once"), 3);
        let slip = || subtract(&count, 2, Ordering::Relaxed, "a page is counted once");
        let panic = catch_unwind(AssertUnwindSafe(slip)).unwrap_err();
        let said = panic.downcast::<String>().unwrap();
        assert_eq!(*said, "a page is counted once: 2 subtracted from 1");
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
