//! A walk: every transition of every bio, told to whoever watches the queue, as it is made.
//!
//! Not a log and not a trace point: the watcher is a type of the queue, so one that nobody watches
//! ([`Unwatched`]) has nothing of this in its code, not even a branch. What would have to be
//! gathered only to be told is gathered where [`Walk::WATCHED`] says that somebody listens.
//!
//! Nothing here reads a clock, and steps are told between two readings as well: who watches gives
//! each line its time, by the clock of the device it drives. A moment stands in a step only where
//! the queue decided by it.
//!
//! The order of steps is the order of life. A bio is known by its number of arrival, a request by
//! that of its oldest bio; a bio that came apart from its request is a request of its own.
//!
//! ```text
//! Submitted Plugged [Merged] | Tagged Dispatched .. Rung | Completed .. [Held] | Ended or Again or Apart .. Run
//!                                   ^  Waits, Refused                                     |
//!                                   +-----------------------------------------------------+
//! ```
//!
//! The price of watching is a call for each step; the rule for the watcher is to be quick, for the
//! context waits.

use alloc::vec::Vec;
use core::fmt;

use crate::bio::{Bio, Errno, Operation, Target};
use crate::device::Tag;
use crate::time::Moment;

/// Who watches.
pub trait Walk {
    /// Whether anybody does. Where not, steps need not be made at all.
    const WATCHED: bool = true;

    /// Takes one step. Called in the context, in the order of what happens.
    fn step(&mut self, step: Step);
}

/// Nobody watches: it costs nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unwatched;

impl Walk for Unwatched {
    const WATCHED: bool = false;

    #[inline(always)]
    fn step(&mut self, _: Step) {}
}

/// Keeps the steps.
impl Walk for Vec<Step> {
    fn step(&mut self, step: Step) {
        self.push(step);
    }
}

impl<W: Walk> Walk for &mut W {
    const WATCHED: bool = W::WATCHED;

    #[inline(always)]
    fn step(&mut self, step: Step) {
        (**self).step(step);
    }
}

/// What is asked, of which file, where: a bio or a request without its buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// Number in the order of arrival: of the bio, or of a request's oldest one.
    pub arrival: u64,
    /// What to do.
    pub operation: Operation,
    /// To which file.
    pub target: Target,
    /// From which byte on.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
}

impl Asked {
    /// Of a bio (or what a request asks) that came as number `arrival`.
    #[must_use]
    pub fn of(arrival: u64, bio: &Bio) -> Self {
        let Bio { operation, target, offset, length, .. } = *bio;
        Self { arrival, operation, target, offset, length }
    }
}

/// One transition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A caller gave a bio to the queue.
    Submitted {
        /// What it asks.
        asked: Asked,
    },
    /// It is held with its neighbours.
    Plugged {
        /// Which bio.
        arrival: u64,
        /// Bios the plug holds now.
        bios: usize,
    },
    /// It became a part of the request of a neighbour.
    Merged {
        /// Which bio.
        arrival: u64,
        /// The oldest bio of that request.
        into: u64,
    },
    /// A request stays back: something in flight must end before.
    Waits {
        /// Which request.
        arrival: u64,
    },
    /// Tags were taken, so many in one sweep.
    Tagged {
        /// How many.
        tags: usize,
    },
    /// The device took a request; it goes with the next doorbell.
    Dispatched {
        /// What the device is asked.
        asked: Asked,
        /// Under which tag.
        tag: Tag,
        /// Bios in the request.
        bios: usize,
    },
    /// The device's queue was full, or there was no tag: the request goes first next time.
    Refused {
        /// Which request.
        arrival: u64,
    },
    /// The costly call is made. Told before it, for it may wait.
    Rung {
        /// Requests it hands over.
        requests: usize,
    },
    /// The device is done with a request, for better or worse.
    Completed {
        /// Which request.
        arrival: u64,
        /// Its tag, free when the run it is ended in is over.
        tag: Tag,
        /// Bytes moved, or what went wrong.
        result: Result<u64, Errno>,
    },
    /// What has completed is not ended yet: more is about to.
    Held {
        /// Completions kept.
        completions: usize,
        /// When they are ended at the latest.
        until: Moment,
    },
    /// The rest of a request is asked again: it came back short, interrupted, or would have
    /// blocked.
    Again {
        /// What is left to ask.
        asked: Asked,
    },
    /// A merged request failed: this bio of it is asked again alone.
    Apart {
        /// What is asked.
        asked: Asked,
    },
    /// A bio has its result.
    Ended {
        /// Which bio.
        arrival: u64,
        /// Bytes moved (0 where the operation moves none), or what went wrong.
        result: Result<u64, Errno>,
    },
    /// A completion run is over.
    Run {
        /// Bios ended in it.
        bios: usize,
    },
}

