//! fio's job files, read as fio reads them.
//!
//! An option is *honoured*, *accepted without effect* (and said so once, with the reason), or an
//! *error* with file, line and the nearest option. Nothing is ignored in silence: a job file that
//! another tool half obeys makes wrong comparisons. `--lenient` turns an unknown option into a
//! warning. The one table of options is in `options.rs`.

mod draft;
mod options;
mod reach;
mod text;
mod value;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use crate::job::{Devices, Job, Workload};
use crate::nearest;
use draft::{Draft, Effect};
use options::Class;
use text::{Entry, Section};
use value::{KbBase, Value};

/// Treatment of unknown options.
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
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
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
    let mut reader = Reader {
        leniency,
        without_effect: Notices::default(),
        reaching_out: Notices::default(),
        warnings: Notices::default(),
        globals: Vec::new(),
    };
    let mut groups: Vec<Workload> = Vec::new();
    for section in &sections {
        if section.name == "global" {
            reader.globals.extend(&section.entries);
            // Said even if no job follows.
            reader.draft(section)?;
            continue;
        }
        let draft = reader.draft(section)?;
        let begins = draft.stonewall || groups.is_empty();
        let jobs = draft
            .finish(&section.name, directory)
            .map_err(|what| section.at.error(format!("[{}]: {what}", section.name)))?;
        if begins {
            groups.push(Workload { jobs: Vec::new(), devices: Devices::Refuse });
        }
        let group = groups.last_mut().expect("the first job begins a group");
        group.jobs.extend(jobs);
        check_count(section, group)?;
    }
    if groups.is_empty() {
        let what =
            "there is no job: a job file has a section with a name of its own besides [global]";
        return Err(ParseError {
            path: path.to_owned(),
            line: text.lines().count().max(1),
            what: what.into(),
        });
    }
    groups.iter_mut().for_each(|group| name_apart(&mut group.jobs));
    Ok(ParsedJobs {
        groups,
        without_effect: reader.without_effect.into_values().collect(),
        reaching_out: reader.reaching_out.into_values().collect(),
        warnings: reader.warnings.into_values().collect(),
    })
}

struct Reader<'a> {
    leniency: Leniency,
    without_effect: Notices,
    reaching_out: Notices,
    warnings: Notices,
    /// Of all global sections so far.
    globals: Vec<&'a Entry>,
}

/// By option and place, so that a global line is not repeated for each job.
type Notices = BTreeMap<(PathBuf, usize, String), Notice>;

impl Reader<'_> {
    fn draft(&mut self, section: &Section) -> Result<Draft, ParseError> {
        let own: &[Entry] = if section.name == "global" { &[] } else { &section.entries };
        let entries: Vec<&Entry> = self.globals.iter().copied().chain(own).collect();
        let kb_base = kb_base(&entries)?;
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
        let Some(option) = options::find(&entry.key) else {
            return self.unknown(entry);
        };
        match option.class {
            Class::Honoured(set) => {
                let value = Value { text: entry.value.as_deref(), kb_base };
                let effect = set(draft, value).map_err(|error| {
                    let value =
                        entry.value.as_deref().map_or(String::new(), |value| format!("={value}"));
                    entry.at.error(format!("{}{value}: {}", entry.key, error.0))
                })?;
                if let Effect::Reduced(why) = effect {
                    note(&mut self.without_effect, entry, why);
                }
                Ok(())
            }
            Class::WithoutEffect(why) => {
                note(&mut self.without_effect, entry, why);
                if let Some(why) = reach::of(option.name, entry) {
                    note(&mut self.reaching_out, entry, why);
                }
                Ok(())
            }
            Class::Unsupported(why) => self.refuse(entry, format!("{}: {why}", entry.key)),
        }
    }

    fn unknown(&mut self, entry: &Entry) -> Result<(), ParseError> {
        let hint = nearest::meant(&entry.key, options::names());
        self.refuse(entry, format!("{}: no such option{hint}", entry.key))
    }

    fn refuse(&mut self, entry: &Entry, what: String) -> Result<(), ParseError> {
        match self.leniency {
            Leniency::Strict => Err(entry.at.error(what)),
            Leniency::Lenient => {
                let why = what.strip_prefix(&format!("{}: ", entry.key)).unwrap_or(&what);
                note(&mut self.warnings, entry, why);
                Ok(())
            }
        }
    }
}

fn note(notices: &mut Notices, entry: &Entry, why: &str) {
    let (path, line, option) = (entry.at.path.to_path_buf(), entry.at.line, entry.key.clone());
    let key = (path.clone(), line, option.clone());
    notices.entry(key).or_insert(Notice { path, line, option, why: why.into() });
}

/// Before all others, for it changes what they mean.
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

/// A thread per job: more than this is a slip of the pen.
fn check_count(section: &Section, group: &Workload) -> Result<(), ParseError> {
    const MOST: usize = 4096;
    let count = group.jobs.len();
    if count > MOST {
        return Err(section.at.error(format!("{count} jobs at a time; at most {MOST}")));
    }
    Ok(())
}

/// fio takes several sections of one name; rows of a result need names that differ.
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
