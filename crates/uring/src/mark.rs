//! The mark of a file: how far space was reserved, so that the next open after a crash gives it
//! back.

use std::io;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::file::OpenFile;

/// The extended attribute that has it.
const RESERVATION_MARK: &str = "user.forebay.reserved";

impl OpenFile {
    /// Returns the end of the space that an engine reserved and did not give back before a crash,
    /// from an extended attribute of the file.
    ///
    /// # Errors
    /// The error of the kernel: `Unsupported` if the file system has no extended attributes.
    pub fn reservation_mark(&self) -> io::Result<Option<u64>> {
        let mut text = [0; 20];
        match rustix::fs::fgetxattr(self, RESERVATION_MARK, &mut text[..]) {
            Ok(length) => {
                Ok(std::str::from_utf8(&text[..length]).ok().and_then(|text| text.parse().ok()))
            }
            // Longer than any number of 64 bits: not ours.
            Err(Errno::NODATA | Errno::RANGE) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Stores the end of the reserved space in an extended attribute of the file.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn set_reservation_mark(&self, end: u64) -> io::Result<()> {
        let text = end.to_string();
        Ok(rustix::fs::fsetxattr(self, RESERVATION_MARK, text.as_bytes(), XattrFlags::empty())?)
    }

    /// Removes the extended attribute that marks reserved space.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn remove_reservation_mark(&self) -> io::Result<()> {
        match rustix::fs::fremovexattr(self, RESERVATION_MARK) {
            Ok(()) | Err(Errno::NODATA) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
