//! Random operations through several handles against a plain byte array, on real files, everything
//! unaligned.

use std::path::Path;
use std::time::Duration;

use forebay::{Engine, File, Options};
use forebay_block::random::Random;

use crate::support::how;
use crate::support::knobs;

/// Small mostly, large sometimes, on page borders often.
fn length(random: &mut Random, most: u64) -> usize {
    let raw = match random.below(4) {
        0 => random.below(200),
        1 => random.below(20_000),
        2 => random.below(16) * 4096,
        _ => random.below(most),
    };
    raw.min(most) as usize
}

/// One file, and its expected content.
struct Model {
    bytes: Vec<u8>,
    handles: Vec<File>,
}

impl Model {
    fn check_read(&self, random: &mut Random) {
        let handle = &self.handles[random.below(self.handles.len() as u64) as usize];
        let offset = random.below(self.bytes.len() as u64 + 5000);
        let mut buffer = vec![0xee; length(random, 200_000)];
        let read = handle.read_at(&mut buffer, offset).unwrap();
        let start = (offset as usize).min(self.bytes.len());
        let end = (start + buffer.len()).min(self.bytes.len());
        assert_eq!(read, end - start, "read at {offset} of {}", self.bytes.len());
        assert!(buffer[..read] == self.bytes[start..end], "wrong bytes in {read} at {offset}");
    }

    /// A stretch read in pieces, one after the other.
    fn check_stream(&self, random: &mut Random) {
        let handle = &self.handles[random.below(self.handles.len() as u64) as usize];
        let mut offset = random.below(self.bytes.len() as u64 + 1) as usize;
        let mut buffer = vec![0xee; 1 + length(random, 100_000)];
        for _ in 0..random.below(60) {
            let read = handle.read_at(&mut buffer, offset as u64).unwrap();
            let end = (offset + buffer.len()).min(self.bytes.len());
            assert!(buffer[..read] == self.bytes[offset..end], "wrong bytes in {read} at {offset}");
            offset = end;
        }
    }

    fn check_disk(&self, path: &Path) {
        let on_disk = std::fs::read(path).unwrap();
        assert_eq!(on_disk.len(), self.bytes.len(), "size on disk");
        let differs = on_disk.iter().zip(&self.bytes).position(|(disk, model)| disk != model);
        assert_eq!(differs, None, "first byte that differs on disk");
    }
}

fn run(by: &str, seed: u64, cache_bytes: u64, operations: usize) {
    let directory = tempfile::tempdir_in(".").unwrap();
    let path = directory.path().join("file");
    let engine = Engine::start(knobs::named(
        Options {
            cache_bytes: Some(cache_bytes),
            dirty_bytes: Some(4 << 20),
            dirty_age: Duration::from_millis(20),
            close_timeout: Duration::from_secs(20),
            ..Options::default()
        },
        [("backend", by)],
    ))
    .unwrap();
    let mut random = Random::new(seed);
    let mut model =
        Model { bytes: Vec::new(), handles: vec![engine.open(&path, &how::create()).unwrap()] };
    for step in 0..operations {
        let which = random.below(model.handles.len() as u64) as usize;
        let most = 24 << 20;
        match random.below(100) {
            0..40 => {
                let offset = random.below(most);
                let mut data = vec![0; length(&mut random, 300_000)];
                let tag = random.draw();
                data.iter_mut()
                    .enumerate()
                    .for_each(|(at, byte)| *byte = (tag as usize + at * 7) as u8);
                model.handles[which].write_at(&data, offset).unwrap();
                let end = offset as usize + data.len();
                if !data.is_empty() {
                    model.bytes.resize(end.max(model.bytes.len()), 0);
                    model.bytes[offset as usize..end].copy_from_slice(&data);
                }
            }
            40..70 => model.check_read(&mut random),
            70..75 => model.check_stream(&mut random),
            75..82 => {
                let length = random.below(most) / [1, 4096][random.below(2) as usize];
                model.handles[which].set_len(length).unwrap();
                model.bytes.resize(length as usize, 0);
            }
            82..90 => {
                model.handles[which].sync_data().unwrap();
                if random.below(4) == 0 {
                    model.check_disk(&path);
                }
            }
            90..94 => {
                let uncached = random.below(2) == 0;
                model.handles.push(engine.open(&path, how::write().uncached(uncached)).unwrap());
            }
            94..98 => {
                let handle = model.handles.swap_remove(which);
                match random.below(2) {
                    0 => handle.close().unwrap(),
                    _ => drop(handle),
                }
                if model.handles.is_empty() {
                    model.handles.push(engine.open(&path, &how::write()).unwrap());
                }
            }
            _ => std::thread::sleep(Duration::from_millis(random.below(30))),
        }
        let size = model.handles[0].len().unwrap();
        assert_eq!(size, model.bytes.len() as u64, "seed {seed}, step {step}");
    }
    model.handles[0].sync_all().unwrap();
    model.check_disk(&path);
    model.handles.drain(..).for_each(|handle| handle.close().unwrap());
    engine.shutdown(Duration::from_secs(10)).unwrap();
    model.check_disk(&path);
    let blocks = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).unwrap()) * 512;
    assert!(
        blocks <= model.bytes.len() as u64 + 65536,
        "{blocks} bytes allocated for {}",
        model.bytes.len()
    );
}

#[test]
fn agrees_with_a_byte_array() {
    for seed in 0..12 {
        run("auto", seed, 8 << 20, 150);
    }
}

#[test]
fn contract_17_agrees_with_a_byte_array_on_the_thread_pool() {
    for seed in 0..12 {
        run("threads", seed, 8 << 20, 150);
    }
}

#[test]
fn agrees_with_a_byte_array_with_room() {
    for seed in 100..106 {
        run("auto", seed, 64 << 20, 150);
        run("threads", seed, 64 << 20, 150);
    }
}

#[test]
fn appends_from_many_threads_do_not_overlap() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let path = directory.path().join("log");
    let engine =
        Engine::start(Options { cache_bytes: Some(16 << 20), ..Options::default() }).unwrap();
    let record = |thread: u8, at: u16| {
        let mut record = vec![thread; 100 + usize::from(at % 97)];
        record[..2].copy_from_slice(&at.to_le_bytes());
        record
    };
    let places: Vec<(u64, Vec<u8>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u8)
            .map(|thread| {
                let log = engine.open(&path, &how::append()).unwrap();
                scope.spawn(move || {
                    let mut places = Vec::new();
                    for at in 0..500u16 {
                        let record = record(thread, at);
                        places.push((log.append(&record).unwrap(), record));
                        if at % 50 == 0 {
                            log.sync_data().unwrap();
                        }
                    }
                    log.close().unwrap();
                    places
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let on_disk = std::fs::read(&path).unwrap();
    assert_eq!(on_disk.len(), places.iter().map(|(_, record)| record.len()).sum::<usize>());
    for (at, record) in places {
        assert!(on_disk[at as usize..][..record.len()] == record, "the record at {at}");
    }
}
