use std::collections::BTreeSet;

use super::*;

const ROOT: Node = Node(0);
const OTHER: Node = Node(1);
const EVERY_KEEP: [Keep; 3] = [Keep::Nothing, Keep::Some, Keep::Everything];

/// Names with two directories, and the number of the next change.
struct Rig(Names, u64);

impl Rig {
    fn new() -> Self {
        let mut names = Names::default();
        names.add_directory(ROOT, ROOT);
        names.add_directory(OTHER, ROOT);
        Self(names, 0)
    }

    fn set(&mut self, directory: Node, name: &str, node: Option<usize>) {
        self.1 += 1;
        self.0.assign(directory, OsStr::new(name), node.map(Node), self.1);
    }

    fn make_directory(&mut self, directory: Node, name: &str, node: Node) {
        self.0.add_directory(node, directory);
        self.set(directory, name, Some(node.0));
    }

    fn rename(&mut self, from: (Node, &str), to: (Node, &str)) {
        self.1 += 1;
        self.0.rename((from.0, OsStr::new(from.1)), (to.0, OsStr::new(to.1)), self.1);
    }

    fn flush(&mut self, directory: Node) {
        self.0.flush(|node| node == directory, self.1);
    }

    fn fail_flush(&mut self, directory: Node, sake: Option<Node>) {
        self.0.forsake(directory, sake, self.1);
    }

    /// Entries of a directory after a loss of power.
    fn found(&self, directory: Node, keep: Keep, seed: u64) -> Vec<String> {
        let found = self.0.survive(keep, &mut Random::new(seed));
        let entries = found[&directory].iter();
        entries.map(|(name, node)| format!("{} {}", name.display(), node.0)).collect()
    }

    fn durable(&self, directory: Node) -> Vec<String> {
        self.found(directory, Keep::Nothing, 0)
    }
}

#[test]
fn a_name_is_durable_once_its_directory_is_flushed() {
    let mut names = Rig::new();
    names.set(ROOT, "a", Some(7));
    names.flush(OTHER);
    assert!(names.durable(ROOT).is_empty(), "another directory was flushed");
    names.flush(ROOT);
    assert_eq!(names.durable(ROOT), ["a 7"]);
    names.set(ROOT, "a", None);
    assert_eq!(names.durable(ROOT), ["a 7"]);
    assert!(names.found(ROOT, Keep::Everything, 0).is_empty());
}

#[test]
fn a_flush_covers_the_changes_before_it() {
    let mut names = Rig::new();
    names.set(ROOT, "a", Some(7));
    let taken = names.1;
    names.set(ROOT, "b", Some(8));
    names.0.flush(|node| node == ROOT, taken);
    assert_eq!(names.durable(ROOT), ["a 7"]);
}

#[test]
fn a_rename_between_directories_survives_in_both_or_in_neither() {
    for flushed in [ROOT, OTHER] {
        let mut names = Rig::new();
        names.set(ROOT, "a", Some(7));
        names.flush(ROOT);
        names.rename((ROOT, "a"), (OTHER, "b"));
        let mut seen = BTreeSet::new();
        for seed in 0..64 {
            let [root, other] =
                [ROOT, OTHER].map(|directory| names.found(directory, Keep::Some, seed));
            assert_ne!(root.is_empty(), other.is_empty(), "{root:?} {other:?}");
            seen.insert(root.is_empty());
        }
        assert_eq!(seen.len(), 2);
        // A flush of either directory makes it durable in both.
        names.flush(flushed);
        assert_eq!((names.durable(ROOT), names.durable(OTHER)), (vec![], vec!["b 7".into()]));
    }
}

#[test]
fn changes_of_different_files_survive_independently() {
    let mut names = Rig::new();
    for (at, name) in ["a", "b", "c"].into_iter().enumerate() {
        names.set(ROOT, name, Some(7 + at));
    }
    let found: BTreeSet<_> = (0..500).map(|seed| names.found(ROOT, Keep::Some, seed)).collect();
    assert_eq!(found.len(), 8, "every part of them is found");
}

#[test]
fn changes_of_one_file_survive_in_order() {
    let mut names = Rig::new();
    names.set(ROOT, "a", Some(7));
    names.rename((ROOT, "a"), (ROOT, "b"));
    names.set(OTHER, "c", Some(7));
    names.set(ROOT, "b", None);
    let states = |seed| (names.found(ROOT, Keep::Some, seed), names.found(OTHER, Keep::Some, seed));
    let found: BTreeSet<_> = (0..500).map(states).collect();
    let state = |root: &[&str], other: &[&str]| {
        let owned =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        (owned(root), owned(other))
    };
    let prefixes = [
        state(&[], &[]),
        state(&["a 7"], &[]),
        state(&["b 7"], &[]),
        state(&["b 7"], &["c 7"]),
        state(&[], &["c 7"]),
    ];
    assert_eq!(found, BTreeSet::from(prefixes));
}

