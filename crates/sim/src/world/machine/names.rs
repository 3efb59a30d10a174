//! Directories and the names in them, and which names survive a loss of power.
//!
//! A change of a name is volatile until a flush of its directory succeeds. A volatile change may be
//! lost. Changes of one directory survive in order, as in a journal: if one is lost, so are all
//! later ones of that directory. A rename between two directories survives in both or in neither.
//!
//! ```text
//! link, unlink, rename --> volatile changes, in order --flush of a directory--> durable entries
//!                                     \--flush fails--> forsaken: no later flush covers them
//! ```
//!
//! Nothing here knows what a node contains.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};

use crate::random::{PerMille, Random};
use crate::stored::Keep;

/// Number of a file, directory, link or device of the machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Node(pub usize);

/// Entries of a directory.
pub(crate) type Entries = BTreeMap<OsString, Node>;

/// Whether a flush can make a change durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Open,
    Forsaken,
}

/// A change of one or two names, made in one step.
#[derive(Clone, Debug)]
struct Change {
    /// Directory, name, and what the name stands for from now on.
    assignments: Vec<(Node, OsString, Option<Node>)>,
    fate: Fate,
}

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
    /// Changes that are not durable, in order.
    changes: Vec<Change>,
}

impl Names {
    /// Adds an empty directory. A root is its own parent.
    pub(crate) fn add_directory(&mut self, node: Node, parent: Node) {
        let directory = Directory { parent, entries: Entries::new(), durable: Entries::new() };
        let before = self.directories.insert(node, directory);
        assert!(before.is_none(), "{node:?} is a directory already");
    }

    /// Returns whether the node is a directory.
    pub(crate) fn is_directory(&self, node: Node) -> bool {
        self.directories.contains_key(&node)
    }

    /// Returns the directory that contains this one.
    pub(crate) fn parent(&self, directory: Node) -> Node {
        self.directories[&directory].parent
    }

    /// Returns the node that a name in a directory stands for.
    pub(crate) fn lookup(&self, directory: Node, name: &OsStr) -> Option<Node> {
        self.directories[&directory].entries.get(name).copied()
    }

    /// Returns the number of names of a node.
    pub(crate) fn links(&self, node: Node) -> usize {
        let entries = self.directories.values().flat_map(|directory| directory.entries.values());
        entries.filter(|&&found| found == node).count()
    }

    /// Returns whether a name stands for the node, or may do so after a loss of power.
    pub(crate) fn refers_to(&self, node: Node) -> bool {
        let is_it = |found: Option<&Node>| found == Some(&node);
        let of = |directory: &Directory| {
            let mut entries = directory.entries.values().chain(directory.durable.values());
            entries.any(|found| *found == node)
        };
        let of_change =
            |change: &Change| change.assignments.iter().any(|(.., found)| is_it(found.as_ref()));
        self.directories.values().any(of) || self.changes.iter().any(of_change)
    }

    /// Returns whether no flush can make the present meaning of a name durable.
    pub(crate) fn is_forsaken(&self, directory: Node, name: &OsStr) -> bool {
        let is_it = |(of, assigned, _): &(Node, OsString, Option<Node>)| {
            *of == directory && assigned == name
        };
        let last = self.changes.iter().rfind(|change| change.assignments.iter().any(is_it));
        last.is_some_and(|change| change.fate == Fate::Forsaken)
    }

    /// Makes a name stand for a node, or for nothing.
    pub(crate) fn assign(&mut self, directory: Node, name: &OsStr, node: Option<Node>) {
        self.change(vec![(directory, name.to_owned(), node)]);
    }

    /// Moves a name, which replaces what the new name stood for.
    pub(crate) fn rename(&mut self, from: (Node, &OsStr), to: (Node, &OsStr)) {
        let node = self.lookup(from.0, from.1).expect("the caller looked the name up");
        if from == to {
            return;
        }
        self.change(vec![(from.0, from.1.to_owned(), None), (to.0, to.1.to_owned(), Some(node))]);
        if let Some(moved) = self.directories.get_mut(&node) {
            moved.parent = to.0;
        }
    }

