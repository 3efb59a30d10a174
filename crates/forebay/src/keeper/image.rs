//! Saved data of a keeper: written to a file if it could not be written where it belongs, and
//! recovered from there later.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use forebay_log::{Mark, Replay};
use forebay_uring::{
    Access, Arena, Create, FileRecord, How, Kind, LeaseWatch, Lock, OpenFile, Truncate,
};

use super::devices::{Progress, finish};
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::intent_log::file::LogFile;
use crate::core::intent_log::marks::{Marked, mark_of};
use crate::core::intent_log::recover::{self as intent_log, Ask};
use crate::core::limits::KEEPER_RECOVER_PATIENCE;
use crate::core::recovery::finish::{Done, Job, Rings, places};
use crate::core::recovery::inherited::{INTERRUPTED, headers, known_of, matches_record};
use crate::core::recovery::plan::{Plan, plan};

/// Whether [`recover`] writes, or only reports what it would write.
///
/// ```
/// use std::path::Path;
/// use forebay::ErrorKind;
/// use forebay::keeper::image::{Run, recover};
///
/// match recover(Path::new("no/such.image"), Run::Dry) {
///     Ok(files) => println!("{} files have unwritten data", files.len()),
///     Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Run {
    /// Writes to the files.
    Real,
    /// Writes nothing and reports what would be written.
    Dry,
}

/// Result of the recovery of one file, as [`recover`] returns it.
///
/// ```no_run
/// # fn main() -> forebay::Result<()> {
/// use std::path::Path;
/// use forebay::keeper::image::{Run, recover};
///
/// for file in recover(Path::new("saved.image"), Run::Real)? {
///     if let Err(error) = &file.result {
///         eprintln!("{} bytes not recovered: {error}", file.bytes);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Recovered {
    /// Path of the file when it was opened.
    pub path: PathBuf,
    /// Bytes that were unwritten when the program died.
    pub bytes: u64,
    /// `Ok` if the bytes are written now (or can be, for [`Run::Dry`]), else the reason why not.
    pub result: Result<()>,
}

/// Saves unwritten data to a new file in a directory. Returns its path.
pub(crate) fn save(arena: &Arena, directory: &Path, process: u32) -> io::Result<PathBuf> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let path = directory.join(format!("forebay-{process}-{}.image", now.as_millis()));
    let file =
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    match arena.save_to(&file) {
        Ok(()) => Ok(path),
        Err(error) => {
            let _ = fs::remove_file(&path);
            Err(error)
        }
    }
}

/// Writes saved data to the files it belongs to, and syncs them. Blocks.
///
/// `image` is a file that a keeper saved ([`Keeper::save_to`](crate::Keeper::save_to)), or the
/// memory of a stopped program (`/proc/PID/fd/N`). The intent log of a file is recovered first. A
/// file is written only if its path still names
/// the same file, no other program has it open, and it has not been changed since. So a second run
/// writes nothing more. A file is not written if the program panicked while it changed its state:
/// then its data may be half changed, and stays in the image. Returns one result for each file.
///
/// # Errors
/// `NotFound`, `PermissionDenied` or `Open` if the image cannot be read; `InvalidInput` if it is
/// damaged or of another version. The errors of single files are in the list.
pub fn recover(image: &Path, run: Run) -> Result<Vec<Recovered>> {
    let failed = |kind, what: &str| Error::new(kind, what).at_path(image);
    let file = fs::File::open(image).map_err(|error| {
        failed(ErrorKind::at_open(&error), "could not open the image").because(error)
    })?;
    let arena = Arena::of_image(&file)
        .map_err(|error| failed(ErrorKind::InvalidInput, &error.to_string()))?;
    let records: BTreeMap<u32, FileRecord> = arena.files().collect();
    let known: BTreeMap<_, _> =
        records.iter().map(|(number, record)| (*number, known_of(record))).collect();
    let mut plans = plan(&known, headers(&arena), |frame| arena.written_of(frame));
    plans.retain(|number, plan| !plan.is_empty() || records[number].interrupted);
    let since = saved_at(image, &file);
    let watch = LeaseWatch::new(|_| {})
        .map_err(|error| Error::new(ErrorKind::Io, "could not watch leases").because(error))?;
    let mut recovered = Vec::new();
    let mut jobs = BTreeMap::new();
    // The recovery of an intent log changes files, so all are looked at before.
    let looked: Vec<_> = plans
        .iter_mut()
        .map(|(number, plan)| {
            let record = &records[number];
            look(record, since)?;
            newer_in_log(record)?.iter().for_each(|range| plan.leave_out(range));
            Ok(())
        })
        .collect();
    for ((number, plan), looked) in plans.into_iter().zip(looked) {
        let record = &records[&number];
        let result = match run {
            _ if record.interrupted => Err(interrupted(record, &plan)),
            Run::Dry => looked,
            Run::Real => looked.and_then(|()| claim(record, &watch)).map(|file| {
                jobs.insert(number, Job::new(file, record.path.clone(), plan.clone()));
            }),
        };
        if result.is_err() || run == Run::Dry {
            recovered.push(of(record, &plan, result));
        }
    }
    let done = finish(&arena, jobs, Rings::Gone, KEEPER_RECOVER_PATIENCE, &Progress::new());
    if done.values().any(|done| done.lost.is_some()) {
        // Otherwise the next try would see the files written by this one as changed by others.
        let _ = file.set_modified(SystemTime::now());
    }
    for (number, Done { plan, lost, .. }) in done {
        let result = lost.map_or(Ok(()), |lost| {
            Err(Error::new(ErrorKind::at_device(&lost.error), lost.to_string())
                .at_path(&records[&number].path))
        });
        recovered.push(of(&records[&number], &plan, result));
    }
    Ok(recovered)
}

