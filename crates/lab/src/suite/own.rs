//! Arms of the user's own, beside those of a suite or in place of them.
//!
//! `--arm deep=kernel-direct,queue.nomerges=2` is an arm `deep` in every part that can run such an
//! engine and knows all its keys; one that goes into no part is refused. The base, the arm that
//! runs twice and the pairs of a part stay what they are as long as their arms do; where `--arms`
//! leaves the base out, the first arm there is takes its place, so that there is an A/A pair in any
//! case.

use std::collections::BTreeSet;
use std::str::FromStr;

use super::model::{Arm, Base, Cut, Form, Part, Suite};
use crate::arm::Knobs;
use crate::nearest::{meant_or_all, nearest};
use crate::probe::{Batch, Probe};
use crate::probes;
use crate::queue_knobs;
use crate::refusal::Refusal;
use crate::schema::again;
use crate::tuning::{Knob, QUEUE, SYSCTL, Tuning};

/// Most characters of a name: what a column of a table holds, with the twin's ending.
const NAME_AT_MOST: usize = 21;

/// Stands for no arm of the suite.
pub const NONE: &str = "none";

/// The key that says how many requests are handed over together.
const BATCH: &str = "batch";

/// An arm as it was typed: `NAME=ENGINE,key=value,...`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnArm {
    pub name: String,
    /// Through what, in a word.
    pub engine: String,
    pub keys: Vec<(String, String)>,
}

impl FromStr for OwnArm {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let wrong = |what: &str| Refusal(format!("{text}: {what}"));
        let (name, rest) = text
            .split_once('=')
            .ok_or_else(|| wrong("not NAME=ENGINE,key=value,... (as mine=forebay,flight=32)"))?;
        let letter =
            |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        if name.is_empty() || name.len() > NAME_AT_MOST || !name.chars().all(letter) || name == NONE
        {
            let what = format!(
                "{name} is no name of an arm (a-z, 0-9 and -, {NAME_AT_MOST} characters at most)"
            );
            return Err(wrong(&what));
        }
        let mut words = rest.split(',');
        let engine = words.next().unwrap_or_default().to_owned();
        let keys = words.map(|word| match word.split_once('=') {
            Some((key, value)) if !key.is_empty() => {
                Ok((key.trim().to_owned(), value.trim().to_owned()))
            }
            _ => Err(wrong(&format!("{word}: not key=value"))),
        });
        Ok(Self { name: name.to_owned(), engine, keys: keys.collect::<Result<_, _>>()? })
    }
}

/// The arms and jobs that run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Choice<'a> {
    pub own: &'a [OwnArm],
    /// The only arms of the suite that run, if the user names some.
    pub kept: Option<&'a [String]>,
    /// The only jobs of the suite that run, if the user names some.
    pub jobs: Option<&'a [String]>,
    /// Bytes that all writers of a cell write together, in place of the suite's.
    pub cell_bytes: Option<u64>,
}

