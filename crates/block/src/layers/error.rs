//! Errors: requests fail by rule, so that what a program does about a failing device can be seen
//! without one.
//!
//! A rule says which requests it is about (operations, a range of a target), on which occasions it
//! fires, with which error, and on which side of the device: *before*, the request never reaches
//! it; *after*, it is served, and then reported failed, as when an answer is lost. The first rule
//! that fires decides.
//!
//! Each rule counts, and draws, for all requests that the device took and that it is about, whether
//! an earlier rule fires or not; so rules do not disturb each other, and a request that is refused
//! and comes again is counted once. The same seeds and requests give the same errors.
//!
//! The price: a request is compared with every rule.

use alloc::vec::Vec;
use core::ops::Range;

use super::{Fraction, Notes, Own, Random};
use crate::bio::{Bio, Errno, Operation, Target};
use crate::device::{Completion, Device, Refused, Tag, Wait};
use crate::time::Moment;

/// Which requests fail, when, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Of these operations; of all where empty.
    pub operations: Vec<Operation>,
    /// That touch this range of bytes of this target; everywhere where `None`. What has no length
    /// (a flush, a new size) touches the byte at its offset.
    pub range: Option<(Target, Range<u64>)>,
    /// On which of these requests.
    pub occasion: Occasion,
    /// With which error.
    pub errno: Errno,
    /// Whether the device serves it all the same.
    pub side: Side,
}

/// On which of the requests that a rule is about it fires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Occasion {
    /// Every nth, the first being the nth; never where 0.
    Every(u64),
    /// At random.
    Chance {
        /// How often.
        rate: Fraction,
        /// From which numbers.
        seed: u64,
    },
}

/// On which side of the device a request fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// It never reaches the device.
    Before,
    /// The device serves it, and it is reported failed whatever the device said.
    After,
}

impl Rule {
    /// All requests of all targets, always, before the device.
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

/// A rule, and how far it has come.
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

    /// Whether it fires on the next request that it is about.
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

/// Fails requests by rule.
///
/// ```
/// use forebay_block::layers::{Errors, Null, Rule};
/// use forebay_block::{Bio, Class, Device, Errno, Operation, Segments, Source, Tag, Target, Wait};
///
/// let flush = Bio {
///     operation: Operation::FlushData, target: Target(0), offset: 0, length: 0, segments: Segments::new(),
///     class: Class::Waited, source: Source(0), owner: 0,
/// };
/// let mut device = Errors::new(Null::new());
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
    /// Served, and to be reported failed.
    doomed: Notes<Errno>,
    own: Own,
}

impl<D: Device> Errors<D> {
    /// No rule yet: everything passes.
    pub fn new(inner: D) -> Self {
        Self { inner, rules: Vec::new(), doomed: Notes::new(), own: Own::default() }
    }

    /// These rules and no others from the next request on, counting from the start. What is in
    /// flight ends as it was going to.
    pub fn set_rules(&mut self, rules: impl IntoIterator<Item = Rule>) {
        self.rules.clear();
        self.rules.extend(rules.into_iter().map(Active::new));
    }

    /// The device beneath.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The device beneath, to change its settings.
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
