//! What happened, one line of fixed width per transition: two runs of a seed are compared line by
//! line.

use std::fmt;
use std::time::Duration;

/// One transition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line {
    /// When.
    pub time: Duration,
    /// Which file's.
    pub file: u32,
    /// What happened.
    pub event: &'static str,
    /// From which byte on.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
    /// How it ended: 0, or an error's number.
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

/// Whether lines are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tracing {
    /// They are not.
    #[default]
    Off,
    /// They are.
    Kept,
}

/// The lines so far.
#[derive(Debug, Default)]
pub struct Trace {
    tracing: Tracing,
    lines: Vec<Line>,
}

impl Trace {
    /// Keeps lines, or does not.
    #[must_use]
    pub fn new(tracing: Tracing) -> Self {
        Self { tracing, lines: Vec::new() }
    }

    /// The lines kept.
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
