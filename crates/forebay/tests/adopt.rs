//! A program dies, and another goes on where it stopped: with its files, its memory, and all that
//! had been accepted.
//!
//! The program that dies is a child of this program. The adopter is another child, or this process.
//!
//! Generations that are upgraded: each runs another program file, at the path of the one before.
//!
//! `FOREBAY_TEST_KILLS=N` has N generations die on each file system instead of a few, and
//! `FOREBAY_TEST_UPGRADES=N` upgrades N times.

mod support;

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use forebay::{Adopted, Builder, Engine, Error, ErrorKind, File, Keeper, Options};
use forebay_block::random::{Random, mix};
use forebay_uring::passing::{Listener, Received};
use support::device::{Device, Shape};
use support::kept::{self, SOON, adopt_orphans, wait_for_orphan};
use support::mount::{FileSystem, Mount};
use support::{MIB, assert_on_disk, directory, eventually, how, pattern, process};

const CHILD: &str = "child_that_dies";
const GOES_ON: &str = "child_that_goes_on";
const OTHER: &str = "child_of_another_user";

/// Nobody.
const USER: libc::uid_t = 65_534;

#[test]
fn keeper() {
    kept::serve();
}

/// An engine that is survived, with a socket for who goes on.
fn builder(directory: &Path) -> Builder {
    builder_with(directory, Options::default())
}

fn builder_with(directory: &Path, options: Options) -> Builder {
    let keeper = Keeper {
        socket: Some(directory.join("socket")),
        log: Some(directory.join("log")),
        linger: SOON,
        ..kept::keeper()
    };
    Engine::builder(Options { cache_bytes: Some(24 << 20), ..options }).survive(keeper)
}

fn read_all(file: &File) -> Vec<u8> {
    let mut content = vec![0; file.len().unwrap() as usize];
    assert_eq!(file.read_at(&mut content, 0).unwrap(), content.len());
    content
}

/// The handle of a file by its name.
fn named<'a>(files: &'a [File], name: &str) -> &'a File {
    let is_it = |file: &&File| file.path().file_name().is_some_and(|found| found == name);
    files.iter().find(is_it).unwrap_or_else(|| panic!("no {name} among {files:?}"))
}

// The program that dies

const WARM: usize = 3 << 20;
const READ: usize = 1 << 20;

/// With a frame more for each of its pages it is more than the cache.
const MANY_PARTS: usize = 14 << 20;

/// Runs as the child, up to its death.
fn act(what: &str, directory: &Path, path: &Path) -> Option<u32> {
    let builder = match what {
        "soon gone" => Engine::builder(Options::default()).survive(Keeper {
            socket: Some(directory.join("socket")),
            log: Some(directory.join("log")),
            linger: Duration::from_millis(200),
            ..kept::keeper()
        }),
        "lazy" | "many parts" => {
            let keeper = Keeper {
                socket: Some(directory.join("socket")),
                log: Some(directory.join("log")),
                linger: SOON,
                patience: Duration::from_millis(300),
                ..kept::keeper()
            };
            let builder = Engine::builder(Options {
                cache_bytes: Some(24 << 20),
                dirty_bytes: Some(20 << 20),
                background_bytes: Some(20 << 20),
                dirty_age: Duration::from_secs(3600),
                ..Options::default()
            });
            builder.survive(keeper)
        }
        _ => builder(directory),
    };
    let engine = builder.build().unwrap();
    let file =
        engine.open(path, &how::write()).or_else(|_| engine.open(path, &how::create())).unwrap();
    match what {
        "warm" => {
            file.write_at(&pattern(1, WARM), 0).unwrap();
            file.sync_data().unwrap();
            file.write_at(&pattern(2, 100_000), 1 << 20).unwrap();
            let read = engine.open(directory.join("read"), &how::write()).unwrap();
            assert_eq!(read_all(&read), pattern(3, READ));
            let part = engine.open(directory.join("part"), &how::write()).unwrap();
            part.write_at(b"here", 5000).unwrap();
            let gone = engine.open(directory.join("gone"), &how::create_new()).unwrap();
            gone.write_at(&pattern(4, 50_000), 10_000).unwrap();
            std::fs::remove_file(directory.join("gone")).unwrap();
            let number = engine.keeper().unwrap().process;
            std::mem::forget((read, part, gone, file, engine));
            return number;
        }
        "lazy" => {
            file.write_at(&pattern(5, 300_000), 4096 * 3).unwrap();
            file.write_at(b"in the middle of a page", 4096 * 100 + 50).unwrap();
        }
        "many parts" => {
            let content = pattern(5, MANY_PARTS);
            for (part, at) in content.chunks(1000).zip((0..).step_by(1000)) {
                file.write_at(part, at).unwrap();
            }
        }
        _ => file.write_at(&pattern(5, 300_000), 0).unwrap(),
    }
    let number = engine.keeper().unwrap().process;
    std::mem::forget((file, engine));
    number
}

