//! The directory a comparison works in. Nothing is left behind.
//!
//! A [`Scratch`] is a new directory `forebay-compare-XXXXXX` below the one the user named. It goes
//! when the value is dropped: at the end, on an error, in a panic, and after a signal ([`Stop`]).
//!
//! SIGKILL cannot be caught. So the directory is locked (`flock` on the directory itself, held by
//! this process alone) and recorded in the user's state directory. A recorded directory that nobody
//! holds the lock of is a leftover; [`leftovers`] finds it and [`Leftover::remove`] removes it,
//! holding its lock. A directory is not touched if it only has the name, if it belongs to another
//! user, or if it holds anything that this program does not put there.
//!
//! Where a comparison has a file system of its own ([`FileSystem`]), the cells' directories are on
//! that one; the image below it and shared files stay in the directory itself.

mod record;

use std::cell::RefCell;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, IFlags, flock, ioctl_getflags, ioctl_setflags};
use rustix::io::Errno;

use crate::file_system::{FileSystem, FileSystemError, Made, Spec};
use crate::manifest::Storage;
pub use crate::stop::Stop;
use crate::terminal::warn;
use crate::tuning;
use record::{OWNER_FILE, Owner, Records};

/// How the names of our directories begin.
pub const PREFIX: &str = "forebay-compare-";

/// Parts of our directories: of the cells, of all cells together, of cells that stay until the end,
/// and of the cells' own file system.
const CELLS: &str = "cells";
const SHARED: &str = "shared";
const KEPT: &str = "kept";
const FILE_SYSTEM: &str = "file-system";

/// All that is in a directory of ours.
const ENTRIES: [&str; 6] = [OWNER_FILE, CELLS, SHARED, KEPT, FILE_SYSTEM, tuning::JOURNAL_FILE];

/// A directory of our own, removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// Where the cells' directories are, if it has one of its own.
    file_system: RefCell<Option<FileSystem>>,
    /// The directory, open and locked; closing it gives the lock back, so it is the last thing to
    /// go.
    directory: File,
    /// Its record in the user's state directory.
    record: Option<PathBuf>,
    /// The one it is in, locked: two comparisons at once would measure each other.
    _parent: File,
}

impl Scratch {
    /// Makes one below `parent`, which has one at a time.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] while another comparison works below `parent`, and the
    /// system's message.
    pub fn new_in(parent: &Path) -> io::Result<Self> {
        Self::recorded_in(parent, &Records::of_user())
    }

