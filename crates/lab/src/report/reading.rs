//! What a table says, in words. Computed, never written by hand: each sentence is one case of the verdicts, and a
//! difference that is not shown is not told as one.

use crate::arm::Arm;
use crate::compare::judge::{Floor, THROUGHPUT, floor_of};
use crate::schema::{Against, Comparison, Document, PartJob};
use crate::statistics::{Doubt, ROUNDS_FOR_A_VERDICT, Ratio, Verdict, doubt};

use super::figures::{bytes, ratio};
use super::table::{label, with_interval};

/// Memories within this factor of each other are called equal.
const EQUAL_WITHIN: f64 = 1.25;

/// The sentences below a table, one paragraph each.
pub(super) fn reading(document: &Document, job: &PartJob) -> Vec<String> {
    let forebay = Arm::Forebay.name();
    if document.row_of(&job.name, forebay, THROUGHPUT).is_none() {
        let why = document.manifest.left_out.iter().find(|left_out| left_out.arm == forebay);
        let why = why.map(|left_out| format!(": {}", left_out.reason)).unwrap_or_default();
        return vec![format!("Reading: forebay did not run here{why}.")];
    }
    let bounded = against_bounded(document, job);
    let unbounded = against_unbounded(document, job);
    vec![
        format!("Reading: {bounded}{}", unbounded.map(|text| format!(" {text}")).unwrap_or_default()),
        survival(document, job),
    ]
}

/// What survives what, of the arms that ran.
fn survival(document: &Document, job: &PartJob) -> String {
    let ran = |arm: Arm| document.row_of(&job.name, arm.name(), THROUGHPUT).is_some();
    let survivors = if ran(Arm::ForebaySurvive) {
        format!("{} and the kernel's arms do", label(Arm::ForebaySurvive.name()))
    } else {
        "the kernel's arms do, and forebay with a keeper (--survive)".to_owned()
    };
    format!(
        "Until a sync returns, data written through forebay does not survive kill -9; {survivors}. No arm's survives \
         a loss of power."
    )
}

/// Forebay against the best arm with a bound.
fn against_bounded(document: &Document, job: &PartJob) -> String {
    let found = job.base.as_deref().and_then(|base| Some((base, compared(document, job, base)?)));
    let Some((base, comparison)) = found else {
        return "no bounded kernel arm ran here, so forebay is compared with none at equal memory."
            .to_owned();
    };
    let memory = with_memory(document, job, base);
    let arm = format!("the best bounded kernel arm ({})", label(base));
    match comparison.verdict {
        Verdict::Better => format!("{memory} forebay ends {}x sooner than {arm}.", ratio(comparison.ratio)),
        Verdict::Worse => {
            format!("{memory} forebay ends {}x later than {arm}.", ratio(1.0 / comparison.ratio))
        }
        Verdict::NotShown => format!(
            "{memory} no difference between forebay and {arm} is shown: {}, {}.",
            with_interval(comparison),
            why_not_shown(document, comparison)
        ),
    }
}

/// Forebay against plain buffering; nothing if that did not run.
fn against_unbounded(document: &Document, job: &PartJob) -> Option<String> {
    let comparison = compared(document, job, Arm::KernelBuffered.name())?;
    let memory = match memory_factor(document, job, Arm::KernelBuffered.name()) {
        Some(factor) => format!("with {}x forebay's memory", ratio(factor)),
        None => "with memory that was not measured".to_owned(),
    };
    Some(match comparison.verdict {
        Verdict::Better => {
            format!("Unbounded buffering ends {}x later than forebay, {memory}.", ratio(comparison.ratio))
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

/// Forebay with another arm, by throughput.
fn compared<'a>(document: &'a Document, job: &PartJob, base: &str) -> Option<&'a Comparison> {
    document.compared(&job.name, THROUGHPUT, Against { arm: Arm::Forebay.name(), base })
}

/// Bytes an arm took.
fn memory(document: &Document, job: &PartJob, arm: &str) -> Option<f64> {
    document.row_of(&job.name, arm, "peak_memory_bytes").map(|row| row.mean)
}

/// `with equal memory`, only where it was.
fn with_memory(document: &Document, job: &PartJob, base: &str) -> String {
    match (memory(document, job, Arm::Forebay.name()), memory(document, job, base)) {
        (Some(forebay), Some(other)) => {
            let equal = forebay <= other * EQUAL_WITHIN && other <= forebay * EQUAL_WITHIN;
            if equal {
                "with equal memory".to_owned()
            } else {
                format!("with {} of memory against {}", bytes(forebay), bytes(other))
            }
        }
        _ => "with the same budget of memory".to_owned(),
    }
}

/// How many times forebay's memory an arm took.
fn memory_factor(document: &Document, job: &PartJob, arm: &str) -> Option<f64> {
    let factor = memory(document, job, arm)? / memory(document, job, Arm::Forebay.name())?;
    Some(factor).filter(|factor| factor.is_finite())
}

fn why_not_shown(document: &Document, comparison: &Comparison) -> String {
    let seen = Ratio {
        ratio: comparison.ratio,
        low: comparison.ci_low,
        high: comparison.ci_high,
        rounds: document.manifest.rounds as usize,
        p: comparison.p,
    };
    let floor = Floor { job: &comparison.job, again: Arm::Forebay.name() };
    match doubt(&seen, floor_of(&document.rows, floor, &comparison.metric)) {
        Some(Doubt::NoNoiseFloor) => "with no noise floor to tell it from".to_owned(),
        Some(Doubt::IntervalIncludesOne) => "which includes 1".to_owned(),
        Some(Doubt::MayBeChance) => format!("which may be chance (p = {:.2})", comparison.p),
        Some(Doubt::BelowNoiseFloor) => "within the noise floor".to_owned(),
        // A round in which an arm has no value is not counted for the pair.
        Some(Doubt::FewRounds) | None => format!("from fewer than {ROUNDS_FOR_A_VERDICT} rounds"),
    }
}
