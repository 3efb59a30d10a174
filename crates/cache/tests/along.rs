//! Clean pages between dirty ones, which are written once more.

#![expect(clippy::single_range_in_vec_init, reason = "a list of ranges of pages")]

use forebay_block::random::Random;
use forebay_block::{Bio, Errno, Frame, Segment, Target};
use forebay_cache::file::{Below, Origin};
use forebay_cache::limits::{GAP_PAGES, PAGE};

use forebay_cache::writeback::settle::Keep;
use forebay_cache::{
    CachedFile, Caching, Copy, FrameRun, FrameRuns, Liberties, Reason, Settled, TicketKind,
    WriteStop,
};

const PAGES: u64 = 64;

struct Rewritten {
    file: CachedFile,
    stash: FrameRuns,
    settled: Settled,
}

/// A file with data on disk; its first 12 pages are clean in memory, in frames in order.
fn rewritten() -> Rewritten {
    let mut file = CachedFile::new(Target(0), Origin::Existing(PAGES * PAGE), Liberties::Exclusive);
    file.set_data(&[0..PAGES * PAGE], Below::Never);
    file.set_rewrites_in_place(true);
    let mut stash = FrameRuns::default();
    stash.push_run(FrameRun { first: Frame(0), count: 64 });
    let mut all = Rewritten { file, stash, settled: Settled::default() };
    all.write(0..12).unwrap();
    all.write_out();
    assert_eq!(all.file.dirty_pages(), 0);
    all
}

/// The same with two dirty pages, and a clean one between them.
fn dirty_around_a_clean_page() -> Rewritten {
    let mut of = rewritten();
    of.write(1..2).unwrap();
    of.write(3..4).unwrap();
    of
}

impl Rewritten {
    fn write(&mut self, pages: std::ops::Range<u64>) -> Result<(), WriteStop> {
        let (mut copies, length): (Vec<Copy>, _) = (Vec::new(), (pages.end - pages.start) * PAGE);
        let (planned, _, stop) = self.file.begin_write(
            pages.start * PAGE,
            length as usize,
            &mut self.stash,
            &mut copies,
        );
        if planned == 0 {
            return Err(stop);
        }
        assert_eq!(planned as u64, length);
        self.file.publish(&copies, Caching::Cached, &mut self.settled);
        Ok(())
    }

    fn write_out(&mut self) {
        let ticket = self.file.ask(TicketKind::WriteOut);
        while let Some(bio) = self.file.next_bio(Reason::Sync) {
            self.end(&bio, Ok(bio.length));
        }
        assert_eq!(self.file.fetch(ticket), Some(Ok(())));
    }

    fn end(&mut self, bio: &Bio, result: Result<u64, Errno>) {
        self.file.settle(bio, result, Keep::All, &mut self.settled);
    }

    fn background(&mut self) -> Vec<Bio> {
        std::iter::from_fn(|| self.file.next_bio(Reason::Background)).collect()
    }
}

fn pages_of(bios: &[Bio]) -> Vec<std::ops::Range<u64>> {
    bios.iter().map(|bio| bio.offset / PAGE..bio.end() / PAGE).collect()
}

#[test]
fn clean_pages_are_written_along_up_to_half_the_price() {
    // Of the longest gap that pays for zeroes half as much.
    for (price, written) in [(8, vec![1..6]), (4, vec![1..2, 5..6]), (0, vec![1..2, 5..6])] {
        let mut of = rewritten();
        of.file.set_gap_pages(price);
        of.write(1..2).unwrap();
        of.write(5..6).unwrap();
        let bios = of.background();
        assert_eq!(pages_of(&bios), written, "price {price}");
        let clean: u64 = bios.iter().map(|bio| of.file.writes_more(bio).1).sum();
        assert_eq!(clean, if price == 8 { 3 } else { 0 });
        // The bytes come from the frames of these pages.
        let frames = |bio: &Bio| -> u64 {
            bio.segments.iter().map(|segment| u64::from(segment.length())).sum()
        };
        assert!(bios.iter().all(|bio| frames(bio) == bio.length));
        assert!(bios[0].segments.iter().all(|part| matches!(part, Segment::Frames { .. })));
        assert_eq!(of.file.dirty_pages(), 2, "clean pages are not charged");
        bios.iter().for_each(|bio| of.end(bio, Ok(bio.length)));
        assert_eq!((of.file.dirty_pages(), of.settled.charged), (0, 0));
        assert!((1..6).all(|page| of.file.is_idle_clean(page)));
    }
}

#[test]
fn contract_09_no_clean_page_is_written_that_may_need_space() {
    let mut of = rewritten();
    of.file.set_rewrites_in_place(false);
    of.write(1..2).unwrap();
    of.write(3..4).unwrap();
    assert_eq!(pages_of(&of.background()), [1..2, 3..4]);
}

