//! Whether the kernel's minimal wait can be used: found out by trying, once in a process.
//!
//! The wait has three numbers: return when `want` have completed, or after the minimal time when
//! something has, or when the first comes after that. The kernels that first had it (6.12, and
//! those up to 6.18 that were not repaired) get the last part wrong: an event after the minimal
//! time ends nothing, and the wait goes on for `want` events or its full time. The kernel's flag
//! does not tell the two apart, so two timeouts play the late events. A kernel that is right
//! returns with the first of them, one that is wrong with both.
//!
//! The price is the time to the first timeout, 2 ms, or to the second, 8 ms, when the first batch
//! is waited for. A thread that is kept off its core for longer than the time between the two takes
//! a right kernel for a wrong one, which costs one more call per batch and nothing else.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use io_uring::{opcode, types};

use crate::enter::{Booked, Door, Enter};
use crate::setup::Level;

const FIRST_EVENT: Duration = Duration::from_millis(2);
const SECOND_EVENT: Duration = Duration::from_millis(8);
const WITHIN: Duration = Duration::from_micros(100);
const LIMIT: Duration = Duration::from_millis(12);

/// Effect of an event after the minimal time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MinWait {
    /// It ends the wait.
    Ends,
    /// It does not, or nobody could find out.
    GoesOn,
}

static BEHAVIOUR: OnceLock<MinWait> = OnceLock::new();

/// Returns the effect on this kernel. Blocks for some milliseconds the first time in a process.
pub(crate) fn behaviour(level: Level) -> MinWait {
    *BEHAVIOUR.get_or_init(|| {
        let behaviour = observe(level).unwrap_or(MinWait::GoesOn);
        tracing::debug!(?behaviour, "the kernel's minimal wait was tried");
        behaviour
    })
}

/// Returns the effect if it is known without a trial.
pub(crate) fn known() -> Option<MinWait> {
    BEHAVIOUR.get().copied()
}

fn observe(level: Level) -> io::Result<MinWait> {
    let mut uring = level.build(4)?;
    uring.submitter().register_enable_rings()?;
    let times = [FIRST_EVENT, SECOND_EVENT].map(types::Timespec::from);
    for (time, word) in times.iter().zip(1..) {
        let entry = opcode::Timeout::new(time).build().user_data(word);
        // SAFETY: the kernel reads the time when the entry is submitted, below, and it lives longer
        // than that.
        unsafe { uring.submission().push(&entry) }.map_err(io::Error::other)?;
    }
    let wait = Enter {
        to_submit: 2,
        want: 2,
        within: WITHIN,
        limit: Some(LIMIT),
        booked: Booked::WaitingForIo,
    };
    Door::of(&uring).enter(wait).map_err(io::Error::from_raw_os_error)?;
    Ok(if uring.completion().len() == 1 { MinWait::Ends } else { MinWait::GoesOn })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_found_once_and_kept() {
        let answer = behaviour(Level::NoArray);
        println!("{answer:?}");
        assert_eq!(known(), Some(answer));
        assert_eq!(behaviour(Level::Plain), answer);
    }

    /// The setups differ in who works completions off; the answer must not.
    #[test]
    fn every_setup_gives_an_answer() {
        for level in Level::ALL {
            // Older kernels lack the setup, or the wait: then it must not look usable.
            let Ok(uring) = level.build(4) else { continue };
            let observed = observe(level);
            println!("{level:?}: {observed:?}");
            match uring.params().is_feature_min_timeout() {
                true => assert!(observed.is_ok()),
                false => assert!(!matches!(observed, Ok(MinWait::Ends))),
            }
        }
    }
}
