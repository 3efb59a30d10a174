//! Faults of a device and their rates.

use std::time::Duration;

use forebay_block::Errno;

use crate::random::PerMille;

/// No space left on the device (`ENOSPC`).
pub const NO_SPACE: Errno = Errno(28);

/// How long requests take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Latency {
    /// Shortest time of a request.
    pub least: Duration,
    /// Longest time of a request.
    pub most: Duration,
}

/// Rates of faults. The first three, and `invalidate`, are no failures: whoever drives the device
/// gets over them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// A request is refused although others are at the device.
    pub refuse: PerMille,
    /// A request that transfers bytes transfers only some of them.
    pub shorten: PerMille,
    /// A request ends with `EINTR` or `EAGAIN`.
    pub interrupt: PerMille,
    /// A read fails.
    pub read: PerMille,
    /// A write fails, after a part of it.
    pub write: PerMille,
    /// A flush of a file fails, and the changes that it should have covered never become durable.
    pub flush: PerMille,
    /// A direct write under another program's mapping is undone by an older page of the kernel's
    /// cache, and the next flush of the file fails because of it. On a shared file only.
    pub invalidate: PerMille,
    /// A flush of a directory fails, and the names that it should have covered stay volatile.
    pub flush_directory: PerMille,
    /// A change of a name in an open directory fails with `ENOSPC` or `EIO`, and changes nothing.
    pub names: PerMille,
    /// A change of length fails.
    pub set_length: PerMille,
    /// An allocation, a release or a discard of space fails.
    pub allocate: PerMille,
}

impl Faults {
    /// No faults.
    pub const NONE: Faults = Faults {
        refuse: PerMille(0),
        shorten: PerMille(0),
        interrupt: PerMille(0),
        read: PerMille(0),
        write: PerMille(0),
        flush: PerMille(0),
        invalidate: PerMille(0),
        flush_directory: PerMille(0),
        names: PerMille(0),
        set_length: PerMille(0),
        allocate: PerMille(0),
    };

    /// Returns only the faults that must never be reported to a caller.
    #[must_use]
    pub fn passing(self) -> Self {
        let Self { refuse, shorten, interrupt, invalidate, .. } = self;
        Self { refuse, shorten, interrupt, invalidate, ..Self::NONE }
    }
}
