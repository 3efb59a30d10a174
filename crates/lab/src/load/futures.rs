//! Forebay's own path at a depth: that number of futures at a time, polled by the job's own thread.
//!
//! ```text
//! start --> staged --a batch is full, or a reap--> submitted --> polled --> ended
//! ```
//!
//! A cached write is a copy while its future is polled, and so is a read of cached data: such a
//! future ends when it starts. Futures that wait for a page or for room wait beside the others,
//! like tasks of a program on one executor. An operation costs an allocation, which a program that
//! keeps its futures in its tasks would not pay.
//!
//! The call that makes the future of a direct operation submits it. The operations of a batch are
//! made inside one [`Engine::plug`], which submits at most 32 together.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use forebay::Engine;
use forebay_uring::clock;

use super::error::CellError;
use super::lane::{Lane, LaneCounters, Wait};
use super::library::{Flight, Handle};
use super::sequence::Operation;
use crate::job::FinalSync;

/// A job's files in the engine of its cell, and its operations in flight.
pub(crate) struct FuturesLane<F: Handle> {
    slots: Vec<Slot<F::Memory>>,
    wakers: Vec<Waker>,
    woken: Arc<Woken>,
    files: Vec<Arc<F>>,
    /// Started, and to be submitted together.
    staged: Vec<(usize, Operation)>,
    /// The most of them.
    batch: usize,
    /// Submitted, and not ended.
    in_flight: usize,
    /// Slots that have ended and were not reaped.
    ended: Vec<usize>,
    engine: Arc<Engine>,
}

enum Slot<Memory> {
    Free(Memory),
    Busy(Flight<Memory>),
    /// While its future is made.
    Taken,
}

impl<F: Handle> FuturesLane<F> {
    /// Makes a lane on the thread that will poll it; a slot for each buffer.
    pub(crate) fn new(
        buffers: Vec<F::Memory>,
        engine: Arc<Engine>,
        files: Vec<F>,
        batch: usize,
    ) -> Self {
        let (woken, wakers) = Woken::wakers(buffers.len());
        assert!(batch > 0 && !buffers.is_empty(), "a lane without a slot");
        Self {
            wakers,
            ended: Vec::with_capacity(buffers.len()),
            slots: buffers.into_iter().map(Slot::Free).collect(),
            woken,
            files: files.into_iter().map(Arc::new).collect(),
            staged: Vec::with_capacity(batch),
            batch,
            in_flight: 0,
            engine,
        }
    }

    /// Submits what is staged. Polls only after that: a poll that waits ends the plug.
    fn submit(&mut self) -> Result<(), CellError> {
        debug_assert!(self.staged.len() <= self.batch, "a batch too large");
        let plug = (self.staged.len() > 1).then(|| self.engine.plug());
        for &(slot, operation) in &self.staged {
            let Slot::Free(memory) = std::mem::replace(&mut self.slots[slot], Slot::Taken) else {
                panic!("slot {slot} is in flight")
            };
            let flight = self.files[operation.file].submit(memory, operation);
            self.slots[slot] = Slot::Busy(flight);
        }
        drop(plug);
        self.in_flight += self.staged.len();
        // In the order of their start.
        let mut staged = std::mem::take(&mut self.staged);
        let polled = staged.iter().try_for_each(|&(slot, _)| self.poll(slot));
        staged.clear();
        self.staged = staged;
        polled
    }

    fn poll(&mut self, slot: usize) -> Result<(), CellError> {
        // One that was woken twice has ended meanwhile.
        let Slot::Busy(flight) = &mut self.slots[slot] else { return Ok(()) };
        let Poll::Ready((buffer, result)) =
            flight.as_mut().poll(&mut Context::from_waker(&self.wakers[slot]))
        else {
            return Ok(());
        };
        assert!(self.in_flight > 0, "slot {slot} ended and was not in flight");
        self.in_flight -= 1;
        self.slots[slot] = Slot::Free(buffer);
        self.ended.push(slot);
        result
    }

    /// Polls the futures that were woken. Returns whether there was any.
    fn poll_woken(&mut self) -> Result<bool, CellError> {
        let woken = self.woken.take();
        woken.iter().try_for_each(|&slot| self.poll(slot))?;
        Ok(!woken.is_empty())
    }
}

impl<F: Handle> Lane for FuturesLane<F> {
    fn slots(&self) -> usize {
        self.slots.len()
    }

    fn buffer(&mut self, slot: usize) -> &mut [u8] {
        match &mut self.slots[slot] {
            Slot::Free(buffer) => buffer,
            Slot::Busy(_) | Slot::Taken => panic!("the buffer of slot {slot} is in flight"),
        }
    }

    fn start(&mut self, slot: usize, operation: Operation) -> Result<(), CellError> {
        self.staged.push((slot, operation));
        if self.staged.len() < self.batch { Ok(()) } else { self.submit() }
    }

    fn together(&self) -> usize {
        self.batch
    }

    fn reap(&mut self, wait: Wait, ended: &mut Vec<usize>) -> Result<(), CellError> {
        self.submit()?;
        let least = wait.least().min(self.in_flight + self.ended.len());
        loop {
            // Those that end while others are polled may wake more.
            while self.poll_woken()? {}
            match wait {
                Wait::Until(until) => {
                    let left = until - clock::now();
                    if !self.ended.is_empty() || left.is_zero() {
                        break;
                    }
                    thread::park_timeout(left);
                }
                Wait::Not | Wait::Flush | Wait::For(_) if self.ended.len() >= least => break,
                Wait::Not | Wait::Flush | Wait::For(_) => thread::park(),
            }
        }
        ended.append(&mut self.ended);
        Ok(())
    }

    fn sync(&mut self, file: usize, how: FinalSync) -> Result<(), CellError> {
        self.files[file].sync_as(how)
    }

    fn counters(&self) -> LaneCounters {
        (&self.engine.stats()).into()
    }

    fn close(self: Box<Self>) -> Result<(), CellError> {
        let Self { slots, files, .. } = *self;
        // Operations in flight hold the files too.
        drop(slots);
        let mut files = files.into_iter().map(Arc::into_inner);
        files.try_for_each(|file| file.expect("nothing is in flight").close_it())
    }
}

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