/// The columns of a step's line; what a step does not have stays blank.
#[derive(Default)]
struct Columns {
    stage: &'static str,
    arrival: Option<u64>,
    tag: Option<Tag>,
    asked: Option<Asked>,
    /// A number, and of what.
    count: Option<(u64, &'static str)>,
}

impl Step {
    /// Characters in a step's line.
    pub const WIDTH: usize = 83;

    /// What stands above the lines.
    pub const HEADING: &'static str =
        "step        bio  tag operation      file      offset   length how many of what     ";

    fn columns(&self) -> Columns {
        let result_of = |result: Result<u64, Errno>| match result {
            Ok(bytes) => (bytes, "bytes"),
            Err(Errno(number)) => (u64::from(number.unsigned_abs()), "is the error"),
        };
        match *self {
            Step::Submitted { asked } => Columns { stage: "submitted", ..Columns::asking(asked) },
            Step::Plugged { arrival, bios } => {
                Columns { stage: "plugged", ..Columns::counting(arrival, (bios as u64, "held")) }
            }
            Step::Merged { arrival, into } => {
                Columns { stage: "merged", ..Columns::counting(arrival, (into, "takes it in")) }
            }
            Step::Waits { arrival } => {
                Columns { stage: "waits", arrival: Some(arrival), ..Columns::default() }
            }
            Step::Tagged { tags } => {
                let count = Some((tags as u64, if tags == 1 { "tag" } else { "tags" }));
                Columns { stage: "tagged", count, ..Columns::default() }
            }
            Step::Dispatched { asked, tag, bios } => {
                let count = Some((bios as u64, if bios == 1 { "bio" } else { "bios" }));
                Columns { stage: "dispatched", tag: Some(tag), count, ..Columns::asking(asked) }
            }
            Step::Refused { arrival } => {
                Columns { stage: "refused", arrival: Some(arrival), ..Columns::default() }
            }
            Step::Rung { requests } => {
                let count =
                    Some((requests as u64, if requests == 1 { "request" } else { "requests" }));
                Columns { stage: "rung", count, ..Columns::default() }
            }
            Step::Completed { arrival, tag, result } => Columns {
                stage: "completed",
                tag: Some(tag),
                ..Columns::counting(arrival, result_of(result))
            },
            Step::Held { completions, .. } => {
                let count = Some((completions as u64, "kept back"));
                Columns { stage: "held", count, ..Columns::default() }
            }
            Step::Again { asked } => Columns { stage: "again", ..Columns::asking(asked) },
            Step::Apart { asked } => Columns { stage: "apart", ..Columns::asking(asked) },
            Step::Ended { arrival, result } => {
                Columns { stage: "ended", ..Columns::counting(arrival, result_of(result)) }
            }
            Step::Run { bios } => {
                let count = Some((bios as u64, if bios == 1 { "bio ended" } else { "bios ended" }));
                Columns { stage: "run", count, ..Columns::default() }
            }
        }
    }
}

impl Columns {
    fn asking(asked: Asked) -> Self {
        Self { arrival: Some(asked.arrival), asked: Some(asked), ..Self::default() }
    }

    fn counting(arrival: u64, count: (u64, &'static str)) -> Self {
        Self { arrival: Some(arrival), count: Some(count), ..Self::default() }
    }
}

/// One line of [`Step::WIDTH`] characters, under the columns of [`Step::HEADING`]; numbers too
/// large for their column widen it.
impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Columns { stage, arrival, tag, asked, count } = self.columns();
        write!(formatter, "{stage:<10}")?;
        number(formatter, 5, arrival)?;
        number(formatter, 5, tag.map(|tag| u64::from(tag.0)))?;
        write!(formatter, " {:<14}", asked.map_or("", |asked| word(asked.operation)))?;
        number(formatter, 5, asked.map(|asked| u64::from(asked.target.0)))?;
        number(formatter, 12, asked.map(|asked| asked.offset))?;
        number(formatter, 9, asked.map(|asked| asked.length))?;
        number(formatter, 9, count.map(|(number, _)| number))?;
        write!(formatter, " {:<12}", count.map_or("", |(_, of)| of))
    }
}