#[test]
fn child_that_dies() {
    let Some(task) = process::task() else { return };
    let [what, directory, path] = task.split('\n').collect::<Vec<_>>().try_into().unwrap();
    let keeper = act(what, Path::new(directory), Path::new(path));
    process::report(format_args!("{}", keeper.unwrap()));
    std::thread::sleep(SOON);
}

/// A child that does something with a file and is killed then, when `before` is done.
fn die(what: &str, directory: &Path, path: &Path, before: impl FnOnce()) -> u32 {
    adopt_orphans();
    let (mut child, reported) =
        start(CHILD, &format!("{what}\n{}\n{}", directory.display(), path.display()));
    before();
    kept::kill(&mut child, libc::SIGKILL);
    reported.parse().unwrap()
}

/// Starts a child and returns it with its first report.
fn start(test: &str, task: &str) -> (Child, String) {
    ready(process::start_child(test, task))
}

fn ready(mut child: Child) -> (Child, String) {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let reported = lines.find_map(|line| process::reported(&line.unwrap()).map(str::to_owned));
    (child, reported.expect("the child does what it should"))
}

/// A directory, by the path under which a file is found in it.
fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = directory();
    let path = directory.path().canonicalize().unwrap();
    (directory, path)
}

fn refused(result: Result<Adopted, Error>) -> String {
    let error = result.expect_err("nothing can be adopted");
    assert_eq!(error.kind(), ErrorKind::Keeper, "{error}");
    error.to_string()
}

#[test]
fn contract_04_and_06_a_warm_cache_is_taken_over() {
    let (_guard, directory) = place();
    let path = directory.join("warm");
    std::fs::write(directory.join("read"), pattern(3, READ)).unwrap();
    std::fs::write(directory.join("part"), pattern(6, 20_000)).unwrap();
    let old = die("warm", &directory, &path, || {});
    let adopted = builder(&directory).adopt(directory.join("socket")).unwrap();
    assert_eq!(wait_for_orphan(old, SOON), 0);
    assert_eq!((adopted.files.len(), adopted.unwritten_pages), (4, 0));
    assert!(adopted.clean_pages * 4096 >= (WARM + READ) as u64, "{adopted:?}");
    let Adopted { engine, files, .. } = adopted;
    let keeper = engine.keeper().unwrap();
    assert_eq!((keeper.files, keeper.process.is_some()), (4, true));

    let mut warm = pattern(1, WARM);
    warm[1 << 20..(1 << 20) + 100_000].copy_from_slice(&pattern(2, 100_000));
    assert!(read_all(named(&files, "warm")) == warm);
    // By another handle, too.
    assert!(
        read_all(&engine.open(directory.join("read"), &how::read()).unwrap()) == pattern(3, READ)
    );
    assert_eq!(engine.stats().read_bytes, 0, "what was in memory is");
    let mut part = pattern(6, 20_000);
    part[5000..5004].copy_from_slice(b"here");
    assert!(read_all(named(&files, "part")) == part);
    let gone = named(&files, "gone");
    let mut content = vec![0; 10_000];
    content.extend(pattern(4, 50_000));
    assert!(read_all(gone) == content);

    // And on: over what is clean, in parts, at the end, beyond it, and with its length.
    let file = named(&files, "warm");
    for (offset, length) in [(0, 4096), (5000, 100), (1_000_000, 70_000), (WARM as u64 + 9000, 10)]
    {
        let bytes = pattern(7 + offset, length);
        file.write_at(&bytes, offset).unwrap();
        warm.resize(warm.len().max(offset as usize + length), 0);
        warm[offset as usize..offset as usize + length].copy_from_slice(&bytes);
    }
    assert_eq!(file.append(b"the end").unwrap(), warm.len() as u64);
    warm.extend(b"the end");
    gone.write_at(b"still there", 0).unwrap();
    gone.sync_all().unwrap();
    content[..11].copy_from_slice(b"still there");
    assert!(read_all(gone) == content);
    let part_file = named(&files, "part");
    part_file.set_len(7000).unwrap();
    part_file.set_len(9000).unwrap();
    part.truncate(7000);
    part.resize(9000, 0);
    file.sync_data().unwrap();
    assert!(read_all(file) == warm && read_all(part_file) == part);
    for file in files {
        file.close().unwrap();
    }
    assert_eq!(engine.keeper().unwrap().files, 0);
    engine.shutdown(SOON).unwrap();
    assert_on_disk(&path, &warm, "after the new program");
    assert_on_disk(&directory.join("part"), &part, "after the new program");
    assert_eq!(support::mark(&path), None);
    assert!(!directory.join("socket").exists());
}

