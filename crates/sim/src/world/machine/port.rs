//! The machine's side of a backend: its staged requests, loans and completions.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use forebay_block::{Bio, BufferId, Completion, Segment, Tag};
use forebay_uring::{Arena, Memory};

use super::opened::Directory;
use crate::world::Process;
use crate::world::memory;

/// Reason of a wait in the doorbell of a backend.
pub(crate) const DOORBELL: &str = "doorbell of backend";

/// A request that the doorbell has not submitted.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) tag: Tag,
    pub(super) bio: Bio,
    pub(super) description: u64,
    pub(super) directory: Directory,
}

/// Memory lent to requests.
#[derive(Debug)]
pub(super) struct Loan {
    pub(super) memory: Memory,
    /// Requests that use it.
    pub(super) flights: u32,
}

/// The machine's side of a backend.
#[derive(Debug)]
pub(crate) struct Port {
    pub(super) process: Process,
    pub(super) arena: Arc<Arena>,
    pub(super) staged: Vec<Staged>,
    pub(super) completed: VecDeque<Completion>,
    pub(super) loans: BTreeMap<u32, Loan>,
    pub(super) loaned: u32,
    /// The waker rang since the last look.
    pub(super) is_rung: bool,
    pub(super) alive: Option<OwnedFd>,
    /// Requests go on after the death of the process, as those of a ring. A process has not ended
    /// while a thread of it makes a call.
    pub(super) outlives: bool,
    /// Open files that the ring has registered.
    pub(super) registered: Vec<u64>,
    /// Requests at the devices.
    pub(super) flying: u32,
    /// The backend is dropped, or its process has ended.
    pub(super) is_gone: bool,
}

impl Port {
    /// Returns the bytes that a request writes.
    pub(super) fn gather(&self, segments: &[Segment]) -> Vec<u8> {
        let mut data = Vec::new();
        for &segment in segments {
            match segment {
                Segment::Frames { .. } => memory::gather(&self.arena, segment, &mut data),
                Segment::Lent { buffer, offset, length } => {
                    let bytes = self.loan(buffer).memory.bytes();
                    data.extend_from_slice(&bytes[offset as usize..][..length as usize]);
                }
                Segment::Zeroes { length } => data.resize(data.len() + length as usize, 0),
            }
        }
        data
    }

    /// Stores what a request has read, which may be less than its segments hold.
    pub(super) fn scatter(&mut self, segments: &[Segment], mut data: &[u8]) {
        for &segment in segments {
            let (part, rest) = data.split_at(data.len().min(segment.length() as usize));
            match segment {
                Segment::Frames { .. } => memory::scatter(&self.arena, segment, part),
                Segment::Lent { buffer, offset, .. } => {
                    let loan = self.loans.get_mut(&buffer.0).expect("lent until it has ended");
                    loan.memory.bytes_mut()[offset as usize..][..part.len()].copy_from_slice(part);
                }
                Segment::Zeroes { .. } => panic!("nothing can be read into zeroes"),
            }
            data = rest;
        }
    }

    /// Returns whether the addresses of the segments are multiples of this.
    pub(super) fn is_aligned(&self, segments: &[Segment], alignment: u32) -> bool {
        segments.iter().all(|segment| match *segment {
            Segment::Frames { offset, .. } => offset.is_multiple_of(alignment),
            Segment::Lent { buffer, offset, .. } => {
                self.loan(buffer).memory.is_aligned_from(offset as usize, alignment as usize)
            }
            Segment::Zeroes { .. } => true,
        })
    }

    pub(super) fn loan(&self, buffer: BufferId) -> &Loan {
        self.loans.get(&buffer.0).unwrap_or_else(|| panic!("{buffer:?} is not lent"))
    }

    /// Counts the requests that use the lent memory of these segments.
    pub(super) fn count_loans(&mut self, segments: &[Segment], count: impl Fn(u32) -> u32) {
        for segment in segments {
            let Segment::Lent { buffer, offset, length } = *segment else { continue };
            let end = u64::from(offset) + u64::from(length);
            let room = self.loan(buffer).memory.length() as u64;
            assert!(end <= room, "{length} bytes at {offset} are beyond {buffer:?}");
            let loan = self.loans.get_mut(&buffer.0).expect("looked at above");
            loan.flights = count(loan.flights);
        }
    }
}
