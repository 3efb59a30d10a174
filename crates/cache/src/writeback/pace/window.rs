//! Work in flight, and work that has ended.

/// Load in flight of one class.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Load {
    pub(super) requests: usize,
    pub(super) cost: u64,
}

/// Completions while the flight was full.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Window {
    pub(super) nanoseconds: u64,
    pub(super) requests: u64,
    pub(super) cost: u64,
    /// Bytes written.
    pub(super) written: u64,
}

impl Window {
    pub(super) fn add(&mut self, other: Window) {
        self.nanoseconds += other.nanoseconds;
        self.requests += other.requests;
        self.cost += other.cost;
        self.written += other.written;
    }

    pub(super) fn rate(self) -> f64 {
        self.cost as f64 / self.nanoseconds as f64
    }
}
