//! Messages that carry descriptors, and another process that is waited for.

mod support;

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, IntoRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use forebay_uring::local::{Bell, BindError, this_user};
use forebay_uring::passing::{
    Channel, Listener, MESSAGE_BYTES, MESSAGE_DESCRIPTORS, Message, Process, Received, WaitFor,
    wait,
};
use forebay_uring::{Alive, local};
use rustix::net::SendFlags;
use rustix::process::{Resource, Rlimit};
use support::directory;
use support::process::{is_child, run_child};

const AT_ONCE: Option<Duration> = Some(Duration::ZERO);
const SOON: Option<Duration> = Some(Duration::from_secs(20));

fn message(channel: &Channel) -> Message {
    match channel.receive(SOON).unwrap() {
        Received::Message(message) => message,
        other => panic!("{other:?}"),
    }
}

fn is_over(channel: &Channel) -> bool {
    matches!(channel.receive(SOON).unwrap(), Received::End)
}

/// Sends what no channel of ours would.
fn send_raw(channel: &Channel, bytes: &[u8]) {
    rustix::net::send(channel, bytes, SendFlags::NOSIGNAL).unwrap();
}

#[test]
fn messages_come_whole_in_order_with_their_descriptors() {
    let (one, other) = Channel::pair().unwrap();
    assert!(matches!(one.receive(AT_ONCE).unwrap(), Received::Nothing));
    let (mut reader, mut writer) = io::pipe().unwrap();
    one.send(b"first", &[]).unwrap();
    one.send(&[7; MESSAGE_BYTES], &[reader.as_fd(), writer.as_fd()]).unwrap();
    one.send(b"last", &[writer.as_fd(); MESSAGE_DESCRIPTORS]).unwrap();
    drop(writer);
    assert_eq!(message(&other).bytes, b"first");
    let second = message(&other);
    assert_eq!((second.bytes.as_slice(), second.lost), (&[7; MESSAGE_BYTES][..], false));
    let [_, sent]: [OwnedFd; 2] = second.descriptors.try_into().unwrap();
    writer = sent.into();
    writer.write_all(b"through").unwrap();
    let mut bytes = [0; 7];
    reader.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"through");
    let last = message(&other);
    assert_eq!(
        (last.bytes.as_slice(), last.descriptors.len(), last.lost),
        (&b"last"[..], 16, false)
    );
    for descriptor in &last.descriptors {
        let flags = rustix::io::fcntl_getfd(descriptor).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC), "no program that is started gets it");
    }
}

