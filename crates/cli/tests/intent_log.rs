//! `forebay recover` of a directory, and the independent reader beside it. The logs are written
//! here, block by block, by the format.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use forebay_log::{
    BLOCK, Batch, Counts, FileId, HEADS, Head, LogId, MARK_ATTRIBUTE, Mark, NAME, Point, Wall,
};

const FOREBAY: &str = env!("CARGO_BIN_EXE_forebay");
const READER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/read-intent-log");
const LOG: LogId = LogId([9; 16]);
const RING: u64 = 32;
const SECOND: i64 = 1_000_000_000;

/// A directory whose engine has crashed.
struct Store {
    directory: tempfile::TempDir,
    log: File,
    next: Point,
    promise: Wall,
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64
}

fn id(file: &File) -> FileId {
    let found = file.metadata().unwrap();
    let born = found.created().unwrap().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
    FileId { inode: found.ino(), generation: None, born: Some(Wall(born)) }
}

impl Store {
    fn new(promise: i64) -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = directory.path().join(NAME);
        let log = OpenOptions::new().create_new(true).read(true).write(true).open(path).unwrap();
        log.set_len((HEADS + RING) * BLOCK as u64).unwrap();
        let next = Point { position: 0, sequence: 1, chain: 0 };
        let promise = Wall(now() + promise);
        let head = Head { log: LOG, number: 1, file: id(&log), ring: RING, start: next, promise };
        log.write_all_at(&head.encode(), head.slot() * BLOCK as u64).unwrap();
        Self { directory, log, next, promise }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn make(&self, name: &str, content: &[u8]) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), content).unwrap();
        let file = id(&File::open(self.path(name)).unwrap());
        let mark = Mark { log: LOG, file, counts: Counts::From(1), promise: Wall::default() };
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(self.path(name), MARK_ATTRIBUTE, &mark.encode(), flags).unwrap();
    }

    fn append(&mut self, records: &[(&str, u64, &[u8])]) {
        let mut batch = Batch::new();
        for (name, offset, data) in records {
            let file = id(&File::open(self.path(name)).unwrap());
            let range = *offset..offset + data.len() as u64;
            batch.add(&file, name.as_bytes(), &[range]).copy_from_slice(data);
        }
        let (bytes, next) = batch.seal(&LOG, &self.next, self.promise);
        let block = HEADS + self.next.position % RING;
        self.log.write_all_at(bytes, block * BLOCK as u64).unwrap();
        self.next = next;
    }

    fn recover(&self, options: &[&str]) -> (Option<i32>, String, String) {
        let place = self.directory.path().to_str().unwrap();
        run(FOREBAY, &[&["recover"], options, &[place]].concat())
    }

    /// Replays the log into copies, with the independent reader.
    fn replayed_by_the_reader(&self) -> tempfile::TempDir {
        let out = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (log, place) = (self.path(NAME), self.directory.path());
        let words = [&log, Path::new("--replay"), place, out.path()].map(|it| it.to_str().unwrap());
        let (code, _, err) = run(READER, &words);
        assert_eq!(code, Some(0), "{err}");
        out
    }
}

fn run(program: &str, words: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(program).args(words).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn contract_23_a_crashed_directory_is_recovered_as_the_reader_says() {
    let mut store = Store::new(30 * SECOND);
    store.make("one", &[b'-'; 20]);
    store.make("sub/two", b"");
    store.append(&[("one", 15, b"first"), ("sub/two", 3, b"xyz")]);
    store.append(&[("one", 18, b"second")]);
    let expected = store.replayed_by_the_reader();
    let (code, out, err) = store.recover(&["--dry-run"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("one: 9 bytes can be put back\n"), "{out}");
    assert_eq!(fs::read(store.path("one")).unwrap(), [b'-'; 20]);
    let (code, out, err) = store.recover(&[]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("sub/two: 3 bytes put back and synced\n"), "{out}");
    assert!(out.ends_with("the intent log is empty; its files can be opened\n"), "{out}");
    for (name, content) in [("one", &b"---------------firsecond"[..]), ("sub/two", b"\0\0\0xyz")] {
        assert_eq!(fs::read(store.path(name)).unwrap(), content);
        assert_eq!(fs::read(expected.path().join(name)).unwrap(), content);
    }
    let (code, out, _) = store.recover(&[]);
    assert!(code == Some(0) && out.lines().count() == 1, "{out}");
}

#[test]
fn contract_24_bytes_that_may_not_be_put_back_stay_or_are_saved() {
    let mut store = Store::new(SECOND / 5);
    store.make("file", b"before");
    store.append(&[("file", 2, b"LOG")]);
    std::thread::sleep(std::time::Duration::from_millis(400));
    fs::write(store.path("file"), b"by others").unwrap();
    assert!(!store.replayed_by_the_reader().path().join("file").exists());
    let (code, out, err) = store.recover(&[]);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("file: the file was changed after the crash; 3 bytes can be saved"));
    assert!(err.contains("keeps records of 1 file; "), "{err}");
    let saved = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (code, out, err) = store.recover(&["--save", saved.path().to_str().unwrap()]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("; 3 bytes saved to "), "{out}");
    assert_eq!(fs::read(store.path("file")).unwrap(), b"by others");
    assert_eq!(fs::read_dir(saved.path()).unwrap().count(), 2);
}

#[test]
fn wrong_places_and_arguments_of_a_recovery_are_named() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let place = directory.path().to_str().unwrap();
    let (code, _, err) = run(FOREBAY, &["recover", place]);
    assert!(code == Some(2) && err.contains("this directory has no intent log"), "{err}");
    let image = directory.path().join("image");
    fs::write(&image, "x").unwrap();
    let (code, _, err) = run(FOREBAY, &["recover", image.to_str().unwrap(), "--save", place]);
    assert!(code == Some(2) && err.contains("--save is for the intent log"), "{err}");
    let (code, _, err) = run(FOREBAY, &["recover", place, "--save", place, "--dry-run"]);
    assert!(code == Some(2) && err.contains("--dry-run"), "{err}");
}
