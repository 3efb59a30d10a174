//! Batches on the file system of the build: names, contents, errors, leftovers.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay::{BatchFile, Engine, ErrorKind, Options, Outcome};
use forebay_block::random::Random;
use support::mount::{FileSystem, Mount};
use support::refused::{self, Threads};
use support::{MIB, directory, how, kind_of, pattern, process, seed};

/// Names in a directory and below it, those of a batch included.
fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

fn only(expected: &[&str]) -> BTreeSet<String> {
    expected.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn contract_20_files_of_every_size_appear_at_the_commit_and_not_before() {
    let directory = directory();
    let engine = Engine::new().unwrap();
    let batch = engine.batch();
    let seed = seed();
    let mut random = Random::new(seed);
    let sizes = [0, 1, 4095, 4096, 4097, 262_143, 262_144, 262_145, 1_000_000, 5_000_001];
    for (number, size) in sizes.into_iter().enumerate() {
        let content = pattern(seed ^ number as u64, size);
        let path = directory.path().join(format!("{number}"));
        if number % 2 == 0 {
            batch.write(&path, &content).unwrap();
            continue;
        }
        let mut file = batch.create(&path).unwrap();
        let mut rest = &content[..];
        while !rest.is_empty() {
            let now = rest.len().min(1 + random.below(300_000) as usize);
            file.write_all(&rest[..now]).unwrap();
            rest = &rest[now..];
        }
        file.close().unwrap();
    }
    assert!(names(directory.path()).iter().all(|name| name.starts_with(".forebay-")));
    batch.commit().unwrap();
    for (number, size) in sizes.into_iter().enumerate() {
        let expected = pattern(seed ^ number as u64, size);
        support::assert_on_disk(&directory.path().join(format!("{number}")), &expected, "a file");
    }
    assert_eq!(names(directory.path()).len(), sizes.len(), "nothing else is left");
}

#[test]
fn contract_20_an_aborted_batch_leaves_nothing() {
    let directory = directory();
    fs::write(directory.path().join("kept"), "old").unwrap();
    let engine = Engine::new().unwrap();
    let batch = engine.batch();
    batch.create_dir(directory.path().join("new/deep")).unwrap();
    batch.write(directory.path().join("new/deep/file"), b"new").unwrap();
    batch.write(directory.path().join("kept"), b"new").unwrap();
    batch.remove(directory.path().join("kept")).unwrap();
    let mut open = batch.create(directory.path().join("open")).unwrap();
    open.write_all(b"part").unwrap();
    drop(batch);
    assert_eq!(kind_of(open.write_all(&[1; 1 << 20])), ErrorKind::InvalidInput);
    assert_eq!(names(directory.path()), only(&["kept"]));
    assert_eq!(fs::read(directory.path().join("kept")).unwrap(), b"old");
}

#[test]
fn steps_are_done_in_call_order() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("log"), "first").unwrap();
    fs::write(at("old"), "old").unwrap();
    let engine = Engine::new().unwrap();
    let batch = engine.batch();
    batch.rename(at("log"), at("log.1")).unwrap();
    batch.write(at("log"), b"second").unwrap();
    batch.remove(at("old")).unwrap();
    batch.write(at("old"), b"created again").unwrap();
    assert_eq!(kind_of(batch.remove(at("missing"))), ErrorKind::NotFound);
    assert_eq!(kind_of(batch.rename(at("missing"), at("x"))), ErrorKind::NotFound);
    batch.commit().unwrap();
    assert_eq!(fs::read(at("log.1")).unwrap(), b"first");
    assert_eq!(fs::read(at("log")).unwrap(), b"second");
    assert_eq!(fs::read(at("old")).unwrap(), b"created again");
    assert_eq!(names(directory.path()), only(&["log", "log.1", "old"]));
}

#[test]
fn a_batch_with_an_unfinished_file_publishes_nothing() {
    let directory = directory();
    let engine = Engine::new().unwrap();
    let batch = engine.batch();
    batch.write(directory.path().join("one"), b"1").unwrap();
    drop(batch.create(directory.path().join("two")).unwrap());
    let error = batch.commit().unwrap_err();
    println!("{error}");
    assert_eq!(error.errors[0].kind(), ErrorKind::InvalidInput);
    assert_eq!(
        error.errors[0].path(),
        Some(&*fs::canonicalize(directory.path()).unwrap().join("two"))
    );
    assert!(error.targets.iter().all(|(_, outcome)| *outcome == Outcome::Old));
    assert!(error.to_string().ends_with("nothing was published"), "{error}");
    assert_eq!(names(directory.path()), only(&[]));
}

