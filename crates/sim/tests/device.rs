//! Devices: contract 10, one thing after the other.

mod common;

use common::single::{Single, data, on_machine};
use forebay_block::Operation;
use forebay_block::limits::PAGE;
use forebay_cache::{Caching, Failure, FrameRuns, ReadStop, Reader, Reason, TicketKind, WriteStop};
use forebay_sim::faults::Faults;
use forebay_sim::random::PerMille;
use forebay_sim::world::machine::set_faults;

const BLOCK: u64 = PAGE as u64;

/// Ten pages and three sectors.
const SIZE: u64 = 10 * BLOCK + 3 * 512;

fn discard(pages: std::ops::Range<u64>) -> TicketKind {
    TicketKind::Discard { first: pages.start, pages: pages.end - pages.start }
}

/// What was sent since, without the flushes.
fn sent(single: &Single, since: usize) -> Vec<(Operation, u64, u64)> {
    single.sent[since..].iter().map(|bio| (bio.operation, bio.offset, bio.length)).collect()
}

#[test]
fn contract_10_the_last_page_goes_direct_as_long_as_it_is() {
    on_machine(|| {
        let mut single = Single::device(SIZE);
        let bytes = data(1, SIZE as usize);
        single.write(0, &bytes);
        single.send(Reason::Background);
        assert_eq!(sent(&single, 0), [(Operation::Write, 0, SIZE)]);
        // Touched while it is in flight, and in part.
        single.write(SIZE - 5, &data(9, 5));
        assert_eq!(single.ask(TicketKind::FlushData), Ok(()));
        assert_eq!(sent(&single, 1)[0], (Operation::Write, 10 * BLOCK, 3 * 512));
        assert!(single.stored()[..SIZE as usize - 5] == bytes[..SIZE as usize - 5]);
        assert!(single.stored()[SIZE as usize - 5..] == data(9, 5));
        assert_eq!((single.cache.size(), single.cache.disk_size()), (SIZE, SIZE));
    });
}

#[test]
fn contract_10_a_part_of_the_last_page_is_read_changed_and_written() {
    on_machine(|| {
        let mut single = Single::device(SIZE);
        single.write(SIZE - 700, &data(1, 100));
        assert_eq!(single.ask(TicketKind::FlushData), Ok(()));
        let expected = [
            (Operation::Read, 10 * BLOCK, 3 * 512),
            (Operation::Write, 10 * BLOCK, 3 * 512),
            (Operation::FlushData, 0, 0),
        ];
        assert_eq!(sent(&single, 0), expected);
        let stored = single.stored();
        assert!(stored[SIZE as usize - 700..SIZE as usize - 600] == data(1, 100));
        assert!(
            stored[..SIZE as usize - 700]
                .iter()
                .chain(&stored[SIZE as usize - 600..])
                .all(|byte| *byte == 0)
        );
    });
}

#[test]
fn contract_10_a_discard_waits_for_what_is_on_its_way_and_holds_off_what_is_new() {
    on_machine(|| {
        let mut single = Single::device(SIZE);
        single.write(0, &data(1, 5 * PAGE));
        single.send(Reason::Background);
        single.write(7 * BLOCK, &data(2, PAGE));
        let (copies, planned) = single.plan(8 * BLOCK, PAGE);
        let id = single.cache.ask(discard(3..9));
        // Pages in flight, and one that is being copied into.
        assert_eq!(single.send(Reason::Sync), 0);
        assert_eq!(single.refused(5 * BLOCK, PAGE), WriteStop::Busy);
        assert_eq!(single.refused(4 * BLOCK + 5, 10), WriteStop::Busy);
        let (_, stop) = single.cache.begin_read(
            6 * BLOCK,
            10,
            Reader { caching: Caching::Cached, again: None, first_fill: 0 },
            &mut FrameRuns::default(),
            &mut Vec::new(),
        );
        assert_eq!(stop, ReadStop::Busy);
        single.end_one();
        assert_eq!(single.send(Reason::Sync), 0, "one is still being copied into");
        single.publish(&copies, &data(3, planned));
        // Beside it everything goes on, up to the fence and behind it.
        single.write(2 * BLOCK, &data(4, PAGE));
        single.write(9 * BLOCK, &data(5, PAGE));
        let before = single.sent.len();
        assert_eq!(single.send(Reason::Sync), 1);
        assert_eq!(sent(&single, before), [(Operation::Discard, 3 * BLOCK, 6 * BLOCK)]);
        // Dirty pages there are not sent meanwhile.
        let before = single.sent.len();
        let sync = single.cache.ask(TicketKind::FlushData);
        single.send(Reason::Sync);
        let writes = [(Operation::Write, 9 * BLOCK, BLOCK), (Operation::Write, 2 * BLOCK, BLOCK)];
        assert_eq!(sent(&single, before), writes);
        assert_eq!(single.wait(id), Ok(()));
        single.write(7 * BLOCK, &data(6, PAGE));
        assert_eq!(single.wait(sync), Ok(()));
        assert_eq!(single.ask(TicketKind::FlushData), Ok(()));
        assert_eq!(single.cache.dirty_pages(), 0);
        let stored = single.stored();
        assert!(stored[7 * PAGE..8 * PAGE] == data(6, PAGE), "written after it");
        assert!(stored[8 * PAGE..9 * PAGE] != data(3, PAGE), "dropped");
        assert!(
            stored[..2 * PAGE] == data(1, 5 * PAGE)[..2 * PAGE]
                && stored[9 * PAGE..10 * PAGE] == data(5, PAGE)
        );
    });
}

#[test]
fn contract_10_a_discard_that_fails_leaves_everything() {
    on_machine(|| {
        let mut single = Single::device(SIZE);
        single.write(100, &data(1, 3 * PAGE));
        set_faults(Faults { allocate: PerMille(1000), ..Faults::NONE });
        assert!(matches!(single.ask(discard(0..11)), Err(Failure::Discard(_))));
        set_faults(Faults::NONE);
        assert_eq!(single.ask(TicketKind::FlushAll), Ok(()));
        assert!(single.stored()[100..100 + 3 * PAGE] == data(1, 3 * PAGE));
    });
}

#[test]
fn contract_10_discards_that_overlap_take_turns() {
    on_machine(|| {
        let mut single = Single::device(SIZE);
        single.write(0, &data(1, 8 * PAGE));
        let asked = [0..4, 2..6, 6..8].map(|pages| single.cache.ask(discard(pages)));
        // The device stops what touches.
        assert_eq!(single.send(Reason::Sync), 2);
        for id in asked {
            assert_eq!(single.wait(id), Ok(()));
        }
        assert_eq!((single.sent.len(), single.cache.dirty_pages()), (3, 0));
        single.write(0, &data(2, 8 * PAGE));
        assert_eq!(single.ask(TicketKind::FlushData), Ok(()));
        assert!(single.stored()[..8 * PAGE] == data(2, 8 * PAGE));
    });
}
