//! Layout of files on real file systems: random writes into new files, streams that grow together,
//! and both with free space in pieces. Also the space that the engine reserves, its purpose and its
//! return; and the checksums of data in flight.

mod support;

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use forebay::{Engine, File, Options, Stats, inside};
use forebay_block::random::Random;
use forebay_uring::{Access, Create, How, Truncate};
use support::mount::{FileSystem, Mount};
use support::{MIB, PAGE, how, knobs, pattern, process};

const FILES: usize = 12;
const SOON: Duration = Duration::from_secs(60);

/// Extents of each of the files of a directory.
fn extents(directory: &Path) -> Vec<u64> {
    (0..FILES)
        .map(|number| look_at(&directory.join(number.to_string())).extents().unwrap().count)
        .collect()
}

fn look_at(path: &Path) -> forebay_uring::OpenFile {
    let how = How { access: Access::Read, create: Create::No, truncate: Truncate::Keep, mode: 0 };
    forebay_uring::OpenFile::open(path, &how).unwrap().file
}

/// Takes everything, and gives a quarter of it back in pieces of 16 to 128 KiB. That is more than
/// four times what the tests write, so no reservation is refused because space is scarce.
fn age(directory: &Path) {
    let path = directory.join("taken");
    let file = std::fs::File::create(&path).unwrap();
    let (mut taken, mut step) = (0, 64 * MIB);
    while step >= 64 * 1024 {
        match allocate(&file, libc::FALLOC_FL_KEEP_SIZE, taken, step) {
            Ok(()) => taken += step,
            Err(_) => step /= 2,
        }
    }
    let mut random = Random::new(7);
    let (mut at, mut given_back) = (0, 0);
    while at + MIB < taken && given_back < taken / 4 {
        let length = (1 + random.below(8)) * 16 * 1024;
        allocate(&file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, at, length)
            .unwrap();
        given_back += length;
        at += 256 * 1024;
    }
    // The free space that the file system had kept back is in one piece; now it may be taken, too.
    let how = How {
        access: Access::ReadWrite,
        create: Create::New,
        truncate: Truncate::Keep,
        mode: 0o600,
    };
    let rest = forebay_uring::OpenFile::open(&directory.join("rest"), &how).unwrap().file;
    let (mut end, mut in_pieces) = (0, 0);
    while in_pieces < 8 {
        rest.allocate(end, 256 * 1024).unwrap();
        in_pieces += u64::from(rest.pieces_of(end..end + 256 * 1024).unwrap().count > 1);
        end += 256 * 1024;
    }
    println!(
        "aged: {} of {} MiB free, in pieces",
        rest.free_bytes().unwrap() / MIB,
        (taken + end) / MIB
    );
}

