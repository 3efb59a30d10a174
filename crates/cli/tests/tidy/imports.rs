//! The largest import cycle of a crate: files that all reach each other by imports.
//!
//! A file imports the file that its path names, and through re-exports (`pub use`) the one that
//! defines the name. Paths without an import count, too, such as `child::function()` in the parent.
//! The crate's root is left out. It names every module, so it would join them all.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use crate::code::{bare, without_tests};
use crate::tree::Tree;

/// The files of the largest cycle of a crate, sorted; empty without a cycle.
pub(crate) fn largest_cycle(tree: &Tree, krate: &str) -> Vec<String> {
    let modules = modules(tree, krate);
    let edges = edges(&modules);
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        edges.keys().map(|module| (*module, reachable(module, &edges))).collect();
    let circle = |module: &&str| -> Vec<&str> {
        reach[*module].iter().filter(|other| reach[*other].contains(*module)).copied().collect()
    };
    let largest = reach.keys().map(circle).max_by_key(Vec::len);
    largest.unwrap_or_default().iter().map(|module| modules[*module].file.to_owned()).collect()
}

/// The layers of the engine's core, the highest first, with the files of each.
const LAYERS: &str = "crates/cli/tests/tidy/layers.toml";

/// Imports of the engine's core that go from a layer to a higher one, and files without a layer. A
/// file is in the layer of the longest part of its path that the list names.
pub(crate) fn upward(tree: &Tree) -> Vec<String> {
    let lists: BTreeMap<String, Vec<Vec<String>>> =
        toml::from_str(tree.text(LAYERS)).unwrap_or_else(|error| panic!("{LAYERS}: {error}"));
    let mut depths = BTreeMap::new();
    for (depth, files) in lists["layers"].iter().enumerate() {
        let module = |file: &String| format!("core::{}", file.replace('/', "::"));
        depths.extend(files.iter().map(|file| (module(file), depth)));
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
    let modules = modules(tree, "crates/forebay");
    let is_parent = |module: &str| modules.keys().any(|of| of.starts_with(&format!("{module}::")));
    let mut findings = Vec::new();
    for (module, imported) in edges(&modules).iter().filter(|(of, _)| of.starts_with("core::")) {
        let path = modules[*module].file;
        let Some(depth) = depth_of(module) else {
            // A module that only lists others has no layer of its own.
            if !(is_parent(module) && imported.is_empty()) {
                findings.push(format!("{path} is in no layer"));
            }
            continue;
        };
        let above = imported.iter().filter(|other| depth_of(other).is_some_and(|of| of < depth));
        findings.extend(above.map(|other| format!("{path} imports {}", modules[*other].file)));
    }
    findings
}

/// A file of a crate.
struct Module<'a> {
    file: &'a str,
    /// Paths that it names, from the root on.
    paths: Vec<Vec<String>>,
    /// Names that it imports, with their paths from the root on. Others may name them through it.
    names: BTreeMap<String, Vec<String>>,
}

type Modules<'a> = BTreeMap<String, Module<'a>>;

/// The files of a crate by their modules. The root's name is empty.
fn modules<'a>(tree: &'a Tree, krate: &str) -> Modules<'a> {
    let src = format!("{krate}/src/");
    let modules = tree.sources().filter_map(|(path, text)| {
        let name = module(path.strip_prefix(&src)?)?;
        Some((name.clone(), Module::new(&name, path, text)))
    });
    modules.collect()
}

/// The modules that each module imports from.
fn edges<'a>(modules: &'a Modules<'_>) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let but_root = modules.iter().filter(|(name, _)| !name.is_empty());
    let edges = but_root.map(|(name, module)| {
        let targets = module.paths.iter().flat_map(|path| resolve(path, modules));
        (name.as_str(), targets.filter(|target| target != name && !target.is_empty()).collect())
    });
    edges.collect()
}

/// Returns `a::b` for `a/b.rs` and `a/b/mod.rs`, and nothing for a file of tests.
fn module(path: &str) -> Option<String> {
    let path = path.strip_suffix(".rs")?;
    let path = path.strip_suffix("/mod").unwrap_or(path);
    match path {
        "lib" => Some(String::new()),
        path if path == "main" || path.ends_with("tests") => None,
        path => Some(path.replace('/', "::")),
    }
}