/// Returns the suites with the arms of a choice in one form. Parts that are left without an arm are
/// gone.
///
/// # Errors
/// An arm that goes into no part, and a name that is of no arm.
pub fn choose(suites: Vec<Suite>, form: Form, choice: Choice<'_>) -> Result<Vec<Suite>, Refusal> {
    if choice == Choice::default() {
        return Ok(suites);
    }
    let parts = || suites.iter().flat_map(|suite| &suite.parts);
    let cuts: Vec<&Cut> = parts().filter_map(|part| part.cut(form)).collect();
    let jobs: Vec<String> =
        cuts.iter().flat_map(|cut| &cut.workloads).map(|one| one.name.clone()).collect();
    if let Some(name) = choice.jobs.into_iter().flatten().find(|name| !jobs.contains(name)) {
        return Err(unknown("--jobs", "job of the suite", name, &jobs));
    }
    if let Some(bytes) = choice.cell_bytes {
        has_cells_of(&cuts, bytes)?;
    }
    let known: Vec<String> = cuts.iter().flat_map(|cut| cut.names()).collect();
    let mut kept = choice.kept.into_iter().flatten().filter(|name| *name != NONE);
    if let Some(name) = kept.find(|name| !known.contains(name)) {
        return Err(unknown(&format!("--arms {name}"), "arm of the suite", name, &known));
    }
    for (place, own) in choice.own.iter().enumerate() {
        let twice = choice.own[..place].iter().any(|other| other.name == own.name);
        let taken = known.iter().any(|name| own.name == *name || own.name == again(name));
        if twice || taken || own.name.ends_with("-again") {
            let name = &own.name;
            let what = format!("--arm {name}: there is an arm of that name (give it another)");
            return Err(Refusal(what));
        }
        goes_somewhere(own, form, parts().filter(|part| part.own_arms))?;
    }
    let chosen = suites.into_iter().map(|mut suite| {
        suite.parts =
            suite.parts.into_iter().filter_map(|part| of_part(part, form, choice)).collect();
        suite
    });
    Ok(chosen.filter(|suite| !suite.parts.is_empty()).collect())
}

/// Refuses a number of bytes that no cell, or not every sized one, can have.
fn has_cells_of(cuts: &[&Cut], bytes: u64) -> Result<(), Refusal> {
    let sized = cuts.iter().filter(|cut| cut.cell_bytes.is_some());
    if sized.clone().count() == 0 {
        let what = "--cell-bytes: the suite has no cells of a given size (writeback has, but not \
                    as published: use --scale there)";
        return Err(Refusal(what.to_owned()));
    }
    for cut in sized {
        let cut = Cut { cell_bytes: Some(bytes), ..(*cut).clone() };
        let probe = probes::by_name(cut.probe()).expect("the suite was checked");
        (probe.needs)(&cut).map_err(|why| Refusal(format!("--cell-bytes {bytes}: {why}")))?;
    }
    Ok(())
}

/// Refuses an arm that no part runs, and says what would do.
fn goes_somewhere<'a>(
    own: &OwnArm,
    form: Form,
    parts: impl Iterator<Item = &'a Part>,
) -> Result<(), Refusal> {
    let name = &own.name;
    let all: Vec<String> = probes::all().iter().flat_map(Probe::words).map(str::to_owned).collect();
    if !all.contains(&own.engine) {
        return Err(unknown(&format!("--arm {name}"), "engine", &own.engine, &all));
    }
    let mut refused = None;
    let mut here = BTreeSet::new();
    for part in parts {
        match arm_in(part, form, own) {
            Ok(Some(_)) => return Ok(()),
            Ok(None) => {}
            Err(why) => refused = refused.or(Some(why)),
        }
        here.extend(probe_of(part, form).into_iter().flat_map(Probe::words));
    }
    let here: Vec<&str> = here.into_iter().collect();
    let nowhere = if here.is_empty() {
        "no part of this suite takes own arms".to_owned()
    } else {
        format!("no part of this suite has work for {}; it has for {}", own.engine, here.join(", "))
    };
    Err(Refusal(format!("--arm {name}: {}", refused.unwrap_or(nowhere))))
}

fn unknown(before: &str, what: &str, word: &str, known: &[String]) -> Refusal {
    let known: BTreeSet<&str> = known.iter().map(String::as_str).collect();
    let known: Vec<&str> = known.into_iter().collect();
    Refusal(format!("{before}: {word}: no such {what}{}", meant_or_all(word, &known)))
}

