//! Cache hits of readers and the read-ahead for them, checked by counters, on real files.

use std::path::{Path, PathBuf};

use crate::support::{self, MIB, PAGE, directory, how, knobs, pattern, skip};
use forebay::{Engine, File, OpenOptions, Options, Stats};
use forebay_block::random::Random;
use tempfile::TempDir;

const CACHE: u64 = 16 * MIB;

/// A file of `length` bytes that is in nobody's memory, and an engine with a small cache.
struct Scene {
    engine: Engine,
    bytes: Vec<u8>,
    path: PathBuf,
    _directory: TempDir,
}

impl Scene {
    fn new(length: u64) -> Self {
        let directory = directory();
        let path = directory.path().join("file");
        let bytes = pattern(length, length as usize);
        std::fs::write(&path, &bytes).unwrap();
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        let engine =
            Engine::start(Options { cache_bytes: Some(CACHE), ..Options::default() }).unwrap();
        Self { engine, bytes, path, _directory: directory }
    }

    /// A handle of the file while nobody else has it open; none where the file system does not tell
    /// that.
    fn open(&self, test: &str, open: &OpenOptions) -> Option<File> {
        let file = self.engine.open(&self.path, open).unwrap();
        let alone = !file.describe().contains("shared");
        if !alone {
            skip(test, &format!("no lease here: {}", file.describe()));
        }
        alone.then_some(file)
    }

    fn check(&self, file: &File, offset: u64, length: usize) {
        let mut buffer = vec![0; length];
        let read = file.read_at(&mut buffer, offset).unwrap();
        let expected = &self.bytes[offset as usize..self.bytes.len().min(offset as usize + length)];
        assert_eq!(read, expected.len(), "read at {offset}");
        assert!(buffer[..read] == *expected, "wrong bytes at {offset}");
    }

    fn read_all(&self, file: &File, chunk: usize) {
        for offset in (0..self.bytes.len()).step_by(chunk) {
            self.check(file, offset as u64, chunk);
        }
    }

    /// Returns the counters of the reads during `run`.
    fn during(&self, run: impl FnOnce()) -> Stats {
        let before = self.engine.stats();
        run();
        // A read that was not waited for may still be on its way.
        let quiet = || self.engine.stats().completed_bios == self.engine.stats().bios;
        assert!(support::eventually(std::time::Duration::from_secs(20), quiet));
        let after = self.engine.stats();
        let mut stats = Stats::default();
        stats.read_bytes = after.read_bytes - before.read_bytes;
        stats.bios = after.bios - before.bios;
        stats.readahead_bytes = after.readahead_bytes - before.readahead_bytes;
        stats.evicted_pages = after.evicted_pages - before.evicted_pages;
        stats
    }
}

fn write_through(path: &Path, engine: &Engine, open: &OpenOptions, bytes: &[u8]) -> File {
    let file = engine.open(path, open).unwrap();
    for (at, part) in bytes.chunks(300_000).enumerate() {
        file.write_at(part, at as u64 * 300_000).unwrap();
    }
    file.sync_data().unwrap();
    file
}

#[test]
fn a_stream_reads_each_byte_once_in_large_requests() {
    // Not a whole number of pages, and larger than the cache.
    let scene = Scene::new(3 * CACHE + 1234);
    let Some(file) = scene.open("a_stream", &how::write()) else { return };
    for chunk in [4096, 10_000, 65_536, 1 << 20] {
        let length = scene.bytes.len() as u64;
        let stats = scene.during(|| scene.read_all(&file, chunk));
        println!(
            "chunks of {chunk}: {} bios, {} MiB ahead",
            stats.bios,
            stats.readahead_bytes / MIB
        );
        assert!(stats.read_bytes <= length.next_multiple_of(PAGE), "no byte twice: {stats:?}");
        assert!(stats.read_bytes + CACHE >= length, "{stats:?}");
        // Reads of 1 MiB take most of the frames that so small a cache has free themselves.
        let ahead = if chunk < 1 << 20 { length - CACHE - 2 * MIB } else { length / 4 };
        assert!(stats.readahead_bytes >= ahead, "{stats:?}");
        // Windows of this small cache are not much less than 1 MiB: room is made in batches.
        assert!(
            stats.bios <= 3 * length / MIB + 20,
            "{} bios for {} MiB",
            stats.bios,
            length / MIB
        );
    }
}

#[test]
fn one_large_read_goes_out_as_large_requests() {
    let scene = Scene::new(8 * MIB);
    let Some(file) = scene.open("one_large_read", &how::write()) else { return };
    for (length, bios) in [(64 << 10, 1), (1 << 20, 1), (8 << 20, 16)] {
        let scene = Scene::new(8 * MIB);
        let file = scene.open("one_large_read", &how::write()).unwrap();
        let stats = scene.during(|| scene.check(&file, 0, length));
        assert_eq!((stats.read_bytes, stats.readahead_bytes), (length as u64, 0));
        assert!(stats.bios <= bios, "{length} bytes are {} bios", stats.bios);
    }
    drop(file);
}

