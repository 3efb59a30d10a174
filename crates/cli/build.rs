//! Passes the commit and the compiler of this build to the program. The commit comes from
//! `FOREBAY_COMMIT`, which a build of an archive may set, from the package, or from git.

use std::path::Path;
use std::process::Command;

/// Cargo writes it into each package.
const PACKAGED: &str = ".cargo_vcs_info.json";

fn main() {
    println!("cargo::rerun-if-env-changed=FOREBAY_COMMIT");
    let named = std::env::var("FOREBAY_COMMIT").ok().filter(|commit| !commit.is_empty());
    let found = if Path::new(PACKAGED).exists() { packaged() } else { checked_out() };
    if let Some(commit) = named.or(found) {
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

/// The commit of a package. Around an unpacked package there may be another project's checkout.
fn packaged() -> Option<String> {
    println!("cargo::rerun-if-changed={PACKAGED}");
    let information = std::fs::read_to_string(PACKAGED).ok()?;
    let hash = information.split_once("\"sha1\": \"")?.1.get(..12)?;
    let changed = information.contains("\"dirty\": true");
    Some(if changed { format!("{hash}+") } else { hash.to_owned() })
}

/// The commit of a checkout, with a `+` if tracked files differ from it.
fn checked_out() -> Option<String> {
    // A changed file anywhere in the workspace changes the answer.
    for path in ["../../crates", "../../Cargo.toml", "../../Cargo.lock"] {
        println!("cargo::rerun-if-changed={path}");
    }
    if let Some(log) = said("git", &["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
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
