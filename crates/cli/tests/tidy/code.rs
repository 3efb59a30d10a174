//! Rust text without its comments and strings, and the rules that need only that.

use std::collections::BTreeSet;

use regex::Regex;

use crate::tree::Tree;

/// A file up to its own tests, which stand at its end.
pub(crate) fn without_tests(text: &str) -> &str {
    text.find("#[cfg(test)]\nmod tests {").map_or(text, |at| &text[..at])
}

/// The same text, with a space for each byte of a comment or a literal. Lines stay lines.
pub(crate) fn bare(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => end_of_line(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                text[at..].find("*/").map_or(bytes.len(), |length| at + length + 2)
            }
            b'r' if is_raw(bytes, at) => end_of_raw(text, at),
            b'"' => end_of_string(bytes, at),
            b'\'' => end_of_char(bytes, at),
            _ => at,
        };
        out[at..end].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        at = end.max(at + 1);
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Each string literal of a file, with the number of the line that it begins on.
pub(crate) fn strings(text: &str) -> Vec<(usize, &str)> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => end_of_line(bytes, at),
            b'r' if is_raw(bytes, at) => end_of_raw(text, at),
            b'"' => end_of_string(bytes, at),
            b'\'' => end_of_char(bytes, at),
            _ => at,
        };
        if end > at + 1 && matches!(bytes[at], b'"' | b'r') {
            found.push((1 + text[..at].matches('\n').count(), &text[at..end]));
        }
        at = end.max(at + 1);
    }
    found
}

fn end_of_line(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| at + length)
}

fn is_raw(bytes: &[u8], at: usize) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let follows = bytes[at + 1..].iter().find(|byte| **byte != b'#');
    let starts = at == 0 || !is_word(&bytes[at - 1]) || bytes[at - 1] == b'b';
    starts && follows == Some(&b'"')
}

fn end_of_raw(text: &str, at: usize) -> usize {
    let hashes = text[at + 1..].bytes().take_while(|byte| *byte == b'#').count();
    let close = format!("\"{}", "#".repeat(hashes));
    let inside = at + hashes + 2;
    text[inside..].find(&close).map_or(text.len(), |length| inside + length + close.len())
}

fn end_of_string(bytes: &[u8], at: usize) -> usize {
    let mut next = at + 1;
    while next < bytes.len() && bytes[next] != b'"' {
        next += if bytes[next] == b'\\' { 2 } else { 1 };
    }
    (next + 1).min(bytes.len())
}

/// The end of a character literal; of a lifetime, only its quote mark.
fn end_of_char(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at + 1..).unwrap_or_default() {
        [b'\\', _, rest @ ..] => {
            let close = rest.iter().take(10).position(|byte| *byte == b'\'');
            close.map_or(at + 1, |length| at + length + 4)
        }
        [_, b'\'', ..] => at + 3,
        _ => at + 1,
    }
}

/// The section of ARCHITECTURE.md whose table names, first in each row, a crate that may contain
/// `unsafe`.
const ALLOWED: &str = "## Unsafe code\n";

/// Uses of `unsafe` in a crate that ARCHITECTURE.md does not name, and crates named without need.
pub(crate) fn misplaced_unsafe(tree: &Tree) -> Vec<String> {
    let Some((_, section)) = tree.text("ARCHITECTURE.md").split_once(ALLOWED) else {
        return vec![format!("ARCHITECTURE.md has no section {ALLOWED:?}")];
    };
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let allowed: BTreeSet<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    let mut used = BTreeSet::new();
    let mut findings = Vec::new();
    for (path, text) in tree.sources() {
        let name = crate::tree::group(path).trim_start_matches("crates/");
        let uses = bare(without_tests(text));
        for (number, line) in uses.lines().enumerate().filter(|(_, line)| is_unsafe(line)) {
            used.insert(name);
            if !allowed.contains(name) {
                findings.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    let idle = allowed.difference(&used).map(|name| format!("{name} is named and has none"));
    findings.extend(idle);
    findings
}

fn is_unsafe(line: &str) -> bool {
    let words: Vec<&str> = line
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|w| !w.is_empty())
        .collect();
    words.contains(&"unsafe") && !line.trim_start().starts_with("#!")
}

/// Subtractions from counts that only a debug build checks. Below zero a count would be a huge one,
/// and callers could wait for it for ever.
pub(crate) fn counts_checked_in_debug_builds_only(tree: &Tree) -> Vec<String> {
    let operand = Regex::new(r"debug_assert!\(\s*\*?([\w.\[\]]+)").expect("a pattern");
    let mut findings = Vec::new();
    for (path, text) in tree.sources() {
        let code = bare(without_tests(text));
        for found in operand.captures_iter(&code) {
            let (at, name) = (found.get(0).expect("the match").start(), &found[1]);
            let around =
                |lines: usize| code[at..].lines().take(lines).collect::<Vec<_>>().join(" ");
            let line = code[..at].matches('\n').count();
            let before = code.lines().skip(line.saturating_sub(2)).take(2).collect::<String>();
            let is_subtracted = around(6).contains(&format!("{name} -= "))
                || before.contains(&format!("let {name} = ")) && before.contains("fetch_sub");
            if is_subtracted {
                findings.push(format!("{path}:{}: {name}", line + 1));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_is_checked_in_debug_builds_only_is_found() {
        let found = |source: &str| {
            counts_checked_in_debug_builds_only(&Tree::of(&[("crates/x/src/a.rs", source)]))
        };
        for source in [
            "debug_assert!(self.all > 0, \"once\");\nself.all -= 1;",
            "debug_assert!(\n    *count >= by,\n    \"once\"\n);\n*count -= by;",
            "let was = self.all.fetch_sub(by, Ordering::Relaxed);\ndebug_assert!(was >= by);",
        ] {
            assert_eq!(found(source).len(), 1, "{source}");
        }
        for source in [
            "assert!(self.all > 0, \"once\");\nself.all -= 1;",
            "debug_assert!(self.other > 0);\nself.all -= 1;",
        ] {
            assert!(found(source).is_empty(), "{source}");
        }
    }

    #[test]
    fn comments_and_literals_are_blank_and_lines_stay() {
        let text = "let a = \"unsafe // x\"; // unsafe\nlet b = r#\"un\"safe\"#; let c = '\"';\nlet d = '\\'';";
        let bare = bare(text);
        assert!(!bare.contains("unsafe") && !bare.contains("safe"), "{bare}");
        assert_eq!(bare.lines().count(), 3);
        assert!(bare.contains("let c") && bare.contains("let d"), "{bare}");
        assert_eq!(strings(text).len(), 2);
    }

    #[test]
    fn unsafe_code_in_a_crate_that_is_not_named_is_found() {
        let page = "## Unsafe code\n\n| crate |\n|---|\n| `lists` | nodes |\n\n## More\n";
        let source = "fn f() {\n    unsafe { g() }\n}\n";
        let tree = Tree::of(&[("ARCHITECTURE.md", page), ("crates/cache/src/a.rs", source)]);
        let findings = misplaced_unsafe(&tree);
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].starts_with("crates/cache/src/a.rs:2"), "{findings:?}");
    }
}
