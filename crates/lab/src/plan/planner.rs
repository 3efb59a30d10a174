//! From a form of a part to its jobs, and from its arms to what each does in each job.

use super::size::{self, Cells, GIB, Shape, Size};
use super::{
    Job, JobFileWork, JobsWork, PlanError, PlannedArm, ProgramWork, Wish, Work, WritersWork, again,
};
use crate::echo::WorkOrder;
use crate::load::is_held;
use crate::request::{Operation, RequestDevice, RequestSpec, Switch};
use crate::shape::{Extent, Ground};
use crate::suite::{self, Cut, Part, Suite, WorkloadKind};
use crate::target::Target;
use crate::through::{Through, Way};

/// Bytes of a device that has no file: as large as a small disk, which costs nothing.
const DEVICE_BYTES: u64 = GIB;

/// No cell that runs for a time is shorter, in seconds, however small its scale.
pub(super) const SHORTEST: f64 = 0.02;

/// Goes through a part's form once.
pub(super) struct Planner<'a> {
    part: &'a Part,
    cut: &'a Cut,
    wish: &'a Wish<'a>,
    rounds: u32,
    /// Where a bound made it differ from what was asked.
    pub(super) notes: Vec<String>,
    /// Bytes of the laid-out file, once it is known that one is needed.
    pub(super) data_bytes: Option<u64>,
    /// Of a cell on new files, once there is one.
    pub(super) size: Option<Size>,
    /// What is read in place of the laid-out file, once it is known that something is.
    pub(super) target: Option<Target>,
}

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
        }
    }

    /// A job for each workload on new files.
    pub(super) fn files(&mut self) -> Result<Vec<Job>, PlanError> {
        let in_a_round = (self.cut.workloads.len() * (self.cut.arms.len() + 1)) as u64;
        let cells = Cells { rounds: self.rounds, in_a_round };
        let mut jobs = Vec::new();
        for workload in &self.cut.workloads {
            let WorkloadKind::NewFiles(files) = workload.kind else {
                unreachable!("the suite was checked")
            };
            let shape = Shape { files, block_bytes: workload.block_bytes };
            let size = size::of_files(self.cut, shape, self.wish, cells, &mut self.notes)?;
            self.size = Some(size);
            let arms = self.cut.arms.iter().map(|arm| {
                let Through::Files(way) = arm.through else {
                    unreachable!("the suite was checked")
                };
                self.arm(arm, Work::NewFiles { arm: way, size, knobs: arm.knobs.clone() })
            });
            let arms = self.with_again(arms.collect());
            let (name, title) = (workload.name.clone(), self.part.title.clone());
            jobs.push(Job { workload: name.clone(), name, title, place: None, arms });
        }
        Ok(jobs)
    }

    /// A job for each workload, device and depth.
    pub(super) fn requests(&mut self, suite: &Suite) -> Result<Vec<Job>, PlanError> {
        let on_file = self.cut.devices.iter().any(RequestDevice::is_file);
        if let (true, Some(target)) = (on_file, self.wish.target) {
            let blocks = self.cut.workloads.iter().map(|workload| workload.block_bytes);
            target.holds(blocks.max().unwrap_or(0)).map_err(PlanError::Target)?;
            let writes = |workload: &suite::Workload| {
                matches!(workload.kind, WorkloadKind::Requests { operation: Operation::Write, .. })
            };
            if let Some(workload) = self.cut.workloads.iter().find(|workload| writes(workload)) {
                let what = format!("{} writes, and {target} is only read", workload.name);
                return Err(PlanError::Target(what));
            }
            self.target = Some(target.clone());
        } else if let (true, Some(file)) = (on_file, suite.file) {
            let bytes =
                size::of_data(file.of(self.wish.form), self.cut, self.wish, &mut self.notes)?;
            self.data_bytes = Some(bytes);
        }
        self.overridden(self.wish.settings);
        let mut jobs = Vec::new();
        for workload in &self.cut.workloads {
            for device in &self.cut.devices {
                for &depth in &self.cut.depths {
                    let arms = self.request_arms(workload, device, depth);
                    if arms.is_empty() {
                        continue;
                    }
                    jobs.push(Job {
                        name: format!("{}/{}/{device}/{depth}", self.part.name, workload.name),
                        title: format!("{}, depth {depth}, {device}", workload.name),
                        workload: workload.name.clone(),
                        place: Some((device.clone(), depth)),
                        arms: self.with_again(arms),
                    });
                }
            }
        }
        Ok(jobs)
    }

    /// A job for each workload of jobs.
    pub(super) fn jobs(&mut self) -> Result<Vec<Job>, PlanError> {
        let share = size::memory_share(self.wish.scale(self.cut));
        let shapes: Vec<_> = self
            .cut
            .workloads
            .iter()
            .map(|workload| match workload.kind {
                WorkloadKind::Jobs(shape) => (workload, shape.with_memory(share)),
                _ => unreachable!("the suite was checked"),
            })
            .collect();
        let device = u64::from(shapes.iter().any(|(_, shape)| shape.on == Ground::Device));
        let files =
            shapes.iter().map(|(_, shape)| u64::from(shape.threads)).max().unwrap_or(1) + device;
        let memory_bytes = shapes.iter().map(|(_, shape)| shape.cache_bytes).max().unwrap_or(0);
        let most = size::Largest { files, memory_bytes };
        let file_bytes = size::of_jobs(self.cut, most, self.wish, &mut self.notes)?;
        let extent = Extent { file_bytes, seconds: self.seconds() };
        self.overridden(self.wish.engine_settings);
        let mut jobs = Vec::new();
        for (workload, shape) in shapes {
            let arms = self.cut.arms.iter().filter_map(|arm| {
                let Through::Files(way) = arm.through else {
                    unreachable!("the suite was checked")
                };
                let own = shape.knobs();
                let knobs = self.wish.engine_settings.iter().chain(&own).chain(&arm.knobs);
                let settings = if way.is_forebay() { knobs.cloned().collect() } else { Vec::new() };
                let work = JobsWork { arm: way, shape, extent, settings };
                let planned = self.arm(arm, Work::Jobs(Box::new(work)));
                shape.suits(way).then(|| PlannedArm { limits: shape.limits(way), ..planned })
            });
            let arms = self.with_again(arms.collect());
            self.notes.extend(super::note_of_limits(&workload.name, &arms));
            jobs.push(self.job(workload, arms));
        }
        Ok(jobs)
    }

    /// A job for each workload of writers.
    pub(super) fn writers(&mut self) -> Result<Vec<Job>, PlanError> {
        self.overridden(self.wish.engine_settings);
        let mut jobs = Vec::new();
        for workload in &self.cut.workloads {
            let WorkloadKind::Writers(writers) = workload.kind else {
                unreachable!("the suite was checked")
            };
            let (file_bytes, budget_bytes) =
                size::of_writers(self.cut, &writers, self.wish, &mut self.notes)?;
            let arms = self.cut.arms.iter().map(|arm| {
                let Through::Files(way) = arm.through else {
                    unreachable!("the suite was checked")
                };
                let knobs = self.wish.engine_settings.iter().chain(&arm.knobs);
                let settings = if way.is_forebay() { knobs.cloned().collect() } else { Vec::new() };
                let layout = arm.layout;
                let work =
                    WritersWork { arm: way, writers, layout, file_bytes, budget_bytes, settings };
                self.arm(arm, Work::Writers(Box::new(work)))
            });
            let arms = self.with_again(arms.collect());
            // Several parts have the same writers.
            let name = format!("{}/{}", self.part.name, workload.name);
            jobs.push(Job { name, ..self.job(workload, arms) });
        }
        Ok(jobs)
    }

    /// A job for each workload of copies.
    pub(super) fn copies(&mut self) -> Vec<Job> {
        self.overridden(self.wish.engine_settings);
        let mut jobs = Vec::new();
        for workload in &self.cut.workloads {
            let WorkloadKind::Copies(file_bytes) = workload.kind else {
                unreachable!("the suite was checked")
            };
            let arms = self.cut.arms.iter().map(|arm| {
                let Through::Copies(way) = arm.through else {
                    unreachable!("the suite was checked")
                };
                let knobs = self.wish.engine_settings.iter().chain(&arm.knobs);
                let settings =
                    if arm.through.is_engine() { knobs.cloned().collect() } else { Vec::new() };
                let (block_bytes, seconds) = (workload.block_bytes, self.seconds());
                self.arm(arm, Work::Copies { way, block_bytes, file_bytes, seconds, settings })
            });
            let arms = self.with_again(arms.collect());
            jobs.push(self.job(workload, arms));
        }
        jobs
    }

    /// A job for each workload of echoes.
    pub(super) fn echoes(&mut self) -> Vec<Job> {
        let mut jobs = Vec::new();
        for workload in &self.cut.workloads {
            let WorkloadKind::Echo(load) = workload.kind else {
                unreachable!("the suite was checked")
            };
            let arms = self.cut.arms.iter().map(|arm| {
                let Through::Echo(way) = arm.through else { unreachable!("the suite was checked") };
                let order = arm.knobs.iter().find(|(knob, _)| knob == "order");
                let order =
                    order.and_then(|(_, value)| WorkOrder::by_name(value)).unwrap_or_default();
                self.arm(arm, Work::Echo { way, order, load, seconds: self.seconds() })
            });
            let arms = self.with_again(arms.collect());
            jobs.push(self.job(workload, arms));
        }
        jobs
    }

    /// A job for each workload of programs, with the arms that can run it.
    pub(super) fn programs(&mut self) -> Result<Vec<Job>, PlanError> {
        self.overridden(self.wish.engine_settings);
        let mut jobs = Vec::new();
        for workload in &self.cut.workloads {
            let WorkloadKind::Program(load) = workload.kind else {
                unreachable!("the suite was checked")
            };
            let load = load.scaled(self.wish.scale(self.cut));
            if load.space_bytes() > self.wish.room.of(self.wish.free_bytes) {
                let needed = self.wish.room.asks(load.space_bytes()).div_ceil(size::MIB);
                return Err(PlanError::NoSpace { free: self.wish.free_bytes / size::MIB, needed });
            }
            let arms = self.cut.arms.iter().filter_map(|arm| {
                let Through::Program(way) = arm.through else {
                    unreachable!("the suite was checked")
                };
                let knobs = self.wish.engine_settings.iter().chain(&arm.knobs);
                let settings = if way.is_forebay() { knobs.cloned().collect() } else { Vec::new() };
                let work = ProgramWork { way, load, seconds: self.seconds(), settings };
                way.suits(load.probe).then(|| self.arm(arm, Work::Program(Box::new(work))))
            });
            let arms = self.with_again(arms.collect());
            jobs.push(self.job(workload, arms));
        }
        Ok(jobs)
    }

    /// A job for each group of a job file.
    pub(super) fn job_files(&mut self) -> Result<Vec<Job>, PlanError> {
        self.overridden(self.wish.engine_settings);
        let mut jobs = Vec::new();
        for workload in &self.cut.workloads {
            let WorkloadKind::JobFile(file) = &workload.kind else {
                unreachable!("the suite was made so")
            };
            let file = match self.wish.target {
                Some(target) => file.on(target).map_err(PlanError::Target)?,
                None => (**file).clone(),
            };
            let engine = self.cut.arms.iter().any(|arm| arm.through.is_engine());
            if engine && let Some(held) = file.workload.absolute_paths().find(|path| is_held(path))
            {
                return Err(PlanError::Held { path: held.display().to_string() });
            }
            let needed = file.file_bytes();
            if needed > self.wish.room.of(self.wish.free_bytes) {
                let free = self.wish.free_bytes / size::MIB;
                return Err(PlanError::NoSpace {
                    free,
                    needed: self.wish.room.asks(needed).div_ceil(size::MIB),
                });
            }
            self.target = self.wish.target.cloned();
            let arms = self.cut.arms.iter().map(|arm| {
                let knobs = self.wish.engine_settings.iter().chain(&arm.knobs);
                let settings =
                    if arm.through.is_engine() { knobs.cloned().collect() } else { Vec::new() };
                let work = JobFileWork { through: arm.through, file: file.clone(), settings };
                self.arm(arm, Work::JobFile(Box::new(work)))
            });
            let arms = self.with_again(arms.collect());
            jobs.push(self.job(workload, arms));
        }
        Ok(jobs)
    }

    /// What an arm does, with what it wants of the machine.
    fn arm(&self, arm: &suite::Arm, work: Work) -> PlannedArm {
        PlannedArm { name: arm.name.clone(), work, tunings: arm.tunings.clone(), limits: vec![] }
    }

    /// Bytes that offsets are drawn from.
    fn file_bytes(&self, device: &RequestDevice, block_bytes: u32) -> u64 {
        if !device.is_file() {
            return DEVICE_BYTES;
        }
        match &self.target {
            Some(target) => target.bytes() / u64::from(block_bytes) * u64::from(block_bytes),
            None => self.data_bytes.unwrap_or(DEVICE_BYTES),
        }
    }

    fn job(&self, workload: &suite::Workload, arms: Vec<PlannedArm>) -> Job {
        let name = workload.name.clone();
        let title =
            workload.title.as_ref().map_or_else(|| name.clone(), |title| format!("{name} {title}"));
        Job { workload: name.clone(), name, title, place: None, arms }
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

    /// Those that can be run at this depth: a batch larger than the depth would never come
    /// together.
    fn request_arms(
        &self,
        workload: &suite::Workload,
        device: &RequestDevice,
        depth: u32,
    ) -> Vec<PlannedArm> {
        let WorkloadKind::Requests { pattern, operation } = workload.kind else {
            unreachable!("the suite was checked")
        };
        let mut arms = Vec::new();
        for arm in &self.cut.arms {
            let Through::Requests(way) = arm.through else { unreachable!("the suite was checked") };
            let batches = match self.cut.batches.as_slice() {
                [] => vec![(arm.name.clone(), arm.batch)],
                all => all.iter().map(|batch| (suite::batch_name(*batch), Some(*batch))).collect(),
            };
            for (name, batch) in batches {
                // fio takes what there is.
                let batch =
                    if way == Way::Fio { batch.map(|batch| batch.min(depth)) } else { batch };
                let at_this_depth = arm.depths.is_empty() || arm.depths.contains(&depth);
                if !at_this_depth || batch.is_some_and(|batch| batch > depth) {
                    continue;
                }
                let on_file = |switch: Switch| if device.is_file() { switch } else { Switch::Off };
                let own = if way == Way::Queue { self.wish.settings } else { &[] };
                let spec = RequestSpec {
                    device: device.clone(),
                    depth,
                    block_bytes: workload.block_bytes,
                    pattern,
                    operation,
                    knobs: own.iter().chain(&arm.knobs).cloned().collect(),
                    fixed_buffers: on_file(arm.fixed_buffers),
                    fixed_files: on_file(arm.fixed_files),
                    batch,
                    file_bytes: self.file_bytes(device, workload.block_bytes),
                    seconds: self.seconds(),
                    seed: 0,
                    from: arm.from,
                };
                let work = Work::Requests { way, poll: arm.poll, spec: Box::new(spec) };
                arms.push(PlannedArm { name, ..self.arm(arm, work) });
            }
        }
        arms
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
