//! One file over one queue on the simulated machine, moved by hand: for events in one order
//! and no other.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_block::limits::PAGE;
use forebay_block::{Bio, Device as _, Ended, Frame, Operation, Queue, Target, Wait};
use forebay_cache::file::{Entry, Reserving};
use forebay_cache::writeback::settle::Keep;
use forebay_cache::{
    CachedFile, Caching, Copy, Evictor, Failure, FrameRuns, Frames, Liberties, Origin, Patch,
    Prepare, Reason, Settled, TicketId, TicketKind, WriteStop,
};
use forebay_sim::PerMille;
use forebay_sim::faults::Latency;
use forebay_sim::platform::{
    Access, Arena, Backend, Choice, Create, How, LeaseWatch, OpenFile, Truncate,
};
use forebay_sim::stored::StoredFile;
use forebay_sim::trace::Tracing;
use forebay_sim::world::machine::{self, MachinePlan, VolumePlan};
use forebay_sim::world::{Settings, run};

const FRAMES: u32 = 4096;
const TARGET: Target = Target(0);

/// Runs a test on a machine whose requests all take the same time.
pub(crate) fn on_machine(body: impl FnOnce() + 'static) {
    let settings = Settings {
        seed: 7,
        preemption: PerMille(0),
        events: PerMille(0),
        leaps: PerMille(0),
        spurious: PerMille(0),
        processors: 0,
        tracing: Tracing::Off,
        steps: 1_000_000,
    };
    let ran = run(settings, || {
        let each = Duration::from_micros(10);
        let latency = Latency { least: each, most: each };
        machine::install(MachinePlan { latency, ..MachinePlan::calm(vec![VolumePlan::xfs()]) });
        body();
    });
    ran.unwrap_or_else(|failure| panic!("{failure}"));
}

pub(crate) struct Single {
    pub(crate) cache: CachedFile,
    pub(crate) frames: Frames,
    evictor: Evictor,
    /// All that was sent, in order.
    pub(crate) sent: Vec<Bio>,
    queue: Queue,
    backend: Backend,
    arena: Arc<Arena>,
    path: &'static str,
    _watch: LeaseWatch,
}

impl Single {
    /// A new file, ours alone.
    pub(crate) fn new() -> Self {
        Self::of(Origin::Empty { entry: Entry::New }, "/file", Create::New)
    }

    /// A device of so many bytes.
    pub(crate) fn device(bytes: u64) -> Self {
        machine::make_device("/device", bytes, 512);
        let mut single = Self::of(Origin::Device(bytes), "/device", Create::No);
        single.cache.set_reserving(Reserving::Off);
        single
    }

    fn of(origin: Origin, path: &'static str, create: Create) -> Self {
        let how = How { access: Access::ReadWrite, create, truncate: Truncate::Keep, mode: 0o600 };
        let file = OpenFile::open(Path::new(path), &how).unwrap().file;
        let watch = LeaseWatch::new(|_| {}).unwrap();
        if create == Create::New {
            file.try_lease(&watch, 1).unwrap();
        }
        let arena = Arc::new(Arena::private(FRAMES).unwrap());
        let mut backend = Backend::chosen(Choice::Auto, Arc::clone(&arena), 256).unwrap();
        backend.attach(TARGET, Arc::new(file));
        let mut cache = CachedFile::new(TARGET, origin, Liberties::Exclusive);
        cache.set_free_bytes(1 << 40);
        Self {
            cache,
            frames: Frames::new(FRAMES),
            evictor: Evictor::new(FRAMES),
            sent: Vec::new(),
            queue: Queue::new(),
            backend,
            arena,
            path,
            _watch: watch,
        }
    }

    /// Changes the pages that cannot be written.
    pub(crate) fn set_bad(&self, pages: Range<u64>) {
        machine::set_bad(self.path, pages);
    }

