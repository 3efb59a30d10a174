//! A job of a part, and the figures that a table, a picture or a sentence takes from it.

use crate::detail::Bins;
use crate::figures::{percent, ratio};
use crate::schema::{Against, Comparison, Document, Part, PartJob, Row};
use crate::statistics::Verdict;

/// Looks up the figures of one job.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    pub(crate) document: &'a Document,
    pub(crate) part: &'a Part,
    pub(crate) job: &'a PartJob,
}

impl<'a> Reader<'a> {
    /// Returns the jobs of a part that have results, in the order of its tables.
    pub(crate) fn ran(document: &'a Document, part: &'a Part) -> impl Iterator<Item = Self> {
        let all = part.jobs.iter().map(move |job| Self { document, part, job });
        all.filter(|reader| !reader.arms().is_empty())
    }

    /// Returns the arms of the job in the order of their first rows.
    pub(crate) fn arms(self) -> Vec<&'a str> {
        self.document.arms_of(&self.job.name)
    }

    /// Returns the arms with their places among all arms of the result. Pictures choose colours by
    /// them: an arm has one colour on a page.
    pub(crate) fn placed_arms(self) -> Vec<(usize, &'a str)> {
        let mut all: Vec<&str> = Vec::new();
        for row in &self.document.rows {
            if !all.contains(&row.arm.as_str()) {
                all.push(&row.arm);
            }
        }
        let place = |arm: &str| all.iter().position(|one| *one == arm).unwrap_or(all.len());
        self.arms().into_iter().map(|arm| (place(arm), arm)).collect()
    }

    /// Returns the latencies of an arm in one direction, over all rounds.
    pub(crate) fn latencies(self, arm: &str, direction: &str) -> Bins {
        let cells = self.document.cells.iter();
        let of_arm = cells.filter(|cell| cell.job == self.job.name && cell.arm == arm);
        let flows = of_arm.flat_map(|cell| cell.detail.flows());
        let wanted = flows.filter(|(which, _)| *which == direction);
        Bins::sum(wanted.map(|(_, flow)| &flow.latency.bins))
    }

    pub(crate) fn row(self, arm: &str, metric: &str) -> Option<&'a Row> {
        let mut rows = self.document.rows.iter();
        rows.find(|row| row.job == self.job.name && row.arm == arm && row.metric == metric)
    }

    /// Returns an arm's mean of a metric.
    pub(crate) fn mean(self, arm: &str, metric: &str) -> Option<f64> {
        self.row(arm, metric).map(|row| row.mean)
    }

    /// Returns whether any arm has a metric.
    pub(crate) fn has(self, metric: &str) -> bool {
        self.document.rows.iter().any(|row| row.job == self.job.name && row.metric == metric)
    }

    pub(crate) fn compared(self, metric: &str, pair: Against<'_>) -> Option<&'a Comparison> {
        let of_job = |one: &&Comparison| one.job == self.job.name && one.metric == metric;
        let mut of_job = self.document.comparisons.iter().filter(of_job);
        of_job.find(|one| one.arm == pair.arm && one.base == pair.base)
    }

    /// Compares an arm with the base of the job, in the metric of the part.
    pub(crate) fn against_base(self, arm: &str) -> Option<&'a Comparison> {
        self.compared(&self.part.metric, Against { arm, base: self.job.base.as_deref()? })
    }

    /// Returns the noise floor of a metric.
    pub(crate) fn floor(self, metric: &str) -> Option<f64> {
        self.document.floor(&self.job.name, &self.part.again, metric)
    }

    /// Returns the line below a table with ratios.
    pub(crate) fn noise(self) -> String {
        let floor = match self.floor(&self.part.metric) {
            Some(floor) => format!("noise floor {}.", percent(floor)),
            None => "noise floor unknown, so no difference is shown.".to_owned(),
        };
        format!("{floor}  ~ = not shown")
    }

    /// Returns `: why` of an arm that was left out.
    pub(crate) fn why_left_out(self, arm: &str) -> Option<String> {
        let mut left_out = self.document.manifest.left_out.iter();
        let found = left_out.find(|left_out| left_out.arm == arm)?;
        Some(format!(": {}", found.reason))
    }

    /// Returns `1.69x (1.60-1.80)` if the difference is shown.
    pub(crate) fn shown(self, found: &Comparison) -> Option<String> {
        (found.verdict != Verdict::NotShown)
            .then(|| factor(found, self.part.rounds, |it, _| ratio(it)))
    }
}

/// Returns the ratio, and its interval unless it rests on one round. `shown` gets each number, and
/// whether the ratio is near 1.
pub(crate) fn factor(
    found: &Comparison,
    rounds: u32,
    shown: impl Fn(f64, bool) -> String,
) -> String {
    let near = (0.95..1.05).contains(&found.ratio);
    let [middle, low, high] = [found.ratio, found.ci_low, found.ci_high].map(|it| shown(it, near));
    if rounds < 2 { format!("{middle}x") } else { format!("{middle}x ({low}-{high})") }
}

/// Returns an arm by the name a reader knows it by.
pub fn arm_name(arm: &str) -> String {
    let known = [
        ("kernel-buffered", "kernel page cache"),
        ("kernel-cgroup", "kernel, cgroup"),
        ("kernel-bounded-prealloc", "kernel bounded"),
        ("kernel-direct-prealloc", "kernel O_DIRECT"),
        ("forebay", "Forebay"),
        ("forebay-survive", "Forebay + keeper"),
        ("forebay-declared", "Forebay, set_len"),
    ];
    let found = known.iter().find(|(known, _)| *known == arm);
    found.map_or_else(|| arm.to_owned(), |(_, name)| (*name).to_owned())
}
