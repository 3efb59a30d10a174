//! The machine as tests and drivers control it and look at it. Paths are absolute.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use forebay_block::Errno;
use forebay_uring::Identity;

use super::inode::Content;
use super::names::Node;
use super::state::{Last, Machine, with};
use crate::faults::{Faults, Latency};
use crate::stored::StoredFile;
use crate::world::{self, Process};
use forebay_uring::Replace;

fn node(machine: &Machine, path: &Path) -> Node {
    machine
        .existing(path, Last::Follow)
        .unwrap_or_else(|error| panic!("{} does not lead to a file: {error}", path.display()))
}

/// Creates a directory whose name is durable.
///
/// # Panics
/// If the name is taken, or leads nowhere.
pub fn make_directory(path: impl AsRef<Path>) {
    make(path.as_ref(), Content::Directory);
}

/// Creates a symbolic link whose name is durable.
///
/// # Panics
/// As [`make_directory`].
pub fn make_link(path: impl AsRef<Path>, target: impl AsRef<Path>) {
    make(path.as_ref(), Content::Link(target.as_ref().to_owned()));
}

/// Creates a block device of zeroes, which are durable.
///
/// # Panics
/// As [`make_directory`].
pub fn make_device(path: impl AsRef<Path>, bytes: u64, logical_block: u32) {
    make(path.as_ref(), Content::Device(logical_block));
    with(|machine| {
        let node = node(machine, path.as_ref());
        let sequence = machine.sequence;
        let stored = &mut machine.inode_mut(node).stored;
        stored.set_size(bytes, sequence);
        stored.flush(sequence);
    });
}

fn make(path: &Path, content: Content) {
    with(|machine| {
        let made = machine.add_entry(path, content);
        made.unwrap_or_else(|error| panic!("could not create {}: {error}", path.display()));
        machine.names.flush_all();
    });
}

/// Says whether a block device is mounted, so that it cannot be opened exclusively.
pub fn set_mounted(path: impl AsRef<Path>, is_mounted: bool) {
    with(|machine| {
        let node = node(machine, path.as_ref());
        machine.inode_mut(node).is_mounted = is_mounted;
    });
}

/// Says whether this user may not write a file. Open files stay as they are.
pub fn set_protected(path: impl AsRef<Path>, is_protected: bool) {
    with(|machine| {
        let node = node(machine, path.as_ref());
        machine.inode_mut(node).is_protected = is_protected;
    });
}

/// Changes the times that later requests take.
pub fn set_latency(latency: Latency) {
    with(|machine| machine.plan.latency = latency);
}

/// Changes the rates of faults.
pub fn set_faults(faults: Faults) {
    with(|machine| machine.plan.faults = faults);
}

/// Returns the rates of faults.
#[must_use]
pub fn faults() -> Faults {
    with(|machine| machine.plan.faults)
}

/// Sets the wall clock forward, or back, by nanoseconds.
pub fn move_wall_clock(nanoseconds: i64) {
    with(|machine| machine.clock_offset += nanoseconds);
}

/// Changes the space of a file system.
pub fn set_space_pages(volume: usize, pages: u64) {
    with(|machine| machine.plan.volumes[volume].space_pages = pages);
}

/// Changes whether a file system has extended attributes.
pub fn set_attributes(volume: usize, are_there: bool) {
    with(|machine| machine.plan.volumes[volume].attributes = are_there);
}

/// Changes the pages of a file that cannot be written.
pub fn set_bad(path: impl AsRef<Path>, pages: Range<u64>) {
    with(|machine| {
        let node = node(machine, path.as_ref());
        machine.inode_mut(node).bad = pages;
    });
}

/// As [`set_bad`], if there is such a file.
pub fn set_bad_if_there(path: impl AsRef<Path>, pages: Range<u64>) {
    if identity(&path).is_some() {
        set_bad(path, pages);
    }
}

/// Removes a name.
///
/// # Errors
/// The error of the file system.
pub fn unlink(path: impl AsRef<Path>) -> Result<(), Errno> {
    world::preempt();
    with(|machine| {
        let found = machine.resolve(path.as_ref(), Last::Keep)?;
        machine.unlink(&found)
    })
}

/// Gives a file another name.
///
/// # Errors
/// As [`unlink`].
pub fn link(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), Errno> {
    world::preempt();
    with(|machine| {
        let from = machine.resolve(from.as_ref(), Last::Keep)?;
        let to = machine.resolve(to.as_ref(), Last::Keep)?;
        machine.link(&from, &to)
    })
}

/// Moves a name.
///
/// # Errors
/// As [`unlink`].
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), Errno> {
    world::preempt();
    with(|machine| {
        let from = machine.resolve(from.as_ref(), Last::Keep)?;
        let to = machine.resolve(to.as_ref(), Last::Keep)?;
        machine.rename(&from, &to, Replace::Yes)
    })
}

