//! Adoption of pages whose memory came from a dead program.
//!
//! All calls are made before the file is used. The caller knows what the frames hold; afterwards
//! the pages are as if this program had written or read them.

use std::ops::Range;

use forebay_block::Frame;

use crate::bits::{bits, parts};
use crate::file::{CachedFile, Liberties};
use crate::frames::FrameRun;
use crate::limits::PAGE;
use crate::partial::{Mask, Partial, Rest};
use crate::settled::Settled;

impl CachedFile {
    /// Sets the minimum size of the file. Data that the device does not have yet is among the
    /// adopted pages.
    pub fn adopt_size(&mut self, size: u64) {
        assert!(!self.sizes.is_device() || size <= self.sizes.size(), "a device has one size");
        self.sizes.accept(size);
    }

    /// Adopts clean pages from `page` on. Bytes beyond the end of the file must be zero.
    ///
    /// # Panics
    /// If other programs may have the file open, because the pages may then differ from the device.
    pub fn adopt_clean(&mut self, page: u64, frames: FrameRun, settled: &mut Settled) {
        assert_eq!(
            self.lease.liberties(),
            Liberties::Exclusive,
            "clean pages are kept of files that are ours alone"
        );
        let mut first = frames.first;
        for (page, slot, count) in parts(page..page + u64::from(frames.count)) {
            let mask = bits(slot, count);
            let (chunk, _) = self.index.chunk_for(page, count);
            assert!(chunk.here() & mask == 0, "a page is here once");
            chunk.set_frames(slot, FrameRun { first, count });
            chunk.present |= mask;
            first.0 += count;
            self.list_clean(page - slot as u64, mask, settled);
        }
    }

    /// Adopts a dirty page, which counts as one dirty page. Bytes beyond the end of the file must
    /// be zero.
    pub fn adopt_dirty(&mut self, page: u64, frame: Frame) {
        self.adopt_unwritten(page, frame);
        let (chunk, slot) = self.index.chunk_mut(page);
        chunk.present |= 1 << slot;
        self.own_all(page);
    }

    /// Adopts a partly written dirty page. `spare` is the frame for reading the other bytes; it is
    /// freed if none are missing. Bytes beyond the end of the file must be zero.
    pub fn adopt_partial(
        &mut self,
        page: u64,
        (frame, spare): (Frame, Frame),
        written: &[Range<usize>],
        settled: &mut Settled,
    ) {
        let mut mask = Mask::new();
        written.iter().for_each(|bytes| mask.add(bytes.clone()));
        let inside = match self.lease.liberties() {
            Liberties::Exclusive => {
                self.sizes.size().saturating_sub(page * PAGE).min(PAGE) as usize
            }
            Liberties::Shared => PAGE as usize,
        };
        if mask.holds(0..inside) {
            settled.freed.push(spare);
            return self.adopt_dirty(page, frame);
        }
        self.adopt_unwritten(page, frame);
        let (chunk, slot) = self.index.chunk_mut(page);
        chunk.partial |= 1 << slot;
        chunk.set_whole(slot, 1);
        self.odd.begin_partial(page, Partial::with(mask, Rest::OnDevice(spare)));
        if self.lease.is_shared() {
            self.claim(page);
        }
    }

