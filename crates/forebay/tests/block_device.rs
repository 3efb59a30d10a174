//! Contract 10: block devices. Loop devices of odd sizes, with sectors of 512 and 4096 bytes, whole
//! or from the middle of an image, through the cache and past it.

mod support;

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use forebay::{Cursor, Engine, ErrorKind, Options};
use forebay_block::random::Random;
use support::device::{Device, Shape};
use support::mount::{FileSystem, Memory, Mount};
use support::{MIB, PAGE, eventually, how, kind_of, knobs, pattern, process, within};

/// Upper bound for every wait in this file.
const SOON: Duration = Duration::from_secs(60);

fn engine() -> Engine {
    engine_by("auto")
}

fn engine_by(way: &str) -> Engine {
    Engine::start(knobs::named(
        Options {
            cache_bytes: Some(8 * MIB),
            dirty_bytes: Some(4 * MIB),
            close_timeout: SOON,
            dirty_age: Duration::from_millis(20),
            ..Options::default()
        },
        [("backend", way)],
    ))
    .unwrap()
}

/// An engine that writes nothing before it is asked.
fn patient_engine() -> Engine {
    Engine::start(Options {
        cache_bytes: Some(32 * MIB),
        dirty_age: Duration::from_secs(3600),
        ..Options::default()
    })
    .unwrap()
}

/// Devices that differ at their ends: in size, logical block size and offset.
fn shapes() -> [Shape; 6] {
    [
        Shape::new(12 * MIB, 512),
        Shape::new(12 * MIB + 512, 512),
        Shape::new(12 * MIB + 7 * 512 + 100, 512),
        Shape::new(12 * MIB, 4096),
        Shape::new(12 * MIB + 3 * 512, 4096),
        Shape { bytes: 12 * MIB + 5 * 512, sector: 512, offset: 3 * 512 },
    ]
}

/// Expected content of the device.
struct Model {
    bytes: Vec<u8>,
    /// Where it was discarded and not written since, nothing is known.
    known: Vec<bool>,
}

impl Model {
    fn of(bytes: Vec<u8>) -> Self {
        let known = vec![true; bytes.len()];
        Self { bytes, known }
    }

    fn write(&mut self, offset: usize, data: &[u8]) {
        self.bytes[offset..offset + data.len()].copy_from_slice(data);
        self.known[offset..offset + data.len()].fill(true);
    }

    fn discard(&mut self, offset: usize, length: usize) {
        self.known[offset..offset + length].fill(false);
    }

    fn assert(&self, offset: usize, found: &[u8], what: &str) {
        let expected = self.bytes[offset..].iter().zip(&self.known[offset..]);
        let differs = found
            .iter()
            .zip(expected)
            .position(|(found, (expected, known))| *known && found != expected);
        assert_eq!(differs.map(|at| at + offset), None, "{what}: first byte that differs");
    }
}

/// Small mostly, large sometimes, whole sectors and pages often, the end now and then.
fn place(random: &mut Random, size: u64) -> (u64, usize) {
    let unit = [1, 512, PAGE][random.below(3) as usize];
    let magnitude = random.below(18);
    let length = (1 + random.below(1 << magnitude)).next_multiple_of(unit).min(size);
    let offset = match random.below(6) {
        0 => size - length,
        _ => (random.below(size) / unit * unit).min(size - length),
    };
    (offset, length as usize)
}

