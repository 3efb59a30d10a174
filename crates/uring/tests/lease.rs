//! Leases, with a second process that opens the file.

mod support;

use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use forebay_uring::{Access, Create, How, LeaseWatch, OpenFile, Truncate};
use support::{create, directory};

const SOON: Duration = Duration::from_secs(10);

fn watch() -> (LeaseWatch, Receiver<u64>) {
    let (reported, report) = mpsc::channel();
    (LeaseWatch::new(move |key| reported.send(key).unwrap_or_default()).unwrap(), report)
}

/// Another process that opens the file for reading, which a lease holds back.
fn opener(path: &Path) -> Child {
    Command::new("/bin/sh")
        .args(["-c", "exec 3<\"$1\" && echo open", "sh"])
        .arg(path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Takes the lease, or says why the test cannot run here.
fn leased(file: &OpenFile, watch: &LeaseWatch, key: u64) -> bool {
    match file.try_lease(watch, key) {
        Ok(()) => true,
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EACCES)) => {
            println!("skipped: no lease on this file system or for this user: {error}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn contract_6_another_program_is_held_back_until_the_lease_is_released() {
    let directory = directory();
    let (watch, breaks) = watch();
    let files: Vec<_> = ["one", "two"]
        .map(|name| (directory.path().join(name), create(&directory.path().join(name)).file))
        .into();
    for (key, (_, file)) in (70..).zip(&files) {
        if !leased(file, &watch, key) {
            return;
        }
        file.try_lease(&watch, key).expect("what is held is not asked for again");
    }
    let mut other = opener(&files[1].0);
    assert_eq!(breaks.recv_timeout(SOON), Ok(71));
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(other.try_wait().unwrap(), None, "it waits for us");
    let start = Instant::now();
    files[1].1.release_lease();
    assert!(other.wait().unwrap().success());
    println!("the other program went on after {:?}", start.elapsed());
    assert!(start.elapsed() < SOON);
    assert!(breaks.try_recv().is_err(), "the other file's lease was not broken");

    // And again on the same file, once the other program has gone.
    files[1].1.try_lease(&watch, 72).unwrap();
    let mut other = opener(&files[1].0);
    assert_eq!(breaks.recv_timeout(SOON), Ok(72));
    files[1].1.release_lease();
    assert!(other.wait().unwrap().success());
}

#[test]
fn a_stat_and_our_own_truncation_break_nothing() {
    let directory = directory();
    let path = directory.path().join("file");
    let (watch, breaks) = watch();
    let file = create(&path).file;
    if !leased(&file, &watch, 5) {
        return;
    }
    OpenFile::identity_of(&path).unwrap();
    fs::metadata(&path).unwrap();
    file.truncate(100).unwrap();
    assert!(breaks.recv_timeout(Duration::from_millis(100)).is_err());
}

#[test]
fn a_file_that_somebody_has_open_is_not_leased() {
    let directory = directory();
    let path = directory.path().join("file");
    let (watch, _breaks) = watch();
    let file = create(&path).file;
    let second = fs::File::open(&path).unwrap();
    let error = file.try_lease(&watch, 1).unwrap_err();
    if error.raw_os_error() == Some(libc::EINVAL) {
        return println!("skipped: {error}");
    }
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    drop(second);
    // A child that another test is about to start may hold a copy of the descriptor a moment
    // longer.
    let deadline = Instant::now() + SOON;
    while file.try_lease(&watch, 1).is_err() {
        assert!(Instant::now() < deadline);
    }
}

#[test]
fn an_open_waits_politely_for_a_lease_and_then_gives_up() {
    let directory = directory();
    let path = directory.path().join("file");
    let (watch, breaks) = watch();
    let file = create(&path).file;
    if !leased(&file, &watch, 3) {
        return;
    }
    let how = How { access: Access::Read, create: Create::No, truncate: Truncate::Keep, mode: 0 };
    let start = Instant::now();
    let error = OpenFile::open_within(&path, &how, Duration::from_millis(100)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!(breaks.recv_timeout(SOON), Ok(3), "the holder was told");

    std::thread::scope(|scope| {
        let opened = scope.spawn(|| OpenFile::open(&path, &how).map(drop));
        std::thread::sleep(Duration::from_millis(30));
        file.release_lease();
        opened.join().unwrap().unwrap();
    });
}

#[test]
fn a_dropped_file_gives_its_lease_up() {
    let directory = directory();
    let path = directory.path().join("file");
    let (watch, breaks) = watch();
    let file = create(&path).file;
    if !leased(&file, &watch, 3) {
        return;
    }
    drop(file);
    assert!(opener(&path).wait().unwrap().success());
    assert!(breaks.try_recv().is_err());
}

#[test]
fn a_watch_that_ends_gives_all_leases_up() {
    let directory = directory();
    let path = directory.path().join("file");
    let (watch, breaks) = watch();
    let file = create(&path).file;
    if !leased(&file, &watch, 3) {
        return;
    }
    watch.shutdown();
    assert!(opener(&path).wait().unwrap().success());
    assert!(breaks.recv().is_err(), "the callback is gone");
    file.release_lease();
    assert!(file.try_lease(&watch, 4).is_err());
    watch.shutdown();
}

#[test]
fn the_callback_may_release_the_lease_itself() {
    let directory = directory();
    let path = directory.path().join("file");
    let file = std::sync::Arc::new(create(&path).file);
    let releasing = std::sync::Arc::downgrade(&file);
    let watch = LeaseWatch::new(move |_| {
        if let Some(file) = releasing.upgrade() {
            file.release_lease();
        }
    })
    .unwrap();
    if leased(&file, &watch, 1) {
        assert!(opener(&path).wait().unwrap().success());
    }
}

#[test]
fn contract_14_a_break_disturbs_no_other_thread() {
    let directory = directory();
    let (watch, breaks) = watch();
    // More breaks than one look takes, while every other thread has all signals open: one that
    // strayed would end the process.
    let files: Vec<_> = (0..40)
        .map(|number| {
            let path = directory.path().join(number.to_string());
            let file = create(&path).file;
            (path, file)
        })
        .collect();
    for (key, (_, file)) in (0..).zip(&files) {
        if !leased(file, &watch, key) {
            return;
        }
    }
    let others: Vec<Child> = files.iter().map(|(path, _)| opener(path)).collect();
    for _ in 0..40 {
        let key = breaks.recv_timeout(SOON).unwrap();
        files[usize::try_from(key).unwrap()].1.release_lease();
    }
    assert!(others.into_iter().all(|mut other| other.wait().unwrap().success()));
}

/// The open file in another owner's hands, and nobody in this one's: as if this process had died.
fn handed_over(file: OpenFile) -> OpenFile {
    let descriptor = file.as_fd().try_clone_to_owned().unwrap();
    // Its drop would give the lease up.
    std::mem::forget(file);
    OpenFile::of_descriptor(descriptor).unwrap()
}

#[test]
fn contract_6_a_lease_that_came_with_a_file_is_taken_over() {
    let directory = directory();
    let path = directory.path().join("file");
    let (first_watch, first) = watch();
    let file = create(&path).file;
    if !leased(&file, &first_watch, 1) {
        return;
    }
    let file = handed_over(file);
    assert!(file.is_leased() && !file.has_lease(), "it is there, and nobody's");
    let (watch, breaks) = watch();
    file.adopt_lease(&watch, 9).unwrap();
    assert!(file.has_lease());
    let mut other = opener(&path);
    assert_eq!(breaks.recv_timeout(SOON), Ok(9));
    assert!(first.try_recv().is_err(), "who had it hears nothing");
    assert!(!file.has_lease() && !file.is_leased());
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(other.try_wait().unwrap(), None, "it waits for us");
    file.release_lease();
    assert!(other.wait().unwrap().success());
}

#[test]
fn contract_6_who_waits_since_before_a_lease_was_taken_over_goes_on_when_it_is_released() {
    let directory = directory();
    let path = directory.path().join("file");
    let (first_watch, first) = watch();
    let file = create(&path).file;
    if !leased(&file, &first_watch, 1) {
        return;
    }
    let mut other = opener(&path);
    assert_eq!(first.recv_timeout(SOON), Ok(1));
    let file = handed_over(file);
    let (watch, _breaks) = watch();
    file.adopt_lease(&watch, 9).unwrap();
    assert!(!file.has_lease(), "somebody waits for it");
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(other.try_wait().unwrap(), None, "it is held back until all is written");
    file.release_lease();
    assert!(other.wait().unwrap().success());
}

#[test]
fn contract_6_who_waits_for_a_lease_that_nobody_hears_of_is_let_in() {
    let directory = directory();
    let path = directory.path().join("file");
    let (first_watch, first) = watch();
    let file = create(&path).file;
    // Nothing happens without a lease.
    file.give_up_lease();
    if !leased(&file, &first_watch, 1) {
        return;
    }
    let mut other = opener(&path);
    assert_eq!(first.recv_timeout(SOON), Ok(1));
    let file = handed_over(file);
    assert!(!file.is_leased(), "somebody waits for it");
    file.give_up_lease();
    assert!(other.wait().unwrap().success());
}
