//! A result as a table that can be pasted into a mail: plain text, at most 72 columns, complete in
//! itself.
//!
//! Made from the [`Document`] alone, so that what is shown is what the file says. MB/s is 10^6
//! bytes asked for per second until all was synced; a ratio above 1 is more of it per second than
//! the base.

mod batching;
pub mod check;
pub(crate) mod column;
mod completion;
mod echo;
pub(crate) mod figures;
mod files;
mod html;
mod pair;
mod programs;
mod reader;
mod reading;
mod requests;
mod run;
mod summary;
mod table;
mod writers;

use std::borrow::Cow;

use crate::file_system::Made;
use crate::manifest::Manifest;
use crate::plan::counted;
use crate::schema::{Document, Part, PartJob};
use crate::suite::TableKind;

pub use figures::{bytes, microseconds};
pub use html::html;
pub use pair::side_by_side;
pub use run::run;
pub use summary::{WIDTH as SUMMARY_WIDTH, name as arm_name, summary};

use table::{Table, WIDTH, label};

enum Block {
    Lines(Vec<String>),
    Table(Table),
    Text(String),
    /// An empty line, where that parts what belongs to other things.
    Gap,
}

/// The result of a comparison, with the machine and the notes. Ends with a newline.
pub fn comparison(document: &Document) -> String {
    written(&blocks_of(document)).join("\n") + "\n"
}

/// The result of a comparison or of a run.
pub fn any(document: &Document) -> String {
    // A comparison has parts, and one of an earlier version comparisons.
    let is_run = document.parts.is_empty() && document.comparisons.is_empty();
    if is_run { run(document) } else { comparison(document) }
}

fn blocks_of(document: &Document) -> Vec<Block> {
    let parts = parts_of(document);
    let head = [place(&document.manifest)].into_iter().chain(disk(&document.manifest));
    let mut blocks = vec![Block::Lines(head.flat_map(|line| folded(&line)).collect())];
    for (number, part) in parts.iter().enumerate() {
        if number > 0 {
            blocks.push(Block::Gap);
        }
        blocks.extend(part.question.iter().map(|question| Block::Lines(folded(question))));
        blocks.push(Block::Lines(heading(document, part)));
        blocks.extend(match part.table {
            TableKind::Files => files::blocks(document, part),
            TableKind::Arms => requests::arms(document, part),
            TableKind::Ladder => requests::ladder(document, part),
            TableKind::Worth => requests::worth(document, part),
            TableKind::Policies => requests::policies(document, part),
            TableKind::Completion => completion::completion(document, part),
            TableKind::Beside => completion::beside(document, part),
            TableKind::Copies => completion::copies(document, part),
            TableKind::Writers => writers::writers(document, part),
            TableKind::Contexts => writers::contexts(document, part),
            TableKind::Factors => writers::factors(document, part),
            TableKind::Echo => echo::echo(document, part),
            TableKind::Programs => programs::programs(document, part),
        });
        blocks.extend(batching::batching(document, part));
    }
    blocks.extend(remarks(document).into_iter().map(Block::Text));
    for part in parts.iter() {
        let reading = reading::reading(document, part);
        if !reading.is_empty() {
            blocks.push(Block::Gap);
        }
        blocks.extend(reading.into_iter().map(Block::Text));
    }
    blocks
}

/// Returns the lines of a text.
fn written(blocks: &[Block]) -> Vec<String> {
    let lines = blocks.iter().map(|block| match block {
        Block::Lines(lines) => lines.clone(),
        Block::Table(table) => table.text(),
        Block::Text(text) => folded(text),
        Block::Gap => vec![String::new()],
    });
    lines.collect::<Vec<_>>().concat()
}

/// Its parts; of one that names none, the one it is.
fn parts_of(document: &Document) -> Cow<'_, [Part]> {
    if !document.parts.is_empty() {
        return Cow::Borrowed(&document.parts);
    }
    let manifest = &document.manifest;
    let name = document.rows.first().map(|row| row.job.clone()).unwrap_or_default();
    let job = PartJob { name, base: files::base_of(document), ..PartJob::default() };
    Cow::Owned(vec![Part {
        title: manifest.title.clone(),
        metric: crate::compare::judge::THROUGHPUT.to_owned(),
        again: crate::arm::Arm::Forebay.name().to_owned(),
        rounds: manifest.rounds,
        cell_bytes: manifest.cell_bytes,
        jobs: vec![job],
        ..Part::default()
    }])
}

