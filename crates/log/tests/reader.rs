//! The independent reader in Python, against the reader of this crate.

mod common;

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use common::{BLOCK_BYTES, Log, steps};
use forebay_log::{Head, ScanError, scan};
use proptest::prelude::*;

const READER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/read-intent-log");

/// The output of the independent reader, and of its errors.
fn independent(bytes: &[u8]) -> (String, String) {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let output = Command::new(READER).arg(file.path()).output().expect("Python 3 is installed");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let errors = text(output.stderr);
    let errors = errors.strip_prefix(&format!("{}: ", file.path().display()));
    (text(output.stdout), errors.unwrap_or_default().to_owned())
}

/// The same from this crate.
fn ours(log: &Log) -> (String, String) {
    let heads = &log.disk.0[..2 * BLOCK_BYTES];
    let head = Head::newest([&heads[..BLOCK_BYTES], &heads[BLOCK_BYTES..]]).unwrap();
    let scanned = match scan(&head, &mut log.disk.clone()) {
        Ok(scanned) => scanned,
        Err(ScanError::Read { .. }) => unreachable!("memory can be read"),
        Err(ScanError::Damage(damage)) => {
            let (expected, found) = (damage.expected.sequence, damage.found.sequence);
            let error = format!("damaged: expected batch {expected}, found batch {found}\n");
            return (String::new(), error);
        }
    };
    let mut text = String::new();
    let (start, promise) = (head.start, head.promise.0);
    write!(text, "log {} ring {} head {} ", head.log, head.ring, head.number).unwrap();
    writeln!(text, "start {} {} promise {promise}", start.position, start.sequence).unwrap();
    for batch in &scanned.batches {
        let promise = batch.promise.0;
        writeln!(text, "batch {} at {} promise {promise}", batch.sequence, batch.offset).unwrap();
        for record in &batch.records {
            let (path, file) = (str::from_utf8(&record.path).unwrap(), record.file);
            let (generation, born) = (file.generation.unwrap(), file.born.unwrap().0);
            writeln!(text, "  file {} {generation} {born} {path}", file.inode).unwrap();
            for piece in &record.pieces {
                let start = (batch.offset + piece.at) as usize;
                let data = &log.disk.0[start..start + piece.length as usize];
                let sum = crc32c::crc32c(data);
                let end = if piece.ends_file { " end" } else { "" };
                writeln!(text, "    {} {} {sum:08x}{end}", piece.offset, piece.length).unwrap();
            }
        }
    }
    let (end, promise) = (scanned.end, scanned.promise.0);
    writeln!(text, "end {} {} promise {promise}", end.position, end.sequence).unwrap();
    (text, String::new())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_independent_reader_agrees(
        blocks in 16_u64..32,
        steps in steps(),
        damage in prop::option::of((0_u32..8, 2 * BLOCK_BYTES..16 * BLOCK_BYTES)),
    ) {
        let mut log = Log::new(blocks);
        steps.iter().for_each(|step| log.run(step));
        if let Some((bit, at)) = damage {
            log.disk.0[at] ^= 1 << bit;
        }
        let (expected, error) = ours(&log);
        let (found, errors) = independent(&log.disk.0);
        if error.is_empty() {
            prop_assert_eq!((found, errors), (expected, error));
        } else {
            prop_assert_eq!(errors, error);
        }
    }
}

#[test]
fn the_independent_reader_names_the_fault_of_a_log() {
    let log = Log::new(16);
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = log.disk.0.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        independent(&changed).1
    };
    assert_eq!(with(0, &[0; 2 * BLOCK_BYTES]), "no head is valid: missing, missing\n");
    assert!(with(BLOCK_BYTES + 50, b"??").contains("no head is valid: missing, damaged"));
    assert_eq!(
        independent(&log.disk.0[..9 * BLOCK_BYTES]).1,
        "the log is cut short: it has 36864 of 73728 bytes\n"
    );
    assert!(Path::new(READER).is_file());
}