    fn recorded_in(parent: &Path, records: &Records) -> io::Result<Self> {
        let above = File::open(parent)?;
        if flock(&above, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let path = tempfile::Builder::new().prefix(PREFIX).rand_bytes(6).tempdir_in(parent)?.keep();
        // From here on every failure removes the directory.
        let directory = File::open(&path).inspect_err(|_| drop(fs::remove_dir(&path)))?;
        let file_system = RefCell::new(None);
        let mut scratch = Self { path, file_system, directory, record: None, _parent: above };
        // A file system without locks (some network ones) loses only the finding of leftovers.
        let locked = flock(&scratch.directory, FlockOperation::NonBlockingLockExclusive).is_ok();
        fs::create_dir(scratch.path.join(CELLS))?;
        if locked {
            let entered = records.enter(&scratch.path, &scratch.directory);
            let unrecorded = |error| {
                let what = "could not be recorded in the state directory";
                let remedy = "if this run is killed, remove it by hand";
                warn(&format!("{} {what}: {error} ({remedy})", scratch.path.display()));
            };
            scratch.record = entered.map_err(unrecorded).ok();
        }
        Ok(scratch)
    }

    /// Makes a file system for the cells and returns its storage. Blocks until it is ready.
    pub fn make_file_system(
        &self,
        spec: &Spec,
        stop: &Stop,
    ) -> Result<(Storage, Made), FileSystemError> {
        let directory = self.path.join(FILE_SYSTEM);
        fs::create_dir(&directory)
            .map_err(|error| FileSystemError::failed(directory.display(), &error))?;
        let file_system = FileSystem::new_in(&directory, spec, stop)?;
        let reported = (file_system.storage.clone(), file_system.made.clone());
        *self.file_system.borrow_mut() = Some(file_system);
        Ok(reported)
    }

    /// Describes how the cells' own file system was made, if they have one.
    pub fn made(&self) -> Option<Made> {
        self.file_system.borrow().as_ref().map(|file_system| file_system.made.clone())
    }

    /// Returns whether the cells' own file system is in memory.
    pub fn is_in_memory(&self) -> bool {
        self.file_system.borrow().as_ref().is_some_and(FileSystem::is_in_memory)
    }

    /// Returns the device of the cells' own file system, with nothing mounted on it until the next
    /// cell's directory is requested. None without such a file system.
    pub fn bare_device(&self) -> Option<io::Result<PathBuf>> {
        let mut file_system = self.file_system.borrow_mut();
        Some(file_system.as_mut()?.bare_device().map(Path::to_owned))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the open directory, for `syncfs`.
    pub fn directory(&self) -> &File {
        &self.directory
    }

    /// Makes a new, empty directory for a cell. There is one at a time: the one before is removed.
    /// It is on the cells' own file system, which may have to be made anew for it.
    pub fn cell_directory(&self, name: &str) -> io::Result<PathBuf> {
        self.clear()?;
        match self.file_system.borrow_mut().as_mut() {
            Some(file_system) => new_below(&file_system.renew()?.join(CELLS), name),
            None => new_below(&self.path.join(CELLS), name),
        }
    }

    /// Makes one for a cell that works on a device alone: beside the cells' own file system, if
    /// they have one.
    pub fn directory_beside(&self, name: &str) -> io::Result<PathBuf> {
        self.clear()?;
        new_below(&self.path.join(CELLS), name)
    }

    /// Makes a new, empty directory for a cell whose files stay until the end. It has a random name
    /// and a parent with the top directory flag, so that ext4 puts each in another block group. On
    /// a file system of the cells' own it is an ordinary one.
    pub fn kept_directory(&self, name: &str) -> io::Result<PathBuf> {
        if self.file_system.borrow().is_some() {
            return self.cell_directory(name);
        }
        self.clear()?;
        let kept = self.path.join(KEPT);
        if !kept.exists() {
            fs::create_dir(&kept)?;
            let directory = File::open(&kept)?;
            // Only ext4 has this flag.
            let _ = ioctl_getflags(&directory)
                .and_then(|flags| ioctl_setflags(&directory, flags | IFlags::TOPDIR));
        }
        Ok(tempfile::Builder::new().prefix(name).rand_bytes(8).tempdir_in(kept)?.keep())
    }

    /// Returns the directory that all cells share, and makes it the first time. It stays until the
    /// end. It is on the cells' own file system if that is kept.
    pub fn shared_directory(&self) -> io::Result<PathBuf> {
        let file_system = self.file_system.borrow();
        let kept = file_system.as_ref().and_then(FileSystem::kept_at);
        let path = kept.unwrap_or(&self.path).join(SHARED);
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(path),
        }
    }

    /// Removes what cells have left.
    pub fn clear(&self) -> io::Result<()> {
        if let Some(file_system) = self.file_system.borrow_mut().as_mut() {
            file_system.rest(Path::new(CELLS))?;
        }
        for entry in fs::read_dir(self.path.join(CELLS))? {
            fs::remove_dir_all(entry?.path())?;
        }
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A mount point cannot be removed.
        *self.file_system.get_mut() = None;
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                warn(&format!("{} could not be removed: {error} (rm -r it)", self.path.display()));
            }
            _ => remove_record(self.record.as_deref()),
        }
    }
}

