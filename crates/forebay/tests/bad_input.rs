//! What users do wrong, and what goes wrong around them: each has an answer that says what it is, in time, and what
//! was accepted before it stays.

mod support;

use std::ffi::CString;
use std::future::Future;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use forebay::{Engine, ErrorKind, File, Open};
use support::mount::{FileSystem, Loop, Memory, Mount};
use support::{MIB, PAGE, Random, eventually, process, skip, within};

/// What nothing here may take longer than.
const SOON: Duration = Duration::from_secs(10);

fn small_engine() -> Engine {
    Engine::builder().cache_bytes(8 << 20).close_timeout(SOON).build().unwrap()
}

/// A pattern that tells where a byte belongs.
fn pattern(salt: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (support::mix(salt ^ (at / 8)) >> (8 * (at % 8))) as u8).collect()
}

fn kind_of<T>(result: forebay::Result<T>) -> ErrorKind {
    match result {
        Ok(_) => panic!("it was served"),
        Err(error) => {
            println!("{error}");
            error.kind()
        }
    }
}

// No space

/// Writes until there is no space; what was accepted is all there after a sync.
fn write_until_full(mount: &Mount, chunk: usize, scatter: bool) {
    let engine = Engine::builder().cache_bytes(32 << 20).close_timeout(SOON).build().unwrap();
    let path = mount.path().join("file");
    let file = engine.open(&path, Open::create()).unwrap();
    let mut random = Random(7);
    let mut accepted: Vec<(u64, u64)> = Vec::new();
    let error = loop {
        let number = accepted.len() as u64;
        assert!(number * chunk as u64 <= 80 * MIB, "80 MiB accepted on a file system of 64 MiB");
        // Scattered: each chunk in a block of its own of a sparse file; each is written once.
        let place = if scatter { number * 2 + random.below(2) } else { number };
        let offset = place * chunk as u64;
        match file.write_at(&pattern(number, chunk), offset) {
            Ok(()) => accepted.push((offset, number)),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(error.to_string().contains("free space"), "no remedy: {error}");
    let bytes = accepted.len() * chunk;
    println!("{bytes} bytes accepted");
    assert!(bytes as u64 > 30 * MIB, "only {bytes} bytes accepted on a file system of 64 MiB");
    file.sync_data().unwrap_or_else(|error| panic!("what was accepted has no place: {error}"));
    let found = std::fs::read(&path).unwrap();
    for (offset, number) in accepted.iter().copied() {
        let range = offset as usize..offset as usize + chunk;
        assert!(found[range] == pattern(number, chunk), "the chunk at {offset} is lost");
    }
    // What is there can be changed, for that needs no space.
    file.write_at(&[1; 4096], accepted[0].0).unwrap();
    file.sync_data().unwrap();
    file.close().unwrap();
}

#[test]
fn contract_09_no_space_is_told_at_the_write() {
    if let Some(mount) = Mount::new("no_space_is_told", FileSystem::Ext4, 64 * MIB) {
        within(Duration::from_secs(60), "writing until full", move || write_until_full(&mount, 65536, false));
    }
}

#[test]
fn contract_09_no_space_is_told_at_the_write_of_small_pieces() {
    if let Some(mount) = Mount::new("no_space_is_told_small", FileSystem::Ext4, 64 * MIB) {
        within(Duration::from_secs(60), "writing until full", move || write_until_full(&mount, 5000, false));
    }
}

#[test]
fn contract_09_no_space_is_told_at_the_write_of_a_sparse_file() {
    if let Some(mount) = Mount::new("no_space_is_told_sparse", FileSystem::Ext4, 64 * MIB) {
        within(Duration::from_secs(60), "writing until full", move || write_until_full(&mount, 4096, true));
    }
}

#[test]
fn contract_09_a_write_larger_than_all_space_is_refused_whole() {
    let Some(mount) = Mount::new("larger_than_all_space", FileSystem::Ext4, 64 * MIB) else { return };
    let path = mount.path().join("file");
    let engine = small_engine();
    let file = engine.open(&path, Open::create()).unwrap();
    let data = vec![1; 80 << 20];
    assert_eq!(kind_of(file.write_at(&data, 0)), ErrorKind::NoSpace);
    assert_eq!(kind_of(file.append(&data)), ErrorKind::NoSpace);
    assert_eq!(file.len(), 0, "a part was accepted");
    assert_eq!(file.append(&data[..1 << 20]).unwrap(), 0);
    file.close().unwrap();
    assert_eq!(support::allocated(&path) >> 20, 1);
}

/// Another program takes the last block after a write was accepted: the sync fails, nothing is lost, and once there
/// is space again the same sync goes well.
#[test]
fn contract_02_space_taken_by_others_fails_the_sync_and_comes_back() {
    let Some(mount) = Mount::new("space_taken_by_others", FileSystem::Ext4, 64 * MIB) else { return };
    let engine = Engine::builder().cache_bytes(16 << 20).dirty_age(SOON).close_timeout(SOON).build().unwrap();
    let path = mount.path().join("file");
    let file = engine.open(&path, Open::create()).unwrap();
    let data = pattern(3, 3_000_000);
    file.write_at(&data, 0).unwrap();
    let filler = process::fill_up(&mount.path());
    let error = file.sync_data().unwrap_err();
    assert_eq!((error.kind(), error.os_error()), (ErrorKind::Io, Some(libc::ENOSPC)), "{error}");
    assert!(error.to_string().contains("free space"), "no remedy: {error}");
    let mut through = vec![0; data.len()];
    assert_eq!(file.read_at(&mut through, 0).unwrap(), data.len());
    assert!(through == data, "the page that could not be written changed");
    std::fs::remove_file(filler).unwrap();
    file.sync_data().unwrap();
    assert!(std::fs::read(&path).unwrap() == data);
    file.close().unwrap();
}

/// Closing a file of which some pages have no place writes out all the others.
#[test]
fn contract_05_closing_writes_out_what_can_be_written() {
    let Some(mount) = Mount::new("closing_writes_what_can_be", FileSystem::Ext4, 64 * MIB) else { return };
    let engine = Engine::builder().cache_bytes(32 << 20).dirty_age(SOON).close_timeout(SOON).build().unwrap();
    let path = mount.path().join("file");
    // A hole first, and then old blocks: what has no place comes before what has.
    let half = 8 * MIB;
    let old = std::fs::File::create(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&old, &vec![1; half as usize], half).unwrap();
    drop(old);
    let file = engine.open(&path, Open::write()).unwrap();
    for at in 0..2 * half / 65536 {
        file.write_at(&[3; 8192], at * 65536).unwrap();
    }
    process::fill_up(&mount.path());
    let error = file.close().unwrap_err();
    assert_eq!(error.os_error(), Some(libc::ENOSPC), "{error}");
    let found = std::fs::read(&path).unwrap();
    let overwrites = half as usize / 65536..2 * half as usize / 65536;
    let lost = overwrites.clone().filter(|at| found[at * 65536] != 3).count();
    assert_eq!(lost, 0, "overwrites of {} old blocks", overwrites.len());
}

// Files that are not what was hoped for

#[test]
fn a_file_that_cannot_be_made_says_why() {
    let engine = small_engine();
    let directory = support::directory();
    let missing = directory.path().join("missing/file");
    for open in [Open::read(), Open::write(), Open::create(), Open::create_new(), Open::append()] {
        let error = engine.open(&missing, open).unwrap_err();
        assert_eq!((error.kind(), error.os_error()), (ErrorKind::Open, Some(libc::ENOENT)), "{error}");
        assert!(error.to_string().contains("missing/file"), "{error}");
    }
    let there = directory.path().join("there");
    std::fs::write(&there, b"x").unwrap();
    let error = engine.open(&there, Open::create_new()).unwrap_err();
    assert_eq!(error.os_error(), Some(libc::EEXIST), "{error}");
    let held = engine.open(&there, Open::write()).unwrap();
    let error = engine.open(&there, Open::create_new()).unwrap_err();
    assert_eq!(error.os_error(), Some(libc::EEXIST), "{error}");
    let under_a_file = engine.open(there.join("file"), Open::create()).unwrap_err();
    assert_eq!(under_a_file.os_error(), Some(libc::ENOTDIR), "{under_a_file}");
    held.close().unwrap();
    assert_eq!(std::fs::read(&there).unwrap(), b"x");
}

#[test]
fn a_directory_without_permission_says_so() {
    if support::is_root() {
        return skip("directory_without_permission", "root has every permission");
    }
    let directory = support::directory();
    process::shell("chmod 555 \"$1\"", directory.path()).unwrap();
    let error = small_engine().open(directory.path().join("file"), Open::create()).unwrap_err();
    assert_eq!((error.kind(), error.os_error()), (ErrorKind::Open, Some(libc::EACCES)), "{error}");
}

#[test]
fn a_read_only_file_system_is_read_and_not_written() {
    let Some(mount) = Mount::new("read_only_file_system", FileSystem::Ext4, 32 * MIB) else { return };
    let path = mount.path().join("file");
    std::fs::write(&path, pattern(1, 10_000)).unwrap();
    mount.make_read_only();
    let engine = small_engine();
    for open in [Open::write(), Open::create(), Open::append()] {
        let error = engine.open(&path, open).unwrap_err();
        assert_eq!((error.kind(), error.os_error()), (ErrorKind::Open, Some(libc::EROFS)), "{error}");
    }
    let file = engine.open(&path, Open::read()).unwrap();
    let mut buffer = vec![0; 20_000];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 10_000);
    assert!(buffer[..10_000] == pattern(1, 10_000));
    assert_eq!(kind_of(engine.open(&path, Open::write())), ErrorKind::NotPermitted);
    assert_eq!(kind_of(engine.open(&path, Open::read().truncate(true))), ErrorKind::InvalidInput);
    file.close().unwrap();
}

#[test]
fn a_directory_that_vanishes_takes_no_data_along() {
    let engine = small_engine();
    let directory = support::directory();
    let inner = directory.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let path = inner.join("file");
    let file = engine.open(&path, Open::create()).unwrap();
    file.write_at(&pattern(1, 100_000), 0).unwrap();
    process::shell("rm -r \"$1\"", &inner).unwrap();
    // The open file lives on without a name; its bytes can still be read.
    file.sync_data().unwrap();
    let mut buffer = vec![0; 100_000];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 100_000);
    assert!(buffer == pattern(1, 100_000));
    file.close().unwrap();
    let error = engine.open(&path, Open::create()).unwrap_err();
    assert_eq!(error.os_error(), Some(libc::ENOENT), "{error}");
}

