//! What sockets over the ring and over epoll must both do: each test runs on both.

#[path = "net/bench.rs"]
mod bench;

use std::io::Write;

use bench::Bench;
use forebay_uring::net::{Choice, Options};

/// Makes of each function a test over the ring and one over epoll.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod io_uring {
            $(#[test] fn $name() { super::$name(forebay_uring::net::Choice::IoUring) })*
        }
        mod epoll {
            $(#[test] fn $name() { super::$name(forebay_uring::net::Choice::Epoll) })*
        }
    };
}

on_both!(what_is_sent_comes_back);

fn what_is_sent_comes_back(choice: Choice) {
    let mut bench = Bench::new(Options { choice, ..Options::default() });
    let mut peer = bench.peer();
    for length in [1, 9, 4096, 100_000] {
        let message: Vec<u8> = (0..length).map(|byte: u32| byte as u8).collect();
        peer.write_all(&message).unwrap();
        let mut answer = vec![0; message.len()];
        let mut got = 0;
        while got < answer.len() {
            bench.echo();
            got += bench::read_some(&mut peer, &mut answer[got..]);
        }
        assert_eq!(answer, message);
    }
    drop(peer);
    bench.until_closed(1);
    bench.assert_clean();
}
