//! Knobs of an engine in one table: name, values, default, meaning, and how a value is read and
//! printed. The knobs of the request queue come first and are defined in `forebay_block::knobs`.
//!
//! A knob consists of a field of [`Options`], its entry here, and one place that applies it:
//! `Shared::apply` if it can be changed while the engine runs, `Builder::build` if not. A test
//! generates the page `knobs.md` from this table. The page is part of the documentation of
//! `Options::set`.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use forebay_block::knobs::QueueKnob;

use crate::core::context::placement::Affinity;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::limits::{CONTEXTS, FLIGHT, FLIGHT_TIMES};
use crate::core::options::{
    Backend, ContextPriority, Contexts, Flight, Options, Prealloc, invalid,
};
use crate::platform::jiffy;

/// Description and current value of a knob: an option of an engine with a name.
///
/// [`Options::knobs`] and [`Control::knobs`](crate::Control::knobs) list all knobs.
///
/// ```
/// # fn main() -> forebay::Result<()> {
/// let engine = forebay::Engine::new()?;
/// for knob in engine.options().knobs() {
///     println!("{} = {} ({}; {})", knob.name, knob.value, knob.choices, knob.help);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Knob {
    /// Its name, as [`Options::set`] takes it.
    pub name: String,
    /// Its current value, as [`Options::set`] takes it.
    pub value: String,
    /// The values that it accepts, as text for people.
    pub choices: String,
    /// Its value if it is never set, as text for people; not always valid for `set`.
    pub default: String,
    /// Meaning, in one or two sentences.
    pub help: String,
    /// When it can be changed: at any time, or only before the engine is built.
    pub change: Change,
}

impl Options {
    /// Sets an option by its name to a value given as text, such as `set("prealloc", "64m")`.
    ///
    #[doc = include_str!("knobs.md")]
    ///
    /// ```
    /// # fn main() -> forebay::Result<()> {
    /// let mut options = forebay::Options::default();
    /// options.set("cache_bytes", "64m")?;
    /// assert_eq!(options.cache_bytes, Some(64 << 20));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` for an unknown name or an invalid value; the message lists what is valid.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        set(self, name, value)
    }

    /// Returns every option by its name, with its value as text, its valid values and its meaning.
    #[must_use]
    pub fn knobs(&self) -> Vec<Knob> {
        list(self)
    }
}

/// When a knob can be changed.
///
/// ```
/// use forebay::{Change, Options};
///
/// let knobs = Options::default().knobs();
/// let fixed = knobs.iter().filter(|knob| knob.change == Change::Fixed);
/// assert!(fixed.map(|knob| knob.name.as_str()).eq(["cache_bytes", "buffer_bytes", "backend"]));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Change {
    /// At any time, with [`Engine::set_options`](crate::Engine::set_options).
    Live,
    /// Only before the engine is built.
    Fixed,
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Change::Live => "live",
            Change::Fixed => "fixed",
        })
    }
}

/// Knob that does not belong to the request queue.
struct Own {
    name: &'static str,
    choices: &'static str,
    default: &'static str,
    help: &'static str,
    /// The reason, if it cannot be changed while the engine runs.
    fixed: Option<&'static str>,
    get: fn(&Options) -> String,
    /// Returns `None` if the value is invalid.
    set: fn(&mut Options, &str) -> Option<()>,
}

/// Values of a knob that is a number of bytes.
const BYTES: &str = "a number of bytes, such as 64m or 1g";

/// Value of the knob `contexts` for a number that is found by trials.
const ADAPTIVE: &str = "adaptive";

/// Values of the knob `flight`.
const FLIGHTS: &str = "a number of requests (1 to 112), or time=MICROSECONDS (100 to 1000000)";

/// Value of the knob `completion` for a delay of one jiffy. The request queue does not know the
/// machine, so it gets the delay in microseconds.
const JIFFY: &str = "delay=jiffy";

/// Values of the knob `completion`: those of the request queue, and [`JIFFY`].
const HOLDS: &str =
    "throttled, immediate, delay=MICROSECONDS (0 to 100000), delay=jiffy (1/HZ of this kernel)";

