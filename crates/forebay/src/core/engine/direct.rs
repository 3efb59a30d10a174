//! Direct I/O of the engine: opening of direct files, buffers, plugs.
//!
//! A file is open in one engine either through the cache or past it. Direct writes could inform the
//! cache, but that would not be enough. A dirty page and a direct write of a part of it have no
//! order that both callers would accept.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use forebay_cache::file::Entry;

use crate::core::context::senders::Message;
use crate::core::direct::buffer::Buffer;
use crate::core::direct::direct_file::DirectFile;
use crate::core::direct::direct_inode::{DirectInode, Opened};
use crate::core::direct::direct_message;
use crate::core::direct::handle::Handle;
use crate::core::direct::operation::{Bytes, Operation, Verb};
use crate::core::direct::plug::{self, Plug};
use crate::core::direct::transfer::Asked;
use crate::core::engine::Engine;
use crate::core::engine::owner::Owner;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::lease::claim::lock_out_engines;
use crate::core::open::enter::{already_there, cannot_look, open_otherwise};
use crate::core::open::options::OpenOptions;
use crate::core::open::{Found, Sought, check_device};
use crate::core::wait;
use crate::platform::{Access, Identity, Kind};

impl Engine {
    /// Opens a file for direct I/O, past the cache; see [`DirectFile`]. Blocks as [`Engine::open`].
    ///
    /// # Errors
    /// As [`Engine::open`]; also `Busy` if this engine has the file open through the cache, and
    /// `InvalidInput` for [`OpenOptions::append`].
    pub fn open_direct(&self, path: impl AsRef<Path>, options: &OpenOptions) -> Result<DirectFile> {
        let path = path.as_ref();
        let open = self.may_open(path, options)?;
        if open.append {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "cannot open a direct handle for appending",
            )
            .at_path(path)
            .remedy("open it for writing, and write at DirectFile::len"));
        }
        let file = self.open_past(path, open);
        // The file is dropped if the engine was shut down meanwhile.
        self.owner.shared.check()?;
        file
    }

    fn open_past(&self, path: &Path, open: OpenOptions) -> Result<DirectFile> {
        let inode = self.find(
            path,
            &open,
            |sought, identity| self.share_direct(sought, identity),
            |found| self.open_new_direct(path, &open, found),
        )?;
        let (shared, is_cut) = (Arc::clone(&self.owner.shared), open.truncate);
        let file = DirectFile::new(shared, inode, open);
        if is_cut && file.len() > 0 {
            file.set_len(0).wait()?;
        }
        Ok(file)
    }

    /// Returns a file that is already open here for direct I/O.
    fn share_direct(
        &self,
        sought: Sought<'_>,
        identity: Identity,
    ) -> Result<Option<Arc<DirectInode>>> {
        let Sought { path, open, is_made } = sought;
        let mut table = self.owner.shared.table_unless_closing(identity);
        self.owner.shared.check()?;
        if table.is_cached(identity) {
            return Err(open_otherwise(path, "through the cache"));
        }
        if !table.is_direct(identity) {
            return Ok(None);
        }
        if open.create_new && !is_made {
            return Err(already_there().at_path(path));
        }
        let inode = table.share_direct(identity).expect("looked at under the lock");
        if is_made {
            // As for a cached file, the open that entered it makes the entry durable.
            table.unsynced.take(identity);
        }
        drop(table);
        let refused = match open.write {
            true if inode.file.access() == Access::Read => {
                self.make_direct_writable(&inode, path, open)
            }
            _ if inode.file.kind() == Kind::Block => check_device(path, open),
            true => lock_out_engines(&inode.file),
            false => Ok(()),
        };
        if let Err(error) = refused {
            // The other handles may have been closed meanwhile, so this drop may be the last.
            drop(DirectFile::new(Arc::clone(&self.owner.shared), inode, open.clone()));
            return Err(error.at_path(path));
        }
        // Another thread may be waiting for the close of the previous last handle.
        inode.wake_all();
        Ok(Some(inode))
    }

    /// Replaces the descriptor of a file by a writable one. The context gets the message before any
    /// write of the new handle.
    fn make_direct_writable(
        &self,
        inode: &Arc<DirectInode>,
        path: &Path,
        open: &OpenOptions,
    ) -> Result<()> {
        let file = Self::open_for_writing(path, open, &inode.file)?;
        inode.file.make_writable(file).map_err(cannot_look)?;
        self.send_direct(direct_message::Message::Renew(Arc::clone(inode)));
        Ok(())
    }

    fn send_direct(&self, message: direct_message::Message) {
        self.owner.shared.send(Message::Direct(message));
    }

    fn open_new_direct(
        &self,
        path: &Path,
        open: &OpenOptions,
        found: Found,
    ) -> Result<Arc<DirectInode>> {
        let Found { mut file, created, turn: _turn } = found;
        let identity = file.identity();
        let entry = self.take_entry(path, &mut file, created);
        let entered = self.enter_direct(path, open, file, entry);
        if entered.is_err() {
            self.keep_entry(identity, entry);
        }
        entered
    }

    fn enter_direct(
        &self,
        path: &Path,
        open: &OpenOptions,
        file: crate::platform::OpenFile,
        entry: Entry,
    ) -> Result<Arc<DirectInode>> {
        if open.write && file.kind() == Kind::Regular {
            lock_out_engines(&file).map_err(|error| error.at_path(path))?;
        }
        if let crate::platform::Direct::Refused(reason) = file.direct() {
            tracing::warn!(
                path = %path.display(),
                reason,
                "direct I/O is not possible; the file is accessed through the kernel's cache"
            );
        }
        let length = file.length().map_err(|error| cannot_look(error).at_path(path))?;
        let identity = file.identity();
        let mut table = self.owner.shared.table();
        self.owner.shared.check()?;
        let target = table.new_target();
        let created = entry == Entry::New;
        let aside = table.aside(identity.device, file.kind());
        let inode = Arc::new(DirectInode::new(Opened {
            target,
            path: path.to_owned(),
            file,
            created,
            length,
            aside,
        }));
        // Under the lock, so that no operation precedes it.
        self.send_direct(direct_message::Message::Attach(Arc::clone(&inode)));
        table.insert_direct(Arc::clone(&inode));
        Ok(inode)
    }

    /// Returns a buffer of `bytes` bytes from the pool of the engine, aligned for direct I/O. Does
    /// not block.
    ///
    /// Its content is unspecified.
    ///
    /// # Errors
    /// `NoMemory` if the pool has no contiguous room of that size.
    pub fn buffer(&self, bytes: usize) -> Result<Buffer> {
        self.owner.shared.check()?;
        let pool = &self.owner.shared.buffers;
        pool.take(bytes).map(Buffer::new).ok_or_else(|| {
            Error::new(ErrorKind::NoMemory, format!("no {bytes} bytes left in the buffer pool"))
                .remedy(format!("drop buffers, or raise `buffer_bytes` ({} now)", pool.bytes()))
        })
    }

    /// Holds back the direct operations of this thread until the returned guard is dropped, to
    /// submit them together; see [`Plug`].
    pub fn plug(&self) -> Plug {
        Plug::new(&self.owner.shared)
    }
}

impl Owner {
    /// Waits for the operations of every direct file. Their errors are reported to the callers that
    /// submitted them.
    pub(super) fn settle_direct(&self, deadline: Option<Instant>) -> Result<()> {
        let handle = Arc::new(Handle::new(&self.shared));
        let make = |inode| Operation::new(&inode, &handle, Verb::Settle, Bytes::default());
        let table = self.shared.table();
        // Created under the lock of the table: a file in the table that has an operation stays
        // there.
        let operations: Vec<Operation> = table.direct_inodes().into_iter().map(make).collect();
        drop(table);
        let submit = |operation: Operation| {
            let asked =
                (Asked::new(&self.shared, operation.ticket()), Arc::clone(&operation.inode));
            plug::submit(&self.shared, operation);
            asked
        };
        let asked: Vec<(Asked, Arc<DirectInode>)> = operations.into_iter().map(submit).collect();
        let mut result = Ok(());
        for (asked, inode) in asked {
            let settled = async { asked.await.0.map(|_| ()) };
            let one = wait::block_on_until(settled, deadline)
                .unwrap_or_else(|| Err(Error::late(&inode.path)));
            result = result.and(one);
        }
        result
    }
}
