use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use forebay::{Engine, OpenOptions, Options};
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::*;
use crate::attributes::Wanted;
use crate::caller::Caller;
use crate::data::Way;
use crate::passed::{open_for, take};

/// Flags of an open that cuts a file to nothing.
const CUTS: OFlags = OFlags::WRONLY.union(OFlags::TRUNC);

fn engine() -> Engine {
    Engine::start(Options { cache_bytes: Some(16 << 20), ..Options::default() }).unwrap()
}

fn mount(directory: &Path) -> Mount {
    Mount::unmounted(directory, engine())
}

fn node(mount: &Mount, path: &Path) -> Arc<Node> {
    let descriptor = openat(CWD, path, OFlags::PATH, Mode::empty()).unwrap();
    let status = rustix::fs::fstat(&descriptor).unwrap();
    mount.nodes.enter(descriptor, &status, 1).0
}

/// The node of a new file with this content.
fn written(mount: &Mount, path: &Path, content: &[u8]) -> Arc<Node> {
    fs::write(path, content).unwrap();
    node(mount, path)
}

/// A mount whose engine writes a file of less than 24 MiB at its close, or when it is asked.
fn late(directory: &Path, close_timeout: Duration) -> (Mount, Engine) {
    let options = Options {
        cache_bytes: Some(32 << 20),
        dirty_bytes: Some(24 << 20),
        background_bytes: Some(24 << 20),
        dirty_age: Duration::from_secs(60),
        close_timeout,
        ..Options::default()
    };
    let engine = Engine::start(options).unwrap();
    (Mount::unmounted(directory, engine.clone()), engine)
}

/// Writes a file of this many bytes through a mount, and closes it there.
fn write_through(mount: &Mount, node: &Arc<Node>, bytes: usize) {
    let file = open_for(&mount.way, node, OFlags::RDWR, None).unwrap();
    file.write(&vec![1; bytes], 0).unwrap();
    file.end();
}

/// A new small file that nobody has open, with content.
fn small(mount: &Mount, path: &Path) -> Arc<Node> {
    let created = fs::File::options().read(true).write(true).create_new(true).open(path).unwrap();
    let node = node(mount, path);
    let file = take(&mount.way, &node, created.into()).unwrap();
    file.data.write(b"hello", 0).unwrap();
    file.end();
    node
}

/// A file that nobody has open, and whose close fails, because its engine has ended.
fn of_ended_engine(directory: &Path) -> (Mount, Arc<Node>) {
    let (path, mount) = (directory.join("file"), mount(directory));
    let node = written(&mount, &path, b"hello");
    open_for(&mount.way, &node, OFlags::RDWR, None).unwrap().end();
    let Way::Engine(stack) = &mount.way else { panic!("it has one") };
    stack.engine.shutdown(Duration::from_secs(10)).unwrap();
    (mount, node)
}

/// Whether the first page of a file is in the page cache.
fn is_cached(path: &Path) -> bool {
    let file = fs::File::open(path).unwrap();
    let mut byte = [0];
    let mut memory = [io::IoSliceMut::new(&mut byte)];
    rustix::io::preadv2(file, &mut memory, 0, rustix::io::ReadWriteFlags::NOWAIT).is_ok()
}

/// Bytes of the pages that are kept.
fn kept(mount: &Mount) -> u64 {
    mount.way.stack().unwrap().kept.used()
}

