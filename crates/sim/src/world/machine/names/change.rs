//! A change of names, and the earlier changes that it depends on.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};

use super::Node;

/// Whether a flush of a directory that a change touches makes the change durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Open,
    /// A flush that should have done so has failed. Only a later change that depends on this one
    /// makes it durable.
    Forsaken,
}

/// New meaning of a name in a directory; `None` if it is free from now on.
#[derive(Clone, Debug)]
pub(super) struct Assignment {
    pub(super) directory: Node,
    pub(super) name: OsString,
    pub(super) node: Option<Node>,
}

impl Assignment {
    pub(super) fn new(directory: Node, name: &OsStr, node: Option<Node>) -> Self {
        Self { directory, name: name.to_owned(), node }
    }
}

/// A change of one or two names, made in one step.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// Its place in the order of all changes and flushes.
    pub(super) sequence: u64,
    pub(super) assignments: Vec<Assignment>,
    /// Files and directories that get a name or lose one.
    pub(super) files: BTreeSet<Node>,
    /// Numbers of the earlier changes without which this one does not survive.
    pub(super) needs: Vec<u64>,
    pub(super) fate: Fate,
}

/// Something that a change touches.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Touched {
    /// A name in a directory.
    Name(Node, OsString),
    /// Some name in a directory.
    Directory(Node),
    /// A file or directory that gets a name or loses one.
    File(Node),
}

impl Change {
    pub(super) fn new(sequence: u64, assignments: Vec<Assignment>, files: BTreeSet<Node>) -> Self {
        Self { sequence, assignments, files, needs: Vec::new(), fate: Fate::Open }
    }

    /// Returns whether a name stands for the node from this change on.
    pub(super) fn names(&self, node: Node) -> bool {
        self.assignments.iter().any(|to| to.node == Some(node))
    }

    /// Returns whether it gives a name another meaning.
    pub(super) fn assigns(&self, directory: Node, name: &OsStr) -> bool {
        self.assignments.iter().any(|to| to.directory == directory && to.name == name)
    }

    /// Returns whether it changes a name in one of these directories.
    pub(super) fn touches(&self, is_one: &impl Fn(Node) -> bool) -> bool {
        self.assignments.iter().any(|to| is_one(to.directory))
    }

    /// Returns whether it cannot survive without an earlier change.
    ///
    /// It depends on changes of the same name or the same file, and on changes in a directory that
    /// it removes. A move to another directory also depends on changes of `above`, the directories
    /// on the new path.
    ///
    /// A new file in a new directory depends on nothing. A flush of that directory does not make
    /// the directory's own name durable.
    pub(super) fn depends_on(&self, earlier: &Change, above: &[Node]) -> bool {
        let removes = |node: Node| self.removes(node);
        earlier.assignments.iter().any(|to| self.assigns(to.directory, &to.name))
            || !self.files.is_disjoint(&earlier.files)
            || earlier.touches(&removes)
            || above.iter().any(|directory| earlier.files.contains(directory))
    }

    /// Returns whether it may depend on a change that touched one of these things. False is exact.
    pub(super) fn may_depend_on(&self, touched: &BTreeSet<Touched>, above: &[Node]) -> bool {
        let has = |touch: Touched| touched.contains(&touch);
        self.assignments.iter().any(|to| has(Touched::Name(to.directory, to.name.clone())))
            || self.files.iter().chain(above).any(|file| has(Touched::File(*file)))
            || self.files.iter().any(|file| self.removes(*file) && has(Touched::Directory(*file)))
    }

    /// Returns everything that it touches.
    pub(super) fn touched(&self) -> impl Iterator<Item = Touched> {
        let of_name = |to: &Assignment| {
            [Touched::Name(to.directory, to.name.clone()), Touched::Directory(to.directory)]
        };
        let files = self.files.iter().map(|file| Touched::File(*file));
        self.assignments.iter().flat_map(of_name).chain(files)
    }

    /// Returns whether it takes a name of a node, and gives it none.
    fn removes(&self, node: Node) -> bool {
        self.files.contains(&node) && !self.names(node)
    }
}
