//! The record of a file: which file a number in the headers stands for, its length for its program,
//! and all that another process needs to finish its writing.
//!
//! A record is 64 words, 512 bytes, native byte order, at `records_offset + 512 * number` in the
//! arena's memory:
//!
//! ```text
//! word 0       bits 0..16 generation (never zero), bits 16..32 flags (1 lease, 2 block device, 4 writable, 8 made by us),
//!              bits 32..48 bytes of the path, bits 48..64 zero
//! word 1, 2    device and inode
//! word 3       the size the program was told; changes by itself
//! word 4       0, or 1 + the length that the file is being cut to; changes by itself
//! words 5..60  the path, as it was opened; none where it is longer
//! word 60      0, or 1 since a panic interrupted a change of the file's state; changes by itself
//! word 61      the last flush beside records of the intent log: 0 ended well, 1 on the way, 2 failed;
//!              changes by itself
//! word 62      0, or 1 + the number of a record of the intent log that is in no frame yet;
//!              changes by itself
//! word 63      check: a mix of the file's number and all words but 3, 4, 60 to 62 and itself,
//!              never zero; zero: no record
//! ```
//!
//! The check takes words 60 to 62 as zero. In version 2 of the layout all of them were always zero,
//! and in version 3 the last two, so their records check out here.
//!
//! The check is stored last, with Release. A record is entered before the first frame of its file
//! is published and left after the last is retired: only a file's size and cut change in between.
//! Whether the lease is still held is the kernel's to say.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::file::Identity;
use crate::header::check_of;

/// Maximum of files with a record. All records take 32 MiB of address space, but only used ones
/// take memory.
pub const FILE_RECORDS: u32 = 1 << 16;

/// Maximum of bytes of a path in a record.
pub const RECORD_PATH_BYTES: usize = PATH_WORDS * 8;

/// State of the flushes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Flush {
    /// The last one ended well.
    #[default]
    Well,
    /// One is on the way.
    OnTheWay,
    /// One has failed: written pages may be missing in the file.
    Failed,
}

/// Record of an open file for another process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileRecord {
    /// Generation: distinguishes files that had the same number. Never 0.
    pub generation: u16,
    /// Whether its lease was held when it was opened.
    pub leased: bool,
    /// Whether it is a block device.
    pub device: bool,
    /// Whether it is open for writing.
    pub writable: bool,
    /// Whether the open created it, so that its directory entry must be made durable.
    pub created: bool,
    /// Identity of the file.
    pub identity: Identity,
    /// Size in bytes as its program sees it.
    pub size: u64,
    /// Length that it is being truncated to, if it is.
    pub cut: Option<u64>,
    /// Whether a panic interrupted a change of the file's state. Then its headers and its size may
    /// be half changed, and nothing may be written from them.
    pub interrupted: bool,
    /// State of the flushes of the file, while the intent log has records of it.
    pub flush: Flush,
    /// Number of a record of the intent log whose bytes are in no frame yet.
    pub unpublished: Option<u64>,
    /// Path that it was opened with, or empty if longer than [`RECORD_PATH_BYTES`].
    pub path: PathBuf,
}

/// The words in shared memory.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RecordWords {
    about: AtomicU64,
    device: AtomicU64,
    inode: AtomicU64,
    size: AtomicU64,
    cut: AtomicU64,
    path: [AtomicU64; PATH_WORDS],
    interrupted: AtomicU64,
    flush: AtomicU64,
    unpublished: AtomicU64,
    check: AtomicU64,
}

pub(crate) const RECORD_BYTES: usize = 512;
const PATH_WORDS: usize = 55;
const _: () = assert!(size_of::<RecordWords>() == RECORD_BYTES);

const LEASED: u64 = 1 << 16;
const DEVICE: u64 = 1 << 17;
const WRITABLE: u64 = 1 << 18;
const CREATED: u64 = 1 << 19;
const PATH_SHIFT: u32 = 32;
/// All bits that mean something.
const KNOWN: u64 = 0xffff | LEASED | DEVICE | WRITABLE | CREATED | 0xffff << PATH_SHIFT;

