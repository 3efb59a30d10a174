//! The engine's core names the machine only through `crate::platform`: it is compiled a second
//! time over a simulated machine, and a name that goes past the platform would escape it.

use regex::Regex;

use crate::code::{bare, without_tests};
use crate::imports::expand;
use crate::tree::Tree;

/// Where the core is.
const CORE: &str = "crates/forebay/src/core/";

/// Modules and items of the standard library that are the machine. Hash tables are among them,
/// because their order differs from run to run.
const MACHINE: [&str; 12] = [
    "std::thread",
    "std::fs",
    "std::net",
    "std::os",
    "std::process",
    "std::env",
    "std::sync::Mutex",
    "std::sync::Condvar",
    "std::sync::RwLock",
    "std::sync::mpsc",
    "std::collections::HashMap",
    "std::collections::HashSet",
];

/// Crates, macros and calls that are the machine.
const NAMES: &str = r"\b(?:forebay_uring|rustix|SystemTime)\b|\bInstant::now\b|\bthread_local!";

/// Each place where the core names the machine, outside of its tests.
pub(crate) fn named_machine(tree: &Tree) -> Vec<String> {
    let uses = Regex::new(r"(?s)\buse\s+([^;]+);").expect("a pattern");
    let paths = Regex::new(r"\bstd(?:::\w+)+").expect("a pattern");
    let names = Regex::new(NAMES).expect("a pattern");
    let mut findings = Vec::new();
    let core = tree.sources().filter(|(path, _)| path.starts_with(CORE));
    for (path, text) in core.filter(|(path, _)| !path.ends_with("tests.rs")) {
        let code = bare(without_tests(text));
        let mut add = |at: usize, what: &str| {
            let line = 1 + code[..at].matches('\n').count();
            findings.push(format!("{path}:{line}: {what}"));
        };
        for one in uses.captures_iter(&code) {
            let mut imported = Vec::new();
            let tree = one[1].split_whitespace().collect::<Vec<_>>().join(" ");
            expand("", &tree, &mut imported);
            let at = one.get(0).expect("the match").start();
            let paths = imported.iter().filter_map(|path| path.split(" as ").next());
            paths.filter(|path| is_machine(path)).for_each(|path| add(at, path));
        }
        let without_uses = uses.replace_all(&code, |one: &regex::Captures<'_>| {
            one[0].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect::<String>()
        });
        for found in paths.find_iter(&without_uses).filter(|found| is_machine(found.as_str())) {
            add(found.start(), found.as_str());
        }
        names.find_iter(&code).for_each(|found| add(found.start(), found.as_str()));
    }
    findings
}

fn is_machine(path: &str) -> bool {
    let is_of = |of: &str| {
        path.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    MACHINE.iter().any(|of| is_of(of))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(source: &str) -> Vec<String> {
        named_machine(&Tree::of(&[("crates/forebay/src/core/inode/x.rs", source)]))
    }

    #[test]
    fn each_way_to_name_the_machine_is_found() {
        for source in [
            "use std::thread;",
            "use std::{fs, io};",
            "use std::sync::{Arc, Mutex};",
            "use std::sync::mpsc::Sender;",
            "use std::collections::{HashMap as Map, VecDeque};",
            "fn f() { std::env::var(\"A\"); }",
            "fn f() { std::process::exit(1) }",
            "fn f(_: std::os::fd::OwnedFd, _: &std::net::TcpStream) {}",
            "let now = Instant::now();",
            "fn f(_: SystemTime) {}",
            "use forebay_uring::OpenFile;",
            "rustix::fs::sync();",
            "thread_local! { static A: u8 = 1; }",
        ] {
            assert!(!findings(source).is_empty(), "{source}");
        }
        assert_eq!(
            findings("// a\nuse std::{\n    fs,\n};\n\nfn f() { std::thread::park() }"),
            [
                "crates/forebay/src/core/inode/x.rs:2: std::fs",
                "crates/forebay/src/core/inode/x.rs:6: std::thread::park",
            ]
        );
    }

    #[test]
    fn what_is_no_machine_and_what_is_no_core_is_not() {
        let source = "//! std::fs\nuse std::sync::{Arc, OnceLock};\nuse std::time::Instant;\n\
            use std::collections::BTreeMap;\nuse crate::platform::collections::HashMap;\n\
            const A: &str = \"std::thread\";\n\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n";
        assert!(findings(source).is_empty(), "{:?}", findings(source));
        let elsewhere = [
            ("crates/forebay/src/keeper/x.rs", "use std::fs;"),
            ("crates/forebay/src/core/direct/tests.rs", "use std::fs;"),
        ];
        assert!(named_machine(&Tree::of(&elsewhere)).is_empty());
    }
}