fn run(device: &Device, shape: Shape, way: &str, seed: u64, operations: u64) {
    let mut random = Random::new(seed);
    let size = shape.size();
    let engine = engine_by(way);
    let open =
        || engine.open(device.path(), how::write().uncached(seed.is_multiple_of(2))).unwrap();
    let mut handles = vec![open()];
    let mut model = Model::of(device.stored());
    for operation in 0..operations {
        let which = random.below(handles.len() as u64) as usize;
        let what = format!("{shape:?}, {way}, seed {seed}, operation {operation}");
        assert_eq!(handles[which].len().unwrap(), size, "{what}");
        match random.below(100) {
            0..45 => {
                let (offset, length) = place(&mut random, size);
                let data = pattern(random.draw(), length);
                handles[which].write_at(&data, offset).unwrap();
                model.write(offset as usize, &data);
            }
            45..85 => {
                let (offset, length) = place(&mut random, size);
                let (offset, mut buffer) = (offset + random.below(3) * 1000, vec![0xee; length]);
                let read = handles[which].read_at(&mut buffer, offset).unwrap();
                assert_eq!(read as u64, (length as u64).min(size.saturating_sub(offset)), "{what}");
                model.assert(offset.min(size) as usize, &buffer[..read], &what);
            }
            85..87 => {
                let (offset, length) = place(&mut random, size);
                handles[which].discard(offset, length as u64).unwrap();
                model.discard(offset as usize, length);
            }
            87..90 => {
                handles[which].sync_data().unwrap();
                if random.below(4) == 0 {
                    model.assert(0, &device.stored(), &what);
                }
            }
            90..93 => handles.push(engine.open(device.path(), &how::write()).unwrap()),
            93..97 => {
                handles.swap_remove(which).close().unwrap();
                if handles.is_empty() {
                    handles.push(open());
                }
            }
            _ => std::thread::sleep(Duration::from_millis(random.below(30))),
        }
    }
    handles[0].sync_all().unwrap();
    model.assert(0, &device.stored(), "synced");
    handles.drain(..).for_each(|handle| handle.close().unwrap());
    engine.shutdown(SOON).unwrap();
}

#[test]
fn contract_10_agrees_with_a_byte_array() {
    let seed = support::seed();
    for (number, shape) in shapes().into_iter().enumerate() {
        let Some(device) = Device::new("agrees_with_a_byte_array", shape) else { return };
        for (round, way) in ["auto", "threads", "auto"].into_iter().enumerate() {
            run(&device, shape, way, seed ^ (number * 4 + round) as u64, 150);
        }
    }
}

#[test]
fn contract_10_has_the_size_it_has() {
    for shape in shapes() {
        let Some(device) = Device::new("has_the_size_it_has", shape) else { return };
        let engine = engine();
        let (path, size) = (device.path(), shape.size());
        let file = engine.open(path, &how::create()).unwrap();
        assert_eq!((file.len().unwrap(), file.describe()), (size, "direct".to_owned()));
        let data = pattern(1, 1000);
        file.write_at(&data, size - 1000).unwrap();
        for (offset, length) in
            [(size - 999, 1000), (size, 1), (size + 5000, 10), (u64::MAX - 5, 10)]
        {
            let error = file.write_at(&data[..length], offset).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            assert!(error.to_string().contains(&format!("{size} bytes")), "{error}");
            assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::StorageFull);
        }
        let mut buffer = [0xee; 2000];
        assert_eq!(file.read_at(&mut buffer, size - 1000).unwrap(), 1000);
        assert!(buffer[..1000] == data && buffer[1000..] == [0xee; 1000]);
        assert_eq!(file.read_at(&mut buffer, size).unwrap(), 0);
        assert_eq!(file.read_at(&mut buffer, size + 100_000).unwrap(), 0);
        for length in [0, 1000, size, size + 1] {
            assert_eq!(kind_of(file.set_len(length)), ErrorKind::Unsupported);
        }
        assert_eq!(kind_of(file.append(b"more")), ErrorKind::Unsupported);
        // Open here, and opened anew.
        for _ in 0..2 {
            assert_eq!(kind_of(engine.open(path, &how::append())), ErrorKind::Unsupported);
            assert_eq!(
                kind_of(engine.open(path, how::write().truncate(true))),
                ErrorKind::Unsupported
            );
            let error = engine.open(path, &how::create_new()).unwrap_err();
            assert_eq!(error.os_error(), Some(libc::EEXIST), "{error}");
        }
        file.close().unwrap();
        for open in [&how::append(), how::create().truncate(true)] {
            assert_eq!(kind_of(engine.open(path, open)), ErrorKind::Unsupported);
            assert!(engine.open_direct(path, open).is_err());
        }
        assert!(device.stored()[size as usize - 1000..] == data);
        // As long as before, and nothing beside it.
        let image = std::fs::metadata(device.image()).unwrap();
        assert_eq!(image.len(), shape.offset + shape.bytes);
    }
}