#[test]
fn a_flush_covers_what_its_changes_depend_on_and_nothing_else() {
    let mut names = Rig::new();
    names.set(ROOT, "a", Some(7));
    names.set(ROOT, "b", Some(8));
    names.rename((ROOT, "a"), (OTHER, "c"));
    names.flush(OTHER);
    assert_eq!(names.durable(OTHER), ["c 7"]);
    assert!(names.durable(ROOT).is_empty(), "b is of another file");
    // A name that stood for another file before.
    names.rename((ROOT, "b"), (ROOT, "d"));
    names.set(ROOT, "b", Some(9));
    names.rename((ROOT, "b"), (OTHER, "e"));
    names.flush(OTHER);
    assert_eq!(names.durable(ROOT), ["d 8"]);
    assert_eq!(names.durable(OTHER), ["c 7", "e 9"]);
}

#[test]
fn a_new_directory_needs_a_flush_of_its_parent() {
    let mut names = Rig::new();
    let new = Node(2);
    names.make_directory(ROOT, "d", new);
    names.set(new, "a", Some(7));
    names.rename((new, "a"), (new, "b"));
    names.flush(new);
    assert_eq!((names.durable(new), names.durable(ROOT)), (vec!["b 7".into()], vec![]));
    // A file that had a name elsewhere has one still.
    names.set(OTHER, "c", Some(8));
    names.flush(OTHER);
    names.rename((OTHER, "c"), (new, "c"));
    for seed in 0..64 {
        let is_there = !names.found(ROOT, Keep::Some, seed).is_empty();
        let is_moved = names.found(OTHER, Keep::Some, seed).is_empty();
        assert!(is_there || !is_moved);
    }
    names.flush(OTHER);
    assert_eq!(names.durable(ROOT), ["d 2"]);
}

#[test]
fn a_removed_directory_takes_no_file_along_that_was_moved_out() {
    let mut names = Rig::new();
    let old = Node(2);
    names.make_directory(ROOT, "d", old);
    names.set(old, "a", Some(7));
    names.0.flush_all();
    names.rename((old, "a"), (OTHER, "a"));
    names.set(ROOT, "d", None);
    for seed in 0..64 {
        let is_removed = names.found(ROOT, Keep::Some, seed).is_empty();
        assert!(!is_removed || !names.found(OTHER, Keep::Some, seed).is_empty());
    }
    names.flush(ROOT);
    assert_eq!((names.durable(ROOT), names.durable(OTHER)), (vec![], vec!["a 7".into()]));
}

#[test]
fn contract_02_no_later_flush_makes_a_forsaken_name_durable() {
    for sake in [None, Some(Node(7))] {
        let mut names = Rig::new();
        names.set(ROOT, "a", Some(7));
        names.fail_flush(ROOT, sake);
        names.set(ROOT, "b", Some(9));
        names.flush(ROOT);
        assert_eq!(names.durable(ROOT), ["b 9"]);
        assert_eq!(names.found(ROOT, Keep::Everything, 0), ["a 7", "b 9"]);
        assert!(names.0.is_forsaken(ROOT, OsStr::new("a")));
        // A newer name in its place does not make it come back.
        names.set(ROOT, "a", Some(8));
        names.flush(ROOT);
        for keep in EVERY_KEEP {
            assert_eq!(names.found(ROOT, keep, 0), ["a 8", "b 9"]);
        }
    }
}

#[test]
fn a_failed_flush_of_one_file_leaves_the_other_names_to_later_ones() {
    for (sake, durable) in [(Some(Node(7)), vec!["b 8"]), (None, vec![])] {
        let mut names = Rig::new();
        names.set(ROOT, "a", Some(7));
        names.set(ROOT, "b", Some(8));
        names.fail_flush(ROOT, sake);
        names.flush(ROOT);
        assert_eq!(names.durable(ROOT), durable);
    }
}

#[test]
fn a_forsaken_rename_stays_whole() {
    let mut names = Rig::new();
    names.set(ROOT, "a", Some(7));
    names.flush(ROOT);
    names.rename((ROOT, "a"), (OTHER, "b"));
    names.fail_flush(ROOT, None);
    names.flush(OTHER);
    assert_eq!((names.durable(ROOT), names.durable(OTHER)), (vec!["a 7".into()], vec![]));
    // A new file takes the old name: the other one must not be lost with it.
    names.set(ROOT, "a", Some(8));
    names.flush(ROOT);
    assert_eq!(names.durable(ROOT), ["a 8"]);
    assert_eq!(names.durable(OTHER), ["b 7"]);
}

#[test]
fn after_a_restart_everything_found_is_durable() {
    let mut names = Rig::new();
    names.set(ROOT, "other", Some(OTHER.0));
    names.set(OTHER, "a", Some(7));
    let found = names.0.survive(Keep::Everything, &mut Random::new(1));
    names.0.restart(found);
    assert_eq!(names.durable(ROOT), ["other 1"]);
    assert_eq!(names.durable(OTHER), ["a 7"]);
    assert_eq!((names.0.parent(OTHER), names.0.links(Node(7))), (ROOT, 1));
    assert!(names.0.is_directory(OTHER));
    assert_eq!(names.0.lookup(ROOT, OsStr::new("other")), Some(OTHER));
}
