//! Of requests: the policy that decides as it goes, against the best of the kernel's ways and the
//! better of the fixed policies.

use crate::schema::{Against, Comparison};
use crate::statistics::Verdict;

use crate::report::figures::ratio;
use crate::report::reader::Reader;

/// The policy that decides as it goes.
const ADAPTIVE: &str = "adaptive";

/// Those that do not.
const FIXED: [&str; 2] = ["never", "always"];

const RATE: &str = "iops";

const DOORBELLS: &str = "doorbells_per_io";

/// A paragraph; none for a job without that policy, or with a fixed one as the base.
pub(super) fn reading(reader: Reader<'_>) -> Option<String> {
    let title = &reader.job.title;
    if reader.mean(ADAPTIVE, RATE).is_none() {
        let why = reader.why_left_out(ADAPTIVE)?;
        return Some(format!("{title}: {ADAPTIVE} did not run here{why}."));
    }
    let kernel = match reader.job.base.as_deref() {
        Some(base) if FIXED.contains(&base) || base == ADAPTIVE => return None,
        Some(base) => against_kernel(reader, base)?,
        None => format!("no kernel arm ran here to compare {ADAPTIVE} with"),
    };
    let fixed = against_fixed(reader).map(|text| format!(" {text}")).unwrap_or_default();
    Some(format!("{title}: {kernel}.{fixed}"))
}

fn against_kernel(reader: Reader<'_>, base: &str) -> Option<String> {
    let pair = Against { arm: ADAPTIVE, base };
    let comparison = reader.compared(RATE, pair)?;
    // Only of several there is a best.
    let best = !reader.job.best.is_empty() && base.starts_with("kernel-");
    let name = if best { format!("the best kernel arm ({base})") } else { base.to_owned() };
    let rate = match factor(comparison) {
        Some(factor) => format!("{ADAPTIVE} makes {factor} the IOPS of {name}"),
        None => format!(
            "no difference in IOPS between {ADAPTIVE} and {name} is shown: {}",
            reader.not_shown(comparison)
        ),
    };
    let doorbells = doorbells(reader, pair).map(|text| format!("; {text}")).unwrap_or_default();
    Some(format!("{rate}{doorbells}"))
}

/// Against the one with the better mean of those that ran; nothing if none did.
fn against_fixed(reader: Reader<'_>) -> Option<String> {
    let rates = FIXED.iter().filter_map(|policy| Some((*policy, reader.mean(policy, RATE)?)));
    let rates: Vec<(&str, f64)> = rates.collect();
    let (base, _) = rates.iter().max_by(|left, right| left.1.total_cmp(&right.1))?;
    let comparison = reader.compared(RATE, Against { arm: ADAPTIVE, base })?;
    let which = if rates.len() > 1 { "better" } else { "one" };
    Some(match factor(comparison) {
        Some(factor) => {
            format!("Against the {which} fixed policy ({base}) it makes {factor} the IOPS.")
        }
        None => format!(
            "Against the {which} fixed policy ({base}) no difference is shown: {}.",
            reader.not_shown(comparison)
        ),
    })
}

/// `1.50x`, `only 0.80x`; none where no difference is shown.
fn factor(comparison: &Comparison) -> Option<String> {
    match comparison.verdict {
        Verdict::Better => Some(format!("{}x", ratio(comparison.ratio))),
        Verdict::Worse => Some(format!("only {}x", ratio(comparison.ratio))),
        Verdict::NotShown => None,
    }
}

/// Where they differ.
fn doorbells(reader: Reader<'_>, pair: Against<'_>) -> Option<String> {
    reader.compared(DOORBELLS, pair).filter(|found| found.verdict != Verdict::NotShown)?;
    let [own, other] = [pair.arm, pair.base].map(|arm| reader.mean(arm, DOORBELLS).map(ratio));
    Some(format!("doorbells per I/O: {} against {}", own?, other?))
}
