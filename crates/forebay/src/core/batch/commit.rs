//! The commit of a batch: flushes, then the final names in call order, then the directories.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::Step;
use super::flushing::{Flush, What};
use super::inner::{Inner, undo};
use super::place::Place;
use crate::core::error::{Error, ErrorKind, Result};
use crate::platform::Replace;
use crate::platform::collections::HashSet;

/// State of a target after a commit that failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// It is as before.
    Old,
    /// It is as the batch makes it, and durable.
    New,
    /// It is as the batch makes it. The sync of a directory failed, so after a power cut it may be
    /// as before.
    Unsynced,
}

/// Error of [`Batch::commit`](crate::Batch::commit): what failed, and what became of each target.
#[non_exhaustive]
pub struct CommitError {
    /// One for each file that could not be made durable, or that of the first rename that failed,
    /// and one for each directory that could not be synced.
    pub errors: Vec<Error>,
    /// The targets with their absolute paths, in call order: files to create, new names of files to
    /// rename, files to remove, and directories. Empty if the commit could not begin.
    pub targets: Vec<(PathBuf, Outcome)>,
}

impl CommitError {
    /// Creates the error of a commit that has not begun.
    fn nothing(error: Error) -> Self {
        Self { errors: vec![error], targets: Vec::new() }
    }
}

impl fmt::Display for CommitError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errors.as_slice() {
            [] => formatter.write_str("could not commit the batch")?,
            [first] => write!(formatter, "{first}")?,
            [first, others @ ..] => write!(formatter, "{first}; {} more errors", others.len())?,
        }
        let changed = self.targets.iter().filter(|(_, outcome)| *outcome != Outcome::Old).count();
        match changed {
            0 => write!(formatter, "; nothing was published"),
            some => write!(formatter, "; {some} of {} targets are new", self.targets.len()),
        }
    }
}

impl fmt::Debug for CommitError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self} {:?}", self.errors.iter().map(Error::kind).collect::<Vec<_>>())
    }
}

impl std::error::Error for CommitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.errors.first().map(|first| first as _)
    }
}

/// Keeps the first error.
impl From<CommitError> for Error {
    fn from(error: CommitError) -> Self {
        let text = error.to_string();
        error.errors.into_iter().next().unwrap_or_else(|| Self::new(ErrorKind::Io, text))
    }
}

/// A commit under way. Dropping it removes what is not published.
struct Commit<'a> {
    inner: &'a Inner,
    steps: Vec<Step>,
    outcomes: Vec<Outcome>,
    places: Vec<Arc<Place>>,
    failures: Vec<Error>,
}

impl Inner {
    pub(super) fn commit(&self, is_ordered: bool) -> std::result::Result<(), CommitError> {
        self.may_change().map_err(CommitError::nothing)?;
        let (steps, places) = self.close();
        let outcomes = vec![Outcome::Old; steps.len()];
        let failures = Vec::new();
        let mut commit = Commit { inner: self, steps, outcomes, places, failures };
        if commit.make_durable() {
            commit.publish(is_ordered);
        }
        commit.end()
    }
}

