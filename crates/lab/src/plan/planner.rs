//! From a form of a part to its jobs, and from its arms to the cell that each runs in each job.

mod requests;

use std::path::PathBuf;

use super::size::{self, Shape, Size};
use super::{Each, Job, PlanError, PlannedArm, WRITER_STEP_BYTES, Wish, again, joined};
use crate::arm::Arm;
use crate::cell::{Cell, CellSpec, FioCell, SyncProbe, Verify};
use crate::job::Workload;
use crate::load::is_held;
use crate::programs::spec::{CountCalls, ProgramCell, ProgramLoad};
use crate::shape::{Extent, Ground, JobShape};
use crate::suite::job_file::{JobFile, MEMORY_BYTES};
use crate::suite::{self, Cut, Part, Suite, WorkloadKind};
use crate::target::Target;
use crate::through::{CopyCell, Through};
use crate::writers::Writers;

/// No cell that runs for a time is shorter, in seconds, however small its scale.
pub(super) const SHORTEST: f64 = 0.02;

/// Of jobs that run for a time, the cell that is not counted takes no longer.
const WARM_UP_SECONDS: f64 = 1.0;

/// Of writers it writes this part.
const WARM_UP_SHARE: u64 = 8;

/// Goes through a part's form once.
pub(super) struct Planner<'a> {
    part: &'a Part,
    pub(super) cut: &'a Cut,
    pub(super) wish: &'a Wish<'a>,
    pub(super) rounds: u32,
    /// Notes on bounds that changed the request.
    pub(super) notes: Vec<String>,
    /// Bytes of the laid-out file, once it is known that one is needed.
    pub(super) data_bytes: Option<u64>,
    /// Of a cell on new files, once there is one.
    pub(super) size: Option<Size>,
    pub(super) target: Option<Target>,
    pub(super) each: Option<Each>,
}

/// A cell without its place, and the same as short as one that is not counted.
struct Planned {
    cell: Cell,
    short: Cell,
}

impl Planned {
    /// A cell that is short enough.
    fn short(cell: Cell) -> Self {
        Self { short: cell.clone(), cell }
    }
}

type Settings = Vec<(String, String)>;

impl<'a> Planner<'a> {
    pub(super) fn new(part: &'a Part, cut: &'a Cut, wish: &'a Wish<'a>, rounds: u32) -> Self {
        Self {
            part,
            cut,
            wish,
            rounds,
            notes: Vec::new(),
            data_bytes: None,
            size: None,
            target: None,
            each: None,
        }
    }

    /// A job for each workload; of requests, for each workload, device and depth.
    pub(super) fn jobs(&mut self, suite: &Suite) -> Result<Vec<Job>, PlanError> {
        let extent = self.extent()?;
        match self.cut.workloads.first().map(|workload| &workload.kind) {
            Some(WorkloadKind::Requests { .. }) => {
                self.data_file(suite)?;
                self.overridden(self.wish.settings);
            }
            None => {}
            Some(_) => self.overridden(self.wish.engine_settings),
        }
        let mut jobs = Vec::new();
        for workload in &self.cut.workloads {
            match &workload.kind {
                WorkloadKind::NewFiles(files) => jobs.push(self.new_files(workload, *files)?),
                WorkloadKind::Requests { .. } => jobs.extend(self.requests(workload)),
                WorkloadKind::Jobs(shape) => {
                    let extent = extent.expect("it was looked at");
                    jobs.push(self.for_a_time(workload, *shape, extent));
                }
                WorkloadKind::Copies(bytes) => jobs.push(self.copies(workload, *bytes)),
                WorkloadKind::Writers(writers) => jobs.push(self.writers(workload, writers)?),
                WorkloadKind::Program(load) => jobs.push(self.program(workload, load)?),
                WorkloadKind::JobFile(file) => jobs.push(self.job_file(workload, file)?),
            }
        }
        Ok(jobs)
    }

    fn new_files(&mut self, workload: &suite::Workload, files: u32) -> Result<Job, PlanError> {
        let in_a_round = (self.cut.workloads.len() * (self.cut.arms.len() + 1)) as u64;
        let shape = Shape { files, block_bytes: workload.block_bytes };
        let size = self.files(shape, in_a_round)?;
        self.size = Some(size);
        let job = self.job(workload, |arm, settings| {
            let Through::Files(way) = arm.through else { return None };
            let declared = (way == Arm::ForebayDeclared).into();
            let cell = |size: Size| {
                let Size { files, file_bytes, block_bytes, budget_bytes } = size;
                let jobs = Workload::random_writes_into_new_files(files, file_bytes, block_bytes)
                    .declared(declared);
                let settings = settings.clone();
                Cell::Jobs(CellSpec {
                    sync_probe: SyncProbe::On,
                    ..spec(way, jobs, budget_bytes, settings)
                })
            };
            Some(Planned { cell: cell(size), short: cell(size.smallest()) })
        });
        Ok(Job { title: self.part.title.clone(), ..job })
    }

