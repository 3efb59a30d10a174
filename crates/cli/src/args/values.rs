//! Values of options. Each refusal says what to give.

use clap::builder::{PossibleValue, PossibleValuesParser};
use forebay_lab::disk::{NAMED, Named};
use forebay_lab::plan::MOST_ROUNDS;
use forebay_lab::suite::Bytes;

/// The name of a disk that can be imitated.
pub(super) fn disk() -> PossibleValuesParser {
    let named = |disk: Named| PossibleValue::new(disk.name).help(disk.means);
    PossibleValuesParser::new(NAMED.map(named))
}

/// Bytes, as `20g`.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    match text.to_lowercase().try_into() {
        Ok(Bytes(bytes)) if bytes > 0 => Ok(bytes),
        _ => Err("give a number of bytes above 0, such as 20g or 500m".to_owned()),
    }
}

/// A share of a whole.
pub(super) fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("give a number above 0 and up to 1, such as 0.1".to_owned()),
    }
}

pub(super) fn rounds(text: &str) -> Result<u32, String> {
    whole(text, u64::from(MOST_ROUNDS), "rounds").and_then(narrow)
}

pub(super) fn seconds(text: &str) -> Result<u64, String> {
    whole(text, 31_536_000, "seconds, without a unit")
}

/// A whole number from 1 to `most`.
fn whole(text: &str, most: u64, what: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => Err(format!("give 1 to {most} {what}")),
    }
}

fn narrow(number: u64) -> Result<u32, String> {
    u32::try_from(number).map_err(|error| error.to_string())
}
