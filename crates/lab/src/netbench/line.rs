//! The line of a second.

use std::fmt;

use forebay_net::Address;

use crate::load::echo::Used;

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) place: String,
    pub(super) requests_per_s: f64,
    pub(super) bytes_per_s: f64,
    /// Of the server's thread, if it is in this program.
    pub(super) used: Option<Used>,
}

impl Line {
    /// Whether anything came.
    pub(super) fn moved(&self) -> bool {
        self.bytes_per_s > 0.0
    }
}

impl fmt::Display for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, place, requests_per_s, bytes_per_s, used } = self;
        let (requests, bytes) = (scaled(*requests_per_s), scaled(*bytes_per_s));
        write!(formatter, "{name} {place}: rps:{requests} Bps:{bytes}")?;
        if let Some(used) = used {
            write!(
                formatter,
                " idle={}ms user={}ms",
                used.idle.as_millis(),
                used.user.as_millis()
            )?;
        }
        Ok(())
    }
}

/// `205.48k`, `  1.85M`.
fn scaled(value: f64) -> String {
    match value {
        value if value < 1e6 => format!("{:>6.2}k", value / 1e3),
        value if value < 1e9 => format!("{:>6.2}M", value / 1e6),
        value => format!("{:>6.2}G", value / 1e9),
    }
}

/// Where a server is: the port alone where it is on this machine.
pub(super) fn place(address: &Address) -> String {
    match address {
        Address::Tcp(address) if address.ip().is_loopback() => format!("port={}", address.port()),
        address => format!("address={address}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_line_is_as_the_kernel_s_figures_were_told() {
        let used = Used {
            idle: Duration::from_millis(140),
            user: Duration::from_millis(40),
            system: Duration::from_millis(820),
        };
        let line = Line {
            name: "io_uring".into(),
            place: place(&Address::Tcp(([127, 0, 0, 1], 10002).into())),
            requests_per_s: 205_480.0,
            bytes_per_s: 1.85e6,
            used: Some(used),
        };
        assert_eq!(
            line.to_string(),
            "io_uring port=10002: rps:205.48k Bps:  1.85M idle=140ms user=40ms"
        );
        let alone = Line { used: None, ..line };
        assert_eq!(alone.to_string(), "io_uring port=10002: rps:205.48k Bps:  1.85M");
        assert_eq!(scaled(1.5e9), "  1.50G");
        assert_eq!(place(&Address::Unix("/a".into())), "address=/a");
    }
}