#[test]
fn random_and_backward_reads_read_nothing_ahead() {
    let scene = Scene::new(2 * CACHE);
    let Some(file) = scene.open("random_and_backward", &how::write()) else { return };
    let pages = scene.bytes.len() as u64 / PAGE;
    let mut random = Random::new(5);
    let stats = scene.during(|| {
        for _ in 0..2000 {
            let page = random.below(pages);
            scene.check(&file, page * PAGE, 4096);
        }
        for page in (0..500).rev() {
            scene.check(&file, page * 2 * PAGE, 4096);
        }
    });
    assert_eq!(stats.readahead_bytes, 0);
    assert!(stats.read_bytes <= 2500 * PAGE);
}

#[test]
fn several_streams_of_one_file_are_read_ahead() {
    let scene = Scene::new(2 * CACHE);
    let Some(file) = scene.open("several_streams", &how::write()) else { return };
    let part = scene.bytes.len() as u64 / 4;
    let stats = scene.during(|| {
        for step in (0..part).step_by(16 << 10) {
            (0..4).for_each(|stream| scene.check(&file, stream * part + step, 16 << 10));
        }
    });
    let length = scene.bytes.len() as u64;
    // At the end of its part each reads ahead what the next one has read.
    assert!(stats.read_bytes <= length + 3 * 2 * MIB, "no byte twice: {stats:?}");
    assert!(stats.readahead_bytes >= length * 9 / 10, "{stats:?}");
}

#[test]
fn a_scan_leaves_what_is_read_again_and_again() {
    let scene = Scene::new(4 * CACHE);
    let Some(file) = scene.open("a_scan", &how::write()) else { return };
    let hot = CACHE / 4;
    let mut random = Random::new(9);
    let mut read_hot = |times: u64| {
        for _ in 0..times * hot / PAGE {
            scene.check(&file, random.below(hot / PAGE) * PAGE, 4096);
        }
    };
    read_hot(8);
    for _ in 0..2 {
        let scan = scene.during(|| {
            for offset in (hot..scene.bytes.len() as u64).step_by(65_536) {
                scene.check(&file, offset, 65_536);
            }
        });
        assert!(scan.evicted_pages > CACHE / PAGE, "it goes through: {scan:?}");
        let again = scene.during(|| read_hot(1));
        println!(
            "after a scan {} of {hot} bytes of what is wanted are read again",
            again.read_bytes
        );
        assert!(again.read_bytes < hot / 10, "{again:?}");
    }
}

#[test]
fn a_bulk_write_leaves_what_is_read_again_and_again() {
    let scene = Scene::new(4 * MIB);
    // Dirty pages may take most of the cache while the device is slow. The limit keeps the rest for
    // clean pages.
    knobs::set(&scene.engine, "dirty_bytes", "4m").unwrap();
    let Some(file) = scene.open("a_bulk_write", &how::write()) else { return };
    let hot = MIB / 2;
    (0..4).for_each(|_| (0..hot / PAGE).for_each(|page| scene.check(&file, page * PAGE, 4096)));
    let bulk = pattern(77, 3 * CACHE as usize);
    let written =
        write_through(&scene.path.with_extension("bulk"), &scene.engine, &how::create(), &bulk);
    let again =
        scene.during(|| (0..hot / PAGE).for_each(|page| scene.check(&file, page * PAGE, 4096)));
    println!(
        "after a bulk write {} of {hot} bytes of what is wanted are read again",
        again.read_bytes
    );
    assert!(again.read_bytes < hot / 4, "{again:?}");
    drop(written);
}

#[test]
fn what_is_read_uncached_is_not_kept() {
    let scene = Scene::new(2 * CACHE);
    let Some(kept) = scene.open("uncached_reads", &how::write()) else { return };
    let passing = scene.engine.open(&scene.path, how::read().uncached(true)).unwrap();
    let there = MIB / 2;
    scene.check(&kept, MIB, there as usize);
    let length = scene.bytes.len() as u64;
    for chunk in [5000, 65_536] {
        let stats = scene.during(|| scene.read_all(&passing, chunk));
        assert_eq!(stats.evicted_pages, 0, "memory never becomes short");
        assert_eq!(
            stats.read_bytes,
            length - there,
            "what was there was there, and stays; the rest is read once"
        );
        assert!(
            stats.readahead_bytes > length / 2,
            "a stream is read ahead all the same: {stats:?}"
        );
    }
    let stats = scene.during(|| scene.check(&kept, MIB, there as usize));
    assert_eq!(stats.read_bytes, 0, "what another handle keeps is there");
    let stats = scene.during(|| scene.check(&kept, 8 * MIB, there as usize));
    assert_eq!(stats.read_bytes - stats.readahead_bytes, there, "what passed is not");
}

