//! The ring from inside: every level it can be set up at, with files registered and without.
//!
//! On one kernel all that older kernels have can be tried, for each level is asked for by name, and
//! what came later than it is switched off by hand.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use forebay_block::limits::PAGE;
use forebay_block::{Class, Frame, Operation, Segment, Segments, Source};
use tempfile::TempDir;

use super::*;
use crate::{Access, Create, How, Truncate};

mod wait;

const PAGE_BYTES: u32 = PAGE as u32;
const FILE: Target = Target(0);

/// A ring of one level with one file.
struct Bench {
    ring: Ring,
    arena: Arc<Arena>,
    path: PathBuf,
    directory: TempDir,
}

impl Bench {
    fn new(level: Level, files: Register) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let arena = Arc::new(Arena::new(64).unwrap());
        let mut ring = Ring::with_level(Arc::clone(&arena), 8, level).unwrap();
        if level >= Level::SubmitAll {
            let has = &mut ring.setup.has;
            (has.set_length, has.discard, has.min_wait) = (false, false, false);
        }
        ring.attach(FILE, open(&path));
        ring.set_registered(files);
        Self { ring, arena, path, directory }
    }

    /// A named pipe under a number, and the same pipe to write into.
    fn pipe(&mut self, target: Target) -> fs::File {
        let path = self.directory.path().join(format!("pipe {}", target.0));
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        self.ring.attach(target, open(&path));
        fs::OpenOptions::new().read(true).write(true).open(&path).unwrap()
    }

    fn fill(&self, frame: u32, byte: u8) {
        // SAFETY: nothing is in flight, and this thread alone knows the arena.
        unsafe { self.arena.copy_in(Frame(frame), 0, &[byte; PAGE]) };
    }

    fn first_byte(&self, frame: u32) -> u8 {
        let mut byte = [0];
        // SAFETY: as above.
        unsafe { self.arena.copy_out(Frame(frame), 0, &mut byte) };
        byte[0]
    }

    fn ask(&mut self, request: &Bio) -> Result<u64, Errno> {
        self.ring.prepare(Tag(3), request).unwrap();
        let done = self.wait_for(1);
        assert_eq!(done[0].tag, Tag(3));
        done[0].result
    }

    fn wait_for(&mut self, count: usize) -> Vec<Completion> {
        let mut done = Vec::new();
        while done.len() < count {
            self.ring.doorbell(Wait::Something(None)).unwrap();
            self.ring.reap(&mut done);
        }
        assert_eq!(done.len(), count);
        done
    }
}

fn open(path: &std::path::Path) -> Arc<OpenFile> {
    let how = How {
        access: Access::ReadWrite,
        create: Create::IfMissing,
        truncate: Truncate::Keep,
        mode: 0o600,
    };
    Arc::new(OpenFile::open(path, &how).unwrap().file)
}

fn moving(operation: Operation, offset: u64, segments: &[Segment]) -> Bio {
    let length = segments.iter().map(|segment| u64::from(segment.length())).sum();
    Bio { segments: segments.into(), length, ..still(operation, offset, 0) }
}

fn still(operation: Operation, offset: u64, length: u64) -> Bio {
    let (segments, class, source) = (Segments::new(), Class::Waited, Source(0));
    Bio { operation, target: FILE, offset, length, segments, class, source, owner: 0 }
}

const REGISTERED_OR_NOT: [Register; 2] = [Register::No, Register::Yes];

#[test]
fn every_level_does_the_same() {
    for level in Level::ALL {
        for files in REGISTERED_OR_NOT {
            let mut bench = Bench::new(level, files);
            println!("{level:?}, files registered: {files:?}: {}", bench.ring.describe());
            bytes_move(&mut bench);
            ranges_change(&mut bench);
            let start = Instant::now();
            let waker = bench.ring.waker();
            let other = thread::spawn(move || waker.wake());
            bench.ring.doorbell(Wait::Something(Some(Duration::from_secs(20)))).unwrap();
            assert!(start.elapsed() < Duration::from_secs(10));
            other.join().unwrap();
        }
    }
}

fn bytes_move(bench: &mut Bench) {
    let page = |frame: u32| Segment::frames(Frame(frame), PAGE_BYTES);
    for frame in 0..4 {
        bench.fill(frame, b'a' + u8::try_from(frame).unwrap());
    }
    assert_eq!(bench.ask(&moving(Operation::Write, 4096, &[page(2)])), Ok(4096));
    assert_eq!(bench.ask(&moving(Operation::WriteFua, 0, &[page(3), page(1)])), Ok(8192));
    let zeroes = Segment::Zeroes { length: PAGE_BYTES };
    assert_eq!(
        bench.ask(&moving(Operation::Write, 8192, &[page(0), zeroes, page(2)])),
        Ok(3 * 4096)
    );
    assert_eq!(
        bench.ask(&moving(Operation::WriteBuffered, 5 * 4096, &[Segment::frames(Frame(3), 10)])),
        Ok(10)
    );
    assert_eq!(bench.ask(&still(Operation::FlushData, 0, 0)), Ok(0));
    let expected: Vec<u8> =
        [(b'd', 4096), (b'b', 4096), (b'a', 4096), (0, 4096), (b'c', 4096), (b'd', 10)]
            .into_iter()
            .flat_map(|(byte, count): (u8, usize)| vec![byte; count])
            .collect();
    assert!(fs::read(&bench.path).unwrap() == expected);
    assert_eq!(bench.ask(&moving(Operation::Read, 0, &[page(9), page(7), page(11)])), Ok(3 * 4096));
    assert_eq!(bench.ask(&moving(Operation::Read, 4 * 4096, &[page(20)])), Ok(4096));
    assert_eq!([9, 7, 11, 20].map(|frame| bench.first_byte(frame)), *b"dbac");
}