    fn change(&mut self, assignments: Vec<(Node, OsString, Option<Node>)>) {
        for (directory, name, node) in &assignments {
            let directory = self.directories.get_mut(directory).expect("a directory");
            set(&mut directory.entries, name, *node);
        }
        self.changes.push(Change { assignments, fate: Fate::Open });
    }

    /// Makes the names of a directory durable, and every change that one of them depends on.
    pub(crate) fn flush(&mut self, directory: Node) {
        let mut covered = vec![false; self.changes.len()];
        let mut wanted = BTreeSet::from([directory]);
        for (at, change) in self.changes.iter().enumerate().rev() {
            let touches = change.assignments.iter().any(|(node, ..)| wanted.contains(node));
            if touches && change.fate == Fate::Open {
                covered[at] = true;
                wanted.extend(change.assignments.iter().map(|(node, ..)| *node));
            }
        }
        self.make_durable(&covered);
    }

    /// Makes all names durable.
    pub(crate) fn flush_all(&mut self) {
        let covered: Vec<bool> =
            self.changes.iter().map(|change| change.fate == Fate::Open).collect();
        self.make_durable(&covered);
    }

    fn make_durable(&mut self, covered: &[bool]) {
        let mut kept: Vec<Change> = Vec::new();
        for (change, &is_covered) in std::mem::take(&mut self.changes).into_iter().zip(covered) {
            if !is_covered {
                kept.push(change);
                continue;
            }
            for (directory, name, node) in change.assignments {
                // An older change that is not durable must not come back over a newer one that is.
                for older in &mut kept {
                    older.assignments.retain(|(at, old, _)| (*at, old) != (directory, &name));
                }
                let directory = self.directories.get_mut(&directory).expect("a directory");
                set(&mut directory.durable, &name, node);
            }
        }
        kept.retain(|change| !change.assignments.is_empty());
        self.changes = kept;
    }

    /// A flush of the directory failed that was to make the names of a node durable: no later one
    /// does.
    pub(crate) fn forsake(&mut self, directory: Node, named: Node) {
        let is_it = |(of, _, node): &(Node, OsString, Option<Node>)| {
            *of == directory && *node == Some(named)
        };
        let touches = |change: &Change| change.assignments.iter().any(is_it);
        for change in self.changes.iter_mut().filter(|change| touches(change)) {
            change.fate = Fate::Forsaken;
        }
    }

    /// Returns the entries of all directories as they may be found after a loss of power now.
    pub(crate) fn survive(&self, keep: Keep, random: &mut Random) -> BTreeMap<Node, Entries> {
        let mut found: BTreeMap<Node, Entries> = self
            .directories
            .iter()
            .map(|(node, directory)| (*node, directory.durable.clone()))
            .collect();
        let mut stopped = BTreeSet::new();
        for change in &self.changes {
            let is_blocked = change.assignments.iter().any(|(node, ..)| stopped.contains(node));
            let is_lost = match keep {
                Keep::Nothing => true,
                Keep::Everything => false,
                Keep::Some => is_blocked || random.happens(PerMille(300)),
            };
            if is_lost {
                // A forsaken change holds nothing back: a later flush may cover later ones.
                if change.fate == Fate::Open {
                    stopped.extend(change.assignments.iter().map(|(node, ..)| *node));
                }
                continue;
            }
            for (directory, name, node) in &change.assignments {
                set(found.get_mut(directory).expect("a directory"), name, *node);
            }
        }
        found
    }

