//! A file goes to the context of the allocation group that its blocks are in, on XFS, which reports
//! groups. That group may differ from the group of the inode, and it may change.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use crate::support::mount::{FileSystem, Mount};
use crate::support::{MIB, eventually, how, knobs, pattern};
use forebay::{Engine, File, Options, inside};
use forebay_uring::{Access, Create, How, Truncate};

const CONTEXTS: usize = 4;

fn engine() -> Engine {
    Engine::start(knobs::named(
        Options { cache_bytes: Some(32 << 20), ..Options::default() },
        [("contexts", &CONTEXTS.to_string()), ("affinity", "group")],
    ))
    .unwrap()
}

fn open(path: &Path, create: Create) -> forebay_uring::OpenFile {
    let access = if create == Create::No { Access::Read } else { Access::ReadWrite };
    let how = How { access, create, truncate: Truncate::Keep, mode: 0o600 };
    forebay_uring::OpenFile::open(path, &how).unwrap().file
}

/// The allocation group that the byte at `offset` lies in.
fn group_at(path: &Path, offset: u64) -> u32 {
    let file = open(path, Create::No);
    let physical = file.physical_at(offset).unwrap().expect("it is written");
    file.geometry().expect("XFS tells").group_of_byte(physical).unwrap()
}

/// Writes so much at the end, and has it on the disk.
fn extend(file: &File, bytes: u64) {
    for at in 0..bytes / MIB {
        file.write_at(&pattern(at, MIB as usize), file.len().unwrap()).unwrap();
    }
    file.sync_data().unwrap();
}

/// Groups have the contexts in turn, from the first one on: the engine has one file system.
fn is_context_of(file: &File, group: u32) -> bool {
    eventually(Duration::from_secs(10), || inside::context(file) == group as usize % CONTEXTS)
}

#[test]
fn files_of_one_group_have_one_context_and_groups_have_several() {
    let Some(mount) = Mount::new("files_of_one_group", FileSystem::Xfs, 2048 * MIB) else { return };
    let engine = engine();
    let mut contexts: BTreeMap<u32, BTreeSet<usize>> = BTreeMap::new();
    for directory in 0..8 {
        let directory = mount.path().join(format!("directory-{directory}"));
        std::fs::create_dir(&directory).unwrap();
        for name in ["one", "other"] {
            let path = directory.join(name);
            let file = engine.open(&path, &how::create_new()).unwrap();
            extend(&file, 2 * MIB);
            let group = group_at(&path, 0);
            assert!(
                is_context_of(&file, group),
                "group {group}, context {}",
                inside::context(&file)
            );
            contexts.entry(group).or_default().insert(inside::context(&file));
            file.close().unwrap();
        }
    }
    println!("{contexts:?}");
    assert!(contexts.values().all(|contexts| contexts.len() == 1), "{contexts:?}");
    let all: BTreeSet<usize> = contexts.values().flatten().copied().collect();
    assert!(all.len() > 1, "directories lie in several groups: {contexts:?}");
}

#[test]
fn with_inode32_files_go_by_where_their_data_is() {
    let Some(mount) = Mount::new("with_inode32", FileSystem::XfsInode32, 8 << 40) else { return };
    let engine = engine();
    let mut groups = BTreeSet::new();
    for number in 0..8 {
        let path = mount.path().join(format!("file-{number}"));
        let file = engine.open(&path, &how::create_new()).unwrap();
        extend(&file, 2 * MIB);
        let group = group_at(&path, 0);
        assert!(is_context_of(&file, group), "group {group}, context {}", inside::context(&file));
        groups.insert(group);
        file.close().unwrap();
        // Opened again it is looked at where its data is, before anything is written.
        let file = engine.open(&path, &how::write()).unwrap();
        assert_eq!(inside::context(&file), group as usize % CONTEXTS);
        file.close().unwrap();
    }
    println!("{groups:?}");
    assert!(
        groups.iter().any(|group| *group > 1),
        "inodes are in the first two groups, data in others: {groups:?}"
    );
}

#[test]
fn a_file_whose_group_is_full_goes_on_with_another_context() {
    let Some(mount) = Mount::new("a_file_whose_group_is_full", FileSystem::XfsOfFour, 2048 * MIB)
    else {
        return;
    };
    let directory = mount.path().join("directory");
    std::fs::create_dir(&directory).unwrap();
    let engine = engine();
    let path = directory.join("file");
    let file = engine.open(&path, &how::create_new()).unwrap();
    extend(&file, 2 * MIB);
    let first = group_at(&path, 0);
    assert!(is_context_of(&file, first));
    // In the same directory, so in the same group as long as there is room.
    open(&directory.join("filler"), Create::New).allocate(0, 400 * MIB).unwrap();
    while group_at(&path, file.len().unwrap() - 1) == first {
        assert!(file.len().unwrap() < 512 * MIB, "a group has no more");
        extend(&file, 32 * MIB);
    }
    // It is looked at every 64 MiB.
    extend(&file, 96 * MIB);
    let group = group_at(&path, file.len().unwrap() - 1);
    assert_ne!(group, first);
    assert!(is_context_of(&file, group), "group {group}, context {}", inside::context(&file));
    assert!(engine.stats().handovers > 0);
    file.close().unwrap();
}

#[test]
fn without_groups_files_go_by_their_directory() {
    let Some(mount) = Mount::new("without_groups", FileSystem::Ext4, 256 * MIB) else { return };
    let engine = engine();
    let mut contexts = BTreeSet::new();
    for directory in 0..12 {
        let directory = mount.path().join(format!("directory-{directory}"));
        std::fs::create_dir(&directory).unwrap();
        let open = |name: &str| engine.open(directory.join(name), &how::create_new()).unwrap();
        let [one, other] = ["one", "other"].map(open);
        assert_eq!(inside::context(&one), inside::context(&other));
        contexts.insert(inside::context(&one));
    }
    assert!(contexts.len() > 1, "{contexts:?}");
}
