//! Kinds of objects, in the protocol.

use rustix::fs::FileType;

/// Returns the kind as the protocol names it.
pub(crate) fn kind(of: FileType) -> fuser::FileType {
    match of {
        FileType::Directory => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
        FileType::CharacterDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        _ => fuser::FileType::RegularFile,
    }
}
