//! Syncs at the same time share flushes, and wait for no more than they have to.

mod common;

use common::single::{Single, data, on_machine};
use forebay_block::Operation;
use forebay_block::limits::PAGE;
use forebay_cache::{Reason, TicketId, TicketKind};

fn flushes(single: &Single) -> usize {
    single.operations().iter().filter(|operation| **operation == Operation::FlushData).count()
}

/// Each writes a page of its own, far from the others', and asks.
fn ask_all(single: &mut Single, count: u64) -> Vec<TicketId> {
    let ask = |number| {
        single.write(number * 100 * PAGE as u64, &data(number as u8, PAGE));
        single.cache.ask(TicketKind::FlushData)
    };
    (0..count).map(ask).collect()
}

#[test]
fn contract_01_syncs_at_the_same_time_share_two_flushes() {
    on_machine(|| {
        let mut single = Single::new();
        single.write(0, &data(7, 40 * 100 * PAGE));
        single.ask(TicketKind::FlushData).unwrap();
        let before = flushes(&single);
        let tickets = ask_all(&mut single, 32);
        for ticket in tickets {
            single.wait(ticket).unwrap();
        }
        // One for the first ticket. Meanwhile the others are written, and share the next.
        assert_eq!(flushes(&single) - before, 2);
    });
}

#[test]
fn contract_01_who_asks_during_a_flush_joins_the_next() {
    on_machine(|| {
        let mut single = Single::new();
        single.write(0, &data(1, 4 * PAGE));
        single.ask(TicketKind::FlushData).unwrap();
        let before = flushes(&single);
        single.write(0, &data(2, PAGE));
        let first = single.cache.ask(TicketKind::FlushData);
        single.send(Reason::Sync);
        single.end_one();
        single.send(Reason::Sync);
        assert_eq!(flushes(&single) - before, 1, "its page is written, the flush is under way");
        // Nothing was accepted since, so the flush under way is enough.
        let nothing_new = single.cache.ask(TicketKind::FlushData);
        // It does not cover bytes that are accepted now.
        single.write(PAGE as u64, &data(3, PAGE));
        let others: Vec<_> = (0..9).map(|_| single.cache.ask(TicketKind::FlushData)).collect();
        assert_eq!(single.send(Reason::Sync), 1, "its page, and no second flush");
        single.wait(first).unwrap();
        single.wait(nothing_new).unwrap();
        for other in others {
            single.wait(other).unwrap();
        }
        assert_eq!(flushes(&single) - before, 2);
    });
}

#[test]
fn contract_01_a_sync_of_what_is_durable_costs_no_flush() {
    on_machine(|| {
        let mut single = Single::new();
        single.write(0, &data(1, 4 * PAGE));
        single.ask(TicketKind::FlushData).unwrap();
        let before = flushes(&single);
        for _ in 0..5 {
            single.ask(TicketKind::FlushData).unwrap();
        }
        assert_eq!(flushes(&single), before);
    });
}