    /// The power went: these entries are there, all of them durable, and no other directories.
    pub(crate) fn restart(&mut self, found: BTreeMap<Node, Entries>) {
        self.changes.clear();
        self.directories.retain(|node, _| found.contains_key(node));
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

fn set(entries: &mut Entries, name: &OsStr, node: Option<Node>) {
    match node {
        Some(node) => entries.insert(name.to_owned(), node),
        None => entries.remove(name),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Node = Node(0);
    const OTHER: Node = Node(1);

    fn names() -> Names {
        let mut names = Names::default();
        names.add_directory(ROOT, ROOT);
        names.add_directory(OTHER, ROOT);
        names
    }

    fn survivor(names: &Names, keep: Keep, seed: u64) -> (Vec<String>, Vec<String>) {
        let found = names.survive(keep, &mut Random::new(seed));
        let listed = |node| {
            let entries: &Entries = &found[&node];
            entries.iter().map(|(name, node)| format!("{} {}", name.display(), node.0)).collect()
        };
        (listed(ROOT), listed(OTHER))
    }

    #[test]
    fn a_name_is_durable_once_its_directory_is_flushed() {
        let mut names = names();
        names.assign(ROOT, OsStr::new("a"), Some(Node(7)));
        names.flush(OTHER);
        assert!(survivor(&names, Keep::Nothing, 0).0.is_empty(), "another directory was flushed");
        names.flush(ROOT);
        assert_eq!(survivor(&names, Keep::Nothing, 0).0, ["a 7"]);
        names.assign(ROOT, OsStr::new("a"), None);
        assert_eq!(survivor(&names, Keep::Nothing, 0).0, ["a 7"]);
        assert!(survivor(&names, Keep::Everything, 0).0.is_empty());
    }

    #[test]
    fn a_rename_between_directories_survives_in_both_or_in_neither() {
        let mut names = names();
        names.assign(ROOT, OsStr::new("a"), Some(Node(7)));
        names.flush(ROOT);
        names.rename((ROOT, OsStr::new("a")), (OTHER, OsStr::new("b")));
        let mut seen = BTreeSet::new();
        for seed in 0..64 {
            let (root, other) = survivor(&names, Keep::Some, seed);
            assert_ne!(root.is_empty(), other.is_empty(), "{root:?} {other:?}");
            seen.insert(root.is_empty());
        }
        assert_eq!(seen.len(), 2);
        // A flush of one directory makes it durable in both.
        names.flush(OTHER);
        assert_eq!(survivor(&names, Keep::Nothing, 0), (vec![], vec!["b 7".to_owned()]));
    }

    #[test]
    fn changes_of_a_directory_survive_in_order() {
        let mut names = names();
        for (at, name) in ["a", "b", "c"].into_iter().enumerate() {
            names.assign(ROOT, OsStr::new(name), Some(Node(7 + at)));
        }
        let mut lengths = BTreeSet::new();
        for seed in 0..200 {
            let (root, _) = survivor(&names, Keep::Some, seed);
            assert_eq!(root, ["a 7", "b 8", "c 9"][..root.len()]);
            lengths.insert(root.len());
        }
        assert_eq!(lengths.len(), 4, "every prefix is found");
    }

    #[test]
    fn contract_02_no_later_flush_makes_a_forsaken_name_durable() {
        let mut names = names();
        names.assign(ROOT, OsStr::new("a"), Some(Node(7)));
        names.forsake(ROOT, Node(7));
        names.flush(ROOT);
        assert!(survivor(&names, Keep::Nothing, 0).0.is_empty());
        assert_eq!(survivor(&names, Keep::Everything, 0).0, ["a 7"]);
        // A newer name in its place does not make it come back.
        names.assign(ROOT, OsStr::new("a"), Some(Node(8)));
        names.flush(ROOT);
        assert_eq!(survivor(&names, Keep::Nothing, 0).0, ["a 8"]);
        assert_eq!(survivor(&names, Keep::Everything, 0).0, ["a 8"]);
    }

    #[test]
    fn after_a_restart_everything_found_is_durable() {
        let mut names = names();
        names.assign(ROOT, OsStr::new("other"), Some(OTHER));
        names.assign(OTHER, OsStr::new("a"), Some(Node(7)));
        let found = names.survive(Keep::Everything, &mut Random::new(1));
        names.restart(found);
        assert_eq!(
            survivor(&names, Keep::Nothing, 0),
            (vec!["other 1".into()], vec!["a 7".into()])
        );
        assert_eq!((names.parent(OTHER), names.links(Node(7))), (ROOT, 1));
        assert!(names.is_directory(OTHER) && names.lookup(ROOT, OsStr::new("other")).is_some());
    }
}