#[test]
fn what_is_no_regular_file_is_unsupported() {
    let engine = small_engine();
    let directory = support::directory();
    let fifo = directory.path().join("fifo");
    let name = CString::new(fifo.as_os_str().as_bytes()).unwrap();
    // SAFETY: the name ends in zero.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let others = [directory.path(), &fifo, Path::new("/dev/null"), Path::new("/dev/zero")];
    for path in others {
        for open in [Open::read(), Open::write(), Open::create(), Open::append()] {
            let (engine, at, what) = (engine.clone(), path.to_owned(), format!("{path:?}, {open:?}"));
            let kind = within(SOON, "opening no regular file", move || kind_of(engine.open(at, open)));
            assert_eq!(kind, ErrorKind::Unsupported, "{what}");
        }
    }
}

#[test]
fn a_block_device_is_unsupported() {
    let directory = support::directory();
    let image = directory.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(MIB).unwrap();
    if !support::is_root() {
        return skip("block_device", "only root has a block device to spare");
    }
    let device = match Loop::attach(&image) {
        Ok(device) => device,
        Err(error) => return skip("block_device", &error),
    };
    for open in [Open::read(), Open::write(), Open::create()] {
        assert_eq!(kind_of(small_engine().open(&device.0, open)), ErrorKind::Unsupported);
    }
}