impl Commit<'_> {
    /// Flushes the data of all files. Returns whether all of it is durable.
    fn make_durable(&mut self) -> bool {
        let unfinished = self.steps.iter().find_map(Step::unfinished);
        if let Some(path) = unfinished {
            let what = "the file was not closed";
            let error = Error::new(ErrorKind::InvalidInput, what).at_path(&path);
            self.failures.push(error.remedy("call BatchFile::close before the commit"));
            return false;
        }
        for (step, error) in self.inner.flushing.finish([]) {
            let error = Error::new(ErrorKind::at_device(&error), "could not make the file durable")
                .at_path(&self.steps[step].target())
                .because(error);
            self.failures.push(error);
        }
        self.failures.extend(self.inner.shared.check().err());
        self.failures.is_empty()
    }

    /// Does the steps. Ordered, all before the last file are durable before it, and it is before
    /// those after it.
    fn publish(&mut self, is_ordered: bool) {
        let all = self.steps.len();
        let is_file = |step: &Step| matches!(step, Step::Publish { .. });
        let last = self.steps.iter().rposition(is_file).filter(|_| is_ordered).unwrap_or(all);
        let after = all.min(last + 1);
        for group in [0..last, last..after, after..all] {
            if group.is_empty() {
                continue;
            }
            let is_end = group.end == all;
            let went_well = self.run(group.clone());
            if is_end || !went_well {
                self.undo();
            }
            if !(self.sync(group) && went_well) {
                return;
            }
        }
    }

    /// Does some steps, up to the first that fails.
    fn run(&mut self, steps: Range<usize>) -> bool {
        for step in steps {
            if let Err(error) = self.steps[step].run() {
                self.failures.push(error);
                return false;
            }
            assert_eq!(self.outcomes[step], Outcome::Old, "a name would be given twice");
            self.outcomes[step] = Outcome::Unsynced;
        }
        true
    }

    /// Makes the steps that were done durable: each directory once.
    fn sync(&mut self, steps: Range<usize>) -> bool {
        let mut places: Vec<&Arc<Place>> = Vec::new();
        let mut known: HashSet<*const Place> = HashSet::default();
        for step in steps.clone().filter(|step| self.outcomes[*step] == Outcome::Unsynced) {
            let touched = self.steps[step].touches().into_iter().flatten();
            places.extend(touched.filter(|place| known.insert(Arc::as_ptr(place))));
        }
        let flushes = places
            .iter()
            .enumerate()
            .map(|(number, place)| Flush { number, what: What::Directory(Arc::clone(place)) });
        let failed = self.inner.flushing.finish(flushes);
        // A failed sync may lose changes of other directories that its own depend on, and the
        // kernel reports it only there. So one failure leaves no target durable.
        let went_well = failed.is_empty();
        for (number, error) in failed {
            let what = "could not make the names in the directory durable";
            let error = Error::new(ErrorKind::at_device(&error), what)
                .at_path(places[number].path())
                .because(error);
            self.failures.push(error);
        }
        if went_well {
            let done = self.outcomes[steps].iter_mut();
            done.filter(|outcome| **outcome == Outcome::Unsynced)
                .for_each(|outcome| *outcome = Outcome::New);
        }
        went_well
    }

    /// Removes what is not published, and the lock files.
    fn undo(&mut self) {
        let undone = self.steps.iter().zip(&self.outcomes);
        let undone = undone.filter(|(_, outcome)| **outcome == Outcome::Old).map(|(step, _)| step);
        undo(undone, self.places.drain(..));
    }

    fn end(mut self) -> std::result::Result<(), CommitError> {
        let failures = std::mem::take(&mut self.failures);
        if failures.is_empty() {
            let is_new = |outcome: &Outcome| *outcome == Outcome::New;
            assert!(self.outcomes.iter().all(is_new), "a caller would take a target for durable");
            return Ok(());
        }
        let targets = self.steps.iter().map(Step::target).zip(self.outcomes.iter().copied());
        Err(CommitError { errors: failures, targets: targets.collect() })
    }
}

impl Drop for Commit<'_> {
    fn drop(&mut self) {
        if !self.places.is_empty() {
            self.undo();
        }
    }
}

impl Step {
    /// Returns the path of a file that its writer has not finished.
    fn unfinished(&self) -> Option<PathBuf> {
        matches!(self, Self::Publish { is_finished: false, .. }).then(|| self.target())
    }

    /// Returns the path that the step changes.
    fn target(&self) -> PathBuf {
        match self {
            Self::Publish { to, name, .. } | Self::Rename { to, name, .. } => to.path_of(name),
            Self::Remove { from: at, name } | Self::Made { at, name } => at.path_of(name),
        }
    }

    /// Returns the directories whose entries the step changes. The temporary name of a file in
    /// another directory need not go durably.
    fn touches(&self) -> [Option<&Arc<Place>>; 2] {
        match self {
            Self::Publish { to, .. } => [Some(to), None],
            Self::Rename { from, to, .. } => [Some(from), Some(to)],
            Self::Remove { from: at, .. } | Self::Made { at, .. } => [Some(at), None],
        }
    }

    fn run(&self) -> Result<()> {
        let (what, done) = match self {
            Self::Publish { home, number, to, name, replace, .. } => {
                ("could not give the file its name", home.publish(*number, to, name, *replace))
            }
            Self::Rename { from, from_name, to, name } => {
                let renamed = from.rename(from_name, to, name, Replace::Yes);
                ("could not rename the file to this name", renamed)
            }
            Self::Remove { from, name } => ("could not remove the file", from.remove(name)),
            Self::Made { .. } => ("", Ok(())),
        };
        done.map_err(|error| Error::at_open(what, &self.target(), error))
    }
}
