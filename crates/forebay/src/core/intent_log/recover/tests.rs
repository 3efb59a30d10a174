//! Recoveries of real files.

mod bad_logs;

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use forebay_log::{BLOCK, Batch, Counts, HEADS, Mark, Wall};

use super::super::create::create;
use super::super::marks::{Marked, file_id, mark_of, set_mark};
use super::*;
use crate::platform::{Access, OpenDirectory, OpenFile};

const RING: u64 = 64;
const SECOND: i64 = 1_000_000_000;

/// A directory with a log.
struct Store {
    directory: tempfile::TempDir,
}

/// The log of a store, open as an engine has it.
struct Engine {
    log: LogFile,
    root: OpenDirectory,
    promise: Wall,
}

impl Store {
    fn new() -> Self {
        let directory = tempfile::tempdir_in(".").unwrap();
        create(directory.path(), RING).unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Opens the log with a promise that ends in some time.
    fn engine(&self, nanoseconds: i64) -> Engine {
        let mut log = LogFile::open(self.directory.path(), Duration::ZERO).unwrap().unwrap();
        let recovery = recover_log(&mut log, self.directory.path(), &ask(), &[]).unwrap();
        assert!(recovery.is_empty && recovery.files.is_empty());
        let promise = Wall(clock::wall()).after(nanoseconds);
        log.advance(log.ring().start(), promise).unwrap();
        Engine { log, root: OpenDirectory::open(self.directory.path()).unwrap(), promise }
    }

    /// A store with one file of 6 bytes and a record of it, after the crash of its engine.
    fn crashed(nanoseconds: i64) -> Self {
        let store = Self::new();
        let mut engine = store.engine(nanoseconds);
        engine.make(&store, "file", b"before");
        engine.append(&[("file", 3, b"AFTER")]);
        store
    }

    fn recover(&self, ask: &Ask) -> Recovery {
        recover(self.directory.path(), ask).unwrap()
    }

    fn error(&self) -> Error {
        let before = fs::read(self.path(NAME)).unwrap();
        let error = recover(self.directory.path(), &ask()).unwrap_err();
        assert_eq!(fs::read(self.path(NAME)).unwrap(), before, "the log is left as it was");
        error
    }

    /// Changes bytes of the log.
    fn damage(&self, at: u64, bytes: &[u8]) {
        let file = fs::OpenOptions::new().write(true).open(self.path(NAME)).unwrap();
        file.write_all_at(bytes, at).unwrap();
    }

    fn mark(&self, name: &str) -> Marked {
        let root = OpenDirectory::open(self.directory.path()).unwrap();
        mark_of(&root.open_existing(name.as_ref(), Access::Read).unwrap()).unwrap()
    }

    /// Checks that the records of `file` stay in the log for this reason, and can be saved.
    fn expect_skipped(&self, reason: &str) {
        let before = fs::read(self.path("file")).unwrap();
        let recovery = self.recover(&ask());
        assert!(!recovery.is_empty);
        let [Recovered { bytes: 5, fate: Fate::Skipped { reason: found, saved: None }, .. }] =
            &recovery.files[..]
        else {
            panic!("{recovery:?}")
        };
        assert!(found.contains(reason), "{found}");
        let saved = tempfile::tempdir_in(".").unwrap();
        let recovery = self.recover(&Ask { save: Some(saved.path().to_owned()), ..ask() });
        assert!(recovery.is_empty, "{recovery:?}");
        let Fate::Skipped { saved: Some(copy), .. } = &recovery.files[0].fate else {
            panic!("{recovery:?}")
        };
        assert_eq!(fs::read(copy).unwrap(), b"\0\0\0AFTER");
        let ranges = fs::read_to_string(format!("{}.ranges", copy.display())).unwrap();
        assert_eq!(ranges, "file\n3 5\n");
        assert_eq!(fs::read(self.path("file")).unwrap(), before);
        assert!(self.recover(&ask()).files.is_empty());
    }
}

impl Engine {
    fn open(&self, name: &str) -> OpenFile {
        let path = Path::new(name);
        let directory = path.parent().unwrap().to_str().unwrap();
        let directory = if directory.is_empty() { "." } else { directory };
        let directory = self.root.open_directory(directory.as_ref()).unwrap();
        directory.open_existing(path.file_name().unwrap(), Access::ReadWrite).unwrap()
    }

    /// Makes a logged file.
    fn make(&self, store: &Store, name: &str, content: &[u8]) {
        fs::write(store.path(name), content).unwrap();
        let file = self.open(name);
        file.sync().unwrap();
        self.mark(&file, Counts::From(self.log.ring().next().sequence));
    }

    fn mark(&self, file: &OpenFile, counts: Counts) {
        let mark = Mark {
            log: self.log.id(),
            file: file_id(file).unwrap(),
            counts,
            promise: Wall::default(),
        };
        set_mark(file, &mark).unwrap();
    }