#[test]
fn contract_10_a_part_of_an_image_leaves_the_rest_alone() {
    let shape = Shape { bytes: MIB + 512, sector: 512, offset: 1024 };
    let Some(device) = Device::new("part_of_an_image", shape) else { return };
    let around = std::fs::OpenOptions::new().write(true).open(device.image()).unwrap();
    around.set_len(shape.offset + shape.bytes + 5000).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&around, &[0xaa; 1024], 0).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&around, &[0xbb; 5000], shape.offset + shape.bytes)
        .unwrap();
    let engine = engine();
    let file = engine.open(device.path(), &how::write()).unwrap();
    let data = pattern(3, shape.bytes as usize);
    file.write_at(&data, 0).unwrap();
    file.close().unwrap();
    assert!(device.stored() == data);
    let image = std::fs::read(device.image()).unwrap();
    assert!(image[..1024] == [0xaa; 1024] && image[1024 + data.len()..] == [0xbb; 5000]);
}

#[test]
fn contract_10_synced_is_on_the_device() {
    for shape in [Shape::new(4 * MIB + 512, 512), Shape::new(4 * MIB, 4096)] {
        let Some(device) = Device::new("synced_is_on_the_device", shape) else { return };
        let engine = patient_engine();
        let file = engine.open(device.path(), &how::write()).unwrap();
        let data = pattern(1, shape.size() as usize);
        file.write_at(&data, 0).unwrap();
        assert!(
            device.stored().iter().all(|byte| *byte == 0),
            "nothing is written before it is asked for"
        );
        let before = engine.stats();
        file.sync_data().unwrap();
        let after = engine.stats();
        assert_eq!(after.flushes - before.flushes, 1, "a completion alone proves nothing");
        assert_eq!(
            after.written_bytes - before.written_bytes,
            shape.size(),
            "whole sectors, and no more"
        );
        assert!(device.stored() == data);
        // A few bytes: read, changed, and written whole.
        file.write_at(b"few", 100_000).unwrap();
        file.write_at(b"last", shape.size() - 4).unwrap();
        file.sync_all().unwrap();
        let mut expected = data;
        expected[100_000..100_003].copy_from_slice(b"few");
        expected[shape.size() as usize - 4..].copy_from_slice(b"last");
        assert!(device.stored() == expected);
    }
}

#[test]
fn contract_10_a_discard_drops_what_is_dirty() {
    let shape = Shape::new(4 * MIB + 512, 512);
    let Some(device) = Device::new("a_discard_drops_what_is_dirty", shape) else { return };
    let engine = patient_engine();
    let file = engine.open(device.path(), &how::write()).unwrap();
    file.write_at(&pattern(1, shape.size() as usize), 0).unwrap();
    assert!(engine.stats().dirty_bytes >= 4 * MIB);
    file.discard(0, shape.size()).unwrap();
    assert_eq!(engine.stats().dirty_bytes, 0);
    file.sync_data().unwrap();
    assert_eq!(engine.stats().written_bytes, 0, "nothing of it was written");
    // Both writes are to one page. The rest of that page comes from the device and is not checked.
    file.write_at(b"few", 5000).unwrap();
    file.discard(4096, 4096).unwrap();
    file.write_at(b"others", 7000).unwrap();
    file.sync_data().unwrap();
    assert!(device.stored()[7000..7006] == *b"others");
    assert_eq!(engine.stats().written_bytes, PAGE);
    file.close().unwrap();
}

#[test]
fn contract_10_a_discard_leaves_the_rest_alone() {
    for shape in shapes() {
        let Some(device) = Device::new("a_discard_leaves_the_rest_alone", shape) else { return };
        let (engine, size) = (patient_engine(), shape.size());
        let file = engine.open(device.path(), &how::write()).unwrap();
        let mut model = Model::of(pattern(1, size as usize));
        file.write_at(&model.bytes, 0).unwrap();
        file.sync_data().unwrap();
        // Dirty, clean, and not here at all; the borders of pages and chunks of pages, and the end.
        file.write_at(&pattern(2, 300_000), 1000).unwrap();
        model.write(1000, &pattern(2, 300_000));
        for (offset, length) in
            [(5000, 3000), (8192, 4096), (100_001, 200_000), (262_143, 262_146), (size - 700, 700)]
        {
            file.discard(offset, length).unwrap();
            model.discard(offset as usize, length as usize);
            let mut buffer = vec![0; size as usize];
            assert_eq!(file.read_at(&mut buffer, 0).unwrap() as u64, size);
            model.assert(0, &buffer, "through the cache");
        }
        file.discard(size, 0).unwrap();
        file.close().unwrap();
        model.assert(0, &device.stored(), "on the device");
    }
}