/// Returns the part with the arms of a choice; none if it has none left.
fn of_part(mut part: Part, form: Form, choice: Choice<'_>) -> Option<Part> {
    let own: Vec<Arm> = if part.own_arms {
        choice.own.iter().filter_map(|own| arm_in(&part, form, own).ok().flatten()).collect()
    } else {
        Vec::new()
    };
    let cut = part.forms[form as usize].as_mut()?;
    if let Some(jobs) = choice.jobs {
        cut.workloads.retain(|workload| jobs.contains(&workload.name));
        if cut.workloads.is_empty() {
            return None;
        }
    }
    cut.cell_bytes = cut.cell_bytes.map(|bytes| choice.cell_bytes.unwrap_or(bytes));
    if let Some(kept) = choice.kept {
        cut.arms.retain(|arm| kept.contains(&arm.name));
    }
    cut.arms.extend(own);
    let names = cut.names();
    let first = names.first()?.clone();
    cut.also.retain(|pair| names.contains(&pair.arm) && names.contains(&pair.base));
    part.base = match part.base {
        Base::Arm(name) if names.contains(&name) => Base::Arm(name),
        Base::BestOf(best) if best.iter().any(|name| names.contains(name)) => Base::BestOf(best),
        Base::Arm(_) | Base::BestOf(_) => Base::Arm(first.clone()),
    };
    if !names.contains(&part.again) {
        part.again = match &part.base {
            Base::Arm(name) => name.clone(),
            Base::BestOf(_) => first,
        };
    }
    assert!(names.contains(&part.again), "{}: the arm that runs twice does not run", part.name);
    Some(part)
}

/// Returns the probe whose arms a part has.
fn probe_of(part: &Part, form: Form) -> Option<&'static Probe> {
    probes::by_name(part.cut(form)?.probe())
}

/// Returns the arm as a part has it; none if the part has no such engine, and why a key is not its
/// own.
fn arm_in(part: &Part, form: Form, own: &OwnArm) -> Result<Option<Arm>, String> {
    let Some(probe) = probe_of(part, form) else { return Ok(None) };
    let Some(way) = probe.way(&own.engine) else { return Ok(None) };
    let mut arm = Arm::plain(&own.name, way);
    for (key, value) in &own.keys {
        take(&mut arm, probe, key, value).map_err(|why| format!("{key}={value}: {why}"))?;
    }
    Ok(Some(arm))
}

/// Takes a key of an arm.
fn take(arm: &mut Arm, probe: &Probe, key: &str, value: &str) -> Result<(), String> {
    if key.starts_with(SYSCTL) || key.starts_with(QUEUE) {
        let knob: Knob = key.parse().map_err(|error| format!("{error}"))?;
        arm.tunings.push(Tuning { knob, value: value.to_owned() });
        return Ok(());
    }
    match probe.batch {
        Batch::Elsewhere(said) if key == BATCH => return Err(said.to_owned()),
        Batch::OfArm if key == BATCH => {
            let batch = value.parse::<u32>().ok().filter(|batch| (1..=4096).contains(batch));
            arm.batch = Some(batch.ok_or("not a number from 1 to 4096")?);
            return Ok(());
        }
        _ => {}
    }
    let known: Vec<String> = match arm.way.knobs {
        Knobs::None => Vec::new(),
        Knobs::Engine => {
            forebay::Options::default().knobs().into_iter().map(|knob| knob.name).collect()
        }
        Knobs::Queue => queue_knobs::NAMES.map(str::to_owned).to_vec(),
    };
    if !known.iter().any(|name| name == key) {
        let shown = known.iter().map(String::as_str);
        let shown: Vec<&str> = shown.chain(["sysctl.NAME", "queue.NAME"]).collect();
        let near = nearest(key, known.iter().map(String::as_str).chain([BATCH]));
        return Err(match near {
            Some(near) => format!("no such key; did you mean {near}?"),
            None => format!("no such key (there are: {})", shown.join(", ")),
        });
    }
    if arm.way.knobs == Knobs::Queue {
        queue_knobs::check(key, value)?;
    } else {
        forebay::Options::default().set(key, value).map_err(|refused| refused.to_string())?;
    }
    arm.knobs.push((key.to_owned(), value.to_owned()));
    Ok(())
}

#[cfg(test)]
mod tests;
