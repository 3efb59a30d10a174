//! fio's job files, read as fio reads them.
//!
//! An option is *honoured*, *accepted without effect* (and said so once, with the reason), or an
//! *error* with file, line and the nearest option. Nothing is ignored in silence: a job file that
//! another tool half obeys makes wrong comparisons. `--lenient` turns an unknown option into a
//! warning. All options are in `options.rs`.

mod draft;
#[cfg(any(test, fuzzing))]
pub mod fuzzed;
mod options;
mod text;
mod value;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use crate::job::{Devices, Job, Workload};
use crate::nearest;
use draft::Draft;
use options::Class;
use text::Entry;
use value::{KbBase, Value};

/// Most jobs that start together, each with a thread: nobody means more.
const MOST_JOBS: usize = 4096;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leniency {
    /// It is an error.
    Strict,
    /// It is a warning.
    Lenient,
}

/// A job file that could be read.
#[derive(Clone, PartialEq, Debug)]
pub struct ParsedJobs {
    /// Jobs that start together; a group starts when the one before has ended.
    pub groups: Vec<Workload>,
    /// Options that were accepted and do nothing here, each once.
    pub without_effect: Vec<Notice>,
    /// Those that make fio itself work outside the directory it runs in.
    pub reaching_out: Vec<Notice>,
    /// Errors that `--lenient` turned into warnings.
    pub warnings: Vec<Notice>,
}

/// Something to tell the user about an option.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
#[error("{path}:{line}: {option}: {why}", path = path.display())]
pub struct Notice {
    /// The file it stands in.
    pub path: PathBuf,
    /// The line, from one.
    pub line: usize,
    pub option: String,
    pub why: String,
}

/// Why a job file could not be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{path}:{line}: {what}", path = path.display())]
pub struct ParseError {
    pub path: PathBuf,
    /// The line, from one.
    pub line: usize,
    /// The problem, and the allowed values.
    pub what: String,
}

/// Reads the text of a job file; `path` is for messages and for files it includes. Relative names
/// of files are in `directory`, if that is known yet.
pub fn parse(
    text: &str,
    path: &Path,
    leniency: Leniency,
    directory: Option<&Path>,
) -> Result<ParsedJobs, ParseError> {
    let environment = |name: &str| std::env::var(name).ok();
    parse_with(text, path, leniency, directory, &environment)
}

fn parse_with(
    text: &str,
    path: &Path,
    leniency: Leniency,
    directory: Option<&Path>,
    environment: text::Environment<'_>,
) -> Result<ParsedJobs, ParseError> {
    let sections = text::sections(text, path, environment)?;
    let mut reader = Reader { leniency, notices: BTreeMap::new() };
    let mut globals: Vec<&Entry> = Vec::new();
    let mut groups: Vec<Workload> = Vec::new();
    for section in &sections {
        if section.name == "global" {
            globals.extend(&section.entries);
            // Reported even if no job follows.
            reader.draft(&globals)?;
            continue;
        }
        let draft =
            reader.draft(&[&globals[..], &section.entries.iter().collect::<Vec<_>>()].concat())?;
        if draft.stonewall || groups.is_empty() {
            groups.push(Workload { jobs: Vec::new(), devices: Devices::Refuse });
        }
        let group = groups.last_mut().expect("the first job begins a group");
        let jobs = draft
            .finish(&section.name, directory)
            .map_err(|what| section.at.error(format!("[{}]: {what}", section.name)))?;
        group.jobs.extend(jobs);
        let count = group.jobs.len();
        if count > MOST_JOBS {
            let what = format!("{count} jobs at a time; at most {MOST_JOBS}");
            return Err(section.at.error(what));
        }
    }
    if groups.is_empty() {
        let what =
            "there is no job: a job file has a section with a name of its own besides [global]";
        let line = text.lines().count().max(1);
        return Err(ParseError { path: path.to_owned(), line, what: what.into() });
    }
    groups.iter_mut().for_each(|group| name_apart(&mut group.jobs));
    let mut of = |kind| {
        let notices = reader.notices.remove(&kind).unwrap_or_default();
        notices.into_iter().collect::<Vec<_>>()
    };
    Ok(ParsedJobs {
        groups,
        without_effect: of(Kind::WithoutEffect),
        reaching_out: of(Kind::ReachingOut),
        warnings: of(Kind::Warning),
    })
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    WithoutEffect,
    ReachingOut,
    Warning,
}

