//! A directory of a batch: temporary names in it, their lock, and what dead batches left there.
//!
//! Temporary names have the form `.forebay-ID-NUMBER`. A batch has an ID for each directory, and
//! `.forebay-ID.lock` there, locked for as long as it has temporary files there. The lock belongs
//! to the open file description, so it ends with the process, however that ends. A batch that finds
//! names of another ID takes the lock of that ID first: it gets it only if the other batch is dead.
//!
//! Why not a lock on each temporary file: it would keep a descriptor open for each, also for those
//! that are flushed already.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::core::error::{Error, ErrorKind, Result};
use crate::core::limits::{BATCH_DIRECTORIES, BATCH_IDS};
use crate::platform::collections::HashMap;
use crate::platform::sync::Mutex;
use crate::platform::{Identity, Named, OpenDirectory, PrivateFile, Replace, clock};

/// Start of all names that a batch uses.
const PREFIX: &str = ".forebay-";
const LOCK: &str = ".lock";

/// A directory of a batch.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    identity: Identity,
    /// `None` for a directory beyond the number that a batch keeps open.
    directory: Option<OpenDirectory>,
    /// The ID of the names here and its lock, from the first temporary file on.
    claim: Mutex<Option<Claim>>,
    numbers: AtomicU32,
    /// Set once names of dead batches are removed.
    is_swept: AtomicBool,
}

#[derive(Debug)]
struct Claim {
    id: u64,
    /// Held until the last temporary name is gone.
    _lock: PrivateFile,
}

/// The directories of a batch.
pub(super) struct Places {
    most: usize,
    by_path: HashMap<PathBuf, Arc<Place>>,
    by_identity: HashMap<Identity, Arc<Place>>,
    first: Option<Arc<Place>>,
}

impl Places {
    /// Creates the table of a process that may have this many descriptors.
    pub(super) fn new(descriptor_limit: usize) -> Self {
        // An eighth, with two descriptors each.
        let most = (descriptor_limit / 16).clamp(1, BATCH_DIRECTORIES);
        Self { most, by_path: HashMap::default(), by_identity: HashMap::default(), first: None }
    }

    pub(super) fn known(&self, path: &Path) -> Option<Arc<Place>> {
        self.by_path.get(path).cloned()
    }

    /// Enters an open directory, unless it is there under another path.
    ///
    /// # Errors
    /// `InvalidInput` if it is on another file system than the first.
    pub(super) fn enter(&mut self, path: &Path, mut place: Place) -> Result<Arc<Place>> {
        if let Some(first) = &self.first
            && first.identity.device != place.identity.device
        {
            let what = format!("it is on another file system than {}", first.path.display());
            return Err(Error::new(ErrorKind::InvalidInput, what)
                .remedy("use one batch for each file system"));
        }
        if self.by_identity.len() >= self.most {
            place.directory = None;
        }
        let place =
            Arc::clone(self.by_identity.entry(place.identity).or_insert_with(|| Arc::new(place)));
        self.by_path.insert(path.to_owned(), Arc::clone(&place));
        self.first.get_or_insert_with(|| Arc::clone(&place));
        Ok(place)
    }

    /// Returns the directory for temporary files of `place`: itself, if it is kept open.
    pub(super) fn home(&self, place: &Arc<Place>) -> Arc<Place> {
        let first = self.first.as_ref().filter(|_| place.directory.is_none());
        assert!(first.is_some() || place.directory.is_some(), "the file would have no directory");
        Arc::clone(first.unwrap_or(place))
    }

    /// Removes all directories from the table.
    pub(super) fn take(&mut self) -> Vec<Arc<Place>> {
        self.by_path.clear();
        self.by_identity.drain().map(|(_, place)| place).collect()
    }
}

