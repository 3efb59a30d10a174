//! Did the kernel batch? Counted in the kernel while a cell runs, on the disk of its files.
//!
//! A cell's process starts the counters of [`forebay_bpf`] before it begins, and reads them with
//! its other figures, at both ends of the timed part. Requests are counted for all processes: other
//! work on the same disk is among them. Without root, or if the kernel does not describe its types,
//! the cell runs uncounted and a note has the reason.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use forebay_bpf::{COUNTERS, Counting, Disk, FileSystem, Kind, Place};
pub(crate) use forebay_bpf::{Counter, Counts, Ring};
use rustix::fs::{major, minor};
use serde::{Deserialize, Serialize};

use crate::manifest::{Storage, mount};

/// Whether the kernel's batching is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Batching {
    #[default]
    Off,
    /// While cells run.
    Counted,
}

/// How all of its metrics begin.
pub(crate) const PREFIX: &str = "kernel_";

/// As long as this process lives.
static COUNTING: OnceLock<Counting> = OnceLock::new();

/// Counts from now on, for as long as this process lives, on the disk of a directory or of a block
/// device. Returns a sentence for each group of counters that is left out.
pub(crate) fn begin(path: &Path, ring: Ring) -> Vec<String> {
    match Counting::start(place(path), ring) {
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
    let counting = Counting::start_one(counter, place(path))?;
    // A second one would count the same again.
    let _ = ALONE[counter as usize].set(counting);
    Ok(())
}

/// Returns the count since [`begin_alone`].
pub(crate) fn counted_alone(counter: Counter) -> Option<u64> {
    Some(ALONE[counter as usize].get()?.read().ok()?.get(counter))
}

/// Returns the counts so far; `None` if nothing is counted.
pub(crate) fn now() -> Option<Counts> {
    COUNTING.get()?.read().ok()
}

/// Returns the place where the cell of a file, a directory or a block device works.
fn place(path: &Path) -> Place<'_> {
    Place { path, disk: disk_under(path), file_system: file_system_of(path) }
}

/// Returns the disk that is a block device, has it as a part, or has the file system of a
/// directory; `None` if that has no disk of its own.
fn disk_under(path: &Path) -> Option<Disk> {
    let number = fs::read_to_string(mount::disk_of(path)?.join("dev")).ok()?;
    let (major, minor) = number.trim().split_once(':')?;
    Some(Disk { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

/// Returns the file system of a file or a directory.
fn file_system_of(path: &Path) -> FileSystem {
    let device = mount::file_system_number(path);
    let kind = match Storage::of(path).file_system.as_str() {
        "ext4" => Kind::Ext4,
        "xfs" => Kind::Xfs,
        _ => Kind::Other,
    };
    FileSystem { device: Disk { major: major(device), minor: minor(device) }, kind }
}

/// Adds what the counts mean. A ratio without a value is left out.
pub(crate) fn add(counts: Counts, metrics: &mut BTreeMap<String, f64>) {
    let of = |counter: Counter| counts.get(counter) as f64;
    let unplugs = of(Counter::AskedUnplugs) + of(Counter::SleepingUnplugs);
    let unplugged = of(Counter::AskedRequests) + of(Counter::SleepingRequests);
    let in_interrupts = of(Counter::Completions) - of(Counter::PolledCompletions);
    // A busy device refuses requests; they are issued again.
    let issues = of(Counter::Issues) - of(Counter::Requeues);
    let bios_per_request = of(Counter::Bios) / issues;
    let requests_per_run = in_interrupts / of(Counter::CompletionRuns);
    let seconds = |count: f64| match metrics.get("elapsed_s") {
        // Elsewhere nothing allocates in groups.
        Some(elapsed) if count > 0.0 => count / elapsed,
        _ => f64::NAN,
    };
    // Where something was allocated, no wait is a finding.
    let of_groups = |count: f64| match metrics.get("elapsed_s") {
        Some(elapsed) if of(Counter::Allocations) > 0.0 => count / elapsed,
        _ => f64::NAN,
    };
    let waits: u64 = counts.group_waits().iter().sum();
    let busiest = counts.group_waits().iter().copied().max().unwrap_or(0);
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
        ("allocations_per_s", seconds(of(Counter::Allocations))),
        ("group_waits_per_s", of_groups(waits as f64)),
        ("group_refusals_per_s", of_groups(of(Counter::GroupRefusals))),
        ("busiest_group_share", busiest as f64 / waits as f64),
    ] {
        // Zero by zero.
        if value.is_finite() {
            metrics.insert(format!("{PREFIX}{name}"), value);
        }
    }
}

#[cfg(test)]
mod tests;
