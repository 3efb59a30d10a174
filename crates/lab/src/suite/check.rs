//! From a suite's text to a suite: every name looked up, every number held against its bounds. The
//! first error is reported with its place and the allowed values; nothing is guessed.

mod kinds;
mod named;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::{Range, RangeInclusive};

use toml::Spanned;

use super::cross::{self, Levels};
use super::text::{CutText, PartText, SuiteText, Word};
use super::{Arm, Base, Bytes, Cut, Form, Part, Suite, WorkloadKind};
use crate::metric;
use crate::nearest;
use crate::plan::{MOST_ROUNDS, WRITER_STEP_BYTES};
use crate::refusal::Refusal;
use crate::shape::MOST_DEPTH;
use crate::through::Family;

/// Most characters of a name: what a column of a table holds.
const NAME_AT_MOST: usize = 24;

/// Of a workload, which stands in headings.
const WORKLOAD_AT_MOST: usize = 40;

/// Bios in flight.
const DEPTHS: RangeInclusive<u32> = 1..=MOST_DEPTH;

/// Seconds of one cell.
const SECONDS: RangeInclusive<f64> = 0.01..=3600.0;

/// A suite from its text; `file` is what it is called in a complaint.
pub(super) fn parse(text: &str, file: &str) -> Result<Suite, Refusal> {
    let places = Places { text, file };
    let written: SuiteText = toml::from_str(text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        places.wrong(span, one_line(error.message()))
    })?;
    Checker { places, written: &written }.suite()
}

/// Where things stand.
#[derive(Clone, Copy)]
struct Places<'a> {
    text: &'a str,
    file: &'a str,
}

impl Places<'_> {
    fn wrong(&self, span: Range<usize>, what: impl Into<String>) -> Refusal {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|letter| *letter != '\n').count() + 1;
        Refusal(format!("{}:{line}:{column}: {}", self.file, what.into()))
    }
}

struct Checker<'a> {
    places: Places<'a>,
    written: &'a SuiteText,
}

type Checked<T> = Result<T, Refusal>;

