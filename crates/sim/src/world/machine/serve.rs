//! The end of a request at its device: bytes move, versions become durable, or it fails.
//!
//! A write takes effect in pieces: one that fails, or whose process has ended, may have written any
//! part. Reads and writes may be short or interrupted.

use std::ops::Range;

use forebay_block::limits::PAGE;
use forebay_block::{Bio, Errno, Operation};

use super::flying::{Flying, Source, Work};
use super::inode::{Content, Inode};
use super::names::Node;
use super::state::Machine;
use crate::faults::NO_SPACE;
use crate::marks;
use crate::random::PerMille;
use crate::stored::{DISCARDED, SECTOR};

impl Machine {
    /// Does what a request asks for.
    pub(super) fn serve(&mut self, flying: &Flying) -> Result<u64, Errno> {
        let is_of_port = matches!(flying.source, Source::Port { .. });
        if is_of_port && self.random.happens(self.plan.faults.interrupt) {
            return Err(*self.random.pick(&[Errno::INTERRUPTED, Errno::WOULD_BLOCK]));
        }
        match flying.work {
            Work::Bio => self.serve_bio(flying),
            Work::Names(directory) => self.flush_names(directory, Some(flying.node), flying.covers),
            Work::Directory => self.flush_names(flying.node, None, flying.covers),
            Work::WriteBack => self.write_back(flying),
            Work::Volume(volume) => self.flush_volume(volume, flying.covers),
            Work::Nothing => Ok(0),
        }
    }

    fn serve_bio(&mut self, flying: &Flying) -> Result<u64, Errno> {
        let (bio, node, faults) = (&flying.bio, flying.node, self.plan.faults);
        let sequence = self.sequence;
        self.count(flying);
        match bio.operation {
            Operation::Read => {
                let result = self.serve_read(flying);
                if result.is_err() {
                    // A page that is written in part has to be read first.
                    self.note_failure(flying);
                }
                result
            }
            Operation::Write | Operation::WriteBuffered => {
                let result = self.serve_write(flying);
                if let Err(errno) = result {
                    self.note_failure(flying);
                    if matches!(flying.source, Source::Port { .. }) && errno != NO_SPACE {
                        self.inode_mut(node).failed_writes += 1;
                    }
                }
                result
            }
            Operation::FlushData | Operation::FlushAll => self.flush(flying),
            Operation::FlushDirectory => Ok(0),
            Operation::Allocate => {
                if self.random.happens(faults.allocate) {
                    return Err(NO_SPACE);
                }
                self.allocate(node, bio.offset..bio.end())
            }
            Operation::Punch => {
                if self.random.happens(faults.allocate) {
                    return Err(Errno::IO);
                }
                let there = self.inode(node).stored.read(bio.offset, bio.length);
                assert!(
                    there.iter().all(|byte| *byte == 0),
                    "contract 9: data is punched out: {bio:?}"
                );
                self.punch(node, bio)
            }
            Operation::SetLength => {
                if self.random.happens(faults.set_length) {
                    return Err(Errno::IO);
                }
                if bio.offset > self.volume_of(node).most_bytes {
                    return Err(Errno(libc::EFBIG));
                }
                self.inode_mut(node).stored.set_size(bio.offset, sequence);
                Ok(0)
            }
            Operation::Discard => {
                if self.random.happens(faults.allocate) {
                    return Err(Errno::IO);
                }
                if !self.inode(node).is_device() {
                    return self.punch(node, bio);
                }
                let bytes = vec![DISCARDED; bio.length as usize];
                self.inode_mut(node).stored.write(bio.offset, &bytes, sequence);
                Ok(0)
            }
            Operation::WriteFua | Operation::WriteZeroes => {
                panic!("the engine asks for none of these: {bio:?}")
            }
        }
    }

    /// Counts the kind of a request.
    fn count(&self, flying: &Flying) {
        let (bio, size) = (&flying.bio, self.inode(flying.node).stored.size());
        marks::hit(match bio.operation {
            Operation::Read => "fill",
            Operation::Write if bio.end() > size => "extending",
            Operation::Write => "overwrite",
            Operation::WriteBuffered if bio.end() >= size => "tail",
            Operation::WriteBuffered => "written in part",
            Operation::Allocate => "allocation",
            Operation::Punch => "punched",
            Operation::SetLength => "length changed",
            _ => return,
        });
    }

    /// The process has ended: any part of the request may have happened.
    pub(super) fn serve_in_part(&mut self, flying: &Flying) {
        let bio = &flying.bio;
        match (flying.work, bio.operation) {
            (Work::Bio, Operation::Read) => {}
            (Work::Bio, Operation::Write | Operation::WriteBuffered) => {
                let length = match self.random.below(3) {
                    0 => bio.length,
                    1 => 0,
                    _ => self.random.below(bio.length / SECTOR as u64 + 1) * SECTOR as u64,
                };
                let length = whole_sectors(bio, length);
                // It has no space for all of it, or has it.
                let _ = self.store(flying, length);
            }
            _ if self.random.happens(PerMille(500)) => {
                let _ = self.serve(flying);
            }
            _ => {}
        }
    }

