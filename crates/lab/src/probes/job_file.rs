//! A group of a fio job file: the same jobs through the kernel's ways, through fio itself and
//! through Forebay.
//!
//! Each cell has an empty directory, so a job's new files go there, not to the directory it names.
//! A job that only reads an existing file by its absolute path reads that file, and nothing is ever
//! written to it.

use std::path::{Component, Path};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::workload::{self, FIO, JOB_FILE};
use crate::arm::{Arm, Way};
use crate::cell::{Cell, CellSpec};
use crate::job::{Amount, Devices, Workload as Jobs, YesNo};
use crate::load::{is_block_device, is_held};
use crate::planning::{Job, PlanError, Planner};
use crate::probe::{Batch, Probe, Steps, checked, read};
use crate::suite::model::Workload;
use crate::target::Target;

/// Memory for data of a bounded arm, Forebay among them: a job file says nothing about that.
pub const MEMORY_BYTES: u64 = 256 << 20;

pub(super) const PROBE: Probe = Probe {
    figures: &[
        "read_iops",
        "read_latency_p50_us",
        "read_latency_p99_us",
        "write_iops",
        "write_latency_p50_us",
        "write_latency_p99_us",
        "cpu_us_per_io",
        "doorbells_per_io",
    ],
    batch: Batch::Elsewhere("the job file says it (iodepth_batch_submit=)"),
    ..Probe::new(JOB_FILE, ways, Steps { check, plan, work: workload::work, run: workload::run })
};

/// Jobs that start together.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JobFile {
    pub workload: Jobs,
    /// The text for fio, or why fio cannot do the same.
    pub text: Result<String, String>,
}

/// Returns its arms: each file has to be in a file system.
fn ways() -> Vec<Way> {
    let arms = Arm::ALL.into_iter().filter(|arm| !arm.is_raw());
    arms.map(workload::way).chain([Way::plain(FIO)]).collect()
}

fn check(shape: &Value) -> Result<(), String> {
    read::<JobFile>(shape).map(drop)
}

fn plan(planner: &mut Planner<'_>, workload: &Workload) -> Result<Vec<Job>, PlanError> {
    let file: JobFile = checked(workload);
    planner.ground = Some("on small files".to_owned());
    let file = match planner.wish.target {
        Some(target) => {
            planner.ground = Some(format!("reading {target}"));
            planner.target = Some(target.clone());
            file.on(target).map_err(|why| PlanError::target(&why))?
        }
        None => file,
    };
    let engine = planner.cut.arms.iter().any(|arm| arm.way.is_engine());
    if engine && let Some(held) = file.workload.absolute_paths().find(|path| is_held(path)) {
        return Err(PlanError::Refused(format!(
            "{}: in use, and Forebay opens devices exclusively; unmount it, or leave Forebay out \
             (--arms none with an --arm for each other engine)",
            held.display()
        )));
    }
    planner.has_room(file.workload.file_bytes())?;
    let text = Some(file.text.clone());
    let spec = CellSpec::of(Arm::default(), file.workload.clone());
    let spec = CellSpec { text, budget_bytes: MEMORY_BYTES, ..spec };
    let job = planner.job(workload, |own| {
        let cell = Cell::new(PROBE.name, own.way.word, &spec);
        Some([cell.clone(), cell])
    });
    Ok(vec![job])
}

impl JobFile {
    /// Returns jobs as a comparison runs them, or why it cannot.
    pub fn new(mut workload: Jobs, text: Result<String, String>) -> Result<Self, String> {
        let outside =
            workload.jobs.iter().flat_map(|job| &job.files).find(|path| leads_out(path)).cloned();
        let named = workload.jobs.iter().find_map(|job| job.directory.clone());
        let Some(outside) = outside.or(named) else { return Ok(Self { workload, text }) };
        let all = workload.jobs.iter().flat_map(|job| &job.files);
        let there = all.clone().all(|path| path.is_absolute() && path.exists());
        let writes = workload.jobs.iter().any(|job| job.access.direction.writes());
        let shown = outside.display();
        if !writes && there {
            workload.devices = Devices::ReadOnly;
            // They are the user's, and fio removes them in spite of --readonly.
            let unlinks = workload.jobs.iter().any(|job| job.unlink == YesNo::Yes);
            let text = if unlinks {
                Err(format!("it would remove {shown} (leave unlink=1 out of the file)"))
            } else {
                text
            };
            workload.jobs.iter_mut().for_each(|job| job.unlink = YesNo::No);
            return Ok(Self { workload, text });
        }
        if workload.absolute_paths().any(|path| is_block_device(path)) {
            return Err(format!(
                "{shown}: a comparison writes no device of a job file (use `forebay run`, or \
                 --scratch with device=)"
            ));
        }
        let text = Err(format!("it would go to {shown}, and not to the directory of its cell"));
        Ok(Self { workload: workload.confined(), text })
    }

    /// Returns the same jobs on something that is only read.
    fn on(&self, target: &Target) -> Result<Self, String> {
        let mut workload = self.workload.clone();
        for job in &mut workload.jobs {
            if job.access.direction.writes() {
                return Err(format!("{}: the job writes, and {target} is only read", job.name));
            }
            let there = target.bytes();
            if let Some(Amount::Bytes(bytes)) = job.size
                && bytes > there
            {
                let name = &job.name;
                return Err(format!("{name}: the job reads {bytes} bytes, {target} has {there}"));
            }
            job.files = vec![target.path().to_owned()];
            job.directory = None;
            job.file_size = None;
            job.unlink = YesNo::No;
        }
        workload.devices = Devices::ReadOnly;
        Ok(Self { workload, text: Err("its job file names other files than --target".to_owned()) })
    }
}

/// Returns whether a path may be of something that is not in the directory of its cell.
fn leads_out(path: &Path) -> bool {
    path.components().any(|part| matches!(part, Component::RootDir | Component::ParentDir))
}
