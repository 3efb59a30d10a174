//! An existing file or block device that the user has read in place of our own file. It is opened
//! for reading alone, so it may be mounted or in use; writes are refused before anything has run.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::load::guard::device_length;

/// A file or device that is only read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    path: PathBuf,
    bytes: u64,
}

impl Target {
    /// Opens the one at a path for reading.
    ///
    /// # Errors
    /// Why nothing can be read there, with what would do.
    pub fn look(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let failed = |error: std::io::Error| {
            format!("{shown}: {error} (give a file or device you may read)")
        };
        let path = fs::canonicalize(path).map_err(failed)?;
        let data = fs::metadata(&path).map_err(failed)?;
        let kind = data.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(format!("{shown}: neither a file nor a block device"));
        }
        File::open(&path).map_err(failed)?;
        let bytes = match kind.is_file() {
            true => data.len(),
            false => device_length(&path).map_err(|error| error.to_string())?,
        };
        if bytes == 0 {
            return Err(format!("{shown}: there is nothing in it to read"));
        }
        Ok(Self { path, bytes })
    }

    /// Returns its path without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Refuses one that is smaller than a block.
    pub(crate) fn holds(&self, block_bytes: u32) -> Result<(), String> {
        if self.bytes >= u64::from(block_bytes) {
            return Ok(());
        }
        Err(format!("{self} has {} bytes, less than a block of {block_bytes}", self.bytes))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_read_is_a_target() {
        let directory = tempfile::tempdir().unwrap();
        let (file, empty) = (directory.path().join("file"), directory.path().join("empty"));
        fs::write(&file, [1; 8192]).unwrap();
        fs::write(&empty, []).unwrap();
        let target = Target::look(&file).unwrap();
        assert_eq!((target.bytes(), target.holds(8192)), (8192, Ok(())));
        assert!(target.holds(16_384).unwrap_err().contains("less than a block"));
        for (path, expected) in [
            (empty.as_path(), "nothing in it"),
            (directory.path(), "neither a file"),
            (Path::new("/dev/null"), "neither a file"),
            (Path::new("/no/such"), "No such file"),
        ] {
            let refused = Target::look(path).unwrap_err();
            assert!(refused.contains(expected), "{refused}");
        }
    }
}
