//! Seeds as they are written down: with the version of the runs that they replay.

use std::fmt;
use std::str::FromStr;

/// Version of the runs. A change that makes seeds stand for other runs raises it.
pub const VERSION: u32 = 2;

/// A seed, written as `2:12345`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seed(pub u64);

/// The error for a text that is no seed of this version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoSeed(String);

impl FromStr for Seed {
    type Err = NoSeed;

    fn from_str(text: &str) -> Result<Self, NoSeed> {
        let no_seed = || NoSeed(text.to_owned());
        let (version, seed) = text.split_once(':').ok_or_else(no_seed)?;
        if version != VERSION.to_string() {
            return Err(no_seed());
        }
        seed.parse().map(Self).map_err(|_| no_seed())
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{VERSION}:{}", self.0)
    }
}

impl fmt::Display for NoSeed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text) = self;
        match text.split_once(':') {
            None if text.parse::<u64>().is_ok() => write!(
                formatter,
                "seed {text} has no version: it was recorded by version 1, whose runs were of \
                 another simulation and cannot be replayed; seeds are written as {VERSION}:{text} \
                 now, and stand for other runs"
            ),
            Some((version, _)) if version.parse::<u32>().is_ok_and(|found| found != VERSION) => {
                write!(
                    formatter,
                    "seed {text} is of version {version}, and this program replays version \
                     {VERSION} only; check out the revision that recorded it"
                )
            }
            _ => write!(formatter, "invalid seed {text:?}; expected {VERSION}:NUMBER"),
        }
    }
}

impl std::error::Error for NoSeed {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_written_and_read() {
        assert_eq!(Seed(12_345).to_string(), "2:12345");
        assert_eq!("2:12345".parse(), Ok(Seed(12_345)));
    }

    #[test]
    fn seeds_of_other_versions_are_refused_by_name() {
        let refusal = |text: &str| text.parse::<Seed>().unwrap_err().to_string();
        assert!(refusal("12345").contains("seed 12345 has no version"));
        assert!(refusal("1:7").contains("is of version 1, and this program replays version 2"));
        assert!(refusal("3:7").contains("is of version 3"));
        for text in ["", "2:", "2:x", "x:2", "2:-1", "2:99999999999999999999"] {
            assert!(refusal(text).contains("invalid seed"), "{text}");
        }
    }
}
