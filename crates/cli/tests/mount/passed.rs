//! Files that the kernel reads itself, beside all other uses of them.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::map::Map;
use crate::place::{FOREBAY, Place, bytes, run};

/// Part of the line of a mount whose files the kernel reads.
const PASSES: &str = "the kernel reads files";

/// Longer than the kernel keeps names and attributes.
const EXPIRED: Duration = Duration::from_millis(1200);

/// Longer than until a written file is closed in the source.
const SETTLED: Duration = Duration::from_secs(5);

/// Mounts. Returns false, after a message, if the kernel does not read files itself.
fn mount(place: &Place, prefix: &[&str]) -> bool {
    let said = place.mount_by(prefix, &[]);
    let passes = said.contains(PASSES);
    if !passes {
        eprintln!("skipped: FUSE passthrough needs Linux 6.9");
        place.unmount();
    }
    passes
}

/// The process of a mount, stopped until this is dropped: no request is served.
struct Stopped(String);

impl Stopped {
    fn new(place: &Place) -> Self {
        let server = place.server().to_string();
        assert_eq!(run(&["kill", "-STOP", &server]).0, Some(0));
        Self(server)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        run(&["kill", "-CONT", &self.0]);
    }
}

fn content(file: &File) -> Vec<u8> {
    let mut read = vec![0; 4 << 20];
    let length = file.read_at(&mut read, 0).unwrap();
    read.truncate(length);
    read
}

fn open(path: &Path, flags: i32) -> File {
    let mode = flags & libc::O_ACCMODE;
    OpenOptions::new()
        .read(mode != libc::O_WRONLY)
        .write(mode != libc::O_RDONLY)
        .custom_flags(flags & !libc::O_ACCMODE)
        .open(path)
        .unwrap_or_else(|error| panic!("{}: {flags:o}: {error}", path.display()))
}

#[test]
fn the_kernel_reads_a_file_without_unwritten_data_alone() {
    let Some(place) = Place::new() else { return };
    let expected = bytes(1_000_001);
    fs::write(place.source.join("old"), &expected).unwrap();
    if !mount(&place, &[]) {
        return;
    }
    fs::write(place.mount.join("new"), &expected[..9000]).unwrap();
    for (name, expected) in [("old", &expected[..]), ("new", &expected[..9000])] {
        let files = [(); 2].map(|()| File::open(place.mount.join(name)).unwrap());
        let stopped = Stopped::new(&place);
        for file in &files {
            assert!(content(file) == expected, "{name}");
            let map = Map::of(file);
            assert_eq!(map.first(), expected[0]);
        }
        drop(stopped);
        files[0].sync_all().unwrap();
        let copied = fs::copy(place.mount.join(name), place.mount.join("copy")).unwrap();
        assert_eq!(copied, expected.len() as u64);
        assert!(fs::read(place.mount.join("copy")).unwrap() == expected);
        assert_eq!(files[1].metadata().unwrap().len(), expected.len() as u64);
    }
    place.unmount();
    assert_eq!(place.log(), "");
}

#[test]
fn a_writer_beside_a_reader_of_the_kernel_is_seen_at_once() {
    let Some(place) = Place::new() else { return };
    for name in ["old", "appended", "cut", "direct"] {
        fs::write(place.source.join(name), bytes(300_000)).unwrap();
    }
    if !mount(&place, &[]) {
        return;
    }
    fs::write(place.mount.join("new"), bytes(20_000)).unwrap();
    let at = |name: &str| place.mount.join(name);
    for name in ["old", "new"] {
        let (reader, mut expected) = (File::open(at(name)).unwrap(), content(&open(&at(name), 0)));
        let map = Map::of(&reader);
        let writer = open(&at(name), libc::O_RDWR);
        for step in 0..5_u8 {
            writer.write_all_at(&[step; 3], u64::from(step) * 2).unwrap();
            expected[usize::from(step) * 2..][..3].fill(step);
            // A small file becomes a large one.
            writer.write_all_at(&[step; 100_000], expected.len() as u64).unwrap();
            expected.extend([step; 100_000]);
            assert!(content(&reader) == expected, "{name}: {step}");
            assert!(content(&writer) == expected, "{name}: {step}");
            assert!(fs::read(place.source.join(name)).unwrap() == expected, "{name}: {step}");
            assert_eq!(map.first(), expected[0]);
            assert_eq!(reader.metadata().unwrap().len(), expected.len() as u64);
        }
        writer.set_len(5000).unwrap();
        expected.truncate(5000);
        assert!(content(&reader) == expected, "{name}");
        // By its name.
        Command::new("truncate").args(["-s", "4500"]).arg(at(name)).status().unwrap();
        expected.truncate(4500);
        assert!(content(&reader) == expected, "{name}");
        drop(reader);
        writer.write_all_at(b"last", 0).unwrap();
        expected[..4].copy_from_slice(b"last");
        writer.sync_data().unwrap();
        drop((writer, map));
        assert!(fs::read(at(name)).unwrap() == expected, "{name}");
    }
    let reader = File::open(at("appended")).unwrap();
    let mut first = OpenOptions::new().append(true).open(at("appended")).unwrap();
    let mut second = OpenOptions::new().append(true).open(at("appended")).unwrap();
    for file in [&mut first, &mut second] {
        file.write_all(b"line\n").unwrap();
    }
    assert!(content(&reader)[300_000..] == *b"line\nline\n");
    drop((reader, first, second));
    let reader = File::open(at("cut")).unwrap();
    fs::write(at("cut"), b"short").unwrap();
    assert_eq!(content(&reader), b"short");
    drop(open(&at("cut"), libc::O_RDONLY | libc::O_TRUNC));
    assert_eq!(content(&reader), b"");
    drop(reader);
    let reader = File::open(at("direct")).unwrap();
    let direct = open(&at("direct"), libc::O_DIRECT);
    let mut part = [0; 100];
    direct.read_exact_at(&mut part, 12_345).unwrap();
    assert_eq!(part[..], content(&reader)[12_345..12_445], "of any alignment");
    drop((reader, direct));
    place.unmount();
    assert_eq!(place.log(), "");
}

