//! Jobs of requests: one for each workload, device and depth.

use std::path::PathBuf;

use super::{Planned, Planner, planned_arm};
use crate::cell::Cell;
use crate::plan::size::GIB;
use crate::plan::{Job, PlanError, PlannedArm};
use crate::request::{Operation, RequestDevice, RequestSpec, Switch};
use crate::suite::{self, Suite, WorkloadKind};
use crate::through::{RequestCell, Through, Way};

/// Bytes of a device that has no file: as large as a small disk, which costs nothing.
const DEVICE_BYTES: u64 = GIB;

impl Planner<'_> {
    /// The file that requests go to, or what is read in its place.
    pub(super) fn data_file(&mut self, suite: &Suite) -> Result<(), PlanError> {
        if !self.cut.devices.iter().any(RequestDevice::is_file) {
            return Ok(());
        }
        if let Some(target) = self.wish.target {
            let blocks = self.cut.workloads.iter().map(|workload| workload.block_bytes);
            target.holds(blocks.max().unwrap_or(0)).map_err(PlanError::target)?;
            let writes = |workload: &suite::Workload| {
                matches!(workload.kind, WorkloadKind::Requests { operation: Operation::Write, .. })
            };
            if let Some(workload) = self.cut.workloads.iter().find(|workload| writes(workload)) {
                let what = format!("{} writes, and {target} is only read", workload.name);
                return Err(PlanError::target(what));
            }
            self.target = Some(target.clone());
        } else if let Some(file) = suite.file {
            let bytes = file.of(self.wish.form);
            self.data_bytes = Some(self.data(bytes)?);
        }
        Ok(())
    }

    /// A job for each device and depth.
    pub(super) fn requests(&self, workload: &suite::Workload) -> Vec<Job> {
        let mut jobs = Vec::new();
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
                    probe: workload.kind.probe(),
                    place: Some((device.clone(), depth)),
                    arms: self.with_again(arms),
                });
            }
        }
        jobs
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
                let own = if way == Way::Queue { self.wish.settings } else { &[] };
                let spec = RequestSpec {
                    device: device.clone(),
                    depth,
                    block_bytes: workload.block_bytes,
                    pattern,
                    operation,
                    knobs: own.iter().chain(&arm.knobs).cloned().collect(),
                    fixed_files: if device.is_file() { arm.fixed_files } else { Switch::Off },
                    batch,
                    file_bytes: self.file_bytes(device, workload.block_bytes),
                    seconds: self.seconds(),
                    seed: 0,
                    from: arm.from,
                };
                let cell = Cell::Requests(RequestCell {
                    way,
                    spec,
                    poll: arm.poll,
                    directory: PathBuf::new(),
                    target: self.target.as_ref().map(|target| target.path().to_owned()),
                });
                arms.push(planned_arm(arm, name, Planned::short(cell)));
            }
        }
        arms
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
}
