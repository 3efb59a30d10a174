//! Options for opening a file.

use std::path::Path;

use crate::core::error::{Error, ErrorKind, Result};

/// Options for [`Engine::open`](crate::Engine::open),
/// [`Engine::open_direct`](crate::Engine::open_direct) and
/// [`Engine::open_fd`](crate::Engine::open_fd), with the meaning of [`std::fs::OpenOptions`].
///
/// A new value has no option set. A handle needs [`read`](Self::read), [`write`](Self::write) or
/// [`append`](Self::append).
///
/// ```
/// use forebay::{Engine, OpenOptions};
///
/// # fn main() -> forebay::Result<()> {
/// # let directory = tempfile::tempdir_in(".").unwrap();
/// # let path = directory.path().join("file");
/// let engine = Engine::new()?;
/// let file = engine.open(&path, OpenOptions::new().write(true).create(true).mode(0o600))?;
/// file.write_at(b"new content", 0)?;
/// let reader = engine.open(&path, OpenOptions::new().read(true))?;   // shares the cache of `file`
/// assert_eq!(reader.len()?, 11);
/// # reader.close()?;
/// file.close()
/// # }
/// ```
///
/// # Errors
/// The calls that take the options fail with `InvalidInput` if they contradict each other:
///
/// - none of `read`, `write` and `append` is set;
/// - `create`, `create_new` or `truncate` is set, and neither `write` nor `append` is;
/// - `truncate` and `append` are both set, without `create_new`;
/// - `temporary` is set, and `create_new` is not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenOptions {
    pub(crate) read: bool,
    /// After [`OpenOptions::checked`], whether the handle may write or append.
    pub(crate) write: bool,
    pub(crate) append: bool,
    pub(crate) truncate: bool,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) mode: u32,
    pub(crate) uncached: Option<bool>,
    pub(crate) temporary: bool,
    pub(crate) exclusive: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenOptions {
    /// Creates options that are all off.
    #[must_use]
    pub fn new() -> Self {
        Self {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o666,
            uncached: None,
            temporary: false,
            exclusive: false,
        }
    }

    /// Sets whether the handle may read.
    ///
    /// For a file that is open for reading only, the engine takes a read lease if it can, and keeps
    /// the pages that were read. Another program that opens the file for writing waits until the
    /// engine has released the lease.
    pub fn read(&mut self, read: bool) -> &mut Self {
        self.read = read;
        self
    }

    /// Sets whether the handle may write.
    ///
    /// The user needs the right to read the file, too: the engine reads a page that is written in
    /// part.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.write = write;
        self
    }

    /// Sets whether the handle writes at the end alone: a [`Cursor`](crate::Cursor) writes there,
    /// and [`File::write_at`](crate::File::write_at) fails with `NotPermitted`.
    ///
    /// [`File::append`](crate::File::append) needs no such handle: `write` is enough.
    pub fn append(&mut self, append: bool) -> &mut Self {
        self.append = append;
        self
    }

    /// Sets whether the open cuts the file to length 0.
    pub fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.truncate = truncate;
        self
    }

    /// Sets whether the open creates the file if it does not exist.
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.create = create;
        self
    }

    /// Sets whether the open creates the file, and fails if it exists. `create` and `truncate` then
    /// have no effect.
    pub fn create_new(&mut self, create_new: bool) -> &mut Self {
        self.create_new = create_new;
        self
    }

    /// Sets the permission bits of a created file, before the umask (default: `0o666`).
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = mode;
        self
    }

    /// Sets whether pages leave memory once they are written or read through this handle (default:
    /// [`Options::uncached`](crate::Options::uncached)).
    ///
    /// If a file has several handles, the handle that uses a page decides.
    pub fn uncached(&mut self, uncached: bool) -> &mut Self {
        self.uncached = Some(uncached);
        self
    }

    /// Sets whether the created file gets its final name later, by a rename. Creating, syncing and
    /// closing it takes fewer system calls than for other files:
    ///
    /// - A sync makes the data durable, but not the name. Sync the directory after the rename.
    /// - The engine takes no lease and no lock of the file. Until its last handle is closed, no
    ///   other program may write it, and no other engine may open it. Other programs that read it
    ///   see what was synced or written out.
    /// - A [keeper](crate::Builder::survive) does not have the file until then. If the process
    ///   dies, data that was not synced may be lost. So sync it before the rename.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let new = directory.path().join("settings.new");
    /// # let name = directory.path().join("settings");
    /// # let engine = forebay::Engine::new()?;
    /// use forebay::OpenOptions;
    ///
    /// let mut options = OpenOptions::new();
    /// options.write(true).create_new(true).temporary(true);
    /// let file = engine.open(&new, &options)?;
    /// file.write_at(b"a new version", 0)?;
    /// file.sync_data()?;
    /// file.close()?;
    /// std::fs::rename(&new, &name)?;
    /// std::fs::File::open(directory.path())?.sync_all()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn temporary(&mut self, temporary: bool) -> &mut Self {
        self.temporary = temporary;
        self
    }

    /// Promises that no other program, on this machine or another one, writes the file while it is
    /// open here, and that none reads what was not synced (default: `false`).
    ///
    /// The engine takes a lease of a file where the kernel enforces it for every user of the data:
    /// on ext4, XFS, btrfs, f2fs, bcachefs, tmpfs, and an overlay over these. Everywhere else, such
    /// as on FUSE, NFS, CIFS, 9p and cluster file systems, the file counts as shared with other
    /// programs, which is correct and slow: clean pages are not kept, holes are not filled, and no
    /// space is reserved. This promise takes the place of the lease there, and where the user may
    /// not take one. If it is broken, bytes of the other program can be lost.
    ///
    /// The handle that opens the file first decides. A file that another program has open when the
    /// engine asks for a lease is shared all the same. Without effect on direct handles.
    ///
    /// ```
    /// use forebay::{Engine, OpenOptions};
    ///
    /// # fn main() -> forebay::Result<()> {
    /// # let directory = tempfile::tempdir_in(".").unwrap();
    /// # let path = directory.path().join("file");
    /// let engine = Engine::new()?;
    /// let mut options = OpenOptions::new();
    /// options.write(true).create(true).assume_exclusive(true);
    /// let file = engine.open(&path, &options)?;
    /// assert!(!file.describe().contains("shared"));
    /// file.close()
    /// # }
    /// ```
    pub fn assume_exclusive(&mut self, exclusive: bool) -> &mut Self {
        self.exclusive = exclusive;
        self
    }

    /// Returns these options, with `write` for a handle that appends.
    ///
    /// # Errors
    /// `InvalidInput` if they contradict each other.
    pub(crate) fn checked(&self, path: &Path) -> Result<Self> {
        let changes = self.write || self.append;
        let (what, remedy) = if !self.read && !changes {
            ("a handle needs an access", "set read, write or append")
        } else if !changes && (self.create || self.create_new || self.truncate) {
            ("a handle for reading cannot create or truncate the file", "set write or append")
        } else if self.append && self.truncate && !self.create_new {
            ("a handle for appending cannot truncate the file", "set write instead of append")
        } else if self.temporary && !self.create_new {
            ("a temporary file must be new", "set create_new")
        } else {
            return Ok(Self { write: changes, ..self.clone() });
        };
        let what = format!("the open options contradict each other: {what}");
        Err(Error::new(ErrorKind::InvalidInput, what).at_path(path).remedy(remedy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether options are valid for std is known by the kind of the error: a missing file is
    /// looked for only by valid ones.
    #[test]
    fn what_std_refuses_is_refused_and_nothing_else() {
        let missing = Path::new("no/such/file");
        for bits in 0..64 {
            let [read, write, append, truncate, create, create_new] =
                std::array::from_fn(|bit| bits & (1 << bit) != 0);
            let mut ours = OpenOptions::new();
            ours.read(read).write(write).append(append);
            ours.truncate(truncate).create(create).create_new(create_new);
            let mut std = std::fs::OpenOptions::new();
            std.read(read).write(write).append(append);
            std.truncate(truncate).create(create).create_new(create_new);
            let theirs = std.open(missing).unwrap_err().kind();
            let checked = ours.checked(missing);
            assert_eq!(checked.is_ok(), theirs == std::io::ErrorKind::NotFound, "{ours:?}");
            if let Ok(checked) = checked {
                assert_eq!(checked.write, write || append);
            }
        }
    }

    #[test]
    fn a_temporary_file_must_be_new() {
        let refused = |options: &mut OpenOptions| options.checked(Path::new("file")).is_err();
        assert!(refused(OpenOptions::new().write(true).create(true).temporary(true)));
        assert!(!refused(OpenOptions::new().write(true).create_new(true).temporary(true)));
    }
}
