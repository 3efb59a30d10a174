//! A mount with few descriptors serves many more files than that.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, symlink};
use std::time::{Duration, Instant};

use crate::place::{FOREBAY, Place, bytes, run};

/// Descriptors of the mount, which root may not raise without the capability.
const LIMIT: [&str; 5] =
    ["prlimit", "--nofile=1024:1024", "setpriv", "--bounding-set=-sys_resource", "--"];

const DIRECTORIES: usize = 20;
const FILES: usize = 200;

#[test]
fn a_limit_that_is_too_low_is_refused() {
    let Some(place) = Place::new() else { return };
    let words = ["prlimit", "--nofile=64:64", "setpriv", "--bounding-set=-sys_resource", "--"];
    let [source, mount] = [&place.source, &place.mount].map(|path| path.to_str().unwrap());
    let (code, _, err) = run(&[&words, &[FOREBAY, "mount", source, mount][..]].concat());
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("ulimit -n 256") && err.trim_end().lines().count() == 1, "{err}");
}

#[test]
fn a_tree_of_four_times_as_many_files_as_descriptors_is_walked_and_written() {
    let Some(place) = Place::new() else { return };
    place.mount_by(&LIMIT, &[]);
    let server = place.server();
    let limits = fs::read_to_string(format!("/proc/{server}/limits")).unwrap();
    let limit = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert!(limit.contains("1024 "), "the limit holds: {limit}");
    let directory = |number: usize| place.mount.join(format!("directory-{number}"));
    let file = |number: usize, file: usize| directory(number).join(format!("file-{file}"));
    for number in 0..DIRECTORIES {
        fs::create_dir(directory(number)).unwrap();
        for each in 0..FILES {
            fs::write(file(number, each), format!("{number} {each}")).unwrap();
        }
    }
    // These stay open and are used meanwhile.
    let mut open: Vec<File> = (0..50)
        .map(|each| File::options().append(true).open(file(each % DIRECTORIES, each)).unwrap())
        .collect();
    for turn in 0..3 {
        for number in 0..DIRECTORIES {
            for entry in fs::read_dir(directory(number)).unwrap() {
                let entry = entry.unwrap();
                assert!(entry.metadata().unwrap().len() > 0, "{turn}: {entry:?}");
            }
            for each in (turn..FILES).step_by(7) {
                let read = fs::read_to_string(file(number, each)).unwrap();
                assert!(read.starts_with(&format!("{number} {each}")), "{turn}: {read}");
            }
            for open in &mut open {
                open.write_all(b"+").unwrap();
            }
        }
    }
    let used = fs::read_dir(format!("/proc/{server}/fd")).unwrap().count();
    assert!(used < 1024, "{used}");
    drop(open);
    place.unmount();
    for each in 0..50 {
        let number = each % DIRECTORIES;
        let read = fs::read_to_string(
            place.source.join(format!("directory-{number}")).join(format!("file-{each}")),
        );
        let expected = format!("{number} {each}{}", "+".repeat(3 * DIRECTORIES));
        assert_eq!(read.unwrap(), expected);
    }
    assert_eq!(place.log(), "");
}

#[test]
fn a_name_that_cannot_be_made_for_want_of_descriptors_is_not_there_afterwards() {
    // An open file takes two descriptors, an open directory one.
    for directories in [0, 1] {
        let Some(place) = Place::new() else { return };
        place.mount_by(&LIMIT, &[]);
        let directory: Vec<File> =
            (0..directories).map(|_| File::open(&place.mount).unwrap()).collect();
        let mut open = Vec::new();
        let failed = loop {
            let name = format!("file-{}", open.len());
            match File::create_new(place.mount.join(&name)) {
                Ok(file) => open.push(file),
                Err(error) => break (name, error),
            }
            assert!(open.len() < 1024, "there are not that many descriptors");
        };
        let (name, error) = failed;
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{error}");
        assert!(!place.source.join(&name).exists(), "{name} cannot be made again");
        let path = |name: &str| place.mount.join(name);
        let made = [
            ("directory", fs::create_dir(path("directory"))),
            ("symbolic", symlink("target", path("symbolic"))),
            ("link", fs::hard_link(path("file-0"), path("link"))),
        ];
        for (name, made) in made {
            let is_there = place.source.join(name).symlink_metadata().is_ok();
            assert_eq!(made.is_ok(), is_there, "{name}: {made:?}");
        }
        drop((open, directory));
        place.unmount();
        assert!(!place.source.join(name).exists());
    }
}

/// Descriptors of files without a name that a process has.
fn removed(process: i32) -> Vec<String> {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
    let names = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(" (deleted)") && name.contains("/source/")).collect()
}

/// The kernel remembers the names that it has looked up, and no program looks at them again.
#[test]
fn a_file_that_was_removed_in_the_source_gives_back_its_space() {
    let Some(place) = Place::new() else { return };
    let at = |name: &str| place.source.join(name);
    for name in ["looked-at", "read", "renamed", "linked", "open"] {
        fs::write(at(name), bytes(300_000)).unwrap();
    }
    fs::hard_link(at("linked"), at("link")).unwrap();
    place.mount(&[]);
    for entry in fs::read_dir(&place.mount).unwrap() {
        entry.unwrap().metadata().unwrap();
    }
    fs::read(place.mount.join("read")).unwrap();
    for (name, size) in [("written-long", 300_000), ("written-short", 100)] {
        fs::write(place.mount.join(name), bytes(size)).unwrap();
    }
    let open = File::open(place.mount.join("open")).unwrap();
    fs::rename(at("renamed"), at("renamed-again")).unwrap();
    let names = ["looked-at", "read", "renamed-again", "linked", "link", "open"];
    for name in names.into_iter().chain(["written-long", "written-short"]) {
        fs::remove_file(at(name)).unwrap();
    }
    let (begin, server) = (Instant::now(), place.server());
    assert!(removed(server).len() >= 7);
    let is_open = |name: &String| name.contains("/source/open");
    while !removed(server).iter().all(is_open) {
        assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", removed(server));
        std::thread::sleep(Duration::from_millis(100));
    }
    // A program that has a file open keeps it.
    let mut content = vec![0; 300_001];
    assert_eq!(open.read_at(&mut content, 0).unwrap(), 300_000);
    assert_eq!(open.metadata().unwrap().len(), 300_000);
    drop(open);
    // New files may have the same inodes.
    for name in ["looked-at", "read", "written-long"] {
        fs::write(at(name), name).unwrap();
        assert_eq!(fs::read_to_string(place.mount.join(name)).unwrap(), name);
    }
    place.unmount();
}
