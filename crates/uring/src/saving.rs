//! A copy of an arena in a file: as much of it as another process needs to finish the writing
//! later.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use forebay_block::Frame;
use forebay_block::limits::PAGE;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::arena::Arena;
use crate::header::FrameState;

/// Bytes copied at a time.
const COPY_BYTES: usize = 256 << 10;

impl Arena {
    /// Writes an image for [`Arena::of_image`] to an empty file, and syncs it: all records of
    /// frames and files, and the unwritten frames. The rest is a hole.
    ///
    /// # Errors
    /// The kernel's error, such as a full file system; `Unsupported` if the arena is not shared.
    pub fn save_to(&self, file: &File) -> io::Result<()> {
        let memory = self.memfd().ok_or(io::ErrorKind::Unsupported)?;
        let memory = File::from(memory.try_clone_to_owned()?);
        file.set_len(self.bytes())?;
        let frames = self.frames_at(Frame(0))..self.frames_at(Frame(self.frames()));
        copy(&memory, file, 0..frames.start)?;
        for frame in (0..self.frames()).map(Frame) {
            let is_owed = |state| matches!(state, FrameState::Dirty | FrameState::Partial);
            if self.header(frame).is_some_and(|header| is_owed(header.state)) {
                let start = self.frames_at(frame);
                copy(&memory, file, start..start + PAGE as u64)?;
            }
        }
        copy(&memory, file, frames.end..self.bytes())?;
        file.sync_all()
    }
}

/// Copies the data of a range.
fn copy(from: &File, to: &File, range: Range<u64>) -> io::Result<()> {
    let mut bytes = vec![0; COPY_BYTES];
    let mut at = range.start;
    while at < range.end {
        at = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            Ok(data) => data,
            // Nothing from here on.
            Err(Errno::NXIO) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        let length = range.end.saturating_sub(at).min(COPY_BYTES as u64) as usize;
        from.read_exact_at(&mut bytes[..length], at)?;
        to.write_all_at(&bytes[..length], at)?;
        at += length as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;
    use crate::file::Identity;
    use crate::header::Header;
    use crate::records::{FileRecord, Flush};

    #[test]
    fn what_is_owed_is_in_the_copy() {
        let arena = Arena::shared(4096).unwrap();
        let record = FileRecord {
            generation: 1,
            leased: true,
            device: false,
            writable: true,
            created: false,
            identity: Identity { device: 1, inode: 2 },
            size: 12_345,
            cut: None,
            interrupted: false,
            flush: Flush::Well,
            unpublished: None,
            path: "/file".into(),
        };
        arena.enter_file(77, &record);
        for (frame, state) in
            [(5, FrameState::Dirty), (4000, FrameState::Partial), (9, FrameState::Clean)]
        {
            // SAFETY: this thread alone knows the arena.
            unsafe { arena.copy_in(Frame(frame), 0, &[frame as u8; PAGE]) };
            arena.clear_mask(Frame(frame));
            arena.add_to_mask(Frame(frame), 3..9);
            let header = Header {
                file: 77,
                generation: 1,
                page: frame.into(),
                sequence: 1,
                length: 4096,
                state,
            };
            arena.publish(Frame(frame), header);
        }
        let file = tempfile::tempfile_in(".").unwrap();
        arena.save_to(&file).unwrap();
        assert!(file.metadata().unwrap().blocks() * 512 < arena.bytes() / 4, "holes are holes");
        let copy = Arena::of_image(&file).unwrap();
        assert_eq!(copy.files().collect::<Vec<_>>(), [(77, record)]);
        for frame in [5, 9, 4000].map(Frame) {
            assert_eq!(copy.header(frame), arena.header(frame));
            assert_eq!(copy.written_of(frame), std::slice::from_ref(&(3..9)));
        }
        let mut found = [0; PAGE];
        // SAFETY: this thread alone knows the arena.
        unsafe { copy.copy_out(Frame(4000), 0, &mut found) };
        assert_eq!(found, [4000_u32 as u8; PAGE]);
    }
}
