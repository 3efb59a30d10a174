//! Device over real files for a caller that waits: the doorbell makes the system calls itself.
//!
//! A caller that waits for one small request gains nothing from another thread: handing it over and
//! being woken costs more than the call. So a doorbell always blocks until all staged requests have
//! ended, one after the other. [`Threads`](crate::Threads) makes the same calls on other threads.

use std::sync::Arc;

use forebay_block::{Bio, Completion, Device, Errno, Moment, Refused, Tag, Target, Wait};

use crate::arena::Arena;
use crate::clock;
use crate::file::File;
use crate::job::Job;
use crate::lent::Lent;
use crate::targets::Targets;
use crate::vectors::Shape;

/// Device over real files that makes blocking system calls on the thread that rings its doorbell.
#[derive(Debug)]
pub struct Inline {
    arena: Arc<Arena>,
    targets: Targets<()>,
    staged: Vec<(Target, Job)>,
    /// Of requests that have ended, for the next ones.
    shapes: Vec<Shape>,
    lent: Lent,
    ended: Vec<Completion>,
    entries: usize,
}

impl Inline {
    /// Creates a device that takes up to `entries` requests before each doorbell.
    #[must_use]
    pub fn new(arena: Arc<Arena>, entries: u32) -> Self {
        Self {
            arena,
            targets: Targets::default(),
            staged: Vec::new(),
            shapes: Vec::new(),
            lent: Lent::new(),
            ended: Vec::new(),
            entries: entries.max(1) as usize,
        }
    }

    /// Attaches a file under the number of a target.
    ///
    /// # Panics
    /// If the number is taken.
    pub fn attach(&mut self, target: Target, file: Arc<File>) {
        self.targets.attach(target, file, ());
    }

    /// Detaches and returns the file of a target.
    ///
    /// # Panics
    /// If requests of it are staged.
    pub fn detach(&mut self, target: Target) -> Arc<File> {
        self.targets.detach(target).file
    }
}

impl Device for Inline {
    fn now(&mut self) -> Moment {
        clock::now()
    }

    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        if self.staged.len() == self.entries {
            return Err(Refused);
        }
        let file = Arc::clone(self.targets.begin(request.target, request.operation));
        let shape = self.shapes.pop().unwrap_or_default();
        let memory = (&*self.arena, &mut self.lent);
        self.staged.push((request.target, Job::new(tag, request, file, shape, memory)));
        Ok(())
    }

    fn doorbell(&mut self, _: Wait) -> Result<(), Errno> {
        for (target, job) in self.staged.drain(..) {
            let operation = job.operation;
            let mut ended = job.run();
            ended.shape.arrive(&mut self.lent);
            self.shapes.push(ended.shape);
            self.targets.end(target, operation);
            self.ended.push(Completion { tag: ended.tag, result: ended.result });
        }
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.ended);
    }
}

#[cfg(test)]
mod tests {
    use forebay_block::limits::PAGE;
    use forebay_block::{Class, Frame, Operation, Segment, Source};

    use super::*;
    use crate::open::{Access, Create, How, Truncate};

    fn page(operation: Operation, page: u64, frame: u32) -> Bio {
        let length = if operation.moves_bytes() { PAGE as u64 } else { 0 };
        let segment = Segment::Frames { first: Frame(frame), offset: 0, length: PAGE as u32 };
        Bio {
            operation,
            target: Target(0),
            offset: page * PAGE as u64,
            length,
            segments: if length > 0 { [segment][..].into() } else { Vec::new().into() },
            class: Class::Waited,
            source: Source(0),
            owner: 0,
        }
    }

    #[test]
    fn a_doorbell_returns_when_all_staged_requests_have_ended() {
        let arena = Arc::new(Arena::private(2).unwrap());
        // SAFETY: this thread alone knows the arena.
        unsafe { arena.copy_in(Frame(0), 0, &[7; PAGE]) };
        let directory = tempfile::tempdir_in(".").unwrap();
        let how = How {
            access: Access::ReadWrite,
            create: Create::New,
            truncate: Truncate::Keep,
            mode: 0o600,
        };
        let path = directory.path().join("file");
        let file = Arc::new(File::open(&path, &how).unwrap().file);
        let mut device = Inline::new(Arc::clone(&arena), 3);
        device.attach(Target(0), file);
        let staged = [
            page(Operation::Write, 1, 0),
            page(Operation::FlushData, 0, 0),
            page(Operation::Read, 1, 1),
        ];
        for (tag, bio) in (0..).map(Tag).zip(&staged) {
            device.prepare(tag, bio).unwrap();
        }
        assert!(device.prepare(Tag(3), &staged[0]).is_err(), "it takes three");
        let mut ended = Vec::new();
        device.reap(&mut ended);
        assert!(ended.is_empty(), "nothing is made before the doorbell");
        device.doorbell(Wait::Not).unwrap();
        device.reap(&mut ended);
        let results: Vec<_> = ended.iter().map(|ended| (ended.tag.0, ended.result)).collect();
        assert_eq!(results, [(0, Ok(PAGE as u64)), (1, Ok(0)), (2, Ok(PAGE as u64))]);
        let mut found = [0; PAGE];
        // SAFETY: as above.
        unsafe { arena.copy_out(Frame(1), 0, &mut found) };
        assert_eq!(found, [7; PAGE]);
        assert_eq!(std::fs::read(&path).unwrap()[PAGE..], [7; PAGE]);
        device.detach(Target(0));
    }
}
