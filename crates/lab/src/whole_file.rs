//! A file that is written in full or not at all: the older one stays until it is complete.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::Access;

/// Lets `write` fill the file at a path. A pipe or a device is written to, not replaced; a link stays one, and a
/// file as readable as it was. Blocks until it is on the disk.
pub fn write(path: &Path, write: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let before = fs::metadata(path).ok();
    if before.as_ref().is_some_and(|data| !data.is_file()) {
        return write(&File::options().write(true).open(path)?);
    }
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let file = tempfile::Builder::new()
        .prefix(".forebay-")
        // The user's umask decides, as for any other file.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(directory_of(&path))?;
    write(file.as_file())?;
    if let Some(before) = before {
        file.as_file().set_permissions(before.permissions())?;
    }
    file.as_file().sync_data()?;
    file.persist(&path).map(drop).map_err(|error| error.error)
}

/// Checks whether [`write()`] should succeed, as far as known beforehand.
///
/// # Errors
///
/// Why not: the directory belongs to another user, or the file system is read-only.
pub fn may_be_written(path: &Path) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|data| !data.is_file()) {
        return Ok(rustix::fs::access(path, Access::WRITE_OK)?);
    }
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    Ok(rustix::fs::access(directory_of(&path), Access::WRITE_OK)?)
}

/// Returns the directory that a file is in, as its path has it.
pub fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_was_there_stays_until_it_is_complete() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("page");
        write(&path, |mut file| file.write_all(b"old")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let full = |mut file: &File| {
            file.write_all(b"ne")?;
            Err(io::ErrorKind::StorageFull.into())
        };
        assert_eq!(write(&path, full).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write(&link, |mut file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(
            may_be_written(&path).is_ok() && may_be_written(&directory.path().join("new")).is_ok()
        );
        let nowhere = may_be_written(&directory.path().join("none/new")).unwrap_err();
        assert_eq!(nowhere.kind(), io::ErrorKind::NotFound);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "nothing else is left");
    }
}
