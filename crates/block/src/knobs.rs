//! Knobs of a request queue: policies, each with the fixed alternatives kept for measurement. Every
//! knob can be changed while requests are in flight; the next dispatch or completion run uses the
//! new value.

use core::fmt;
use core::time::Duration;

use crate::limits::{HOLD_MAX, PLUG_HOLD};

/// Values of all knobs of a request queue.
///
/// ```
/// use forebay_block::knobs::{Knobs, Plugging};
///
/// let mut knobs = Knobs::default();
/// assert_eq!(knobs.plugging, Plugging::Adaptive);
/// knobs.set("plug", "never").expect("a knob").expect("one of its values");
/// assert_eq!(knobs.plugging, Plugging::Never);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Knobs {
    /// When a batch of requests goes to the device.
    pub plugging: Plugging,
    /// Whether adjacent bios become one request.
    pub merging: Merging,
    /// How the tags of a batch are allocated.
    pub tagging: Tagging,
    /// How often the clock is read.
    pub clock: ClockReads,
    /// How often the device is notified of new requests.
    pub ringing: Ringing,
    /// When completed writes are ended.
    pub holding: Holding,
    /// In which order the completions of a run are ended.
    pub order: Order,
}

/// When a batch of requests goes to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Plugging {
    /// Submits each request by itself, with one doorbell call each.
    Never,
    /// Submits when the batch is full, when its hold time is over, or when the caller would sleep.
    Always,
    /// As [`Plugging::Always`] if more than two operations wait; fewer are submitted at once. The
    /// kernel has this rule for the requests of one call.
    AboveTwo,
    /// Submits what arrived during the last doorbell call. Waits for more only if a doorbell call
    /// costs more time than the wait adds, as measured.
    #[default]
    Adaptive,
}

/// Whether adjacent bios become one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Merging {
    /// Makes one request of each bio, to measure what merging is worth.
    Off,
    /// Merges bios that touch.
    #[default]
    On,
}

/// How the tags of a batch are allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tagging {
    /// Allocates all tags of a batch in one pass.
    #[default]
    Sweep,
    /// Allocates one tag at a time, to measure what the single pass is worth.
    Single,
}

/// How often the clock is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClockReads {
    /// Reads the clock once per submitted batch and once per completion run.
    #[default]
    Batch,
    /// Reads the clock for each bio submitted and each bio ended, to measure what batching is
    /// worth.
    Each,
}

/// How often the device is notified of new requests (the doorbell call, such as
/// `io_uring_enter`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ringing {
    /// Makes one call per batch.
    #[default]
    Batch,
    /// Makes one call per request, to measure what batching is worth.
    Each,
}

/// When completed writes are ended, which frees their memory and wakes their callers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Holding {
    /// Ends them as soon as the device reports them.
    Immediate,
    /// Ends them together, this long after the device reported the first one (100 ms at most).
    /// Later ones do not extend the time. Bios that somebody waits for end at once: those of
    /// [`Class::Waited`](crate::Class::Waited), and all of them after
    /// [`Queue::end_hold`](crate::Queue::end_hold).
    Delay(Duration),
    /// As `Delay` while writers wait for the dirty limit and a fast device ends many writes in the
    /// time. The owner of the queue decides it, with
    /// [`Queue::set_holding`](crate::Queue::set_holding); until then as `Immediate`.
    #[default]
    Throttled,
}

/// In which order the completions of a run are ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// Oldest first, as the device reported them.
    #[default]
    Fifo,
    /// Newest first, to measure what order is worth.
    Lifo,
}

/// A value that a knob does not accept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unknown {
    /// The values that the knob accepts, for an error message.
    pub choices: &'static str,
}

/// One knob, with access to its value by name and as text.
#[derive(Clone, Copy, Debug)]
pub struct QueueKnob {
    /// Its name, such as `plug`.
    pub name: &'static str,
    /// The values that it accepts, separated by commas.
    pub choices: &'static str,
    /// Meaning, in one or two sentences.
    pub help: &'static str,
    get: fn(&Knobs) -> Value,
    /// Returns false if the value is invalid.
    set: fn(&mut Knobs, &str) -> bool,
}

