//! Tests of the context's part without a context, bio by bio. The test acts as the device.

mod direct_panic_tests;

use std::sync::Arc;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};

use forebay_block::{Bio, Ended, Errno, Operation as Asked, Target};
use forebay_cache::writeback::pace::Bound;
use forebay_lists::Pop;
use tempfile::NamedTempFile;

use crate::core::context::Writeback;
use crate::core::context::senders::{Inbox, Message, Sender};
use crate::core::context::start::Contexts;
use crate::core::direct::direct_file::DirectFile;
use crate::core::direct::direct_inode::DirectInode;
use crate::core::direct::direct_inode::Handle;
use crate::core::direct::flow::Flow;
use crate::core::direct::operation::{Bytes, Operation, Outcome, Ticket, Verb};
use crate::core::direct::plug::{self, Plug};
use crate::core::direct::shape::Span;
use crate::core::direct::turns::Room;
use crate::core::error::{Error, ErrorKind};
use crate::core::limits::{DIRECT_OPERATIONS, MIN_CACHE_BYTES};
use crate::core::open::common::Common;
use crate::core::open::open_options::OpenOptions;
use crate::core::options::{OfContext, Options};
use crate::core::shared::{Parts, Shared};
use crate::core::table::AnyInode;
use crate::core::threads;
use crate::platform::sync::Mutex;
use crate::platform::{
    Access, AlignedMemory, Arena, Backend, Buffers, Choice, Create, How, Truncate,
};

const BLOCK: u64 = 512;

/// Flow under test, with its files.
struct Bench {
    flow: Flow,
    backend: Backend,
    shared: Arc<Shared>,
    inbox: Inbox,
    reported: mpsc::Receiver<ErrorKind>,
    files: Vec<NamedTempFile>,
}

impl Bench {
    fn new() -> Self {
        let arena = Arc::new(Arena::new((MIN_CACHE_BYTES / 4096) as u32).unwrap());
        let backend = Backend::chosen(Choice::Threads, Arc::clone(&arena), 64).unwrap();
        let (report, reported) = mpsc::channel();
        let report = Mutex::new(report);
        let (sender, inbox) = Sender::new(backend.waker());
        let (contexts, _) = Contexts::new(Choice::Auto, Arc::clone(&arena), None);
        let settings = Options {
            cache_bytes: Some(MIN_CACHE_BYTES),
            dirty_bytes: Some(1024 * 4096),
            ..Options::default()
        };
        let parts = Parts {
            arena,
            is_survived: false,
            buffers: Buffers::new(4096).unwrap(),
            settings,
            on_error: Box::new(move |error| report.lock().send(error.kind()).unwrap()),
            keeper: None,
            log: None,
        };
        // There is no thread: messages to the first context arrive in the test.
        let shared = Arc::new(Shared::new(parts, Box::new(contexts), None));
        shared.contexts.enter(0, sender);
        Self { flow: Flow::default(), backend, shared, inbox, reported, files: Vec::new() }
    }

    /// Opens one more file.
    fn open(&mut self) -> Arc<DirectInode> {
        let named = NamedTempFile::new_in(".").unwrap();
        named.as_file().set_len(1 << 20).unwrap();
        let how = How {
            access: Access::ReadWrite,
            create: Create::No,
            truncate: Truncate::Keep,
            mode: 0o600,
        };
        let file = crate::platform::OpenFile::open(named.path(), &how).unwrap().file;
        let (target, path) = (Target(self.files.len() as u32), named.path().to_owned());
        let common = Common::new(target, path, file, Arc::default());
        let inode = Arc::new(DirectInode::new(common, false, 1 << 20));
        self.shared.table().insert(AnyInode::Direct(Arc::clone(&inode)));
        self.take(Message::Attach(AnyInode::Direct(Arc::clone(&inode))));
        self.files.push(named);
        inode
    }

    fn handle(&self) -> Arc<Handle> {
        Arc::new(Handle::new(&self.shared))
    }

    fn take(&mut self, message: Message) {
        self.flow.take(message, &mut self.backend, &self.shared);
    }

    fn submit(&mut self, operation: Operation) -> Arc<Ticket> {
        let ticket = operation.ticket();
        self.take(Message::Operation(Box::new(operation)));
        ticket
    }

    /// Submits an operation without memory.
    fn ask(&mut self, inode: &Arc<DirectInode>, verb: Verb) -> Arc<Ticket> {
        let handle = self.handle();
        self.submit(Operation::new(inode, &handle, verb, Bytes::default()))
    }

