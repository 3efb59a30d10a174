//! On a shared file only bytes that the program wrote are sent, each once, and after a flush that
//! failed those since the last good one: against a plain list of bytes.

use forebay_block::{Bio, Errno, Frame, Operation, Segment, Target};
use forebay_cache::file::Origin;
use forebay_cache::limits::PAGE;
use forebay_cache::writeback::settle::Keep;
use forebay_cache::{
    CachedFile, Caching, FrameRuns, Liberties, Prepare, ReadStop, Reader, Reason, Settled,
    TicketKind, WriteStop,
};
use proptest::prelude::*;

const PAGES: usize = 6;
const BYTES: usize = PAGES * PAGE as usize;
const FRAMES: u32 = 64;

#[derive(Clone, Debug)]
enum Step {
    Write(usize, usize),
    Other(usize, usize),
    Read(usize, usize),
    WriteOut,
    Sync { fails: bool },
    Cut(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let length = prop_oneof![3 => 1..300_usize, 1 => 4000..9000_usize];
    let range = || (0..BYTES, length.clone());
    let at_page = (0..PAGES, 1..3_usize);
    let step = prop_oneof![
        6 => range().prop_map(|(at, length)| Step::Write(at, length.min(BYTES - at))),
        2 => at_page.prop_map(|(page, pages)| {
            let at = page * PAGE as usize;
            Step::Write(at, (pages * PAGE as usize).min(BYTES - at))
        }),
        3 => range().prop_map(|(at, length)| Step::Other(at, length.min(BYTES - at))),
        2 => range().prop_map(|(at, length)| Step::Read(at, length.min(BYTES - at))),
        2 => Just(Step::WriteOut),
        3 => any::<bool>().prop_map(|fails| Step::Sync { fails }),
        1 => (0..BYTES).prop_map(Step::Cut),
    ];
    proptest::collection::vec(step, 1..40)
}

struct Model {
    file: CachedFile,
    settled: Settled,
    free: FrameRuns,
    arena: Vec<u8>,
    /// The bytes on disk.
    disk: Vec<u8>,
    /// Accepted and not sent.
    pending: Vec<Option<u8>>,
    /// Accepted since the last good flush.
    unflushed: Vec<Option<u8>>,
    stamp: u8,
    flush_fails: bool,
}

impl Model {
    fn new(liberties: Liberties) -> Self {
        let mut free = FrameRuns::default();
        (0..FRAMES).for_each(|frame| free.push(Frame(frame)));
        let mut file = CachedFile::new(Target(0), Origin::Existing(BYTES as u64 / 2), liberties);
        let mut settled = Settled::default();
        let ticket = file.ask(TicketKind::FlushData);
        let flush = file.next_bio(Reason::Sync).unwrap();
        file.settle(&flush, Ok(0), Keep::Clean, &mut settled);
        assert_eq!(file.fetch(ticket), Some(Ok(())));
        Self {
            file,
            settled,
            free,
            arena: vec![0xee; FRAMES as usize * PAGE as usize],
            disk: vec![1; BYTES / 2],
            pending: vec![None; BYTES],
            unflushed: vec![None; BYTES],
            stamp: 2,
            flush_fails: false,
        }
    }

    fn next_stamp(&mut self) -> u8 {
        self.stamp = self.stamp.wrapping_add(1).max(2);
        self.stamp
    }

    fn frame(&mut self, frame: Frame) -> &mut [u8] {
        &mut self.arena[frame.0 as usize * PAGE as usize..][..PAGE as usize]
    }

    fn finish(&mut self) {
        let mut settled = std::mem::take(&mut self.settled);
        for (frame, from) in settled.zero.drain(..) {
            self.frame(frame)[from..].fill(0);
        }
        for patch in settled.patches.drain(..) {
            let from = self.frame(patch.from).to_vec();
            for bytes in patch.bytes {
                for at in bytes {
                    self.frame(patch.to)[at] = if at < patch.filled { from[at] } else { 0 };
                }
            }
        }
        settled.freed.frames().for_each(|frame| self.free.push(frame));
        settled.freed = FrameRuns::default();
    }

    fn write(&mut self, at: usize, length: usize) {
        let stamp = self.next_stamp();
        let mut done = 0;
        while done < length {
            let mut copies = Vec::new();
            let (planned, _, stop) = self.file.begin_write(
                (at + done) as u64,
                length - done,
                &mut self.free,
                &mut copies,
            );
            assert!(planned > 0, "{stop:?}");
            assert!(matches!(stop, WriteStop::Done));
            for copy in &copies {
                assert!(!matches!(copy.prepare, Prepare::From(_)), "nothing is in flight");
                if copy.prepare == Prepare::Zero {
                    self.frame(copy.frame).fill(0);
                }
                let start = copy.frame.0 as usize * PAGE as usize + copy.at;
                self.arena[start..start + copy.length].fill(stamp);
            }
            self.file.publish(&copies, Caching::Cached, &mut self.settled);
            self.finish();
            done += planned;
        }
        for at in at..at + length {
            (self.pending[at], self.unflushed[at]) = (Some(stamp), Some(stamp));
        }
    }

