//! Opens that block, opens of one file at the same time by many names, and files that are open for
//! reading first.

mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use forebay::{Engine, ErrorKind, File, OpenOptions, Options};
use support::mount::{FileSystem, Mount};
use support::other::{self, Other};
use support::{eventually, how, kind_of, knobs, pattern, skip, within};

/// Much longer than an open takes that waits for nobody, even on a busy machine, and shorter than
/// the patience for a lease.
const SOON: Duration = Duration::from_secs(3);

const LATE: Duration = Duration::from_secs(60);

#[test]
fn another_program() {
    other::serve();
}

fn engine() -> Engine {
    Engine::start(Options {
        cache_bytes: Some(16 << 20),
        close_timeout: LATE,
        ..Options::default()
    })
    .unwrap()
}

fn is_shared(file: &File) -> bool {
    file.describe().contains("shared")
}

/// Opens on a thread of its own. The channel returns the kind of the error, if any.
fn open_aside(
    engine: &Engine,
    path: PathBuf,
    open: &OpenOptions,
) -> Receiver<Result<(), ErrorKind>> {
    let (reported, report) = channel();
    let (engine, open) = (engine.clone(), open.clone());
    thread::spawn(move || {
        let opened = engine.open(path, &open);
        let _ = reported.send(opened.map(drop).map_err(|error| error.kind()));
    });
    report
}

/// An open that creates or cuts a file, on a file system that takes no write, blocks; nothing else
/// does.
#[test]
fn contract_05_an_open_that_blocks_holds_up_neither_other_opens_nor_the_shutdown() {
    let test = "an_open_that_blocks_holds_up_no_other";
    let Some(mount) = Mount::new(test, FileSystem::Ext4, 64 << 20) else { return };
    let here = support::directory();
    std::fs::write(mount.path().join("there"), pattern(1, 100_000)).unwrap();
    let engine = engine();
    let frozen = mount.freeze();
    let blocked = [
        open_aside(&engine, mount.path().join("new"), &how::create()),
        open_aside(&engine, mount.path().join("there"), how::write().truncate(true)),
        // Opens before the one above has cut the file, or waits for it.
        open_aside(&engine, mount.path().join("there"), &how::read()),
    ];
    thread::sleep(Duration::from_millis(100));
    assert!(blocked[0].try_recv().is_err(), "a frozen file system creates no file");
    let (clone, path) = (engine.clone(), here.path().join("file"));
    within(SOON, "an open beside one that blocks", move || {
        let file = clone.open(&path, &how::create()).unwrap();
        file.write_at(b"beside", 0).unwrap();
        file.close().unwrap();
        clone.open_direct(&path, &how::read()).unwrap().close().wait().unwrap();
        clone.serve_control(path.with_extension("socket")).unwrap();
    });
    let clone = engine.clone();
    let start = Instant::now();
    within(SOON, "a shutdown beside an open that blocks", move || {
        let _ = clone.shutdown(Duration::from_millis(500));
    });
    println!("the shutdown took {:?}", start.elapsed());
    drop(frozen);
    let ended = blocked.map(|opened| opened.recv_timeout(LATE).expect("every open ends"));
    assert_eq!(ended[..2], [Err(ErrorKind::Shutdown); 2]);
    assert!([Ok(()), Err(ErrorKind::Shutdown)].contains(&ended[2]));
    // Nothing of the engine is left there.
    drop(engine);
    drop(mount);
}

#[test]
fn contract_06_an_open_that_waits_for_a_lease_holds_up_no_other() {
    let directory = support::directory();
    let (leased, path) = (directory.path().join("leased"), directory.path().join("file"));
    std::fs::write(&leased, b"its own").unwrap();
    let mut other = Other::start();
    other.open("both", &leased);
    if other.ask("lease").starts_with("error") {
        return skip("an_open_that_waits_for_a_lease", "no lease here");
    }
    let engine = engine();
    let waits = open_aside(&engine, leased, &how::write());
    thread::sleep(Duration::from_millis(100));
    assert!(waits.try_recv().is_err(), "the other program keeps its lease");
    let clone = engine.clone();
    within(SOON, "an open beside one that waits for a lease", move || {
        clone.open(&path, &how::create()).unwrap().close().unwrap();
    });
    assert!(waits.try_recv().is_err(), "it was open before the lease was given up");
    other.do_now("close");
    assert_eq!(waits.recv_timeout(LATE).unwrap(), Ok(()));
}

