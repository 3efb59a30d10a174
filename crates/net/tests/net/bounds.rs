//! Bounds of memory, and of the time that one connection takes from others.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use forebay_net::{Closing, Connection, Event, Options, Received, Room, SendError, What};

use crate::bench::{A_LITTLE, Bench, PATIENCE, kernel_reverses, pattern, read_all, write_all};

/// Writes until the socket takes no more. Returns the number of bytes.
fn stuff(peer: &mut TcpStream) -> usize {
    peer.set_nonblocking(true).unwrap();
    let (piece, mut went) = (pattern(1 << 16, 0), 0);
    loop {
        match peer.write(&piece[went % piece.len()..]) {
            Ok(more) => went += more,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    peer.set_nonblocking(false).unwrap();
    went
}

#[test]
fn contract_18_a_peer_that_never_reads_is_not_read() {
    let options = Options {
        buffers: 32,
        buffer_bytes: 4096,
        connection_bytes: 16 << 10,
        outgoing_bytes: 64 << 10,
        ..Options::default()
    };
    let mut bench = Bench::new(options);
    let (peer, connection) = bench.peer();
    let message = pattern(32 << 20, 1);
    let writer = write_all(&peer, message.clone());
    // Until the kernel's buffers are full both ways and ours too: then nothing happens.
    let (mut most, mut quiet) = (0, 0);
    while quiet < 10 {
        let before = bench.sockets.counters();
        bench.echo();
        most = most.max(bench.sockets.outgoing(connection));
        let counters = bench.sockets.counters();
        assert!(counters.buffers_out <= 32);
        let still = before.received_bytes == counters.received_bytes
            && before.sent_bytes == counters.sent_bytes;
        // If nothing moves, the only calls are waits.
        let calls = counters.enters.all - before.enters.all;
        assert!(!still || calls <= 4, "{calls} calls for nothing");
        quiet = if still && bench.sockets.outgoing(connection) >= 64 << 10 { quiet + 1 } else { 0 };
    }
    assert!(most < 2 * (64 << 10), "{most} bytes waited");
    assert!(
        bench.got(connection).len() < message.len(),
        "it was read to the end though it does not read"
    );
    // Stopped, or without buffers and not started again.
    let counters = bench.sockets.counters();
    assert!(counters.pauses + counters.exhausted > 0, "{counters:?}");
    // Further sends return `Stop`, and fail in the end.
    let mut sent = 0;
    while bench.sockets.send(connection, &[0; 1000]) == Ok(Room::Stop) {
        sent += 1000;
    }
    assert_eq!(bench.sockets.send(connection, &[0; 1000]), Err(SendError::Full));
    assert!(bench.sockets.outgoing(connection) < 2 * (64 << 10) + 1000, "{sent} more were taken");
    // It reads at last, and gets everything.
    let reader = read_all(peer);
    bench.echo_until(|bench| bench.reason(connection).is_some());
    writer.join().unwrap();
    let answer = reader.join().unwrap();
    assert_eq!(answer.len(), message.len() + sent);
    let differ = answer.iter().zip(&message).position(|(got, sent)| got != sent).unwrap();
    assert!(
        answer[differ..differ + sent].iter().all(|&byte| byte == 0),
        "what was sent beside it is in one piece"
    );
    assert!(answer[differ + sent..] == message[differ..], "and the rest behind it");
    bench.end();
}

#[test]
fn contract_18_without_buffers_nothing_is_lost() {
    let options = Options { buffers: 2, buffer_bytes: 64, ..Options::default() };
    let mut bench = Bench::new(options);
    let mut peers: Vec<(TcpStream, Connection)> = (0..8).map(|_| bench.peer()).collect();
    for (number, (peer, _)) in peers.iter_mut().enumerate() {
        peer.write_all(&pattern(1000, number)).unwrap();
    }
    // The test keeps both buffers for a while, so no receive finds one.
    let mut kept: Vec<Event<u64>> = Vec::new();
    while bench.sockets.counters().buffers_out < 2 || bench.sockets.counters().exhausted < 6 {
        kept.extend(bench.poll(A_LITTLE));
    }
    assert!(bench.poll(A_LITTLE).is_empty());
    drop(kept);
    bench.until(|bench| peers.iter().all(|(_, connection)| bench.got(*connection).len() == 1000));
    for (number, (_, connection)) in peers.iter().enumerate() {
        assert!(bench.got(*connection) == pattern(1000, number), "connection {number}");
    }
    bench.end();
}

#[test]
fn buffers_that_come_back_wake_who_needs_them() {
    let options = Options { buffers: 1, buffer_bytes: 64, ..Options::default() };
    let mut bench = Bench::new(options);
    let (mut first, _) = bench.peer();
    let (mut second, connection) = bench.peer();
    first.write_all(b"a").unwrap();
    let kept: Received = loop {
        let mut events = bench.poll(PATIENCE);
        if let Some(What::Received { bytes, .. }) = events.pop().map(|event| event.what) {
            break bytes;
        }
    };
    second.write_all(b"b").unwrap();
    let there = thread::spawn(move || {
        // Whether the poll sleeps by now or not: it must not sleep on.
        thread::sleep(A_LITTLE);
        drop(kept);
    });
    let mut events = Vec::new();
    bench.sockets.poll(None, &mut events).unwrap();
    let came = |event: &Event<u64>| {
        let What::Received { connection: from, .. } = &event.what else { return false };
        *from == connection
    };
    assert!(events.iter().any(came), "{events:?}");
    drop(events);
    there.join().unwrap();
    bench.end();
}

/// A flood arrives before a message. The test counts the bytes of the flood that delay it.
#[test]
fn contract_15_a_flood_delays_a_message_by_a_pass() {
    let options = Options {
        buffers: 256,
        buffer_bytes: 1024,
        pass_bytes: 16 << 10,
        connection_bytes: 4 << 10,
        ..Options::default()
    };
    let mut bench = Bench::new(options);
    let mut floods: Vec<(TcpStream, Connection)> = (0..2).map(|_| bench.peer()).collect();
    let (mut quiet, connection) = bench.peer();
    let flooded: usize = floods.iter_mut().map(|(peer, _)| stuff(peer)).sum();
    assert!(flooded > 200 << 10, "only {flooded} bytes");
    // Some of the flood is here, and some of it taken.
    for _ in 0..4 {
        bench.poll(PATIENCE);
    }
    let before = bench.sockets.counters();
    quiet.write_all(b"me too").unwrap();
    let mut flood = 0;
    while bench.got(connection).is_empty() {
        for event in bench.poll(PATIENCE) {
            if let What::Received { connection: from, bytes } = event.what
                && from != connection
            {
                flood += bytes.len();
            }
        }
    }
    let passes = bench.sockets.counters().passes - before.passes;
    // One pass may have begun without it, because the kernel reports it with the next call.
    assert!(passes <= 2, "told in pass {passes}");
    assert!(flood <= 2 * 2 * (4 << 10), "{flood} bytes of the flood went before");
    let counted = bench.sockets.counters();
    assert!(kernel_reverses() || counted.passes_bounded > 0 && counted.pauses > 0);
    // And the flood is whole.
    bench.until(|bench| {
        floods.iter().map(|(_, flood)| bench.got(*flood).len()).sum::<usize>() == flooded
    });
    for (_, flood) in &floods {
        let piece = pattern(1 << 16, 0);
        assert!(bench.got(*flood).chunks(piece.len()).all(|chunk| chunk == &piece[..chunk.len()]));
    }
    bench.end();
}

#[test]
fn contract_15_a_pass_has_its_budget_and_each_its_share() {
    const PEERS: usize = 10;
    let options = Options {
        buffers: 256,
        buffer_bytes: 1024,
        pass_bytes: 20_000,
        connection_bytes: 5_000,
        ..Options::default()
    };
    let mut bench = Bench::new(options);
    let mut peers: Vec<(TcpStream, Connection)> = (0..PEERS).map(|_| bench.peer()).collect();
    let total: usize = peers.iter_mut().map(|(peer, _)| stuff(peer)).sum();
    let mut got = 0;
    // How many passes in a row each had nothing of.
    let mut passed_over = [0; PEERS];
    while got < total.min(2 << 20) {
        let mut of = [0; PEERS];
        for event in bench.poll(PATIENCE) {
            let What::Received { connection, bytes } = event.what else { continue };
            of[peers.iter().position(|(_, peer)| *peer == connection).unwrap()] += bytes.len();
        }
        let pass: usize = of.iter().sum();
        assert!(pass < 20_000 + 1024, "a pass of {pass}");
        assert!(of.iter().all(|&share| share < 5_000 + 1024), "{of:?}");
        for (times, of) in passed_over.iter_mut().zip(of) {
            *times = if of == 0 { *times + 1 } else { 0 };
            // Nine others with a share each take three passes, and completions that the kernel has
            // not reported yet one more.
            assert!(*times <= 6 || kernel_reverses(), "passed over {times} times");
        }
        got += pass;
        bench.received.clear();
    }
    for (_, connection) in &peers {
        bench.sockets.close(*connection, Closing::Now);
    }
    bench.until(|bench| bench.closed.len() == PEERS);
    assert!(bench.poll(Duration::ZERO).is_empty());
    bench.end();
}