fn ranges_change(bench: &mut Bench) {
    let unsupported = |result: Result<u64, Errno>| result == Err(Errno::UNSUPPORTED);
    let zeroed = bench.ask(&still(Operation::WriteZeroes, 4096, 4096));
    let discarded = bench.ask(&still(Operation::Discard, 8192, 4096));
    if unsupported(zeroed) || unsupported(discarded) {
        return println!(
            "skipped: this file system knows no ranges of zeroes: {zeroed:?}, {discarded:?}"
        );
    }
    assert_eq!((zeroed, discarded), (Ok(0), Ok(0)));
    assert_eq!(bench.ask(&still(Operation::WriteZeroes, 1 << 20, 4096)), Ok(0), "beyond the end");
    let content = fs::read(&bench.path).unwrap();
    assert_eq!(content.len(), 5 * 4096 + 10, "the size stays");
    let firsts: Vec<u8> = content.chunks(4096).map(|page| page[0]).collect();
    assert_eq!(firsts, [b'd', 0, 0, 0, b'c', b'd']);
    assert_eq!(bench.ask(&still(Operation::SetLength, 10_000, 0)), Ok(0));
    assert_eq!(fs::metadata(&bench.path).unwrap().len(), 10_000);
}

#[test]
fn contract_16_nothing_is_lost_on_any_level_where_the_queues_are_full() {
    for level in Level::ALL {
        for files in REGISTERED_OR_NOT {
            let mut bench = Bench::new(level, files);
            let read = moving(Operation::Read, 0, &[Segment::frames(Frame(0), PAGE_BYTES)]);
            let punch = still(Operation::Punch, 0, 4096);
            let mut staged = 0;
            // A submission queue of 16 places and a completion queue of 32, not reaped before all
            // are submitted.
            for tag in 0..200 {
                let request = if tag % 2 == 0 { &read } else { &punch };
                while bench.ring.prepare(Tag(tag), request) == Err(Refused) {
                    assert!(staged >= 8, "at least what was asked for: {staged}");
                    staged = 0;
                    bench.ring.doorbell(Wait::Not).unwrap();
                }
                staged += 1;
            }
            assert_eq!(bench.ring.in_flight() as usize + bench.ring.arrived.len(), 200);
            let mut tags: Vec<u16> = bench.wait_for(200).iter().map(|done| done.tag.0).collect();
            tags.sort_unstable();
            assert!(tags.into_iter().eq(0..200), "{level:?}, {files:?}");
        }
    }
}

#[test]
fn several_pieces_go_by_their_vectors_and_one_without() {
    let mut bench = Bench::new(Level::NoArray, Register::Yes);
    let page = |frame: u32| Segment::frames(Frame(frame), PAGE_BYTES);
    let zeroes = Segment::Zeroes { length: PAGE_BYTES };
    for (operation, segments, expected) in [
        (Operation::Read, vec![page(0)], opcode::Read::CODE),
        (Operation::Read, vec![page(0), page(1)], opcode::Read::CODE),
        (Operation::Read, vec![page(0), page(2)], opcode::Readv::CODE),
        (Operation::Write, vec![page(63)], opcode::Write::CODE),
        (Operation::Write, vec![page(0), zeroes], opcode::Writev::CODE),
        (Operation::Write, vec![zeroes], opcode::Write::CODE),
    ] {
        let flight = Flight { target: FILE, operation };
        let Ticket::Request { tag, generation } = bench.ring.ledger.enter(Tag(0), flight) else {
            unreachable!()
        };
        let entry = bench.ring.plan(Tag(0), &moving(operation, 0, &segments)).unwrap();
        bench.ring.ledger.end(tag, generation, Ok(0));
        let code = u8::try_from(entry.get_opcode()).unwrap();
        assert_eq!(code, expected, "{operation:?} {segments:?}");
    }
}

/// The doorbell's own call on a kernel without the command. (The system call for devices is tested
/// on devices.)
#[test]
fn a_discard_by_the_doorbell_is_reported_as_any_other() {
    let mut bench = Bench::new(Level::NoArray, Register::Yes);
    bench.fill(0, b'x');
    let page = Segment::frames(Frame(0), PAGE_BYTES);
    assert_eq!(bench.ask(&moving(Operation::Write, 0, &[page])), Ok(4096));
    for (length, expected) in [(4096, Ok(0)), (0, Err(Errno(libc::EINVAL)))] {
        let flight = Flight { target: FILE, operation: Operation::Discard };
        let ticket = bench.ring.ledger.enter(Tag(5), flight);
        bench
            .ring
            .synchronous
            .push((ticket, Synchronous::Discard { target: FILE, offset: 0, length }));
        let done = bench.wait_for(1);
        if done[0].result == Err(Errno::UNSUPPORTED) {
            return println!("skipped: this file system cannot punch");
        }
        assert_eq!(done, [Completion { tag: Tag(5), result: expected }]);
    }
    assert_eq!(fs::read(&bench.path).unwrap(), [0; 4096]);
}

#[test]
fn contract_13_a_completion_nobody_waits_for_is_dropped() {
    let mut ring = Ring::new(Arc::new(Arena::new(1).unwrap()), 4).unwrap();
    for ticket in [Ticket::Request { tag: Tag(900), generation: 1 }, Ticket::Unknown] {
        ring.push(&opcode::Nop::new().build().user_data(ticket.word()));
    }
    ring.doorbell(Wait::Something(None)).unwrap();
    let mut done = Vec::new();
    ring.reap(&mut done);
    assert_eq!(done, []);
    assert_eq!(ring.in_flight(), 0);
}
