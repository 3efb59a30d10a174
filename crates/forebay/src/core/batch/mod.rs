//! A batch: many new files that become durable, and get their names, together.
//!
//! One `fsync` for each new file waits for the device twice per file: once for the journal, once
//! for its cache. A batch writes all data first, flushes the files side by side, so that one commit
//! of the journal serves many, renames the files, and syncs each directory once.
//!
//! ```text
//! create, write --> .forebay-ID-NUMBER --window full--> fsync of all, side by side ------+
//!                                                                                        |
//! commit: last window --> rename in call order --> fsync of each directory, once <-------+
//! ```
//!
//! - `file`: the writer of one file. `inner`: the steps. `flushing`: the windows.
//! - `place`: an open directory, with its lock and what dead batches left there.
//! - `commit`: the steps under the final names, and what became of each.
//!
//! The data does not pass through the cache of the engine. Nobody reads a file before it has its
//! name, and a file in the cache costs a table entry, an inode, a context's visit and a direct
//! descriptor. Nothing here is with the keeper: no file has its name before its data is durable.

pub(crate) mod batch_file;
pub(crate) mod commit;
mod flushing;
mod inner;
mod place;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::commit::CommitError;
use self::inner::Inner;
use self::place::Place;
use crate::core::batch::batch_file::BatchFile;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::shared::Shared;
use crate::platform::{Named, OpenDirectory, Replace, files};

/// New files that become durable and get their names together.
///
/// [`Engine::batch`](crate::Engine::batch) makes one. Files are written under temporary names in
/// the directories of their targets. [`Batch::commit`] makes all of them durable, then renames
/// them, and then syncs each directory once. Until then no target changes. Dropping a batch
/// removes its temporary files and publishes nothing.
///
/// ```
/// # fn main() -> forebay::Result<()> {
/// # let directory = tempfile::tempdir_in(".").unwrap();
/// # let release = directory.path();
/// let engine = forebay::Engine::new()?;
/// let batch = engine.batch();
/// batch.write(release.join("a"), b"whole")?;         // one small file
/// let mut b = batch.create(release.join("b"))?;      // a large one, piece by piece
/// b.write_all(b"first, ")?;
/// b.write_all(b"second")?;
/// b.close()?;
/// assert!(!release.join("a").exists());
/// batch.commit()?;                                   // both durable, under their names
/// assert_eq!(std::fs::read(release.join("b")).unwrap(), b"first, second");
/// # Ok(())
/// # }
/// ```
///
/// # After a crash
///
/// Each target is old, absent or whole, whenever the process or the machine stops. The files get
/// their names one after the other, in call order, so some may be new and others old.
/// [`Batch::ordered`] makes the last file a commit record. Temporary files that a dead process left
/// are removed by the next batch in that directory; those of a live batch are not.
///
/// # What a published file is
///
/// - A new file: owner, permission bits, extended attributes and ACLs are those of a new file in
///   that directory, not those of the file it replaces. [`BatchFile::set_mode`] sets permission
///   bits.
/// - Of more directories than a batch keeps open (256, fewer with few descriptors), temporary files
///   are made in the first one, and get its default ACL, group and project.
/// - Programs that have the replaced file open keep the old content. So do handles of this engine.
/// - A symbolic link at the target is replaced, not followed. Links in the directory's path are
///   followed.
///
/// # Threads and memory
///
/// All targets are on one file system. Methods block in system calls. Several threads may call them
/// at once, and each write files of their own. The data goes past the cache of the engine: writers
/// wait while 32 MiB of the batch have not reached the device.
pub struct Batch {
    inner: Arc<Inner>,
    is_ordered: bool,
}

/// Change of a name that a commit makes. Steps are made in call order.
enum Step {
    /// A file gets its name.
    Publish {
        /// The directory of the temporary name.
        home: Arc<Place>,
        number: u32,
        to: Arc<Place>,
        name: OsString,
        replace: Replace,
        is_finished: bool,
    },
    Rename {
        from: Arc<Place>,
        from_name: OsString,
        to: Arc<Place>,
        name: OsString,
    },
    Remove {
        from: Arc<Place>,
        name: OsString,
    },
    /// A directory that was made already.
    Made {
        at: Arc<Place>,
        name: OsString,
    },
}

/// Takes no lock, so it can be used anywhere.
impl std::fmt::Debug for Batch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("Batch");
        shown.field("is_ordered", &self.is_ordered).finish_non_exhaustive()
    }
}

