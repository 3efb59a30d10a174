//! Hash of a stretch of a target to a place in a small table. Stretches may share a place.

/// Returns the place of a stretch in a table of `PLACES`, a power of two.
#[inline]
pub(crate) fn place<const PLACES: usize>(target: u32, stretch: u64) -> usize {
    const { assert!(PLACES.is_power_of_two()) };
    /// 2^64 over the golden ratio (D. E. Knuth, The Art of Computer Programming 3, 6.4): neighbours
    /// get places far apart.
    const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
    let hash = (stretch ^ u64::from(target) << 40).wrapping_mul(SPREAD);
    (hash >> (u64::BITS - PLACES.trailing_zeros())) as usize
}
