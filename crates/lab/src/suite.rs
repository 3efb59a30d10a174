//! A suite: the arms and the work that ask one question, as a file says it.
//!
//! Suites are files so that a question can be read, changed and sent to somebody else. Those that
//! are shipped lie in `suites/` and are inside the program; a path takes a user's own. A file is
//! read whole and every name in it looked up before anything is done; an error has its line, its
//! column and a remedy.
//!
//! ```text
//! suite = parts, each one table
//! part  = workloads (probe + shape)  x  arms   in rounds   -> ratios to a base
//! form  = how much of it: full, quick, or bare (what `forebay compare` alone runs); a part may be absent
//! ```

mod check;
pub mod job_file;
pub mod model;
pub mod own;
mod text;

use std::path::Path;

pub use crate::bytes::Bytes;
use crate::refusal::Refusal;
pub use model::{Base, Form, Pair, Part, Suite};

/// Those inside the program, by name.
pub const SHIPPED: [(&str, &str); 7] = [
    ("completion", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/suites/completion.toml"))),
    ("files", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/suites/files.toml"))),
    ("layout", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/suites/layout.toml"))),
    ("log", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/suites/log.toml"))),
    ("plug", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/suites/plug.toml"))),
    ("programs", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/suites/programs.toml"))),
    ("writeback", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/suites/writeback.toml"))),
];

/// Suites that `forebay compare` runs by default.
pub const BARE: [&str; 3] = ["layout", "plug", "completion"];

/// Returns the suite of this name, or in the file of this path: what holds a slash or ends in
/// `.toml` is a path.
pub fn find(name: &Path) -> Result<Suite, Refusal> {
    let word = name.to_string_lossy();
    if word.contains('/') || word.ends_with(".toml") {
        return read(name);
    }
    let shipped = SHIPPED.iter().find(|(known, _)| *known == word);
    let (name, text) = shipped.ok_or_else(|| {
        Refusal(format!("{word}: no such suite; use one of {}, or the path of a file", names()))
    })?;
    check::parse(text, &format!("suites/{name}.toml"))
}

/// Reads the suite of a file.
pub fn read(path: &Path) -> Result<Suite, Refusal> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let remedy = format!("give the path of a suite's file, or one of {}", names());
        Refusal(format!("{}: {error}; {remedy}", path.display()))
    })?;
    check::parse(&text, &path.display().to_string())
}

/// Lists all shipped suites: name and title, then the parts with their forms.
pub fn list() -> String {
    let mut lines = Vec::new();
    for (name, _) in SHIPPED {
        let suite = find(Path::new(name)).expect("a shipped suite is sound");
        lines.push(format!("{:<12} {}", suite.name, suite.title));
        for part in &suite.parts {
            let forms = Form::ALL.into_iter().filter(|form| part.cut(*form).is_some());
            let forms = forms.map(Form::name).collect::<Vec<_>>().join(", ");
            lines.push(format!("  {:<11} {} ({forms})", part.name, part.title));
        }
    }
    lines.join("\n") + "\n"
}

fn names() -> String {
    SHIPPED.map(|(name, _)| name).join(", ")
}

#[cfg(test)]
mod tests;
