//! Forebay's own path: every job's files in one engine, one blocking call after the other. The
//! engine's counters show its own requests in flight. A job with a depth goes by
//! [`super::futures`].

use std::sync::Arc;

use forebay::{Engine, ErrorKind, File, Keeper, Open};

use super::CellError;
use super::lane::{Buffers, Lane};
use super::layout::{FileKind, JobPlan};
use super::sequence::{Kind, Operation};
use crate::arm::Arm;
use crate::job::{Caching, FinalSync, YesNo};

/// The keeper of an arm that has one: the program that this one is, which has to be `forebay`.
pub(crate) fn keeper(arm: Arm) -> Option<Keeper> {
    (arm == Arm::ForebaySurvive).then(|| Keeper::program("/proc/self/exe"))
}

/// An engine with this budget (its own default if zero), unless the settings say otherwise.
pub(crate) fn build_engine(
    budget_bytes: u64,
    settings: &[(String, String)],
    keeper: Option<Keeper>,
) -> Result<Engine, CellError> {
    let mut builder = Engine::builder();
    if let Some(keeper) = keeper {
        builder = builder.survive(keeper);
    }
    if budget_bytes > 0 {
        builder = builder.cache_bytes(budget_bytes);
    }
    for (key, value) in settings {
        builder = builder
            .set(key, value)
            .map_err(|error| CellError::invalid(format!("--set {key}={value}: {error}")))?;
    }
    builder.build().map_err(|error| CellError::library("could not make the engine", &error))
}

/// Opens a job's files: uncached where the job is, with their length told where the job does that.
pub(crate) fn open_files(engine: &Engine, plan: &JobPlan) -> Result<Vec<File>, CellError> {
    let job = &plan.job;
    let mut files = Vec::with_capacity(plan.files.len());
    for file in &plan.files {
        let how = match (plan.writes(), file.kind) {
            (true, FileKind::Regular) => Open::create(),
            (true, FileKind::BlockDevice) => Open::write(),
            (false, _) => Open::read(),
        };
        let how = if job.caching == Caching::Uncached { how.uncached(true) } else { how };
        let open = engine.open(&file.path, how);
        let open = open.map_err(|error| match error.kind() {
            // It serves no such file, or not here.
            ErrorKind::Unsupported => CellError::unavailable(error.to_string()),
            _ => CellError::library("could not open it", &error),
        })?;
        if plan.writes() && job.declared == YesNo::Yes && file.kind == FileKind::Regular {
            open.set_len(file.length)
                .map_err(|error| CellError::library("could not give it its length", &error))?;
        }
        files.push(open);
    }
    Ok(files)
}

/// Compares the data of a read with the expected data.
pub(crate) fn check_read(
    read: forebay::Result<usize>,
    asked: usize,
    offset: u64,
) -> Result<(), CellError> {
    match read {
        Ok(read) if read == asked => Ok(()),
        Ok(read) => {
            Err(CellError::Process { what: format!("read {read} of {asked} bytes at {offset}") })
        }
        Err(error) => Err(CellError::library("could not read", &error)),
    }
}

/// The sync a job asks for.
pub(crate) fn sync(file: &File, how: FinalSync) -> Result<(), CellError> {
    let result = match how {
        FinalSync::Data => file.sync_data(),
        FinalSync::All => file.sync_all(),
    };
    result.map_err(|error| CellError::library("could not sync it", &error))
}

/// A job's files in the engine of its cell.
pub(crate) struct LibraryLane {
    buffers: Buffers,
    files: Vec<File>,
    /// Keeps the engine while its files are open.
    _engine: Arc<Engine>,
    ended: bool,
}

impl LibraryLane {
    pub(crate) fn open(
        buffers: Buffers,
        engine: Arc<Engine>,
        plan: &JobPlan,
    ) -> Result<Self, CellError> {
        Ok(Self { buffers, files: open_files(&engine, plan)?, _engine: engine, ended: false })
    }
}

impl Lane for LibraryLane {
    fn slots(&self) -> usize {
        1
    }

    fn buffer(&mut self, slot: usize) -> &mut [u8] {
        self.buffers.slot(slot)
    }

    fn start(&mut self, slot: usize, operation: Operation) -> Result<(), CellError> {
        let buffer = &mut self.buffers.slot(slot)[..operation.bytes as usize];
        let file = &self.files[operation.file];
        match operation.kind {
            Kind::Write => file
                .write_at(buffer, operation.offset)
                .map_err(|error| CellError::library("could not write", &error))?,
            Kind::Read => {
                let read = file.read_at(buffer, operation.offset);
                check_read(read, buffer.len(), operation.offset)?;
            }
        }
        self.ended = true;
        Ok(())
    }

    fn reap(&mut self, _least: usize, ended: &mut Vec<usize>) -> Result<(), CellError> {
        if std::mem::take(&mut self.ended) {
            ended.push(0);
        }
        Ok(())
    }

    fn sync(&mut self, file: usize, how: FinalSync) -> Result<(), CellError> {
        sync(&self.files[file], how)
    }

    fn close(self: Box<Self>) -> Result<(), CellError> {
        let Self { files, _engine, .. } = *self;
        for file in files {
            file.close().map_err(|error| CellError::library("could not close it", &error))?;
        }
        Ok(())
    }
}
