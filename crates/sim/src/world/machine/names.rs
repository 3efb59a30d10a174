//! Directories and the names in them, and which names survive a loss of power.
//!
//! A change creates, removes or moves a name, in one step. It is volatile until a flush of a
//! directory that it touches succeeds. The flush also covers the earlier changes that the change
//! depends on. A loss of power may undo any volatile change, and undoes those that depend on a lost
//! one. So a file that is moved never loses both its names.
//!
//! ```text
//! create, link, unlink, rename --> volatile changes --flush of a directory--> durable entries
//!                                        \--flush fails--> forsaken
//! ```
//!
//! Later flushes leave a forsaken change out, unless a change that depends on it becomes durable.
//!
//! Nothing here knows what a node contains.

mod change;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::mem::take;

use crate::random::{PerMille, Random};
use crate::stored::Keep;

use change::{Assignment, Change, Fate, Touched};

/// Share of the volatile changes that are lost, beside those that depend on a lost one.
const LOST: PerMille = PerMille(300);

/// Number of a file, directory, link or device of the machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Node(pub usize);

/// Entries of a directory.
pub(crate) type Entries = BTreeMap<OsString, Node>;

#[derive(Clone, Debug)]
struct Directory {
    parent: Node,
    entries: Entries,
    durable: Entries,
}

/// All directories of the machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    directories: BTreeMap<Node, Directory>,
    links: Links,
    /// Changes that are not durable, in order.
    changes: Vec<Change>,
    /// Everything that these changes touch, and that others did that are durable since.
    touched: BTreeSet<Touched>,
}

impl Names {
    /// Adds an empty directory. A root is its own parent.
    pub(crate) fn add_directory(&mut self, node: Node, parent: Node) {
        let directory = Directory { parent, entries: Entries::new(), durable: Entries::new() };
        let before = self.directories.insert(node, directory);
        assert!(before.is_none(), "{node:?} is a directory already");
    }

    /// Drops the entries of a node, which has no name and cannot get one back.
    pub(crate) fn forget(&mut self, node: Node) {
        self.links.forget(node);
        let directory = self.directories.remove(&node);
        let entries = directory.into_iter().flat_map(|directory| directory.entries.into_values());
        entries.for_each(|child| self.links.remove(child));
    }

    /// Returns the first node from `start` on that had a name and has none.
    pub(crate) fn next_nameless(&self, start: Node) -> Option<Node> {
        self.links.nameless.range(start..).next().copied()
    }

    /// Returns whether the node is a directory.
    pub(crate) fn is_directory(&self, node: Node) -> bool {
        self.directories.contains_key(&node)
    }

    /// Returns the directory that contains this one.
    pub(crate) fn parent(&self, directory: Node) -> Node {
        self.directories[&directory].parent
    }

    /// Returns a directory and those that contain it, up to the root.
    pub(crate) fn above(&self, directory: Node) -> Vec<Node> {
        let parent = |of: &Node| Some(self.parent(*of)).filter(|parent| parent != of);
        std::iter::successors(Some(directory), parent).collect()
    }

    /// Returns the entries of a directory.
    pub(crate) fn entries(&self, directory: Node) -> &Entries {
        &self.directories[&directory].entries
    }

    /// Returns the node that a name in a directory stands for.
    pub(crate) fn lookup(&self, directory: Node, name: &OsStr) -> Option<Node> {
        self.entries(directory).get(name).copied()
    }

    /// Returns the number of names of a node.
    pub(crate) fn links(&self, node: Node) -> usize {
        self.links.counts.get(&node).copied().unwrap_or(0)
    }

    /// Returns whether a name stands for the node, or may do so after a loss of power.
    pub(crate) fn refers_to(&self, node: Node) -> bool {
        let of = |directory: &Directory| {
            let mut entries = directory.entries.values().chain(directory.durable.values());
            entries.any(|found| *found == node)
        };
        self.directories.values().any(of) || self.changes.iter().any(|change| change.names(node))
    }

    /// Returns whether no flush can make the present meaning of a name durable.
    pub(crate) fn is_forsaken(&self, directory: Node, name: &OsStr) -> bool {
        let last = self.changes.iter().rfind(|change| change.assigns(directory, name));
        last.is_some_and(|change| change.fate == Fate::Forsaken)
    }

    /// Makes a name stand for a node, or for nothing.
    pub(crate) fn assign(
        &mut self,
        directory: Node,
        name: &OsStr,
        node: Option<Node>,
        sequence: u64,
    ) {
        self.change(vec![Assignment::new(directory, name, node)], &[], sequence);
    }

    /// Moves a name, which replaces what the new name stood for.
    pub(crate) fn rename(&mut self, from: (Node, &OsStr), to: (Node, &OsStr), sequence: u64) {
        let node = self.lookup(from.0, from.1).expect("the caller looked the name up");
        if from == to {
            return;
        }
        let assignments =
            vec![Assignment::new(from.0, from.1, None), Assignment::new(to.0, to.1, Some(node))];
        let above = if from.0 == to.0 { Vec::new() } else { self.above(to.0) };
        self.change(assignments, &above, sequence);
        if let Some(moved) = self.directories.get_mut(&node) {
            moved.parent = to.0;
        }
    }