impl Checker<'_> {
    fn suite(&self) -> Checked<Suite> {
        let written = self.written;
        self.names(std::iter::once(&written.name), NAME_AT_MOST)?;
        self.names(written.workload.iter().map(|workload| &workload.name), WORKLOAD_AT_MOST)?;
        self.names(written.arm.iter().map(|arm| &arm.name), NAME_AT_MOST)?;
        self.names(written.part.iter().map(|part| &part.name), NAME_AT_MOST)?;
        if written.part.is_empty() {
            return Err(self.at(&written.name, "there is no [[part]]: give one at least"));
        }
        let parts: Checked<Vec<Part>> = written.part.iter().map(|part| self.part(part)).collect();
        Ok(Suite {
            name: written.name.get_ref().clone(),
            title: written.title.clone(),
            file: written.file,
            parts: parts?,
        })
    }

    fn part(&self, written: &PartText) -> Checked<Part> {
        let name = written.metric.get_ref();
        let metric = metric::find(name).ok_or_else(|| {
            let known = metric::all().map(|metric| metric.name);
            self.unknown(&written.metric, "metric", known)
        })?;
        let base = match (&written.base, &written.best_of) {
            (Some(base), None) => Base::Arm(base.get_ref().clone()),
            (None, Some(arms)) => {
                Base::BestOf(arms.iter().map(|arm| arm.get_ref().clone()).collect())
            }
            _ => return Err(self.at(&written.name, "give one of base and best_of")),
        };
        let forms = [&written.full, &written.quick, &written.bare];
        if forms.iter().all(|form| form.is_none()) {
            return Err(self.at(&written.name, "it is in no form: add [part.full] below it"));
        }
        let cut = |form: Form| {
            let own = forms[form as usize].as_ref();
            own.map(|own| self.cut(written, own, rounds_of(form))).transpose()
        };
        let forms = [cut(Form::Full)?, cut(Form::Quick)?, cut(Form::Bare)?];
        self.pairs_in(written, &forms)?;
        Ok(Part {
            name: written.name.get_ref().clone(),
            title: written.title.clone(),
            metric: metric.name,
            base,
            again: written.again.get_ref().clone(),
            also: written.also.iter().map(|pair| pair.get_ref().clone()).collect(),
            forms,
        })
    }

    /// Looks up everything that a form runs.
    fn cut(&self, part: &PartText, own: &CutText, usual_rounds: u32) -> Checked<Cut> {
        let form = &part.form(own);
        let (arms, workloads) = (words(&form.arms), words(&form.workloads));
        if arms.is_empty() || workloads.is_empty() {
            return Err(self.at(&part.name, "every form needs arms and workloads"));
        }
        let looked_up: Vec<Arm> = arms.iter().map(|arm| self.arm(arm)).collect::<Checked<_>>()?;
        let contexts = self.levels("contexts", words(&form.contexts))?;
        let affinities = self.levels("affinity", words(&form.affinities))?;
        let layouts = form.layouts.as_deref().unwrap_or_default();
        if contexts.is_empty() != affinities.is_empty() {
            return Err(self.at(
                &part.name,
                "contexts and affinities are crossed together: give both, or none",
            ));
        }
        let is_crossed = !(contexts.is_empty() && layouts.is_empty());
        let (arms, contrasts) = if !is_crossed {
            (looked_up, Vec::new())
        } else {
            let levels = Levels { contexts: &contexts, affinities: &affinities, layouts };
            cross::cross(&looked_up, levels)
        };
        let numbers =
            |of: &Option<Vec<Spanned<u32>>>| self.numbers(of.as_deref().unwrap_or_default());
        let bytes = |of: &Option<Spanned<Bytes>>| of.as_ref().map(|bytes| bytes.get_ref().0);
        let devices = form.devices.iter().flatten();
        let cut = Cut {
            workloads: workloads.iter().map(|name| self.workload(name)).collect::<Checked<_>>()?,
            arms,
            contrasts,
            is_crossed,
            cell_bytes: bytes(&form.cell_bytes),
            devices: devices.map(|device| device.get_ref().clone()).collect(),
            depths: numbers(&form.depths)?,
            batches: numbers(&form.batches)?,
            seconds: form
                .seconds
                .as_ref()
                .map_or(Ok(1.0), |seconds| self.bounded(seconds, SECONDS))?,
            scale: form.scale.as_ref().map_or(Ok(1.0), |scale| self.share(scale))?,
            rounds: form
                .rounds
                .as_ref()
                .map_or(Ok(usual_rounds), |rounds| self.bounded(rounds, 1..=MOST_ROUNDS))?,
            file_bytes: bytes(&form.file_bytes),
            writes_at_most: form.writes_at_most.map(|bytes| bytes.0),
        };
        self.kind(part, form, &cut)?;
        self.names_in(part, &cut)?;
        Ok(cut)
    }

    /// Values of a knob that arms are crossed with; the engine says which there are.
    fn levels<'a>(&self, knob: &str, values: &'a [Word]) -> Checked<Vec<&'a str>> {
        self.names(values.iter(), NAME_AT_MOST)?;
        for value in values {
            let tried = forebay::Engine::builder().set(knob, value.get_ref());
            tried.map_err(|refused| self.at(value, refused.to_string()))?;
        }
        Ok(values.iter().map(|value| value.get_ref().as_str()).collect())
    }

    /// The arms a part speaks of are among those it runs.
    fn names_in(&self, part: &PartText, cut: &Cut) -> Checked<()> {
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

    /// The pairs of a part are of its arms; a form that does not run both is without that pair.
    fn pairs_in(&self, part: &PartText, forms: &[Option<Cut>]) -> Checked<()> {
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

    fn numbers(&self, numbers: &[Spanned<u32>]) -> Checked<Vec<u32>> {
        numbers.iter().map(|number| self.bounded(number, DEPTHS)).collect()
    }

    fn bounded<N: Copy + Display + PartialOrd>(
        &self,
        number: &Spanned<N>,
        range: RangeInclusive<N>,
    ) -> Checked<N> {
        if range.contains(number.get_ref()) {
            return Ok(*number.get_ref());
        }
        let (least, most) = (range.start(), range.end());
        Err(self.at(number, format!("{}: out of range ({least} to {most})", number.get_ref())))
    }

    /// The one of a name among those that the file defines.
    fn named<'t, T>(
        &self,
        name: &Word,
        what: &str,
        all: &'t [T],
        name_of: fn(&T) -> &Word,
    ) -> Checked<&'t T> {
        let found = all.iter().find(|one| name_of(one).get_ref() == name.get_ref());
        let known = all.iter().map(|one| name_of(one).get_ref().as_str());
        found.ok_or_else(|| self.unknown(name, what, known))
    }

    fn share(&self, share: &Spanned<f64>) -> Checked<f64> {
        if *share.get_ref() > 0.0 && *share.get_ref() <= 1.0 {
            return Ok(*share.get_ref());
        }
        Err(self.at(share, format!("{}: out of range (above 0, at most 1)", share.get_ref())))
    }

    /// Names are words that fit in a column, and each stands once. Those of workloads may have
    /// capitals.
    fn names<'a>(&self, names: impl Iterator<Item = &'a Word>, at_most: usize) -> Checked<()> {
        let mut seen = BTreeSet::new();
        for name in names {
            let word = name.get_ref();
            let capitals = at_most == WORKLOAD_AT_MOST;
            let sound = |letter: char| {
                letter.is_ascii_lowercase()
                    || letter.is_ascii_digit()
                    || letter == '-'
                    || (capitals && letter.is_ascii_uppercase())
            };
            if word.is_empty() || word.len() > at_most || !word.chars().all(sound) {
                let letters = if capitals { "a-z, A-Z, 0-9" } else { "a-z, 0-9" };
                let what = format!("not a name ({letters} and -, {at_most} characters at most)");
                return Err(self.at(name, what));
            }
            if !seen.insert(word) {
                return Err(
                    self.at(name, format!("{word}: named twice (give one of them another name)"))
                );
            }
        }
        Ok(())
    }

    fn unknown<'a>(
        &self,
        word: &Word,
        what: &str,
        known: impl Iterator<Item = &'a str>,
    ) -> Refusal {
        let known: Vec<&str> = known.collect();
        let name = word.get_ref();
        self.at(word, format!("{name}: no such {what}{}", nearest::meant_or_all(name, &known)))
    }

    fn at<T>(&self, place: &Spanned<T>, what: impl Into<String>) -> Refusal {
        self.places.wrong(place.span(), what)
    }
}

