//! Open directories and private files: what the calls do, and their errors.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;

use super::*;
use crate::faults::Faults;
use crate::platform::{OpenDirectory, PrivateFile, Replace, files};
use crate::random::Random;
use crate::stored::{Keep, StoredFile, bytes_of};
use crate::world::machine::{
    identity, kill, link, make_link, set_faults, set_space_pages, stored, survivors,
};

fn root() -> OpenDirectory {
    OpenDirectory::open(Path::new("/")).unwrap()
}

fn create(directory: &OpenDirectory, name: &str) -> io::Result<PrivateFile> {
    directory.create(OsStr::new(name), 0o644)
}

fn rename(directory: &OpenDirectory, from: &str, to: &str, replace: Replace) -> io::Result<()> {
    directory.rename(OsStr::new(from), directory, OsStr::new(to), replace)
}

/// The error number of a call that must fail.
fn refused<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    errno(&result.expect_err("the call is refused"))
}

#[test]
fn directories_are_opened_made_and_removed() {
    calm(|| {
        let root = root();
        root.make_directory(OsStr::new("d"), 0o755).unwrap();
        assert_eq!(refused(root.make_directory(OsStr::new("d"), 0o755)), libc::EEXIST);
        assert_eq!(refused(OpenDirectory::open(Path::new("/no"))), libc::ENOENT);
        let inner = OpenDirectory::open(Path::new("/d")).unwrap();
        assert_eq!(Some(inner.identity()), identity("/d"));
        drop(create(&inner, "a").unwrap());
        assert_eq!(refused(OpenDirectory::open(Path::new("/d/a"))), libc::ENOTDIR);
        assert_eq!(refused(create(&inner, "a")), libc::EEXIST);
        assert_eq!(refused(root.remove(OsStr::new("d"))), libc::EISDIR);
        assert_eq!(refused(inner.remove_directory(OsStr::new("a"))), libc::ENOTDIR);
        assert_eq!(refused(root.remove_directory(OsStr::new("d"))), libc::ENOTEMPTY);
        inner.remove(OsStr::new("a")).unwrap();
        assert_eq!(refused(inner.remove(OsStr::new("a"))), libc::ENOENT);
        root.remove_directory(OsStr::new("d")).unwrap();
        assert_eq!(refused(create(&inner, "a")), libc::ENOENT, "the directory was removed");
        assert_eq!(identity("/d"), None);
    });
}

#[test]
fn a_rename_replaces_a_file_unless_it_must_not() {
    on(MachinePlan::calm(vec![VolumePlan::xfs(), VolumePlan::xfs()]), 1, || {
        let root = root();
        let (one, two) = (create(&root, "one").unwrap(), create(&root, "two").unwrap());
        one.write_all_at(b"1", 0).unwrap();
        assert_eq!(refused(rename(&root, "one", "two", Replace::No)), libc::EEXIST);
        assert_eq!(refused(rename(&root, "one", "one", Replace::No)), libc::EEXIST);
        rename(&root, "one", "two", Replace::Yes).unwrap();
        assert_eq!((one.links().unwrap(), two.links().unwrap()), (1, 0));
        assert_eq!(stored("/two", |file| file.read(0, 10)), b"1");
        rename(&root, "two", "three", Replace::No).unwrap();
        assert_eq!(refused(rename(&root, "two", "three", Replace::Yes)), libc::ENOENT);
        let volume = OpenDirectory::open(Path::new("/volume1")).unwrap();
        let moved = root.rename(OsStr::new("three"), &volume, OsStr::new("a"), Replace::Yes);
        assert_eq!(refused(moved), libc::EXDEV);
        for name in ["d", "e"] {
            root.make_directory(OsStr::new(name), 0o755).unwrap();
        }
        assert_eq!(refused(rename(&root, "three", "d", Replace::Yes)), libc::EISDIR);
        assert_eq!(refused(rename(&root, "d", "three", Replace::Yes)), libc::ENOTDIR);
        assert_eq!(refused(rename(&root, "d", "d/inner", Replace::Yes)), libc::EINVAL);
        assert_eq!(refused(rename(&root, "volume1", "v", Replace::Yes)), libc::EBUSY);
        rename(&root, "three", "d/three", Replace::No).unwrap();
        assert_eq!(refused(rename(&root, "e", "d", Replace::Yes)), libc::ENOTEMPTY);
        rename(&root, "d", "e", Replace::Yes).unwrap();
        assert!(identity("/e/three").is_some());
    });
}

