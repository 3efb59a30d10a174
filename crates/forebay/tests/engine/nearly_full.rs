//! Random operations on a nearly full file system that no other program uses. Space for each
//! accepted byte is there: a close has no reason to fail, and finds every accepted byte on disk.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::mount::{FileSystem, Mount};
use crate::support::{self, MIB, how, pattern, process, within};
use forebay::{Engine, ErrorKind, File, Options};
use forebay_block::random::Random;

/// Free bytes for each file of a run: fewer than its longest length, so that space runs out.
const PER_FILE: u64 = 50_000;

/// Longest file in bytes.
const LONGEST: u64 = 300_000;

/// A file and the bytes that were accepted for it.
struct Driven {
    path: PathBuf,
    file: Option<File>,
    accepted: Vec<u8>,
}

/// Counts of a run.
#[derive(Default, Debug)]
struct Counts {
    accepted: u64,
    refused: u64,
    closed: u64,
    failed: Vec<String>,
}

impl Driven {
    /// Makes a random call, and checks its effect.
    fn step(&mut self, engine: &Engine, random: &mut Random, counts: &mut Counts) {
        let Some(file) = &self.file else {
            let cuts = random.below(8) == 0;
            match engine.open(&self.path, how::create().truncate(cuts)) {
                Ok(file) => {
                    self.file = Some(file);
                    self.accepted.truncate(if cuts { 0 } else { usize::MAX });
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}"),
            }
            return;
        };
        match random.below(20) {
            0..13 => {
                let longest = [10, 700, 4096, 9_000, 40_000][random.below(5) as usize];
                let data = pattern(random.below(1 << 40), 1 + random.below(longest) as usize);
                let is_append = random.below(2) == 0;
                let end = self.accepted.len() as u64;
                let offset = if is_append { end } else { random.below(LONGEST) };
                if offset + data.len() as u64 > LONGEST {
                    return;
                }
                let written = if is_append {
                    file.append(&data).map(|at| assert_eq!(at, end))
                } else {
                    file.write_at(&data, offset)
                };
                match written {
                    Ok(()) => {
                        counts.accepted += 1;
                        let end = offset as usize + data.len();
                        self.accepted.resize(self.accepted.len().max(end), 0);
                        self.accepted[offset as usize..end].copy_from_slice(&data);
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                        let length = file.len().unwrap();
                        // A child that another test starts has the closed file open until it
                        // executes its program. The file is shared then, and the kernel appends
                        // what has space.
                        if length > end && is_append && !has_lease(&self.path) {
                            let accepted = (length - end) as usize;
                            assert!(accepted < data.len(), "a whole append was refused");
                            self.accepted.extend_from_slice(&data[..accepted]);
                        } else {
                            assert_eq!(length, end, "a part of a refused write was accepted");
                        }
                        counts.refused += 1;
                    }
                }
            }
            13 => {
                let length = random.below(self.accepted.len() as u64 + 5_000).min(LONGEST);
                match file.set_len(length) {
                    Ok(()) => self.accepted.resize(length as usize, 0),
                    // A file system that copies on write needs space for the block at the end.
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                        assert_eq!(
                            file.len().unwrap(),
                            self.accepted.len() as u64,
                            "a length refused"
                        );
                        counts.refused += 1;
                    }
                }
            }
            14 => file.sync_data().unwrap_or_else(|error| counts.failed.push(error.to_string())),
            15 => file.write_out().unwrap_or_else(|error| counts.failed.push(error.to_string())),
            _ => self.close(counts, random.below(10) == 0),
        }
    }

    /// Closes the file, and compares it with the accepted bytes. If it `clones`, another program
    /// then makes a copy that shares the blocks.
    fn close(&mut self, counts: &mut Counts, clones: bool) {
        let Some(file) = self.file.take() else { return };
        match file.close() {
            Ok(()) => {
                counts.closed += 1;
                let found = std::fs::read(&self.path).unwrap();
                let is_same = found == self.accepted;
                assert!(is_same, "{}: other bytes than were accepted", self.path.display());
                if clones {
                    // Only some file systems can share the blocks.
                    let line = "cp --reflink=always \"$1\" \"$1.clone\" 2>&1 || rm -f \"$1.clone\"";
                    process::shell(line, &self.path).unwrap();
                }
            }
            Err(error) => {
                counts.failed.push(error.to_string());
                self.accepted = std::fs::read(&self.path).unwrap();
            }
        }
    }
}

/// Returns whether a process has a lease on the file.
fn has_lease(path: &Path) -> bool {
    let inode = format!(":{} ", std::fs::metadata(path).unwrap().ino());
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    locks.lines().any(|line| line.contains(" LEASE ") && line.contains(&inode))
}

/// Makes random calls in a file system that has `left` bytes left.
fn drive(file_system: FileSystem, bytes: u64, left: u64) {
    let test = format!("nearly_full on {file_system:?}");
    let Some(mount) = Mount::new(&test, file_system, bytes) else { return };
    mount.fill_but(left);
    let (seed, operations) = (support::seed(), support::operations(3 * left / 1_000));
    let number_of_files = left / PER_FILE;
    within(Duration::from_secs(600), "calls on a nearly full file system", move || {
        let engine = Engine::start(Options {
            cache_bytes: Some(16 << 20),
            close_timeout: Duration::from_secs(20),
            ..Options::default()
        })
        .unwrap();
        let mut random = Random::new(seed);
        let path = |number| mount.path().join(format!("file-{number}"));
        let driven = |number| Driven { path: path(number), file: None, accepted: Vec::new() };
        let mut files: Vec<Driven> = (0..number_of_files).map(driven).collect();
        let mut counts = Counts::default();
        for _ in 0..operations {
            let number = random.below(number_of_files) as usize;
            files[number].step(&engine, &mut random, &mut counts);
        }
        files.iter_mut().for_each(|file| file.close(&mut counts, false));
        println!("{test}: {counts:?}");
        assert!(counts.accepted > 0 && counts.refused > 0, "{counts:?}");
        assert_eq!(counts.failed, [""; 0], "accepted bytes had no space");
        engine.shutdown(Duration::from_secs(20)).unwrap();
    });
}

#[test]
fn contract_09_accepted_bytes_have_space_on_ext4() {
    drive(FileSystem::Ext4, 96 * MIB, 1_200_000);
}

#[test]
fn contract_09_accepted_bytes_have_space_on_ext4_with_large_blocks() {
    drive(FileSystem::Ext4Pages, 96 * MIB, 1_200_000);
}

#[test]
fn contract_09_accepted_bytes_have_space_on_ext4_without_a_journal() {
    drive(FileSystem::Ext4WithoutJournal, 96 * MIB, 1_200_000);
}

#[test]
fn contract_09_accepted_bytes_have_space_on_xfs() {
    drive(FileSystem::XfsOfFour, 400 * MIB, 1_600_000);
}

#[test]
fn contract_09_accepted_bytes_have_space_on_xfs_with_small_blocks() {
    drive(FileSystem::XfsSmallBlocks, 400 * MIB, 1_600_000);
}

/// Free space that a file system keeps which copies on write.
const BELOW: u64 = 9_000_000;

#[test]
fn contract_09_accepted_bytes_have_space_on_btrfs() {
    drive(FileSystem::Btrfs, 400 * MIB, 3_000_000 + BELOW);
}