#[test]
fn a_map_that_is_left_of_a_closed_file_shows_later_writes() {
    let Some(place) = Place::new() else { return };
    fs::write(place.source.join("old"), bytes(200_000)).unwrap();
    if !mount(&place, &[]) {
        return;
    }
    fs::write(place.mount.join("new"), bytes(20_000)).unwrap();
    for name in ["old", "new"] {
        let path = place.mount.join(name);
        let map = Map::of(&File::open(&path).unwrap());
        for value in 0..3_u8 {
            let writer = open(&path, libc::O_RDWR);
            writer.write_all_at(&[value; 300_000], 0).unwrap();
            assert_eq!(map.first(), value, "{name}");
        }
        drop(map);
        let writer = open(&path, libc::O_RDWR);
        writer.write_all_at(b"engine", 1_000_000).unwrap();
        writer.sync_all().unwrap();
        assert_eq!(fs::metadata(place.source.join(name)).unwrap().len(), 1_000_006);
    }
    place.unmount();
    assert_eq!(place.log(), "");
}

#[test]
fn changes_of_the_source_are_seen_while_the_kernel_reads() {
    let Some(place) = Place::new() else { return };
    let at = |name: &str| place.source.join(name);
    for name in ["written", "cut", "replaced", "removed"] {
        fs::write(at(name), bytes(100_000)).unwrap();
    }
    if !mount(&place, &[]) {
        return;
    }
    let names = ["written", "cut", "replaced", "removed"];
    let [written, cut, replaced, removed] =
        names.map(|name| File::open(place.mount.join(name)).unwrap());
    let other = File::options().write(true).open(at("written")).unwrap();
    other.write_all_at(b"changed", 50_000).unwrap();
    assert_eq!(content(&written)[50_000..50_007], *b"changed");
    File::options().write(true).open(at("cut")).unwrap().set_len(10).unwrap();
    assert_eq!(content(&cut), bytes(100_000)[..10]);
    fs::write(at("next"), b"next").unwrap();
    fs::rename(at("next"), at("replaced")).unwrap();
    fs::remove_file(at("removed")).unwrap();
    for file in [&replaced, &removed] {
        assert!(content(file) == bytes(100_000), "the old file");
    }
    std::thread::sleep(EXPIRED);
    assert_eq!(fs::read(place.mount.join("replaced")).unwrap(), b"next");
    assert!(!place.mount.join("removed").exists());
    assert_eq!(cut.metadata().unwrap().len(), 10);
    // Likewise by names of the mount.
    fs::write(place.mount.join("next"), b"third").unwrap();
    let second = File::open(place.mount.join("replaced")).unwrap();
    let next = File::open(place.mount.join("next")).unwrap();
    fs::rename(place.mount.join("next"), place.mount.join("replaced")).unwrap();
    fs::remove_file(place.mount.join("cut")).unwrap();
    assert_eq!((content(&second), content(&next)), (b"next".to_vec(), b"third".to_vec()));
    assert_eq!(content(&cut), bytes(100_000)[..10]);
    assert_eq!(fs::read(place.mount.join("replaced")).unwrap(), b"third");
    drop((written, cut, replaced, removed, second, next, other));
    place.unmount();
    assert_eq!(place.log(), "");
}

#[test]
fn the_engine_has_a_file_again_once_the_kernel_has_read_it() {
    let Some(place) = Place::new() else { return };
    fs::write(place.source.join("file"), bytes(300_000)).unwrap();
    if !mount(&place, &[]) {
        return;
    }
    let path = place.mount.join("file");
    drop(File::open(&path).unwrap());
    let writer = open(&path, libc::O_RDWR);
    let reader = File::open(&path).unwrap();
    writer.write_all_at(b"unwritten", 7).unwrap();
    assert_eq!(content(&reader)[7..16], *b"unwritten");
    drop((writer, reader));
    assert_eq!(fs::read(&path).unwrap()[7..16], *b"unwritten");
    std::thread::sleep(SETTLED);
    let reader = File::open(&path).unwrap();
    let stopped = Stopped::new(&place);
    assert_eq!(content(&reader)[7..16], *b"unwritten", "the kernel again");
    drop((stopped, reader));
    place.unmount();
    assert_eq!(place.log(), "");
}

