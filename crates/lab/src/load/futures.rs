//! Forebay's own path at a depth: that number of futures at a time, polled by the job's own thread.
//!
//! A cached write is a copy while its future is polled, and so is a read of cached data: such a
//! future ends when it starts. Futures that wait for a page or for room wait beside the others,
//! like tasks of a program on one executor. An operation costs an allocation, which a program that
//! keeps its futures in its tasks would not pay.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use forebay::{Engine, File};

use super::CellError;
use super::lane::Lane;
use super::layout::JobPlan;
use super::library::{check_read, open_files, sync};
use super::sequence::{Kind, Operation};
use crate::job::FinalSync;

type Buffer = Box<[u8]>;
type Ended = (Buffer, Result<(), CellError>);
type Flight = Pin<Box<dyn Future<Output = Ended> + Send>>;

/// A job's files in the engine of its cell, and its operations in flight.
pub(crate) struct FuturesLane {
    slots: Vec<Slot>,
    wakers: Vec<Waker>,
    woken: Arc<Woken>,
    files: Vec<Arc<File>>,
    in_flight: usize,
    /// Slots that have ended and were not reaped.
    ended: Vec<usize>,
    /// Keeps the engine while its files are open.
    _engine: Arc<Engine>,
}

enum Slot {
    Free(Buffer),
    Busy(Flight),
    /// While its future is made.
    Taken,
}

/// Slots to be polled, and the thread to wake.
struct Woken {
    slots: Mutex<Vec<usize>>,
    thread: Thread,
}

struct SlotWaker {
    slot: usize,
    woken: Arc<Woken>,
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

impl FuturesLane {
    /// On the thread that will poll them; a slot for each buffer.
    pub(crate) fn open(
        buffers: Vec<Buffer>,
        engine: Arc<Engine>,
        plan: &JobPlan,
    ) -> Result<Self, CellError> {
        let woken = Arc::new(Woken { slots: Mutex::new(Vec::new()), thread: thread::current() });
        let waker = |slot| Waker::from(Arc::new(SlotWaker { slot, woken: Arc::clone(&woken) }));
        Ok(Self {
            wakers: (0..buffers.len()).map(waker).collect(),
            ended: Vec::with_capacity(buffers.len()),
            slots: buffers.into_iter().map(Slot::Free).collect(),
            woken,
            files: open_files(&engine, plan)?.into_iter().map(Arc::new).collect(),
            in_flight: 0,
            _engine: engine,
        })
    }

    fn poll(&mut self, slot: usize) -> Result<(), CellError> {
        // One that was woken twice has ended meanwhile.
        let Slot::Busy(flight) = &mut self.slots[slot] else { return Ok(()) };
        let Poll::Ready((buffer, result)) =
            flight.as_mut().poll(&mut Context::from_waker(&self.wakers[slot]))
        else {
            return Ok(());
        };
        self.in_flight -= 1;
        self.slots[slot] = Slot::Free(buffer);
        self.ended.push(slot);
        result
    }

    /// Whether there was any.
    fn poll_woken(&mut self) -> Result<bool, CellError> {
        let woken =
            std::mem::take(&mut *self.woken.slots.lock().unwrap_or_else(PoisonError::into_inner));
        woken.iter().try_for_each(|&slot| self.poll(slot))?;
        Ok(!woken.is_empty())
    }
}

async fn operate(file: Arc<File>, mut buffer: Buffer, operation: Operation) -> Ended {
    let Operation { offset, bytes, .. } = operation;
    let part = &mut buffer[..bytes as usize];
    let result = match operation.kind {
        Kind::Write => {
            let written = file.write_at_async(part, offset).await;
            written.map_err(|error| CellError::library("could not write", &error))
        }
        Kind::Read => check_read(file.read_at_async(part, offset).await, bytes as usize, offset),
    };
    (buffer, result)
}

impl Lane for FuturesLane {
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
        let Slot::Free(buffer) = std::mem::replace(&mut self.slots[slot], Slot::Taken) else {
            panic!("slot {slot} is in flight")
        };
        let file = Arc::clone(&self.files[operation.file]);
        self.slots[slot] = Slot::Busy(Box::pin(operate(file, buffer, operation)));
        self.in_flight += 1;
        self.poll(slot)
    }

    fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    fn reap(&mut self, least: usize, ended: &mut Vec<usize>) -> Result<(), CellError> {
        let least = least.min(self.in_flight + self.ended.len());
        loop {
            // Those that end while others are polled may wake more.
            while self.poll_woken()? {}
            if self.ended.len() >= least {
                break;
            }
            thread::park();
        }
        ended.append(&mut self.ended);
        Ok(())
    }

    fn reap_until(&mut self, until: Instant, ended: &mut Vec<usize>) -> Result<(), CellError> {
        loop {
            while self.poll_woken()? {}
            let left = until.saturating_duration_since(Instant::now());
            if !self.ended.is_empty() || left.is_zero() {
                break;
            }
            thread::park_timeout(left);
        }
        ended.append(&mut self.ended);
        Ok(())
    }

    fn sync(&mut self, file: usize, how: FinalSync) -> Result<(), CellError> {
        sync(&self.files[file], how)
    }

    fn close(self: Box<Self>) -> Result<(), CellError> {
        let Self { slots, files, .. } = *self;
        // Operations in flight hold the files too.
        drop(slots);
        for file in files {
            let file = Arc::into_inner(file).expect("nothing is in flight");
            file.close().map_err(|error| CellError::library("could not close it", &error))?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for FuturesLane {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("FuturesLane")
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}