#[test]
fn a_link_at_the_end_is_followed_only_by_an_open_that_may_find_a_file() {
    calm(|| {
        let root = root();
        drop(create(&root, "target").unwrap());
        make_link("/link", "target");
        assert_eq!(refused(create(&root, "link")), libc::EEXIST);
        let opened = root.open_or_create(OsStr::new("link")).unwrap();
        assert_eq!(root.names("").unwrap().len(), 3, "nothing but /dev, /target and /link");
        assert!(opened.try_lock().unwrap());
        rename(&root, "link", "moved", Replace::Yes).unwrap();
        root.remove(OsStr::new("moved")).unwrap();
        assert_eq!(opened.links().unwrap(), 1, "its target has its name still");
    });
}

#[test]
fn names_are_listed_by_prefix_in_any_order() {
    let orders = (0..10).map(|seed| {
        on(MachinePlan::default(), seed, || {
            let root = root();
            for name in ["tmp-1", "tmp-2", "tmp-3", "tm", "other"] {
                drop(create(&root, name).unwrap());
            }
            root.names("tmp-").unwrap()
        })
    });
    let orders: BTreeSet<Vec<OsString>> = orders.collect();
    assert!(orders.len() > 1);
    for mut names in orders {
        names.sort();
        assert_eq!(names, ["tmp-1", "tmp-2", "tmp-3"]);
    }
}

#[test]
fn a_file_has_no_links_once_it_is_unlinked_and_can_be_written() {
    calm(|| {
        let root = root();
        let file = create(&root, "a").unwrap();
        assert_eq!(file.links().unwrap(), 1);
        link("/a", "/b").unwrap();
        assert_eq!(file.links().unwrap(), 2);
        root.remove(OsStr::new("a")).unwrap();
        root.remove(OsStr::new("b")).unwrap();
        assert_eq!(file.links().unwrap(), 0);
        file.write_all_at(&[1; 5000], 100).unwrap();
        file.write_back(0..5100).unwrap();
        file.sync().unwrap();
    });
}

#[test]
fn a_lock_excludes_other_open_files_until_its_process_dies_or_closes_it() {
    calm(|| {
        let lock = || root().open_or_create(OsStr::new("lock")).unwrap();
        let engine = spawn_other("engine", move || {
            let held = lock();
            assert!(held.try_lock().unwrap() && held.try_lock().unwrap());
            assert!(!lock().try_lock().unwrap(), "another open of the same process");
            held.write_all_at(b"alive", 0).unwrap();
            world::sleep(Duration::from_secs(3600));
        });
        while identity("/lock").is_none() || stored("/lock", StoredFile::size) == 0 {
            world::sleep(micros(10));
        }
        let other = lock();
        assert!(!other.try_lock().unwrap());
        kill(engine);
        assert!(other.try_lock().unwrap());
        assert_eq!(stored("/lock", |file| file.read(0, 10)), b"alive", "a write survives a death");
        let third = lock();
        assert!(!third.try_lock().unwrap());
        drop(other);
        assert!(third.try_lock().unwrap());
    });
}

