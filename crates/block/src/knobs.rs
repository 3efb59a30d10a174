//! The knobs of a queue: policies, each with its fixed forms kept for comparison. All can be
//! changed in flight; a change holds from the next dispatch or run on.

use core::fmt;
use core::time::Duration;

use crate::limits::{HOLD_MAX, PLUG_HOLD};

/// All of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Knobs {
    /// When a batch goes.
    pub plugging: Plugging,
    /// Whether bios that touch become one request.
    pub merging: Merging,
    /// How tags are taken.
    pub tagging: Tagging,
    /// How often the clock is read.
    pub clock: ClockReads,
    /// How often the doorbell is rung.
    pub ringing: Ringing,
    /// When completions are ended.
    pub holding: Holding,
    /// In which order the completions of a run are ended.
    pub order: Order,
}

/// When a batch goes to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Plugging {
    /// Each bio alone, with a doorbell of its own.
    Never,
    /// When it is full, when its time is over, or when the caller would sleep.
    Always,
    /// At the next dispatch: the batch is what came while the last doorbell was rung. Held on only
    /// where the doorbell, as measured, costs more than the wait adds.
    #[default]
    Adaptive,
}

/// Whether bios that touch become one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Merging {
    /// Never: for measuring what merging is worth.
    Off,
    /// Where they touch.
    #[default]
    On,
}

/// How tags are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tagging {
    /// All of a batch in one sweep.
    #[default]
    Sweep,
    /// One by one: for measuring what the sweep is worth.
    Single,
}

/// How often the clock is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClockReads {
    /// Once for each batch handed over and once for each run.
    #[default]
    Batch,
    /// For each bio handed over and each ended: for measuring what the batch is worth.
    Each,
}

/// How often the doorbell is rung.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ringing {
    /// Once for each batch.
    #[default]
    Batch,
    /// For each request: for measuring what the batch is worth.
    Each,
}

/// When completions that were reaped are ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Holding {
    /// At once.
    Immediate,
    /// When the first of them has been held so long. The time is not begun anew by those that
    /// follow.
    Delay(Duration),
    /// Held only where that forms a batch, as the rate of arrival says; never while somebody waits,
    /// nor when all in flight is here.
    #[default]
    Adaptive,
}

/// In which order the completions of a run are ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// As they were reaped.
    #[default]
    Fifo,
    /// The other way round: for measuring what order is worth.
    Lifo,
}

/// A word that names no form of a knob, or a time out of range; says what would do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unknown {
    /// What can be given.
    pub choices: &'static str,
}

/// One of them, by its name.
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    /// Its name.
    pub name: &'static str,
    /// What it can be set to.
    pub choices: &'static str,
    get: fn(&Knobs) -> Value,
    /// False where the value is none of the choices.
    set: fn(&mut Knobs, &str) -> bool,
}

/// What a knob stands at; displayed as [`Knobs::set`] takes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Value {
    Word(&'static str),
    Delay(Duration),
}

impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Word(word) => formatter.write_str(word),
            Value::Delay(delay) => write!(formatter, "delay={}", delay.as_micros()),
        }
    }
}

/// A knob whose forms are words.
macro_rules! of_words {
    ($name:literal, $field:ident, $first:literal: $first_form:path $(, $word:literal: $form:path)+) => {
        Knob {
            name: $name,
            choices: concat!($first $(, ", ", $word)+),
            get: |knobs| Value::Word(match knobs.$field {
                $first_form => $first,
                $($form => $word,)+
            }),
            set: |knobs, value| {
                knobs.$field = match value {
                    $first => $first_form,
                    $($word => $form,)+
                    _ => return false,
                };
                true
            },
        }
    };
}

/// All there are.
const KNOBS: [Knob; 7] = [
    of_words!("plug", plugging, "never": Plugging::Never, "always": Plugging::Always, "adaptive": Plugging::Adaptive),
    of_words!("merge", merging, "off": Merging::Off, "on": Merging::On),
    of_words!("tags", tagging, "sweep": Tagging::Sweep, "single": Tagging::Single),
    of_words!("clock", clock, "batch": ClockReads::Batch, "each": ClockReads::Each),
    of_words!("doorbell", ringing, "batch": Ringing::Batch, "each": Ringing::Each),
    Knob {
        name: "completion",
        choices: "immediate, adaptive, delay=MICROSECONDS (0 to 100000)",
        get: |knobs| match knobs.holding {
            Holding::Immediate => Value::Word("immediate"),
            Holding::Adaptive => Value::Word("adaptive"),
            Holding::Delay(delay) => Value::Delay(delay),
        },
        set: |knobs, value| holding(value).map(|holding| knobs.holding = holding).is_some(),
    },
    of_words!("order", order, "fifo": Order::Fifo, "lifo": Order::Lifo),
];

