//! The bytes of an image: in a file, or in memory.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use forebay_block::random::STEP;

/// Unit of the content in memory, in bytes.
pub(super) const BLOCK: u64 = 4096;

pub(super) enum Store {
    /// In a file that is open past the page cache, if its file system allows that.
    File(File),
    Memory(Mutex<Blocks>),
}

/// Blocks in memory. Blocks of zeroes take none, and those with the data of the jobs
/// (`load/content.rs`) hardly any: their words are an arithmetic progression, which the first word
/// tells. So an image of some hundred GiB that the jobs have written takes as much memory as the
/// metadata of its file system.
#[derive(Default)]
pub(super) struct Blocks {
    bytes: HashMap<u64, Box<[u8]>>,
    /// Progressions that go on from block to block: for each 64 blocks the first word that block 0
    /// of the image would have, and which of them it holds for.
    runs: HashMap<u64, (u64, u64)>,
    /// First words of the other progressions.
    strays: HashMap<u64, u64>,
}

impl Blocks {
    fn read(&self, block: u64, at: usize, into: &mut [u8]) {
        if let Some(bytes) = self.bytes.get(&block) {
            into.copy_from_slice(&bytes[at..at + into.len()]);
        } else if let Some(first) = self.first_word(block) {
            into.copy_from_slice(&progression(first)[at..at + into.len()]);
        } else {
            into.fill(0);
        }
    }

    fn write(&mut self, block: u64, at: usize, data: &[u8]) {
        if data.len() as u64 == BLOCK {
            self.forget(block);
            match first_of(data) {
                Some(first) => self.keep_progression(block, first),
                None if data.iter().all(|byte| *byte == 0) => {}
                None => drop(self.bytes.insert(block, data.into())),
            }
            return;
        }
        if !self.bytes.contains_key(&block) {
            let mut bytes = vec![0; BLOCK as usize].into_boxed_slice();
            self.read(block, 0, &mut bytes);
            // Part of a block that is zero stays so.
            if bytes.iter().chain(data).all(|byte| *byte == 0) {
                return;
            }
            self.forget(block);
            self.bytes.insert(block, bytes);
        }
        let bytes = self.bytes.get_mut(&block).expect("put there above");
        bytes[at..at + data.len()].copy_from_slice(data);
    }

    fn first_word(&self, block: u64) -> Option<u64> {
        let run = self.runs.get(&(block / 64)).filter(|(_, held)| held >> (block % 64) & 1 == 1);
        run.map(|(start, _)| start.wrapping_add(ahead(block)))
            .or_else(|| self.strays.get(&block).copied())
    }

    fn keep_progression(&mut self, block: u64, first: u64) {
        let start = first.wrapping_sub(ahead(block));
        let run = self.runs.entry(block / 64).or_insert((start, 0));
        if run.0 == start {
            run.1 |= 1 << (block % 64);
        } else {
            self.strays.insert(block, first);
        }
    }

    fn forget(&mut self, block: u64) {
        self.bytes.remove(&block);
        self.strays.remove(&block);
        if let Some((_, held)) = self.runs.get_mut(&(block / 64)) {
            *held &= !(1 << (block % 64));
            if *held == 0 {
                self.runs.remove(&(block / 64));
            }
        }
    }
}

/// How much larger the first word of a block is than that of block 0 of the same progression.
fn ahead(block: u64) -> u64 {
    block.wrapping_mul(BLOCK / 8).wrapping_mul(STEP)
}

/// Returns the first word of a block that is an arithmetic progression of the jobs.
fn first_of(block: &[u8]) -> Option<u64> {
    let (words, _) = block.as_chunks();
    let first = u64::from_le_bytes(words[0]);
    let mut next = first;
    let is_progression = words.iter().all(|word| {
        let is_next = u64::from_le_bytes(*word) == next;
        next = next.wrapping_add(STEP);
        is_next
    });
    is_progression.then_some(first)
}

fn progression(first: u64) -> [u8; BLOCK as usize] {
    let (mut block, mut next) = ([0; BLOCK as usize], first);
    for word in block.as_chunks_mut().0 {
        *word = next.to_le_bytes();
        next = next.wrapping_add(STEP);
    }
    block
}

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
            blocks.read(block, at, &mut into[range]);
        }
        Ok(())
    }

    pub(super) fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut blocks = match self {
            Self::File(file) => return file.write_all_at(data, offset),
            Self::Memory(blocks) => lock(blocks),
        };
        for (block, at, range) in parts(offset, data.len()) {
            blocks.write(block, at, &data[range]);
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
                    match range.len() as u64 {
                        BLOCK => blocks.forget(block),
                        length => blocks.write(block, at, &[0; BLOCK as usize][..length as usize]),
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

#[cfg(test)]
impl Store {
    /// Returns the number of blocks whose bytes are kept, of runs, and of strays.
    pub(super) fn kept(&self) -> [usize; 3] {
        let Self::Memory(blocks) = self else { unreachable!("it is in memory") };
        let blocks = lock(blocks);
        [blocks.bytes.len(), blocks.runs.len(), blocks.strays.len()]
    }
}
