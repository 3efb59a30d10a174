//! From what an arm does in a job to a cell: where its files are, from which seed, with which
//! knobs.

use std::io;
use std::path::{Path, PathBuf};

use crate::arm::Arm;
use crate::cell::{Cell, CellSpec, FioCell, SyncProbe, Verify};
use crate::echo::EchoCell;
use crate::job::{Declared, Workload};
use crate::plan::{JobFileWork, Work};
use crate::programs::spec::{CountCalls, ProgramCell};
use crate::request::RequestSpec;
use crate::suite::job_file::MEMORY_BYTES;
use crate::through::{CopyCell, RequestCell, Through};

use super::Setting;

/// What is decided for each cell anew.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turned<'a> {
    /// Its directory is called so.
    pub(super) name: &'a str,
    pub(super) seed: u64,
    pub(super) verify: Verify,
    /// Where jobs on a device work.
    pub(super) device: Option<&'a Path>,
}

/// Where the files of a cell are.
pub(super) fn directory_of(cell: &Cell) -> Option<&Path> {
    match cell {
        Cell::Jobs(cell) => Some(&cell.directory),
        Cell::Requests(cell) => Some(&cell.directory),
        Cell::Copies(cell) => Some(&cell.directory),
        Cell::Fio(cell) => Some(&cell.directory),
        Cell::Program(cell) => Some(&cell.directory),
        Cell::Echo(_) => None,
    }
}

/// A group of a job file, through fio or an arm for files.
fn job_file(work: &JobFileWork, directory: PathBuf, turned: Turned<'_>) -> Cell {
    let (Turned { seed, verify, .. }, workload) = (turned, work.file.workload.clone());
    let Through::Files(arm) = work.through else {
        return Cell::Fio(FioCell { text: work.file.text.clone(), workload, directory, seed });
    };
    Cell::Jobs(CellSpec {
        workload,
        arm,
        directory,
        budget_bytes: MEMORY_BYTES,
        settings: work.settings.clone(),
        control: None,
        seed,
        verify,
        sync_probe: SyncProbe::Off,
    })
}

/// The cell of some work, with a new directory where it needs one.
pub(super) fn cell(setting: &Setting<'_>, work: &Work, turned: Turned<'_>) -> io::Result<Cell> {
    let Turned { name, seed, verify, device } = turned;
    let scratch = setting.scratch;
    Ok(match work {
        Work::NewFiles { arm, size, knobs } => {
            let workload = Workload::random_writes_into_new_files(
                size.files,
                size.file_bytes,
                size.block_bytes,
            );
            let declared = if *arm == Arm::ForebayDeclared { Declared::Yes } else { Declared::No };
            Cell::Jobs(CellSpec {
                workload: workload.declared(declared),
                arm: *arm,
                directory: scratch.cell_directory(name)?,
                budget_bytes: size.budget_bytes,
                settings: setting.settings.iter().chain(knobs).cloned().collect(),
                control: None,
                seed,
                verify,
                sync_probe: SyncProbe::On,
            })
        }
        Work::JobFile(work) => job_file(work, scratch.cell_directory(name)?, turned),
        Work::Jobs(work) => {
            let on_device = work.shape.on == crate::shape::Ground::Device;
            // The device may be that of the cells' file system, which must not be mounted then.
            let directory = if on_device {
                scratch.directory_beside(name)
            } else {
                scratch.cell_directory(name)
            };
            Cell::Jobs(CellSpec {
                workload: work.shape.workload(work.arm, work.extent, device.filter(|_| on_device)),
                arm: work.arm,
                directory: directory?,
                budget_bytes: work.shape.budget_bytes(work.arm),
                settings: work.settings.clone(),
                control: None,
                seed,
                verify,
                sync_probe: work.shape.beside,
            })
        }
        Work::Writers(work) => {
            let raw = work.arm.is_raw();
            let directory =
                if raw { scratch.directory_beside(name) } else { scratch.cell_directory(name) };
            let device = device.filter(|_| raw);
            Cell::Jobs(CellSpec {
                workload: work.writers.workload(work.arm, work.layout, work.file_bytes, device),
                arm: work.arm,
                directory: directory?,
                budget_bytes: work.budget_bytes,
                settings: work.settings.clone(),
                seed,
                verify,
                // There is no file beside those of the load on a device.
                sync_probe: if raw { SyncProbe::Off } else { SyncProbe::On },
                control: None,
            })
        }
        Work::Requests { way, poll, spec } => Cell::Requests(RequestCell {
            way: *way,
            spec: RequestSpec { seed, ..(**spec).clone() },
            poll: *poll,
            directory: scratch.shared_directory()?,
            target: setting.plan.target.as_ref().map(|target| target.path().to_owned()),
        }),
        Work::Echo { way, order, load, seconds } => Cell::Echo(EchoCell {
            way: *way,
            order: *order,
            load: *load,
            seconds: *seconds,
            seed,
            directory: scratch.cell_directory(name)?,
            processors: setting.processors.to_vec(),
        }),
        Work::Program(work) => {
            let directory = match work.load.keeps_files() {
                true => scratch.kept_directory(name)?,
                false => scratch.cell_directory(name)?,
            };
            // A file system of the cells' own may be another for each cell.
            let shared = work.load.shares_source() && scratch.made().is_none();
            Cell::Program(ProgramCell {
                way: work.way,
                load: work.load,
                seconds: work.seconds,
                settings: work.settings.clone(),
                seed,
                source: if shared { scratch.shared_directory()? } else { directory.clone() },
                directory,
                // In one round: they hardly differ from one to the next.
                count_calls: match verify {
                    Verify::After => CountCalls::On,
                    Verify::Off => CountCalls::Off,
                },
            })
        }
        Work::Copies { way, block_bytes, file_bytes, seconds, settings } => {
            Cell::Copies(CopyCell {
                way: *way,
                block_bytes: *block_bytes,
                file_bytes: *file_bytes,
                seconds: *seconds,
                seed,
                settings: settings.clone(),
                verify,
                directory: scratch.cell_directory(name)?,
            })
        }
    })
}