#[test]
fn pages_of_a_closed_small_file_stay_until_their_time_is_over() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let mount = mount(directory.path());
    mount.passing.switch_on();
    let [old, young, used] = ["old", "young", "used"].map(|name| directory.path().join(name));
    let nodes = [&old, &young, &used].map(|path| small(&mount, path));
    let begin = Instant::now();
    assert!(nodes.iter().all(|node| close(&mount, node)));
    assert!(is_cached(&old) && is_cached(&young) && is_cached(&used));
    assert_eq!(kept(&mount), 3 * 4096);
    open_for(&mount.way, &nodes[2], OFlags::RDONLY, None).unwrap().end();
    {
        let mut plans = mount.settling.plans();
        let stay = plans.pages.front().unwrap().0.due.duration_since(begin);
        assert!((KEEP_OPEN..KEEP_OPEN + Duration::from_secs(10)).contains(&stay), "{stay:?}");
        let [old, _, used] = plans.pages.make_contiguous() else { panic!("each has a plan") };
        (old.0.due, used.0.due) = (begin, begin);
        plans.pages.swap(1, 2);
    }
    std::thread::scope(|scope| {
        scope.spawn(|| mount.settling.run(&mount));
        while mount.settling.plans().pages.len() > 1 {
            assert!(begin.elapsed().as_secs() < 20, "the time of two is over");
            std::thread::sleep(Duration::from_millis(5));
        }
        mount.settling.end();
    });
    // A file that is used again has its pages by that use.
    assert!(!is_cached(&old) && is_cached(&young) && is_cached(&used));
    assert_eq!(kept(&mount), 4096);
}

#[test]
fn pages_of_closed_small_files_have_a_limit() {
    const BYTES: u64 = crate::limits::SMALL_FILE_BYTES;
    /// As the mount of a test has it.
    const LIMIT: u64 = (16 << 20) / crate::limits::SMALL_OF_CACHE;
    let directory = tempfile::tempdir_in(".").unwrap();
    let mount = mount(directory.path());
    mount.passing.switch_on();
    let path = |number: u64| directory.path().join(format!("file-{number}"));
    let close_new = |number| {
        let node = small(&mount, &path(number));
        node.state().any().unwrap().data.write(&[1; BYTES as usize], 0).unwrap();
        assert!(close(&mount, &node));
        // Those of others are dropped, unless the kernel is writing them at that moment.
        let is_kept = number < LIMIT / BYTES || number == 100;
        assert!(!is_kept || is_cached(&path(number)), "{number}");
        node
    };
    let nodes: Vec<_> = (0..LIMIT / BYTES + 3).map(close_new).collect();
    assert_eq!(kept(&mount), LIMIT);
    // A removed file leaves its room to others.
    fs::remove_file(path(0)).unwrap();
    mount.nodes.forget(nodes[0].number, 1).unwrap();
    drop(nodes);
    close_new(100);
    assert_eq!(kept(&mount), LIMIT);
}

#[test]
fn a_refused_small_file_stays_until_the_engine_takes_it() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let (path, mount) = (directory.path().join("file"), mount(directory.path()));
    let node = small(&mount, &path);
    // Another engine keeps this one from the file.
    let other = engine();
    let holder = other.open(&path, OpenOptions::new().read(true).write(true)).unwrap();
    let file = node.state().any().cloned().unwrap();
    let refuse = |_: crate::data::Held<'_>| Err(io::Error::from_raw_os_error(libc::EIO));
    file.data.small().unwrap().report(refuse).unwrap_err();
    drop(file);
    assert!(!close(&mount, &node), "its content is only in the page cache");
    assert!(!node.state().is_unused());
    holder.close().unwrap();
    let begin = Instant::now();
    while !close(&mount, &node) {
        assert!(begin.elapsed().as_secs() < 10, "the engine takes it now");
    }
    assert!(node.state().is_unused());
    assert_eq!(fs::read(path).unwrap(), b"hello");
}

#[test]
fn the_end_of_the_thread_waits_for_its_last_step() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let mount = Arc::new(mount(directory.path()));
    let node = small(&mount, &directory.path().join("file"));
    mount.settling.plan(&mount, &node);
    let run = Arc::clone(&mount);
    let running = std::thread::spawn(move || run.settling.run(&run));
    // The step has to look at the node.
    let state = node.state();
    let begin = Instant::now();
    while !mount.settling.plans().is_busy {
        assert!(begin.elapsed().as_secs() < 10, "no step began");
        std::thread::sleep(Duration::from_millis(10));
    }
    let ends = Arc::clone(&mount);
    let ending = std::thread::spawn(move || ends.settling.end());
    std::thread::sleep(Duration::from_millis(200));
    assert!(!ending.is_finished(), "a step is in progress");
    drop(state);
    ending.join().unwrap();
    running.join().unwrap();
}