/// Threads whose pages lie side by side discard them and write them again, while pages of theirs
/// are in flight.
#[test]
fn contract_10_what_is_written_after_a_discard_stays() {
    const THREADS: u64 = 4;
    let shape = Shape::new(2 * MIB, 512);
    let Some(device) = Device::new("what_is_written_after_a_discard", shape) else { return };
    for way in ["auto", "threads"] {
        let engine = Engine::start(knobs::named(
            Options {
                cache_bytes: Some(8 * MIB),
                dirty_bytes: Some(4 * MIB),
                close_timeout: SOON,
                dirty_age: Duration::from_millis(1),
                ..Options::default()
            },
            [("backend", way)],
        ))
        .unwrap();
        let file = engine.open(device.path(), &how::write()).unwrap();
        let seed = support::seed();
        let last: Vec<Vec<(u64, Vec<u8>)>> = std::thread::scope(|scope| {
            let run = |thread: u64| {
                let (file, mut random) = (&file, Random::new(seed ^ thread));
                move || {
                    let mut last = std::collections::BTreeMap::new();
                    for round in 0..300 {
                        // Some pages of its own in a row.
                        let stripe = (random.below(16) * THREADS + thread) * 8 * PAGE;
                        let length = (1 + random.below(7)) * PAGE;
                        file.write_at(&vec![round as u8; length as usize], stripe).unwrap();
                        if random.below(3) == 0 {
                            std::thread::sleep(Duration::from_micros(random.below(1500)));
                        }
                        file.discard(stripe, 8 * PAGE).unwrap();
                        let data = pattern(random.draw(), 1 + random.below(length) as usize);
                        let at = stripe + random.below(100);
                        file.write_at(&data, at).unwrap();
                        let mut buffer = vec![0; data.len()];
                        file.read_at(&mut buffer, at).unwrap();
                        assert!(buffer == data, "thread {thread}, round {round}");
                        last.insert(stripe, (at, data));
                    }
                    last.into_values().collect()
                }
            };
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(run(thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        file.sync_data().unwrap();
        let stored = device.stored();
        for (at, data) in last.into_iter().flatten() {
            assert!(stored[at as usize..at as usize + data.len()] == data, "{way}: at {at}");
        }
        file.close().unwrap();
    }
}

#[test]
fn contract_10_a_discard_that_is_refused_changes_nothing() {
    // A file system that has no holes.
    let Some(memory) = Memory::new("a_discard_that_is_refused", "ramfs") else { return };
    let inside = tempfile::tempdir_in(memory.path()).unwrap();
    let Some(device) = Device::new_in("a_discard_that_is_refused", Shape::new(MIB, 512), inside)
    else {
        return;
    };
    let engine = patient_engine();
    let file = engine.open(device.path(), &how::write()).unwrap();
    let data = pattern(1, 50_000);
    file.write_at(&data, 3000).unwrap();
    assert_eq!(kind_of(file.discard(0, MIB)), ErrorKind::Unsupported);
    for (offset, length) in [(0, MIB + 1), (MIB, 1), (u64::MAX, 2)] {
        assert_eq!(kind_of(file.discard(offset, length)), ErrorKind::NoSpace);
    }
    let reader = engine.open(device.path(), &how::read()).unwrap();
    assert_eq!(kind_of(reader.discard(0, MIB)), ErrorKind::NotPermitted);
    file.sync_data().unwrap();
    assert!(device.stored()[3000..53_000] == data);
    let directory = support::directory();
    let regular = engine.open(directory.path().join("file"), &how::create()).unwrap();
    assert_eq!(kind_of(regular.discard(0, 0)), ErrorKind::Unsupported);
}

#[test]
fn contract_10_what_is_mounted_is_busy() {
    let Some(mount) = Mount::new("what_is_mounted_is_busy", FileSystem::Ext4, 32 * MIB) else {
        return;
    };
    let engine = engine();
    for open in [&how::read(), &how::write(), &how::create()] {
        let error = engine.open(mount.device(), open).unwrap_err();
        assert_eq!(
            (error.kind(), error.os_error()),
            (ErrorKind::Busy, Some(libc::EBUSY)),
            "{error}"
        );
        assert!(error.to_string().contains("umount /"), "{error}");
        assert_eq!(kind_of(engine.open_direct(mount.device(), open)), ErrorKind::Busy);
    }
}

/// Opens as a mount would: exclusively.
fn claim(path: &Path) -> std::io::Result<std::fs::File> {
    std::fs::OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(path)
}

const SHARED_TEST: &str = "contract_10_one_engine_has_it";

#[test]
fn contract_10_one_engine_has_it() {
    if let Some(path) = process::task() {
        let engine = engine();
        let error = engine.open(&path, &how::read()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        process::report(format_args!("busy: {error}"));
        return;
    }
    let Some(device) = Device::new(SHARED_TEST, Shape::new(MIB, 512)) else { return };
    let (one, two) = (engine(), engine());
    for open in [&how::read(), &how::write()] {
        let file = one.open(device.path(), open).unwrap();
        for open in [&how::read(), &how::write()] {
            let error = two.open(device.path(), open).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
            assert!(error.to_string().contains("lsblk"), "{error}");
        }
        let mut child = process::start_child(SHARED_TEST, device.path().to_str().unwrap());
        let said: Vec<String> =
            BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok).collect();
        assert!(child.wait().unwrap().success(), "{said:?}");
        assert!(said.iter().any(|line| {
            process::reported(line).is_some_and(|reported| reported.starts_with("busy"))
        }));
        // A mount claims the device in the same way.
        assert_eq!(claim(device.path()).unwrap_err().raw_os_error(), Some(libc::EBUSY));
        assert_eq!(kind_of(one.open_direct(device.path(), &how::read())), ErrorKind::Busy);
        file.close().unwrap();
        assert!(eventually(SOON, || claim(device.path()).is_ok()));
    }
    let held = claim(device.path()).unwrap();
    assert_eq!(kind_of(one.open(device.path(), &how::write())), ErrorKind::Busy);
    drop(held);
    drop(two.open(device.path(), &how::write()).unwrap());
}

const FREE_TEST: &str = "contract_10_it_is_free_when_it_is_closed";

#[test]
fn contract_10_it_is_free_when_it_is_closed() {
    if let Some(path) = process::task() {
        return free_at_once(Path::new(&path));
    }
    let Some(device) = Device::new(FREE_TEST, Shape::new(MIB, 512)) else { return };
    // In a process that starts no other: between its fork and its exec, a child that another test
    // starts has every descriptor open too, and the device is held for as long.
    let child = process::start_child(FREE_TEST, device.path().to_str().unwrap());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(device.stored()[5..12] == *b"dropped");
}

/// When the last handle is closed nobody holds the device: not after a while, but when `close`
/// returns.
fn free_at_once(device: &Path) {
    for way in ["auto", "threads"] {
        let engine = engine_by(way);
        for round in 0..50u64 {
            let file = engine.open(device, &how::write()).unwrap();
            file.write_at(&pattern(round, 10_000), round * 1000).unwrap();
            file.close().unwrap();
            drop(claim(device).unwrap());
            let file = engine.open_direct(device, &how::write()).unwrap();
            file.write_at(pattern(round, 10_000), round * 1000).wait().0.unwrap();
            file.close().wait().unwrap();
            drop(claim(device).unwrap());
        }
        let file = engine.open(device, &how::write()).unwrap();
        file.write_at(b"dropped", 5).unwrap();
        drop(file);
        assert!(eventually(SOON, || claim(device).is_ok()));
    }
}

#[test]
fn contract_10_a_device_is_one_by_whatever_name() {
    let Some(device) = Device::new("by_whatever_name", Shape::new(MIB, 512)) else { return };
    let directory = support::directory();
    let (link, node) = (directory.path().join("link"), directory.path().join("node"));
    std::os::unix::fs::symlink(device.path(), &link).unwrap();
    let number = std::os::unix::fs::MetadataExt::rdev(&std::fs::metadata(device.path()).unwrap());
    let numbers = (libc::major(number).to_string(), libc::minor(number).to_string());
    let arguments =
        [node.as_os_str(), OsStr::new("b"), OsStr::new(&numbers.0), OsStr::new(&numbers.1)];
    process::run("mknod", &arguments).unwrap();
    let engine = engine();
    let names = [device.path(), &link, &node];
    let files = names.map(|name| engine.open(name, &how::write()).unwrap());
    for (number, file) in files.iter().enumerate() {
        file.write_at(&[number as u8 + 1; 100], number as u64 * 50).unwrap();
    }
    let mut buffer = [0; 200];
    for file in &files {
        file.read_at(&mut buffer, 0).unwrap();
        assert!(buffer[..50] == [1; 50] && buffer[50..100] == [2; 50] && buffer[100..] == [3; 100]);
    }
    assert_eq!(kind_of(engine.open_direct(&node, &how::read())), ErrorKind::Busy);
    files.into_iter().for_each(|file| file.close().unwrap());
}

#[test]
fn contract_10_a_device_that_refuses_writes_is_read() {
    let Some(mut device) = Device::new("refuses_writes", Shape::new(MIB + 512, 512)) else {
        return;
    };
    let engine = engine();
    let file = engine.open(device.path(), &how::write()).unwrap();
    let data = pattern(1, MIB as usize + 512);
    file.write_at(&data, 0).unwrap();
    file.close().unwrap();
    device.make_read_only();
    let error = engine.open(device.path(), &how::write()).unwrap_err();
    assert_eq!((error.kind(), error.os_error()), (ErrorKind::Open, Some(libc::EROFS)), "{error}");
    assert!(error.to_string().contains("open it for reading"), "{error}");
    assert_eq!(
        engine.open_direct(device.path(), &how::write()).unwrap_err().os_error(),
        Some(libc::EROFS)
    );
    let file = engine.open(device.path(), &how::read()).unwrap();
    assert_eq!(kind_of(engine.open(device.path(), &how::write())), ErrorKind::NotPermitted);
    assert_eq!(kind_of(file.write_at(b"x", 0)), ErrorKind::NotPermitted);
    let mut buffer = vec![0; data.len() + 10];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), data.len());
    assert!(buffer[..data.len()] == data);
    let before = engine.stats().bios;
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), data.len());
    assert_eq!(engine.stats().bios, before, "its pages stay after an open that was refused");
    file.close().unwrap();
    let file = engine.open_direct(device.path(), &how::read()).unwrap();
    let (read, buffer) = file.read_at(vec![0; data.len() + 10], 0).wait();
    assert!(read.unwrap() == data.len() && buffer[..data.len()] == data);
}

