//! Without io_uring, because it is forbidden or missing, everything still works, and the engine
//! reports the backend that it uses.
//!
//! A child of this program puts a filter over its own system calls, as containers do, and then runs
//! an engine. The parent checks the files on disk afterwards.

mod support;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay::options::Backend;
use forebay::{Engine, ErrorKind, Options};
use support::mount::{FileSystem, Mount};
use support::refused::{self, Threads};
use support::{MIB, assert_on_disk, directory, how, pattern, process};

const CHILD: &str = "child_without_io_uring";

/// More than there are threads in a pool.
const FILES: usize = 100;

/// No more than this is waited for anything.
const SOON: Duration = Duration::from_secs(30);

/// Expected content of file `number`.
fn content(number: usize) -> Vec<u8> {
    pattern(number as u64, 70_000 + 977 * number)
}

fn place(directory: &Path, number: usize) -> PathBuf {
    directory.join(format!("file-{number}"))
}

fn engine() -> Engine {
    Engine::start(Options {
        cache_bytes: Some(32 << 20),
        close_timeout: SOON,
        ..Options::default()
    })
    .unwrap()
}

#[test]
fn child_without_io_uring() {
    let Some(task) = process::task() else { return };
    let [errno, what, directory] = task.split('\n').collect::<Vec<_>>().try_into().unwrap();
    let errno = errno.parse().unwrap();
    refused::system_call(libc::SYS_io_uring_setup, errno, Threads::This);
    match what {
        "many files" => write_many(Path::new(directory)),
        "no space" => write_until_full(Path::new(directory)),
        _ => panic!("{what}?"),
    }
}

fn write_many(directory: &Path) {
    // An engine that must use io_uring does not start; the error gives the reason and a remedy.
    let refused =
        Engine::start(Options { backend: Backend::IoUring, ..Options::default() }).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.to_string().contains("io_uring_setup"), "{refused}");

    let engine = engine();
    process::report(format_args!("{}", engine.describe()));
    let files: Vec<_> = (0..FILES)
        .map(|number| engine.open(place(directory, number), &how::create_new()).unwrap())
        .collect();
    std::thread::scope(|scope| {
        for part in 0..4 {
            let files = &files;
            scope.spawn(move || {
                for (number, file) in
                    files.iter().enumerate().filter(|(number, _)| number % 4 == part)
                {
                    // Backwards in uneven pieces, so that pages are filled from several.
                    let content = content(number);
                    for (at, piece) in content.chunks(7001).enumerate().rev() {
                        file.write_at(piece, at as u64 * 7001).unwrap();
                    }
                    file.sync_data().unwrap();
                }
            });
        }
    });
    for (number, file) in files.iter().enumerate() {
        let content = content(number);
        assert_on_disk(&place(directory, number), &content, "after its sync");
        // Read past the end: short.
        let mut back = vec![0; content.len() + 5000];
        assert_eq!(file.read_at(&mut back, 0).unwrap(), content.len());
        assert!(back[..content.len()] == content, "file {number} as read");
    }
    // From the device, short at the end, after a cut inside a page and a gap behind it.
    files[0].set_len(10_001).unwrap();
    files[0].write_at(b"behind", 20_000).unwrap();
    files[0].sync_all().unwrap();
    for file in files {
        file.close().unwrap();
    }
    let again = engine.open(place(directory, 0), &how::read()).unwrap();
    let mut back = vec![1; 30_000];
    assert_eq!(again.read_at(&mut back, 0).unwrap(), 20_006);
    assert!(
        back[..10_001] == content(0)[..10_001]
            && back[10_001..20_000].iter().all(|byte| *byte == 0)
    );
    assert_eq!(&back[20_000..20_006], b"behind");
    again.close().unwrap();
    engine.shutdown(SOON).unwrap();
}

fn write_until_full(directory: &Path) {
    let engine = engine();
    process::report(format_args!("{}", engine.describe()));
    let path = directory.join("file");
    let file = engine.open(&path, &how::create_new()).unwrap();
    let mut accepted = 0;
    let error = loop {
        assert!(accepted < 80 * MIB, "80 MiB accepted on a file system of 64 MiB");
        match file.write_at(&pattern(accepted, 65_536), accepted) {
            Ok(()) => accepted += 65_536,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(accepted > 30 * MIB, "only {accepted} bytes accepted on a file system of 64 MiB");
    file.sync_data().unwrap();
    let expected: Vec<u8> =
        (0..accepted / 65_536).flat_map(|at| pattern(at * 65_536, 65_536)).collect();
    assert_on_disk(&path, &expected, "what was accepted");
    file.close().unwrap();
}

/// Runs a child under the filter and returns its output, which describes its engine.
fn child(errno: i32, what: &str, directory: &Path) -> String {
    let mut child =
        process::start_child(CHILD, &format!("{errno}\n{what}\n{}", directory.display()));
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    assert!(child.wait().unwrap().success(), "the child failed: {output}");
    output
        .lines()
        .find_map(process::reported)
        .expect("the child says what its engine is")
        .to_owned()
}

fn check_many(errno: i32, expected: &str) {
    let directory = directory();
    let said = child(errno, "many files", directory.path());
    assert!(said.starts_with(expected), "{said}");
    for number in 1..FILES {
        assert_on_disk(&place(directory.path(), number), &content(number), "after the child");
    }
    assert_eq!(std::fs::metadata(place(directory.path(), 0)).unwrap().len(), 20_006);
}

#[test]
fn contract_17_where_io_uring_is_forbidden_a_thread_pool_does_the_same() {
    check_many(libc::EPERM, "thread pool: io_uring is forbidden here: ");
}

#[test]
fn contract_17_where_io_uring_is_missing_a_thread_pool_does_the_same() {
    check_many(libc::ENOSYS, "thread pool: this kernel has no io_uring: ");
}

#[test]
fn contract_17_no_space_is_reported_without_io_uring_too() {
    let test = "contract_17_no_space_is_reported_without_io_uring_too";
    let Some(mount) = Mount::new(test, FileSystem::Ext4, 64 * MIB) else { return };
    let said = child(libc::EPERM, "no space", &mount.path());
    assert!(said.starts_with("thread pool: "), "{said}");
}

#[test]
fn contract_17_the_thread_pool_can_be_asked_for() {
    let engine =
        Engine::start(Options { backend: Backend::Threads, ..Options::default() }).unwrap();
    assert_eq!(engine.describe(), "thread pool: asked for");
    engine.shutdown(SOON).unwrap();
}
