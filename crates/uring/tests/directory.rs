//! Names in directories, and files that only their creator uses, on the file system of the build.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use forebay_uring::{Named, OpenDirectory, Replace};

fn name(name: &str) -> &OsStr {
    OsStr::new(name)
}

fn open(path: &Path) -> OpenDirectory {
    OpenDirectory::open(path).unwrap()
}

#[test]
fn a_private_file_is_written_synced_and_renamed() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let here = open(directory.path());
    let file = here.create(name("new"), 0o640).unwrap();
    assert_eq!(here.create(name("new"), 0o640).unwrap_err().kind(), ErrorKind::AlreadyExists);
    let data: Vec<u8> = (0..100_001u32).map(|at| at as u8).collect();
    file.write_all_at(&data[..60_000], 0).unwrap();
    file.write_all_at(&data[60_000..], 60_000).unwrap();
    file.write_back(0..data.len() as u64).unwrap();
    file.set_mode(0o751).unwrap();
    file.sync().unwrap();
    here.rename(name("new"), &here, name("final"), Replace::No).unwrap();
    here.sync().unwrap();
    let path = directory.path().join("final");
    assert_eq!(std::fs::read(&path).unwrap(), data);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o751);
    assert_eq!(here.look(name("new")).unwrap(), Named::Nothing);
    assert_eq!(file.links().unwrap(), 1);
    here.remove(name("final")).unwrap();
    assert_eq!(file.links().unwrap(), 0);
}

#[test]
fn a_rename_replaces_a_file_only_if_it_may_and_never_a_directory() {
    let directory = tempfile::tempdir_in(".").unwrap();
    std::fs::create_dir(directory.path().join("there")).unwrap();
    let (here, there) = (open(directory.path()), open(&directory.path().join("there")));
    for (file, content) in [("one", "1"), ("two", "2")] {
        here.create(name(file), 0o600).unwrap().write_all_at(content.as_bytes(), 0).unwrap();
    }
    let refused = here.rename(name("one"), &here, name("two"), Replace::No).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    let refused = here.rename(name("one"), &here, name("there"), Replace::Yes).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::IsADirectory);
    here.rename(name("one"), &here, name("two"), Replace::Yes).unwrap();
    here.rename(name("two"), &there, name("two"), Replace::No).unwrap();
    assert_eq!(std::fs::read(directory.path().join("there/two")).unwrap(), b"1");
    assert_eq!(here.look(name("there")).unwrap(), Named::Directory);
    let refused = here.remove_directory(name("there")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::DirectoryNotEmpty);
    there.remove(name("two")).unwrap();
    here.remove_directory(name("there")).unwrap();
}

#[test]
fn names_are_listed_by_prefix_and_no_link_is_followed() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let here = open(directory.path());
    for file in [".a-1", ".a-2", "b"] {
        drop(here.open_or_create(name(file)).unwrap());
    }
    std::os::unix::fs::symlink("b", directory.path().join(".a-3")).unwrap();
    let mut names = here.names(".a-").unwrap();
    names.sort();
    assert_eq!(names, [".a-1", ".a-2", ".a-3"]);
    assert_eq!(here.look(name(".a-3")).unwrap(), Named::File);
    assert!(here.open_or_create(name(".a-3")).is_err(), "a link");
    here.make_directory(name("c"), 0o700).unwrap();
    assert_eq!(here.make_directory(name("c"), 0o700).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert!(OpenDirectory::open(&directory.path().join("b")).is_err(), "no directory");
}

#[test]
fn one_open_file_description_has_the_lock() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let here = open(directory.path());
    let (one, other) = (here.open_or_create(name("lock")), here.open_or_create(name("lock")));
    let (one, other) = (one.unwrap(), other.unwrap());
    assert!(one.try_lock().unwrap());
    assert!(!other.try_lock().unwrap());
    drop(one);
    assert!(other.try_lock().unwrap());
}
