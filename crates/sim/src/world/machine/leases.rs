//! Leases, as the kernel keeps them: write leases, and read leases of files that are open only for
//! reading.
//!
//! An open of a leased file by another description (for a read lease: one for writing) breaks the
//! lease: the watch of the holder gets a signal, and the open waits until the lease is released, or
//! until the kernel takes it away after [`BREAK_TIME`]. Overdue leases are taken away when somebody
//! looks.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use forebay_block::{Errno, Moment};
use forebay_uring::Access;

use super::inode::{Content, Lease};
use super::names::Node;
use super::opened::Descriptor;
use super::plan::Leases;
use super::state::Machine;
use super::watch::{LEASE, State, Turn, WATCH, WATCH_END, Watch};
use crate::marks;
use crate::random::PerMille;
use crate::world::{self, Process};

/// Time that the kernel grants to the holder of a broken lease (`lease-break-time`).
pub(crate) const BREAK_TIME: Duration = Duration::from_secs(45);

/// Share of signals that do not name the descriptor, as when the queue of signals is full.
const NAMELESS: PerMille = PerMille(50);

impl Machine {
    pub(crate) fn add_watch(&mut self, process: Process) -> u64 {
        let number = world::number();
        let watch = Watch {
            process,
            leased: BTreeMap::new(),
            signals: VecDeque::new(),
            state: State::Idle,
            task: None,
        };
        self.watches.insert(number, watch);
        number
    }

    fn watch_mut(&mut self, watch: u64) -> Result<&mut Watch, Errno> {
        self.watches.get_mut(&watch).ok_or(Errno(libc::EBADF))
    }

    /// Returns whether the thread of the watch has to be started for its first lease.
    pub(crate) fn begin_watch(&mut self, watch: u64) -> Result<bool, Errno> {
        let watch = self.watch_mut(watch)?;
        match watch.state {
            State::Idle => {
                watch.state = State::Running;
                Ok(true)
            }
            State::Running => Ok(false),
            State::Stopping | State::Over => Err(Errno(libc::EBADF)),
        }
    }

    /// The thread of a watch has started.
    pub(crate) fn note_watcher(&mut self, watch: u64) {
        if let Ok(watch) = self.watch_mut(watch) {
            watch.task = world::task();
        }
    }

    /// Returns what the thread of a watch does next.
    pub(crate) fn next_turn(&mut self, number: u64) -> Turn {
        let Ok(watch) = self.watch_mut(number) else { return Turn::End };
        if watch.state == State::Stopping {
            return Turn::End;
        }
        let Some(signal) = watch.signals.pop_front() else { return Turn::Wait };
        let leased: Vec<(u64, u64)> = watch.leased.iter().map(|(at, key)| (*at, *key)).collect();
        let asked = leased.into_iter().filter(|(at, _)| signal.is_none_or(|signal| *at == signal));
        let asked: Vec<(u64, u64)> = asked.collect();
        let broken = asked.into_iter().filter(|(at, _)| !self.has_lease(*at));
        Turn::Report(broken.map(|(_, key)| key).collect())
    }

    /// The thread of a watch has ended.
    pub(crate) fn end_watch(&mut self, watch: u64) {
        if let Ok(ended) = self.watch_mut(watch) {
            ended.state = State::Over;
        }
        Self::wake(WATCH_END, watch);
    }

    /// Gives up all leases of a watch and asks its thread to end. Returns whether there is one.
    pub(crate) fn stop_watch(&mut self, number: u64) -> bool {
        let Ok(watch) = self.watch_mut(number) else { return false };
        let was_running = watch.state == State::Running;
        watch.state = if was_running { State::Stopping } else { State::Over };
        let leased: Vec<u64> = watch.leased.keys().copied().collect();
        for descriptor in leased {
            if let Ok(description) = self.descriptor(descriptor).map(|found| found.description) {
                self.give_up_lease(description);
            }
        }
        Self::wake(WATCH, number);
        was_running
    }

    /// Whether the thread of a watch is still running, and is not the calling one: the callback
    /// cannot wait for itself.
    pub(crate) fn is_watching(&self, watch: u64) -> bool {
        let waits = |watch: &Watch| watch.state == State::Stopping && watch.task != world::task();
        self.watches.get(&watch).is_some_and(waits)
    }

    /// Takes the write lease of a file, and reports its break to the watch.
    pub(crate) fn take_lease(
        &mut self,
        descriptor: u64,
        watch: u64,
        key: u64,
    ) -> Result<(), Errno> {
        if self.descriptor(descriptor)?.leased.is_some() {
            return Ok(());
        }
        self.own_lease(descriptor, watch, key)?;
        let taken = self.set_lease(descriptor);
        if taken.is_err() {
            self.release_lease(descriptor);
        }
        taken
    }

    /// Reports the break of a lease that the description has already.
    pub(crate) fn adopt_lease(
        &mut self,
        descriptor: u64,
        watch: u64,
        key: u64,
    ) -> Result<(), Errno> {
        if self.descriptor(descriptor)?.leased.is_none() {
            self.own_lease(descriptor, watch, key)?;
            // Refused if another program waits for the lease; `has_lease` says so.
            let _ = self.set_lease(descriptor);
        }
        Ok(())
    }

    fn own_lease(&mut self, descriptor: u64, watch: u64, key: u64) -> Result<(), Errno> {
        let description = self.descriptor(descriptor)?.description;
        self.watch_mut(watch)?.leased.insert(descriptor, key);
        self.descriptor_mut(descriptor)?.leased = Some(watch);
        self.description_mut(description).owner = Some((watch, descriptor));
        Ok(())
    }