#[test]
fn contract_04_without_a_keeper_of_its_own() {
    let (_guard, directory) = place();
    let path = directory.join("file");
    let old = die("plain", &directory, &path, || {});
    let socket = directory.join("socket");
    // One that cannot go on has taken nothing.
    let impossible = Engine::builder(Options { dirty_bytes: Some(1 << 40), ..Options::default() })
        .adopt(&socket)
        .unwrap_err();
    assert_eq!(impossible.kind(), ErrorKind::InvalidInput, "{impossible}");
    // Nor has one that gets no keeper, though that was to listen there.
    let lonely = Engine::builder(Options::default())
        .survive(Keeper { socket: Some(socket.clone()), ..Keeper::program("/bin/false") })
        .adopt(&socket);
    refused(lonely);
    assert!(eventually(SOON, || socket.exists()), "the old one listens again");
    let Adopted { engine, files, clean_pages, .. } =
        Engine::builder(Options::default()).adopt(&socket).unwrap();
    assert_eq!(wait_for_orphan(old, SOON), 0);
    assert!(clean_pages >= 300_000 / 4096 && engine.keeper().is_none());
    let file = named(&files, "file");
    assert!(read_all(file) == pattern(5, 300_000));
    file.write_at(&pattern(6, 5000), 100).unwrap();
    // As if nobody had had it: leased, and locked.
    assert!(!file.describe().contains("shared"), "{}", file.describe());
    assert_eq!(
        Engine::new().unwrap().open(&path, &how::write()).unwrap_err().kind(),
        ErrorKind::Busy
    );
    drop((engine, files));
    let mut content = pattern(5, 300_000);
    content[100..5100].copy_from_slice(&pattern(6, 5000));
    assert_on_disk(&path, &content, "after a new program without a keeper");
}

#[test]
fn contract_02_what_could_not_be_written_is_dirty_again() {
    let Some(mount) = Mount::new("adopt_no_space", FileSystem::Ext4, 64 * MIB) else { return };
    let (_guard, directory) = place();
    let path = mount.path().canonicalize().unwrap().join("file");
    // The file was one hole before this engine, so the rest of a partly written page is a hole.
    std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
    let mut filler = None;
    let old = die("lazy", &directory, &path, || filler = Some(process::fill_up(&mount.path())));
    let adopted = builder(&directory).adopt(directory.join("socket")).unwrap();
    assert_eq!(wait_for_orphan(old, SOON), 1, "{}", kept::said(&directory.join("log")));
    assert!(adopted.unwritten_pages >= 300_000 / 4096, "{adopted:?}");
    let file = &adopted.files[0];
    let mut content = vec![0; 1 << 20];
    content[4096 * 3..4096 * 3 + 300_000].copy_from_slice(&pattern(5, 300_000));
    content[4096 * 100 + 50..][..23].copy_from_slice(b"in the middle of a page");
    assert!(read_all(file) == content);
    assert!(adopted.engine.stats().dirty_bytes >= 300_000);
    assert!(file.sync_data().is_err());
    std::fs::remove_file(filler.unwrap()).unwrap();
    file.write_at(b"and more", 4096 * 100 + 60).unwrap();
    content[4096 * 100 + 60..][..8].copy_from_slice(b"and more");
    // The first sync may report the earlier failure once more.
    assert!(eventually(SOON, || file.sync_data().is_ok()));
    assert!(read_all(file) == content);
    drop(adopted);
    assert_on_disk(&path, &content, "once there was space");
}

