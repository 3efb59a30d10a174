//! Opening a file that the program has opened already: another way to the same table.

use std::path::PathBuf;

use super::Engine;
use super::opening::{Found, Sought, Turn};
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::file::File;
use crate::core::open::Open;
use crate::platform::{Access, Kind};

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
    pub(crate) fn open_given(&self, given: Given, open: Open) -> Result<File> {
        let shared = &self.owner.shared;
        self.may_open(&given.path, &open)?;
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

fn check_given(given: &Given, open: &Open) -> Result<()> {
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
            "use Open::read or Open::write",
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
