//! A program dies, and another goes on where it stopped: with its files, its memory, and all that
//! had been accepted.
//!
//! The program that dies is a child of this program. The adopter is another child, or this process.
//!
//! `generations` has one program after the other do so.

mod generations;
#[path = "../support/mod.rs"]
mod support;

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use forebay::{Adopted, Builder, Engine, Error, ErrorKind, File, Keeper, Options};
use forebay_uring::passing::{Listener, Received};
use support::device::{Device, Shape};
use support::kept::{self, SOON, adopt_orphans, wait_for_orphan};
use support::mount::{FileSystem, Mount};
use support::{MIB, assert_on_disk, directory, eventually, how, pattern, process};

const CHILD: &str = "child_that_dies";
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
                save_to: Some(directory.into()),
                socket: Some(directory.join("socket")),
                log: Some(directory.join("log")),
                linger: SOON,
                // A busy disk takes seconds for a call, and is not hung.
                patience: Duration::from_secs(8),
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
    // An image would put this content over newer one.
    let names = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name());
    let images = names.filter(|name| name.to_string_lossy().ends_with(".image"));
    assert_eq!(images.collect::<Vec<_>>(), [""; 0]);
    assert!(kept::said(&directory.join("log")).contains("saved to"));
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
