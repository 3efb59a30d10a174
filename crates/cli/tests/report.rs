//! A comparison that somebody else does again: bundles, results shown again and side by side, and
//! the document's fields as they are documented. Real cells, as small as they can be.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Two ways of writing files, and a queue without a device.
const SUITE: &str = r#"
name = "small"
title = "Is it the same again?"

[file]
full = "16m"
quick = "16m"
bare = "16m"

[[workload]]
name = "new-files"
probe = "new-files"
shape = { files = 2, block = "4k" }

[[workload]]
name = "random-4k"
probe = "requests"
shape = { pattern = "random", operation = "read", block = "4k" }

[[arm]]
name = "kernel-direct-prealloc"
through = "kernel-direct-prealloc"

[[arm]]
name = "forebay"
through = "forebay"

[[arm]]
name = "one"
through = "queue"
batch = 1

[[arm]]
name = "eight"
through = "queue"
batch = 8

[[part]]
name = "files"
title = "Random 4k writes, 2 new files"
metric = "write_bytes_per_s"
base = "kernel-direct-prealloc"
again = "forebay"
workloads = ["new-files"]
arms = ["kernel-direct-prealloc", "forebay"]
rounds = 4

[part.quick]
file_bytes = "24m"

[[part]]
name = "queue"
title = "A queue without a device"
metric = "iops"
base = "one"
again = "eight"
workloads = ["random-4k"]
arms = ["one", "eight"]
devices = ["null"]
depths = [16]
rounds = 4
seconds = 0.02

[part.quick]
"#;

struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

fn forebay(words: &[&str], directory: &Path) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    let Output { status, stdout, stderr } =
        command.args(words).current_dir(directory).output().unwrap();
    let (out, err) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert!(!err.contains("panicked"), "{err}");
    Said { code: status.code(), out, err }
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Names of fields that are data of their own: one stands for all.
const NAMED_BY_DATA: [&str; 4] = [
    "manifest.machine.mitigations",
    "manifest.machine.settings",
    "manifest.storage.queue.settings",
    "parts[].jobs[].best",
];

fn fields(value: &Value, above: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(pairs) if NAMED_BY_DATA.contains(&above) => {
            found.extend((!pairs.is_empty()).then(|| format!("{above}.NAME")));
        }
        Value::Object(pairs) => {
            for (name, value) in pairs {
                let name = if above.is_empty() { name.clone() } else { format!("{above}.{name}") };
                fields(value, &name, found);
            }
        }
        Value::Array(items) if items.is_empty() => {}
        Value::Array(items) if items.iter().any(Value::is_object) => {
            items.iter().for_each(|item| fields(item, &format!("{above}[]"), found));
        }
        _ => {
            found.insert(above.to_owned());
        }
    }
}

/// Fields of the documentation, and which of them are not in every document.
fn documented() -> (BTreeSet<String>, BTreeSet<String>) {
    let text = include_str!("../../../docs/result.md");
    let lines = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut all = BTreeSet::new();
    let mut some = BTreeSet::new();
    for line in lines {
        let (name, rest) = line.split_once('`').unwrap();
        for name in alternatives(name) {
            if rest.contains("(may be absent)") {
                some.insert(name.clone());
            }
            assert!(all.insert(name.clone()), "{name} is documented twice");
        }
    }
    (all, some)
}

/// `a.{b,c}` is `a.b` and `a.c`.
fn alternatives(name: &str) -> Vec<String> {
    let Some((head, (inside, tail))) =
        name.split_once('{').and_then(|(head, rest)| Some((head, rest.split_once('}')?)))
    else {
        return vec![name.to_owned()];
    };
    inside.split(',').flat_map(|one| alternatives(&format!("{head}{one}{tail}"))).collect()
}

