//! What can be chosen.

use std::time::Duration;

use forebay_block::knobs::Order;

use super::limits::{BUFFERS, CONNECTIONS};

/// By which means the kernel is asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Choice {
    /// The ring, or epoll where io_uring is missing, forbidden, or too old.
    #[default]
    Auto,
    /// The ring, or an error.
    IoUring,
    /// Epoll.
    Epoll,
}

impl Choice {
    /// The names that [`Choice::by_name`] takes, for a message.
    pub const CHOICES: &'static str = "auto, io_uring, epoll";

    /// The choice of a name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "auto" => Some(Self::Auto),
            "io_uring" => Some(Self::IoUring),
            "epoll" => Some(Self::Epoll),
            _ => None,
        }
    }
}

/// What can be chosen. The bytes received are bounded by `buffers` times `buffer_bytes`, those to
/// be sent by `connections` times twice `outgoing_bytes`, and whatever a single call sends beyond
/// that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// By which means.
    pub choice: Choice,
    /// Connections at once; further ones wait in the listener's queue until one ends.
    pub connections: u32,
    /// Buffers that are received into: a power of two.
    pub buffers: u16,
    /// Bytes in each.
    pub buffer_bytes: u32,
    /// Bytes handed out by one pass; the last piece may go beyond it.
    pub pass_bytes: usize,
    /// Bytes of one connection handed out by one pass; the last piece may go beyond it.
    pub connection_bytes: usize,
    /// Bytes to be sent at which the caller is told to stop, and from which on nothing more of the
    /// connection is handed out; those who go on are refused at twice as much.
    pub outgoing_bytes: usize,
    /// How long a connection may move no byte, unless it is set for one by [`Sockets::set_idle`].
    ///
    /// [`Sockets::set_idle`]: super::Sockets::set_idle
    pub idle: Option<Duration>,
    /// In which order a pass hands out: `Lifo` reverses who is served, for measuring what order is
    /// worth. What was posted is reversed one by one, connections by who came first; the bytes of a
    /// connection stay in order.
    pub order: Order,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            choice: Choice::Auto,
            connections: 4096,
            buffers: 256,
            buffer_bytes: 16 << 10,
            pass_bytes: 1 << 20,
            connection_bytes: 64 << 10,
            outgoing_bytes: 256 << 10,
            idle: None,
            order: Order::Fifo,
        }
    }
}

/// An option out of its range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{option} cannot be {value}: it must be {range}")]
pub struct OptionsError {
    /// Which.
    pub option: &'static str,
    /// What it was.
    pub value: u64,
    /// What would do.
    pub range: &'static str,
}

impl Options {
    /// Looks at every bound.
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn check(&self) -> Result<(), OptionsError> {
        let wrong =
            |option, value: usize, range| OptionsError { option, value: value as u64, range };
        let Self { connections, buffers, buffer_bytes, .. } = *self;
        if !(1..=CONNECTIONS).contains(&connections) {
            return Err(wrong("connections", connections as usize, "1 to 16777216"));
        }
        if !buffers.is_power_of_two() || buffers > BUFFERS {
            return Err(wrong("buffers", buffers.into(), "a power of two, 1 to 32768"));
        }
        if !(64..=1 << 24).contains(&buffer_bytes) {
            return Err(wrong("buffer_bytes", buffer_bytes as usize, "64 to 16777216"));
        }
        if self.connection_bytes == 0 {
            return Err(wrong("connection_bytes", 0, "1 or more"));
        }
        if self.pass_bytes < self.connection_bytes {
            return Err(wrong("pass_bytes", self.pass_bytes, "connection_bytes or more"));
        }
        if self.outgoing_bytes < self.connection_bytes + buffer_bytes as usize {
            let range = "connection_bytes and buffer_bytes or more, so that an answer to all of a pass has room";
            return Err(wrong("outgoing_bytes", self.outgoing_bytes, range));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_found_by_their_names() {
        for name in Choice::CHOICES.split(", ") {
            assert!(Choice::by_name(name).is_some(), "{name}");
        }
        assert_eq!(Choice::by_name("threads"), None);
    }

    #[test]
    fn options_out_of_range_are_named() {
        let good = Options::default();
        assert_eq!(good.check(), Ok(()));
        for (bad, option) in [
            (Options { connections: 0, ..good }, "connections"),
            (Options { connections: CONNECTIONS + 1, ..good }, "connections"),
            (Options { buffers: 100, ..good }, "buffers"),
            (Options { buffers: 0, ..good }, "buffers"),
            (Options { buffer_bytes: 1, ..good }, "buffer_bytes"),
            (Options { connection_bytes: 0, ..good }, "connection_bytes"),
            (Options { pass_bytes: 1, ..good }, "pass_bytes"),
            (Options { outgoing_bytes: good.connection_bytes, ..good }, "outgoing_bytes"),
        ] {
            assert_eq!(bad.check().unwrap_err().option, option);
        }
    }
}
