//! Other programs write to files that are open here: their bytes survive beside ours, and our
//! appends go behind theirs.

mod support;

use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay::{Cursor, Engine, File, Options};
use support::mount::{FileSystem, Mount};
use support::other::{self, Other};
use support::refused::{self, Threads};
use support::{MIB, PAGE, how, pattern, process};

/// Nothing is written before somebody asks for it.
const LATE: Duration = Duration::from_secs(3600);

/// Seconds others wait for a lease in the tests that stop its holder.
const BREAK_TIME: u64 = 2;

#[test]
fn another_program() {
    other::serve();
}

fn lazy_engine() -> Engine {
    Engine::start(Options { cache_bytes: Some(32 << 20), dirty_age: LATE, ..Options::default() })
        .unwrap()
}

/// Runs a test in a directory of the file system that is built on, and on one of XFS and of ext4.
fn everywhere(test: &str, run: impl Fn(&Path)) {
    run(support::directory().path());
    for file_system in [FileSystem::Xfs, FileSystem::Ext4] {
        if let Some(mount) = Mount::new(test, file_system, 2 << 30) {
            run(&mount.path());
        }
    }
}

/// The same for a test that does it once for all of them.
fn at_once(test: &str, run: impl Fn(&[PathBuf])) {
    let directory = support::directory();
    let kinds = [FileSystem::Xfs, FileSystem::Ext4];
    let mounts = kinds.map(|file_system| Mount::new(test, file_system, 2 << 30));
    let mounted = mounts.iter().flatten().map(Mount::path);
    run(&[directory.path().to_owned()].into_iter().chain(mounted).collect::<Vec<_>>());
}

/// A file that another program has open as well.
fn shared(engine: &Engine, path: &Path) -> (File, Other) {
    let file = engine.open(path, &how::create()).unwrap();
    let mut other = Other::start();
    other.open("both", path);
    assert!(file.describe().contains("shared"), "{}", file.describe());
    (file, other)
}

#[test]
fn contract_06_an_append_goes_behind_what_another_program_appended() {
    everywhere("appends", |directory| {
        let engine = lazy_engine();
        let path = directory.join("file");
        let (file, mut other) = shared(&engine, &path);
        assert_eq!(file.append(&pattern(1, 3000)).unwrap(), 0);
        file.sync_data().unwrap();
        other.do_now("write 3000 5000 2");
        assert_eq!(file.append(&pattern(3, 3000)).unwrap(), 8000);
        assert_eq!(Cursor::new(&file).get_ref().len().unwrap(), 11_000);
        // Not written yet: the end is where ours is.
        assert_eq!(file.append(&pattern(4, 3000)).unwrap(), 11_000);
        file.sync_data().unwrap();
        for (at, length, salt) in
            [(0, 3000, 1), (3000, 5000, 2), (8000, 3000, 3), (11_000, 3000, 4)]
        {
            let holds = other.ask(&format!("holds {at} {length} {salt}"));
            assert_eq!(holds, "true", "bytes from {at} on");
        }
        assert_eq!(other.ask("length"), "14000");
        file.close().unwrap();
    });
}

#[test]
fn contract_06_a_size_that_the_file_system_does_not_report_is_an_error() {
    let directory = support::directory();
    let engine = lazy_engine();
    let path = directory.path().join("file");
    let (file, mut other) = shared(&engine, &path);
    let copy = engine.open(directory.path().join("copy"), &how::create()).unwrap();
    file.write_at(&pattern(1, 12_000), 0).unwrap();
    file.sync_data().unwrap();
    other.do_now("write 12000 5000 2");
    let without_size = || {
        for call in [libc::SYS_fstat, libc::SYS_statx] {
            refused::system_call(call, libc::EIO, Threads::This);
        }
        let failed = |what: &str, done: forebay::Result<u64>| match done {
            Ok(done) => panic!("{what}: {done}"),
            Err(error) => assert_eq!(error.os_error(), Some(libc::EIO), "{what}: {error}"),
        };
        failed("length", file.len());
        failed("metadata", file.metadata().map(|metadata| metadata.len));
        failed("append", file.append(b"lost"));
        failed("allocation", file.allocate(0, MIB).map(|()| 0));
        failed("hole", file.punch_hole(0, 12_000).map(|()| 0));
        failed("copy", engine.copy(&file, &copy));
        failed("read", file.read_at(&mut [0; 10], 0).map(|read| read as u64));
        assert!(Cursor::new(&file).seek(SeekFrom::End(0)).is_err());
        assert!(engine.open(&path, how::write().truncate(true)).is_err());
    };
    std::thread::scope(|scope| scope.spawn(without_size).join()).unwrap();
    file.sync_all().unwrap();
    assert_eq!((file.len().unwrap(), copy.len().unwrap()), (17_000, 0));
    assert_eq!(other.ask("length"), "17000");
    assert_eq!(other.ask("holds 0 12000 1"), "true");
    assert_eq!(other.ask("holds 12000 5000 2"), "true");
    file.close().unwrap();
}

