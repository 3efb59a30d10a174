//! One file over one queue and one disk, moved by hand: for what has to happen in one order and no
//! other.

use std::time::Duration;

use forebay_block::limits::PAGE;
use forebay_block::{Bio, Ended, Operation, Queue, Target, Wait};
use forebay_cache::file::{Entry, Reserving};
use forebay_cache::writeback::settle::Keep;
use forebay_cache::{
    CachedFile, Caching, Copy, Evictor, Failure, FrameRuns, Frames, Liberties, Origin, Prepare,
    Reason, Settled, TicketId, TicketKind, WriteStop,
};
use forebay_sim::faults::Latency;
use forebay_sim::{Disk, Random};

const FRAMES: u32 = 4096;
pub(crate) const TARGET: Target = Target(0);

pub(crate) struct Single {
    pub(crate) cache: CachedFile,
    pub(crate) disk: Disk,
    pub(crate) frames: Frames,
    evictor: Evictor,
    /// All that was sent, in order.
    pub(crate) sent: Vec<Bio>,
    queue: Queue,
}

impl Single {
    /// A new file, ours alone.
    pub(crate) fn new() -> Self {
        Self::of(Origin::Empty { entry: Entry::New })
    }

    /// A device of so many bytes.
    pub(crate) fn device(bytes: u64) -> Self {
        let mut single = Self::of(Origin::Device(bytes));
        single.disk.make_device(TARGET, bytes);
        single.cache.set_reserving(Reserving::Off);
        single
    }

    fn of(origin: Origin) -> Self {
        let latency = Latency { least: Duration::from_micros(10), most: Duration::from_micros(10) };
        let mut cache = CachedFile::new(TARGET, origin, Liberties::Exclusive);
        cache.set_free_bytes(1 << 40);
        Self {
            cache,
            disk: Disk::new(1, FRAMES, 1 << 30, latency, Random::new(7)),
            frames: Frames::new(FRAMES),
            evictor: Evictor::new(FRAMES),
            sent: Vec::new(),
            queue: Queue::new(),
        }
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
            let arena = self.disk.arena();
            match copy.prepare {
                Prepare::Nothing => {}
                Prepare::Zero => arena.frame_mut(copy.frame).fill(0),
                Prepare::From(old) => arena.copy(old, copy.frame),
            }
            let (part, rest) = data.split_at(copy.length);
            arena.span_mut(copy.frame, copy.at, copy.length).copy_from_slice(part);
            data = rest;
        }
        let mut settled = Settled::default();
        let _ = self.cache.publish(copies, Caching::Cached, &mut settled);
        self.disk.arena().finish(&mut settled);
        self.absorb(settled);
    }

    /// Sends all there is to be sent for a reason.
    pub(crate) fn send(&mut self, reason: Reason) -> usize {
        let before = self.sent.len();
        while let Some(bio) = self.cache.next_bio(reason) {
            self.sent.push(bio.clone());
            self.queue.submit(bio);
        }
        self.queue.dispatch(&mut self.disk, Wait::Not).unwrap();
        self.sent.len() - before
    }

    /// Ends what is due next at the device.
    pub(crate) fn end_one(&mut self) {
        self.disk.complete_next();
        let mut ended = Vec::new();
        self.queue.run(&mut self.disk, &mut ended);
        for Ended { bio, result } in ended {
            let mut settled = Settled::default();
            self.cache.settle(&bio, result, Keep::Clean, &mut settled);
            self.disk.arena().finish(&mut settled);
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
            assert!(
                self.disk.in_flight() > 0,
                "contract 16: a ticket waits, and nothing is in flight"
            );
            self.end_one();
        }
    }

    /// What the device has of the file.
    pub(crate) fn stored(&self) -> Vec<u8> {
        let file = self.disk.file(TARGET);
        file.read(0, file.size())
    }

    /// Operations sent so far.
    pub(crate) fn operations(&self) -> Vec<Operation> {
        self.sent.iter().map(|bio| bio.operation).collect()
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
