//! Slowing writers near the dirty limit.
//!
//! ```text
//!  dirty pages   0 ......... background ................ limit .... cache
//!  writers       run         run, writeback works       wait       small files still run
//! ```
//!
//! The price of a bound on memory is that a writer faster than the device waits. Who waits goes in the order it
//! came, and is let on only when a share of the limit is free again, so that it runs for a while: a wake per
//! page would be two context switches per write. A file that has little dirty (a log beside a bulk load) is not
//! made to wait for others: it runs into the room between the limit and the cache.

/// Whether a writer may take frames now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// It may.
    Granted,
    /// It waits until the level has fallen below [`Throttle::resume`].
    Wait,
}

/// The levels, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Throttle {
    /// Writers wait from here on.
    pub limit: u64,
    /// Background writeback works from here on.
    pub background: u64,
    /// A file with fewer dirty pages than this does not wait at the limit.
    pub small: u64,
}

impl Throttle {
    /// Levels for a cache; `limit` and `background` in pages.
    #[must_use]
    pub fn new(limit: u64, background: u64) -> Self {
        Self { limit, background: background.min(limit), small: (limit / 256).max(16) }
    }

    /// May a writer of a file with `file_dirty` dirty pages go on, with `dirty` in all?
    #[must_use]
    pub fn admit(&self, dirty: u64, file_dirty: u64) -> Admission {
        if dirty < self.limit || file_dirty < self.small { Admission::Granted } else { Admission::Wait }
    }

    /// Writers that wait are let on when the level has fallen to this.
    #[must_use]
    pub fn resume(&self) -> u64 {
        self.limit - self.limit / 64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_pass_where_bulk_waits() {
        let throttle = Throttle::new(1024, 512);
        assert_eq!(throttle.admit(1023, 900), Admission::Granted);
        assert_eq!(throttle.admit(1024, 900), Admission::Wait);
        assert_eq!(throttle.admit(1024, 1), Admission::Granted);
        assert!(throttle.resume() < throttle.limit);
    }
}
