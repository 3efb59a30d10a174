//! Another program opens a file that is open here for writing. Its open waits until the engine has
//! written its dirty pages, sees all of them, and never waits long, even under load.

mod support;

use std::io::{Read as _, Seek as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay::{Engine, ErrorKind, File, Options};
use forebay_block::random::Random;
use support::other::{self, Other};
use support::{MIB, eventually, how, kind_of, pattern, process, within};

/// Half of the time that the kernel waits before it breaks a lease by force. An open that took less
/// time waited for the engine, not for the kernel.
const SOON: Duration = Duration::from_secs(20);

/// Nothing is written before somebody asks for it.
const LATE: Duration = Duration::from_secs(3600);

#[test]
fn another_program() {
    other::serve();
}

fn lazy_engine() -> Engine {
    Engine::start(Options { cache_bytes: Some(32 << 20), dirty_age: LATE, ..Options::default() })
        .unwrap()
}

fn is_shared(file: &File) -> bool {
    file.describe().contains("shared")
}

/// A new file with its lease, or the reason why it has none: then there is nothing to test here.
fn leased(engine: &Engine, path: &PathBuf) -> Option<File> {
    let file = engine.open(path, &how::create()).unwrap();
    if is_shared(&file) {
        support::skip("leases", "no lease on this file system or for this user");
        return None;
    }
    Some(file)
}

#[test]
fn contract_06_whoever_opens_the_file_sees_all_that_was_accepted() {
    let directory = support::directory();
    let engine = lazy_engine();
    let mut other = Other::start();
    for how in ["read", "write", "both"] {
        let path = directory.path().join(how);
        let Some(file) = leased(&engine, &path) else { return };
        // Dense, and an end within a page; scattered, so that zeroes go over holes; and space
        // beyond the end.
        file.write_at(&pattern(1, 3_000_123), 0).unwrap();
        for at in 0..40 {
            file.write_at(&pattern(2, 4096), 4 * MIB + at * 5 * 4096).unwrap();
        }
        let took = other.open(how, &path);
        assert!(took < SOON, "the other program waited for {took:?}");
        assert!(is_shared(&file), "{}", file.describe());
        if how == "write" {
            other.open("read", &path);
        }
        assert_eq!(other.ask("holds 0 3000123 1"), "true");
        for at in 0..40 {
            assert_eq!(other.ask(&format!("holds {} 4096 2", 4 * MIB + at * 5 * 4096)), "true");
        }
        assert_eq!(other.ask("length"), file.len().unwrap().to_string());
        file.close().unwrap();
    }
}

/// Work that needs the lease has ended when the other program goes on, so the bytes that it writes
/// stay.
#[test]
fn contract_06_what_the_other_program_writes_into_holes_stays() {
    let directory = support::directory();
    let mut other = Other::start();
    let mut random = Random::new(support::seed());
    for round in 0..20 {
        let engine = Engine::start(Options {
            cache_bytes: Some(16 << 20),
            dirty_age: Duration::from_millis(1 + random.below(4)),
            ..Options::default()
        })
        .unwrap();
        let path = directory.path().join(round.to_string());
        let Some(file) = leased(&engine, &path) else { return };
        file.set_len(16 * MIB).unwrap();
        // Every second page: those between are holes, and written along as zeroes while the lease
        // is held.
        let start = Instant::now();
        let wait = Duration::from_micros(random.below(6_000));
        for at in 0..2000 {
            file.write_at(&pattern(at, 4096), at * 8192).unwrap();
            if start.elapsed() >= wait {
                break;
            }
        }
        other.open("both", &path);
        for at in (0..2000).step_by(37) {
            other.do_now(&format!("write {} 4096 77", at * 8192 + 4096));
        }
        file.sync_data().unwrap();
        for at in (0..2000).step_by(37) {
            assert_eq!(
                other.ask(&format!("holds {} 4096 77", at * 8192 + 4096)),
                "true",
                "hole {at}"
            );
        }
        file.close().unwrap();
    }
}

/// Space beyond the end is given back before the lease goes, for nobody may do it after.
#[test]
fn contract_06_space_beyond_the_end_goes_with_the_lease() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = Engine::start(Options {
        cache_bytes: Some(32 << 20),
        dirty_age: Duration::from_millis(5),
        ..Options::default()
    })
    .unwrap();
    let Some(file) = leased(&engine, &path) else { return };
    for at in 0..800 {
        file.append(&pattern(at, 128 << 10)).unwrap();
    }
    file.sync_data().unwrap();
    let marked = eventually(Duration::from_secs(2), || support::mark(&path).is_some());
    let mut other = Other::start();
    other.open("read", &path);
    println!("space beyond the end had been reserved: {marked}");
    // A block or two more is what the file system needs for itself.
    let allocated = support::allocated(&path);
    assert!(allocated < file.len().unwrap() + MIB, "{allocated} of {}", file.len().unwrap());
    file.close().unwrap();
    assert_eq!(support::mark(&path), None, "nothing is left to be given back");
}

