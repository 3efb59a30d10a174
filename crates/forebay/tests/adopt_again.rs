//! An adoption fails in the middle, and the next adopter gets everything.

mod support;

use std::io::{BufRead as _, BufReader};
use std::os::fd::{AsRawFd as _, RawFd};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use forebay::{Adopted, Builder, Engine, ErrorKind, File, Keeper, Options};
use support::kept::{self, SOON, adopt_orphans, wait_for_orphan};
use support::mount::{FileSystem, Mount};
use support::{MIB, assert_on_disk, directory, how, kind_of, pattern, process};

const CHILD: &str = "child_that_dies";

const LENGTH: usize = 300_000;

/// Files that are taken over one by one.
const MANY: u64 = 400;

#[test]
fn keeper() {
    kept::serve();
}

/// An engine with a keeper; the engine writes nothing before its end.
fn builder(directory: &Path) -> Builder {
    let keeper = Keeper {
        socket: Some(directory.join("socket")),
        log: Some(directory.join("log")),
        linger: SOON,
        ..kept::keeper()
    };
    let builder = Engine::builder(Options {
        cache_bytes: Some(24 << 20),
        dirty_age: Duration::from_secs(3600),
        ..Options::default()
    });
    builder.survive(Keeper { patience: Duration::from_millis(300), ..keeper })
}

fn read_all(file: &File) -> Vec<u8> {
    let mut content = vec![0; file.len().unwrap() as usize];
    assert_eq!(file.read_at(&mut content, 0).unwrap(), content.len());
    content
}

/// Takes or gives up a lock over the whole file, as the open file's.
fn set_lock(descriptor: RawFd, kind: libc::c_int) {
    // SAFETY: all fields are plain numbers; zeroes mean from the start, to the end, no process.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    // SAFETY: reads the lock during the call.
    let result = unsafe { libc::fcntl(descriptor, libc::F_OFD_SETLK, &raw const lock) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Gives up the locks of a file that this process has open.
fn unlock(path: &Path) {
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().map(Result::unwrap) {
        if std::fs::read_link(entry.path()).is_ok_and(|to| to == path) {
            set_lock(entry.file_name().to_str().unwrap().parse().unwrap(), libc::F_UNLCK);
        }
    }
}

/// Two files: one is to be written, and the other nobody has locked any more.
fn write_two(directory: &Path, place: &Path) -> u32 {
    let engine = builder(directory).build().unwrap();
    let first = engine.open(place.join("first"), &how::create()).unwrap();
    first.write_at(&pattern(5, LENGTH), 0).unwrap();
    let second = engine.open(directory.join("second"), &how::write()).unwrap();
    unlock(&directory.join("second"));
    let number = engine.keeper().unwrap().process.unwrap();
    std::mem::forget((engine, first, second));
    number
}

/// Many files, and one that has no name any more behind them.
fn write_many(directory: &Path) -> u32 {
    let engine = builder(directory).build().unwrap();
    for number in 0..MANY {
        let file = engine.open(directory.join(format!("file-{number}")), &how::create()).unwrap();
        file.write_at(&pattern(number, 5000), 0).unwrap();
        std::mem::forget(file);
    }
    let nameless = engine.open(directory.join("nameless"), &how::create()).unwrap();
    nameless.write_at(&pattern(MANY, 5000), 0).unwrap();
    std::fs::remove_file(directory.join("nameless")).unwrap();
    let number = engine.keeper().unwrap().process.unwrap();
    std::mem::forget((engine, nameless));
    number
}

/// Adopts, and dies when its keeper has the first file, and most likely not the last.
fn die_in_the_midst(directory: &Path) -> u32 {
    let first = directory.join("file-0");
    std::thread::spawn(move || {
        while !children().iter().any(|child| holds(child, &first)) {
            std::thread::yield_now();
        }
        std::process::abort();
    });
    let adopted = builder(directory).adopt(directory.join("socket"));
    panic!("it was quicker than it should have been: {adopted:?}");
}

/// The processes that this one has started.
fn children() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let of_task = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children"));
    let lines: Vec<String> = tasks.filter_map(|task| of_task(task).ok()).collect();
    lines.iter().flat_map(|line| line.split_whitespace()).map(str::to_owned).collect()
}

/// Whether a process has a file open.
fn holds(process: &str, path: &Path) -> bool {
    let entries = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten();
    entries.flatten().any(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| to == path))
}

