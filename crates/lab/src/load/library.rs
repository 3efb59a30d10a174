//! Forebay's own path: every job's files in one engine.
//!
//! A cached write is a copy and a cached read mostly is, so a job of any depth is served by its own thread, one call
//! after the other. What the engine keeps in flight behind that is its own affair and shows in its counters.

use std::sync::Arc;

use forebay::{Engine, File, Open};

use super::CellError;
use super::lane::{Buffers, Lane};
use super::layout::{FileKind, JobPlan};
use super::sequence::{Kind, Operation};
use crate::job::{Declared, FinalSync};

/// An engine with this budget (its own default if zero), unless the settings say otherwise.
pub(crate) fn build_engine(budget_bytes: u64, settings: &[(String, String)]) -> Result<Engine, CellError> {
    let mut builder = Engine::builder();
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

/// A job's files in the engine of its cell.
pub(crate) struct LibraryLane {
    buffers: Buffers,
    files: Vec<File>,
    /// Keeps the engine while its files are open.
    _engine: Arc<Engine>,
    ended: bool,
}

impl LibraryLane {
    pub(crate) fn open(buffers: Buffers, engine: Arc<Engine>, plan: &JobPlan) -> Result<Self, CellError> {
        let mut files = Vec::with_capacity(plan.files.len());
        for file in &plan.files {
            let how = match (plan.writes(), file.kind) {
                (true, FileKind::Regular) => Open::create(),
                (true, FileKind::BlockDevice) => Open::write(),
                (false, _) => Open::read(),
            };
            let open = engine.open(&file.path, how);
            let open = open.map_err(|error| CellError::library("could not open it", &error))?;
            if plan.writes() && plan.job.declared == Declared::Yes && file.kind == FileKind::Regular {
                open.set_len(file.length)
                    .map_err(|error| CellError::library("could not give it its length", &error))?;
            }
            files.push(open);
        }
        Ok(Self { buffers, files, _engine: engine, ended: false })
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
                let read = file
                    .read_at(buffer, operation.offset)
                    .map_err(|error| CellError::library("could not read", &error))?;
                if read < buffer.len() {
                    let asked = buffer.len();
                    let reason = format!("read {read} of {asked} bytes at {}", operation.offset);
                    return Err(CellError::Process { what: reason });
                }
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
        let result = match how {
            FinalSync::Data => self.files[file].sync_data(),
            FinalSync::All => self.files[file].sync_all(),
        };
        result.map_err(|error| CellError::library("could not sync it", &error))
    }

    fn close(self: Box<Self>) -> Result<(), CellError> {
        let Self { files, _engine, .. } = *self;
        for file in files {
            file.close().map_err(|error| CellError::library("could not close it", &error))?;
        }
        Ok(())
    }
}
