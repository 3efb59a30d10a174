use std::fs::OpenOptions;

use super::*;
use crate::programs::spec::Form;

const WAYS: [ProgramWay; 6] = [
    ProgramWay::FilesFsyncEach,
    ProgramWay::FilesFsyncThreads,
    ProgramWay::FilesRangeThenFsync,
    ProgramWay::FilesRingOfFsyncs,
    ProgramWay::FilesSyncfs,
    ProgramWay::FilesNoSync,
];

fn prepared(directory: &Path, operations: u64) -> Files {
    let load = ProgramLoad {
        probe: &PROBE,
        threads: 1,
        every: 1,
        warm: 0,
        rate: None,
        operations: Some(operations),
        beside: Beside::Nothing,
        file_mib: 0,
        memory_mib: 0,
        sizes: (4096, 65_536),
        form: Form::Usual,
    };
    let cell = Cell::new(PROBE.name(), ProgramWay::FilesNoSync.name(), &load);
    Files::prepare(&Cell { seed: 7, directory: directory.to_owned(), ..cell }, &load).unwrap()
}

#[test]
fn sizes_replay_and_end_within_a_page() {
    let directories = [0, 1].map(|_| tempfile::tempdir_in(".").unwrap());
    let [one, other] = directories.each_ref().map(|own| prepared(own.path(), 2000));
    assert_eq!(one.sizes, other.sizes);
    assert!(one.sizes.iter().all(|size| (4096..=65_536).contains(size) && size % 4096 != 0));
    assert!(one.sizes.iter().max() > Some(&60_000) && one.sizes.iter().min() < Some(&8192));
    assert_ne!(one.data(0)[..4096], one.data(1)[..4096]);
}

#[test]
fn few_descriptors_mean_more_windows() {
    for way in WAYS {
        let directory = tempfile::tempdir_in(".").unwrap();
        let files = Files { most_open: 3, ..prepared(directory.path(), 100) };
        files.publish(way, &Store::Std).unwrap();
        files.verify().unwrap();
    }
}

#[test]
fn a_file_that_is_missing_left_over_short_or_other_is_found() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let files = prepared(directory.path(), 20);
    files.publish(ProgramWay::FilesNoSync, &Store::Std).unwrap();
    files.verify().unwrap();
    let found = |expected: &str| {
        let refused = files.verify().unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    };
    fs::rename(files.path(17), files.temporary(17)).unwrap();
    found("0000017");
    fs::write(files.path(17), files.data(17)).unwrap();
    found("3 files, and 2 were published");
    fs::remove_file(files.temporary(17)).unwrap();
    let file = OpenOptions::new().write(true).open(files.path(5)).unwrap();
    file.set_len(files.sizes[5] as u64 - 1).unwrap();
    found("bytes, and");
    fs::write(files.path(5), files.data(5)).unwrap();
    files.verify().unwrap();
    let mut other = files.data(5).to_owned();
    other[99] ^= 1;
    fs::write(files.path(5), other).unwrap();
    found("wrong data at byte 99");
}
