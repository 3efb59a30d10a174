//! The second half of an open: a file that is in the table gets another handle, and a new one is
//! entered. A file that the program has opened itself comes here, too.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_cache::file::{Entry, Reserving};
use forebay_cache::{CachedFile, Liberties, Origin};
use forebay_lists::Until;

use crate::core::context::senders::Message;
use crate::core::engine::Engine;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::file::File;
use crate::core::inode::{Exclusion, Inode};
use crate::core::lease::{
    Claim, break_lease, claim, claim_shared, flush_what_was_there, lease_for_reading, look_at_lease,
};
use crate::core::open::close::{arm, is_writable, renew};
use crate::core::open::open_options::OpenOptions;
use crate::core::open::{Entering, Found, OpeningTurn, Sought, Strategy, check_device, find_holes};
use crate::core::shared::Shared;
use crate::core::space::reserving;
use crate::core::table::{AnyInode, Table};
use crate::platform::{Access, Direct, Identity, Kind, OpenFile, thread};

/// A file that the program has opened.
pub(crate) struct Given {
    pub(crate) file: OpenFile,
    /// Path for messages.
    pub(crate) path: PathBuf,
    /// Path that opens the same file again while `file` is open, even if it has no name left.
    pub(crate) again: PathBuf,
}

impl Engine {
    /// Opens a file that the program gave. Its descriptor is closed if the engine has the file open
    /// already, and after an error.
    pub(crate) fn open_given(&self, given: Given, options: &OpenOptions) -> Result<File> {
        let shared = &self.owner.shared;
        let open = self.may_open(&given.path, options)?;
        check_given(&given, &open)?;
        let Given { file, path, again } = given;
        let identity = file.identity();
        let turn = OpeningTurn::wait(shared, identity)?;
        let sought = Sought { path: &again, open: &open, is_made: false };
        let found = self.share(sought, identity).map_err(|error| error.at_path(&path))?;
        let inode = match found {
            Some(inode) => inode,
            None => self.open_new(&path, &open, Found { file, created: false, turn })?,
        };
        let opened = self.handle(inode, open);
        // Dropped if the engine was shut down meanwhile.
        shared.check()?;
        opened
    }
}

fn check_given(given: &Given, open: &OpenOptions) -> Result<()> {
    let Given { file, path, .. } = given;
    let refuse = |kind, what: &str, remedy: &str| {
        Err(Error::new(kind, what).at_path(path).remedy(remedy.to_owned()))
    };
    if file.kind() != Kind::Regular {
        return refuse(
            ErrorKind::Unsupported,
            "the descriptor is not of a regular file",
            "open a block device by its path, so that it is opened exclusively",
        );
    }
    if open.create_new {
        return refuse(
            ErrorKind::InvalidInput,
            "a file that is open already cannot be created",
            "open it without create_new",
        );
    }
    if open.write && file.access() == Access::Read {
        return refuse(
            ErrorKind::NotPermitted,
            "the descriptor is open for reading only",
            "open it for reading and writing",
        );
    }
    Ok(())
}

impl Strategy for Inode {
    const OTHERWISE: &'static str = "past the cache";

    fn of(inode: AnyInode) -> Option<Arc<Self>> {
        inode.cached()
    }

    fn enter(engine: &Engine, entering: Entering<'_>) -> Result<Arc<Self>> {
        let Entering { path, open, file, created, entry, target } = entering;
        let is_device = file.kind() == Kind::Block;
        let is_temporary = open.temporary && created;
        let known = Claim { is_created: created, is_promised: open.exclusive };
        let exclusion = match open.write {
            _ if is_device || is_temporary => Exclusion::Private,
            true => claim(&engine.owner.leases, &file, target, known)?,
            false => lease_for_reading(&engine.owner.leases, &file, target, known),
        };
        let liberties = exclusion.liberties();
        // Another program may have written to a file that was just created. Not to a temporary one.
        let length = match is_temporary {
            true => 0,
            false => file.length().map_err(Error::not_examined)?,
        };
        let is_new = created && length == 0;
        if liberties == Liberties::Exclusive && open.write && !is_device && !created {
            give_back_after_crash(path, &file, length);
        }
        let origin = match length {
            _ if is_device => Origin::Device(length),
            0 => Origin::Empty { entry },
            _ => Origin::Existing(length),
        };
        let mut cache = CachedFile::new(target, origin, liberties);
        cache.set_entry(entry);
        if liberties == Liberties::Exclusive && open.write && matches!(origin, Origin::Existing(_))
        {
            find_holes(&file, length, &mut cache);
        }
        cache.set_reserving(match (is_device, is_new) {
            (true, _) => Reserving::Off,
            (false, true) => engine.owner.shared.reserving(),
            (false, false) => reserving(&engine.owner.shared, &file, length),
        });
        let volume = engine.owner.shared.table().volume(file.identity().device, file.kind());
        // Without the lock of the table: this accesses the file system.
        let inode = Arc::new(Self::new(cache, file, volume, path.to_owned(), exclusion));
        arm(&inode, &engine.owner.shared);
        // Nobody looks for a temporary file after the death of its process.
        if !is_temporary {
            inode.enter_arena(&engine.owner.shared)?;
            if let Err(error) = inode.have_kept(&engine.owner.shared) {
                inode.lock().account.leave_arena();
                return Err(error);
            }
        }
        if let Err(error) = engine.insert(&inode) {
            engine.take_back(&inode);
            return Err(error);
        }
        look_at_lease(&engine.owner.shared, &inode);
        if !is_device && open.write {
            flush_what_was_there(&engine.owner.shared, &inode);
        }
        Ok(inode)
    }

