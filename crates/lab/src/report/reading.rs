//! The tables in words. The sentences are computed: each is one case of the verdicts, and only
//! shown differences are reported.

mod completion;
mod files;
mod requests;

use crate::schema::{Against, Comparison, Document, Part};
use crate::statistics::{Doubt, ROUNDS_FOR_A_VERDICT, Ratio, doubt};
use crate::suite::TableKind;

use super::figures::bytes;
use super::reader::Reader;
use super::table::with_interval;

/// Memories within this factor of each other are called equal.
const EQUAL_WITHIN: f64 = 1.25;

/// The sentences on a part, one paragraph each; none where its table has none.
pub(super) fn reading(document: &Document, part: &Part) -> Vec<String> {
    let jobs = Reader::all(document, part);
    let mut paragraphs: Vec<String> = match part.table {
        TableKind::Files => jobs.take(1).flat_map(files::reading).collect(),
        TableKind::Arms => jobs.filter_map(requests::reading).collect(),
        TableKind::Completion => jobs.filter_map(completion::reading).collect(),
        TableKind::Ladder
        | TableKind::Worth
        | TableKind::Policies
        | TableKind::Beside
        | TableKind::Copies
        | TableKind::Writers
        | TableKind::Contexts
        | TableKind::Factors
        | TableKind::Echo
        | TableKind::Programs => Vec::new(),
    };
    if let Some(first) = paragraphs.first_mut() {
        // The others name the job.
        let of_several = part.table == TableKind::Files && document.parts.len() > 1;
        let which = if of_several { format!("{}: ", part.title) } else { String::new() };
        first.insert_str(0, &format!("Reading: {which}"));
    }
    paragraphs
}

impl Reader<'_> {
    /// `: why`, of an arm that was left out.
    pub(super) fn why_left_out(self, arm: &str) -> Option<String> {
        let mut left_out = self.document.manifest.left_out.iter();
        left_out
            .find(|left_out| left_out.arm == arm)
            .map(|left_out| format!(": {}", left_out.reason))
    }

    /// `with equal memory`, only where it was.
    fn with_memory(self, pair: Against<'_>) -> String {
        let memory = |arm: &str| self.mean(arm, "peak_memory_bytes");
        match (memory(pair.arm), memory(pair.base)) {
            (Some(arm), Some(base)) if arm <= base * EQUAL_WITHIN && base <= arm * EQUAL_WITHIN => {
                "with equal memory".to_owned()
            }
            (Some(arm), Some(base)) => {
                format!("with {} of memory against {}", bytes(arm), bytes(base))
            }
            _ => "with the same budget of memory".to_owned(),
        }
    }

    /// `1.01 [0.98-1.04], which includes 1`.
    fn not_shown(self, comparison: &Comparison) -> String {
        let seen = Ratio {
            ratio: comparison.ratio,
            low: comparison.ci_low,
            high: comparison.ci_high,
            rounds: self.part.rounds as usize,
            p: comparison.p,
        };
        let why = match doubt(&seen, self.floor(&comparison.metric)) {
            Some(Doubt::NoNoiseFloor) => "without a noise floor".to_owned(),
            Some(Doubt::IntervalIncludesOne) => "which includes 1".to_owned(),
            Some(Doubt::MayBeChance) => format!("which may be chance (p = {:.2})", comparison.p),
            Some(Doubt::BelowNoiseFloor) => "within the noise floor".to_owned(),
            // Rounds without a value of an arm do not count for the pair.
            Some(Doubt::FewRounds) | None => {
                format!("from fewer than {ROUNDS_FOR_A_VERDICT} rounds")
            }
        };
        format!("{}, {why}", with_interval(comparison))
    }
}
