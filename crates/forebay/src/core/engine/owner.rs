//! The part of an engine that its clones share: its shutdown, and the control socket it serves
//! until then. No lock is held during a blocking call.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_cache::TicketKind;
use forebay_cache::limits::PAGE;

use crate::core::error::{Error, ErrorKind, Result};
use crate::core::logged::emptying::empty_all;
use crate::core::open::close::take_unreported;
use crate::core::open::common::Common;
use crate::core::shared::Shared;
use crate::core::space::unmark;
use crate::core::sync::tickets::Ticket;
use crate::core::threads::ThreadsEnd;
use crate::core::wait;
use crate::platform::sync::{Condvar, Mutex};
use crate::platform::{LeaseWatch, clock, thread};

/// The state that clones of an engine share. Dropping it ends the engine.
pub(crate) struct Last(pub(crate) Arc<Owner>);

impl Deref for Last {
    type Target = Owner;

    fn deref(&self) -> &Owner {
        &self.0
    }
}

/// Parts of an engine, and their end.
pub(crate) struct Owner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) leases: LeaseWatch,
    pub(crate) ended: Arc<ThreadsEnd>,
    pub(crate) description: String,
    pub(crate) life: Life,
    pub(crate) control: Mutex<Control>,
}

impl Owner {
    /// Shuts down, and reports an error.
    fn end(&self) {
        if let Err(error) = self.shutdown(self.shared.close_timeout()) {
            self.shared.report(&error);
        }
    }

    pub(crate) fn check_parent(&self) -> Result<()> {
        if self.shared.is_parent() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Forked,
            "cannot shut down the engine of the parent process in a forked child",
        ))
    }

    pub(crate) fn shutdown(&self, timeout: Duration) -> Result<()> {
        let shared = &self.shared;
        self.check_parent()?;
        if thread::is_ours() {
            return Err(Error::new(
                ErrorKind::WouldDeadlock,
                "cannot shut down the engine on one of its own threads",
            ));
        }
        // `None` if the time is out of range: then the wait has no end.
        let deadline = clock::instant().checked_add(timeout);
        let Some(_ending) = self.life.begin_to_end(deadline)? else { return Ok(()) };
        shared.stop();
        // A spread in progress ends here. A later one sees that the engine stops.
        drop(shared.spreading.lock());
        let emptied = shared.log.as_ref().map(|log| empty_all(shared, log, deadline));
        let emptied = emptied.unwrap_or(Ok(()));
        let mut result = emptied.and(self.release_all(deadline)).and(self.settle_direct(deadline));
        // A write may have been copied during the first pass. It is accepted, and comes after.
        while result.is_ok() && shared.level.dirty() > 0 {
            if deadline.is_some_and(|deadline| deadline <= clock::instant()) {
                let late = Error::new(
                    ErrorKind::TimedOut,
                    "a write was still being copied at the deadline and is lost",
                );
                result = Err(late);
                break;
            }
            thread::sleep(Duration::from_millis(1));
            result = self.release_all(deadline);
        }
        if shared.is_orphaned() {
            // The contexts had stopped, so the requests could not be served. The result depends on
            // whether dirty data is left.
            result = self.owed();
        }
        if result.is_err() {
            // Before anything is released.
            shared.leave_files();
        }
        if shared.log.as_ref().is_some_and(|log| !log.end(deadline)) {
            let late = "the threads of the intent log have not ended";
            result = result.and(Err(Error::new(ErrorKind::TimedOut, late)));
        }
        self.leases.shutdown();
        shared.stop_contexts();
        // A thread that has not ended by then waits for the device, and keeps the memory.
        let least = clock::instant() + Duration::from_millis(100);
        let has_ended = self.ended.wait(deadline.map(|deadline| deadline.max(least)));
        Control::end(&self.control);
        if !has_ended {
            let late = Error::new(
                ErrorKind::TimedOut,
                "requests are still in flight; their memory is not freed",
            );
            result = result.and(Err(late));
        }
        let asides = shared.table().asides();
        if !asides.iter().all(|aside| aside.settle(deadline)) {
            let late = Error::new(ErrorKind::TimedOut, "files are still being closed")
                .remedy("a file system blocks; the files are closed once it continues");
            result = result.and(Err(late));
        }
        if let Some(keeper) = &shared.keeper {
            match &result {
                Ok(()) => keeper.say_goodbye(),
                // The keeper may be able to write the rest, once the device has finished the
                // requests in flight. It waits for the end of all rings.
                Err(_) => {
                    shared.caller_queues.close();
                    keeper.leave_it();
                }
            }
        }
        self.with_unreported(result)
    }

    /// Adds a failed flush that no call has returned. The handles that are left report nothing: no
    /// context closes their files. The callback gets all but the first error.
    fn with_unreported(&self, mut result: Result<()>) -> Result<()> {
        let inodes = self.shared.table().inodes();
        for inode in inodes {
            match take_unreported(&inode) {
                None => {}
                Some(error) if result.is_ok() => result = Err(error),
                Some(error) => self.shared.report(&error),
            }
        }
        result
    }

    /// Returns an error if an engine with a broken context has accepted data that is not written.
    fn owed(&self) -> Result<()> {
        let bytes = self.shared.level.dirty() * PAGE;
        if bytes == 0 {
            return Ok(());
        }
        let then = if self.shared.keeper.is_some() { "left to the keeper" } else { "lost" };
        let what = format!("a context of the engine failed; {bytes} accepted bytes are {then}");
        Err(Error::new(ErrorKind::Io, what))
    }

    /// Writes out every file, and gives back its reserved space.
    fn release_all(&self, deadline: Option<Instant>) -> Result<()> {
        let mut result = Ok(());
        for ticket in Ticket::of_all(&self.shared, TicketKind::Release, |_| true) {
            let inode = Arc::clone(ticket.inode());
            let one = wait_for(&inode, ticket, deadline);
            if one.is_ok() {
                let aside = Arc::clone(&inode.aside);
                aside.run(move || unmark(&inode));
            }
            result = result.and(one);
        }
        result
    }
}