    /// Returns all bios for the queue; none has ended.
    fn bios(&mut self) -> Vec<Bio> {
        std::iter::from_fn(|| self.flow.next_bio(Room::ForAll)).collect()
    }

    /// Takes in all messages.
    fn pump(&mut self) {
        while let Pop::Node(message) = self.inbox.messages.pop() {
            self.take(message);
        }
    }

    /// Ends the context, with messages that it has not taken in.
    fn die(self) -> (Arc<Shared>, mpsc::Receiver<ErrorKind>) {
        let Bench { flow, backend, shared, inbox, reported, .. } = self;
        let (_, running) = threads::ThreadsEnd::new();
        drop(Writeback::new(0, Arc::clone(&shared), inbox, backend, knobs(), running));
        drop(flow);
        (shared, reported)
    }

    fn end(&mut self, bio: Bio, result: Result<u64, Errno>) {
        self.flow.end(&Ended { bio, result }, &mut self.backend, &self.shared);
    }
}

fn knobs() -> OfContext {
    OfContext { flight: Bound::Depth(1), ..Options::default().of_context() }
}

fn operation(inode: &Arc<DirectInode>, handle: &Arc<Handle>, verb: Verb, length: u64) -> Operation {
    let memory = Some(AlignedMemory::new(length as usize).into());
    Operation::new(inode, handle, verb, Bytes { memory, ..Bytes::default() })
}

fn span(offset: u64, length: u64) -> Span {
    Span { offset, length, block: BLOCK }
}

