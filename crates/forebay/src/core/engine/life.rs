//! How far an engine has ended, and the control socket it serves until then. Neither lock is held
//! while something blocks.

use std::time::Instant;

use crate::core::error::{Error, ErrorKind, Result};
use crate::platform::sync::{Condvar, Mutex};

/// The stage of an engine. One caller shuts it down, and the others wait for that.
#[derive(Debug, Default)]
pub(super) struct Life {
    stage: Mutex<Stage>,
    changed: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    #[default]
    Running,
    Ending,
    Over,
}

/// A shutdown under way; it is over when this is dropped.
#[derive(Debug)]
pub(super) struct Ending<'a>(&'a Life);

impl Life {
    /// Begins the shutdown; `None` if another caller has ended it already.
    ///
    /// # Errors
    /// `TimedOut` if another caller is at it, and does not end in time.
    pub(super) fn begin_to_end(&self, deadline: Option<Instant>) -> Result<Option<Ending<'_>>> {
        let mut stage = self.stage.lock();
        loop {
            match *stage {
                Stage::Running => {
                    *stage = Stage::Ending;
                    return Ok(Some(Ending(self)));
                }
                Stage::Over => return Ok(None),
                Stage::Ending => {}
            }
            let (guard, is_late) = self.changed.wait_until(stage, deadline);
            if is_late {
                let late = "another thread is still shutting the engine down";
                return Err(Error::new(ErrorKind::TimedOut, late));
            }
            stage = guard;
        }
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        *self.0.stage.lock() = Stage::Over;
        self.0.changed.notify_all();
    }
}

/// What serves an engine beside its threads.
pub(crate) trait Serving: Send + std::fmt::Debug {
    /// Stops serving. Blocks until it has stopped.
    fn end(self: Box<Self>);
}

/// The control socket of an engine.
#[derive(Debug, Default)]
pub(super) enum Control {
    #[default]
    None,
    /// It is being made.
    Starting,
    Served(Box<dyn Serving>),
    /// The engine ends: none is served from now on.
    Over,
}

impl Control {
    /// Reserves the one place there is.
    ///
    /// # Errors
    /// `Busy` if it is taken; `Shutdown` if the engine ends.
    pub(super) fn begin(control: &Mutex<Self>) -> Result<()> {
        let mut control = control.lock();
        match *control {
            Self::None => {
                *control = Self::Starting;
                Ok(())
            }
            Self::Starting | Self::Served(_) => {
                Err(Error::new(ErrorKind::Busy, "the engine has a control socket already"))
            }
            Self::Over => Err(Error::shut_down()),
        }
    }

    /// The socket was made, or could not be: puts it in its place. If the engine has ended
    /// meanwhile the socket ends, too.
    pub(super) fn served(control: &Mutex<Self>, started: Result<Box<dyn Serving>>) -> Result<()> {
        let mut place = control.lock();
        let is_over = matches!(*place, Self::Over);
        match started {
            Err(error) => {
                if !is_over {
                    *place = Self::None;
                }
                Err(error)
            }
            Ok(serving) if is_over => {
                drop(place);
                serving.end();
                Err(Error::shut_down())
            }
            Ok(serving) => {
                *place = Self::Served(serving);
                Ok(())
            }
        }
    }

    /// Ends the socket. Later ones are refused.
    pub(super) fn end(control: &Mutex<Self>) {
        let before = std::mem::replace(&mut *control.lock(), Self::Over);
        if let Self::Served(serving) = before {
            serving.end();
        }
    }
}