    /// Makes a change. A move to another directory needs the directories on the new path, `above`.
    fn change(&mut self, assignments: Vec<Assignment>, above: &[Node], sequence: u64) {
        let before = assignments.iter().filter_map(|to| self.lookup(to.directory, &to.name));
        let files: BTreeSet<Node> =
            before.chain(assignments.iter().filter_map(|to| to.node)).collect();
        let mut change = Change::new(sequence, assignments, files);
        // Most changes depend on nothing, and there may be many earlier ones.
        if change.may_depend_on(&self.touched, above) {
            let needs = self.changes.iter().filter(|earlier| change.depends_on(earlier, above));
            change.needs = needs.map(|earlier| earlier.sequence).collect();
        }
        self.touched.extend(change.touched());
        for Assignment { directory, name, node } in &change.assignments {
            let directory = self.directories.get_mut(directory).expect("a directory");
            // First, so that a node that keeps its name is not without one in between.
            node.iter().for_each(|node| self.links.add(*node));
            let replaced = set(&mut directory.entries, name, *node);
            replaced.into_iter().for_each(|node| self.links.remove(node));
        }
        self.changes.push(change);
    }

    /// Makes the changes up to `until` durable that touch one of these directories, and every
    /// change that they depend on.
    pub(crate) fn flush(&mut self, is_flushed: impl Fn(Node) -> bool, until: u64) {
        let covered = self.covered(|change| change.touches(&is_flushed), until);
        for change in take(&mut self.changes) {
            if !covered.contains(&change.sequence) {
                self.changes.push(change);
                continue;
            }
            for Assignment { directory, name, node } in change.assignments {
                let directory = self.directories.get_mut(&directory).expect("a directory");
                set(&mut directory.durable, &name, node);
            }
        }
        if self.changes.is_empty() {
            self.touched.clear();
        }
    }

    /// Makes all names durable.
    pub(crate) fn flush_all(&mut self) {
        self.flush(|_| true, u64::MAX);
    }

    /// A flush of the directory failed: no later flush makes the changes up to `until` durable that
    /// it should have covered. A flush for the sake of one file should have covered only its names.
    pub(crate) fn forsake(&mut self, directory: Node, sake: Option<Node>, until: u64) {
        let is_own = |change: &Change| {
            let is_of_file = sake.is_none_or(|file| change.files.contains(&file));
            is_of_file && change.touches(&|touched| touched == directory)
        };
        let covered = self.covered(is_own, until);
        for change in self.changes.iter_mut().filter(|it| covered.contains(&it.sequence)) {
            change.fate = Fate::Forsaken;
        }
    }

    /// Returns the numbers of the changes that a flush covers: those of its own that are not
    /// forsaken, and all that one of them depends on.
    fn covered(&self, is_own: impl Fn(&Change) -> bool, until: u64) -> BTreeSet<u64> {
        let mut covered = BTreeSet::new();
        for change in self.changes.iter().rev() {
            let is_asked = change.sequence <= until && change.fate == Fate::Open && is_own(change);
            if is_asked || covered.contains(&change.sequence) {
                covered.insert(change.sequence);
                covered.extend(&change.needs);
            }
        }
        covered
    }

    /// Returns the entries of all directories as they may be found after a loss of power now.
    pub(crate) fn survive(&self, keep: Keep, random: &mut Random) -> BTreeMap<Node, Entries> {
        let mut found: BTreeMap<Node, Entries> = self
            .directories
            .iter()
            .map(|(node, directory)| (*node, directory.durable.clone()))
            .collect();
        let mut lost = BTreeSet::new();
        for change in &self.changes {
            let is_lost = match keep {
                Keep::Nothing => true,
                Keep::Everything => false,
                Keep::Some => {
                    change.needs.iter().any(|need| lost.contains(need)) || random.happens(LOST)
                }
            };
            if is_lost {
                lost.insert(change.sequence);
                continue;
            }
            for Assignment { directory, name, node } in &change.assignments {
                set(found.get_mut(directory).expect("a directory"), name, *node);
            }
        }
        found
    }

    /// The power went: these entries are there, all of them durable, and no other directories.
    pub(crate) fn restart(&mut self, found: BTreeMap<Node, Entries>) {
        self.changes.clear();
        self.touched.clear();
        self.directories.retain(|node, _| found.contains_key(node));
        self.links.clear();
        found.values().flat_map(BTreeMap::values).for_each(|node| self.links.add(*node));
        for (node, entries) in found {
            let children: Vec<Node> = entries.values().copied().collect();
            let directory = self.directories.get_mut(&node).expect("no directory is new");
            directory.durable.clone_from(&entries);
            directory.entries = entries;
            for child in children {
                if let Some(child) = self.directories.get_mut(&child) {
                    child.parent = node;
                }
            }
        }
    }
}

/// Number of names of each node.
#[derive(Clone, Debug, Default)]
struct Links {
    counts: BTreeMap<Node, usize>,
    /// Nodes that had a name and have none.
    nameless: BTreeSet<Node>,
}

impl Links {
    fn add(&mut self, node: Node) {
        *self.counts.entry(node).or_default() += 1;
        self.nameless.remove(&node);
    }

    fn remove(&mut self, node: Node) {
        let count = self.counts.get_mut(&node).expect("a name was counted");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&node);
            self.nameless.insert(node);
        }
    }

    fn forget(&mut self, node: Node) {
        assert!(!self.counts.contains_key(&node), "{node:?} has a name");
        self.nameless.remove(&node);
    }

    fn clear(&mut self) {
        self.nameless.extend(take(&mut self.counts).into_keys());
    }
}

/// Sets the meaning of a name. Returns the node that it stood for.
fn set(entries: &mut Entries, name: &OsStr, node: Option<Node>) -> Option<Node> {
    match node {
        Some(node) => entries.insert(name.to_owned(), node),
        None => entries.remove(name),
    }
}
