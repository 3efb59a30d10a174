//! Device over real files for a caller that waits: the doorbell makes the system calls itself.
//!
//! A caller that waits for one small request gains nothing from another thread: handing it over and
//! being woken costs more than the call. So a doorbell always blocks until all staged requests have
//! ended. It makes them one after the other, but several writes at once if it has a ring for that.
//! [`Threads`](crate::Threads) makes the same calls on other threads.

use std::sync::Arc;

use forebay_block::{
    Bio, Completion, Device, Errno, Moment, Operation, Refused, Tag, Target, Wait,
};

use crate::alive::Alive;
use crate::arena::Arena;
use crate::burst::Burst;
use crate::clock;
use crate::file::OpenFile;
use crate::job::Job;
use crate::lent::Lent;
use crate::targets::Targets;
use crate::vectors::Shape;

/// Minimum of writes that are made at once. For two, a call each costs as much.
const BURST: usize = 3;

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
    /// For several writes at once, from when it is needed. `Some(None)` if the kernel grants none.
    burst: Option<Option<Burst>>,
    ends: Vec<Option<Result<u64, Errno>>>,
}

impl Inline {
    /// Creates a device that takes up to `entries` requests before each doorbell.
    #[must_use]
    pub fn new(arena: Arc<Arena>, entries: u32) -> Self {
        Self {
            burst: None,
            ends: Vec::new(),
            arena,
            targets: Targets::default(),
            staged: Vec::new(),
            shapes: Vec::new(),
            lent: Lent::new(),
            ended: Vec::new(),
            entries: entries.max(1) as usize,
        }
    }

    /// Prepares for this number of writes at once, by a ring of the calling thread if they are
    /// enough. The ring holds the end of a pipe until its last write has ended; it must be the same
    /// one each time.
    pub fn prepare_writes(&mut self, count: usize, alive: Option<&Alive>) {
        if count >= BURST && self.burst.is_none() {
            self.burst = Some(Burst::new(self.entries as u32, alive));
        }
    }

    /// Returns whether the device may be used on this thread: its ring, if any, belongs to it.
    #[must_use]
    pub fn is_for_this_thread(&self) -> bool {
        !matches!(&self.burst, Some(Some(burst)) if !burst.is_of_this_thread())
    }

    /// Attaches a file under the number of a target.
    ///
    /// # Panics
    /// If the number is taken.
    pub fn attach(&mut self, target: Target, file: Arc<OpenFile>) {
        self.targets.attach(target, file, ());
    }

    /// Detaches and returns the file of a target.
    ///
    /// # Panics
    /// If requests of it are staged.
    pub fn detach(&mut self, target: Target) -> Arc<OpenFile> {
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
        self.ends.clear();
        let jobs = self.staged.iter().map(|(_, job)| job);
        if let Some(Some(burst)) = &mut self.burst
            && jobs.len() >= BURST
            && jobs.clone().all(|job| job.operation == Operation::Write)
        {
            burst.write(jobs, &mut self.ends);
            if self.ends.contains(&None) {
                self.burst = Some(None);
            }
        }
        let ends = self.ends.drain(..).chain(std::iter::repeat(None));
        for ((target, job), end) in self.staged.drain(..).zip(ends) {
            let operation = job.operation;
            let mut ended = match end {
                Some(result) => job.end(result),
                None => job.run(),
            };
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
        let file = Arc::new(OpenFile::open(&path, &how).unwrap().file);
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

    /// Makes writes of a page each, to a file and to one that is open only for reading.
    fn write_some(
        device: &mut Inline,
        files: &[Arc<OpenFile>; 2],
        targets: &[u32],
    ) -> Vec<Completion> {
        for (target, file) in (0..).map(Target).zip(files) {
            device.attach(target, Arc::clone(file));
        }
        device.prepare_writes(targets.len(), None);
        for (number, &target) in (0..).zip(targets) {
            let bio = page(Operation::Write, 2 * u64::from(number), u32::from(number));
            device.prepare(Tag(number), &Bio { target: Target(target), ..bio }).unwrap();
        }
        device.doorbell(Wait::Not).unwrap();
        let mut ended = Vec::new();
        device.reap(&mut ended);
        (0..2).for_each(|target| drop(device.detach(Target(target))));
        ended
    }

    #[test]
    fn several_writes_at_once_end_as_single_ones_do() {
        let arena = Arc::new(Arena::private(8).unwrap());
        for frame in 0..8 {
            // SAFETY: this thread alone knows the arena.
            unsafe { arena.copy_in(Frame(frame), 0, &[frame as u8 + 1; PAGE]) };
        }
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, []).unwrap();
        let open = |access| {
            let (create, truncate) = (Create::No, Truncate::Keep);
            Arc::new(
                OpenFile::open(&path, &How { access, create, truncate, mode: 0 }).unwrap().file,
            )
        };
        let files = [open(Access::ReadWrite), open(Access::Read)];
        let mut device = Inline::new(arena, 8);
        for (round, is_at_once) in [(0, false), (1, true), (2, true)] {
            if !is_at_once {
                device.burst = Some(None);
            } else if round == 1 {
                device.burst = None;
            }
            std::fs::write(&path, []).unwrap();
            let ended = write_some(&mut device, &files, &[0, 0, 1, 0, 0, 0, 1]);
            assert_eq!(matches!(device.burst, Some(Some(_))), is_at_once);
            let results: Vec<_> = ended.iter().map(|ended| (ended.tag.0, ended.result)).collect();
            let (all, refused) = (Ok(PAGE as u64), Err(Errno(libc::EBADF)));
            assert_eq!(
                results,
                [(0, all), (1, all), (2, refused), (3, all), (4, all), (5, all), (6, refused)]
            );
            let found = std::fs::read(&path).unwrap();
            let bytes: Vec<_> = found.chunks(PAGE).map(|page| page[0]).collect();
            assert_eq!(bytes, [1, 0, 2, 0, 0, 0, 4, 0, 5, 0, 6], "round {round}");
        }
        assert!(device.is_for_this_thread());
        std::thread::spawn(move || assert!(!device.is_for_this_thread())).join().unwrap();
    }
}
