//! The signals that end a comparison early.
//!
//! Ctrl-C and SIGTERM do not kill the program but set a flag that waiting code checks, so that all
//! it has made is dropped; a second Ctrl-C only sets the flag again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_uring::signals::not_ignored;

/// Signals that end a comparison, unless they were ignored when it started.
const STOPPING_SIGNALS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Whether the user wants it to end. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    flag: Arc<AtomicBool>,
}

impl Stop {
    /// Returns a flag that Ctrl-C, SIGTERM and a hangup of the terminal set. They no longer kill
    /// the process.
    pub fn on_signals() -> io::Result<Self> {
        let stop = Self::default();
        for signal in not_ignored(&STOPPING_SIGNALS) {
            signal_hook::flag::register(signal, Arc::clone(&stop.flag))?;
        }
        Ok(stop)
    }

    pub fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    pub fn set(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }

    /// Returns the flag itself, to wait on a child.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both signals at once in one test: handlers belong to the process.
    #[test]
    fn signals_set_the_flag_and_a_second_one_does_not_kill() {
        let stop = Stop::on_signals().unwrap();
        assert!(!stop.is_set());
        for signal in [libc::SIGINT, libc::SIGINT, libc::SIGTERM] {
            signal_hook::low_level::raise(signal).unwrap();
        }
        assert!(stop.is_set() && stop.clone().flag().load(Ordering::Relaxed));
    }
}