impl Knobs {
    /// All there are, in the order of a request's life.
    pub const ALL: &[Knob] = &KNOBS;

    /// Their names, as [`Knobs::set`] takes them.
    pub const NAMES: [&'static str; KNOBS.len()] = {
        let mut names = [""; KNOBS.len()];
        let mut at = 0;
        while at < names.len() {
            names[at] = KNOBS[at].name;
            at += 1;
        }
        names
    };

    /// Sets a knob by its name; `None` where there is none of that name.
    pub fn set(&mut self, name: &str, value: &str) -> Option<Result<(), Unknown>> {
        KNOBS.iter().find(|knob| knob.name == name).map(|knob| knob.set(self, value))
    }
}

impl Knob {
    /// What it stands at, as [`Knob::set`] takes it.
    pub fn get(&self, knobs: &Knobs) -> impl fmt::Display + use<> {
        (self.get)(knobs)
    }

    /// Sets it.
    ///
    /// # Errors
    /// The value is none of the choices.
    pub fn set(&self, knobs: &mut Knobs, value: &str) -> Result<(), Unknown> {
        if (self.set)(knobs, value) { Ok(()) } else { Err(Unknown { choices: self.choices }) }
    }
}

fn holding(value: &str) -> Option<Holding> {
    match value {
        "immediate" => Some(Holding::Immediate),
        "adaptive" => Some(Holding::Adaptive),
        _ => {
            let delay = Duration::from_micros(value.strip_prefix("delay=")?.parse().ok()?);
            (delay <= HOLD_MAX).then_some(Holding::Delay(delay))
        }
    }
}

const _: () = assert!(PLUG_HOLD.as_nanos() <= HOLD_MAX.as_nanos());

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};

    use super::*;

    #[test]
    fn knobs_are_set_by_name() {
        let mut knobs = Knobs::default();
        let set = [
            ("plug", "never"),
            ("merge", "off"),
            ("tags", "single"),
            ("clock", "each"),
            ("doorbell", "each"),
            ("completion", "delay=1000"),
            ("order", "lifo"),
        ];
        for (name, value) in set {
            assert_eq!(knobs.set(name, value), Some(Ok(())), "{name}");
        }
        let expected = Knobs {
            plugging: Plugging::Never,
            merging: Merging::Off,
            tagging: Tagging::Single,
            clock: ClockReads::Each,
            ringing: Ringing::Each,
            holding: Holding::Delay(Duration::from_millis(1)),
            order: Order::Lifo,
        };
        assert_eq!(knobs, expected);
        let stand_at = Knobs::ALL.iter().map(|knob| (knob.name, knob.get(&knobs).to_string()));
        assert!(stand_at.eq(set.map(|(name, value)| (name, String::from(value)))));
    }

    #[test]
    fn what_a_knob_stands_at_can_be_set_again() {
        let mut knobs = Knobs::default();
        for knob in Knobs::ALL {
            let words = knob.choices.split(", ").filter(|choice| !choice.contains('='));
            let delays = ["delay=0", "delay=7", "delay=100000"]
                .into_iter()
                .filter(|_| knob.name == "completion");
            for value in words.chain(delays) {
                knob.set(&mut knobs, value).unwrap();
                assert_eq!(knob.get(&knobs).to_string(), value, "{}", knob.name);
            }
        }
    }

    #[test]
    fn what_no_knob_takes_is_refused_with_the_choices() {
        let mut knobs = Knobs::default();
        assert_eq!(knobs.set("plugs", "never"), None);
        for name in Knobs::NAMES {
            for value in
                ["", "ON", "delay=", "delay=-1", "delay=100001", "delay=99999999999999999999"]
            {
                let refused = knobs.set(name, value).expect("a knob").unwrap_err();
                assert!(refused.choices.contains(", "), "{name}");
            }
        }
        assert_eq!(knobs, Knobs::default());
    }
}
