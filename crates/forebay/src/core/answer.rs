//! Results on the way from the thread that has them to the future that returns them.
//!
//! The future of a call may be dropped at any time, which does not stop the call. Then its result
//! reaches nobody, and an error must not be lost with it: an [`Undelivered`] error goes to a
//! keeper. In a forked child the parent has it.
//!
//! Absent here: the tickets of cached files (`sync/tickets.rs`). The cache has their results: it
//! ends many of them at once, by epochs and under the lock of the file.

use std::task::{Context, Poll, Waker};

use crate::core::error::Error;
use crate::platform::Home;
use crate::platform::sync::{Mutex, MutexGuard};

/// Result of a call, given once and returned once.
#[derive(Debug)]
pub(crate) struct Answer<T>(Mutex<Place<T>>);

#[derive(Debug)]
enum Place<T> {
    /// The call has not ended. Its task is known once it was polled.
    Awaited(Option<Waker>),
    /// The future was dropped.
    Abandoned,
    Ended(T),
    /// The result was returned, or nobody was there to return it.
    Over,
}

impl<T> Default for Answer<T> {
    fn default() -> Self {
        Self(Mutex::new(Place::Awaited(None)))
    }
}

impl<T> Answer<T> {
    /// Gives the result. Returns the task to wake.
    ///
    /// # Errors
    /// The result, if the future was dropped.
    pub(crate) fn end(&self, result: T) -> Result<Option<Waker>, T> {
        let mut place = self.lock();
        match std::mem::replace(&mut *place, Place::Over) {
            Place::Awaited(waker) => {
                *place = Place::Ended(result);
                Ok(waker)
            }
            Place::Abandoned => Err(result),
            Place::Ended(_) | Place::Over => panic!("a call ends once"),
        }
    }

    /// Returns the result, once. `Pending` registers the waker of the task.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<T> {
        // Cloned, and the one before it dropped, without the lock.
        let waker = context.waker().clone();
        let mut place = self.lock();
        let next = match *place {
            Place::Awaited(_) => Place::Awaited(Some(waker)),
            _ => Place::Over,
        };
        let before = std::mem::replace(&mut *place, next);
        drop(place);
        match before {
            Place::Awaited(_) => Poll::Pending,
            Place::Ended(result) => Poll::Ready(result),
            Place::Abandoned | Place::Over => panic!("a call was polled after its end"),
        }
    }

    /// Notes that the future was dropped. Returns a result that it has not returned.
    pub(crate) fn abandon(&self) -> Option<T> {
        let mut place = self.lock();
        let next = match *place {
            Place::Awaited(_) => Place::Abandoned,
            _ => Place::Over,
        };
        let before = std::mem::replace(&mut *place, next);
        drop(place);
        match before {
            Place::Ended(result) => Some(result),
            _ => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Place<T>> {
        self.0.lock()
    }
}

/// Somebody who keeps or reports an error that its caller does not get.
pub(crate) trait Keeps {
    fn keep(&self, error: Error);
}

/// Result of a call that is not returned yet. If it is dropped, its error goes to `K`.
#[must_use = "it holds the result"]
pub(crate) struct Undelivered<K: Keeps> {
    keeps: K,
    result: Result<(), Error>,
    home: Home,
}

impl<K: Keeps> Undelivered<K> {
    pub(crate) fn new(keeps: K, result: Result<(), Error>) -> Self {
        Self { keeps, result, home: Home::here() }
    }

    /// Returns the result to the caller.
    pub(crate) fn deliver(mut self) -> Result<(), Error> {
        std::mem::replace(&mut self.result, Ok(()))
    }
}

impl<K: Keeps> Drop for Undelivered<K> {
    fn drop(&mut self) {
        let is_kept = self.home.is_here();
        if let Err(error) = std::mem::replace(&mut self.result, Ok(()))
            && is_kept
        {
            self.keeps.keep(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, mpsc};
    use std::task::Wake;

    use super::*;
    use crate::core::error::ErrorKind;

    #[test]
    fn a_result_is_returned_once_or_comes_back() {
        let context = &Context::from_waker(Waker::noop());
        let answer = Answer::default();
        assert!(answer.poll(context).is_pending());
        assert!(matches!(answer.end(7), Ok(Some(_))));
        assert_eq!(answer.poll(context), Poll::Ready(7));
        assert_eq!(answer.abandon(), None);
        let ended = Answer::default();
        assert!(matches!(ended.end(7), Ok(None)));
        assert_eq!(ended.abandon(), Some(7));
        let dropped = Answer::default();
        assert_eq!(dropped.abandon(), None);
        assert!(matches!(dropped.end(7), Err(7)));
    }

    /// Task that notes whether it was woken.
    #[derive(Default)]
    struct Task(AtomicBool);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn contract_16_a_result_wakes_the_task_that_polled_last() {
        let (answer, tasks) = (Answer::default(), [(); 2].map(|()| Arc::new(Task::default())));
        for task in &tasks {
            let waker = Waker::from(Arc::clone(task));
            assert!(answer.poll(&Context::from_waker(&waker)).is_pending());
        }
        answer.end(7).unwrap().expect("a task has polled").wake();
        assert_eq!(tasks.map(|task| task.0.load(Ordering::SeqCst)), [false, true], "the last");
    }

    impl Keeps for mpsc::Sender<ErrorKind> {
        fn keep(&self, error: Error) {
            self.send(error.kind()).unwrap();
        }
    }

    #[test]
    fn contract_02_an_error_that_is_not_delivered_is_kept() {
        let (keeps, kept) = mpsc::channel();
        let failed = || Err(Error::new(ErrorKind::Io, "a write failed"));
        drop(Undelivered::new(keeps.clone(), failed()));
        assert_eq!(kept.try_recv(), Ok(ErrorKind::Io));
        assert!(Undelivered::new(keeps.clone(), failed()).deliver().is_err());
        drop(Undelivered::new(keeps, Ok(())));
        assert!(kept.try_recv().is_err());
    }
}
