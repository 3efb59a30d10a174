//! A block that describes itself, so that a reader finds lost, stale, torn and misplaced writes.
//!
//! ```text
//! 0        8        16         24       28      32
//! | magic  | number | sequence | length | crc32c | payload ... |
//! ```
//!
//! Numbers are little-endian. The checksum is that of the payload.

use std::ops::RangeInclusive;

use forebay_block::random::{Random, mix};

pub(crate) const HEADER: usize = 32;
const MAGIC: u64 = 0x6b63_6f6c_625f_7866;

/// Returns a block with a payload that no other block has.
pub(crate) fn made(number: u64, sequence: u64, size: usize) -> Vec<u8> {
    let mut random = Random::new(mix(number ^ sequence << 20));
    let mut block = vec![0; size];
    for word in block[HEADER..].chunks_mut(8) {
        let length = word.len();
        word.copy_from_slice(&random.draw().to_le_bytes()[..length]);
    }
    let crc = crc32c::crc32c(&block[HEADER..]);
    for (at, field) in [(0, MAGIC), (8, number), (16, sequence)] {
        block[at..at + 8].copy_from_slice(&field.to_le_bytes());
    }
    block[24..28].copy_from_slice(&(size as u32).to_le_bytes());
    block[28..32].copy_from_slice(&crc.to_le_bytes());
    block
}

/// Returns the sequence of a block as it was read. Zeroes, or nothing at the end of a file, are a
/// block that was never written, of sequence 0.
pub(crate) fn check(
    found: &[u8],
    number: u64,
    size: usize,
    sequences: RangeInclusive<u64>,
) -> Result<u64, String> {
    if found.iter().all(|byte| *byte == 0) {
        return match sequences.contains(&0) {
            true => Ok(0),
            false => Err(format!("expected sequence {sequences:?}, found {} zeroes", found.len())),
        };
    }
    if found.len() < size {
        return Err(format!("expected {size} bytes, found {} at the end", found.len()));
    }
    let word = |at: usize| u64::from_le_bytes(found[at..at + 8].try_into().unwrap());
    let half = |at: usize| u32::from_le_bytes(found[at..at + 4].try_into().unwrap());
    let crc = crc32c::crc32c(&found[HEADER..]);
    let differing = [
        ("magic", MAGIC, word(0)),
        ("block number", number, word(8)),
        ("length", size as u64, u64::from(half(24))),
        ("crc32c", u64::from(crc), u64::from(half(28))),
    ]
    .into_iter()
    .find(|(_, expected, found)| expected != found);
    if let Some((what, expected, read)) = differing {
        let sequence = word(16);
        let after = first_difference(found, number, sequence);
        return Err(format!(
            "expected {what} {expected:#x}, found {read:#x}; its sequence is {sequence}, expected \
             {sequences:?}; {after}"
        ));
    }
    match word(16) {
        sequence if sequences.contains(&sequence) => Ok(sequence),
        stale => Err(format!("expected sequence {sequences:?}, found {stale}")),
    }
}

/// How far the block is the one of its sequence: where a torn write ends.
fn first_difference(found: &[u8], number: u64, sequence: u64) -> String {
    let whole = made(number, sequence, found.len());
    match whole.iter().zip(found).position(|(whole, found)| whole != found) {
        Some(at) => format!("the block of that sequence differs from byte {at} on"),
        None => "it is the whole block of that sequence".to_owned(),
    }
}

#[test]
fn a_stale_misplaced_torn_or_lost_block_is_found() {
    let block = made(7, 30, 5000);
    assert_eq!(check(&block, 7, 5000, 29..=30), Ok(30));
    assert_eq!(check(&[0; 5000], 7, 5000, 0..=30), Ok(0));
    assert_eq!(check(&[], 7, 5000, 0..=30), Ok(0));
    let wrong = |found: &[u8], number, size, sequences| {
        check(found, number, size, sequences).expect_err("a wrong block counts as right")
    };
    let stale = wrong(&block, 7, 5000, 31..=40);
    assert!(stale.contains("sequence 31..=40, found 30"), "{stale}");
    let misplaced = wrong(&block, 8, 5000, 29..=30);
    assert!(misplaced.contains("block number 0x8, found 0x7"), "{misplaced}");
    assert!(wrong(&block, 7, 5001, 29..=30).contains("expected 5001 bytes"));
    let mut torn = block.clone();
    torn[4096..].copy_from_slice(&made(7, 29, 5000)[4096..]);
    let torn = wrong(&torn, 7, 5000, 29..=30);
    assert!(torn.contains("crc32c") && torn.contains("from byte 4096 on"), "{torn}");
    let lost = wrong(&[0; 5000], 7, 5000, 1..=30);
    assert!(lost.contains("found 5000 zeroes"), "{lost}");
}
