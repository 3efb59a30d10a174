//! A keeper that meets failures, hangs and obstacles: it writes all pages that can be written, and
//! reports and saves the others.

mod support;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use forebay::keeper::image::{Run, recover};
use forebay::{Engine, Keeper, Options};
use rustix::fs::inotify;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use support::faulty::Bare;
use support::kept::{self, SOON, Survived, wait_for_orphan};
use support::mount::{FileSystem, Mount};
use support::refused::{self, Threads};
use support::{MIB, assert_on_disk, directory, eventually, how, pattern, process};

const LENGTH: usize = 1_000_003;

/// A longer file than this a child that is limited may not write.
const LIMIT: u64 = 64 * MIB;

/// Files that a keeper syncs together.
const MANY: usize = 20;

fn name_of(number: usize) -> String {
    format!("many-{number:02}")
}

#[test]
fn keeper() {
    kept::serve();
}

/// Runs as the child: writes `file`, and then another file beside its log.
fn act(what: &str, directory: &Path, file: &Path) {
    let at = if what.starts_with("limited") { LIMIT } else { 0 };
    let no_limit = getrlimit(Resource::Fsize);
    if what == "limited softly" {
        setrlimit(Resource::Fsize, Rlimit { current: Some(LIMIT), ..no_limit }).unwrap();
    }
    if what == "without syncfs" {
        // Also to the keeper, which this process starts.
        refused::system_call(libc::SYS_syncfs, libc::EIO, Threads::All);
    }
    let keeper = kept::keeper();
    let keeper =
        if what == "mute" { keeper } else { Keeper { log: Some(directory.join("log")), ..keeper } };
    // More than the longest pause between two tries.
    let patience = Duration::from_secs(2);
    let keeper = if what == "saving" {
        Keeper { patience, save_to: Some(directory.into()), ..keeper }
    } else {
        keeper
    };
    // It stays dirty until the end.
    let engine = Engine::builder(Options {
        cache_bytes: Some(16 << 20),
        dirty_bytes: Some(8 << 20),
        background_bytes: Some(8 << 20),
        dirty_age: Duration::from_secs(3600),
        ..Options::default()
    });
    let engine = engine.survive(keeper).build().unwrap();
    // Only the keeper is limited: this process could not write so far itself.
    if what == "limited softly" {
        setrlimit(Resource::Fsize, no_limit).unwrap();
    } else if what == "limited" {
        let limit = Rlimit { current: Some(LIMIT), maximum: Some(LIMIT) };
        let keeper = engine.keeper().unwrap().process.unwrap();
        prlimit(Pid::from_raw(keeper.cast_signed()), Resource::Fsize, limit).unwrap();
    }
    let file = engine
        .open(file, &how::create())
        .unwrap_or_else(|_| engine.open(file, &how::write()).unwrap());
    file.write_at(&pattern(5, LENGTH), at).unwrap();
    let other = engine.open(directory.join("other"), &how::create()).unwrap();
    other.write_at(&pattern(6, LENGTH), 0).unwrap();
    let many = if what == "without syncfs" { MANY } else { 0 };
    let open = |number| engine.open(directory.join(name_of(number)), &how::create()).unwrap();
    let many: Vec<_> = (0..many).map(open).collect();
    many.iter().for_each(|file| file.write_at(&pattern(7, 5000), 0).unwrap());
    if what == "mute" {
        // SAFETY: the child does nothing but sleep and leave.
        if unsafe { libc::fork() } == 0 {
            // SAFETY: as above.
            unsafe { libc::sleep(25) };
            // SAFETY: as above.
            unsafe { libc::_exit(0) };
        }
    }
    process::report(format_args!("{}", engine.keeper().unwrap().process.unwrap()));
    std::thread::sleep(SOON);
}

#[test]
fn child_that_is_survived() {
    let Some(task) = process::task() else { return };
    let [what, directory, file] = task.split('\n').collect::<Vec<_>>().try_into().unwrap();
    act(what, Path::new(directory), Path::new(file));
}

fn assert_other_is_written(directory: &Path) {
    assert_on_disk(&directory.join("other"), &pattern(6, LENGTH), "the other file");
}

#[test]
fn contract_04_a_limit_on_the_length_of_files() {
    let directory = directory();
    let path = directory.path().join("file");
    let (status, said) = Survived::start("limited", directory.path(), &path).die();
    assert_eq!(status, 1, "{said}");
    let path = path.canonicalize().unwrap();
    assert!(
        said.contains(&path.display().to_string()) && said.contains("File too large"),
        "{said}"
    );
    assert_other_is_written(directory.path());
}

#[test]
fn contract_04_a_limit_that_may_be_raised() {
    let directory = directory();
    let path = directory.path().join("file");
    let (status, said) = Survived::start("limited softly", directory.path(), &path).die();
    assert_eq!(status, 0, "{said}");
    let written = std::fs::read(&path).unwrap();
    assert!(written[LIMIT as usize..] == pattern(5, LENGTH));
    assert_other_is_written(directory.path());
}

/// The image that a keeper's log names.
fn saved(said: &str) -> PathBuf {
    said.trim_end().rsplit("forebay recover ").next().unwrap_or_default().into()
}

