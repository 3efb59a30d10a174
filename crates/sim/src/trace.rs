//! Trace of a run: one line of fixed width per transition, so that two runs of a seed can be
//! compared line by line.

use std::fmt;
use std::time::Duration;

/// One transition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line {
    /// Virtual time.
    pub time: Duration,
    /// File that it is about.
    pub file: u32,
    /// Name of the transition.
    pub event: &'static str,
    /// First byte of the range.
    pub offset: u64,
    /// Bytes in the range.
    pub length: u64,
    /// Result: 0, or the number of the error.
    pub errno: i32,
}

impl fmt::Display for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Line { time, file, event, offset, length, errno } = *self;
        let micros = time.as_micros();
        write!(
            formatter,
            "{micros:>10} us  file {file:>2}  {event:<16} {offset:>12} {length:>9} {errno:>4}"
        )
    }
}

/// Whether a trace keeps its lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tracing {
    /// Drops them.
    #[default]
    Off,
    /// Keeps them.
    Kept,
}

/// Lines of a run.
#[derive(Debug, Default)]
pub struct Trace {
    tracing: Tracing,
    lines: Vec<Line>,
}

impl Trace {
    /// Creates an empty trace.
    #[must_use]
    pub fn new(tracing: Tracing) -> Self {
        Self { tracing, lines: Vec::new() }
    }

    /// Returns the lines kept.
    #[must_use]
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    pub(crate) fn add(&mut self, line: Line) {
        if self.tracing == Tracing::Kept {
            self.lines.push(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_of_one_width() {
        let line = |event, offset| Line {
            time: Duration::ZERO,
            file: 1,
            event,
            offset,
            length: 1,
            errno: 0,
        };
        assert_eq!(
            line("write", 0).to_string().len(),
            line("set length", 1 << 30).to_string().len()
        );
    }
}
