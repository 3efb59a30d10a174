//! A request at a device.

use std::ops::Range;

use forebay_block::{Bio, Class, Moment, Operation, Segments, Tag, Target};

use super::names::Node;
use crate::world::Process;

/// Reason of a wait for the end of a file call.
pub(crate) const CALL: &str = "end of file call";

/// The waiter for the end of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    Port {
        port: u64,
        tag: Tag,
    },
    /// A task, by the number of its call.
    Call(u64),
}

/// The work of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// The operation of its bio.
    Bio,
    /// Flushes the names of a directory for the sake of one file.
    Names(Node),
    /// Flushes the names of the directory that the request is of.
    Directory,
    /// Writes a range of the kernel's cache to the device.
    WriteBack,
    /// Flushes a whole file system.
    Volume(usize),
    Nothing,
}

/// Whether somebody hears of the end of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    Lives,
    /// The process has ended since.
    Ended,
}

/// A request at a device.
#[derive(Debug)]
pub(crate) struct Flying {
    pub(super) source: Source,
    pub(super) process: Process,
    pub(super) owner: Owner,
    pub(super) work: Work,
    pub(super) bio: Bio,
    /// The open file; none for a flush of a directory by its path.
    pub(super) description: Option<u64>,
    pub(super) node: Node,
    /// The bytes that a write had when it was taken.
    pub(super) data: Vec<u8>,
    /// The last change that had ended when it was taken: a flush covers it.
    pub(super) covers: u64,
    /// When it was taken: the kernel sets the change time of the file then.
    pub(super) began: Moment,
    /// The open file was direct when the request was taken.
    pub(super) was_direct: bool,
}

impl Flying {
    pub(super) fn new(
        source: Source,
        process: Process,
        work: Work,
        bio: Bio,
        description: Option<u64>,
    ) -> Self {
        Self {
            source,
            process,
            owner: Owner::Lives,
            work,
            bio,
            description,
            node: Node(0),
            data: Vec::new(),
            covers: 0,
            began: Moment::from_nanoseconds(0),
            was_direct: false,
        }
    }

    pub(super) fn with(self, node: Node, data: Vec<u8>) -> Self {
        Self { node, data, ..self }
    }

    /// Returns whether it changes the content of its file, or its space.
    pub(super) fn changes(&self) -> bool {
        use Operation::{Allocate, Discard, Punch, SetLength, Write, WriteBuffered};
        let operations = [Write, WriteBuffered, SetLength, Allocate, Punch, Discard];
        self.work == Work::Bio && operations.contains(&self.bio.operation)
    }

    pub(super) fn orphan(&mut self) {
        self.owner = Owner::Ended;
    }
}

/// Returns a bio of a file call.
pub(crate) fn call_bio(operation: Operation, bytes: Range<u64>) -> Bio {
    Bio {
        operation,
        target: Target(u32::MAX),
        offset: bytes.start,
        length: bytes.end - bytes.start,
        segments: Segments::new(),
        class: Class::Waited,
        source: forebay_block::Source(0),
        owner: 0,
    }
}