#[test]
fn the_kept_directory_is_that_of_a_new_file() {
    calm(|| {
        let root = root();
        let file = make("/a");
        assert_eq!(file.kept_directory().unwrap(), Some(root.identity()));
        let mut found = open("/a", Create::No).unwrap().file;
        assert_eq!(found.kept_directory().unwrap(), None);
        found.made_at(Path::new("/a"));
        assert_eq!(found.kept_directory().unwrap(), Some(root.identity()));
        link("/a", "/b").unwrap();
        found.made_at(Path::new("/a"));
        assert_eq!(found.kept_directory().unwrap(), None, "the file has two names");
        root.make_directory(OsStr::new("d"), 0o755).unwrap();
        let inner = make("/d/a");
        root.remove(OsStr::new("d/a")).unwrap();
        root.remove_directory(OsStr::new("d")).unwrap();
        root.sync().unwrap();
        assert_eq!(inner.kept_directory().unwrap(), None, "it was removed");
    });
}

#[test]
fn faults_hit_every_call_that_changes_something() {
    const ALWAYS: PerMille = PerMille(1000);
    calm(|| {
        let root = root();
        let file = create(&root, "a").unwrap();
        let mut seen = BTreeSet::new();
        set_faults(Faults { names: ALWAYS, ..Faults::NONE });
        for _ in 0..20 {
            let results = [
                create(&root, "b").map(|_| ()),
                root.open_or_create(OsStr::new("b")).map(|_| ()),
                rename(&root, "a", "b", Replace::Yes),
                root.make_directory(OsStr::new("b"), 0o755),
                root.remove(OsStr::new("a")),
                root.remove_directory(OsStr::new("dev")),
            ];
            seen.extend(results.map(refused));
        }
        assert_eq!(Vec::from_iter(seen), [libc::EIO, libc::ENOSPC]);
        assert_eq!(root.names("").unwrap().len(), 2, "nothing has changed");
        set_faults(Faults { write: ALWAYS, ..Faults::NONE });
        assert_eq!(refused(file.write_all_at(&[1; 4096], 0)), libc::EIO);
        set_faults(Faults { flush: ALWAYS, ..Faults::NONE });
        assert_eq!(refused(file.sync()), libc::EIO);
        set_faults(Faults { flush_directory: ALWAYS, ..Faults::NONE });
        assert_eq!(refused(root.sync()), libc::EIO);
        set_faults(Faults::NONE);
        set_space_pages(0, 0);
        let file = create(&root, "b").unwrap();
        assert_eq!(refused(file.write_all_at(&[1; 4096], 0)), libc::ENOSPC);
    });
}

#[test]
fn a_failed_write_back_is_reported_once_and_its_range_is_lost() {
    calm(|| {
        let root = root();
        let file = create(&root, "a").unwrap();
        file.write_all_at(&[1; 8192], 0).unwrap();
        root.sync().unwrap();
        set_faults(Faults { write: PerMille(1000), ..Faults::NONE });
        assert_eq!(refused(file.write_back(0..4096)), libc::EIO);
        set_faults(Faults::NONE);
        file.write_back(4096..8192).unwrap();
        file.sync().unwrap();
        let found = survivors(Keep::Nothing, &mut Random::new(0)).at("/a");
        let byte = |sector: usize| bytes_of(&found.sectors[sector])[0];
        assert_eq!((found.size, byte(0), byte(7), byte(8), byte(15)), (8192, 0, 0, 1, 1));
        assert_eq!(stored("/a", |file| file.read(0, 1)), [1], "reads still see it");
    });
}

#[test]
fn a_read_only_file_system_refuses_every_change() {
    let plan = VolumePlan { is_read_only: true, ..VolumePlan::xfs() };
    on(MachinePlan::calm(vec![VolumePlan::xfs(), plan]), 1, || {
        let volume = OpenDirectory::open(Path::new("/volume1")).unwrap();
        assert_eq!(refused(create(&volume, "a")), libc::EROFS);
        assert_eq!(refused(volume.make_directory(OsStr::new("a"), 0o755)), libc::EROFS);
        assert!(files::identity_of(Path::new("/volume1/a")).is_err());
    });
}