#[test]
fn a_bundle_is_done_again_and_set_beside_the_first() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let here = directory.path();
    fs::write(here.join("small.toml"), SUITE).unwrap();
    let words = ["compare", "./small.toml", "--quick", "--seed", "7f3a", "--html", "page.html"];
    let first = forebay(&[&words[..], &["--bundle", "first"]].concat(), here);
    assert_eq!(first.code, Some(0), "{}{}", first.out, first.err);
    assert!(first.out.lines().all(|line| line.chars().count() <= 72), "{}", first.out);
    let bundle = here.join("first");
    assert_eq!(fs::read_to_string(bundle.join("result.txt")).unwrap(), first.out);
    assert_eq!(fs::read_to_string(bundle.join("job-files/01-small.toml")).unwrap(), SUITE);
    let page = fs::read_to_string(bundle.join("result.html")).unwrap();
    assert_eq!(fs::read_to_string(here.join("page.html")).unwrap(), page);
    for heading in ["Bytes written per second", "Latency of a write", "a dot for each round"] {
        assert!(page.contains(heading), "{heading}");
    }

    // Everything is kept of every cell.
    let result = read(&bundle.join("result.json"));
    let cells = result["cells"].as_array().unwrap();
    // Three arms, one of them twice, in two parts.
    assert_eq!(cells.len(), 2 * 3 * 4, "{cells:?}");
    for cell in cells {
        let flow = if cell["write"].is_null() { &cell["read"] } else { &cell["write"] };
        let bins = flow["latency"]["bins"].as_array().unwrap();
        let counted: u64 = bins.iter().map(|bin| bin[1].as_u64().unwrap()).sum();
        assert_eq!(Some(counted), flow["operations"].as_u64(), "{cell}");
    }
    let manifest = &result["manifest"];
    assert_eq!(manifest["command_line"][0], "forebay");
    assert!(manifest["build"].as_str().unwrap().contains("rustc"), "{manifest}");

    // Again, elsewhere: the same order of the same arms, and as much of it.
    fs::remove_file(here.join("small.toml")).unwrap();
    let again = forebay(&["compare", "--from", "first", "--bundle", "second"], here);
    assert_eq!(again.code, Some(0), "{}{}", again.out, again.err);
    let other = read(&here.join("second/result.json"));
    assert_eq!(other["manifest"]["command_line"], manifest["command_line"]);
    assert_eq!(other["manifest"]["job_files"], manifest["job_files"]);
    for part in [0, 1] {
        for field in ["name", "orders", "rounds", "cell_bytes", "form", "scale"] {
            assert_eq!(other["parts"][part][field], result["parts"][part][field], "{field}");
        }
    }
    let third = forebay(&["compare", "--from", "second", "--json", "third.json"], here);
    assert_eq!(third.code, Some(0), "{}{}", third.out, third.err);

    // Shown again without running anything.
    let shown = forebay(&["report", "first", "--html", "again.html"], here);
    assert_eq!((shown.code, shown.out.as_str()), (Some(0), first.out.as_str()), "{}", shown.err);
    assert_eq!(fs::read_to_string(here.join("again.html")).unwrap(), page);

    // Side by side.
    let both = forebay(&["report", "first", "second"], here);
    assert_eq!(both.code, Some(0), "{}", both.err);
    assert!(both.out.lines().all(|line| line.chars().count() <= 72), "{}", both.out);
    for words in
        ["A: ", "B: ", "B/A [95 %]", "not paired by round", "Random 4k writes, 2 new files"]
    {
        assert!(both.out.contains(words), "{words}: {}", both.out);
    }
    assert!(!both.out.contains("no ratios"), "{}", both.out);

    every_field_is_documented(&[result, other]);
}

/// Checks both directions: every field is documented, and every documented field exists.
fn every_field_is_documented(documents: &[Value]) {
    let mut found = BTreeSet::new();
    documents.iter().for_each(|document| fields(document, "", &mut found));
    let (all, some) = documented();
    let missing: Vec<_> = found.difference(&all).collect();
    assert!(missing.is_empty(), "not in docs/result.md: {missing:#?}");
    let gone: Vec<_> = all.difference(&found).filter(|name| !some.contains(*name)).collect();
    assert!(gone.is_empty(), "in docs/result.md, but in no document: {gone:#?}");
}

/// It was written by 0.1.0. Later versions read it as long as they read this schema, and write the
/// same fields.
#[test]
fn a_result_of_schema_1_is_read_and_nothing_of_it_is_left_out() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kept/schema-1.json");
    let Said { code, out, err } = forebay(&["report", kept.to_str().unwrap()], Path::new("."));
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.contains("eight has 1.93x (1.78-2.07) the iops of one."), "{out}");
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("result.json");
    forebay_lab::schema::Document::read(&kept).unwrap().write(&path).unwrap();
    assert_eq!(read(&path), read(&kept));
}

