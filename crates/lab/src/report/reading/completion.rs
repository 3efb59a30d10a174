//! Of completions: the policy that decides as it goes, against the two fixed ones and the best of
//! the kernel's arms with a bound.

use crate::compare::judge::THROUGHPUT;
use crate::schema::Against;
use crate::statistics::Verdict;

use crate::report::completion::{ADAPTIVE, POLICIES};
use crate::report::figures::ratio;
use crate::report::reader::Reader;

/// In what they are compared.
const METRICS: [(&str, &str); 3] = [
    (THROUGHPUT, "bandwidth"),
    ("write_latency_p99_us", "p99"),
    ("context_switches_per_io", "own context switches per I/O"),
];

/// A paragraph; none of a job that did not run.
pub(super) fn reading(reader: Reader<'_>) -> Option<String> {
    let title = &reader.job.title;
    if reader.mean(ADAPTIVE, THROUGHPUT).is_none() {
        let why = reader.why_left_out(ADAPTIVE)?;
        return Some(format!("{title}: {ADAPTIVE} did not run here{why}."));
    }
    let base = reader.job.base.as_deref();
    let kernel = base.map(|base| {
        let memory = reader.with_memory(Against { arm: ADAPTIVE, base });
        (base, format!("the best bounded kernel arm ({base}), {memory}"))
    });
    let fixed = POLICIES.into_iter().filter(|policy| *policy != ADAPTIVE);
    let others = fixed.map(|policy| (policy, policy.to_owned())).chain(kernel);
    let told = others.filter_map(|(base, name)| Some(format!("{name}: {}.", found(reader, base)?)));
    let told = told.enumerate().map(|(place, text)| match place {
        0 => format!("{ADAPTIVE} against {text}"),
        _ => format!("Against {text}"),
    });
    let alone = base.is_none().then(|| "No bounded kernel arm ran here.".to_owned());
    let sentences: Vec<String> = told.chain(alone).collect();
    Some(format!("{title}: {}", sentences.join(" ")))
}