    fn permit_writes(
        self: &Arc<Self>,
        engine: &Engine,
        path: &Path,
        open: &OpenOptions,
    ) -> Result<()> {
        engine.make_writable(self, path, open)?;
        claim_shared(&engine.owner.shared, &engine.owner.leases, self)
    }

    fn drop_handle(self: &Arc<Self>, shared: &Arc<Shared>) {
        shared.table().drop_handle(self.identity);
        shared.send(Message::Inode(Arc::clone(self)));
    }
}

impl Engine {
    /// Checks whether a file may be opened with these options on this thread. Returns the options
    /// for the handle.
    pub(crate) fn may_open(&self, path: &Path, options: &OpenOptions) -> Result<OpenOptions> {
        self.owner.shared.check()?;
        if thread::is_ours() {
            return Err(Error::new(
                ErrorKind::WouldDeadlock,
                "cannot open a file on a thread of the engine",
            ));
        }
        options.checked(path)
    }

    /// Returns a file that is already open here, for one more handle.
    pub(crate) fn share<S: Strategy>(
        &self,
        sought: Sought<'_>,
        identity: Identity,
    ) -> Result<Option<Arc<S>>> {
        let Sought { path, open, is_made } = sought;
        let shared = &self.owner.shared;
        let mut table = shared.table_unless_closing(identity);
        shared.check()?;
        let Some(found) = table.get(identity) else { return Ok(None) };
        let inode = S::of(found).ok_or_else(|| open_otherwise(path, S::OTHERWISE))?;
        table.add_handle(identity);
        if is_made {
            // Another open has entered the file that this one created, and its syncs make the entry
            // durable (`Creating`).
            table.unsynced.take(identity);
        }
        drop(table);
        let permitted = match inode.file.kind() {
            _ if open.create_new && !is_made => Err(already_there()),
            Kind::Block => check_device(path, open),
            _ => Ok(()),
        };
        let permitted = permitted
            .and_then(|()| if open.write { inode.permit_writes(self, path, open) } else { Ok(()) });
        if let Err(error) = permitted {
            inode.drop_handle(shared);
            return Err(error.at_path(path));
        }
        // Another thread may be waiting for the close of the previous last handle.
        inode.wake_closing();
        Ok(Some(inode))
    }

    /// Opens the file of an inode for writing if it is open for reading only.
    fn make_writable(&self, inode: &Arc<Inode>, path: &Path, open: &OpenOptions) -> Result<()> {
        let shared = &self.owner.shared;
        if is_writable(inode, shared) {
            return Ok(());
        }
        if inode.file.access() == Access::Read {
            // A read lease is in the way of our own open for writing, too. A device has none.
            let is_exclusive = inode.lock().cache.liberties() == Liberties::Exclusive;
            if is_exclusive && inode.needs_lease {
                break_lease(inode, shared);
            }
            Self::open_for_writing(path, open, &inode.file)?;
        }
        // The context registers the new descriptor once no request uses the old one. Then the old
        // one is closed, and does not prevent a lease.
        renew(inode, shared)?;
        inode.enter_arena(shared)?;
        inode.have_kept(shared).inspect_err(|_| inode.lock().account.leave_arena())
    }

    pub(crate) fn open_new<S: Strategy>(
        &self,
        path: &Path,
        open: &OpenOptions,
        found: Found,
    ) -> Result<Arc<S>> {
        let Found { mut file, created, turn: _turn } = found;
        let identity = file.identity();
        let entry = if open.temporary && created {
            Entry::Old
        } else {
            self.take_entry(path, &mut file, created)
        };
        if let Direct::Refused(reason) = file.direct() {
            tracing::warn!(
                path = %path.display(),
                reason,
                "direct I/O is not possible; the file is accessed through the kernel's cache"
            );
        }
        let target = self.owner.shared.table().new_target();
        let entered = S::enter(self, Entering { path, open, file, created, entry, target });
        if entered.is_err() {
            let mut table = self.owner.shared.table();
            table.free_target(target);
            table.keep_entry(identity, entry);
        }
        entered.map_err(|error| error.at_path(path))
    }