/// Waits until a request for a file has ended.
pub(super) fn wait_for(
    inode: &Common,
    ended: impl Future<Output = Result<()>>,
    deadline: Option<Instant>,
) -> Result<()> {
    wait::block_on_until(ended, deadline).unwrap_or_else(|| Err(Error::late(&inode.path)))
}

impl Drop for Last {
    fn drop(&mut self) {
        if !self.shared.is_parent() {
            // The parts leave what the parent uses, and some of them cannot be dropped without its
            // threads.
            std::mem::forget(Arc::clone(&self.0));
            return;
        }
        if !thread::is_ours() {
            return self.0.end();
        }
        // A callback or a waker has dropped it, on a thread that the shutdown waits for.
        let owner = Arc::clone(&self.0);
        if let Err(error) = thread::spawn("forebay-end", move || owner.end()) {
            let what = "could not start a thread to end the engine; its contexts continue to write";
            self.shared.report(&Error::new(ErrorKind::Io, what).because(error));
        }
    }
}

/// Stage of an engine. One caller shuts it down, and other callers wait for that.
#[derive(Debug, Default)]
pub(crate) struct Life {
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
pub(crate) struct Ending<'a>(&'a Life);

impl Life {
    /// Begins the shutdown; `None` if another caller has ended it already.
    ///
    /// # Errors
    /// `TimedOut` if another caller's shutdown does not end in time.
    pub(crate) fn begin_to_end(&self, deadline: Option<Instant>) -> Result<Option<Ending<'_>>> {
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
        let before = std::mem::replace(&mut *self.0.stage.lock(), Stage::Over);
        assert_eq!(before, Stage::Ending, "callers would wait for another shutdown");
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
pub(crate) enum Control {
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
    pub(crate) fn begin(control: &Mutex<Self>) -> Result<()> {
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
    pub(crate) fn served(control: &Mutex<Self>, started: Result<Box<dyn Serving>>) -> Result<()> {
        let mut place = control.lock();
        let is_over = matches!(*place, Self::Over);
        assert!(is_over || matches!(*place, Self::Starting), "a socket would be served for ever");
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
    pub(crate) fn end(control: &Mutex<Self>) {
        let before = std::mem::replace(&mut *control.lock(), Self::Over);
        if let Self::Served(serving) = before {
            serving.end();
        }
    }
}
