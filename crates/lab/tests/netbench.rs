//! A bench of an echo server: every kind of load ends with every answer right, and a failure at one
//! end is reported at the other.
//!
//! That each answer is the message it answers, in full and once, is looked at by the client at
//! every byte.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use forebay_lab::echo::{EchoLoad, EchoWay, Pace, Transport, WorkOrder};
use forebay_lab::load::CellError;
use forebay_lab::netbench::{Ended, Ends, Netbench, ServerEnd, parse_address, run};

const SMALL: EchoLoad = EchoLoad {
    connections: 4,
    in_flight: 2,
    message_bytes: 9,
    pace: Pace::Each,
    work_micros: 0,
    transport: Transport::Tcp,
};

const ANY_PORT: &str = "127.0.0.1:0";

fn server(way: EchoWay, order: WorkOrder, address: &str) -> ServerEnd {
    ServerEnd { way, order, address: parse_address(address).unwrap() }
}

fn bench(load: EchoLoad, ends: Ends) -> Netbench {
    Netbench { load, ends, time: Some(Duration::from_millis(100)), seed: 1 }
}

/// Runs it and returns its lines and its end.
fn ran(bench: &Netbench) -> (Vec<String>, Result<Ended, CellError>) {
    let mut lines = Vec::new();
    let ended = run(bench, &Arc::default(), &mut |line| lines.push(line.to_owned()));
    (lines, ended)
}

fn why(bench: &Netbench) -> String {
    ran(bench).1.unwrap_err().to_string()
}

/// How many were answered, as the summary has it.
fn answered(ended: Ended) -> u64 {
    let Ended::Done(Some(summary)) = ended else { panic!("{ended:?}") };
    let before = summary.split(" answered").next().unwrap();
    before.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn every_way_and_order_answers_every_load() {
    let loads = [
        SMALL,
        EchoLoad { connections: 1, in_flight: 1, message_bytes: 1, ..SMALL },
        EchoLoad { connections: 60, pace: Pace::Together, ..SMALL },
        EchoLoad { in_flight: 50, message_bytes: 1000, ..SMALL },
        // Larger than any buffer of a socket or of the server, and more than may wait to be sent.
        EchoLoad { connections: 2, message_bytes: 3_000_001, ..SMALL },
        EchoLoad { work_micros: 5, message_bytes: 100, ..SMALL },
    ];
    for way in [EchoWay::Ring, EchoWay::Epoll] {
        for order in [WorkOrder::Fifo, WorkOrder::Lifo] {
            for load in loads {
                let bench = bench(load, Ends::Both(server(way, order, ANY_PORT)));
                match ran(&bench).1 {
                    Ok(ended) => assert!(answered(ended) > 0, "{bench:?}"),
                    Err(CellError::Unavailable { reason }) if way == EchoWay::Ring => {
                        eprintln!("skipped, there is no ring: {reason}");
                    }
                    Err(error) => panic!("{error}: {bench:?}"),
                }
            }
        }
    }
}

#[test]
fn a_unix_socket_is_served_and_its_file_is_gone_afterwards() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let end = server(EchoWay::Epoll, WorkOrder::Fifo, path.to_str().unwrap());
    let load = EchoLoad { transport: Transport::Unix, ..SMALL };
    assert!(answered(ran(&bench(load, Ends::Both(end))).1.unwrap()) > 0);
    assert!(!path.exists());
}

/// A server by itself: it is stopped and its end looked at when the value goes.
struct Alone {
    stop: Arc<AtomicBool>,
    address: String,
    ended: Option<thread::JoinHandle<Result<Ended, CellError>>>,
}

impl Alone {
    fn start(way: EchoWay) -> Self {
        let bench = Netbench {
            time: None,
            ..bench(SMALL, Ends::Server(server(way, WorkOrder::Fifo, ANY_PORT)))
        };
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, told) = mpsc::channel();
        let stopping = Arc::clone(&stop);
        let ended = thread::spawn(move || {
            run(&bench, &stopping, &mut |line| {
                let _ = tell.send(line.to_owned());
            })
        });
        let line = told.recv().expect("it says where it listens");
        let (_, port) = line.split_once("port=").expect("it is on this machine");
        Self { stop, address: format!("127.0.0.1:{port}"), ended: Some(ended) }
    }

    fn client(&self) -> Ends {
        Ends::Client(parse_address(&self.address).unwrap())
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.ended.take().unwrap().join();
        if !thread::panicking() {
            assert_eq!(ended.unwrap().unwrap(), Ended::Done(None));
        }
    }
}