#[test]
fn contract_06_the_length_is_the_one_on_disk() {
    everywhere("length", |directory| {
        let engine = lazy_engine();
        let path = directory.join("file");
        let (file, mut other) = shared(&engine, &path);
        let reader = engine.open(&path, &how::read()).unwrap();
        file.write_at(&pattern(1, 5000), 0).unwrap();
        file.sync_data().unwrap();
        other.do_now("write 5000 2000 2");
        assert_eq!(
            (file.len().unwrap(), reader.len().unwrap()),
            (7000, 7000),
            "appended by the other program"
        );
        // Accepted bytes count, though they are not on disk.
        file.write_at(&pattern(3, 10), 9990).unwrap();
        assert_eq!((file.len().unwrap(), reader.len().unwrap()), (10_000, 10_000));
        other.do_now("write 20000 10 2");
        assert_eq!(
            (file.len().unwrap(), reader.len().unwrap()),
            (20_010, 20_010),
            "while something is not written"
        );
        file.sync_data().unwrap();
        other.do_now("set_length 100");
        assert_eq!(
            (file.len().unwrap(), reader.len().unwrap()),
            (100, 100),
            "cut by the other program"
        );
        file.close().unwrap();
        reader.close().unwrap();

        // One that is open for reading alone has no lease.
        let reader = engine.open(&path, &how::read()).unwrap();
        other.do_now("write 0 300 1");
        assert_eq!(reader.len().unwrap(), 300);
        reader.close().unwrap();
    });
}

/// A page that we have written before, in whole or in part: what another program writes into it
/// afterwards is not ours to write again.
#[test]
fn contract_06_bytes_of_others_in_a_page_that_is_kept_survive() {
    everywhere("kept", |directory| {
        let engine = lazy_engine();
        for (name, before) in [("part", 0..100_u64), ("whole", 0..PAGE)] {
            let path = directory.join(name);
            let (file, mut other) = shared(&engine, &path);
            other.do_now("write 0 12288 1");
            other.do_now("sync");
            let mut expected = pattern(1, 12_288);
            let mut write = |file: &File, at: u64, data: &[u8]| {
                file.write_at(data, at).unwrap();
                expected[at as usize..][..data.len()].copy_from_slice(data);
            };
            write(&file, before.start, &pattern(2, (before.end - before.start) as usize));
            // Written out for another handle that closes, and kept for a flush.
            engine.open(&path, &how::write()).unwrap().close().unwrap();
            other.do_now("write 200 100 3");
            other.do_now("sync");
            write(&file, 100, &pattern(4, 50));
            write(&file, 5000, &pattern(5, 10));
            write(&file, 4090, &pattern(6, 20));
            expected[200..300].copy_from_slice(&pattern(3, 100));
            file.sync_data().unwrap();
            support::assert_on_disk(&path, &expected, name);
            let mut found = vec![0; expected.len()];
            assert_eq!(file.read_at(&mut found, 0).unwrap(), found.len());
            assert!(found == expected, "{name}: as we see it");
            file.close().unwrap();
        }
    });
}

