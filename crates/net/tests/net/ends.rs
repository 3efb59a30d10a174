//! Ends of connections: reset, timed out, closed at every point of their life.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use forebay_block::Errno;
use forebay_net::{Address, Closing, EndReason, Options, SendError, Sockets, What};

use crate::bench::{Bench, PATIENCE, pattern, read_all, reset, until_refused};

/// An address that no other test uses.
fn alone(test: u8) -> String {
    format!("127.0.2.{test}:0")
}

#[test]
fn an_address_in_use_is_named() {
    let mut bench = Bench::new(Options::default());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    bench.sockets.listen(&path.clone().into(), 8).unwrap();
    for address in [Address::Tcp(bench.address), Address::Unix(path)] {
        let error = bench.sockets.listen(&address, 8).unwrap_err();
        assert_eq!(error.source.kind(), ErrorKind::AddrInUse);
        let text = error.to_string();
        assert!(text.contains(&address.to_string()) && text.contains("listens there"), "{text}");
    }
    // And those that are there still listen.
    bench.peer();
    bench.end();
}

#[test]
fn a_peer_that_is_gone_before_it_is_accepted() {
    let mut bench = Bench::new(Options::default());
    drop(TcpStream::connect(bench.address).unwrap());
    let mut spoke = TcpStream::connect(bench.address).unwrap();
    spoke.write_all(b"hello").unwrap();
    drop(spoke);
    reset(TcpStream::connect(bench.address).unwrap());
    // Those that closed are accepted and finish; the one that was reset is accepted and closed, or
    // never seen.
    bench.until(|bench| bench.finished.len() == 2);
    let spoken: Vec<&[u8]> =
        bench.finished.iter().map(|&connection| bench.got(connection)).collect();
    assert_eq!(spoken, [&b""[..], b"hello"]);
    // And the next is accepted as ever.
    bench.peer();
    bench.end();
}

#[test]
fn a_peer_that_goes_in_the_middle_of_a_message() {
    let mut bench = Bench::new(Options::default());
    let (mut polite, first) = bench.peer();
    polite.write_all(b"half a mess").unwrap();
    drop(polite);
    bench.until(|bench| bench.finished == [first]);
    assert_eq!(bench.got(first), b"half a mess");
    let (mut rude, second) = bench.peer();
    rude.write_all(b"half").unwrap();
    bench.until(|bench| bench.got(second) == b"half");
    reset(rude);
    bench.until(|bench| bench.reason(second).is_some());
    assert_eq!(bench.reason(second), Some(EndReason::Failed(Errno(libc::ECONNRESET))));
    assert_eq!(bench.reason(first), None, "one that has finished is kept until it is closed");
    bench.end();
}

#[test]
fn a_peer_that_goes_while_a_send_is_under_way() {
    let mut bench = Bench::new(Options::default());
    let (peer, connection) = bench.peer();
    // More than the kernel's buffers hold, so that a send does not end.
    bench.sockets.send(connection, &vec![1; 16 << 20]).unwrap();
    for _ in 0..3 {
        bench.poll(Duration::from_millis(1));
    }
    assert!(bench.sockets.outgoing(connection) > 0);
    reset(peer);
    bench.until(|bench| bench.reason(connection).is_some());
    let Some(EndReason::Failed(Errno(code))) = bench.reason(connection) else {
        panic!("{:?}", bench.closed)
    };
    assert!([libc::ECONNRESET, libc::EPIPE].contains(&code), "{code}");
    assert_eq!(bench.sockets.send(connection, b"more"), Err(SendError::Closed));
    bench.end();
}

#[test]
fn connections_beyond_the_limit_wait_for_a_place() {
    let mut bench = Bench::new(Options { connections: 2, ..Options::default() });
    let peers: Vec<TcpStream> =
        (0..5).map(|_| TcpStream::connect(bench.address).unwrap()).collect();
    for (number, mut peer) in (1..).zip(&peers) {
        peer.write_all(&[number]).unwrap();
    }
    for served in 0..5 {
        bench.until(|bench| bench.connections.len() == (served + 2).min(5));
        let connection = bench.connections[served];
        let expected = [u8::try_from(served + 1).unwrap()];
        bench.until(|bench| bench.got(connection) == expected);
        bench.poll(Duration::ZERO);
        let there = bench.sockets.counters().connections;
        assert_eq!(there, if served < 4 { 2 } else { 1 });
        bench.sockets.close(connection, Closing::Now);
        bench.until(|bench| bench.reason(connection).is_some());
    }
    bench.end();
}

