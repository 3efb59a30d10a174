//! The answer of the default comparison on one screen: at most 40 lines of 80 columns.
//!
//! The first question is a table, each further one a few sentences. One line of warnings and the
//! command that shows everything follow. The arm that measures noise and every column that no
//! sentence uses are left to [`super::comparison`]. Made from the document alone.

use std::time::Duration;

use crate::compare::state::{self, CellState};
use crate::figures::{bytes, microseconds, percent, ratio};
use crate::schema::again;
use crate::schema::{Comparison, Document, Part};
use crate::statistics::ROUNDS_FOR_A_VERDICT;
use crate::text::{counted, ends, folded_to, spoken};

use super::head::{disk, place, size};
use super::table::absent;
use crate::probes;
use crate::reader::{Reader, arm_name as name, factor};

/// The widest line: two columns less than a terminal has.
const WIDTH: usize = 78;

/// The arm of the page cache without a limit of memory.
const UNBOUNDED: &str = "kernel-buffered";

/// Below this width the table has no intervals.
const WIDE: usize = 76;

/// A space at which no line is broken.
const UNBROKEN: &str = "\u{a0}";

/// Width of the column of names.
const NAME: usize = 17;

/// Returns the summary of a comparison. `everything` is the command that shows the full tables; none if the
/// result was not kept. Lines have at most `width` characters, from 60 on. Ends with a newline.
pub fn summary(document: &Document, everything: Option<&str>, width: usize) -> String {
    let width = width.min(WIDTH);
    let mut lines = Vec::new();
    for (number, part) in document.parts.iter().enumerate() {
        let question = part.question.clone().unwrap_or_else(|| part.title.clone());
        lines.extend(ends(&format!("{question}{}", size(part)), time(part), width));
        if number == 0 {
            lines.extend(folded_to(width, &place(&document.manifest)));
            lines.extend(disk(&document.manifest).iter().flat_map(|line| folded_to(width, line)));
        }
        let mut said: Vec<String> = Vec::new();
        for reader in Reader::ran(document, part) {
            match probes::by_name(&reader.job.probe) {
                Some(probe) if probe.has_table => lines.extend(files_of(reader, width)),
                probe => {
                    let sentence = probe.and_then(|probe| (probe.sentence)(reader));
                    said.extend(sentence.map(|sentence| capitalized(&sentence)));
                }
            }
        }
        if !said.is_empty() {
            let said = folded_to(width - 2, &said.join(" "));
            lines.extend(said.into_iter().map(|line| format!("  {line}")));
        }
        lines.push(String::new());
    }
    lines.extend(warning(document).iter().flat_map(|text| folded_to(width, text)));
    lines.extend(everything.map(|command| format!("All tables and notes: {command}")));
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines.join("\n") + "\n"
}

fn time(part: &Part) -> String {
    let rounds = counted(part.rounds.into(), "round");
    match part.seconds {
        Some(seconds) => format!("{rounds}, {}", spoken(Duration::from_secs_f64(seconds))),
        None => rounds,
    }
}

/// Returns a table of one job, the fastest arm first, and what its figures mean.
fn files_of(reader: Reader<'_>, width: usize) -> Vec<String> {
    let twin = again(&reader.part.again);
    let others = reader.arms().into_iter().filter(|arm| *arm != twin);
    let mut arms: Vec<(&str, f64)> =
        others.filter_map(|arm| Some((arm, reader.mean(arm, &reader.part.metric)?))).collect();
    arms.sort_by(|left, right| right.1.total_cmp(&left.1));
    let is_wide = width >= WIDE;
    let (ratio_width, against, sync) = if is_wide {
        (18, "vs best bounded", "  small sync beside")
    } else {
        (6, "vs", "    sync")
    };
    let head =
        format!("  {:<NAME$} {:>9}  {against:<ratio_width$} {:>8} {sync}", "", "speed", "memory");
    let mut lines = vec![String::new(), head];
    let mut unshown = false;
    for (arm, speed) in &arms {
        let mut against = against_base(reader, arm);
        if !is_wide {
            against.truncate(against.find(" (").unwrap_or(against.len()));
        }
        unshown |= against.starts_with('~');
        let memory = reader.mean(arm, "peak_memory_bytes").map_or_else(absent, bytes);
        let sync = reader.mean(arm, "sync_probe_p99_us").map_or_else(absent, microseconds);
        let is_unbounded = *arm == UNBOUNDED && is_wide;
        let remark = if is_unbounded { "  unbounded" } else { "" };
        let line = format!(
            "  {:<NAME$} {:>9}  {against:<ratio_width$} {memory:>8} {sync:>8}{remark}",
            name(arm),
            format!("{:.0} MB/s", speed / 1e6),
        );
        lines.push(line.trim_end().to_owned());
    }
    lines.push(String::new());
    let legend = folded_to(width, &legend(reader, unshown));
    lines.extend(legend.into_iter().map(|line| line.replace(UNBROKEN, " ")));
    lines
}