#[test]
fn the_end_of_a_mount_returns_the_error_of_an_earlier_close() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let (mount, node) = of_ended_engine(directory.path());
    assert!(close(&mount, &node), "a file that is lost is not kept");
    let lost = crate::durable::close_all(&mount).expect("no call has returned the error");
    assert!(lost.contains("file: could not write the file out"), "{lost}");
}

/// The node has no open file by then, the pages may not be written, and the close sets the time.
#[test]
fn a_cut_a_write_out_and_a_new_time_wait_for_a_close_in_progress() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let (path, mount) = (directory.path().join("file"), mount(directory.path()));
    let node = written(&mount, &path, b"hello");
    let closing = node.closing();
    std::thread::scope(|scope| {
        let cut = scope.spawn(|| open_for(&mount.way, &node, CUTS, None).unwrap().end());
        let written = scope.spawn(|| write_out(&node).unwrap());
        let timed = scope.spawn(|| {
            let modified = Some(crate::times::Wish::At(SystemTime::UNIX_EPOCH));
            let wanted = Wanted { modified, ..Wanted::default() };
            mount.set_attributes(&node, None, &wanted, &Caller::here()).unwrap();
        });
        std::thread::sleep(Duration::from_millis(200));
        let waiting = [cut.is_finished(), written.is_finished(), timed.is_finished()];
        assert_eq!(waiting, [false; 3], "the close is in progress");
        drop(closing);
    });
}

/// A program knows of the failed flush, and of nothing else.
#[test]
fn a_close_that_loses_data_after_a_failed_flush_fails_the_end_of_the_mount() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let (mount, node) = of_ended_engine(directory.path());
    node.state().is_poisoned = true;
    assert!(close(&mount, &node));
    assert!(mount.lost().is_some(), "it is not the error of the flush");
}

/// The kernel appends where the size says.
#[test]
fn a_file_that_is_being_closed_has_its_size() {
    const BYTES: usize = 10 << 20;
    let directory = tempfile::tempdir_in(".").unwrap();
    let (mount, _) = late(directory.path(), Duration::from_secs(60));
    let path = directory.path().join("file");
    let node = written(&mount, &path, b"");
    write_through(&mount, &node, BYTES);
    std::thread::scope(|scope| {
        // A look at the size may use the file just when it is to be closed.
        let closing = scope.spawn(|| while !close(&mount, &node) {});
        while !closing.is_finished() {
            let size = crate::attributes::of(&node).unwrap().size;
            assert_eq!(size, BYTES as u64);
        }
    });
    assert!(node.state().is_unused() && node.state().closing_size.is_none());
    assert_eq!(path.metadata().unwrap().len(), BYTES as u64);
}

/// A new content goes past the engine once nobody has the file open. Pages of the old one must not
/// be written after it.
#[test]
fn a_closed_file_is_written_however_long_that_takes() {
    const BYTES: usize = 20 << 20;
    let directory = tempfile::tempdir_in(".").unwrap();
    let (mount, engine) = late(directory.path(), Duration::ZERO);
    let path = directory.path().join("file");
    let node = written(&mount, &path, b"");
    write_through(&mount, &node, BYTES);
    assert!(close(&mount, &node));
    assert!(node.state().is_unused());
    assert_eq!(engine.stats().dirty_bytes, 0, "the engine has pages of a file that is closed");
}