#[test]
fn contract_02_pages_written_in_parts_are_taken_over_though_they_fill_the_cache() {
    let Some(mount) = Mount::new("adopt_many_parts", FileSystem::Ext4, 512 * MIB) else { return };
    let (_guard, directory) = place();
    let path = mount.path().canonicalize().unwrap().join("file");
    // Holes, which this engine did not make: so a part of a page is one, until the others are
    // there.
    let same = std::fs::File::create(&path).unwrap();
    same.set_len(16 << 20).unwrap();
    // Nothing can be written to it: neither space nor time help.
    let old = die("many parts", &directory, &path, || support::set_immutable(&same, true));
    let adopted = builder(&directory).adopt(directory.join("socket")).unwrap();
    assert_eq!(wait_for_orphan(old, SOON), 1, "{}", kept::said(&directory.join("log")));
    assert_eq!(adopted.unwritten_pages, MANY_PARTS as u64 / 4096);
    support::set_immutable(&same, false);
    let mut content = pattern(5, MANY_PARTS);
    content.resize(16 << 20, 0);
    assert!(read_all(&adopted.files[0]) == content);
    // The first sync may report the earlier failure once more.
    assert!(eventually(SOON, || adopted.files[0].sync_data().is_ok()));
    drop(adopted);
    assert_on_disk(&path, &content, "once it could be written");
}

#[test]
fn contract_10_a_block_device_is_taken_over() {
    let Some(device) = Device::new("adopt_device", Shape::new(8 << 20, 512)) else { return };
    let (_guard, directory) = place();
    let old = die("plain", &directory, device.path(), || {});
    let adopted = builder(&directory).adopt(directory.join("socket")).unwrap();
    assert_eq!(wait_for_orphan(old, SOON), 0);
    let Adopted { engine, files, .. } = adopted;
    let file = &files[0];
    assert_eq!((file.path(), file.len().unwrap()), (device.path(), 8 << 20));
    let mut start = vec![0; 300_000];
    file.read_at(&mut start, 0).unwrap();
    assert!(start == pattern(5, 300_000) && engine.stats().read_bytes <= 4096);
    assert_eq!(
        Engine::new().unwrap().open(device.path(), &how::read()).unwrap_err().kind(),
        ErrorKind::Busy
    );
    file.write_at(&pattern(6, 10_000), 77).unwrap();
    assert!(file.write_at(&[0; 10], (8 << 20) - 5).is_err());
    files.into_iter().next().unwrap().close().unwrap();
    start[77..10_077].copy_from_slice(&pattern(6, 10_000));
    assert!(device.stored()[..300_000] == start);
    // Free at once.
    let other = Engine::new().unwrap();
    other.open(device.path(), &how::write()).unwrap().close().unwrap();
}

#[test]
fn who_is_refused() {
    let (_guard, directory) = place();
    let (path, socket) = (directory.join("file"), directory.join("socket"));
    assert!(
        refused(Engine::builder(Options::default()).adopt(&socket)).contains("no keeper listens")
    );
    let old = die("plain", &directory, &path, || {
        let said = refused(Engine::builder(Options::default()).adopt(&socket));
        assert!(said.contains("is alive"), "{said}");
        // Nor does it help to ask again.
        refused(builder(&directory).adopt(&socket));
    });
    // Of several that ask at once one has it, and the others hear that.
    let (reported, receive) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let (reported, socket) = (reported.clone(), &socket);
            scope.spawn(move || {
                reported.send(Engine::builder(Options::default()).adopt(socket)).unwrap();
            });
        }
    });
    let (adopted, others): (Vec<_>, Vec<_>) = receive.iter().take(3).partition(Result::is_ok);
    assert_eq!((adopted.len(), others.len()), (1, 2));
    others.into_iter().for_each(|other| drop(refused(other)));
    assert_eq!(wait_for_orphan(old, SOON), 0);
    drop(adopted);
    assert_on_disk(&path, &pattern(5, 300_000), "taken over by one of three");

    let old = die("soon gone", &directory, &path, || {});
    assert_eq!(wait_for_orphan(old, SOON), 0);
    let said = refused(Engine::builder(Options::default()).adopt(&socket));
    assert!(said.contains("no keeper listens") && said.contains("open the files"), "{said}");

    let engine = Engine::new().unwrap();
    engine.serve_control(directory.join("control")).unwrap();
    refused(Engine::builder(Options::default()).adopt(directory.join("control")));
    refused(Engine::builder(Options::default()).adopt(&path));
}