    fn adopt_unwritten(&mut self, page: u64, frame: Frame) {
        assert!(page * PAGE < self.sizes.size(), "what lies beyond the end is not written");
        let epoch = self.epochs.current();
        let (chunk, slot) = self.index.chunk_mut(page);
        assert!(chunk.here() & 1 << slot == 0, "a page is here once");
        chunk.set_frame(slot, frame);
        chunk.set_epoch(slot, epoch);
        self.index.mark_dirty(page);
        self.epochs.add(epoch, 1);
        self.counts.charge(1);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use forebay_block::{Operation, Target};
    use proptest::prelude::*;

    use super::*;
    use crate::file::Origin;
    use crate::frames::FrameRuns;
    use crate::read::{ReadStop, Reader};
    use crate::settled::Keep;
    use crate::state::PageState;
    use crate::ticket::TicketKind;
    use crate::uses::Caching;
    use crate::writeback::reason::Reason;

    const PAGES: u64 = 200;

    /// State of a page at its adoption.
    #[derive(Clone, PartialEq, Eq, Debug)]
    enum Came {
        Clean,
        Dirty,
        Partial(Range<usize>),
    }

    fn pages() -> impl Strategy<Value = BTreeMap<u64, Came>> {
        let came = prop_oneof![
            4 => Just(Came::Clean),
            2 => Just(Came::Dirty),
            1 => (0..PAGE as usize, 1..=PAGE as usize)
                .prop_map(|(at, bytes)| Came::Partial(at..(at + bytes).min(PAGE as usize))),
        ];
        prop::collection::btree_map(0..PAGES, came, 0..60)
    }

    /// The frame of a page: neighbours in the file are neighbours in memory, mostly.
    fn frame_of(page: u64) -> Frame {
        Frame((page + page / 5 % 2 * 1000) as u32)
    }

    fn spare_of(page: u64) -> Frame {
        Frame(5000 + page as u32)
    }

    fn adopt(pages: &BTreeMap<u64, Came>, size: u64, settled: &mut Settled) -> CachedFile {
        let mut file = CachedFile::new(Target(3), Origin::Existing(size / 2), Liberties::Exclusive);
        file.adopt_size(size);
        for (page, came) in pages {
            let frame = frame_of(*page);
            match came {
                Came::Clean => {
                    file.adopt_clean(*page, FrameRun { first: frame, count: 1 }, settled);
                }
                Came::Dirty => file.adopt_dirty(*page, frame),
                Came::Partial(bytes) => {
                    let frames = (frame, spare_of(*page));
                    file.adopt_partial(*page, frames, std::slice::from_ref(bytes), settled);
                }
            }
        }
        file
    }

    proptest! {
        #[test]
        fn what_was_adopted_is_here_is_written_once_and_goes(came in pages(), tail in 0..PAGE) {
            let size = PAGES * PAGE + tail;
            let mut settled = Settled::default();
            let mut file = adopt(&came, size, &mut settled);
            let is_whole = |came: &Came| *came == Came::Dirty || *came == Came::Partial(0..PAGE as usize);
            let state_of = |came: &Came| match came {
                Came::Clean => PageState::Clean,
                came if is_whole(came) => PageState::Dirty,
                _ => PageState::Partial,
            };
            for page in 0..PAGES {
                let expected = came.get(&page).map_or(PageState::Absent, state_of);
                prop_assert_eq!(file.page_state(page), expected, "page {}", page);
            }
            let unwritten: BTreeSet<u64> =
                came.iter().filter(|(_, came)| **came != Came::Clean).map(|(page, _)| *page).collect();
            prop_assert_eq!(file.dirty_pages(), unwritten.len() as u64);
            prop_assert_eq!(file.is_dirty(), !unwritten.is_empty());
            // The evictor hears of the clean ones, each in its frame.
            let listed: BTreeMap<u64, Frame> =
                settled.clean.drain(..).flat_map(|run| (run.page..).zip(run.frames.frames())).collect();
            let clean = came.iter().filter(|(_, came)| **came == Came::Clean).map(|(page, _)| (*page, frame_of(*page)));
            prop_assert_eq!(listed, clean.collect::<BTreeMap<_, _>>());
            // Readers find them, and ask the device for no others.
            let mut stash = FrameRuns::default();
            let reader = Reader { caching: Caching::Cached, again: None, first_fill: 0 };
            for page in came.keys() {
                let mut steps = Vec::new();
                let mut read = || file.begin_read(page * PAGE, PAGE as usize, reader, &mut stash, &mut steps);
                let (mut planned, stop) = read();
                if let ReadStop::Fill(bio) = stop {
                    let pages = bio.offset / PAGE..(bio.offset + bio.length) / PAGE;
                    prop_assert!(pages.clone().all(|page| file.is_partial(page)), "{:?} are read", pages);
                    file.settle(&bio, Ok(bio.length), Keep::Clean, &mut settled);
                    (planned, _) = file.begin_read(page * PAGE, PAGE as usize, reader, &mut stash, &mut steps);
                }
                prop_assert_eq!((planned, steps[0].frame), (PAGE as usize, Some(frame_of(*page))));
                file.end_read(&steps, Caching::Cached, &mut settled);
            }
            // A sync writes all that is not written, and where no gap pays nothing else, each page
            // once.
            file.set_gap_pages(0);
            let ticket = file.ask(TicketKind::FlushData);
            let mut written = BTreeSet::new();
            let mut flushes = 0;
            while let Some(bio) = file.next_bio(Reason::Sync) {
                if matches!(bio.operation, Operation::Write | Operation::WriteBuffered) {
                    for page in bio.offset / PAGE..(bio.offset + bio.length).div_ceil(PAGE) {
                        prop_assert!(unwritten.contains(&page) && written.insert(page), "page {}", page);
                    }
                }
                flushes += usize::from(bio.operation == Operation::FlushData);
                file.settle(&bio, Ok(bio.length), Keep::Clean, &mut settled);
            }
            prop_assert_eq!(&written, &unwritten);
            prop_assert_eq!((file.fetch(ticket), flushes), (Some(Ok(())), 1));
            prop_assert_eq!((file.dirty_pages(), settled.uncharged), (0, unwritten.len() as u64));
            prop_assert!(settled.patches.iter().all(|patch| patch.from == spare_of(patch.page)));
            // Each frame is freed once.
            file.discard(&mut settled);
            let mut freed: Vec<Frame> = settled.freed.frames().collect();
            freed.sort_unstable();
            let spares = came.iter().filter(|(_, came)| matches!(came, Came::Partial(_)));
            let mut all: Vec<Frame> = spares.map(|(page, _)| spare_of(*page)).collect();
            all.extend(came.keys().map(|page| frame_of(*page)));
            all.sort_unstable();
            prop_assert_eq!(freed, all);
        }
    }

    #[test]
    fn a_run_of_clean_pages_is_adopted_in_one_go() {
        let mut settled = Settled::default();
        let mut file = CachedFile::new(Target(0), Origin::Existing(1 << 20), Liberties::Exclusive);
        file.adopt_clean(60, FrameRun { first: Frame(10), count: 70 }, &mut settled);
        let frames: Vec<u32> =
            settled.clean.iter().flat_map(|run| run.frames.frames()).map(|frame| frame.0).collect();
        assert_eq!(frames, (10..80).collect::<Vec<u32>>());
        assert!((60..130).all(|page| file.is_idle_clean(page)));
        assert!(!file.is_idle_clean(59) && !file.is_idle_clean(130));
    }

    #[test]
    fn a_part_that_reaches_the_end_is_all_of_its_page() {
        let mut settled = Settled::default();
        let part = std::slice::from_ref(&(0..50));
        let mut file = CachedFile::new(Target(0), Origin::Existing(4096), Liberties::Exclusive);
        file.adopt_size(4096 + 50);
        file.adopt_partial(1, (Frame(1), Frame(2)), part, &mut settled);
        assert_eq!(file.page_state(1), PageState::Dirty);
        assert_eq!(settled.freed.frames().collect::<Vec<_>>(), [Frame(2)]);
        // Unless another program may have moved it.
        let mut file = CachedFile::new(Target(0), Origin::Existing(4096), Liberties::Shared);
        file.adopt_size(4096 + 50);
        file.adopt_partial(1, (Frame(1), Frame(2)), part, &mut settled);
        assert_eq!(file.page_state(1), PageState::Partial);
    }

    #[test]
    #[should_panic(expected = "ours alone")]
    fn clean_pages_of_a_shared_file_are_refused() {
        let mut file = CachedFile::new(Target(0), Origin::Existing(4096), Liberties::Shared);
        file.adopt_clean(0, FrameRun { first: Frame(0), count: 1 }, &mut Settled::default());
    }
}
