//! The known name a misspelt one probably meant.

use strsim::osa_distance;

/// Returns the nearest of `known`, if near enough.
pub fn nearest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Comparing a long text is slow, and no name is long.
    const LONGEST: usize = 64;
    if wrong.len() > LONGEST {
        return None;
    }
    let bound = (wrong.chars().count() / 3).max(1);
    known
        .map(|name| (osa_distance(wrong, name), name))
        .filter(|&(far, _)| far <= bound)
        .min()
        .map(|(_, name)| name)
}

/// Returns the nearest of `known` as the end of a message, or nothing.
pub fn meant<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest(wrong, known).map(|near| format!("; did you mean {near}?")).unwrap_or_default()
}

/// Returns the nearest of `known` as the end of a message, or else all of them.
pub fn meant_or_all(wrong: &str, known: &[&str]) -> String {
    match meant(wrong, known.iter().copied()) {
        near if near.is_empty() => format!(" (there are: {})", known.join(", ")),
        near => near,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_was_meant_or_nothing() {
        let known = ["iodepth", "ioengine", "rw", "runtime"];
        assert_eq!(nearest("iodpeth", known.into_iter()), Some("iodepth"));
        assert_eq!(nearest("run_time", known.into_iter()), Some("runtime"));
        // Neighbours that were swapped are one mistake.
        assert_eq!(nearest("wr", known.into_iter()), Some("rw"));
        assert_eq!(nearest("frobnicate", known.into_iter()), None);
        assert_eq!(nearest(&"x".repeat(1000), known.into_iter()), None);
    }
}
