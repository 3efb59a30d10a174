//! The order of regions in background writeback: a sweep, compared with the best that is found by
//! a search at each step.

use std::cmp::Reverse;

use forebay_block::random::Random;
use forebay_block::{Bio, Frame, Operation, Target};
use forebay_cache::file::{Entry, Origin, Reserving};
use forebay_cache::limits::{GAP_PAGES, GATHER_PAGES, PAGE};
use forebay_cache::writeback::settle::Keep;
use forebay_cache::{CachedFile, Caching, FrameRun, FrameRuns, Liberties, Reason, Settled};

/// A disk that makes 3,000 requests and 125 MB in a second, at once.
fn seconds(requests: u64, bytes: u64) -> f64 {
    (requests as f64 / 3_000.0).max(bytes as f64 / 125e6)
}

/// Each page once, in random order.
fn shuffled(pages: u64) -> Vec<u64> {
    let mut random = Random::new(1);
    let mut order: Vec<u64> = (0..pages).collect();
    order.sort_by_cached_key(|_| random.below(u64::MAX));
    order
}

/// Writes each page of a new file once, with at most `dirty` pages dirty. Returns the seconds that
/// the disk takes.
fn swept(pages: u64, dirty: u64) -> f64 {
    let origin = Origin::Empty { entry: Entry::Old };
    let mut file = CachedFile::new(Target(0), origin, Liberties::Exclusive);
    file.set_reserving(Reserving::Off);
    file.set_free_bytes(u64::MAX);
    let mut stash = FrameRuns::default();
    stash.push_run(FrameRun { first: Frame(0), count: pages as u32 });
    let (mut settled, mut copies) = (Settled::default(), Vec::new());
    let (mut requests, mut bytes) = (0, 0);
    let mut end = |file: &mut CachedFile, bio: &Bio, settled: &mut Settled| {
        if matches!(bio.operation, Operation::Write | Operation::WriteBuffered) {
            requests += 1;
            bytes += bio.length;
        }
        file.settle(bio, Ok(bio.length), Keep::Nothing, settled);
    };
    for page in shuffled(pages) {
        while file.dirty_pages() >= dirty {
            // A sweep ends with a look that finds nothing.
            let Some(bio) = file.next_bio(Reason::Background) else { continue };
            end(&mut file, &bio, &mut settled);
        }
        copies.clear();
        let (planned, ..) = file.begin_write(page * PAGE, PAGE as usize, &mut stash, &mut copies);
        assert_eq!(planned as u64, PAGE);
        file.publish(&copies, Caching::Cached, &mut settled);
    }
    while file.dirty_pages() > 0 {
        let Some(bio) = file.next_bio(Reason::Background) else { continue };
        end(&mut file, &bio, &mut settled);
    }
    seconds(requests, bytes)
}

/// The same without a cache: the region with the most dirty pages is written, each time.
fn searched(pages: u64, dirty: u64) -> f64 {
    let regions = pages.div_ceil(GATHER_PAGES) as usize;
    let region_of = |page: u64| (page / GATHER_PAGES) as usize;
    let (mut is_dirty, mut is_written) = (vec![false; pages as usize], vec![false; pages as usize]);
    let mut counts = vec![0_u64; regions];
    let (mut requests, mut written) = (0, 0);
    let mut write = |region: usize, is_dirty: &mut [bool]| {
        let (mut last, mut is_open) = (0, false);
        let start = region * GATHER_PAGES as usize;
        for page in start..(start + GATHER_PAGES as usize).min(pages as usize) {
            if !is_dirty[page] {
                continue;
            }
            let gap = last + 1..page;
            let is_one = is_open
                && gap.len() as u64 <= GAP_PAGES
                && !is_written[gap.clone()].contains(&true);
            if is_one {
                written += gap.len() as u64;
                is_written[gap].fill(true);
            } else {
                requests += 1;
            }
            written += 1;
            (is_dirty[page], is_written[page]) = (false, true);
            (last, is_open) = (page, true);
        }
    };
    for page in shuffled(pages) {
        if counts.iter().sum::<u64>() >= dirty {
            let densest = (0..regions).max_by_key(|region| (counts[*region], Reverse(*region)));
            let densest = densest.expect("there are regions");
            write(densest, &mut is_dirty);
            counts[densest] = 0;
        }
        is_dirty[page as usize] = true;
        counts[region_of(page)] += 1;
    }
    (0..regions).for_each(|region| write(region, &mut is_dirty));
    seconds(requests, written * PAGE)
}

#[test]
fn a_sweep_is_nearly_as_good_as_the_densest_region_first() {
    for part in [4, 3] {
        let pages = 46_080;
        let (found, best) = (swept(pages, pages / part), searched(pages, pages / part));
        println!(
            "1 of {part} dirty: {:.1} MB/s, {:.2} of the densest first",
            (pages * PAGE) as f64 / 1e6 / found,
            best / found
        );
        assert!(best > found * 0.9, "{found} s, and {best} s by search");
    }
}
