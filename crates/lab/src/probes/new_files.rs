//! Random writes into new files, each block once, until all is synced: the hardest ordinary case
//! for an allocator.

use serde::Deserialize;
use serde_json::Value;

use super::workload::{self, arm, on_files};
use crate::arm::Arm;
use crate::bytes::Bytes;
use crate::cell::{Cell, CellSpec, SyncProbe};
use crate::job::Workload as Jobs;
use crate::planning::{GIB, Job, MIB, PlanError, Planner, budget_of, scaled};
use crate::probe::{Probe, Steps, checked, read};
use crate::reader::Reader;
use crate::schema::Against;
use crate::sentence::{NO_DIFFERENCE, memory};
use crate::suite::model::{Cut, Workload};

/// Step of a file's length: 12 of these make 36 MiB, whose two ninths, the budget, are 8 MiB.
const STEP_BYTES: u64 = 3 * MIB;

pub(super) const PROBE: Probe = Probe {
    needs,
    sentence,
    figures: &[
        "peak_memory_bytes",
        "sync_probe_p99_us",
        "extents_per_file",
        "context_switches_per_io",
        "system_context_switches_per_io",
        "cpu_us_per_io",
        "doorbells_per_io",
        "written_per_asked",
        "peak_dirty_bytes",
    ],
    has_table: true,
    ..Probe::new(
        "new-files",
        on_files,
        Steps { check, plan, work: workload::work, run: workload::run },
    )
};

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    files: u32,
    block: Bytes,
    /// Without a small write and its sync beside the work.
    #[serde(default)]
    alone: bool,
    /// Memory of a bounded arm; otherwise a share of the data.
    memory: Option<Bytes>,
}

impl Shape {
    fn budget_of(&self, file_bytes: u64) -> u64 {
        let data_bytes = u64::from(self.files) * file_bytes;
        self.memory.map_or_else(|| budget_of(data_bytes), |memory| memory.0)
    }
}

fn check(shape: &Value) -> Result<(), String> {
    let Shape { files, block, memory, .. } = read(shape)?;
    if !(1..=1024).contains(&files) {
        return Err(format!("files {files}: out of range (1 to 1024)"));
    }
    if memory.is_some_and(|memory| memory.0 < 8 * MIB || memory.0 % MIB != 0) {
        return Err("memory out of range (in steps of 1m, 8m or more)".to_owned());
    }
    block.block().map(drop)
}

fn needs(cut: &Cut) -> Result<(), String> {
    if cut.arms.iter().any(|arm| !arm.knobs.is_empty()) {
        return Err("an arm with knobs of its own in a part on new files (use --set)".to_owned());
    }
    if cut.file_bytes.is_none_or(|bytes| bytes == 0 || bytes % STEP_BYTES != 0) {
        return Err("every form needs file_bytes, such as \"24m\", in steps of 3m".to_owned());
    }
    Ok(())
}

fn plan(planner: &mut Planner<'_>, workload: &Workload) -> Result<Vec<Job>, PlanError> {
    let shape: Shape = checked(workload);
    let file_bytes = length(planner, shape)?;
    let cell_bytes = u64::from(shape.files) * file_bytes;
    assert!(file_bytes > 0 && file_bytes % STEP_BYTES == 0, "files of {file_bytes} bytes");
    planner.cell_bytes = Some(cell_bytes);
    planner.ground = Some(format!(
        "{} new files of {} MiB each, {} MiB of memory for bounded arms",
        shape.files,
        file_bytes / MIB,
        shape.budget_of(file_bytes) / MIB
    ));
    let block = shape.block.0 as u32;
    let job = planner.job(workload, |own| {
        let way = arm(own.way.word);
        let cell = |file_bytes: u64| {
            let declared = (way == Arm::ForebayDeclared).into();
            let jobs = Jobs::random_writes_into_new_files(shape.files, file_bytes, block);
            let budget_bytes = shape.budget_of(file_bytes);
            let spec = CellSpec::of(way, jobs.declared(declared));
            let sync_probe = if shape.alone { SyncProbe::Off } else { SyncProbe::On };
            let spec = CellSpec { budget_bytes, sync_probe, ..spec };
            Cell::new(PROBE.name, own.way.word, &spec)
        };
        Some([file_bytes, STEP_BYTES].map(cell))
    });
    Ok(vec![Job { title: planner.part.title.clone(), ..job }])
}

/// Returns the length of a file: the largest that was asked for and keeps every bound.
fn length(planner: &mut Planner<'_>, shape: Shape) -> Result<u64, PlanError> {
    let cut = planner.cut;
    let whole = cut.file_bytes.expect("a form on new files says how long they are");
    let wanted = scaled(whole, STEP_BYTES, planner.scale());
    if wanted < whole {
        let (wanted, whole) = (wanted / MIB, whole / MIB);
        planner.notes.push(format!("smaller files ({wanted} MiB, not {whole}): --scale"));
    }
    let smallest = u64::from(shape.files) * STEP_BYTES;
    let fits = planner.fitting(smallest)? * STEP_BYTES;
    let may = match cut.writes_at_most {
        Some(most) => fitting_form(planner, most, smallest)? * STEP_BYTES,
        None => u64::MAX,
    };
    let file_bytes = wanted.min(fits).min(may);
    if fits < wanted.min(may) {
        planner.note_space("smaller files", [fits, wanted], "a cell");
    } else if may < wanted {
        planner.notes.push(format!(
            "smaller files ({} MiB, not {}): the {} form writes at most {} GiB",
            file_bytes / MIB,
            wanted / MIB,
            planner.wish.form.name(),
            cut.writes_at_most.unwrap_or_default() / GIB,
        ));
    }
    Ok(file_bytes)
}

/// Returns the steps of the largest files that keep a form within its bound.
fn fitting_form(planner: &Planner<'_>, most: u64, smallest: u64) -> Result<u64, PlanError> {
    let (rounds, gib, suite) = (planner.rounds, most / GIB, planner.wish.suite);
    let in_a_round = (planner.cut.workloads.len() * (planner.cut.arms.len() + 1)) as u64;
    // The warm-up of the arms is as small as possible, and less than such a round.
    let counted = most.saturating_sub(in_a_round * smallest);
    match counted / (u64::from(rounds) * in_a_round) / smallest {
        0 => {
            let fit = counted / (in_a_round * smallest);
            Err(PlanError::Refused(format!(
                "{rounds} rounds write more than the {gib} GiB of this form; use `forebay \
                 compare {suite}`, or --rounds {fit} or less"
            )))
        }
        steps => Ok(steps),
    }
}

/// Compares Forebay with the best bounded arm of the kernel, in speed and memory.
fn sentence(reader: Reader<'_>) -> Option<String> {
    let Some(base) = reader.job.base.as_deref() else {
        return Some("no bounded arm of the kernel ran here.".to_owned());
    };
    let Some(found) = reader.compared("write_bytes_per_s", Against { arm: "forebay", base }) else {
        let why = reader.why_left_out("forebay").unwrap_or_default();
        return Some(format!("forebay did not run here{why}."));
    };
    let best = format!("the best bounded kernel arm ({base})");
    let said = match reader.shown(found) {
        Some(factor) => format!("forebay writes {factor} the bytes per second of {best}"),
        None => format!("forebay {NO_DIFFERENCE}{best}"),
    };
    let memory = memory(reader, "forebay", base).map(|memory| format!(", with {memory}"));
    Some(format!("{said}{}.", memory.unwrap_or_default()))
}
