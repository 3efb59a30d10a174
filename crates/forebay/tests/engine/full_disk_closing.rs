//! Several threads write and close files on a nearly full file system. Every write returns, with or
//! without an error.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::mount::{FileSystem, Mount};
use crate::support::{MIB, how, within};
use forebay::{Engine, ErrorKind, Options};

const RUN: Duration = Duration::from_secs(4);

/// Writes and closes, so that some writes are accepted because there is plenty of space for so
/// little, and others need all of those written out first. Returns how many were accepted.
fn write_and_close(engine: &Engine, directory: &Path, number: usize) -> u64 {
    let (page, large) = (vec![1; 4096], vec![2; 1 << 20]);
    let (end, mut accepted) = (Instant::now() + RUN, 0);
    for round in 0.. {
        if Instant::now() >= end {
            break;
        }
        let path = directory.join(format!("{number}-{}", round % 4));
        let file = engine.open(path, &how::create()).unwrap();
        let data = if round % 2 == 0 { &page } else { &large };
        match file.write_at(data, 0) {
            Ok(()) => accepted += 1,
            Err(error) => assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}"),
        }
        if round % 2 == 1 {
            file.set_len(0).unwrap();
        }
        drop(file);
    }
    accepted
}

/// A write that finds little space has all files of the file system written out, among them those
/// that are being closed.
#[test]
fn contract_09_a_write_near_the_end_of_space_waits_for_no_closed_file() {
    let Some(mount) = Mount::new("full_disk_closing", FileSystem::Ext4, 32 * MIB) else { return };
    mount.fill_but(3 * MIB);
    let accepted = within(Duration::from_secs(30), "writing and closing", move || {
        let engine = Engine::start(Options {
            cache_bytes: Some(16 << 20),
            close_timeout: Duration::from_secs(10),
            ..Options::default()
        })
        .unwrap();
        let directory = mount.path();
        let accepted: Vec<u64> = std::thread::scope(|scope| {
            let write = |number| {
                let (engine, directory) = (&engine, &directory);
                scope.spawn(move || write_and_close(engine, directory, number))
            };
            let threads: Vec<_> = (0..4).map(write).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        engine.shutdown(Duration::from_secs(10)).unwrap();
        accepted
    });
    println!("{accepted:?} writes accepted");
    assert!(accepted.iter().all(|accepted| *accepted > 0), "{accepted:?} writes accepted");
}
