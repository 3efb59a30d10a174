//! Numbers of things that are made outside a world, such as a mutex in a constant.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that is drawn at first use, anew in each world.
///
/// A mutex can be made where no world exists and can outlive one (a `static` does both). The upper
/// half of the stored value is the serial of the world that gave the number.
#[derive(Debug, Default)]
pub struct Identity(AtomicU64);

const NUMBER_BITS: u32 = 32;

impl Identity {
    /// An identity without a number yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Returns the number in the world of the calling thread.
    ///
    /// # Panics
    /// Outside a world.
    #[must_use]
    pub fn number(&self) -> u64 {
        let world = super::here::world();
        // Relaxed: one thread runs the world, and nothing else is published with the number.
        let stored = self.0.load(Ordering::Relaxed);
        if stored >> NUMBER_BITS == world.serial() {
            return stored & ((1 << NUMBER_BITS) - 1);
        }
        let number = world.number();
        assert!(number >> NUMBER_BITS == 0, "a world has fewer than 2^32 numbered things");
        self.0.store(world.serial() << NUMBER_BITS | number, Ordering::Relaxed);
        number
    }
}