/// A file that several threads open, by several names, has one cache and its lease.
#[test]
fn contract_06_opened_at_once_by_many_names_a_file_has_one_cache_and_its_lease() {
    let directory = support::directory();
    let engine = engine();
    let first = engine.open(directory.path().join("first"), &how::create()).unwrap();
    if is_shared(&first) {
        return skip("opened_at_once_by_many_names", "no lease here");
    }
    for round in 0..40 {
        let name = format!("file{round}");
        let path = directory.path().join(&name);
        let link = |kind: &str| directory.path().join(format!("{kind}{round}"));
        std::os::unix::fs::symlink(&name, link("symbolic")).unwrap();
        std::os::unix::fs::symlink(path.canonicalize().unwrap_or(name.into()), link("second"))
            .unwrap();
        let mut names = vec![
            path.clone(),
            directory.path().join(".").join(format!("./file{round}")),
            directory.path().canonicalize().unwrap().join(format!("file{round}")),
            link("symbolic"),
            link("second"),
        ];
        // Every other round it is there already, with names of its own.
        if round % 2 == 0 {
            std::fs::write(&path, b"old").unwrap();
            std::fs::hard_link(&path, link("hard")).unwrap();
            names.push(link("hard"));
        }
        let threads = 2 * names.len();
        let barrier = Barrier::new(threads);
        let files: Vec<File> = thread::scope(|scope| {
            let open = |number: usize| {
                let (names, barrier, engine) = (&names, &barrier, &engine);
                move || {
                    barrier.wait();
                    engine.open(&names[number % names.len()], &how::create()).unwrap()
                }
            };
            let opening: Vec<_> = (0..threads).map(|number| scope.spawn(open(number))).collect();
            opening.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for (number, file) in files.iter().enumerate() {
            assert!(!is_shared(file), "round {round}, handle {number}: {}", file.describe());
            file.write_at(&[number as u8 + 1], number as u64).unwrap();
        }
        let mut found = vec![0; files.len()];
        for file in &files {
            assert_eq!(file.read_at(&mut found, 0).unwrap(), files.len());
            assert!(found.iter().zip(1..).all(|(found, written)| *found == written));
        }
        files[0].sync_data().unwrap();
    }
}

/// A file that is open for reading can be executed, and be opened for writing later.
#[test]
fn contract_06_a_handle_for_reading_reads_and_a_later_one_writes() {
    let directory = support::directory();
    let program = directory.path().join("program");
    std::fs::copy("/bin/true", &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let engine = engine();
    let reader = engine.open(&program, &how::read()).unwrap();
    let bytes = std::fs::read(&program).unwrap();
    assert_reads(&reader, &bytes);
    // (Another test may start a child just now, which has our descriptors for a moment.)
    let runs = || Command::new(&program).status().is_ok_and(|status| status.success());
    assert!(eventually(SOON, runs), "{:?}", Command::new(&program).status());
    writes_follow(&engine, &program, &reader, bytes);
}

/// The same while it is being read, over and over: reads in flight end on the old descriptor.
#[test]
fn contract_06_a_file_that_is_being_read_can_be_opened_for_writing() {
    let directory = support::directory();
    let engine = engine();
    for round in 0..20 {
        let path = directory.path().join(format!("file{round}"));
        let bytes = pattern(round, 300_000);
        std::fs::write(&path, &bytes).unwrap();
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        let reader = engine.open(&path, &how::read()).unwrap();
        if round % 5 == 0 {
            let contexts = ["1", "4"][round as usize / 5 % 2];
            knobs::set(&engine, "contexts", contexts).unwrap();
        }
        let stop = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            let (stop, reader, bytes, engine, path) = (&stop, &reader, &bytes, &engine, &path);
            let readers = (0..2).map(|_| {
                scope.spawn(move || {
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        let mut found = vec![0; 100_000];
                        assert_eq!(reader.read_at(&mut found, 150_000).unwrap(), found.len());
                        assert!(found == bytes[150_000..250_000]);
                    }
                })
            });
            let readers: Vec<_> = readers.collect();
            thread::sleep(Duration::from_millis(5));
            let writer = engine.open(path, &how::write());
            if let Ok(writer) = &writer {
                writer.write_at(&pattern(77, 100_000), 0).unwrap();
                writer.sync_data().unwrap();
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            readers.into_iter().for_each(|reader| reader.join().unwrap());
            writer.unwrap().close().unwrap();
        });
        let mut expected = bytes;
        expected[..100_000].copy_from_slice(&pattern(77, 100_000));
        support::assert_on_disk(&path, &expected, "written while it was read");
        drop(reader);
    }
}

#[test]
fn past_the_cache_too_a_handle_for_reading_reads_and_a_later_one_writes() {
    let directory = support::directory();
    let program = directory.path().join("program");
    std::fs::copy("/bin/true", &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let engine = engine();
    let reader = engine.open_direct(&program, &how::read()).unwrap();
    let runs = || Command::new(&program).status().is_ok_and(|status| status.success());
    assert!(eventually(SOON, runs), "{:?}", Command::new(&program).status());
    let (read, buffer) = reader.read_at(vec![0; 4096], 0).wait();
    assert_eq!(read.unwrap(), 4096);
    assert!(buffer[..] == std::fs::read(&program).unwrap()[..4096]);
    let writer = engine.open_direct(&program, &how::write()).unwrap();
    for (at, length) in [(0, 4096), (5000, 100)] {
        let data = pattern(at, length);
        writer.write_at(data.clone(), at).wait().0.unwrap();
        let (read, buffer) = reader.read_at(vec![0; length], at).wait();
        assert_eq!((read.unwrap(), buffer), (length, data));
    }
    writer.sync_data().wait().unwrap();
    drop(writer);
    reader.close().wait().unwrap();
}

#[test]
fn a_file_that_others_protect_is_read_and_not_written() {
    if support::is_root() {
        // Permissions do not stop root; the immutable flag does.
        let directory = support::directory();
        let path = directory.path().join("file");
        std::fs::write(&path, b"as it is").unwrap();
        let engine = engine();
        let reader = engine.open(&path, &how::read()).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        support::set_immutable(&file, true);
        let refused = kind_of(engine.open(&path, &how::write()));
        support::set_immutable(&file, false);
        assert_eq!(refused, ErrorKind::PermissionDenied);
        assert_reads(&reader, b"as it is");
        drop(file);
        engine.open(&path, &how::write()).unwrap().write_at(b"at", 0).unwrap();
        assert_reads(&reader, b"at it is");
    }
}

fn writes_follow(engine: &Engine, path: &Path, reader: &File, mut bytes: Vec<u8>) {
    let writer = engine.open(path, &how::write()).unwrap();
    let had = engine.open(path.with_extension("other"), &how::create()).unwrap();
    assert_eq!(is_shared(&writer), is_shared(&had), "{}", writer.describe());
    for (at, length) in [(0, 10_000), (20_000, 5)] {
        let data = pattern(at as u64, length);
        writer.write_at(&data, at as u64).unwrap();
        bytes[at..at + length].copy_from_slice(&data);
        assert_reads(reader, &bytes);
        assert_reads(&writer, &bytes);
    }
    writer.sync_data().unwrap();
    drop(writer);
    assert_reads(reader, &bytes);
    engine.open(path, &how::write()).unwrap().close().unwrap();
    support::assert_on_disk(path, &bytes, "after both handles");
}

fn assert_reads(file: &File, expected: &[u8]) {
    let mut found = vec![0; expected.len() + 1];
    let read = file.read_at(&mut found, 0).unwrap();
    assert!(found[..read] == *expected, "the file has other bytes");
}
