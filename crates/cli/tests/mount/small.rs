//! New small files are in the page cache of the source, and in the engine once they grow.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use crate::place::{Place, bytes};

/// Larger than a small file.
const LARGE: usize = 300_000;

#[test]
fn a_small_file_is_whole_in_the_source_after_kill_9_without_a_keeper() {
    let Some(place) = Place::new() else { return };
    place.mount(&["--no-survive"]);
    let files: Vec<File> = (0..20)
        .map(|number| {
            let file = File::create(place.mount.join(format!("{number}"))).unwrap();
            file.write_all_at(&bytes(1000 * number), 0).unwrap();
            file
        })
        .collect();
    let server = place.server();
    let killed = Command::new("kill").args(["-9", &server.to_string()]).status().unwrap();
    assert!(killed.success());
    drop(files);
    for number in 0..20 {
        let read = fs::read(place.source.join(format!("{number}"))).unwrap();
        assert_eq!(read, bytes(1000 * number), "{number}");
    }
}

#[test]
fn a_file_that_grows_is_one_file_to_all_who_have_it_open() {
    let Some(place) = Place::new() else { return };
    place.mount(&[]);
    let path = place.mount.join("file");
    let content = bytes(LARGE);
    let write = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    write.write_all_at(&content[..5000], 0).unwrap();
    // A second open moves it to the engine.
    let other = File::options().read(true).write(true).open(&path).unwrap();
    other.write_all_at(&content[5000..10_000], 5000).unwrap();
    write.write_all_at(&content[10_000..], 10_000).unwrap();
    let mut read = vec![0; LARGE];
    other.read_exact_at(&mut read, 0).unwrap();
    assert!(read == content);
    assert_eq!(path.metadata().unwrap().len(), LARGE as u64);
    write.sync_all().unwrap();
    drop((write, other));

    // One that grows by itself, cut to nothing between.
    for _ in 0..2 {
        let grows = File::create(place.mount.join("grows")).unwrap();
        for piece in content.chunks(7000).enumerate() {
            grows.write_all_at(piece.1, piece.0 as u64 * 7000).unwrap();
        }
        assert!(fs::read(place.mount.join("grows")).unwrap() == content);
    }
    place.unmount();
    assert!(fs::read(place.source.join("file")).unwrap() == content);
    assert!(fs::read(place.source.join("grows")).unwrap() == content);
    assert_eq!(place.log(), "");
}

#[test]
fn two_programs_that_open_a_new_file_at_once_see_each_others_writes() {
    let Some(place) = Place::new() else { return };
    place.mount(&[]);
    for turn in 0..50 {
        let path = place.mount.join(format!("file-{turn}"));
        std::thread::scope(|scope| {
            for half in 0..2_u64 {
                let path = &path;
                scope.spawn(move || {
                    let mut options = File::options();
                    let file = options.write(true).create(true).truncate(false).open(path).unwrap();
                    for block in 0..20 {
                        let at = (block * 2 + half) * 4096;
                        file.write_all_at(&[half as u8 + 1; 4096], at).unwrap();
                    }
                });
            }
        });
        let read = fs::read(&path).unwrap();
        assert_eq!(read.len(), 40 * 4096);
        for (number, block) in read.chunks(4096).enumerate() {
            assert!(block.iter().all(|&byte| byte == number as u8 % 2 + 1), "{turn}: {number}");
        }
    }
    place.unmount();
}

#[test]
fn the_page_cache_of_closed_small_files_is_given_back() {
    let Some(place) = Place::new() else { return };
    // Room for 2 MiB of small files.
    place.mount(&["--set", "cache_bytes=16m"]);
    let count = 400;
    for number in 0..count {
        fs::write(place.mount.join(format!("{number}")), bytes(40_000)).unwrap();
    }
    let begin = Instant::now();
    loop {
        let cached: u64 = (0..count).map(|n| cached(&place.source.join(format!("{n}")))).sum();
        if cached <= 2 << 20 {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "{cached} bytes stay in the page cache");
        std::thread::sleep(Duration::from_millis(50));
    }
    for number in 0..count {
        assert!(fs::read(place.mount.join(format!("{number}"))).unwrap() == bytes(40_000));
    }
    place.unmount();
}

/// Bytes of a file in the page cache of the kernel, by `fincore` (util-linux).
fn cached(path: &std::path::Path) -> u64 {
    let found = Command::new("fincore").args(["-b", "-n", "-o", "RES"]).arg(path).output().unwrap();
    String::from_utf8(found.stdout).unwrap().trim().parse().unwrap()
}

#[test]
fn times_and_attributes_of_a_small_file_are_those_of_its_source() {
    let Some(place) = Place::new() else { return };
    place.mount(&[]);
    let (here, there) = (place.mount.join("file"), place.source.join("file"));
    let before = SystemTime::now();
    let file = File::create(&here).unwrap();
    file.write_all_at(b"text", 0).unwrap();
    let shown = here.metadata().unwrap();
    assert_eq!(shown.modified().unwrap(), there.metadata().unwrap().modified().unwrap());
    // The clock of the kernel's times has ticks.
    assert!(shown.modified().unwrap() + Duration::from_millis(20) > before);
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 5);
    file.set_modified(then).unwrap();
    drop(file);
    assert_eq!(there.metadata().unwrap().modified().unwrap(), then);
    assert_eq!(there.metadata().unwrap().len(), 4);
    assert_eq!(here.metadata().unwrap().ino(), there.metadata().unwrap().ino());
    place.unmount();
    assert_eq!(there.metadata().unwrap().modified().unwrap(), then);
}
