//! Bytes go there and back, whole and in order.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use forebay_net::{Address, Closing, EndReason, Options, Sockets, What};

use crate::bench::{Bench, PATIENCE, pattern, read_all, read_some, write_all};

#[test]
fn what_is_sent_comes_back() {
    let mut bench = Bench::new(Options::default());
    let (mut peer, connection) = bench.peer();
    for length in [1, 9, 4096, 100_000] {
        let message = pattern(length, length);
        peer.write_all(&message).unwrap();
        let (mut answer, mut got) = (vec![0; length], 0);
        bench.echo_until(|_| {
            got += read_some(&mut peer, &mut answer[got..]).unwrap();
            got == length
        });
        assert_eq!(answer, message);
    }
    drop(peer);
    bench.echo_until(|bench| bench.reason(connection) == Some(EndReason::Asked));
    let counters = bench.sockets.counters();
    assert_eq!((counters.received_bytes, counters.sent_bytes), (104_106, 104_106));
    bench.end();
}

#[test]
fn unix_sockets_do_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let mut bench = Bench::new(Options::default());
    let listener = bench.sockets.listen(&path.clone().into(), 8).unwrap();
    assert_eq!(bench.sockets.local(listener).unwrap(), Address::Unix(path.clone()));
    let mut peer = UnixStream::connect(&path).unwrap();
    bench.until(|bench| bench.connections.len() == 1);
    peer.write_all(b"over there").unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    bench.echo_until(|bench| bench.closed.len() == 1);
    let mut answer = String::new();
    peer.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "over there");
    bench.end();
}

#[test]
fn messages_larger_than_any_buffer_come_whole() {
    let options = Options {
        buffers: 8,
        buffer_bytes: 1000,
        pass_bytes: 8000,
        connection_bytes: 3000,
        outgoing_bytes: 10_000,
        ..Options::default()
    };
    let mut bench = Bench::new(options);
    let (peer, connection) = bench.peer();
    let message = pattern(3 << 20, 1);
    let writer = write_all(&peer, message.clone());
    let reader = read_all(peer);
    bench.echo_until(|bench| bench.reason(connection).is_some());
    writer.join().unwrap();
    assert!(reader.join().unwrap() == message, "the answer differs");
    bench.end();
}

#[test]
fn many_pieces_go_in_their_order_with_one_send() {
    let mut bench = Bench::new(Options::default());
    let (mut peer, connection) = bench.peer();
    let sends = bench.sockets.counters().sends;
    let mut expected = Vec::new();
    for number in 0..10 {
        let (header, body) = (pattern(16, number), pattern(5000, number));
        bench.sockets.send(connection, &header).unwrap();
        bench.sockets.send(connection, &body).unwrap();
        expected.extend([header, body].concat());
    }
    bench.sockets.close(connection, Closing::AfterSending);
    bench.until(|bench| bench.reason(connection).is_some());
    let mut got = Vec::new();
    peer.read_to_end(&mut got).unwrap();
    assert!(got == expected, "headers and bodies in their order");
    assert_eq!(bench.sockets.counters().sends - sends, 1, "twenty pieces go with one send");
    bench.end();
}

#[test]
fn who_sends_no_more_can_still_be_answered() {
    let mut bench = Bench::new(Options::default());
    let (mut peer, connection) = bench.peer();
    peer.write_all(b"question").unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    bench.until(|bench| bench.finished == [connection]);
    assert_eq!(bench.got(connection), b"question");
    bench.sockets.send(connection, b"first ").unwrap();
    bench.poll(Duration::ZERO);
    bench.sockets.send(connection, b"second").unwrap();
    bench.sockets.close(connection, Closing::AfterSending);
    bench.until(|bench| bench.reason(connection) == Some(EndReason::Asked));
    let mut answer = String::new();
    peer.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "first second");
    bench.end();
}

#[test]
fn many_peers_get_what_is_theirs() {
    const PEERS: usize = 40;
    let options = Options { buffers: 16, buffer_bytes: 512, ..Options::default() };
    let mut bench = Bench::new(options);
    let address = bench.address;
    let peers: Vec<_> = (0..PEERS)
        .map(|number| {
            thread::spawn(move || {
                let mut peer = std::net::TcpStream::connect(address).unwrap();
                peer.set_read_timeout(Some(PATIENCE)).unwrap();
                for round in 0..20 {
                    let message = pattern(1 + (number * 977 + round * 131) % 5000, number + round);
                    peer.write_all(&message).unwrap();
                    let mut answer = vec![0; message.len()];
                    peer.read_exact(&mut answer).unwrap();
                    assert!(answer == message, "peer {number} in round {round}");
                }
            })
        })
        .collect();
    bench.echo_until(|bench| bench.closed.len() == PEERS);
    for peer in peers {
        peer.join().unwrap();
    }
    bench.end();
}

#[test]
fn it_is_made_here_and_used_there() {
    let mut sockets = Sockets::<u64>::new(Options::default()).unwrap();
    let any: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
    let listener = sockets.listen(&any.into(), 8).unwrap();
    let Ok(Address::Tcp(address)) = sockets.local(listener) else { panic!("a port") };
    let there = thread::spawn(move || {
        let mut events = Vec::new();
        while events.is_empty() {
            sockets.poll(None, &mut events).unwrap();
        }
        assert!(matches!(events[0].what, What::Accepted { .. }), "{events:?}");
    });
    let _peer = std::net::TcpStream::connect(address).unwrap();
    there.join().unwrap();
}
