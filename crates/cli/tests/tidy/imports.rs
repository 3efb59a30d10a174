//! The largest import cycle of a crate: files that all reach each other by imports.
//!
//! The crate's root is left out. It names every module, so it would join them all.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use crate::code::{bare, without_tests};
use crate::tree::Tree;

/// The files of the largest cycle of a crate, sorted; empty without a cycle.
pub(crate) fn largest_cycle(tree: &Tree, krate: &str) -> Vec<String> {
    let files = files(tree, krate);
    let edges = edges(&files);
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        edges.keys().map(|module| (*module, reachable(module, &edges))).collect();
    let circle = |module: &&str| -> Vec<&str> {
        reach[*module].iter().filter(|other| reach[*other].contains(*module)).copied().collect()
    };
    let largest = reach.keys().map(circle).max_by_key(Vec::len);
    largest.unwrap_or_default().iter().map(|module| files[*module].0.to_owned()).collect()
}

/// The section of ARCHITECTURE.md whose table has the layers of the engine, the highest first, with
/// the files of each in the second column.
const LAYERS: &str = "## The layers of `forebay`\n";

/// Imports of the engine's core that go from a layer to a higher one, and files without a layer. A
/// file is in the layer of the longest part of its path that the table names.
pub(crate) fn upward(tree: &Tree) -> Vec<String> {
    let Some((_, section)) = tree.text("ARCHITECTURE.md").split_once(LAYERS) else {
        return vec![format!("ARCHITECTURE.md has no section {LAYERS:?}")];
    };
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    let mut depths = BTreeMap::new();
    for (depth, row) in rows.enumerate() {
        let cell = row.split('|').nth(2).unwrap_or_default();
        let names = cell.split('`').skip(1).step_by(2);
        depths.extend(names.map(|name| (format!("core::{}", name.replace('/', "::")), depth)));
    }
    let depth_of = |module: &str| {
        let mut part = module;
        loop {
            match (depths.get(part), part.rsplit_once("::")) {
                (Some(depth), _) => return Some(*depth),
                (None, Some((parent, _))) => part = parent,
                (None, None) => return None,
            }
        }
    };
    let files = files(tree, "crates/forebay");
    let is_parent = |module: &str| files.keys().any(|of| of.starts_with(&format!("{module}::")));
    let mut findings = Vec::new();
    for (module, imported) in edges(&files).iter().filter(|(of, _)| of.starts_with("core::")) {
        let path = files[*module].0;
        let Some(depth) = depth_of(module) else {
            // A module that only lists others has no layer of its own.
            if !(is_parent(module) && imported.is_empty()) {
                findings.push(format!("{path} is in no layer"));
            }
            continue;
        };
        let above = imported.iter().filter(|other| depth_of(other).is_some_and(|of| of < depth));
        findings.extend(above.map(|other| format!("{path} imports {}", files[*other].0)));
    }
    findings
}

/// The files of a crate by their modules, each with its path and its text.
fn files<'a>(tree: &'a Tree, krate: &str) -> BTreeMap<String, (&'a str, &'a str)> {
    let src = format!("{krate}/src/");
    let files = tree
        .sources()
        .filter_map(|(path, text)| Some((module(path.strip_prefix(&src)?)?, (path, text))));
    files.collect()
}

fn edges<'a>(files: &'a BTreeMap<String, (&str, &str)>) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let edges = files.iter();
    edges.map(|(module, (_, text))| (module.as_str(), imports(module, text, files))).collect()
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
pub(crate) fn expand(before: &str, tree: &str, paths: &mut Vec<String>) {
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
    fn an_import_of_a_higher_layer_is_found() {
        let page = "## The layers of `forebay`\n\n| layer | files |\n|---|---|\n\
            | top | `engine` | x |\n| low | `base`, `inode/space` | `engine` |\n\n## More\n";
        let of = |source: &str| {
            let tree = Tree::of(&[
                ("ARCHITECTURE.md", page),
                ("crates/forebay/src/core/mod.rs", "mod base;"),
                ("crates/forebay/src/core/engine.rs", "use crate::core::base::Base;"),
                ("crates/forebay/src/core/base.rs", source),
                ("crates/forebay/src/core/inode/space/more.rs", "use crate::core::base::Base;"),
            ]);
            upward(&tree)
        };
        assert!(of("use std::sync::Arc;").is_empty());
        let path = "crates/forebay/src/core";
        let upward = format!("{path}/base.rs imports {path}/engine.rs");
        assert_eq!(of("use crate::core::engine::Engine;"), [upward]);
        let other = [("ARCHITECTURE.md", page), ("crates/forebay/src/core/pool.rs", "")];
        let found = super::upward(&Tree::of(&other));
        assert_eq!(found, [format!("{path}/pool.rs is in no layer")]);
    }

    #[test]
    fn groups_are_expanded() {
        let mut paths = Vec::new();
        expand("", "a::{b, c::{d as e, self}}", &mut paths);
        assert_eq!(paths, ["a::b", "a::c::d", "a::c::self"]);
    }
}