#[test]
fn bad_targets_are_refused_one_by_one() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("directory")).unwrap();
    fs::write(at("file"), "old").unwrap();
    let engine = Engine::new().unwrap();
    let batch = engine.batch();
    let refused = |path: PathBuf| kind_of(batch.create(path));
    assert_eq!(refused(at("directory")), ErrorKind::Open);
    assert_eq!(refused(at("directory/..")), ErrorKind::InvalidInput);
    assert_eq!(refused("/".into()), ErrorKind::InvalidInput);
    assert_eq!(refused(PathBuf::new()), ErrorKind::InvalidInput);
    assert_eq!(refused(at("missing/file")), ErrorKind::NotFound);
    assert_eq!(refused(at("file/file")), ErrorKind::Open);
    assert_eq!(refused(at(&"x".repeat(256))), ErrorKind::Open);
    assert_eq!(refused("/dev/shm/forebay-elsewhere".into()), ErrorKind::InvalidInput);
    assert_eq!(kind_of(batch.create_new(at("file"))), ErrorKind::AlreadyExists);
    assert_eq!(kind_of(batch.create_dir(at("file"))), ErrorKind::Open);
    let longest = "x".repeat(255);
    batch.write(at(&longest), b"long").unwrap();
    batch.write(at("directory/../dotted"), b"dots").unwrap();
    batch.commit().unwrap();
    assert_eq!(names(directory.path()), only(&["directory", "file", "dotted", &longest]));
}

#[test]
fn a_link_at_the_target_is_replaced_and_one_in_its_directory_is_followed() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("real")).unwrap();
    fs::write(at("linked"), "old").unwrap();
    std::os::unix::fs::symlink("linked", at("link")).unwrap();
    std::os::unix::fs::symlink("real", at("through")).unwrap();
    let engine = Engine::new().unwrap();
    let batch = engine.batch();
    batch.write(at("link"), b"new").unwrap();
    batch.write(at("through/one"), b"1").unwrap();
    batch.write(at("real/two"), b"2").unwrap();
    batch.commit().unwrap();
    assert!(fs::symlink_metadata(at("link")).unwrap().is_file());
    assert_eq!(fs::read(at("linked")).unwrap(), b"old");
    assert_eq!(names(&at("real")), only(&["one", "two"]));
}

#[test]
fn a_published_file_is_a_new_one() {
    let directory = directory();
    let path = directory.path().join("file");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).unwrap();
    let engine = Engine::new().unwrap();
    let reader = engine.open(&path, &how::read()).unwrap();
    let before = fs::metadata(&path).unwrap().ino();
    let batch = engine.batch();
    batch.write(&path, b"new").unwrap();
    let mut private = batch.create(directory.path().join("private")).unwrap();
    private.set_mode(0o600).unwrap();
    private.write_all(b"secret").unwrap();
    private.close().unwrap();
    batch.commit().unwrap();
    let after = fs::metadata(&path).unwrap();
    let plain = directory.path().join("plain");
    fs::write(&plain, "").unwrap();
    assert_ne!(after.ino(), before);
    assert_eq!(after.mode(), fs::metadata(&plain).unwrap().mode(), "the mode of a new file");
    let private = fs::metadata(directory.path().join("private")).unwrap();
    assert_eq!(private.mode() & 0o7777, 0o600);
    let mut found = [0; 3];
    reader.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(&found, b"old", "a handle keeps the file that it opened");
    reader.close().unwrap();
}

/// The target appears between the creation and the commit.
#[test]
fn contract_20_a_new_name_that_is_taken_stops_the_commit_there() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name);
    let engine = Engine::new().unwrap();
    let batch = engine.batch();
    batch.write(at("one"), b"1").unwrap();
    let mut two = batch.create_new(at("two")).unwrap();
    two.write_all(b"2").unwrap();
    two.close().unwrap();
    batch.write(at("three"), b"3").unwrap();
    fs::write(at("two"), "of another").unwrap();
    let error = batch.commit().unwrap_err();
    println!("{error}");
    assert_eq!(error.errors[0].kind(), ErrorKind::AlreadyExists);
    let outcomes: Vec<_> = error.targets.iter().map(|(_, outcome)| *outcome).collect();
    assert_eq!(outcomes, [Outcome::New, Outcome::Old, Outcome::Old]);
    assert_eq!(names(directory.path()), only(&["one", "two"]));
    assert_eq!(fs::read(at("two")).unwrap(), b"of another");
}

/// Network and user-space file systems refuse such a rename as invalid.
#[test]
fn contract_20_a_new_name_is_not_taken_from_a_file_without_help_of_the_file_system() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name);
    let engine = Engine::new().unwrap();
    let batch = |name: &str| {
        let batch = engine.batch();
        let mut file = batch.create_new(at(name)).unwrap();
        file.write_all(b"new").unwrap();
        file.close().unwrap();
        batch
    };
    let (free, taken) = (batch("free"), batch("taken"));
    fs::write(at("taken"), "of another").unwrap();
    let (free, taken) = std::thread::spawn(|| {
        refused::system_call(libc::SYS_renameat2, libc::EINVAL, Threads::This);
        (free.commit(), taken.commit())
    })
    .join()
    .unwrap();
    free.unwrap();
    assert_eq!(taken.unwrap_err().errors[0].kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::read(at("free")).unwrap(), b"new");
    assert_eq!(fs::read(at("taken")).unwrap(), b"of another");
    assert_eq!(names(directory.path()), only(&["free", "taken"]));
}

