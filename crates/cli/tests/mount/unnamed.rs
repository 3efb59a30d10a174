//! Files without a name (`O_TMPFILE`): a link gives them one, or their space is free again.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid, linkat, openat};
use rustix::io::{Errno, Result};

use crate::place::{Place, bytes, wait_until};
use crate::rights::Others;

/// A size that stays outside the engine, and one that does not.
const SIZES: [usize; 2] = [5, 3_000_001];

fn unnamed(directory: &Path, flags: OFlags) -> Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | flags;
    Ok(openat(CWD, directory, flags, Mode::from_raw_mode(0o646))?.into())
}

/// Gives an open file a name, as a program without capabilities does.
fn link(file: &impl AsFd, name: &Path) -> Result<()> {
    linkat(CWD, path_of(file), CWD, name, AtFlags::SYMLINK_FOLLOW)
}

fn path_of(file: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

/// Calls as another user, on a thread of its own.
fn as_user<T: Send>(user: u32, call: impl FnOnce() -> T + Send) -> T {
    let called = std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(user));
            rustix::thread::set_thread_res_gid(group, group, group).unwrap();
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            call()
        });
        thread.join()
    });
    called.unwrap()
}

/// Calls on each kind of mount, with the user whose program it is.
fn on_each(check: impl Fn(&Place, u32) + Sync) {
    for (options, user) in [(&[][..], 0), (&[], 1), (&["--plain"], 0), (&["--plain"], 1)] {
        let Some(place) = Place::new() else { return };
        if unnamed(&place.source, OFlags::empty()).is_err_and(|error| error == Errno::OPNOTSUPP) {
            return eprintln!("skipped: the file system of the source has no such files");
        }
        let others = Others::of(place);
        others.place.mount(options);
        check(&others.place, user);
        others.place.unmount();
        assert_eq!(others.place.log(), "", "{options:?} {user}");
    }
}

#[test]
fn a_file_without_a_name_gets_one_and_has_its_content_after_the_end() {
    on_each(|place, user| {
        let made = place.source.join("made");
        File::options().write(true).create_new(true).mode(0o646).open(&made).unwrap();
        let mode = made.metadata().unwrap().mode();
        fs::remove_file(made).unwrap();
        for size in SIZES {
            let (name, content) = (size.to_string(), bytes(size));
            as_user(user, || {
                let file = unnamed(&place.mount, OFlags::empty()).unwrap();
                file.write_all_at(&content, 0).unwrap();
                let found = file.metadata().unwrap();
                assert_eq!((found.nlink(), found.len()), (0, size as u64));
                assert!(!fs::exists(place.mount.join(&name)).unwrap());
                link(&file, &place.mount.join(&name)).unwrap();
                link(&file, &place.mount.join(format!("{name}-again"))).unwrap();
                assert_eq!(file.metadata().unwrap().nlink(), 2);
                assert!(fs::read(place.mount.join(&name)).unwrap() == content);
                file.write_all_at(b"over", 1).unwrap();
                file.sync_all().unwrap();
            });
        }
        place.unmount();
        for size in SIZES {
            let mut content = bytes(size);
            content[1..5].copy_from_slice(b"over");
            let path = place.source.join(size.to_string());
            let found = path.metadata().unwrap();
            assert_eq!((found.uid(), found.gid(), found.mode()), (user, user, mode));
            assert!(fs::read(&path).unwrap() == content);
        }
        place.mount(&[]);
    });
}

#[test]
fn a_program_of_root_links_a_file_without_a_name_by_its_descriptor() {
    on_each(|place, user| {
        let file = unnamed(&place.mount, OFlags::empty()).unwrap();
        file.write_all_at(b"text", 0).unwrap();
        linkat(&file, "", CWD, place.mount.join("name"), AtFlags::EMPTY_PATH).unwrap();
        assert_eq!(fs::read(place.source.join("name")).unwrap(), b"text", "{user}");
    });
}

#[test]
fn a_file_that_was_opened_to_stay_without_a_name_gets_none() {
    on_each(|place, user| {
        for directory in [&place.source, &place.mount] {
            let linked = as_user(user, || {
                let file = unnamed(directory, OFlags::EXCL).unwrap();
                file.write_all_at(b"text", 0).unwrap();
                link(&file, &directory.join("name"))
            });
            assert_eq!(linked, Err(Errno::NOENT), "{directory:?}");
        }
        assert_eq!(fs::read_dir(&place.source).unwrap().count(), 0);
    });
}

#[test]
fn a_file_that_never_gets_a_name_takes_no_space_after_its_close() {
    on_each(|place, user| {
        let held = |name: &dyn Fn(&Path) -> bool| {
            let held = fs::read_dir(format!("/proc/{}/fd", place.server())).unwrap().flatten();
            let mut names = held.filter_map(|entry| fs::read_link(entry.path()).ok());
            names.any(|held| name(&held))
        };
        let is_unnamed = |name: &Path| name.starts_with(&place.source) && name != place.source;
        for (size, flags) in SIZES.into_iter().zip([OFlags::empty(), OFlags::EXCL]) {
            as_user(user, || {
                let file = unnamed(&place.mount, flags).unwrap();
                file.write_all_at(&bytes(size), 0).unwrap();
                let mut read = vec![0; size];
                file.read_exact_at(&mut read, 0).unwrap();
                assert!(read == bytes(size));
            });
            wait_until("the mount closes it", || !held(&is_unnamed));
        }
    });
}

/// The close of its last descriptor does not end it: a link is still possible.
#[test]
fn a_file_without_a_name_stays_while_a_descriptor_for_its_path_is_open() {
    on_each(|place, user| {
        let content = bytes(SIZES[1]);
        as_user(user, || {
            let file = unnamed(&place.mount, OFlags::empty()).unwrap();
            file.write_all_at(&content, 0).unwrap();
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let path = openat(CWD, path_of(&file), flags, Mode::empty()).unwrap();
            drop(file);
            std::thread::sleep(std::time::Duration::from_millis(200));
            link(&path, &place.mount.join("name")).unwrap();
            assert!(fs::read(place.mount.join("name")).unwrap() == content);
        });
    });
}
