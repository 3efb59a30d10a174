//! Opening of a file: how it is found, and which of several opens enters it into the table.
//!
//! An open can block on a frozen file system, on the lease of another program, or on a slow device.
//! So it holds no lock meanwhile, only the *turn* for its file. Other opens of the same file wait.
//! Opens of other files and a shutdown do not.
//!
//! ```text
//! stat -> turn of that file -> in the table?  yes: share, another handle (enter.rs)
//!   ^                                         no:  open(2) -> still that file? -> enter (enter.rs)
//!   +------------ descriptor closed <------------------------- no                   |
//!                                                                                   v
//!   lock and lease (lease/) -> size, holes, space -> arena, keeper -> table -> Attach: a context
//! ```
//!
//! All of it is done by the calling thread, or by one beside it for the asynchronous form. The file
//! is open until its last handle is dropped and its context, or the caller of `close`, has closed
//! the descriptor (`close.rs`). `options` has the options, `adoption` the files of a dead program.
//!
//! A file has one descriptor: a second one would break our own lease, or cause it to be refused. An
//! open may end with a descriptor of a file whose turn another open has. Then it closes the
//! descriptor and starts again. This happens if the path is renamed between stat and open, and to
//! an open that created the file if another one found it first.
//!
//! A block device is opened exclusively, which replaces the lease of a file. Mounts and other
//! engines are refused while it is open here. A program that opens the device without `O_EXCL` is
//! not refused.
//!
//! A file is served by one of two strategies at a time. Both have the turns and the table, the
//! messages to a context, the close (`close.rs`), and the end of service after a panic
//! (`common.rs`). They differ in [`Strategy`], and in this:
//!
//! | | through the cache, `Inode` | past the cache, `DirectInode` |
//! |---|---|---|
//! | bytes | pages; a context writes them later | the caller's memory, to the device at once |
//! | state | the cache, under the lock of the file | a lane, which only its context changes |
//! | context | by the place of the file; may change | the first |
//! | other programs | noticed by a lease | not noticed; other engines are locked out |
//! | a sync | covers the pages of its epoch | covers the operations of its epoch |
//! | an unseen error | stays with the file, for every handle | stays with the handle |

use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_block::Target;
use forebay_cache::CachedFile;
use forebay_cache::file::{Below, Entry};
use forebay_cache::limits::PAGE;

use crate::core::engine::Engine;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::lease::lock_out_engines;
use crate::core::limits::{DEVICE_TRIES, OPEN_ROUNDS, SPARSE_BYTES, SPARSE_RANGES};
use crate::core::open::common::Common;
use crate::core::open::enter::{add_open_remedy, copy, not_served, only_for_reading};
use crate::core::open::open_options::OpenOptions;
use crate::core::shared::Shared;
use crate::core::table::AnyInode;
use crate::platform::{
    Access, Create, How, Identity, Kind, OpenFile, Opened, Truncate, files, thread,
};

pub(crate) mod adoption;
pub(crate) mod close;
pub(crate) mod common;
pub(crate) mod enter;
pub(crate) mod open_options;

/// Right to open one file and to enter it into the table, until dropped.
#[derive(Debug)]
pub(crate) struct OpeningTurn {
    shared: Arc<Shared>,
    identity: Identity,
}

impl OpeningTurn {
    /// Waits until no other open of the file is in progress.
    ///
    /// # Errors
    /// `Shutdown` if the engine stops meanwhile.
    pub(crate) fn wait(shared: &Arc<Shared>, identity: Identity) -> Result<Self> {
        let mut table = shared.table();
        loop {
            shared.check()?;
            if table.begin_opening(identity) {
                return Ok(Self { shared: Arc::clone(shared), identity });
            }
            table = shared.wait_for_opening(table);
        }
    }

    /// Takes the turn if no other open has it, and the file is neither in the table nor being
    /// closed.
    fn try_take(shared: &Arc<Shared>, identity: Identity) -> Option<Self> {
        let mut table = shared.table();
        let is_free = !table.has(identity) && table.begin_opening(identity);
        is_free.then(|| Self { shared: Arc::clone(shared), identity })
    }
}

impl Drop for OpeningTurn {
    fn drop(&mut self) {
        self.shared.table().end_opening(self.identity);
        self.shared.wake_opening();
    }
}

/// Open that may create a file. While one is in progress, a file that another open finds may have
/// no durable entry yet.
struct Creating<'a>(&'a Shared);

impl<'a> Creating<'a> {
    fn begin(shared: &'a Shared) -> Self {
        shared.table().unsynced.begin_creating();
        Self(shared)
    }
}

impl Drop for Creating<'_> {
    fn drop(&mut self) {
        self.0.table().unsynced.end_creating();
    }
}

