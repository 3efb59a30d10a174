//! The lines above and below the tables of a result: machine, disk, parts, and remarks.

use super::table::WIDTH;
use crate::disk::Charges;
use crate::figures::bytes;
use crate::file_system::{Made, Spec};
use crate::manifest::Manifest;
use crate::schema::{Document, Part};
use crate::text::{counted, ends, folded_to};

/// Returns the lines over all tables: machine and disk.
pub(super) fn head(manifest: &Manifest) -> Vec<String> {
    [place(manifest)].into_iter().chain(disk(manifest)).flat_map(|line| folded(&line)).collect()
}

pub(super) fn heading(document: &Document, part: &Part) -> Vec<String> {
    let rounds = counted(part.rounds.into(), "round");
    let asked = format!("{}{}", part.title, size(part));
    ends(&asked, format!("{rounds}, seed {}", document.manifest.seed), WIDTH)
}

/// Returns `, 288 MiB, until synced`: what each cell of a part writes, if that is fixed.
pub(super) fn size(part: &Part) -> String {
    let size = part.cell_bytes.map(|size| bytes(size as f64));
    size.map(|size| format!(", {size}, until synced")).unwrap_or_default()
}

/// Returns file system, its page cache, kernel, processors, and the engine that ran.
pub(super) fn place(manifest: &Manifest) -> String {
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

/// Returns the price of the disk, and whether it is imitated.
pub(super) fn disk(manifest: &Manifest) -> Option<String> {
    let line = manifest.price?.line();
    let spec = manifest.file_system.as_ref().and_then(|made| made.spec.parse::<Spec>().ok());
    let is_imitated = spec.is_some_and(|spec| spec.charges != Charges::NONE);
    Some(if is_imitated { format!("{line} (imitated)") } else { line })
}

/// Returns the arms that are missing, and what else has to be known.
pub(super) fn remarks(document: &Document) -> Vec<String> {
    let manifest = &document.manifest;
    let left_out = manifest.left_out.iter().map(|left_out| {
        let word = if left_out.failed { "FAILED" } else { "left out" };
        format!("{word}: {}: {}", left_out.arm, left_out.reason)
    });
    let notes = manifest.notes.iter().map(|note| format!("note: {note}"));
    let file_system = manifest.file_system.iter().map(made);
    left_out.chain(file_system).chain(notes).collect()
}

/// Returns how the cells' own file system was made; the output of mkfs stands in the file.
fn made(made: &Made) -> String {
    format!("file system ({}): {}; mounted {}", made.spec, made.command, made.options)
}

/// Breaks a paragraph at its spaces into lines of at most [`WIDTH`] characters.
pub(super) fn folded(paragraph: &str) -> Vec<String> {
    folded_to(WIDTH, paragraph)
}
