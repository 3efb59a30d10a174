//! Asynchronous tasks that each sync a file of their own.
//!
//! Forebay's futures run on a thread for each processor, which polls its share of them. The
//! standard library has a thread for each task, which is what `spawn_blocking` of a runtime comes
//! to.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::thread;

use forebay::{AsyncFile, File};
use forebay_uring::clock;

use crate::load::driver::Tally;
use crate::load::error::{CellError, Context};
use crate::load::futures::run_all;
use crate::programs::clock::{Limit, Measured, Meter, clocked};
use crate::programs::program::{Program, Writes};
use crate::programs::spec::Form;
use crate::programs::stage::{Stage, content};
use crate::programs::store::{Handle, How, Store};

pub(super) static PROBE: Program =
    Program { writes: Writes::ForATime, forms: &[Form::Again], ..Program::new("tasks", run) };

/// A burst is four writes of 4 KiB behind the last one, or one write of the same 16 KiB again.
const BURST: u64 = 16_384;
const BLOCK: u64 = 4096;

/// Returns offsets and lengths of the writes of a burst.
fn writes(form: Form, turn: u64) -> impl Iterator<Item = (u64, usize)> {
    let (begin, step) = if form == Form::Again { (0, BURST) } else { (turn * BURST, BLOCK) };
    (begin..begin + BURST).step_by(step as usize).map(move |offset| (offset, step as usize))
}

type Ended = Result<Tally, CellError>;

fn run(stage: &Stage<'_>) -> Result<Measured, CellError> {
    match &stage.store {
        Store::Std => on_threads(stage),
        Store::Forebay(_) => on_executor(stage),
    }
}

fn on_threads(stage: &Stage<'_>) -> Result<Measured, CellError> {
    let (data, form) = (&content(BURST as usize, stage.cell.seed), stage.load.form);
    let prepare = |index: u32| {
        let file = open(stage, index)?;
        Ok(move |turn: u64| burst(&file, data, form, turn))
    };
    clocked(stage, BURST as u32, prepare, || Ok(()))
}

fn burst(file: &Handle, data: &[u8], form: Form, turn: u64) -> Result<(), CellError> {
    for (offset, length) in writes(form, turn) {
        file.write_at(&data[..length], offset)?;
    }
    file.sync_data()
}

fn open(stage: &Stage<'_>, index: u32) -> Result<Handle, CellError> {
    stage.store.open(&stage.cell.directory.join(format!("{index:04}")), How::New)
}

fn on_executor(stage: &Stage<'_>) -> Result<Measured, CellError> {
    let (limit, form, warm) = (Limit::of(stage), stage.load.form, u64::from(stage.load.warm));
    let data = Arc::new(content(BURST as usize, stage.cell.seed));
    let workers = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut futures: Vec<Vec<Pin<Box<dyn Future<Output = Ended> + Send>>>> = Vec::new();
    futures.resize_with(workers, Vec::new);
    for index in 0..stage.load.threads {
        let file = open(stage, index)?;
        for turn in 0..warm {
            burst(&file, &data, form, turn)?;
        }
        let Handle::Forebay(file) = file else { unreachable!("it has an engine") };
        let data = Arc::clone(&data);
        futures[index as usize % workers]
            .push(Box::pin(async move { bursts(file, &data, form, warm, limit).await }));
    }
    assert!(workers > 0, "nobody polls the tasks");
    let meter = Meter::start();
    let ended: Vec<Ended> = thread::scope(|scope| {
        let worker = |futures| scope.spawn(move || run_all(futures));
        let workers: Vec<_> = futures.into_iter().map(worker).collect();
        let ended = workers.into_iter().flat_map(|one| one.join().expect("no task panics"));
        ended.collect()
    });
    let mut all = Tally::new();
    for of_task in ended {
        all.add(&of_task?);
    }
    let bytes = all.bytes;
    Ok(Measured { bytes, ..meter.stop(stage, all.latencies, || Ok(()))? })
}

async fn bursts(file: File, data: &[u8], form: Form, warm: u64, limit: Limit) -> Ended {
    let mut tally = Tally::new();
    let first = clock::now();
    for turn in 0.. {
        if !limit.allows(turn, first) {
            break;
        }
        let began = clock::now();
        for (offset, length) in writes(form, warm + turn) {
            file.asynchronous().write_at(&data[..length], offset).await.context("cannot write")?;
        }
        file.asynchronous().sync_data().await.context("cannot sync it")?;
        tally.record(BURST as u32, 1, clock::now() - began);
    }
    AsyncFile::close(file).await.context("cannot close it")?;
    Ok(tally)
}