/// An open file that is not in the table, and the turn to enter it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) file: OpenFile,
    pub(crate) created: bool,
    pub(crate) turn: OpeningTurn,
}

/// The arguments of an open, and the result of its earlier rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sought<'a> {
    pub(crate) path: &'a Path,
    pub(crate) open: &'a OpenOptions,
    /// Whether this open created the file in an earlier round and closed its descriptor again.
    pub(crate) is_made: bool,
}

/// A file to enter into the table.
#[derive(Debug)]
pub(crate) struct Entering<'a> {
    pub(crate) path: &'a Path,
    pub(crate) open: &'a OpenOptions,
    pub(crate) file: OpenFile,
    /// Whether this open created it.
    pub(crate) created: bool,
    pub(crate) entry: Entry,
    pub(crate) target: Target,
}

/// One of the two ways to serve an open file: through the cache, or past it.
pub(crate) trait Strategy: Deref<Target = Common> {
    /// The other way, as an error names it.
    const OTHERWISE: &'static str;

    /// Returns a file of the table if it is open in this way.
    fn of(inode: AnyInode) -> Option<Arc<Self>>;

    /// Enters a file with its first handle into the table, and gives it to a context.
    fn enter(engine: &Engine, entering: Entering<'_>) -> Result<Arc<Self>>;

    /// Prepares a file that is in the table for one more handle that writes.
    fn permit_writes(
        self: &Arc<Self>,
        engine: &Engine,
        path: &Path,
        open: &OpenOptions,
    ) -> Result<()>;

    /// Drops a counted handle that no caller gets.
    fn drop_handle(self: &Arc<Self>, shared: &Arc<Shared>);
}

impl Engine {
    /// Opens a file, and adds a handle to it.
    pub(crate) fn find<S: Strategy>(&self, path: &Path, open: &OpenOptions) -> Result<Arc<S>> {
        let shared = &self.owner.shared;
        let mut is_made = false;
        let mut rounds = OPEN_ROUNDS;
        loop {
            assert!(rounds > 0, "an open would follow a path for ever");
            rounds -= 1;
            let named = if open.create_new && !is_made {
                // An exclusive open fails if there is a file.
                Err(std::io::ErrorKind::NotFound.into())
            } else {
                files::identity_of(path)
            };
            let turn = match &named {
                Ok(identity) => Some(OpeningTurn::wait(shared, *identity)?),
                Err(_) => None,
            };
            if let Some(turn) = &turn {
                let sought = Sought { path, open, is_made };
                if let Some(inode) = self.share(sought, turn.identity)? {
                    return Ok(inode);
                }
            }
            let is_missing =
                named.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
            let create = match (open.create_new && !is_made, open.create || open.create_new) {
                (true, _) if open.temporary => Create::Temporary,
                (true, _) => Create::New,
                (false, true) if is_missing => Create::New,
                _ => Create::No,
            };
            let made_at = if create == Create::New && !open.create_new {
                files::end_of_links(path)
            } else {
                path.to_owned()
            };
            // A temporary one, too: this open may fail after the creation, and another one that
            // found the file makes its entry durable then.
            let creating = (create != Create::No).then(|| Creating::begin(shared));
            let opened = match open_file(&made_at, open, create) {
                // The file was created or removed after the look at the path.
                Err(error)
                    if rounds > 0 && (open.create || is_made) && is_outdated(&error, create) =>
                {
                    continue;
                }
                opened => checked(path, open, opened)?,
            };
            let identity = opened.file.identity();
            let turn = match turn {
                Some(turn) if turn.identity == identity => Some(turn),
                other => {
                    drop(other);
                    OpeningTurn::try_take(shared, identity)
                }
            };
            let Opened { file, created } = opened;
            match turn {
                Some(turn) => {
                    // No other open enters the file while this one has the turn.
                    drop(creating);
                    assert_eq!(turn.identity, identity, "two opens would enter the same file");
                    return self.open_new(path, open, Found { file, created, turn });
                }
                None if rounds > 0 => {
                    if created {
                        is_made = true;
                        shared.table().unsynced.remember(identity);
                    }
                    drop(creating);
                    drop(file);
                }
                None => {
                    let moved = "the path named another file each time it was looked at";
                    return Err(Error::new(ErrorKind::Busy, moved).at_path(path));
                }
            }
        }
    }