    fn append(&mut self, records: &[(&str, u64, &[u8])]) -> u64 {
        let mut batch = Batch::new();
        for (name, offset, data) in records {
            let id = file_id(&self.open(name)).unwrap();
            let range = *offset..offset + data.len() as u64;
            batch.add(&id, name.as_bytes(), &[range]).copy_from_slice(data);
        }
        self.log.append(&mut batch, self.promise).unwrap()
    }
}

fn ask() -> Ask {
    // A child that another test has just forked may still have the file.
    Ask { patience: Duration::from_millis(300), ..Ask::default() }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn mount(arguments: &[&str]) {
    let status = std::process::Command::new("mount").args(arguments).status().unwrap();
    assert!(status.success(), "mount {arguments:?}");
}

/// A mount that ends with the test.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let status = std::process::Command::new("umount").arg(&self.0).status();
        assert!(status.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

#[test]
fn contract_23_records_are_put_into_their_files_once() {
    let store = Store::new();
    fs::create_dir_all(store.path("a/b")).unwrap();
    let mut engine = store.engine(30 * SECOND);
    engine.make(&store, "one", &[b'-'; 100]);
    engine.make(&store, "a/b/two", b"");
    engine.append(&[("one", 90, b"first"), ("a/b/two", 5000, b"x")]);
    engine.append(&[("one", 92, b"second and longer")]);
    let last = engine.append(&[("one", 0, b"third")]);
    drop(engine);
    let dry = store.recover(&Ask { mode: Mode::Dry, ..ask() });
    assert!(!dry.is_empty && dry.batches == 3);
    assert_eq!(fs::read(store.path("one")).unwrap(), [b'-'; 100], "a dry run writes nothing");
    let recovery = store.recover(&ask());
    assert!(recovery.is_empty, "{recovery:?}");
    let bytes: Vec<u64> = recovery.files.iter().map(|file| file.bytes).collect();
    assert_eq!(bytes.iter().sum::<u64>(), 2 + 17 + 5 + 1);
    let one = fs::read(store.path("one")).unwrap();
    assert_eq!(one.len(), 109);
    assert_eq!((&one[..6], &one[89..]), (&b"third-"[..], &b"-fisecond and longer"[..]));
    let two = fs::read(store.path("a/b/two")).unwrap();
    assert_eq!((two.len(), two[5000]), (5001, b'x'));
    let Marked::By(mark) = store.mark("one") else { panic!("no mark") };
    assert_eq!((mark.counts, mark.promise), (Counts::From(last + 1), Wall::default()));
    // Changes after it are not undone.
    fs::write(store.path("one"), b"new").unwrap();
    let again = store.recover(&ask());
    assert!(again.is_empty && again.files.is_empty());
    assert_eq!(fs::read(store.path("one")).unwrap(), b"new");
}

#[test]
fn contract_24_records_before_the_mark_do_not_count() {
    let store = Store::new();
    let mut engine = store.engine(30 * SECOND);
    engine.make(&store, "file", b"------");
    let first = engine.append(&[("file", 0, b"old")]);
    let file = engine.open("file");
    file.write_all_at(b"NEW", 0).unwrap();
    file.sync_data().unwrap();
    engine.mark(&file, Counts::From(first + 1));
    engine.append(&[("file", 4, b"log")]);
    drop((engine, file));
    assert!(store.recover(&ask()).is_empty);
    assert_eq!(fs::read(store.path("file")).unwrap(), b"NEW-log");
}

#[test]
fn a_file_is_found_by_its_inode() {
    let store = Store::new();
    let mut engine = store.engine(30 * SECOND);
    engine.make(&store, "file", b"before");
    engine.append(&[("file", 3, b"AFTER")]);
    fs::create_dir_all(store.path("deep/er")).unwrap();
    fs::rename(store.path("file"), store.path("deep/er/moved")).unwrap();
    fs::write(store.path("file"), b"another").unwrap();
    drop(engine);
    let recovery = store.recover(&ask());
    assert!(recovery.is_empty, "{recovery:?}");
    assert_eq!(recovery.files[0].path, Path::new("deep/er/moved"));
    assert_eq!(fs::read(store.path("deep/er/moved")).unwrap(), b"befAFTER");
    assert_eq!(fs::read(store.path("file")).unwrap(), b"another");
}

#[test]
fn records_of_removed_files_are_counted_and_dropped() {
    let store = Store::crashed(30 * SECOND);
    fs::remove_file(store.path("file")).unwrap();
    let recovery = store.recover(&ask());
    assert!(recovery.is_empty);
    assert!(matches!(&recovery.files[..], [Recovered { bytes: 5, fate: Fate::Deleted, .. }]));
}

#[test]
fn a_file_that_may_be_below_a_mount_point_is_not_taken_for_a_removed_one() {
    if !is_root() {
        return;
    }
    let store = Store::new();
    fs::create_dir(store.path("below")).unwrap();
    let mut engine = store.engine(30 * SECOND);
    engine.make(&store, "below/file", b"before");
    engine.append(&[("below/file", 3, b"AFTER")]);
    drop(engine);
    let below = store.path("below");
    mount(&["-t", "tmpfs", "none", below.to_str().unwrap()]);
    let mounted = Mounted(below);
    let recovery = store.recover(&ask());
    assert!(!recovery.is_empty);
    let Fate::Kept(error) = &recovery.files[0].fate else { panic!("{recovery:?}") };
    assert!(error.to_string().contains("below: a file system is mounted there"), "{error}");
    drop(mounted);
    assert!(store.recover(&ask()).is_empty);
    assert_eq!(fs::read(store.path("below/file")).unwrap(), b"befAFTER");
}

#[test]
fn contract_24_a_file_that_was_changed_after_the_crash_is_left_alone() {
    let store = Store::crashed(SECOND / 5);
    std::thread::sleep(Duration::from_millis(300));
    fs::OpenOptions::new().append(true).open(store.path("file")).unwrap().set_len(4).unwrap();
    store.expect_skipped("changed after the crash");
}

#[test]
fn a_file_without_a_mark_of_this_log_is_left_alone() {
    let name = forebay_log::MARK_ATTRIBUTE;
    let store = Store::crashed(30 * SECOND);
    rustix::fs::removexattr(store.path("file"), name).unwrap();
    store.expect_skipped("has no mark");
    let store = Store::crashed(30 * SECOND);
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(store.path("file"), name, b"what?", flags).unwrap();
    store.expect_skipped("cannot be read");
    let other = Store::crashed(30 * SECOND);
    for (path, reason) in [("file", "of another log"), ("copy", "copied from another file")] {
        let store = Store::crashed(30 * SECOND);
        let engine_mark = |change: &dyn Fn(&mut Mark)| {
            let (Marked::By(mut mark), Marked::By(theirs)) =
                (store.mark("file"), other.mark("file"))
            else {
                panic!("no marks")
            };
            match path {
                "file" => mark.log = theirs.log,
                _ => mark.file = theirs.file,
            }
            change(&mut mark);
            rustix::fs::setxattr(store.path("file"), name, &mark.encode(), flags).unwrap();
        };
        engine_mark(&|_| ());
        store.expect_skipped(reason);
    }
}

#[test]
fn a_file_that_could_not_be_emptied_is_saved_only() {
    let store = Store::new();
    let mut engine = store.engine(30 * SECOND);
    engine.make(&store, "file", b"before");
    let sequence = engine.append(&[("file", 3, b"AFTER")]);
    engine.mark(&engine.open("file"), Counts::SavedFrom(sequence));
    drop(engine);
    store.expect_skipped("could not write it before");
}

#[test]
fn another_file_with_the_same_inode_number_is_left_alone() {
    let store = Store::new();
    let mut engine = store.engine(30 * SECOND);
    engine.make(&store, "file", b"before");
    let file = engine.open("file");
    let mut batch = Batch::new();
    let mut id = file_id(&file).unwrap();
    id.born = id.born.map(|born| born.after(-1));
    batch.add(&id, b"file", std::slice::from_ref(&(0..3))).copy_from_slice(b"old");
    engine.log.append(&mut batch, engine.promise).unwrap();
    drop((engine, file));
    let recovery = store.recover(&ask());
    assert!(recovery.is_empty && matches!(recovery.files[0].fate, Fate::Deleted));
    assert_eq!(fs::read(store.path("file")).unwrap(), b"before");
}

#[test]
fn a_file_that_another_program_has_open_is_not_recovered() {
    let store = Store::crashed(30 * SECOND);
    let open = fs::File::open(store.path("file")).unwrap();
    let recovery = store.recover(&ask());
    let Fate::Kept(error) = &recovery.files[0].fate else { panic!("{recovery:?}") };
    assert_eq!(error.to_string(), "file: another program has the file open");
    drop(open);
    assert!(store.recover(&ask()).is_empty);
    assert_eq!(fs::read(store.path("file")).unwrap(), b"befAFTER");
}

#[test]
fn an_interrupted_recovery_is_repeated() {
    let store = Store::crashed(SECOND / 5);
    std::thread::sleep(Duration::from_millis(300));
    // As a recovery leaves it in the middle: changed after the promise of the log, within that of
    // the mark.
    let Marked::By(mark) = store.mark("file") else { panic!("no mark") };
    let root = OpenDirectory::open(store.directory.path()).unwrap();
    let file = root.open_existing("file".as_ref(), Access::ReadWrite).unwrap();
    set_mark(&file, &Mark { promise: Wall(clock::wall()).after(SECOND), ..mark }).unwrap();
    file.write_all_at(b"AF", 3).unwrap();
    drop(file);
    assert!(store.recover(&ask()).is_empty);
    assert_eq!(fs::read(store.path("file")).unwrap(), b"befAFTER");
}
