//! Allocation groups and blocks: how much can be allocated at once.

use forebay_uring::Geometry;

use super::finding::{Finding, degraded, full, quoted, unknown};
use crate::manifest::Storage;
use crate::report::bytes;

/// Size of a cache page.
const PAGE: u64 = 4096;

/// An inode's number of 32 bits is below this.
const SHORT_NUMBERS: u64 = 1 << 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Groups {
    many: u32,
    /// Of each but the last.
    bytes: u64,
    /// Inodes' numbers may need more than 32 bits.
    pub(super) has_long_numbers: bool,
}

impl From<Geometry> for Groups {
    fn from(geometry: Geometry) -> Self {
        let has_long_numbers = geometry.group_of_inode(SHORT_NUMBERS).is_some();
        Self { many: geometry.groups, bytes: geometry.group_bytes, has_long_numbers }
    }
}

pub(super) fn findings(storage: &Storage, groups: Option<Groups>, processors: u32) -> Vec<Finding> {
    vec![blocks(storage), judged(storage, groups, processors)]
}

fn blocks(storage: &Storage) -> Finding {
    let Storage { block_bytes, total_bytes, free_bytes, .. } = *storage;
    if total_bytes == 0 {
        return unknown("geometry", "the file system reports no size")
            .means("no conclusion is possible");
    }
    let share = free_bytes as f64 / total_bytes as f64 * 100.0;
    let found = format!(
        "{} in blocks of {}, {} ({share:.0} %) free",
        bytes(total_bytes as f64),
        bytes(block_bytes as f64),
        bytes(free_bytes as f64)
    );
    if block_bytes > PAGE {
        return degraded("geometry", found)
            .means("a cache page is smaller than a block: a single page is read and written as a block")
            .remedy("make the file system with blocks of 4 KiB");
    }
    full("geometry", found).means("a cache page is a whole number of blocks")
}

fn judged(storage: &Storage, groups: Option<Groups>, processors: u32) -> Finding {
    let Some(Groups { many: groups, bytes: group_bytes, .. }) = groups else {
        let found = format!("{} reports none", if_named(&storage.file_system));
        return degraded("allocation groups", found)
            .means("several contexts share files by directory, not by allocation group")
            .remedy("with several contexts, spread files over directories, or use XFS");
    };
    let found = format!("{groups} of {}", bytes(group_bytes as f64));
    if groups < processors {
        let many = processors.next_power_of_two().max(4);
        return degraded("allocation groups", found)
            .means(format!(
                "at most {groups} files allocate at the same time, on {processors} processors"
            ))
            .root(
                "make a new file system with more groups (this erases all data)",
                format!("mkfs.xfs -f -d agcount={many} {}", quoted(&storage.device)),
            );
    }
    full("allocation groups", found)
        .means("each processor can allocate in a group of its own; contexts share files by group")
}

fn if_named(name: &str) -> &str {
    if name.is_empty() { "the file system" } else { name }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::finding::Level;
    use super::*;

    pub(crate) fn groups(many: u32, has_long_numbers: bool) -> Groups {
        Groups { many, bytes: 1 << 30, has_long_numbers }
    }

    fn storage() -> Storage {
        Storage {
            file_system: "xfs".into(),
            device: "/dev/sda".into(),
            block_bytes: 4096,
            total_bytes: 100 << 30,
            free_bytes: 25 << 30,
            ..Storage::default()
        }
    }

    #[test]
    fn too_few_groups_are_told_with_what_makes_more() {
        let of = |groups, processors| judged(&storage(), groups, processors);
        assert_eq!(of(Some(groups(4, false)), 4).level, Level::Full);
        let few = of(Some(groups(4, false)), 12);
        assert_eq!((few.level, few.found.as_str()), (Level::Degraded, "4 of 1.0 GiB"));
        assert_eq!(few.remedy.unwrap().command.unwrap().line, "mkfs.xfs -f -d agcount=16 /dev/sda");
        let none = of(None, 4);
        assert_eq!((none.level, none.found.as_str()), (Level::Degraded, "xfs reports none"));
    }

    #[test]
    fn sizes_are_told() {
        let told = blocks(&storage());
        let expected = "100 GiB in blocks of 4 KiB, 25 GiB (25 %) free";
        assert_eq!((told.level, told.found.as_str()), (Level::Full, expected));
        assert_eq!(blocks(&Storage { block_bytes: 65_536, ..storage() }).level, Level::Degraded);
        assert_eq!(blocks(&Storage { total_bytes: 0, ..storage() }).level, Level::NotKnown);
    }
}
