//! Random logs against a naive model.

mod common;

use common::{Disk, LOG, Log, id, records, steps};
use forebay_log::{BLOCK, HEADS, Head, Point, ScanError, Wall, scan};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_log_is_read_as_it_was_written(blocks in 16_u64..40, steps in steps()) {
        let mut log = Log::new(blocks);
        for (number, step) in steps.iter().enumerate() {
            log.run(step);
            if number % 16 == 15 || number + 1 == steps.len() {
                log.check(u64::MAX);
            }
        }
    }

    #[test]
    fn a_torn_batch_ends_the_log(
        blocks in 16_u64..40,
        steps in steps(),
        last in records(),
        keeps in prop::collection::vec(any::<bool>(), 200),
    ) {
        let mut log = Log::new(blocks);
        steps.iter().for_each(|step| log.run(step));
        let sequence = log.append(&last, |at| keeps[at % keeps.len()]);
        let Some(sequence) = sequence else { return Ok(()) };
        let (positions, next) = log.batches.last().unwrap().clone();
        let at = Point { position: positions.start, sequence, chain: previous(&log) };
        let mut batch = Log::batch(&last);
        let (bytes, end) = batch.seal(&LOG, &at, log.promise);
        prop_assert_eq!(next, end);
        // The sectors that are missing may have held the same bytes before.
        let start = (HEADS + positions.start % blocks) as usize * BLOCK;
        // Nor does the padding count.
        let length = u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize;
        let is_whole = log.disk.0[start..start + length] == bytes[..length];
        log.check(if is_whole { u64::MAX } else { sequence });
    }

    #[test]
    fn a_batch_that_is_missing_before_another_is_damage(
        blocks in 24_u64..40,
        steps in steps(),
        victim in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
    ) {
        let mut log = Log::new(blocks);
        steps.iter().for_each(|step| log.run(step));
        if log.batches.is_empty() {
            return Ok(());
        }
        let number = victim.index(log.batches.len());
        let (positions, next) = log.batches[number].clone();
        let start = (HEADS + positions.start % blocks) as usize * BLOCK;
        let length = u32::from_le_bytes(log.disk.0[start + 8..start + 12].try_into().unwrap());
        log.disk.0[start + place.index(length as usize)] ^= 1 << (length % 8);
        let result = scan(&log.head, &mut log.disk.clone());
        if number + 1 == log.batches.len() {
            // The last batch, as if it had been torn.
            prop_assert_eq!(result.unwrap().end.sequence, next.sequence - 1);
        } else {
            let Err(ScanError::Damage(damage)) = result else {
                return Err(TestCaseError::fail("the damage is not seen"));
            };
            prop_assert_eq!(damage.expected.sequence, next.sequence - 1);
            prop_assert!(damage.found.sequence >= next.sequence);
        }
    }

    #[test]
    fn bytes_at_random_are_no_log(bytes in prop::collection::vec(any::<u8>(), 18 * BLOCK)) {
        let head = Head::newest([&bytes[..BLOCK], &bytes[BLOCK..2 * BLOCK]]);
        prop_assert!(head.is_err());
        let start = Point { position: 0, sequence: 1, chain: 0 };
        let head = Head {
            log: LOG, number: 1, file: id(1), ring: 16, start, promise: Wall::default(),
        };
        let scanned = scan(&head, &mut Disk(bytes)).unwrap();
        prop_assert!(scanned.batches.is_empty());
    }
}

/// The checksum of the batch before the last one.
fn previous(log: &Log) -> u32 {
    let before = log.batches.len().checked_sub(2).map(|at| log.batches[at].1.chain);
    before.unwrap_or(log.ring.start().chain)
}