/// The same where what we have of the page was read before the other program wrote.
#[test]
fn contract_06_bytes_of_others_in_a_page_that_was_read_survive() {
    everywhere("read", |directory| {
        let engine = lazy_engine();
        let path = directory.join("file");
        let (file, mut other) = shared(&engine, &path);
        other.do_now("write 0 8192 1");
        file.write_at(&pattern(2, 100), 1000).unwrap();
        let mut page = vec![0; 4096];
        assert_eq!(file.read_at(&mut page, 0).unwrap(), 4096);
        assert!(page[..1000] == pattern(1, 1000) && page[1000..1100] == pattern(2, 100));
        other.do_now("write 2000 100 3");
        file.write_at(&pattern(4, 10), 50).unwrap();
        file.sync_data().unwrap();
        for (at, length, salt) in [(50, 10, 4), (1000, 100, 2), (2000, 100, 3)] {
            let holds = other.ask(&format!("holds {at} {length} {salt}"));
            assert_eq!(holds, "true", "bytes from {at} on");
        }
        file.close().unwrap();
    });
}

#[test]
fn contract_06_bytes_of_others_between_ours_survive() {
    everywhere("between", |directory| {
        let engine = lazy_engine();
        let path = directory.join("file");
        let (file, mut other) = shared(&engine, &path);
        file.write_at(&pattern(1, 100), 0).unwrap();
        other.do_now("write 100 4900 2");
        file.write_at(&pattern(3, 1), 5000).unwrap();
        file.sync_data().unwrap();
        assert_eq!(other.ask("holds 100 4900 2"), "true", "before our last byte");
        other.do_now("write 5001 4000 4");
        file.write_at(&pattern(5, 100), 4000).unwrap();
        file.sync_data().unwrap();
        assert_eq!(other.ask("length"), "9001");
        assert_eq!(other.ask("holds 5001 4000 4"), "true", "behind our last byte");
        file.close().unwrap();
    });
}

/// `set_len(0)` and appends of two threads: records stand together, at the start or behind others.
#[test]
fn contract_08_an_append_is_not_behind_an_end_that_was_cut() {
    let directory = support::directory();
    let engine =
        Engine::start(Options { cache_bytes: Some(32 << 20), ..Options::default() }).unwrap();
    for is_shared in [false, true] {
        let path = directory.path().join(is_shared.to_string());
        let file = engine.open(&path, &how::create()).unwrap();
        let _reader = is_shared.then(|| std::fs::File::open(&path).unwrap());
        for round in 0..30 {
            std::thread::scope(|scope| {
                let cutting = scope.spawn(|| {
                    for _ in 0..8 {
                        std::thread::sleep(Duration::from_micros(300));
                        file.set_len(0).unwrap();
                    }
                });
                while !cutting.is_finished() {
                    file.append(&[1; 300_000]).unwrap();
                }
            });
            let mut found = vec![0; file.len().unwrap() as usize];
            let length = file.read_at(&mut found, 0).unwrap();
            assert_eq!(length as u64, file.len().unwrap());
            let zeroes = found[..length].iter().filter(|byte| **byte == 0).count();
            assert_eq!((zeroes, length % 300_000), (0, 0), "zeroes, and a part, in round {round}");
            file.set_len(0).unwrap();
        }
        file.close().unwrap();
    }
}

/// How long the kernel waits before it takes a lease from who does not give it up: for all of the
/// machine, so one test at a time sets it. Put back when dropped.
struct BreakTime {
    before: String,
    _turn: std::sync::MutexGuard<'static, ()>,
}

const BREAK_TIME_PATH: &str = "/proc/sys/fs/lease-break-time";

impl BreakTime {
    fn set(test: &str) -> Option<Self> {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        support::made_by_root(test, "change the kernel's settings", || {
            let before =
                std::fs::read_to_string(BREAK_TIME_PATH).map_err(|error| error.to_string())?;
            std::fs::write(BREAK_TIME_PATH, BREAK_TIME.to_string())
                .map_err(|error| error.to_string())?;
            Ok(Self { before, _turn: turn })
        })
    }
}

impl Drop for BreakTime {
    fn drop(&mut self) {
        std::fs::write(BREAK_TIME_PATH, &self.before).unwrap();
    }
}

