//! A number of bytes, as a suite and a command line have it.

use serde::{Deserialize, Deserializer};

/// A number of bytes: `"4096"`, `"4k"`, `"24m"`, `"1g"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Bytes(pub u64);

impl TryFrom<String> for Bytes {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (digits, shift) = match text.as_bytes().last() {
            Some(b'k') => (&text[..text.len() - 1], 10),
            Some(b'm') => (&text[..text.len() - 1], 20),
            Some(b'g') => (&text[..text.len() - 1], 30),
            _ => (text.as_str(), 0),
        };
        let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
        number
            .map(Self)
            .ok_or_else(|| format!("{text}: no number of bytes (such as \"4k\", \"24m\", \"1g\")"))
    }
}

/// Reads a field of bytes.
pub(crate) fn field<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Bytes::deserialize(from).map(|Bytes(bytes)| bytes)
}

/// Reads a field of bytes that may be absent.
pub(crate) fn optional<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    field(from).map(Some)
}
