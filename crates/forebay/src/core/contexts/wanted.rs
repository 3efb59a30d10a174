//! The knob `contexts`: how many contexts there are.

use crate::core::limits::CONTEXTS;

/// How many writeback contexts share the files (knob `contexts`).
///
/// A context is one thread with its own ring. Each file belongs to one context at a time. The
/// default is 1.
///
/// ```
/// # fn main() -> forebay::Result<()> {
/// use forebay::policy::Contexts;
///
/// let engine = forebay::Engine::builder().contexts(Contexts::Number(3)).build()?;
/// assert_eq!(engine.stats().contexts, 3);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// Uses the default, because the number no longer changes by itself.
    #[deprecated(note = "use `Contexts::default()`; the number no longer changes by itself")]
    Auto,
    /// Uses this many, from 1 to 64.
    Number(usize),
}

impl Default for Wanted {
    fn default() -> Self {
        Self::Number(USUAL)
    }
}

impl Wanted {
    /// Returns the number. Warns about a deprecated value.
    pub(crate) fn number(self) -> usize {
        #[expect(deprecated, reason = "the former value is accepted for one release")]
        match self {
            Self::Auto => former_auto(),
            Self::Number(number) => number,
        }
    }
}

/// Values of the knob, as text for people.
pub(crate) const CHOICES: &str = "a number from 1 to 64";

/// Number of contexts of an engine that does not set it.
pub(crate) const USUAL: usize = 1;

/// Reads the knob.
pub(crate) fn by_name(value: &str) -> Option<usize> {
    value.parse().ok().filter(|number| (1..=CONTEXTS).contains(number))
}

/// Returns the number that the former value `auto` stands for, and warns.
pub(crate) fn former_auto() -> usize {
    tracing::warn!("contexts=auto no longer changes the number; it is {USUAL}");
    USUAL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_18_a_number_of_contexts_is_read_within_its_bounds() {
        assert_eq!(by_name("1"), Some(1));
        assert_eq!(by_name("64"), Some(CONTEXTS));
        for value in ["0", "65", "10000", "", "-1", "all", "auto", "1.5", "99999999999999999999"] {
            assert_eq!(by_name(value), None, "{value}");
        }
        assert!(CHOICES.contains(&CONTEXTS.to_string()));
    }

    #[test]
    fn the_former_value_is_the_default() {
        #[expect(deprecated, reason = "the former value is accepted for one release")]
        let former = Wanted::Auto;
        assert_eq!(former.number(), Wanted::default().number());
    }
}