impl RecordWords {
    /// Replaces the older record; a process that dies meanwhile leaves none.
    pub(crate) fn enter(&self, number: u32, record: &FileRecord) {
        assert_ne!(record.generation, 0, "a generation is never zero");
        self.leave();
        // Orders the leaving before the words below: a reader that sees a new word cannot see the
        // old check.
        fence(Ordering::Release);
        let path = record.path.as_os_str().as_bytes();
        let path = if path.len() <= RECORD_PATH_BYTES { path } else { &[] };
        self.about.store(about(record, path.len()), Ordering::Relaxed);
        self.device.store(record.identity.device, Ordering::Relaxed);
        self.inode.store(record.identity.inode, Ordering::Relaxed);
        self.set_size(record.size);
        self.set_cut(record.cut);
        self.interrupted.store(record.interrupted.into(), Ordering::Relaxed);
        self.set_flush(record.flush);
        self.set_unpublished(record.unpublished);
        let mut padded = [0; RECORD_PATH_BYTES];
        padded[..path.len()].copy_from_slice(path);
        for (word, bytes) in self.path.iter().zip(padded.chunks_exact(8)) {
            let bytes = bytes.try_into().expect("chunks of eight");
            word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
        self.check.store(self.sum(number), Ordering::Release);
    }

    pub(crate) fn leave(&self) {
        self.check.store(0, Ordering::Release);
    }

    pub(crate) fn set_size(&self, bytes: u64) {
        self.size.store(bytes, Ordering::Release);
    }

    pub(crate) fn set_cut(&self, to: Option<u64>) {
        let word = to.map_or(0, |to| to.checked_add(1).expect("no file is so long"));
        self.cut.store(word, Ordering::Release);
    }

    /// Marks the file as interrupted. One store, so a reader sees the record whole.
    pub(crate) fn interrupt(&self) {
        self.interrupted.store(1, Ordering::Release);
    }

    pub(crate) fn set_flush(&self, flush: Flush) {
        self.flush.store(flush as u64, Ordering::Release);
    }

    pub(crate) fn set_unpublished(&self, sequence: Option<u64>) {
        let word = sequence.map_or(0, |it| it.checked_add(1).expect("sequences are smaller"));
        self.unpublished.store(word, Ordering::Release);
    }

    /// Pairs with the Release in `enter`: what checks out was whole.
    pub(crate) fn read(&self, number: u32) -> Option<FileRecord> {
        let check = self.check.load(Ordering::Acquire);
        if check == 0 || check != self.sum(number) {
            return None;
        }
        let about = self.about.load(Ordering::Relaxed);
        let generation = u16::try_from(about & 0xffff).expect("masked to 16 bits");
        let length = usize::try_from(about >> PATH_SHIFT & 0xffff).expect("masked to 16 bits");
        if generation == 0 || about & !KNOWN != 0 || length > RECORD_PATH_BYTES {
            return None;
        }
        let path: Vec<u8> = self
            .path
            .iter()
            .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
            .take(length)
            .collect();
        Some(FileRecord {
            generation,
            leased: about & LEASED != 0,
            device: about & DEVICE != 0,
            writable: about & WRITABLE != 0,
            created: about & CREATED != 0,
            identity: Identity {
                device: self.device.load(Ordering::Relaxed),
                inode: self.inode.load(Ordering::Relaxed),
            },
            size: self.size.load(Ordering::Acquire),
            cut: self.cut.load(Ordering::Acquire).checked_sub(1),
            interrupted: self.interrupted.load(Ordering::Acquire) != 0,
            flush: match self.flush.load(Ordering::Acquire) {
                0 => Flush::Well,
                1 => Flush::OnTheWay,
                _ => Flush::Failed,
            },
            unpublished: self.unpublished.load(Ordering::Acquire).checked_sub(1),
            path: OsStr::from_bytes(&path).into(),
        })
    }

    fn sum(&self, number: u32) -> u64 {
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let words =
            [&self.about, &self.device, &self.inode].into_iter().chain(&self.path).map(load);
        check_of(number, words.chain([0; 3]))
    }
}

fn about(record: &FileRecord, path_bytes: usize) -> u64 {
    let flag = |set: bool, flag: u64| if set { flag } else { 0 };
    u64::from(record.generation)
        | flag(record.leased, LEASED)
        | flag(record.device, DEVICE)
        | flag(record.writable, WRITABLE)
        | flag(record.created, CREATED)
        | (path_bytes as u64) << PATH_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> RecordWords {
        let zeroes = || AtomicU64::new(0);
        RecordWords {
            about: zeroes(),
            device: zeroes(),
            inode: zeroes(),
            size: zeroes(),
            cut: zeroes(),
            path: std::array::from_fn(|_| zeroes()),
            interrupted: zeroes(),
            flush: zeroes(),
            unpublished: zeroes(),
            check: zeroes(),
        }
    }

    fn record() -> FileRecord {
        FileRecord {
            generation: 0x8001,
            leased: true,
            device: false,
            writable: true,
            created: false,
            identity: Identity { device: 7, inode: u64::MAX },
            size: 12_345,
            cut: Some(0),
            interrupted: false,
            flush: Flush::Well,
            unpublished: None,
            path: "/a/path of a file".into(),
        }
    }

    #[test]
    fn what_is_entered_is_read_until_left() {
        let words = words();
        assert_eq!(words.read(9), None);
        for flag in 0..16 {
            let set = |bit: u32| flag >> bit & 1 == 1;
            let record = FileRecord {
                leased: set(0),
                device: set(1),
                writable: set(2),
                created: set(3),
                ..record()
            };
            words.enter(9, &record);
            assert_eq!(words.read(9), Some(record));
        }
        assert_eq!(words.read(8), None, "it is of another number");
        words.leave();
        assert_eq!(words.read(9), None);
    }

    #[test]
    fn size_and_cut_change_by_themselves() {
        let words = words();
        words.enter(9, &record());
        for (size, cut) in [(0, None), (u64::MAX, Some(u64::MAX - 1)), (4096, Some(0))] {
            words.set_size(size);
            words.set_cut(cut);
            assert_eq!(words.read(9), Some(FileRecord { size, cut, ..record() }));
        }
    }

    #[test]
    fn contract_21_a_mark_changes_by_itself_until_the_record_is_entered_anew() {
        let words = words();
        words.enter(9, &record());
        assert!(!words.read(9).unwrap().interrupted);
        words.interrupt();
        let marked = FileRecord { interrupted: true, ..record() };
        assert_eq!(words.read(9), Some(marked.clone()));
        words.set_size(77);
        assert_eq!(words.read(9), Some(FileRecord { size: 77, ..marked }));
        words.enter(9, &record());
        assert_eq!(words.read(9), Some(record()), "the mark is of the file that was there before");
    }

    #[test]
    fn a_path_is_kept_whole_or_not_at_all() {
        let words = words();
        for (length, kept) in [(0, 0), (1, 1), (440, 440), (441, 0), (4000, 0)] {
            words.enter(1, &FileRecord { path: "x".repeat(length).into(), ..record() });
            assert_eq!(words.read(1).unwrap().path, PathBuf::from("x".repeat(kept)), "{length}");
        }
        let odd = FileRecord { path: OsStr::from_bytes(b"not \xff text").into(), ..record() };
        words.enter(1, &odd);
        assert_eq!(words.read(1), Some(odd), "what a longer one left is gone");
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let words = words();
        words.enter(9, &record());
        let checked = [&words.about, &words.device, &words.inode, &words.check];
        for word in checked.into_iter().chain(&words.path) {
            for bit in 0..64 {
                word.fetch_xor(1 << bit, Ordering::Relaxed);
                assert_eq!(words.read(9), None, "bit {bit}");
                word.fetch_xor(1 << bit, Ordering::Relaxed);
            }
        }
        assert_eq!(words.read(9), Some(record()));
    }

    #[test]
    fn flags_that_are_none_and_paths_that_are_too_long_are_noticed() {
        let words = words();
        words.enter(9, &record());
        let about = words.about.load(Ordering::Relaxed);
        let path = about & !(0xffff << PATH_SHIFT) | 441 << PATH_SHIFT;
        for about in [about & !0xffff, about | 1 << 20, about | 1 << 63, path] {
            words.about.store(about, Ordering::Relaxed);
            words.check.store(words.sum(9), Ordering::Relaxed);
            assert_eq!(words.read(9), None);
        }
    }
}