/// The image in a memory file system that is full: pages that find no place stay, and a sync says
/// so.
#[test]
fn contract_10_what_the_device_cannot_store_is_reported_by_the_sync() {
    let test = "what_the_device_cannot_store";
    let Some(memory) = Memory::new(test, "tmpfs") else { return };
    let arguments = ["-o", "remount,size=4m"].map(OsStr::new);
    let arguments: Vec<&OsStr> = arguments.into_iter().chain([memory.path().as_os_str()]).collect();
    process::run("mount", &arguments).unwrap();
    let inside = tempfile::tempdir_in(memory.path()).unwrap();
    let filler = memory.path().join("filler");
    std::fs::write(&filler, vec![1; 3 << 20]).unwrap();
    let Some(device) = Device::new_in(test, Shape::new(2 * MIB, 512), inside) else { return };
    let engine = patient_engine();
    let file = engine.open(device.path(), &how::write()).unwrap();
    let data = pattern(1, 2 << 20);
    file.write_at(&data, 0).unwrap();
    for _ in 0..2 {
        assert_eq!(kind_of(file.sync_data()), ErrorKind::NoSpace);
    }
    let mut buffer = vec![0; data.len()];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), data.len());
    assert!(buffer == data, "what could not be written is still there");
    std::fs::remove_file(&filler).unwrap();
    // The loop device asks again where there is room now.
    assert!(eventually(SOON, || file.sync_data().is_ok()));
    assert!(device.stored() == data);
    file.close().unwrap();
}

