//! Recovery after the death of a program: the content of its arena, the way of that data to its
//! files, and the parts that another engine can take over. Used by the keeper, by recovery from an
//! image, and by adoption.
//!
//! The keeper of an engine, as the engine sees it: a second process, or the store of the service
//! manager, that finishes writeback if this process dies.

pub(crate) mod finish;
pub(crate) mod inherited;
pub(crate) mod plan;
pub(crate) mod records;
mod runs;

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use self::finish::Job;
use self::inherited::{INTERRUPTED, Received, headers, known_of, matches_record};
use self::plan::{Plan, plan};
use self::records::{DeadLog, Records, is_marked};
use crate::core::error::Result;
use crate::platform::{Alive, Arena, FileRecord, Kind, Lock, OpenFile};

/// Holds off the keeper, if there is one: until this is dropped, it does not begin to write, even
/// if the process lives on.
#[derive(Debug)]
pub(crate) struct HeldOff(Option<Arc<Alive>>);

impl HeldOff {
    /// Returns `None` if the keeper has taken over.
    pub(crate) fn new(keeper: Option<&dyn Standby>) -> Option<Self> {
        match keeper {
            Some(keeper) => keeper.alive().map(|alive| Self(Some(alive))),
            None => Some(Self(None)),
        }
    }

    /// Returns the object that a ring has to hold for requests that may outlive the process.
    pub(crate) fn alive(&self) -> Option<&Alive> {
        self.0.as_deref()
    }
}

/// Calls of the engine to its keeper. They may block until the keeper answers, so the engine holds
/// no lock meanwhile.
pub(crate) trait Standby: Send + Sync + std::fmt::Debug {
    /// Returns the object that every ring of the engine has to hold.
    fn alive(&self) -> Option<Arc<Alive>>;

    /// Returns whether a keeper runs now.
    fn is_there(&self) -> bool;

    /// Confirms that the keeper is the only one that holds the data.
    fn confirm(&self) -> Result<()>;

    /// Hands over a file that was opened, and returns when the keeper holds it.
    fn add(&self, number: u32, generation: u16, file: &Arc<OpenFile>) -> Result<()>;

    /// Removes a file that is closed, and returns when the keeper no longer holds it.
    fn remove(&self, number: u32, generation: u16);

    /// Returns the state, for the program.
    fn state(&self) -> KeeperState;

    /// Ends the keeper, because everything is written.
    fn say_goodbye(&self);

    /// Leaves unwritten data to the keeper: this process does nothing more about it.
    fn leave_it(&self);
}

/// State of the keeper of an engine, as [`Engine::keeper`](crate::Engine::keeper) returns it.
///
/// ```no_run
/// # fn main() -> forebay::Result<()> {
/// use forebay::{Engine, Keeper, Options};
///
/// forebay::keeper::run_if_asked();
/// let engine = Engine::builder(Options::default()).survive(Keeper::this_program()).build()?;
/// let keeper = engine.keeper().expect("it has one");
/// println!("pid {:?}, {} files, {} restarts", keeper.process, keeper.files, keeper.restarts);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct KeeperState {
    /// Process id of the keeper, or `None` while no keeper runs.
    pub process: Option<u32>,
    /// Number of open files that the keeper process holds. While no keeper runs, the number of
    /// files that the next one will hold.
    pub files: usize,
    /// Number of times that a lost keeper was replaced.
    pub restarts: u64,
}

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

/// The intent log of a dead program: none, or read, or the reason why it cannot be read.
pub(crate) type LogFound = Option<std::result::Result<Arc<DeadLog>, String>>;

/// Returns the work for the files that a keeper holds.
pub(crate) fn work_of(arena: &Arena, kept: BTreeMap<u32, Received>, log: &LogFound) -> Work {
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
            files.insert(number, (generation, found, file, record));
        }
    }
    let mut plans = plan(&known, headers(arena), |frame| arena.written_of(frame));
    let mut work = Work { jobs: BTreeMap::new(), refused: Vec::new() };
    for (number, (generation, path, file, record)) in files {
        let plan = plans.remove(&number).expect("every known file has a plan");
        if record.interrupted {
            // Even without published data: some accepted bytes may not be published.
            let error = io::Error::other(INTERRUPTED);
            work.refused.push(Refused::new(path, &plan, error));
            continue;
        }
        let looked = file.and_then(|file| {
            let records = records_of(log, &file, &record);
            let has_records = records.as_ref().is_ok_and(Option::is_some);
            let is_idle = plan.is_empty() && !has_records;
            Ok((if is_idle { file } else { still_locked(file)? }, records))
        });
        match looked {
            Ok((file, Ok(records))) => {
                let job = Job::new(file, path, plan).and_records(records);
                work.jobs.insert(number, (generation, job));
            }
            // Its records may be older than the file.
            Ok((_, Err(error))) => work.refused.push(Refused::new(path, &plan, error)),
            Err(_) if plan.is_empty() => {}
            Err(error) => work.refused.push(Refused::new(path, &plan, error)),
        }
    }
    work
}

/// Returns the records of a file.
fn records_of(log: &LogFound, file: &OpenFile, record: &FileRecord) -> io::Result<Option<Records>> {
    match log {
        None => Ok(None),
        Some(Ok(log)) => log.of(file, record),
        Some(Err(reason)) if is_marked(file) => {
            Err(io::Error::other(format!("its intent log cannot be read: {reason}")))
        }
        Some(Err(_)) => Ok(None),
    }
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
