//! An arena that another process has, too.

mod support;

use std::io::ErrorKind;

use forebay_block::Frame;
use forebay_uring::passing::{Channel, Received};
use forebay_uring::{Arena, FrameState, Header};
use rustix::process::{Resource, Rlimit};
use support::process::{is_child, run_child, start_child};

#[test]
fn child_whose_files_are_small() {
    if !is_child() {
        return;
    }
    let maximum = rustix::process::getrlimit(Resource::Fsize).maximum;
    let limit = Rlimit { current: Some(1 << 20), maximum };
    rustix::process::setrlimit(Resource::Fsize, limit).unwrap();
    assert_eq!(Arena::shared(64).unwrap_err().kind(), ErrorKind::FileTooLarge);
    Arena::private(64).unwrap();
}

#[test]
fn a_limit_of_sizes_is_reported_and_ends_nothing() {
    run_child("child_whose_files_are_small");
}

#[test]
fn child_that_publishes_until_it_is_killed() {
    if !is_child() {
        return;
    }
    let channel = Channel::inherited(0).unwrap();
    let arena = Arena::shared(2).unwrap();
    channel.send(b"arena", &[arena.memfd().unwrap()]).unwrap();
    for number in 0.. {
        // SAFETY: this thread alone uses the frame.
        unsafe { arena.copy_in(Frame(0), 0, &[number as u8; 4096]) };
        arena.publish(Frame(1), header(number));
    }
}

fn header(number: u64) -> Header {
    let length = (number % 4097) as u16;
    Header {
        file: 1,
        generation: 2,
        page: number,
        sequence: !number,
        length,
        state: FrameState::Clean,
    }
}

#[test]
fn whoever_is_killed_leaves_what_was_published_or_nothing() {
    let mut whole = 0;
    for round in 0..20 {
        let (channel, theirs) = Channel::pair().unwrap();
        let mut child = start_child("child_that_publishes_until_it_is_killed", theirs.into());
        let Received::Message(mut message) = channel.receive(None).unwrap() else {
            panic!("nothing came")
        };
        std::thread::sleep(std::time::Duration::from_micros(1000 + 137 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let arena = Arena::of_memfd(message.descriptors.pop().unwrap()).unwrap();
        if let Some(found) = arena.header(Frame(1)) {
            assert_eq!(found, header(found.page));
            whole += 1;
        }
    }
    assert!(whole > 0, "of twenty all died in the midst of it");
}