/// Has a child, which waits to be stopped, do what `test` says; opens `paths` while it is stopped,
/// so that the kernel takes its leases, and does `meanwhile` to each. Returns what the child says.
fn while_stopped(
    test: &str,
    (directories, paths): (&[PathBuf], &[PathBuf]),
    meanwhile: impl Fn(&std::fs::File),
) -> Vec<String> {
    let reported: Vec<&str> = directories.iter().map(|path| path.to_str().unwrap()).collect();
    let mut child = process::start_child(test, &reported.join(":"));
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || {
        let reported =
            |line: std::io::Result<String>| process::reported(&line.unwrap()).map(str::to_owned);
        lines.find_map(reported)
    };
    let first = next().expect("the child says that it is ready");
    if first != "ready" {
        child.wait().unwrap();
        return vec![first];
    }
    std::thread::sleep(Duration::from_millis(20));
    signal(&child, libc::SIGSTOP);
    let start = Instant::now();
    let files: Vec<std::fs::File> = std::thread::scope(|scope| {
        let open =
            |path| move || std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        let opening: Vec<_> = paths.iter().map(|path| scope.spawn(open(path))).collect();
        opening.into_iter().map(|opening| opening.join().unwrap()).collect()
    });
    assert!(start.elapsed() >= Duration::from_millis(500), "its leases were taken by force");
    files.iter().for_each(meanwhile);
    signal(&child, libc::SIGCONT);
    let said: Vec<String> = std::iter::from_fn(next).collect();
    assert!(child.wait().unwrap().success(), "{said:?}");
    said
}

