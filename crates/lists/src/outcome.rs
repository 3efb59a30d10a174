//! What a push and a pop say.

/// Whether the list was empty before a push.
///
/// After a pop that returned [`Pop::Empty`], and before the next pop, exactly one push says `Yes`:
/// the first. So a consumer that pops until `Empty` before it waits misses nothing if only those
/// who are told `Yes` wake it, provided the wake is remembered when the consumer is not waiting yet
/// (an eventfd, a park token).
///
/// While the consumer pops, `Yes` may also be said to a push it would have found anyway: a wake too
/// many, never one too few.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the push that finds the list empty wakes the consumer"]
pub enum WasEmpty {
    /// Wake the consumer.
    Yes,
    /// Somebody else does, or it is awake.
    No,
}

/// What a pop found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pop<T> {
    /// The next value.
    Node(T),
    /// Nothing. The consumer may wait.
    Empty,
    /// Something, but its pusher has not linked it yet: it is between two instructions, or was
    /// interrupted there. Do something else and pop again; do not wait for a wake, none need come.
    Busy,
}

/// What a bounded drain left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// Nothing. The consumer may wait.
    Empty,
    /// Something that is not linked yet, as [`Pop::Busy`].
    Busy,
    /// The bound was reached; there may be more, and it stays queued.
    Bounded,
}

/// Pops up to `limit` times.
pub(crate) fn drain<T>(
    limit: usize,
    mut pop: impl FnMut() -> Pop<T>,
    mut take: impl FnMut(T),
) -> Rest {
    for _ in 0..limit {
        match pop() {
            Pop::Node(value) => take(value),
            Pop::Empty => return Rest::Empty,
            Pop::Busy => return Rest::Busy,
        }
    }
    Rest::Bounded
}
