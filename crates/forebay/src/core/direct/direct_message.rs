//! Messages to the context about files that are open past the cache.

use std::sync::Arc;

use crate::core::direct::direct_inode::DirectInode;
use crate::core::direct::handle::Handle;
use crate::core::direct::held::Held;
use crate::core::direct::operation::Operation;

/// A message about a direct file.
#[derive(Debug)]
pub(crate) enum Message {
    /// A file was opened.
    Attach(Arc<DirectInode>),
    /// The descriptor of this file was replaced.
    Renew(Arc<DirectInode>),
    /// Start this operation as soon as the order allows.
    Operation(Box<Operation>),
    /// A thread holds operations back, or releases them.
    Plugged(Arc<Held>),
    /// A handle was dropped.
    Leave(Arc<DirectInode>, Arc<Handle>),
    /// A dropped handle has an error that no caller will ask for.
    Lost(Arc<Handle>),
}
