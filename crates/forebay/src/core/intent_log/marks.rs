//! Identities and marks of open files.

use std::io;
use std::time::Duration;

use forebay_log::{FileId, Mark, Wall};

use crate::platform::{Lasting, OpenFile, clock};

/// The mark of a file, as it was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Marked {
    /// The file has no mark.
    Not,
    /// The file has an attribute that is no mark of this version.
    Unknown,
    /// The mark. It may be of another log or another file.
    By(Mark),
}

/// Returns the identity of a file.
pub(crate) fn file_id(file: &OpenFile) -> io::Result<FileId> {
    Ok(id_of(&file.lasting()?))
}

/// Returns the identity of a file from its attributes.
pub(crate) fn id_of(lasting: &Lasting) -> FileId {
    let Lasting { inode, generation, born, .. } = *lasting;
    FileId { inode, generation, born: born.map(Wall) }
}

/// Returns the mark of a file.
///
/// # Errors
/// The error of the kernel: `Unsupported` if the file system has no extended attributes.
pub(crate) fn mark_of(file: &OpenFile) -> io::Result<Marked> {
    Ok(match file.log_mark()? {
        None => Marked::Not,
        Some(bytes) => Mark::decode(&bytes).map_or(Marked::Unknown, Marked::By),
    })
}

/// Stores the mark of a file and makes it durable (`fsync`; an fdatasync need not). Blocks.
///
/// # Errors
/// The error of the kernel. Either mark may be there after that.
pub(crate) fn set_mark(file: &OpenFile, mark: &Mark) -> io::Result<()> {
    file.set_log_mark(&mark.encode())?;
    file.sync()
}

/// Returns the time that a promise of this length from now on ends.
pub(crate) fn promise_of(length: Duration) -> Wall {
    Wall(clock::wall()).after(length.as_nanos() as i64)
}
