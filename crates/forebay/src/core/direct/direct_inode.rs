//! State of a direct file that its handles and the context share.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_block::Errno;

use crate::core::error::{Error, ErrorKind};
use crate::core::open::common::Common;
use crate::core::share::subtract;
use crate::platform::{Alignment, Kind};

/// A direct file. Its length is stored only here, for all handles and the context.
#[derive(Debug)]
pub(crate) struct DirectInode {
    common: Common,
    pub(crate) alignment: Alignment,
    /// Whether this engine created it, now or at an earlier open, so that its directory has to be
    /// synced with it.
    pub(crate) created: bool,
    /// Length in bytes, with every write that has ended. Only the context changes it.
    length: AtomicU64,
    /// Number of operations that have not ended, including those held by plugs.
    operations: AtomicU64,
}

impl Deref for DirectInode {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}

impl DirectInode {
    pub(crate) fn new(common: Common, created: bool, length: u64) -> Self {
        let alignment = common.file.alignment();
        Self {
            common,
            alignment,
            created,
            length: AtomicU64::new(length),
            operations: AtomicU64::new(0),
        }
    }

    /// Returns the block size in bytes. Parts of blocks are read, changed and written.
    pub(crate) fn block(&self) -> u64 {
        u64::from(self.alignment.offset.max(self.alignment.memory))
    }

    /// Returns whether it is a block device, which has a fixed length.
    pub(crate) fn is_device(&self) -> bool {
        self.file.kind() == Kind::Block
    }

    pub(crate) fn length(&self) -> u64 {
        self.length.load(Ordering::Acquire)
    }

    pub(crate) fn set_length(&self, length: u64) {
        self.length.store(length, Ordering::Release);
    }

    pub(crate) fn add_operation(&self) {
        self.operations.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove_operation(&self) {
        subtract(&self.operations, 1, Ordering::Release, "an operation ends once");
    }

    /// Returns whether operations of the file have not ended, wherever they are.
    pub(crate) fn has_operations(&self) -> bool {
        self.operations.load(Ordering::Acquire) > 0
    }

    pub(crate) fn failed(&self, what: &str, offset: u64, errno: Errno) -> Error {
        let cause = std::io::Error::from_raw_os_error(errno.0);
        Error::new(ErrorKind::at_device(&cause), what)
            .at_path(&self.path)
            .at_offset(offset)
            .because(cause)
    }
}
