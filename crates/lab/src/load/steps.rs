//! Steps: operations that are closures, one after the other, or each at its time.

use std::time::Duration;

use forebay_block::Moment;
use forebay_uring::{AlignedMemory, clock};

use super::driver::{Batch, Drive, Pause, Source, Tally};
use super::error::CellError;
use super::lane::{Serial, SerialLane};
use super::sequence::{Kind, Operation};

/// Steps of one thread, and their times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Bytes that each writes.
    pub(crate) bytes: u32,
    /// From one to the next; zero if one follows the other. Missed times are skipped.
    pub(crate) every: Duration,
    /// When the first is due.
    pub(crate) first: Moment,
}

/// Runs steps until `is_over`, which gets the number of the next one. A step gets its number.
pub(crate) fn run(
    pace: Pace,
    is_over: impl FnMut(u64) -> bool,
    step: impl FnMut(u64) -> Result<(), CellError>,
) -> Result<Tally, CellError> {
    let mut lane = SerialLane::new(1, AlignedMemory::new(0), Step(step));
    let turns = Turns { next: 0, pace, due: pace.first, is_over };
    let mut drive = Drive::new(turns, 1, Batch::exactly(1));
    drive.run(&mut lane)?;
    let [_, steps] = drive.tallies;
    Ok(steps)
}

struct Turns<E> {
    next: u64,
    pace: Pace,
    due: Moment,
    is_over: E,
}

impl<E: FnMut(u64) -> bool> Source for Turns<E> {
    // A step that is not due waits as an operation whose buffer is filled.
    const FILLS: bool = true;

    fn next(&mut self) -> Option<Operation> {
        let offset = self.next;
        self.next += 1;
        Some(Operation { kind: Kind::Write, file: 0, offset, bytes: self.pace.bytes })
    }

    fn admit(&mut self, operation: &Operation, now: Moment) -> Result<Moment, Pause> {
        if (self.is_over)(operation.offset) {
            return Err(Pause::Done);
        }
        if self.due > now {
            return Err(Pause::NotDue(self.due));
        }
        self.due = self.due + self.pace.every;
        Ok(now)
    }

    fn ended(&mut self, count: usize) {
        if count > 0 && !self.pace.every.is_zero() {
            let now = clock::now();
            while self.due < now {
                self.due = self.due + self.pace.every;
            }
        }
    }
}

/// The offset of an operation is the number of its step. Its bytes are not in the buffer.
struct Step<F>(F);

impl<F: FnMut(u64) -> Result<(), CellError>> Serial for Step<F> {
    fn transfer(&mut self, operation: Operation, _buffer: &mut [u8]) -> Result<(), CellError> {
        (self.0)(operation.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_time_is_skipped() {
        let every = Duration::from_millis(5);
        let first = clock::now();
        let mut began = Vec::new();
        let step = |number| {
            began.push(clock::now() - first);
            if number == 0 {
                std::thread::sleep(Duration::from_millis(12));
            }
            Ok(())
        };
        let pace = Pace { bytes: 7, every, first };
        let tally = run(pace, |number| number == 3, step).unwrap();
        assert_eq!((tally.operations, tally.bytes), (3, 21));
        assert!(began[1] >= Duration::from_millis(15), "{began:?}");
        assert!(began[2] >= Duration::from_millis(20), "{began:?}");
    }
}