const OWN: [Own; 13] = [
    Own {
        name: "contexts",
        choices: "adaptive, or a number from 1 to 64",
        default: "adaptive",
        help: "Writeback threads that share the files: one, and up to 8 while each more is found \
               to raise the rate; or that many.",
        fixed: None,
        get: |settings| match settings.contexts {
            Contexts::Adaptive => ADAPTIVE.to_owned(),
            Contexts::Fixed(number) => number.to_string(),
        },
        set: |settings, value| contexts(value).map(|wanted| settings.contexts = wanted),
    },
    Own {
        name: "affinity",
        choices: Affinity::CHOICES,
        default: "group",
        help: "How files are assigned to writeback threads: all to the first, by a hash of the \
               file, by directory, or by allocation group (by directory if the file system has \
               none).",
        fixed: None,
        get: |settings| settings.measuring.affinity.name().to_owned(),
        set: |settings, value| {
            Affinity::by_name(value).map(|affinity| settings.measuring.affinity = affinity)
        },
    },
    Own {
        name: "context_priority",
        choices: "normal, realtime",
        default: "normal",
        help: "Scheduling class of the writeback threads: that of the program, or the lowest \
               real-time priority (`SCHED_FIFO`), which needs CAP_SYS_NICE or RLIMIT_RTPRIO.",
        fixed: None,
        get: |settings| settings.context_priority.name().to_owned(),
        set: |settings, value| {
            let [normal, realtime] = [ContextPriority::Normal, ContextPriority::Realtime]
                .map(|priority| (priority.name(), priority));
            choose(value, normal, realtime).map(|priority| settings.context_priority = priority)
        },
    },
    Own {
        name: "flight",
        choices: FLIGHTS,
        default: "time=2000",
        help: "How much background writeback is in flight to a device: as much as it writes in a \
               time, or a number of requests.",
        fixed: None,
        get: |settings| match settings.flight {
            Flight::Depth(depth) => depth.to_string(),
            Flight::Time(time) => format!("time={}", time.as_micros()),
        },
        set: |settings, value| bound(value).map(|bound| settings.flight = bound),
    },
    Own {
        name: "prealloc",
        choices: "off, adaptive, or BYTES such as 64m",
        default: "adaptive",
        help: "Space reserved ahead of data: none; for files that become dense; or that, and BYTES \
               beyond the end of growing files, at most 1 % of the free space. Reserved space is \
               given back when the file is closed.",
        fixed: None,
        get: |settings| format_prealloc(settings.prealloc),
        set: |settings, value| prealloc(value).map(|prealloc| settings.prealloc = prealloc),
    },
    Own {
        name: "cache_bytes",
        choices: BYTES,
        default: "the smaller of 256m and 1/16 of memory",
        help: "Memory for cached data, allocated once. At least 8m.",
        fixed: Some("the memory of the cache is allocated once and registered with the kernel"),
        get: |settings| settings.cache_bytes().to_string(),
        set: |settings, value| bytes(value).map(|bytes| settings.cache_bytes = Some(bytes)),
    },
    Own {
        name: "dirty_bytes",
        choices: BYTES,
        default: "7/8 of cache_bytes",
        help: "Dirty bytes at which writers wait. At least 4m, at most 7/8 of `cache_bytes`.",
        fixed: None,
        get: |settings| settings.dirty_bytes().to_string(),
        set: |settings, value| bytes(value).map(|bytes| settings.dirty_bytes = Some(bytes)),
    },
    Own {
        name: "background_bytes",
        choices: BYTES,
        default: "1/2 of dirty_bytes",
        help: "Dirty bytes at which writeback starts by itself. At most `dirty_bytes`.",
        fixed: None,
        get: |settings| settings.background_bytes().to_string(),
        set: |settings, value| bytes(value).map(|bytes| settings.background_bytes = Some(bytes)),
    },
    Own {
        name: "dirty_age",
        choices: "a time with its unit, such as 500us, 500ms or 1s",
        default: "1s",
        help: "Longest time that written data stays dirty before its writeback starts. From 1ms to \
               24h.",
        fixed: None,
        get: |settings| format_age(settings.dirty_age),
        set: |settings, value| age(value).map(|age| settings.dirty_age = age),
    },
    Own {
        name: "uncached",
        choices: "off, on",
        default: "off",
        help: "Whether pages leave memory once they are written or read, on handles that do not \
               choose.",
        fixed: None,
        get: |settings| word(settings.uncached, "on", "off"),
        set: |settings, value| {
            settings.uncached = choose(value, ("on", true), ("off", false))?;
            Some(())
        },
    },
    Own {
        name: "buffer_bytes",
        choices: BYTES,
        default: "16777216",
        help: "Memory of the pool that `Engine::buffer` takes from. At least 4096.",
        fixed: Some("the memory of the pool is allocated once and lent to callers"),
        get: |settings| settings.buffer_bytes.to_string(),
        set: |settings, value| bytes(value).map(|bytes| settings.buffer_bytes = bytes),
    },
    Own {
        name: "backend",
        choices: Backend::CHOICES,
        default: "auto",
        help: "System calls for I/O. `auto` takes io_uring, or a thread pool if io_uring is \
               missing or forbidden.",
        fixed: Some("open files and requests in flight belong to the backend that was chosen"),
        get: |settings| settings.backend.name().to_owned(),
        set: |settings, value| Backend::by_name(value).map(|choice| settings.backend = choice),
    },
    Own {
        name: "close_timeout",
        choices: "a time with its unit, such as 500ms or 60s, or none",
        default: "60s",
        help: "Longest wait of a close, and of the drop of the engine, for the device; or no \
               limit.",
        fixed: None,
        get: |settings| format_timeout(settings.close_timeout),
        set: |settings, value| timeout(value).map(|time| settings.close_timeout = time),
    },
];

