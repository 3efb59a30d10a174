//! The end of a file, and space beyond it: contracts 8, 9 and 11, one thing after the other.

mod common;

use common::single::{Single, data, on_machine};
use forebay_block::limits::PAGE;
use forebay_block::{Bio, Operation};
use forebay_cache::{Prepare, Reason, TicketKind};
use forebay_sim::stored::StoredFile;

const BLOCK: u64 = PAGE as u64;

fn writes(single: &Single) -> Vec<(Operation, u64, u64)> {
    let is_write =
        |bio: &&Bio| matches!(bio.operation, Operation::Write | Operation::WriteBuffered);
    single.sent.iter().filter(is_write).map(|bio| (bio.operation, bio.offset, bio.length)).collect()
}

#[test]
fn contract_08_the_block_of_the_end_is_never_written_direct() {
    on_machine(|| {
        let mut single = Single::new();
        single.write(0, &data(1, PAGE + 100));
        assert_eq!(single.ask(TicketKind::FlushData), Ok(()));
        assert_eq!(single.look(StoredFile::size), BLOCK + 100);
        assert_eq!(
            writes(&single),
            [(Operation::Write, 0, BLOCK), (Operation::WriteBuffered, BLOCK, 100)]
        );
        // Direct once it is full.
        single.write(BLOCK + 100, &data(2, PAGE - 100));
        assert_eq!(single.ask(TicketKind::FlushData), Ok(()));
        assert_eq!(single.look(StoredFile::size), 2 * BLOCK);
        assert_eq!(writes(&single)[2], (Operation::Write, BLOCK, BLOCK));
    });
}

#[test]
fn contract_08_nothing_is_in_flight_beside_the_end() {
    on_machine(|| {
        let mut single = Single::new();
        for page in 0..40 {
            single.write(page * 50 * BLOCK, &data(3, PAGE));
        }
        single.write(2_000 * BLOCK, &data(4, 10));
        // The device stops the run where something is.
        assert_eq!(single.ask(TicketKind::FlushData), Ok(()));
        assert_eq!(single.look(StoredFile::size), 2_000 * BLOCK + 10);
        assert_eq!(writes(&single).last(), Some(&(Operation::WriteBuffered, 2_000 * BLOCK, 10)));
    });
}

#[test]
fn contract_08_one_request_moves_the_end_at_a_time() {
    for stride in [1, 3, 40] {
        on_machine(move || {
            let mut single = Single::new();
            for page in 0..60 {
                single.write(page * stride * BLOCK, &data(5, PAGE));
            }
            single.cache.ask(TicketKind::WriteOut);
            while single.cache.is_dirty() {
                let disk_size = single.cache.disk_size();
                let before = single.sent.len();
                single.send(Reason::Sync);
                let extending = single.sent[before..].iter().filter(|bio| bio.end() > disk_size);
                assert!(extending.count() <= 1, "stride {stride}");
                single.end_one();
            }
            assert_eq!(single.look(StoredFile::size), (59 * stride + 1) * BLOCK);
        });
    }
}

#[test]
fn contract_09_space_beyond_the_end_is_bounded_and_given_back() {
    on_machine(|| {
        let mut single = Single::new();
        single.write(0, &data(6, 640 * PAGE));
        single.send(Reason::Background);
        let reserved = single.sent.iter().find(|bio| bio.operation == Operation::Allocate).unwrap();
        assert_eq!(
            (reserved.offset, reserved.end()),
            (0, 1280 * BLOCK),
            "as much again beyond the end"
        );
        assert_eq!(single.ask(TicketKind::FlushData), Ok(()));
        assert_eq!(single.look(StoredFile::allocated_beyond_end), Some(640));
        assert_eq!(single.ask(TicketKind::Release), Ok(()));
        assert_eq!(single.look(StoredFile::allocated_beyond_end), None);
        assert_eq!(single.look(StoredFile::size), 640 * BLOCK);
    });
}

#[test]
fn contract_09_what_was_reserved_and_never_written_is_punched() {
    on_machine(|| {
        let mut single = Single::new();
        assert_eq!(single.ask(TicketKind::SetLength(2_000 * BLOCK)), Ok(()));
        for page in (0..1_000).step_by(5) {
            single.write(page * BLOCK, &data(7, PAGE));
        }
        assert_eq!(single.ask(TicketKind::FlushData), Ok(()));
        assert_eq!(single.look(|file| file.allocated().len()), 2_000);
        assert_eq!(single.ask(TicketKind::Release), Ok(()));
        assert!(single.operations().contains(&Operation::Punch));
        assert!(single.look(|file| file.allocated().len()) < 1_100);
        assert_eq!(single.look(StoredFile::size), 2_000 * BLOCK);
        for page in (0..1_000).step_by(5) {
            assert_eq!(single.look(|file| file.read(page * BLOCK, BLOCK)), data(7, PAGE));
        }
    });
}

#[test]
fn contract_11_a_page_touched_in_flight_gets_a_new_frame() {
    on_machine(|| {
        let mut single = Single::new();
        single.write(0, &data(8, PAGE));
        single.send(Reason::Background);
        let (copies, _) = single.plan(100, 50);
        let Prepare::From(old) = copies[0].prepare else { panic!("{:?}", copies[0]) };
        assert_ne!(copies[0].frame, old);
        single.publish(&copies, &data(9, 50));
        // The device checks that the frame it writes from does not change.
        single.end_one();
        assert_eq!(single.stored(), data(8, PAGE));
        assert!(single.cache.is_dirty());
        assert_eq!(single.ask(TicketKind::FlushData), Ok(()));
        assert_eq!(single.stored()[100..150], data(9, 50));
    });
}
