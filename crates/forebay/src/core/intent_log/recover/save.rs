//! Bytes that may not be put into their file are saved in another directory.
//!
//! `LOG-INODE-SEQUENCE` has the bytes at their offsets and holes between them.
//! `LOG-INODE-SEQUENCE.ranges` has the path of the file, and a line with offset and length for each
//! range. A repeated recovery writes the same files again.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use forebay_log::FilePlan;
use forebay_log::replay::Copy;

use super::super::file::LogFile;
use crate::core::error::{Error, Result};
use crate::platform::{Access, Create, How, OpenDirectory, OpenFile, Truncate};

/// Saves bytes of a file, durably. Returns the path of the copy.
pub(super) fn save(
    log: &mut LogFile,
    directory: &Path,
    plan: &FilePlan,
    path: &Path,
    copies: &[Copy],
) -> Result<PathBuf> {
    let id = log.id().to_string();
    let name = format!("{}-{}-{}", &id[..8], plan.file.inode, plan.last());
    let saved = directory.join(&name);
    let failed = |error| Error::at_open("could not save bytes of the intent log", &saved, error);
    let opened = OpenDirectory::open(directory).map_err(failed)?;
    write_bytes(log, &saved, copies).map_err(failed)?;
    let mut text = format!("{}\n", path.display());
    for copy in copies {
        let _ = writeln!(text, "{} {}", copy.offset, copy.length);
    }
    let listed = directory.join(name + ".ranges");
    open(&listed)
        .and_then(|file| {
            file.write_all_at(text.as_bytes(), 0)?;
            file.sync()
        })
        .map_err(failed)?;
    opened.sync().map_err(failed)?;
    Ok(saved)
}

fn write_bytes(log: &mut LogFile, saved: &Path, copies: &[Copy]) -> io::Result<()> {
    let file = open(saved)?;
    copies.iter().try_for_each(|copy| log.copy_to(&file, copy, || Ok(())))?;
    file.sync()
}

fn open(path: &Path) -> io::Result<OpenFile> {
    let how = How {
        access: Access::ReadWrite,
        create: Create::IfMissing,
        truncate: Truncate::Cut,
        mode: 0o600,
    };
    let mut file = OpenFile::open(path, &how)?.file;
    file.go_buffered()?;
    Ok(file)
}
