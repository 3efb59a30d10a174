//! Settings of a model by name. One table is the parser, the help, and the record of the values
//! used.
//!
//! Times are microseconds, sizes bytes with `k`, `m` or `g` for powers of 1024, and words are those
//! of a table.

use std::ops::RangeInclusive;
use std::time::Duration;

/// One setting.
#[derive(Debug)]
pub struct Setting<M> {
    /// Its name.
    pub name: &'static str,
    /// Meaning, with the unit.
    pub what: &'static str,
    /// Parses and sets the value.
    pub set: fn(&mut M, &str) -> Result<(), Refusal>,
    /// Returns the present value, as `set` accepts it.
    pub show: fn(&M) -> String,
}

/// Reason why a setting was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No setting has this name; these exist.
    Setting(Vec<&'static str>),
    /// It accepts one of these words.
    Word(Vec<&'static str>),
    /// It accepts other values, which this text describes.
    Value(String),
}

/// Sets a value of the table by name.
///
/// # Errors
/// [`Refusal`] if the name or the value is invalid; then nothing is set.
pub fn set<M>(table: &[Setting<M>], model: &mut M, name: &str, value: &str) -> Result<(), Refusal> {
    match table.iter().find(|setting| setting.name == name) {
        Some(setting) => (setting.set)(model, value),
        None => Err(Refusal::Setting(table.iter().map(|setting| setting.name).collect())),
    }
}

/// Parses a whole number in `range`.
///
/// # Errors
/// [`Refusal::Value`], with the range.
pub fn number(text: &str, range: RangeInclusive<u64>) -> Result<u64, Refusal> {
    let refused =
        || Refusal::Value(format!("a whole number, {} to {}", range.start(), range.end()));
    text.parse().ok().filter(|number| range.contains(number)).ok_or_else(refused)
}

/// Parses a number of bytes in `range`.
///
/// # Errors
/// [`Refusal::Value`], with the range.
pub fn bytes(text: &str, range: RangeInclusive<u64>) -> Result<u64, Refusal> {
    let (digits, shift) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 10),
        Some((at, 'm' | 'M')) => (&text[..at], 20),
        Some((at, 'g' | 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    let refused = || {
        Refusal::Value(format!(
            "bytes, {} to {}",
            show_bytes(*range.start()),
            show_bytes(*range.end())
        ))
    };
    bytes.filter(|bytes| range.contains(bytes)).ok_or_else(refused)
}

/// Parses microseconds with up to three decimals, at most one second.
///
/// # Errors
/// [`Refusal::Value`] if the text is not such a number.
pub fn micros(text: &str) -> Result<Duration, Refusal> {
    let refused = || Refusal::Value("microseconds, 0 to 1000000, such as 6.5".to_owned());
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 3 || part.is_empty() {
        return Err(refused());
    }
    let whole: u64 = whole.parse().map_err(|_| refused())?;
    let part: u64 = format!("{part:0<3}").parse().map_err(|_| refused())?;
    let nanos = whole.checked_mul(1000).and_then(|nanos| nanos.checked_add(part));
    nanos.filter(|&nanos| nanos <= 1_000_000_000).map(Duration::from_nanos).ok_or_else(refused)
}

/// Parses one of the words of a table.
///
/// # Errors
/// [`Refusal::Word`], with the words of the table.
pub fn word<T: Copy>(text: &str, table: &[(&'static str, T)]) -> Result<T, Refusal> {
    let found = table.iter().find(|(word, _)| *word == text);
    found
        .map(|(_, meant)| *meant)
        .ok_or_else(|| Refusal::Word(table.iter().map(|(word, _)| *word).collect()))
}

/// Formats bytes as [`bytes`] accepts them.
#[must_use]
pub fn show_bytes(bytes: u64) -> String {
    for (unit, shift) in [("g", 30), ("m", 20), ("k", 10)] {
        if bytes > 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// Formats microseconds as [`micros`] accepts them.
#[must_use]
pub fn show_micros(time: Duration) -> String {
    let nanos = time.as_nanos();
    let text = format!("{}.{:03}", nanos / 1000, nanos % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatted_values_parse_to_the_same() {
        for nanos in [0, 1, 20, 500, 1_000, 6_500, 1_000_000_000] {
            let time = Duration::from_nanos(nanos);
            assert_eq!(micros(&show_micros(time)), Ok(time));
        }
        for size in [1, 4095, 4096, 1 << 20, 3 << 30] {
            assert_eq!(bytes(&show_bytes(size), 1..=u64::MAX), Ok(size));
        }
    }

    #[test]
    fn invalid_values_are_refused() {
        for text in
            ["", "x", "-1", "1.", "1.2345", "1.x", "+1", "1000000.1", "99999999999999999999"]
        {
            assert!(matches!(micros(text), Err(Refusal::Value(_))), "{text}");
        }
        for text in ["", "k", "12x", "0", "2m", "99999999999g"] {
            assert!(bytes(text, 1..=1 << 20).is_err(), "{text}");
        }
        assert_eq!(number("7", 1..=6), Err(Refusal::Value("a whole number, 1 to 6".to_owned())));
        assert_eq!(word("b", &[("a", 1), ("b", 2)]), Ok(2));
        assert_eq!(word("c", &[("a", 1), ("b", 2)]), Err(Refusal::Word(vec!["a", "b"])));
    }
}