    /// Looks at the file as the device has it.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&StoredFile) -> T) -> T {
        machine::stored(self.path, look)
    }

    /// Requests at the device.
    pub(crate) fn in_flight(&self) -> u32 {
        self.backend.in_flight()
    }

    /// Accepts all of some bytes.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let (copies, planned) = self.plan(offset + done as u64, data.len() - done);
            self.publish(&copies, &data[done..done + planned]);
            done += planned;
        }
    }

    /// Why nothing of a write can be planned.
    pub(crate) fn refused(&mut self, offset: u64, length: usize) -> WriteStop {
        let (mut stash, mut copies) = (FrameRuns::default(), Vec::new());
        self.frames.take(length.div_ceil(PAGE) + 1, &mut stash);
        let (planned, _, stop) = self.cache.begin_write(offset, length, &mut stash, &mut copies);
        stash.drain().for_each(|run| self.frames.give_run(run));
        assert_eq!(planned, 0, "it is planned");
        stop
    }

    /// Plans copies; returns them, and the bytes they are of.
    pub(crate) fn plan(&mut self, offset: u64, length: usize) -> (Vec<Copy>, usize) {
        let (mut stash, mut copies) = (FrameRuns::default(), Vec::new());
        // Two more for what its first and its last page may have to be read into.
        self.frames.take(length.div_ceil(PAGE) + 3, &mut stash);
        let (planned, _, stop) = self.cache.begin_write(offset, length, &mut stash, &mut copies);
        stash.drain().for_each(|run| self.frames.give_run(run));
        assert!(planned > 0, "the write stops: {stop:?}");
        assert_eq!(stop, WriteStop::Done);
        (copies, planned)
    }

    pub(crate) fn publish(&mut self, copies: &[Copy], mut data: &[u8]) {
        for copy in copies {
            match copy.prepare {
                Prepare::Nothing => {}
                Prepare::Zero => self.fill(copy.frame, 0, &[0; PAGE]),
                Prepare::From(old) => self.fill(copy.frame, 0, &self.frame(old)),
            }
            let (part, rest) = data.split_at(copy.length);
            self.fill(copy.frame, copy.at, part);
            data = rest;
        }
        let mut settled = Settled::default();
        let _ = self.cache.publish(copies, Caching::Cached, &mut settled);
        self.finish(&mut settled);
        self.absorb(settled);
    }

    /// Sends all there is to be sent for a reason.
    pub(crate) fn send(&mut self, reason: Reason) -> usize {
        let before = self.sent.len();
        while let Some(bio) = self.cache.next_bio(reason) {
            self.sent.push(bio.clone());
            self.queue.submit(bio);
        }
        self.queue.dispatch(&mut self.backend, Wait::Not).unwrap();
        self.sent.len() - before
    }

    /// Ends what is due next at the device.
    pub(crate) fn end_one(&mut self) {
        let mut ended = Vec::new();
        while ended.is_empty() && self.in_flight() > 0 {
            self.backend.doorbell(Wait::Something(None)).unwrap();
            self.queue.run(&mut self.backend, &mut ended);
        }
        for Ended { bio, result } in ended {
            let mut settled = Settled::default();
            self.cache.settle(&bio, result, Keep::Clean, &mut settled);
            self.finish(&mut settled);
            for run in settled.clean.drain(..) {
                for (page, frame) in (run.page..).zip(run.frames.frames()) {
                    self.evictor.enter(TARGET, page, frame);
                }
            }
            self.absorb(settled);
        }
    }

    /// Asks about so many clean pages; returns how many were dropped.
    pub(crate) fn evict(&mut self, wanted: usize) -> usize {
        let (mut batch, mut settled) = (Vec::new(), Settled::default());
        self.evictor.candidates(wanted, &mut batch);
        self.cache.evict(batch.iter_mut(), &mut settled);
        self.evictor.settle(&batch);
        let dropped = settled.freed.len();
        self.absorb(settled);
        dropped
    }

    /// Asks, and waits for the end of it.
    pub(crate) fn ask(&mut self, request: TicketKind) -> Result<(), Failure> {
        let id = self.cache.ask(request);
        self.wait(id)
    }

    /// Waits for a ticket; stops where it will never end.
    pub(crate) fn wait(&mut self, id: TicketId) -> Result<(), Failure> {
        loop {
            self.send(Reason::Sync);
            if let Some(result) = self.cache.fetch(id) {
                return result;
            }
            assert!(self.in_flight() > 0, "contract 16: a ticket waits, and nothing is in flight");
            self.end_one();
        }
    }

    /// What the device has of the file.
    pub(crate) fn stored(&self) -> Vec<u8> {
        self.look(|file| file.read(0, file.size()))
    }

    /// Operations sent so far.
    pub(crate) fn operations(&self) -> Vec<Operation> {
        self.sent.iter().map(|bio| bio.operation).collect()
    }

    /// Does what the cache asks for: zeroes, and missing bytes of a page.
    fn finish(&self, settled: &mut Settled) {
        for (frame, from) in settled.zero.drain(..) {
            self.fill(frame, from, &vec![0; PAGE - from]);
        }
        for Patch { from, to, bytes, filled, .. } in settled.patches.drain(..) {
            let source = self.frame(from);
            for range in bytes {
                let mut data = source[range.clone()].to_vec();
                data[filled.clamp(range.start, range.end) - range.start..].fill(0);
                self.fill(to, range.start, &data);
            }
        }
    }

    fn frame(&self, frame: Frame) -> Vec<u8> {
        let mut bytes = vec![0; PAGE];
        // SAFETY: all of a world runs on this thread, and a request moves its bytes in one step.
        unsafe { self.arena.copy_out(frame, 0, &mut bytes) };
        bytes
    }

    fn fill(&self, frame: Frame, at: usize, bytes: &[u8]) {
        // SAFETY: as above.
        unsafe { self.arena.copy_in(frame, at, bytes) };
    }

    fn absorb(&mut self, settled: Settled) {
        for run in settled.freed.runs() {
            run.frames().for_each(|frame| self.evictor.leave(frame));
            self.frames.give_run(*run);
        }
    }
}

/// Bytes that are not zero, and are different for different stamps.
pub(crate) fn data(stamp: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| stamp ^ (at % 61) as u8 | 0x80).collect()
}