    /// Returns whether the directory entry of a just opened file still has to be made durable. If
    /// so, from now on the file holds the directory to flush. The caller must flush it or hand the
    /// entry back to [`Table::keep_entry`].
    fn take_entry(&self, path: &Path, file: &mut OpenFile, created: bool) -> Entry {
        if created {
            return Entry::New;
        }
        // The table's lock is released before `made_at` opens the directory.
        let is_unsynced = file.kind() == Kind::Regular
            && self.owner.shared.table().unsynced.take(file.identity());
        if !is_unsynced {
            return Entry::Old;
        }
        file.made_at(path);
        Entry::New
    }

    /// Enters a file with one handle into the table, and gives it to a context.
    ///
    /// # Errors
    /// `Shutdown` once the engine stops. A shutdown lists the table after setting that state, and
    /// would not write out a file entered later.
    fn insert(&self, inode: &Arc<Inode>) -> Result<()> {
        let mut table = self.owner.shared.table();
        self.owner.shared.check()?;
        self.insert_into(&mut table, inode);
        Ok(())
    }

    pub(crate) fn insert_into(&self, table: &mut Table, inode: &Arc<Inode>) {
        let mut state = inode.lock();
        assert!(state.service.is_young(), "two contexts would write the same file");
        // Set again: it may have changed meanwhile for all files in the table.
        state.cache.change_reserving(self.owner.shared.reserving());
        drop(state);
        let entered = AnyInode::Cached(Arc::clone(inode));
        let attach = Message::Attach(entered.clone());
        inode
            .placement
            .set_context(self.owner.shared.contexts.place(&inode.placement, &inode.volume));
        self.owner.shared.contexts.send_quietly(inode, attach, Until::Message);
        table.insert(entered);
    }

    /// Removes a file from the arena and the keeper, because it is not entered after all.
    fn take_back(&self, inode: &Inode) {
        let mut state = inode.lock();
        let generation = state.account.generation();
        state.account.leave_arena();
        drop(state);
        if let (Some(keeper), Some(generation)) = (&self.owner.shared.keeper, generation) {
            keeper.remove(inode.target.0, generation);
        }
    }
}

fn already_there() -> Error {
    let there = std::io::Error::from_raw_os_error(libc::EEXIST);
    Error::new(ErrorKind::AlreadyExists, "could not create the file").because(there)
}

pub(super) fn only_for_reading() -> Error {
    let what = "the device is open for reading, and could not be opened for writing";
    Error::new(ErrorKind::NotPermitted, what).remedy("close its handles, then open it for writing")
}

fn open_otherwise(path: &Path, how: &str) -> Error {
    Error::new(ErrorKind::Busy, format!("the file is open {how} in this engine"))
        .at_path(path)
        .remedy("close its handles first; a file is open either cached or direct")
}

/// Gives back space beyond the end that a crash left reserved. The mark says that it was ours.
pub(crate) fn give_back_after_crash(path: &Path, file: &OpenFile, length: u64) {
    if !matches!(file.reservation_mark(), Ok(Some(_))) {
        return;
    }
    let given_back = file.truncate(length).and_then(|()| file.remove_reservation_mark());
    match given_back {
        Ok(()) => tracing::info!(path = %path.display(), "gave back space reserved before a crash"),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "could not give back reserved space");
        }
    }
}

pub(super) fn not_served(path: &Path) -> Error {
    Error::new(ErrorKind::Unsupported, "neither a regular file nor a block device")
        .at_path(path)
        .remedy("use std::fs for directories, pipes, sockets and character devices")
}

pub(super) fn add_open_remedy(error: Error, cause: &std::io::Error) -> Error {
    match cause.raw_os_error() {
        Some(libc::EACCES) => {
            error.remedy("writing needs read permission, too: a partly written page is read first")
        }
        Some(libc::EPERM) => error.remedy(
            "lsattr shows the attributes: a file that may only be appended to cannot be used, \
             because the engine rewrites its last block; use std::fs",
        ),
        Some(libc::EROFS) => error.remedy("the file system is read-only: open it for reading"),
        Some(libc::EWOULDBLOCK) => {
            error.remedy("another program holds a lease on the file and does not release it")
        }
        _ => error,
    }
}

pub(super) fn copy(error: &std::io::Error) -> std::io::Error {
    error
        .raw_os_error()
        .map_or_else(|| std::io::Error::other(error.to_string()), std::io::Error::from_raw_os_error)
}
