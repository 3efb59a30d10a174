//! A load, a server and its order, and the checks of these.

use std::fmt;

use clap::ValueEnum;

/// Most connections: each takes two descriptors.
pub(crate) const MOST_CONNECTIONS: u32 = 10_000;

const MOST_IN_FLIGHT: u32 = 1024;

const MOST_MESSAGE_BYTES: u32 = 16 << 20;

/// Most bytes in flight on all connections: the client holds what the sockets do not take.
const MOST_BYTES: u64 = 256 << 20;

/// A closed loop of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Load {
    pub(crate) connections: u32,
    /// Messages in flight on each connection.
    pub(crate) in_flight: u32,
    pub(crate) message_bytes: u32,
    pub(crate) pace: Pace,
}

/// When a connection sends again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pace {
    /// Each answer releases one message.
    Each,
    /// When all messages of the connection are answered, as many are sent together.
    Together,
}

/// How the server asks the kernel for work.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Ring,
    Epoll,
}

/// In which order the server works off what one call of the kernel returned.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// In the order of arrival.
    Fifo,
    /// In reverse, as a list without locks hands work over. The bytes of one connection stay in
    /// order.
    Lifo,
}

impl Way {
    /// Returns the name that begins a line of figures.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Way::Ring => "io_uring",
            Way::Epoll => "epoll",
        }
    }
}

impl Load {
    /// Refuses values out of range, with a remedy.
    pub(crate) fn check(&self) -> Result<(), String> {
        let bounds = [
            ("connections", self.connections, MOST_CONNECTIONS),
            ("messages in flight", self.in_flight, MOST_IN_FLIGHT),
            ("bytes of a message", self.message_bytes, MOST_MESSAGE_BYTES),
        ];
        for (what, value, most) in bounds {
            if !(1..=most).contains(&value) {
                return Err(format!("{value} {what}: not between 1 and {most}"));
            }
        }
        let bytes = [self.connections, self.in_flight, self.message_bytes].map(u64::from);
        let bytes: u64 = bytes.iter().product();
        if bytes > MOST_BYTES {
            return Err(format!(
                "{} MiB in flight: not more than {} (use fewer connections or smaller messages)",
                bytes >> 20,
                MOST_BYTES >> 20
            ));
        }
        Ok(())
    }
}

impl fmt::Display for Load {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connections, in_flight, pace, .. } = self;
        let pace = if *pace == Pace::Together { "together" } else { "each" };
        write!(formatter, "{connections} connections, {in_flight} messages {pace}")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The load of the kernel's own figures.
    pub(crate) const SMALL: Load =
        Load { connections: 4, in_flight: 2, message_bytes: 9, pace: Pace::Each };

    #[test]
    fn values_out_of_range_are_refused_with_a_remedy() {
        assert_eq!(SMALL.check(), Ok(()));
        for (load, remedy) in [
            (Load { connections: 0, ..SMALL }, "between 1 and 10000"),
            (Load { in_flight: 1025, ..SMALL }, "between 1 and 1024"),
            (Load { message_bytes: 0, ..SMALL }, "between 1 and 16777216"),
            (Load { connections: 1000, message_bytes: 1 << 20, ..SMALL }, "smaller messages"),
        ] {
            let refused = load.check().unwrap_err();
            assert!(refused.contains(remedy), "{refused}");
        }
    }
}