/// Sends these messages to one adopter, some with a descriptor. Returns the error of the adoption.
fn answered(directory: &Path, messages: &[(Vec<u8>, Option<BorrowedFd<'_>>)]) -> String {
    let path = directory.join("pretender");
    let listener = Listener::bind(&path).unwrap();
    let asking = std::thread::scope(|scope| {
        let asking = scope.spawn(|| Engine::builder(Options::default()).adopt(&path));
        let channel = loop {
            if let Some((channel, _)) = listener.accept().unwrap() {
                break channel;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(
            matches!(channel.receive(Some(SOON)), Ok(Received::Message(message)) if message.bytes[0] == 32)
        );
        for (message, descriptor) in messages {
            let descriptors: Vec<BorrowedFd<'_>> = descriptor.iter().copied().collect();
            // It may have heard enough.
            let _ = channel.send(message, &descriptors);
        }
        drop(channel);
        asking.join().unwrap()
    });
    listener.remove();
    refused(asking)
}

#[test]
fn who_pretends_to_be_a_keeper_is_refused() {
    let (_guard, directory) = place();
    let number = |number: u32| number.to_le_bytes();
    let handed = |files: u32| [&[33][..], &number(1), &number(files)].concat();
    let arena = forebay_uring::Arena::shared(2048).unwrap();
    let file = std::fs::File::create(directory.join("file")).unwrap();
    let (memfd, file) = (arena.memfd(), Some(file.as_fd()));
    let one = [&[34][..], &number(0), &1_u16.to_le_bytes()].concat();
    let said = answered(&directory, &[]);
    assert!(said.contains("gone"), "{said}");
    let said =
        answered(&directory, &[([&[17][..], &5_u16.to_le_bytes(), b"tired"].concat(), None)]);
    assert!(said.contains("tired"), "{said}");
    let end = || (vec![35], None);
    for messages in [
        vec![(b"nonsense".to_vec(), None)],
        vec![(handed(0), None), end()],
        vec![(handed(0), file), end()],
        vec![(handed(1), memfd), end()],
        vec![(handed(1), memfd)],
        vec![(handed(0), memfd), (one.clone(), file), end()],
        vec![(handed(1), memfd), (one.clone(), None), end()],
        vec![(handed(1), memfd), (one.clone(), memfd), (one.clone(), file)],
        // It can be written only.
        vec![(handed(1), memfd), (one, file), end()],
    ] {
        println!("{}", answered(&directory, &messages));
    }
}

#[test]
fn child_of_another_user() {
    let Some(task) = process::task() else { return };
    let (what, socket) = task.split_once('\n').unwrap();
    // SAFETY: takes a number; the library tells all threads.
    assert_eq!(unsafe { libc::setuid(USER) }, 0);
    match what {
        "adopts" => {
            process::report(format_args!(
                "{}",
                refused(Engine::builder(Options::default()).adopt(socket))
            ));
            // Nobody hears what the harness says.
            std::process::exit(0);
        }
        "listens" => {
            let _listener = Listener::bind(Path::new(socket)).unwrap();
            process::report(format_args!("ready"));
            std::thread::sleep(SOON);
        }
        other => panic!("{other}?"),
    }
}

#[test]
fn other_users_are_refused() {
    if !support::is_root() {
        return support::skip("other_users_are_refused", "only root can be another user");
    }
    let (_guard, directory) = place();
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o777)).unwrap();
    let socket = directory.join("socket");
    let old = die("plain", &directory, &directory.join("file"), || {});
    let (mut child, said) = start(OTHER, &format!("adopts\n{}", socket.display()));
    assert!(said.contains("Permission denied"), "{said}");
    child.wait().unwrap();
    // Nor where somebody has opened it to all.
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).unwrap();
    let (mut child, said) = start(OTHER, &format!("adopts\n{}", socket.display()));
    assert!(said.contains(&format!("user {USER} may not")), "{said}");
    child.wait().unwrap();
    drop(Engine::builder(Options::default()).adopt(&socket).unwrap());
    assert_eq!(wait_for_orphan(old, SOON), 0);

    let theirs = directory.join("theirs");
    let (mut child, _) = start(OTHER, &format!("listens\n{}", theirs.display()));
    let said = refused(Engine::builder(Options::default()).adopt(&theirs));
    assert!(said.contains(&format!("belongs to another user ({USER})")), "{said}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn contract_06_whoever_opens_a_file_meanwhile_is_let_in() {
    let (_guard, directory) = place();
    std::fs::write(directory.join("read"), pattern(3, READ)).unwrap();
    std::fs::write(directory.join("part"), pattern(6, 20_000)).unwrap();
    let old = die("warm", &directory, &directory.join("warm"), || {});
    let start = Instant::now();
    let other = OpenOptions::new().write(true).open(directory.join("read")).unwrap();
    assert!(start.elapsed() < Duration::from_secs(10), "held up for {:?}", start.elapsed());
    other.write_all_at(b"others' bytes", 4096).unwrap();
    let Adopted { engine, files, .. } =
        Engine::builder(Options::default()).adopt(directory.join("socket")).unwrap();
    assert_eq!(wait_for_orphan(old, SOON), 0);
    let read = named(&files, "read");
    assert!(read.describe().contains("shared"), "{}", read.describe());
    // The other program has changed this file, so its pages in memory are out of date.
    let mut content = pattern(3, READ);
    content[4096..4109].copy_from_slice(b"others' bytes");
    assert!(read_all(read) == content);
    // The pages of the other files are still valid.
    let before = engine.stats().read_bytes;
    assert!(read_all(named(&files, "warm")).len() == WARM);
    assert_eq!((before, engine.stats().read_bytes), (READ as u64, READ as u64));
}

// One generation after the other

const FILES: usize = 4;

/// Of these the last one is open elsewhere, so it is no generation's alone, and the one before has
/// no name.
const SHARED: usize = FILES - 1;
const NAMELESS: usize = FILES - 2;

const LONGEST: u64 = 3 * MIB;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Verb {
    /// Offset, length.
    Write(u64, usize),
    SetLength(u64),
    Read(u64, usize),
    Sync,
}

/// Endless sequence of steps that depends on the seed alone. A step that is made twice has the
/// effect of one.
struct Workload {
    random: Random,
    number: u64,
    lengths: [u64; FILES],
}

impl Workload {
    fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), number: 0, lengths: [0; FILES] }
    }

    fn next(&mut self) -> (usize, Verb) {
        self.number += 1;
        let random = &mut self.random;
        let file = random.below(FILES as u64) as usize;
        let length = &mut self.lengths[file];
        let offset = random.below(LONGEST);
        let small = 1 + random.below(9000) as usize;
        let verb = match random.below(1000) {
            _ if *length > LONGEST + MIB => Verb::SetLength(offset / 2),
            0..6 => Verb::SetLength(offset),
            6..10 => Verb::Sync,
            10..100 => Verb::Read(offset, small * 4),
            100..110 => Verb::Write(offset / 4096 * 4096, 300_000),
            110..500 => Verb::Write(*length, small),
            500..700 => Verb::Write(offset % (64 << 10), 1 + small % 300),
            _ => Verb::Write(offset, small),
        };
        match verb {
            Verb::Write(offset, bytes) => *length = (*length).max(offset + bytes as u64),
            Verb::SetLength(to) => *length = to,
            Verb::Read(..) | Verb::Sync => {}
        }
        (file, verb)
    }

    /// The bytes of the step: no other has them.
    fn data(&self, length: usize) -> Vec<u8> {
        let salt = mix(self.number ^ self.random.clone().draw());
        let words =
            (0..length.div_ceil(8) as u64).map(|at| mix(salt.wrapping_add(at)).to_le_bytes());
        words.flatten().take(length).collect()
    }

    fn make_in(&self, verb: &Verb, content: &mut Vec<u8>) {
        match verb {
            Verb::Write(offset, length) => {
                let (start, end) = (*offset as usize, *offset as usize + length);
                content.resize(content.len().max(end), 0);
                content[start..end].copy_from_slice(&self.data(*length));
            }
            Verb::SetLength(length) => content.resize(*length as usize, 0),
            Verb::Read(..) | Verb::Sync => {}
        }
    }

    fn make(&self, verb: &Verb, file: &File) {
        match verb {
            Verb::Write(offset, length) => file.write_at(&self.data(*length), *offset).unwrap(),
            Verb::SetLength(length) => file.set_len(*length).unwrap(),
            Verb::Read(offset, length) => {
                file.read_at(&mut vec![0; *length], *offset).unwrap();
            }
            Verb::Sync => file.sync_data().unwrap(),
        }
    }
}