    fn serve_read(&mut self, flying: &Flying) -> Result<u64, Errno> {
        if self.random.happens(self.plan.faults.read) {
            return Err(Errno::IO);
        }
        let bio = &flying.bio;
        let Source::Port { port, .. } = flying.source else {
            panic!("only requests of a port read: {bio:?}")
        };
        // Before the alignment: a read that continues at an odd end of the file ends there.
        let size = self.inode(flying.node).stored.size();
        if bio.offset >= size {
            return Ok(0);
        }
        self.check_alignment(flying)?;
        let file = &self.inode(flying.node).stored;
        let mut data = file.read(bio.offset, bio.length);
        data.truncate(self.shortened(flying, data.len() as u64) as usize);
        let short_reads = &mut self.inode_mut(flying.node).short_reads;
        let start = short_reads.remove(&(bio.offset / PAGE as u64)).unwrap_or(bio.offset);
        if (data.len() as u64) < bio.length {
            short_reads.insert((bio.offset + data.len() as u64) / PAGE as u64, start);
        }
        let port = self.ports.get_mut(&port).expect("a port stays while it has requests");
        port.scatter(&bio.segments, &data);
        Ok(data.len() as u64)
    }

    /// Remembers the pages that could not be written, or not be read for a write.
    fn note_failure(&mut self, flying: &Flying) {
        let (bio, page) = (&flying.bio, PAGE as u64);
        marks::hit("page write failed");
        let inode = self.inode_mut(flying.node);
        // The rest of a short read fails the whole of it.
        let start = inode.short_reads.remove(&(bio.offset / page)).unwrap_or(bio.offset);
        inode.failed.extend(start / page..bio.end().div_ceil(page));
    }

    /// Alignment of memory and of offsets that a request needs, in bytes.
    fn alignment_of(&self, flying: &Flying) -> (u32, u32) {
        if !flying.was_direct || flying.bio.operation == Operation::WriteBuffered {
            return (1, 1);
        }
        match self.inode(flying.node).content {
            Content::Device(block) => (512, block),
            _ => {
                let direct = self.volume_of(flying.node).direct;
                let direct = direct.expect("a direct file is on a file system with direct I/O");
                (direct.memory, direct.offset)
            }
        }
    }

    /// Direct I/O needs aligned offsets, lengths and addresses.
    fn check_alignment(&self, flying: &Flying) -> Result<(), Errno> {
        let (bio, (memory, offset)) = (&flying.bio, self.alignment_of(flying));
        let is_aligned = bio.offset.is_multiple_of(u64::from(offset))
            && bio.length.is_multiple_of(u64::from(offset))
            && match flying.source {
                Source::Port { port, .. } => self.ports[&port].is_aligned(&bio.segments, memory),
                Source::Call(_) => true,
            };
        if is_aligned { Ok(()) } else { Err(Errno::INVALID) }
    }

    /// Returns how many bytes of a request are moved: sometimes only some blocks of them.
    fn shortened(&mut self, flying: &Flying, length: u64) -> u64 {
        let unit = u64::from(self.alignment_of(flying).1).max(SECTOR as u64);
        if length > unit && self.random.happens(self.plan.faults.shorten) {
            let moved = self.random.within(1..length / unit + 1) * unit;
            return whole_sectors(&flying.bio, moved);
        }
        length
    }

    fn serve_write(&mut self, flying: &Flying) -> Result<u64, Errno> {
        let bio = &flying.bio;
        if self.plan.prices.is_some() {
            let page = PAGE as u64;
            let (bio, sequence) = (flying.bio.clone(), self.sequence);
            let stored = &mut self.inode_mut(flying.node).stored;
            stored.allocate(bio.offset / page..bio.end().div_ceil(page));
            stored.extend(bio.end(), sequence);
            return Ok(bio.length);
        }
        if let Source::Port { port, .. } = flying.source {
            let now = self.ports[&port].gather(&bio.segments);
            assert!(now == flying.data, "contract 11: a frame has changed in flight: {bio:?}");
        }
        let is_writable = flying.description.is_some_and(|number| {
            self.description(number).access == forebay_uring::Access::ReadWrite
        });
        if !is_writable {
            return Err(Errno(libc::EBADF));
        }
        self.check_alignment(flying)?;
        let unit = SECTOR as u64;
        let bad = &self.inode(flying.node).bad;
        let (bad_start, bad_end) = (bad.start * PAGE as u64, bad.end * PAGE as u64);
        let is_bad = bio.offset < bad_end && bad_start < bio.end();
        if is_bad || self.random.happens(self.plan.faults.write) {
            let most = if is_bad { bad_start.saturating_sub(bio.offset) } else { bio.length };
            let written = whole_sectors(bio, self.random.below(most / unit + 1) * unit);
            return Err(self.store(flying, written).err().unwrap_or(Errno::IO));
        }
        let length = self.shortened(flying, bio.length);
        let is_mapped = bio.operation == Operation::Write
            && flying.was_direct
            && self.inode(flying.node).mappings > 0;
        if is_mapped && self.random.happens(self.plan.faults.invalidate) {
            return self.store_under_a_mapping(flying, length);
        }
        self.store(flying, length)
    }