#[test]
fn contract_01_nobody_writes_into_a_clean_page_at_the_device() {
    let mut of = dirty_around_a_clean_page();
    let bios = of.background();
    assert_eq!(pages_of(&bios), [1..4]);
    assert_eq!(of.write(2..3), Err(WriteStop::Busy));
    // The dirty ones take another frame.
    of.write(3..4).unwrap();
    of.end(&bios[0], Ok(bios[0].length));
    of.write(2..3).unwrap();
    assert_eq!(of.file.dirty_pages(), 2);
}

#[test]
fn contract_02_a_clean_page_that_the_device_refused_is_dirty() {
    let mut of = dirty_around_a_clean_page();
    let bios = of.background();
    of.end(&bios[0], Err(Errno::IO));
    assert_eq!((of.file.dirty_pages(), of.settled.charged), (3, 1));
    assert!(of.file.failing().is_some());
    // A sync tries it again, without neighbours as long as the device refuses some.
    of.write(9..10).unwrap();
    of.write(11..12).unwrap();
    assert_eq!(pages_of(&of.background()), [9..10, 11..12]);
    let ticket = of.file.ask(TicketKind::WriteOut);
    let again: Vec<Bio> = std::iter::from_fn(|| of.file.next_bio(Reason::Sync)).collect();
    assert_eq!(pages_of(&again), [1..4]);
    assert_eq!(of.file.fetch(ticket), None);
}

#[test]
fn contract_06_clean_pages_stay_clean_if_the_lease_is_gone_before_they_are_sent() {
    let mut of = dirty_around_a_clean_page();
    let bios = of.background();
    assert_eq!(of.file.writes_more(&bios[0]), (true, 1));
    of.file.take_back(&bios[0], &mut of.settled);
    assert_eq!(of.file.dirty_pages(), 2);
    assert!(of.file.is_idle_clean(2));
}

/// A disk of a known price: the requests and the bytes that it makes in a second, at once or in
/// turn.
#[derive(Clone, Copy, Debug)]
struct Disk {
    requests: f64,
    bytes: f64,
    at_once: bool,
}

/// Dirties random pages of a file in memory, as many as are written out, for some sweeps. Returns
/// the bytes that became dirty in a second, and those written for each.
fn rewrite(disk: Disk, pages: u64, dirty: u64, gap_pages: u64) -> (f64, f64) {
    let origin = Origin::Existing(pages * PAGE);
    let mut file = CachedFile::new(Target(0), origin, Liberties::Exclusive);
    file.set_rewrites_in_place(true);
    file.set_gap_pages(gap_pages);
    let mut stash = FrameRuns::default();
    stash.push_run(FrameRun { first: Frame(0), count: 2 * pages as u32 });
    let mut of = Rewritten { file, stash, settled: Settled::default() };
    (0..pages).step_by(64).for_each(|page| of.write(page..page + 64).unwrap());
    of.write_out();
    let mut random = Random::new(1);
    let (mut requests, mut written, mut dirtied) = (0, 0, 0);
    for sweep in 0..6 {
        if sweep == 2 {
            (requests, written, dirtied) = (0, 0, 0);
        }
        let mut left = dirty;
        while left > 0 {
            while of.file.dirty_pages() < dirty {
                let page = random.below(pages);
                of.write(page..page + 1).unwrap();
            }
            // A sweep ends with a look that finds nothing.
            let Some(bio) = of.file.next_bio(Reason::Background) else { continue };
            let before = of.file.dirty_pages();
            of.end(&bio, Ok(bio.length));
            requests += 1;
            written += bio.length;
            let cleaned = before - of.file.dirty_pages();
            dirtied += cleaned * PAGE;
            left = left.saturating_sub(cleaned);
        }
    }
    let (of_requests, of_bytes) =
        (f64::from(requests) / disk.requests, written as f64 / disk.bytes);
    let seconds = if disk.at_once { of_requests.max(of_bytes) } else { of_requests + of_bytes };
    (dirtied as f64 / seconds, written as f64 / dirtied as f64)
}

/// The gap by the price is compared with the best one that is found by search.
#[test]
fn a_gap_of_half_the_price_is_nearly_the_best() {
    for (name, disk) in [
        ("volume", Disk { requests: 3_000.0, bytes: 125e6, at_once: true }),
        ("local", Disk { requests: 60_000.0, bytes: 1.5e9, at_once: false }),
        ("bytes are dear", Disk { requests: 60_000.0, bytes: 250e6, at_once: false }),
    ] {
        let price = ((disk.bytes / disk.requests) as u64 / PAGE).min(GAP_PAGES);
        for part in [50, 20, 8, 4, 2] {
            let (pages, dirty) = (8_192, 8_192 / part);
            let rate = |gap| rewrite(disk, pages, dirty, gap);
            let best = (0..=GAP_PAGES).step_by(2).map(|gap| rate(gap).0).fold(0.0, f64::max);
            let (none, (found, bytes)) = (rate(0).0, rate(price));
            println!(
                "{name}, {:.1} % dirty: {:.1} times, {bytes:.1} bytes for each, {:.2} of the best",
                100.0 / part as f64,
                found / none,
                found / best
            );
            assert!(found > best * 0.85, "{disk:?}, one of {part} dirty: {found} of {best}");
        }
    }
}