fn outcome(ticket: &Ticket) -> Option<Outcome> {
    match ticket.poll(&Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

fn kind(ticket: &Ticket) -> Option<ErrorKind> {
    outcome(ticket).map(|(result, _)| result.unwrap_err().kind())
}

#[test]
fn contract_02_one_flush_of_a_file_runs_at_a_time_and_fails_all_waiting_syncs() {
    let mut bench = Bench::new();
    let (inode, other) = (bench.open(), bench.open());
    let first = bench.ask(&inode, Verb::FlushData);
    let mut waiting: Vec<_> = (0..3).map(|_| bench.ask(&inode, Verb::FlushData)).collect();
    waiting.push(bench.ask(&inode, Verb::FlushAll));
    let elsewhere = bench.ask(&other, Verb::FlushData);
    let mut bios = bench.bios();
    assert_eq!(bios.iter().map(|bio| bio.target).collect::<Vec<_>>(), [inode.target, other.target]);
    bench.end(bios.remove(0), Ok(0));
    assert!(outcome(&first).unwrap().0.is_ok());
    let mut second = bench.bios();
    assert_eq!(second.len(), 1, "one flush serves all that waited");
    assert_eq!(second[0].operation, Asked::FlushAll);
    let late = bench.ask(&inode, Verb::FlushData);
    assert!(bench.bios().is_empty());
    bench.end(second.remove(0), Err(Errno(libc::EIO)));
    assert!(bench.bios().is_empty());
    for ticket in waiting.iter().chain([&late]) {
        assert_eq!(kind(ticket), Some(ErrorKind::Poisoned));
    }
    bench.end(bios.remove(0), Ok(0));
    assert!(outcome(&elsewhere).unwrap().0.is_ok());
    assert!(!inode.has_operations() && !other.has_operations());
}

/// The block at the head contains the end of the file. The block at the tail cannot be read.
#[test]
fn contract_02_a_write_that_wrote_nothing_fails() {
    let mut bench = Bench::new();
    let (inode, handle) = (bench.open(), bench.handle());
    let write = operation(&inode, &handle, Verb::Write(span(100, 2000)), 2000);
    let ticket = bench.submit(write);
    let mut bios = bench.bios();
    assert_eq!(bios.len(), 2);
    let tail = bios.pop().unwrap();
    bench.end(bios.remove(0), Ok(10));
    bench.end(tail, Err(Errno(libc::EIO)));
    assert_eq!(kind(&ticket), Some(ErrorKind::Io));
}

#[test]
fn contract_02_unreported_errors_are_reported_when_the_context_has_ended() {
    let mut bench = Bench::new();
    let inode = bench.open();
    let error = |kind| Error::new(kind, "a write failed");
    let [leaves, lost, stays, late] = std::array::from_fn(|_| bench.handle());
    leaves.keep(error(ErrorKind::Io));
    bench.shared.send(Message::Leave(inode, Arc::clone(&leaves)));
    lost.leave();
    lost.keep(error(ErrorKind::NoSpace));
    lost.keep(error(ErrorKind::NoMemory));
    stays.keep(error(ErrorKind::Busy));
    late.leave();
    assert!(bench.reported.try_recv().is_err());
    let (_shared, reported) = bench.die();
    let all = || reported.try_iter().collect::<Vec<_>>();
    assert_eq!(all(), [ErrorKind::Io, ErrorKind::NoSpace, ErrorKind::NoMemory]);
    late.keep(error(ErrorKind::Open));
    assert_eq!(all(), [ErrorKind::Open]);
    drop(stays);
    assert_eq!(all(), [ErrorKind::Busy]);
    drop((leaves, lost, late));
    assert_eq!(all(), []);
}

/// A write whose future was dropped fails. Then the wait for the close is dropped.
#[test]
fn contract_02_a_close_that_is_given_up_loses_no_error() {
    for is_taken_in in [false, true] {
        let mut bench = Bench::new();
        let inode = bench.open();
        let file = DirectFile::new(
            Arc::clone(&bench.shared),
            inode,
            OpenOptions::new().read(true).write(true).clone(),
        );
        let _read = file.read_at(vec![0; 4096], 8192);
        drop(file.write_at(vec![0; 4096], 0));
        bench.pump();
        let write = bench.bios().into_iter().find(|bio| bio.operation == Asked::Write).unwrap();
        bench.end(write, Err(Errno(libc::EIO)));
        let mut close = Box::pin(file.close());
        let mut poll = || close.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll().is_pending(), "it waits for the write to be settled");
        bench.pump();
        assert!(poll().is_pending(), "it waits for the read");
        if is_taken_in {
            bench.pump();
        }
        drop(close);
        bench.pump();
        assert_eq!(bench.reported.try_iter().collect::<Vec<_>>(), [ErrorKind::Io]);
    }
}

#[test]
fn contract_16_held_operations_end_with_the_context() {
    for is_taken_in in [false, true] {
        let mut bench = Bench::new();
        let (inode, handle) = (bench.open(), bench.handle());
        let _plug = Plug::new(&bench.shared);
        let hold = |shared: &Arc<Shared>| {
            let read = operation(&inode, &handle, Verb::Read(span(0, 512)), 512);
            let ticket = read.ticket();
            plug::submit(shared, read);
            ticket
        };
        let mut held = vec![hold(&bench.shared), hold(&bench.shared)];
        if is_taken_in {
            bench.pump();
            held.push(hold(&bench.shared));
        }
        let (shared, _reported) = bench.die();
        held.push(hold(&shared));
        for ticket in held {
            assert_eq!(kind(&ticket), Some(ErrorKind::Shutdown));
        }
    }
}

#[test]
fn contract_18_operations_that_have_started_are_bounded_and_files_take_turns() {
    let mut bench = Bench::new();
    let (many, few, handle) = (bench.open(), bench.open(), bench.handle());
    let read =
        |inode, number| operation(inode, &handle, Verb::Read(span(number * BLOCK, BLOCK)), BLOCK);
    let total = DIRECT_OPERATIONS as u64 + 300;
    let mut tickets: Vec<_> = (0..total).map(|number| bench.submit(read(&many, number))).collect();
    tickets.extend((0..5).map(|number| bench.submit(read(&few, number))));
    assert_eq!(bench.flow.started(), DIRECT_OPERATIONS);
    let (mut ended, mut of_few) = (Vec::new(), Vec::new());
    while ended.len() + of_few.len() < tickets.len() {
        let bios = bench.bios();
        assert!(!bios.is_empty(), "no bio is in flight, and operations are left");
        for bio in bios {
            if bio.target == few.target {
                of_few.push((bio.offset / BLOCK, ended.len()));
            } else {
                ended.push(bio.offset / BLOCK);
            }
            bench.end(bio, Ok(BLOCK));
            assert!(bench.flow.started() <= DIRECT_OPERATIONS);
        }
    }
    assert!(ended.iter().copied().eq(0..total), "in order");
    assert!(of_few.iter().map(|(number, _)| *number).eq(0..5), "in order");
    assert!(
        of_few.iter().all(|(_, behind)| *behind < total as usize - 100),
        "the file with few operations is served last: {of_few:?}"
    );
    for ticket in tickets {
        assert_eq!(outcome(&ticket).unwrap().0.unwrap(), BLOCK as usize);
    }
    assert_eq!(bench.flow.started(), 0);
}
