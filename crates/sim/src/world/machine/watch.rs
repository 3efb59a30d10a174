//! Watches for broken leases, and the waits around them.

use std::collections::{BTreeMap, VecDeque};

use crate::world::{Process, TaskId};

/// Reason of a wait for the release of a lease.
pub(crate) const LEASE: &str = "release of the lease of node";

/// Reason of a wait for a signal to a watch.
pub(crate) const WATCH: &str = "signal of lease watch";

/// Reason of a wait for the end of a watch.
pub(crate) const WATCH_END: &str = "end of lease watch";

/// A watch for broken leases.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) process: Process,
    /// Keys by the descriptors that have a lease.
    pub(super) leased: BTreeMap<u64, u64>,
    /// Descriptors whose lease is being broken; `None` for one that is not named.
    pub(super) signals: VecDeque<Option<u64>>,
    pub(super) state: State,
    /// The thread of the watch.
    pub(super) task: Option<TaskId>,
}

/// Life of a watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Idle,
    Running,
    Stopping,
    Over,
}

/// Next step of the thread of a watch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Call back with these keys.
    Report(Vec<u64>),
    Wait,
    End,
}
