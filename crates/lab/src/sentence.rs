//! The result of a job in one sentence, and parts of the sentences that probes say. Sentences are
//! computed from the verdicts: only shown differences are reported as such.

use crate::figures::bytes;
use crate::reader::Reader;

/// How a comparison without a shown difference begins.
pub(crate) const NO_DIFFERENCE: &str = "shows no difference from ";

/// Compares the arm that runs twice with the base, or the other arms with it if it is the base.
pub(crate) fn usual(reader: Reader<'_>) -> Option<String> {
    let (arm, base) = (reader.part.again.as_str(), reader.job.base.as_deref()?);
    let metric = reader.part.metric.replace('_', " ");
    let found = if arm == base {
        let all = reader.arms().into_iter().filter_map(|arm| reader.against_base(arm));
        let own = all.filter(|one| !one.arm.ends_with("-again"));
        own.max_by(|one, other| one.ratio.total_cmp(&other.ratio))?
    } else {
        reader.against_base(arm)?
    };
    let (arm, base) = (&found.arm, &found.base);
    Some(match reader.shown(found) {
        Some(factor) => format!("{arm} has {factor} the {metric} of {base}."),
        None => format!("{arm} {NO_DIFFERENCE}{base} in {metric}."),
    })
}

/// Returns `66 MiB of memory against 64 MiB`, if both are known.
pub(crate) fn memory(reader: Reader<'_>, arm: &str, base: &str) -> Option<String> {
    let memory = |arm: &str| reader.mean(arm, "peak_memory_bytes").map(bytes);
    Some(format!("{} of memory against {}", memory(arm)?, memory(base)?))
}
