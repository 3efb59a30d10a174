//! Readers of a shared file never find bytes that are older than their read, also if other readers
//! brought the pages in: against the number of the last version of each page.

use std::ops::Range;

use forebay_block::{Bio, Frame, Operation, Segment, Target};
use forebay_cache::file::Origin;
use forebay_cache::limits::PAGE;
use forebay_cache::writeback::settle::Keep;
use forebay_cache::{
    CachedFile, Caching, FrameRuns, Liberties, ReadStep, ReadStop, Reader, Reason, Settled,
    TicketKind,
};
use proptest::prelude::*;

const PAGES: usize = 3;
const READERS: usize = 4;
const FRAMES: u32 = 16;

#[derive(Clone, Debug)]
enum Event {
    /// A reader begins to read pages.
    Begin { reader: usize, pages: Range<usize> },
    /// It makes its next step: begins to copy, or ends that.
    Step { reader: usize },
    /// One of the fills at the device ends.
    End { fill: usize },
    /// Another program writes a page.
    Other { page: usize },
    /// Another program opens the file.
    Break,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let pages = (0..PAGES, 1..=PAGES).prop_map(|(page, count)| page..(page + count).min(PAGES));
    let event = prop_oneof![
        3 => (0..READERS, pages).prop_map(|(reader, pages)| Event::Begin { reader, pages }),
        8 => (0..READERS).prop_map(|reader| Event::Step { reader }),
        3 => (0..4_usize).prop_map(|fill| Event::End { fill }),
        3 => (0..PAGES).prop_map(|page| Event::Other { page }),
        1 => Just(Event::Break),
    ];
    proptest::collection::vec(event, 1..80)
}

/// A read that has begun.
struct Active {
    reader: Reader,
    left: Range<usize>,
    /// The versions on disk when it began.
    floor: [u64; PAGES],
    copying: Vec<ReadStep>,
}

struct Model {
    file: CachedFile,
    settled: Settled,
    free: FrameRuns,
    /// The version in each frame.
    arena: Vec<u64>,
    /// The version of each page on disk.
    disk: [u64; PAGES],
    readers: [Option<Active>; READERS],
    /// Fills at the device, and the versions that they bring.
    fills: Vec<(Bio, Vec<u64>)>,
}

impl Model {
    fn new(liberties: Liberties) -> Self {
        let mut free = FrameRuns::default();
        (0..FRAMES).for_each(|frame| free.push(Frame(frame)));
        let origin = Origin::Existing(PAGES as u64 * PAGE);
        Self {
            file: CachedFile::new(Target(0), origin, liberties),
            settled: Settled::default(),
            free,
            arena: vec![0; FRAMES as usize],
            disk: [1; PAGES],
            readers: Default::default(),
            fills: Vec::new(),
        }
    }

    fn finish(&mut self) {
        self.settled.freed.frames().for_each(|frame| self.free.push(frame));
        self.settled = Settled::default();
    }

    fn step(&mut self, number: usize) {
        let Some(mut active) = self.readers[number].take() else { return };
        let at = active.left.start as u64 * PAGE;
        if active.copying.is_empty() {
            let bytes = at..active.left.end as u64 * PAGE;
            self.file.drop_stale(&bytes, active.reader, &mut self.settled);
            self.finish();
            let length = (bytes.end - bytes.start) as usize;
            let stash = &mut self.free;
            let (_, stop) =
                self.file.begin_read(at, length, active.reader, stash, &mut active.copying);
            if let ReadStop::Fill(bio) = stop {
                let pages = (bio.offset / PAGE) as usize..bio.end().div_ceil(PAGE) as usize;
                let brings = self.disk[pages].to_vec();
                self.fills.push((*bio, brings));
            }
        } else {
            let steps = std::mem::take(&mut active.copying);
            for step in &steps {
                let frames = step.frame.expect("no page is known to be zero").0..;
                for (page, frame) in step.pages().zip(frames) {
                    let (found, floor) = (self.arena[frame as usize], active.floor[page as usize]);
                    assert!(found >= floor, "page {page}: {found}, and {floor} at the beginning");
                }
                active.left.start = step.pages().end as usize;
            }
            self.file.end_read(&steps, Caching::Cached, &mut self.settled);
            self.finish();
        }
        if !active.left.is_empty() {
            self.readers[number] = Some(active);
        }
    }

