//! A number of bytes, as a suite and a command line have it.

use serde::Deserialize;

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

impl Bytes {
    /// Returns the bytes of one operation.
    ///
    /// # Errors
    /// The number is no size of a block.
    pub(crate) fn block(self) -> Result<u32, String> {
        let Self(bytes) = self;
        if bytes == 0 || bytes % 512 != 0 || bytes > 16 << 20 {
            return Err(format!("block {bytes}: out of range (512 to 16m, in steps of 512)"));
        }
        Ok(bytes as u32)
    }
}
