//! Page states that an engine with a keeper records in its memory, after each change.

mod support;

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay::{Engine, File, Options, inside};
use forebay_uring::arena::Arena;
use forebay_uring::header::FrameState;
use support::stopped::{Account, accounts, has_memory, own_arena};
use support::{MIB, PAGE, eventually, how, pattern, process};
use tempfile::TempDir;

/// The memory is found as that of the only engine.
static ONLY: Mutex<()> = Mutex::new(());

/// Nothing is written before somebody asks for it.
const LATE: Duration = Duration::from_secs(3600);

const SOON: Duration = Duration::from_secs(10);

/// An engine, its memory, and a place for files.
struct Bench {
    arena: Arena,
    engine: Engine,
    directory: TempDir,
    _only: MutexGuard<'static, ()>,
}

impl Bench {
    fn new() -> Self {
        let only = ONLY.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(
            eventually(SOON, || !has_memory()),
            "the memory of the one before goes with its last thread"
        );
        let builder = Engine::builder(Options {
            cache_bytes: Some(8 << 20),
            dirty_bytes: Some(4 << 20),
            dirty_age: LATE,
            ..Options::default()
        });
        let engine = inside::survivable(builder).build().unwrap();
        Self { arena: own_arena(), engine, directory: support::directory(), _only: only }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("file")
    }

    fn open(&self) -> File {
        self.engine.open(self.path(), &how::create()).unwrap()
    }

    /// A file of this many bytes of a pattern, opened; nothing of it is here.
    fn open_with(&self, bytes: usize) -> File {
        std::fs::write(self.path(), pattern(1, bytes)).unwrap();
        self.open()
    }

    fn account(&self) -> Account {
        let mut accounts = accounts(&self.arena);
        assert_eq!(accounts.len(), 1, "one file is open");
        accounts.pop().unwrap()
    }

    /// Each page that has to be written, with its state.
    fn dirty(&self) -> Vec<(u64, FrameState)> {
        self.account().dirty.iter().map(|(page, (_, header))| (*page, header.state)).collect()
    }

    fn clean(&self) -> Vec<u64> {
        self.account().clean.into_keys().collect()
    }

    /// The frame and the sequence of a page that has to be written.
    fn header(&self, page: u64) -> (u32, u64) {
        let (frame, header) = self.account().dirty[&page];
        (frame.0, header.sequence)
    }

    /// Byte ranges of a page that are recorded as written: the first byte, and the byte after the
    /// last.
    fn written(&self, page: u64) -> Vec<(usize, usize)> {
        let written = self.arena.written_of(self.account().dirty[&page].0);
        written.into_iter().map(|bytes| (bytes.start, bytes.end)).collect()
    }
}

use FrameState::{Dirty, Partial};

fn is_shared(file: &File) -> bool {
    let is_shared = file.describe().contains("shared");
    if is_shared {
        support::skip("survive_headers", "no lease on this file system or for this user");
    }
    is_shared
}

#[test]
fn a_page_that_is_written_again_in_place_stays_published_as_it_is() {
    let bench = Bench::new();
    let file = bench.open();
    file.write_at(&pattern(1, 10_000), 0).unwrap();
    assert_eq!(bench.dirty(), [(0, Dirty), (1, Dirty), (2, Dirty)]);
    assert_eq!(bench.account().record.size, 10_000);
    let headers = [0, 2].map(|page| bench.header(page));
    file.write_at(&pattern(2, 4096), 0).unwrap();
    file.write_at(&pattern(2, 100), 300).unwrap();
    file.append(&pattern(3, 50)).unwrap();
    assert_eq!([0, 2].map(|page| bench.header(page)), headers);
    assert_eq!(bench.account().record.size, 10_050);
    file.close().unwrap();
}

