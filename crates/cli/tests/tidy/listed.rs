//! Whether `docs/README.md` lists every page once. `tools/site` makes the site from this list.

use crate::tree::Tree;

/// The list of the pages.
const INDEX: &str = "docs/README.md";

/// Pages of the top and of `docs` that the list lacks, or has twice. A link to a directory, or to
/// the page of a directory, lists all pages in it.
pub(crate) fn wrongly(tree: &Tree) -> Vec<String> {
    let index = tree.text(INDEX);
    let links = |path: &str| {
        let path = path.strip_prefix("docs/").map_or(format!("../{path}"), str::to_owned);
        index.matches(&format!("]({path})")).count()
    };
    let has_list = |path: &str| {
        let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
        directory.len() > "docs".len()
            && links(directory) + links(&format!("{directory}/README.md")) > 0
    };
    let is_page = |path: &&str| !path.contains('/') || path.starts_with("docs/");
    let pages = tree.pages().map(|(path, _)| path).filter(is_page).filter(|path| *path != INDEX);
    let wrong = |path: &&str| match links(path) {
        0 => !has_list(path),
        number => number > 1,
    };
    pages.filter(wrong).map(|path| format!("{INDEX} does not list {path} once")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_the_list_lacks_or_has_twice_is_found() {
        let found = |index: &str| {
            let pages =
                ["README.md", "docs/a.md", "docs/d/1.md", "docs/e/README.md", "docs/e/2.md"];
            let mut files: Vec<(&str, &str)> = pages.iter().map(|path| (*path, "")).collect();
            files.push((INDEX, index));
            files.push(("crates/a/README.md", ""));
            wrongly(&Tree::of(&files)).len()
        };
        assert_eq!(found("[](../README.md) [](a.md) [](d) [](e/README.md)"), 0);
        assert_eq!(found("[](../README.md) [](a.md) [](d) [](e/README.md) [](e/2.md)"), 0);
        assert_eq!(found("[](a.md) [](a.md) [](d) [](e/README.md)"), 2);
        assert_eq!(found("[](../README.md) [](a.md)"), 3);
    }
}
