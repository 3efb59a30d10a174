//! Other programs write to files that are open here: their bytes survive, whatever we write beside
//! them, and our appends go behind theirs.

mod support;

use std::path::Path;
use std::time::Duration;

use forebay::{Engine, File, Open};
use support::mount::{FileSystem, Mount};
use support::other::{self, Other};
use support::{PAGE, pattern};

/// Nothing is written before somebody asks for it.
const LATE: Duration = Duration::from_secs(3600);

#[test]
fn another_program() {
    other::serve();
}

fn lazy_engine() -> Engine {
    Engine::builder().cache_bytes(32 << 20).dirty_age(LATE).build().unwrap()
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

/// A file that another program has open as well.
fn shared(engine: &Engine, path: &Path) -> (File, Other) {
    let file = engine.open(path, Open::create()).unwrap();
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
        assert_eq!(file.cursor().file().len(), 11_000);
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
fn contract_06_the_length_is_the_one_on_disk() {
    everywhere("length", |directory| {
        let engine = lazy_engine();
        let path = directory.join("file");
        let (file, mut other) = shared(&engine, &path);
        let reader = engine.open(&path, Open::read()).unwrap();
        file.write_at(&pattern(1, 5000), 0).unwrap();
        file.sync_data().unwrap();
        other.do_now("write 5000 2000 2");
        assert_eq!((file.len(), reader.len()), (7000, 7000), "appended by the other program");
        // What is accepted here counts, though it is not on disk.
        file.write_at(&pattern(3, 10), 9990).unwrap();
        assert_eq!((file.len(), reader.len()), (10_000, 10_000));
        other.do_now("write 20000 10 2");
        assert_eq!((file.len(), reader.len()), (20_010, 20_010), "while something is not written");
        file.sync_data().unwrap();
        other.do_now("set_length 100");
        assert_eq!((file.len(), reader.len()), (100, 100), "cut by the other program");
        file.close().unwrap();
        reader.close().unwrap();

        // One that is open for reading alone has no lease.
        let reader = engine.open(&path, Open::read()).unwrap();
        other.do_now("write 0 300 1");
        assert_eq!(reader.len(), 300);
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
            engine.open(&path, Open::write()).unwrap().close().unwrap();
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

/// `set_len(0)` and appends of two threads: what is appended stands together, at the start or
/// behind other appends.
#[test]
fn contract_08_an_append_is_not_behind_an_end_that_was_cut() {
    let directory = support::directory();
    let engine = Engine::builder().cache_bytes(32 << 20).build().unwrap();
    for is_shared in [false, true] {
        let path = directory.path().join(is_shared.to_string());
        let file = engine.open(&path, Open::create()).unwrap();
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
            let mut found = vec![0; file.len() as usize];
            let length = file.read_at(&mut found, 0).unwrap();
            assert_eq!(length as u64, file.len());
            let zeroes = found[..length].iter().filter(|byte| **byte == 0).count();
            assert_eq!((zeroes, length % 300_000), (0, 0), "zeroes, and a part, in round {round}");
            file.set_len(0).unwrap();
        }
        file.close().unwrap();
    }
}
