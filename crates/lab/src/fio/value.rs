//! The values of options: sizes, times, shares, ranges, lists, and the messages about others.
//!
//! Nothing here panics or wraps around, for any text: each form has limits and names them.

use crate::job::{Amount, BlockSize, FileSize, SizeShare};

/// The text of a value and the meaning of its units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value<'a> {
    /// None for a bare key.
    pub(crate) text: Option<&'a str>,
    pub(crate) kb_base: KbBase,
}

/// Meaning of `k`. fio's default is not the standard one, and `kb_base=1000` turns both around.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum KbBase {
    /// `k` is 1024 and `ki` is 1000.
    #[default]
    Traditional,
    /// `k` is 1000 and `ki` is 1024.
    Standard,
}

/// A refusal names the allowed values.
type Result<T> = std::result::Result<T, String>;

/// The largest offset that has any meaning for a file, with room to add.
const MOST_BYTES: u64 = 1 << 60;
const MOST_MICROS: u64 = 1 << 50;
/// A block is a buffer, and there is one per operation in flight.
const MOST_BLOCK: u64 = 1 << 30;

fn wrong<T>(what: impl Into<String>) -> Result<T> {
    Err(what.into())
}

impl<'a> Value<'a> {
    pub(crate) fn text(self) -> Result<&'a str> {
        match self.text.map(str::trim) {
            Some("") | None => wrong("a value is needed"),
            Some(text) => Ok(text),
        }
    }

    /// A bare key is true.
    pub(crate) fn boolean(self) -> Result<bool> {
        match self.text.map(str::trim) {
            None | Some("1" | "true") => Ok(true),
            Some("0" | "false") => Ok(false),
            Some(_) => wrong("allowed: 0, 1, or the key alone"),
        }
    }

    pub(crate) fn number(self, least: u64, most: u64) -> Result<u64> {
        let number = parse_number(self.text()?).filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| format!("allowed: a whole number from {least} to {most}"))
    }

    /// As [`Value::number`], of a field with fewer bits.
    pub(crate) fn count(self, least: u32, most: u32) -> Result<u32> {
        Ok(self.number(least.into(), most.into())? as u32)
    }

    /// Returns another text with the same units.
    pub(crate) fn with(self, text: &'a str) -> Self {
        Self { text: Some(text), ..self }
    }

    pub(crate) fn bytes(self) -> Result<u64> {
        size(self.text()?, self.kb_base)
    }

    /// Bytes, or a percentage.
    pub(crate) fn amount(self) -> Result<Amount> {
        let text = self.text()?;
        match text.strip_suffix('%') {
            Some(percent) => Ok(Amount::Percent(percentage(percent)?)),
            None => size(text, self.kb_base).map(Amount::Bytes),
        }
    }

    /// One length or a range of them.
    pub(crate) fn file_size(self) -> Result<FileSize> {
        let text = self.text()?;
        let Some((min, max)) = text.split_once(['-', ':']) else {
            return size(text, self.kb_base).map(FileSize::Fixed);
        };
        let (min, max) = (size(min, self.kb_base)?, size(max, self.kb_base)?);
        if min > max || min == 0 {
            return wrong("a range goes from a smaller size above zero to a larger one, as 4k-64k");
        }
        Ok(FileSize::Range { min, max })
    }

    /// In microseconds; a number without unit is of the unit the option has in fio.
    pub(crate) fn time_us(self, bare: Unit) -> Result<u64> {
        time(self.text()?, bare)
    }

    /// Sets the values for reads and for writes (a third, for trims, is left aside): one value is
    /// for both, an empty one changes nothing.
    pub(crate) fn each<T>(
        self,
        parse: impl Fn(Value<'a>) -> Result<T>,
        to: [&mut T; 2],
    ) -> Result<()> {
        let parts: Vec<&str> = self.text()?.split(',').map(str::trim).collect();
        let of = match parts[..] {
            [both] => [both, both],
            [read, write] | [read, write, _] => [read, write],
            _ => return wrong("at most three values, for reads, writes and trims"),
        };
        for (text, to) in of.into_iter().zip(to).filter(|(text, _)| !text.is_empty()) {
            *to = parse(self.with(text))?;
        }
        Ok(())
    }

    pub(crate) fn block(self) -> Result<BlockSize> {
        self.block_bytes(self.text()?).map(BlockSize::Fixed)
    }

    pub(crate) fn block_range(self) -> Result<BlockSize> {
        let Some((min, max)) = self.text()?.split_once(['-', ':']) else {
            return wrong("a range of sizes, as 1k-4k");
        };
        let (min, max) = (self.block_bytes(min)?, self.block_bytes(max)?);
        if min > max {
            return wrong("the first size of a range is the smaller one");
        }
        Ok(BlockSize::Range { min, max })
    }

    /// `bs/percent:bs/percent`; those without a share divide what is left.
    pub(crate) fn block_split(self) -> Result<BlockSize> {
        let mut sizes: Vec<(u32, Option<u8>)> = Vec::new();
        for part in self.text()?.split(':').filter(|part| !part.trim().is_empty()) {
            let (bytes, share) = match part.split_once('/') {
                Some((bytes, "")) => (bytes, None),
                Some((bytes, share)) => (bytes, Some(percentage(share)?)),
                None => (part, None),
            };
            sizes.push((self.block_bytes(bytes)?, share));
        }
        let given: u32 = sizes.iter().filter_map(|&(_, share)| share).map(u32::from).sum();
        let open = sizes.iter().filter(|(_, share)| share.is_none()).count() as u32;
        if sizes.is_empty() || sizes.len() > 64 || given > 100 || (open == 0 && given != 100) {
            return wrong("sizes with shares that make 100, as 4k/60:64k/40 (at most 64 of them)");
        }
        let each = (100 - given).checked_div(open).unwrap_or(0) as u8;
        let shares =
            sizes.iter().map(|&(bytes, share)| SizeShare { bytes, percent: share.unwrap_or(each) });
        Ok(BlockSize::Split(shares.collect()))
    }

    /// A list such as `0-3,6`, of at most 4096.
    pub(crate) fn numbers(self) -> Result<Vec<u32>> {
        const MOST: u64 = 4095;
        let mut numbers = Vec::new();
        for part in self.text()?.split([',', ' ']).filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            match (parse_number(first), parse_number(last)) {
                (Some(first), Some(last)) if first <= last && last <= MOST => {
                    numbers.extend(first as u32..=last as u32);
                }
                _ => return wrong("allowed: numbers and ranges up to 4095, as 0-3,6"),
            }
        }
        Ok(numbers)
    }

    /// One of these words.
    pub(crate) fn choice<T: Copy>(self, choices: &[(&str, T)]) -> Result<T> {
        let text = self.text()?;
        let found = choices.iter().find(|(name, _)| *name == text);
        found.map(|&(_, choice)| choice).ok_or_else(|| {
            let names: Vec<_> = choices.iter().map(|&(name, _)| name).collect();
            format!("allowed: {}", names.join(", "))
        })
    }

    fn block_bytes(self, text: &str) -> Result<u32> {
        match size(text, self.kb_base)? {
            bytes @ 1..=MOST_BLOCK => Ok(bytes as u32),
            _ => wrong("a block has from 1 byte to 1g"),
        }
    }
}