#[test]
fn the_end_is_reported_after_all_else() {
    let (one, other) = Channel::pair().unwrap();
    other.send(b"left", &[]).unwrap();
    other.send(b"behind", &[]).unwrap();
    drop(other);
    assert_eq!((message(&one).bytes, message(&one).bytes), (b"left".to_vec(), b"behind".to_vec()));
    assert!(is_over(&one) && is_over(&one));
    assert_eq!(one.send(b"x", &[]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}

#[test]
fn who_dies_with_messages_unread_is_heard_to_the_end() {
    let (one, other) = Channel::pair().unwrap();
    one.send(b"never read", &[]).unwrap();
    other.send(b"left", &[]).unwrap();
    drop(other);
    assert_eq!(message(&one).bytes, b"left");
    assert!(is_over(&one));
}

#[test]
fn an_empty_message_is_no_end_and_a_large_one_no_message() {
    let (one, other) = Channel::pair().unwrap();
    send_raw(&one, b"");
    send_raw(&one, &[1; MESSAGE_BYTES + 1]);
    send_raw(&one, b"well");
    assert!(message(&other).bytes.is_empty());
    assert_eq!(other.receive(SOON).unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert_eq!(message(&other).bytes, b"well");
    let descriptor = one.as_fd();
    let refused = [
        one.send(b"", &[descriptor]),
        one.send(&[1; MESSAGE_BYTES + 1], &[]),
        one.send(b"x", &[descriptor; MESSAGE_DESCRIPTORS + 1]),
    ];
    assert!(refused.iter().all(|result| {
        result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput)
    }));
    assert!(matches!(other.receive(AT_ONCE).unwrap(), Received::Nothing));
}

#[test]
fn who_does_not_receive_is_waited_for_a_while() {
    let (one, _other) = Channel::pair().unwrap();
    let start = Instant::now();
    let refused = loop {
        if let Err(error) = one.send(&[1; MESSAGE_BYTES], &[]) {
            break error;
        }
    };
    assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
    assert!(start.elapsed() >= forebay_uring::passing::SEND_PATIENCE);
    let start = Instant::now();
    assert!(matches!(one.receive(Some(Duration::from_millis(50))).unwrap(), Received::Nothing));
    assert!(start.elapsed() >= Duration::from_millis(50));
}

#[test]
fn child_that_may_have_few_descriptors() {
    if !is_child() {
        return;
    }
    let (one, other) = Channel::pair().unwrap();
    let spare: Vec<_> = (0..2).map(|_| one.as_fd().try_clone_to_owned().unwrap()).collect();
    let mut held = Vec::new();
    // None is free below the limit but two.
    let limit =
        Rlimit { current: Some(40), maximum: rustix::process::getrlimit(Resource::Nofile).maximum };
    rustix::process::setrlimit(Resource::Nofile, limit).unwrap();
    while let Ok(descriptor) = one.as_fd().try_clone_to_owned() {
        held.push(descriptor);
    }
    drop(spare);
    one.send(b"three", &[one.as_fd(); 3]).unwrap();
    one.send(b"none", &[]).unwrap();
    let three = message(&other);
    assert_eq!(
        (three.bytes.as_slice(), three.descriptors.len(), three.lost),
        (&b"three"[..], 2, true)
    );
    one.send(b"one", &[one.as_fd()]).unwrap();
    assert!(!message(&other).lost);
    let one_more = message(&other);
    assert_eq!(
        (one_more.bytes.as_slice(), one_more.descriptors.len(), one_more.lost),
        (&b"one"[..], 0, true)
    );
    drop(three);
    one.send(b"well", &[one.as_fd()]).unwrap();
    let well = message(&other);
    assert_eq!((well.descriptors.len(), well.lost), (1, false));
    drop(held);
}

#[test]
fn descriptors_beyond_the_limit_are_reported_as_lost() {
    run_child("child_that_may_have_few_descriptors");
}

#[test]
fn more_descriptors_than_have_a_place_are_reported_as_lost() {
    let (one, other) = Channel::pair().unwrap();
    let many: Vec<BorrowedFd<'_>> = vec![one.as_fd(); 100];
    let mut space = vec![std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(100))];
    let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
    assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&many)));
    let bytes = [io::IoSlice::new(b"many")];
    rustix::net::sendmsg(&one, &bytes, &mut control, SendFlags::NOSIGNAL).unwrap();
    let message = message(&other);
    assert!(message.lost && (1..100).contains(&message.descriptors.len()));
}