#[test]
fn contract_06_a_second_engine_is_told_that_the_file_is_busy() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let (one, two) = (small_engine(), small_engine());
    let file = one.open(&path, Open::create()).unwrap();
    file.write_at(&pattern(1, 50_000), 0).unwrap();
    assert_eq!(kind_of(two.open(&path, Open::write())), ErrorKind::Busy);
    // The first one is not harmed by the other's try.
    file.write_at(&pattern(2, 50_000), 50_000).unwrap();
    file.sync_data().unwrap();
    let found = std::fs::read(&path).unwrap();
    assert!(found[..50_000] == pattern(1, 50_000) && found[50_000..] == pattern(2, 50_000));
    file.close().unwrap();
    let mut opened = None;
    assert!(eventually(SOON, || two.open(&path, Open::write()).is_ok()), "the lock outlives the close");
    opened.get_or_insert_with(|| two.open(&path, Open::write()).unwrap()).sync_data().unwrap();
}

#[test]
fn a_handle_does_only_what_it_was_opened_for() {
    let directory = support::directory();
    let path = directory.path().join("file");
    std::fs::write(&path, b"content").unwrap();
    let engine = small_engine();
    let reading = engine.open(&path, Open::read()).unwrap();
    assert_eq!(kind_of(reading.write_at(b"x", 0)), ErrorKind::NotPermitted);
    assert_eq!(kind_of(reading.append(b"x")), ErrorKind::NotPermitted);
    assert_eq!(kind_of(reading.set_len(0)), ErrorKind::NotPermitted);
    let appending = engine.open(&path, Open::append()).unwrap();
    assert_eq!(kind_of(appending.write_at(b"x", 0)), ErrorKind::NotPermitted);
    assert_eq!(appending.append(b"!").unwrap(), 7);
    appending.sync_data().unwrap();
    let mut buffer = [0; 20];
    assert_eq!(reading.read_at(&mut buffer, 0).unwrap(), 8);
    assert_eq!(&buffer[..8], b"content!");
    reading.sync_data().unwrap();
    drop((reading, appending));
    assert!(eventually(SOON, || std::fs::read(&path).unwrap() == b"content!"));
}

#[test]
fn a_reader_cannot_cut_the_file_by_opening_it() {
    let directory = support::directory();
    let path = directory.path().join("file");
    std::fs::write(&path, b"content").unwrap();
    let engine = small_engine();
    assert_eq!(kind_of(engine.open(&path, Open::read().truncate(true))), ErrorKind::InvalidInput);
    assert_eq!(std::fs::read(&path).unwrap(), b"content");
    let cut = engine.open(&path, Open::write().truncate(true)).unwrap();
    assert!(cut.is_empty());
    cut.close().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"");
}

#[test]
fn offsets_no_file_can_have_are_refused_and_nothing_is_accepted() {
    let directory = support::directory();
    let engine = small_engine();
    let file = engine.open(directory.path().join("file"), Open::create()).unwrap();
    file.write_at(b"start", 0).unwrap();
    let near = i64::MAX as u64;
    for offset in [u64::MAX, u64::MAX - 3, 1 << 63, near, near - 1, near - PAGE, near - 2 * PAGE] {
        assert_eq!(kind_of(file.write_at(&[1; 8192], offset)), ErrorKind::InvalidInput, "{offset}");
        assert_eq!(file.read_at(&mut [0; 100], offset).unwrap(), 0, "{offset}");
    }
    for length in [u64::MAX, 1 << 63, near] {
        assert_eq!(kind_of(file.set_len(length)), ErrorKind::InvalidInput, "{length}");
    }
    assert_eq!(file.len(), 5);
    file.sync_data().unwrap();
    file.close().unwrap();
}

