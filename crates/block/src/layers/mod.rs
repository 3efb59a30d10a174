//! Layers: devices that wrap a device and change one thing, to see how a program behaves on a
//! device that is slow, fails, completes short or is shared, and to count what reaches it.
//!
//! The layers work over a real ring, over the simulated disk and over [`NullLayer`], so a fault can
//! be injected in tests and on a real machine alike. Each keeps the contract of [`Device`]: a
//! refused request is not kept, a request that was taken completes once, and a doorbell ends in
//! time. So they compose in any order:
//!
//! ```
//! use std::time::Duration;
//! use forebay_block::layers::{Delay, Errors, Latency, NullLayer, Stats};
//!
//! let latency = Latency { fixed: Duration::from_micros(80), spread: Duration::from_micros(20) };
//! let mut device = Delay::new(Errors::new(Stats::new(NullLayer::new())), latency, 7);
//! assert_eq!(device.inner_mut().inner_mut().statistics().doorbells, 0);
//! ```
//!
//! Time comes from the inner device, and random numbers from a seed, so runs can be replayed. All
//! settings can be changed while requests are in flight; a change applies to requests prepared
//! (for [`Delay`]: completed) from then on.

pub mod delay;
pub mod error;
pub mod fraction;
pub mod limit;
pub mod null;
pub mod short;
pub mod stats;

pub use delay::{Delay, Latency};
pub use error::{Errors, Occasion, Rule, Side};
pub use fraction::Fraction;
pub use limit::{Ceiling, Limit, Rate};
pub use null::NullLayer;
pub use short::{Short, Shortfalls};
pub use stats::{Histogram, Statistics, Stats};

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::bio::{Bio, Errno, Operation};
use crate::device::{Completion, Device, Refused, Tag, Wait};
use crate::limits::TAGS;
use crate::time::Moment;

/// Number of operations.
const OPERATIONS: usize = 12;

/// Returns the place of an operation in a table. A new operation without a place does not compile.
const fn place(operation: Operation) -> usize {
    match operation {
        Operation::Read => 0,
        Operation::Write => 1,
        Operation::WriteBuffered => 2,
        Operation::WriteFua => 3,
        Operation::WriteZeroes => 4,
        Operation::Discard => 5,
        Operation::FlushData => 6,
        Operation::FlushAll => 7,
        Operation::FlushDirectory => 8,
        Operation::Allocate => 9,
        Operation::Punch => 10,
        Operation::SetLength => 11,
    }
}

/// A note per request taken, kept until it completes.
#[derive(Debug)]
struct Notes<T> {
    of_tag: Vec<Option<T>>,
}

impl<T> Notes<T> {
    fn new() -> Self {
        Self { of_tag: (0..TAGS).map(|_| None).collect() }
    }

    fn put(&mut self, tag: Tag, note: T) {
        let before = self.of_tag[usize::from(tag.0)].replace(note);
        assert!(before.is_none(), "{tag:?} is in two places");
    }

    fn take(&mut self, tag: Tag) -> Option<T> {
        self.of_tag[usize::from(tag.0)].take()
    }
}

/// Completions that a layer makes itself, for requests that never reach the device. They complete
/// with the doorbell.
#[derive(Debug, Default)]
struct Own {
    staged: Vec<Completion>,
    completed: Vec<Completion>,
}

impl Own {
    fn stage(&mut self, tag: Tag, errno: Errno) {
        self.staged.push(Completion { tag, result: Err(errno) });
    }

    /// Completes the staged requests. Returns how long the inner device may wait, given these
    /// completions.
    fn ring(&mut self, wait: Wait) -> Wait {
        self.completed.append(&mut self.staged);
        let count = u32::try_from(self.completed.len()).unwrap_or(u32::MAX);
        match wait {
            _ if count == 0 => wait,
            Wait::Batch { want, within, limit } if count < want => {
                let limit = Some(limit.map_or(within, |limit| limit.min(within)));
                Wait::Batch { want: want - count, within, limit }
            }
            _ => Wait::Not,
        }
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.completed);
    }
}

/// A device chosen at run time.
impl<D: Device + ?Sized> Device for Box<D> {
    fn now(&mut self) -> Moment {
        (**self).now()
    }

    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        (**self).prepare(tag, request)
    }

    fn doorbell(&mut self, wait: Wait) -> Result<(), Errno> {
        (**self).doorbell(wait)
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        (**self).reap(completions);
    }
}
