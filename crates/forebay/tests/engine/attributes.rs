//! Attributes and space of files.

use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use crate::support::mount::{FileSystem, Mount};
use crate::support::{self, MIB, assert_on_disk, how, kind_of, pattern};
use forebay::{Engine, ErrorKind, Options, Times, inside};
use forebay_block::random::Random;

/// A bound for everything here.
const SOON: Duration = Duration::from_secs(20);

fn engine() -> Engine {
    Engine::start(Options {
        cache_bytes: Some(16 * MIB),
        close_timeout: SOON,
        ..Options::default()
    })
    .unwrap()
}

#[test]
fn metadata_has_the_accepted_size_and_the_attributes_of_the_system() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    let file = engine.open(&path, how::create().mode(0o640)).unwrap();
    file.write_at(&pattern(1, 100_000), 0).unwrap();
    assert_eq!(file.metadata().unwrap().len, 100_000, "not written yet");
    std::fs::hard_link(&path, directory.path().join("link")).unwrap();
    file.sync_all().unwrap();
    let (found, expected) = (file.metadata().unwrap(), std::fs::metadata(&path).unwrap());
    assert_eq!(
        (found.len, found.allocated_bytes, found.mode, found.links),
        (expected.len(), expected.blocks() * 512, expected.mode(), 2)
    );
    assert_eq!(
        (found.user, found.group, found.device, found.inode),
        (expected.uid(), expected.gid(), expected.dev(), expected.ino())
    );
    assert_eq!(found.modified, expected.modified().unwrap());
    assert_eq!(found.accessed, expected.accessed().unwrap());
    assert_eq!(found.mode & 0o600, 0o600);
    engine.shutdown(SOON).unwrap();
    assert_eq!(kind_of(file.metadata()), ErrorKind::Shutdown);
}

/// A copy with `cp -p` sets the times last. They must stay, although data is written back later
/// than it is accepted, and reserved space is given back at the close.
#[test]
fn times_stay_as_they_were_set_until_the_next_write() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    let file = engine.open(&path, &how::create()).unwrap();
    for (at, part) in pattern(1, 9 << 20).chunks(300_000).enumerate() {
        file.write_at(part, at as u64 * 300_000).unwrap();
    }
    let day = |day: u64| SystemTime::UNIX_EPOCH + Duration::new(day * 86_400, 123_456_000);
    file.set_times(Times { modified: Some(day(10_000)), accessed: Some(day(11_000)) }).unwrap();
    file.set_times(Times { accessed: Some(day(12_000)), ..Times::default() }).unwrap();
    let times =
        |metadata: std::fs::Metadata| (metadata.modified().unwrap(), metadata.accessed().unwrap());
    file.sync_all().unwrap();
    assert_eq!(times(std::fs::metadata(&path).unwrap()), (day(10_000), day(12_000)));
    file.close().unwrap();
    let found = times(std::fs::metadata(&path).unwrap());
    assert_eq!(found, (day(10_000), day(12_000)), "closing wrote nothing");
    let file = engine.open(&path, &how::write()).unwrap();
    file.write_at(b"x", 0).unwrap();
    file.write_out().unwrap();
    assert!(file.metadata().unwrap().modified > day(12_000));
    let reader = engine.open(&path, &how::read()).unwrap();
    assert_eq!(kind_of(reader.set_times(Times::default())), ErrorKind::NotPermitted);
}

#[test]
fn times_before_1970_are_as_they_were_set() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    let file = engine.open(&path, &how::create()).unwrap();
    file.write_at(&pattern(1, 200_000), 0).unwrap();
    let before = |nanoseconds| SystemTime::UNIX_EPOCH - Duration::from_nanos(nanoseconds);
    for time in [1, 500_000_000, 1_000_000_000, 1_500_000_000, 152_668_799_750_000_000] {
        let (modified, accessed) = (before(time), before(time + 7));
        file.set_times(Times { modified: Some(modified), accessed: Some(accessed) }).unwrap();
        let (ours, theirs) = (file.metadata().unwrap(), std::fs::metadata(&path).unwrap());
        assert_eq!((ours.modified, ours.accessed), (modified, accessed));
        assert_eq!((theirs.modified().unwrap(), theirs.accessed().unwrap()), (modified, accessed));
    }
    file.close().unwrap();
    assert_eq!(
        std::fs::metadata(&path).unwrap().modified().unwrap(),
        before(152_668_799_750_000_000)
    );
}

