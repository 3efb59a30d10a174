//! Events, and work of other threads, come in the order of arrival, with one wake per batch.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use forebay_block::knobs::Order;
use forebay_net::{Connection, Options, What};

use crate::bench::{Bench, PATIENCE, kernel_reverses};

/// Peers that spoke in turn, and then one pass: arrival, connection and bytes of each event.
fn spoken(
    bench: &mut Bench,
    peers: &mut [(TcpStream, Connection)],
) -> Vec<(u64, Connection, Vec<u8>)> {
    // Start all receives. One that is started late would find its bytes at once, and come first.
    bench.poll(Duration::ZERO);
    for round in 0..3 {
        for (number, (peer, _)) in peers.iter_mut().enumerate() {
            peer.write_all(&[u8::try_from(number).unwrap() << 4 | round; 64]).unwrap();
        }
    }
    let mut told = Vec::new();
    while told.iter().map(|(_, _, bytes): &(u64, Connection, Vec<u8>)| bytes.len()).sum::<usize>()
        < peers.len() * 3 * 64
    {
        for event in bench.poll(PATIENCE) {
            if let What::Received { connection, bytes } = event.what {
                told.push((event.arrival, connection, bytes.to_vec()));
            }
        }
    }
    told
}

/// Items of one pass that come after an item that arrived later.
fn inversions(arrivals: &[u64]) -> usize {
    let is_inverted = |at: &usize| arrivals[..*at].iter().any(|other| *other > arrivals[*at]);
    (0..arrivals.len()).filter(is_inverted).count()
}

/// Fifo never inverts. Lifo inverts in each pass with items of two connections, and in no other.
#[test]
fn contract_15_inversions_follow_from_the_order_alone() {
    for order in [Order::Fifo, Order::Lifo] {
        for connections in [1, 2, 4, 32] {
            // Passes of a few pieces, some of them bounded.
            let bounds = Options { connection_bytes: 700, pass_bytes: 6000, ..of_pieces(order) };
            let mut bench = Bench::new(bounds);
            let mut peers: Vec<_> = (0..connections).map(|_| bench.peer()).collect();
            let mut of_several = 0;
            for round in 1..=20 {
                for (number, (peer, _)) in (1..).zip(&mut peers) {
                    peer.write_all(&vec![1; 64 * (1 + round * number % 3)]).unwrap();
                }
                let sent = |number| (1..=round).map(|round| 64 * (1 + round * number % 3)).sum();
                let is_here = |bench: &Bench| {
                    (1..).zip(&peers).all(|(number, (_, peer))| {
                        let sent: usize = sent(number);
                        bench.got(*peer).len() == sent
                    })
                };
                while !is_here(&bench) {
                    let events = bench.poll(PATIENCE);
                    let arrivals: Vec<u64> = events.iter().map(|event| event.arrival).collect();
                    let first = events.first().and_then(|event| event.what.connection());
                    let is_of_several = events.iter().any(|event| event.what.connection() != first);
                    let is_inverted = order == Order::Lifo && is_of_several;
                    assert_eq!(inversions(&arrivals) > 0, is_inverted, "{order:?}: {events:?}");
                    of_several += usize::from(is_of_several);
                }
            }
            assert_eq!(of_several > 0, connections > 1, "{connections} connections");
            bench.end();
        }
    }
}

/// Buffers of one message, so that each connection has several pieces.
fn of_pieces(order: Order) -> Options {
    Options { order, buffer_bytes: 64, ..Options::default() }
}

#[test]
fn contract_15_events_come_as_they_arrived() {
    let mut bench = Bench::new(of_pieces(Order::Fifo));
    let mut peers: Vec<_> = (0..4).map(|_| bench.peer()).collect();
    for _ in 0..5 {
        let told = spoken(&mut bench, &mut peers);
        let arrivals: Vec<u64> = told.iter().map(|(arrival, ..)| *arrival).collect();
        assert_eq!(inversions(&arrivals), 0, "{arrivals:?}");
        // The connections are first heard in the kernel's order: the order of their writes.
        let mut heard: Vec<Connection> =
            told.iter().map(|(_, connection, _)| *connection).collect();
        let mut seen = Vec::new();
        heard.retain(|connection| {
            !seen.contains(connection) && {
                seen.push(*connection);
                true
            }
        });
        let mut spoke: Vec<Connection> = peers.iter().map(|(_, connection)| *connection).collect();
        if kernel_reverses() {
            spoke.reverse();
        }
        assert_eq!(heard, spoke);
    }
    bench.end();
}

