//! A cell in a process of its own, so that its memory, its context switches and its death are its
//! own.
//!
//! The same program is started again with [`CELL_ARGUMENT`] before all others; the specification
//! goes in on standard input, the outcome comes back on standard output, both as JSON. A refusal
//! stays a refusal on the other side. The child dies with its parent: no cell writes on after an
//! interrupted comparison. (The kernel ties that to the *thread* that started the child, so that
//! thread has to outlive it; here it waits for it.)

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Signal, getppid, pidfd_open, pidfd_send_signal,
    set_parent_process_death_signal,
};
use serde::{Deserialize, Serialize};

use crate::arm::Arm;
use crate::batching::{self, Batching, Ring};
use crate::cell::Cell;
use crate::load::error::{CellError, Context};
use crate::load::figures::CellReport;
use crate::load::timed::SetOnDrop;
use crate::memory_group;
pub use crate::own_program::PROGRAM_VARIABLE;
use crate::own_program::own_program;
use crate::probes;
use crate::processors;

/// The hidden first argument of a program that is to run one cell.
pub const CELL_ARGUMENT: &str = "__cell";

/// How often it is looked whether to stop.
const LOOK_FOR_STOP: Duration = Duration::from_millis(20);

/// Message to the child process.
#[derive(Serialize, Deserialize)]
struct Instructions<C> {
    cell: C,
    /// Processors it runs on; all if empty.
    processors: Vec<u32>,
    batching: Batching,
}

/// Runs a cell in a child: the program [`PROGRAM_VARIABLE`] names, or this one once more.
///
/// An empty list of processors allows all those of this process. If the kernel's batching cannot be
/// counted, a note says why. `stop`, once set, ends the cell soon.
pub fn run_cell(
    cell: &Cell,
    processors: &[u32],
    batching: Batching,
    stop: &AtomicBool,
) -> Result<CellReport, CellError> {
    let program = own_program().context("could not find this program's own file")?;
    run_cell_of(&program, (cell, processors), batching, stop)
}

/// Runs a cell in a child of a program, which has to call [`cell_main`] if its first argument asks
/// for a cell.
pub fn run_cell_of(
    program: &Path,
    (cell, processors): (&Cell, &[u32]),
    batching: Batching,
    stop: &AtomicBool,
) -> Result<CellReport, CellError> {
    let instructions = Instructions { cell, processors: processors.to_vec(), batching };
    let text = serde_json::to_vec(&instructions)
        .map_err(|error| CellError::invalid(format!("cannot describe the cell: {error}")))?;
    let started = Command::new(program)
        .arg(CELL_ARGUMENT)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let child = started.context_at("could not start it", program)?;
    let process = child.id();
    let Output { status, stdout, stderr } = converse(child, &text, stop)?;
    match serde_json::from_slice(&stdout) {
        Ok(Ok(report)) if status.success() => Ok(report),
        Ok(Err(error)) => Err(error),
        _ if memory_group::killed_for_memory(process) => Err(died_of_memory(cell, status)),
        _ => Err(CellError::Process { what: format!("{status}{}", last_words(&stderr)) }),
    }
}

/// Returns the error of a cell that was killed for its memory. The page cache of a small group can
/// be full of pages that are not written yet: a result of the kernel's arm, and a fault of any
/// other.
fn died_of_memory(cell: &Cell, status: ExitStatus) -> CellError {
    let budget =
        probes::by_name(&cell.probe).and_then(|probe| (probe.work)(cell).ok()?.budget_bytes);
    match (Arm::by_name(&cell.arm), budget) {
        (Some(arm @ Arm::KernelCgroup), Some(budget)) => CellError::refused(
            arm,
            format!(
                "the kernel killed it: its control group, with {} MiB for data, had no memory left",
                budget >> 20
            ),
        ),
        _ => CellError::Process { what: format!("{status}: its control group had no memory left") },
    }
}

/// Returns whether the arguments of a program ask for a cell.
pub fn is_cell(mut arguments: impl Iterator<Item = OsString>) -> bool {
    arguments.nth(1).is_some_and(|first| first == CELL_ARGUMENT)
}

/// Runs the cell that the program was started for; see [`is_cell`].
pub fn cell_main() -> ExitCode {
    let parent = getppid();
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if getppid() != parent {
        return ExitCode::FAILURE;
    }
    let outcome = read_instructions().and_then(|instructions| perform(&instructions));
    let written = serde_json::to_vec(&outcome).map_err(std::io::Error::from);
    match written.and_then(|text| std::io::stdout().write_all(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot report the result: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes and reads all pipes at once: a child that fills one while nobody reads it would never
/// end. Kills the child once `stop` is set.
fn converse(mut child: Child, text: &[u8], stop: &AtomicBool) -> Result<Output, CellError> {
    const TALK: &str = "could not talk to the cell";
    // The number of a child that has ended may be that of another process.
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
    let process = process.inspect_err(|_| drop(child.kill())).context(TALK)?;
    let mut input = child.stdin.take().expect("standard input is a pipe");
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if stop.load(Ordering::Relaxed) {
                    let _ = pidfd_send_signal(&process, Signal::KILL);
                    return;
                }
                thread::park_timeout(LOOK_FOR_STOP);
            }
        });
        let _over = SetOnDrop(&over);
        // A child that died early has said why on standard error.
        scope.spawn(move || drop(input.write_all(text)));
        child.wait_with_output().context(TALK)
    })
}

/// Runs the cell and counts the kernel's batching if asked to.
fn perform(instructions: &Instructions<Cell>) -> Result<CellReport, CellError> {
    // Before anything else of the cell is made, so that all its threads are there.
    processors::pin(&instructions.processors).context("could not run on its processors")?;
    let cell = &instructions.cell;
    let mut missing = Vec::new();
    let mut report = probes::run(cell, |work| {
        let counted_on = match instructions.batching {
            Batching::Counted => work.works_on(cell),
            Batching::Off => None,
        };
        let ring = if work.uses_ring { Ring::Used } else { Ring::Unused };
        missing = counted_on.map(|path| batching::begin(path, ring)).unwrap_or_default();
    })?;
    report.total.notes.extend(missing.into_iter().map(|what| format!("batching: {what}")));
    Ok(report)
}

fn read_instructions() -> Result<Instructions<Cell>, CellError> {
    serde_json::from_reader(std::io::stdin())
        .map_err(|error| CellError::invalid(format!("standard input is no cell: {error}")))
}

/// Returns the end of its messages, where the reason is.
fn last_words(errors: &[u8]) -> String {
    const MOST: usize = 4096;
    let text = String::from_utf8_lossy(&errors[errors.len().saturating_sub(MOST)..]);
    match text.trim() {
        "" => String::new(),
        said => format!("; it said:\n{said}"),
    }
}
