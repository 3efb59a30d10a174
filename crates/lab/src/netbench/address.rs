//! An address as it is typed: `HOST:PORT`, or a path for a Unix socket (`unix:NAME`, or anything
//! with a slash).

use std::net::ToSocketAddrs;
use std::path::PathBuf;

use forebay_net::Address;

/// Parses an address.
pub fn parse(text: &str) -> Result<Address, String> {
    if let Some(path) = text.strip_prefix("unix:").or_else(|| text.contains('/').then_some(text)) {
        return match path {
            "" => Err("unix: without a path".to_owned()),
            path => Ok(Address::Unix(PathBuf::from(path))),
        };
    }
    if !text.contains(':') {
        return Err(format!(
            "{text}: not an address (give HOST:PORT, or a path with a slash for a Unix socket)"
        ));
    }
    let found =
        text.to_socket_addrs().map_err(|error| format!("{text}: {error} (give HOST:PORT)"))?;
    found.into_iter().next().map(Address::Tcp).ok_or_else(|| format!("{text}: no such host"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_understood() {
        assert_eq!(parse("127.0.0.1:80"), Ok(Address::Tcp(([127, 0, 0, 1], 80).into())));
        assert_eq!(parse("[::1]:80").unwrap().to_string(), "[::1]:80");
        assert_eq!(parse("unix:a"), Ok(Address::Unix("a".into())));
        assert_eq!(parse("/run/a"), Ok(Address::Unix("/run/a".into())));
        for (wrong, remedy) in [
            ("80", "give HOST:PORT"),
            ("127.0.0.1:", "give HOST:PORT"),
            ("unix:", "without a path"),
        ] {
            assert!(parse(wrong).unwrap_err().contains(remedy), "{wrong}");
        }
    }
}
