//! The backend: the ring, or the thread pool where io_uring is missing or forbidden. The layers
//! above need not know which; [`Backend::describe`] says it.
//!
//! Why an enum and not a `Box<dyn Device>`: there are two, and the files and the waker are theirs
//! as well as the requests. If the ring is refused for another reason (memory, say) there is no
//! stand-in: the reason has a remedy, and a slower engine that came unasked would hide it.

use std::io;
use std::sync::Arc;

use forebay_block::{Bio, BufferId, Completion, Device, Errno, Moment, Refused, Tag, Target, Wait};

use crate::alive::Alive;
use crate::arena::Arena;
use crate::file::OpenFile;
use crate::lent::Memory;
use crate::ring::Ring;
use crate::setup::SetupError;
use crate::threads::Threads;
use crate::waker::Waker;

/// Choice of the system calls for I/O.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Choice {
    /// io_uring, or a thread pool if io_uring is missing or forbidden.
    #[default]
    Auto,
    /// io_uring; setting up fails if it is missing or forbidden.
    IoUring,
    /// A thread pool with blocking system calls.
    Threads,
}

impl Choice {
    /// The names that [`Choice::by_name`] accepts, for an error message.
    pub const CHOICES: &'static str = "auto, io_uring, threads";

    /// Returns the choice with this name, or `None`.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "auto" => Some(Self::Auto),
            "io_uring" => Some(Self::IoUring),
            "threads" => Some(Self::Threads),
            _ => None,
        }
    }

    /// Returns the name that [`Choice::by_name`] accepts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::IoUring => "io_uring",
            Self::Threads => "threads",
        }
    }
}

/// Error of setting up a backend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The ring could not be set up, and no thread pool may replace it.
    #[error(transparent)]
    Ring(#[from] SetupError),
    /// The thread pool could not be started.
    #[error(
        "could not start a thread pool: {0} (raise the limits of threads and descriptors: `ulimit -u`, `ulimit -n`)"
    )]
    Threads(#[source] io::Error),
}

/// The device over real files, of either kind.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one for each context, and a box would be one more step to it"
)]
pub enum Backend {
    /// By io_uring.
    Ring(Ring),
    /// By system calls on threads.
    Threads(Threads),
}

impl Backend {
    /// The ring, or the thread pool where io_uring is missing or forbidden; for `entries` requests
    /// staged at once.
    ///
    /// # Errors
    /// Why there is neither, and what to do about it.
    pub fn new(arena: Arc<Arena>, entries: u32) -> Result<Self, BackendError> {
        Self::chosen(Choice::Auto, arena, entries)
    }

    /// The backend that is wanted.
    ///
    /// # Errors
    /// As [`Backend::new`].
    pub fn chosen(choice: Choice, arena: Arc<Arena>, entries: u32) -> Result<Self, BackendError> {
        if choice == Choice::Threads {
            return Threads::new(arena, entries).map(Self::Threads).map_err(BackendError::Threads);
        }
        match Ring::new(Arc::clone(&arena), entries) {
            Ok(ring) => Ok(Self::Ring(ring)),
            Err(refused) if choice == Choice::Auto && is_absent(&refused) => {
                tracing::warn!(%refused, "a thread pool stands in for the ring");
                let threads = Threads::instead_of_ring(arena, entries, &refused);
                threads.map(Self::Threads).map_err(BackendError::Threads)
            }
            Err(refused) => Err(refused.into()),
        }
    }

    /// Makes the backend hold one end of a pipe, so that another process learns when the backend
    /// and all its requests are gone. Returns whether that is possible. Nothing may be in flight;
    /// after the first doorbell, call it on the same thread.
    pub fn set_alive(&mut self, alive: &Alive) -> bool {
        match self {
            Self::Ring(ring) => ring.set_alive(alive),
            Self::Threads(threads) => threads.set_alive(alive),
        }
    }