    /// How long the files and cells of all jobs for a time are; none if there are no such jobs.
    fn extent(&mut self) -> Result<Option<Extent>, PlanError> {
        let share = size::memory_share(self.wish.scale(self.cut));
        let shapes = self.cut.workloads.iter().filter_map(|workload| match workload.kind {
            WorkloadKind::Jobs(shape) => Some(shape.with_memory(share)),
            _ => None,
        });
        let shapes: Vec<JobShape> = shapes.collect();
        let Some(threads) = shapes.iter().map(|shape| u64::from(shape.threads)).max() else {
            return Ok(None);
        };
        let device = u64::from(shapes.iter().any(|shape| shape.on == Ground::Device));
        let memory_bytes = shapes.iter().map(|shape| shape.cache_bytes).max().unwrap_or(0);
        let most = size::Largest { files: threads + device, memory_bytes };
        let file_bytes = self.files_of_jobs(most)?;
        let extent = Extent { file_bytes, seconds: self.seconds() };
        self.each = Some(Each::Timed(extent));
        Ok(Some(extent))
    }

    fn for_a_time(&mut self, workload: &suite::Workload, shape: JobShape, extent: Extent) -> Job {
        let shape = shape.with_memory(size::memory_share(self.wish.scale(self.cut)));
        let mut job = self.job(workload, |arm, _| {
            let Through::Files(way) = arm.through else { return None };
            let own = shape.knobs();
            let knobs = self.wish.engine_settings.iter().chain(&own).chain(&arm.knobs);
            let settings: Settings =
                if way.is_forebay() { knobs.cloned().collect() } else { Vec::new() };
            let cell = |extent| {
                let budget_bytes = shape.budget_bytes(way);
                let jobs = shape.workload(way, extent);
                let spec = spec(way, jobs, budget_bytes, settings.clone());
                Cell::Jobs(CellSpec { sync_probe: shape.beside.into(), ..spec })
            };
            let short = Extent { seconds: extent.seconds.min(WARM_UP_SECONDS), ..extent };
            shape.suits(way).then(|| Planned { cell: cell(extent), short: cell(short) })
        });
        self.limit(&mut job, &shape);
        job
    }

    /// Adds the limits of a job to the arms that nothing else bounds, with a note.
    fn limit(&mut self, job: &mut Job, shape: &JobShape) {
        let (mut names, mut texts) = (Vec::new(), Vec::new());
        for arm in &mut job.arms {
            let Cell::Jobs(cell) = &arm.cell else { continue };
            let limits = shape.limits(cell.arm);
            if !limits.is_empty() {
                names.push(arm.name.clone());
                texts = limits.iter().map(ToString::to_string).collect();
            }
            arm.needs = joined(&arm.needs, &limits);
        }
        if !names.is_empty() {
            let (job, names, limits) = (&job.name, names.join(", "), texts.join(" and "));
            self.notes.push(format!("{job}: {names} with {limits}"));
        }
    }

    fn writers(&mut self, workload: &suite::Workload, writers: &Writers) -> Result<Job, PlanError> {
        let (file_bytes, budget_bytes) = self.files_of(writers)?;
        self.each = self.each.or(Some(Each::Written(u64::from(writers.files()) * file_bytes)));
        let job = self.job(workload, |arm, settings| {
            let Through::Files(way) = arm.through else { return None };
            let cell = |file_bytes| {
                let jobs = writers.workload(way, arm.layout, file_bytes);
                // There is no file beside those of the load on a device.
                let sync_probe = if way.is_raw() { SyncProbe::Off } else { SyncProbe::On };
                let spec = spec(way, jobs, budget_bytes, settings.clone());
                Cell::Jobs(CellSpec { sync_probe, ..spec })
            };
            let least = WRITER_STEP_BYTES.max(u64::from(writers.block_bytes));
            let short = (file_bytes / WARM_UP_SHARE).next_multiple_of(least);
            Some(Planned { cell: cell(file_bytes), short: cell(short) })
        });
        // Several parts have the same writers.
        Ok(Job { name: format!("{}/{}", self.part.name, workload.name), ..job })
    }

    fn copies(&self, workload: &suite::Workload, file_bytes: u64) -> Job {
        self.job(workload, |arm, settings| {
            let Through::Copies(way) = arm.through else { return None };
            Some(Planned::short(Cell::Copies(CopyCell {
                way,
                block_bytes: workload.block_bytes,
                file_bytes,
                seconds: self.seconds(),
                settings,
                seed: 0,
                verify: Verify::Off,
                directory: PathBuf::new(),
            })))
        })
    }

