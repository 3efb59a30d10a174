//! An engine could not write everything, and its program lives on: the keeper writes the rest, and
//! nobody can open the files before the keeper is done.

mod support;

use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use forebay::intent_log::{self, Ask};
use forebay::{Builder, Engine, ErrorKind, File, Keeper, Options};
use support::kept::{self, SOON, adopt_orphans, wait_for_orphan};
use support::mount::{FileSystem, Mount};
use support::{MIB, assert_on_disk, directory, eventually, how, kind_of, knobs, pattern, process};

const CHILD: &str = "child_that_gives_its_lock_up";

const LENGTH: usize = 1_000_003;

#[test]
fn keeper() {
    kept::serve();
}

/// Written data stays dirty until the engine ends.
fn lazy(keeper: Keeper, backend: &str) -> Builder {
    let options = Options {
        cache_bytes: Some(64 << 20),
        dirty_bytes: Some(48 << 20),
        background_bytes: Some(48 << 20),
        dirty_age: Duration::from_secs(3600),
        ..Options::default()
    };
    Engine::builder(knobs::named(options, [("backend", backend)])).survive(keeper)
}

fn number(engine: &Engine) -> u32 {
    engine.keeper().unwrap().process.unwrap()
}

fn is_there(process: u32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

fn read_all(file: &File) -> Vec<u8> {
    let mut content = vec![0; file.len().unwrap() as usize];
    assert_eq!(file.read_at(&mut content, 0).unwrap(), content.len());
    content
}

/// The next instance opens the file as soon as it may: then what the one before had accepted is
/// there.
fn open_next(engine: &Engine, path: &Path) -> File {
    let start = Instant::now();
    loop {
        match engine.open(path, &how::write()) {
            Ok(file) => return file,
            Err(error) => {
                assert!([ErrorKind::Busy, ErrorKind::Open].contains(&error.kind()), "{error}");
                assert!(start.elapsed() < SOON, "{error}");
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn contract_04_and_09_nobody_gets_in_before_it_is_done_after_a_failed_shutdown() {
    for backend in ["io_uring", "threads"] {
        let Some(mount) = Mount::new("left_after_shutdown", FileSystem::Ext4, 64 * MIB) else {
            return;
        };
        let directory = directory();
        let path = mount.path().canonicalize().unwrap().join("file");
        let log = directory.path().join("log");
        let first =
            lazy(Keeper { log: Some(log.clone()), ..kept::keeper() }, backend).build().unwrap();
        let keeper = number(&first);
        let file = first.open(&path, &how::create()).unwrap();
        file.write_at(&pattern(5, LENGTH), 0).unwrap();
        let filler = process::fill_up(&mount.path());
        assert_eq!(kind_of(first.shutdown(SOON)), ErrorKind::NoSpace);
        // The engine is gone before the file is.
        drop(first);
        drop(file);
        let next = Engine::new().unwrap();
        assert!(next.open(&path, &how::write()).is_err(), "the keeper was to have it");
        std::fs::remove_file(filler).unwrap();
        let file = open_next(&next, &path);
        assert!(
            read_all(&file) == pattern(5, LENGTH),
            "somebody got in before the keeper was done"
        );
        file.write_at(&pattern(6, LENGTH), 0).unwrap();
        file.close().unwrap();
        assert!(eventually(SOON, || !is_there(keeper)), "{}", kept::said(&log));
        assert_on_disk(&path, &pattern(6, LENGTH), "what is newer");
        // The rings went with the engine, though the process did not.
        let said = kept::said(&log);
        assert!(!said.contains("may still be under way") && said.contains("wrote"), "{said}");
    }
}

/// The engine could not bring a file with records into place, and its program lives on.
#[test]
fn contract_25_nobody_gets_the_log_before_the_keeper_is_done_after_a_failed_shutdown() {
    let Some(mount) = Mount::new("log_left_after_shutdown", FileSystem::Ext4, 64 * MIB) else {
        return;
    };
    let directory = directory();
    let place = mount.path().canonicalize().unwrap();
    let (path, log) = (place.join("file"), directory.path().join("log"));
    let keeper = Keeper { log: Some(log.clone()), ..kept::keeper() };
    let engine = lazy(keeper, "auto").intent_log_always(&place).build().unwrap();
    let number = number(&engine);
    let file = engine.open(&path, &how::create()).unwrap();
    for _ in 0..20 {
        file.write_at(&pattern(1, 40_960), 0).unwrap();
        file.sync_data().unwrap();
    }
    assert!(engine.stats().logged_syncs > 0);
    // Newer than a record, and without space.
    file.write_at(&pattern(5, LENGTH), 0).unwrap();
    let filler = process::fill_up(&mount.path());
    assert_eq!(kind_of(engine.shutdown(SOON)), ErrorKind::NoSpace);
    drop(file);
    drop(engine);
    let at_once = Ask { patience: Duration::ZERO, ..Ask::default() };
    let recovered = intent_log::recover(&place, &at_once);
    assert_eq!(kind_of(recovered.map(drop)), ErrorKind::Busy);
    std::fs::remove_file(filler).unwrap();
    assert!(eventually(SOON, || !is_there(number)), "{}", kept::said(&log));
    assert_on_disk(&path, &pattern(5, LENGTH), "everything");
    let recovery = intent_log::recover(&place, &at_once).unwrap();
    let bytes: u64 = recovery.files.iter().map(|file| file.bytes).sum();
    assert!(recovery.is_empty && bytes == 0, "{recovery:?}");
    assert_on_disk(&path, &pattern(5, LENGTH), "nothing older");
}

/// Takes or gives up a lock over the whole file, as the open file's.
fn set_lock(descriptor: RawFd, kind: libc::c_int) {
    // SAFETY: all fields are plain numbers; zeroes mean from the start, to the end, no process.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    // SAFETY: reads the lock during the call.
    let result = unsafe { libc::fcntl(descriptor, libc::F_OFD_SETLK, &raw const lock) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn child_that_gives_its_lock_up() {
    let Some(task) = process::task() else { return };
    let (directory, path) = task.split_once('\n').unwrap();
    let engine =
        lazy(Keeper { log: Some(Path::new(directory).join("log")), ..kept::keeper() }, "auto")
            .build()
            .unwrap();
    let file = engine.open(path, &how::write()).unwrap();
    file.write_at(&pattern(5, LENGTH), 0).unwrap();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().map(Result::unwrap) {
        if std::fs::read_link(entry.path()).is_ok_and(|to| to == Path::new(path)) {
            set_lock(entry.file_name().to_str().unwrap().parse().unwrap(), libc::F_UNLCK);
        }
    }
    process::report(format_args!("{}", number(&engine)));
    std::thread::sleep(SOON);
}

#[test]
fn contract_04_what_others_have_locked_since_is_not_written_over() {
    use std::io::BufRead as _;
    adopt_orphans();
    let directory = directory();
    let place = directory.path().canonicalize().unwrap();
    let path = place.join("file");
    // Open here from the beginning: so there is no lease, and nobody waits.
    let other = std::fs::File::create(&path).unwrap();
    let mut child =
        process::start_child(CHILD, &format!("{}\n{}", place.display(), path.display()));
    let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    let reported =
        lines.map_while(Result::ok).find_map(|line| process::reported(&line).map(str::to_owned));
    let keeper: u32 = reported.unwrap().parse().unwrap();
    set_lock(other.as_raw_fd(), libc::F_WRLCK);
    other.write_all_at(b"newer", 0).unwrap();
    kept::kill(&mut child, libc::SIGKILL);
    assert_eq!(wait_for_orphan(keeper, SOON), 1);
    let said = kept::said(&place.join("log"));
    assert!(said.contains("locked it"), "{said}");
    assert_eq!(std::fs::read(&path).unwrap(), b"newer");
}