/// Makes a directory of a cell below the one that is cleared after it.
fn new_below(cells: &Path, name: &str) -> io::Result<PathBuf> {
    assert!(!name.contains('/'), "{name}: the directory of a cell is removed with all in it");
    fs::create_dir_all(cells)?;
    let path = cells.join(name);
    fs::create_dir(&path)?;
    Ok(path)
}

/// A directory that a killed run has left.
#[derive(Debug)]
pub struct Leftover {
    pub path: PathBuf,
    /// The process that made it.
    pub owner: Option<u32>,
    record: PathBuf,
    /// Its lock is held as long as this is: nobody else removes it, and it cannot belong to a
    /// running process.
    _directory: File,
}

impl Leftover {
    pub fn remove(self) -> io::Result<()> {
        fs::remove_dir_all(&self.path)?;
        remove_record(Some(&self.record));
        Ok(())
    }
}

/// Removes a record. One that cannot be removed does no harm: the directory with its token is
/// already removed.
fn remove_record(record: Option<&Path>) {
    let _ = record.map(fs::remove_file);
}

/// Returns the leftovers of killed runs below `parent`. Unreadable directories are not ours.
pub fn leftovers(parent: &Path) -> Vec<Leftover> {
    recorded_leftovers(parent, &Records::of_user())
}

fn recorded_leftovers(parent: &Path, records: &Records) -> Vec<Leftover> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().as_bytes().starts_with(PREFIX.as_bytes()));
    named.filter_map(|entry| abandoned(&entry.path(), records)).collect()
}

/// Returns the directory if it is one of ours that no process holds.
fn abandoned(path: &Path, records: &Records) -> Option<Leftover> {
    let flags = libc::O_NOFOLLOW | libc::O_DIRECTORY;
    let directory = fs::OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    if !is_ours(&directory.metadata().ok()?) {
        return None;
    }
    flock(&directory, FlockOperation::NonBlockingLockExclusive).ok()?;
    // Looked for under the lock: a run just starting writes it only once it holds the lock.
    let owner = Owner::of(&directory)?;
    let record = records.find(path, &directory, &owner)?;
    let is_known = |entry: fs::DirEntry| {
        ENTRIES.iter().any(|known| entry.file_name() == *known)
            && entry.metadata().is_ok_and(|data| is_ours(&data) && !data.is_symlink())
    };
    let has_only_ours = fs::read_dir(path).ok()?.all(|entry| entry.is_ok_and(is_known));
    let owner = owner.process;
    has_only_ours.then(|| Leftover { path: path.to_owned(), owner, record, _directory: directory })
}

