use std::collections::BTreeSet;

use forebay_block::random::Random;
use proptest::prelude::*;

use super::*;

const PLENTY: ReadaheadRoom = ReadaheadRoom { end: 1 << 20, pages: 1 << 20 };

/// A file whose pages arrive when they are requested.
#[derive(Default)]
struct Device {
    streams: Streams,
    pages: BTreeSet<u64>,
    windows: Vec<Range<u64>>,
    /// Pages a reader found missing.
    missed: Vec<u64>,
}

impl Device {
    fn read(&mut self, bytes: Range<u64>, room: ReadaheadRoom) -> Advice {
        let advice = self.streams.read(bytes.clone(), room);
        for page in bytes.start / PAGE..bytes.end.div_ceil(PAGE) {
            if self.pages.insert(page) {
                self.missed.push(page);
            }
        }
        if !advice.ahead.is_empty() {
            for page in advice.ahead.clone() {
                assert!(self.pages.insert(page), "page {page} is read twice");
            }
            self.windows.push(advice.ahead.clone());
        }
        advice
    }
}

#[test]
fn a_stream_waits_only_at_its_beginning() {
    for size in [512, 4096, 5000, 65536, 1 << 20] {
        let mut device = Device::default();
        let end = 40 << 20;
        for at in (0..end).step_by(size as usize) {
            device.read(at..at + size, PLENTY);
        }
        let first = device.windows[0].clone();
        assert!(
            device.missed.iter().all(|page| *page < first.start),
            "reads of {size}: {} pages missed",
            device.missed.len()
        );
        let reporting = if size < READAHEAD_FIRST_PAGES * PAGE { 3 } else { 2 };
        assert!(
            first.start <= reporting * size.div_ceil(PAGE),
            "the second read tells, or the third"
        );
        assert!(first.end - first.start >= READAHEAD_FIRST_PAGES);
        assert!(device.windows.windows(2).all(|pair| pair[1].start == pair[0].end));
        let lengths: Vec<u64> =
            device.windows.iter().map(|window| window.end - window.start).collect();
        assert!(lengths.is_sorted() && *lengths.last().unwrap() == READAHEAD_PAGES, "{lengths:?}");
        // Large windows: 40 MiB and the two in advance, of 1 MiB, and five that grow.
        assert!(lengths.len() <= 42 + 5, "{} windows", lengths.len());
    }
}

#[test]
fn a_window_is_asked_for_when_the_one_before_is_entered() {
    let mut device = Device::default();
    for page in 0..2000 {
        let windows = device.windows.len();
        device.read(page * PAGE..(page + 1) * PAGE, PLENTY);
        if let [.., before, new] = &device.windows[..]
            && device.windows.len() > windows
        {
            assert_eq!(page, before.start, "at the first page of a window");
            assert_eq!(new.start, before.end);
        }
    }
    assert!(device.windows.last().unwrap().end <= 2000 + 2 * READAHEAD_PAGES);
}

#[test]
fn neither_random_nor_backward_reads_ask_for_anything() {
    let mut device = Device::default();
    for page in (0..1000).rev() {
        device.read(page * PAGE..(page + 1) * PAGE, PLENTY);
    }
    assert_eq!(device.windows, []);
    let mut random = Random::new(1);
    for _ in 0..10_000 {
        // Of so few pages that some follow each other by chance.
        let page = random.below(5000);
        device.read(page * PAGE..(page + 1) * PAGE, PLENTY);
    }
    assert_eq!(device.windows, []);
}

#[test]
fn several_streams_and_random_reads_between_do_not_disturb_each_other() {
    let mut device = Device::default();
    let far = 1 << 17;
    let mut random = Random::new(1);
    for step in 0..1500 {
        for stream in 0..6 {
            let page = stream * far + step;
            device.read(page * PAGE..(page + 1) * PAGE, PLENTY);
        }
        // Once they have shown themselves.
        for _ in 0..if step > 2 { 12 } else { 0 } {
            let page = (1 << 30) + random.below(1 << 31);
            device.read(page * PAGE..(page + 1) * PAGE, PLENTY);
        }
    }
    let streams_missed = device.missed.iter().filter(|page| **page < 6 * far).count();
    assert_eq!(streams_missed, 6 * 3, "each stream waits for its first three reads");
}

