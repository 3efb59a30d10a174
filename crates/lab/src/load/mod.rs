//! Loads: one loop (`driver`) that all of them run, and what differs between them.
//!
//! ```text
//! source of operations                                  lane
//!   jobs (work)           ---+                     +--- calls, a ring (kernel, ring)
//!   requests (request)    ---+--- driver: tally ---+--- Forebay's files (library, futures)
//!   copies (copy)         ---+                     +--- Forebay's queue (request)
//!   steps (probe, programs) -+                     +--- closures (steps)
//! ```
//!
//! A cell of jobs is prepared, started on all its threads together, and verified:
//!
//! ```text
//! resolve -> refuse? -> prepare -> threads set up -> baseline -> engine -> [ go ... synced ] -> close -> extents -> verify
//! ```
//!
//! The part in brackets is inside the clock: opening the files (and making them, if the job says
//! so), giving them length or space, every operation, and the final sync. The load generator's own
//! memory is allocated before and counted apart.

mod arms;
mod conduct;
pub(crate) mod content;
pub mod data;
pub(crate) mod driver;
pub(crate) mod error;
pub(crate) mod figures;
mod fio;
pub(crate) mod futures;
pub(crate) mod guard;
pub(crate) mod kernel;
pub(crate) mod lane;
mod layout;
pub(crate) mod library;
mod making;
pub(crate) mod mapped;
pub(crate) mod memory;
mod pace;
mod probe;
pub mod request;
pub(crate) mod ring;
pub(crate) mod sequence;
pub(crate) mod shuffle;
pub(crate) mod start;
pub(crate) mod steps;
pub(crate) mod timed;
pub(crate) mod usage;
pub(crate) mod verify;
mod work;

use std::collections::BTreeSet;
use std::path::Path;

pub use error::CellError;
use error::Context;
pub use figures::{CellReport, JobRow};
pub(crate) use fio::run as run_fio;
pub use guard::check_target;
pub(crate) use guard::{is_block_device, is_held};

use crate::arm::Arm;
use crate::cell::{CellResult, CellSpec, SyncProbe, Verify};
use crate::job::{Devices, Workload, YesNo};
use crate::memory_group::MemoryGroup;
use layout::{Filling, JobPlan};
pub(crate) use verify::verified_bytes;

/// Runs a cell of jobs in this process.
pub fn run_cell(spec: &CellSpec) -> Result<CellResult, CellError> {
    report_cell(spec).map(|report| report.total)
}

/// Runs a cell of jobs in this process, and reports on each job besides.
pub fn report_cell(spec: &CellSpec) -> Result<CellReport, CellError> {
    guard::check_directory(&spec.directory)?;
    let directory =
        spec.directory.canonicalize().context_at("could not look at it", &spec.directory)?;
    let mut plans = layout::resolve(&spec.workload, &directory, spec.seed)?;
    for plan in plans.iter_mut().filter(|plan| !is_verified(spec, plan)) {
        plan.filling = Filling::Marked;
    }
    let jobs = plans.len();
    let way = |plan| arms::way(spec.arm, plan, spec.budget_bytes, jobs);
    let ways: Vec<_> = plans.iter().map(way).collect();
    plans.iter().zip(&ways).try_for_each(|(plan, &way)| arms::check(spec.arm, plan, way))?;
    if spec.arm != Arm::Null {
        making::prepare(&plans, spec.verify)?;
    }
    let probe = probe_plan(spec, &directory)?;
    let group = (spec.arm == Arm::KernelCgroup).then(|| MemoryGroup::join(spec.budget_bytes));
    let group = group.transpose().map_err(|reason| CellError::refused(spec.arm, reason))?;
    let conducted = conduct::conduct(spec, &directory, &plans, &ways, probe.as_ref())?;
    drop(group);
    let mut report = figures::report(spec, &plans, &conducted);
    if spec.arm != Arm::Null {
        let jobs = plans.iter().zip(conducted.jobs.iter().map(|outcome| outcome.issued));
        let verified = jobs.filter(|(plan, _)| plan.writes() && is_verified(spec, plan));
        let verified: Vec<_> = verified.collect();
        if !verified.is_empty() {
            report.total.notes.push(verify::verified(verify::verify(&verified)?));
        }
        remove_unlinked(&spec.workload, &directory)?;
    }
    Ok(report)
}

/// Refuses a workload that may not run on an arm in this directory; nothing is made or changed.
pub fn check_workload(arm: Arm, workload: &Workload, directory: &Path) -> Result<(), CellError> {
    if arm == Arm::Null {
        return Ok(());
    }
    layout::refuse_unwritable(workload, directory)
}

/// Removes the regular files of the jobs with `unlink=1`, and nothing else.
pub fn remove_unlinked(workload: &Workload, directory: &Path) -> Result<(), CellError> {
    let unlinked =
        workload.jobs.iter().filter(|job| job.unlink == YesNo::Yes).flat_map(|job| &job.files);
    let paths: BTreeSet<_> = unlinked.map(|name| directory.join(name)).collect();
    for path in paths.iter().filter(|path| path.is_file()) {
        std::fs::remove_file(path).context_at("could not remove it", path)?;
    }
    Ok(())
}

fn probe_plan(spec: &CellSpec, directory: &Path) -> Result<Option<JobPlan>, CellError> {
    if spec.sync_probe == SyncProbe::Off || spec.arm == Arm::Null {
        return Ok(None);
    }
    let workload = Workload { jobs: vec![probe::job()], devices: Devices::Refuse };
    let plans = layout::resolve(&workload, directory, spec.seed)?;
    making::prepare(&plans, Verify::Off)?;
    Ok(plans.into_iter().next())
}

/// Returns whether the data of a job is read back and compared.
fn is_verified(spec: &CellSpec, plan: &JobPlan) -> bool {
    spec.verify == Verify::After || plan.job.verify == YesNo::Yes
}
