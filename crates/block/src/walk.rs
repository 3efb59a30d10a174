//! Walk: a report of every transition of every bio, to an observer of the queue.
//!
//! The observer is a type parameter of the queue. Without one ([`Unwatched`]) the queue has no code
//! for it, not even a branch. Data that only an observer needs is gathered only if
//! [`Walk::WATCHED`] is true.
//!
//! Nothing here reads a clock. The observer adds the time, from the clock of the device. A step
//! contains a moment only if the queue used it for a decision.
//!
//! A bio is identified by its number of arrival, and a request by that of its oldest bio. A bio
//! that was split from a failed request is a request of its own.
//!
//! ```text
//! Submitted Plugged [Merged] | Tagged Dispatched .. Rung | Completed .. [Held] | Ended .. Run
//!                                   ^  Waits, Refused                          | Again ..
//!                                   |                                          | Apart ..
//!                                   +------------------------------------------+
//! ```
//!
//! An observer costs one call per step. It must be quick, because the context waits for it.

use alloc::vec::Vec;
use core::fmt;

use crate::bio::{Bio, Errno, Operation, Target};
use crate::device::Tag;
use crate::time::Moment;

/// Observer of the steps of a queue.
pub trait Walk {
    /// Whether steps are reported at all.
    const WATCHED: bool = true;

    /// Receives one step. Called on the thread of the queue, in order.
    fn step(&mut self, step: Step);
}

/// Observer that ignores all steps, at no cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unwatched;

impl Walk for Unwatched {
    const WATCHED: bool = false;

    #[inline(always)]
    fn step(&mut self, _: Step) {}
}

/// Collects the steps.
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

/// Description of a bio or a request, without its buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// Number in the order of arrival, of the bio or of the oldest bio of the request.
    pub arrival: u64,
    /// Kind of operation.
    pub operation: Operation,
    /// File or device that it is for.
    pub target: Target,
    /// First byte of the range.
    pub offset: u64,
    /// Bytes in the range.
    pub length: u64,
}

impl Asked {
    /// Describes a bio that arrived as number `arrival`.
    #[must_use]
    pub fn of(arrival: u64, bio: &Bio) -> Self {
        let Bio { operation, target, offset, length, .. } = *bio;
        Self { arrival, operation, target, offset, length }
    }
}

/// One transition of a bio or a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A caller submitted a bio.
    Submitted {
        /// Its description.
        asked: Asked,
    },
    /// A bio joined the plug.
    Plugged {
        /// Number of the bio.
        arrival: u64,
        /// Bios in the plug now.
        bios: usize,
    },
    /// A bio became part of the request of an adjacent bio.
    Merged {
        /// Number of the bio.
        arrival: u64,
        /// Number of that request.
        into: u64,
    },
    /// A request waits until a conflicting one has ended.
    Waits {
        /// Number of the request.
        arrival: u64,
    },
    /// Tags were allocated in one pass.
    Tagged {
        /// Number of tags.
        tags: usize,
    },
    /// The device took a request, to be submitted with the next doorbell.
    Dispatched {
        /// Description of the request.
        asked: Asked,
        /// Its tag.
        tag: Tag,
        /// Bios in the request.
        bios: usize,
    },
    /// The queue of the device was full, or no tag was free. The request goes first next time.
    Refused {
        /// Number of the request.
        arrival: u64,
    },
    /// The doorbell call is about to be made.
    Rung {
        /// Requests that it submits.
        requests: usize,
    },
    /// The device has ended a request.
    Completed {
        /// Number of the request.
        arrival: u64,
        /// Its tag, which is free from now on.
        tag: Tag,
        /// Bytes transferred, or the error.
        result: Result<u64, Errno>,
    },
    /// Completed writes are held, so that they end together.
    Held {
        /// Number of bios held.
        bios: usize,
        /// Deadline of the hold.
        until: Moment,
    },
    /// The rest of a request is submitted again, because it was short, was interrupted, or would
    /// have blocked.
    Again {
        /// Description of the rest.
        asked: Asked,
    },
    /// A merged request failed, and this bio of it is submitted again by itself.
    Apart {
        /// Description of the bio.
        asked: Asked,
    },
    /// A bio has ended.
    Ended {
        /// Number of the bio.
        arrival: u64,
        /// Bytes transferred, or the error.
        result: Result<u64, Errno>,
    },
    /// A completion run is over.
    Run {
        /// Bios ended in it.
        bios: usize,
    },
}

/// Columns of a step's line; a column that the step does not have stays blank.
#[derive(Default)]
struct Columns {
    stage: &'static str,
    arrival: Option<u64>,
    tag: Option<Tag>,
    asked: Option<Asked>,
    /// A number and its unit.
    count: Option<(u64, &'static str)>,
}

impl Step {
    /// Characters in the line of a step.
    pub const WIDTH: usize = 83;

    /// Heading of the lines.
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
            Step::Held { bios, .. } => {
                let count = Some((bios as u64, "kept back"));
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

/// Prints one line of [`Step::WIDTH`] characters, under the columns of [`Step::HEADING`]. A number
/// that is too large for its column widens the line.
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

/// Writes a number right-aligned in its column, or blanks.
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

    /// One step of each kind, in order of life; `Completed` and `Ended` twice, with bytes and with
    /// an error.
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
        Step::Held { bios: 4, until: Moment::from_nanoseconds(50_000) },
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

    /// A number ends at the end of its heading, and a word begins at the beginning of its heading.
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
    fn a_reference_to_a_watcher_watches() {
        fn report<W: Walk>(mut walk: W) -> bool {
            walk.step(Step::Run { bios: 1 });
            W::WATCHED
        }
        let mut steps: Vec<Step> = Vec::new();
        assert!(report(&mut steps));
        assert_eq!(steps, [Step::Run { bios: 1 }]);
        assert!(!report(Unwatched) && !report(&mut Unwatched));
    }
}
