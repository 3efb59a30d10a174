//! The files of the project, as git lists them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every text file that is tracked, or new and not ignored, by its path from the top.
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// Reads the checkout that this test was built from.
    pub(crate) fn load() -> Self {
        let top = top();
        let listed = Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard"])
            .current_dir(&top)
            .output()
            .expect("git lists the files of a checkout");
        assert!(listed.status.success(), "git ls-files failed: {listed:?}");
        let listed = String::from_utf8(listed.stdout).expect("paths here are UTF-8");
        let read = |path: &str| Some((path.to_owned(), fs::read_to_string(top.join(path)).ok()?));
        Self { files: listed.lines().filter_map(read).collect() }
    }

    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        Self { files: files.iter().map(owned).collect() }
    }

    /// Every path.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// The text of a file that must exist.
    pub(crate) fn text(&self, path: &str) -> &str {
        self.files.get(path).unwrap_or_else(|| panic!("{path} does not exist"))
    }

    /// Whether there is a file or a directory of this path.
    pub(crate) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let inside = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self.paths().any(|file| file.starts_with(&inside))
    }

    /// Whether a path, as a page names it, ends the path of a file or directory here.
    pub(crate) fn has_ending(&self, path: &str) -> bool {
        let (ending, inside) = (format!("/{path}"), format!("/{path}/"));
        self.has(path) || self.paths().any(|file| file.ends_with(&ending) || file.contains(&inside))
    }

    /// Every page of prose.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (&str, &str)> {
        self.all().filter(|(path, _)| path.ends_with(".md"))
    }

    /// Every Rust file that ships, without tests, examples and benchmarks.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        self.all().filter(|(path, _)| path.ends_with(".rs") && path.contains("/src/"))
    }

    /// Every file with its text.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The crate that a path is of, such as `crates/cache`; else its first part.
pub(crate) fn group(path: &str) -> &str {
    let parts = if path.starts_with("crates/") { 2 } else { 1 };
    let end = path.match_indices('/').nth(parts - 1).map_or(path.len(), |(at, _)| at);
    &path[..end]
}