    fn program(&self, workload: &suite::Workload, load: &ProgramLoad) -> Result<Job, PlanError> {
        let load = load.scaled(self.wish.scale(self.cut));
        self.has_room(load.space_bytes())?;
        Ok(self.job(workload, |arm, settings| {
            let Through::Program(way) = arm.through else { return None };
            let cell = |seconds, load| {
                Cell::Program(ProgramCell {
                    way,
                    load,
                    seconds,
                    settings: settings.clone(),
                    seed: 0,
                    directory: PathBuf::new(),
                    source: PathBuf::new(),
                    count_calls: CountCalls::Off,
                })
            };
            let seconds = self.seconds();
            way.suits(load.probe).then(|| Planned {
                cell: cell(seconds, load),
                short: cell(seconds / 10.0, load.scaled(0.01)),
            })
        }))
    }

    /// A group of a job file, through fio or an arm for files.
    fn job_file(&mut self, workload: &suite::Workload, file: &JobFile) -> Result<Job, PlanError> {
        let file = match self.wish.target {
            Some(target) => file.on(target).map_err(PlanError::target)?,
            None => file.clone(),
        };
        let engine = self.cut.arms.iter().any(|arm| arm.through.is_engine());
        if engine && let Some(held) = file.workload.absolute_paths().find(|path| is_held(path)) {
            return Err(PlanError::Refused(format!(
                "{}: in use, and Forebay opens devices exclusively; unmount it, or leave Forebay \
                 out (--arms none with an --arm for each other engine)",
                held.display()
            )));
        }
        self.has_room(file.workload.file_bytes())?;
        self.target = self.wish.target.cloned();
        Ok(self.job(workload, |arm, settings| {
            let workload = file.workload.clone();
            Some(Planned::short(match arm.through {
                Through::Files(way) => Cell::Jobs(spec(way, workload, MEMORY_BYTES, settings)),
                _ => Cell::Fio(FioCell {
                    text: file.text.clone(),
                    workload,
                    directory: PathBuf::new(),
                    seed: 0,
                }),
            }))
        }))
    }

    /// Refuses more bytes than a cell may take.
    fn has_room(&self, bytes: u64) -> Result<(), PlanError> {
        let Wish { room, free_bytes, .. } = *self.wish;
        if bytes <= room.of(free_bytes) {
            return Ok(());
        }
        let needed = room.asks(bytes).div_ceil(size::MIB);
        Err(PlanError::NoSpace { free: free_bytes / size::MIB, needed })
    }

    /// A job of a workload, with the cell of each arm that can run it. `planned` gets the arm and
    /// the settings of its engine, if it has one.
    fn job(
        &self,
        workload: &suite::Workload,
        planned: impl Fn(&suite::Arm, Settings) -> Option<Planned>,
    ) -> Job {
        let arm = |arm: &suite::Arm| {
            let knobs = self.wish.engine_settings.iter().chain(&arm.knobs);
            let settings =
                if arm.through.is_engine() { knobs.cloned().collect() } else { Vec::new() };
            Some(planned_arm(arm, arm.name.clone(), planned(arm, settings)?))
        };
        let name = workload.name.clone();
        let title =
            workload.title.as_ref().map_or_else(|| name.clone(), |title| format!("{name} {title}"));
        let arms = self.with_again(self.cut.arms.iter().filter_map(arm).collect());
        Job { workload: name.clone(), name, title, probe: workload.kind.probe(), place: None, arms }
    }

    /// Of one cell.
    fn seconds(&self) -> f64 {
        (self.cut.seconds * self.wish.scale(self.cut)).max(SHORTEST)
    }

    /// Notes where a user's setting does not reach an arm, because the suite gives that knob a
    /// value of its own.
    fn overridden(&mut self, settings: &[(String, String)]) {
        for (knob, value) in settings {
            let own =
                self.cut.arms.iter().filter(|arm| arm.knobs.iter().any(|(name, _)| name == knob));
            let own: Vec<&str> = own.map(|arm| arm.name.as_str()).collect();
            if !own.is_empty() {
                let arms = own.join(", ");
                self.notes.push(format!(
                    "--set {knob}={value} does not apply to {arms}: the suite sets their {knob}"
                ));
            }
        }
    }

    /// The arms, and behind the one that runs twice the same once more.
    fn with_again(&self, mut arms: Vec<PlannedArm>) -> Vec<PlannedArm> {
        if let Some(place) = arms.iter().position(|arm| arm.name == self.part.again) {
            let twin = PlannedArm { name: again(&arms[place].name), ..arms[place].clone() };
            arms.insert(place + 1, twin);
        }
        arms
    }
}

fn planned_arm(arm: &suite::Arm, name: String, planned: Planned) -> PlannedArm {
    let Planned { cell, short } = planned;
    PlannedArm { name, cell, short, tunings: arm.tunings.clone(), needs: arm.needs.clone() }
}

/// A cell of jobs without a sync probe and without its place.
fn spec(arm: Arm, workload: Workload, budget_bytes: u64, settings: Settings) -> CellSpec {
    CellSpec { budget_bytes, settings, ..CellSpec::of(arm, workload) }
}