#[test]
fn child_that_dies() {
    let Some(task) = process::task() else { return };
    let [what, directory, place] = task.split('\n').collect::<Vec<_>>().try_into().unwrap();
    let (directory, place): (&Path, &Path) = (directory.as_ref(), place.as_ref());
    let keeper = match what {
        "two" => write_two(directory, place),
        "many" => write_many(directory),
        "adopts" => die_in_the_midst(directory),
        other => panic!("{other}?"),
    };
    process::report(format_args!("{keeper}"));
    std::thread::sleep(SOON);
}

/// Starts a child and returns it with the process number of its keeper.
fn start(what: &str, directory: &Path, place: &Path) -> (Child, u32) {
    adopt_orphans();
    let task = format!("{what}\n{}\n{}", directory.display(), place.display());
    let mut child = process::start_child(CHILD, &task);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let reported = lines.find_map(|line| process::reported(&line.unwrap()).map(str::to_owned));
    (child, reported.expect("the child does what it should").parse().unwrap())
}

/// Takes over, as soon as the keeper listens again.
fn adopt(directory: &Path) -> Adopted {
    loop {
        match builder(directory).adopt(directory.join("socket")) {
            Ok(adopted) => return adopted,
            Err(error) => assert!(error.to_string().contains("no keeper listens"), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A directory, by the path under which a file is found in it.
fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = directory();
    let path = directory.path().canonicalize().unwrap();
    (directory, path)
}

#[test]
fn contract_02_and_04_a_file_that_is_refused_takes_no_other_with_it() {
    let Some(mount) = Mount::new("adopt_again", FileSystem::Ext4, 64 * MIB) else { return };
    let (_guard, directory) = place();
    let full = mount.path().canonicalize().unwrap();
    // Open here from the beginning: so there is no lease, and nobody waits.
    let other = std::fs::File::create(directory.join("second")).unwrap();
    let (mut child, keeper) = start("two", &directory, &full);
    let filler = process::fill_up(&full);
    set_lock(other.as_raw_fd(), libc::F_WRLCK);
    kept::kill(&mut child, libc::SIGKILL);
    // Once without a keeper of its own, and once with one.
    let socket = directory.join("socket");
    assert_eq!(kind_of(Engine::builder(Options::default()).adopt(&socket)), ErrorKind::Busy);
    assert_eq!(kind_of(builder(&directory).adopt(&socket)), ErrorKind::Busy);
    // The lock of the first is still there.
    assert!(Engine::new().unwrap().open(full.join("first"), &how::write()).is_err());
    std::fs::remove_file(filler).unwrap();
    set_lock(other.as_raw_fd(), libc::F_UNLCK);
    let adopted = adopt(&directory);
    assert_eq!(wait_for_orphan(keeper, SOON), 1, "{}", kept::said(&directory.join("log")));
    assert_eq!(adopted.files.len(), 2);
    assert!(adopted.unwritten_pages >= LENGTH as u64 / 4096, "{adopted:?}");
    let first = adopted.files.iter().find(|file| file.path() == full.join("first")).unwrap();
    assert!(read_all(first) == pattern(5, LENGTH));
    drop(adopted);
    assert_on_disk(&full.join("first"), &pattern(5, LENGTH), "taken over at last");
}

#[test]
fn contract_04_an_adopter_that_dies_in_the_midst_leaves_everything_to_the_next() {
    let (_guard, directory) = place();
    let (mut child, keeper) = start("many", &directory, &directory);
    kept::kill(&mut child, libc::SIGKILL);
    let task = format!("adopts\n{0}\n{0}", directory.display());
    for _ in 0..3 {
        let status = process::start_child(CHILD, &task).wait().unwrap();
        assert!(!status.success());
    }
    let adopted = adopt(&directory);
    assert_eq!(wait_for_orphan(keeper, SOON), 0, "{}", kept::said(&directory.join("log")));
    assert_eq!(adopted.files.len() as u64, MANY + 1);
    let nameless = adopted.files.last().unwrap();
    assert!(nameless.path().to_string_lossy().contains("nameless"), "{nameless:?}");
    assert!(read_all(nameless) == pattern(MANY, 5000));
    for (file, number) in adopted.files.iter().zip(0..MANY) {
        assert!(read_all(file) == pattern(number, 5000), "file {number}");
    }
}
