//! The writeback context of a file, and how it is chosen.
//!
//! Only the context that has a file sends its bios, so their order needs no lock between contexts.
//! A handover (`handover.rs`) changes the context under the file's lock. Senders of
//! messages read it without the lock, and a late message is forwarded.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use crate::core::limits::CONTEXTS;
use crate::core::space::volume::Volume;
use crate::platform::{Identity, Kind, OpenFile, files};

/// How files are assigned to writeback contexts (knob `affinity`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Affinity {
    /// Assigns all files to the first context.
    Single,
    /// Assigns each file by a hash of its identity.
    Hash,
    /// Assigns files by their directory: all files of a directory share a context.
    Directory,
    /// Assigns files by the allocation group of their blocks (XFS), or by their directory if the
    /// file system reports no groups.
    #[default]
    Group,
}

impl Affinity {
    /// Values of the knob.
    pub(crate) const CHOICES: &str = "single, hash, directory, group";

    /// All values.
    pub(crate) const ALL: [Self; 4] = [Self::Single, Self::Hash, Self::Directory, Self::Group];

    /// Returns the affinity with this name.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|affinity| affinity.name() == name)
    }

    /// Returns the name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Hash => "hash",
            Self::Directory => "directory",
            Self::Group => "group",
        }
    }
}

/// Stands for a file without a group.
const NO_GROUP: u32 = u32::MAX;

/// Context of a file, and the keys that decide it.
#[derive(Debug)]
pub(crate) struct Placement {
    /// Number of its context.
    context: AtomicUsize,
    own: u64,
    directory: u64,
    group: AtomicU32,
    /// Whether the group is that of data blocks. Otherwise it is that of the inode, or unknown.
    is_seen: AtomicBool,
}

impl Placement {
    /// Looks up the directory that the file was opened in, and its allocation group.
    pub(crate) fn new(file: &OpenFile, path: &Path, volume: &Volume, length: u64) -> Self {
        let own = hashed(file.identity());
        let directory = match file.kind() {
            // All devices are in one directory.
            Kind::Block => None,
            _ => {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                files::identity_of(parent.unwrap_or(Path::new("."))).ok().map(hashed)
            }
        };
        let last = length.checked_sub(1);
        let seen = last.and_then(|last| group_of_data(file, volume, last));
        // A file without blocks usually gets them near its inode.
        let group = seen.or_else(|| volume.geometry(file)?.group_of_inode(file.identity().inode));
        Self {
            context: AtomicUsize::new(0),
            own,
            directory: directory.unwrap_or(own),
            group: AtomicU32::new(group.unwrap_or(NO_GROUP)),
            is_seen: AtomicBool::new(seen.is_some()),
        }
    }

    /// Returns whether the group of its data was ever looked up.
    pub(crate) fn is_seen(&self) -> bool {
        self.is_seen.load(Ordering::Relaxed)
    }

    /// Returns the number of the context that has the file.
    pub(crate) fn context(&self) -> usize {
        self.context.load(Ordering::Acquire)
    }

    /// Gives the file to another context, which has the `Attach` message by now. Later messages go
    /// to that context.
    pub(crate) fn set_context(&self, context: usize) {
        assert!(context < CONTEXTS, "messages for the file would reach no context: {context}");
        self.context.store(context, Ordering::Release);
    }

    /// Looks up the group of the file's blocks again, at the offset of the last write. Makes a
    /// system call, which may block. Returns whether the group has changed.
    pub(crate) fn look(&self, file: &OpenFile, volume: &Volume, offset: u64) -> bool {
        let Some(group) = group_of_data(file, volume, offset) else { return false };
        self.is_seen.store(true, Ordering::Relaxed);
        self.group.swap(group, Ordering::Relaxed) != group
    }

    /// Returns the context that the file belongs to, among `active`.
    pub(crate) fn place(&self, affinity: Affinity, active: usize, volume: &Volume) -> usize {
        assert!(active > 0, "no context is active");
        let key = match affinity {
            Affinity::Single => return 0,
            Affinity::Hash => self.own,
            Affinity::Directory => self.directory,
            Affinity::Group => match self.group.load(Ordering::Relaxed) {
                NO_GROUP => self.directory,
                // Groups are distributed in turn, so that neighbouring groups differ. Each file
                // system begins at another context.
                group => u64::from(group) + volume.number() as u64,
            },
        };
        (key % active.max(1) as u64) as usize
    }
}

fn group_of_data(file: &OpenFile, volume: &Volume, offset: u64) -> Option<u32> {
    let geometry = volume.geometry(file)?;
    geometry.group_of_byte(file.physical_at(offset).ok()??)
}

fn hashed(identity: Identity) -> u64 {
    // Equal in every run, so that a placement can be repeated.
    let mut hasher = DefaultHasher::new();
    identity.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn numbered(number: usize) -> Volume {
        Volume::new(number, Arc::default())
    }

    fn home(own: u64, directory: u64, group: Option<u32>) -> Placement {
        let group = AtomicU32::new(group.unwrap_or(NO_GROUP));
        Placement {
            context: AtomicUsize::new(0),
            own,
            directory,
            group,
            is_seen: AtomicBool::new(false),
        }
    }

    #[test]
    fn names_are_parsed_and_printed() {
        for name in Affinity::CHOICES.split(", ") {
            assert_eq!(Affinity::by_name(name).unwrap().name(), name);
        }
        assert!(
            Affinity::ALL.into_iter().enumerate().all(|(at, affinity)| affinity as usize == at)
        );
        assert_eq!(Affinity::by_name("groups"), None);
    }

    #[test]
    fn each_affinity_uses_its_own_key() {
        let volume = numbered(0);
        let file = home(5, 6, Some(3));
        let place = |affinity| file.place(affinity, 4, &volume);
        assert_eq!(place(Affinity::Single), 0);
        assert_eq!(place(Affinity::Hash), 1);
        assert_eq!(place(Affinity::Directory), 2);
        assert_eq!(place(Affinity::Group), 3);
        assert_eq!(
            home(5, 6, None).place(Affinity::Group, 4, &volume),
            2,
            "without groups by directory"
        );
        assert_eq!(home(5, 6, Some(0)).place(Affinity::Group, 4, &numbered(1)), 1);
    }

    #[test]
    fn a_place_is_always_an_active_context() {
        for active in 1..70 {
            for affinity in Affinity::ALL {
                let file = home(u64::MAX, u64::MAX - 1, Some(u32::MAX - 1));
                assert!(file.place(affinity, active, &numbered(7)) < active);
            }
        }
    }
}
