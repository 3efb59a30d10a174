//! The second half of an open: a file that is in the table gets another handle, and a new one is
//! entered. A file that the program has opened itself comes here, too.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_block::Target;
use forebay_cache::file::{Entry, Reserving};
use forebay_cache::limits::PAGE;
use forebay_cache::{CachedFile, Liberties, Origin};
use forebay_lists::Until;

use crate::core::context::senders::Message;
use crate::core::engine::Engine;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::file::File;
use crate::core::inode::{Hold, Inode};
use crate::core::lease::claim::Claim;
use crate::core::open::options::OpenOptions;
use crate::core::open::{Found, Sought, Turn, check_device, find_holes};
use crate::core::table::Table;
use crate::platform::{Access, Identity, Kind, thread};

/// A file that the program has opened.
pub(crate) struct Given {
    pub(crate) file: crate::platform::OpenFile,
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
        let turn = Turn::wait(shared, identity)?;
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
    pub(crate) fn share(
        &self,
        sought: Sought<'_>,
        identity: Identity,
    ) -> Result<Option<Arc<Inode>>> {
        let Sought { path, open, is_made } = sought;
        let mut table = self.owner.shared.table_unless_closing(identity);
        self.owner.shared.check()?;
        if table.is_direct(identity) {
            return Err(open_otherwise(path, "past the cache"));
        }
        let Some(inode) = table.share(identity) else { return Ok(None) };
        if is_made {
            // Another open has entered the file that this one created, and its syncs make the entry
            // durable (`Creating`).
            table.unsynced.take(identity);
        }
        drop(table);
        let refused = if open.create_new && !is_made {
            Some(already_there())
        } else if inode.file.kind() == Kind::Block
            && let Err(error) = check_device(path, open)
        {
            Some(error)
        } else if open.write {
            self.make_writable(&inode, path, open).and_then(|()| self.claim_shared(&inode)).err()
        } else {
            None
        };
        match refused {
            None => {
                // Another thread may be waiting for the close of the previous last handle.
                inode.wake_all();
                Ok(Some(inode))
            }
            Some(error) => {
                let mut table = self.owner.shared.table();
                table.drop_handle(identity);
                drop(table);
                self.owner.shared.send(Message::Inode(inode));
                Err(error.at_path(path))
            }
        }
    }

    /// Opens the file of an inode for writing if it is open for reading only.
    pub(crate) fn make_writable(
        &self,
        inode: &Arc<Inode>,
        path: &Path,
        open: &OpenOptions,
    ) -> Result<()> {
        let shared = &self.owner.shared;
        if inode.is_writable(shared) {
            return Ok(());
        }
        if inode.file.access() == Access::Read {
            // A read lease is in the way of our own open for writing, too. A device has none.
            let is_exclusive = inode.lock().cache.liberties() == Liberties::Exclusive;
            if is_exclusive && inode.needs_lease {
                inode.break_lease(shared);
            }
            let file = Self::open_for_writing(path, open, &inode.file)?;
            inode.file.make_writable(file).map_err(cannot_look)?;
        }
        // The context registers the new descriptor once no request uses the old one. Then the old
        // one is closed, and does not prevent a lease.
        inode.renew(shared)?;
        inode.enter_arena(shared)?;
        inode.have_kept(shared).inspect_err(|_| inode.lock().leave_arena(shared))
    }

    pub(crate) fn open_new(
        &self,
        path: &Path,
        open: &OpenOptions,
        found: Found,
    ) -> Result<Arc<Inode>> {
        let Found { mut file, created, turn: _turn } = found;
        let identity = file.identity();
        let entry = if open.temporary && created {
            Entry::Old
        } else {
            self.take_entry(path, &mut file, created)
        };
        let target = self.owner.shared.table().new_target();
        let entered = self.enter(path, open, file, (created, entry), target);
        if entered.is_err() {
            self.owner.shared.table().free_target(target);
            self.keep_entry(identity, entry);
        }
        entered
    }

