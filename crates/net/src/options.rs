//! Options of the sockets.

use forebay_block::knobs::Order;

use crate::limits::{BUFFERS, CONNECTIONS};

/// Options of [`Sockets`](super::Sockets).
///
/// Memory for received bytes is at most `buffers` times `buffer_bytes`. Memory for outgoing bytes
/// is at most `connections` times twice `outgoing_bytes`, plus the excess of a single send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Maximum of open connections. Further ones wait in the queue of the listener.
    pub connections: u32,
    /// Number of receive buffers, a power of two.
    pub buffers: u16,
    /// Bytes per receive buffer.
    pub buffer_bytes: u32,
    /// Maximum of bytes returned by one pass; the last piece may exceed it.
    pub pass_bytes: usize,
    /// Maximum of bytes per connection and pass; the last piece may exceed it.
    pub connection_bytes: usize,
    /// Outgoing bytes of a connection at which the caller must stop sending, and at which receiving
    /// pauses. Sends are refused at twice as much.
    pub outgoing_bytes: usize,
    /// Order of the events of a pass. `Lifo` reverses posted work and connections, to measure what
    /// order is worth; the bytes of a connection stay in order.
    pub order: Order,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connections: 4096,
            buffers: 256,
            buffer_bytes: 16 << 10,
            pass_bytes: 1 << 20,
            connection_bytes: 64 << 10,
            outgoing_bytes: 256 << 10,
            order: Order::Fifo,
        }
    }
}

/// Error for an option out of range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{option} cannot be {value}: it must be {range}")]
pub struct OptionsError {
    /// Name of the option.
    pub option: &'static str,
    /// Its value.
    pub value: u64,
    /// Valid range.
    pub range: &'static str,
}

impl Options {
    /// Checks all options.
    ///
    /// # Errors
    /// The first option that is out of range.
    pub fn check(&self) -> Result<(), OptionsError> {
        const ROOM: &str = "connection_bytes and buffer_bytes or more, so that an answer to all \
                            of a pass has room";
        let Self { connections, buffers, buffer_bytes, pass_bytes, .. } = *self;
        let Self { connection_bytes, outgoing_bytes, .. } = *self;
        let (each, count) = (buffer_bytes as usize, usize::from(buffers));
        let is_count = buffers.is_power_of_two() && buffers <= BUFFERS;
        let has_room = outgoing_bytes >= connection_bytes.saturating_add(each);
        let most = connections as usize;
        let rules = [
            ((1..=CONNECTIONS).contains(&connections), "connections", most, "1 to 16777216"),
            (is_count, "buffers", count, "a power of two, 1 to 32768"),
            ((64..=1 << 24).contains(&each), "buffer_bytes", each, "64 to 16777216"),
            (connection_bytes > 0, "connection_bytes", connection_bytes, "1 or more"),
            (pass_bytes >= connection_bytes, "pass_bytes", pass_bytes, "connection_bytes or more"),
            (has_room, "outgoing_bytes", outgoing_bytes, ROOM),
        ];
        rules.into_iter().try_for_each(|(holds, option, value, range)| match holds {
            true => Ok(()),
            false => Err(OptionsError { option, value: value as u64, range }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
