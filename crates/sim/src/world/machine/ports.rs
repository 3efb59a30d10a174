//! Ports: the machine's side of each backend, with its staged requests, loans and completions.
//!
//! A port outlives its backend while requests are in flight, as a ring of the kernel does: their
//! memory and their open files stay until then, and so does the end of the pipe that tells another
//! process that the ring is gone.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use forebay_block::{Bio, BufferId, Completion, Errno, Operation, Segment, Tag};
use forebay_uring::{Arena, Memory};

use super::flying::{Flying, Source, Work};
use super::opened::Directory;
use super::port::{DOORBELL, Loan, Port, Staged};
use super::state::Machine;
use crate::world::{self, Process};

impl Machine {
    /// Adds a port, whose requests may outlive the process.
    pub(crate) fn add_port(&mut self, process: Process, arena: Arc<Arena>, outlives: bool) -> u64 {
        let number = world::number();
        let port = Port {
            process,
            arena,
            staged: Vec::new(),
            completed: VecDeque::new(),
            loans: BTreeMap::new(),
            loaned: 0,
            is_rung: false,
            alive: None,
            outlives,
            registered: Vec::new(),
            flying: 0,
            is_gone: false,
        };
        self.ports.insert(number, port);
        number
    }

    /// Returns a port; an error if its process has ended.
    pub(crate) fn port(&self, number: u64) -> Result<&Port, Errno> {
        self.ports.get(&number).filter(|port| !port.is_gone).ok_or(Errno(libc::EBADF))
    }

    pub(super) fn port_mut(&mut self, number: u64) -> Result<&mut Port, Errno> {
        self.ports.get_mut(&number).filter(|port| !port.is_gone).ok_or(Errno(libc::EBADF))
    }

    /// The port holds this end of a pipe until its last request has ended.
    pub(crate) fn set_alive(&mut self, number: u64, alive: OwnedFd) -> Result<(), Errno> {
        self.port_mut(number)?.alive = Some(alive);
        Ok(())
    }

    /// Requests of the port go on after the death of its process.
    pub(crate) fn outlive(&mut self, number: u64) {
        if let Ok(port) = self.port_mut(number) {
            port.outlives = true;
        }
    }

    /// Lends memory to requests of a port. Numbers are not used again.
    pub(crate) fn lend(&mut self, number: u64, memory: Memory) -> Result<BufferId, Errno> {
        let port = self.port_mut(number)?;
        port.loaned += 1;
        port.loans.insert(port.loaned, Loan { memory, flights: 0 });
        Ok(BufferId(port.loaned))
    }

    /// Ends a loan.
    pub(crate) fn take_back(&mut self, number: u64, buffer: BufferId) -> Result<Memory, Errno> {
        let port = self.port_mut(number)?;
        assert_eq!(port.loan(buffer).flights, 0, "contract 13: {buffer:?} is at the device");
        Ok(port.loans.remove(&buffer.0).expect("looked at above").memory)
    }

    /// Stages a request, which refers to its open file from now on.
    pub(crate) fn stage(
        &mut self,
        number: u64,
        (tag, bio): (Tag, &Bio),
        (description, directory): (u64, Directory),
    ) -> Result<(), Errno> {
        let port = self.port_mut(number)?;
        port.count_loans(&bio.segments, |flights| flights + 1);
        port.staged.push(Staged { tag, bio: bio.clone(), description, directory });
        let has_frames = |segment: &Segment| matches!(segment, Segment::Frames { .. });
        if bio.segments.iter().any(has_frames) {
            let node = self.description(description).node;
            self.inode_mut(node).cached_by = Some(description);
        }
        self.refer(description);
        Ok(())
    }

    /// Submits what is staged.
    pub(crate) fn ring(&mut self, number: u64) {
        let Ok(port) = self.port_mut(number) else { return };
        let process = port.process;
        let is_seen = !port.outlives || port.alive.is_some() || port.staged.is_empty();
        assert!(
            is_seen || !self.kept.contains(&process),
            "contract 4: the keeper does not wait for requests that outlive the process"
        );
        let port = self.port_mut(number).expect("looked at above");
        for Staged { tag, bio, description, directory } in std::mem::take(&mut port.staged) {
            let moves = bio.operation != Operation::Read && self.plan.prices.is_none();
            let port = self.port_mut(number).expect("looked at above");
            port.flying += 1;
            let data = if moves { port.gather(&bio.segments) } else { Vec::new() };
            let node = self.description(description).node;
            let work = match (bio.operation, directory) {
                (Operation::FlushDirectory, Directory::Kept(directory)) => Work::Names(directory),
                (Operation::FlushDirectory, Directory::Unknown) => {
                    Work::Volume(self.inode(node).volume)
                }
                (Operation::FlushDirectory, Directory::NotNeeded) => Work::Nothing,
                _ => Work::Bio,
            };
            let source = Source::Port { port: number, tag };
            self.take(Flying::new(source, process, work, bio, Some(description)).with(node, data));
        }
    }