/// The time of the last access moves if it is older than the last change, as with `relatime`.
#[test]
fn reads_leave_the_time_of_access_if_that_is_asked_and_a_touch_moves_it() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(1, 300_000)).unwrap();
    let old = SystemTime::now() - Duration::from_secs(1000);
    let set_old = || {
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_times(std::fs::FileTimes::new().set_accessed(old)).unwrap();
    };
    let accessed = || std::fs::metadata(&path).unwrap().accessed().unwrap();
    set_old();
    std::fs::read(&path).unwrap();
    if accessed() == old {
        return println!("skipped: the file system here keeps no times of access");
    }
    let file = engine.open(&path, &how::write()).unwrap();
    inside::leave_accessed(&file);
    set_old();
    let mut found = vec![0; 300_000];
    file.read_at(&mut found, 0).unwrap();
    // The rest of the page is read before it is written.
    file.write_at(b"part", 100_001).unwrap();
    file.sync_data().unwrap();
    assert_eq!(file.metadata().unwrap().accessed, old);
    let changed = file.metadata().unwrap().changed;
    inside::touch_accessed(&file);
    let touched = file.metadata().unwrap();
    assert!(touched.accessed > old && touched.changed == changed, "{touched:?}");
    assert_eq!(touched.accessed, accessed());
    // Another handle of the file leaves it, too, and has no effect on how it is written.
    let other = engine.open(&path, &how::read()).unwrap();
    set_old();
    other.read_at(&mut found, 0).unwrap();
    assert_eq!(accessed(), old);
    file.write_at(b"end", 300_000).unwrap();
    file.sync_data().unwrap();
    assert_eq!(std::fs::read(&path).unwrap().len(), 300_003);
}

#[test]
fn contract_09_allocated_space_belongs_to_the_file() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    let file = engine.open(&path, &how::create()).unwrap();
    file.write_at(b"start", 0).unwrap();
    match file.allocate(10_000, 4 * MIB) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            return support::skip("allocated space", &error.to_string());
        }
        result => result.unwrap(),
    }
    assert_eq!(
        (file.len().unwrap(), file.metadata().unwrap().len),
        (10_000 + 4 * MIB, 10_000 + 4 * MIB)
    );
    file.allocate(0, MIB).unwrap();
    file.allocate(77, 0).unwrap();
    assert_eq!(file.len().unwrap(), 10_000 + 4 * MIB, "the size does not shrink");
    file.write_at(&pattern(1, 100), 2 * MIB).unwrap();
    file.close().unwrap();
    assert!(support::allocated(&path) >= 4 * MIB, "closing gave the space back");
    let mut expected = vec![0; 10_000 + (4 << 20)];
    expected[..5].copy_from_slice(b"start");
    expected[2 << 20..][..100].copy_from_slice(&pattern(1, 100));
    assert_on_disk(&path, &expected, "allocated");
    let reader = engine.open(&path, &how::read()).unwrap();
    assert_eq!(kind_of(reader.allocate(0, 1)), ErrorKind::NotPermitted);
    assert_eq!(kind_of(reader.punch_hole(0, 1)), ErrorKind::NotPermitted);
    let writer = engine.open(&path, &how::write()).unwrap();
    assert_eq!(kind_of(writer.allocate(u64::MAX, 1)), ErrorKind::InvalidInput);
}

/// A write may go further than an allocation that runs at the same time.
#[test]
fn contract_05_an_allocation_cuts_off_no_write() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    let file = engine.open(&path, &how::create()).unwrap();
    if file.allocate(0, 1).is_err() {
        return support::skip("allocation beside writes", "no allocation ahead here");
    }
    let block = |number: u64| pattern(number, 8192);
    let (blocks, is_over) = (600, AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (0..blocks).for_each(|number| file.write_at(&block(number), number * 8192).unwrap());
            is_over.store(true, Ordering::Relaxed);
        });
        while !is_over.load(Ordering::Relaxed) {
            file.allocate(0, file.len().unwrap() + 4096).unwrap();
        }
    });
    file.close().unwrap();
    let found = std::fs::read(&path).unwrap();
    for (number, found) in (0..blocks).zip(found.chunks(8192)) {
        assert!(found == block(number), "block {number}");
    }
    assert!(found.len() as u64 >= blocks * 8192, "{} bytes", found.len());
}

/// An allocation that does not fit changes nothing, and one that fits leaves room for the data that
/// was accepted before.
#[test]
fn contract_09_an_allocation_takes_no_space_of_accepted_data() {
    let name = "an_allocation_takes_no_space";
    let Some(mount) = Mount::new(name, FileSystem::Ext4, 64 * MIB) else { return };
    let engine = engine();
    let open = |name: &str| engine.open(mount.path().join(name), &how::create()).unwrap();
    let (data, space) = (open("data"), open("space"));
    assert_eq!(kind_of(space.allocate(0, 100 * MIB)), ErrorKind::NoSpace);
    assert_eq!(space.len().unwrap(), 0);
    let bytes = pattern(1, 6 << 20);
    data.write_at(&bytes, 0).unwrap();
    // All space that is left, in ever smaller parts.
    let mut length = 32 * MIB;
    while length >= MIB {
        match space.allocate(space.len().unwrap(), length) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NoSpace => length /= 2,
            Err(error) => panic!("{error}"),
        }
    }
    data.sync_data().expect("accepted data has space");
    let allocated = space.len().unwrap();
    assert!(allocated >= 30 * MIB, "only {allocated} bytes were allocated");
    for at in (0..allocated).step_by(1 << 20) {
        space.write_at(&bytes[..1 << 20], at).expect("the space is there");
    }
    space.sync_data().expect("the space is there");
    assert_on_disk(&mount.path().join("data"), &bytes, "beside an allocation");
    data.close().unwrap();
    space.close().unwrap();
}

