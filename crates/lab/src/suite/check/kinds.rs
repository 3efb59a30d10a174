//! What a part of each kind has to have: arms and work of that kind alone, and what its cells need.

use toml::Spanned;

use super::{Checked, Checker};
use crate::plan::{FILE_STEP_BYTES, LENGTH_STEP_BYTES, WRITER_STEP_BYTES};
use crate::request::RequestDevice;
use crate::suite::text::{PartText, Word};
use crate::suite::{Arm, Cut, Workload, WorkloadKind};
use crate::through::{Through, Way};

impl Checker<'_> {
    /// A part about new files has arms and work of that kind alone, and sizes.
    pub(super) fn of_files(
        &self,
        part: &PartText,
        arms: &[Word],
        workloads: &[Word],
        cut: &Cut,
    ) -> Checked<()> {
        let files = |arm: &Arm| matches!(arm.through, Through::Files(_));
        self.all(
            arms,
            &cut.arms,
            files,
            "no arm for files in a table of files (take another table)",
        )?;
        let plain = |arm: &Arm| arm.knobs.is_empty();
        self.all(
            arms,
            &cut.arms,
            plain,
            "an arm with knobs of its own in a table of files (use --set)",
        )?;
        let new = |workload: &Workload| matches!(workload.kind, WorkloadKind::NewFiles(_));
        let what = "requests in a table of files (give the workload new_files)";
        self.all(workloads, &cut.workloads, new, what)?;
        if cut.file_bytes.is_none_or(|bytes| bytes == 0 || bytes % FILE_STEP_BYTES != 0) {
            let what = "every form needs file_bytes, such as \"24m\", in steps of 3m";
            return Err(self.at(&part.name, what));
        }
        Ok(())
    }

    /// A part about jobs has arms and work of that kind alone, and a length.
    pub(super) fn of_jobs(
        &self,
        part: &PartText,
        arms: &[Word],
        workloads: &[Word],
        cut: &Cut,
    ) -> Checked<()> {
        let files = |arm: &Arm| matches!(arm.through, Through::Files(_));
        self.all(
            arms,
            &cut.arms,
            files,
            "no arm for files in a table of jobs (take another table)",
        )?;
        let jobs = |workload: &Workload| matches!(workload.kind, WorkloadKind::Jobs(_));
        let what = "no job in a table of jobs (give the workload a job)";
        self.all(workloads, &cut.workloads, jobs, what)?;
        if cut.file_bytes.is_none_or(|bytes| bytes == 0 || bytes % LENGTH_STEP_BYTES != 0) {
            return Err(
                self.at(&part.name, "every form needs file_bytes, such as \"2g\", in steps of 16m")
            );
        }
        Ok(())
    }

    /// So does a part about copies.
    pub(super) fn of_copies(&self, arms: &[Word], workloads: &[Word], cut: &Cut) -> Checked<()> {
        let through = |arm: &Arm| matches!(arm.through, Through::Copies(_));
        self.all(
            arms,
            &cut.arms,
            through,
            "no arm for copies in a table of copies (take another table)",
        )?;
        let copies = |workload: &Workload| matches!(workload.kind, WorkloadKind::Copies(_));
        self.all(
            workloads,
            &cut.workloads,
            copies,
            "no copy in a table of copies (give the workload a copy)",
        )
    }

    /// A part about writers has arms for files and work of that kind alone, and a length of all
    /// together.
    pub(super) fn of_writers(
        &self,
        part: &PartText,
        arms: &[Word],
        workloads: &[Word],
        cut: &Cut,
    ) -> Checked<()> {
        for word in arms {
            if !matches!(self.arm(word)?.through, Through::Files(_)) {
                return Err(
                    self.at(word, "no arm for files in a table of writers (take another table)")
                );
            }
        }
        for (word, workload) in workloads.iter().zip(&cut.workloads) {
            let WorkloadKind::Writers(writers) = workload.kind else {
                return Err(
                    self.at(word, "no writers in a table of writers (give the workload writers)")
                );
            };
            let least =
                u64::from(writers.files()) * WRITER_STEP_BYTES.max(u64::from(writers.block_bytes));
            if cut.cell_bytes.is_none_or(|bytes| bytes < least) {
                let what = format!("every form needs cell_bytes, here of {}k or more", least >> 10);
                return Err(self.at(&part.name, what));
            }
        }
        Ok(())
    }

    /// And one about echoes.
    pub(super) fn of_echoes(&self, arms: &[Word], workloads: &[Word], cut: &Cut) -> Checked<()> {
        let through = |arm: &Arm| matches!(arm.through, Through::Echo(_));
        self.all(
            arms,
            &cut.arms,
            through,
            "no arm for echoes in a table of echoes (take another table)",
        )?;
        let echoes = |workload: &Workload| matches!(workload.kind, WorkloadKind::Echo(_));
        self.all(
            workloads,
            &cut.workloads,
            echoes,
            "no echo in a table of echoes (give the workload an echo)",
        )
    }

    /// And one about programs.
    pub(super) fn of_programs(&self, arms: &[Word], workloads: &[Word], cut: &Cut) -> Checked<()> {
        let through = |arm: &Arm| matches!(arm.through, Through::Program(_));
        self.all(arms, &cut.arms, through, "a table of programs needs arms for programs")?;
        let programs = |workload: &Workload| matches!(workload.kind, WorkloadKind::Program(_));
        let what = "a table of programs needs workloads with a program";
        self.all(workloads, &cut.workloads, programs, what)
    }

    /// A part about requests has devices and depths, and the kernel's arms only where there is a
    /// file.
    pub(super) fn of_requests(
        &self,
        part: &PartText,
        arms: &[Word],
        workloads: &[Word],
        devices: &[Spanned<RequestDevice>],
        cut: &Cut,
    ) -> Checked<()> {
        if devices.is_empty() || cut.depths.is_empty() {
            return Err(self.at(&part.name, "every form needs devices and depths"));
        }
        for (word, workload) in workloads.iter().zip(&cut.workloads) {
            let table = match workload.kind {
                WorkloadKind::Requests { .. } => continue,
                WorkloadKind::NewFiles(_) => "new files need table = \"files\"",
                WorkloadKind::Jobs(_) => "jobs need table = \"completion\" or \"beside\"",
                WorkloadKind::Copies(_) => "copies need table = \"copies\"",
                WorkloadKind::Writers(_) => {
                    "writers need table = \"writers\", \"contexts\" or \"factors\""
                }
                WorkloadKind::Echo(_) => "echoes need table = \"echo\"",
                WorkloadKind::Program(_) => "programs need table = \"programs\"",
                WorkloadKind::JobFile(_) => unreachable!("no suite's file has a job file"),
            };
            return Err(self.at(word, table));
        }
        for (word, arm) in arms.iter().zip(&cut.arms) {
            let Through::Requests(way) = arm.through else {
                return Err(self
                    .at(word, "no arm for requests in a table of requests (take another table)"));
            };
            let modelled = devices.iter().find(|device| !device.get_ref().is_file());
            if let (false, Some(device)) = (way == Way::Queue, modelled) {
                let what =
                    format!("{} goes to a file alone (leave {} out)", way.name(), device.get_ref());
                return Err(self.at(word, what));
            }
        }
        let file = devices.iter().find(|device| device.get_ref().is_file());
        if let (Some(device), None) = (file, self.written.file) {
            return Err(
                self.at(device, "the device `file` needs a [file] with its bytes for each form")
            );
        }
        if let ([_, second, ..], false) = (arms, cut.batches.is_empty()) {
            return Err(
                self.at(second, "batches are run with one arm alone (leave the others out)")
            );
        }
        Ok(())
    }

    /// All that is named is of the kind; `what` is said of the first that is not.
    fn all<T>(
        &self,
        words: &[Word],
        named: &[T],
        is_of_kind: impl Fn(&T) -> bool,
        what: &str,
    ) -> Checked<()> {
        match words.iter().zip(named).find(|(_, named)| !is_of_kind(named)) {
            Some((word, _)) => Err(self.at(word, what)),
            None => Ok(()),
        }
    }
}