    /// A page of the kernel's cache that could not be dropped goes over one of the write.
    fn store_under_a_mapping(&mut self, flying: &Flying, length: u64) -> Result<u64, Errno> {
        let (node, page) = (flying.node, PAGE as u64);
        let at = flying.bio.offset / page * page + self.random.below(length.div_ceil(page)) * page;
        let mut older = self.inode(node).stored.read(at, page);
        older.resize(PAGE, 0);
        let written = self.store(flying, length)?;
        let end = (flying.bio.offset + written).min(at + page);
        if at < end {
            self.sequence += 1;
            let sequence = self.sequence;
            let inode = self.inode_mut(node);
            inode.stored.write(at, &older[..(end - at) as usize], sequence);
            inode.errors.add();
            inode.undone.insert(at / page);
        }
        Ok(written)
    }

    /// Writes the first `length` bytes of a request, as far as there is space.
    fn store(&mut self, flying: &Flying, length: u64) -> Result<u64, Errno> {
        let data = &flying.data[..length as usize];
        self.store_bytes(flying.node, flying.bio.offset, data)
    }

    /// Appends bytes through the kernel's cache, as far as there is space. Returns their offset and
    /// number.
    pub(crate) fn append(&mut self, node: Node, data: &[u8]) -> Result<(u64, u64), Errno> {
        self.sequence += 1;
        let offset = self.inode(node).stored.size();
        marks::hit("appended past the cache");
        self.store_bytes(node, offset, data).map(|length| (offset, length))
    }

    /// Writes bytes, as far as there is space.
    pub(crate) fn store_bytes(
        &mut self,
        node: Node,
        offset: u64,
        data: &[u8],
    ) -> Result<u64, Errno> {
        let page = PAGE as u64;
        let volume = self.inode(node).volume;
        let (most, mut free) = (self.plan.volumes[volume].most_bytes, self.room(volume));
        let (length, sequence) = (data.len() as u64, self.sequence);
        let inode = self.inode_mut(node);
        let mut end = offset + length;
        if inode.is_device() {
            end = end.min(inode.stored.size()).max(offset);
        } else {
            if end > most {
                if offset >= most {
                    return Err(Errno(libc::EFBIG));
                }
                end = most;
            }
            for at in offset / page..end.div_ceil(page) {
                if inode.stored.allocated().contains(&at) {
                    continue;
                }
                if free == 0 {
                    end = end.min((at * page).max(offset));
                    break;
                }
                free -= 1;
                inode.stored.allocate(at..at + 1);
            }
        }
        let written = end - offset;
        if written > 0 {
            // A part of a page does not bring back the rest of it.
            let is_end = end >= inode.stored.size();
            let whole = if is_end { end.div_ceil(page) } else { end / page };
            let pages = offset.div_ceil(page)..whole;
            inode.undone.retain(|at| !pages.contains(at));
            inode.stored.write(offset, &data[..written as usize], sequence);
        } else if length > 0 {
            return Err(NO_SPACE);
        }
        Ok(written)
    }

    fn flush(&mut self, flying: &Flying) -> Result<u64, Errno> {
        let fails = self.random.happens(self.plan.faults.flush);
        let mut seen = flying.description.map_or(0, |number| self.description(number).errors_seen);
        let inode = self.inode_mut(flying.node);
        let result = flush_inode(inode, flying.covers, fails, &mut seen);
        if !fails && !self.inode(flying.node).is_aborted {
            let is_of_all = flying.bio.operation == Operation::FlushAll;
            self.flush_logged(flying.node, flying.covers, is_of_all);
        }
        if let Some(description) = flying.description {
            self.description_mut(description).errors_seen = seen;
        }
        self.failures += u64::from(result.is_err());
        result
    }