#[test]
fn what_is_written_uncached_is_not_kept() {
    let directory = directory();
    let engine =
        Engine::start(Options { cache_bytes: Some(CACHE), uncached: true, ..Options::default() })
            .unwrap();
    let bytes = pattern(3, 2 * CACHE as usize + 100);
    let read = |file: &File, length: usize| {
        let before = engine.stats();
        let mut buffer = vec![0; length];
        assert_eq!(file.read_at(&mut buffer, 0).unwrap(), length);
        assert!(buffer == bytes[..length]);
        engine.stats().read_bytes - before.read_bytes
    };
    let file = write_through(&directory.path().join("one"), &engine, &how::create(), &bytes);
    assert_eq!(engine.stats().evicted_pages, 0, "memory never becomes short of clean pages");
    assert_eq!(read(&file, 4 << 20), 4 << 20, "nothing of it is here");
    // The handle says otherwise; then the engine does.
    let kept = write_through(
        &directory.path().join("two"),
        &engine,
        how::create().uncached(false),
        &bytes[..4 << 20],
    );
    if kept.describe().contains("shared") {
        return skip("what_is_written_uncached", "no lease here");
    }
    assert_eq!(read(&kept, 4 << 20), 0, "all of it is here");
    knobs::set(&engine, "uncached", "off").unwrap();
    assert!(knobs::set(&engine, "uncached", "perhaps").is_err());
    file.write_at(&bytes[..1 << 20], 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(read(&file, 1 << 20), 0, "from now on it stays");
    knobs::set(&engine, "uncached", "on").unwrap();
    file.write_at(&bytes[..1 << 20], 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(read(&file, 1 << 20), 1 << 20, "from now on it goes");
}

#[test]
fn contract_06_of_a_shared_file_nothing_is_kept_and_nothing_read_ahead() {
    let scene = Scene::new(4 * MIB);
    let other = std::fs::File::open(&scene.path).unwrap();
    let file = scene.engine.open(&scene.path, &how::write()).unwrap();
    assert!(file.describe().contains("shared"), "{}", file.describe());
    for _ in 0..2 {
        let stats = scene.during(|| scene.read_all(&file, 65_536));
        assert_eq!(stats.readahead_bytes, 0);
        assert_eq!(stats.read_bytes, scene.bytes.len() as u64, "every read goes to the device");
    }
    drop(other);
}

#[test]
fn readers_and_writers_of_all_kinds_find_what_was_written() {
    let directory = directory();
    let path = directory.path().join("file");
    let engine =
        Engine::start(Options { cache_bytes: Some(8 * MIB), ..Options::default() }).unwrap();
    let length = 24 * MIB;
    engine.open(&path, &how::create()).unwrap().set_len(length).unwrap();
    let parts = 4;
    let part = length / parts;
    std::thread::scope(|scope| {
        for thread in 0..parts {
            let (engine, path) = (&engine, &path);
            scope.spawn(move || {
                let open = || how::write().uncached(thread % 2 == 1).clone();
                let mut file = engine.open(path, &open()).unwrap();
                let mut bytes = vec![0; part as usize];
                let mut random = Random::new(thread);
                let mut next = 0;
                for step in 0..400 {
                    let offset = random.below(part);
                    let size = (random.below(100_000) + 1).min(part - offset);
                    match random.below(10) {
                        0..3 => {
                            let data = pattern(random.draw(), size as usize);
                            file.write_at(&data, thread * part + offset).unwrap();
                            bytes[offset as usize..][..size as usize].copy_from_slice(&data);
                        }
                        3..5 => check(&file, &bytes, thread * part, offset, size),
                        5..9 => {
                            let size = size.min(part - next);
                            check(&file, &bytes, thread * part, next, size);
                            next = (next + size) % part;
                        }
                        _ if step % 7 == 0 => file = engine.open(path, &open()).unwrap(),
                        _ => file.sync_data().unwrap(),
                    }
                }
                check(&file, &bytes, thread * part, 0, part);
            });
        }
    });

    fn check(file: &File, bytes: &[u8], base: u64, offset: u64, size: u64) {
        let mut buffer = vec![0; size as usize];
        assert_eq!(file.read_at(&mut buffer, base + offset).unwrap() as u64, size);
        assert!(
            buffer == bytes[offset as usize..][..size as usize],
            "wrong bytes in {size} at {base} + {offset}"
        );
    }
}