    /// `fcntl(F_SETLEASE)`: a read lease if the descriptor is open only for reading.
    fn set_lease(&mut self, descriptor: u64) -> Result<(), Errno> {
        let number = self.descriptor(descriptor)?.description;
        let node = self.description(number).node;
        self.expire_lease(node);
        if self.inode(node).content != Content::File
            || self.volume_of(node).leases == Leases::Refused
        {
            return Err(Errno::INVALID);
        }
        let is_for_reading = self.description(number).access == Access::Read;
        let is_refused = if is_for_reading {
            let opened = self.inode(node).opened.iter();
            opened.copied().any(|other| self.description(other).access == Access::ReadWrite)
        } else {
            self.inode(node).opened.len() > 1
        };
        let inode = self.inode_mut(node);
        if is_refused || inode.lease.is_some_and(|lease| lease.broken_until.is_some()) {
            return Err(Errno::WOULD_BLOCK);
        }
        inode.lease = Some(Lease { description: number, is_for_reading, broken_until: None });
        Ok(())
    }

    /// Gives up the lease of a descriptor, if it took one.
    pub(crate) fn release_lease(&mut self, descriptor: u64) {
        let Ok(found) = self.descriptor_mut(descriptor) else { return };
        let description = found.description;
        let Some(watch) = found.leased.take() else { return };
        if let Ok(watch) = self.watch_mut(watch) {
            watch.leased.remove(&descriptor);
        }
        self.give_up_lease(description);
    }

    /// A descriptor is closed: its watch hears no more of it.
    pub(super) fn forget_lease(&mut self, closed: &Descriptor, descriptor: u64) {
        if let Some(watch) = closed.leased.and_then(|watch| self.watches.get_mut(&watch)) {
            watch.leased.remove(&descriptor);
        }
    }

    /// The watch hears no more of the lease of this descriptor, which stays with the description.
    pub(crate) fn leave_lease(&mut self, descriptor: u64) {
        let Ok(found) = self.descriptor_mut(descriptor) else { return };
        found.is_left = true;
        if let Some(watch) = found.leased.take()
            && let Ok(watch) = self.watch_mut(watch)
        {
            watch.leased.remove(&descriptor);
        }
    }

    /// `fcntl(F_SETLEASE, F_UNLCK)`.
    pub(crate) fn give_up_lease(&mut self, description: u64) {
        let node = self.description(description).node;
        let lease = &mut self.inode_mut(node).lease;
        if lease.is_some_and(|lease| lease.description == description) {
            *lease = None;
            Self::wake(LEASE, node.0 as u64);
        }
    }

    /// Breaks the lease of a file, if an open is in its way. Returns whether it is still held.
    pub(super) fn break_lease(&mut self, node: Node, is_for_writing: bool) -> bool {
        self.expire_lease(node);
        let until = world::now() + BREAK_TIME;
        let is_bypassed = self.volume_of(node).leases == Leases::Bypassed;
        let Some(lease) = &mut self.inode_mut(node).lease else { return false };
        if is_bypassed || lease.is_for_reading && !is_for_writing {
            return false;
        }
        if lease.broken_until.is_none() {
            lease.broken_until = Some(until);
            let Lease { description, is_for_reading, .. } = *lease;
            marks::hit(if is_for_reading { "read lease broken" } else { "write lease broken" });
            world::trace(format_args!("lease of node {} is broken", node.0));
            if let Some((watch, descriptor)) = self.description(description).owner {
                let signal = (!self.random.happens(NAMELESS)).then_some(descriptor);
                if let Ok(found) = self.watch_mut(watch) {
                    found.signals.push_back(signal);
                }
                Self::wake(WATCH, watch);
            }
        }
        true
    }

    /// Takes away a lease whose holder did not release it in time.
    fn expire_lease(&mut self, node: Node) {
        let lease = &mut self.inode_mut(node).lease;
        let until = lease.and_then(|lease| lease.broken_until);
        if until.is_some_and(|until| until <= world::now()) {
            *lease = None;
            world::trace(format_args!("lease of node {} is taken away", node.0));
            Self::wake(LEASE, node.0 as u64);
        }
    }

    /// Returns whether an engine may take a file for its own: it has a lease that counts, or its
    /// callers promised to be alone.
    pub(super) fn has_alone(&self, node: Node) -> bool {
        let plan = self.volume_of(node);
        plan.is_promised || plan.leases == Leases::Enforced && self.inode(node).lease.is_some()
    }

    /// Returns when the kernel takes the lease of a file away.
    pub(crate) fn lease_end(&self, node: Node) -> Option<Moment> {
        self.inode(node).lease.and_then(|lease| lease.broken_until)
    }

    /// Returns whether the description of a descriptor has a lease that nobody waits for.
    pub(crate) fn has_lease(&mut self, descriptor: u64) -> bool {
        self.lease_of(descriptor).is_some_and(|lease| lease.broken_until.is_none())
    }

    /// Returns whether the description of a descriptor has a lease.
    pub(crate) fn has_lease_still(&mut self, descriptor: u64) -> bool {
        self.lease_of(descriptor).is_some()
    }

    fn lease_of(&mut self, descriptor: u64) -> Option<Lease> {
        let description = self.descriptor(descriptor).ok()?.description;
        let node = self.description(description).node;
        self.expire_lease(node);
        self.inode(node).lease.filter(|lease| lease.description == description)
    }

    /// Forgets the watches of a process that has ended.
    pub(super) fn drop_watches(&mut self, process: Process) {
        self.watches.retain(|_, watch| watch.process != process);
    }
}
