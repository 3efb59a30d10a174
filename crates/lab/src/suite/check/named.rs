//! Whether a part runs what it names: its base, its pairs, and the published figures.

use std::collections::BTreeSet;

use super::super::model::{Cut, Published};
use super::super::text::{PartText, Word};
use super::{Checked, Checker};
use crate::probes;

impl Checker<'_> {
    /// Refuses a part that names arms it does not run.
    pub(super) fn names_in(&self, part: &PartText, cut: &Cut) -> Checked<()> {
        let running = cut.names();
        let known = |word: &Word| {
            if running.contains(word.get_ref()) {
                return Ok(());
            }
            Err(self.unknown(
                word,
                "arm in every form of this part",
                running.iter().map(String::as_str),
            ))
        };
        known(&part.again)?;
        part.base.as_ref().map_or(Ok(()), known)?;
        let best_of = part.best_of.iter().flatten();
        for word in best_of.clone() {
            self.arm_text(word)?;
        }
        if let (Some(first), false) =
            (best_of.clone().next(), best_of.clone().any(|word| known(word).is_ok()))
        {
            return Err(self.at(first, "none of best_of runs in one of the forms"));
        }
        Ok(())
    }

    /// Refuses pairs of other arms than the part's; a form that does not run both is without that
    /// pair.
    pub(super) fn pairs_in(&self, part: &PartText, forms: &[Option<Cut>]) -> Checked<()> {
        let running: BTreeSet<String> = forms.iter().flatten().flat_map(Cut::names).collect();
        for pair in &part.also {
            for arm in [&pair.get_ref().arm, &pair.get_ref().base] {
                if !running.contains(arm) {
                    return Err(self
                        .places
                        .wrong(pair.span(), format!("{arm}: no arm of this part")));
                }
            }
        }
        Ok(())
    }

    /// Refuses a published figure of something that the published form does not run.
    pub(super) fn figures_in(&self, part: &PartText, published: Option<&Cut>) -> Checked<()> {
        let Some(cut) = published else {
            return part.figure.first().map_or(Ok(()), |figure| {
                Err(self.at(figure, "it is in no form: add [part.published]"))
            });
        };
        if part.figure.is_empty() {
            return Err(self.at(&part.name, "nothing is published: add [[part.figure]]"));
        }
        let arms = cut.names();
        for figure in &part.figure {
            let Published { workload, metric, base, arm, values, .. } = figure.get_ref();
            let wrong = |name: &str, what: &str| {
                Err(self.at(figure, format!("{name}: no such {what} in the published form")))
            };
            if !cut.workloads.iter().any(|one| one.name == *workload) {
                return wrong(workload, "workload");
            }
            if let Some(unknown) = [arm, base].into_iter().find(|name| !arms.contains(name)) {
                return wrong(unknown, "arm");
            }
            if probes::metric(metric).is_none() {
                return wrong(metric, "metric");
            }
            if !values.iter().all(|value| value.is_finite() && *value > 0.0) {
                return Err(self.at(figure, "values have to be above 0"));
            }
        }
        Ok(())
    }
}
