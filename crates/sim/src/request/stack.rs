//! Layers over the memory device, drawn from a seed and changed while requests are in flight.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use forebay_block::layers::{
    Ceiling, Delay, Errors, Fraction, Latency, Limit, Occasion, Rate, Rule, Short, Shortfalls,
    Side, Stats,
};
use forebay_block::limits::PAGE;
use forebay_block::{
    Bio, Completion, Device, Errno, Moment, Operation, Refused, Tag, Target, Wait,
};

use super::device::MemoryDevice;
use crate::faults::NO_SPACE;
use crate::random::{PerMille, Random};

/// A device and its layers.
#[derive(Debug)]
pub enum Stack {
    /// The device itself.
    Base(MemoryDevice),
    /// Delays completions.
    Delay(Box<Delay<Stack>>),
    /// Makes requests fail.
    Errors(Box<Errors<Stack>>),
    /// Makes requests end short.
    Short(Box<Short<Stack>>),
    /// Limits depth and rate.
    Limit(Box<Limit<Stack>>),
    /// Counts requests.
    Stats(Box<Stats<Stack>>),
}

impl Stack {
    /// Puts up to five random layers over a device.
    #[must_use]
    pub fn draw(device: MemoryDevice, random: &mut Random) -> Self {
        let mut stack = Stack::Base(device);
        for _ in 0..random.below(6) {
            stack = match random.below(5) {
                0 => Stack::Delay(Box::new(Delay::new(stack, latency(random), random.draw()))),
                1 => {
                    let mut errors = Errors::new(stack);
                    errors.set_rules(rules(random));
                    Stack::Errors(Box::new(errors))
                }
                2 => Stack::Short(Box::new(Short::new(stack, shortfalls(random), random.draw()))),
                3 => Stack::Limit(Box::new(Limit::new(stack, ceiling(random)))),
                _ => Stack::Stats(Box::new(Stats::new(stack))),
            };
        }
        stack
    }

    /// Changes the settings of some layers at random, from the next request on.
    pub fn disturb(&mut self, random: &mut Random) {
        let is_changed = random.happens(PerMille(500));
        match self {
            Stack::Base(device) => {
                let mut temper = device.temper();
                temper.capacity = 1 + random.below(80) as usize;
                temper.refuse = PerMille(random.below(200) as u16);
                if is_changed {
                    device.set_temper(temper);
                }
            }
            Stack::Delay(delay) => {
                let latency = latency(random);
                if is_changed {
                    delay.set_latency(latency);
                }
            }
            Stack::Errors(errors) => {
                let rules = rules(random);
                if is_changed {
                    errors.set_rules(rules);
                }
            }
            Stack::Short(short) => {
                let shortfalls = shortfalls(random);
                if is_changed {
                    short.set_shortfalls(shortfalls);
                }
            }
            Stack::Limit(limit) => {
                let ceiling = ceiling(random);
                if is_changed {
                    limit.set_ceiling(ceiling);
                }
            }
            Stack::Stats(_) => {}
        }
        if let Some(inner) = self.inner_mut() {
            inner.disturb(random);
        }
    }

    /// Returns the device at the bottom.
    pub fn base(&mut self) -> &mut MemoryDevice {
        match self {
            Stack::Base(device) => device,
            other => other.inner_mut().expect("a layer has an inner device").base(),
        }
    }

    /// Checks that the counting and limiting layers have seen the completion of every request.
    pub fn check_idle(&mut self) {
        if let Stack::Stats(stats) = self {
            let statistics = stats.statistics();
            assert_eq!(
                statistics.requests(),
                statistics.completed(),
                "requests have not completed"
            );
        }
        if let Stack::Limit(limit) = self {
            assert_eq!(limit.in_flight(), 0, "requests have not completed");
        }
        if let Some(inner) = self.inner_mut() {
            inner.check_idle();
        }
    }

    fn outermost(&mut self) -> &mut dyn Device {
        match self {
            Stack::Base(device) => device,
            Stack::Delay(delay) => &mut **delay,
            Stack::Errors(errors) => &mut **errors,
            Stack::Short(short) => &mut **short,
            Stack::Limit(limit) => &mut **limit,
            Stack::Stats(stats) => &mut **stats,
        }
    }

    fn inner_mut(&mut self) -> Option<&mut Stack> {
        match self {
            Stack::Base(_) => None,
            Stack::Delay(delay) => Some(delay.inner_mut()),
            Stack::Errors(errors) => Some(errors.inner_mut()),
            Stack::Short(short) => Some(short.inner_mut()),
            Stack::Limit(limit) => Some(limit.inner_mut()),
            Stack::Stats(stats) => Some(stats.inner_mut()),
        }
    }
}

impl Device for Stack {
    fn now(&mut self) -> Moment {
        self.outermost().now()
    }

    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        self.outermost().prepare(tag, request)
    }

    fn doorbell(&mut self, wait: Wait) -> Result<(), Errno> {
        self.outermost().doorbell(wait)
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.outermost().reap(completions);
    }
}

fn latency(random: &mut Random) -> Latency {
    let mut span = || Duration::from_nanos(random.below(60_000));
    Latency { fixed: span(), spread: span() }
}

fn shortfalls(random: &mut Random) -> Shortfalls {
    let mut up_to = |percent| Fraction::percent(random.below(percent) as u32);
    Shortfalls { read: up_to(70), write: up_to(70), interrupted: up_to(20), would_block: up_to(20) }
}

fn ceiling(random: &mut Random) -> Ceiling {
    let often = PerMille(400);
    let rate = |unit: u64, random: &mut Random| {
        random.happens(often).then(|| Rate {
            per_second: NonZeroU64::new(unit * (10_000 + random.below(1_000_000))).expect("not 0"),
            burst: NonZeroU64::new(unit * (1 + random.below(64))).expect("not 0"),
        })
    };
    let (bandwidth, requests) = (rate(PAGE as u64, random), rate(1, random));
    let in_flight =
        random.happens(often).then(|| NonZeroU32::MIN.saturating_add(random.below(32) as u32));
    Ceiling { in_flight, bandwidth, requests }
}

fn rules(random: &mut Random) -> Vec<Rule> {
    let mut rules = Vec::new();
    for _ in 0..random.below(4) {
        let operations = match random.below(4) {
            0 => vec![Operation::Write, Operation::WriteFua],
            1 => vec![Operation::Read, Operation::WriteZeroes, Operation::SetLength],
            2 => vec![Operation::FlushData, Operation::FlushAll, Operation::WriteBuffered],
            _ => Vec::new(),
        };
        let start = random.below(24) * PAGE as u64;
        let length = random.within(1..3) * PAGE as u64;
        let target = Target(random.below(2) as u32);
        let range = random.happens(PerMille(400)).then_some((target, start..start + length));
        let occasion = match random.below(3) {
            0 if range.is_some() => Occasion::Every(1),
            0 | 1 => Occasion::Every(random.within(3..40)),
            _ => Occasion::Chance {
                rate: Fraction::per_mille(random.below(80) as u32),
                seed: random.draw(),
            },
        };
        let errno = *random.pick(&[Errno::IO, NO_SPACE]);
        let side = *random.pick(&[Side::Before, Side::After]);
        rules.push(Rule { operations, range, occasion, errno, side });
    }
    rules
}
