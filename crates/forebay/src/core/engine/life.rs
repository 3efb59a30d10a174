//! Stage of an engine's shutdown, and the control socket it serves until then. No lock is held
//! during a blocking call.

use std::time::Instant;

use crate::core::error::{Error, ErrorKind, Result};
use crate::platform::sync::{Condvar, Mutex};

/// Stage of an engine. One caller shuts it down, and other callers wait for that.
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

/// Shutdown in progress. It is complete when this is dropped.
#[derive(Debug)]
pub(super) struct Ending<'a>(&'a Life);

impl Life {
    /// Begins the shutdown; `None` if another caller has ended it already.
    ///
    /// # Errors
    /// `TimedOut` if another caller's shutdown does not end in time.
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

/// Service that the engine stops when it ends.
pub(crate) trait Serving: Send + std::fmt::Debug {
    /// Stops serving. Blocks until it has stopped.
    fn end(self: Box<Self>);
}

/// The control socket of an engine.
#[derive(Debug, Default)]
pub(super) enum Control {
    #[default]
    None,
    /// The socket is being created.
    Starting,
    Served(Box<dyn Serving>),
    /// The engine ends, and serves no socket from now on.
    Over,
}

impl Control {
    /// Reserves the single place for a control socket.
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

    /// Stores the socket, or frees its place after an error. If the engine has ended meanwhile, the
    /// socket is closed.
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

    /// Closes the socket. Later ones are refused.
    pub(super) fn end(control: &Mutex<Self>) {
        let before = std::mem::replace(&mut *control.lock(), Self::Over);
        if let Self::Served(serving) = before {
            serving.end();
        }
    }
}