#[test]
fn reversed_work_is_seen_and_streams_stay_whole() {
    let mut bench = Bench::new(of_pieces(Order::Lifo));
    let mut peers: Vec<_> = (0..4).map(|_| bench.peer()).collect();
    bench.received.clear();
    let told = spoken(&mut bench, &mut peers);
    let arrivals: Vec<u64> = told.iter().map(|(arrival, ..)| *arrival).collect();
    assert!(inversions(&arrivals) > 0, "{arrivals:?}");
    for (number, (_, connection)) in peers.iter().enumerate() {
        let number = u8::try_from(number).unwrap();
        let expected: Vec<u8> = (0..3).flat_map(|round| [number << 4 | round; 64]).collect();
        assert!(bench.got(*connection) == expected, "the bytes of a connection stay in order");
        let own: Vec<u64> = told
            .iter()
            .filter(|(_, from, _)| from == connection)
            .map(|(arrival, ..)| *arrival)
            .collect();
        assert_eq!(inversions(&own), 0);
    }
    // Posted work is reversed one by one.
    let poster = bench.sockets.poster();
    (0..10).for_each(|number| poster.post(number));
    let mut posted = Vec::new();
    while posted.len() < 10 {
        posted.extend(bench.poll(PATIENCE).into_iter().filter_map(|event| match event.what {
            What::Posted(number) => Some(number),
            _ => None,
        }));
    }
    assert_eq!(posted, (0..10).rev().collect::<Vec<u64>>());
    bench.end();
}

#[test]
fn contract_15_a_batch_of_posts_is_one_wake() {
    let mut bench = Bench::new(Options::default());
    let poster = bench.sockets.poster();
    for batch in 1..=3 {
        thread::scope(|scope| {
            scope.spawn(|| (0..100).for_each(|number| poster.post(number)));
        });
        let mut told = Vec::new();
        while told.len() < 100 {
            told.extend(bench.poll(PATIENCE).into_iter().map(|event| match event.what {
                What::Posted(number) => number,
                other => panic!("{other:?}"),
            }));
        }
        assert_eq!(told, (0..100).collect::<Vec<u64>>());
        let counters = bench.sockets.counters();
        assert_eq!((counters.posts, counters.wakes), (batch * 100, batch));
    }
    bench.end();
}

#[test]
fn a_post_wakes_a_poll_that_waits() {
    let mut bench = Bench::new(Options::default());
    let poster = bench.sockets.poster();
    for number in 0..20 {
        thread::scope(|scope| {
            scope.spawn(|| {
                if number % 2 == 0 {
                    thread::sleep(Duration::from_millis(5));
                }
                poster.post(number);
            });
            let mut events = Vec::new();
            bench.sockets.poll(None, &mut events).unwrap();
            let [event] = &events[..] else { panic!("{events:?}") };
            assert!(matches!(event.what, What::Posted(posted) if posted == number), "{event:?}");
        });
    }
    bench.end();
}

#[test]
fn contract_15_no_post_is_lost_under_a_storm() {
    const EACH: u64 = 20_000;
    let mut bench = Bench::new(Options::default());
    thread::scope(|scope| {
        for thread in 0..3u64 {
            let poster = bench.sockets.poster();
            scope.spawn(move || (0..EACH).for_each(|number| poster.post(thread << 32 | number)));
        }
        let mut next = [0; 3];
        while next != [EACH; 3] {
            let mut events = Vec::new();
            bench.sockets.poll(None, &mut events).unwrap();
            for event in events {
                let What::Posted(posted) = event.what else { panic!("{event:?}") };
                let thread = usize::try_from(posted >> 32).unwrap();
                assert_eq!(posted & 0xffff_ffff, next[thread], "of thread {thread}");
                next[thread] += 1;
            }
        }
    });
    let counters = bench.sockets.counters();
    assert_eq!(counters.posts, 3 * EACH);
    assert!(counters.wakes < counters.posts, "{counters:?}");
    bench.end();
}

/// The answers of a pass go with the next call, for all connections.
#[test]
fn one_call_sends_what_a_pass_answers() {
    let mut bench = Bench::new(Options::default());
    let mut peers: Vec<_> = (0..20).map(|_| bench.peer()).collect();
    // Nothing is left to be done from before.
    bench.poll(Duration::ZERO);
    let before = bench.sockets.counters();
    for (_, connection) in &peers {
        for _ in 0..5 {
            bench.sockets.send(*connection, b"nine byte").unwrap();
        }
    }
    assert_eq!(bench.sockets.counters().enters, before.enters, "what is sent waits for the poll");
    bench.poll(Duration::ZERO);
    let after = bench.sockets.counters();
    assert_eq!((after.sends - before.sends, after.sent_bytes - before.sent_bytes), (20, 20 * 45));
    assert_eq!(after.enters.all - before.enters.all, 1);
    for (peer, _) in &mut peers {
        let mut got = [0; 45];
        peer.read_exact(&mut got).unwrap();
        assert_eq!(got, *b"nine byte".repeat(5));
    }
    bench.end();
}
