//! The work of a keeper: the files of a dead program that it may write, and its notes in the arena
//! when a file is written.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

use super::finish::Job;
use super::inherited::{INTERRUPTED, Received, headers, known_of, matches_record};
use super::plan::{Plan, plan};
use crate::platform::{Arena, Kind, Lock, OpenFile};

/// Work of a keeper.
#[derive(Debug)]
pub(crate) struct Work {
    /// Jobs and generations, by file number.
    pub(crate) jobs: BTreeMap<u32, (u16, Job)>,
    /// Files that do not match their records, or could not be examined.
    pub(crate) refused: Vec<Refused>,
}

/// A file with unwritten data that must not be written.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// Ranges of these bytes.
    pub(crate) ranges: Vec<Range<u64>>,
    pub(crate) error: io::Error,
}

impl Refused {
    fn new(path: PathBuf, plan: &Plan, error: io::Error) -> Self {
        Self { path, bytes: plan.bytes(), ranges: plan.ranges(), error }
    }
}

/// Returns the work for the files that a keeper holds.
pub(crate) fn work_of(arena: &Arena, kept: BTreeMap<u32, Received>) -> Work {
    let mut known = BTreeMap::new();
    let mut files = BTreeMap::new();
    for (number, Received { generation, found, file }) in kept {
        // `None` if no frame of it was ever published, or all of it is written and it was being
        // closed.
        if let Some(record) = arena.file(number).filter(|record| record.generation == generation) {
            let file = file.and_then(|file| match matches_record(&file, &record) {
                true => Ok(file),
                false => Err(io::Error::other("not the file of this record")),
            });
            known.insert(number, known_of(&record));
            files.insert(number, (generation, found, file, record.interrupted));
        }
    }
    let mut plans = plan(&known, headers(arena), |frame| arena.written_of(frame));
    let mut work = Work { jobs: BTreeMap::new(), refused: Vec::new() };
    for (number, (generation, path, file, is_interrupted)) in files {
        let plan = plans.remove(&number).expect("every known file has a plan");
        if is_interrupted {
            // Even without published data: some accepted bytes may not be published.
            let error = io::Error::other(INTERRUPTED);
            work.refused.push(Refused::new(path, &plan, error));
            continue;
        }
        match file.and_then(|file| if plan.is_empty() { Ok(file) } else { still_locked(file) }) {
            Ok(file) => {
                work.jobs.insert(number, (generation, Job::new(file, path, plan)));
            }
            Err(_) if plan.is_empty() => {}
            Err(error) => work.refused.push(Refused::new(path, &plan, error)),
        }
    }
    work
}

/// Returns a file to write, unless another program has locked it meanwhile. Its lock came with it.
/// If that was released, the present owner may have written newer data.
fn still_locked(file: OpenFile) -> io::Result<OpenFile> {
    // A block device cannot have another owner.
    if file.kind() == Kind::Regular && matches!(file.try_ofd_lock(), Ok(Lock::HeldElsewhere)) {
        return Err(io::Error::other(
            "another program has locked it and may have written newer data",
        ));
    }
    Ok(file)
}

/// Marks a finished file in the arena. An adopting program, or a saved copy of the arena, then has
/// no unwritten data of it.
pub(crate) fn note_done(arena: &Arena, number: u32, plan: &Plan) {
    assert!(
        plan.clean.iter().all(|(_, header)| header.file == number),
        "the plan has pages of another file"
    );
    plan.spent.iter().for_each(|frame| arena.retire(*frame));
    plan.clean.iter().for_each(|(frame, header)| arena.publish(*frame, *header));
    if let Some(length) = plan.cut {
        arena.set_file_size(number, length);
        arena.set_file_cut(number, None);
    }
}