/// How far it is: steps begun, and steps that have returned.
struct Progress(std::fs::File);

impl Progress {
    fn at(directory: &Path) -> Self {
        let mut how = OpenOptions::new();
        Self(
            how.read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(directory.join("progress"))
                .unwrap(),
        )
    }

    fn report(&self, which: u64, steps: u64) {
        self.0.write_all_at(&steps.to_le_bytes(), which * 8).unwrap();
    }

    fn reported(&self, which: u64) -> u64 {
        let mut bytes = [0; 8];
        // A shorter file means that no step was reported yet.
        let _ = self.0.read_exact_at(&mut bytes, which * 8);
        u64::from_le_bytes(bytes)
    }
}

fn path_of(directory: &Path, number: usize) -> PathBuf {
    directory.join(format!("file-{number}"))
}

/// The files of one generation, in their order.
fn begin(engine: &Engine, directory: &Path) -> Vec<File> {
    let open = |number: usize| engine.open(path_of(directory, number), &how::create()).unwrap();
    let files = (0..FILES).map(open).collect();
    if !is_upgraded(directory) {
        std::fs::remove_file(path_of(directory, NAMELESS)).unwrap();
    }
    files
}

/// The program that the next generation runs, where generations are upgraded.
fn program(directory: &Path) -> PathBuf {
    directory.join("program")
}