/// Forty files, each with a writer that never stops. A program that opens one waits for that file's
/// lease, and not for its writer.
#[test]
fn contract_06_many_files_opened_at_once_while_they_are_written() {
    const FILES: usize = 40;
    let directory = support::directory();
    let engine =
        Engine::start(Options { cache_bytes: Some(32 << 20), ..Options::default() }).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut files = Vec::new();
    for number in 0..FILES {
        let Some(file) = leased(&engine, &directory.path().join(number.to_string())) else {
            return;
        };
        files.push(Arc::new(file));
    }
    let writers: Vec<_> = files
        .iter()
        .map(|file| {
            let (file, stop) = (Arc::clone(file), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut random = Random::new(file.len().unwrap());
                while !stop.load(Ordering::Relaxed) {
                    file.write_at(&pattern(1, 4096), random.below(64) * 4096).unwrap();
                    std::thread::sleep(Duration::from_millis(1));
                }
            })
        })
        .collect();
    let line = format!(
        "cd \"$1\" && for at in $(seq 0 {}); do cat $at >/dev/null & done; wait",
        FILES - 1
    );
    let (_, took) = process::shell_timed(&line, directory.path());
    stop.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    assert!(files.iter().all(|file| is_shared(file)));
    // One after the other, with a writer each that is waited for to the last, would be 36 s.
    assert!(took < SOON, "{FILES} programs waited for {took:?}");
    for file in files {
        Arc::into_inner(file).unwrap().close().unwrap();
    }
}

/// Opened by another program at any moment of its life here: being opened, written, cut, closed. A
/// break that is heard of by nobody would hold the other program up for the kernel's 45 seconds.
#[test]
fn contract_06_opened_by_others_at_any_moment() {
    let directory = support::directory();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(1, 100_000)).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let openers: Vec<_> = (0..2)
        .map(|_| {
            let (stop, path) = (Arc::clone(&stop), path.clone());
            std::thread::spawn(move || {
                let mut longest = Duration::ZERO;
                while !stop.load(Ordering::Relaxed) {
                    longest = longest.max(
                        process::shell_timed("dd if=\"$1\" bs=64k 2>/dev/null | cksum", &path).1,
                    );
                }
                longest
            })
        })
        .collect();
    within(Duration::from_secs(60), "a file opened by others at any moment", move || {
        let engine = Engine::start(Options {
            cache_bytes: Some(8 << 20),
            dirty_age: Duration::from_millis(3),
            ..Options::default()
        })
        .unwrap();
        let (mut random, start) = (Random::new(support::seed()), Instant::now());
        let mut expected = pattern(1, 100_000);
        let mut shared = 0;
        while start.elapsed() < Duration::from_secs(4) {
            let (file, second) = (
                engine.open(&path, &how::write()).unwrap(),
                engine.open(&path, &how::read()).unwrap(),
            );
            for _ in 0..random.below(6) {
                match random.below(4) {
                    0 => {
                        let length = random.below(150_000);
                        file.set_len(length).unwrap();
                        expected.resize(length as usize, 0);
                    }
                    1 => file.sync_data().unwrap(),
                    _ => {
                        let (at, length) =
                            (random.below(100_000) as usize, random.below(20_000) as usize);
                        let data = pattern(random.below(100), length);
                        file.write_at(&data, at as u64).unwrap();
                        if length > 0 {
                            expected.resize(expected.len().max(at + length), 0);
                            expected[at..at + length].copy_from_slice(&data);
                        }
                    }
                }
                let mut found = vec![0; 200_000];
                let length = second.read_at(&mut found, 0).unwrap();
                assert!(found[..length] == expected, "{length} bytes, of {}", expected.len());
            }
            shared += usize::from(is_shared(&file));
            drop(second);
            file.close().unwrap();
        }
        println!("shared in the end: {shared} times");
        stop.store(true, Ordering::Relaxed);
        for opener in openers {
            let longest = opener.join().unwrap();
            println!("waited for at most {longest:?}");
            assert!(longest < SOON, "another program waited for {longest:?}");
        }
        assert!(std::fs::read(&path).unwrap() == expected);
    });
}