#[test]
fn who_connects_is_reported_by_the_rules_of_the_other_socket() {
    let directory = directory();
    let path = directory.path().join("socket");
    assert_eq!(Channel::connect(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
    let listener = Listener::bind(&path).unwrap();
    assert_eq!(listener.path(), path);
    assert!(listener.accept().unwrap().is_none());
    let client = Channel::connect(&path).unwrap();
    assert_eq!(wait(&[WaitFor::Connection(&listener)], SOON).unwrap(), [true]);
    let (server, peer) = listener.accept().unwrap().unwrap();
    assert_eq!((peer.user, peer.process), (this_user(), Some(std::process::id())));
    assert_eq!((server.peer().unwrap(), client.peer().unwrap()), (peer, peer));
    client.send(b"hello", &[]).unwrap();
    assert_eq!(message(&server).bytes, b"hello");

    // Of either kind it is in use.
    let in_use = |refused: BindError| matches!(refused, BindError::InUse { process } if process == Some(std::process::id()));
    assert!(
        in_use(Listener::bind(&path).unwrap_err())
            && in_use(local::Listener::bind(&path).unwrap_err())
    );
    assert!(UnixStream::connect(&path).is_err());
    drop(listener);
    assert_eq!(Channel::connect(&path).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    // Left behind by either kind it is taken away.
    let streams = local::Listener::bind(&path).unwrap();
    assert!(in_use(Listener::bind(&path).unwrap_err()));
    assert!(Channel::connect(&path).is_err());
    drop(streams);
    let listener = Listener::bind(&path).unwrap();
    listener.remove();
    assert!(!path.exists());
}

#[test]
fn an_inherited_descriptor_is_taken_over_if_it_is_one() {
    let (one, other) = Channel::pair().unwrap();
    let number = OwnedFd::from(one).into_raw_fd();
    let one = Channel::inherited(number).unwrap();
    one.send(b"here", &[]).unwrap();
    assert_eq!(message(&other).bytes, b"here");
    drop(one);
    assert!(is_over(&other), "the one it was inherited as is closed, too");
    let file = fs::File::open("/dev/null").unwrap();
    let number = file.into_raw_fd();
    for number in [-1, i32::MAX, number] {
        assert_eq!(
            Channel::inherited(number).unwrap_err().kind(),
            io::ErrorKind::InvalidInput,
            "{number}"
        );
    }
    let (stream, _other) = UnixStream::pair().unwrap();
    assert!(Channel::of_descriptor(stream.into()).is_err());
}

#[test]
fn the_end_of_a_process_is_waited_for() {
    let mut child = Command::new("sleep").arg("100").stdin(Stdio::null()).spawn().unwrap();
    let process = Process::of(child.id()).unwrap();
    assert_eq!(process.number(), child.id());
    assert!(!process.wait(Some(Duration::from_millis(20))).unwrap());
    process.kill().unwrap();
    assert!(process.wait(SOON).unwrap() && process.wait(AT_ONCE).unwrap());
    assert!(!child.wait().unwrap().success());
    process.kill().unwrap();
    for none in [0, u32::MAX, i32::MAX as u32] {
        assert_eq!(Process::of(none).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}

#[test]
fn several_are_waited_for_at_once() {
    let (one, other) = Channel::pair().unwrap();
    let (alive, gone) = Alive::pair().unwrap();
    let bell = Bell::new().unwrap();
    let mut child = Command::new("sleep").arg("100").stdin(Stdio::null()).spawn().unwrap();
    let process = Process::of(child.id()).unwrap();
    let all = [
        WaitFor::Message(&other),
        WaitFor::Death(&process),
        WaitFor::Gone(&gone),
        WaitFor::Rung(&bell),
    ];
    assert_eq!(wait(&all, Some(Duration::from_millis(20))).unwrap(), [false; 4]);
    one.send(b"x", &[]).unwrap();
    assert_eq!(wait(&all, None).unwrap(), [true, false, false, false]);
    drop(alive);
    // A child that another test has just begun has it, too, until it is another program.
    assert_eq!(wait(&[WaitFor::Gone(&gone)], SOON).unwrap(), [true]);
    assert_eq!(wait(&all, None).unwrap(), [true, false, true, false]);
    message(&other);
    bell.ring();
    assert_eq!(wait(&all, None).unwrap(), [false, false, true, true]);
    process.kill().unwrap();
    assert!(process.wait(SOON).unwrap());
    drop(one);
    assert_eq!(wait(&all, None).unwrap(), [true; 4]);
    child.wait().unwrap();
    assert_eq!(wait(&[], AT_ONCE).unwrap(), [false; 0]);
}