fn signal(child: &Child, signal: libc::c_int) {
    // SAFETY: takes numbers; the child has not been waited for, so its number is its own.
    let result = unsafe { libc::kill(child.id().cast_signed(), signal) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// In the child: says that all is ready, and returns at once when it has been stopped and goes on.
fn wait_to_be_stopped() {
    process::report(format_args!("ready"));
    let mut last = Instant::now();
    loop {
        let now = Instant::now();
        if now - last > Duration::from_millis(500) {
            return;
        }
        last = now;
        std::hint::spin_loop();
    }
}

/// Keeps the thread that hears of broken leases from a processor, until dropped: the others have
/// to find out by themselves.
struct HeldBack(Arc<AtomicBool>);

impl Drop for HeldBack {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn hold_the_watch_back() -> HeldBack {
    let name = |task: &Path| std::fs::read_to_string(task.join("comm")).unwrap_or_default();
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let watch = tasks.into_iter().find(|task| name(task).trim() == "forebay-lease").unwrap();
    let watch: libc::pid_t = watch.file_name().unwrap().to_str().unwrap().parse().unwrap();
    pin(watch);
    let idle = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to parameters that are read during the call.
    let result = unsafe { libc::sched_setscheduler(watch, libc::SCHED_IDLE, &raw const idle) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    let held = HeldBack(Arc::new(AtomicBool::new(false)));
    let is_over = Arc::clone(&held.0);
    std::thread::spawn(move || {
        pin(0);
        while !is_over.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    });
    held
}

/// A thread runs on the first processor only; 0 is the calling one.
fn pin(thread: libc::pid_t) {
    // SAFETY: plain bits; all zeroes is an empty set.
    let mut first: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set has a bit for the first processor.
    unsafe { libc::CPU_SET(0, &mut first) };
    // SAFETY: the pointer is to a set of the length given, which is read during the call.
    let result =
        unsafe { libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &raw const first) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// In the child: opens new files with leases; prints `no lease` if one has none.
fn leased_in_child(engine: &Engine, paths: &[PathBuf]) -> Option<Vec<File>> {
    let open = |path: &PathBuf| engine.open(path, &how::create()).unwrap();
    let files: Vec<File> = paths.iter().map(open).collect();
    if files.iter().any(|file| file.describe().contains("shared")) {
        process::report(format_args!("no lease"));
        return None;
    }
    Some(files)
}

/// So many names in each directory.
fn numbered(directories: &[PathBuf], count: u64) -> Vec<PathBuf> {
    let names = |directory: &PathBuf| {
        (0..count).map(|number| directory.join(number.to_string())).collect::<Vec<_>>()
    };
    directories.iter().flat_map(names).collect()
}

/// In the child: the same, in the directories of its task.
fn paths_of_task(count: u64) -> Option<Vec<PathBuf>> {
    let reported = process::task().filter(|task| task != other::NAME)?;
    let directories: Vec<PathBuf> = reported.split(':').map(PathBuf::from).collect();
    Some(numbered(&directories, count))
}

const STOPPED_FILES: u64 = 12;
const STOPPED_HOLES: u64 = 40;

#[test]
fn contract_06_what_others_wrote_into_holes_while_we_were_stopped_survives() {
    let Some(_time) = BreakTime::set("stopped_holes") else { return };
    at_once("stopped_holes", |directories| {
        let paths = numbered(directories, STOPPED_FILES);
        let places = (directories, &paths[..]);
        let said = while_stopped("a_child_that_writes_around_holes", places, |file| {
            for hole in 0..STOPPED_HOLES {
                file.write_all_at(&pattern(hole, 4096), (2 * hole + 1) * PAGE).unwrap();
            }
            file.sync_all().unwrap();
        });
        if said == ["no lease"] {
            return support::skip("stopped_holes", "no lease on this file system or for this user");
        }
        for path in &paths {
            let found = std::fs::read(path).unwrap();
            for hole in 0..STOPPED_HOLES {
                let at = ((2 * hole + 1) * PAGE) as usize;
                assert!(found[at..][..4096] == pattern(hole, 4096), "{path:?}: hole {hole}");
                assert!(found[at - 4096..at] == pattern(100 + hole, 4096), "{path:?}: page {hole}");
            }
        }
    });
}

#[test]
fn a_child_that_writes_around_holes() {
    let Some(paths) = paths_of_task(STOPPED_FILES) else { return };
    let engine = lazy_engine();
    let Some(files) = leased_in_child(&engine, &paths) else { return };
    for file in &files {
        file.set_len(MIB).unwrap();
        for hole in 0..STOPPED_HOLES {
            file.write_at(&pattern(100 + hole, 4096), 2 * hole * PAGE).unwrap();
        }
    }
    let held = hold_the_watch_back();
    wait_to_be_stopped();
    files.iter().for_each(|file| file.sync_data().unwrap());
    drop(held);
    files.into_iter().for_each(|file| file.close().unwrap());
}

/// Space beyond the end is given back by cutting the file at its end as we know it.
#[test]
fn contract_06_what_others_appended_while_we_were_stopped_survives() {
    let Some(_time) = BreakTime::set("stopped_space") else { return };
    at_once("stopped_space", |directories| {
        let paths = numbered(directories, 2);
        let places = (directories, &paths[..]);
        let said = while_stopped("a_child_that_has_space_beyond_the_end", places, |file| {
            let end = file.metadata().unwrap().len();
            file.write_all_at(&pattern(7, 100_000), end).unwrap();
            file.sync_all().unwrap();
        });
        if said == ["no lease"] {
            return support::skip("stopped_space", "no lease on this file system or for this user");
        }
        println!("{said:?}");
        for path in paths {
            let found = std::fs::read(&path).unwrap();
            assert_eq!(found.len(), (100 * MIB) as usize + 100_000, "{path:?}");
            assert!(found[(100 * MIB) as usize..] == pattern(7, 100_000), "{path:?}");
        }
    });
}

#[test]
fn a_child_that_has_space_beyond_the_end() {
    let Some(paths) = paths_of_task(2) else { return };
    let engine = Engine::start(Options {
        cache_bytes: Some(32 << 20),
        dirty_age: Duration::from_millis(5),
        ..Options::default()
    })
    .unwrap();
    let Some(files) = leased_in_child(&engine, &paths) else { return };
    for file in &files {
        for at in 0..800 {
            file.append(&pattern(at, 128 << 10)).unwrap();
        }
        file.sync_data().unwrap();
    }
    let marked = |path: &PathBuf| {
        support::eventually(Duration::from_secs(2), || support::mark(path).is_some())
    };
    let marked = paths.iter().filter(|path| marked(path)).count();
    let held = hold_the_watch_back();
    wait_to_be_stopped();
    process::report(format_args!("files with reserved space: {marked}"));
    // Half of them before this process hears that it has lost the leases.
    let mut files = files.into_iter();
    let at_once = files.len() / 2;
    files.by_ref().take(at_once).for_each(|file| file.close().unwrap());
    drop(held);
    std::thread::sleep(Duration::from_millis(300));
    files.for_each(|file| file.close().unwrap());
}

/// A file that was just created here may have bytes of another program already.
#[test]
fn contract_06_two_programs_begin_one_log() {
    everywhere("begun", |directory| {
        let engine = lazy_engine();
        let paths: Vec<_> = (0..200).map(|log| directory.join(format!("log-{log}"))).collect();
        let written = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for path in &paths {
                    let mut options = std::fs::OpenOptions::new();
                    let options = options.append(true);
                    let mut other = loop {
                        if let Ok(other) = options.open(path) {
                            break other;
                        }
                    };
                    other.write_all(b"theirs").unwrap();
                    drop(other);
                    written.fetch_add(1, Ordering::Release);
                }
            });
            for (log, path) in paths.iter().enumerate() {
                let file = engine.open(path, &how::append()).unwrap();
                while written.load(Ordering::Acquire) <= log {
                    std::thread::yield_now();
                }
                file.append(b"ours").unwrap();
                file.close().unwrap();
            }
        });
        for path in &paths {
            let found = std::fs::read_to_string(path).unwrap();
            assert_eq!(found, "theirsours", "{path:?}");
        }
    });
}

/// Another program appends while space is allocated here: the file is never made shorter.
#[test]
fn contract_06_an_allocation_cuts_off_nothing_that_others_append() {
    everywhere("allocated", |directory| {
        let path = directory.join("file");
        let engine = lazy_engine();
        let file = engine.open(&path, &how::create()).unwrap();
        let is_over = AtomicBool::new(false);
        let blocks = std::thread::scope(|scope| {
            let appended = scope.spawn(|| {
                let options = std::fs::OpenOptions::new().append(true).open(&path);
                let (mut other, mut blocks) = (options.unwrap(), 0_u64);
                while !is_over.load(Ordering::Relaxed) {
                    blocks += 1;
                    other.write_all(&blocks.to_le_bytes().repeat(512)).unwrap();
                }
                blocks
            });
            for _ in 0..200 {
                // Just beyond the end, which moves on.
                let length = std::fs::metadata(&path).unwrap().len() + 2 * PAGE;
                file.allocate(0, length).unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
            appended.join().unwrap()
        });
        file.close().unwrap();
        let found = std::fs::read(&path).unwrap();
        let stamps =
            found.chunks(4096).map(|block| u64::from_le_bytes(block[..8].try_into().unwrap()));
        let stamps: Vec<u64> = stamps.filter(|stamp| *stamp > 0).collect();
        assert!(stamps.iter().copied().eq(1..=blocks), "{blocks} were appended: {stamps:?}");
    });
}

/// Clean pages are stale once the lease was taken: they are not read, and no part of a page is
/// written into one.
#[test]
fn contract_06_clean_pages_are_not_used_after_the_lease_was_taken() {
    let Some(_time) = BreakTime::set("stopped_clean") else { return };
    at_once("stopped_clean", |directories| {
        let paths = numbered(directories, 1);
        paths.iter().for_each(|path| std::fs::write(path, pattern(1, 64 * 4096)).unwrap());
        let places = (directories, &paths[..]);
        let said = while_stopped("a_child_that_has_clean_pages", places, |file| {
            file.write_all_at(&pattern(2, 64 * 4096), 0).unwrap();
            file.sync_all().unwrap();
        });
        if said == ["no lease"] {
            return support::skip("stopped_clean", "no lease on this file system or for this user");
        }
        assert!(said.iter().all(|line| line == "read anew: true"), "{said:?}");
        let mut expected = pattern(2, 64 * 4096);
        expected[5000..5010].copy_from_slice(&pattern(3, 10));
        for path in paths {
            support::assert_on_disk(&path, &expected, "a part of a page written");
        }
    });
}

#[test]
fn a_child_that_has_clean_pages() {
    let Some(paths) = paths_of_task(1) else { return };
    let engine = lazy_engine();
    let Some(files) = leased_in_child(&engine, &paths) else { return };
    let mut found = vec![0; 64 * 4096];
    for file in &files {
        file.read_at(&mut found, 0).unwrap();
    }
    let held = hold_the_watch_back();
    wait_to_be_stopped();
    let expected = &pattern(2, 64 * 4096)[8192..][..4096];
    for file in &files {
        file.write_at(&pattern(3, 10), 5000).unwrap();
        let mut found = vec![0; 4096];
        file.read_at(&mut found, 8192).unwrap();
        process::report(format_args!("read anew: {}", found == expected));
    }
    drop(held);
    files.iter().for_each(|file| file.sync_data().unwrap());
    files.into_iter().for_each(|file| file.close().unwrap());
}
