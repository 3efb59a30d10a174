//! What a caller does next.

use forebay_cache::TicketKind;

use crate::driver::Driver;
use crate::random::{PerMille, Random};

/// One call of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    Write { offset: u64, length: u64 },
    Append { length: u64 },
    Read { offset: u64, length: u64 },
    SetLength(u64),
    DiscardRange { offset: u64, length: u64 },
    Sync(TicketKind),
    Discard,
    Close,
}

impl Driver {
    /// Draws one, for a caller that has a file open.
    pub(super) fn draw_operation(&mut self, path: usize, last_end: u64) -> Operation {
        let mix = self.plan.mix;
        let size = self.paths[path].ledger.size();
        let is_device = self.plan.are_devices;
        let most = if is_device { size } else { self.plan.ends().end - 1 };
        let random = &mut self.random;
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
                Operation::Append { length: length(random, self.plan.bytes.min(most - size)) }
            }
            Some(2) => Operation::Read {
                offset: place(random, size),
                length: length(random, self.plan.bytes),
            },
            Some(3) if is_device => {
                let offset = place(random, size - 1);
                let wanted = *random.clone().pick(&[size, self.plan.bytes]);
                Operation::DiscardRange {
                    offset,
                    length: length(random, wanted).min(size - offset),
                }
            }
            Some(3) => Operation::SetLength(
                place(random, *random.clone().pick(&[most, size + 1])).min(most),
            ),
            Some(4) => Operation::Sync(*random.pick(&[
                TicketKind::FlushData,
                TicketKind::FlushData,
                TicketKind::FlushAll,
            ])),
            Some(5) => Operation::Close,
            Some(6) => Operation::Discard,
            _ => {
                let goes_on = random.happens(self.plan.sequential) && last_end < most;
                let reach =
                    if random.happens(PerMille(300)) { most } else { (size + 8192).min(most) };
                let offset = if goes_on { last_end } else { place(random, reach).min(most - 1) };
                Operation::Write {
                    offset,
                    length: length(random, self.plan.bytes.min(most - offset)),
                }
            }
        }
    }

    /// The data of a write: of no two the same, nor at two places of one.
    pub(super) fn draw_data(&mut self, length: u64) -> Vec<u8> {
        let stamp = self.random.draw() | 1;
        let words = (0..length.div_ceil(8))
            .map(|word| stamp.wrapping_mul(2 * word + 1) | 0x0101_0101_0101_0101);
        let mut data: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        data.truncate(length as usize);
        data
    }
}

/// A place up to `most`: at a page's border or a sector's, near one, or anywhere.
fn place(random: &mut Random, most: u64) -> u64 {
    let anywhere = random.below(most + 1);
    match random.below(4) {
        0 => anywhere / 4096 * 4096,
        1 => anywhere / 512 * 512,
        2 => (anywhere / 4096 * 4096 + random.below(3)).saturating_sub(1).min(most),
        _ => anywhere,
    }
}

/// A length from 1 up to `most`.
fn length(random: &mut Random, most: u64) -> u64 {
    let any = match random.below(3) {
        0 => random.within(1..600),
        1 => 4096 * random.within(1..most / 4096 + 2),
        _ => random.within(1..most.max(1) + 1),
    };
    any.min(most).max(1)
}
