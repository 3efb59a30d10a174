//! The part of an open file that both strategies have: its names, its descriptor, its close, and
//! the end of its service after a panic (contract 21).
//!
//! A panic in a change of a file's state is a failed assertion of ours. It is unknown what is
//! wrong, so nothing of that state is used again: the panic is noted, it ends in
//! [`Common::catch`], and every later call for the file fails until all handles are closed. Other
//! files are served as before. Any other panic continues, and on a context it ends the engine.
//!
//! A cached file is changed under its lock by any thread, and the guard of the lock notes the panic
//! (`inode/guard.rs`). Only its context changes a direct file, in [`Common::change_alone`]
//! (`direct/interrupted.rs`).

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Waker;

use forebay_block::{Errno, Target};

use crate::core::error::{Error, ErrorKind};
use crate::core::threads::Workers;
use crate::core::user_code;
use crate::platform::sync::Mutex;
use crate::platform::thread;
use crate::platform::{Direct, Home, Identity, OpenFile};

/// An open file, without what its strategy adds.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) target: Target,
    pub(crate) identity: Identity,
    pub(crate) path: PathBuf,
    home: Home,
    pub(crate) file: Arc<OpenFile>,
    /// The thread for calls that may block on its file system.
    pub(crate) aside: Arc<Workers>,
    /// Number of changes that a panic interrupted.
    interruptions: AtomicU32,
    /// Whether [`Common::change_alone`] is running.
    is_changing: AtomicBool,
    /// Number of changes until one panics, or 0.
    #[cfg(test)]
    pub(crate) trap: AtomicUsize,
    is_closed: AtomicBool,
    /// Callers that wait for the close.
    closing: Mutex<Vec<Waker>>,
}

impl Common {
    pub(crate) fn new(target: Target, path: PathBuf, file: OpenFile, aside: Arc<Workers>) -> Self {
        Self {
            target,
            identity: file.identity(),
            path,
            home: Home::here(),
            file: Arc::new(file),
            aside,
            interruptions: AtomicU32::new(0),
            is_changing: AtomicBool::new(false),
            #[cfg(test)]
            trap: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            closing: Mutex::default(),
        }
    }

    /// Creates the error for bytes that could not be read or written.
    pub(crate) fn io_error(&self, what: &str, offset: u64, errno: Errno) -> Error {
        let cause = std::io::Error::from_raw_os_error(errno.0);
        let error = Error::new(ErrorKind::at_device(&cause), what).at_path(&self.path);
        error.at_offset(offset).because(cause)
    }

    /// Returns how the file is accessed.
    pub(crate) fn describe(&self) -> String {
        match self.file.direct() {
            Direct::Yes => "direct".to_owned(),
            Direct::Refused(reason) => format!("buffered: {reason}"),
        }
    }

    /// Returns whether the calling process opened the file. A forked child takes none of its locks.
    pub(crate) fn is_here(&self) -> bool {
        self.home.is_here()
    }

    /// Returns whether the file is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Returns whether a caller waits for the close.
    pub(crate) fn is_close_awaited(&self) -> bool {
        !self.closing.lock().is_empty()
    }

    /// Notes that the file is closed, and wakes the callers that wait for that.
    pub(crate) fn note_closed(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.wake_closing();
    }

    /// Registers a caller that waits for the close. From then on it must look whether to wait.
    pub(crate) fn await_close(&self, waker: Waker) {
        self.closing.lock().push(waker);
    }

    /// Wakes the callers that wait for the close: the file was opened again, or no context is left.
    pub(crate) fn wake_closing(&self) {
        let wakers = std::mem::take(&mut *self.closing.lock());
        user_code::wake_all(wakers);
    }
}

impl Common {
    /// Notes that a panic interrupts a change of the file.
    #[cold]
    pub(crate) fn note_interruption(&self) {
        self.interruptions.fetch_add(1, Ordering::Release);
    }