/// Reads options into drafts, and collects the notices on them. A global line has one notice, not
/// one for each job.
struct Reader {
    leniency: Leniency,
    notices: BTreeMap<Kind, BTreeSet<Notice>>,
}

impl Reader {
    fn draft(&mut self, entries: &[&Entry]) -> Result<Draft, ParseError> {
        let kb_base = kb_base(entries)?;
        let mut draft = Draft::default();
        for entry in entries {
            self.apply(&mut draft, entry, kb_base)?;
        }
        Ok(draft)
    }

    fn apply(
        &mut self,
        draft: &mut Draft,
        entry: &Entry,
        kb_base: KbBase,
    ) -> Result<(), ParseError> {
        let (name, value) = (&entry.key, Value { text: entry.value.as_deref(), kb_base });
        match options::class(name) {
            Some(Class::Honoured) => {
                let reduced = options::honour(draft, name, value).map_err(|what| {
                    let value = value.text.map_or(String::new(), |value| format!("={value}"));
                    entry.at.error(format!("{name}{value}: {what}"))
                })?;
                reduced.into_iter().for_each(|why| self.note(Kind::WithoutEffect, entry, why));
                Ok(())
            }
            Some(Class::WithoutEffect(why)) => {
                self.note(Kind::WithoutEffect, entry, why);
                let reach = options::reach(name, value);
                reach.into_iter().for_each(|why| self.note(Kind::ReachingOut, entry, why));
                Ok(())
            }
            Some(Class::Unsupported(why)) => self.refuse(entry, why),
            None => {
                let meant = nearest::meant(name, options::names());
                self.refuse(entry, &format!("no such option{meant}"))
            }
        }
    }

    fn refuse(&mut self, entry: &Entry, why: &str) -> Result<(), ParseError> {
        if self.leniency == Leniency::Strict {
            return Err(entry.at.error(format!("{}: {why}", entry.key)));
        }
        self.note(Kind::Warning, entry, why);
        Ok(())
    }

    fn note(&mut self, kind: Kind, entry: &Entry, why: &str) {
        let (path, line) = (entry.at.path.to_path_buf(), entry.at.line);
        let notice = Notice { path, line, option: entry.key.clone(), why: why.to_owned() };
        self.notices.entry(kind).or_default().insert(notice);
    }
}

/// Returns what `k` means. It is read before all others.
fn kb_base(entries: &[&Entry]) -> Result<KbBase, ParseError> {
    let Some(entry) = entries.iter().rev().find(|entry| entry.key == "kb_base") else {
        return Ok(KbBase::default());
    };
    match entry.value.as_deref() {
        Some("1024") => Ok(KbBase::Traditional),
        Some("1000") => Ok(KbBase::Standard),
        _ => Err(entry.at.error("kb_base: allowed: 1024, 1000")),
    }
}

/// Gives sections of one name, which fio takes, names that differ: rows of a result need them.
fn name_apart(jobs: &mut [Job]) {
    let mut taken: BTreeSet<String> = BTreeSet::new();
    let mut counts: HashMap<String, usize> = HashMap::new();
    for job in jobs {
        let base = job.name.clone();
        while !taken.insert(job.name.clone()) {
            let count = counts.entry(base.clone()).or_insert(1);
            *count += 1;
            job.name = format!("{base}#{count}");
        }
    }
}

#[cfg(test)]
mod tests;
