//! Phrases that this project does not use, because a newcomer stops at them.
//!
//! A hit in a comment is a place to look; what a user reads has none.

use std::sync::LazyLock;

use regex::Regex;

use crate::code;

/// The banned phrases: each with the words to use.
const BANNED: [(&str, &str); 11] = [
    (
        r"(?:\b(?:of|for|from|with|than|to|on|in|as|and|but|by|at)|[:;,]) what (?:is|was|are|were|has|had|it|they|one|somebody|nobody|may|must|can|goes|came|comes|ends|cannot)\b",
        "name the thing",
    ),
    (
        r"(?:^|[.:;] )(?:What|Who|Whoever|Whom|Whose|Which|Whatever)\b[^?]*$",
        "begin with a noun, or ask a question",
    ),
    (r"\b[Ww](?:hoever|homever|hatever|hichever)\b", "name the actor"),
    (r"\bso (?:many|much)\b(?: [^at]|$|[.,;])", "say N"),
    (
        r"\b(?:is|are|was|were|be|been|has|to) told\b|\btells? (?:of|nobody|everybody|whether|which|how|what|it)\b",
        "reports, returns, prints",
    ),
    (r"\b(?:of|by|for|in|on|with) (?:which|whom|whose)\b", "split the sentence"),
    (r"\b(?:is|are|was|were) none\b", "no X"),
    (r"\b(?:is|be|are|was) meant\b", "say what it does"),
    (r"\b(?:that which|those (?:do|are|were) that|one's own|is one with)\b", "name the thing"),
    (r"\bwho (?:waits|asks|has|writes|reads|wants|pushes|is|was|comes|came|made)\b", "the caller"),
    (
        r"(?:^|[,;] )where (?:it|that|one|they|there|nobody|somebody) (?:is|are|was|has|can|may|does)\b",
        "if",
    ),
];

static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let compile = |(pattern, advice): (&str, &'static str)| {
        (Regex::new(pattern).expect("a banned phrase is a pattern"), advice)
    };
    BANNED.map(compile).into()
});

fn banned(text: &str) -> impl Iterator<Item = &'static str> {
    PATTERNS.iter().filter(move |(pattern, _)| pattern.is_match(text)).map(|(_, advice)| *advice)
}

fn findings<'a>(
    place: &str,
    lines: impl Iterator<Item = (usize, &'a str)>,
) -> impl Iterator<Item = String> {
    lines.flat_map(move |(number, line)| {
        let reported = move |advice| format!("{place}:{number}: {} ({advice})", line.trim());
        banned(line).map(reported).collect::<Vec<_>>()
    })
}

/// Hits in a page or an output.
pub(crate) fn in_lines(place: &str, text: &str) -> Vec<String> {
    findings(place, (1..).zip(text.lines())).collect()
}

/// Whether the strings of a source file are read by users.
pub(crate) fn is_seen_by_users(path: &str) -> bool {
    ["crates/cli/src/", "crates/lab/src/", "crates/forebay/src/"]
        .iter()
        .any(|start| path.starts_with(start))
        && !path.ends_with("tests.rs")
}

/// Hits in strings that are sentences: errors, help, notes.
pub(crate) fn in_strings(path: &str, text: &str) -> Vec<String> {
    let found = code::strings(code::without_tests(text));
    let sentences = found.into_iter().filter(|(_, text)| text.len() > 13 && text.contains(' '));
    let inside = sentences.map(|(number, text)| (number, text.trim_matches('"')));
    findings(path, inside).collect()
}

/// Hits in the documentation of public items, and of a crate or module as a whole.
pub(crate) fn in_public_docs(path: &str, text: &str) -> Vec<String> {
    let lines: Vec<&str> = code::without_tests(text).lines().map(str::trim).collect();
    let mut found = Vec::new();
    let mut block: Vec<(usize, &str)> = Vec::new();
    for (number, line) in (1..).zip(&lines) {
        if let Some(doc) = line.strip_prefix("///") {
            block.push((number, doc.trim()));
        } else if !line.starts_with("#[") && !block.is_empty() {
            if line.starts_with("pub ") {
                found.append(&mut block);
            }
            block.clear();
        }
        if path.ends_with("/lib.rs")
            && let Some(doc) = line.strip_prefix("//!")
        {
            found.push((number, doc.trim()));
        }
    }
    findings(path, found.into_iter()).collect()
}

/// How many hits the comments and sentences of a file have.
pub(crate) fn count(path: &str, text: &str) -> usize {
    if !path.ends_with(".rs") {
        return in_lines(path, text).len();
    }
    let comments = text.lines().filter_map(|line| {
        line.trim_start().strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']).trim())
    });
    comments.map(|line| banned(line).count()).sum::<usize>() + in_strings(path, text).len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idiom_is_found_and_plain_english_is_not() {
        for idiom in [
            "What is dirty goes",
            "it is told of that",
            "2 it cannot be meant or done here",
            "The file has so many pages.",
            "a page of which some is here",
        ] {
            assert!(banned(idiom).next().is_some(), "{idiom}");
        }
        for plain in [
            "The context writes dirty pages.",
            "What does batching cost?",
            "so much that",
            "N pages",
        ] {
            assert_eq!(banned(plain).next(), None, "{plain}");
        }
    }

    #[test]
    fn only_the_documentation_of_public_items_counts_as_public() {
        let text = "/// What is dirty.\npub fn a() {}\n/// What is clean.\npub(crate) fn b() {}\n";
        assert_eq!(in_public_docs("crates/forebay/src/x.rs", text).len(), 1);
    }
}