    /// Returns whether a panic has interrupted a change of the file.
    #[inline]
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interruptions.load(Ordering::Acquire) > 0
    }

    /// Creates the error for all calls for a file whose change was interrupted.
    #[cold]
    pub(crate) fn interrupted(&self) -> Error {
        Error::interrupted(&self.path)
    }

    /// Runs a step of this file. Returns `None` if a panic that interrupted a change of the file
    /// ended the step. Any other panic continues.
    pub(crate) fn catch<T>(&self, step: impl FnOnce() -> T) -> Option<T> {
        let before = self.interruptions.load(Ordering::Acquire);
        // The broken state is not used again.
        match catch_unwind(AssertUnwindSafe(step)) {
            Ok(done) => Some(done),
            Err(panic) if self.interruptions.load(Ordering::Acquire) == before => {
                resume_unwind(panic)
            }
            Err(panic) => {
                tracing::error!(
                    path = %self.path.display(),
                    "a panic interrupted a change of the file; the engine continues without it"
                );
                user_code::discard(panic);
                None
            }
        }
    }

    /// Runs a change of state that only the calling thread changes, without a lock. Returns `None`
    /// if a panic has interrupted the file, now or before.
    pub(crate) fn change_alone<T>(&self, change: impl FnOnce() -> T) -> Option<T> {
        if self.is_interrupted() {
            return None;
        }
        self.catch(|| {
            let _changing = Changing::new(self);
            #[cfg(test)]
            self.spring_trap();
            change()
        })
    }

    /// Returns whether something of the file is dropped because of a panic in
    /// [`Common::change_alone`], which may still unwind.
    pub(crate) fn drops_after_panic(&self) -> bool {
        let is_unwinding = || thread::panicking() && self.is_changing.load(Ordering::Relaxed);
        self.is_interrupted() || is_unwinding()
    }

    #[cfg(test)]
    pub(crate) fn spring_trap(&self) {
        if self.trap.load(Ordering::SeqCst) > 0 && self.trap.fetch_sub(1, Ordering::SeqCst) == 1 {
            // As a panic, without its message, which takes long to print.
            resume_unwind(Box::new("a test panics in a change of the file"));
        }
    }
}

/// Change in progress.
struct Changing<'a>(&'a Common);

impl<'a> Changing<'a> {
    #[inline]
    fn new(file: &'a Common) -> Self {
        let is_alone = !file.is_changing.load(Ordering::Relaxed);
        debug_assert!(is_alone, "two threads would change the state of the file");
        file.is_changing.store(true, Ordering::Relaxed);
        Self(file)
    }
}

impl Drop for Changing<'_> {
    #[inline]
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.note_interruption();
        }
        self.0.is_changing.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use tempfile::NamedTempFile;

    use super::*;
    use crate::platform::{Access, Create, How, Truncate};

    /// Caller that looks at the file when it is woken.
    struct Caller {
        file: Arc<Common>,
        found_closed: AtomicBool,
    }

    impl Wake for Caller {
        fn wake(self: Arc<Self>) {
            self.found_closed.store(self.file.is_closed(), Ordering::SeqCst);
        }
    }

    #[test]
    fn contract_05_who_is_woken_for_a_close_finds_the_file_closed() {
        let named = NamedTempFile::new_in(".").unwrap();
        let how = How {
            access: Access::ReadWrite,
            create: Create::No,
            truncate: Truncate::Keep,
            mode: 0o600,
        };
        let file = OpenFile::open(named.path(), &how).unwrap().file;
        let path = named.path().to_owned();
        let file = Arc::new(Common::new(Target(0), path, file, Arc::default()));
        let found_closed = AtomicBool::new(false);
        let caller = Arc::new(Caller { file: Arc::clone(&file), found_closed });
        file.await_close(Waker::from(Arc::clone(&caller)));
        assert!(file.is_close_awaited() && !file.is_closed());
        file.note_closed();
        assert!(caller.found_closed.load(Ordering::SeqCst), "it would wait for ever");
        assert!(!file.is_close_awaited());
    }
}