/// The moment between the taking of a lease and the file's being known by it is short (longer after
/// a crash, when space is given back in it), and somebody hits it.
#[test]
fn contract_06_opened_by_others_while_it_is_being_opened() {
    let directory = support::directory();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(1, 5000)).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let opener = {
        let (stop, path) = (Arc::clone(&stop), path.clone());
        std::thread::spawn(move || {
            let (mut random, mut longest) = (Random::new(support::seed()), Duration::ZERO);
            while !stop.load(Ordering::Relaxed) {
                let start = Instant::now();
                drop(std::fs::File::open(&path).unwrap());
                longest = longest.max(start.elapsed());
                let pause = Instant::now();
                let least = Duration::from_micros(random.below(400));
                while pause.elapsed() < least {
                    std::hint::spin_loop();
                }
            }
            longest
        })
    };
    within(Duration::from_secs(100), "a file opened while it is being opened", move || {
        let engine = lazy_engine();
        let start = Instant::now();
        let mut held = 0;
        while start.elapsed() < Duration::from_secs(3) {
            support::set_mark(&path);
            let file = engine.open(&path, &how::write()).unwrap();
            held += usize::from(!is_shared(&file));
            file.close().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        let longest = opener.join().unwrap();
        println!("with its lease {held} times; waited for at most {longest:?}");
        assert!(longest < SOON, "another program waited for {longest:?}");
    });
}

/// Our own process is another program to the kernel where it opens the file by itself.
#[test]
fn contract_06_our_own_process_may_open_the_file_too() {
    let directory = support::directory();
    let path = directory.path().join("file");
    within(SOON, "opening our own file", move || {
        let engine = lazy_engine();
        let Some(file) = leased(&engine, &path) else { return };
        file.write_at(&pattern(1, 200_001), 0).unwrap();
        let mut own = std::fs::File::open(&path).unwrap();
        let mut found = Vec::new();
        own.read_to_end(&mut found).unwrap();
        assert!(found == pattern(1, 200_001));
        file.write_at(&pattern(2, 5000), 100).unwrap();
        file.sync_data().unwrap();
        own.rewind().unwrap();
        own.read_to_end(&mut found).unwrap();
        assert!(found[200_001..][100..5100] == pattern(2, 5000));
        file.close().unwrap();
    });
}

#[test]
fn contract_06_who_does_not_wait_has_to_try_again() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = lazy_engine();
    let Some(file) = leased(&engine, &path) else { return };
    file.write_at(&pattern(1, 100_000), 0).unwrap();
    let open = || {
        std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&path)
            .map_err(|error| error.raw_os_error())
    };
    assert_eq!(open().map(drop), Err(Some(libc::EAGAIN)));
    // Its asking was enough.
    assert!(eventually(SOON, || open().is_ok()), "never let in");
    assert!(is_shared(&file));
    assert!(std::fs::read(&path).unwrap() == pattern(1, 100_000));
    file.close().unwrap();
}

/// When the other program has gone the next open for writing has the lease again, and what the
/// other program did is seen.
#[test]
fn contract_06_the_lease_is_had_again_at_a_later_open() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = lazy_engine();
    let Some(file) = leased(&engine, &path) else { return };
    file.write_at(&pattern(1, 100_000), 0).unwrap();
    let mut other = Other::start();
    other.open("both", &path);
    let while_it_is_open = engine.open(&path, &how::write()).unwrap();
    assert!(is_shared(&while_it_is_open));
    // It adds to the end, and changes what we have read before.
    let mut seen = vec![0; 100_000];
    assert_eq!(file.read_at(&mut seen, 0).unwrap(), 100_000);
    other.do_now("write 50000 100000 2");
    other.do_now("close");
    // With something unwritten of ours it stays as it is.
    file.write_at(&pattern(3, 10), 10).unwrap();
    let with_dirty_pages = engine.open(&path, &how::write()).unwrap();
    assert!(is_shared(&with_dirty_pages));
    file.sync_data().unwrap();
    let again = engine.open(&path, &how::write()).unwrap();
    assert!(!is_shared(&again), "{}", again.describe());
    let mut expected = pattern(1, 100_000);
    expected[10..20].copy_from_slice(&pattern(3, 10));
    expected.truncate(50_000);
    expected.extend(pattern(2, 100_000));
    let mut found = vec![0; 200_000];
    assert_eq!(again.read_at(&mut found, 0).unwrap(), 150_000);
    assert!(found[..150_000] == expected);
    // And gone at the next one that opens it.
    other.open("read", &path);
    assert!(is_shared(&again) && is_shared(&file));
    for handle in [file, while_it_is_open, with_dirty_pages, again] {
        handle.close().unwrap();
    }
    assert!(std::fs::read(&path).unwrap() == expected);
}