#[test]
fn contract_13_a_stale_number_is_nobodys() {
    let mut bench = Bench::new(Options::default());
    let (peer, old) = bench.peer();
    bench.sockets.close(old, Closing::Now);
    bench.until(|bench| bench.reason(old).is_some());
    drop(peer);
    // The next takes its place, for it is the only free one.
    let (mut peer, new) = bench.peer();
    assert_ne!(old, new);
    assert_eq!(bench.sockets.send(old, b"not for you"), Err(SendError::Closed));
    assert_eq!(bench.sockets.outgoing(old), 0);
    bench.sockets.close(old, Closing::Now);
    bench.sockets.send(new, b"for you").unwrap();
    bench.sockets.close(new, Closing::AfterSending);
    bench.until(|bench| bench.reason(new) == Some(EndReason::Asked));
    let mut got = String::new();
    peer.read_to_string(&mut got).unwrap();
    assert_eq!(got, "for you");
    bench.end();
}

#[test]
fn what_was_sent_arrives_though_closed_behind_it() {
    let mut bench = Bench::new(Options::default());
    let (peer, connection) = bench.peer();
    let message = pattern(8 << 20, 3);
    bench.sockets.send(connection, &message).unwrap();
    bench.sockets.close(connection, Closing::AfterSending);
    let reader = read_all(peer);
    bench.until(|bench| bench.reason(connection) == Some(EndReason::Asked));
    assert!(reader.join().unwrap() == message, "all of it");
    bench.end();
}

#[test]
fn what_is_closed_now_is_told_nothing_more() {
    // A pass returns one piece of each connection, so some wait.
    let options = Options { connection_bytes: 1, ..Options::default() };
    let mut bench = Bench::new(options);
    let (mut peer, connection) = bench.peer();
    peer.write_all(&vec![1; 200_000]).unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    bench.until(|bench| !bench.got(connection).is_empty());
    let got = bench.got(connection).len();
    bench.sockets.send(connection, &vec![2; 16 << 20]).unwrap();
    bench.sockets.close(connection, Closing::Now);
    bench.sockets.close(connection, Closing::AfterSending);
    let mut told = Vec::new();
    while bench.reason(connection).is_none() {
        told.extend(bench.poll(PATIENCE));
    }
    let about = told.iter().filter(|event| event.what.connection() == Some(connection));
    assert!(about.count() == 1 && bench.got(connection).len() == got, "{told:?}");
    assert_eq!(bench.reason(connection), Some(EndReason::Asked));
    drop(told);
    bench.end();
}

#[test]
fn contract_05_dropped_it_lets_go_of_everything() {
    let mut bench = Bench::at(Options::default(), &alone(3));
    let (mut peer, connection) = bench.peer();
    let (_other, another) = bench.peer();
    peer.write_all(b"kept").unwrap();
    let mut kept = None;
    while kept.is_none() {
        let mut events = Vec::new();
        bench.sockets.poll(Some(PATIENCE), &mut events).unwrap();
        kept = events.into_iter().find_map(|event| match event.what {
            What::Received { bytes, .. } => Some(bytes),
            _ => None,
        });
    }
    // A receive, a send and an accept are in flight, and one more send is queued.
    bench.sockets.send(connection, &vec![1; 16 << 20]).unwrap();
    bench.poll(Duration::ZERO);
    bench.sockets.send(another, b"more").unwrap();
    let address = bench.address;
    drop(bench);
    until_refused(address);
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    // The bytes that the kernel had taken, and then the end or a reset.
    let _ = std::io::copy(&mut peer, &mut std::io::sink());
    assert_eq!(&kept.unwrap()[..], b"kept", "what was received outlives the sockets");
}

/// A ring can be entered on its own thread only, so nothing is cancelled or waited for.
#[test]
fn contract_05_dropped_elsewhere_the_peers_hear_of_it() {
    let mut bench = Bench::at(Options::default(), &alone(5));
    let (mut peer, connection) = bench.peer();
    let (mut reader, _) = bench.peer();
    bench.sockets.send(connection, &vec![1; 1 << 20]).unwrap();
    bench.poll(Duration::ZERO);
    let address = bench.address;
    std::thread::spawn(move || drop(bench)).join().unwrap();
    until_refused(address);
    reader.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    std::io::copy(&mut peer, &mut std::io::sink()).unwrap();
}

#[test]
fn contract_14_what_a_forked_child_drops_the_parent_keeps() {
    let mut bench = Bench::new(Options::default());
    let (mut peer, connection) = bench.peer();
    // SAFETY: the child drops the sockets, which locks nothing another thread of the parent may
    // hold, and leaves.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: read once, and the child never uses its own again.
        let copy: Sockets<u64> = unsafe { std::ptr::read(&bench.sockets) };
        drop(copy);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(0) };
    }
    let mut status = -1;
    // SAFETY: `child` is our child, and the status is written during the call.
    assert_eq!((unsafe { libc::waitpid(child, &raw mut status, 0) }, status), (child, 0));
    peer.write_all(b"still here").unwrap();
    bench.until(|bench| bench.got(connection) == b"still here");
    bench.end();
}
