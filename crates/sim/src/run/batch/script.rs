//! A batch as it must be: its steps, the files after each of them, and the states that a loss of
//! power may leave.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::core::batch::commit::{CommitError, Outcome};
use crate::run::death::bytes_of;
use crate::world::machine::{self, Survivors};

pub(super) type Content = Rc<Vec<u8>>;

/// Files by their paths.
pub(super) type Tree = BTreeMap<PathBuf, Content>;

/// A step of a batch, as the program has recorded it.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Publish { path: PathBuf, content: Content, replaces: bool },
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
    Made(PathBuf),
}

impl Step {
    fn target(&self) -> &Path {
        match self {
            Self::Publish { path, .. }
            | Self::Rename(_, path)
            | Self::Remove(path)
            | Self::Made(path) => path,
        }
    }

    fn touches(&self, path: &Path) -> bool {
        self.target() == path || matches!(self, Self::Rename(from, _) if from == path)
    }

    /// Returns the files after the step; `None` if it must fail.
    fn after(&self, before: &Tree) -> Option<Tree> {
        let mut tree = before.clone();
        match self {
            Self::Publish { path, content, replaces } => {
                let replaced = tree.insert(path.clone(), Rc::clone(content));
                return (*replaces || replaced.is_none()).then_some(tree);
            }
            Self::Rename(from, to) => {
                let moved = tree.remove(from)?;
                tree.insert(to.clone(), moved);
            }
            Self::Remove(path) => drop(tree.remove(path)?),
            Self::Made(_) => {}
        }
        Some(tree)
    }
}

/// Progress of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// No step is done.
    Recorded,
    Committing,
    /// No step is done after this.
    Over,
}

pub(super) struct Script {
    pub(super) steps: Vec<Step>,
    /// Files after the first N steps, up to the first step that must fail.
    trees: Vec<Tree>,
    paths: BTreeSet<PathBuf>,
    phase: Phase,
    pub(super) is_ordered: bool,
    /// Several tasks record at a time: the order of the steps is not known. Each has its own path.
    pub(super) is_raced: bool,
    /// A file is not complete, so nothing may be published.
    pub(super) is_broken: bool,
    /// Steps that are done: at least, and at most if some of them change nothing.
    done: usize,
    most: usize,
    /// Steps after which a path is durable.
    durable: BTreeMap<PathBuf, usize>,
}

impl Script {
    /// A batch without steps, in a tree that is durable.
    pub(super) fn new(start: Tree) -> Self {
        Self {
            steps: Vec::new(),
            paths: start.keys().cloned().collect(),
            trees: vec![start],
            phase: Phase::Recorded,
            is_ordered: false,
            is_raced: false,
            is_broken: false,
            done: 0,
            most: 0,
            durable: BTreeMap::new(),
        }
    }

    pub(super) fn start(&self) -> &Tree {
        &self.trees[0]
    }

    pub(super) fn record(&mut self, step: Step) {
        if !matches!(step, Step::Made(_)) {
            self.paths.insert(step.target().to_owned());
        }
        self.steps.push(step);
        self.build();
    }

    fn build(&mut self) {
        self.trees.truncate(1);
        for step in &self.steps {
            let Some(after) = step.after(&self.trees[self.trees.len() - 1]) else { break };
            self.trees.push(after);
        }
    }

    pub(super) fn begin_commit(&mut self) {
        self.phase = Phase::Committing;
    }

    /// The process of the batch was killed. No step is done from now on.
    pub(super) fn killed(&mut self) {
        self.look(stored);
        // The steps done are not known if their order is not.
        if !self.is_raced {
            self.phase = Phase::Over;
        }
    }

    /// Whether every step can be done.
    fn can_succeed(&self) -> bool {
        !self.is_broken && self.trees.len() > self.steps.len()
    }

    /// The commit has ended. `may_fail` says whether calls may fail because of the machine.
    pub(super) fn committed(&mut self, result: &Result<(), CommitError>, may_fail: bool) {
        self.phase = Phase::Over;
        if let Err(error) = result {
            assert!(may_fail || !self.can_succeed(), "contract 20: the commit fails: {error:?}");
            return self.failed(error, may_fail);
        }
        assert!(self.can_succeed(), "contract 20: a commit that must fail ends well");
        self.is_raced = false;
        (self.done, self.most) = (self.steps.len(), self.steps.len());
        self.durable = self.paths.iter().map(|path| (path.clone(), self.done)).collect();
    }

