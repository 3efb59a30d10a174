//! Requests at the devices, and the checks of requests that exclude each other.
//!
//! The checks stop the run. The real device relies on them without a check: no two requests in
//! flight that change the same bytes, nothing beside a buffered write, at most one request that
//! moves the end of a file, whole pages for direct writes of the cache, no frame in two requests,
//! and no zeroes or holes without the lease of the file.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use forebay_block::limits::PAGE;
use forebay_block::{Bio, Completion, Errno, Frame, Operation, Segment, Tag};

use super::flying::{CALL, Flying, Owner, Source, Work, call_bio};
use super::names::Node;
use super::state::Machine;
use crate::stored::SECTOR;
use crate::world::{self, Process};

impl Machine {
    /// Begins a call on a descriptor. The caller waits for [`CALL`] and this number.
    pub(crate) fn begin_call(
        &mut self,
        descriptor: u64,
        work: Work,
        bio: Bio,
        data: Vec<u8>,
    ) -> Result<u64, Errno> {
        let found = self.descriptor(descriptor)?;
        let (description, process) = (found.description, found.process);
        let node = self.description(description).node;
        if bio.operation == Operation::Write {
            self.check_overlap(process, node, &bio, None);
        }
        self.refer(description);
        let ticket = world::number();
        let source = Source::Call(ticket);
        let flying = Flying::new(source, process, work, bio, Some(description));
        self.take(flying.with(node, data));
        Ok(ticket)
    }

    /// Begins a flush of a directory or of a file system, for the sake of a node.
    pub(crate) fn begin_flush(&mut self, process: Process, work: Work, node: Node) -> u64 {
        let ticket = world::number();
        let bio = call_bio(Operation::FlushAll, 0..0);
        let flying = Flying::new(Source::Call(ticket), process, work, bio, None);
        self.take(flying.with(node, Vec::new()));
        ticket
    }

    /// Returns the result of a call that has ended.
    pub(crate) fn end_call(&mut self, ticket: u64) -> Option<Result<u64, Errno>> {
        self.ended_calls.remove(&ticket)
    }

    /// A request reaches its device.
    pub(super) fn take(&mut self, mut flying: Flying) {
        let latency = self.plan.latency;
        let span = latency.most.saturating_sub(latency.least).as_nanos() as u64;
        let time = latency.least + Duration::from_nanos(self.random.below(span + 1));
        (flying.covers, flying.began) = (self.sequence, world::now());
        if let Some(description) = flying.description {
            let description = self.description_mut(description);
            flying.was_direct = description.is_direct;
            if flying.bio.operation == Operation::WriteBuffered {
                description.is_direct = false;
            }
        }
        self.transitions += 1;
        world::trace(format_args!(
            "taken {:?} of node {} {:?} {} {}",
            flying.source,
            flying.node.0,
            flying.bio.operation,
            flying.bio.offset,
            flying.bio.length
        ));
        let at = match self.plan.prices {
            Some(prices) => self.paid(&flying, prices),
            None => world::now() + time,
        };
        let end = self.end_of(&flying, at);
        self.flying.insert((end, world::number()), flying);
    }

    /// Ends the request that is due next.
    pub(super) fn complete_next(&mut self) {
        let Some((_, flying)) = self.flying.pop_first() else { return };
        self.transitions += 1;
        self.sequence += 1;
        let result = match flying.owner {
            Owner::Lives => self.serve(&flying),
            Owner::Ended => {
                self.serve_in_part(&flying);
                Err(Errno::IO)
            }
        };
        if flying.changes() {
            let (sequence, began) = (self.sequence, self.wall_at(flying.began));
            self.inode_mut(flying.node).logged.touch(sequence, began);
        }
        world::trace(format_args!("ended {:?} {result:?}", flying.source));
        if let Some(description) = flying.description {
            if flying.bio.operation == Operation::WriteBuffered && flying.owner == Owner::Lives {
                self.description_mut(description).is_direct = flying.was_direct;
            }
            self.release(description);
        }
        match flying.source {
            Source::Port { port, tag } => {
                self.arrive(port, Completion { tag, result }, &flying.bio.segments);
            }
            Source::Call(_) if flying.owner == Owner::Ended => {}
            Source::Call(ticket) => {
                self.ended_calls.insert(ticket, result);
                Self::wake(CALL, ticket);
            }
        }
    }

    /// Bios of a process that are staged or at a device, with the arena's port and the tag.
    fn of_process(&self, process: Process) -> impl Iterator<Item = (Source, Node, &Bio)> {
        let is_ours = move |flying: &&Flying| {
            let moves = matches!(flying.source, Source::Port { .. })
                || flying.bio.operation == Operation::Write;
            flying.process == process && flying.owner == Owner::Lives && moves
        };
        let flying = self.flying.values().filter(is_ours);
        let flying = flying.map(|flying| (flying.source, flying.node, &flying.bio));
        let ports = self.ports.iter().filter(move |(_, port)| port.process == process);
        let staged = ports.flat_map(move |(number, port)| {
            port.staged.iter().map(move |staged| {
                let source = Source::Port { port: *number, tag: staged.tag };
                (source, self.description(staged.description).node, &staged.bio)
            })
        });
        flying.chain(staged)
    }