/// The kernel permits no mixture of ways, and no program may see that.
#[test]
fn no_open_fails_whatever_others_do_with_the_file() {
    let Some(place) = Place::new() else { return };
    for name in ["a", "b"] {
        fs::write(place.source.join(name), bytes(200_000)).unwrap();
    }
    if !mount(&place, &[]) {
        return;
    }
    let is_over = AtomicBool::new(false);
    let flags = [
        libc::O_RDONLY,
        libc::O_RDONLY,
        libc::O_RDONLY | libc::O_DIRECT,
        libc::O_RDWR,
        libc::O_WRONLY,
        libc::O_WRONLY | libc::O_TRUNC,
        libc::O_RDWR | libc::O_APPEND,
    ];
    std::thread::scope(|scope| {
        for (thread, flags) in flags.into_iter().enumerate() {
            let (place, is_over) = (&place, &is_over);
            scope.spawn(move || {
                let mut turn = thread;
                while !is_over.load(Ordering::Relaxed) {
                    turn += 1;
                    let file = open(&place.mount.join(["a", "b"][turn % 2]), flags);
                    let mut read = [0; 5000];
                    if flags & libc::O_ACCMODE != libc::O_WRONLY {
                        file.read_at(&mut read, 1000).unwrap();
                    }
                    if flags & libc::O_ACCMODE != libc::O_RDONLY {
                        file.write_at(&read, turn as u64 % 7 * 30_000).unwrap();
                    } else if turn % 3 == 0 && file.metadata().unwrap().len() >= 4096 {
                        drop(Map::of(&file));
                    }
                    if turn % 5 == 0 {
                        let other = open(&place.mount.join("a"), libc::O_RDONLY);
                        other.read_at(&mut read, 0).unwrap();
                    }
                    if turn % 11 == 0 {
                        std::thread::sleep(Duration::from_millis(3));
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_secs(6));
        is_over.store(true, Ordering::Relaxed);
    });
    fs::write(place.mount.join("a"), b"the end").unwrap();
    assert_eq!(fs::read(place.mount.join("a")).unwrap(), b"the end");
    place.unmount();
    assert_eq!(fs::read(place.source.join("a")).unwrap(), b"the end");
    assert_eq!(place.log(), "");
}

#[test]
fn a_mount_with_few_descriptors_has_no_other_error_than_that() {
    let Some(place) = Place::new() else { return };
    let limit = ["prlimit", "--nofile=300:300", "setpriv", "--bounding-set=-sys_resource", "--"];
    fs::write(place.source.join("file"), bytes(100_000)).unwrap();
    if !mount(&place, &limit) {
        return;
    }
    let path = place.mount.join("file");
    // All readers have one descriptor.
    let readers: Vec<_> = (0..400).map(|_| File::open(&path).unwrap()).collect();
    let mut writers = Vec::new();
    let error = loop {
        match File::options().read(true).write(true).open(&path) {
            Ok(file) => writers.push(file),
            Err(error) => break error,
        }
        assert!(writers.len() < 300, "there are not that many descriptors");
    };
    assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{error}");
    assert!(readers.iter().chain(&writers).all(|file| content(file) == bytes(100_000)));
    drop(writers);
    let begin = Instant::now();
    while File::options().write(true).open(&path).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(5), "the descriptors are free again");
    }
    drop(readers);
    fs::write(&path, b"written").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"written");
    place.unmount();
    assert_eq!(fs::read(place.source.join("file")).unwrap(), b"written");
}

/// Root of a user namespace may mount, and may not give files to the kernel, as an ordinary user.
#[test]
fn a_mount_without_the_right_reads_all_files_itself() {
    let Some(place) = Place::alone() else { return };
    fs::write(place.source.join("file"), bytes(200_000)).unwrap();
    let script = r#""$1" mount "$2" "$3" --background --log "$4" && cat "$3/file" > "$3/copy" &&
        cmp "$3/file" "$3/copy" && echo more >> "$3/file" && tail -c 5 "$3/file" &&
        "$1" unmount "$3""#;
    let log = place.directory.path().join("log");
    let words = [Path::new(FOREBAY), &place.source, &place.mount, &log];
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]).args(words);
    let output = command.output().unwrap();
    let (said, err) = (String::from_utf8_lossy(&output.stdout), output.stderr);
    let err = String::from_utf8_lossy(&err);
    if err.contains("unshare:") {
        eprintln!("skipped: no user namespaces here: {err}");
        return;
    }
    assert!(output.status.success(), "{said}\n{err}");
    assert!(said.contains("is mounted at") && !said.contains(PASSES), "{said}");
    assert!(said.ends_with("more\n"), "{said}");
    let source = fs::read(place.source.join("copy")).unwrap();
    assert!(source == bytes(200_000));
    assert_eq!(fs::metadata(place.source.join("file")).unwrap().size(), 200_005);
}