/// Definition of a knob.
#[derive(Clone, Copy)]
enum Definition {
    QueueKnob(&'static QueueKnob),
    Own(&'static Own),
}

fn all() -> impl Iterator<Item = Definition> {
    let of_queue = forebay_block::Knobs::ALL.iter().map(Definition::QueueKnob);
    of_queue.chain(OWN.iter().map(Definition::Own))
}

fn find(name: &str) -> Result<Definition> {
    all().find(|knob| knob.name() == name).ok_or_else(|| {
        let names: Vec<_> = all().map(Definition::name).collect();
        Error::new(ErrorKind::InvalidInput, format!("unknown knob `{name}`"))
            .remedy(format!("known knobs: {}", names.join(", ")))
    })
}

/// Returns every knob with its value.
pub(crate) fn list(settings: &Options) -> Vec<Knob> {
    all().map(|knob| knob.describe(knob.get(settings))).collect()
}

/// Returns the description of a knob whose values come from another process. If this version does
/// not have the knob, default and help stay empty.
pub(crate) fn described(name: &str, value: String, choices: &str, change: Change) -> Knob {
    let known = find(name).map(|knob| knob.describe(String::new()));
    let (default, help) = known.map(|knob| (knob.default, knob.help)).unwrap_or_default();
    Knob { name: name.to_owned(), value, choices: choices.to_owned(), default, help, change }
}

/// Returns the value of a knob.
///
/// # Errors
/// `InvalidInput` for an unknown name; the message lists the known names.
pub(crate) fn get(settings: &Options, name: &str) -> Result<String> {
    find(name).map(|knob| knob.get(settings))
}

/// Sets a knob. Whether the value fits the other knobs is not checked here.
///
/// # Errors
/// `InvalidInput` for an unknown name or an invalid value; the message lists what is valid.
pub(crate) fn set(settings: &mut Options, name: &str, value: &str) -> Result<()> {
    find(name)?.set(settings, value)
}

/// Checks a change of the options of a running engine, as [`check`].
///
/// # Errors
/// As [`check`], and `InvalidInput` if a fixed knob has changed; the message says why.
pub(crate) fn check_change(before: &Options, after: &Options) -> Result<()> {
    for knob in all() {
        if let Some(why) = knob.fixed()
            && knob.get(before) != knob.get(after)
        {
            let name = knob.name();
            let what = format!("cannot change knob `{name}` while the engine runs: {why}");
            return Err(Error::new(ErrorKind::InvalidInput, what)
                .remedy("set it before the engine is built"));
        }
    }
    check(after)
}

/// Checks that every value is one that can also be set as text, and that the values fit together.
/// The fields of the options take values of any size.
///
/// # Errors
/// `InvalidInput` for the first value that is out of range; the message names it.
pub(crate) fn check(settings: &Options) -> Result<()> {
    all().try_for_each(|knob| knob.set(&mut settings.clone(), &knob.get(settings)))?;
    settings.check_ranges()
}

impl Definition {
    fn name(self) -> &'static str {
        match self {
            Definition::QueueKnob(knob) => knob.name,
            Definition::Own(knob) => knob.name,
        }
    }

    fn choices(self) -> &'static str {
        match self {
            Definition::QueueKnob(knob) if knob.name == "completion" => HOLDS,
            Definition::QueueKnob(knob) => knob.choices,
            Definition::Own(knob) => knob.choices,
        }
    }

