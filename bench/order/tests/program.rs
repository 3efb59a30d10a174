//! The program as it is built: its lines, its ends, its refusals.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

fn bench() -> Command {
    Command::new(env!("CARGO_BIN_EXE_forebay-bench-order"))
}

fn ran(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = bench().args(arguments).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// A server in a process of its own, which ends with the value.
struct Alone {
    process: Child,
    /// Open as long as the server: it ends when nobody reads its lines.
    _lines: BufReader<ChildStdout>,
    address: String,
}

impl Alone {
    fn start(way: &str) -> Option<Self> {
        if way == "ring" && ran(&["--seconds", "1"]).2.contains("could not set up io_uring") {
            eprintln!("skipped: there is no ring");
            return None;
        }
        let mut process = bench()
            .args(["--listen", "127.0.0.1:0", "--server", way])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let port = line.trim().split_once("port=").expect("it prints its address").1;
        Some(Self { address: format!("127.0.0.1:{port}"), process, _lines: lines })
    }

    /// Asks the server, and asserts that it answers.
    fn ask(&self) {
        let (code, out, err) = ran(&["--connect", &self.address, "--seconds", "1"]);
        assert_eq!(code, Some(0), "{err}");
        assert!(out.starts_with("client port=") && !out.contains("idle="), "{out}");
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn it_prints_a_line_each_second_and_percentiles() {
    let (code, out, err) = ran(&["--server", "epoll", "--order", "lifo", "--seconds", "1"]);
    assert_eq!(code, Some(0), "{err}");
    let first = out.lines().next().unwrap();
    assert!(first.starts_with("epoll port=") && first.contains(": rps:"), "{out}");
    assert!(first.contains(" Bps:") && first.contains(" idle=") && first.contains(" user="));
    for word in [
        "4 connections, 2 messages each of 9 bytes: ",
        "latency us: p50 ",
        "passed by messages sent later",
        "inversions in the server",
    ] {
        assert!(out.contains(word), "{word}: {out}");
    }
}

#[test]
fn clients_come_and_go_at_a_server_alone() {
    for server in ["ring", "epoll"].into_iter().filter_map(Alone::start) {
        // One that sends nothing, and one that goes in the middle of a message.
        let silent = TcpStream::connect(&server.address).unwrap();
        TcpStream::connect(&server.address).unwrap().write_all(b"four").unwrap();
        server.ask();
        drop(silent);
        server.ask();
    }
}

#[test]
fn a_client_that_never_reads_is_not_read_and_delays_no_other() {
    for server in ["ring", "epoll"].into_iter().filter_map(Alone::start) {
        let mut greedy = TcpStream::connect(&server.address).unwrap();
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
        server.ask();
        // Once it reads, it gets everything.
        greedy.set_nonblocking(false).unwrap();
        greedy.shutdown(Shutdown::Write).unwrap();
        let mut back = Vec::new();
        greedy.read_to_end(&mut back).unwrap();
        assert_eq!(back.len(), taken);
        assert!(back.iter().all(|byte| *byte == 7));
    }
}

#[test]
fn an_address_in_use_is_reported_with_the_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, _, err) = ran(&["--listen", &address]);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains(&address) && err.contains("choose another address"), "{err}");
}

/// Returns the error of a client of a server that does something else with each connection.
fn odd_server(does: impl Fn(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || listener.incoming().flatten().for_each(&does));
    let (code, _, err) = ran(&["--connect", &address, "--seconds", "1"]);
    assert_eq!(code, Some(1), "{err}");
    err
}

#[test]
fn a_server_that_goes_or_answers_something_else_is_reported() {
    let gone = odd_server(|mut stream| stream.read_exact(&mut [0; 9]).unwrap());
    assert!(gone.contains("not answered"), "{gone}");
    let other = odd_server(|mut stream| {
        let _ = stream.write_all(b"220 mail");
    });
    assert!(other.contains("is it an echo server?") || other.contains("not answered"), "{other}");
}

#[test]
fn invalid_arguments_are_refused() {
    for (arguments, code, remedy) in [
        (&["--connections", "0"][..], 2, "between 1 and 10000"),
        (&["--size", "1000000000"], 2, "between 1 and 16777216"),
        (&["--listen", "nowhere"], 2, "give HOST:PORT"),
        (&["--connect", "127.0.0.1:1", "--order", "lifo"], 2, "cannot be used with"),
        (&["--rounds", "1", "--size", "1"], 2, "cannot be used with"),
        (&["--connect", "127.0.0.1:1"], 1, "start the server first"),
    ] {
        let (found, _, err) = ran(arguments);
        assert_eq!(found, Some(code), "{arguments:?}: {err}");
        assert!(err.contains(remedy), "{arguments:?}: {err}");
    }
}