fn is_upgraded(directory: &Path) -> bool {
    program(directory).exists()
}

/// While it exists, a generation ends by itself.
fn end(directory: &Path) -> PathBuf {
    directory.join("end")
}

/// Everything that returned before is there, and nothing else; the workload, and the content, where
/// it goes on.
fn check(files: &[File], directory: &Path, seed: u64, context: &str) -> (Workload, Vec<Vec<u8>>) {
    let progress = Progress::at(directory);
    let (begun, returned) = (progress.reported(0), progress.reported(1));
    assert!(begun == returned || begun == returned + 1, "{context}: {begun}, {returned}");
    let mut workload = Workload::new(seed);
    let mut contents = vec![Vec::new(); FILES];
    while workload.number < returned {
        let (file, verb) = workload.next();
        workload.make_in(&verb, &mut contents[file]);
    }
    let found: Vec<Vec<u8>> = files.iter().map(read_all).collect();
    let mut under_way = None;
    let old = contents.clone();
    if begun > returned {
        let (number, verb) = workload.next();
        workload.make_in(&verb, &mut contents[number]);
        // Made once more it is made.
        workload.make(&verb, &files[number]);
        progress.report(1, begun);
        under_way = Some((number, verb));
    }
    for number in 0..FILES {
        let (found, old, new) = (&found[number], &old[number], &contents[number]);
        let lengths = old.len().min(new.len())..=old.len().max(new.len());
        let wrong = (0..found.len()).find(|at| {
            let byte = Some(&found[*at]);
            byte != old.get(*at) && byte != new.get(*at)
        });
        assert!(
            wrong.is_none() && lengths.contains(&found.len()),
            "{context}, file {number}: {} bytes of {lengths:?}, wrong at {wrong:?}; after {returned} steps, {under_way:?}",
            found.len(),
        );
        assert!(read_all(&files[number]) == *new, "{context}, file {number}, after {under_way:?}");
    }
    (workload, contents)
}

/// The next generation: adopts what the one before had, unless that has ended by itself.
fn go_on(directory: &Path, random: &mut Random) -> (Engine, Vec<File>, u64) {
    let options = Options {
        dirty_bytes: Some(4 << 20),
        background_bytes: Some((1 + random.below(4)) << 20),
        dirty_age: Duration::from_millis(1 + random.below(60)),
        ..Options::default()
    };
    let builder = builder_with(directory, options);
    let is_first = Progress::at(directory).reported(0) == 0;
    if is_first || end(directory).exists() {
        let engine = builder.build().unwrap();
        let files = begin(&engine, directory);
        return (engine, files, 0);
    }
    let adopted = builder.adopt(directory.join("socket")).unwrap();
    let mut files = adopted.files;
    files.sort_by(|one, other| one.path().cmp(other.path()));
    assert_eq!(files.len(), FILES);
    (adopted.engine, files, adopted.clean_pages)
}

#[test]
fn child_that_goes_on() {
    let Some(task) = process::task() else { return };
    let [directory, seed, generation] = task.split('\n').collect::<Vec<_>>().try_into().unwrap();
    let (directory, seed): (&Path, u64) = (directory.as_ref(), seed.parse().unwrap());
    let mut random = Random::new(seed ^ mix(generation.parse().unwrap()));
    let (engine, files, clean) = go_on(directory, &mut random);
    let _ = std::fs::remove_file(end(directory));
    let (mut workload, _) =
        check(&files, directory, seed, &format!("generation {generation}, seed {seed}"));
    process::report(format_args!("{} {clean}", engine.keeper().unwrap().process.unwrap()));
    let progress = Progress::at(directory);
    while !end(directory).exists() {
        let (number, verb) = workload.next();
        progress.report(0, workload.number);
        workload.make(&verb, &files[number]);
        progress.report(1, workload.number);
    }
    // Its handles stay open.
    engine.shutdown(SOON).unwrap();
    // Nobody hears what the harness says.
    std::process::exit(0);
}