impl<'a> Module<'a> {
    fn new(name: &str, file: &'a str, text: &str) -> Self {
        let code = bare(without_tests(text));
        let uses = Regex::new(r"(?s)\buse\s+([^;]+);").expect("a pattern");
        let mut used = Vec::new();
        for one in uses.captures_iter(&code) {
            expand("", &one[1].split_whitespace().collect::<Vec<_>>().join(" "), &mut used);
        }
        let mut module = Self { file, paths: Vec::new(), names: BTreeMap::new() };
        for path in used {
            let (path, alias) = path.split_once(" as ").unwrap_or((&path, ""));
            let path = absolute(name, path.strip_suffix("::self").unwrap_or(path));
            let alias = Some(alias.to_owned()).filter(|alias| !alias.is_empty());
            if let Some(own) = alias.or_else(|| path.last().cloned()) {
                module.names.insert(own, path.clone());
            }
            module.paths.push(path);
        }
        let inline = Regex::new(r"\b\w+(?:::\w+)+").expect("a pattern");
        let code = uses.replace_all(&code, "");
        let found = inline.find_iter(&code).map(|found| absolute(name, found.as_str()));
        module.paths.extend(found);
        module
    }
}

/// Returns a path of a module as one from the root on. One that begins with neither `crate`, `self`
/// nor `super` is taken for that of a child, which it is unless it is of another crate.
fn absolute(module: &str, path: &str) -> Vec<String> {
    let mut base: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
    let mut parts = path.split("::").peekable();
    while let Some(step) = parts.next_if(|part| ["crate", "self", "super"].contains(part)) {
        match step {
            "crate" => base.clear(),
            "super" => drop(base.pop()),
            _ => {}
        }
    }
    base.into_iter().chain(parts).map(str::to_owned).collect()
}

/// The module that a path names, and those that its imports lead to.
fn resolve<'a>(path: &[String], modules: &'a Modules<'_>) -> Vec<&'a str> {
    let mut path = path.to_vec();
    let (mut named, mut followed) = (Vec::new(), BTreeSet::new());
    let longest = |path: &[String]| {
        let mut ends = (0..=path.len()).rev();
        ends.find_map(|end| Some((end, modules.get_key_value(&path[..end].join("::"))?)))
    };
    while let Some((end, (name, module))) = longest(&path) {
        named.push(name.as_str());
        let next = path.get(end).and_then(|next| module.names.get(next));
        let Some(import) = next.filter(|_| followed.insert((name, path[end].clone()))) else {
            break;
        };
        path = import.iter().chain(&path[end + 1..]).cloned().collect();
    }
    named
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
        None => paths.push(format!("{before}{tree}")),
    }
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
    fn a_cycle_through_names_that_others_export_is_found() {
        let cycle = |files: &[(&str, &str)]| {
            let files: Vec<_> = files.iter().map(|(path, text)| (*path, *text)).collect();
            largest_cycle(&Tree::of(&files), "crates/x")
        };
        let through_the_root = [
            ("crates/x/src/lib.rs", "mod a; mod b;\npub use a::A as Other;\npub use b::B;"),
            ("crates/x/src/a.rs", "use crate::B;"),
            ("crates/x/src/b.rs", "use crate::Other;"),
        ];
        assert_eq!(cycle(&through_the_root).len(), 2);
        let through_a_parent = [
            ("crates/x/src/p/mod.rs", "mod a; mod b;\npub(crate) use a::A;\nuse b::inner::{B};"),
            ("crates/x/src/p/a.rs", "use super::B;"),
            ("crates/x/src/p/b.rs", "pub(super) use crate::p::b::inner;"),
            ("crates/x/src/p/b/inner.rs", "fn f(_: super::super::A) {}"),
        ];
        let found = cycle(&through_a_parent);
        assert_eq!(
            found,
            ["mod.rs", "a.rs", "b/inner.rs"].map(|file| format!("crates/x/src/p/{file}"))
        );
        let of_a_child = [
            ("crates/x/src/p.rs", "mod child;\nfn f() { child::g() }"),
            ("crates/x/src/p/child.rs", "use super::f;"),
        ];
        assert_eq!(cycle(&of_a_child).len(), 2);
        let by_itself = [("crates/x/src/p.rs", "use crate::p::A;\nuse self::A as B;")];
        assert_eq!(cycle(&by_itself).len(), 0);
    }

    #[test]
    fn an_import_of_a_higher_layer_is_found() {
        let list = "layers = [['engine'], ['base', 'inode/space']]";
        let of = |source: &str| {
            let tree = Tree::of(&[
                (LAYERS, list),
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
        let other = [(LAYERS, list), ("crates/forebay/src/core/pool.rs", "")];
        let found = super::upward(&Tree::of(&other));
        assert_eq!(found, [format!("{path}/pool.rs is in no layer")]);
    }

    #[test]
    fn groups_are_expanded() {
        let mut paths = Vec::new();
        expand("", "a::{b, c::{d as e, self}}", &mut paths);
        assert_eq!(paths, ["a::b", "a::c::d as e", "a::c::self"]);
    }
}
