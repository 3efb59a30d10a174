//! The knobs of the queue, for those who take them from a user: the names there are, and whether a
//! value is one.

use forebay_block::Knobs;

pub const NAMES: [&str; Knobs::NAMES.len()] = Knobs::NAMES;

/// Refuses a value that a knob does not take, and says what would do.
pub fn check(name: &str, value: &str) -> Result<(), String> {
    set(&mut Knobs::default(), name, value)
}

/// Sets a knob; else what would do.
pub(crate) fn set(knobs: &mut Knobs, name: &str, value: &str) -> Result<(), String> {
    match knobs.set(name, value) {
        Some(Ok(())) => Ok(()),
        Some(Err(unknown)) => Err(format!("allowed: {}", unknown.choices)),
        None => Err(format!("no knob `{name}` (there are: {})", NAMES.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_looked_at() {
        assert_eq!(check("plug", "always"), Ok(()));
        assert_eq!(
            check("plug", "often").unwrap_err(),
            "allowed: never, always, adaptive, above-two"
        );
        assert!(
            check("flight", "8").unwrap_err().starts_with("no knob `flight` (there are: plug,")
        );
    }
}
