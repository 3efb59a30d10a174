//! What a device does wrong, and how often.

use forebay_block::Errno;

use crate::random::PerMille;

/// No space left on the device (`ENOSPC`).
pub const NO_SPACE: Errno = Errno(28);

/// Rates of faults. The first three, and `invalidate`, are no failures: whoever drives the device
/// gets over them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// A request is not taken, while others are there.
    pub refuse: PerMille,
    /// A request that moves bytes moves some of them.
    pub shorten: PerMille,
    /// A request ends with `EINTR` or `EAGAIN`.
    pub interrupt: PerMille,
    /// A read fails.
    pub read: PerMille,
    /// A write fails, after a part of it.
    pub write: PerMille,
    /// A flush of a file fails, and what it should have made durable never is.
    pub flush: PerMille,
    /// A write past another program's mapping is undone by an older page of the kernel's cache, and
    /// the next flush of the file fails for it, on a shared file.
    pub invalidate: PerMille,
    /// A flush of a directory fails, likewise.
    pub flush_directory: PerMille,
    /// A change of length fails.
    pub set_length: PerMille,
    /// Space is not allocated, not given back, or not discarded.
    pub allocate: PerMille,
}

impl Faults {
    /// None at all.
    pub const NONE: Faults = Faults {
        refuse: PerMille(0),
        shorten: PerMille(0),
        interrupt: PerMille(0),
        read: PerMille(0),
        write: PerMille(0),
        flush: PerMille(0),
        invalidate: PerMille(0),
        flush_directory: PerMille(0),
        set_length: PerMille(0),
        allocate: PerMille(0),
    };

    /// Only those that nobody may ever hear of.
    #[must_use]
    pub fn passing(self) -> Self {
        let Self { refuse, shorten, interrupt, invalidate, .. } = self;
        Self { refuse, shorten, interrupt, invalidate, ..Self::NONE }
    }
}
