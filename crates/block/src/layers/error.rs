//! A layer that makes requests fail by rules, to test what a program does on a failing device.
//!
//! A rule selects requests (by operation and range), the occasions when it applies, the error,
//! and the side of the device: *before*, the request never reaches the device; *after*, the device
//! serves it and it is reported as failed, as if the answer was lost. The first rule that applies
//! decides.
//!
//! Each rule counts, and draws a random number for, every request that it selects and that the
//! device took, even if an earlier rule fires. So rules do not disturb each other, and a request
//! that is refused and submitted again is counted once. The same seeds and requests give the same
//! errors.
//!
//! The price: a request is compared with every rule.

use alloc::vec::Vec;
use core::ops::Range;

use super::{Fraction, Notes, Own};
use crate::bio::{Bio, Errno, Operation, Target};
use crate::device::{Completion, Device, Refused, Tag, Wait};
use crate::random::Random;
use crate::time::Moment;

/// Rule that makes some requests fail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Operations that it selects; all operations if empty.
    pub operations: Vec<Operation>,
    /// Range of bytes of a target that selected requests touch; `None` selects every range. An
    /// operation without a length (a flush, a new size) touches the byte at its offset.
    pub range: Option<(Target, Range<u64>)>,
    /// Occasions when a selected request fails.
    pub occasion: Occasion,
    /// Error that they fail with.
    pub errno: Errno,
    /// Whether the device serves a failing request.
    pub side: Side,
}

/// Occasions when a request selected by a rule fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Occasion {
    /// Every nth request, starting with the nth; none if 0.
    Every(u64),
    /// Requests at random.
    Chance {
        /// Probability of a failure.
        rate: Fraction,
        /// Seed of the random numbers.
        seed: u64,
    },
}

/// Whether the device serves a request that fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The request does not reach the device.
    Before,
    /// The device serves the request, and it is reported as failed.
    After,
}

impl Rule {
    /// Returns a rule that makes all requests fail before the device.
    #[must_use]
    pub fn always(errno: Errno) -> Self {
        Self {
            operations: Vec::new(),
            range: None,
            occasion: Occasion::Every(1),
            errno,
            side: Side::Before,
        }
    }

    fn is_about(&self, bio: &Bio) -> bool {
        let operation = self.operations.is_empty() || self.operations.contains(&bio.operation);
        let touches = self.range.as_ref().is_none_or(|(target, range)| {
            let end = bio.end().max(bio.offset.saturating_add(1));
            *target == bio.target
                && !range.is_empty()
                && bio.offset < range.end
                && range.start < end
        });
        operation && touches
    }
}

/// A rule and its progress.
#[derive(Clone, Debug)]
struct Active {
    rule: Rule,
    count: u64,
    random: Random,
}

impl Active {
    fn new(rule: Rule) -> Self {
        let seed = if let Occasion::Chance { seed, .. } = rule.occasion { seed } else { 0 };
        Self { rule, count: 0, random: Random::new(seed) }
    }

    /// Returns whether the rule fires on the next request that it selects.
    fn fires(&self) -> bool {
        match self.rule.occasion {
            Occasion::Every(nth) => nth > 0 && (self.count + 1).is_multiple_of(nth),
            Occasion::Chance { rate, .. } => self.random.clone().happens(rate),
        }
    }

    fn pass(&mut self) {
        self.count += 1;
        self.random.draw();
    }
}

/// Layer that makes requests fail by rules.
///
/// ```
/// use forebay_block::layers::{Errors, NullLayer, Rule};
/// use forebay_block::{Bio, Class, Device, Errno, Operation, Segments, Source, Tag, Target, Wait};
///
/// let flush = Bio {
///     operation: Operation::FlushData, target: Target(0), offset: 0, length: 0,
///     segments: Segments::new(), class: Class::Waited, source: Source(0), owner: 0,
/// };
/// let mut device = Errors::new(NullLayer::new());
/// device.set_rules([Rule { operations: vec![Operation::FlushData], ..Rule::always(Errno::IO) }]);
/// device.prepare(Tag(0), &flush).expect("room");
/// device.doorbell(Wait::Not)?;
///
/// let mut completions = Vec::new();
/// device.reap(&mut completions);
/// assert_eq!(completions[0].result, Err(Errno::IO));
/// # Ok::<(), forebay_block::Errno>(())
/// ```
#[derive(Debug)]
pub struct Errors<D> {
    inner: D,
    rules: Vec<Active>,
    /// Requests at the device that will be reported as failed.
    doomed: Notes<Errno>,
    own: Own,
}

impl<D: Device> Errors<D> {
    /// Wraps a device, without a rule.
    pub fn new(inner: D) -> Self {
        Self { inner, rules: Vec::new(), doomed: Notes::new(), own: Own::default() }
    }

    /// Replaces the rules, from the next request on. Requests in flight are not affected.
    pub fn set_rules(&mut self, rules: impl IntoIterator<Item = Rule>) {
        self.rules.clear();
        self.rules.extend(rules.into_iter().map(Active::new));
    }

    /// Returns the inner device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Returns the inner device, to change its settings.
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }
}

impl<D: Device> Device for Errors<D> {
    fn now(&mut self) -> Moment {
        self.inner.now()
    }

    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        let mut about = self.rules.iter().filter(|active| active.rule.is_about(request));
        let fired =
            about.find(|active| active.fires()).map(|active| (active.rule.side, active.rule.errno));
        match fired {
            Some((Side::Before, errno)) => self.own.stage(tag, errno),
            Some((Side::After, errno)) => {
                self.inner.prepare(tag, request)?;
                self.doomed.put(tag, errno);
            }
            None => self.inner.prepare(tag, request)?,
        }
        self.rules.iter_mut().filter(|active| active.rule.is_about(request)).for_each(Active::pass);
        Ok(())
    }

    fn doorbell(&mut self, wait: Wait) -> Result<(), Errno> {
        let wait = self.own.ring(wait);
        self.inner.doorbell(wait)
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.own.reap(completions);
        let before = completions.len();
        self.inner.reap(completions);
        for completion in &mut completions[before..] {
            if let Some(errno) = self.doomed.take(completion.tag) {
                completion.result = Err(errno);
            }
        }
    }
}
