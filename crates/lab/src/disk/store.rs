//! The bytes of an image: in a file, or in memory.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Unit of the content in memory, in bytes.
pub(super) const BLOCK: u64 = 4096;

/// Where the bytes are.
pub(super) enum Store {
    /// In a file that is open past the page cache, if its file system allows that.
    File(File),
    /// In memory, without blocks that are all zero.
    Memory(Mutex<HashMap<u64, Box<[u8]>>>),
}

/// The content of an image in memory.
impl Store {
    pub(super) fn in_memory() -> Self {
        Self::Memory(Mutex::default())
    }

    pub(super) fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let blocks = match self {
            Self::File(file) => return file.read_exact_at(into, offset),
            Self::Memory(blocks) => lock(blocks),
        };
        for (block, at, range) in parts(offset, into.len()) {
            match blocks.get(&block) {
                Some(bytes) => into[range.clone()].copy_from_slice(&bytes[at..at + range.len()]),
                None => into[range].fill(0),
            }
        }
        Ok(())
    }

    pub(super) fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut blocks = match self {
            Self::File(file) => return file.write_all_at(data, offset),
            Self::Memory(blocks) => lock(blocks),
        };
        for (block, at, range) in parts(offset, data.len()) {
            let data = &data[range];
            let is_zero = data.iter().all(|byte| *byte == 0);
            if data.len() as u64 == BLOCK && is_zero {
                blocks.remove(&block);
            } else if !is_zero || blocks.contains_key(&block) {
                let bytes = blocks.entry(block).or_insert_with(|| vec![0; BLOCK as usize].into());
                bytes[at..at + data.len()].copy_from_slice(data);
            }
        }
        Ok(())
    }

    /// Frees a range, or writes zeroes over it.
    pub(super) fn clear(&self, offset: u64, length: u64) -> io::Result<()> {
        use rustix::fs::FallocateFlags;
        match self {
            Self::File(file) => {
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                Ok(rustix::fs::fallocate(file, how, offset, length)?)
            }
            Self::Memory(blocks) => {
                let mut blocks = lock(blocks);
                for (block, at, range) in parts(offset, length as usize) {
                    if range.len() as u64 == BLOCK {
                        blocks.remove(&block);
                    } else if let Some(bytes) = blocks.get_mut(&block) {
                        bytes[at..at + range.len()].fill(0);
                    }
                }
                Ok(())
            }
        }
    }
}

/// The blocks of a range: number, first byte in the block, and bytes of the range.
fn parts(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = ((offset + done as u64) % BLOCK) as usize;
        let count = (BLOCK as usize - at).min(length - done);
        let part = ((offset + done as u64) / BLOCK, at, done..done + count);
        done += count;
        (count > 0).then_some(part)
    })
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