/// As many as told, else a few.
fn count(variable: &str, by_default: usize) -> usize {
    let told = std::env::var(variable).ok();
    told.map_or(by_default, |told| told.parse().expect("the number of generations"))
}

fn generations(directory: &Path, count: usize) {
    adopt_orphans();
    let begin = Instant::now();
    let seed = support::seed() >> 1;
    let mut random = Random::new(seed);
    std::fs::File::create(path_of(directory, SHARED)).unwrap();
    let _other = std::fs::File::open(path_of(directory, SHARED)).unwrap();
    let mut keepers = Vec::new();
    let mut clean_pages = 0;
    for generation in 0..count {
        let task = format!("{}\n{seed}\n{generation}", directory.display());
        let is_upgraded = is_upgraded(directory);
        let (mut child, reported) = if is_upgraded {
            let program = program(directory);
            ready(process::start_child_of(&program, GOES_ON, &task, Stdio::inherit()))
        } else {
            start(GOES_ON, &task)
        };
        let (keeper, clean) = reported.split_once(' ').unwrap();
        let keeper = keeper.parse().unwrap();
        clean_pages += clean.parse::<u64>().unwrap();
        // The first one is to begin, at least.
        let least = if generation == 0 { 20_000 } else { 0 };
        std::thread::sleep(Duration::from_micros(least + random.below(120_000)));
        if is_upgraded {
            process::replace_by_another_build(&program(directory));
        }
        if is_upgraded && generation % 2 == 1 {
            std::fs::write(end(directory), b"").unwrap();
            assert!(child.wait().unwrap().success(), "generation {generation}, seed {seed}");
        } else {
            kept::kill(&mut child, libc::SIGKILL);
            keepers.push(keeper);
        }
    }
    let (engine, files, clean) = go_on(directory, &mut random);
    for keeper in keepers {
        assert_eq!(
            wait_for_orphan(keeper, SOON),
            0,
            "seed {seed}: {}",
            kept::said(&directory.join("log"))
        );
    }
    let (mut workload, mut contents) =
        check(&files, directory, seed, &format!("the last, seed {seed}"));
    for _ in 0..1000 {
        let (number, verb) = workload.next();
        workload.make(&verb, &files[number]);
        workload.make_in(&verb, &mut contents[number]);
    }
    let file_system = forebay_uring::probe::file_system(directory).unwrap();
    let (steps, clean) = (workload.number, clean_pages + clean);
    println!(
        "{file_system}: {count} generations, {steps} steps, {clean} clean pages read without the device, \
         {:.1?}",
        begin.elapsed()
    );
    assert!(clean > 0, "nothing was ever warm");
    for (number, file) in files.into_iter().enumerate() {
        assert!(read_all(&file) == contents[number], "seed {seed}, file {number}");
        file.sync_all().unwrap();
        file.close().unwrap();
        if number != NAMELESS || is_upgraded(directory) {
            let what = format!("seed {seed}, when all was closed");
            assert_on_disk(&path_of(directory, number), &contents[number], &what);
        }
    }
    engine.shutdown(SOON).unwrap();
}

#[test]
fn contract_04_and_08_generation_after_generation() {
    if process::task().is_none() {
        let (_guard, directory) = place();
        generations(&directory, count("FOREBAY_TEST_KILLS", 10));
    }
}

#[test]
fn contract_04_and_08_generation_after_generation_on_xfs() {
    if process::task().is_none()
        && let Some(mount) = Mount::new("adopt_on_xfs", FileSystem::Xfs, 2048 * MIB)
    {
        let directory = mount.path().canonicalize().unwrap();
        generations(&directory, count("FOREBAY_TEST_KILLS", 10));
    }
}

#[test]
fn contract_04_and_08_generation_after_generation_on_ext4() {
    if process::task().is_none()
        && let Some(mount) = Mount::new("adopt_on_ext4", FileSystem::Ext4, 256 * MIB)
    {
        let directory = mount.path().canonicalize().unwrap();
        generations(&directory, count("FOREBAY_TEST_KILLS", 10));
    }
}

#[test]
fn contract_04_and_08_programs_are_upgraded_under_load() {
    if process::task().is_none() {
        let (_guard, directory) = place();
        process::replace_by_another_build(&program(&directory));
        generations(&directory, count("FOREBAY_TEST_UPGRADES", 4));
    }
}
