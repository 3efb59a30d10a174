//! Results of a push, a pop and a drain.

/// Whether the list was empty before a push, which means that the consumer must be woken.
///
/// After a pop that returned [`Pop::Empty`] and before the next pop, exactly one push returns
/// `Yes`: the first. So a consumer that pops until `Empty` before it waits misses no value if every
/// `Yes` wakes it. The wake must be remembered if the consumer does not wait yet (an eventfd, a
/// park token).
///
/// While the consumer pops, a push may return `Yes` although the consumer would have found the
/// value. That costs a needless wake; a needed one is never missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the producer that gets `Yes` must wake the consumer"]
pub enum WasEmpty {
    /// The list was empty: wake the consumer.
    Yes,
    /// The consumer is awake, or another producer wakes it.
    No,
}

/// Result of a pop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pop<T> {
    /// The next value.
    Node(T),
    /// The list is empty. The consumer may wait for a wake.
    Empty,
    /// A producer is in the middle of a push. Do something else and pop again. Do not wait for a
    /// wake, because none may come.
    Busy,
}

/// Reason why a drain with a limit stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// The list is empty. The consumer may wait for a wake.
    Empty,
    /// A producer is in the middle of a push, as [`Pop::Busy`].
    Busy,
    /// The limit was reached. More values may be queued.
    Bounded,
}