#[test]
fn contract_09_a_file_system_that_takes_a_part() {
    let Some(mount) = Mount::new("keeper_some_space", FileSystem::Ext4, 64 * MIB) else { return };
    let directory = directory();
    let path = mount.path().canonicalize().unwrap().join("file");
    // The first half is there, and can be written in place.
    std::fs::write(&path, pattern(1, 512 << 10)).unwrap();
    process::shell("sync -f \"$1\"", &path).unwrap();
    let survived = Survived::start("saving", directory.path(), &path);
    let filler = process::fill_up(&mount.path());
    let (status, said) = survived.die();
    assert_eq!(status, 1, "{said}");
    // No more is lost than what did not fit.
    assert!(said.contains("could not be written") && said.contains("No space left"), "{said}");
    assert!(!said.contains("are at 0.."), "{said}");
    assert_other_is_written(directory.path());
    std::fs::remove_file(filler).unwrap();
    let done = recover(&saved(&said), Run::Real).unwrap();
    assert!(done.len() == 1 && done[0].result.is_ok(), "{done:?}");
    assert_on_disk(&path, &pattern(5, LENGTH), "after the recovery");
}

#[test]
fn contract_09_a_device_that_takes_all_and_syncs_nothing() {
    let Some(device) = Bare::new("keeper_and_failing_device", 16 * MIB) else { return };
    let directory = directory();
    let survived = Survived::start("saving", directory.path(), device.path());
    device.fail();
    let (status, said) = survived.die();
    assert_eq!(status, 1, "{said}");
    assert!(said.contains(&format!("{LENGTH} bytes could not be written")), "{said}");
    assert!(saved(&said).exists(), "{said}");
    assert_other_is_written(directory.path());
}

/// The device may have lost what was written since the last flush, and says so once.
#[test]
fn contract_02_files_are_written_again_after_a_failed_sync_of_their_file_system() {
    let directory = directory();
    let path = directory.path().join("file");
    let survived = Survived::start("without syncfs", directory.path(), &path);
    let changes = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&changes, directory.path(), inotify::WatchFlags::MODIFY).unwrap();
    let (status, said) = survived.die();
    assert_eq!(status, 0, "{said}");
    let mut written = [0; MANY];
    let mut space = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(&changes, &mut space);
    while let Ok(event) = events.next() {
        let name = event.file_name().unwrap().to_str().unwrap();
        (0..MANY).filter(|number| name_of(*number) == name).for_each(|number| written[number] += 1);
    }
    assert_eq!(written, [2; MANY]);
    assert_on_disk(&path, &pattern(5, LENGTH), "the first file");
    assert_other_is_written(directory.path());
    for number in 0..MANY {
        let path = directory.path().join(name_of(number));
        assert_on_disk(&path, &pattern(7, 5000), "one of many");
    }
}

#[test]
fn contract_04_a_disk_that_hangs_takes_no_other_along() {
    let Some(mount) = Mount::new("keeper_and_two_disks", FileSystem::Ext4, 64 * MIB) else {
        return;
    };
    let directory = directory();
    let path = mount.path().canonicalize().unwrap().join("file");
    let mut survived = Survived::start("saving", directory.path(), &path);
    // No write to it comes back.
    let frozen = mount.freeze();
    kept::kill(&mut survived.child, libc::SIGKILL);
    let log = directory.path().join("log");
    assert!(eventually(SOON, || kept::said(&log).contains("saved to")), "{}", kept::said(&log));
    let said = kept::said(&log);
    println!("{said}");
    // It is nobody's any more, though the keeper cannot end: sooner than the kernel breaks a lease.
    let open = || {
        let path = directory.path().join("other");
        OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path)
    };
    assert!(eventually(Duration::from_secs(20), || open().is_ok()), "{:?}", open());
    assert_other_is_written(directory.path());
    assert!(said.contains(&format!("wrote {LENGTH} bytes to 1 files")), "{said}");
    assert!(
        said.contains("a device hangs") && said.contains(&path.display().to_string()),
        "{said}"
    );
    // A call that cannot be cancelled keeps what is left of it.
    drop(frozen);
    assert_eq!(wait_for_orphan(survived.keepers[0], SOON), 3);
    // The image holds no pages that the keeper wrote.
    let owed = recover(&saved(&said), Run::Dry).unwrap();
    assert!(owed.len() == 1 && owed[0].path == path, "{owed:?}");
}

#[test]
fn contract_04_nobody_hears_what_it_says() {
    let directory = directory();
    let path = directory.path().join("file");
    let (reader, mut writer) = std::io::pipe().unwrap();
    // SAFETY: takes numbers.
    let size = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
    assert!(size > 0, "{}", std::io::Error::last_os_error());
    writer.write_all(&vec![b'.'; size as usize]).unwrap();
    // It forks, so the rings stay, which the keeper has to say something about.
    let mut survived =
        Survived::start_with(1, Stdio::from(writer), "mute", directory.path(), &path);
    kept::kill(&mut survived.child, libc::SIGKILL);
    assert_eq!(survived.ended().0, 0);
    assert_on_disk(&path, &pattern(5, LENGTH), "with a standard error that is full");
    assert_other_is_written(directory.path());
    drop(reader);
}
