//! Threads: starting, parking, and values of a thread.

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

/// Returns whether a waker unparks the calling thread and does nothing else: the caller of the poll
/// is a blocking call.
pub(crate) fn is_own_waker(waker: &Waker) -> bool {
    UNPARK.try_with(|own| own.will_wake(waker)).unwrap_or(false)
}
