//! Wall-clock time, which file systems keep too.

/// Nanoseconds since 1970 of the wall clock; negative before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Wall(pub i64);

impl Wall {
    /// Returns the time of seconds and nanoseconds, as the kernel reports them. Times that do not
    /// fit, before 1678 and after 2262, become the nearest one that does.
    #[must_use]
    pub fn new(seconds: i64, nanoseconds: u32) -> Self {
        Self(seconds.saturating_mul(1_000_000_000).saturating_add(i64::from(nanoseconds)))
    }

    /// Returns the time this many nanoseconds later.
    #[must_use]
    pub fn after(self, nanoseconds: i64) -> Self {
        Self(self.0.saturating_add(nanoseconds))
    }
}