/// Otherwise a program could open, write and close the file meanwhile, and its pages could be
/// written over the new content.
#[test]
fn no_close_begins_while_a_file_is_opened_to_be_cut() {
    use forebay_uring::{Access, Create, How, LeaseWatch, OpenFile as Leased, Truncate};

    let directory = tempfile::tempdir_in(".").unwrap();
    let (path, mount) = (directory.path().join("file"), mount(directory.path()));
    let node = written(&mount, &path, b"hello");
    // The open waits for it.
    let (access, truncate) = (Access::ReadWrite, Truncate::Keep);
    let how = How { access, create: Create::No, truncate, mode: 0 };
    let leased = Leased::open(&path, &how).unwrap().file;
    let watch = LeaseWatch::new(|_| {}).unwrap();
    if leased.try_lease(&watch, 0).is_err() {
        println!("this file system has no leases");
        return;
    }
    std::thread::scope(|scope| {
        let cut = scope.spawn(|| open_for(&mount.way, &node, CUTS, None).unwrap().end());
        std::thread::sleep(Duration::from_millis(200));
        let close = scope.spawn(|| drop(node.closing()));
        std::thread::sleep(Duration::from_millis(200));
        let waiting = [cut.is_finished(), close.is_finished()];
        assert_eq!(waiting, [false; 2], "the open is in progress");
        leased.release_lease();
    });
}

/// Renames in the directory of a mount, as the kernel asks for it.
fn rename(mount: &Mount, from: &str, to: &str) -> io::Result<()> {
    let root = mount.nodes.get(crate::node::ROOT).unwrap();
    let flags = rustix::fs::RenameFlags::empty();
    mount.rename_to((&root, from.as_ref()), (&root, to.as_ref()), flags)
}

/// A crash finds the content that a name had, or the content that replaces it: never an empty file.
/// This looks at the size alone, because for a reader of the source the engine writes the file out.
#[test]
fn a_file_is_written_out_before_it_replaces_another() {
    const BYTES: u64 = 8 << 20;
    let directory = tempfile::tempdir_in(".").unwrap();
    let (mount, engine) = late(directory.path(), Duration::from_secs(60));
    let path = |name: &str| directory.path().join(name);
    fs::write(path("replaced"), b"replaced").unwrap();
    let node = written(&mount, &path("new"), b"");
    write_through(&mount, &node, BYTES as usize);
    let unwritten = |name| (path(name).metadata().unwrap().len(), engine.stats().dirty_bytes);
    rename(&mount, "new", "free").unwrap();
    assert_eq!(unwritten("free"), (0, BYTES), "nothing has to be written for a name that is free");
    rename(&mount, "free", "replaced").unwrap();
    assert_eq!(unwritten("replaced"), (BYTES, 0), "a crash now leaves no content");
}

#[test]
fn a_file_that_cannot_be_written_out_replaces_no_other() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let (mount, node) = of_ended_engine(directory.path());
    node.state().written = Some(SystemTime::now());
    let replaced = directory.path().join("replaced");
    fs::write(&replaced, b"replaced").unwrap();
    rename(&mount, "file", "replaced").expect_err("the error of the write-out is ignored");
    assert_eq!(fs::read(replaced).unwrap(), b"replaced");
    assert!(directory.path().join("file").exists());
}

#[test]
fn a_file_without_a_name_keeps_its_content_as_long_as_it_can_get_one() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let mount = mount(directory.path());
    let root = mount.nodes.get(crate::node::ROOT).unwrap();
    let content = vec![7; 300_000];
    let unnamed = |flags| {
        let (caller, flags) = (Caller::here(), OFlags::RDWR | flags);
        let (found, file) = mount.create_unnamed(&caller, &root, (0o600, 0), flags).unwrap();
        file.data.write(&content, 0).unwrap();
        mount.end_open(file);
        release_removed(&mount);
        mount.nodes.get(found.number).ok()
    };
    assert!(unnamed(OFlags::EXCL).is_none());
    let node = unnamed(OFlags::empty()).unwrap();
    assert!(close(&mount, &node));
    mount.link_to(&node, &root, "name".as_ref()).unwrap();
    assert!(fs::read(directory.path().join("name")).unwrap() == content);
    // From here on it is one like others.
    fs::remove_file(directory.path().join("name")).unwrap();
    let number = node.number;
    drop(node);
    release_removed(&mount);
    assert!(mount.nodes.get(number).is_err());
}