    /// Replaces the descriptor of a file in the table that is open only for reading by a writable
    /// one. The caller has the turn of the file.
    pub(crate) fn open_for_writing(path: &Path, open: &OpenOptions, file: &OpenFile) -> Result<()> {
        if file.kind() != Kind::Regular {
            return Err(only_for_reading());
        }
        let opened = checked(path, open, open_file(path, open, Create::No))?;
        if opened.file.identity() != file.identity() {
            let moved = "the path named another file when it was opened for writing";
            return Err(Error::new(ErrorKind::Busy, moved).remedy("open it again"));
        }
        lock_out_engines(&opened.file)?;
        file.make_writable(opened.file).map_err(Error::not_examined)
    }
}

/// Opens a file with the access its handle needs. A block device is opened for writing if that is
/// permitted, even for reading: it is held exclusively, so a later writer could not open it again.
fn open_file(path: &Path, open: &OpenOptions, create: Create) -> std::io::Result<Opened> {
    let for_writing = open.write || files::is_device(path);
    let access = if for_writing { Access::ReadWrite } else { Access::Read };
    let mut how = How { access, create, truncate: Truncate::Keep, mode: open.mode };
    let opened = open_patiently(path, &how);
    if !open.write
        && for_writing
        && let Err(error) = &opened
        && matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM | libc::EROFS))
    {
        how.access = Access::Read;
        return open_patiently(path, &how);
    }
    opened
}

/// Adds the reason to a failed open, and refuses kinds of files that the engine does not serve.
fn checked(path: &Path, open: &OpenOptions, opened: std::io::Result<Opened>) -> Result<Opened> {
    let failed = |error| Error::at_open("could not open", path, error);
    let opened = match opened {
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            return Err(device_held(path).because(error));
        }
        // A directory, a socket, or a node without a device.
        Err(error)
            if matches!(error.raw_os_error(), Some(libc::EISDIR | libc::ENXIO))
                && !files::is_device(path) =>
        {
            return Err(not_served(path).because(error));
        }
        opened => opened.map_err(|error| add_open_remedy(failed(copy(&error)), &error))?,
    };
    match opened.file.kind() {
        Kind::Regular => {}
        Kind::Block => check_device(path, open)?,
        Kind::Other => return Err(not_served(path)),
    }
    Ok(opened)
}

/// Finds where a file has no data, unless that takes many calls. If it has as much space as bytes,
/// one call shows whether it has data at all.
pub(crate) fn find_holes(file: &OpenFile, length: u64, cache: &mut CachedFile) {
    let Ok(allocated) = file.allocated_bytes() else { return };
    let is_sparse = allocated < length && allocated <= SPARSE_BYTES;
    let Ok(Some(data)) = file.data(if is_sparse { SPARSE_RANGES } else { 0 }) else { return };
    let whole = |bytes: &Range<u64>| bytes.end.next_multiple_of(PAGE) - bytes.start / PAGE * PAGE;
    let below = match allocated {
        _ if !is_sparse => Below::Never,
        _ if allocated <= data.iter().map(whole).sum() => Below::GivenBack,
        // Other programs may have reserved it, or an earlier open, which keeps short stretches.
        _ => Below::Kept,
    };
    cache.set_data(&data, below);
}

/// Returns whether an error means that the path changed after it was looked at.
fn is_outdated(error: &std::io::Error, create: Create) -> bool {
    match create {
        Create::New | Create::Temporary => error.raw_os_error() == Some(libc::EEXIST),
        Create::No | Create::IfMissing => error.raw_os_error() == Some(libc::ENOENT),
    }
}

/// Refuses options that a block device does not support.
pub(crate) fn check_device(path: &Path, open: &OpenOptions) -> Result<()> {
    let refuse = |what: &str, remedy: &str| {
        Err(Error::new(ErrorKind::Unsupported, what).at_path(path).remedy(remedy.to_owned()))
    };
    if open.append {
        return refuse(
            "cannot append to a block device",
            "open it for writing, and write at an offset",
        );
    }
    if open.truncate {
        return refuse("cannot truncate a block device", "open it without truncate");
    }
    Ok(())
}

/// Opens a file, and retries a few times if a device is busy. The kernel may close the last
/// descriptor a moment after the handle, or the program, is gone.
pub(crate) fn open_patiently(path: &Path, how: &How) -> std::io::Result<Opened> {
    let mut left = DEVICE_TRIES;
    loop {
        let opened = OpenFile::open(path, how);
        assert!(left > 0, "an open would wait for a device for ever");
        left -= 1;
        match opened {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && left > 0 => {
                thread::sleep(Duration::from_millis(1));
            }
            opened => return opened,
        }
    }
}

/// Creates the error for a device that is in use elsewhere.
pub(crate) fn device_held(path: &Path) -> Error {
    let error = |what: &str| Error::new(ErrorKind::Busy, what).at_path(path);
    match files::mounted_at(path) {
        Some(point) => {
            error("the block device is mounted").remedy(format!("umount {}", point.display()))
        }
        None => error("another program has the block device open exclusively")
            .remedy("close it there; lsblk shows volumes and swap on it"),
    }
}
