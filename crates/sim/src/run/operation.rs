//! The next call of a caller, drawn from the plan.

use crate::plan::Plan;
use crate::random::{PerMille, Random};

/// One call of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    Write { offset: u64, length: u64 },
    Append { length: u64 },
    Read { offset: u64, length: u64 },
    SetLength(u64),
    DiscardRange { offset: u64, length: u64 },
    SyncData,
    SyncAll,
    Allocate { offset: u64, length: u64 },
    PunchHole { offset: u64, length: u64 },
    WriteOut,
    DiscardDirty,
    Close,
}

impl Operation {
    /// Draws one, for a file of some size.
    pub(super) fn draw(random: &mut Random, plan: &Plan, size: u64, last_end: u64) -> Self {
        let mix = plan.mix;
        let is_device = plan.are_devices;
        let most = if is_device { size } else { plan.ends().end - 1 };
        let shares =
            [mix.write, mix.append, mix.read, mix.set_length, mix.sync, mix.close, mix.discard];
        let mut chosen = random.below(shares.iter().sum());
        let which = shares.iter().position(|share| {
            let is_it = chosen < *share;
            chosen = chosen.saturating_sub(*share);
            is_it
        });
        match which {
            Some(1) if size < most => {
                Self::Append { length: length(random, plan.bytes.min(most - size)) }
            }
            Some(2) => {
                Self::Read { offset: place(random, size), length: length(random, plan.bytes) }
            }
            Some(3) if is_device => {
                let offset = place(random, size - 1);
                let wanted = *random.clone().pick(&[size, plan.bytes]);
                Self::DiscardRange { offset, length: length(random, wanted).min(size - offset) }
            }
            Some(3) => {
                let reach = *random.clone().pick(&[most, size + 1]);
                Self::SetLength(place(random, reach).min(most))
            }
            Some(4) if random.below(3) == 0 => Self::SyncAll,
            Some(4) => Self::SyncData,
            Some(5) => Self::Close,
            Some(6) => Self::DiscardDirty,
            _ => {
                let goes_on = random.happens(plan.sequential) && last_end < most;
                let reach =
                    if random.happens(PerMille(300)) { most } else { (size + 8192).min(most) };
                let offset = if goes_on { last_end } else { place(random, reach).min(most - 1) };
                let length = length(random, plan.bytes.min(most - offset));
                Self::Write { offset, length }
            }
        }
    }
}

/// The data of a write: of no two the same, nor at two places of one.
pub(super) fn data(random: &mut Random, length: u64) -> Vec<u8> {
    let stamp = random.draw() | 1;
    let words = (0..length.div_ceil(8))
        .map(|word| stamp.wrapping_mul(2 * word + 1) | 0x0101_0101_0101_0101);
    let mut data: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    data.truncate(length as usize);
    data
}

/// A place up to `most`: at the border of a page or of a sector, near one, or anywhere.
pub(super) fn place(random: &mut Random, most: u64) -> u64 {
    let anywhere = random.below(most + 1);
    match random.below(4) {
        0 => anywhere / 4096 * 4096,
        1 => anywhere / 512 * 512,
        2 => (anywhere / 4096 * 4096 + random.below(3)).saturating_sub(1).min(most),
        _ => anywhere,
    }
}

/// A length from 1 up to `most`.
pub(super) fn length(random: &mut Random, most: u64) -> u64 {
    let any = match random.below(3) {
        0 => random.within(1..600),
        1 => 4096 * random.within(1..most / 4096 + 2),
        _ => random.within(1..most.max(1) + 1),
    };
    any.min(most).max(1)
}