    /// Returns whether the directory entry of a just opened file still has to be made durable. If
    /// so, from now on the file holds the directory to flush. The caller must flush it or hand the
    /// entry back to [`Engine::keep_entry`].
    pub(crate) fn take_entry(
        &self,
        path: &Path,
        file: &mut crate::platform::OpenFile,
        created: bool,
    ) -> Entry {
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

    /// Remembers an entry that was taken by an open that failed afterwards.
    pub(crate) fn keep_entry(&self, identity: Identity, entry: Entry) {
        if entry == Entry::New {
            self.owner.shared.table().unsynced.remember(identity);
        }
    }

    fn enter(
        &self,
        path: &Path,
        open: &OpenOptions,
        file: crate::platform::OpenFile,
        (created, entry): (bool, Entry),
        target: Target,
    ) -> Result<Arc<Inode>> {
        let at_path = |error: Error| error.at_path(path);
        let is_device = file.kind() == Kind::Block;
        let is_temporary = open.temporary && created;
        let claim = Claim { is_created: created, is_promised: open.exclusive };
        let hold = match open.write {
            _ if is_device || is_temporary => Hold::Private,
            true => self.claim(&file, target, claim).map_err(at_path)?,
            false => self.lease_for_reading(&file, target, claim),
        };
        let liberties = hold.liberties();
        // Another program may have written to a file that was just created. Not to a temporary one.
        let length = match is_temporary {
            true => 0,
            false => file.length().map_err(cannot_look).map_err(at_path)?,
        };
        let is_new = created && length == 0;
        if liberties == Liberties::Exclusive && open.write && !is_device && !created {
            give_back_after_crash(path, &file, length);
        }
        if let crate::platform::Direct::Refused(reason) = file.direct() {
            tracing::warn!(
                path = %path.display(),
                reason,
                "direct I/O is not possible; the file is accessed through the kernel's cache"
            );
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
            (false, true) => self.owner.shared.reserving(),
            (false, false) => self.reserving(&file, length),
        });
        let volume = self.owner.shared.table().volume(file.identity().device, file.kind());
        // Without the lock of the table: this accesses the file system.
        let inode = Arc::new(Inode::new(cache, file, volume, path.to_owned(), hold));
        inode.arm(&self.owner.shared);
        // Nobody looks for a temporary file after the death of its process.
        if !is_temporary {
            inode.enter_arena(&self.owner.shared).map_err(at_path)?;
            if let Err(error) = inode.have_kept(&self.owner.shared) {
                inode.lock().leave_arena(&self.owner.shared);
                return Err(at_path(error));
            }
        }
        if let Err(error) = self.insert(&inode) {
            self.take_back(&inode);
            return Err(error);
        }
        self.look_at_lease(&inode);
        if !is_device && open.write {
            self.flush_what_was_there(&inode);
        }
        Ok(inode)
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
        // Set again: it may have changed meanwhile for all files in the table.
        state.cache.change_reserving(self.owner.shared.reserving());
        drop(state);
        inode.home.set_context(self.owner.shared.contexts.place(&inode.home, &inode.volume));
        let attach = Message::Attach(Arc::clone(inode));
        self.owner.shared.contexts.send_quietly(inode, attach, Until::Message);
        table.insert(Arc::clone(inode));
    }

    /// Removes a file from the arena and the keeper, because it is not entered after all.
    fn take_back(&self, inode: &Inode) {
        let mut state = inode.lock();
        let generation = state.generation();
        state.leave_arena(&self.owner.shared);
        drop(state);
        if let (Some(keeper), Some(generation)) = (&self.owner.shared.keeper, generation) {
            keeper.remove(inode.target.0, generation);
        }
    }

    /// Returns how space may be reserved in an existing file. Space beyond its end belongs to the
    /// user, and could not be distinguished from ours when that is given back.
    pub(crate) fn reserving(&self, file: &crate::platform::OpenFile, length: u64) -> Reserving {
        let beyond = length.next_multiple_of(PAGE);
        match file.has_space_from(beyond) {
            Ok(false) => self.owner.shared.reserving(),
            _ => Reserving::Off,
        }
    }
}

pub(crate) fn already_there() -> Error {
    let there = std::io::Error::from_raw_os_error(libc::EEXIST);
    Error::new(ErrorKind::AlreadyExists, "could not create the file").because(there)
}

pub(super) fn only_for_reading() -> Error {
    let what = "the device is open for reading, and could not be opened for writing";
    Error::new(ErrorKind::NotPermitted, what).remedy("close its handles, then open it for writing")
}

pub(crate) fn open_otherwise(path: &Path, how: &str) -> Error {
    Error::new(ErrorKind::Busy, format!("the file is open {how} in this engine"))
        .at_path(path)
        .remedy("close its handles first; a file is open either cached or direct")
}

/// Gives back space beyond the end that a crash left reserved. The mark says that it was ours.
pub(crate) fn give_back_after_crash(path: &Path, file: &crate::platform::OpenFile, length: u64) {
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
        .remedy("use std::fs for pipes, sockets and character devices")
}

pub(crate) fn cannot_look(error: std::io::Error) -> Error {
    Error::new(ErrorKind::at_open(&error), "could not examine the file").because(error)
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
