//! The temporary file of a put: from its creation until it is published under the name of the
//! object, or removed.
//!
//! ```text
//! create --write, in any order--> close: sync --rename or link--> published --> directory synced
//!    \______________________________ dropped: removed _________/
//! ```

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::UNIX_EPOCH;

use forebay::{Engine, ErrorKind, File, OpenOptions};
use object_store::{Error, PutPayload, PutResult, Result};

/// Name of this store in errors.
const STORE: &str = "Forebay";

/// Number in the name of the last temporary file of this process.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Effect of a publication if an object of the name exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Publish {
    /// The new one replaces it.
    Replace,
    /// The publication fails.
    Create,
}

/// A temporary file. Dropping it removes it, unless it was published.
#[derive(Debug)]
pub(crate) struct Staged {
    /// `None` once it is published or given up.
    file: RwLock<Option<File>>,
    path: PathBuf,
    target: PathBuf,
    /// Parts that were begun and are not written. Without one of them the object would have a hole.
    missing: AtomicUsize,
    is_published: AtomicBool,
}

impl Staged {
    /// Creates a temporary file for an object, and directories as needed.
    pub(crate) fn create(engine: &Engine, target: PathBuf) -> Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).temporary(true).uncached(true);
        let (file, path) = loop {
            let path = temporary(&target);
            match engine.open(&path, &options) {
                Ok(file) => break (file, path),
                // Left by a process of the same number.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    create_parents(&target).map_err(|error| failed(&target, error))?;
                }
                Err(error) => return Err(failed(&path, error.into())),
            }
        };
        Ok(Self {
            file: RwLock::new(Some(file)),
            path,
            target,
            missing: AtomicUsize::new(0),
            is_published: AtomicBool::new(false),
        })
    }

    pub(crate) fn set_len(&self, length: u64) -> Result<()> {
        self.with_file(|file| file.set_len(length))
    }

    /// Notes a part that [`Staged::write_part`] has to write before the file can be published.
    pub(crate) fn begin_part(&self) {
        self.missing.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes a part that was begun.
    pub(crate) fn write_part(&self, payload: &PutPayload, offset: u64) -> Result<()> {
        self.write(payload, offset)?;
        self.missing.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    /// Writes the pieces of a payload one after the other from `offset` on.
    pub(crate) fn write(&self, payload: &PutPayload, offset: u64) -> Result<()> {
        self.with_file(|file| {
            let mut at = offset;
            for piece in payload {
                file.write_at(piece, at)?;
                at += piece.len() as u64;
            }
            Ok(())
        })
    }

    fn with_file(&self, call: impl FnOnce(&File) -> forebay::Result<()>) -> Result<()> {
        let file = self.file.read().unwrap_or_else(PoisonError::into_inner);
        call(file.as_ref().ok_or_else(ended)?).map_err(generic)
    }

    /// Makes the file durable, and then its name. Waits for writes in progress.
    pub(crate) fn publish(&self, publish: Publish) -> Result<PutResult> {
        let file = self.take().ok_or_else(ended)?;
        if self.missing.load(Ordering::Relaxed) > 0 {
            return Err(generic(io::Error::other("a part was not written")));
        }
        file.sync_data().and_then(|()| file.close()).map_err(generic)?;
        let io = |result: io::Result<()>| result.map_err(|error| failed(&self.target, error));
        let status = fs::metadata(&self.path).map_err(|error| failed(&self.path, error))?;
        match publish {
            Publish::Replace => {
                io(fs::rename(&self.path, &self.target))?;
                self.is_published.store(true, Ordering::Relaxed);
            }
            // The temporary name is removed by the drop.
            Publish::Create => io(fs::hard_link(&self.path, &self.target))?,
        }
        io(sync_directory_of(&self.target))?;
        let (e_tag, version) = (Some(tag(&status)), None);
        Ok(PutResult { e_tag, version, extensions: Default::default() })
    }

    fn take(&self) -> Option<File> {
        self.file.write().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Closes and removes the file. Waits for writes in progress.
    pub(crate) fn give_up(&self) {
        if !self.is_published.swap(true, Ordering::Relaxed) {
            // Without a name before its data is written.
            remove(&self.path);
        }
        drop(self.take());
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Returns the path of a temporary file beside an object. It does not contain the object's name,
/// which may be as long as the file system allows. Lists do not show names of this form.
fn temporary(target: &Path) -> PathBuf {
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    target.with_file_name(format!(".forebay#{}{number:08}", std::process::id()))
}

/// Returns the entity tag of a file, as `LocalFileSystem` makes it.
fn tag(status: &fs::Metadata) -> String {
    let modified = status.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let micros = modified.unwrap_or_default().as_micros();
    format!("\"{:x}-{micros:x}-{:x}\"", status.ino(), status.len())
}

/// Creates the directories of a path, and makes them durable.
fn create_parents(path: &Path) -> io::Result<()> {
    let Some(parent) = path.parent() else { return Ok(()) };
    let is_missing = |directory: &&Path| !directory.exists();
    let missing: Vec<&Path> = parent.ancestors().take_while(is_missing).collect();
    fs::create_dir_all(parent)?;
    missing.into_iter().try_for_each(sync_directory_of)
}

fn sync_directory_of(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |parent| fs::File::open(parent)?.sync_all())
}

/// Removes a temporary file, as far as possible: lists do not show what stays.
fn remove(path: &Path) {
    let _ = fs::remove_file(path);
}

fn ended() -> Error {
    generic(io::Error::other("the upload has ended"))
}

fn generic(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Generic { store: STORE, source: Box::new(error) }
}

fn failed(path: &Path, error: io::Error) -> Error {
    let (kind, path, source) = (error.kind(), path.display().to_string(), Box::new(error));
    match kind {
        io::ErrorKind::AlreadyExists => Error::AlreadyExists { path, source },
        io::ErrorKind::NotFound => Error::NotFound { path, source },
        io::ErrorKind::PermissionDenied => Error::PermissionDenied { path, source },
        _ => Error::Generic { store: STORE, source },
    }
}