/// Returns `2.0x (1.7-2.2)`, with `~` in front if no difference is shown.
fn against_base(reader: Reader<'_>, arm: &str) -> String {
    if reader.job.base.as_deref() == Some(arm) {
        return "1 (best bounded)".to_owned();
    }
    let shown = |found: &Comparison| {
        format!("{}{}", found.mark(), factor(found, reader.part.rounds, tenths))
    };
    reader.against_base(arm).map_or_else(absent, shown)
}

/// Returns `2.0`; `0.97` near 1, so that it does not read as equal.
fn tenths(value: f64, near: bool) -> String {
    if near || value >= 99.5 { ratio(value) } else { format!("{value:.1}") }
}

fn legend(reader: Reader<'_>, unshown: bool) -> String {
    let mut said = Vec::new();
    let arms = reader.arms();
    let ran = |arm: &str| arms.contains(&arm);
    if arms.iter().any(|arm| reader.row(arm, "sync_probe_p99_us").is_some()) {
        said.push("Small sync: p99 of another thread's 4 KiB write + fdatasync.".to_owned());
    }
    said.push(match reader.floor(&reader.part.metric) {
        Some(floor) if reader.part.rounds > 1 => {
            format!("Differences below {} are noise.", percent(floor))
        }
        _ => "The noise is unknown.".to_owned(),
    });
    if unshown {
        said.push("~: no difference is shown.".to_owned());
    }
    if !ran("forebay") {
        let why = reader.why_left_out("forebay").unwrap_or_default();
        said.push(format!("Forebay did not run{why}."));
    } else if ran("forebay-survive") {
        said.push(
            format!(
                "Until a sync returns, only \"+{UNBROKEN}keeper\" and the kernel survive kill{UNBROKEN}-9; nothing \
                 survives a power cut."
            ),
        );
    } else {
        said.push(
            "Until a sync returns, data written through Forebay without a keeper does not survive \
             kill -9; nothing survives a power cut."
                .to_owned(),
        );
    }
    said.join(" ")
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Returns the gravest thing that may spoil the figures, with its remedy, and how many others there are.
fn warning(document: &Document) -> Option<String> {
    let manifest = &document.manifest;
    let cells: Vec<CellState> =
        document.parts.iter().flat_map(|part| part.cells.iter().cloned()).collect();
    let failed = manifest.left_out.iter().filter(|one| one.failed);
    let failed = failed.map(|one| format!("{} failed: {}", name(&one.arm), one.reason));
    let rounds = document.parts.iter().map(|part| part.rounds).min();
    let few = rounds.filter(|rounds| (*rounds as usize) < ROUNDS_FOR_A_VERDICT).map(|_| {
        format!(
            "fewer than {ROUNDS_FOR_A_VERDICT} rounds show no difference; use --rounds 5 or more"
        )
    });
    let missing = manifest.left_out.iter().filter(|one| !one.failed);
    let missing = missing.map(|one| format!("{} is left out: {}", name(&one.arm), one.reason));
    let all: Vec<String> = failed.chain(few).chain(state::notes(&cells)).chain(missing).collect();
    let first = all.first()?;
    let more = match all.len() - 1 {
        0 => String::new(),
        more => format!(" ({})", counted(more as u64, "further warning")),
    };
    Some(format!("Warning: {first}{more}."))
}

#[cfg(test)]
mod tests;
