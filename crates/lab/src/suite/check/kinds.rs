//! Requirements of a part by the kind of its work: only arms for it, and the needs of its cells.

use super::{Checked, Checker};
use crate::plan::{FILE_STEP_BYTES, LENGTH_STEP_BYTES};
use crate::suite::text::{CutText, PartText, Word};
use crate::suite::{Cut, WorkloadKind};
use crate::through::{Family, Through, Way};

impl Checker<'_> {
    /// Checks that the work of a part is of one kind, that its arms can do it, and what its cells
    /// need.
    pub(super) fn kind(&self, part: &PartText, form: &CutText, cut: &Cut) -> Checked<()> {
        let Some(first) = cut.workloads.first() else { return Ok(()) };
        let family = first.kind.family();
        for (word, workload) in form.workloads.iter().flatten().zip(&cut.workloads) {
            let of_programs = family == Family::Programs && workload.kind.family() == family;
            if workload.kind.probe() != first.kind.probe() && !of_programs {
                let what = format!(
                    "{} in a part about {} (give it a part of its own)",
                    workload.kind.probe(),
                    first.kind.probe()
                );
                return Err(self.at(word, what));
            }
        }
        if family == Family::Requests && (cut.devices.is_empty() || cut.depths.is_empty()) {
            return Err(self.at(&part.name, "every form needs devices and depths"));
        }
        for word in form.arms.iter().flatten() {
            let own = self.arm(word)?.through.family();
            if own != family {
                let (arms, work) = (own.name(), first.kind.probe());
                let what = format!("an arm for {arms} in a part about {work} (take another arm)");
                return Err(self.at(word, what));
            }
        }
        match first.kind {
            WorkloadKind::NewFiles(_) => self.of_files(part, form, cut),
            WorkloadKind::Jobs(_) => self.of_jobs(part, cut),
            WorkloadKind::Writers(_) => self.of_writers(part, cut),
            WorkloadKind::Requests { .. } => self.of_requests(form, cut),
            _ => Ok(()),
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
        match cut.least_cell_bytes() {
            Some(least) if cut.cell_bytes.is_none_or(|bytes| bytes < least) => {
                let what = format!("every form needs cell_bytes, here of {}k or more", least >> 10);
                Err(self.at(&part.name, what))
            }
            _ => Ok(()),
        }
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
