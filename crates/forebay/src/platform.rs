//! The machine, as the engine's core sees it: files, rings, memory, clocks, threads and locks.
//!
//! The core (`core/`) uses the machine only through this module. It is compiled twice: here, over
//! `forebay_uring` and `std`, and in the crate `forebay-sim`, where a module with the same names
//! simulates the machine. So the shipped engine is the simulated engine. The shipped one pays
//! nothing: every name here is a re-export or an inlined function. Decision 22 explains why this is
//! a module and not a type parameter.

/// Hash tables.
pub(crate) mod collections {
    pub(crate) use std::collections::{HashMap, HashSet};
}

pub(crate) use forebay_cache::limits::MIN_CACHE_PAGES;
/// Minimum of `dirty_bytes`, in pages: four large requests. The simulation has a smaller limit, so
/// that a short run reaches it.
pub(crate) const MIN_DIRTY_PAGES: u64 = 4 * forebay_cache::limits::GATHER_PAGES;

pub(crate) use forebay_uring::frames::{MOST_PARTS, Part};
pub(crate) use forebay_uring::logged::random_bytes;
pub(crate) use forebay_uring::probe::{jiffy, memory_limit};
pub(crate) use forebay_uring::{
    Access, AlignedMemory, Alignment, Alive, Arena, Backend, BackendError, Buffers, Coverage,
    Create, Direct, EntryKind, Extents, FILE_RECORDS, FileRecord, Flush, FrameState, Geometry,
    Header, Home, How, Identity, Inline, Kind, Lasting, LeaseWatch, Lock, Memory, Mode, Named,
    OpenDirectory, OpenFile, Opened, Piece, PrivateFile, Replace, Rewrite, Truncate, Waker,
};
/// Time in an attribute of a file.
pub(crate) use std::time::SystemTime as FileTime;

pub use forebay_uring::{Choice, Times};

/// The clocks.
pub(crate) mod clock {
    use std::time::{Duration, Instant};

    pub(crate) use forebay_uring::clock::{coarse, now, wall};

    /// Returns the length of a window that measures the rate of a number of contexts: long against
    /// a handover, short against a load. The simulation has a shorter one.
    #[inline]
    pub(crate) const fn contexts_window() -> Duration {
        Duration::from_millis(50)
    }

    /// Returns the time, to compare with deadlines.
    #[inline]
    pub(crate) fn instant() -> Instant {
        Instant::now()
    }
}

/// Calls that take a path.
pub(crate) mod files {
    use std::io;
    use std::os::unix::fs::FileTypeExt as _;
    use std::path::{Path, PathBuf};

    pub(crate) use forebay_uring::probe::mounted_at;

    /// Maximum of symbolic links to follow, as in the kernel.
    const LINKS: usize = 40;

    /// Returns the identity of the file that a path names.
    pub(crate) fn identity_of(path: &Path) -> io::Result<forebay_uring::Identity> {
        forebay_uring::OpenFile::identity_of(path)
    }

    /// Returns the path that bytes of the kernel name.
    pub(crate) fn path_of_bytes(bytes: &[u8]) -> PathBuf {
        use std::os::unix::ffi::OsStrExt as _;
        PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
    }

    /// Returns the bytes that name a path to the kernel.
    pub(crate) fn bytes_of_path(path: &Path) -> Vec<u8> {
        use std::os::unix::ffi::OsStrExt as _;
        path.as_os_str().as_bytes().to_vec()
    }

    /// Returns whether a path names a block device.
    pub(crate) fn is_device(path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
    }

    /// Returns the path that a symbolic link to a missing file names: an exclusive open creates
    /// nothing through a link. Returns the path itself if it is no link.
    pub(crate) fn end_of_links(path: &Path) -> PathBuf {
        let mut end = path.to_owned();
        for _ in 0..LINKS {
            let Ok(target) = std::fs::read_link(&end) else { break };
            end = end.parent().unwrap_or(Path::new("")).join(target);
        }
        end
    }

    /// Returns the path of an open file, without links. A removed file has a path that names
    /// nothing.
    pub(crate) fn path_of(file: &forebay_uring::OpenFile) -> io::Result<PathBuf> {
        use std::os::fd::{AsFd as _, AsRawFd as _};
        std::fs::read_link(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()))
    }

    /// Returns the path with the current directory before it.
    pub(crate) fn absolute(path: &Path) -> io::Result<PathBuf> {
        std::path::absolute(path)
    }

    /// Returns how many descriptors this process may have open.
    pub(crate) fn descriptor_limit() -> usize {
        let limit = forebay_uring::detached::descriptor_limit();
        limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
    }
}