#[test]
fn clients_come_and_go_at_a_server_alone() {
    let alone = Alone::start(EchoWay::Epoll);
    for _ in 0..2 {
        assert!(answered(ran(&bench(SMALL, alone.client())).1.unwrap()) > 0);
    }
    // One that says nothing, and one that goes in the middle of a message.
    let silent = TcpStream::connect(&alone.address).unwrap();
    TcpStream::connect(&alone.address).unwrap().write_all(b"four").unwrap();
    assert!(answered(ran(&bench(SMALL, alone.client())).1.unwrap()) > 0);
    drop(silent);
}

#[test]
fn a_client_that_never_reads_holds_up_nobody_and_fills_no_memory() {
    for way in [EchoWay::Ring, EchoWay::Epoll] {
        if way == EchoWay::Ring
            && matches!(
                ran(&bench(SMALL, Ends::Both(server(way, WorkOrder::Fifo, ANY_PORT)))).1,
                Err(CellError::Unavailable { .. })
            )
        {
            eprintln!("skipped: there is no ring");
            continue;
        }
        let alone = Alone::start(way);
        let mut greedy = TcpStream::connect(&alone.address).unwrap();
        greedy.set_nonblocking(true).unwrap();
        let (block, mut taken, mut refused) = (vec![7; 1 << 16], 0_usize, 0);
        // Until nothing is taken for a while: the buffers on the way are full.
        while refused < 20 {
            match greedy.write(&block) {
                Ok(bytes) => (taken, refused) = (taken + bytes, 0),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    refused += 1;
                    thread::sleep(Duration::from_millis(10));
                }
                Err(error) => panic!("{error}"),
            }
            assert!(taken < 256 << 20, "it takes without end");
        }
        assert!(answered(ran(&bench(SMALL, alone.client())).1.unwrap()) > 0, "{way:?}");
        // Once it reads it gets all of it.
        greedy.set_nonblocking(false).unwrap();
        greedy.shutdown(std::net::Shutdown::Write).unwrap();
        let mut back = Vec::new();
        greedy.read_to_end(&mut back).unwrap();
        assert_eq!(back.len(), taken, "{way:?}");
        assert!(back.iter().all(|byte| *byte == 7));
    }
}

#[test]
fn an_address_in_use_is_told_with_the_remedy() {
    let taken = TcpListener::bind(ANY_PORT).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let end = server(EchoWay::Epoll, WorkOrder::Fifo, &address);
    for ends in [Ends::Both(end.clone()), Ends::Server(end)] {
        let why = why(&bench(SMALL, ends));
        assert!(why.contains(&address) && why.contains("choose another address"), "{why}");
    }
}

#[test]
fn where_nobody_listens_that_is_told() {
    let gone = TcpListener::bind(ANY_PORT).unwrap().local_addr().unwrap();
    let why = why(&bench(SMALL, Ends::Client(gone.into())));
    assert!(why.contains("start the server first"), "{why}");
}

/// A server that does something else with each connection.
fn odd_server(does: impl Fn(TcpStream) + Send + 'static) -> Ends {
    let listener = TcpListener::bind(ANY_PORT).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || listener.incoming().flatten().for_each(&does));
    Ends::Client(address.into())
}

#[test]
fn a_peer_that_goes_or_says_something_else_is_told() {
    let gone = odd_server(|mut stream| stream.read_exact(&mut [0; 9]).unwrap());
    let gone = why(&bench(SMALL, gone));
    assert!(gone.contains("not answered"), "{gone}");
    let other = odd_server(|mut stream| {
        let _ = stream.write_all(b"220 mail");
    });
    let other = why(&bench(SMALL, other));
    assert!(other.contains("is it an echo server?") || other.contains("not answered"), "{other}");
}

#[test]
fn what_is_out_of_bounds_is_refused_before_anything_is_done() {
    let end = server(EchoWay::Epoll, WorkOrder::Fifo, ANY_PORT);
    let load = EchoLoad { connections: 1_000_000, ..SMALL };
    assert!(why(&bench(load, Ends::Both(end))).contains("not between 1 and 10000"));
}

#[test]
fn who_ends_it_is_heard() {
    let stop = Arc::new(AtomicBool::new(true));
    let end = server(EchoWay::Epoll, WorkOrder::Fifo, ANY_PORT);
    let bench = Netbench { time: Some(Duration::from_secs(3600)), ..bench(SMALL, Ends::Both(end)) };
    assert_eq!(run(&bench, &stop, &mut |_| {}).unwrap(), Ended::Interrupted);
}