    /// Stops at a request that must not be at the device together with another one.
    pub(crate) fn check(&self, number: u64, tag: Tag, bio: &Bio, description: u64) {
        if self.plan.prices.is_some() {
            return;
        }
        let Ok(port) = self.port(number) else { return };
        let (process, node) = (port.process, self.description(description).node);
        let own = Source::Port { port: number, tag };
        assert!(
            self.of_process(process).all(|(source, ..)| source != own),
            "contract 16: {tag:?} is in two places"
        );
        self.check_overlap(process, node, bio, Some(number));
        let inode = self.inode(node);
        if inode.is_device() {
            let is_of_files = matches!(
                bio.operation,
                Operation::WriteBuffered
                    | Operation::SetLength
                    | Operation::Allocate
                    | Operation::Punch
            );
            assert!(!is_of_files, "contract 10: a device has no end to care for: {bio:?}");
            assert!(
                bio.end() <= inode.stored.size(),
                "contract 10: beyond the end of the device: {bio:?}"
            );
        }
        let is_lent = |segment: &Segment| matches!(segment, Segment::Lent { .. });
        if bio.operation == Operation::Write && !bio.segments.iter().any(is_lent) {
            self.check_pages(process, node, bio);
        }
        let needs_lease = bio.operation == Operation::Punch
            || bio.operation == Operation::Write && bio.zero_bytes() > 0;
        assert!(
            !needs_lease || inode.is_device() || inode.is_private || self.has_alone(node),
            "contract 6: needs the lease, which nobody has: {bio:?}"
        );
        let frames = |bio: &Bio| bio.segments.iter().filter_map(frames_of).collect::<Vec<_>>();
        let wanted = frames(bio);
        for (source, _, other) in self.of_process(process) {
            let Source::Port { port: theirs, .. } = source else { continue };
            if !Arc::ptr_eq(&port.arena, &self.ports[&theirs].arena) {
                continue;
            }
            let used = frames(other);
            let shared = wanted.iter().find(|one| used.iter().any(|two| overlap(one, two)));
            assert!(
                shared.is_none(),
                "contract 11: frames {shared:?} are in two requests: {bio:?}, {other:?}"
            );
        }
    }

    /// Requests of one file that exclude each other.
    ///
    /// A read and a write by different ports may overlap: a page that is being filled can be
    /// overwritten as a whole, and another context writes it. The fill of that page is dropped.
    /// Allocation of space changes no byte.
    fn check_overlap(&self, process: Process, node: Node, bio: &Bio, port: Option<u64>) {
        let mine = || {
            let all = self.of_process(process).filter(|(_, other, _)| *other == node);
            all.map(|(source, _, other)| (source, other))
        };
        let is_alone =
            |bio: &Bio| matches!(bio.operation, Operation::WriteBuffered | Operation::SetLength);
        // A direct file is flushed while its length is set: the flush covers what came before.
        let has_frames = bio.segments.iter().any(|segment| frames_of(segment).is_some());
        let is_cached = self.inode(node).cached_by.is_some() || has_frames;
        let counts = |bio: &Bio| is_cached || !bio.operation.is_flush();
        let excludes =
            |other: &&Bio| (is_alone(bio) || is_alone(other)) && counts(bio) && counts(other);
        if let Some(other) = mine().map(|(_, other)| other).find(excludes) {
            panic!("contract 8: {bio:?} is in flight together with {other:?}");
        }
        let changes = |bio: &Bio| {
            let (write, discard) = (Operation::Write, Operation::Discard);
            [write, discard, Operation::Allocate, Operation::Punch].contains(&bio.operation)
        };
        let touches =
            |other: &Bio| bio.length > 0 && other.offset < bio.end() && bio.offset < other.end();
        let may_overlap = |source: Source, other: &Bio| {
            let is_other_port =
                matches!(source, Source::Port { port: theirs, .. } if Some(theirs) != port);
            let is = |operation| [bio, other].iter().any(|bio| bio.operation == operation);
            let is_fill = is(Operation::Read) && is(Operation::Write);
            is_cached && is_other_port && port.is_some() && (is_fill || is(Operation::Allocate))
        };
        let conflicts = |(source, other): &(Source, &Bio)| {
            touches(other) && (changes(bio) || changes(other)) && !may_overlap(*source, other)
        };
        if let Some((_, other)) = mine().find(conflicts) {
            panic!("contract 15: {bio:?} is in flight together with {other:?}");
        }
    }

    /// A direct write of the cache.
    fn check_pages(&self, process: Process, node: Node, bio: &Bio) {
        let (page, inode) = (PAGE as u64, self.inode(node));
        let size = inode.stored.size();
        let is_end = inode.is_device() && bio.end() == size;
        let is_whole = bio.offset.is_multiple_of(page)
            && (bio.length.is_multiple_of(page)
                || is_end && bio.length.is_multiple_of(SECTOR as u64));
        assert!(is_whole, "contract 8: not whole pages: {bio:?}");
        let extends = |bio: &Bio| bio.operation == Operation::Write && bio.end() > size;
        let mut others = self.of_process(process).filter(|(_, other, _)| *other == node);
        assert!(
            !extends(bio) || !others.any(|(.., other)| extends(other)),
            "contract 8: two requests move the end of one file: {bio:?}"
        );
    }
}

fn frames_of(segment: &Segment) -> Option<Range<u64>> {
    let Segment::Frames { first: Frame(first), offset, length } = *segment else { return None };
    let start = u64::from(first) * PAGE as u64 + u64::from(offset);
    Some(start..start + u64::from(length))
}

fn overlap(one: &Range<u64>, two: &Range<u64>) -> bool {
    one.start < two.end && two.start < one.end
}