fn of(record: &FileRecord, plan: &Plan, result: Result<()>) -> Recovered {
    Recovered { path: record.path.clone(), bytes: plan.bytes(), result }
}

/// Returns the error for a file whose change was interrupted by a panic. The image keeps its data.
fn interrupted(record: &FileRecord, plan: &Plan) -> Error {
    let cause = io::Error::other(format!("{INTERRUPTED}{}", places(&plan.ranges())));
    Error::new(ErrorKind::Poisoned, "not written; the image keeps the data")
        .at_path(&record.path)
        .because(cause)
        .remedy("check the file, and write these ranges anew or restore it from a copy")
}

/// Returns when the image was saved; unknown for the memory of a process.
fn saved_at(image: &Path, file: &fs::File) -> Option<SystemTime> {
    if image.starts_with("/proc") {
        return None;
    }
    file.metadata().and_then(|metadata| metadata.modified()).ok()
}

/// Checks, without opening it, that the path still names the same file.
fn look(record: &FileRecord, since: Option<SystemTime>) -> Result<()> {
    let path = &record.path;
    let refuse = |what: &str| Err(Error::new(ErrorKind::NotPermitted, what).at_path(path));
    if path.as_os_str().is_empty() {
        return refuse("not written: the path of the file was too long to be saved");
    }
    if !path.is_absolute() {
        return refuse("not written: the saved path of the file is relative");
    }
    let identity = OpenFile::identity_of(path)
        .map_err(|error| Error::at_open("could not examine the file", path, error))?;
    if identity != record.identity {
        return refuse("not written: the path names another file now");
    }
    let changed = fs::metadata(path).and_then(|metadata| metadata.modified());
    if !record.device
        && let (Some(since), Ok(changed)) = (since, changed)
        && changed > since
    {
        return refuse("not written: the file was changed after the image was saved");
    }
    Ok(())
}

/// Returns the log that the mark of a file names, its directory and the mark.
fn log_of(path: &Path) -> Result<Option<(LogFile, &Path, Mark)>> {
    let how = How { access: Access::Read, create: Create::No, truncate: Truncate::Keep, mode: 0 };
    let Ok(Marked::By(mark)) = OpenFile::open(path, &how).and_then(|opened| mark_of(&opened.file))
    else {
        return Ok(None);
    };
    for directory in path.ancestors().skip(1) {
        let log = LogFile::open(directory, Ask::default().patience)?;
        if let Some(log) = log.filter(|log| log.id() == mark.log) {
            return Ok(Some((log, directory, mark)));
        }
    }
    Ok(None)
}

/// Returns the ranges of an atomic write that were not in memory yet: a recovery of the log puts
/// them into the file, and they are newer than the image.
fn newer_in_log(record: &FileRecord) -> Result<Vec<Range<u64>>> {
    let Some(sequence) = record.unpublished else { return Ok(Vec::new()) };
    let Some((mut log, _, mark)) = log_of(&record.path)? else { return Ok(Vec::new()) };
    let replay = Replay::new(&log.scan()?.batches);
    let plan = replay.files.iter().find(|plan| plan.file.is_same(&mark.file));
    let copies = plan.map_or_else(Vec::new, |plan| plan.newest_from(sequence));
    Ok(copies.into_iter().map(|copy| copy.offset..copy.end()).collect())
}

/// Puts the records of the intent log of a file into its files: they are older than the image, and
/// a later recovery would put them over its data.
fn recover_log(path: &Path) -> Result<()> {
    let Some((log, directory, _)) = log_of(path)? else { return Ok(()) };
    drop(log);
    let recovery = intent_log::recover(directory, &Ask::default())?;
    if recovery.is_empty {
        return Ok(());
    }
    let what = "not written: records of its intent log are not in their files";
    let remedy = format!("forebay recover {}, then again", directory.display());
    Err(Error::new(ErrorKind::Open, what).at_path(path).remedy(remedy))
}

/// Opens a file if it may be written.
fn claim(record: &FileRecord, watch: &LeaseWatch) -> Result<OpenFile> {
    let path = &record.path;
    recover_log(path)?;
    let error = |kind, what: &str| Error::new(kind, what).at_path(path);
    let how =
        How { access: Access::ReadWrite, create: Create::No, truncate: Truncate::Keep, mode: 0 };
    let opened = OpenFile::open(path, &how);
    let file = opened
        .map_err(|cause| {
            let opened = error(ErrorKind::at_open(&cause), "not written: could not open the file");
            let opened = match ErrorKind::at_open(&cause) {
                ErrorKind::PermissionDenied => opened
                    .remedy("make it readable and writable, without attributes of chattr; repeat"),
                _ => opened,
            };
            opened.because(cause)
        })?
        .file;
    if !matches_record(&file, record) {
        return Err(error(ErrorKind::NotPermitted, "not written: the path names another file now"));
    }
    if file.kind() == Kind::Regular {
        if file.try_ofd_lock().is_ok_and(|lock| lock == Lock::HeldElsewhere) {
            return Err(error(ErrorKind::Busy, "not written: another engine has the file open"));
        }
        // Without leases only the lock counts.
        match file.try_lease(watch, u64::from(record.generation)) {
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {
                return Err(error(
                    ErrorKind::Busy,
                    "not written: another program has the file open",
                )
                .because(cause));
            }
            _ => {}
        }
    }
    Ok(file)
}
