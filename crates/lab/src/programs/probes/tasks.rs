//! Asynchronous tasks that each sync a file of their own.
//!
//! Forebay's futures run on a small executor with a thread for each processor. The standard
//! library has a thread for each task, which is what `spawn_blocking` of a runtime comes to.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Instant;

use forebay::File;
use hdrhistogram::Histogram;

use super::{content, written};
use crate::load::{CellError, Context as _};
use crate::programs::Stage;
use crate::programs::clock::{Limit, Measured, Meter, clocked, histogram, record};
use crate::programs::probe::{Probe, Writes};
use crate::programs::spec::Form;
use crate::programs::store::{Handle, How, Store};

pub(super) static PROBE: Probe =
    Probe { writes: Writes::ForATime, forms: &[Form::Again], ..Probe::new("tasks", run) };

/// A burst is four writes of 4 KiB behind the last one, or one write of the same 16 KiB again.
const BURST: u64 = 16_384;
const BLOCK: u64 = 4096;

/// Offsets and lengths of the writes of a burst.
fn writes(form: Form, turn: u64) -> impl Iterator<Item = (u64, usize)> {
    let (begin, step) = if form == Form::Again { (0, BURST) } else { (turn * BURST, BLOCK) };
    (begin..begin + BURST).step_by(step as usize).map(move |offset| (offset, step as usize))
}

type Ended = Result<Histogram<u64>, CellError>;

fn run(stage: &Stage<'_>) -> Result<Measured, CellError> {
    let measured = match &stage.store {
        Store::Std => on_threads(stage),
        Store::Forebay(_) => on_executor(stage),
    }?;
    Ok(written(measured, BURST))
}

fn on_threads(stage: &Stage<'_>) -> Result<Measured, CellError> {
    let (data, form) = (&content(BURST as usize, stage.cell.seed), stage.cell.load.form);
    let prepare = |index: u32| {
        let file = open(stage, index)?;
        Ok(move |turn: u64| {
            let began = Instant::now();
            for (offset, length) in writes(form, turn) {
                file.write_at(&data[..length], offset)?;
            }
            file.sync_data()?;
            Ok(began)
        })
    };
    clocked(stage, prepare, || Ok(()))
}

fn open(stage: &Stage<'_>, index: u32) -> Result<Handle, CellError> {
    stage.store.open(&stage.cell.directory.join(format!("{index:04}")), How::New)
}

fn on_executor(stage: &Stage<'_>) -> Result<Measured, CellError> {
    let (limit, form) = (Limit::of(stage.cell), stage.cell.load.form);
    let data = Arc::new(content(BURST as usize, stage.cell.seed));
    let ended = Arc::new(Mutex::new(Vec::new()));
    let mut futures: Vec<Pin<Box<dyn Future<Output = ()> + Send>>> = Vec::new();
    for index in 0..stage.cell.load.threads {
        let Handle::Forebay(file) = open(stage, index)? else { unreachable!("it has an engine") };
        let (data, ended) = (Arc::clone(&data), Arc::clone(&ended));
        futures.push(Box::pin(async move {
            let result = bursts(file, &data, form, limit).await;
            ended.lock().unwrap_or_else(PoisonError::into_inner).push(result);
        }));
    }
    let meter = Meter::start();
    execute(futures);
    let mut latencies = histogram();
    let ended = std::mem::take(&mut *ended.lock().unwrap_or_else(PoisonError::into_inner));
    for of_task in ended {
        latencies.add(of_task?).expect("all have the same bounds");
    }
    meter.stop(stage, latencies, || Ok(()))
}

async fn bursts(file: File, data: &[u8], form: Form, limit: Limit) -> Ended {
    let mut latencies = histogram();
    let first = Instant::now();
    for turn in 0.. {
        if !limit.allows(turn, first) {
            break;
        }
        let began = Instant::now();
        for (offset, length) in writes(form, turn) {
            file.write_at_async(&data[..length], offset).await.context("cannot write")?;
        }
        file.sync_data_async().await.context("cannot sync it")?;
        record(&mut latencies, began);
    }
    file.close_async().await.context("cannot close it")?;
    Ok(latencies)
}

/// Tasks that can go on, oldest first.
struct Queue {
    state: Mutex<QueueState>,
    ready: Condvar,
}

struct QueueState {
    tasks: VecDeque<Arc<Task>>,
    /// Tasks that have not ended.
    left: usize,
}

struct Task {
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    queue: Arc<Queue>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let queue = Arc::clone(&self.queue);
        queue.state.lock().unwrap_or_else(PoisonError::into_inner).tasks.push_back(self);
        queue.ready.notify_one();
    }
}

/// Runs futures on a thread for each processor until all have ended.
fn execute(futures: Vec<Pin<Box<dyn Future<Output = ()> + Send>>>) {
    let state = QueueState { tasks: VecDeque::new(), left: futures.len() };
    let queue = Arc::new(Queue { state: Mutex::new(state), ready: Condvar::new() });
    for future in futures {
        let task = Task { future: Mutex::new(Some(future)), queue: Arc::clone(&queue) };
        Arc::new(task).wake();
    }
    let workers = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| work(&queue));
        }
    });
}

fn work(queue: &Queue) {
    let mut state = queue.state.lock().unwrap_or_else(PoisonError::into_inner);
    while state.left > 0 {
        let Some(task) = state.tasks.pop_front() else {
            state = queue.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        drop(state);
        let ended = poll(&task);
        state = queue.state.lock().unwrap_or_else(PoisonError::into_inner);
        if ended {
            state.left -= 1;
            if state.left == 0 {
                queue.ready.notify_all();
            }
        }
    }
}

/// Polls a task once. Returns whether it has just ended.
fn poll(task: &Arc<Task>) -> bool {
    let waker = Waker::from(Arc::clone(task));
    let mut future = task.future.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(pending) = future.as_mut() else { return false };
    if pending.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Pending {
        return false;
    }
    *future = None;
    true
}
