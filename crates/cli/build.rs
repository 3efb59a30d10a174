//! Gives the program its own description: its commit and its compiler. An unknown one stays unset.
//! `FOREBAY_COMMIT` overrides the commit, for builds from an archive.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=FOREBAY_COMMIT");
    // Whether something was changed besides has to be looked at again whenever something was.
    for path in ["../../crates", "../../Cargo.toml", "../../Cargo.lock"] {
        println!("cargo::rerun-if-changed={path}");
    }
    if let Some(log) = said("git", &["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    let commit =
        std::env::var("FOREBAY_COMMIT").ok().filter(|commit| !commit.is_empty()).or_else(commit);
    if let Some(commit) = commit {
        println!("cargo::rustc-env=FOREBAY_COMMIT={commit}");
    }
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    if let Some(version) = said(&compiler, &["--version"]) {
        println!("cargo::rustc-env=FOREBAY_COMPILER={version}");
    }
    for (variable, name) in [("FOREBAY_PROFILE", "PROFILE"), ("FOREBAY_OPT_LEVEL", "OPT_LEVEL")] {
        if let Ok(value) = std::env::var(name) {
            println!("cargo::rustc-env={variable}={value}");
        }
    }
}

/// With a `+` where files that belong to it were changed.
fn commit() -> Option<String> {
    let commit = said("git", &["rev-parse", "--short=12", "HEAD"])?;
    let changed = said("git", &["status", "--porcelain", "--untracked-files=no"])
        .is_none_or(|said| !said.is_empty());
    Some(if changed { format!("{commit}+") } else { commit })
}

fn said(program: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