    /// Returns one line that names the backend and its missing features.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Ring(ring) => ring.describe(),
            Self::Threads(threads) => threads.describe(),
        }
    }

    /// Returns a waker that ends a waiting doorbell from any thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        match self {
            Self::Ring(ring) => ring.waker(),
            Self::Threads(threads) => threads.waker(),
        }
    }

    /// Returns the number of requests that were prepared and have not been reaped.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        match self {
            Self::Ring(ring) => ring.in_flight(),
            Self::Threads(threads) => threads.in_flight(),
        }
    }

    /// Attaches a file under the number of a target. Numbers index a table: use small ones, and
    /// reuse them.
    pub fn attach(&mut self, target: Target, file: Arc<OpenFile>) {
        match self {
            Self::Ring(ring) => ring.attach(target, file),
            Self::Threads(threads) => threads.attach(target, file),
        }
    }

    /// Registers the file under the number again, after [`OpenFile::make_writable`]. Requests that
    /// are in flight keep the open file they began with.
    pub fn renew(&mut self, target: Target) {
        match self {
            Self::Ring(ring) => ring.renew(target),
            // A thread names the descriptor with each call.
            Self::Threads(_) => {}
        }
    }

    /// Detaches and returns the file of a target.
    pub fn detach(&mut self, target: Target) -> Arc<OpenFile> {
        match self {
            Self::Ring(ring) => ring.detach(target),
            Self::Threads(threads) => threads.detach(target),
        }
    }

    /// Lends memory to requests and returns its number, which is valid until it is taken back.
    pub fn lend(&mut self, memory: Memory) -> BufferId {
        match self {
            Self::Ring(ring) => ring.lend(memory),
            Self::Threads(threads) => threads.lend(memory),
        }
    }

    /// Ends a loan and returns the memory.
    ///
    /// # Panics
    /// If the number is not lent, or a request in flight uses it.
    pub fn take_back(&mut self, buffer: BufferId) -> Memory {
        match self {
            Self::Ring(ring) => ring.take_back(buffer),
            Self::Threads(threads) => threads.take_back(buffer),
        }
    }
}

impl Device for Backend {
    fn now(&mut self) -> Moment {
        match self {
            Self::Ring(ring) => ring.now(),
            Self::Threads(threads) => threads.now(),
        }
    }

    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        match self {
            Self::Ring(ring) => ring.prepare(tag, request),
            Self::Threads(threads) => threads.prepare(tag, request),
        }
    }

    fn doorbell(&mut self, wait: Wait) -> Result<(), Errno> {
        match self {
            Self::Ring(ring) => ring.doorbell(wait),
            Self::Threads(threads) => threads.doorbell(wait),
        }
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        match self {
            Self::Ring(ring) => ring.reap(completions),
            Self::Threads(threads) => threads.reap(completions),
        }
    }
}

/// Whether io_uring, or what is needed of it, is not to be had here at all.
fn is_absent(refused: &SetupError) -> bool {
    match refused {
        SetupError::Missing | SetupError::Forbidden(_) | SetupError::TooOld(_) => true,
        // A filter that lets a ring be made and refuses what follows.
        SetupError::Other(error) => {
            matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSYS))
        }
        SetupError::Memory(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_found_by_their_names() {
        for name in Choice::CHOICES.split(", ") {
            assert_eq!(Choice::by_name(name).map(Choice::name), Some(name));
        }
        assert_eq!(Choice::by_name("ring"), None);
        assert_eq!(Choice::default(), Choice::by_name("auto").unwrap());
    }

    #[test]
    fn contract_17_what_is_absent_is_replaced_and_what_can_be_remedied_is_reported() {
        let other = |code| SetupError::Other(io::Error::from_raw_os_error(code));
        assert!(
            is_absent(&SetupError::Missing) && is_absent(&SetupError::Forbidden(String::new()))
        );
        assert!(is_absent(&SetupError::TooOld("x")) && is_absent(&other(libc::EPERM)));
        assert!(!is_absent(&other(libc::EMFILE)));
        assert!(!is_absent(&SetupError::Memory(io::Error::from_raw_os_error(libc::ENOMEM))));
    }
}
