//! Requirements of a part by kind: only arms and work of that kind, and the needs of its cells.

use super::{Checked, Checker};
use crate::plan::{FILE_STEP_BYTES, LENGTH_STEP_BYTES, WRITER_STEP_BYTES};
use crate::suite::text::{CutText, PartText, Word};
use crate::suite::{Cut, Kind, WorkloadKind};
use crate::through::{Through, Way};

impl Checker<'_> {
    /// A part has work and arms of the kind that its table shows, and what its cells need.
    pub(super) fn kind(&self, part: &PartText, form: &CutText, cut: &Cut) -> Checked<()> {
        let kind = part.table.kind();
        if kind == Kind::Requests && (cut.devices.is_empty() || cut.depths.is_empty()) {
            return Err(self.at(&part.name, "every form needs devices and depths"));
        }
        for word in form.arms.iter().flatten() {
            if self.arm(word)?.through.family() != kind.family() {
                let (arms, table) = (kind.family().name(), kind.name());
                let what = format!("no arm for {arms} in a table of {table} (take another table)");
                return Err(self.at(word, what));
            }
        }
        let (work, key) = kind.key();
        for (word, workload) in form.workloads.iter().flatten().zip(&cut.workloads) {
            if workload.kind.kind() != kind {
                let table = kind.name();
                let what = format!("no {work} in a table of {table} (give the workload {key})");
                return Err(self.at(word, what));
            }
        }
        match kind {
            Kind::Files => self.of_files(part, form, cut),
            Kind::Jobs => self.of_jobs(part, cut),
            Kind::Writers => self.of_writers(part, cut),
            Kind::Requests => self.of_requests(form, cut),
            Kind::Copies | Kind::Echoes | Kind::Programs => Ok(()),
        }
    }

    /// A part about new files has arms without knobs, and a length.
    fn of_files(&self, part: &PartText, form: &CutText, cut: &Cut) -> Checked<()> {
        let arms = form.arms.iter().flatten().zip(&cut.arms);
        if let Some((word, _)) = arms.into_iter().find(|(_, arm)| !arm.knobs.is_empty()) {
            let what = "an arm with knobs of its own in a table of files (use --set)";
            return Err(self.at(word, what));
        }
        if cut.file_bytes.is_none_or(|bytes| bytes == 0 || bytes % FILE_STEP_BYTES != 0) {
            let what = "every form needs file_bytes, such as \"24m\", in steps of 3m";
            return Err(self.at(&part.name, what));
        }
        Ok(())
    }

    /// A part about jobs has a length.
    fn of_jobs(&self, part: &PartText, cut: &Cut) -> Checked<()> {
        if cut.file_bytes.is_none_or(|bytes| bytes == 0 || bytes % LENGTH_STEP_BYTES != 0) {
            let what = "every form needs file_bytes, such as \"2g\", in steps of 16m";
            return Err(self.at(&part.name, what));
        }
        Ok(())
    }

    /// A part about writers has a length of all together.
    fn of_writers(&self, part: &PartText, cut: &Cut) -> Checked<()> {
        for workload in &cut.workloads {
            let WorkloadKind::Writers(writers) = workload.kind else { continue };
            let least =
                u64::from(writers.files()) * WRITER_STEP_BYTES.max(u64::from(writers.block_bytes));
            if cut.cell_bytes.is_none_or(|bytes| bytes < least) {
                let what = format!("every form needs cell_bytes, here of {}k or more", least >> 10);
                return Err(self.at(&part.name, what));
            }
        }
        Ok(())
    }

    /// A part about requests has the kernel's arms only where there is a file.
    fn of_requests(&self, form: &CutText, cut: &Cut) -> Checked<()> {
        let arms: Vec<&Word> = form.arms.iter().flatten().collect();
        let modelled = cut.devices.iter().find(|device| !device.is_file());
        for (word, arm) in arms.iter().zip(&cut.arms) {
            if let (false, Some(device)) = (arm.through == Through::Requests(Way::Queue), modelled)
            {
                let way = arm.through.name();
                let what = format!("{way} goes to a file alone (leave {device} out)");
                return Err(self.at(word, what));
            }
        }
        let mut devices = form.devices.iter().flatten();
        let file = devices.find(|device| device.get_ref().is_file());
        if let (Some(device), None) = (file, self.written.file) {
            let what = "the device `file` needs a [file] with its bytes for each form";
            return Err(self.at(device, what));
        }
        if let ([_, second, ..], false) = (arms.as_slice(), cut.batches.is_empty()) {
            let what = "batches are run with one arm alone (leave the others out)";
            return Err(self.at(second, what));
        }
        Ok(())
    }
}
