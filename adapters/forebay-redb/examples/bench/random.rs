//! Seeded numbers: splitmix64 (Steele, Lea, Flood 2014).

pub(crate) struct Random(pub(crate) u64);

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// Returns the number that is `index` numbers after the next one.
    pub(crate) fn ahead(&self, index: u64) -> u64 {
        Self(self.0.wrapping_add(index.wrapping_mul(STEP))).next()
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
