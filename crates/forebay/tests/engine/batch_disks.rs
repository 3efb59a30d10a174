//! Batches on file systems that are full or read-only, of engines that have ended, and with any
//! names.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::support::mount::{FileSystem, Mount};
use crate::support::{MIB, directory, how, kind_of, pattern, process};
use forebay::{Batch, Engine, ErrorKind, Outcome};

/// Names in a directory and below it, those of a batch included.
fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

#[test]
fn contract_20_a_full_file_system_fails_a_file_and_publishes_nothing() {
    for file_system in [FileSystem::Xfs, FileSystem::Ext4] {
        let Some(mount) = Mount::new("batch_on_a_full_disk", file_system, 2048 * MIB) else {
            continue;
        };
        let filler = process::fill_up(&mount.path());
        let file = fs::OpenOptions::new().write(true).open(&filler).unwrap();
        file.set_len(file.metadata().unwrap().len() - 32 * MIB).unwrap();
        let before = names(&mount.path());
        let engine = Engine::new().unwrap();
        let batch = engine.batch();
        let content = pattern(1, 64 << 10);
        let written = (0..20_000)
            .find_map(|number| batch.write(mount.path().join(format!("{number}")), &content).err());
        let error: forebay::Error = match written {
            // The last bytes of a file are written behind its writer's back.
            None => batch.commit().unwrap_err().into(),
            Some(error) => {
                drop(batch);
                error
            }
        };
        println!("{error}");
        assert!(matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Open), "{error}");
        assert_eq!(names(&mount.path()), before);
    }
}

/// Every file is reported by itself, and nothing is published.
#[test]
fn contract_20_files_that_a_dead_device_does_not_take_are_reported_one_by_one() {
    let Some(mount) = Mount::new("batch_on_a_dead_device", FileSystem::Ext4, 64 * MIB) else {
        return;
    };
    let engine = Engine::new().unwrap();
    let batch = engine.batch();
    for number in 0..20 {
        batch.write(mount.path().join(format!("{number}")), &pattern(number, 9000)).unwrap();
    }
    mount.cut_off();
    let error = batch.commit().unwrap_err();
    println!("{error}");
    assert!(error.errors.iter().all(|error| error.kind() == ErrorKind::Io), "{error}");
    let paths: BTreeSet<_> = error.errors.iter().map(|error| error.path().unwrap()).collect();
    assert_eq!(paths.len(), 20);
    assert!(error.targets.iter().all(|(_, outcome)| *outcome == Outcome::Old));
}

#[test]
fn a_read_only_directory_is_reported() {
    let Some(mount) = Mount::new("batch_in_a_read_only_directory", FileSystem::Ext4, 64 * MIB)
    else {
        return;
    };
    let engine = Engine::new().unwrap();
    let before: Batch = engine.batch();
    before.write(mount.path().join("before"), b"1").unwrap();
    drop(before);
    mount.make_read_only();
    let batch = engine.batch();
    let refused = batch.create(mount.path().join("file"));
    assert_eq!(kind_of(refused), ErrorKind::Open);
}

#[test]
fn after_a_shutdown_nothing_is_published() {
    let directory = directory();
    let engine = Engine::new().unwrap();
    let batch = engine.batch();
    batch.write(directory.path().join("file"), b"1").unwrap();
    engine.shutdown(std::time::Duration::from_secs(10)).unwrap();
    assert_eq!(kind_of(batch.create(directory.path().join("more"))), ErrorKind::Shutdown);
    assert_eq!(batch.commit().unwrap_err().errors[0].kind(), ErrorKind::Shutdown);
    assert_eq!(names(directory.path()), BTreeSet::new());
}

#[test]
fn contract_20_names_may_have_any_bytes_and_be_as_long_as_the_file_system_allows() {
    let directory = directory();
    let engine = Engine::new().unwrap();
    let path = |name: &[u8]| directory.path().join(OsStr::from_bytes(name));
    // A sweep takes neither for that of a dead batch.
    let like_its_own = format!("{:0<255}", ".forebay-0000000000000007-00000001");
    for name in [like_its_own.as_bytes(), b".forebay#123400000001", b".forebay-\xff"] {
        fs::write(path(name), "of others").unwrap();
    }
    let names = [vec![b'x'; 255], vec![0xff; 255], "é".repeat(127).into_bytes()];
    let batch = engine.batch();
    for name in &names {
        batch.write(path(name), name).unwrap();
    }
    batch.commit().unwrap();
    let temporary = engine.open(path(&[0xfe; 255]), &how::temporary()).unwrap();
    temporary.write_at(b"new", 0).unwrap();
    temporary.sync_data().unwrap();
    temporary.close().unwrap();
    fs::rename(path(&[0xfe; 255]), path(&names[0])).unwrap();
    assert_eq!(fs::read(path(&names[0])).unwrap(), b"new");
    for name in &names[1..] {
        assert_eq!(fs::read(path(name)).unwrap(), *name);
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 6);
}
