//! Claims are tests: what a page says exists, exists, and a few counts never rise.
//!
//! Each check is a function from text to findings, so that the tests at the end of its file can
//! show it a broken claim. Nothing here changes a file. A count that has fallen is printed; put
//! the lower number into `ratchet.toml`, and it cannot rise again.

mod answers;
mod claims;
mod code;
mod compiler;
mod counts;
mod facts;
mod imports;
mod interface;
mod listed;
mod phrases;
mod ratchet;
mod results;
mod seam;
mod tree;

use claims::Page;
use facts::Facts;
use tree::Tree;

/// Fails with all findings at once, one per line.
#[track_caller]
fn none(findings: &[String], rule: &str) {
    assert!(findings.is_empty(), "{rule}:\n  {}", findings.join("\n  "));
}

#[test]
fn every_claim_of_a_page_is_true() {
    let (tree, facts) = (Tree::load(), Facts::gather());
    let mut findings = Vec::new();
    for (path, text) in tree.pages() {
        findings.extend(claims::broken(&Page { path, text }, &tree, &facts));
    }
    none(&findings, "a page names something that does not exist");
}

#[test]
fn the_list_of_documents_has_every_page_once() {
    none(&listed::wrongly(&Tree::load()), "the list of documents");
}

#[test]
fn the_picture_of_the_first_page_is_drawn_from_its_result() {
    let tool = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/picture");
    match std::process::Command::new(tool).arg("--check").output() {
        Err(error) => println!("skipped the_picture_of_the_first_page: {error}"),
        Ok(checked) => assert!(checked.status.success(), "{checked:?}"),
    }
}

#[test]
fn every_quoted_figure_is_in_its_result() {
    let tree = Tree::load();
    none(&results::broken(&tree), "a figure of a page");
    none(&answers::unanswered(tree.text("docs/kernel-questions.md")), "docs/kernel-questions.md");
}

#[test]
fn the_commands_of_the_first_page_are_those_that_ci_runs() {
    let tree = Tree::load();
    none(&claims::commands_of_ci(tree.text("README.md"), tree.text(".ci/run")), "README and CI");
}

#[test]
fn what_a_user_reads_first_has_no_banned_phrase() {
    let (tree, facts) = (Tree::load(), Facts::gather());
    let mut findings = phrases::in_lines("README.md", tree.text("README.md"));
    for (command, help) in facts.helps() {
        findings.extend(phrases::in_lines(&format!("forebay {command} --help"), help));
    }
    for (path, text) in tree.sources().filter(|(path, _)| phrases::is_seen_by_users(path)) {
        findings.extend(phrases::in_strings(path, text));
    }
    for (path, text) in tree.sources().filter(|(path, _)| path.starts_with("crates/forebay/src/")) {
        findings.extend(phrases::in_public_docs(path, text));
    }
    none(&findings, "a phrase that this project does not use");
}

#[test]
fn no_count_rises() {
    let tree = Tree::load();
    none(&ratchet::risen(tree.text(ratchet::FILE), &ratchet::count(&tree)), "a count has risen");
}

#[test]
fn unsafe_code_is_where_the_architecture_says() {
    let tree = Tree::load();
    none(&code::misplaced_unsafe(&tree), "unsafe code");
}

#[test]
fn counts_are_checked_in_every_build() {
    let tree = Tree::load();
    let findings = code::counts_checked_in_debug_builds_only(&tree);
    none(&findings, "a count that only a debug build checks; use assert! or core/share.rs");
}

#[test]
fn the_core_names_the_machine_only_through_the_platform() {
    let tree = Tree::load();
    none(&seam::named_machine(&tree), "the core names the machine; use crate::platform");
}

#[test]
fn the_core_imports_downwards() {
    let tree = Tree::load();
    none(&imports::upward(&tree), "an import against the layers of layers.toml");
}

#[test]
fn one_oldest_compiler_is_named_and_suffices() {
    none(&compiler::disagreeing(&Tree::load()), "the oldest compiler");
    let metadata = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo starts");
    assert!(metadata.status.success(), "cargo metadata failed: {metadata:?}");
    let metadata = serde_json::from_slice(&metadata.stdout).expect("it is JSON");
    none(&compiler::too_young(&metadata), "a dependency needs a younger compiler");
}

#[test]
fn the_numbers_of_tests_are_those_of_the_tree() {
    let tree = Tree::load();
    none(&counts::wrong(&tree), "a number of tests");
    none(&counts::unkept_targets(&tree), "a fuzz target without a corpus, or a test of it");
}