/// A stopped program keeps its lease, so an open here fails and names the lease. If it has only the
/// file open, the file is shared.
#[test]
fn contract_06_a_stopped_program_holds_nobody_up_for_ever() {
    let directory = support::directory();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(1, 100_000)).unwrap();
    let mut other = Other::start();
    other.open("both", &path);
    if other.ask("lease") != "done" {
        return support::skip("stopped", "no lease on this file system or for this user");
    }
    other.stop();
    let at = path.clone();
    let refused =
        within(SOON, "an open", move || lazy_engine().open(&at, &how::write()).unwrap_err());
    assert_eq!(
        (refused.kind(), refused.os_error()),
        (ErrorKind::Open, Some(libc::EAGAIN)),
        "{refused}"
    );
    assert!(refused.to_string().contains("lease"), "{refused}");
    drop(other);
    // Gone, and its lease with it.
    let other = {
        let mut other = Other::start();
        other.open("both", &path);
        other.stop();
        other
    };
    within(SOON, "a file of a stopped program", move || {
        let engine = lazy_engine();
        let file = engine.open(&path, &how::write()).unwrap();
        assert!(is_shared(&file), "{}", file.describe());
        file.write_at(&pattern(2, 100_000), 50_000).unwrap();
        file.sync_data().unwrap();
        file.close().unwrap();
        assert!(std::fs::read(&path).unwrap()[50_000..] == pattern(2, 100_000));
    });
    other.go_on();
}

/// Cut by its name, without being opened: that breaks a lease all the same.
#[test]
fn contract_06_cut_by_its_name() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = lazy_engine();
    let Some(file) = leased(&engine, &path) else { return };
    file.write_at(&pattern(1, 1_000_000), 0).unwrap();
    let mut other = Other::start();
    let took = other.do_now(&format!("truncate {} 300001", path.display()));
    assert!(took < SOON, "the other program waited for {took:?}");
    assert!(is_shared(&file));
    let mut found = vec![0; 400_000];
    assert_eq!(file.read_at(&mut found, 0).unwrap(), 300_001);
    assert!(found[..300_001] == pattern(1, 300_001));
    file.append(&pattern(2, 10)).unwrap();
    file.sync_data().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 300_011);
    file.close().unwrap();
}

/// A program we start inherits neither the file nor its lease, the lock or the directory.
#[test]
fn contract_14_a_child_inherits_no_descriptor() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = lazy_engine();
    let file = engine.open(&path, &how::create()).unwrap();
    file.write_at(&pattern(1, 10), 0).unwrap();
    let listed = process::shell("ls -l /proc/self/fd", &path).unwrap();
    let inherited: Vec<&str> = listed
        .lines()
        .filter(|line| line.contains(directory.path().file_name().unwrap().to_str().unwrap()))
        .chain(listed.lines().filter(|line| line.contains("anon_inode") || line.contains("memfd")))
        .collect();
    assert!(inherited.is_empty(), "{inherited:?}");
    file.close().unwrap();
}

/// A second process with an engine of its own.
#[test]
fn contract_06_an_engine_in_another_process_that_writes_is_refused() {
    if process::task().is_some() {
        return;
    }
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = lazy_engine();
    let file = engine.open(&path, &how::create()).unwrap();
    file.write_at(&pattern(1, 70_000), 0).unwrap();
    let task = path.display().to_string();
    let child = process::start_child("an_engine_of_another_process", &task);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    let reported: Vec<&str> = said.lines().filter_map(process::reported).collect();
    assert_eq!(reported, ["Busy", "read 70000 true"], "{said}");
    // It read, and so it is shared here; nothing else is changed.
    file.write_at(&pattern(2, 10), 0).unwrap();
    file.sync_data().unwrap();
    file.close().unwrap();
    assert!(std::fs::read(&path).unwrap()[..10] == pattern(2, 10));
}

#[test]
fn an_engine_of_another_process() {
    let Some(path) = process::task().filter(|task| task != other::NAME) else { return };
    let engine = lazy_engine();
    process::report(format_args!("{:?}", kind_of(engine.open(&path, &how::write()))));
    let file = engine.open(&path, &how::read()).unwrap();
    let mut found = vec![0; 100_000];
    let length = file.read_at(&mut found, 0).unwrap();
    process::report(format_args!("read {length} {}", found[..length] == pattern(1, length)));
}
