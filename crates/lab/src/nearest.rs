//! The known name a misspelt one probably meant.

/// The nearest of `known`, if it is near enough to be meant.
#[must_use]
pub fn nearest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Whoever types a novel meant none of them, and comparing it is slow.
    const LONGEST: usize = 64;
    if wrong.len() > LONGEST {
        return None;
    }
    let bound = (wrong.chars().count() / 3).max(1);
    known
        .map(|name| (distance(wrong, name), name))
        .filter(|&(far, _)| far <= bound)
        .min()
        .map(|(_, name)| name)
}

/// How many letters have to be added, dropped, changed or swapped with their neighbour.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<_>, Vec<_>) = (one.chars().collect(), other.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (row, &letter) in one.iter().enumerate() {
        let mut now = vec![row + 1];
        for (column, &against) in other.iter().enumerate() {
            let changed = last[column] + usize::from(letter != against);
            let mut least = changed.min(last[column + 1] + 1).min(now[column] + 1);
            let swapped =
                row > 0 && column > 0 && letter == other[column - 1] && one[row - 1] == against;
            if swapped {
                least = least.min(before[column - 1] + 1);
            }
            now.push(least);
        }
        before = std::mem::replace(&mut last, now);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (one, other, far) in [
            ("", "abc", 3),
            ("bs", "bs", 0),
            ("iodpeth", "iodepth", 1),
            ("size", "sized", 1),
            ("rw", "wr", 1),
        ] {
            assert_eq!(distance(one, other), far, "{one} {other}");
            assert_eq!(distance(other, one), far, "{other} {one}");
        }
    }

    #[test]
    fn names_what_was_meant_or_nothing() {
        let known = ["iodepth", "ioengine", "rw", "runtime"];
        assert_eq!(nearest("iodpeth", known.into_iter()), Some("iodepth"));
        assert_eq!(nearest("run_time", known.into_iter()), Some("runtime"));
        assert_eq!(nearest("frobnicate", known.into_iter()), None);
        assert_eq!(nearest(&"x".repeat(1000), known.into_iter()), None);
    }
}