impl Batch {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self { inner: Arc::new(Inner::new(shared)), is_ordered: false }
    }

    /// Publishes the last created file only after all steps before it are durable, and takes the
    /// steps after it only once that file is durable.
    ///
    /// The last file can so be a manifest: if it is new after a crash, all other files are. Files
    /// of the previous version are removed after it:
    ///
    /// ```
    /// # fn main() -> forebay::Result<()> {
    /// # let directory = tempfile::tempdir_in(".").unwrap();
    /// # let release = directory.path();
    /// # let engine = forebay::Engine::new()?;
    /// # std::fs::write(release.join("part-1"), "old").unwrap();
    /// let batch = engine.batch().ordered();
    /// batch.write(release.join("part-2"), b"content")?;
    /// batch.write(release.join("manifest"), b"part-2")?; // the last created file
    /// batch.remove(release.join("part-1"))?;             // named by the previous manifest
    /// batch.commit()?;
    /// # assert!(!release.join("part-1").exists());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn ordered(mut self) -> Self {
        self.is_ordered = true;
        self
    }

    /// Creates a file that replaces the one at `path`, if there is one, at the commit.
    ///
    /// # Errors
    /// `NotFound` or `PermissionDenied` for its directory, `InvalidInput` if `path` names no file
    /// or is on another file system than the first file, `Open` if the target is a directory or for
    /// another reason of the system, `Shutdown`.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<BatchFile> {
        self.create_as(path.as_ref(), Replace::Yes)
    }

    /// Creates a file that gets its name only if no file has that name, also at the commit.
    ///
    /// # Errors
    /// As [`Batch::create`]; `AlreadyExists` if the target exists.
    pub fn create_new(&self, path: impl AsRef<Path>) -> Result<BatchFile> {
        self.create_as(path.as_ref(), Replace::No)
    }

    /// Creates a file with this content, as [`Batch::create`] does, and closes it.
    ///
    /// # Errors
    /// As [`Batch::create`] and [`BatchFile::write_all`].
    pub fn write(&self, path: impl AsRef<Path>, content: &[u8]) -> Result<()> {
        let mut file = self.create(path)?;
        file.write_all(content)?;
        file.close()
    }

    fn create_as(&self, path: &Path, replace: Replace) -> Result<BatchFile> {
        let inner = &self.inner;
        let (to, name) = inner.locate(path)?;
        let failed = |error| Error::at_open("could not create the file", path, error);
        match (to.look(&name).map_err(failed)?, replace) {
            (Named::Directory, _) => {
                return Err(failed(std::io::Error::from_raw_os_error(libc::EISDIR)));
            }
            (Named::File, Replace::No) => {
                return Err(failed(std::io::Error::from_raw_os_error(libc::EEXIST)));
            }
            (Named::File, Replace::Yes) | (Named::Nothing, _) => {}
        }
        // Before a batch that has its temporary names elsewhere.
        to.sweep_once().map_err(failed)?;
        let home = inner.home(&to);
        let (number, file) = home.create().map_err(failed)?;
        let step = Step::Publish {
            home: Arc::clone(&home),
            number,
            to,
            name,
            replace,
            is_finished: false,
        };
        match inner.add(step) {
            Ok(step) => Ok(BatchFile::new(Arc::clone(inner), file, step, path)),
            Err(error) => {
                home.remove_temporary(number);
                Err(error.at_path(path))
            }
        }
    }

    /// Renames an existing file at the commit. It replaces a file that has the new name then.
    ///
    /// # Errors
    /// `NotFound` if there is no such file now; otherwise as [`Batch::create`].
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let (from, from_name) = self.existing(from.as_ref(), "could not rename the file")?;
        let (to, name) = self.inner.locate(to.as_ref())?;
        self.inner.add(Step::Rename { from, from_name, to, name }).map(drop)
    }

    /// Removes an existing file at the commit.
    ///
    /// # Errors
    /// `NotFound` if there is no such file now; otherwise as [`Batch::create`].
    pub fn remove(&self, path: impl AsRef<Path>) -> Result<()> {
        let (from, name) = self.existing(path.as_ref(), "could not remove the file")?;
        self.inner.add(Step::Remove { from, name }).map(drop)
    }

    fn existing(&self, path: &Path, what: &str) -> Result<(Arc<Place>, OsString)> {
        let (place, name) = self.inner.locate(path)?;
        let error = match place.look(&name) {
            Ok(Named::File) => return Ok((place, name)),
            Ok(Named::Nothing) => std::io::Error::from_raw_os_error(libc::ENOENT),
            Ok(Named::Directory) => std::io::Error::from_raw_os_error(libc::EISDIR),
            Err(error) => error,
        };
        Err(Error::at_open(what, path, error))
    }

    /// Makes a directory and its missing parents, now. The commit makes them durable; without it
    /// they are removed again if they are empty. A directory that exists is left as it is.
    ///
    /// # Errors
    /// As [`Batch::create`]; `AlreadyExists` if `path` is a file.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.inner.may_change()?;
        let failed = |error| Error::at_open("could not make the directory", path, error);
        let absolute = absolute(path)?;
        let missing: Vec<_> = absolute
            .ancestors()
            .take_while(|part| files::identity_of(part).is_err())
            .map(Path::to_owned)
            .collect();
        for directory in missing.iter().rev() {
            let (at, name) = self.inner.locate(directory)?;
            match at.make_directory(&name) {
                Ok(()) => self.inner.add(Step::Made { at, name }).map(drop)?,
                // Another thread or program has made it.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(error)),
            }
        }
        OpenDirectory::open(&absolute).map(drop).map_err(failed)
    }

    /// Makes all files durable, gives them their names, and syncs each directory once. Blocks.
    ///
    /// # Errors
    /// [`CommitError`] lists what became of each target. If a file is not closed or could not be
    /// made durable, nothing is published. If a rename fails, the steps before it stay, and those
    /// after it are not done.
    pub fn commit(self) -> std::result::Result<(), CommitError> {
        self.inner.commit(self.is_ordered)
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.inner.end();
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    files::absolute(path).map_err(|error| {
        Error::new(ErrorKind::InvalidInput, "the path is invalid").at_path(path).because(error)
    })
}