/// The largest length the file system allows, by asking it.
fn largest_offset(path: &Path) -> u64 {
    use std::io::{Seek as _, SeekFrom};
    let mut file = std::fs::File::open(path).unwrap();
    let (mut possible, mut impossible) = (0, i64::MAX as u64);
    while impossible - possible > 1 {
        let middle = possible + (impossible - possible) / 2;
        match file.seek(SeekFrom::Start(middle)) {
            Ok(_) => possible = middle,
            Err(_) => impossible = middle,
        }
    }
    possible
}

#[test]
fn contract_08_beyond_what_ext4_can_hold_is_refused_and_nothing_is_accepted() {
    let Some(mount) = Mount::new("beyond_what_ext4_can_hold", FileSystem::Ext4, 64 * MIB) else { return };
    let engine = small_engine();
    let path = mount.path().join("file");
    let file = engine.open(&path, Open::create()).unwrap();
    // With blocks of 4 KiB it is 16 TiB, less one block; small file systems have smaller ones.
    let limit = largest_offset(&path);
    assert!(limit < 16 << 40, "{limit}");
    for offset in [limit, limit - 1, 16 << 40, 17 << 40, 1 << 50, 1 << 62] {
        assert_eq!(kind_of(file.write_at(&[1; 2], offset)), ErrorKind::InvalidInput, "{offset}");
    }
    assert_eq!(kind_of(file.set_len(limit + 1)), ErrorKind::InvalidInput);
    assert_eq!(file.len(), 0);
    // The last byte there can be.
    file.write_at(&[9], limit - 1).unwrap();
    assert_eq!(kind_of(file.append(&[1])), ErrorKind::InvalidInput);
    file.sync_data().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), limit);
    file.close().unwrap();
}

#[test]
fn knobs_out_of_range_are_refused_with_the_range() {
    for bytes in [0, 1, 4096, (8 << 20) - 1, u64::MAX] {
        let error = Engine::builder().cache_bytes(bytes).build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(
            error.to_string().contains("cache_bytes") && error.to_string().contains("8388608"),
            "{error}"
        );
    }
    let wrong = [
        Engine::builder().cache_bytes(8 << 20).dirty_bytes(8 << 20),
        Engine::builder().dirty_bytes(0),
        Engine::builder().cache_bytes(64 << 20).dirty_bytes(8 << 20).background_bytes(9 << 20),
        Engine::builder().dirty_age(Duration::ZERO),
    ];
    for builder in wrong {
        assert_eq!(kind_of(builder.build()), ErrorKind::InvalidInput);
    }
    for (key, value) in [("cash", "1"), ("cache_bytes", "-1"), ("flight", "many"), ("dirty_age", "3")] {
        assert_eq!(kind_of(Engine::builder().set(key, value)), ErrorKind::InvalidInput, "{key} = {value}");
    }
}

// Other programs

/// Waits until all is written, as seen by another program.
fn other_program_sees(path: &Path, expected: &[u8]) {
    let (sum, took) = process::shell_timed("cksum <\"$1\"", path);
    let copy = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(copy.path(), expected).unwrap();
    assert_eq!(sum, process::shell("cksum <\"$1\"", copy.path()).unwrap(), "{path:?} as others see it");
    assert!(took < Duration::from_secs(2), "the other program was held back for {took:?}");
}

#[test]
fn contract_06_another_program_goes_on_soon_and_sees_what_was_written() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = Engine::builder().cache_bytes(32 << 20).dirty_age(SOON).close_timeout(SOON).build().unwrap();
    let file = engine.open(&path, Open::create()).unwrap();
    let mut data = pattern(1, 8 << 20);
    file.write_at(&data, 0).unwrap();
    assert!(!file.describe().contains("shared"), "{}", file.describe());
    // Opening breaks the lease, which writes out: even without a sync it sees all of it.
    other_program_sees(&path, &data);
    assert!(file.describe().contains("shared"), "{}", file.describe());
    // From then on it sees what was synced.
    file.write_at(&pattern(2, 10_000), 5).unwrap();
    data[5..10_005].copy_from_slice(&pattern(2, 10_000));
    file.sync_data().unwrap();
    other_program_sees(&path, &data);
    // And we see what it wrote, in pages that are not dirty here.
    process::shell("printf changed | dd of=\"$1\" bs=1 seek=4000000 conv=notrunc 2>/dev/null", &path)
        .unwrap();
    let mut seen = [0; 7];
    file.read_at(&mut seen, 4_000_000).unwrap();
    assert_eq!(&seen, b"changed");
    file.close().unwrap();
}