#[test]
fn of_a_page_of_which_a_part_is_here_the_part_is_said() {
    let bench = Bench::new();
    let file = bench.open_with(20_000);
    file.write_at(&pattern(2, 100), 5000).unwrap();
    file.write_at(&pattern(3, 10), 4096).unwrap();
    assert_eq!(bench.dirty(), [(1, Partial)]);
    assert_eq!(bench.written(1), [(0, 10), (904, 1004)]);
    let header = bench.header(1);
    // Read, it is filled; written over, too; neither is published anew.
    let mut page = [0; 4096];
    file.read_at(&mut page, 4096).unwrap();
    assert_eq!((bench.written(1), bench.header(1)), (vec![(0, 4096)], header));
    file.write_at(&pattern(4, 1), 9000).unwrap();
    let header = bench.header(2);
    file.write_at(&pattern(5, 4096), 8192).unwrap();
    assert_eq!((bench.written(2), bench.header(2)), (vec![(0, 4096)], header));
    // Of the last page, all there is.
    file.write_at(&pattern(6, 20_000 - 16_500), 16_500).unwrap();
    assert_eq!(bench.written(4), [(116, 3616)]);
    file.write_at(&pattern(7, 116), 16_384).unwrap();
    assert_eq!(bench.written(4), [(0, 4096)]);
    file.close().unwrap();
}

#[test]
fn what_is_written_is_clean_where_the_file_is_ours_alone() {
    let bench = Bench::new();
    let file = bench.open_with(20_000);
    if is_shared(&file) {
        return;
    }
    file.write_at(&pattern(2, 5000), 0).unwrap();
    assert_eq!(bench.dirty(), [(0, Dirty), (1, Partial)]);
    file.sync_data().unwrap();
    assert_eq!((bench.dirty(), bench.clean()), (vec![], vec![0, 1]));
    file.read_at(&mut [0; 1], 12_300).unwrap();
    assert!(bench.clean().contains(&3), "what is read in is clean");
    let before = bench.account().clean[&1].1.sequence;
    file.write_at(&pattern(3, 1), 5000).unwrap();
    assert_eq!(bench.dirty(), [(1, Dirty)]);
    assert!(bench.header(1).1 > before);
    assert!(!bench.clean().contains(&1));
    file.close().unwrap();
}