    fn help(self) -> &'static str {
        match self {
            Definition::QueueKnob(knob) => knob.help,
            Definition::Own(knob) => knob.help,
        }
    }

    fn default(self) -> String {
        match self {
            Definition::QueueKnob(knob) => knob.get(&forebay_block::Knobs::default()).to_string(),
            Definition::Own(knob) => knob.default.to_owned(),
        }
    }

    fn describe(self, value: String) -> Knob {
        Knob {
            name: self.name().to_owned(),
            value,
            choices: self.choices().to_owned(),
            default: self.default(),
            help: self.help().to_owned(),
            change: if self.fixed().is_some() { Change::Fixed } else { Change::Live },
        }
    }

    fn fixed(self) -> Option<&'static str> {
        match self {
            Definition::QueueKnob(_) => None,
            Definition::Own(knob) => knob.fixed,
        }
    }

    fn get(self, settings: &Options) -> String {
        match self {
            Definition::QueueKnob(knob) => knob.get(&settings.measuring.queue).to_string(),
            Definition::Own(knob) => (knob.get)(settings),
        }
    }

    fn set(self, settings: &mut Options, value: &str) -> Result<()> {
        let read = match self {
            Definition::QueueKnob(knob) => {
                let value = match value {
                    JIFFY => Cow::Owned(format!("delay={}", jiffy().as_micros())),
                    value => Cow::Borrowed(value),
                };
                knob.set(&mut settings.measuring.queue, &value).ok()
            }
            Definition::Own(knob) => (knob.set)(settings, value),
        };
        read.ok_or_else(|| invalid(self.name(), value, self.choices()))
    }
}

fn word(is_first: bool, first: &str, other: &str) -> String {
    if is_first { first } else { other }.to_owned()
}

fn choose<T>(value: &str, first: (&str, T), other: (&str, T)) -> Option<T> {
    match value {
        _ if value == first.0 => Some(first.1),
        _ if value == other.0 => Some(other.1),
        _ => None,
    }
}

/// Parses the knob `prealloc`: a word or a number of bytes.
fn prealloc(value: &str) -> Option<Prealloc> {
    match value {
        "adaptive" => Some(Prealloc::Adaptive),
        "off" => Some(Prealloc::Off),
        _ => bytes(value).map(Prealloc::Ahead),
    }
}

fn format_prealloc(prealloc: Prealloc) -> String {
    match prealloc {
        Prealloc::Adaptive => "adaptive".to_owned(),
        Prealloc::Ahead(bytes) => bytes.to_string(),
        Prealloc::Off => "off".to_owned(),
    }
}

/// Parses a number of bytes, with k, m, g or t for powers of 1024.
fn bytes(value: &str) -> Option<u64> {
    let lower = value.to_ascii_lowercase();
    let lower = lower.strip_suffix("ib").or(lower.strip_suffix('b')).unwrap_or(&lower);
    let (digits, shift) = match lower.char_indices().next_back() {
        Some((at, 'k')) => (&lower[..at], 10),
        Some((at, 'm')) => (&lower[..at], 20),
        Some((at, 'g')) => (&lower[..at], 30),
        Some((at, 't')) => (&lower[..at], 40),
        _ => (lower, 0),
    };
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(1 << shift)
}

/// Parses the knob `contexts`: a word or a number.
fn contexts(value: &str) -> Option<Contexts> {
    if value == ADAPTIVE {
        return Some(Contexts::Adaptive);
    }
    value.parse().ok().filter(|number| (1..=CONTEXTS).contains(number)).map(Contexts::Fixed)
}

/// Parses the knob `flight`: a depth, or `time=MICROSECONDS`.
fn bound(value: &str) -> Option<Flight> {
    if let Some(micros) = value.strip_prefix("time=") {
        let time = Duration::from_micros(micros.parse().ok()?);
        return FLIGHT_TIMES.contains(&time).then_some(Flight::Time(time));
    }
    let depth: usize = value.parse().ok()?;
    (1..=FLIGHT).contains(&depth).then_some(Flight::Depth(depth))
}

/// Units of a time in microseconds, in ascending order.
const UNITS: [(&str, u64); 3] = [("us", 1), ("ms", 1000), ("s", 1_000_000)];

/// Parses a time with its unit.
fn age(value: &str) -> Option<Duration> {
    UNITS.iter().find_map(|(unit, micros)| {
        let number: u64 = value.strip_suffix(unit)?.trim().parse().ok()?;
        Some(Duration::from_micros(number.checked_mul(*micros)?))
    })
}

/// Formats a time in the largest unit that divides it.
fn format_age(age: Duration) -> String {
    let micros = age.as_micros();
    let fits = |(_, of_unit): &&(&str, u64)| micros.is_multiple_of(u128::from(*of_unit));
    let (unit, of_unit) = UNITS.iter().rev().find(fits).unwrap_or(&UNITS[0]);
    format!("{}{unit}", micros / u128::from(*of_unit))
}

/// Value of the knob `close_timeout` for a wait without end.
const NO_TIMEOUT: &str = "none";

/// Parses the knob `close_timeout`: a word or a time.
fn timeout(value: &str) -> Option<Duration> {
    if value == NO_TIMEOUT { Some(Duration::MAX) } else { age(value) }
}

fn format_timeout(time: Duration) -> String {
    if time == Duration::MAX { NO_TIMEOUT.to_owned() } else { format_age(time) }
}

#[cfg(test)]
mod tests;