/// Value of a knob, displayed as [`Knobs::set`] accepts it.
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

/// Defines a knob whose values are words.
macro_rules! of_words {
    (
        $name:literal, $field:ident, $help:literal,
        $first:literal: $first_form:path $(, $word:literal: $form:path)+ $(,)?
    ) => {
        QueueKnob {
            name: $name,
            choices: concat!($first $(, ", ", $word)+),
            help: $help,
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

const KNOBS: [QueueKnob; 7] = [
    of_words!(
        "plug", plugging,
        "When a batch of requests goes to the device: each request by itself, when the batch is \
         full or 50 us old, or as measured. `above-two` holds only batches of more than two, and \
         is for measurement.",
        "never": Plugging::Never, "always": Plugging::Always, "adaptive": Plugging::Adaptive,
        "above-two": Plugging::AboveTwo,
    ),
    of_words!(
        "merge", merging,
        "Whether adjacent operations become one request.",
        "off": Merging::Off, "on": Merging::On,
    ),
    of_words!(
        "tags", tagging,
        "How request tags are allocated: all of a batch in one pass, or one at a time. `single` \
         is for measurement.",
        "sweep": Tagging::Sweep, "single": Tagging::Single,
    ),
    of_words!(
        "clock", clock,
        "How often the clock is read: per batch, or per operation. `each` is for measurement.",
        "batch": ClockReads::Batch, "each": ClockReads::Each,
    ),
    of_words!(
        "doorbell", ringing,
        "How often the kernel is called to submit: per batch, or per request. `each` is for \
         measurement.",
        "batch": Ringing::Batch, "each": Ringing::Each,
    ),
    QueueKnob {
        name: "completion",
        choices: "throttled, immediate, delay=MICROSECONDS (0 to 100000)",
        help: "When completed writes are ended: `immediate`, or together after a fixed delay. \
               `throttled` delays by 1 ms while writers wait for the dirty limit of a fast device. \
               No delay for writes that a caller waits for. `delay` is for measurement.",
        get: |knobs| match knobs.holding {
            Holding::Throttled => Value::Word("throttled"),
            Holding::Immediate => Value::Word("immediate"),
            Holding::Delay(delay) => Value::Delay(delay),
        },
        set: |knobs, value| holding(value).map(|holding| knobs.holding = holding).is_some(),
    },
    of_words!(
        "order", order,
        "In which order completed requests are ended: oldest or newest first. `lifo` is for \
         measurement.",
        "fifo": Order::Fifo, "lifo": Order::Lifo,
    ),
];

impl Knobs {
    /// All knobs, in the order of a request's life.
    pub const ALL: &[QueueKnob] = &KNOBS;

    /// The names of all knobs, as [`Knobs::set`] takes them.
    pub const NAMES: [&'static str; KNOBS.len()] = {
        let mut names = [""; KNOBS.len()];
        let mut at = 0;
        while at < names.len() {
            names[at] = KNOBS[at].name;
            at += 1;
        }
        names
    };

    /// Sets a knob by its name. Returns `None` if no knob has that name.
    pub fn set(&mut self, name: &str, value: &str) -> Option<Result<(), Unknown>> {
        KNOBS.iter().find(|knob| knob.name == name).map(|knob| knob.set(self, value))
    }
}

impl QueueKnob {
    /// Returns its value in `knobs`; displayed as [`QueueKnob::set`] takes it.
    pub fn get(&self, knobs: &Knobs) -> impl fmt::Display + use<> {
        (self.get)(knobs)
    }

    /// Sets its value in `knobs`.
    ///
    /// # Errors
    /// [`Unknown`], with the accepted values, if the value is not one of them.
    pub fn set(&self, knobs: &mut Knobs, value: &str) -> Result<(), Unknown> {
        if (self.set)(knobs, value) { Ok(()) } else { Err(Unknown { choices: self.choices }) }
    }
}

fn holding(value: &str) -> Option<Holding> {
    match value {
        "throttled" => Some(Holding::Throttled),
        "immediate" => Some(Holding::Immediate),
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
    fn the_value_of_a_knob_can_be_set_again() {
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
    fn invalid_values_are_refused_with_the_choices() {
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
