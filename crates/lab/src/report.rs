//! A result as a table that can be pasted into a mail: plain text, at most 80 columns, complete in itself.
//!
//! Made from the [`Document`] alone, so that what is shown is what the file says. MB/s is 10^6 bytes asked for per
//! second until all was synced; a ratio above 1 is more of it per second than the base.

mod figures;
mod reading;
mod run;
mod table;

use crate::arm::Arm;
use crate::compare::judge::{THROUGHPUT, floor_of};
use crate::manifest::Manifest;
use crate::schema::Document;

pub use run::run;

use figures::{bytes, percent};
use table::{Table, WIDTH, label};

/// Below the second table.
const COSTS_LEGEND: &str = "cs = context switches, of the arm's process and of the whole system";

/// How to write it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Plain text of at most 80 columns.
    Text,
    /// Markdown, for documents.
    Markdown,
}

/// The result of a comparison, with what it was taken on and what may be said of it. Ends with a newline.
#[must_use]
pub fn comparison(document: &Document, format: Format) -> String {
    let base = base_of(document);
    let mut lines = heading(document);
    match format {
        Format::Text => {
            lines.extend(table::main(document, base).text());
            lines.extend(folded(&noise(document)));
            lines.push(String::new());
            lines.extend(table::costs(document).text());
            lines.push(COSTS_LEGEND.to_owned());
            for line in remarks(document) {
                lines.extend(folded(&line));
            }
            lines.push(String::new());
            for paragraph in reading::reading(document, base) {
                lines.extend(folded(&paragraph));
            }
        }
        Format::Markdown => {
            let paragraph = |lines: &mut Vec<String>, text: String| lines.extend([String::new(), text]);
            let tabled = |lines: &mut Vec<String>, table: &Table| {
                lines.push(String::new());
                lines.extend(table.markdown());
            };
            tabled(&mut lines, &table::main(document, base));
            paragraph(&mut lines, noise(document));
            tabled(&mut lines, &table::costs(document));
            paragraph(&mut lines, COSTS_LEGEND.to_owned());
            for text in remarks(document).into_iter().chain(reading::reading(document, base)) {
                paragraph(&mut lines, text);
            }
        }
    }
    lines.join("\n") + "\n"
}

/// The arm the others were compared with: the base of every throughput pair but the A/A pair and the one with plain
/// buffering.
fn base_of(document: &Document) -> Option<&str> {
    let extra = [Arm::Forebay.name(), Arm::KernelBuffered.name()];
    let mut comparisons = document.comparisons.iter().filter(|one| one.metric == THROUGHPUT);
    comparisons.find(|one| !extra.contains(&one.base.as_str())).map(|one| one.base.as_str())
}

/// Where, on what, and what was asked.
fn heading(document: &Document) -> Vec<String> {
    let manifest = &document.manifest;
    let size = manifest.cell_bytes.map(|size| format!(", {}", bytes(size as f64))).unwrap_or_default();
    let asked = format!("{}{size}, until synced", manifest.title);
    let rounds = if manifest.rounds == 1 { "round" } else { "rounds" };
    let counted = format!("{} {rounds}, seed {}", manifest.rounds, manifest.seed);
    let mut lines = folded(&place(manifest));
    lines.extend(apart(asked, counted));
    lines
}

/// File system, kernel, processors, and the engine that ran.
fn place(manifest: &Manifest) -> String {
    let machine = &manifest.machine;
    let cores = if machine.cpus == 1 { "core" } else { "cores" };
    let mut place = format!(
        "{}, Linux {}, {} {cores}",
        manifest.storage.heading(),
        machine.short_release(),
        machine.cpus
    );
    if !manifest.engine.is_empty() {
        place = format!("{place}, {}", manifest.engine);
    }
    place
}

/// One at each end of a line, or each on its own.
fn apart(left: String, right: String) -> Vec<String> {
    match WIDTH.checked_sub(left.chars().count() + right.chars().count()) {
        Some(space) if space > 1 => vec![format!("{left}{}{right}", " ".repeat(space))],
        _ => folded(&left).into_iter().chain([right]).collect(),
    }
}

fn noise(document: &Document) -> String {
    let floor = match floor_of(&document.rows, THROUGHPUT) {
        Some(floor) => format!("noise floor {}.", percent(floor)),
        None => "noise floor unknown, so nothing is shown.".to_owned(),
    };
    format!("{floor}  ~ = not shown")
}

/// Arms that are missing, and what else has to be known.
fn remarks(document: &Document) -> Vec<String> {
    let manifest = &document.manifest;
    let left_out = manifest.left_out.iter().map(|left_out| {
        let word = if left_out.failed { "FAILED" } else { "left out" };
        format!("{word}: {}: {}", label(&left_out.arm), left_out.reason)
    });
    left_out.chain(manifest.notes.iter().map(|note| format!("note: {note}"))).collect()
}

/// Breaks a paragraph at its spaces into lines of at most [`WIDTH`] characters. Double spaces stay.
fn folded(paragraph: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in paragraph.replace(['\n', '\r'], " ").split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(line.trim_end().to_owned());
            line = String::new();
        } else if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line.trim_end().to_owned());
    lines
}

#[cfg(test)]
mod tests;
