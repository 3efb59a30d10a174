//! The time of access moves as on the file system of the source.

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::place::{Place, bytes, run};

/// Seconds of a day.
const DAY: u64 = 24 * 60 * 60;

/// Larger than a small file.
const LARGE: usize = 300_000;

fn accessed(path: &Path) -> SystemTime {
    path.metadata().unwrap().accessed().unwrap()
}

/// Whether a file counts as read since it was written.
fn is_read(path: &Path) -> bool {
    accessed(path) >= path.metadata().unwrap().modified().unwrap()
}

/// Sets the times of access and of writing to `access` and `write` days ago.
fn set_days_ago(path: &Path, access: u64, write: u64) {
    let ago = |days| SystemTime::now() - Duration::from_secs(days * DAY);
    let times = FileTimes::new().set_accessed(ago(access)).set_modified(ago(write));
    File::options().write(true).open(path).unwrap().set_times(times).unwrap();
}

/// A mounted place on a file system that keeps times of access.
fn place() -> Option<Place> {
    let place = Place::new()?;
    let plain = place.directory.path().join("plain");
    fs::write(&plain, b"text").unwrap();
    set_days_ago(&plain, 3, 2);
    fs::read(&plain).unwrap();
    if !is_read(&plain) {
        eprintln!("skipped: the file system here keeps no times of access");
        return None;
    }
    Some(place)
}

#[test]
fn a_read_is_younger_than_the_write_before_it() {
    let Some(place) = place() else { return };
    for name in ["old-short", "old-long"] {
        let size = if name == "old-short" { 5000 } else { LARGE };
        fs::write(place.source.join(name), bytes(size)).unwrap();
        set_days_ago(&place.source.join(name), 3, 2);
    }
    place.mount(&[]);
    let names = ["old-short", "old-long", "new-short", "new-long", "open"];
    for name in &names[..4] {
        let path = place.mount.join(name);
        if let Some(size) = name.strip_prefix("new-") {
            fs::write(&path, bytes(if size == "short" { 4000 } else { LARGE })).unwrap();
            fs::read(&path).unwrap();
            assert!(is_read(&path), "{name}");
            let mut mail = OpenOptions::new().append(true).open(&path).unwrap();
            mail.write_all(b"new mail").unwrap();
            assert!(!is_read(&path), "{name}: it has new mail");
        }
        fs::read(&path).unwrap();
        assert!(is_read(&path), "{name}");
    }
    // Written and read in turn, by one descriptor.
    let path = place.mount.join("open");
    let open = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    open.write_all_at(&bytes(LARGE), 0).unwrap();
    for turn in 0..20 {
        open.write_all_at(b"x", turn * 1000).unwrap();
        assert!(!is_read(&path));
        open.read_exact_at(&mut [0], 7).unwrap();
        assert!(is_read(&path));
    }
    drop(open);
    std::thread::sleep(Duration::from_millis(1500));
    for name in names {
        assert!(is_read(&place.source.join(name)), "{name}, in the source after a second");
    }
    place.unmount();
    for name in names {
        assert!(is_read(&place.source.join(name)), "{name}, in the source");
    }
}

/// A mailbox with new mail must not look as if it had been read.
#[test]
fn a_write_that_has_to_read_a_part_of_a_page_is_no_read() {
    let Some(place) = place() else { return };
    let names = ["appended", "changed"];
    for name in names {
        fs::write(place.source.join(name), bytes(LARGE)).unwrap();
        set_days_ago(&place.source.join(name), 3, 2);
    }
    place.mount(&[]);
    let before = accessed(&place.source.join("appended"));
    let mut appended = OpenOptions::new().append(true).open(place.mount.join("appended")).unwrap();
    appended.write_all(b"new mail").unwrap();
    let changed = File::options().write(true).open(place.mount.join("changed")).unwrap();
    changed.write_all_at(b"new", 100_001).unwrap();
    changed.sync_all().unwrap();
    drop((appended, changed));
    assert!(names.iter().all(|name| !is_read(&place.mount.join(name))));
    place.unmount();
    assert!(names.iter().all(|name| !is_read(&place.source.join(name))));
    assert_eq!(accessed(&place.source.join("appended")), before);
}