impl Place {
    /// Opens a directory. Blocks.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let directory = OpenDirectory::open(path)?;
        Ok(Self {
            path: path.to_owned(),
            identity: directory.identity(),
            directory: Some(directory),
            claim: Mutex::new(None),
            numbers: AtomicU32::new(0),
            is_swept: AtomicBool::new(false),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a name.
    pub(super) fn path_of(&self, name: &OsStr) -> PathBuf {
        self.path.join(name)
    }

    /// Runs a call on the directory, which is opened again if it is not kept open.
    fn with<T>(&self, call: impl FnOnce(&OpenDirectory) -> io::Result<T>) -> io::Result<T> {
        if let Some(directory) = &self.directory {
            return call(directory);
        }
        let directory = OpenDirectory::open(&self.path)?;
        if directory.identity() != self.identity {
            // The path names another directory by now.
            return Err(io::ErrorKind::NotFound.into());
        }
        call(&directory)
    }

    pub(super) fn look(&self, name: &OsStr) -> io::Result<Named> {
        self.with(|directory| directory.look(name))
    }

    pub(super) fn make_directory(&self, name: &OsStr) -> io::Result<()> {
        self.with(|directory| directory.make_directory(name, 0o777))
    }

    pub(super) fn remove_directory(&self, name: &OsStr) -> io::Result<()> {
        self.with(|directory| directory.remove_directory(name))
    }

    pub(super) fn remove(&self, name: &OsStr) -> io::Result<()> {
        self.with(|directory| directory.remove(name))
    }

    pub(super) fn rename(
        &self,
        name: &OsStr,
        to: &Place,
        to_name: &OsStr,
        replace: Replace,
    ) -> io::Result<()> {
        self.with(|from| to.with(|to| from.rename(name, to, to_name, replace)))
    }

    /// Makes the entries durable. Blocks.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.with(OpenDirectory::sync)
    }

    /// Creates a file under a temporary name, and returns the number in that name.
    pub(super) fn create(&self) -> io::Result<(u32, PrivateFile)> {
        let id = self.claim()?;
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        assert!(number < u32::MAX, "two files would have one temporary name");
        let file = self.with(|directory| directory.create(&temporary(id, number), 0o666))?;
        Ok((number, file))
    }

    /// Renames a temporary file to its name.
    pub(super) fn publish(
        &self,
        number: u32,
        to: &Place,
        name: &OsStr,
        replace: Replace,
    ) -> io::Result<()> {
        let is_made = number < self.numbers.load(Ordering::Relaxed);
        debug_assert!(is_made, "a file of another batch would get the name");
        self.rename(&temporary(self.claim()?, number), to, name, replace)
    }

    /// Removes a temporary file. One that stays is removed by the next batch in the directory.
    pub(super) fn remove_temporary(&self, number: u32) {
        let removed = self.claim().and_then(|id| self.remove(&temporary(id, number)));
        if let Err(error) = removed {
            tracing::debug!(path = %self.path.display(), %error, "could not remove a file");
        }
    }

    /// Removes what dead batches have left, unless an earlier call did.
    pub(super) fn sweep_once(&self) -> io::Result<()> {
        if !self.is_swept.load(Ordering::Relaxed) {
            self.with(sweep)?;
            self.is_swept.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns the ID of this batch in the directory. The first call removes what dead batches have
    /// left, and locks the ID.
    fn claim(&self) -> io::Result<u64> {
        if let Some(claim) = &*self.claim.lock() {
            return Ok(claim.id);
        }
        self.sweep_once()?;
        let new = self.with(lock_new_id)?;
        let mut claims = self.claim.lock();
        if let Some(claim) = &*claims {
            // Another thread was first. Nothing has a name of the new ID.
            let id = claim.id;
            drop(claims);
            let _ = self.remove(&lock_name(new.id));
            return Ok(id);
        }
        Ok(claims.insert(new).id)
    }

    /// Removes the lock file, once no temporary file is left.
    pub(super) fn unlock(&self) {
        let claim = self.claim.lock().take();
        if let Some(claim) = claim
            && let Err(error) = self.remove(&lock_name(claim.id))
        {
            tracing::debug!(path = %self.path.display(), %error, "could not remove a lock file");
        }
    }
}

/// Makes an ID that no other batch has in a directory, and locks it.
fn lock_new_id(directory: &OpenDirectory) -> io::Result<Claim> {
    let first = clock::now().nanoseconds();
    for id in (0..BATCH_IDS).map(|more| first.wrapping_add(more)) {
        let lock = match directory.create(&lock_name(id), 0o600) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            created => created?,
        };
        // Another batch that sweeps may have found it before it was locked, and removed it.
        if lock.try_lock()? && lock.links()? > 0 {
            return Ok(Claim { id, _lock: lock });
        }
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, "other batches hold every name of a lock file"))
}

/// Removes what dead batches have left in a directory. Names that cannot be locked or
/// removed stay.
fn sweep(directory: &OpenDirectory) -> io::Result<()> {
    let mut left = BTreeMap::<u64, Vec<OsString>>::new();
    for name in directory.names(PREFIX)? {
        if let Some((id, is_lock)) = parse(&name) {
            let names = left.entry(id).or_default();
            if !is_lock {
                names.push(name);
            }
        }
    }
    for (id, names) in left {
        let name = lock_name(id);
        let Ok(lock) = directory.open_or_create(&name) else { continue };
        if lock.try_lock().unwrap_or(false) && lock.links().is_ok_and(|links| links > 0) {
            for name in names.iter().chain([&name]) {
                let _ = directory.remove(name);
            }
        }
    }
    Ok(())
}

fn temporary(id: u64, number: u32) -> OsString {
    format!("{PREFIX}{id:016x}-{number:08x}").into()
}

fn lock_name(id: u64) -> OsString {
    format!("{PREFIX}{id:016x}{LOCK}").into()
}

/// Returns the ID of a name of a batch, and whether it is that of its lock.
fn parse(name: &OsStr) -> Option<(u64, bool)> {
    let rest = name.to_str()?.strip_prefix(PREFIX)?;
    let (id, rest) = rest.split_at_checked(16)?;
    let is_hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_lock = rest == LOCK;
    let is_number =
        rest.strip_prefix('-').is_some_and(|number| number.len() == 8 && is_hex(number));
    let id = is_hex(id).then(|| u64::from_str_radix(id, 16).ok()).flatten()?;
    (is_lock || is_number).then_some((id, is_lock))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_20_only_names_of_a_batch_are_taken_for_such() {
        assert_eq!(parse(&temporary(7, 9)), Some((7, false)));
        assert_eq!(parse(&temporary(u64::MAX, u32::MAX)), Some((u64::MAX, false)));
        assert_eq!(parse(&lock_name(7)), Some((7, true)));
        for other in [
            ".forebay-",
            ".forebay-0000000000000007",
            ".forebay-0000000000000007-",
            ".forebay-0000000000000007-0000000",
            ".forebay-0000000000000007-000000000",
            ".forebay-000000000000000G-00000001",
            ".forebay-+000000000000007-00000001",
            ".forebay-0000000000000007.lock2",
            ".forebay-0000000000000007-0000000x",
            ".forebay-\u{e9}00000000000000-00000001",
            "x.forebay-0000000000000007.lock",
        ] {
            assert_eq!(parse(other.as_ref()), None, "{other}");
        }
    }

    #[test]
    fn contract_18_names_fit_every_file_system() {
        assert!(temporary(u64::MAX, u32::MAX).len() <= 64);
    }
}
