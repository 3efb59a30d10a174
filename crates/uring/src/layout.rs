//! The layout of the arena's memory, and the check of memory that another process filled.
//!
//! Version 4, native byte order, every part from a page's boundary on:
//!
//! ```text
//! 0                superblock, one page: 14 words of 64 bits
//!                    magic "FOREBAY\x04" as bytes, layout version (4), bytes in a frame (4096), frames,
//!                    offset of the headers, bytes in a header (32), offset of the frames, bytes in all,
//!                    offset of the records, records, bytes in a record (512), offset of the masks,
//!                    bytes in a mask (512), 1 + the highest number of a file that was ever entered
//! header_offset    a header for each frame (header.rs says what is in it)
//! frames_offset    the frames, 4096 bytes each; of 4 MiB and more, on a boundary of 2 MiB
//! records_offset   a record for each file (records.rs); 65536 in shared memory, none elsewhere
//! masks_offset     a mask for each frame (masks.rs); in shared memory alone
//! ```
//!
//! Versions 2 and 3 differ in some words of a file's record alone, which did not exist and were
//! zero (records.rs). Memory and images of them are read as they are.
//!
//! Untouched records and masks take no memory. A number of frames has one layout, so every word
//! found has one right value; each is read once and compared before use.

use std::io;
use std::os::fd::BorrowedFd;

use forebay_block::limits::PAGE;
use rustix::io::Errno;

use crate::header::HEADER_BYTES;
use crate::masks::MASK_BYTES;
use crate::records::{FILE_RECORDS, RECORD_BYTES};

/// Bytes of a huge page, on the processors this is for with small pages of 4 KiB.
pub(crate) const HUGE: usize = 2 << 20;

/// Version of this layout.
pub const LAYOUT_VERSION: u64 = 4;

/// The oldest version that can be read.
const OLDEST_VERSION: u64 = 2;

const MAGIC: [u8; 8] = *b"FOREBAY\x04";
const _: () = assert!(MAGIC[7] as u64 == LAYOUT_VERSION, "the magic ends with the version");

pub(crate) const SUPERBLOCK_WORDS: usize = 14;
/// The word that says how many numbers of files were ever used.
pub(crate) const FILES_ENTERED: usize = 13;

/// Reason why memory or a file is not a usable arena.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// It does not start like an arena.
    #[error("it is no arena: it does not begin as one")]
    NoArena,
    /// The descriptor is not a memfd.
    #[error("it is no arena: the descriptor is not one of shared memory")]
    NoMemory,
    /// The descriptor is not a regular file.
    #[error("it is no saved arena: not a regular file")]
    NoFile,
    /// Its size is not sealed, so that it could be truncated while in use.
    #[error("the memory is not sealed against being cut off")]
    Unsealed,
    /// Of another version.
    #[error(
        "its layout is of version {found}, and this program reads {OLDEST_VERSION} to {LAYOUT_VERSION}: \
         use the program that made it"
    )]
    Version {
        /// Which.
        found: u64,
    },
    /// A structure in it has another size.
    #[error("a {what} of it has {found} bytes, and {known} here")]
    Size {
        /// Name of the structure: frame, header, record or mask.
        what: &'static str,
        /// Value found.
        found: u64,
        /// Value of this version.
        known: u64,
    },
    /// It has no frames, or more than can be addressed.
    #[error("it says it has {found} frames")]
    Frames {
        /// Number of frames.
        found: u64,
    },
    /// A part has a wrong offset.
    #[error("its {what} is said to be {found}, and must be {known}")]
    Offset {
        /// Name of the part.
        what: &'static str,
        /// Value found.
        found: u64,
        /// Required value.
        known: u64,
    },
    /// It is shorter than its description.
    #[error("it has {bytes} bytes, and needs {needed}")]
    TooShort {
        /// Its length in bytes.
        bytes: u64,
        /// Required length in bytes.
        needed: u64,
    },
    /// The system reported an error.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl From<Errno> for ImageError {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// Whether there is more than frames and their headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extent {
    /// With records and masks, for another process.
    Shared,
    /// Without.
    Private,
}

/// Where things are, in bytes from the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub(crate) frames: u32,
    pub(crate) header_offset: usize,
    pub(crate) frames_offset: usize,
    /// Number of records; without records there are no masks either.
    pub(crate) records: u32,
    pub(crate) records_offset: Option<usize>,
    pub(crate) masks_offset: Option<usize>,
    pub(crate) bytes: usize,
}

impl Layout {
    pub(crate) fn of(frames: u32, extent: Extent) -> io::Result<Self> {
        let refused =
            || io::Error::new(io::ErrorKind::InvalidInput, format!("an arena of {frames} frames"));
        Self::fitting(frames, extent).ok_or_else(refused)
    }

