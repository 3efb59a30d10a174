//! Writing frames to a file on the calling thread, anywhere in the arena: the way that remains
//! without a ring, after the program that had it has died.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};

use forebay_block::Frame;
use forebay_block::limits::PAGE;
use rustix::io::retry_on_intr;

use crate::arena::Arena;
use crate::file::OpenFile;

/// Maximum of parts per call, which is the limit of the kernel.
pub const MOST_PARTS: usize = 1024;

/// Part of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The frame.
    pub frame: Frame,
    /// First byte of the part.
    pub at: usize,
    /// Number of bytes.
    pub length: usize,
}

impl OpenFile {
    /// Writes parts of frames contiguously at `offset`, in the current mode of the descriptor.
    /// Returns the number of bytes written, which may be less. Blocks. The caller ensures that the
    /// frames do not change meanwhile.
    ///
    /// # Errors
    /// The error of the kernel; interrupted calls are repeated.
    ///
    /// # Panics
    /// If a part is not within its frame, or there are more than [`MOST_PARTS`].
    pub fn write_frames_at(&self, arena: &Arena, parts: &[Part], offset: u64) -> io::Result<u64> {
        assert!(parts.len() <= MOST_PARTS, "{} parts in one call", parts.len());
        let vector = |part: &Part| {
            let end = part.at.checked_add(part.length);
            assert!(end.is_some_and(|end| end <= PAGE), "{part:?} is no part of a frame");
            libc::iovec {
                iov_base: arena.address(part.frame).wrapping_add(part.at).cast_mut().cast(),
                iov_len: part.length,
            }
        };
        let vectors: Vec<libc::iovec> = parts.iter().map(vector).collect();
        let offset =
            libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
        let (descriptor, count) = (self.as_fd(), vectors.len() as libc::c_int);
        loop {
            // SAFETY: every vector is within a frame of the arena, which is mapped as long as it is
            // borrowed here; the kernel alone reads there.
            let written =
                unsafe { libc::pwritev(descriptor.as_raw_fd(), vectors.as_ptr(), count, offset) };
            match u64::try_from(written) {
                Ok(written) => return Ok(written),
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Makes everything written to the file durable, including its size. Blocks.
    ///
    /// # Errors
    /// The error of the kernel; data written since the last successful call may then be lost.
    pub fn sync(&self) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::fsync(self))?)
    }

    /// Makes everything written to its file system durable, by any program. Blocks.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn sync_file_system(&self) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::syncfs(self))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::{Access, Create, How, Truncate};

    #[test]
    fn parts_of_frames_are_written_behind_each_other() {
        let arena = Arena::private(4).unwrap();
        for frame in 0..4 {
            let bytes = [b'a' + frame as u8; PAGE];
            // SAFETY: this thread alone knows the arena.
            unsafe { arena.copy_in(Frame(frame), 0, &bytes) };
        }
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("file");
        let how = How {
            access: Access::ReadWrite,
            create: Create::New,
            truncate: Truncate::Keep,
            mode: 0o600,
        };
        let file = OpenFile::open(&path, &how).unwrap().file;
        file.set_direct(crate::direct::Mode::Buffered).unwrap();
        let part = |frame, at, length| Part { frame: Frame(frame), at, length };
        let parts = [part(3, 0, PAGE), part(0, 100, 3), part(1, PAGE - 2, 2)];
        assert_eq!(file.write_frames_at(&arena, &parts, 10).unwrap(), PAGE as u64 + 5);
        let found = std::fs::read(&path).unwrap();
        assert_eq!(found.len(), 10 + PAGE + 5);
        assert!(found[..10] == [0; 10] && found[10..10 + PAGE].iter().all(|byte| *byte == b'd'));
        assert_eq!(&found[10 + PAGE..], b"aaabb");
        assert!(file.write_frames_at(&arena, &parts, u64::MAX).is_err());
    }

    #[test]
    #[should_panic(expected = "no part of a frame")]
    fn what_is_beyond_a_frame_is_refused() {
        let arena = Arena::private(1).unwrap();
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        let how = How {
            access: Access::ReadWrite,
            create: Create::No,
            truncate: Truncate::Keep,
            mode: 0o600,
        };
        let file = OpenFile::open(file.path(), &how).unwrap().file;
        let _ = file.write_frames_at(&arena, &[Part { frame: Frame(0), at: 1, length: PAGE }], 0);
    }
}