/// A device that shrinks under its user: nothing reads as zeroes that was never there.
#[test]
fn contract_10_a_device_that_goes_away_is_an_error() {
    let Some(device) = Device::new("goes_away", Shape::new(4 * MIB, 512)) else { return };
    let engine = patient_engine();
    let file = engine.open(device.path(), &how::write()).unwrap();
    file.write_at(&[7; 10_000], 0).unwrap();
    file.sync_data().unwrap();
    file.write_at(&[8; 10_000], MIB).unwrap();
    std::fs::OpenOptions::new().write(true).open(device.image()).unwrap().set_len(0).unwrap();
    device.take_size();
    let mut buffer = [0; 5000];
    assert_eq!(kind_of(file.read_at(&mut buffer, 2 * MIB)), ErrorKind::Io);
    file.write_at(b"few", 3 * MIB).unwrap();
    assert_eq!(
        kind_of(file.read_at(&mut buffer, 3 * MIB)),
        ErrorKind::Io,
        "what is around it is gone"
    );
    assert_eq!(file.read_at(&mut buffer, MIB).unwrap(), 5000, "this one is here");
    assert!(buffer == [8; 5000]);
    assert_eq!(kind_of(file.sync_data()), ErrorKind::Io);
    // `abandon_unwritten` is the way out. The size stays, although the device now reports another.
    assert!(file.abandon_unwritten().unwrap() >= 3 * PAGE);
    assert_eq!(file.len().unwrap(), 4 * MIB);
    file.close().unwrap();
    // A child of another test has it open, too, between its fork and its exec.
    assert!(eventually(SOON, || claim(device.path()).is_ok()));
}