/// The gathered bytes before it are lost, so the file may not be published without them.
#[test]
fn contract_20_a_file_cannot_be_finished_after_a_write_was_refused() {
    let Some(mount) = Mount::new("batch_refused_write", FileSystem::Ext4, 64 * MIB) else { return };
    let directory = directory();
    let path = directory.path().join("file");
    let slot: Arc<Mutex<Option<BatchFile>>> = Arc::default();
    let (refusal, refused) = std::sync::mpsc::channel();
    let in_callback = Arc::clone(&slot);
    // It is called on a thread of the engine, which may not wait for it.
    let engine = Engine::builder(Options::default()).on_error(move |_| {
        if let Some(file) = &mut *in_callback.lock().unwrap() {
            let _ = refusal.send(kind_of(file.write_all(&[2; 300_000])));
        }
    });
    let engine = engine.build().unwrap();
    let batch = engine.batch();
    let mut file = batch.create(&path).unwrap();
    file.write_all(&[1; 1000]).unwrap();
    *slot.lock().unwrap() = Some(file);
    let dying = engine.open(mount.path().join("dying"), &how::create()).unwrap();
    mount.cut_off();
    dying.write_at(&[1; 40_960], 0).unwrap();
    drop(dying);
    let kind = refused.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(kind, ErrorKind::WouldDeadlock);
    let file = slot.lock().unwrap().take().unwrap();
    assert_eq!(kind_of(file.close()), ErrorKind::InvalidInput);
    batch.commit().unwrap_err();
    assert!(!path.exists());
}

#[test]
fn a_directory_that_is_removed_meanwhile_is_reported() {
    let directory = directory();
    let gone = directory.path().join("gone");
    fs::create_dir(&gone).unwrap();
    let engine = Engine::new().unwrap();
    let batch = engine.batch();
    batch.write(gone.join("file"), b"1").unwrap();
    fs::remove_dir_all(&gone).unwrap();
    let error = batch.commit().unwrap_err();
    println!("{error}");
    assert_eq!(error.errors[0].kind(), ErrorKind::NotFound);
    assert_eq!(error.targets[0].1, Outcome::Old);
}

#[test]
fn contract_20_of_two_batches_for_one_target_the_later_commit_wins_whole() {
    let directory = directory();
    let path = directory.path().join("file");
    let engine = Engine::new().unwrap();
    let (one, two) = (engine.batch(), engine.batch());
    one.write(&path, &pattern(1, 100_000)).unwrap();
    two.write(&path, &pattern(2, 50_000)).unwrap();
    two.commit().unwrap();
    one.commit().unwrap();
    support::assert_on_disk(&path, &pattern(1, 100_000), "the later one");
    assert_eq!(names(directory.path()), only(&["file"]));
}

/// More files and directories than the process may have descriptors.
#[test]
fn contract_18_a_batch_needs_few_descriptors() {
    let Some(task) = process::task() else {
        let directory = directory();
        let task = directory.path().display().to_string();
        let child = process::start_child("contract_18_a_batch_needs_few_descriptors", &task);
        let ended = child.wait_with_output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
        for number in 0..1500u64 {
            let path = directory.path().join(format!("{}/{number}", number % 40));
            support::assert_on_disk(&path, &pattern(number, 5000), "a file");
        }
        let left: Vec<_> =
            (0..40).map(|at| names(&directory.path().join(format!("{at}")))).collect();
        assert_eq!(left.iter().map(BTreeSet::len).sum::<usize>(), 1500);
        return;
    };
    let limit = libc::rlimit { rlim_cur: 128, rlim_max: 128 };
    // SAFETY: the call reads the limit during the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    let engine = Engine::new().unwrap();
    let batch = engine.batch();
    for number in 0..1500u64 {
        let directory = Path::new(&task).join(format!("{}", number % 40));
        batch.create_dir(&directory).unwrap();
        batch.write(directory.join(format!("{number}")), &pattern(number, 5000)).unwrap();
    }
    batch.commit().unwrap();
}

#[test]
fn threads_share_a_batch() {
    let directory = directory();
    let engine = Engine::new().unwrap();
    let batch = engine.batch();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let (batch, directory) = (&batch, &directory);
            scope.spawn(move || {
                for number in 0..100 {
                    let path = directory.path().join(format!("{thread}-{number}"));
                    batch.write(path, &pattern(thread << 32 | number, 10_000)).unwrap();
                }
            });
        }
    });
    batch.commit().unwrap();
    assert_eq!(names(directory.path()).len(), 800);
    for thread in 0..8u64 {
        let path = directory.path().join(format!("{thread}-99"));
        support::assert_on_disk(&path, &pattern(thread << 32 | 99, 10_000), "a file");
    }
}