fn allocate(
    file: &std::fs::File,
    flags: libc::c_int,
    offset: u64,
    length: u64,
) -> std::io::Result<()> {
    use std::os::fd::AsRawFd as _;
    // SAFETY: the descriptor is open during the call, which takes numbers.
    let result = unsafe {
        libc::fallocate(file.as_raw_fd(), flags, offset.cast_signed(), length.cast_signed())
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

fn engine() -> Engine {
    let mut options =
        Options { cache_bytes: Some(32 << 20), close_timeout: SOON, ..Options::default() };
    for (name, value) in other_knobs() {
        options.set(&name, &value).unwrap();
    }
    Engine::start(options).unwrap()
}

/// `FOREBAY_LAYOUT="prealloc=off ..."`: the same with other knobs.
fn other_knobs() -> Vec<(String, String)> {
    let reported = std::env::var("FOREBAY_LAYOUT").unwrap_or_default();
    reported
        .split_whitespace()
        .map(|knob| knob.split_once('=').unwrap())
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

fn open(engine: &Engine, directory: &Path) -> Vec<File> {
    (0..FILES)
        .map(|number| engine.open(directory.join(number.to_string()), &how::create()).unwrap())
        .collect()
}

fn done(files: Vec<File>) {
    for file in files {
        file.sync_data().unwrap();
        file.close().unwrap();
    }
}

/// Pages of all files in one random order, each written once.
fn random_pages(engine: &Engine, directory: &Path, pages: u64) {
    write_pages(engine, directory, &in_random_order(pages));
}

/// Numbers of pages of all files: page 0 of the first file, of the second one, and so on.
fn in_random_order(pages: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..pages * FILES as u64).collect();
    let mut random = Random::new(1);
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    order
}

fn write_pages(engine: &Engine, directory: &Path, order: &[u64]) {
    let files = open(engine, directory);
    for page in order {
        let (file, page) = (&files[(page % FILES as u64) as usize], page / FILES as u64);
        file.write_at(&pattern(page, PAGE as usize), page * PAGE).unwrap();
    }
    done(files);
}

/// Streams of `bytes` bytes that grow together.
fn streams(engine: &Engine, directory: &Path, bytes: u64) {
    let files = open(engine, directory);
    let data = pattern(3, 128 * 1024);
    for _ in 0..bytes / data.len() as u64 {
        for file in &files {
            file.append(&data).unwrap();
        }
    }
    done(files);
}

fn reported(what: &str, extents: &[u64], stats: &Stats) {
    let sum: u64 = extents.iter().sum();
    println!(
        "{what}: {sum} extents in all, {} at most; {} MiB reserved, {} requests, written / accepted {:.2}",
        extents.iter().max().unwrap(),
        stats.reserved_bytes / MIB,
        stats.requests,
        stats.written_bytes as f64 / stats.accepted_bytes as f64,
    );
}

/// State of the file system before the test writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Space {
    Whole(FileSystem),
    /// XFS, nearly full, with its free space in pieces.
    InPieces,
}

fn lies_in(what: &str, space: Space, most: u64, write: impl Fn(&Engine, &Path)) {
    let file_system =
        if let Space::Whole(file_system) = space { file_system } else { FileSystem::Xfs };
    let Some(mount) = Mount::new(what, file_system, 2048 * MIB) else { return };
    if space == Space::InPieces {
        age(&mount.path());
    }
    let engine = engine();
    write(&engine, &mount.path());
    let (found, stats) = (extents(&mount.path()), engine.stats());
    drop(engine);
    reported(what, &found, &stats);
    assert!(
        found.iter().all(|count| *count <= most) || !other_knobs().is_empty(),
        "{what}: {found:?}"
    );
}

#[test]
fn random_pages_of_new_files_lie_in_few_pieces() {
    lies_in("random pages", Space::Whole(FileSystem::Xfs), 4, |engine, path| {
        random_pages(engine, path, 4096);
        assert!(
            engine.stats().reserved_dense_bytes > 0 || !other_knobs().is_empty(),
            "{:?}",
            engine.stats()
        );
    });
}

/// While the space of all other files is allocated, nothing else can be written than the last one,
/// which has too few pages to get space as a whole.
#[test]
fn a_file_that_begins_late_lies_in_few_pieces() {
    lies_in("a late file", Space::Whole(FileSystem::Xfs), 4, |engine, path| {
        // It would be written for its age.
        engine.set_options(Options { dirty_age: SOON, ..engine.options() }).unwrap();
        let (mut few, last) = (0, FILES as u64 - 1);
        let (first, later): (Vec<u64>, Vec<u64>) =
            in_random_order(4096).into_iter().partition(|page| {
                few += u64::from(page % FILES as u64 == last);
                page % FILES as u64 != last || few <= 20
            });
        write_pages(engine, path, &[first, later].concat());
    });
}

#[test]
fn streams_that_grow_together_lie_in_few_pieces() {
    lies_in("streams", Space::Whole(FileSystem::Xfs), 24, |engine, path| {
        streams(engine, path, 16 * MIB);
        assert!(
            engine.stats().reserved_stream_bytes > 0 || !other_knobs().is_empty(),
            "{:?}",
            engine.stats()
        );
    });
}

#[test]
fn random_pages_of_new_files_lie_in_few_pieces_on_ext4() {
    lies_in("random pages, ext4", Space::Whole(FileSystem::Ext4), 16, |engine, path| {
        random_pages(engine, path, 1024);
    });
}

/// btrfs writes a page for the second time to another place, so a file has more than one piece, but
/// never one piece per page.
#[test]
fn random_pages_of_new_files_lie_in_few_pieces_on_btrfs() {
    lies_in("random pages, btrfs", Space::Whole(FileSystem::Btrfs), 900, |engine, path| {
        random_pages(engine, path, 1024);
    });
}

#[test]
fn random_pages_of_files_that_are_one_hole_lie_in_few_pieces() {
    lies_in("random pages, holes", Space::Whole(FileSystem::Xfs), 4, |engine, path| {
        for number in 0..FILES {
            let file = std::fs::File::create(path.join(number.to_string())).unwrap();
            file.set_len(4096 * PAGE).unwrap();
        }
        random_pages(engine, path, 4096);
        let stats = engine.stats();
        assert!(stats.reserved_bytes > 0 || !other_knobs().is_empty(), "{stats:?}");
    });
}

/// In the holes of a sparse file, reserved space to which no data came is given back, unless some
/// was there before. Space of the user is not.
#[test]
fn contract_09_a_sparse_file_stays_sparse_and_space_of_the_user_stays() {
    let Some(mount) = Mount::new("sparse", FileSystem::Xfs, 2048 * MIB) else { return };
    let (sparse, users) = (mount.path().join("sparse"), mount.path().join("users"));
    for path in [&sparse, &users] {
        std::fs::File::create(path).unwrap().set_len(64 * MIB).unwrap();
    }
    support::preallocate(&users, 0, 64 * MIB);
    let engine = engine();
    let data = pattern(1, PAGE as usize);
    for (path, start) in [(&sparse, 0), (&users, 0), (&sparse, 16 * MIB), (&users, 16 * MIB)] {
        let reserved = engine.stats().reserved_bytes;
        let file = engine.open(path, &how::write()).unwrap();
        // Every other page of 4 MiB, which is an eighth of a region.
        for page in (1..1024).rev().step_by(2) {
            file.write_at(&data, start + page * PAGE).unwrap();
        }
        // Too little for a reservation.
        file.write_at(&data, 48 * MIB).unwrap();
        file.sync_data().unwrap();
        assert_eq!(engine.stats().reserved_bytes > reserved, path == &sparse, "{start}");
        for page in 0..1024 {
            let mut read = vec![1; PAGE as usize];
            assert_eq!(file.read_at(&mut read, start + page * PAGE).unwrap(), read.len());
            let is_data = page % 2 == 1;
            assert!(read.iter().zip(&data).all(|(read, data)| *read == u8::from(is_data) * data));
        }
        file.close().unwrap();
    }
    assert!(support::allocated(&sparse) <= 21 * MIB, "{} bytes", support::allocated(&sparse));
    assert!(support::allocated(&users) >= 64 * MIB, "{} bytes", support::allocated(&users));
    for path in [&sparse, &users] {
        assert_eq!(std::fs::metadata(path).unwrap().len(), 64 * MIB);
        assert_eq!(support::mark(path), None);
        let read = std::fs::read(path).unwrap();
        for page in 0..64 * MIB / PAGE {
            let is_data = page % 2 == 1 && page % 4096 < 1024 && page < 8192 || page == 12288;
            let read = &read[(page * PAGE) as usize..][..PAGE as usize];
            assert!(
                if is_data { read == data } else { read.iter().all(|byte| *byte == 0) },
                "{page}"
            );
        }
    }
}

/// Data that another program wrote into a hole, or into space without data, and that is still in
/// the kernel's cache.
#[test]
fn data_that_the_kernel_has_not_written_yet_is_no_hole() {
    use std::os::unix::fs::FileExt as _;

    for file_system in [FileSystem::Xfs, FileSystem::Ext4Journal, FileSystem::Btrfs] {
        let Some(mount) = Mount::new("unwritten", file_system, 2048 * MIB) else { continue };
        let engine = engine();
        for is_allocated in [false, true] {
            let path = mount.path().join(is_allocated.to_string());
            let other = std::fs::File::create(&path).unwrap();
            other.set_len(8 * MIB).unwrap();
            if is_allocated {
                support::preallocate(&path, 0, 8 * MIB);
            }
            other.write_all_at(&[7; 5000], 3 * MIB + 100).unwrap();
            drop(other);
            let file = engine.open(&path, &how::write()).unwrap();
            // A part of a page, so the rest comes from the file.
            file.write_at(&[9; 10], 3 * MIB + 200).unwrap();
            let mut expected = vec![0; 8 * MIB as usize];
            expected[3 * MIB as usize + 100..][..5000].fill(7);
            expected[3 * MIB as usize + 200..][..10].fill(9);
            let mut read = vec![1; expected.len()];
            assert_eq!(file.read_at(&mut read, 0).unwrap(), read.len());
            assert!(read == expected, "{file_system:?}, {is_allocated}: as the engine reads it");
            file.close().unwrap();
            let is_same = std::fs::read(&path).unwrap() == expected;
            assert!(is_same, "{file_system:?}, {is_allocated}: after the close");
        }
    }
}

#[test]
fn a_declared_length_is_reserved_in_parts_where_free_space_is_in_pieces() {
    let Some(mount) = Mount::new("declared_in_pieces", FileSystem::Xfs, 2048 * MIB) else { return };
    age(&mount.path());
    let engine = Engine::start(Options {
        cache_bytes: Some(8 << 20),
        close_timeout: SOON,
        ..Options::default()
    })
    .unwrap();
    let mut before = 0;
    for (name, length, least, most) in [("first", 16 * MIB, 16, 16), ("second", 32 * MIB, 2, 16)] {
        let file = engine.open(mount.path().join(name), &how::create()).unwrap();
        file.set_len(length).unwrap();
        file.write_at(&pattern(1, 2 << 20), 0).unwrap();
        file.sync_data().unwrap();
        let stats = engine.stats();
        let reserved = stats.reserved_declared_bytes - before;
        println!(
            "{name}: {} of {} MiB reserved, {:?}",
            reserved / MIB,
            length / MIB,
            inside::layout(&file).unwrap()
        );
        assert!((least * MIB..=most * MIB).contains(&reserved), "{name}: {stats:?}");
        before = stats.reserved_declared_bytes;
        file.close().unwrap();
    }
}

/// No file has many more pieces than the pieces of free space that it takes.
#[test]
fn random_pages_where_free_space_is_in_pieces() {
    lies_in("random pages, aged", Space::InPieces, 3 * 4 * MIB / (72 * 1024), |engine, path| {
        random_pages(engine, path, 1024);
    });
}

#[test]
fn streams_where_free_space_is_in_pieces() {
    lies_in("streams, aged", Space::InPieces, 3 * 4 * MIB / (72 * 1024), |engine, path| {
        streams(engine, path, 4 * MIB);
    });
}

#[test]
fn contract_09_a_fixed_amount_is_reserved_ahead_and_given_back() {
    let directory = support::directory();
    let path = directory.path().join("stream");
    let engine = Engine::start(knobs::named(
        Options {
            cache_bytes: Some(8 << 20),
            background_bytes: Some(1 << 20),
            close_timeout: SOON,
            ..Options::default()
        },
        [("prealloc", "4m")],
    ))
    .unwrap();
    let file = engine.open(&path, &how::create()).unwrap();
    let mut most = 0;
    for chunk in 0..256u64 {
        file.append(&pattern(chunk, 64 * 1024)).unwrap();
        // The reserved bytes count from the end on disk, which trails the file's end by the dirty
        // bytes.
        most = most.max(inside::layout(&file).unwrap().reserved_bytes);
        assert!(most <= 4 * MIB + (8 << 20), "{most} bytes beyond the end");
    }
    // If the end has just reached the reserved space, no space is left to give back.
    while {
        file.sync_data().unwrap();
        inside::layout(&file).unwrap().reserved_bytes == 0
    } {
        file.append(&pattern(0, 64 * 1024)).unwrap();
    }
    let length = file.len().unwrap();
    let stats = engine.stats();
    assert!(most >= 4 * MIB, "{most} bytes at most, {stats:?}");
    let parts =
        stats.reserved_dense_bytes + stats.reserved_stream_bytes + stats.reserved_declared_bytes;
    assert_eq!(stats.reserved_bytes, parts, "{stats:?}");
    file.close().unwrap();
    assert!(
        support::allocated(&path) <= length + 128 * 1024,
        "{} bytes",
        support::allocated(&path)
    );
    assert_eq!(support::mark(&path), None);
    assert!(engine.stats().given_back_bytes > 0);
}

#[test]
fn space_for_writes_near_the_end_of_it_is_distinguished() {
    let Some(mount) = Mount::new("scarce", FileSystem::Xfs, 2048 * MIB) else { return };
    let taken = mount.path().join("taken");
    std::fs::File::create(&taken).unwrap();
    let free = look_at(&taken).free_bytes().unwrap();
    support::preallocate(&taken, 0, free - 24 * MIB);
    let engine = Engine::start(Options {
        cache_bytes: Some(16 << 20),
        close_timeout: SOON,
        ..Options::default()
    })
    .unwrap();
    let file = engine.open(mount.path().join("file"), &how::create()).unwrap();
    file.write_at(&pattern(1, 10 << 20), 0).unwrap();
    file.sync_data().unwrap();
    let stats = engine.stats();
    assert!(stats.reserved_scarce_bytes > 0, "{stats:?}");
    file.close().unwrap();
}

#[test]
fn pieces_are_places_and_not_states() {
    let Some(mount) = Mount::new("pieces", FileSystem::Xfs, 2048 * MIB) else { return };
    let how = How {
        access: Access::ReadWrite,
        create: Create::New,
        truncate: Truncate::Keep,
        mode: 0o600,
    };
    let open =
        |name: &str| forebay_uring::OpenFile::open(&mount.path().join(name), &how).unwrap().file;
    let file = open("whole");
    file.allocate(0, 4 * MIB).unwrap();
    file.set_direct(forebay_uring::Mode::Buffered).unwrap();
    file.write_all_at(&[1; 4096], 2 * MIB).unwrap();
    assert_eq!(file.extents().unwrap().count, 3, "reserved, written, reserved");
    let found = file.pieces_of(0..4 * MIB).unwrap();
    assert_eq!((found.count, found.bytes), (1, 4 * MIB));
    let found = file.pieces_of(MIB..2 * MIB).unwrap();
    assert_eq!((found.count, found.bytes), (1, MIB));
    assert_eq!(file.pieces_of(8 * MIB..9 * MIB).unwrap().count, 0);
    age(&mount.path());
    let file = open("in pieces");
    file.allocate(0, 4 * MIB).unwrap();
    let found = file.pieces_of(0..4 * MIB).unwrap();
    assert!(found.count >= 4 && found.bytes <= 4 * MIB, "{found:?}");
}

/// A file system with checksums computes the sum when it receives a page, and writes the page
/// later. A frame that changed in between would read as damaged.
#[test]
fn contract_11_what_is_rewritten_while_it_is_written_keeps_its_checksums() {
    let Some(mut mount) = Mount::new("checksums", FileSystem::Btrfs, 512 * MIB) else { return };
    const PAGES: u64 = 256;
    const WRITERS: u64 = 4;
    let path = mount.path().join("rewritten");
    let engine = Engine::start(Options {
        cache_bytes: Some(8 << 20),
        background_bytes: Some(0),
        close_timeout: SOON,
        dirty_age: Duration::from_millis(1),
        ..Options::default()
    })
    .unwrap();
    let file = engine.open(&path, &how::create()).unwrap();
    let seed = support::seed();
    let versions: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let file = &file;
                scope.spawn(move || {
                    let mut random = Random::new(seed ^ writer);
                    let mut last = vec![0; (PAGES / WRITERS) as usize];
                    for version in 1..=4000u64 {
                        let at = random.below(PAGES / WRITERS);
                        let page = at * WRITERS + writer;
                        file.write_at(&pattern(version << 20 | page, PAGE as usize), page * PAGE)
                            .unwrap();
                        last[at as usize] = version;
                        if version % 500 == 0 {
                            file.sync_data().unwrap();
                        }
                    }
                    last
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    file.sync_data().unwrap();
    file.close().unwrap();
    let stats = engine.stats();
    assert!(
        stats.written_bytes > 4 * PAGES * PAGE,
        "pages were written again and again: {stats:?}"
    );
    drop(engine);
    mount.reboot();
    let found = std::fs::read(&path).unwrap();
    for (writer, last) in versions.iter().enumerate() {
        for (at, version) in last.iter().enumerate().filter(|(_, version)| **version > 0) {
            let page = at as u64 * WRITERS + writer as u64;
            let bytes = &found[(page * PAGE) as usize..][..PAGE as usize];
            assert!(bytes == pattern(version << 20 | page, PAGE as usize), "page {page}");
        }
    }
    let root = mount.path();
    let ask = |words: [&str; 3]| {
        let words = words.map(OsStr::new);
        process::run("btrfs", &[&words[..], &[root.as_os_str()]].concat()).unwrap()
    };
    println!("{}", ask(["scrub", "start", "-B"]));
    println!("{}", ask(["device", "stats", "--check"]));
}
