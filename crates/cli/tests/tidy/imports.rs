//! The largest import cycle of a crate: files that all reach each other by imports.
//!
//! The crate's root is left out. It names every module, so it would join them all.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use crate::code::{bare, without_tests};
use crate::tree::Tree;

/// The files of the largest cycle of a crate, sorted; empty without a cycle.
pub(crate) fn largest_cycle(tree: &Tree, krate: &str) -> Vec<String> {
    let src = format!("{krate}/src/");
    let files: BTreeMap<String, (&str, &str)> = tree
        .sources()
        .filter_map(|(path, text)| Some((module(path.strip_prefix(&src)?)?, (path, text))))
        .collect();
    let edges: BTreeMap<&str, BTreeSet<&str>> = files
        .iter()
        .map(|(module, (_, text))| (module.as_str(), imports(module, text, &files)))
        .collect();
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        edges.keys().map(|module| (*module, reachable(module, &edges))).collect();
    let circle = |module: &&str| -> Vec<&str> {
        reach[*module].iter().filter(|other| reach[*other].contains(*module)).copied().collect()
    };
    let largest = reach.keys().map(circle).max_by_key(Vec::len);
    largest.unwrap_or_default().iter().map(|module| files[*module].0.to_owned()).collect()
}

/// Returns `a::b` for `a/b.rs` and `a/b/mod.rs`, and nothing for a root or a file of tests.
fn module(path: &str) -> Option<String> {
    let path = path.strip_suffix(".rs")?;
    let path = path.strip_suffix("/mod").unwrap_or(path);
    let is_left_out = ["lib", "main"].contains(&path) || path.ends_with("tests");
    (!is_left_out).then(|| path.replace('/', "::"))
}

fn imports<'a>(
    module: &str,
    text: &str,
    files: &'a BTreeMap<String, (&str, &str)>,
) -> BTreeSet<&'a str> {
    let code = bare(without_tests(text));
    let mut paths = Vec::new();
    let uses = Regex::new(r"(?s)\buse\s+([^;]+);").expect("a pattern");
    for one in uses.captures_iter(&code) {
        expand("", &one[1].split_whitespace().collect::<Vec<_>>().join(" "), &mut paths);
    }
    let inline = Regex::new(r"\b(?:crate|super|self)(?:::\w+)+").expect("a pattern");
    paths.extend(inline.find_iter(&code).map(|found| found.as_str().to_owned()));
    let targets = paths.iter().filter_map(|path| resolve(module, path, files));
    targets.filter(|target| *target != module).collect()
}

/// `a::{b, c::{d, e}}` is `a::b`, `a::c::d`, `a::c::e`.
fn expand(before: &str, tree: &str, paths: &mut Vec<String>) {
    let tree = tree.trim();
    match tree.split_once('{') {
        Some((head, rest)) => {
            let inside = rest.rsplit_once('}').map_or(rest, |(inside, _)| inside);
            let (mut depth, mut start) = (0, 0);
            let head = format!("{before}{}", head.trim());
            for (at, letter) in inside.char_indices() {
                match letter {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    ',' if depth == 0 => {
                        expand(&head, &inside[start..at], paths);
                        start = at + 1;
                    }
                    _ => {}
                }
            }
            expand(&head, &inside[start..], paths);
        }
        None if tree.is_empty() => {}
        None => paths.push(format!("{before}{}", tree.split(" as ").next().unwrap_or(tree))),
    }
}

/// The longest part of a path that is a module with a file.
fn resolve<'a>(
    module: &str,
    path: &str,
    files: &'a BTreeMap<String, (&str, &str)>,
) -> Option<&'a str> {
    let mut base: Vec<&str> = module.split("::").collect();
    let mut parts: Vec<&str> = path.split("::").collect();
    match parts[0] {
        "crate" => base.clear(),
        "self" => {}
        "super" => {
            while parts.first() == Some(&"super") {
                base.pop();
                parts.remove(0);
            }
            parts.insert(0, "super");
        }
        // A child of this module, or another crate without a file here.
        _ => parts.insert(0, "self"),
    }
    base.extend(&parts[1..]);
    while !base.is_empty() {
        if let Some((found, _)) = files.get_key_value(&base.join("::")) {
            return Some(found);
        }
        base.pop();
    }
    None
}

fn reachable<'a>(from: &str, edges: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut left: Vec<&str> = edges[from].iter().copied().collect();
    while let Some(next) = left.pop() {
        if found.insert(next) {
            left.extend(&edges[next]);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_of_three_is_found_and_a_chain_is_none() {
        let tree = Tree::of(&[
            ("crates/x/src/lib.rs", "mod a; mod b; mod c; mod d;"),
            ("crates/x/src/a.rs", "use crate::{b::B, d};"),
            ("crates/x/src/b.rs", "mod inner;\npub use inner::B;"),
            ("crates/x/src/b/inner.rs", "fn f() { crate::a::g() }\n// crate::d"),
            ("crates/x/src/d.rs", "use std::fmt;"),
        ]);
        let cycle = largest_cycle(&tree, "crates/x");
        let files = ["a.rs", "b.rs", "b/inner.rs"].map(|file| format!("crates/x/src/{file}"));
        assert_eq!(cycle, files);
    }

    #[test]
    fn groups_are_expanded() {
        let mut paths = Vec::new();
        expand("", "a::{b, c::{d as e, self}}", &mut paths);
        assert_eq!(paths, ["a::b", "a::c::d", "a::c::self"]);
    }
}
