//! The public methods of the library, which a user has to read.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use crate::code::{bare, without_tests};
use crate::tree::Tree;

/// Directory of the library.
pub(crate) const LIBRARY: &str = "crates/forebay";

/// The public methods of each type that the library exports at its root, in inherent blocks.
pub(crate) fn methods(tree: &Tree) -> BTreeMap<String, Vec<String>> {
    let root = format!("{LIBRARY}/src/lib.rs");
    let exported = exported(&bare(tree.text(&root)));
    let sources = tree.sources().filter(|(path, _)| path.starts_with(&format!("{LIBRARY}/src/")));
    let mut methods: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (_, text) in sources {
        for (of, name) in in_blocks(&bare(without_tests(text))) {
            if exported.contains(&of) {
                methods.entry(of).or_default().push(name);
            }
        }
    }
    methods
}

/// The names that the `pub use` lines of a root end in.
fn exported(root: &str) -> BTreeSet<String> {
    let line = Regex::new(r"(?m)^pub use ([^;]+);").unwrap();
    let name = Regex::new(r"(\w+)\s*(?:,|\}|$)").unwrap();
    let lines = line.captures_iter(root).map(|found| found.get(1).unwrap().as_str());
    let names = lines.flat_map(|line| name.captures_iter(line).map(|found| found[1].to_owned()));
    names.collect()
}

/// Each public method of an inherent block, with the type.
fn in_blocks(source: &str) -> Vec<(String, String)> {
    let block = Regex::new(r"^impl(?:<.*>)? (?:\w+::)*(\w+)").unwrap();
    let method = Regex::new(r"^    pub (?:const |async |unsafe )*fn (\w+)").unwrap();
    let (mut of, mut found) = (None, Vec::new());
    for line in source.lines() {
        if line.starts_with("impl") {
            let is_inherent = !line.contains(" for ");
            of = block.captures(line).filter(|_| is_inherent).map(|found| found[1].to_owned());
        } else if let (Some(of), Some(name)) = (&of, method.captures(line)) {
            found.push((of.clone(), name[1].to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_of_exported_types_are_found_and_no_others() {
        let root = "pub use crate::core::file::File;\npub use a::{b::Cursor,\n    self, Engine};\n";
        assert_eq!(exported(root), ["Cursor", "Engine", "File", "self"].map(str::to_owned).into());
        let source = "impl<F: Borrow<File>> Cursor<F> {\n    pub fn new() {}\n    fn own() {}\n}\n\
                      impl Drop for File {\n    fn drop(&mut self) {}\n}\n\
                      impl crate::File {\n    pub async fn sync(self) {}\n    \
                      pub(crate) fn no() {}\n}\n";
        let found = [("Cursor", "new"), ("File", "sync")];
        assert_eq!(in_blocks(source), found.map(|(of, name)| (of.to_owned(), name.to_owned())));
    }
}