    /// `None` for no frames, and for more than can be addressed.
    fn fitting(frames: u32, extent: Extent) -> Option<Self> {
        let count = frames as usize;
        let header_offset = PAGE;
        // A large arena's frames begin where a huge page does.
        let boundary = if count.checked_mul(PAGE)? >= 2 * HUGE { HUGE } else { PAGE };
        let headers_end = count.checked_mul(HEADER_BYTES)?.checked_add(header_offset)?;
        let frames_offset = headers_end.checked_next_multiple_of(boundary)?;
        let frames_end = count.checked_mul(PAGE)?.checked_add(frames_offset)?;
        let layout = match extent {
            Extent::Private => Self {
                frames,
                header_offset,
                frames_offset,
                records: 0,
                records_offset: None,
                masks_offset: None,
                bytes: frames_end,
            },
            Extent::Shared => {
                let masks_offset =
                    (FILE_RECORDS as usize).checked_mul(RECORD_BYTES)?.checked_add(frames_end)?;
                let masks_end = count.checked_mul(MASK_BYTES)?.checked_add(masks_offset)?;
                Self {
                    frames,
                    header_offset,
                    frames_offset,
                    records: FILE_RECORDS,
                    records_offset: Some(frames_end),
                    masks_offset: Some(masks_offset),
                    bytes: masks_end.checked_next_multiple_of(PAGE)?,
                }
            }
        };
        (frames > 0 && isize::try_from(layout.bytes).is_ok()).then_some(layout)
    }

    /// Where the last frame ends.
    pub(crate) fn frames_end(&self) -> usize {
        self.frames_offset + self.frames as usize * PAGE
    }

    /// The words that say all this, as long as no file was entered.
    pub(crate) fn superblock(&self) -> [u64; SUPERBLOCK_WORDS] {
        [
            u64::from_ne_bytes(MAGIC),
            LAYOUT_VERSION,
            PAGE as u64,
            u64::from(self.frames),
            self.header_offset as u64,
            HEADER_BYTES as u64,
            self.frames_offset as u64,
            self.bytes as u64,
            self.records_offset.unwrap_or(0) as u64,
            u64::from(self.records),
            RECORD_BYTES as u64,
            self.masks_offset.unwrap_or(0) as u64,
            MASK_BYTES as u64,
            0,
        ]
    }

    /// Returns the layout of shared memory, or of a copy of it.
    pub(crate) fn found_in(file: BorrowedFd<'_>) -> Result<Self, ImageError> {
        let bytes = u64::try_from(rustix::fs::fstat(file)?.st_size)
            .expect("the kernel keeps lengths positive");
        let words = read_superblock(file, bytes)?;
        let layout = Self::of_superblock(&words)?;
        if bytes < layout.bytes as u64 {
            return Err(ImageError::TooShort { bytes, needed: layout.bytes as u64 });
        }
        Ok(layout)
    }

    fn of_superblock(words: &[u64; SUPERBLOCK_WORDS]) -> Result<Self, ImageError> {
        let magic = words[0].to_ne_bytes();
        // The last byte is the version, too.
        if magic[..7] != MAGIC[..7] {
            return Err(ImageError::NoArena);
        }
        let is_known = (OLDEST_VERSION..=LAYOUT_VERSION).contains(&words[1]);
        if !is_known || u64::from(magic[7]) != words[1] {
            return Err(ImageError::Version { found: words[1] });
        }
        let sizes = [
            (2, "frame", PAGE),
            (5, "header", HEADER_BYTES),
            (10, "record", RECORD_BYTES),
            (12, "mask", MASK_BYTES),
        ];
        for (index, what, known) in sizes {
            let (found, known) = (words[index], known as u64);
            if found != known {
                return Err(ImageError::Size { what, found, known });
            }
        }
        let frames = u32::try_from(words[3]).ok();
        let layout = frames.and_then(|frames| Self::fitting(frames, Extent::Shared));
        let layout = layout.ok_or(ImageError::Frames { found: words[3] })?;
        let right = layout.superblock();
        let places = [
            (4, "offset of the headers"),
            (6, "offset of the frames"),
            (8, "offset of the records"),
            (9, "number of records"),
            (11, "offset of the masks"),
            (7, "length"),
        ];
        for (index, what) in places {
            let (found, known) = (words[index], right[index]);
            if found != known {
                return Err(ImageError::Offset { what, found, known });
            }
        }
        Ok(layout)
    }
}

/// The words at the beginning, read once.
fn read_superblock(
    file: BorrowedFd<'_>,
    bytes: u64,
) -> Result<[u64; SUPERBLOCK_WORDS], ImageError> {
    let mut found = [0; SUPERBLOCK_WORDS * size_of::<u64>()];
    let mut have = 0;
    while have < found.len() {
        let read =
            rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut found[have..], have as u64))?;
        if read == 0 {
            return Err(ImageError::TooShort { bytes, needed: PAGE as u64 });
        }
        have += read;
    }
    let mut words = [0; SUPERBLOCK_WORDS];
    for (word, bytes) in words.iter_mut().zip(found.chunks_exact(size_of::<u64>())) {
        *word = u64::from_ne_bytes(bytes.try_into().expect("chunks of a word"));
    }
    Ok(words)
}

#[cfg(test)]
mod tests;