#[test]
fn contract_10_past_the_cache() {
    let seed = support::seed();
    for shape in shapes() {
        let Some(device) = Device::new("past_the_cache", shape) else { return };
        let (engine, size) = (engine(), shape.size());
        let file = engine.open_direct(device.path(), &how::write()).unwrap();
        assert_eq!((file.len(), file.describe()), (size, "direct".to_owned()));
        assert_eq!(kind_of(engine.open(device.path(), &how::read())), ErrorKind::Busy);
        let (mut random, mut model) = (Random::new(seed), Model::of(device.stored()));
        for operation in 0..150 {
            let (offset, length) = place(&mut random, size);
            let what = format!("{shape:?}, operation {operation}");
            if random.below(2) == 0 {
                let (written, data) = file.write_at(pattern(random.draw(), length), offset).wait();
                assert_eq!(written.unwrap(), length, "{what}");
                model.write(offset as usize, &data);
            } else {
                let (offset, expected) =
                    (offset + 700, (size - offset).saturating_sub(700).min(length as u64));
                let (read, buffer) = file.read_at(vec![0; length], offset).wait();
                assert_eq!(read.unwrap() as u64, expected, "{what}");
                model.assert(offset.min(size) as usize, &buffer[..expected as usize], &what);
            }
        }
        for (offset, length) in [(size - 1, 2), (size, 512), (u64::MAX, 1)] {
            let (refused, _) = file.write_at(vec![1; length], offset).wait();
            assert_eq!(kind_of(refused), ErrorKind::NoSpace);
        }
        assert_eq!(kind_of(file.set_len(0).wait()), ErrorKind::Unsupported);
        file.sync_data().wait().unwrap();
        model.assert(0, &device.stored(), "synced");
        file.close().wait().unwrap();
    }
}

#[test]
fn contract_10_a_cursor_comes_to_the_end_of_the_device() {
    let shape = Shape::new(MIB + 512, 512);
    let Some(device) = Device::new("a_cursor_comes_to_the_end", shape) else { return };
    let engine = engine();
    let file = engine.open(device.path(), &how::write()).unwrap();
    let mut cursor = Cursor::new(&file);
    // As much as there is room for, and then the reason.
    let error = std::io::copy(&mut std::io::repeat(7), &mut cursor).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(cursor.stream_position().unwrap(), shape.size());
    cursor.seek(SeekFrom::End(-1000)).unwrap();
    assert_eq!(cursor.write(&pattern(1, 5000)).unwrap(), 1000);
    file.close().unwrap();
    let stored = device.stored();
    let (sevens, last) = stored.split_at(shape.size() as usize - 1000);
    assert!(sevens.iter().all(|byte| *byte == 7) && *last == pattern(1, 5000)[..1000]);
}

#[test]
fn contract_10_a_node_without_a_device_says_so() {
    if !support::is_root() {
        return support::skip("a_node_without_a_device", "only root can make a node");
    }
    let directory = support::directory();
    let node = directory.path().join("node");
    // Numbers kept for experiments: nothing serves them.
    process::run("mknod", &[node.as_os_str(), OsStr::new("b"), OsStr::new("120"), OsStr::new("7")])
        .unwrap();
    let engine = engine();
    let error =
        within(SOON, "opening a dead node", move || engine.open(node, &how::read())).unwrap_err();
    assert_eq!((error.kind(), error.os_error()), (ErrorKind::Open, Some(libc::ENXIO)), "{error}");
}
