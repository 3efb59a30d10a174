//! The numbers of docs/how-it-is-tested.md, counted in the tree.

use std::path::Path;

use regex::Regex;

use crate::code::{bare, without_tests};
use crate::tree::Tree;

/// The page with a row for each count.
const PAGE: &str = "docs/how-it-is-tested.md";

/// Rows of the page that have another number than the tree, or are missing.
pub(crate) fn wrong(tree: &Tree) -> Vec<String> {
    let page = tree.text(PAGE);
    let differs = |(what, count): &(&str, usize)| {
        let row = format!("| {what} | {} |", written(*count));
        (!page.contains(&row)).then(|| format!("{PAGE} lacks the row {row}"))
    };
    counts(tree).iter().filter_map(differs).collect()
}

/// Fuzz targets without an input that is kept, and without a test that runs the inputs.
pub(crate) fn unkept_targets(tree: &Tree) -> Vec<String> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let names = tree.paths().filter_map(target).map(str::to_owned).collect::<Vec<_>>();
    let has_input = |name: &str| {
        std::fs::read_dir(corpus.join(name)).is_ok_and(|mut inputs| inputs.next().is_some())
    };
    let has_test = |name: &str| {
        let (of_path, of_name) = (format!("fuzz/corpus/{name}\")"), format!("replay(\"{name}\","));
        let mut crates = tree.all().filter(|(path, _)| is_of_a_crate(path));
        crates.any(|(_, text)| text.contains(&of_path) || text.contains(&of_name))
    };
    names.into_iter().filter(|name| !has_input(name) || !has_test(name)).collect()
}

/// The name of the fuzz target of a file.
fn target(path: &str) -> Option<&str> {
    path.strip_prefix("fuzz/fuzz_targets/")?.strip_suffix(".rs")
}

/// Returns a number as the page has it: from 100 on, rounded down to two digits.
fn written(count: usize) -> String {
    let step = 10_usize.pow(count.checked_ilog10().unwrap_or(0).saturating_sub(1));
    match count / step * step {
        few @ ..100 => few.to_string(),
        many @ ..1000 => format!("{many}+"),
        many => format!("{},{:03}+", many / 1000, many % 1000),
    }
}

fn counts(tree: &Tree) -> [(&'static str, usize); 13] {
    let rust = |under: fn(&str) -> bool| {
        tree.all().filter(move |(path, _)| path.ends_with(".rs") && under(path))
    };
    let tests = |under: fn(&str) -> bool| rust(under).map(|(_, text)| tests_in(text)).sum();
    let named = Regex::new(r"\bfn contract_\d\d_").expect("a pattern");
    let contracts = rust(is_of_a_crate).map(|(_, text)| named.find_iter(text).count()).sum();
    let properties = rust(is_of_a_crate).map(|(_, text)| properties_in(text)).sum();
    let seeds = rust(|path| path.starts_with("crates/sim/tests/")).map(|(_, text)| seeds_in(text));
    let files = |under: &str, end: &str| {
        tree.paths().filter(|path| path.starts_with(under) && path.ends_with(end)).count()
    };
    let lines = |of: fn(&str, &str) -> usize| {
        rust(is_of_a_crate).map(|(path, text)| of(path, text)).sum::<usize>()
    };
    [
        ("tests beside the code, `crates/*/src`", tests(|path| path.contains("/src/"))),
        ("tests of whole crates and of the program, `crates/*/tests`", tests(is_of_a_whole)),
        ("tests of the simulation", tests(|path| path.starts_with("crates/sim/tests/"))),
        ("seeds that they run by default", seeds.sum()),
        ("models checked with loom", tests(|path| path.ends_with("tests/loom.rs"))),
        ("properties of random inputs (proptest)", properties),
        ("tests that name a contract", contracts),
        ("planted faults", files("crates/sim/faults/", ".patch")),
        ("fuzz targets", tree.paths().filter_map(target).count()),
        ("judges", judges(tree.text("tests/judges/run"))),
        ("bugs reported to other projects, each a test", files("tests/judges/reports.d/", "")),
        ("lines of code", lines(|path, text| total(text) - lines_of_tests(path, text))),
        ("lines of tests", lines(lines_of_tests)),
    ]
}

fn is_of_a_crate(path: &str) -> bool {
    path.starts_with("crates/")
}

fn is_of_a_whole(path: &str) -> bool {
    let is_counted_apart = path.starts_with("crates/sim/") || path.ends_with("tests/loom.rs");
    is_of_a_crate(path) && path.contains("/tests/") && !path.contains("/src/") && !is_counted_apart
}

fn tests_in(text: &str) -> usize {
    text.lines().filter(|line| line.trim() == "#[test]").count()
}

/// Tests in the blocks of `proptest!`.
fn properties_in(text: &str) -> usize {
    let code = bare(text);
    let mut lines = code.lines();
    let mut count = 0;
    while let Some(start) = lines.find(|line| line.trim_start().starts_with("proptest! {")) {
        let indent = start.len() - start.trim_start().len();
        let is_end = |line: &&str| line.trim() == "}" && line.len() == indent + 1;
        count += lines
            .by_ref()
            .take_while(|line| !is_end(line))
            .filter(|line| line.trim() == "#[test]")
            .count();
    }
    count
}

/// Seeds of the calls that run several of them, such as `swarm(name, 200, ...)`.
fn seeds_in(text: &str) -> usize {
    let call = r#"\b(?:swarm|each|look_at_every_moment)\(\s*(?:name|"[^"]*"),\s*(\d+)"#;
    let calls = Regex::new(&format!(r"{call}|\bseeds_of\((\d+)\)")).expect("a pattern");
    let number = |found: regex::Captures<'_>| {
        let digits = found.get(1).or(found.get(2)).expect("one of the two");
        digits.as_str().parse::<usize>().expect("digits")
    };
    calls.captures_iter(text).map(number).sum()
}

/// Names in the list of judges of their runner.
fn judges(runner: &str) -> usize {
    let list = runner.split_once("JUDGES = [").and_then(|(_, rest)| rest.split_once(']'));
    list.expect("a list of judges").0.matches('"').count() / 2
}

fn total(text: &str) -> usize {
    text.lines().count()
}

fn lines_of_tests(path: &str, text: &str) -> usize {
    let is_all = path.contains("/tests/") || path.ends_with("tests.rs");
    if is_all { total(text) } else { total(text) - total(without_tests(text)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_with_two_digits() {
        let written = [0, 7, 99, 100, 109, 876, 5432, 71_999].map(written);
        assert_eq!(written, ["0", "7", "99", "100+", "100+", "870+", "5,400+", "71,000+"]);
    }

    #[test]
    fn tests_properties_and_seeds_are_counted() {
        let text = "proptest! {\n    #[test]\n    fn a(b: u8) {\n    }\n}\n\n#[test]\nfn c() {}\n";
        assert_eq!((tests_in(text), properties_in(text)), (2, 1));
        let text = "swarm(\n  \"contract_01\", 200, x); for seed in seeds_of(8) { each(name, 30) }";
        assert_eq!(seeds_in(text), 238);
        assert_eq!(judges("JUDGES = [\"a\",\n \"b\"]\nPLACES = [\"c\"]"), 2);
    }
}