/// A number at the right of its column, or blanks.
fn number(formatter: &mut fmt::Formatter<'_>, width: usize, number: Option<u64>) -> fmt::Result {
    match number {
        Some(number) => write!(formatter, "{number:>width$}"),
        None => write!(formatter, "{:width$}", ""),
    }
}

fn word(operation: Operation) -> &'static str {
    match operation {
        Operation::Read => "read",
        Operation::Write => "write",
        Operation::WriteBuffered => "write-buffered",
        Operation::WriteFua => "write-fua",
        Operation::WriteZeroes => "write-zeroes",
        Operation::Discard => "discard",
        Operation::FlushData => "flush-data",
        Operation::FlushAll => "flush-all",
        Operation::FlushDirectory => "flush-dir",
        Operation::Allocate => "allocate",
        Operation::Punch => "punch",
        Operation::SetLength => "set-length",
    }
}

#[cfg(test)]
mod tests {
    use std::string::{String, ToString};

    use super::*;

    const ASKED: Asked = Asked {
        arrival: 12,
        operation: Operation::WriteBuffered,
        target: Target(3),
        offset: 1 << 36,
        length: 8 << 20,
    };

    /// One of each, in the order of life.
    const STEPS: [Step; 16] = [
        Step::Submitted { asked: ASKED },
        Step::Plugged { arrival: 12, bios: 128 },
        Step::Merged { arrival: 12, into: 9 },
        Step::Waits { arrival: 12 },
        Step::Tagged { tags: 3 },
        Step::Dispatched { asked: ASKED, tag: Tag(255), bios: 2 },
        Step::Refused { arrival: 12 },
        Step::Rung { requests: 1 },
        Step::Completed { arrival: 12, tag: Tag(255), result: Ok(8 << 20) },
        Step::Completed { arrival: 12, tag: Tag(255), result: Err(Errno::IO) },
        Step::Held { completions: 4, until: Moment::from_nanoseconds(50_000) },
        Step::Again { asked: ASKED },
        Step::Apart { asked: ASKED },
        Step::Ended { arrival: 12, result: Ok(0) },
        Step::Ended { arrival: 12, result: Err(Errno::IO) },
        Step::Run { bios: 31 },
    ];

    #[test]
    fn lines_are_of_one_width() {
        for step in STEPS {
            assert_eq!(step.to_string().len(), Step::WIDTH, "{step:?}");
        }
        assert_eq!(Step::HEADING.len(), Step::WIDTH);
    }

    #[test]
    fn lines_say_what_the_step_says() {
        let line = |step: Step| {
            let text = step.to_string();
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(line(STEPS[0]), "submitted 12 write-buffered 3 68719476736 8388608");
        assert_eq!(line(STEPS[2]), "merged 12 9 takes it in");
        assert_eq!(line(STEPS[5]), "dispatched 12 255 write-buffered 3 68719476736 8388608 2 bios");
        assert_eq!(line(STEPS[9]), "completed 12 255 5 is the error");
    }

    /// Columns stand under their headings: a value ends where its heading does, a word begins where
    /// it does.
    #[test]
    fn columns_stand_under_their_headings() {
        let line = STEPS[5].to_string();
        for (heading, value) in
            [("bio", "12"), ("tag", "255"), ("file", "3"), ("offset", "68719476736")]
        {
            let end = Step::HEADING.find(heading).unwrap() + heading.len();
            let shown: String = line[..end].into();
            assert!(shown.ends_with(value), "{heading}: {shown:?}");
        }
        let begin = Step::HEADING.find("operation").unwrap();
        assert!(line[begin..].starts_with("write-buffered"));
    }

    #[test]
    fn who_watches_through_a_reference_watches() {
        fn tell<W: Walk>(mut walk: W) -> bool {
            walk.step(Step::Run { bios: 1 });
            W::WATCHED
        }
        let mut steps: Vec<Step> = Vec::new();
        assert!(tell(&mut steps));
        assert_eq!(steps, [Step::Run { bios: 1 }]);
        assert!(!tell(Unwatched) && !tell(&mut Unwatched));
    }
}
