//! Lists of directories, with the attributes of their files.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::faults::{Volume, done};
use crate::place::{Place, bytes};

/// A damaged inode has its name in a list, as on a plain file system, and no other call fails.
#[test]
fn a_damaged_file_does_not_end_a_list() {
    let Some(place) = Place::new() else { return };
    let image = place.directory.path().join("image");
    File::create(&image).unwrap().set_len(32 << 20).unwrap();
    let volume = Volume::made_by(&["mkfs.ext4", "-q", "-F"], &image, &place.source);
    for number in 0..20 {
        fs::write(place.source.join(format!("file-{number}")), b"text").unwrap();
    }
    let inode = fs::metadata(place.source.join("file-7")).unwrap().ino();
    drop(volume);
    done(&["debugfs", "-w", "-R", &format!("clri <{inode}>"), image.to_str().unwrap()]);
    let volume = Volume::made_by(&["true"], &image, &place.source);
    let sizes = |directory: &Path| {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let size = |path: &Path| path.metadata().map(|found| found.len());
        let of = |path: PathBuf| (size(&path).map_err(|error| error.raw_os_error()), path);
        let named = |(size, path): (_, PathBuf)| (path.file_name().unwrap().to_owned(), size);
        entries.map(of).map(named).collect::<BTreeMap<_, _>>()
    };
    place.mount(&[]);
    for _ in 0..2 {
        let found = sizes(&place.mount);
        assert!(found["file-7".as_ref() as &OsStr].is_err(), "{found:?}");
        assert_eq!(found, sizes(&place.source));
    }
    place.unmount();
    drop(volume);
}

/// A program that lists a directory often looks at its files next: the kernel knows them then.
#[test]
fn a_list_of_a_directory_has_the_attributes_of_its_files() {
    let Some(place) = Place::new() else { return };
    fs::create_dir_all(place.source.join("directory/inner")).unwrap();
    for number in 0..300 {
        let path = place.source.join(format!("directory/file-{number}"));
        fs::write(path, bytes(number)).unwrap();
    }
    place.mount(&[]);
    let directory = place.mount.join("directory");
    let list = || fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
    assert_eq!(list().count(), 301, "each name once");
    for path in list().filter(|path| path.is_file()) {
        let name = path.file_name().unwrap().to_str().unwrap();
        let number: u64 = name.strip_prefix("file-").unwrap().parse().unwrap();
        assert_eq!(path.metadata().unwrap().len(), number);
    }
    fs::write(directory.join("file-7"), b"changed").unwrap();
    list().for_each(drop);
    assert_eq!(directory.join("file-7").metadata().unwrap().len(), 7);
    fs::remove_dir_all(&directory).unwrap();
    assert!(!place.source.join("directory").exists());
    place.unmount();
    assert_eq!(place.log(), "");
}