    /// Writes a range of the kernel's cache to the device, which makes nothing durable. A failure
    /// is reported once to each open file, and no later flush covers the range.
    fn write_back(&mut self, flying: &Flying) -> Result<u64, Errno> {
        let fails = self.random.happens(self.plan.faults.write);
        let (bio, description) = (&flying.bio, flying.description.expect("a call on a file"));
        let mut seen = self.description(description).errors_seen;
        let inode = self.inode_mut(flying.node);
        if fails {
            inode.stored.forsake_bytes(bio.offset..bio.end(), flying.covers);
            inode.failed_flushes += 1;
            inode.errors.add();
            marks::hit("write-back failed");
        }
        let is_reported = inode.errors.take(&mut seen);
        self.failures += u64::from(fails);
        self.description_mut(description).errors_seen = seen;
        if is_reported { Err(Errno::IO) } else { Ok(0) }
    }

    /// Makes the names of a directory durable, unless that fails.
    fn flush_names(
        &mut self,
        directory: Node,
        sake: Option<Node>,
        covers: u64,
    ) -> Result<u64, Errno> {
        if self.random.happens(self.plan.faults.flush_directory) {
            self.names.forsake(directory, sake, covers);
            return Err(Errno::IO);
        }
        self.names.flush(|node| node == directory, covers);
        marks::hit("directory flushed");
        self.collect();
        Ok(0)
    }

    fn flush_volume(&mut self, volume: usize, covers: u64) -> Result<u64, Errno> {
        let mut result = Ok(0);
        for node in self.all_nodes() {
            let fails = self.random.happens(self.plan.faults.flush);
            let inode = self.inode_mut(node);
            if inode.volume == volume && !inode.is_device() {
                // The errors of single files are reported to those that have them open.
                let mut seen = u64::MAX;
                result = result.and(flush_inode(inode, covers, fails, &mut seen));
                if !fails && !inode.is_aborted {
                    inode.logged.flush(covers);
                }
            }
        }
        let nodes = &self.nodes;
        let is_of_volume =
            |node: Node| nodes[node.0].as_ref().is_some_and(|it| it.volume == volume);
        self.names.flush(is_of_volume, covers);
        self.failures += u64::from(result.is_err());
        self.collect();
        result
    }

    /// Allocates space for a range of bytes. If there is too little, a part may be allocated.
    pub(crate) fn allocate(&mut self, node: Node, bytes: Range<u64>) -> Result<u64, Errno> {
        let page = PAGE as u64;
        let pages = bytes.start / page..bytes.end.div_ceil(page);
        let (volume, plan) = (self.inode(node).volume, self.volume_of(node));
        if !plan.allocates {
            return Err(Errno::UNSUPPORTED);
        }
        if bytes.end > plan.most_bytes {
            return Err(Errno(libc::EFBIG));
        }
        let free = self.room(volume);
        let allocated = self.inode(node).stored.allocated();
        let missing: Vec<u64> = pages.clone().filter(|at| !allocated.contains(at)).collect();
        let sequence = self.sequence;
        if missing.len() as u64 > free {
            let part = self.random.below(free + 1) as usize;
            let inode = self.inode_mut(node);
            for at in missing.into_iter().take(part) {
                inode.stored.allocate(at..at + 1);
                inode.metadata.reserve(at..at + 1, sequence);
            }
            return Err(NO_SPACE);
        }
        let inode = self.inode_mut(node);
        inode.stored.allocate(pages.clone());
        inode.metadata.reserve(pages, sequence);
        Ok(0)
    }

    /// Frees the space of a range, which must read as zeroes.
    fn punch(&mut self, node: Node, bio: &Bio) -> Result<u64, Errno> {
        let plan = self.volume_of(node);
        if !plan.allocates {
            return Err(Errno::UNSUPPORTED);
        }
        let punches_beyond_end = plan.punches_beyond_end;
        let sequence = self.sequence;
        let stored = &mut self.inode_mut(node).stored;
        let last = stored.size().next_multiple_of(PAGE as u64);
        let end = if punches_beyond_end { bio.end() } else { bio.end().min(last) };
        if bio.offset < end {
            stored.punch(bio.offset..end, sequence);
        }
        Ok(0)
    }
}

/// Returns the part of the first `bytes` bytes of a request that ends with a sector of the file.
/// They need not begin with one, and no sector is written in part.
fn whole_sectors(bio: &Bio, bytes: u64) -> u64 {
    if bytes == bio.length {
        return bytes;
    }
    let sector = SECTOR as u64;
    ((bio.offset + bytes) / sector * sector).saturating_sub(bio.offset)
}

/// Makes a file's data durable, unless that fails.
fn flush_inode(inode: &mut Inode, covers: u64, fails: bool, seen: &mut u64) -> Result<u64, Errno> {
    if inode.is_aborted || fails {
        inode.is_aborted |= inode.stored.forsake(covers);
        inode.failed_flushes += 1;
        marks::hit("flush failed");
        inode.errors.add();
        inode.errors.take(seen);
        return Err(Errno::IO);
    }
    inode.stored.flush(covers);
    inode.metadata.flush(covers);
    if inode.errors.take(seen) { Err(Errno::IO) } else { Ok(0) }
}