#[test]
fn the_end_of_the_file_and_of_memory_are_heeded() {
    let mut device = Device::default();
    let room = ReadaheadRoom { end: 50, pages: 10 };
    for page in 0..50 {
        device.read(page * PAGE..(page + 1) * PAGE, room);
    }
    assert!(
        device.windows.iter().all(|window| window.end <= 50 && window.end - window.start <= 10)
    );
    assert_eq!(device.windows.last().unwrap().end, 50);
    let mut device = Device::default();
    for page in 0..50 {
        device.read(
            page * PAGE..(page + 1) * PAGE,
            ReadaheadRoom { end: 1000, pages: LEAST_PAGES - 1 },
        );
    }
    assert_eq!(device.windows, [], "no memory");
    device.read(50 * PAGE..51 * PAGE, PLENTY);
    assert_eq!(device.windows.len(), 1, "memory is back, and the stream is known");
}

#[test]
fn what_went_before_it_was_read_makes_windows_smaller() {
    let mut streams = Streams::default();
    let mut window = 0..0;
    for page in 0..3000 {
        let advice = streams.read(page * PAGE..(page + 1) * PAGE, PLENTY);
        window = if advice.ahead.is_empty() { window } else { advice.ahead };
    }
    assert_eq!(window.end - window.start, READAHEAD_PAGES);
    streams.missed(3000);
    let advice = streams.read(3000 * PAGE..3001 * PAGE, PLENTY);
    assert_eq!(advice.ahead, 3001..3001 + READAHEAD_PAGES / 2, "from where the reader is");
}

#[test]
fn reading_on_within_a_page_is_one_use_of_it() {
    let mut streams = Streams::default();
    assert!(!streams.read(0..100, PLENTY).is_same_page);
    assert!(streams.read(100..4000, PLENTY).is_same_page);
    assert!(streams.read(4000..5000, PLENTY).is_same_page, "its last bytes");
    assert!(streams.read(4096..5000, PLENTY).is_same_page, "once more");
    assert!(!streams.read(0..100, PLENTY).is_same_page, "another time");
    streams.read(0..8192, PLENTY);
    assert!(!streams.read(8192..8200, PLENTY).is_same_page, "the next page");
}

#[test]
fn who_gets_less_than_he_asks_for_is_a_stream_all_the_same() {
    let mut device = Device::default();
    for step in 0..100 {
        let at = step * (64 << 10);
        device.read(at..at + (1 << 20), PLENTY);
    }
    assert!(
        device.missed.iter().all(|page| *page < 2 * 256),
        "only the first windows are waited for"
    );
    assert_eq!(device.streams.streams.len(), 1);
}

#[test]
fn a_skip_within_what_is_there_is_no_new_stream() {
    let mut device = Device::default();
    for page in 0..100 {
        device.read(page * PAGE..(page + 1) * PAGE, PLENTY);
    }
    let windows = device.windows.len();
    for page in (110..2000).step_by(10) {
        device.read(page * PAGE..(page + 1) * PAGE, PLENTY);
    }
    assert!(device.windows.len() > windows);
    assert_eq!(device.missed, [0, 1, 2]);
}

proptest! {
    #[test]
    fn bounds(reads in proptest::collection::vec((0_u64..1 << 22, 1_u64..1 << 17, 0_u64..400, 0_u64..1200, 0_u8..4), 1..200)) {
        let mut streams = Streams::default();
        let mut at = 0;
        for (place, length, pages, end, go_on) in reads {
            let start = if go_on > 0 { at } else { place };
            at = start + length;
            let advice = streams.read(start..at, ReadaheadRoom { end, pages });
            let ahead = advice.ahead;
            prop_assert!(ahead.end - ahead.start <= pages.min(READAHEAD_PAGES));
            if !ahead.is_empty() {
                prop_assert!(ahead.end <= end && ahead.start >= at.div_ceil(PAGE));
                let most = at.div_ceil(PAGE) + 2 * READAHEAD_PAGES;
                prop_assert!(ahead.end <= most, "a reader has two windows ahead");
                if go_on == 2 {
                    streams.cut(&ahead, ahead.start + 1);
                }
            }
            prop_assert!(streams.streams.len() <= STREAMS);
        }
    }
}
