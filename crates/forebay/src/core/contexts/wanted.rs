//! The knob `contexts`: how many contexts there should be.

use crate::core::limits::CONTEXTS;

/// How many writeback contexts share the files (knob `contexts`).
///
/// A context is one thread with its own ring. Each file belongs to one context at a time.
///
/// ```
/// # fn main() -> forebay::Result<()> {
/// use forebay::policy::Contexts;
///
/// let engine = forebay::Engine::builder().contexts(Contexts::Number(2)).build()?;
/// assert_eq!(engine.stats().contexts, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wanted {
    /// Starts with one, and changes the number as long as that raises the throughput.
    #[default]
    Auto,
    /// Uses this many, from 1 to 64.
    Number(usize),
}

impl Wanted {
    /// Values of the knob, as text for people.
    pub(crate) const CHOICES: &str = "auto, or a number from 1 to 64";

    /// Reads the knob.
    pub(crate) fn by_name(value: &str) -> Option<Self> {
        if value == "auto" {
            return Some(Self::Auto);
        }
        let number: usize = value.parse().ok()?;
        (1..=CONTEXTS).contains(&number).then_some(Self::Number(number))
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => formatter.write_str("auto"),
            Self::Number(number) => number.fmt(formatter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_contexts_is_read() {
        assert_eq!(Wanted::by_name("auto"), Some(Wanted::Auto));
        assert_eq!(Wanted::by_name("1"), Some(Wanted::Number(1)));
        assert_eq!(Wanted::by_name("64"), Some(Wanted::Number(CONTEXTS)));
        for value in ["0", "65", "10000", "", "-1", "all", "1.5", "99999999999999999999"] {
            assert_eq!(Wanted::by_name(value), None, "{value}");
        }
        assert!(Wanted::CHOICES.contains(&CONTEXTS.to_string()));
        assert_eq!(Wanted::by_name(&Wanted::Number(7).to_string()), Some(Wanted::Number(7)));
        assert_eq!(Wanted::by_name(&Wanted::Auto.to_string()), Some(Wanted::Auto));
    }
}