fn heading(document: &Document, part: &Part) -> Vec<String> {
    let asked = match part.table {
        TableKind::Files => {
            format!("{}{}, until synced", part.title, size(part))
        }
        _ => part.title.clone(),
    };
    let rounds = counted(part.rounds.into(), "round");
    apart(asked, format!("{rounds}, seed {}", document.manifest.seed))
}

/// `, 288 MiB`: what each of its cells writes.
fn size(part: &Part) -> String {
    part.cell_bytes.map(|size| format!(", {}", bytes(size as f64))).unwrap_or_default()
}

/// File system, its page cache, kernel, processors, and the engine that ran.
fn place(manifest: &Manifest) -> String {
    let machine = &manifest.machine;
    let cores = if machine.cpus == 1 { "core" } else { "cores" };
    let folios = match manifest.storage.has_large_folios(&machine.release) {
        Some(true) => " with large folios",
        Some(false) => " without large folios",
        None => "",
    };
    let mut place = format!(
        "{}{folios}, Linux {}, {} {cores}",
        manifest.storage.heading(),
        machine.short_release(),
        machine.cpus
    );
    // Full strength is what a reader expects; less is described.
    let engine = manifest.engine.strip_suffix(": full").unwrap_or(&manifest.engine);
    if !engine.is_empty() {
        place = format!("{place}, {engine}");
    }
    place
}

/// Price of the disk, and whether it is a real one.
fn disk(manifest: &Manifest) -> Option<String> {
    let line = manifest.price?.line();
    let spec = manifest.file_system.as_ref().map(|made| made.spec.as_str()).unwrap_or_default();
    let is_imitated = spec
        .split(',')
        .any(|word| ["iops=", "rate=", "flush="].iter().any(|charge| word.starts_with(charge)));
    Some(if is_imitated { format!("{line} (imitated)") } else { line })
}

fn apart(left: String, right: String) -> Vec<String> {
    ends(left, right, WIDTH)
}

/// One text at each end of a line, or each on a line of its own.
fn ends(left: String, right: String, width: usize) -> Vec<String> {
    match width.checked_sub(left.chars().count() + right.chars().count()) {
        Some(space) if space > 1 => vec![format!("{left}{}{right}", " ".repeat(space))],
        _ => folded_to(width, &left).into_iter().chain([right]).collect(),
    }
}

/// Arms that are missing, and what else has to be known.
fn remarks(document: &Document) -> Vec<String> {
    let manifest = &document.manifest;
    let left_out = manifest.left_out.iter().map(|left_out| {
        let word = if left_out.failed { "FAILED" } else { "left out" };
        format!("{word}: {}: {}", label(&left_out.arm), left_out.reason)
    });
    let notes = manifest.notes.iter().map(|note| format!("note: {note}"));
    let file_system = manifest.file_system.iter().map(made);
    left_out.chain(file_system).chain(notes).collect()
}

/// How the cells' own file system was made; what mkfs said stands in the file.
fn made(made: &Made) -> String {
    format!("file system ({}): {}; mounted {}", made.spec, made.command, made.options)
}

/// Breaks a paragraph at its spaces into lines of at most [`WIDTH`] characters.
fn folded(paragraph: &str) -> Vec<String> {
    folded_to(WIDTH, paragraph)
}

/// Breaks a paragraph at its spaces into lines of at most `width` characters, unless one word is
/// longer. Double spaces stay.
pub fn folded_to(width: usize, paragraph: &str) -> Vec<String> {
    let lines = broken(paragraph.split([' ', '\n', '\r']), width);
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// Breaks words into lines of at most `width` letters, unless one word is longer.
pub(crate) fn broken<'a>(words: impl Iterator<Item = &'a str>, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in words {
        let line = lines.last_mut().expect("there is one from the start");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests;