#[test]
fn a_time_of_access_moves_at_most_once_and_not_for_those_who_do_not_want_it() {
    let Some(place) = place() else { return };
    for name in ["young", "quiet", "set", "changed"] {
        fs::write(place.source.join(name), bytes(LARGE)).unwrap();
    }
    fs::create_dir(place.source.join("directory")).unwrap();
    for name in ["quiet", "set"] {
        set_days_ago(&place.source.join(name), 3, 2);
    }
    // The clock of the kernel's times has ticks.
    std::thread::sleep(Duration::from_millis(20));
    fs::read(place.source.join("young")).unwrap();
    place.mount(&[]);
    let read = |name: &str, flags| {
        let mut options = File::options();
        let file = options.read(true).custom_flags(flags).open(place.mount.join(name));
        file.unwrap().read_to_end(&mut Vec::new()).unwrap();
    };
    let times =
        |name: &str| (accessed(&place.mount.join(name)), accessed(&place.source.join(name)));
    // Younger than the last change, and than a day.
    let before = times("young");
    (0..3).for_each(|_| read("young", 0));
    assert_eq!(times("young"), before);
    // With O_NOATIME, also if it is new or was written just now.
    let before = times("quiet");
    read("quiet", libc::O_NOATIME);
    assert_eq!(times("quiet"), before);
    for (name, size) in [("new-short", 100), ("new-long", LARGE)] {
        let path = place.mount.join(name);
        fs::write(&path, bytes(size)).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let before = accessed(&path);
        read(name, libc::O_NOATIME);
        assert_eq!(accessed(&path), before, "{name}");
    }
    // A time that was set stays until the next read.
    for name in ["set", "changed"] {
        let path = place.mount.join(name);
        File::options().append(true).open(&path).unwrap().write_all(b"more").unwrap();
        read(name, 0);
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_times(FileTimes::new().set_accessed(then)).unwrap();
        drop(file);
        assert_eq!(accessed(&path), then, "{name}");
        std::thread::sleep(Duration::from_millis(1500));
        assert_eq!(times(name), (then, then), "{name}");
        // The time of change is what a read is compared with, too.
        read(name, 0);
        assert!(is_read(&path), "{name}");
    }
    place.unmount();
}

/// The time of change is not moved by a read: programs that back up would take the file again.
#[test]
fn a_read_leaves_the_time_of_change() {
    let Some(place) = place() else { return };
    let path = place.source.join("file");
    fs::write(&path, bytes(LARGE)).unwrap();
    set_days_ago(&path, 3, 2);
    let changed = || (path.metadata().unwrap().ctime(), path.metadata().unwrap().ctime_nsec());
    let before = changed();
    place.mount(&[]);
    fs::read(place.mount.join("file")).unwrap();
    assert!(is_read(&path));
    assert_eq!(changed(), before);
    place.unmount();
    assert_eq!(changed(), before);
}

#[test]
fn a_source_that_keeps_no_times_of_access_keeps_none_in_the_mount() {
    let Some(mut place) = place() else { return };
    let source = place.directory.path().join("bound");
    fs::create_dir(&source).unwrap();
    let [from, to] = [&place.source, &source].map(|path| path.to_str().unwrap().to_owned());
    assert_eq!(run(&["mount", "--bind", &from, &to]).0, Some(0));
    let _bound = Bound(source.clone());
    assert_eq!(run(&["mount", "-o", "remount,bind,noatime", &to]).0, Some(0));
    fs::write(source.join("old"), bytes(LARGE)).unwrap();
    set_days_ago(&source.join("old"), 3, 2);
    place.source = source;
    place.mount(&[]);
    for name in ["old", "new"] {
        let path = place.mount.join(name);
        if name == "new" {
            fs::write(&path, bytes(LARGE)).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            let file = File::options().append(true).open(&path).unwrap();
            (&file).write_all(b"more").unwrap();
        }
        let before = accessed(&path);
        fs::read(&path).unwrap();
        assert_eq!(accessed(&path), before, "{name}");
    }
    place.unmount();
    assert!(!is_read(&place.source.join("old")) && !is_read(&place.source.join("new")));
}

/// A directory that is mounted a second time, until dropped.
struct Bound(PathBuf);

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