#[test]
fn a_hole_reads_as_zeroes_and_frees_its_space() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    let file = engine.open(&path, &how::create()).unwrap();
    let mut expected = pattern(1, 8 << 20);
    file.write_at(&expected, 0).unwrap();
    file.sync_data().unwrap();
    let before = file.metadata().unwrap().allocated_bytes;
    let mut punch = |offset: u64, length: u64| {
        let end = offset.saturating_add(length).min(expected.len() as u64);
        expected[offset as usize..end as usize].fill(0);
        file.punch_hole(offset, length)
    };
    match punch(MIB + 5, 4 * MIB) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            return support::skip("a hole", &error.to_string());
        }
        result => result.unwrap(),
    }
    // Within a page, over the end, and nothing.
    punch(100, 50).unwrap();
    punch(7 * MIB + 1, u64::MAX).unwrap();
    file.punch_hole(9 * MIB, 5).unwrap();
    assert_eq!(file.len().unwrap(), 8 * MIB);
    let mut found = vec![1; 8 << 20];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found == expected, "before the sync");
    file.sync_all().unwrap();
    let freed = before - file.metadata().unwrap().allocated_bytes;
    assert!(freed >= 4 * MIB - 8192, "only {freed} bytes were freed");
    file.close().unwrap();
    assert_on_disk(&path, &expected, "with holes");
}

/// Holes among writes, cuts and syncs, cached and uncached, alone and shared: the file is always as
/// a vector is.
#[test]
fn contract_08_a_file_with_holes_is_as_a_vector() {
    let seed = support::seed();
    for round in 0..4 {
        let (directory, mut random) = (support::directory(), Random::new(seed + round));
        let path = directory.path().join("file");
        let engine = Engine::start(Options {
            cache_bytes: Some(8 * MIB),
            dirty_bytes: Some(4 * MIB),
            close_timeout: SOON,
            ..Options::default()
        })
        .unwrap();
        let file = engine.open(&path, how::create().uncached(round % 2 == 1)).unwrap();
        // Another program that has it open makes it shared.
        let other = (round >= 2).then(|| std::fs::File::open(&path).unwrap());
        if file.punch_hole(0, 0).is_err() {
            return;
        }
        let mut model: Vec<u8> = Vec::new();
        for step in 0..support::operations(400) {
            let offset = random.below(3 * MIB);
            let length = [random.below(300), random.below(20_000), random.below(MIB)]
                [random.below(3) as usize];
            let range = offset as usize..(offset + length) as usize;
            match random.below(10) {
                0..4 => {
                    let data = pattern(step, length as usize);
                    file.write_at(&data, offset).unwrap();
                    if length > 0 {
                        model.resize(model.len().max(range.end), 0);
                        model[range].copy_from_slice(&data);
                    }
                }
                4..7 => {
                    match file.punch_hole(offset, length) {
                        Err(error) if error.kind() == ErrorKind::Unsupported => {
                            return support::skip("holes", &error.to_string());
                        }
                        result => result.unwrap(),
                    }
                    let end = range.end.min(model.len());
                    model[range.start.min(end)..end].fill(0);
                }
                7 => {
                    file.set_len(offset).unwrap();
                    model.resize(offset as usize, 0);
                }
                8 => file.sync_data().unwrap(),
                _ => {
                    let mut found = vec![1; length as usize];
                    let read = file.read_at(&mut found, offset).unwrap();
                    let end = range.end.min(model.len());
                    assert!(found[..read] == model[range.start.min(end)..end], "step {step}");
                }
            }
            assert_eq!(file.len().unwrap(), model.len() as u64, "step {step}");
        }
        file.sync_data().unwrap();
        assert_on_disk(&path, &model, "after the steps");
        drop(other);
        file.close().unwrap();
        assert_on_disk(&path, &model, "closed");
    }
}

/// Space that was freed by a hole is not promised to a later write there.
#[test]
fn contract_09_a_write_into_a_hole_finds_out_that_its_space_is_gone() {
    let name = "a_write_into_a_hole";
    let Some(mount) = Mount::new(name, FileSystem::Ext4, 64 * MIB) else { return };
    let engine = engine();
    let open = |name: &str| engine.open(mount.path().join(name), &how::create()).unwrap();
    let (file, other) = (open("file"), open("other"));
    let data = pattern(1, 8 << 20);
    file.allocate(0, 16 * MIB).unwrap();
    file.write_at(&data, 0).unwrap();
    file.sync_data().unwrap();
    file.punch_hole(0, 16 * MIB).unwrap();
    while other.append(&data[..1 << 16]).is_ok() {}
    other.sync_data().unwrap();
    let mut accepted = 0;
    while accepted < 16 * MIB && file.write_at(&data[..4096], accepted).is_ok() {
        accepted += 4096;
    }
    assert!(accepted < 8 * MIB, "{accepted} bytes of freed space were promised");
    file.sync_data().expect("what was accepted has its place");
}
