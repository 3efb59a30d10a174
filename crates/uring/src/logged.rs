//! Calls that an intent log needs of its files: reading and fdatasync on the calling thread, the
//! identity that outlives a restart, and the mark.

use std::io;

use rustix::fs::{AtFlags, StatxFlags, XattrFlags};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};

use crate::file::OpenFile;

/// The extended attribute of the mark.
const MARK: &str = "user.forebay.log";

/// Maximum of bytes of a mark.
const MARK_BYTES: usize = 256;

/// Nanoseconds of a second.
const SECOND: i64 = 1_000_000_000;

/// Attributes of a file that stay the same over a restart of the machine, and the time of its last
/// change. Times are nanoseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lasting {
    /// Inode number.
    pub inode: u64,
    /// Generation of the inode, if the file system reports one.
    pub generation: Option<u32>,
    /// Birth time, if the file system keeps one.
    pub born: Option<i64>,
    /// Time of the last change of content or attributes (`ctime`).
    pub changed: i64,
}

impl OpenFile {
    /// Reads until `into` is full, on the calling thread, in the current mode of the descriptor.
    ///
    /// # Errors
    /// The error of the kernel; `UnexpectedEof` if the file ends before.
    pub fn read_exact_at(&self, mut into: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !into.is_empty() {
            let count = retry_on_intr(|| rustix::io::pread(self, &mut *into, offset))?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            into = &mut into[count..];
            offset += count as u64;
        }
        Ok(())
    }

    /// Writes all of `data` at `offset`, durably (`RWF_DSYNC`): with FUA if the disk has it.
    /// Blocks. Interrupted and short writes are continued.
    ///
    /// # Errors
    /// As [`OpenFile::write_all_at`].
    pub fn write_all_durably_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        crate::file::write_all(data, offset, |data, offset| {
            let data = [io::IoSlice::new(data)];
            rustix::io::pwritev2(self, &data, offset, ReadWriteFlags::DSYNC)
        })
    }

    /// Makes the data of the file durable (`fdatasync`), but not its marks. Blocks.
    ///
    /// # Errors
    /// The error of the device.
    pub fn sync_data(&self) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::fdatasync(self))?)
    }

    /// Returns the attributes that identify the file after a restart.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn lasting(&self) -> io::Result<Lasting> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let found = rustix::fs::statx(self, "", AtFlags::EMPTY_PATH, wanted)?;
        let has_born = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
        let time = |seconds: i64, nanoseconds: u32| {
            seconds.saturating_mul(SECOND).saturating_add(i64::from(nanoseconds))
        };
        Ok(Lasting {
            inode: found.stx_ino,
            generation: self.generation(),
            born: has_born.then(|| time(found.stx_btime.tv_sec, found.stx_btime.tv_nsec)),
            changed: time(found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec),
        })
    }

    /// Returns the generation of the inode, which needs no privilege.
    fn generation(&self) -> Option<u32> {
        use std::os::fd::{AsFd as _, AsRawFd as _};
        let mut generation: libc::c_long = 0;
        let descriptor = self.as_fd().as_raw_fd();
        // SAFETY: the descriptor is open for the length of the call, and the command writes at most
        // a `long`.
        let result =
            unsafe { libc::ioctl(descriptor, libc::FS_IOC_GETVERSION, &raw mut generation) };
        // File systems write an `int` into the first half of it.
        (result == 0).then_some(generation as u32)
    }

    /// Returns the mark of the file, or `None` if it has none.
    ///
    /// # Errors
    /// The error of the kernel: `Unsupported` if the file system has no extended attributes.
    pub fn log_mark(&self) -> io::Result<Option<Vec<u8>>> {
        let mut mark = vec![0; MARK_BYTES];
        match rustix::fs::fgetxattr(self, MARK, &mut mark[..]) {
            Ok(length) => {
                mark.truncate(length);
                Ok(Some(mark))
            }
            Err(Errno::NODATA) => Ok(None),
            // Longer than any mark: not one that this version understands.
            Err(Errno::RANGE) => Ok(Some(Vec::new())),
            Err(error) => Err(error.into()),
        }
    }

    /// Stores the mark of the file. Only [`OpenFile::sync`] makes it durable.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn set_log_mark(&self, mark: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::fsetxattr(self, MARK, mark, XattrFlags::empty())?)
    }

    /// Removes the mark of the file.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn remove_log_mark(&self) -> io::Result<()> {
        match rustix::fs::fremovexattr(self, MARK) {
            Ok(()) | Err(Errno::NODATA) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns 16 random bytes of the kernel.
///
/// # Errors
/// The error of the kernel.
pub fn random_bytes() -> io::Result<[u8; 16]> {
    let mut bytes = [0_u8; 16];
    // SAFETY: the kernel writes at most 16 bytes, which `bytes` has.
    let count = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    // Up to 256 bytes are never given in part.
    if count == 16 { Ok(bytes) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::{Access, Create, How, Truncate};

    fn file(path: &std::path::Path) -> OpenFile {
        let how = How {
            access: Access::ReadWrite,
            create: Create::IfMissing,
            truncate: Truncate::Keep,
            mode: 0o600,
        };
        let file = OpenFile::open(path, &how).unwrap().file;
        file.set_direct(crate::direct::Mode::Buffered).unwrap();
        file
    }

    #[test]
    fn a_mark_stays_until_it_is_removed() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let file = file(&directory.path().join("file"));
        assert_eq!(file.log_mark().unwrap(), None);
        file.set_log_mark(b"one").unwrap();
        assert_eq!(file.log_mark().unwrap().as_deref(), Some(&b"one"[..]));
        file.sync().unwrap();
        file.remove_log_mark().unwrap();
        file.remove_log_mark().unwrap();
        assert_eq!(file.log_mark().unwrap(), None);
    }

    #[test]
    fn the_identity_of_a_file_stays_and_its_change_time_moves() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("file");
        let (one, other) = (file(&path), file(&directory.path().join("other")));
        let before = one.lasting().unwrap();
        assert!(before.born.is_some_and(|born| born <= before.changed));
        assert_ne!(before.inode, other.lasting().unwrap().inode);
        std::thread::sleep(std::time::Duration::from_millis(20));
        one.write_all_at(b"bytes", 3).unwrap();
        one.sync_data().unwrap();
        let after = file(&path).lasting().unwrap();
        assert!(after.changed > before.changed);
        assert_eq!(after, Lasting { changed: after.changed, ..before });
        let mut found = [0; 5];
        one.read_exact_at(&mut found, 3).unwrap();
        assert_eq!(&found, b"bytes");
        let error = one.read_exact_at(&mut found, 4).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn random_bytes_differ() {
        assert_ne!(random_bytes().unwrap(), random_bytes().unwrap());
    }
}
