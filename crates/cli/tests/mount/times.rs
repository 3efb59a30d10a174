//! Times that programs set.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use crate::place::{Place, bytes};

/// Makes something at a path.
type Make = fn(&Path);

/// Seconds and nanoseconds of access and of change.
fn times(path: &Path) -> [(i64, i64); 2] {
    let found = path.symlink_metadata().unwrap();
    [(found.atime(), found.atime_nsec()), (found.mtime(), found.mtime_nsec())]
}

#[test]
fn times_before_1970_are_set_and_shown_to_the_nanosecond() {
    let Some(place) = Place::new() else { return };
    place.mount(&[]);
    let kinds: [(&str, Make); 4] = [
        ("small", |path| fs::write(path, b"text").unwrap()),
        ("large", |path| fs::write(path, bytes(200_000)).unwrap()),
        ("directory", |path| fs::create_dir(path).unwrap()),
        ("link", |path| symlink("nowhere", path).unwrap()),
    ];
    let set = [(-1, 999_999_999), (-1, 500_000_000), (-1, 0), (-2, 500_000_000), (-3, 1), (0, 1)];
    let name = |kind: &str, (seconds, nanoseconds)| format!("{kind}{seconds}.{nanoseconds}");
    for (kind, make) in kinds {
        for time in set {
            let path = place.mount.join(name(kind, time));
            make(&path);
            let (tv_sec, tv_nsec) = time;
            // One of the two has a whole second.
            let last_access = Timespec { tv_sec: -7, tv_nsec: 0 };
            let last_modification = Timespec { tv_sec, tv_nsec };
            let times_set = Timestamps { last_access, last_modification };
            utimensat(CWD, &path, &times_set, AtFlags::SYMLINK_NOFOLLOW).unwrap();
            assert_eq!(times(&path), [(-7, 0), time], "{kind}");
        }
    }
    // Longer than until the data is written out.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    for (kind, _) in kinds {
        for time in set {
            assert_eq!(times(&place.mount.join(name(kind, time)))[1], time, "{kind}");
        }
    }
    place.unmount();
    for (kind, _) in kinds {
        for time in set {
            assert_eq!(
                times(&place.source.join(name(kind, time)))[1],
                time,
                "{kind} in the source"
            );
        }
    }
}

/// The time is that of a file with data that is not written out, and set by its descriptor.
#[test]
fn a_time_before_1970_of_an_open_file_stays_after_the_write_out() {
    let Some(place) = Place::new() else { return };
    place.mount(&[]);
    let path = place.mount.join("file");
    fs::write(&path, bytes(300_000)).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"more", 5).unwrap();
    let then = std::time::SystemTime::UNIX_EPOCH - std::time::Duration::new(1, 500_000_000);
    file.set_modified(then).unwrap();
    assert_eq!(times(&path)[1], (-2, 500_000_000));
    file.sync_all().unwrap();
    drop(file);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(times(&path)[1], (-2, 500_000_000));
    place.unmount();
    assert_eq!(times(&place.source.join("file"))[1], (-2, 500_000_000));
}
