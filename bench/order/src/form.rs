//! The form of a line, as the kernel's figures were published.

use std::fmt;
use std::net::SocketAddr;

use crate::server::Used;

/// The line of a second.
pub(crate) struct Line<'a> {
    pub(crate) name: &'static str,
    pub(crate) place: &'a str,
    pub(crate) requests_per_s: f64,
    pub(crate) bytes_per_s: f64,
    /// Of the server's thread, if it is in this process.
    pub(crate) used: Option<Used>,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, place, requests_per_s, bytes_per_s, used } = self;
        let (requests, bytes) = (scaled(*requests_per_s), scaled(*bytes_per_s));
        write!(formatter, "{name} {place}: rps:{requests} Bps:{bytes}")?;
        used.map_or(Ok(()), |used| {
            let (idle, user) = (used.idle.as_millis(), used.user.as_millis());
            write!(formatter, " idle={idle}ms user={user}ms")
        })
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

/// Returns the port alone if the address is on this machine.
pub(crate) fn place(address: SocketAddr) -> String {
    match address.ip().is_loopback() {
        true => format!("port={}", address.port()),
        false => format!("address={address}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_line_has_the_form_of_the_published_figures() {
        let used = Used {
            idle: Duration::from_millis(140),
            user: Duration::from_millis(40),
            running: Duration::from_millis(860),
        };
        let place = place(([127, 0, 0, 1], 10002).into());
        let (requests_per_s, bytes_per_s) = (205_480.0, 1.85e6);
        let line =
            Line { name: "io_uring", place: &place, requests_per_s, bytes_per_s, used: Some(used) };
        assert_eq!(
            line.to_string(),
            "io_uring port=10002: rps:205.48k Bps:  1.85M idle=140ms user=40ms"
        );
        let alone = Line { used: None, ..line };
        assert_eq!(alone.to_string(), "io_uring port=10002: rps:205.48k Bps:  1.85M");
        assert_eq!(scaled(1.5e9), "  1.50G");
    }
}
