//! Names that a part uses and the file defines elsewhere: arms and workloads.

use forebay_block::Knobs;

use super::{Checked, Checker, DEPTHS};
use crate::refusal::Refusal;
use crate::shape::JobShape;
use crate::suite::text::{ArmText, Word, WorkloadText};
use crate::suite::{Arm, Bytes, Workload, WorkloadKind};
use crate::through::{Through, Way};
use crate::tuning::Tuning;
use crate::writers::Writers;

/// Bytes at a time of programs, which have no block of their own.
const PROGRAM_BLOCK_BYTES: u32 = 4096;

impl Checker<'_> {
    pub(super) fn arm_text(&self, name: &Word) -> Checked<&ArmText> {
        self.named(name, "arm", &self.written.arm, |arm| &arm.name)
    }

    pub(super) fn arm(&self, name: &Word) -> Checked<Arm> {
        let written = self.arm_text(name)?;
        let through = written.through.get_ref().parse::<Through>();
        let through = through.map_err(|refused| self.at(&written.through, refused.to_string()))?;
        match through.is_engine() {
            true => self.engine_knobs(written)?,
            false => self.queue_knobs(written, through)?,
        }
        let needs = written.machine.iter().map(|(knob, value)| self.tuning(knob, value));
        let needs = needs.collect::<Checked<_>>()?;
        let texts =
            |(knob, value): (&Word, &Word)| (knob.get_ref().clone(), value.get_ref().clone());
        Ok(Arm {
            name: name.get_ref().clone(),
            through,
            knobs: written.knobs.iter().map(texts).collect(),
            batch: written.batch.as_ref().map(|batch| self.bounded(batch, DEPTHS)).transpose()?,
            depths: self.numbers(&written.depths)?,
            fixed_files: written.fixed_files,
            poll: written.poll,
            from: written.from,
            layout: written.layout,
            tunings: Vec::new(),
            needs,
        })
    }

    fn tuning(&self, knob: &Word, value: &Word) -> Checked<Tuning> {
        let parsed = knob.get_ref().parse();
        let knob = parsed.map_err(|error: Refusal| self.at(knob, error.0))?;
        Ok(Tuning { knob, value: value.get_ref().clone() })
    }

    fn engine_knobs(&self, written: &ArmText) -> Checked<()> {
        for (knob, value) in &written.knobs {
            let tried = forebay::Engine::builder().set(knob.get_ref(), value.get_ref());
            tried.map_err(|refused| self.at(knob, refused.to_string()))?;
        }
        Ok(())
    }

    fn queue_knobs(&self, written: &ArmText, through: Through) -> Checked<()> {
        if let (Some((knob, _)), false) =
            (written.knobs.first_key_value(), through == Through::Requests(Way::Queue))
        {
            return Err(self.at(knob, "only `through = \"queue\"` and Forebay's engine have knobs"));
        }
        let mut tried = Knobs::default();
        for (knob, value) in &written.knobs {
            match tried.set(knob.get_ref(), value.get_ref()) {
                Some(Ok(())) => {}
                Some(Err(unknown)) => {
                    let what = format!("{}: allowed: {}", value.get_ref(), unknown.choices);
                    return Err(self.at(value, what));
                }
                None => return Err(self.unknown(knob, "knob", Knobs::NAMES.into_iter())),
            }
        }
        Ok(())
    }

    pub(super) fn workload(&self, name: &Word) -> Checked<Workload> {
        let written = self.named(name, "workload", &self.written.workload, |one| &one.name)?;
        let (kind, block_bytes) = self.work(written)?;
        let title = written.title.clone();
        Ok(Workload { name: name.get_ref().clone(), title, block_bytes, kind })
    }

    /// The work of a workload, which is of one kind, and bytes at a time.
    fn work(&self, written: &WorkloadText) -> Checked<(WorkloadKind, u32)> {
        let WorkloadText { new_files, pattern, operation, job, copy, writers, program, .. } =
            written;
        let given = [
            new_files.is_some(),
            pattern.is_some() || operation.is_some(),
            job.is_some(),
            copy.is_some(),
            writers.is_some(),
            program.is_some(),
        ];
        let one = given.iter().filter(|given| **given).count() == 1;
        if program.is_some() && (!one || written.block.is_some()) {
            let what = "a program has its own of everything (leave the rest out)";
            return Err(self.at(&written.name, what));
        }
        if let Some(program) = program {
            let load = *program.get_ref();
            load.check().map_err(|refused| self.at(program, refused))?;
            return Ok((WorkloadKind::Program(load), PROGRAM_BLOCK_BYTES));
        }
        let Some(block) = &written.block else {
            return Err(self.at(&written.name, "give it a block, such as \"4k\""));
        };
        let Bytes(bytes) = *block.get_ref();
        if bytes == 0 || bytes % 512 != 0 || bytes > 16 << 20 {
            return Err(self.at(block, "out of range (512 to 16m, in steps of 512)"));
        }
        let block_bytes = bytes as u32;
        let kind = match (new_files, pattern.zip(*operation), job, copy, writers) {
            _ if !one => None,
            (Some(files), ..) => Some(WorkloadKind::NewFiles(self.bounded(files, 1..=1024)?)),
            (_, Some((pattern, operation)), ..) => {
                Some(WorkloadKind::Requests { pattern, operation })
            }
            (_, _, Some(job), ..) => {
                let shape = JobShape { block_bytes, ..*job.get_ref() };
                shape.check().map_err(|refused| self.at(job, refused))?;
                Some(WorkloadKind::Jobs(shape))
            }
            (.., Some(length), _) => {
                let Bytes(length_bytes) = *length.get_ref();
                if length_bytes == 0 || length_bytes % bytes != 0 || length_bytes > 1 << 30 {
                    return Err(self.at(length, "out of range (whole blocks, 1g at most)"));
                }
                Some(WorkloadKind::Copies(length_bytes))
            }
            (.., Some(text)) => {
                let writers = Writers { block_bytes, ..*text.get_ref() };
                writers.check().map_err(|refused| self.at(text, refused))?;
                Some(WorkloadKind::Writers(writers))
            }
            _ => None,
        };
        let kind = kind.ok_or_else(|| {
            let what = "give one of new_files, pattern and operation, job, copy, writers, program";
            self.at(&written.name, what)
        })?;
        Ok((kind, block_bytes))
    }
}
