//! Appends to files that other programs cut or append to: each goes to the end of that moment.

use std::io::IoSlice;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{self, how, process, within};
use forebay::{Cursor, Engine, File, Options};

/// Limit of each wait.
const SOON: Duration = Duration::from_secs(10);

/// An engine that writes nothing by age.
fn late_engine() -> Engine {
    Engine::start(Options {
        cache_bytes: Some(16 << 20),
        close_timeout: SOON,
        dirty_age: Duration::from_secs(60),
        ..Options::default()
    })
    .unwrap()
}

/// A shell that runs a line in the background, with the path as `$1`.
fn shell(line: &str, path: &Path) -> Child {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", line, "sh"]).arg(path).stdin(Stdio::null()).spawn().unwrap()
}

fn content(path: &Path) -> String {
    String::from_utf8(std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn contract_06_an_append_after_a_cut_by_another_program_is_at_the_new_end() {
    let cuts = [": >\"$1\"", "exec 3<>\"$1\"; : >\"$1\"", "dd if=/dev/null of=\"$1\" 2>/dev/null"];
    for cut in cuts {
        let directory = support::directory();
        let path = directory.path().join("log");
        let engine = late_engine();
        let log = engine.open(&path, &how::append()).unwrap();
        // Its pages are dirty, then written, then dirty in a file that others may have open.
        for round in 0..3 {
            for _ in 0..3000 {
                log.append(b"a line of the log\n").unwrap();
            }
            if round == 1 {
                log.sync_data().unwrap();
            }
            process::shell(cut, &path).unwrap();
            assert_eq!(log.append(b"first\n").unwrap(), 0, "{cut}");
            log.append(b"second\n").unwrap();
            let mut read = [0; 20];
            assert_eq!(log.read_at(&mut read, 0).unwrap(), 13);
            assert_eq!(&read[..13], b"first\nsecond\n");
            assert_eq!(
                (log.len().unwrap(), content(&path).as_str()),
                (13, "first\nsecond\n"),
                "{cut}"
            );
        }
        log.sync_data().unwrap();
        log.close().unwrap();
        assert_eq!(content(&path), "first\nsecond\n");
    }
}

#[test]
fn contract_06_lines_that_two_programs_append_are_all_there() {
    let directory = support::directory();
    let path = directory.path().join("log");
    let engine = Engine::start(Options {
        cache_bytes: Some(16 << 20),
        close_timeout: SOON,
        ..Options::default()
    })
    .unwrap();
    let log = engine.open(&path, &how::append()).unwrap();
    let line = "for n in $(seq 2000); do echo other-$n-other >>\"$1\"; done";
    let mut other = shell(line, &path);
    let mut ours = 0;
    while other.try_wait().unwrap().is_none() {
        for _ in 0..10 {
            ours += 1;
            let number = ours.to_string();
            let line = [b"ours-", number.as_bytes(), b"-ours\n"].map(IoSlice::new);
            log.append_vectored(&line).unwrap();
        }
        if ours % 500 == 0 {
            log.sync_data().unwrap();
        }
    }
    log.close().unwrap();
    let content = content(&path);
    for (name, count) in [("ours", ours), ("other", 2000)] {
        let mut lines = content.lines().filter(|line| line.starts_with(name));
        for number in 1..=count {
            assert_eq!(lines.next(), Some(&*format!("{name}-{number}-{name}")));
        }
        assert_eq!(lines.next(), None);
    }
}

/// Each cut comes while an append is under way. Bytes that were put at the old end would leave
/// zeroes before them.
#[test]
fn contract_06_a_file_that_is_cut_while_it_grows_has_no_byte_that_nobody_wrote() {
    let directory = support::directory();
    let path = directory.path().join("log");
    let engine = Engine::start(Options {
        cache_bytes: Some(8 << 20),
        close_timeout: SOON,
        ..Options::default()
    })
    .unwrap();
    let started = Instant::now();
    let mut cuts = 0;
    while started.elapsed() < Duration::from_secs(4) {
        // Opened again, so that it has its lease again.
        let log = Arc::new(engine.open(&path, &how::append()).unwrap());
        let appending = Arc::clone(&log);
        let length = [17, 3000, 300_000][cuts % 3];
        let count = 600_000 / length;
        let writer = std::thread::spawn(move || {
            let data = vec![b'A'; length];
            for _ in 0..count {
                appending.append(&data).unwrap();
            }
        });
        std::thread::sleep(Duration::from_micros(300 * (cuts as u64 % 7)));
        process::shell(": >\"$1\"", &path).unwrap();
        cuts += 1;
        within(SOON, "the appends", move || writer.join().unwrap());
        log.sync_data().unwrap();
        let found = std::fs::read(&path).unwrap();
        let foreign = found.iter().position(|byte| *byte != b'A');
        assert_eq!(foreign, None, "cut {cuts}, {length} bytes each");
        drop(log);
        std::fs::remove_file(&path).unwrap();
    }
    println!("{cuts} cuts");
}

/// Otherwise a failed flush could be taken for a repaired one, or none be made.
#[test]
fn contract_01_a_sync_covers_an_append_past_the_cache() {
    let directory = support::directory();
    let path = directory.path().join("log");
    std::fs::write(&path, b"there\n").unwrap();
    let _beside = std::fs::File::open(&path).unwrap();
    let engine = late_engine();
    let log = engine.open(&path, &how::append()).unwrap();
    assert!(log.describe().ends_with("shared"), "{}", log.describe());
    log.sync_data().unwrap();
    let flushes = engine.stats().flushes;
    log.sync_data().unwrap();
    assert_eq!(engine.stats().flushes, flushes, "nothing has changed");
    assert_eq!(log.append(b"line\n").unwrap(), 6);
    assert_eq!(content(&path), "there\nline\n", "others see it at once");
    log.sync_data().unwrap();
    assert_eq!(engine.stats().flushes, flushes + 1);
    log.close().unwrap();
}

/// Data written at an offset may be beyond the end that the kernel knows, and its page hides
/// the bytes after it.
#[test]
fn contract_06_appends_follow_writes_at_an_offset() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = late_engine();
    let file = engine.open(&path, &how::create()).unwrap();
    let beside = std::fs::File::open(&path).unwrap();
    let mut expected = Vec::new();
    for turn in 0..50_u64 {
        let write = format!("written {turn} ");
        file.write_at(write.as_bytes(), expected.len() as u64).unwrap();
        expected.extend_from_slice(write.as_bytes());
        let append = format!("appended {turn} ");
        assert_eq!(file.append(append.as_bytes()).unwrap(), expected.len() as u64);
        expected.extend_from_slice(append.as_bytes());
        file.write_at(b"W", 0).unwrap();
        expected[0] = b'W';
        let mut read = vec![0; expected.len() + 1];
        assert_eq!(file.read_at(&mut read, 0).unwrap(), expected.len());
        assert_eq!(&read[..expected.len()], expected);
    }
    drop(beside);
    file.sync_data().unwrap();
    // It has its lease again, and goes on where it is.
    let again = engine.open(&path, &how::append()).unwrap();
    assert!(!again.describe().ends_with("shared"), "{}", again.describe());
    again.append(b"end").unwrap();
    expected.extend_from_slice(b"end");
    again.close().unwrap();
    file.close().unwrap();
    support::assert_on_disk(&path, &expected, "after both");
}

/// The forms of an append, for a file that another program cuts after each.
fn forms(path: &Path, append: impl Fn(&Arc<File>, &[u8])) {
    let engine = late_engine();
    let log = Arc::new(engine.open(path, &how::append()).unwrap());
    for turn in 0..5 {
        append(&log, &[b'x'; 10_000]);
        process::shell(": >\"$1\"", path).unwrap();
        let line = format!("line {turn}\n");
        append(&log, line.as_bytes());
        assert_eq!(content(path), line);
    }
    engine.shutdown(SOON).unwrap();
}

#[test]
fn contract_06_each_form_of_an_append_finds_the_end() {
    use std::io::Write as _;
    let directory = support::directory();
    let path = |name: &str| directory.path().join(name);
    forms(&path("async"), |log, data| {
        support::block_on(log.asynchronous().append(data)).unwrap();
    });
    forms(&path("cursor"), |log, data| {
        Cursor::new(Arc::clone(log)).write_all(data).unwrap();
    });
    forms(&path("slices"), |log, data| {
        let (one, other) = data.split_at(data.len() / 2);
        log.append_vectored(&[one, other].map(IoSlice::new)).unwrap();
    });
    forms(&path("tokio"), |log, data| {
        let mut cursor = Cursor::new(Arc::clone(log));
        support::block_on(tokio::io::AsyncWriteExt::write_all(&mut cursor, data)).unwrap();
    });
}
