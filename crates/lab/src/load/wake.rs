//! Futures polled by one thread: which can go on, and its sleep until one can.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// Slots whose futures are to be polled, and the thread that polls them.
pub(crate) struct Woken {
    slots: Mutex<Vec<usize>>,
    thread: Thread,
}

struct SlotWaker {
    slot: usize,
    woken: Arc<Woken>,
}

impl Woken {
    /// Makes a waker for each of `count` slots that this thread polls.
    pub(crate) fn wakers(count: usize) -> (Arc<Self>, Vec<Waker>) {
        let woken = Arc::new(Self { slots: Mutex::new(Vec::new()), thread: thread::current() });
        let waker = |slot| Waker::from(Arc::new(SlotWaker { slot, woken: Arc::clone(&woken) }));
        let wakers = (0..count).map(waker).collect();
        (woken, wakers)
    }

    /// Takes the slots that were woken. A slot may be among them twice, or after its end.
    pub(crate) fn take(&self) -> Vec<usize> {
        std::mem::take(&mut *self.slots.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.slots.lock().unwrap_or_else(PoisonError::into_inner).push(self.slot);
        self.woken.thread.unpark();
    }
}

/// Runs futures on this thread until all have ended. Returns their results in order.
pub(crate) fn run_all<T>(futures: Vec<Pin<Box<dyn Future<Output = T> + Send>>>) -> Vec<T> {
    let (woken, wakers) = Woken::wakers(futures.len());
    let mut results: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    let mut futures: Vec<_> = futures.into_iter().map(Some).collect();
    let mut next: Vec<usize> = (0..futures.len()).collect();
    let mut left = futures.len();
    while left > 0 {
        for slot in next {
            let Some(future) = &mut futures[slot] else { continue };
            let polled = future.as_mut().poll(&mut Context::from_waker(&wakers[slot]));
            if let Poll::Ready(result) = polled {
                (futures[slot], results[slot]) = (None, Some(result));
                left -= 1;
            }
        }
        next = woken.take();
        if next.is_empty() && left > 0 {
            thread::park();
        }
    }
    results.into_iter().map(|result| result.expect("every future has ended")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn futures_that_wait_for_each_other_end() {
        let (first, second) = std::sync::mpsc::channel();
        let wait = async move {
            std::future::poll_fn(move |context| match second.try_recv() {
                Ok(number) => Poll::Ready(number),
                Err(_) => {
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
            })
            .await
        };
        let send = async move {
            first.send(7).unwrap();
            8
        };
        assert_eq!(run_all(vec![Box::pin(wait), Box::pin(send)]), [7, 8]);
    }
}
