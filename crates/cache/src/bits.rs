//! Pages as bits (frames and bytes of a page, too): 64 to a word, the lowest first.

use std::ops::Range;

/// The bits of `count` pages from `slot` on.
pub(crate) fn bits(slot: usize, count: u32) -> u64 {
    if count == 0 { 0 } else { (u64::MAX >> (64 - count)) << slot }
}

/// The number of ones of a mask. Most masks are empty, and without an instruction for it a count
/// takes twenty others.
#[inline]
pub(crate) fn ones(mask: u64) -> u32 {
    #[inline(never)]
    fn count(mask: u64) -> u32 {
        mask.count_ones()
    }
    if mask == 0 { 0 } else { count(mask) }
}

/// The runs of ones of a mask, lowest first: slot and length.
pub(crate) fn runs(mut mask: u64) -> impl Iterator<Item = (usize, u32)> {
    std::iter::from_fn(move || {
        let slot = (mask != 0).then(|| mask.trailing_zeros() as usize)?;
        let count = (mask >> slot).trailing_ones();
        mask &= !bits(slot, count);
        Some((slot, count))
    })
}

/// The slots of a mask, lowest first.
pub(crate) fn slots(mask: u64) -> impl Iterator<Item = usize> {
    runs(mask).flat_map(|(slot, count)| slot..slot + count as usize)
}

/// A range of pages, word by word: the first page of each part, its slot, and how many pages.
pub(crate) fn parts(pages: Range<u64>) -> impl Iterator<Item = (u64, usize, u32)> {
    let mut at = pages.start;
    std::iter::from_fn(move || {
        if at >= pages.end {
            return None;
        }
        let (first, slot) = (at, at % 64);
        let count = (64 - slot).min(pages.end - at);
        at += count;
        Some((first, slot as usize, count as u32))
    })
}
