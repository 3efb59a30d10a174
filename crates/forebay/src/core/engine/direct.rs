//! Direct I/O of the engine: opening of direct files, buffers, plugs.
//!
//! A file is open in one engine either through the cache or past it (`open/mod.rs`). Direct writes
//! could inform the cache, but that would not be enough. A dirty page and a direct write of a part
//! of it have no order that both callers would accept.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use forebay_cache::file::Entry;

use crate::core::context::senders::Message;
use crate::core::direct::buffer::Buffer;
use crate::core::direct::direct_file::DirectFile;
use crate::core::direct::direct_inode::{DirectInode, Handle};
use crate::core::direct::operation::{Bytes, Operation, Verb};
use crate::core::direct::plug::Plug;
use crate::core::direct::transfer::Asked;
use crate::core::engine::Engine;
use crate::core::engine::owner::{Owner, wait_for};
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::lease::lock_out_engines;
use crate::core::open::common::Common;
use crate::core::open::open_options::OpenOptions;
use crate::core::open::{Entering, Strategy};
use crate::core::shared::Shared;
use crate::core::table::AnyInode;
use crate::platform::{Access, Kind};

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
        let inode = self.find(path, &open)?;
        let (shared, is_cut) = (Arc::clone(&self.owner.shared), open.truncate);
        let file = DirectFile::new(shared, inode, open);
        if is_cut && file.len() > 0 {
            file.set_len(0).wait()?;
        }
        Ok(file)
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

impl Strategy for DirectInode {
    const OTHERWISE: &'static str = "through the cache";

    fn of(inode: AnyInode) -> Option<Arc<Self>> {
        inode.direct()
    }

    fn enter(engine: &Engine, entering: Entering<'_>) -> Result<Arc<Self>> {
        let Entering { path, open, file, entry, target, .. } = entering;
        if open.write && file.kind() == Kind::Regular {
            lock_out_engines(&file)?;
        }
        let length = file.length().map_err(Error::not_examined)?;
        let shared = &engine.owner.shared;
        let mut table = shared.table();
        shared.check()?;
        let aside = table.aside(file.identity().device, file.kind());
        let (path, created) = (path.to_owned(), entry == Entry::New);
        let inode = Arc::new(Self::new(Common::new(target, path, file, aside), created, length));
        let entered = AnyInode::Direct(Arc::clone(&inode));
        // Under the lock, so that no operation precedes it.
        shared.send(Message::Attach(entered.clone()));
        table.insert(entered);
        Ok(inode)
    }

    /// The context gets the message about a new descriptor before any write of the new handle.
    fn permit_writes(
        self: &Arc<Self>,
        engine: &Engine,
        path: &Path,
        open: &OpenOptions,
    ) -> Result<()> {
        if self.file.access() == Access::Read {
            Engine::open_for_writing(path, open, &self.file)?;
            engine.owner.shared.send(Message::Renew(AnyInode::Direct(Arc::clone(self))));
        } else if self.file.kind() == Kind::Regular {
            lock_out_engines(&self.file)?;
        }
        Ok(())
    }

    fn drop_handle(self: &Arc<Self>, shared: &Arc<Shared>) {
        shared.table().drop_handle(self.identity);
        shared.send(Message::Leave(Arc::clone(self), Arc::new(Handle::new(shared))));
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
            let inode = Arc::clone(&operation.inode);
            (inode, Asked::submit(&self.shared, operation))
        };
        let asked: Vec<_> = operations.into_iter().map(submit).collect();
        let wait = |(inode, asked): (Arc<DirectInode>, Asked)| {
            wait_for(&inode, async { asked.await.0.map(|_| ()) }, deadline)
        };
        asked.into_iter().map(wait).fold(Ok(()), Result::and)
    }
}
