//! Options for opening a file.

/// Options for [`Engine::open`](crate::Engine::open) and
/// [`Engine::open_direct`](crate::Engine::open_direct).
///
/// Start with one of the constructors, which say what the handle may do and whether the file is
/// created.
///
/// ```
/// use forebay::{Engine, Open};
///
/// # fn main() -> forebay::Result<()> {
/// # let directory = tempfile::tempdir_in(".").unwrap();
/// # let path = directory.path().join("file");
/// let engine = Engine::new()?;
/// let file = engine.open(&path, Open::create().truncate(true).mode(0o600))?;
/// file.write_at(b"new content", 0)?;
/// let reader = engine.open(&path, Open::read())?;    // shares the cache of `file`
/// assert_eq!(reader.len()?, 11);
/// # reader.close()?;
/// file.close()
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Open {
    pub(crate) write: bool,
    pub(crate) append: bool,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) temporary: bool,
    pub(crate) truncate: bool,
    pub(crate) uncached: Option<bool>,
    pub(crate) exclusive: bool,
    pub(crate) mode: u32,
}

impl Open {
    /// Opens an existing file for reading. The engine takes a read lease if it can, and keeps the
    /// pages that were read. Another program that opens the file for writing waits until the engine
    /// has released the lease.
    #[must_use]
    pub fn read() -> Self {
        Self {
            write: false,
            append: false,
            create: false,
            create_new: false,
            temporary: false,
            truncate: false,
            uncached: None,
            exclusive: false,
            mode: 0o666,
        }
    }

    /// Opens an existing file for reading and writing.
    #[must_use]
    pub fn write() -> Self {
        Self { write: true, ..Self::read() }
    }

    /// Opens a file for reading and writing, and creates it if it does not exist.
    #[must_use]
    pub fn create() -> Self {
        Self { create: true, ..Self::write() }
    }

    /// Creates a file for reading and writing, and fails if it exists.
    #[must_use]
    pub fn create_new() -> Self {
        Self { create_new: true, ..Self::write() }
    }

    /// Creates a file that gets its final name later by a rename, and fails if it exists. Creating,
    /// syncing and closing it takes fewer system calls than for other files:
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
    /// use forebay::Open;
    ///
    /// let file = engine.open(&new, Open::temporary())?;
    /// file.write_at(b"a new version", 0)?;
    /// file.sync_data()?;
    /// file.close()?;
    /// std::fs::rename(&new, &name)?;
    /// std::fs::File::open(directory.path())?.sync_all()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn temporary() -> Self {
        Self { temporary: true, ..Self::create_new() }
    }

    /// Opens a file as [`Open::create`] does, but writes only at its end, with
    /// [`File::append`](crate::File::append). `write_at` fails with `NotPermitted`.
    #[must_use]
    pub fn append() -> Self {
        Self { append: true, ..Self::create() }
    }

    /// Sets whether opening truncates the file to length 0 (default: `false`).
    #[must_use]
    pub fn truncate(mut self, truncate: bool) -> Self {
        self.truncate = truncate;
        self
    }

    /// Sets whether pages leave memory once they are written or read through this handle (default:
    /// the knob `uncached` of the engine).
    ///
    /// If a file has several handles, the handle that uses a page decides.
    #[must_use]
    pub fn uncached(mut self, uncached: bool) -> Self {
        self.uncached = Some(uncached);
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
    /// use forebay::{Engine, Open};
    ///
    /// # fn main() -> forebay::Result<()> {
    /// # let directory = tempfile::tempdir_in(".").unwrap();
    /// # let path = directory.path().join("file");
    /// let engine = Engine::new()?;
    /// let file = engine.open(&path, Open::create().exclusive(true))?;
    /// assert!(!file.describe().contains("shared"));
    /// file.close()
    /// # }
    /// ```
    #[must_use]
    pub fn exclusive(mut self, exclusive: bool) -> Self {
        self.exclusive = exclusive;
        self
    }

    /// Sets the permission bits of a created file, before the umask (default: `0o666`).
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }
}