#[test]
fn what_is_not_kept_is_not_said() {
    let bench = Bench::new();
    let file = bench.engine.open(bench.path(), how::create().uncached(true)).unwrap();
    file.write_at(&pattern(1, 1 << 20), 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!((bench.dirty(), bench.clean()), (vec![], vec![]));
    file.close().unwrap();
}

#[test]
fn nothing_is_said_of_what_is_cut_off() {
    let bench = Bench::new();
    let file = bench.open_with(20_000);
    file.write_at(&pattern(2, 30_000), 2000).unwrap();
    file.set_len(9000).unwrap();
    let pages: Vec<u64> =
        bench.dirty().into_iter().map(|(page, _)| page).chain(bench.clean()).collect();
    assert!(pages.iter().all(|page| *page <= 2), "{pages:?}");
    let record = bench.account().record;
    assert_eq!((record.size, record.cut), (9000, None));
    file.set_len(100_000).unwrap();
    assert_eq!(bench.account().record.size, 100_000);
    file.close().unwrap();
}

#[test]
fn nothing_is_said_of_what_was_dropped() {
    let bench = Bench::new();
    let file = bench.open_with(20_000);
    file.write_at(&pattern(2, 30_000), 2000).unwrap();
    file.write_at(&pattern(2, 30), 19_000).unwrap();
    file.abandon_unwritten().unwrap();
    assert_eq!((bench.dirty(), bench.account().record.size), (vec![], 20_000));
    file.close().unwrap();
    assert!(std::fs::read(bench.path()).unwrap() == pattern(1, 20_000));
}

#[test]
fn of_a_shared_file_nothing_is_said_but_what_has_to_be_written() {
    let bench = Bench::new();
    std::fs::write(bench.path(), pattern(1, 20_000)).unwrap();
    let other = std::fs::File::open(bench.path()).unwrap();
    let file = bench.open();
    assert!(!bench.account().record.leased);
    file.write_at(&pattern(2, 5000), 0).unwrap();
    file.read_at(&mut [0; 10], 17_000).unwrap();
    assert_eq!((bench.dirty(), bench.clean()), (vec![(0, Dirty), (1, Partial)], vec![]));
    // Written, it is kept for the flush and read from here, and is not to be written again.
    file.sync_data().unwrap();
    assert_eq!((bench.dirty(), bench.clean()), (vec![], vec![]));
    file.write_at(&pattern(3, 10), 0).unwrap();
    let mut found = [0; 10];
    other.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(found, pattern(2, 10)[..]);
    file.close().unwrap();
}

#[test]
fn clean_pages_are_said_no_more_when_another_program_opens_the_file() {
    let bench = Bench::new();
    let file = bench.open_with(100_000);
    if is_shared(&file) {
        return;
    }
    assert!(bench.account().record.leased);
    file.read_at(&mut vec![0; 100_000], 0).unwrap();
    file.write_at(&pattern(2, 5000), 0).unwrap();
    assert!(bench.clean().len() > 10, "{:?}", bench.clean());
    process::shell("cksum <\"$1\"", &bench.path()).unwrap();
    assert_eq!((bench.dirty(), bench.clean()), (vec![], vec![]));
    // Alone with it again, we have its lease from the next open on.
    let again = bench.open();
    file.read_at(&mut vec![0; 50_000], 0).unwrap();
    assert_eq!(bench.clean().is_empty(), is_shared(&again));
    again.close().unwrap();
    file.close().unwrap();
}

#[test]
fn a_frame_that_holds_another_page_says_so() {
    let bench = Bench::new();
    let file = bench.open();
    // More than there is memory for.
    let data = pattern(1, MIB as usize);
    for round in 0..24 {
        file.write_at(&data, round * MIB).unwrap();
        let account = bench.account();
        assert_eq!(account.record.size, (round + 1) * MIB);
        assert!(account.dirty.len() as u64 * PAGE <= 4 * MIB, "{} pages", account.dirty.len());
    }
    file.sync_data().unwrap();
    file.read_at(&mut vec![0; 20 << 20], 0).unwrap();
    let clean = bench.account();
    let found: Vec<_> = clean.clean_pages(&bench.arena).collect();
    assert!(!found.is_empty());
    for (at, bytes) in found {
        assert!(bytes == data[at % data.len()..][..bytes.len()], "the page at {at}");
    }
    file.close().unwrap();
}

#[test]
fn a_closed_file_has_left_and_the_next_of_its_number_is_another() {
    let bench = Bench::new();
    let file = bench.open_with(10_000);
    let first = bench.account().record;
    assert!(!first.created && first.writable && !first.device);
    assert_eq!(first.path, bench.path());
    file.write_at(&pattern(2, 20_000), 100).unwrap();
    file.close().unwrap();
    assert!(accounts(&bench.arena).is_empty());
    let other = bench.engine.open(bench.directory.path().join("other"), &how::create()).unwrap();
    let second = bench.account().record;
    assert!(second.created);
    assert_ne!((first.generation, first.identity), (second.generation, second.identity));
    other.write_at(&pattern(2, 20_000), 100).unwrap();
    drop(other);
    assert!(eventually(SOON, || accounts(&bench.arena).is_empty()));
    // A file that is open for reading alone has nothing to say.
    read_only(&bench.path(), &bench);
}

fn read_only(path: &Path, bench: &Bench) {
    let mut permissions = std::fs::metadata(path).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(path, permissions).unwrap();
    if support::is_root() {
        return support::skip("read_only", "nothing is read-only to root");
    }
    let file = bench.engine.open(path, &how::read()).unwrap();
    file.read_at(&mut [0; 100], 0).unwrap();
    assert!(accounts(&bench.arena).is_empty());
    file.close().unwrap();
}