#[test]
fn contract_06_a_file_cut_by_another_program() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = small_engine();
    let file = engine.open(&path, Open::create()).unwrap();
    file.write_at(&pattern(1, 3 << 20), 0).unwrap();
    let (_, took) = process::shell_timed("dd if=/dev/null of=\"$1\" bs=1 seek=10000 2>/dev/null", &path);
    assert!(took < Duration::from_secs(2), "the other program was held back for {took:?}");
    within(SOON, "a file that was cut", move || {
        let mut buffer = vec![7; 20_000];
        assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 10_000, "what is not dirty is as on disk");
        assert!(buffer[..10_000] == pattern(1, 10_000));
        // Writing goes on, at either side of the new end.
        file.write_at(&pattern(2, 5000), 8000).unwrap();
        file.sync_data().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 13_000);
        file.write_at(&pattern(3, 5000), 100_000).unwrap();
        file.sync_all().unwrap();
        let found = std::fs::read(&path).unwrap();
        assert_eq!(found.len(), 105_000);
        assert!(found[..8000] == pattern(1, 10_000)[..8000]);
        assert!(found[8000..13_000] == pattern(2, 5000));
        assert!(found[13_000..100_000].iter().all(|byte| *byte == 0));
        assert!(found[100_000..] == pattern(3, 5000));
        file.close().unwrap();
    });
}

/// The same with writes in between all the time: whatever order it comes to, nothing hangs and syncs go well.
#[test]
fn contract_06_a_file_cut_again_and_again_while_it_is_written() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = Engine::builder().cache_bytes(8 << 20).dirty_age(Duration::from_millis(3)).build().unwrap();
    let file = engine.open(&path, Open::create()).unwrap();
    let writer = std::thread::spawn(move || {
        let (mut random, start) = (Random(5), Instant::now());
        while start.elapsed() < Duration::from_millis(1500) {
            let offset = random.below(2 * MIB);
            file.write_at(&pattern(offset, random.below(70_000) as usize), offset).unwrap();
            if random.below(20) == 0 {
                file.sync_data().unwrap();
            }
            let mut buffer = vec![0; 30_000];
            file.read_at(&mut buffer, random.below(2 * MIB)).unwrap();
        }
        file.write_at(&pattern(9, 40_000), MIB).unwrap();
        file.sync_data().unwrap();
        file
    });
    // (The program `truncate` opens without waiting, and so is told to try again while the lease is broken.)
    let cut = "dd if=/dev/null of=\"$1\" bs=1 seek=300001 2>/dev/null; : >\"$1\"";
    while !writer.is_finished() {
        process::shell(cut, &path).unwrap();
    }
    let file = within(SOON, "a file cut again and again", move || writer.join().unwrap());
    file.write_at(&pattern(9, 40_000), MIB).unwrap();
    file.sync_data().unwrap();
    assert!(std::fs::read(&path).unwrap()[MIB as usize..][..40_000] == pattern(9, 40_000));
    file.close().unwrap();
}

#[test]
fn contract_06_a_file_removed_or_renamed_by_another_program() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = small_engine();
    let removed = engine.open(&path, Open::create()).unwrap();
    removed.write_at(&pattern(1, 30_000), 0).unwrap();
    process::shell("rm \"$1\"", &path).unwrap();
    removed.write_at(&pattern(2, 30_000), 30_000).unwrap();
    removed.sync_data().unwrap();
    // The same name is another file now; the two do not meet.
    let renamed = engine.open(&path, Open::create()).unwrap();
    assert_eq!(renamed.len(), 0);
    renamed.write_at(&pattern(3, 30_000), 0).unwrap();
    process::shell("mv \"$1\" \"$1.moved\"", &path).unwrap();
    renamed.write_at(&pattern(4, 30_000), 30_000).unwrap();
    renamed.sync_data().unwrap();
    let mut buffer = vec![0; 60_000];
    assert_eq!(removed.read_at(&mut buffer, 0).unwrap(), 60_000);
    assert!(buffer[..30_000] == pattern(1, 30_000) && buffer[30_000..] == pattern(2, 30_000));
    removed.close().unwrap();
    renamed.close().unwrap();
    assert!(!path.exists());
    let moved = std::fs::read(path.with_extension("moved")).unwrap();
    assert!(moved[..30_000] == pattern(3, 30_000) && moved[30_000..] == pattern(4, 30_000));
}

/// Direct I/O refused: everything works through the kernel's cache, and the file says so.
fn works_buffered(directory: &Path) {
    let engine = Engine::builder().cache_bytes(8 << 20).dirty_age(Duration::from_millis(5)).build().unwrap();
    let path = directory.join("buffered");
    let file = engine.open(&path, Open::create()).unwrap();
    println!("{}", file.describe());
    assert!(file.describe().starts_with("buffered: "), "{}", file.describe());
    let mut expected = Vec::new();
    for at in 0..3000 {
        let record = pattern(at, 1 + (at as usize * 37) % 9000);
        assert_eq!(file.append(&record).unwrap(), expected.len() as u64);
        expected.extend(record);
        if at % 500 == 0 {
            file.sync_data().unwrap();
            assert!(std::fs::read(&path).unwrap() == expected);
        }
    }
    file.set_len(1_000_001).unwrap();
    expected.truncate(1_000_001);
    let mut through = vec![0; expected.len()];
    assert_eq!(file.read_at(&mut through, 0).unwrap(), expected.len());
    assert!(through == expected);
    file.close().unwrap();
    assert!(std::fs::read(&path).unwrap() == expected);
}

