//! Opening files, and what the kernel knows of them.

mod support;

use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use forebay_uring::{Access, Alignment, Create, Direct, How, Kind, Lock, Mode, OpenFile, Truncate};
use rustix::fs::OFlags;
use support::{create, directory};

const READ: How =
    How { access: Access::Read, create: Create::No, truncate: Truncate::Keep, mode: 0 };
const WRITE: How = How { access: Access::ReadWrite, ..READ };

#[test]
fn an_open_reports_who_made_the_file() {
    let directory = directory();
    let path = directory.path().join("file");
    assert_eq!(OpenFile::open(&path, &WRITE).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    let new = How { create: Create::New, mode: 0o600, ..WRITE };
    assert!(OpenFile::open(&path, &new).unwrap().created);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(OpenFile::open(&path, &new).unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    assert!(!create(&path).created);
    assert!(create(&directory.path().join("other")).created);
}

#[test]
fn a_file_is_made_through_a_link_to_nothing() {
    let directory = directory();
    let (link, target) = (directory.path().join("link"), directory.path().join("target"));
    symlink("target", &link).unwrap();
    let opened = create(&link);
    assert!(opened.created);
    assert_eq!(opened.file.identity(), OpenFile::identity_of(&target).unwrap());
}

#[test]
fn contract_6_all_names_of_a_file_are_one_identity() {
    let directory = directory();
    let (one, two) = (directory.path().join("one"), directory.path().join("two"));
    let file = create(&one).file;
    fs::hard_link(&one, &two).unwrap();
    let status = fs::metadata(&two).unwrap();
    let identity = OpenFile::identity_of(&two).unwrap();
    assert_eq!(identity, file.identity());
    assert_eq!((identity.device, identity.inode), (status.dev(), status.ino()));
    assert_ne!(identity, create(&directory.path().join("three")).file.identity());
}

#[test]
fn what_was_there_is_kept_or_cut() {
    let directory = directory();
    let path = directory.path().join("file");
    fs::write(&path, b"something").unwrap();
    let file = OpenFile::open(&path, &READ).unwrap().file;
    assert_eq!(file.kind(), Kind::Regular);
    assert_eq!(file.length().unwrap(), 9);
    let cut = OpenFile::open(&path, &How { truncate: Truncate::Cut, ..WRITE }).unwrap();
    assert!(!cut.created);
    assert_eq!(file.length().unwrap(), 0);
}

#[test]
fn direct_is_granted_or_refused_with_a_reason() {
    let directory = directory();
    let file = create(&directory.path().join("file")).file;
    println!("{}: {}", directory.path().display(), file.direct());
    file.set_direct(Mode::Buffered).unwrap();
    file.set_direct(Mode::Direct).unwrap();
    let refused = OpenFile::open(Path::new("/proc/self/comm"), &WRITE).unwrap().file;
    assert!(
        matches!(refused.direct(), Direct::Refused(reason) if reason.contains("no direct I/O"))
    );
    refused.set_direct(Mode::Direct).unwrap();
    let other = OpenFile::open(Path::new("/dev/null"), &WRITE).unwrap().file;
    assert_eq!(other.kind(), Kind::Other);
    assert!(matches!(other.direct(), Direct::Refused(_)));
}

#[test]
fn an_open_for_the_lease_does_not_leave_the_file_without_blocking() {
    let directory = directory();
    let path = directory.path().join("file");
    fs::write(&path, b"").unwrap();
    let file = OpenFile::open(&path, &WRITE).unwrap().file;
    let flags = rustix::fs::fcntl_getfl(&file).unwrap();
    assert!(!flags.contains(OFlags::NONBLOCK));
    assert_eq!(flags.contains(OFlags::DIRECT), *file.direct() == Direct::Yes);
}

#[test]
fn contract_9_space_is_reserved_marked_and_given_back() {
    let directory = directory();
    let file = create(&directory.path().join("file")).file;
    assert!(file.free_bytes().unwrap() > 1 << 20);
    match file.allocate(0, 8 << 20) {
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
            return println!("skipped: this file system cannot allocate ahead");
        }
        result => result.unwrap(),
    }
    assert_eq!(file.length().unwrap(), 0);
    assert!(file.allocated_bytes().unwrap() >= 8 << 20);
    file.truncate(8 << 20).unwrap();
    match file.extents() {
        Ok(extents) => {
            assert!((1..100).contains(&extents.count) && extents.bytes >= 8 << 20, "{extents:?}");
        }
        Err(error) => println!("extents cannot be told: {error}"),
    }
    file.punch(4 << 20, 4 << 20).unwrap();
    assert!(file.allocated_bytes().unwrap() < 8 << 20);
    file.truncate(0).unwrap();
    assert_eq!(file.extents().unwrap_or_default().count, 0);
    match file.reservation_mark() {
        Err(error) => return println!("skipped the mark: {error}"),
        Ok(mark) => assert_eq!(mark, None),
    }
    if let Err(error) = file.set_reservation_mark(u64::MAX) {
        return println!("skipped the mark: {error}");
    }
    assert_eq!(file.reservation_mark().unwrap(), Some(u64::MAX));
    file.set_reservation_mark(7).unwrap();
    assert_eq!(file.reservation_mark().unwrap(), Some(7));
    file.remove_reservation_mark().unwrap();
    file.remove_reservation_mark().unwrap();
    assert_eq!(file.reservation_mark().unwrap(), None);
}

#[test]
fn many_extents_are_counted_over_many_calls() {
    let directory = directory();
    let path = directory.path().join("file");
    let file = create(&path).file;
    if let Err(error) = file.extents() {
        return println!("skipped: {error}");
    }
    // One piece, with every second 64 KiB taken out again.
    file.truncate(1200 << 16).unwrap();
    file.allocate(0, 1200 << 16).unwrap();
    for piece in 0..600 {
        file.punch((2 * piece + 1) << 16, 1 << 16).unwrap();
    }
    let extents = file.extents().unwrap();
    assert_eq!(extents.count, 600);
    assert_eq!(extents.bytes, 600 << 16);
}

#[test]
fn contract_6_a_lock_keeps_a_second_engine_of_this_process_out() {
    let directory = directory();
    let path = directory.path().join("file");
    let first = create(&path).file;
    let second = create(&path).file;
    let reader = OpenFile::open(&path, &READ).unwrap().file;
    assert_eq!(first.try_ofd_lock().unwrap(), Lock::Taken);
    assert_eq!(first.try_ofd_lock().unwrap(), Lock::Taken, "again by the same");
    assert_eq!(second.try_ofd_lock().unwrap(), Lock::HeldElsewhere);
    assert_eq!(reader.try_ofd_lock().unwrap(), Lock::HeldElsewhere);
    first.ofd_unlock().unwrap();
    assert_eq!(reader.try_ofd_lock().unwrap(), Lock::Taken);
    assert_eq!(second.try_ofd_lock().unwrap(), Lock::HeldElsewhere);
    drop(reader);
    assert_eq!(second.try_ofd_lock().unwrap(), Lock::Taken);
}

#[test]
fn a_file_that_came_from_elsewhere_is_what_it_was_there() {
    let directory = directory();
    let path = directory.path().join("file");
    let opened = create(&path).file;
    let duplicate = || opened.as_fd().try_clone_to_owned().unwrap();
    let mut file = OpenFile::of_descriptor(duplicate()).unwrap();
    assert_eq!(
        (file.identity(), file.kind(), file.access()),
        (opened.identity(), Kind::Regular, Access::ReadWrite)
    );
    assert_eq!(file.alignment(), opened.alignment());
    assert_eq!(file.direct() == &Direct::Yes, opened.direct() == &Direct::Yes);
    assert_eq!(file.try_ofd_lock().unwrap(), Lock::Taken);
    assert_eq!(opened.try_ofd_lock().unwrap(), Lock::Taken, "the lock is the open file's");
    // An ordinary drop gives up the lock, for all.
    drop(opened);
    assert_eq!(file.try_ofd_lock().unwrap(), Lock::Taken);
    assert_eq!(create(&path).file.try_ofd_lock().unwrap(), Lock::HeldElsewhere);

    let flags = |file: &OpenFile| rustix::fs::fcntl_getfl(file).unwrap();
    let was_direct = file.direct() == &Direct::Yes;
    file.go_buffered().unwrap();
    assert!(!flags(&file).contains(OFlags::DIRECT));
    assert!(matches!(file.direct(), Direct::Refused(_)));
    assert_eq!(file.alignment(), Alignment::NONE);
    file.set_direct(Mode::Direct).unwrap();
    assert!(!flags(&file).contains(OFlags::DIRECT), "for good");
    file.write_all_at(b"odd", 7).unwrap();
    let other = OpenFile::of_descriptor(file.as_fd().try_clone_to_owned().unwrap()).unwrap();
    assert!(matches!(other.direct(), Direct::Refused(_)), "it is shared");
    file.go_direct().unwrap();
    assert_eq!(
        (file.direct() == &Direct::Yes, flags(&file).contains(OFlags::DIRECT)),
        (was_direct, was_direct)
    );
}

#[test]
fn a_descriptor_that_cannot_be_read_is_no_file() {
    let directory = directory();
    let path = directory.path().join("file");
    let write_only = fs::File::create(&path).unwrap();
    let nothing = rustix::fs::open(&path, OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    for descriptor in [write_only.into(), nothing] {
        assert_eq!(
            OpenFile::of_descriptor(descriptor).unwrap_err().kind(),
            std::io::ErrorKind::InvalidInput
        );
    }
    let read = OpenFile::of_descriptor(fs::File::open(&path).unwrap().into()).unwrap();
    assert_eq!((read.access(), read.alignment()), (Access::Read, Alignment::NONE));
}
