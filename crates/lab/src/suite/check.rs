//! From a suite's text to a suite: every name looked up, every number held against its bounds. The
//! first error is reported with its place and the allowed values; nothing is guessed.

use std::collections::BTreeSet;

use toml::Spanned;

use super::model::{Arm, Base, Cut, Form, Part, Published, Suite, Workload};
use super::text::{ArmText, CutText, PartText, Places, SuiteText, Word, WorkloadText, one_line};
use crate::arm::Knobs;
use crate::nearest;
use crate::probe::Probe;
use crate::probes;
use crate::queue_knobs;
use crate::refusal::Refusal;
use crate::request::RequestDevice;
use crate::tuning::Tuning;

/// Most characters of a name. A table shortens the longest to what its column holds.
const NAME_AT_MOST: usize = 30;

/// Of a workload, which stands in headings.
const WORKLOAD_AT_MOST: usize = 40;

/// Reads a suite from its text; `file` is its name in an error.
pub(super) fn parse(text: &str, file: &str) -> Result<Suite, Refusal> {
    let places = Places { text, file };
    let written: SuiteText = toml::from_str(text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        places.wrong(span, one_line(error.message()))
    })?;
    Checker { places, written: &written }.suite()
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
        let metric = probes::metric(name).ok_or_else(|| {
            let known = probes::metrics().map(|metric| metric.name);
            self.unknown(&written.metric, "metric", known)
        })?;
        let base = match (&written.base, &written.best_of) {
            (Some(base), None) => Base::Arm(base.get_ref().clone()),
            (None, Some(arms)) => {
                Base::BestOf(arms.iter().map(|arm| arm.get_ref().clone()).collect())
            }
            _ => return Err(self.at(&written.name, "give one of base and best_of")),
        };
        let forms = [&written.full, &written.quick, &written.bare, &written.published];
        if forms.iter().all(|form| form.is_none()) {
            return Err(self.at(&written.name, "it is in no form: add [part.full] below it"));
        }
        let cut = |form: Form| {
            let own = forms[form as usize].as_ref();
            own.map(|own| self.cut(written, own, form.rounds())).transpose()
        };
        let forms = [cut(Form::Full)?, cut(Form::Quick)?, cut(Form::Bare)?, cut(Form::Published)?];
        self.pairs_in(written, &forms)?;
        self.figures_in(written, forms[Form::Published as usize].as_ref())?;
        Ok(Part {
            name: written.name.get_ref().clone(),
            title: written.title.clone(),
            metric: metric.name,
            base,
            again: written.again.get_ref().clone(),
            own_arms: written.own_arms,
            figures: written.figure.iter().map(|figure| figure.get_ref().clone()).collect(),
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
        let work = workloads.iter().map(|name| self.workload(name));
        let work: Vec<Workload> = work.collect::<Checked<_>>()?;
        let probe = probes::by_name(work[0].probe).expect("it was looked up");
        for (word, workload) in workloads.iter().zip(&work) {
            let own = probes::by_name(workload.probe).expect("it was looked up");
            if own.group != probe.group {
                let what = format!(
                    "{} in a part about {} (give it a part of its own)",
                    own.name, probe.name
                );
                return Err(self.at(word, what));
            }
        }
        let arms = arms.iter().map(|arm| self.arm(arm, probe));
        let cut = Cut {
            workloads: work,
            arms: arms.collect::<Checked<_>>()?,
            also: form.also.iter().flatten().map(|pair| pair.get_ref().clone()).collect(),
            cell_bytes: form.cell_bytes.map(|bytes| bytes.0),
            devices: form.devices.clone().unwrap_or_default(),
            depths: form.depths.iter().flatten().map(|depth| depth.0).collect(),
            seconds: form.seconds.map_or(1.0, |seconds| seconds.0),
            scale: form.scale.map_or(1.0, |scale| scale.0),
            rounds: form.rounds.map_or(usual_rounds, |rounds| rounds.0),
            file_bytes: form.file_bytes.map(|bytes| bytes.0),
            writes_at_most: form.writes_at_most.map(|bytes| bytes.0),
        };
        debug_assert!(cut.rounds > 0 && cut.seconds > 0.0, "they were held against their ranges");
        (probe.needs)(&cut).map_err(|what| self.at(&part.name, what))?;
        if cut.devices.iter().any(RequestDevice::is_file) && self.written.file.is_none() {
            let what = "the device `file` needs a [file] with its bytes for each form";
            return Err(self.at(&part.name, what));
        }
        self.names_in(part, &cut)?;
        Ok(cut)
    }

    /// Refuses a part that names arms it does not run.
    fn names_in(&self, part: &PartText, cut: &Cut) -> Checked<()> {
        let running = cut.names();
        let known = |word: &Word| {
            let (what, names) = ("arm in every form of this part", running.iter());
            let refused = || self.unknown(word, what, names.map(String::as_str));
            running.contains(word.get_ref()).then_some(()).ok_or_else(refused)
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
    fn pairs_in(&self, part: &PartText, forms: &[Option<Cut>]) -> Checked<()> {
        let running: BTreeSet<String> = forms.iter().flatten().flat_map(Cut::names).collect();
        let own = [&part.full, &part.quick, &part.bare, &part.published].into_iter().flatten();
        let of_forms = own.map(|own| &own.also);
        for pair in [&part.also].into_iter().chain(of_forms).flatten().flatten() {
            for arm in [&pair.get_ref().arm, &pair.get_ref().base] {
                if !running.contains(arm) {
                    return Err(self.at(pair, format!("{arm}: no arm of this part")));
                }
            }
        }
        Ok(())
    }

    /// Refuses a published figure of something that the published form does not run.
    fn figures_in(&self, part: &PartText, published: Option<&Cut>) -> Checked<()> {
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

    fn arm_text(&self, name: &Word) -> Checked<&ArmText> {
        self.named(name, "arm", &self.written.arm, |arm| &arm.name)
    }

    /// Looks up an arm of a probe.
    fn arm(&self, name: &Word, probe: &Probe) -> Checked<Arm> {
        let written = self.arm_text(name)?;
        let word = written.through.get_ref();
        let way = probe.way(word).ok_or_else(|| {
            let what = format!("arm of {}", probe.name);
            self.unknown(&written.through, &what, probe.words().into_iter())
        })?;
        for (knob, value) in &written.knobs {
            let (name, set) = (knob.get_ref(), value.get_ref());
            match way.knobs {
                Knobs::None => {
                    let what = "only `through = \"queue\"` and Forebay's engine have knobs";
                    return Err(self.at(knob, what));
                }
                Knobs::Engine => {
                    let tried = forebay::Options::default().set(name, set);
                    tried.map_err(|refused| self.at(knob, refused.to_string()))?;
                }
                Knobs::Queue if !queue_knobs::NAMES.contains(&name.as_str()) => {
                    return Err(self.unknown(knob, "knob", queue_knobs::NAMES.into_iter()));
                }
                Knobs::Queue => queue_knobs::check(name, set)
                    .map_err(|why| self.at(value, format!("{set}: {why}")))?,
            }
        }
        let needs = written.machine.iter().map(|(knob, value)| self.tuning(knob, value));
        let needs = needs.collect::<Checked<_>>()?;
        let texts =
            |(knob, value): (&Word, &Word)| (knob.get_ref().clone(), value.get_ref().clone());
        Ok(Arm {
            knobs: written.knobs.iter().map(texts).collect(),
            batch: written.batch.map(|batch| batch.0),
            depths: written.depths.iter().map(|depth| depth.0).collect(),
            fixed_files: written.fixed_files,
            poll: written.poll,
            from: written.from,
            layout: written.layout,
            needs,
            ..Arm::plain(name.get_ref(), way)
        })
    }

    fn tuning(&self, knob: &Word, value: &Word) -> Checked<Tuning> {
        let parsed = knob.get_ref().parse();
        let knob = parsed.map_err(|error: Refusal| self.at(knob, error.0))?;
        Ok(Tuning { knob, value: value.get_ref().clone() })
    }

    /// Looks up a workload. The name of a probe is that probe with the defaults of its shape.
    fn workload(&self, name: &Word) -> Checked<Workload> {
        let usual = WorkloadText::of_probe(name);
        let is_probe = probes::by_name(name.get_ref()).is_some();
        let written = match self.named(name, "workload", &self.written.workload, |one| &one.name) {
            Err(_) if is_probe => &usual,
            found => found?,
        };
        let WorkloadText { title, probe: word, shape, .. } = written;
        let known = probes::all().iter().map(|probe| probe.name);
        let probe =
            probes::by_name(word.get_ref()).ok_or_else(|| self.unknown(word, "probe", known))?;
        let keys = shape.as_ref().map(|shape| shape.get_ref().clone()).unwrap_or_default();
        let keys = serde_json::to_value(keys).expect("keys and values are data");
        let whole = probes::shape(probe, keys);
        (probe.check)(&whole).map_err(|what| match shape {
            Some(shape) => self.at(shape, what),
            None => self.at(word, format!("{what} (give it a shape)")),
        })?;
        let title = title.clone();
        Ok(Workload { name: name.get_ref().clone(), title, probe: probe.name, shape: whole })
    }

    /// Returns the one of a name among those that the file defines.
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

    /// Refuses names that do not fit in a column, and names that stand twice. Those of workloads
    /// may have capitals.
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

fn words(of: &Option<Vec<Word>>) -> &[Word] {
    of.as_deref().unwrap_or_default()
}
