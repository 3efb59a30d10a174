//! Of work on new files: Forebay against the best of the kernel's arms with a bound, against plain
//! buffering, and what survives what.

use crate::arm::Arm;
use crate::compare::judge::THROUGHPUT;
use crate::schema::Against;
use crate::statistics::Verdict;

use crate::report::figures::ratio;
use crate::report::reader::Reader;
use crate::report::table::label;

pub(super) fn reading(reader: Reader<'_>) -> Vec<String> {
    let forebay = Arm::Forebay.name();
    if reader.mean(forebay, THROUGHPUT).is_none() {
        let why = reader.why_left_out(forebay).unwrap_or_default();
        return vec![format!("forebay did not run here{why}.")];
    }
    let unbounded = against_unbounded(reader).map(|text| format!(" {text}")).unwrap_or_default();
    vec![format!("{}{unbounded}", against_bounded(reader)), survival(reader)]
}

/// Returns the sentence on the arms that survive a crash.
fn survival(reader: Reader<'_>) -> String {
    let survivors = if reader.mean(Arm::ForebaySurvive.name(), THROUGHPUT).is_some() {
        format!("{} and the kernel's arms do", label(Arm::ForebaySurvive.name()))
    } else {
        "the kernel's arms do, and forebay with a keeper (--survive)".to_owned()
    };
    format!(
        "Until a sync returns, data written through forebay does not survive kill -9; {survivors}. No arm's survives \
         a loss of power."
    )
}

/// Forebay with another arm.
fn to(base: &str) -> Against<'_> {
    Against { arm: Arm::Forebay.name(), base }
}

const NO_BOUNDED: &str =
    "no bounded kernel arm ran here, so forebay is compared with none at equal memory.";

/// Forebay against the best arm with a bound.
fn against_bounded(reader: Reader<'_>) -> String {
    let found = reader
        .job
        .base
        .as_deref()
        .and_then(|base| Some((base, reader.compared(THROUGHPUT, to(base))?)));
    let Some((base, comparison)) = found else {
        return NO_BOUNDED.to_owned();
    };
    if base.starts_with(Arm::KernelBuffered.name()) {
        return NO_BOUNDED.to_owned();
    }
    let memory = reader.with_memory(to(base));
    let arm = format!("the best bounded kernel arm ({})", label(base));
    match comparison.verdict {
        Verdict::Better => {
            format!("{memory} forebay ends {}x sooner than {arm}.", ratio(comparison.ratio))
        }
        Verdict::Worse => {
            format!("{memory} forebay ends {}x later than {arm}.", ratio(1.0 / comparison.ratio))
        }
        Verdict::NotShown => format!(
            "{memory} no difference between forebay and {arm} is shown: {}.",
            reader.not_shown(comparison)
        ),
    }
}

/// Forebay against plain buffering; nothing if that did not run.
fn against_unbounded(reader: Reader<'_>) -> Option<String> {
    let comparison = reader.compared(THROUGHPUT, to(Arm::KernelBuffered.name()))?;
    let memory = match memory_factor(reader, Arm::KernelBuffered.name()) {
        Some(factor) => format!("with {}x forebay's memory", ratio(factor)),
        None => "with memory that was not measured".to_owned(),
    };
    Some(match comparison.verdict {
        Verdict::Better => {
            format!(
                "Unbounded buffering ends {}x later than forebay, {memory}.",
                ratio(comparison.ratio)
            )
        }
        Verdict::Worse => {
            format!(
                "Unbounded buffering ends {}x sooner than forebay, {memory}.",
                ratio(1.0 / comparison.ratio)
            )
        }
        Verdict::NotShown => {
            format!("Between forebay and unbounded buffering, {memory}, no difference is shown.")
        }
    })
}

/// How many times forebay's memory an arm took.
fn memory_factor(reader: Reader<'_>, arm: &str) -> Option<f64> {
    let memory = |arm: &str| reader.mean(arm, "peak_memory_bytes");
    Some(memory(arm)? / memory(Arm::Forebay.name())?).filter(|factor| factor.is_finite())
}