    fn other(&mut self, at: usize, length: usize) {
        let stamp = self.next_stamp();
        self.disk.resize(self.disk.len().max(at + length), 0);
        self.disk[at..at + length].fill(stamp);
    }

    /// Reads find the bytes that are not sent yet; others may be as old as the last flush.
    fn read(&mut self, at: usize, length: usize) {
        let look = self.file.look();
        self.file.observe_disk_size(self.disk.len() as u64, look, &mut self.settled);
        let end = (at + length).min(self.file.size() as usize).max(at);
        let first_fill = self.file.start_read();
        let reader = Reader { caching: Caching::Cached, again: None, first_fill };
        let mut done = at;
        while done < end {
            self.file.drop_stale(&(done as u64..end as u64), reader, &mut self.settled);
            self.finish();
            let mut read = Vec::new();
            let (planned, stop) =
                self.file.begin_read(done as u64, end - done, reader, &mut self.free, &mut read);
            if let ReadStop::Fill(bio) = stop {
                self.serve(&bio);
            }
            let mut position = done;
            for step in &read {
                for offset in 0..step.length {
                    let found = step.frame.map_or(0, |frame| {
                        self.arena[frame.0 as usize * PAGE as usize + step.at + offset]
                    });
                    if let Some(ours) = self.pending[position + offset] {
                        assert_eq!(found, ours, "byte {}", position + offset);
                    }
                }
                position += step.length;
            }
            self.file.end_read(&read, Caching::Cached, &mut self.settled);
            self.finish();
            done += planned;
        }
    }

    fn serve(&mut self, bio: &Bio) {
        let mut at = bio.offset as usize;
        let mut moved = 0;
        let is_again = self.file.is_rewriting();
        let bytes = |segment: &Segment| match *segment {
            Segment::Frames { first, offset, length } => {
                let start = first.0 as usize * PAGE as usize + offset as usize;
                start..start + length as usize
            }
            _ => panic!("zeroes are written to a shared file"),
        };
        let result = match bio.operation {
            Operation::Write | Operation::WriteBuffered => {
                let is_whole = at.is_multiple_of(4096) && bio.length.is_multiple_of(PAGE);
                assert!(bio.operation == Operation::WriteBuffered || is_whole, "{bio:?}");
                self.disk.resize(self.disk.len().max(bio.end() as usize), 0);
                for from in bio.segments.iter().flat_map(bytes) {
                    let ours = if is_again { self.unflushed[at] } else { self.pending[at] };
                    assert_eq!(ours, Some(self.arena[from]), "byte {at} is not ours: {bio:?}");
                    (self.disk[at], self.pending[at]) = (self.arena[from], None);
                    at += 1;
                }
                Ok(bio.length)
            }
            Operation::Read => {
                for to in bio.segments.iter().flat_map(bytes) {
                    if let Some(byte) = self.disk.get(at) {
                        (self.arena[to], moved) = (*byte, moved + 1);
                    }
                    at += 1;
                }
                Ok(moved)
            }
            Operation::SetLength => {
                self.disk.resize(at, 0);
                for at in at..BYTES {
                    (self.pending[at], self.unflushed[at]) = (None, None);
                }
                Ok(0)
            }
            Operation::FlushData if std::mem::take(&mut self.flush_fails) => Err(Errno::IO),
            Operation::FlushData => {
                self.unflushed.clone_from(&self.pending);
                Ok(0)
            }
            _ => panic!("{bio:?}"),
        };
        self.file.settle(bio, result, Keep::Clean, &mut self.settled);
        self.finish();
    }

    fn ask(&mut self, request: TicketKind) {
        let ticket = self.file.ask(request);
        while let Some(bio) = self.file.next_bio(Reason::Sync) {
            self.serve(&bio);
        }
        assert_eq!(self.file.fetch(ticket), Some(Ok(())), "{request:?}");
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Write(at, length) => self.write(at, length),
            Step::Other(at, length) => self.other(at, length),
            Step::Read(at, length) => self.read(at, length),
            Step::WriteOut => self.ask(TicketKind::WriteOut),
            Step::Sync { fails } => {
                self.flush_fails = fails && !self.file.lacks_frames();
                self.ask(TicketKind::FlushData);
                self.flush_fails = false;
            }
            Step::Cut(length) => self.ask(TicketKind::SetLength(length as u64)),
        }
        if matches!(step, Step::WriteOut | Step::Sync { .. }) {
            let unsent = self.pending.iter().position(Option::is_some);
            assert_eq!(unsent, None, "a byte was accepted and not sent");
            assert!(!self.file.is_dirty());
        }
    }

