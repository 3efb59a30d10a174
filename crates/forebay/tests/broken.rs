//! An engine whose ring fails under it, in a program that lives on: it stops at once, and its keeper
//! writes the rest. The one test of this program, because it breaks every ring of its process.

mod support;

use std::path::Path;
use std::time::Duration;

use forebay::{Engine, ErrorKind, Open};
use support::kept::{self, SOON};
use support::mount::{FileSystem, Mount};
use support::{MIB, assert_on_disk, directory, eventually, kind_of, pattern, process};

const LENGTH: usize = 1_000_003;

#[test]
fn keeper() {
    kept::serve();
}

/// Makes the kernel refuse `io_uring_enter` to all threads of this process from now on.
fn break_the_rings() {
    const ARCHITECTURE: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };
    // Offsets in `struct seccomp_data`: the number of the call, and its architecture.
    const NUMBER: u32 = 0;
    const NUMBERS_OF: u32 = 4;
    let load = |offset: u32| libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: offset };
    let unless = |value: u32, skip: u8| libc::sock_filter { code: 0x15, jt: 0, jf: skip, k: value };
    let answer = |action: u32| libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: action };
    let enter = u32::try_from(libc::SYS_io_uring_enter).unwrap();
    let mut filter = [
        load(NUMBERS_OF),
        unless(ARCHITECTURE, 3),
        load(NUMBER),
        unless(enter, 1),
        answer(libc::SECCOMP_RET_ERRNO | libc::EIO.cast_unsigned()),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 6, filter: filter.as_mut_ptr() };
    // SAFETY: takes numbers alone.
    let result = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the program and its instructions, as many as it says, are read during the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const program,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn contract_09_a_broken_engine_leaves_its_work_at_once_and_says_so() {
    let Some(mount) = Mount::new("left_when_broken", FileSystem::Ext4, 64 * MIB) else { return };
    let directory = directory();
    let place = mount.path().canonicalize().unwrap();
    let log = directory.path().join("log");
    let engine = Engine::builder().cache_bytes(64 << 20).dirty_age(Duration::from_secs(3600));
    let engine = engine.survive(kept::keeper().log(&log)).build().unwrap();
    let keeper = engine.keeper().unwrap().process.unwrap();
    let is_there = || Path::new(&format!("/proc/{keeper}")).exists();
    let file = engine.open(place.join("file"), Open::create()).unwrap();
    file.write_at(&pattern(5, LENGTH), 0).unwrap();
    let dropped = engine.open(place.join("dropped"), Open::create()).unwrap();
    dropped.write_at(&pattern(6, LENGTH), 0).unwrap();
    let filler = process::fill_up(&mount.path());
    break_the_rings();
    drop(dropped);
    let is_over = || kind_of(engine.open(place.join("none"), Open::read())) == ErrorKind::Shutdown;
    assert!(eventually(SOON, is_over), "it is not broken");
    std::fs::remove_file(filler).unwrap();
    // Engine and file are still there.
    assert!(eventually(SOON, || !is_there()), "{}", kept::said(&log));
    assert_on_disk(&place.join("file"), &pattern(5, LENGTH), "left by a broken engine");
    assert_on_disk(&place.join("dropped"), &pattern(6, LENGTH), "left by a broken engine");
    let error = engine.shutdown(SOON).unwrap_err();
    assert!(error.to_string().contains("keeper"), "{error}");
    engine.shutdown(SOON).expect("a second one does nothing");
    drop((engine, file));
    // Without rings: the filter is still there.
    let next = Engine::builder().set("engine", "threads").unwrap().build().unwrap();
    let file = next.open(place.join("file"), Open::write()).unwrap();
    let mut content = vec![0; LENGTH];
    assert_eq!(file.read_at(&mut content, 0).unwrap(), LENGTH);
    assert!(content == pattern(5, LENGTH));
}