    /// A request of a port has ended.
    pub(super) fn arrive(&mut self, number: u64, completion: Completion, segments: &[Segment]) {
        let port = self.ports.get_mut(&number).expect("a port stays while it has requests");
        port.flying -= 1;
        port.count_loans(segments, |flights| flights - 1);
        if !port.is_gone {
            port.completed.push_back(completion);
            Self::wake(DOORBELL, number);
        } else if port.flying == 0 {
            self.remove_port(number);
        }
    }

    /// Has a ring refer to an open file, beside the requests that do.
    pub(crate) fn register(&mut self, number: u64, description: u64) -> Result<u64, Errno> {
        self.port_mut(number)?.registered.push(description);
        self.refer(description);
        Ok(description)
    }

    /// Ends a reference of a ring.
    pub(crate) fn unregister(&mut self, number: u64, description: u64) {
        let Ok(port) = self.port_mut(number) else { return };
        let at = port.registered.iter().position(|registered| *registered == description);
        port.registered.swap_remove(at.expect("only what is registered is unregistered"));
        self.release(description);
    }

    fn remove_port(&mut self, number: u64) {
        let port = self.ports.remove(&number).expect("the caller looked at it");
        port.registered.into_iter().for_each(|description| self.release(description));
    }

    /// Returns whether the device takes no request now. Only a queue that is not empty can be full.
    pub(crate) fn refuses(&mut self, number: u64) -> bool {
        self.flying_of(number) > 0 && self.random.happens(self.plan.faults.refuse)
    }

    /// Returns the number of requests that have ended and were not reaped.
    pub(crate) fn completed(&self, number: u64) -> usize {
        self.port(number).map_or(0, |port| port.completed.len())
    }

    /// Takes what has ended.
    pub(crate) fn reap(&mut self, number: u64) -> VecDeque<Completion> {
        self.port_mut(number).map(|port| std::mem::take(&mut port.completed)).unwrap_or_default()
    }

    /// Returns the number of requests of a port that have not ended.
    pub(crate) fn flying_of(&self, number: u64) -> u32 {
        self.ports.get(&number).map_or(0, |port| port.flying)
    }

    /// The waker rings.
    pub(crate) fn ring_bell(&mut self, number: u64) {
        if let Ok(port) = self.port_mut(number) {
            port.is_rung = true;
            Self::wake(DOORBELL, number);
        }
    }

    /// Returns whether the waker rang since the last look.
    pub(crate) fn was_rung(&mut self, number: u64) -> bool {
        self.port_mut(number).is_ok_and(|port| std::mem::take(&mut port.is_rung))
    }

    /// Returns whether the waker rang, without the next look losing it.
    pub(crate) fn is_rung(&self, number: u64) -> bool {
        self.port(number).is_ok_and(|port| port.is_rung)
    }

    /// A backend is dropped. Requests in flight keep the port.
    pub(crate) fn drop_port(&mut self, number: u64) {
        let Ok(port) = self.port_mut(number) else { return };
        port.is_gone = true;
        port.completed.clear();
        let staged = std::mem::take(&mut port.staged);
        for staged in &staged {
            port.count_loans(&staged.bio.segments, |flights| flights - 1);
        }
        let is_over = port.flying == 0;
        if is_over {
            self.remove_port(number);
        }
        staged.into_iter().for_each(|staged| self.release(staged.description));
    }

    /// A process has ended: its staged requests are not submitted. Its requests at the devices end
    /// some time later, at random only in part.
    pub(crate) fn end_process(&mut self, process: Process) {
        self.flying
            .values_mut()
            .filter(|flying| flying.process == process)
            .for_each(Flying::orphan);
        let ports = self.ports.iter().filter(|(_, port)| port.process == process);
        let ports: Vec<u64> = ports.map(|(number, _)| *number).collect();
        ports.into_iter().for_each(|number| self.drop_port(number));
        self.drop_watches(process);
        self.close_all(process);
    }
}