/// Locks.
pub(crate) mod sync {
    use std::sync::PoisonError;
    use std::time::Instant;

    pub(crate) use std::sync::{MutexGuard, OnceLock};

    /// Mutex that a panic does not poison. A panic under a file's lock poisons that file alone, and
    /// must not affect the data and errors of other files.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

    impl<T> Mutex<T> {
        #[inline]
        pub(crate) const fn new(value: T) -> Self {
            Self(std::sync::Mutex::new(value))
        }

        /// Locks the mutex. Blocks while another thread has it.
        #[inline]
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// Condition variable for a [`Mutex`].
    #[derive(Debug, Default)]
    pub(crate) struct Condvar(std::sync::Condvar);

    impl Condvar {
        pub(crate) const fn new() -> Self {
            Self(std::sync::Condvar::new())
        }

        /// Waits for a notification; it may also return without one.
        pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
        }

        /// As [`Condvar::wait`], but no longer than until the deadline, if given. Returns whether
        /// the deadline has passed.
        pub(crate) fn wait_until<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            deadline: Option<Instant>,
        ) -> (MutexGuard<'a, T>, bool) {
            let Some(deadline) = deadline else { return (self.wait(guard), false) };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return (guard, true);
            }
            let waited = self.0.wait_timeout(guard, left);
            (waited.unwrap_or_else(PoisonError::into_inner).0, false)
        }

        /// Wakes one thread that waits.
        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

/// Threads: starting, parking, and values of a thread.
pub(crate) mod thread {
    use std::cell::Cell;
    use std::io;
    use std::sync::Arc;
    use std::task::{Wake, Waker};
    use std::thread::{self, Thread};
    use std::time::Instant;

    pub(crate) use std::thread::{panicking, park, sleep, yield_now};

    pub(crate) use forebay_uring::clock::spent;
    pub(crate) use forebay_uring::priority::set_realtime;

    thread_local! {
        static OURS: Cell<bool> = const { Cell::new(false) };
        static UNPARK: Waker = Waker::from(Arc::new(Unpark(thread::current())));
    }

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }

        fn wake_by_ref(self: &Arc<Self>) {
            self.0.unpark();
        }
    }

    /// Declares a value per thread. `try_with` fails once the thread is ending.
    macro_rules! task_local {
        ($(#[$meta:meta])* static $name:ident: $type:ty = $initial:expr;) => {
            thread_local! { $(#[$meta])* static $name: $type = const { $initial }; }
        };
    }
    pub(crate) use task_local;

    /// Returns the number of threads that can run at a time.
    pub(crate) fn processors() -> usize {
        thread::available_parallelism().map_or(1, usize::from)
    }

    /// Starts a thread that is never joined.
    pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
    }

    /// Checks that a thread of this process may have a real-time priority.
    pub(crate) fn try_realtime() -> io::Result<()> {
        let tried = thread::Builder::new().spawn(|| set_realtime(true))?.join();
        tried.expect("setting a priority does not panic")
    }

    /// Parks the calling thread until it is unparked, or until the deadline.
    pub(crate) fn park_until(deadline: Instant) {
        thread::park_timeout(deadline.saturating_duration_since(Instant::now()));
    }

    /// Marks the calling thread as one of the engine's own.
    pub(crate) fn mark_as_ours() {
        OURS.with(|ours| ours.set(true));
    }

    /// Returns whether the calling thread is one of the engine's own.
    pub(crate) fn is_ours() -> bool {
        OURS.with(Cell::get)
    }

    /// Runs something with a waker that unparks the calling thread.
    pub(crate) fn with_waker<T>(run: impl FnOnce(&Waker) -> T) -> T {
        let mut run = Some(run);
        let mut once = |waker: &Waker| run.take().map(|run| run(waker));
        // The thread's own waker no longer exists when the destructor of another thread-local value
        // waits: an engine, or a file, may be such a value.
        let done = UNPARK
            .try_with(|waker| once(waker))
            .unwrap_or_else(|_| once(&Waker::from(Arc::new(Unpark(thread::current())))));
        done.expect("the closure runs once")
    }

    /// Returns whether a waker unparks the calling thread and does nothing else: the caller of the
    /// poll is a blocking call.
    pub(crate) fn is_own_waker(waker: &Waker) -> bool {
        UNPARK.try_with(|own| own.will_wake(waker)).unwrap_or(false)
    }
}
