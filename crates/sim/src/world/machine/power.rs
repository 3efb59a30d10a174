//! A loss of power: the states that may be found after it, and the restart with one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use forebay_block::Operation;

use super::attributes::Attributes;
use super::inode::{Content, Metadata};
use super::names::{Entries, Node};
use super::state::{Machine, with};
use crate::random::Random;
use crate::stored::{Keep, StoredFile, Survivor, Unfinished};

/// A file after a loss of power.
#[derive(Debug)]
pub(super) struct FoundFile {
    pub(super) survivor: Survivor,
    /// The file with the bytes of its records that a recovery only saves, if it has such.
    pub(super) saved: Option<Survivor>,
    mark: Option<String>,
    pub(super) logged: Attributes,
    /// Pages with space that were not written.
    reserved: BTreeSet<u64>,
}

/// All that may be found after a loss of power.
#[derive(Debug)]
pub struct Survivors {
    names: BTreeMap<Node, Entries>,
    pub(super) files: BTreeMap<Node, FoundFile>,
    /// Files by the paths that were found.
    pub(super) paths: BTreeMap<PathBuf, Node>,
    /// The last change before it was drawn.
    sequence: u64,
}

impl Survivors {
    /// Returns what is found at a path: a file that does not exist, if its name is lost.
    #[must_use]
    pub fn at(&self, path: impl AsRef<Path>) -> Survivor {
        let found = self.paths.get(path.as_ref()).map(|node| &self.files[node].survivor);
        let lost = || Survivor { exists: false, size: 0, sectors: Vec::new() };
        found.map_or_else(lost, copy_of)
    }

    /// Returns a file as its owner can restore it from bytes that a recovery only saves. `None` if
    /// it saved no bytes.
    #[must_use]
    pub fn saved_at(&self, path: impl AsRef<Path>) -> Option<Survivor> {
        let node = self.paths.get(path.as_ref())?;
        self.files[node].saved.as_ref().map(copy_of)
    }

    /// Returns the paths of the files that are found.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.paths.keys().map(PathBuf::as_path)
    }
}

pub(super) fn copy_of(found: &Survivor) -> Survivor {
    Survivor { exists: true, size: found.size, sectors: found.sectors.clone() }
}

/// Draws a state that the file systems and devices may be found in after a loss of power now.
#[must_use]
pub fn survivors(keep: Keep, random: &mut Random) -> Survivors {
    with(|machine| machine.survivors(keep, random))
}

/// The power goes and comes back: the file systems and devices are as found, nothing is open,
/// nothing is in flight. The processes have to be killed before, and the state is drawn after that.
///
/// # Panics
/// If a request has ended since the state was drawn.
pub fn cut_power(found: Survivors) {
    with(|machine| machine.restart(found));
}

impl Machine {
    fn survivors(&self, keep: Keep, random: &mut Random) -> Survivors {
        let names = self.names.survive(keep, random);
        let paths = self.paths_in(&names);
        let kept: BTreeSet<Node> = paths.values().copied().collect();
        let files = kept.into_iter().map(|node| (node, self.find(node, keep, random))).collect();
        Survivors { names, files, paths, sequence: self.sequence }
    }

    /// Files and devices by their paths.
    fn paths_in(&self, names: &BTreeMap<Node, Entries>) -> BTreeMap<PathBuf, Node> {
        let mut found = BTreeMap::new();
        let mut left = vec![(PathBuf::from("/"), self.volumes[0].root)];
        while let Some((path, directory)) = left.pop() {
            for (name, node) in &names[&directory] {
                let node = self.mounts.get(node).copied().unwrap_or(*node);
                match self.inode(node).content {
                    Content::Directory => left.push((path.join(name), node)),
                    Content::File | Content::Device(_) => {
                        found.insert(path.join(name), node);
                    }
                    Content::Link(_) => {}
                }
            }
        }
        found
    }

    fn find(&self, node: Node, keep: Keep, random: &mut Random) -> FoundFile {
        let inode = self.inode(node);
        let unfinished: Vec<Unfinished<'_>> = self
            .flying
            .values()
            .filter(|flying| flying.node == node)
            .filter_map(|flying| match flying.bio.operation {
                Operation::Write | Operation::WriteBuffered => {
                    Some(Unfinished::Write(flying.bio.offset, &flying.data))
                }
                Operation::SetLength => Some(Unfinished::Length(flying.bio.offset)),
                _ => None,
            })
            .collect();
        let mut survivor = inode.stored.survive(keep, &unfinished, random);
        if inode.is_device() {
            survivor.size = inode.stored.size();
        }
        let mut times = inode.metadata.times();
        times.extend(inode.logged.times());
        let time = match keep {
            Keep::Nothing => 0,
            Keep::Everything => u64::MAX,
            Keep::Some if times.is_empty() => 0,
            Keep::Some => *random.pick(&times) - random.below(2),
        };
        let (mark, lost) = inode.metadata.survivor(time);
        let logged = inode.logged.survivor(time);
        let is_lost = |page: &&u64| lost.iter().any(|pages| pages.contains(page));
        let allocated = inode.stored.allocated().iter();
        let reserved = allocated.filter(|page| !is_lost(page)).copied().collect();
        FoundFile { survivor, saved: None, mark, logged, reserved }
    }

    fn restart(&mut self, found: Survivors) {
        let Survivors { names, files, sequence, .. } = found;
        // It may have made the removal of a name durable that was found.
        assert_eq!(sequence, self.sequence, "the state was drawn before a later change");
        self.flying.clear();
        self.ended_calls.clear();
        self.ports.clear();
        self.watches.clear();
        self.descriptors.clear();
        self.descriptions.clear();
        for (node, FoundFile { survivor, mark, logged, reserved, .. }) in files {
            let inode = self.inode_mut(node);
            inode.stored = StoredFile::of_survivor(&survivor, &reserved);
            let is_beyond = inode.stored.allocated_beyond_end().is_some();
            inode.is_littered |= mark.is_none() && is_beyond;
            inode.metadata = Metadata::restarted(mark);
            inode.logged.restart(logged);
        }
        for inode in self.nodes.iter_mut().flatten() {
            inode.opened.clear();
            inode.locks.clear();
            inode.undone.clear();
            (inode.lease, inode.holder, inode.mappings) = (None, None, 0);
            (inode.is_aborted, inode.cached_by, inode.is_gone) = (false, None, false);
            inode.errors = Default::default();
        }
        self.names.restart(names);
        self.collect();
    }
}