#[test]
fn contract_01_direct_io_refused_by_ext4_that_journals_data() {
    if let Some(mount) = Mount::new("refused_by_ext4", FileSystem::Ext4Journal, 128 * MIB) {
        within(Duration::from_secs(30), "buffered", move || works_buffered(&mount.path()));
    }
}

#[test]
fn contract_01_direct_io_refused_by_a_file_system_without_it() {
    if let Some(memory) = Memory::new("refused_by_ramfs", "ramfs") {
        within(Duration::from_secs(30), "buffered", move || works_buffered(memory.path()));
    }
}

// Calls at the wrong time, or from the wrong place

#[test]
fn after_shutdown_every_call_says_so() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = small_engine();
    let (file, other) =
        (engine.open(&path, Open::create()).unwrap(), engine.open(&path, Open::append()).unwrap());
    file.write_at(&pattern(1, 100_000), 0).unwrap();
    engine.shutdown(SOON).unwrap();
    assert!(std::fs::read(&path).unwrap() == pattern(1, 100_000), "shutting down writes out");
    assert_eq!(kind_of(file.write_at(b"x", 0)), ErrorKind::Shutdown);
    assert_eq!(kind_of(file.read_at(&mut [0; 10], 0)), ErrorKind::Shutdown);
    assert_eq!(kind_of(file.sync_data()), ErrorKind::Shutdown);
    assert_eq!(kind_of(file.sync_all()), ErrorKind::Shutdown);
    assert_eq!(kind_of(file.set_len(0)), ErrorKind::Shutdown);
    assert_eq!(kind_of(other.append(b"x")), ErrorKind::Shutdown);
    assert_eq!(kind_of(engine.open(&path, Open::read())), ErrorKind::Shutdown);
    assert_eq!(kind_of(other.close()), ErrorKind::Shutdown);
    engine.shutdown(SOON).unwrap();
    drop(file);
    drop(engine);
    assert!(std::fs::read(&path).unwrap() == pattern(1, 100_000));
}

