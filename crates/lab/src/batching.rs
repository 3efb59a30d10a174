//! Did the kernel batch? Counted in the kernel itself while a cell runs, on the disk that its files
//! lie on.
//!
//! ```text
//! submission:  bio --merge?--> request --plug?--> unplug --scheduler?--> issue
//! completion:  interrupt: a run of requests --> worker? --> task work --> completions of the ring
//! writeback:   a run of pages
//! ```
//!
//! A cell's process attaches a few small programs to the kernel's tracepoints (`programs`) before
//! it begins, and reads their counters where it reads its other figures, at both ends of what is
//! timed. Not histogram triggers: many kernels are built without those, they cannot tell why a plug
//! was flushed, and what they leave behind in tracefs outlives a process that is killed. Programs
//! are descriptors: the kernel removes them with the process, however it ends. It costs some tens
//! of nanoseconds for each event.
//!
//! Requests are counted whoever asked for them: other work on the same disk is among them. What
//! io_uring does is counted of this process alone, pages on the file system alone. It needs root;
//! without, and where the kernel tells too little about itself, what was not counted is said, and
//! nothing else changes.

mod btf;
mod code;
mod kernel;
mod place;
mod programs;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use btf::Btf;
use kernel::PerProcessor;
use place::{Disk, FileSystem, Namespace};
pub(crate) use programs::Counter;
use programs::{COUNTERS, Means};

/// Whether it is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Batching {
    /// No.
    #[default]
    Off,
    /// While cells run.
    Counted,
}

/// How all of its metrics begin.
pub(crate) const PREFIX: &str = "kernel_";

/// Whether a process uses io_uring. Where it does not, what it would do with it is not counted:
/// that takes a look at every system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ring {
    /// It does, or may.
    Used,
    /// Not at all.
    Unused,
}

/// As long as this process lives.
static COUNTING: OnceLock<Counting> = OnceLock::new();

/// Programs that run, and what they count.
#[derive(Debug)]
struct Counting {
    counters: PerProcessor,
    /// Only held: closing one takes its program away.
    _links: Vec<OwnedFd>,
}

/// What was counted up to a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Batched([u64; COUNTERS]);

/// Counts from now on, for as long as this process lives, on the disk of a directory or of a block
/// device. Says what is not counted, and why; nothing at all if there is nothing to say.
pub(crate) fn begin(path: &Path, ring: Ring) -> Vec<String> {
    match attach(path, ring) {
        Ok((counting, missing)) => {
            // A second one would count the same again.
            let _ = COUNTING.set(counting);
            missing
        }
        Err(reason) => vec![reason],
    }
}

/// Counters that were begun one by one.
static ALONE: [OnceLock<Counting>; COUNTERS] = [const { OnceLock::new() }; COUNTERS];

/// Counts one thing from now on, for as long as this process lives: its system calls, or the
/// commits and flushes of the file system of `path`.
pub(crate) fn begin_alone(counter: Counter, path: &Path) -> Result<(), String> {
    let counting = attach_alone(counter, path)?;
    // A second one would count the same again.
    let _ = ALONE[counter as usize].set(counting);
    Ok(())
}

/// Returns the count since [`begin_alone`].
pub(crate) fn counted_alone(counter: Counter) -> Option<u64> {
    let values = ALONE[counter as usize].get()?.counters.read().ok()?;
    Some(values.chunks_exact(COUNTERS).map(|of| of[counter as usize]).sum())
}

fn attach_alone(counter: Counter, path: &Path) -> Result<Counting, String> {
    if !rustix::process::geteuid().is_root() {
        return Err("not counted (needs root)".to_owned());
    }
    let refused = |error: io::Error| format!("not counted: this kernel lets nobody count: {error}");
    let counters = PerProcessor::new(COUNTERS).map_err(refused)?;
    let btf = Btf::of_kernel().map_err(|reason| format!("not counted: {reason}"))?;
    let means = Means {
        counters: counters.descriptor(),
        disk: Disk::under(path),
        file_system: FileSystem::of(path),
        process: std::process::id(),
        namespace: Namespace::here().map_err(refused)?,
        workers: &[],
        ring: Ring::Unused,
    };
    let program = programs::alone(counter, &btf, &means)
        .ok_or("not counted: this kernel or file system has other events")?;
    let link = kernel::attach(&program.instructions, program.to)
        .map_err(|reason| format!("not counted: {reason}"))?;
    Ok(Counting { counters, _links: vec![link] })
}