#[test]
fn what_cannot_be_is_refused_before_anything_runs() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let here = directory.path();
    fs::create_dir(here.join("full")).unwrap();
    fs::write(here.join("full/file"), "mine").unwrap();
    fs::write(here.join("later.json"), r#"{"schema": 2, "cells": 7}"#).unwrap();
    fs::write(here.join("other.json"), r#"{"anything": 1}"#).unwrap();
    let cases: [(&[&str], &str); 10] = [
        (
            &["compare", "--bundle", "full"],
            "--bundle full: not empty; give a new or an empty directory",
        ),
        (&["compare", "--bundle", "full/file"], "--bundle full/file: not a directory"),
        (&["compare", "--bundle", "no/such"], "--bundle no: No such file"),
        (&["compare", "--html", "no/such.html"], "--html no/such.html: No such file"),
        (&["compare", "--html", "full"], "--html full: is a directory; name a file in it"),
        (&["compare", "--from", "full"], "full/result.json: No such file"),
        (&["compare", "plug", "--from", "full"], "cannot be used with"),
        (&["report", "later.json"], "later.json has schema 2, this program reads 1"),
        (&["report", "other.json"], "other.json is not a result of forebay"),
        (&["report", "later.json", "other.json", "--html", "x.html"], "shows one result"),
    ];
    for (words, expected) in cases {
        let Said { code, out, err } = forebay(words, here);
        assert_eq!((code, out.as_str(), err.lines().count()), (Some(2), "", 1), "{words:?}: {err}");
        assert!(err.contains(expected), "{words:?}: {err}");
    }
    assert_eq!(fs::read_dir(here).unwrap().count(), 3, "nothing was made");
    assert_eq!(fs::read_to_string(here.join("full/file")).unwrap(), "mine");
}

/// The user decides what a repeated comparison may write over, and set on the machine.
#[test]
fn targets_and_settings_are_never_taken_from_a_bundle() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let here = directory.path();
    let bundle = |name: &str, words: &[&str]| {
        fs::create_dir_all(here.join(name).join("job-files")).unwrap();
        fs::write(here.join(name).join("job-files/01-small.toml"), SUITE).unwrap();
        let command_line: Vec<&str> =
            ["forebay", "compare", "./small.toml"].iter().chain(words).copied().collect();
        let mut document = forebay_lab::schema::Document::new(
            forebay_lab::manifest::Manifest::default(),
            "small",
            Vec::new(),
            Vec::new(),
        );
        document.manifest.seed = "1".into();
        document.manifest.command_line = command_line.into_iter().map(str::to_owned).collect();
        document.write(&here.join(name).join("result.json")).unwrap();
    };
    bundle("target", &["--target", "/dev/null", "--allow-write-device"]);
    let Said { code, err, .. } = forebay(&["compare", "--from", "target"], here);
    assert!(
        code == Some(2)
            && err.contains(
                "it was taken with --target /dev/null; give the --target of this machine"
            ),
        "{err}"
    );
    bundle("scratch", &["--scratch", "ext4,size=1g,device=/dev/null", "--allow-write-device"]);
    let Said { code, err, .. } = forebay(&["compare", "--from", "scratch"], here);
    assert!(
        code == Some(2)
            && err.contains("it made file systems on a device; give the --scratch of this machine"),
        "{err}"
    );
    bundle("settings", &[]);
    let file = "settings/job-files/01-small.toml";
    let sets = "through = \"queue\"\nmachine = { \"sysctl.vm.swappiness\" = \"1\" }";
    fs::write(here.join(file), SUITE.replacen("through = \"queue\"", sets, 1)).unwrap();
    let Said { code, err, .. } = forebay(&["compare", "--from", "settings"], here);
    assert!(
        code == Some(2) && err.contains(&format!("{file}: it sets sysctl.vm.swappiness=1 on this")),
        "{err}"
    );
    bundle("run", &[]);
    fs::remove_file(here.join("run/job-files/01-small.toml")).unwrap();
    let Said { code, err, .. } = forebay(&["compare", "--from", "run"], here);
    assert!(code == Some(2) && err.contains("job-files is empty"), "{err}");
}