/// Shutting down while others write: each of their calls is served or told `Shutdown`, and none hangs.
#[test]
fn contract_05_shutdown_while_others_write() {
    let directory = support::directory();
    let engine = Engine::builder().cache_bytes(8 << 20).build().unwrap();
    let writers: Vec<_> = (0..4)
        .map(|number| {
            let path = directory.path().join(format!("file-{number}"));
            let file = engine.open(&path, Open::create()).unwrap();
            std::thread::spawn(move || {
                let mut random = Random(number);
                loop {
                    let offset = random.below(8 * MIB);
                    let result = match random.below(10) {
                        0 => file.sync_data(),
                        1 => file.read_at(&mut [0; 5000], offset).map(drop),
                        _ => file.write_at(&[1; 50_000], offset),
                    };
                    if let Err(error) = result {
                        return error.kind();
                    }
                }
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(100));
    within(SOON, "shutting down", move || engine.shutdown(Duration::from_secs(8))).unwrap();
    for writer in writers {
        let kind = within(SOON, "a writer after the shutdown", move || writer.join().unwrap());
        assert_eq!(kind, ErrorKind::Shutdown);
    }
}

#[test]
fn contract_12_a_blocking_call_from_the_callback_is_refused() {
    let Some(mount) = Mount::new("blocking_call_from_the_callback", FileSystem::Ext4, 64 * MIB) else {
        return;
    };
    let elsewhere = support::directory();
    let held: Arc<OnceLock<(Engine, File, PathBuf)>> = Arc::default();
    let kinds: Arc<Mutex<Vec<Option<ErrorKind>>>> = Arc::default();
    let (held_inside, kinds_inside) = (Arc::clone(&held), Arc::clone(&kinds));
    let engine = Engine::builder()
        .cache_bytes(8 << 20)
        .on_error(move |_| {
            let (engine, file, path) = held_inside.get().unwrap();
            let results = [
                file.write_at(b"more", 3),
                file.sync_data(),
                file.set_len(77),
                file.read_at(&mut [0; 10], 500_000).map(drop),
                engine.open(path, Open::create()).map(drop),
                engine.shutdown(SOON),
                Engine::new().map(drop),
            ];
            kinds_inside.lock().unwrap().extend(results.map(|result| result.err().map(|error| error.kind())));
        })
        .build()
        .unwrap();
    let other = elsewhere.path().join("other");
    std::fs::write(&other, vec![1; 1 << 20]).unwrap();
    let file = engine.open(&other, Open::write()).unwrap();
    held.set((engine.clone(), file, elsewhere.path().join("new"))).unwrap();
    let dying = engine.open(mount.path().join("file"), Open::create()).unwrap();
    mount.cut_off();
    dying.write_at(&[1; 40_960], 0).unwrap();
    drop(dying);
    assert!(eventually(SOON, || kinds.lock().unwrap().len() >= 7), "the callback hangs");
    let refused = Some(ErrorKind::WouldDeadlock);
    // A write that finds room waits for nothing; but here a part of a page has to be read first.
    assert_eq!(kinds.lock().unwrap()[..7], [refused; 7]);
    let (_, file, _) = held.get().unwrap();
    file.sync_data().unwrap();
}

/// A waker that does nothing, and an executor that polls once.
fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

struct Flag(std::thread::Thread);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor: polls several futures on one thread until all have ended.
fn run_all<T>(futures: Vec<std::pin::Pin<Box<dyn Future<Output = T> + '_>>>) -> Vec<T> {
    let waker = Waker::from(Arc::new(Flag(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut futures: Vec<_> = futures.into_iter().map(Some).collect();
    let mut done = Vec::new();
    while futures.iter().any(Option::is_some) {
        for slot in &mut futures {
            if let Some(future) = slot
                && let Poll::Ready(result) = future.as_mut().poll(&mut context)
            {
                done.push(result);
                *slot = None;
            }
        }
        std::thread::park_timeout(Duration::from_secs(5));
    }
    done
}

#[test]
fn contract_13_many_futures_on_one_thread() {
    within(Duration::from_secs(30), "one executor", || {
        let directory = support::directory();
        let engine = Engine::builder().cache_bytes(8 << 20).build().unwrap();
        let files: Vec<File> = (0..6)
            .map(|at| engine.open(directory.path().join(format!("{at}")), Open::create()).unwrap())
            .collect();
        let work = |at: usize| {
            let file = &files[at];
            async move {
                let data = pattern(at as u64, 3 << 20);
                for (part, chunk) in data.chunks(100_000).enumerate() {
                    file.write_at_async(chunk, part as u64 * 100_000).await?;
                }
                file.sync_data_async().await?;
                let mut buffer = vec![0; 3 << 20];
                assert_eq!(file.read_at_async(&mut buffer, 0).await?, 3 << 20);
                assert!(buffer == data);
                file.append_async(b"end").await?;
                file.set_len_async((3 << 20) + 2).await
            }
        };
        let futures = (0..6)
            .map(|at| Box::pin(work(at)) as std::pin::Pin<Box<dyn Future<Output = forebay::Result<()>>>>);
        for result in run_all(futures.collect()) {
            result.unwrap();
        }
        for file in files {
            file.close().unwrap();
        }
        for at in 0..6 {
            let found = std::fs::read(directory.path().join(format!("{at}"))).unwrap();
            assert!(found[..3 << 20] == pattern(at, 3 << 20) && &found[3 << 20..] == b"en");
        }
    });
}

#[test]
fn contract_13_dropped_futures_leave_a_prefix_and_the_engine_works_on() {
    within(Duration::from_secs(30), "dropped futures", || {
        let directory = support::directory();
        let path = directory.path().join("file");
        let engine = Engine::builder().cache_bytes(8 << 20).close_timeout(SOON).build().unwrap();
        let file = engine.open(&path, Open::create()).unwrap();
        let (mut random, mut model) = (Random(11), vec![0u8; 0]);
        let mut pending = 0;
        for round in 0..400u64 {
            let data = pattern(round, 1 + random.below(400_000) as usize);
            let offset = random.below(12 * MIB) as usize;
            model.resize(model.len().max(offset + data.len()), 0);
            match random.below(4) {
                0 => pending += usize::from(poll_once(file.sync_data_async()).is_none()),
                1 => {
                    let mut buffer = vec![0; 50_000];
                    pending +=
                        usize::from(poll_once(file.read_at_async(&mut buffer, offset as u64)).is_none());
                }
                2 => pending += usize::from(poll_once(file.append_async(&[])).is_none()),
                _ => match poll_once(file.write_at_async(&data, offset as u64)) {
                    Some(result) => {
                        result.unwrap();
                        model[offset..offset + data.len()].copy_from_slice(&data);
                    }
                    None => {
                        pending += 1;
                        // Some prefix was accepted; what that was is what is there now.
                        let mut now = vec![0; data.len()];
                        let read = file.read_at(&mut now, offset as u64).unwrap();
                        let prefix = now.iter().zip(&data).take_while(|(now, data)| now == data).count();
                        let old = &model[offset..offset + data.len()];
                        let rest = now[prefix..read] == old[prefix..read];
                        assert!(rest, "round {round}: no prefix of {} at {offset}", data.len());
                        model[offset..offset + prefix].copy_from_slice(&data[..prefix]);
                    }
                },
            }
        }
        println!("{pending} futures dropped half-way");
        assert!(pending > 10, "{pending} futures dropped half-way");
        file.sync_data().unwrap();
        let mut found = std::fs::read(&path).unwrap();
        found.resize(model.len(), 0);
        assert!(found == model);
        // Nothing that was dropped holds anything: appends, changes of length, all of the memory.
        file.append(b"end").unwrap();
        file.set_len(1).unwrap();
        file.write_at(&vec![1; 24 << 20], 0).unwrap();
        file.close().unwrap();
        engine.shutdown(SOON).unwrap();
        assert_eq!(engine.stats().dirty_bytes, 0, "what was charged is charged for ever");
    });
}

/// A dropped change of length, and a dropped append in the middle of its wait, hold nobody up.
#[test]
fn contract_13_a_dropped_append_gives_its_turn_back() {
    within(SOON, "appending after a dropped append", || {
        let directory = support::directory();
        let engine = Engine::builder().cache_bytes(8 << 20).build().unwrap();
        let file = engine.open(directory.path().join("file"), Open::append()).unwrap();
        let mut dropped = 0;
        for _ in 0..20 {
            let before = file.len();
            match poll_once(file.append_async(&vec![1; 9 << 20])) {
                Some(result) => drop(result.unwrap()),
                None => dropped += 1,
            }
            let at = file.append(b"next").unwrap();
            assert!(at >= before && at == file.len() - 4);
            // It goes on unheard, before what comes after it.
            let _ = poll_once(file.set_len_async(100));
            file.set_len(100).unwrap();
        }
        assert!(dropped > 0);
        file.close().unwrap();
    });
}

#[test]
fn contract_05_close_has_a_deadline() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let errors: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = Arc::clone(&errors);
    let engine = Engine::builder()
        .cache_bytes(128 << 20)
        .close_timeout(Duration::ZERO)
        .dirty_age(Duration::from_secs(60))
        .on_error(move |error| told.lock().unwrap().push(error.to_string()))
        .build()
        .unwrap();
    let file = engine.open(&path, Open::create()).unwrap();
    let data = pattern(1, 64 << 20);
    file.write_at(&data, 0).unwrap();
    let start = Instant::now();
    let error = file.close().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    // The writing goes on.
    let written =
        || std::fs::metadata(&path).unwrap().len() == data.len() as u64 && engine.stats().dirty_bytes == 0;
    assert!(eventually(SOON, written));
    assert!(std::fs::read(&path).unwrap() == data);
    assert!(errors.lock().unwrap().is_empty(), "{:?}", errors.lock().unwrap());
}

// Fork

#[test]
fn child_that_forks_with_an_engine() {
    let Some(path) = process::task() else { return };
    let engine = Engine::builder().cache_bytes(48 << 20).build().unwrap();
    let file = engine.open(&path, Open::create()).unwrap();
    file.write_at(&pattern(1, 300_000), 0).unwrap();
    let arena = arena_bytes();
    assert!(arena >= 48 << 20, "{arena} bytes of memory for the cache");
    // SAFETY: no lock of this program's own is held; the C library readies its allocator for the child.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let refused =
            |result: forebay::Result<()>| result.err().map(|error| error.kind()) == Some(ErrorKind::Forked);
        let checks = [
            refused(file.write_at(b"x", 0)),
            refused(file.read_at(&mut [0; 10], 0).map(drop)),
            refused(file.append(b"x").map(drop)),
            refused(file.sync_data()),
            refused(file.set_len(3)),
            refused(engine.open(&path, Open::read()).map(drop)),
            refused(engine.shutdown(Duration::from_secs(1))),
            arena_bytes() == 0,
            {
                let closing = engine.clone();
                drop(closing);
                refused(file.close())
            },
            {
                drop(engine);
                true
            },
        ];
        let failed = checks.iter().position(|holds| !holds);
        // SAFETY: ends the child at once, without what the parent would do at its end.
        unsafe { libc::_exit(failed.map_or(0, |at| 1 + at as libc::c_int)) };
    }
    let mut status = -1;
    // SAFETY: it is our child, and the status is written during the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(
        (libc::WIFEXITED(status), libc::WEXITSTATUS(status)),
        (true, 0),
        "which check fails in the child"
    );
    // The parent is not harmed.
    file.write_at(&pattern(2, 300_000), 300_000).unwrap();
    file.sync_data().unwrap();
    file.close().unwrap();
    engine.shutdown(SOON).unwrap();
    process::tell(format_args!("done"));
}

/// Bytes of the cache's memory that this process has mapped.
fn arena_bytes() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let bytes = maps.lines().filter(|line| line.contains("memfd:forebay")).map(|line| {
        let (start, end) = line.split_whitespace().next().unwrap().split_once('-').unwrap();
        u64::from_str_radix(end, 16).unwrap() - u64::from_str_radix(start, 16).unwrap()
    });
    bytes.sum()
}

#[test]
fn contract_14_in_a_forked_child_every_call_is_an_error() {
    if process::task().is_some() {
        return;
    }
    let directory = support::directory();
    let path = directory.path().join("file");
    let child = process::start_child("child_that_forks_with_an_engine", path.to_str().unwrap());
    let output =
        within(Duration::from_secs(30), "the forking child", move || child.wait_with_output().unwrap());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("@ done"), "{said}");
    let found = std::fs::read(&path).unwrap();
    assert!(found[..300_000] == pattern(1, 300_000) && found[300_000..] == pattern(2, 300_000));
}