    fn failed(&mut self, error: &CommitError, may_fail: bool) {
        let targets = &error.targets;
        let place = |step: &Step| targets.iter().position(|(path, _)| path == step.target());
        if std::mem::take(&mut self.is_raced) {
            self.steps.sort_by_key(place);
            self.build();
        }
        let recorded: Vec<&Path> = self.steps.iter().map(Step::target).collect();
        let reported: Vec<&Path> = targets.iter().map(|(path, _)| path.as_path()).collect();
        assert_eq!(recorded, reported, "contract 20: targets in call order");
        let is_new = |(_, outcome): &&(PathBuf, Outcome)| *outcome != Outcome::Old;
        let done = targets.iter().take_while(is_new).count();
        assert_eq!(targets.iter().filter(is_new).count(), done, "contract 20: {targets:?}");
        let possible = if self.is_broken { 0 } else { self.trees.len() - 1 };
        assert!(done == possible || may_fail && done < possible, "contract 20: {targets:?}");
        (self.done, self.most) = (done, done);
        for (at, step) in self.steps.iter().enumerate() {
            if targets[at].1 == Outcome::New {
                let paths = self.paths.iter().filter(|path| step.touches(path));
                self.durable.extend(paths.map(|path| (path.clone(), at + 1)));
            }
        }
    }

    /// Directories that the batch made and must have removed again.
    pub(super) fn undone_directories(&self) -> impl Iterator<Item = &Path> {
        let undone = self.steps[self.done..].iter();
        undone.filter(|step| matches!(step, Step::Made(_))).map(Step::target)
    }

    /// Checks the files as programs see them now: the first steps are done, in order.
    pub(super) fn check_now(&mut self) {
        self.look(stored);
    }

    fn look(&mut self, content: impl Fn(&Path) -> Option<Content>) {
        let now = self.tree(content);
        let last = self.trees.len() - 1;
        if self.is_raced && self.phase == Phase::Committing {
            self.most = last;
            assert!(self.is_between(&now, 0, last), "contract 20: {}", self.shown(&now));
            return;
        }
        let most = if self.phase == Phase::Committing { last } else { self.most };
        let mut found = (self.done..=most).filter(|done| self.trees[*done] == now);
        let Some(first) = found.next() else {
            panic!("contract 20: programs see {}", self.shown(&now));
        };
        (self.done, self.most) = (first, found.next_back().unwrap_or(first));
    }

    /// Checks what a loss of power leaves: each path is as after some step that may be done, and
    /// not before one that is durable. Ordered, the last file parts them.
    pub(super) fn check(&self, found: &Survivors, when: &str) {
        let at = |path: &Path| {
            let survivor = found.at(path);
            survivor.exists.then(|| Rc::new(bytes_of(&survivor)))
        };
        let tree = self.tree(at);
        let is_file = |step: &Step| matches!(step, Step::Publish { .. });
        let last = self.steps.iter().rposition(is_file).filter(|_| self.is_ordered);
        let is_allowed = match last {
            Some(last) if last < self.most => {
                self.is_between(&tree, 0, last) || self.is_between(&tree, last + 1, self.most)
            }
            _ => self.is_between(&tree, 0, self.most),
        };
        assert!(is_allowed, "contract 20: {when} leaves {}", self.shown(&tree));
    }

    /// Returns whether each path is as after some step of a range.
    fn is_between(&self, tree: &Tree, first: usize, last: usize) -> bool {
        self.paths.iter().all(|path| {
            let first = first.max(self.durable.get(path).copied().unwrap_or(0));
            (first..=last).any(|done| self.trees[done].get(path) == tree.get(path))
        })
    }

    fn tree(&self, content: impl Fn(&Path) -> Option<Content>) -> Tree {
        let found = self.paths.iter().filter_map(|path| Some((path.clone(), content(path)?)));
        found.collect()
    }

    /// Names the files of a tree that differ from those after the steps that are done.
    fn shown(&self, tree: &Tree) -> String {
        let size = |tree: &Tree, path| tree.get(path).map(|content: &Content| content.len());
        let known = &self.trees[self.done];
        let wrong: Vec<String> = self
            .paths
            .iter()
            .filter(|path| known.get(*path) != tree.get(*path))
            .map(|path| {
                let (found, after) = (size(tree, path), size(known, path));
                let durable = self.durable.get(path);
                format!("{} {found:?}, was {after:?}, durable {durable:?}", path.display())
            })
            .collect();
        let Self { done, most, phase, is_ordered, .. } = self;
        let steps: Vec<String> = self
            .steps
            .iter()
            .map(|step| match step {
                Step::Publish { path, .. } => format!("publish {}", path.display()),
                step => format!("{step:?}"),
            })
            .collect();
        format!("{wrong:?}: {phase:?}, {done} to {most} done, ordered {is_ordered}: {steps:#?}")
    }
}

/// Returns a file as programs see it.
fn stored(path: &Path) -> Option<Content> {
    machine::identity(path)?;
    Some(Rc::new(machine::stored(path, |file| file.read(0, file.size()))))
}