impl Cut {
    /// Returns the arms that can run its workloads, which are all of one kind.
    pub(super) fn family(&self) -> Option<Family> {
        self.workloads.first().map(|workload| workload.kind.family())
    }

    pub fn is_of_job_files(&self) -> bool {
        self.workloads.iter().any(|workload| matches!(workload.kind, WorkloadKind::JobFile(_)))
    }

    /// Returns the least bytes that all writers of a cell can write together, if it has writers.
    pub(super) fn least_cell_bytes(&self) -> Option<u64> {
        let of_writers = self.workloads.iter().filter_map(|workload| match workload.kind {
            WorkloadKind::Writers(writers) => Some(
                u64::from(writers.files()) * WRITER_STEP_BYTES.max(u64::from(writers.block_bytes)),
            ),
            _ => None,
        });
        of_writers.max()
    }

    /// The names of the arms it runs, without the one that runs twice.
    pub fn names(&self) -> Vec<String> {
        if self.batches.is_empty() {
            return self.arms.iter().map(|arm| arm.name.clone()).collect();
        }
        self.batches.iter().map(|batch| batch_name(*batch)).collect()
    }
}

/// The name of the one arm of a ladder on one step.
pub(crate) fn batch_name(batch: u32) -> String {
    format!("batch-{batch}")
}

/// Rounds where the suite says nothing.
pub(super) fn rounds_of(form: Form) -> u32 {
    match form {
        Form::Full => 10,
        Form::Quick | Form::Bare => 5,
    }
}

fn words(of: &Option<Vec<Word>>) -> &[Word] {
    of.as_deref().unwrap_or_default()
}

fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}