/// Unit of a number without one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    Seconds,
    Microseconds,
}

fn parse_number(text: &str) -> Option<u64> {
    let text = text.trim();
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, radix) = hexadecimal.map_or((text, 10), |digits| (digits, 16));
    // A sign is no digit.
    let is_number = digits.starts_with(|first: char| first.is_digit(radix));
    is_number.then(|| u64::from_str_radix(digits, radix).ok())?
}

fn percentage(text: &str) -> Result<u8> {
    match parse_number(text) {
        Some(percent @ 0..=100) => Ok(percent as u8),
        _ => wrong("a percentage is a whole number from 0 to 100"),
    }
}

fn size(text: &str, kb_base: KbBase) -> Result<u64> {
    let parsed = || {
        let text = text.trim().to_ascii_lowercase();
        // The digits of a hexadecimal number include `b`, so only what follows them can be a unit.
        let hexadecimal = text.starts_with("0x");
        let is_digit = |(at, letter): &(usize, char)| {
            letter.is_ascii_digit() || (hexadecimal && (*at < 2 || letter.is_ascii_hexdigit()))
        };
        let (number, suffix) = text.split_at(text.char_indices().take_while(is_digit).count());
        let suffix = suffix.trim().strip_suffix('b').unwrap_or(suffix.trim());
        let letter = suffix.strip_suffix('i').unwrap_or(suffix);
        let is_ki = letter.len() < suffix.len();
        let power = match (letter.len(), "kmgtp".find(letter)) {
            (0, _) if !is_ki => 0,
            (1, Some(place)) => place as u32 + 1,
            _ => return None,
        };
        let base: u64 = if is_ki == (kb_base == KbBase::Standard) { 1024 } else { 1000 };
        parse_number(number)?.checked_mul(base.pow(power)).filter(|bytes| *bytes <= MOST_BYTES)
    };
    let allowed = "allowed: a whole number with k, m, g, t or p, as 4k or 1g; at most 1024p";
    parsed().ok_or_else(|| allowed.to_owned())
}

