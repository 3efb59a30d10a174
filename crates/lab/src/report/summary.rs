//! The answer of the default comparison on one screen: at most 40 lines of 80 columns.
//!
//! The first question is a table, each further one a few sentences. One line of warnings and the
//! command that shows everything follow. The arm that measures noise and every column that no
//! sentence uses are left to [`super::comparison`]. Made from the document alone.

use crate::arm::Arm;
use crate::compare::judge::THROUGHPUT;
use crate::compare::state::{self, CellState};
use crate::plan::{again, spoken};
use crate::schema::{Against, Comparison, Document, Part};
use crate::statistics::{ROUNDS_FOR_A_VERDICT, Verdict};
use crate::suite::TableKind;

use super::completion::{DELAY, OWN};
use super::figures::{bytes, microseconds, percent, ratio};
use super::reader::Reader;
use super::table::absent;
use super::{disk, ends, folded_to, place, size};

/// The widest line: two columns less than a terminal has.
pub const WIDTH: usize = 78;

/// Below this width the table has no intervals.
const WIDE: usize = 76;

/// A space at which no line is broken.
const UNBROKEN: &str = "\u{a0}";

/// How a comparison without a shown difference begins.
const NO_DIFFERENCE: &str = "shows no difference from ";

/// Width of the column of names.
const NAME: usize = 17;