    fn end(mut self) {
        self.ask(TicketKind::FlushData);
        assert_eq!((self.file.dirty_pages(), self.file.kept_pages()), (0, 0));
        let first_fill = self.file.start_read();
        let reader = Reader { caching: Caching::Cached, again: None, first_fill };
        self.file.drop_stale(&(0..BYTES as u64), reader, &mut self.settled);
        self.finish();
        self.file.discard(&mut self.settled);
        self.finish();
        assert_eq!(self.free.len(), FRAMES as usize, "frames are lost");
    }
}

/// The lease ends while a page is dirty whose written bytes were cut off.
#[test]
fn a_page_without_written_bytes_is_not_dirty() {
    let mut model = Model::new(Liberties::Exclusive);
    model.disk.resize(BYTES, 1);
    model.write(5000, 100);
    model.write(100, 100);
    model.ask(TicketKind::SetLength(4900));
    model.file.begin_break(&mut model.settled);
    model.finish();
    model.ask(TicketKind::FlushData);
    assert_eq!(model.disk[100..200], [4; 100], "the other page is written");
    assert!(model.pending.iter().all(Option::is_none) && model.disk.len() == 4900);
}

/// The bytes that could not be written are cut off; written ones of the page are kept.
#[test]
fn contract_02_a_page_whose_failed_bytes_were_cut_off_has_not_failed() {
    let mut model = Model::new(Liberties::Shared);
    model.write(4200, 50);
    model.ask(TicketKind::WriteOut);
    model.write(6000, 50);
    let ticket = model.file.ask(TicketKind::WriteOut);
    let bio = model.file.next_bio(Reason::Sync).expect("a part of the page is dirty");
    model.file.settle(&bio, Err(Errno::IO), Keep::Clean, &mut model.settled);
    model.finish();
    assert!(model.file.next_bio(Reason::Sync).is_none());
    assert!(matches!(model.file.fetch(ticket), Some(Err(_))));
    assert_eq!((model.file.unwritable_pages(), model.file.kept_pages()), (1, 1));
    model.ask(TicketKind::SetLength(5000));
    assert_eq!((model.file.unwritable_pages(), model.file.kept_pages()), (0, 1));
    assert_eq!((model.file.failing(), model.file.dirty_pages()), (None, 1), "charged as kept");
    model.end();
}

#[test]
fn an_extension_that_was_given_up_reports_no_error_on_a_shared_file() {
    let mut model = Model::new(Liberties::Shared);
    let ticket = model.file.ask(TicketKind::Extend(BYTES as u64));
    model.file.abandon(ticket);
    assert!(model.file.next_bio(Reason::Sync).is_none());
    assert!(!model.file.has_tickets());
    assert_eq!(model.file.take_lost(), []);
}

#[test]
fn contract_02_a_flush_that_fails_after_a_hole_was_punched_is_not_repaired() {
    let mut model = Model::new(Liberties::Shared);
    model.write(0, 2 * PAGE as usize);
    model.ask(TicketKind::FlushData);
    assert!(!model.file.lacks_frames(), "a write could be repaired");
    let ticket = model.file.ask(TicketKind::Discard { first: 0, pages: 1 });
    let bio = model.file.next_bio(Reason::Sync).expect("nothing is in the way of the hole");
    model.file.settle(&bio, Ok(bio.length), Keep::Clean, &mut model.settled);
    model.finish();
    assert_eq!(model.file.fetch(ticket), Some(Ok(())));
    assert!(model.file.lacks_frames(), "no page in memory makes the hole again");
    model.ask(TicketKind::FlushData);
    assert!(!model.file.lacks_frames());
}

/// The kernel shows the bytes of a failed flush, and no later flush makes them durable. They are
/// lost if the page is dropped before it is written again, also after a good flush of other pages.
#[test]
fn contract_02_a_dropped_page_of_a_failed_flush_poisons_the_file() {
    let mut model = Model::new(Liberties::Shared);
    model.write(100, 50);
    model.write(5000, 50);
    let ticket = model.file.ask(TicketKind::FlushData);
    model.flush_fails = true;
    while model.file.rewrites() == 0 {
        let bio = model.file.next_bio(Reason::Sync).expect("the flush did not fail yet");
        model.serve(&bio);
    }
    let bio = model.file.next_bio(Reason::Sync).expect("both pages are written again");
    model.serve(&bio);
    let bio = model.file.next_bio(Reason::Sync).expect("one page is left");
    model.file.settle(&bio, Err(Errno::IO), Keep::Clean, &mut model.settled);
    model.finish();
    assert!(matches!(model.file.fetch(ticket), Some(Err(_))));
    let bio = model.file.next_reclaim().expect("a page is kept");
    model.serve(&bio);
    model.file.begin_discard();
    let size = model.disk.len() as u64;
    assert_eq!(model.file.discard_dirty(size, &mut model.settled), 1);
    model.file.end_discard();
    model.finish();
    assert_eq!(model.file.poisoned(), Some(Errno::IO));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn contract_06_a_shared_file_gets_no_byte_that_is_not_ours(steps in steps()) {
        let mut model = Model::new(Liberties::Shared);
        steps.iter().for_each(|step| model.step(step));
        model.end();
    }
}
