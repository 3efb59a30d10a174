//! The knobs of a queue: policies, each with its fixed forms kept for comparison. All can be changed in flight; a
//! change holds from the next dispatch or run on.

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
    /// At the next dispatch: the batch is what came while the last doorbell was rung. Held on only where the
    /// doorbell, as measured, costs more than the wait adds.
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
    /// When the first of them has been held so long. The time is not begun anew by those that follow.
    Delay(Duration),
    /// Held only where that forms a batch, as the rate of arrival says; never while somebody waits, nor when all in
    /// flight is here.
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

impl Knobs {
    /// The names of the knobs, as [`Knobs::set`] takes them.
    pub const NAMES: [&'static str; 7] =
        ["plug", "merge", "tags", "clock", "doorbell", "completion", "order"];

    /// Sets a knob by its name; `None` where there is none of that name.
    pub fn set(&mut self, name: &str, value: &str) -> Option<Result<(), Unknown>> {
        Some(match name {
            "plug" => choose(
                &mut self.plugging,
                value,
                &[("never", Plugging::Never), ("always", Plugging::Always), ("adaptive", Plugging::Adaptive)],
                "never, always, adaptive",
            ),
            "merge" => {
                choose(&mut self.merging, value, &[("off", Merging::Off), ("on", Merging::On)], "off, on")
            }
            "tags" => choose(
                &mut self.tagging,
                value,
                &[("sweep", Tagging::Sweep), ("single", Tagging::Single)],
                "sweep, single",
            ),
            "clock" => choose(
                &mut self.clock,
                value,
                &[("batch", ClockReads::Batch), ("each", ClockReads::Each)],
                "batch, each",
            ),
            "doorbell" => choose(
                &mut self.ringing,
                value,
                &[("batch", Ringing::Batch), ("each", Ringing::Each)],
                "batch, each",
            ),
            "completion" => holding(value).map(|holding| self.holding = holding),
            "order" => {
                choose(&mut self.order, value, &[("fifo", Order::Fifo), ("lifo", Order::Lifo)], "fifo, lifo")
            }
            _ => return None,
        })
    }
}

fn choose<T: Copy>(
    knob: &mut T,
    value: &str,
    forms: &[(&str, T)],
    choices: &'static str,
) -> Result<(), Unknown> {
    let form = forms.iter().find(|(name, _)| *name == value);
    form.map(|&(_, form)| *knob = form).ok_or(Unknown { choices })
}

fn holding(value: &str) -> Result<Holding, Unknown> {
    let unknown = Unknown { choices: "immediate, adaptive, delay=MICROSECONDS (0 to 100000)" };
    match value {
        "immediate" => Ok(Holding::Immediate),
        "adaptive" => Ok(Holding::Adaptive),
        _ => {
            let micros =
                value.strip_prefix("delay=").and_then(|micros| micros.parse().ok()).ok_or(unknown)?;
            let delay = Duration::from_micros(micros);
            if delay > HOLD_MAX { Err(unknown) } else { Ok(Holding::Delay(delay)) }
        }
    }
}

const _: () = assert!(PLUG_HOLD.as_nanos() <= HOLD_MAX.as_nanos());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knobs_are_set_by_name() {
        let mut knobs = Knobs::default();
        for (name, value) in [
            ("plug", "never"),
            ("merge", "off"),
            ("tags", "single"),
            ("clock", "each"),
            ("doorbell", "each"),
            ("completion", "delay=1000"),
            ("order", "lifo"),
        ] {
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
    }

    #[test]
    fn what_no_knob_takes_is_refused_with_the_choices() {
        let mut knobs = Knobs::default();
        assert_eq!(knobs.set("plugs", "never"), None);
        for name in Knobs::NAMES {
            for value in ["", "ON", "delay=", "delay=-1", "delay=100001", "delay=99999999999999999999"] {
                let refused = knobs.set(name, value).expect("a knob").unwrap_err();
                assert!(refused.choices.contains(", "), "{name}");
            }
        }
        assert_eq!(knobs, Knobs::default());
    }
}