fn is_ours(data: &fs::Metadata) -> bool {
    data.uid() == rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn entries(path: &Path) -> usize {
        fs::read_dir(path).unwrap().count()
    }

    #[test]
    fn it_goes_with_all_it_holds() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::new_in(parent.path()).unwrap();
        let cell = scratch.cell_directory("one").unwrap();
        fs::write(cell.join("data"), [0; 9000]).unwrap();
        let cell = scratch.cell_directory("two").unwrap();
        assert_eq!(entries(cell.parent().unwrap()), 1, "the cell before is gone");
        let shared = scratch.shared_directory().unwrap();
        fs::write(shared.join("data"), "x").unwrap();
        scratch.clear().unwrap();
        assert!(scratch.shared_directory().unwrap().join("data").exists(), "what is shared stays");
        assert!(scratch.path().file_name().unwrap().to_str().unwrap().starts_with(PREFIX));
        drop(scratch);
        assert_eq!(entries(parent.path()), 0);
    }

    #[test]
    fn kept_directories_stay_until_the_end() {
        let parent = tempfile::tempdir_in(".").unwrap();
        let scratch = Scratch::new_in(parent.path()).unwrap();
        let kept = [0, 1].map(|_| scratch.kept_directory("put").unwrap());
        fs::write(kept[0].join("data"), "x").unwrap();
        scratch.cell_directory("other").unwrap();
        scratch.clear().unwrap();
        assert!(kept[0].join("data").exists() && kept[1].exists(), "{kept:?}");
        let above = File::open(scratch.path().join(KEPT)).unwrap();
        if Storage::of(parent.path()).file_system == "ext4" {
            assert!(ioctl_getflags(&above).unwrap().contains(IFlags::TOPDIR));
        }
        drop(scratch);
        assert_eq!(entries(parent.path()), 0);
    }

    #[test]
    fn there_is_one_at_a_time() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::new_in(parent.path()).unwrap();
        assert_eq!(Scratch::new_in(parent.path()).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        assert_eq!(entries(parent.path()), 1);
        drop(scratch);
        Scratch::new_in(parent.path()).unwrap();
    }

    #[test]
    fn it_goes_in_a_panic() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().to_owned();
        let panicked = std::thread::spawn(move || {
            let scratch = Scratch::new_in(&path).unwrap();
            fs::write(scratch.cell_directory("one").unwrap().join("data"), "x").unwrap();
            panic!("on purpose");
        })
        .join();
        assert!(panicked.is_err());
        assert_eq!(entries(parent.path()), 0);
    }

    #[test]
    fn it_goes_after_a_child_was_killed_while_writing() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::new_in(parent.path()).unwrap();
        let cell = scratch.cell_directory("one").unwrap();
        let mut child = Command::new("sh")
            .args(["-c", "while :; do echo x >> data; done"])
            .current_dir(&cell)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        while !cell.join("data").exists() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        drop(scratch);
        assert_eq!(entries(parent.path()), 0);
    }

    /// As a run that was killed leaves it: there, and without its locks.
    fn killed(scratch: Scratch) -> PathBuf {
        let path = scratch.path.clone();
        for locked in [&scratch.directory, &scratch._parent] {
            flock(locked, FlockOperation::Unlock).unwrap();
        }
        std::mem::forget(scratch);
        path
    }

    #[test]
    fn only_abandoned_directories_of_ours_are_leftovers() {
        let (parent, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let records = Records::at(state.path());
        let make = || Scratch::recorded_in(parent.path(), &records).unwrap();
        let dead = make();
        fs::write(dead.cell_directory("one").unwrap().join("data"), "x").unwrap();
        let dead = killed(dead);
        let with_a_foreign_file = killed(make());
        fs::write(with_a_foreign_file.join("thesis.tex"), "x").unwrap();
        let moved = killed(make());
        let moved_to = parent.path().join("forebay-compare-moved0");
        fs::rename(&moved, &moved_to).unwrap();
        // Copied, with its owner file.
        let copied = parent.path().join("forebay-compare-copied");
        fs::create_dir(&copied).unwrap();
        fs::copy(dead.join(OWNER_FILE), copied.join(OWNER_FILE)).unwrap();
        // Made by hand, with files of a user.
        let by_hand = parent.path().join("forebay-compare-x");
        fs::create_dir(&by_hand).unwrap();
        fs::write(by_hand.join(OWNER_FILE), "4242\n").unwrap();
        fs::write(by_hand.join("data"), "x").unwrap();
        fs::create_dir(parent.path().join("forebay-compare-no-owner")).unwrap();
        fs::create_dir(parent.path().join("something-else")).unwrap();
        std::os::unix::fs::symlink(&dead, parent.path().join("forebay-compare-link")).unwrap();
        let running = make();

        let found = recorded_leftovers(parent.path(), &records);
        assert_eq!(found.len(), 1, "{found:?}");
        let process = Some(std::process::id());
        assert_eq!((found[0].path.as_path(), found[0].owner), (dead.as_path(), process));
        for leftover in found {
            leftover.remove().unwrap();
        }
        assert!(!dead.exists() && running.path().exists());
        assert!(with_a_foreign_file.join("thesis.tex").exists() && by_hand.join("data").exists());
        assert!(moved_to.exists() && copied.exists());
        drop(running);
        assert_eq!(entries(state.path()), 2, "the records of those that stay");
    }
}
