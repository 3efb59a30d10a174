//! Counts that may fall and never rise, per crate.

use std::collections::BTreeMap;

use crate::tree::{Tree, group};
use crate::{imports, interface, phrases};

/// The counts as they were last.
pub(crate) const FILE: &str = "crates/cli/tests/tidy/ratchet.toml";

/// Columns of a line of code or prose.
const WIDTH: usize = 100;

/// Lines of a file; only a table may be longer than the second.
const LONG: usize = 400;
const TOO_LONG: usize = 900;

/// By rule, by crate.
pub(crate) type Counts = BTreeMap<String, BTreeMap<String, usize>>;

/// Counts everything anew, and prints the largest import cycles and the public methods.
pub(crate) fn count(tree: &Tree) -> Counts {
    let mut counts = Counts::new();
    let mut add = |rule: &str, of: &str, more: usize| {
        *counts.entry(rule.to_owned()).or_default().entry(of.to_owned()).or_default() += more;
    };
    for (path, text) in tree.all() {
        let of = group(path);
        let is_rust = path.ends_with(".rs");
        // Measured output stands in its page as it was printed.
        let is_measured = path.starts_with("docs/measurements/") || path == "README.md";
        if is_rust || path.ends_with(".md") && !is_measured {
            let is_table = |line: &&str| line.trim_start().starts_with(['|', '<']) && !is_rust;
            let lines = text.lines().filter(|line| !is_table(line));
            add("wide_lines", of, lines.filter(|line| line.chars().count() > WIDTH).count());
            add("phrases", of, phrases::count(path, text));
        }
        if is_rust {
            let lines = text.lines().count();
            assert!(lines <= TOO_LONG, "{path} has {lines} lines; {TOO_LONG} are the most");
            add("long_files", of, usize::from(lines > LONG));
        }
    }
    let crates: Vec<String> =
        counts["long_files"].keys().filter(|of| of.starts_with("crates/")).cloned().collect();
    for of in crates {
        let same = same_names(tree, &of);
        println!("{of}: names of several files: {}", same.join(" "));
        counts.entry("same_names".to_owned()).or_default().insert(of.clone(), same.len());
        let cycle = imports::largest_cycle(tree, &of);
        println!("{of}: the largest import cycle has {} files: {}", cycle.len(), cycle.join(" "));
        counts.entry("largest_cycle".to_owned()).or_default().insert(of, cycle.len());
    }
    let methods = interface::methods(tree);
    for (of, names) in &methods {
        println!("{of}: {} public methods: {}", names.len(), names.join(" "));
    }
    let sum = methods.values().map(Vec::len).sum();
    counts
        .entry("public_methods".to_owned())
        .or_default()
        .insert(interface::LIBRARY.to_owned(), sum);
    counts
}

/// Names that several source files of a crate have, without those of modules and tests.
fn same_names<'a>(tree: &'a Tree, of: &str) -> Vec<&'a str> {
    let sources = format!("{of}/src/");
    let mut seen = BTreeMap::<&str, usize>::new();
    for path in tree.paths() {
        let name = path.rsplit('/').next().unwrap_or(path);
        let is_source = path.starts_with(&sources) && path.ends_with(".rs");
        if is_source && !path.contains("/tests/") && !["mod.rs", "tests.rs"].contains(&name) {
            *seen.entry(name).or_default() += 1;
        }
    }
    seen.into_iter().filter(|(_, files)| *files > 1).map(|(name, _)| name).collect()
}

/// Counts above those of the file, with the file's line; counts that have fallen are printed.
pub(crate) fn risen(file: &str, counts: &Counts) -> Vec<String> {
    let before: Counts = toml::from_str(file).unwrap_or_else(|error| panic!("{FILE}: {error}"));
    let mut findings = Vec::new();
    for (rule, of_crates) in counts {
        for (of, now) in of_crates {
            let before = before.get(rule).and_then(|of_rule| of_rule.get(of)).copied().unwrap_or(0);
            if *now > before {
                findings.push(format!("{rule} of {of}: {now}, and {before} in {FILE}"));
            } else if *now < before {
                println!("{rule} of {of} has fallen to {now}: put it into {FILE} for {before}");
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_two_files_is_found() {
        let paths = ["a/src/file.rs", "a/src/b/file.rs", "a/src/mod.rs", "a/src/b/mod.rs"];
        let more = ["a/src/lock.rs", "a/src/b/tests/lock.rs", "a/tests/lock.rs", "c/src/lock.rs"];
        let files: Vec<_> = paths.iter().chain(&more).map(|path| (*path, "")).collect();
        assert_eq!(same_names(&Tree::of(&files), "a"), ["file.rs"]);
    }

    #[test]
    fn a_count_that_rises_is_found_and_one_that_falls_is_not() {
        let of = |phrases| {
            let by_crate = BTreeMap::from([("crates/x".to_owned(), phrases)]);
            Counts::from([("phrases".to_owned(), by_crate)])
        };
        let file = "[phrases]\n\"crates/x\" = 3\n";
        assert_eq!(risen(file, &of(3)), Vec::<String>::new());
        assert_eq!(risen(file, &of(2)), Vec::<String>::new());
        assert_eq!(risen(file, &of(4)).len(), 1);
    }
}
