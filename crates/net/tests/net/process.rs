//! Tests that change the whole process: each in a process of its own.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Instant;

use forebay_block::Errno;
use forebay_net::{Closing, EndReason, Options, Sockets, What};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::bench::{A_LITTLE, Bench, PATIENCE};

/// Set for the child.
const CHILD: &str = "FOREBAY_TEST_CHILD";

/// Runs a test of this file as a process of its own. Returns whether this is that process.
fn in_a_child(test: &str) -> bool {
    let is_child = std::env::var_os(CHILD).is_some();
    if !is_child {
        let test = format!("process::{test}");
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &test, "--nocapture", "--test-threads=1"])
            .env(CHILD, "1")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
        assert!(printed.contains("1 passed"), "{test} did not run: {printed}");
    }
    is_child
}

#[test]
fn without_descriptors_accepting_rests_and_goes_on() {
    if !in_a_child("without_descriptors_accepting_rests_and_goes_on") {
        return;
    }
    // Not polled yet: an accept has the limit of the moment when it started.
    let mut bench = Bench::new(Options::default());
    let mut peers: Vec<TcpStream> =
        (0..5).map(|_| TcpStream::connect(bench.address).unwrap()).collect();
    let free = std::os::fd::AsRawFd::as_raw_fd(&peers[0].try_clone().unwrap());
    // Place for two more.
    let limit = u64::try_from(free).unwrap() + 2;
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(limit), ..before }).unwrap();
    let (started, mut failures) = (Instant::now(), 0);
    while bench.connections.len() < 5 {
        assert!(started.elapsed() < PATIENCE, "hangs: {:?}", bench.sockets.counters());
        for event in bench.poll(A_LITTLE) {
            let What::AcceptFailed { listener, error } = event.what else { continue };
            assert_eq!((listener, error), (bench.listener, Errno(libc::EMFILE)));
            failures += 1;
            // Each failure is reported once. A closed connection frees a descriptor for another.
            let rests = started.elapsed().as_millis() / 100;
            assert!(
                failures <= 2 + rests + u128::try_from(bench.closed.len()).unwrap(),
                "it does not rest"
            );
            bench.sockets.close(bench.connections[bench.closed.len()], Closing::Now);
        }
    }
    assert!(failures > 0);
    setrlimit(Resource::Nofile, before).unwrap();
    peers.clear();
    bench.end();
}

#[test]
fn a_broken_pipe_raises_no_signal() {
    if !in_a_child("a_broken_pipe_raises_no_signal") {
        return;
    }
    // As in a program that is not written in Rust: the signal would end the process.
    // SAFETY: the default action; no handler is installed.
    assert_ne!(unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) }, libc::SIG_ERR);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let mut bench = Bench::new(Options::default());
    bench.sockets.listen(&path.clone().into(), 8).unwrap();
    // One piece, and several, for they do not fit into one: two calls of the kernel.
    for pieces in [1, 3] {
        let before = bench.connections.len();
        let peer = UnixStream::connect(&path).unwrap();
        bench.until(|bench| bench.connections.len() > before);
        let connection = *bench.connections.last().unwrap();
        drop(peer);
        for _ in 0..pieces {
            bench.sockets.send(connection, &[1; 5000]).unwrap();
        }
        bench.until(|bench| bench.reason(connection).is_some());
        assert_eq!(bench.reason(connection), Some(EndReason::Failed(Errno(libc::EPIPE))));
    }
    bench.end();
}

/// Forbids `io_uring_setup` to this process and its children.
fn forbid_io_uring() {
    let jump = u16::try_from(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K).unwrap();
    let load = u16::try_from(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS).unwrap();
    let answer = u16::try_from(libc::BPF_RET | libc::BPF_K).unwrap();
    let setup = u32::try_from(libc::SYS_io_uring_setup).unwrap();
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
    let mut program = [
        libc::sock_filter { code: load, jt: 0, jf: 0, k: 0 },
        libc::sock_filter { code: jump, jt: 0, jf: 1, k: setup },
        libc::sock_filter { code: answer, jt: 0, jf: 0, k: refused },
        libc::sock_filter { code: answer, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
    ];
    let program = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
    // SAFETY: takes numbers alone.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the program is read during the call.
    let set =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_refused_ring_is_reported_with_the_remedy() {
    if !in_a_child("a_refused_ring_is_reported_with_the_remedy") {
        return;
    }
    forbid_io_uring();
    let refused = Sockets::<u64>::new(Options::default()).unwrap_err().to_string();
    assert!(refused.contains("forbidden") && refused.contains("seccomp"), "{refused}");
}
