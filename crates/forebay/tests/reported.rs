//! Bugs that users of other libraries over `io_uring` have reported, tried with this one.

mod support;

use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use forebay::{Cursor, Engine};
use support::how;
use support::pattern;

/// `choll/xtr#7`: a wait that a signal interrupted was an error, appends to a file that existed
/// began at its start, and writes that ended out of order left a hole.
#[test]
fn contract_13_signals_interrupt_nothing_and_appends_leave_no_hole() {
    static TAKEN: AtomicU64 = AtomicU64::new(0);
    extern "C" fn take(_: libc::c_int) {
        TAKEN.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: numbers and a set of signals, which may be zero. Without SA_RESTART, calls return
    // EINTR.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = take as extern "C" fn(libc::c_int) as usize;
    // SAFETY: the handler touches an atomic number alone. No old action is asked for.
    let taken = unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
    assert_eq!(taken, 0);
    let directory = support::directory();
    let path = directory.path().join("log");
    std::fs::write(&path, pattern(1, 5_000)).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let storm = scope.spawn(|| {
            let this = rustix::thread::gettid();
            while !is_over.load(Ordering::Relaxed) {
                for thread in std::fs::read_dir("/proc/self/task").unwrap() {
                    let name = thread.unwrap().file_name();
                    let thread: i32 = name.to_str().unwrap().parse().unwrap();
                    if thread != this.as_raw_nonzero().get() {
                        let process = std::process::id().cast_signed();
                        // SAFETY: the call takes no memory. A thread may be gone.
                        unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR1) };
                    }
                }
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        let engine = Engine::new().unwrap();
        let log = engine.open(&path, &how::append()).unwrap();
        let work = |who: u64| {
            for turn in 0..60 {
                log.append(&pattern(who, 10_000 + turn * 300)).unwrap();
                match turn % 3 {
                    0 => log.sync_data().unwrap(),
                    1 => assert_eq!(log.read_at(&mut [0; 4_000], 1_000).unwrap(), 4_000),
                    _ => {}
                }
            }
        };
        std::thread::scope(|writers| {
            for who in 2..5 {
                writers.spawn(move || work(who));
            }
        });
        log.close().unwrap();
        engine.shutdown(Duration::from_secs(10)).unwrap();
        is_over.store(true, Ordering::Relaxed);
        storm.join().unwrap();
    });
    assert!(TAKEN.load(Ordering::Relaxed) > 100, "few signals: {TAKEN:?}");
    let found = std::fs::read(&path).unwrap();
    let mut rest = found.strip_prefix(&pattern(1, 5_000)[..]).expect("what was there is there");
    let mut turns = [0; 3];
    while !rest.is_empty() {
        let (who, after) = (0..3)
            .find_map(|who| {
                let length = 10_000 + turns[who] * 300;
                let next = pattern(who as u64 + 2, length);
                Some((who, rest.strip_prefix(&next[..])?))
            })
            .expect("a whole record of one of the writers comes next");
        turns[who] += 1;
        rest = after;
    }
    assert_eq!(turns, [60; 3]);
}

/// `nodejs/node#50717`: writes without an offset went to offset 0 again and again.
#[test]
fn contract_01_writes_without_an_offset_follow_each_other() {
    let directory = support::directory();
    let engine = Engine::new().unwrap();
    let file = engine.open(directory.path().join("file"), &how::create()).unwrap();
    let want = pattern(7, 300_000);
    let mut cursor = Cursor::new(&file);
    for piece in want.chunks(16_384) {
        cursor.write_all(piece).unwrap();
    }
    assert_eq!(cursor.stream_position().unwrap(), 300_000);
    cursor.seek(SeekFrom::Start(0)).unwrap();
    let mut found = Vec::new();
    cursor.read_to_end(&mut found).unwrap();
    assert!(found == want, "what is read by the cursor");
    file.close().unwrap();
    assert!(std::fs::read(directory.path().join("file")).unwrap() == want, "the file");
}
