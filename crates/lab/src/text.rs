//! Text of a given width, and numbers with their nouns.

use std::time::Duration;

/// Breaks a paragraph at its spaces into lines of at most `width` characters, unless one word is
/// longer. Double spaces stay.
pub fn folded_to(width: usize, paragraph: &str) -> Vec<String> {
    let lines = broken(paragraph.split([' ', '\n', '\r']), width);
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// Breaks words into lines of at most `width` letters, unless one word is longer.
pub(crate) fn broken<'a>(words: impl Iterator<Item = &'a str>, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in words {
        let line = lines.last_mut().expect("there is one from the start");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// Puts one text at each end of a line, or each on a line of its own.
pub(crate) fn ends(left: &str, right: String, width: usize) -> Vec<String> {
    match width.checked_sub(left.chars().count() + right.chars().count()) {
        Some(space) if space > 1 => vec![format!("{left}{}{right}", " ".repeat(space))],
        _ => folded_to(width, left).into_iter().chain([right]).collect(),
    }
}

/// Shortens a name of more than `most` letters to its two ends: names differ at the end.
pub(crate) fn shortened(name: &str, most: usize, end: usize) -> String {
    assert!(end + 2 < most, "a shortened name has a start, two dots and an end");
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= most {
        return name.to_owned();
    }
    let start = &letters[..most - end - 2];
    start.iter().chain(&['.', '.']).chain(&letters[letters.len() - end..]).collect()
}

/// Returns a number with its noun, in the plural unless it is 1.
pub fn counted(number: u64, noun: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{ending}")
}

/// Returns a duration in seconds, minutes or hours.
pub fn spoken(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..100 => format!("{} s", seconds.max(1)),
        seconds @ 100..6000 => format!("{} min", (seconds + 30) / 60),
        seconds => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_no_wider_than_asked_for() {
        let text = "a paragraph of several words that does not fit";
        assert!(folded_to(12, text).iter().all(|line| line.len() <= 12));
        assert_eq!(ends("left", "right".into(), 12), ["left   right"]);
        assert_eq!(ends("a long left", "right".into(), 12), ["a long left", "right"]);
        assert_eq!(shortened("job-with-a-long-name.3", 12, 4), "job-wi..me.3");
    }

    #[test]
    fn numbers_have_their_nouns() {
        assert_eq!((counted(1, "run"), counted(2, "run")), ("1 run".into(), "2 runs".into()));
        let seconds = [0, 99, 150, 7200].map(Duration::from_secs);
        assert_eq!(seconds.map(spoken), ["1 s", "99 s", "3 min", "2.0 h"]);
    }
}
