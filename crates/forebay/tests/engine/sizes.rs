//! Contract 8: the size is exact at every sync, for any alignment.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::mount::{FileSystem, Mount};
use crate::support::{self, MIB, assert_on_disk, how, pattern, within};
use forebay::{Engine, File, Options};
use forebay_block::random::Random;

const SOON: Duration = Duration::from_secs(20);

fn small() -> Options {
    Options { cache_bytes: Some(8 << 20), close_timeout: SOON, ..Options::default() }
}

/// A file in step with a plain array of bytes.
struct Both {
    file: File,
    model: Vec<u8>,
    path: std::path::PathBuf,
}

impl Both {
    fn write(&mut self, offset: usize, length: usize) {
        let data = pattern((offset * 31 + length) as u64, length);
        self.file.write_at(&data, offset as u64).unwrap();
        self.model.resize(self.model.len().max(offset + length), 0);
        self.model[offset..offset + length].copy_from_slice(&data);
    }

    fn append(&mut self, length: usize) {
        let data = pattern((self.model.len() * 31 + length) as u64, length);
        assert_eq!(self.file.append(&data).unwrap(), self.model.len() as u64);
        self.model.extend(data);
    }

    fn set_length(&mut self, length: usize) {
        self.file.set_len(length as u64).unwrap();
        self.model.resize(length, 0);
    }

    fn sync(&self, what: &str) {
        self.file.sync_data().unwrap();
        assert_eq!(self.file.len().unwrap(), self.model.len() as u64, "{what}");
        // A look at the size breaks no lease, reading would.
        assert_eq!(
            std::fs::metadata(&self.path).unwrap().len(),
            self.model.len() as u64,
            "{what}: size synced"
        );
    }
}

fn sizes_are_exact(directory: &Path, step: usize) {
    let engine = Engine::start(small()).unwrap();
    let mut both = {
        let path = directory.join("sizes");
        Both { file: engine.open(&path, &how::create()).unwrap(), model: Vec::new(), path }
    };
    for length in (0..4098).step_by(step).chain([1, 511, 512, 513, 4095, 4096, 4097]) {
        both.set_length(0);
        both.write(0, length);
        both.sync("written from the start");
        both.append(4096 - length / 2);
        both.sync("appended");
        both.write(length + 9000, 5);
        both.sync("beyond a hole");
        both.set_length(length);
        both.append(1);
        both.sync("cut and appended");
        both.set_length(length + 20_000);
        both.write(length + 4000, 300);
        both.sync("grown and written within");
        assert_eq!(both.file.len().unwrap(), both.model.len() as u64);
    }
    both.set_length(0);
    for record in 0..300 {
        both.append(1 + record * 37 % 6000);
        if record % 10 == 0 {
            both.sync("records");
        }
    }
    let Both { file, model, path } = both;
    let mut through = vec![0; model.len()];
    assert_eq!(file.read_at(&mut through, 0).unwrap(), model.len());
    assert!(through == model);
    file.close().unwrap();
    assert_on_disk(&path, &model, "sizes");
}

#[test]
fn contract_08_sizes_are_exact_at_every_sync_here() {
    let directory = support::directory();
    sizes_are_exact(directory.path(), 97);
}

#[test]
fn contract_08_sizes_are_exact_at_every_sync_on_xfs() {
    if let Some(mount) = Mount::new("sizes_on_xfs", FileSystem::Xfs, 2048 * MIB) {
        sizes_are_exact(&mount.path(), 293);
    }
}

/// With small blocks a page's end is not a block's end.
#[test]
fn contract_08_sizes_are_exact_at_every_sync_on_ext4_with_small_blocks() {
    if let Some(mount) = Mount::new("sizes_on_ext4", FileSystem::Ext4, 64 * MIB) {
        sizes_are_exact(&mount.path(), 293);
    }
}

/// Pages are read from the device all the while the block with the end of the file is written
/// through the kernel.
#[test]
fn contract_08_reads_while_the_end_of_the_file_is_written() {
    within(Duration::from_secs(30), "reading beside appending", || {
        let directory = support::directory();
        let path = directory.path().join("file");
        let engine =
            Engine::start(Options { dirty_age: Duration::from_millis(1), ..small() }).unwrap();
        std::fs::write(&path, pattern(1, 24 << 20)).unwrap();
        let expected = pattern(1, 24 << 20);
        let file = engine.open(&path, &how::write()).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for reader in 0..3 {
                let (file, done, expected) = (&file, &done, &expected);
                scope.spawn(move || {
                    let mut random = Random::new(reader);
                    while !done.load(Ordering::Relaxed) {
                        let offset = random.below(23 * MIB) as usize;
                        let mut buffer = vec![0; 1 + random.below(100_000) as usize];
                        assert_eq!(file.read_at(&mut buffer, offset as u64).unwrap(), buffer.len());
                        assert!(buffer == expected[offset..offset + buffer.len()]);
                    }
                });
            }
            for round in 0..300 {
                file.append(&pattern(round, 501)).unwrap();
                file.sync_data().unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        file.close().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), (24 << 20) + 300 * 501);
    });
}
