//! The mix of operations, and how what was read differs from the byte array.

use std::time::Duration;

use forebay_block::random::Random;

/// One step of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Read {
        at: u64,
        length: usize,
    },
    /// Adjacent reads, which are read ahead of.
    Stream {
        at: u64,
        length: usize,
        pieces: u64,
    },
    Write {
        at: u64,
        length: usize,
        salt: u64,
    },
    /// From memory whose alignment lets it go past the cache.
    WriteAligned {
        at: u64,
        length: usize,
        salt: u64,
    },
    Append {
        length: usize,
        salt: u64,
    },
    Copy {
        from: u64,
        to: u64,
        length: usize,
    },
    SetLength(u64),
    SyncData,
    SyncAll,
    /// Closes every handle, so that nothing of the file stays in memory.
    Reopen,
    Open,
    Close,
    Pause(Duration),
}

impl Operation {
    /// Draws an operation on a file of `model` bytes that may grow to `size`.
    pub(crate) fn draw(random: &mut Random, size: u64, model: u64) -> Self {
        let (at, length) = range(random, size);
        let salt = random.draw();
        match random.below(1000) {
            0..300 => Self::Read { at, length },
            300..310 => {
                let pieces = random.below(40);
                Self::Stream { at, length: length.min(20_000), pieces }
            }
            310..600 => Self::Write { at, length, salt },
            600..605 if size > 2 << 20 => {
                let (at, length) = (at % (1 << 20) / 4096 * 4096, 1 << 20);
                Self::WriteAligned { at, length, salt }
            }
            600..690 => {
                let room = size.saturating_sub(model);
                Self::Append { length: length.min(room as usize), salt }
            }
            690..780 => {
                let to = random.below(size - length as u64 + 1);
                Self::Copy { from: at, to, length }
            }
            780..900 => Self::SetLength(match random.below(4) {
                0 => at / 4096 * 4096,
                1 => model / 4096 * 4096,
                _ => at,
            }),
            900..925 => Self::SyncData,
            925..935 => Self::SyncAll,
            935..965 => Self::Reopen,
            965..980 => Self::Open,
            980..990 => Self::Close,
            _ => Self::Pause(Duration::from_micros(random.below(3000))),
        }
    }
}

/// A range below `end`: small mostly, with borders of pages often.
fn range(random: &mut Random, end: u64) -> (u64, usize) {
    let at = match random.below(4) {
        0 => random.below(end) / 4096 * 4096,
        1 => (random.below(end) / 4096 * 4096).saturating_sub(random.below(20)),
        _ => random.below(end),
    };
    let length = match random.below(8) {
        0 => random.below(16) * 4096,
        1..3 => random.below(64 << 10),
        3..6 => random.below(9000),
        _ => random.below(200),
    };
    (at, length.min(end - at) as usize)
}

/// How bytes from an offset on differ from those expected.
pub(crate) fn difference(at: u64, found: &[u8], expected: &[u8]) -> Option<String> {
    if found == expected {
        return None;
    }
    let first = found.iter().zip(expected).position(|(found, expected)| found != expected);
    let Some(first) = first else {
        return Some(format!("{} bytes from {at} on, not {}", found.len(), expected.len()));
    };
    let shared = found.len().min(expected.len());
    let last = (first..shared).rfind(|at| found[*at] != expected[*at]).unwrap_or(first);
    let differing = (first..=last).filter(|at| found[*at] != expected[*at]).count();
    let some = first..shared.min(first + 16);
    Some(format!(
        "{differing} bytes differ from {} to {} of {} read at {at} (expected {}): found {:02x?}, \
         expected {:02x?}",
        at + first as u64,
        at + last as u64,
        found.len(),
        expected.len(),
        &found[some.clone()],
        &expected[some],
    ))
}
