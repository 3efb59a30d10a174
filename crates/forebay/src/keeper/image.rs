//! An arena in a file: saved where something could not be written, and written from there later.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use forebay_uring::{
    Access, Arena, Create, File, FileRecord, How, Kind, LeaseWatch, Lock, Truncate,
};

use super::finish::{Done, Job, Rings, finish};
use super::process::{headers, is_meant, known_of};
use super::progress::Progress;
use super::recover::{Plan, plan};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::KEEPER_RECOVER_PATIENCE;

/// Whether something is done, or only said.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Run {
    /// Done.
    Real,
    /// Said.
    Dry,
}

/// A file of an arena that was saved.
#[derive(Debug)]
pub struct Recovered {
    /// Where it was when it was opened.
    pub path: PathBuf,
    /// Bytes that were not written when the arena was saved.
    pub bytes: u64,
    /// Whether they are now, or could be; or why not.
    pub result: Result<()>,
}

/// Saves what is not written to a file of its own in a directory; its path.
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

/// Writes what an arena holds that is not in its files, from a file it was saved to
/// ([`save_to`](crate::Keeper::save_to)), or from the memory of a program that is stopped
/// (`/proc/PID/fd/N`); or says what would be written. Blocks.
///
/// A file is written only where its path names the same file as when it was opened, nobody else has
/// it open, and nobody has changed it since. Everything is written to its end, and synced; done
/// twice, the second finds the files changed.
///
/// # Errors
/// `Open` where the image cannot be read; `InvalidInput` where it is no arena of this version, or
/// damaged. What becomes of each file is in the list.
pub fn recover(image: &Path, run: Run) -> Result<Vec<Recovered>> {
    let failed = |kind, what: &str| Error::new(kind, what).at_path(image);
    let file = fs::File::open(image).map_err(|error| {
        failed(ErrorKind::Open, "could not open the saved arena").because(error)
    })?;
    let arena = Arena::of_image(&file)
        .map_err(|error| failed(ErrorKind::InvalidInput, &error.to_string()))?;
    let records: BTreeMap<u32, FileRecord> = arena.files().collect();
    let known: HashMap<_, _> =
        records.iter().map(|(number, record)| (*number, known_of(record))).collect();
    let mut plans = plan(&known, headers(&arena), |frame| arena.written_of(frame));
    plans.retain(|_, plan| !plan.is_empty());
    let since = saved_at(image, &file);
    let watch = LeaseWatch::new(|_| {})
        .map_err(|error| Error::new(ErrorKind::Io, "no watch for leases").because(error))?;
    let mut recovered = Vec::new();
    let mut jobs = BTreeMap::new();
    for (number, plan) in plans {
        let record = &records[&number];
        let result = match run {
            Run::Dry => look(record, since),
            Run::Real => claim(record, since, &watch).map(|file| {
                jobs.insert(number, Job::new(file, record.path.clone(), plan.clone()));
            }),
        };
        if result.is_err() || run == Run::Dry {
            recovered.push(of(record, &plan, result));
        }
    }
    let done = finish(&arena, jobs, Rings::Gone, KEEPER_RECOVER_PATIENCE, &Progress::new());
    if done.values().any(|done| done.lost.is_some()) {
        // The next try finds changed what this one has written, and that is as it should be.
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

/// When it was saved. Of memory that is still somebody's nobody knows.
fn saved_at(image: &Path, file: &fs::File) -> Option<SystemTime> {
    if image.starts_with("/proc") {
        return None;
    }
    file.metadata().and_then(|metadata| metadata.modified()).ok()
}

/// Whether the path names what it named, as far as can be seen without opening it.
fn look(record: &FileRecord, since: Option<SystemTime>) -> Result<()> {
    let path = &record.path;
    let refuse = |what: &str| Err(Error::new(ErrorKind::NotPermitted, what).at_path(path));
    if path.as_os_str().is_empty() {
        return refuse("a file without a path: its was too long to be kept");
    }
    if !path.is_absolute() {
        return refuse("not a path from the root: from where is not known");
    }
    let identity = File::identity_of(path).map_err(|error| {
        Error::new(ErrorKind::Open, "could not look at the file").at_path(path).because(error)
    })?;
    if identity != record.identity {
        return refuse("another file is there now: nothing of it is written");
    }
    let changed = fs::metadata(path).and_then(|metadata| metadata.modified());
    if !record.device
        && let (Some(since), Ok(changed)) = (since, changed)
        && changed > since
    {
        return refuse("it was changed after the arena was saved: nothing of it is written");
    }
    Ok(())
}

/// Opens the file, if it may be written.
fn claim(record: &FileRecord, since: Option<SystemTime>, watch: &LeaseWatch) -> Result<File> {
    look(record, since)?;
    let path = &record.path;
    let error = |kind, what: &str| Error::new(kind, what).at_path(path);
    let how =
        How { access: Access::ReadWrite, create: Create::No, truncate: Truncate::Keep, mode: 0 };
    let opened = File::open(path, &how);
    let file =
        opened.map_err(|cause| error(ErrorKind::Open, "could not open").because(cause))?.file;
    if !is_meant(&file, record) {
        return Err(error(
            ErrorKind::NotPermitted,
            "another file is there now: nothing of it is written",
        ));
    }
    if file.kind() == Kind::Regular {
        if file.try_ofd_lock().is_ok_and(|lock| lock == Lock::HeldElsewhere) {
            return Err(error(ErrorKind::Busy, "another engine has the file"));
        }
        // Where there are no leases the lock alone counts.
        match file.try_lease(watch, u64::from(record.generation)) {
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {
                return Err(
                    error(ErrorKind::Busy, "another program has the file open").because(cause)
                );
            }
            _ => {}
        }
    }
    Ok(file)
}