/// The summary of a comparison. `everything` is the command that shows the full tables; none if the
/// result was not kept. Lines have at most `width` characters, from 60 on. Ends with a newline.
pub fn summary(document: &Document, everything: Option<&str>, width: usize) -> String {
    let width = width.min(WIDTH);
    let mut lines = Vec::new();
    for (number, part) in document.parts.iter().enumerate() {
        let question = match part.table {
            TableKind::Files => format!("{}{}, until synced", part.title, size(part)),
            _ => part.question.clone().unwrap_or_else(|| part.title.clone()),
        };
        lines.extend(ends(question, time(part), width));
        if number == 0 {
            lines.extend(folded_to(width, &place(&document.manifest)));
            lines.extend(disk(&document.manifest).iter().flat_map(|line| folded_to(width, line)));
        }
        match part.table {
            TableKind::Files => {
                lines.extend(Reader::all(document, part).take(1).flat_map(|job| files(job, width)));
            }
            TableKind::Arms => lines.extend(sentences(document, part, width, batching)),
            TableKind::Completion => lines.extend(sentences(document, part, width, completion)),
            _ => {}
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
    let rounds = crate::plan::counted(part.rounds.into(), "round");
    match part.seconds {
        Some(seconds) => {
            format!("{rounds}, {}", spoken(std::time::Duration::from_secs_f64(seconds)))
        }
        None => rounds,
    }
}

/// An arm by the name a reader knows it by.
pub fn name(arm: &str) -> String {
    let known = [
        (Arm::KernelBuffered, "kernel page cache"),
        (Arm::KernelCgroup, "kernel, cgroup"),
        (Arm::KernelBoundedPrealloc, "kernel bounded"),
        (Arm::KernelDirectPrealloc, "kernel O_DIRECT"),
        (Arm::Forebay, "Forebay"),
        (Arm::ForebaySurvive, "Forebay + keeper"),
        (Arm::ForebayDeclared, "Forebay, set_len"),
    ];
    let found = known.iter().find(|(known, _)| known.name() == arm);
    found.map_or_else(|| arm.to_owned(), |(_, name)| (*name).to_owned())
}

/// A table of one job, the fastest arm first, and what its figures mean.
fn files(reader: Reader<'_>, width: usize) -> Vec<String> {
    let twin = again(&reader.part.again);
    let others = reader.arms().into_iter().filter(|arm| *arm != twin);
    let mut arms: Vec<(&str, f64)> =
        others.filter_map(|arm| Some((arm, reader.mean(arm, THROUGHPUT)?))).collect();
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
        let is_unbounded = *arm == Arm::KernelBuffered.name() && is_wide;
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

/// `2.0x (1.7-2.2)`, with `~` in front if no difference is shown.
fn against_base(reader: Reader<'_>, arm: &str) -> String {
    if reader.job.base.as_deref() == Some(arm) {
        return "1 (best bounded)".to_owned();
    }
    reader.against_base(arm).map_or_else(absent, |found| {
        let mark = if found.verdict == Verdict::NotShown { "~" } else { "" };
        format!("{mark}{}", factor(found, reader.part.rounds, tenths))
    })
}

/// The ratio, and its interval unless it rests on one round.
fn factor(found: &Comparison, rounds: u32, shown: fn(f64, bool) -> String) -> String {
    let near = (0.95..1.05).contains(&found.ratio);
    let [middle, low, high] = [found.ratio, found.ci_low, found.ci_high].map(|it| shown(it, near));
    if rounds < 2 { format!("{middle}x") } else { format!("{middle}x ({low}-{high})") }
}

/// `2.0`; `0.97` near 1, so that it does not read as equal.
fn tenths(value: f64, near: bool) -> String {
    if near || value >= 99.5 { ratio(value) } else { format!("{value:.1}") }
}

fn hundredths(value: f64, _near: bool) -> String {
    ratio(value)
}

fn legend(reader: Reader<'_>, unshown: bool) -> String {
    let mut said = Vec::new();
    let arms = reader.arms();
    let ran = |arm: Arm| arms.contains(&arm.name());
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
    if !ran(Arm::Forebay) {
        let why = reader.why_left_out(Arm::Forebay.name()).unwrap_or_default();
        said.push(format!("Forebay did not run{why}."));
    } else if ran(Arm::ForebaySurvive) {
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

/// The sentences on each job of a part.
fn sentences(
    document: &Document,
    part: &Part,
    width: usize,
    on: fn(Reader<'_>) -> Option<String>,
) -> Vec<String> {
    let said: Vec<String> = Reader::all(document, part).filter_map(on).collect();
    folded_to(width - 2, &said.join(" ")).into_iter().map(|line| format!("  {line}")).collect()
}

/// Compares adaptive batching with submitting requests one by one, and with
/// the best of the kernel's paths.
fn batching(reader: Reader<'_>) -> Option<String> {
    let job = reader.job;
    let (adaptive, single) = ("adaptive", "never");
    let depth = job.depth.map(|depth| format!("At depth {depth}, ")).unwrap_or_default();
    let calls = |arm: &str| reader.mean(arm, "doorbells_per_io");
    let rate = |base: &str| {
        let compared = reader.compared("iops", Against { arm: adaptive, base })?;
        Some(shown(compared, reader.part.rounds))
    };
    let own = rate(single)?;
    let kernel = job.base.as_deref().filter(|base| base.starts_with("kernel-"));
    let kernel =
        kernel.and_then(|base| Some((format!("the best kernel path ({base})"), rate(base)?)));
    let mut said = match &own {
        Some(own) => format!("batching gives {own} the IOPS of single submission"),
        None => "batching shows no difference from single submission".to_owned(),
    };
    if let Some((path, other)) = kernel {
        said += &match (own, other) {
            (Some(_), Some(other)) => format!(" and {other} those of {path}"),
            (Some(_), None) => format!(" and shows no difference from {path}"),
            (None, Some(other)) => format!(" and gives {other} the IOPS of {path}"),
            (None, None) => format!(" or from {path}"),
        };
    }
    let saved = match (calls(adaptive), calls(single)) {
        (Some(batched), Some(single)) if (single - batched).abs() >= 0.005 => {
            let [batched, single] = [batched, single].map(ratio);
            format!("; it makes {batched} system calls per I/O instead of {single}")
        }
        _ => String::new(),
    };
    Some(format!("{depth}{said}{saved}."))
}

/// Completion at once against a delay and against the best bounded kernel arm.
fn completion(reader: Reader<'_>) -> Option<String> {
    let (job, rounds) = (reader.job, reader.part.rounds);
    let against = |base: &str, called: &str| {
        let found = |metric: &str| reader.compared(metric, Against { arm: OWN, base });
        let bandwidth = found(THROUGHPUT)?;
        let latency = found("write_latency_p99_us").and_then(|found| shown(found, rounds));
        let differs: Vec<String> = shown(bandwidth, rounds)
            .map(|times| format!("{times} the bandwidth"))
            .into_iter()
            .chain(latency.map(|times| format!("{times} the p99 latency")))
            .collect();
        Some(match differs.as_slice() {
            [] => format!("{NO_DIFFERENCE}{called}"),
            differs => format!("gives {} of {called}", differs.join(" and ")),
        })
    };
    let kernel = job.base.as_deref().map(|base| {
        let memory = |arm: &str| reader.mean(arm, "peak_memory_bytes").map(bytes);
        let memory = match (memory(OWN), memory(base)) {
            (Some(own), Some(other)) => format!(" ({own} of memory against {other})"),
            _ => String::new(),
        };
        (base, format!("the best bounded kernel arm, {}{memory}", name(base)))
    });
    let said = [
        against(DELAY, "holding them for 1 ms"),
        kernel.and_then(|(base, called)| against(base, &called)),
    ];
    let said: Vec<String> = said.into_iter().flatten().collect();
    if said.is_empty() {
        return None;
    }
    // The name of the job stands before its title.
    let title = job.title.strip_prefix(&job.name).unwrap_or(&job.title);
    let title = capitalized(title.trim_start_matches([':', ' ']));
    Some(format!("{title}: ending completions at once {}.", said.join(". It ")))
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// The ratio of a difference that is shown.
fn shown(found: &Comparison, rounds: u32) -> Option<String> {
    (found.verdict != Verdict::NotShown).then(|| factor(found, rounds, hundredths))
}

/// The gravest thing that may spoil the figures, with its remedy, and how many others there are.
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
        more => format!(" ({})", crate::plan::counted(more as u64, "further warning")),
    };
    Some(format!("Warning: {first}{more}."))
}

#[cfg(test)]
mod tests;