/// Differences from an arm, and metrics without one; nothing if that did not run. Only the first
/// says why nothing is shown.
fn found(reader: Reader<'_>, base: &str) -> Option<String> {
    let (mut shown, mut hidden) = (Vec::new(), Vec::new());
    for (metric, name) in METRICS {
        let Some(comparison) = reader.compared(metric, Against { arm: ADAPTIVE, base }) else {
            continue;
        };
        match comparison.verdict {
            Verdict::Better | Verdict::Worse => {
                shown.push(format!("{}x the {name}", ratio(comparison.ratio)));
            }
            Verdict::NotShown if metric == METRICS[0].0 => {
                hidden.push(format!("{name} ({})", reader.not_shown(comparison)));
            }
            Verdict::NotShown => hidden.push(name.to_owned()),
        }
    }
    let hidden = listed(&hidden, "or").map(|hidden| format!("no difference is shown in {hidden}"));
    let parts: Vec<String> = listed(&shown, "and").into_iter().chain(hidden).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// `a, b and c`.
fn listed(words: &[String], last: &str) -> Option<String> {
    match words {
        [] => None,
        [one] => Some(one.clone()),
        [most @ .., end] => Some(format!("{} {last} {end}", most.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::CellResult;
    use crate::compare::Measured;
    use crate::compare::judge::{Judging, judge};
    use crate::manifest::{ArmLeftOut, Manifest};
    use crate::report::reading;
    use crate::schema::{Document, Part, PartJob};
    use crate::suite::{Base, Pair, TableKind};

    /// An arm, MB/s, microseconds, context switches for an I/O.
    type Figures<'a> = (&'a str, [f64; 3]);

    const KERNEL: [Figures<'_>; 2] =
        [("kernel-uncached", [150.0, 400.0, 0.5]), ("kernel-direct-prealloc", [200.0, 500.0, 0.5])];

    /// Five rounds around what an arm does, each arm with a ripple of its own.
    fn measured((arm, figures): &Figures<'_>) -> Measured {
        let ripples = [0.98, 1.01, 1.0, 1.02, 0.99];
        let round = |round: usize| {
            let ripple = ripples[(round * 2 + arm.len()) % ripples.len()];
            let mut metrics: std::collections::BTreeMap<String, f64> = METRICS
                .iter()
                .zip(figures)
                .map(|((name, _), value)| ((*name).to_owned(), value * ripple))
                .collect();
            let memory = if arm.starts_with("forebay") { 22.0 } else { 2.0 };
            metrics.insert("peak_memory_bytes".to_owned(), memory * f64::from(1 << 20));
            CellResult { metrics, ..CellResult::default() }
        };
        Measured {
            job: "C".into(),
            arm: (*arm).into(),
            rounds: (0..ripples.len()).map(round).collect(),
        }
    }

    fn document(arms: &[Figures<'_>]) -> Document {
        let cells: Vec<Measured> = arms.iter().map(measured).collect();
        let base = Base::BestOf(KERNEL.map(|(arm, _)| arm.to_owned()).to_vec());
        let pair = |base: &str| Pair { arm: ADAPTIVE.into(), base: base.into() };
        let also = [pair("forebay-delay"), pair("forebay-immediate"), pair("kernel-direct-1m")];
        let judging = Judging { base: &base, metric: THROUGHPUT, again: ADAPTIVE, also: &also };
        let judged = judge(&cells, judging, 0x7f3a);
        let mut document =
            Document::new(Manifest::default(), "completion", judged.rows, judged.comparisons);
        document.parts.push(Part {
            table: TableKind::Completion,
            again: ADAPTIVE.into(),
            rounds: 5,
            jobs: vec![PartJob {
                name: "C".into(),
                title: "C rand 4k qd32".into(),
                base: judged.bases.first().map(|(_, base)| base.clone()),
                ..PartJob::default()
            }],
            ..Part::default()
        });
        document
    }

    fn reading_of(document: &Document) -> String {
        reading::reading(document, &document.parts[0]).join("\n")
    }

    /// All of Forebay's, with the one that decides at these, and what others are besides.
    fn with_adaptive(figures: [f64; 3], others: &[Figures<'_>]) -> String {
        let again = [figures[0] * 1.002, figures[1] * 1.002, figures[2] * 1.002];
        let own = [
            ("forebay-delay", [300.0, 1000.0, 0.05]),
            ("forebay-immediate", [400.0, 800.0, 0.2]),
            (ADAPTIVE, figures),
            ("forebay-adaptive-again", again),
        ];
        reading_of(&document(&[&own, others].concat()))
    }

    #[test]
    fn what_differs_and_what_is_not_shown_to() {
        let text = with_adaptive([400.0, 800.0, 0.05], &KERNEL);
        let (delay, rest) = text.split_once(". Against forebay-immediate: ").unwrap();
        let (immediate, kernel) =
            rest.split_once(". Against the best bounded kernel arm ").unwrap();
        assert_eq!(
            delay,
            "Reading: C rand 4k qd32: forebay-adaptive against forebay-delay: 1.33x the bandwidth and 0.80x the p99; no \
             difference is shown in own context switches per I/O"
        );
        assert_eq!(
            immediate.split_once("; ").unwrap(),
            (
                "0.25x the own context switches per I/O",
                "no difference is shown in bandwidth (1.00 [0.98-1.02], which includes 1) or p99"
            )
        );
        assert_eq!(
            kernel,
            "(kernel-direct-prealloc), with 22 MiB of memory against 2 MiB: 2.00x the bandwidth, 1.60x the p99 and \
             0.10x the own context switches per I/O."
        );
    }

    #[test]
    fn nothing_is_shown_of_anything() {
        let text = with_adaptive([300.0, 1000.0, 0.05], &[]);
        assert!(
            text.contains("or own context switches per I/O. Against forebay-immediate: 0.75x"),
            "{text}"
        );
        assert!(
            text.contains("p99 or own") && text.ends_with(". No bounded kernel arm ran here."),
            "{text}"
        );
        let few =
            reading_of(&Document { comparisons: Vec::new(), ..document(&[(ADAPTIVE, [1.0; 3])]) });
        assert_eq!(few, "Reading: C rand 4k qd32: No bounded kernel arm ran here.");
    }

    #[test]
    fn without_the_policy_there_is_no_reading_but_why() {
        let mut document = document(&KERNEL);
        assert_eq!(reading_of(&document), "");
        let reason = "it died".to_owned();
        document.manifest.left_out =
            vec![ArmLeftOut { arm: ADAPTIVE.into(), reason, failed: true }];
        assert_eq!(
            reading_of(&document),
            "Reading: C rand 4k qd32: forebay-adaptive did not run here: it died."
        );
    }
}