/// Returns the identity of a file, or `None` if the path leads to none.
#[must_use]
pub fn identity(path: impl AsRef<Path>) -> Option<Identity> {
    with(|machine| {
        let node = machine.existing(path.as_ref(), Last::Follow).ok()?;
        Some(machine.inode(node).identity)
    })
}

/// Looks at a file as it is stored.
pub fn stored<T>(path: impl AsRef<Path>, look: impl FnOnce(&StoredFile) -> T) -> T {
    with(|machine| {
        let node = node(machine, path.as_ref());
        look(&machine.inode(node).stored)
    })
}

/// Returns the pages of a file that were written direct and then replaced by older ones of another
/// program's mapping.
#[must_use]
pub fn undone(path: impl AsRef<Path>) -> BTreeSet<u64> {
    with(|machine| {
        let node = node(machine, path.as_ref());
        machine.inode(node).undone.clone()
    })
}

/// Takes the pages of a file that a mapping has undone for its content from now on.
pub fn accept_undone(path: impl AsRef<Path>) {
    with(|machine| {
        let node = node(machine, path.as_ref());
        machine.inode_mut(node).undone.clear();
    });
}

/// Returns whether a write of a file has failed at the device.
#[must_use]
pub fn has_failed(path: impl AsRef<Path>) -> bool {
    look_at(path.as_ref(), |inode| !inode.failed.is_empty())
}

/// Returns whether a loss of power has left space beyond the end of a file that nobody reserved.
#[must_use]
pub fn is_littered(path: impl AsRef<Path>) -> bool {
    look_at(path.as_ref(), |inode| inode.is_littered)
}

/// Returns whether the journal did not take the size of a file: every flush of it fails until it is
/// closed everywhere.
#[must_use]
pub fn is_aborted(path: impl AsRef<Path>) -> bool {
    look_at(path.as_ref(), |inode| inode.is_aborted)
}

/// Returns the pages of a file of which a write has failed.
#[must_use]
pub fn failed_pages(path: impl AsRef<Path>) -> BTreeSet<u64> {
    look_at(path.as_ref(), |inode| inode.failed.clone())
}

/// Returns how many writes of an engine's cache to a file have failed, except for lack of space.
#[must_use]
pub fn failed_writes(path: impl AsRef<Path>) -> u64 {
    look_at(path.as_ref(), |inode| inode.failed_writes)
}

/// Returns how many flushes of a file have failed.
#[must_use]
pub fn failed_flushes(path: impl AsRef<Path>) -> u64 {
    look_at(path.as_ref(), |inode| inode.failed_flushes)
}

/// Returns whether a flush of a directory has failed that would have made the name durable.
#[must_use]
pub fn is_name_forsaken(path: impl AsRef<Path>) -> bool {
    with(|machine| {
        let found = machine.resolve(path.as_ref(), Last::Keep);
        found.is_ok_and(|found| machine.names.is_forsaken(found.directory, &found.name))
    })
}

fn look_at<T>(path: &Path, look: impl FnOnce(&super::inode::Inode) -> T) -> T {
    with(|machine| {
        let node = node(machine, path);
        look(machine.inode(node))
    })
}

/// Returns the reservation mark of a file, if it has one.
#[must_use]
pub fn mark(path: impl AsRef<Path>) -> Option<String> {
    with(|machine| {
        let node = node(machine, path.as_ref());
        machine.inode(node).metadata.mark().map(str::to_owned)
    })
}

/// Returns whether an open file has a lease of the file.
#[must_use]
pub fn is_leased(path: impl AsRef<Path>) -> bool {
    with(|machine| {
        let node = node(machine, path.as_ref());
        machine.inode(node).lease.is_some()
    })
}

/// Returns whether an open file has a lease of the file that no other program waits for.
#[must_use]
pub fn is_leased_alone(path: impl AsRef<Path>) -> bool {
    look_at(path.as_ref(), |inode| inode.lease.is_some_and(|lease| lease.broken_until.is_none()))
}

/// Returns the number of open file descriptions of a file.
#[must_use]
pub fn opened(path: impl AsRef<Path>) -> usize {
    with(|machine| {
        let node = node(machine, path.as_ref());
        machine.inode(node).opened.len()
    })
}

/// Returns the pages of a file system that no file has.
#[must_use]
pub fn free_pages(volume: usize) -> u64 {
    with(|machine| machine.free_pages(volume))
}

/// Returns how often the state of the devices has changed: a request was taken, or has ended.
#[must_use]
pub fn transitions() -> u64 {
    with(|machine| machine.transitions)
}

/// Returns the number of requests at the devices, of all processes.
#[must_use]
pub fn in_flight() -> usize {
    with(|machine| machine.flying.len())
}

/// A keeper waits for the requests of a process that outlive it.
pub fn have_keeper(process: Process) {
    with(|machine| machine.kept.insert(process));
}

/// Kills a process, as `SIGKILL` does: its files are closed, its requests end some time later, at
/// random only in part, and its tasks are gone when this returns.
pub fn kill(process: Process) {
    with(|machine| machine.end_process(process));
    world::kill(process);
}