fn time(text: &str, bare: Unit) -> Result<u64> {
    let parsed = || {
        let text = text.trim().to_ascii_lowercase();
        let digits = text.chars().take_while(char::is_ascii_digit).count();
        let (number, suffix) = text.split_at(digits);
        let unit = match (suffix.trim(), bare) {
            ("", Unit::Microseconds) | ("us" | "usec", _) => 1,
            ("ms" | "msec", _) => 1000,
            ("", Unit::Seconds) | ("s" | "sec", _) => 1_000_000,
            ("m", _) => 60 * 1_000_000,
            ("h", _) => 3600 * 1_000_000,
            ("d", _) => 86_400 * 1_000_000,
            _ => return None,
        };
        parse_number(number)?.checked_mul(unit).filter(|us| *us <= MOST_MICROS)
    };
    let allowed = "allowed: a whole number with us, ms, s, m, h or d, as 30s; at most 13000d";
    parsed().ok_or_else(|| allowed.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value<'_> {
        Value { text: Some(text), kb_base: KbBase::Traditional }
    }

    #[test]
    fn sizes() {
        let sizes = [
            ("4096", 4096),
            ("4k", 4096),
            ("4K", 4096),
            ("4kb", 4096),
            ("1m", 1 << 20),
            ("2g", 2 << 30),
            ("1t", 1 << 40),
            ("1p", 1 << 50),
            ("4ki", 4000),
            ("4KiB", 4000),
            ("0x2000", 8192),
            ("0xb", 11),
            ("512b", 512),
        ];
        for (text, bytes) in sizes {
            assert_eq!(value(text).bytes(), Ok(bytes), "{text}");
        }
        let standard = |text| Value { text: Some(text), kb_base: KbBase::Standard };
        assert_eq!(standard("4k").bytes(), Ok(4000));
        assert_eq!(standard("4KiB").bytes(), Ok(4096));
        for text in [
            "",
            "k",
            "4q",
            "1.5k",
            "-1",
            "99999999999999999999",
            "2000p",
            "0x",
            "i",
            "4i",
            "4 k k",
            "ä",
        ] {
            assert!(value(text).bytes().is_err(), "{text}");
        }
    }

    #[test]
    fn amounts_and_times() {
        assert_eq!(value("20%").amount(), Ok(Amount::Percent(20)));
        assert_eq!(value("20m").amount(), Ok(Amount::Bytes(20 << 20)));
        assert!(value("101%").amount().is_err());
        assert_eq!(value("10").time_us(Unit::Seconds), Ok(10_000_000));
        assert_eq!(value("10").time_us(Unit::Microseconds), Ok(10));
        assert_eq!(value("250ms").time_us(Unit::Seconds), Ok(250_000));
        assert_eq!(value("2m").time_us(Unit::Seconds), Ok(120_000_000));
        assert!(value("2y").time_us(Unit::Seconds).is_err());
        assert!(value("99999999d").time_us(Unit::Seconds).is_err());
    }

    #[test]
    fn blocks() {
        assert_eq!(value("1k-4k").block_range(), Ok(BlockSize::Range { min: 1024, max: 4096 }));
        assert!(value("4k-1k").block_range().is_err());
        assert!(value("2g").block().is_err());
        assert!(value("0").block().is_err());
        let share = |bytes, percent| SizeShare { bytes, percent };
        let split = BlockSize::Split(vec![share(4096, 60), share(65_536, 40)]);
        assert_eq!(value("4k/60:64k/40").block_split(), Ok(split));
        let split = BlockSize::Split(vec![share(4096, 50), share(8192, 25), share(16_384, 25)]);
        assert_eq!(value("4k/50:8k/:16k").block_split(), Ok(split));
        assert!(value("4k/50:8k/10").block_split().is_err());
        assert!(value(":").block_split().is_err());
    }

    #[test]
    fn directions_share_or_differ() {
        let of = |text| {
            let (mut read, mut write) = (0, 0);
            let set = value(text).each(Value::bytes, [&mut read, &mut write]);
            set.map(|()| [read, write])
        };
        assert_eq!(of("4k"), Ok([4096, 4096]));
        assert_eq!(of("4k,8k"), Ok([4096, 8192]));
        assert_eq!(of(",8k"), Ok([0, 8192]));
        assert_eq!(of("4k,8k,16k"), Ok([4096, 8192]));
        assert!(of("1,2,3,4").is_err());
    }

    #[test]
    fn lists_and_booleans() {
        assert_eq!(value("0-2,5").numbers(), Ok(vec![0, 1, 2, 5]));
        assert!(value("5-2").numbers().is_err());
        assert!(value("0-99999999").numbers().is_err());
        assert_eq!(Value { text: None, kb_base: KbBase::Traditional }.boolean(), Ok(true));
        assert_eq!(value("0").boolean(), Ok(false));
        assert!(value("yes").boolean().is_err());
    }
}