    fn end_fill(&mut self, number: usize) {
        if self.fills.is_empty() {
            return;
        }
        let (bio, brings) = self.fills.remove(number % self.fills.len());
        let frames = bio.segments.iter().flat_map(|segment| match *segment {
            Segment::Frames { first, length, .. } => {
                first.0..first.0 + u64::from(length).div_ceil(PAGE) as u32
            }
            _ => panic!("a read goes to frames"),
        });
        for (frame, version) in frames.zip(brings) {
            self.arena[frame as usize] = version;
        }
        self.file.settle(&bio, Ok(bio.length), Keep::All, &mut self.settled);
        self.finish();
        self.serve();
    }

    fn handle(&mut self, event: &Event) {
        match event {
            Event::Begin { reader, pages } if self.readers[*reader].is_none() => {
                let first_fill = self.file.start_read();
                self.readers[*reader] = Some(Active {
                    reader: Reader { caching: Caching::Cached, again: None, first_fill },
                    left: pages.clone(),
                    floor: self.disk,
                    copying: Vec::new(),
                });
            }
            Event::Begin { .. } => {}
            Event::Step { reader } => self.step(*reader),
            Event::End { fill } => self.end_fill(*fill),
            Event::Other { page } => {
                if self.file.liberties() == Liberties::Shared && !self.file.is_breaking() {
                    self.disk[*page] += 1;
                }
            }
            Event::Break => {
                if self.file.liberties() == Liberties::Exclusive {
                    self.file.begin_break(&mut self.settled);
                    // With a read at the device it takes too long, and the lease ends early.
                    self.file.end_break();
                    self.finish();
                }
            }
        }
    }

    fn serve(&mut self) {
        while let Some(bio) = self.file.next_bio(Reason::Sync) {
            assert_eq!(bio.operation, Operation::FlushData);
            self.file.settle(&bio, Ok(0), Keep::All, &mut self.settled);
        }
    }

    /// Every reader ends, and every frame is free again.
    fn end(mut self) {
        for _ in 0..READERS * PAGES * 4 {
            (0..READERS).for_each(|reader| self.step(reader));
            (0..self.fills.len()).for_each(|_| self.end_fill(0));
        }
        assert!(self.readers.iter().all(Option::is_none), "a reader waits for ever");
        let ticket = self.file.ask(TicketKind::Release);
        self.serve();
        assert_eq!(self.file.fetch(ticket), Some(Ok(())));
        self.file.discard(&mut self.settled);
        self.finish();
        assert_eq!(self.free.len(), FRAMES as usize, "frames are lost");
    }
}

fn run(liberties: Liberties, events: &[Event]) {
    let mut model = Model::new(liberties);
    events.iter().for_each(|event| model.handle(event));
    model.end();
}

/// A reader does not take over what another one is bringing in: another program may have written
/// since.
#[test]
fn contract_06_a_page_on_its_way_may_be_too_old() {
    let begin = |reader| Event::Begin { reader, pages: 0..1 };
    let (a, b) = (Event::Step { reader: 0 }, Event::Step { reader: 1 });
    let (other, end) = (Event::Other { page: 0 }, Event::End { fill: 0 });
    run(Liberties::Shared, &[begin(0), a, other, begin(1), b.clone(), end, b.clone(), b]);
}

/// Nor what another one is copying.
#[test]
fn contract_06_a_page_in_use_may_be_too_old() {
    let begin = |reader| Event::Begin { reader, pages: 0..1 };
    let (a, b) = (Event::Step { reader: 0 }, Event::Step { reader: 1 });
    let (other, end) = (Event::Other { page: 0 }, Event::End { fill: 0 });
    run(Liberties::Shared, &[begin(0), a.clone(), end, a, other, begin(1), b.clone(), b]);
}

/// Nor what was brought in under the lease.
#[test]
fn contract_06_a_page_on_its_way_under_the_lease_may_be_too_old() {
    let begin = |reader| Event::Begin { reader, pages: 0..1 };
    let (a, b) = (Event::Step { reader: 0 }, Event::Step { reader: 1 });
    let (other, end) = (Event::Other { page: 0 }, Event::End { fill: 0 });
    let events = [begin(0), a, Event::Break, other, begin(1), b.clone(), end, b.clone(), b];
    run(Liberties::Exclusive, &events);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn contract_06_no_reader_finds_older_bytes(is_shared: bool, events in events()) {
        run(if is_shared { Liberties::Shared } else { Liberties::Exclusive }, &events);
    }
}