/// What was counted so far; none where nothing is.
pub(crate) fn now() -> Option<Batched> {
    let values = COUNTING.get()?.counters.read().ok()?;
    let mut sums = [0_u64; COUNTERS];
    for processor in values.chunks_exact(COUNTERS) {
        for (sum, value) in sums.iter_mut().zip(processor) {
            *sum = sum.wrapping_add(*value);
        }
    }
    Some(Batched(sums))
}

fn attach(path: &Path, ring: Ring) -> Result<(Counting, Vec<String>), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("not counted (needs root)".to_owned());
    }
    let refused = |error: io::Error| format!("not counted: this kernel lets nobody count: {error}");
    let counters = PerProcessor::new(COUNTERS).map_err(refused)?;
    let btf = Btf::of_kernel().map_err(|reason| format!("not counted: {reason}"))?;
    let mut missing = Vec::new();
    let disk = Disk::under(path);
    if disk.is_none() {
        missing
            .push(format!("requests are not counted: {} is on no disk of its own", path.display()));
    }
    let workers = place::completion_workers();
    if workers.is_empty() {
        missing.push(
            "completion workers are not counted: /proc/kallsyms tells no addresses".to_owned(),
        );
    }
    let means = Means {
        counters: counters.descriptor(),
        disk,
        file_system: FileSystem::of(path),
        process: std::process::id(),
        namespace: Namespace::here().map_err(refused)?,
        workers: &workers,
        ring,
    };
    let mut links = Vec::new();
    for group in programs::groups(&btf, &means) {
        let what = group.what;
        let Some(programs) = group.programs else {
            missing.push(format!("{what} are not counted: this kernel has other events"));
            continue;
        };
        let attached = programs.iter().map(|one| kernel::attach(&one.instructions, one.to));
        match attached.collect::<Result<Vec<_>, _>>() {
            Ok(attached) => links.extend(attached),
            Err(reason) => missing.push(format!("{what} are not counted: {reason}")),
        }
    }
    if links.is_empty() {
        return Err(format!("not counted: {}", missing.join("; ")));
    }
    Ok((Counting { counters, _links: links }, missing))
}

impl Batched {
    /// What was counted since.
    pub(crate) fn since(self, before: Self) -> Self {
        let mut counted = self.0;
        for (value, before) in counted.iter_mut().zip(before.0) {
            *value = value.saturating_sub(before);
        }
        Self(counted)
    }

    /// What that means; what cannot be told is left out.
    pub(crate) fn add_to(self, metrics: &mut BTreeMap<String, f64>) {
        let of = |counter: Counter| self.0[counter as usize] as f64;
        let unplugs = of(Counter::AskedUnplugs) + of(Counter::SleepingUnplugs);
        let unplugged = of(Counter::AskedRequests) + of(Counter::SleepingRequests);
        let in_interrupts = of(Counter::Completions) - of(Counter::PolledCompletions);
        // What a busy device did not take is issued once more.
        let issues = of(Counter::Issues) - of(Counter::Requeues);
        let bios_per_request = of(Counter::Bios) / issues;
        let requests_per_run = in_interrupts / of(Counter::CompletionRuns);
        for (name, value) in [
            ("requests_per_unplug", unplugged / unplugs),
            ("unplug_asked_share", of(Counter::AskedUnplugs) / unplugs),
            ("unplug_full_share", of(Counter::FullUnplugs) / unplugs),
            ("plugged_share", unplugged / of(Counter::Made)),
            ("insert_share", of(Counter::Inserts) / issues),
            ("bios_per_request", bios_per_request),
            ("request_bytes", of(Counter::IssuedBytes) / of(Counter::Issues)),
            ("polled_share", of(Counter::PolledCompletions) / of(Counter::Completions)),
            ("requests_per_run", requests_per_run),
            ("bios_per_run", requests_per_run * bios_per_request),
            ("bios_per_worker_run", of(Counter::Bios) / of(Counter::WorkerRuns)),
            ("task_work_per_run", of(Counter::TaskWorkItems) / of(Counter::TaskWorkRuns)),
            ("completions_per_enter", of(Counter::RingCompletions) / of(Counter::Enters)),
            ("writeback_pages_per_run", of(Counter::WritebackPages) / of(Counter::WritebackRuns)),
        ] {
            // Nothing by nothing is nothing that could be told.
            if value.is_finite() {
                metrics.insert(format!("{PREFIX}{name}"), value);
            }
        }
    }
}

#[cfg(test)]
mod tests;
