//! Logs, heads, records and marks made from the input of a fuzzer. Compiled for the fuzzer
//! (`fuzz/`) and for the test of its corpus.

use std::collections::BTreeMap;
use std::convert::Infallible;

use crate::batch::Header;
use crate::bytes::put_u32;
use crate::identity::{FileId, LogId};
use crate::point::Point;
use crate::time::Wall;
use crate::{BLOCK, HEADS, Head, MIN_RING, Mark, Replay, Source, scan};

struct Memory(Vec<u8>);

impl Source for Memory {
    type Error = Infallible;

    fn read(&mut self, block: u64, into: &mut [u8]) -> Result<(), Infallible> {
        let at = block as usize * BLOCK;
        into.copy_from_slice(&self.0[at..at + into.len()]);
        Ok(())
    }
}

/// Reads bytes as the ring of a log, with right checksums, and plans its replay.
///
/// # Panics
/// If a head or a mark has two forms, or a plan writes a byte twice or reads outside of the log.
pub fn log(data: &[u8]) {
    alone(data);
    let ring = MIN_RING;
    let mut memory = vec![0; (HEADS + ring) as usize * BLOCK];
    let start = HEADS as usize * BLOCK;
    let length = data.len().min(memory.len() - start);
    memory[start..start + length].copy_from_slice(&data[..length]);
    let log = LogId(*b"identity of this");
    let mut chain = 0;
    for block in 0..ring as usize {
        chain = seal(&mut memory[start + block * BLOCK..], block as u64, &log, chain);
    }
    let file = FileId { inode: 1, generation: None, born: None };
    let start = Point { position: 0, sequence: 1, chain: 0 };
    let head = Head { log, number: 1, file, ring, start, promise: Wall(0) };
    let Ok(scanned) = scan(&head, &mut Memory(memory)) else { return };
    for plan in Replay::new(&scanned.batches).files {
        for first in [0, 2] {
            let mut written = BTreeMap::new();
            for copy in plan.newest_from(first) {
                assert!(copy.length > 0 && copy.offset.checked_add(copy.length).is_some());
                assert!(copy.from + copy.length <= (HEADS + ring) * BLOCK as u64);
                assert!(written.insert(copy.offset, copy.length).is_none());
            }
            let ends = written.iter().map(|(offset, length)| offset + length);
            let starts = written.keys().skip(1);
            assert!(ends.zip(starts).all(|(end, start)| end <= *start), "a byte is written twice");
        }
    }
}

/// Reads bytes as a head, a mark, and a batch.
fn alone(data: &[u8]) {
    if let Ok(head) = Head::decode(data) {
        assert_eq!(Head::decode(&head.encode()), Ok(head));
    }
    if let Some(mark) = Mark::decode(data) {
        assert_eq!(mark.encode(), data);
    }
    if let Some(header) = Header::decode(data) {
        assert!(!header.fits(data) || header.length <= data.len());
        if let Some(records) = header.records_of(data) {
            let pieces = records.iter().flat_map(|record| &record.pieces);
            assert!(
                pieces.map(|piece| piece.at + piece.length).all(|end| end <= data.len() as u64)
            );
        }
    }
}

/// Gives the batch at the beginning of `bytes`, if there is one, the identity of the log, its
/// place, the checksum of the batch before it, and its own. Returns that.
fn seal(bytes: &mut [u8], position: u64, log: &LogId, chain: u32) -> u32 {
    let Some(header) = Header::decode(bytes) else { return chain };
    if header.length > bytes.len() {
        return chain;
    }
    bytes[16..32].copy_from_slice(&log.0);
    bytes[40..48].copy_from_slice(&position.to_le_bytes());
    put_u32(bytes, 56, chain);
    let sum = crc32c::crc32c(&bytes[8..header.length]);
    put_u32(bytes, 4, sum);
    sum
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn kept_logs_of_the_fuzzer() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/log");
        let mut inputs = 0;
        for input in fs::read_dir(corpus).unwrap() {
            let input = input.unwrap().path();
            println!("{}", input.display());
            log(&fs::read(input).unwrap());
            inputs += 1;
        }
        assert!(inputs > 0);
    }
}
