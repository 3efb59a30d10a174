//! The threads that serve, and how they end.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;

/// Starts threads. Each of them may have a copy, to start more.
#[derive(Clone, Debug)]
pub(crate) struct Threads(Sender<io::Result<()>>);

/// The results of the threads.
#[derive(Debug)]
pub(crate) struct Ends(Receiver<io::Result<()>>);

impl Threads {
    pub(crate) fn new() -> (Self, Ends) {
        let (end, ends) = channel();
        (Self(end), Ends(ends))
    }

    pub(crate) fn start(
        &self,
        name: &str,
        work: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let end = self.0.clone();
        let work = move || {
            let done = catch_unwind(AssertUnwindSafe(work));
            let panicked = |_| Err(io::Error::other("a thread of the mount panicked"));
            let _ = end.send(done.unwrap_or_else(panicked));
        };
        Builder::new().name(name.to_owned()).spawn(work).map(drop)
    }
}

impl Ends {
    /// Waits until all threads have ended, and returns the first error.
    pub(crate) fn wait(self) -> io::Result<()> {
        self.0.into_iter().fold(Ok(()), io::Result::and)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_that_of_the_last_thread_with_the_first_error() {
        let (threads, ends) = Threads::new();
        let more = threads.clone();
        let started = move || more.start("second", || panic!("as it may happen"));
        threads.start("first", started).unwrap();
        drop(threads);
        assert!(ends.wait().unwrap_err().to_string().contains("panicked"));
        let (threads, ends) = Threads::new();
        threads.start("one", || Ok(())).unwrap();
        drop(threads);
        ends.wait().unwrap();
    }
}
