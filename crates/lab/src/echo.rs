//! An echo cell: a closed loop of connections and one server that sends back each message, for a
//! time. This is the specification; `load` runs it.
//!
//! This load revealed reversed work lists in the kernel: few connections, two messages of nine
//! bytes on each. The same client asks every arm, so the arms differ in the server alone.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::words::words;

/// Most connections of one cell: each takes two descriptors.
pub const MOST_CONNECTIONS: u32 = 10_000;

pub const MOST_IN_FLIGHT: u32 = 1024;

pub const MOST_MESSAGE_BYTES: u32 = 16 << 20;

/// Most bytes on their way at once, of all connections: the client holds what the sockets do not
/// take.
pub const MOST_BYTES_ON_THE_WAY: u64 = 256 << 20;

/// Most that the server works for a message.
pub const MOST_WORK_MICROS: u32 = 100_000;

/// Specification of an echo cell.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct EchoCell {
    pub way: EchoWay,
    /// Order within a pass, for ways that have a choice.
    pub order: WorkOrder,
    pub load: EchoLoad,
    pub seconds: f64,
    pub seed: u64,
    /// Where the socket of a Unix connection is: an existing directory.
    pub directory: PathBuf,
    /// Where it runs: the server on the first, the client on the others, if there are two at least.
    #[serde(default)]
    pub processors: Vec<u32>,
}

/// The load of a server, in a suite and in a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EchoLoad {
    pub connections: u32,
    pub in_flight: u32,
    #[serde(rename = "bytes")]
    pub message_bytes: u32,
    /// When a connection sends again.
    #[serde(default)]
    pub pace: Pace,
    /// Microseconds of work for a message: evenly between none and twice this.
    #[serde(default, rename = "work")]
    pub work_micros: u32,
    #[serde(default)]
    pub transport: Transport,
}

words! {
    pub enum EchoWay {
        Ring = "echo-ring",
        /// A server on epoll, in one thread.
        Epoll = "echo-epoll",
        /// A task for each connection on tokio, in one thread.
        Tokio = "echo-tokio",
        /// A task for each connection on compio, in one thread.
        Compio = "echo-compio",
    }
}

impl EchoWay {
    /// Whether the order of a pass can be chosen.
    pub fn has_order(self) -> bool {
        matches!(self, EchoWay::Ring | EchoWay::Epoll)
    }
}

words! {
    /// In which order a pass works off what came.
    #[derive(Default)]
    pub enum WorkOrder {
        /// Oldest first.
        #[default]
        Fifo = "fifo",
        /// Newest first.
        Lifo = "lifo",
    }
}

impl WorkOrder {
    /// Those there are, for a message.
    pub const CHOICES: &'static str = "fifo, lifo";
}

/// When a connection sends again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pace {
    /// Each answer lets one message go.
    #[default]
    Each,
    /// All its messages being answered lets as many go together.
    Together,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    #[default]
    Tcp,
    Unix,
}

impl EchoLoad {
    /// Refuses invalid values, with a remedy.
    pub fn check(&self) -> Result<(), String> {
        let Self { connections, in_flight, message_bytes, work_micros, .. } = *self;
        let bounds = [
            ("connections", connections, MOST_CONNECTIONS),
            ("messages in flight", in_flight, MOST_IN_FLIGHT),
            ("bytes of a message", message_bytes, MOST_MESSAGE_BYTES),
        ];
        for (what, value, most) in bounds {
            if !(1..=most).contains(&value) {
                return Err(format!("{value} {what}: not between 1 and {most}"));
            }
        }
        if work_micros > MOST_WORK_MICROS {
            return Err(format!("{work_micros} us of work: not between 0 and {MOST_WORK_MICROS}"));
        }
        let on_the_way = u64::from(connections) * u64::from(in_flight) * u64::from(message_bytes);
        if on_the_way > MOST_BYTES_ON_THE_WAY {
            let most = MOST_BYTES_ON_THE_WAY >> 20;
            return Err(format!(
                "{} MiB on their way at once: not more than {most} (take fewer connections or smaller messages)",
                on_the_way >> 20
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The load of the kernel's own figures.
    pub(crate) const SMALL: EchoLoad = EchoLoad {
        connections: 4,
        in_flight: 2,
        message_bytes: 9,
        pace: Pace::Each,
        work_micros: 0,
        transport: Transport::Tcp,
    };

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_would_do() {
        assert_eq!(SMALL.check(), Ok(()));
        for (load, remedy) in [
            (EchoLoad { connections: 0, ..SMALL }, "between 1 and 10000"),
            (EchoLoad { in_flight: 1025, ..SMALL }, "between 1 and 1024"),
            (EchoLoad { message_bytes: 0, ..SMALL }, "between 1 and 16777216"),
            (EchoLoad { work_micros: 1_000_000, ..SMALL }, "between 0 and 100000"),
            (EchoLoad { connections: 1000, message_bytes: 1 << 20, ..SMALL }, "smaller messages"),
        ] {
            let refused = load.check().unwrap_err();
            assert!(refused.contains(remedy), "{refused}");
        }
    }
}
