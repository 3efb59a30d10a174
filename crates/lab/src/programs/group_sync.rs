//! Group commit: one thread syncs for all that wait. This is what a log on the standard library
//! does. It pays if flushes are dear. If they are nearly free, threads that each sync for
//! themselves are faster with records of half a page.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::load::error::CellError;

/// Syncs of one file, one at a time.
#[derive(Debug, Default)]
pub(crate) struct GroupSync {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the last sync that started, and of the last that ended well.
    started: u64,
    done: u64,
    running: bool,
}

impl GroupSync {
    /// Returns after a sync that started after this call did.
    pub(crate) fn sync(&self, sync: impl Fn() -> Result<(), CellError>) -> Result<(), CellError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let needed = state.started + 1;
        while state.done < needed {
            if state.running {
                state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.running = true;
            state.started += 1;
            let number = state.started;
            drop(state);
            let result = sync();
            state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            debug_assert!(state.done < number && number == state.started, "one sync at a time");
            state.running = false;
            if result.is_ok() {
                state.done = number;
            }
            self.ended.notify_all();
            result?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_sync_covers_what_was_written_before_and_is_shared() {
        let (group, written, synced) = (GroupSync::default(), AtomicU64::new(0), AtomicU64::new(0));
        let syncs = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let mine = written.fetch_add(1, Ordering::SeqCst) + 1;
                        let sync = || {
                            let covered = written.load(Ordering::SeqCst);
                            thread::sleep(Duration::from_micros(200));
                            synced.fetch_max(covered, Ordering::SeqCst);
                            syncs.fetch_add(1, Ordering::SeqCst);
                            Ok(())
                        };
                        group.sync(sync).unwrap();
                        assert!(synced.load(Ordering::SeqCst) >= mine);
                    }
                });
            }
        });
        assert!(syncs.load(Ordering::SeqCst) < 160, "no sync was shared");
    }

    #[test]
    fn a_failed_sync_is_no_sync() {
        let group = GroupSync::default();
        let failed = group.sync(|| Err(CellError::invalid("full")));
        assert!(failed.is_err());
        let tries = AtomicU64::new(0);
        group
            .sync(|| {
                tries.fetch_add(1, Ordering::SeqCst);
                Ok(())
            })
            .unwrap();
        assert_eq!(tries.load(Ordering::SeqCst), 1);
    }
}
