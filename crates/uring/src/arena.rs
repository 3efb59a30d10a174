//! Arena: the memory of all pages, one mapping of a fixed size.
//!
//! It is not heap memory, because requests in flight need stable addresses, and a forked child must
//! not get a copy of the cache. Frames with consecutive numbers are contiguous in memory, so a
//! gathered run is one segment. For the device it is one segment only with huge pages; without them
//! a request of 1 MiB has 256 pieces, which costs time. So the memory is a memfd if shared memory
//! may have huge pages, and anonymous otherwise.
//!
//! [`layout`](crate::layout) defines the layout. A shared arena also holds everything that another
//! process needs to finish writing if this one dies: [`header`](crate::header),
//! [`records`](crate::records) and masks.
//!
//! Memory is taken page by page when first touched, and given back when the arena is dropped. The
//! arena does not track the owner of a frame: exclusive access is the promise of the caller at each
//! `unsafe` function. The mapping is neither inherited by a forked child nor part of a core dump.

use std::io;
use std::mem;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_block::Frame;
use forebay_block::limits::PAGE;
use rustix::fs::{FileType, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, ProtFlags};
use rustix::process::Resource;

use crate::header::{FrameState, HEADER_BYTES, Header, HeaderWords};
use crate::layout::{Extent, FILES_ENTERED, ImageError, Layout, SUPERBLOCK_WORDS};
use crate::mapping::Mapping;
use crate::masks::{MASK_BYTES, MaskWords};
use crate::records::{FileRecord, Flush, RECORD_BYTES, RecordWords};

/// Bytes of the read-only region of zeroes.
pub const ZERO_BYTES: usize = 64 << 10;

const SHARED_ALONE: &str =
    "a shared arena alone has masks and records, as many as it has frames and numbers of files";

/// Memory of all pages, as a set of numbered frames.
#[derive(Debug)]
pub struct Arena {
    memory: Mapping,
    zeroes: Mapping,
    /// Descriptor of shared memory.
    memfd: Option<OwnedFd>,
    layout: Layout,
}

impl Arena {
    /// Creates an arena of `frames` frames, in the kind of memory that may have huge pages.
    ///
    /// # Errors
    /// The error of the kernel if it grants no memory or descriptor; `InvalidInput` for 0 frames or
    /// more than can be addressed.
    pub fn new(frames: u32) -> io::Result<Self> {
        if shared_memory_may_be_huge() { Self::shared(frames) } else { Self::private(frames) }
    }

    /// Creates an arena in a memfd of a sealed size, with records of files and masks.
    ///
    /// # Errors
    /// As [`Arena::new`]; `FileTooLarge` if a limit of the process forbids a file of that size.
    pub fn shared(frames: u32) -> io::Result<Self> {
        let layout = Layout::of(frames, Extent::Shared)?;
        let memfd = sealed_memory(layout.bytes as u64)?;
        let arena = Self::of(Mapping::shared(memfd.as_fd(), layout.bytes)?, Some(memfd), layout)?;
        arena.write_superblock();
        Ok(arena)
    }

    /// Creates an arena in anonymous memory.
    ///
    /// # Errors
    /// As [`Arena::new`].
    pub fn private(frames: u32) -> io::Result<Self> {
        let layout = Layout::of(frames, Extent::Private)?;
        let memory = Mapping::anonymous(layout.bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        let arena = Self::of(memory, None, layout)?;
        arena.write_superblock();
        Ok(arena)
    }

    /// Copies the arena: frames, records, masks and headers, as they are at this moment. For tests
    /// of what another process finds after the death of this one.
    ///
    /// # Errors
    /// As [`Arena::new`]; `Unsupported` for an arena in anonymous memory.
    #[doc(hidden)]
    pub fn snapshot(&self) -> io::Result<Self> {
        let memfd = self.memfd.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let copy = Self::shared(self.frames())?;
        let to = copy.memfd.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let mut left = self.layout.bytes;
        let (mut from_offset, mut to_offset) = (0, 0);
        while left > 0 {
            let copied = rustix::fs::copy_file_range(
                memfd,
                Some(&mut from_offset),
                to,
                Some(&mut to_offset),
                left,
            )?;
            if copied == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            left -= copied;
        }
        Ok(copy)
    }

    /// Maps the shared arena of another process. Both processes then have it.
    ///
    /// # Errors
    /// [`ImageError`] if its size can change, or its description is wrong.
    pub fn of_memfd(memfd: OwnedFd) -> Result<Self, ImageError> {
        let seals = rustix::fs::fcntl_get_seals(&memfd).map_err(|_| ImageError::NoMemory)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(ImageError::Unsealed);
        }
        let layout = Layout::found_in(memfd.as_fd())?;
        let memory = Mapping::shared(memfd.as_fd(), layout.bytes)?;
        Ok(Self::of(memory, Some(memfd), layout)?)
    }

    /// Maps an arena that was saved to a file, without changing the file. The file must not be
    /// truncated meanwhile.
    ///
    /// # Errors
    /// See [`ImageError`].
    pub fn of_image(file: &std::fs::File) -> Result<Self, ImageError> {
        let status = rustix::fs::fstat(file)?;
        if !FileType::from_raw_mode(status.st_mode).is_file() {
            return Err(ImageError::NoFile);
        }
        let layout = Layout::found_in(file.as_fd())?;
        let memory = Mapping::copy_of(file.as_fd(), layout.bytes)?;
        Ok(Self::of(memory, None, layout)?)
    }

    fn of(memory: Mapping, memfd: Option<OwnedFd>, layout: Layout) -> io::Result<Self> {
        memory.hide()?;
        // Refused where huge pages are compiled out; without effect where they are off. Not for
        // what lies behind the frames: of that little is used, here and there.
        let _ = memory.advise_part(0..layout.frames_end(), Advice::LinuxHugepage);
        let _ = memory.advise_part(layout.frames_end()..layout.bytes, Advice::LinuxNoHugepage);
        let zeroes = Mapping::anonymous(ZERO_BYTES, ProtFlags::READ)?;
        zeroes.hide()?;
        Ok(Self { memory, zeroes, memfd, layout })
    }

    /// Returns the number of frames.
    #[must_use]
    pub fn frames(&self) -> u32 {
        self.layout.frames
    }

    /// Returns the bytes of address space, including everything beside the frames.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.layout.bytes as u64
    }

    /// Takes the memory of these frames from the kernel now, so that no copy into them has to wait
    /// for it. Their content stays. Blocks; without effect if the kernel refuses it.
    pub fn populate(&self, frames: Range<u32>) {
        assert!(frames.end <= self.frames(), "frames of the arena");
        let [start, end] =
            [frames.start, frames.end].map(|frame| self.frames_at(Frame(frame)) as usize);
        let _ = self.memory.advise_part(start..end, Advice::LinuxPopulateWrite);
    }

    /// Returns the descriptor of the memory, or `None` if it is not shared.
    #[must_use]
    pub fn memfd(&self) -> Option<BorrowedFd<'_>> {
        self.memfd.as_ref().map(AsFd::as_fd)
    }

    /// Returns the address of a frame. Reading through it needs what [`Arena::copy_out`] requires.
    #[must_use]
    pub fn address(&self, frame: Frame) -> *const u8 {
        self.at(frame).cast_const()
    }

    /// Returns the address of [`ZERO_BYTES`] zero bytes, valid as long as the arena.
    #[must_use]
    pub fn zero_address(&self) -> *const u8 {
        self.zeroes.start().cast_const()
    }

    /// Copies `from` into the frame, starting `at` bytes into it, and on into the following frames.
    ///
    /// # Safety
    /// Meanwhile no other accessor may read or write that memory, and no request in flight may read
    /// into it. (A request that writes *from* it would store torn bytes: give the page a new
    /// frame.)
    pub unsafe fn copy_in(&self, frame: Frame, at: usize, from: &[u8]) {
        self.check(frame, at, from.len());
        // SAFETY: `check` keeps the sum within the frames, which are within the mapping.
        let into = unsafe { self.at(frame).add(at) };
        // SAFETY: `into` is valid for `from.len()` bytes, the caller promises exclusivity, and a
        // `&[u8]` cannot overlap memory that nobody holds a reference to.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), into, from.len()) };
    }

    /// Copies from the frame, starting `at` bytes into it, and on from the following frames, into
    /// `into`.
    ///
    /// # Safety
    /// Meanwhile nothing may write that memory: neither `copy_in`, `zero` or `copy_frame`, nor a
    /// request in flight that reads into it.
    pub unsafe fn copy_out(&self, frame: Frame, at: usize, into: &mut [u8]) {
        self.check(frame, at, into.len());
        // SAFETY: `check` keeps the sum within the frames, which are within the mapping.
        let from = unsafe { self.at(frame).add(at) };
        // SAFETY: `from` is valid for `into.len()` bytes, the caller promises that nobody writes
        // them, and a `&mut [u8]` cannot overlap memory that nobody holds a reference to.
        unsafe { ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    }

    /// Fills a range of bytes of the frame with zeroes.
    ///
    /// # Safety
    /// As [`Arena::copy_in`].
    pub unsafe fn zero(&self, frame: Frame, range: Range<usize>) {
        let length =
            range.end.checked_sub(range.start).expect("a range that does not run backwards");
        self.check(frame, range.start, length);
        // SAFETY: `check` keeps the sum within the frames, which are within the mapping.
        let start = unsafe { self.at(frame).add(range.start) };
        // SAFETY: `start` is valid for `length` bytes and the caller promises exclusivity.
        unsafe { ptr::write_bytes(start, 0, length) };
    }

    /// Copies a range of bytes of one frame to the same offsets of another.
    ///
    /// # Safety
    /// As [`Arena::copy_out`] for `from` and as [`Arena::copy_in`] for `to`.
    pub unsafe fn copy_part(&self, from: Frame, to: Frame, range: Range<usize>) {
        assert_ne!(from, to, "a frame is not copied onto itself");
        assert!(range.start <= range.end && range.end <= PAGE, "a part of a frame");
        // SAFETY: the range is within the frame, which is within the mapping.
        let (source, length) = (unsafe { self.at(from).add(range.start) }, range.end - range.start);
        // SAFETY: as above.
        let into = unsafe { self.at(to).add(range.start) };
        // SAFETY: both are parts of different frames of the mapping, and the caller promises that
        // nobody writes the first and nobody uses the second.
        unsafe { ptr::copy_nonoverlapping(source.cast_const(), into, length) };
    }

    /// Copies one frame to another.
    ///
    /// # Safety
    /// As [`Arena::copy_out`] for `from` and as [`Arena::copy_in`] for `to`.
    pub unsafe fn copy_frame(&self, from: Frame, to: Frame) {
        assert_ne!(from, to, "a frame is not copied onto itself");
        // SAFETY: both are whole frames of the mapping, different ones, and the caller promises
        // that nobody writes the first and nobody uses the second.
        unsafe { ptr::copy_nonoverlapping(self.at(from).cast_const(), self.at(to), PAGE) };
    }

    /// Publishes the header of a frame, after its bytes were copied in. Replaces an earlier header.
    pub fn publish(&self, frame: Frame, header: Header) {
        self.words(frame).publish(frame, header);
    }

    /// Removes the header of a frame whose bytes are written or given up.
    pub fn retire(&self, frame: Frame) {
        self.words(frame).retire();
    }

    /// Removes the header of a frame if it is published as clean, before its bytes are changed.
    /// Costs one load otherwise.
    pub fn retire_clean(&self, frame: Frame) {
        self.words(frame).retire_clean();
    }

    /// Returns the published state of a frame, for its owner: the header is not verified.
    #[must_use]
    pub fn published(&self, frame: Frame) -> Option<FrameState> {
        self.words(frame).published()
    }

    /// Returns the header of a frame, or `None` if it is missing or invalid.
    #[must_use]
    pub fn header(&self, frame: Frame) -> Option<Header> {
        self.words(frame).read(frame)
    }

    /// Clears the mask of written bytes of a frame without a header.
    ///
    /// # Panics
    /// If the arena is not shared.
    pub fn clear_mask(&self, frame: Frame) {
        self.mask(frame).expect(SHARED_ALONE).clear();
    }

    /// Adds bytes to the mask of written bytes of a frame, after they were copied in.
    ///
    /// # Panics
    /// As [`Arena::clear_mask`]; also if the range is not within a frame.
    pub fn add_to_mask(&self, frame: Frame, bytes: Range<usize>) {
        self.mask(frame).expect(SHARED_ALONE).add(bytes);
    }

    /// Returns the ranges of written bytes of a [`Partial`](crate::header::FrameState::Partial)
    /// frame, in order. Adjacent ranges are joined.
    #[must_use]
    pub fn written_of(&self, frame: Frame) -> Vec<Range<usize>> {
        self.mask(frame).map(MaskWords::written).unwrap_or_default()
    }

    /// Stores the record of a file under a number, before its first frame is published. Replaces an
    /// earlier record.
    ///
    /// # Panics
    /// As [`Arena::clear_mask`]; also if the number is not below
    /// [`FILE_RECORDS`](crate::records::FILE_RECORDS), or the generation is 0.
    pub fn enter_file(&self, number: u32, record: &FileRecord) {
        self.record(number).expect(SHARED_ALONE).enter(number, record);
        self.superblock(FILES_ENTERED).fetch_max(u64::from(number) + 1, Ordering::Release);
    }

    /// Removes the record of a file, after its last frame was retired.
    ///
    /// # Panics
    /// As [`Arena::enter_file`].
    pub fn leave_file(&self, number: u32) {
        self.record(number).expect(SHARED_ALONE).leave();
    }

    /// Stores the size of a file as its program sees it.
    ///
    /// # Panics
    /// As [`Arena::enter_file`].
    pub fn set_file_size(&self, number: u32, bytes: u64) {
        self.record(number).expect(SHARED_ALONE).set_size(bytes);
    }

    /// Stores the length that a file is being truncated to, before that starts; `None` when it has
    /// ended.
    ///
    /// # Panics
    /// As [`Arena::enter_file`].
    pub fn set_file_cut(&self, number: u32, to: Option<u64>) {
        self.record(number).expect(SHARED_ALONE).set_cut(to);
    }

    /// Marks a file: a panic interrupted a change of its state, so nothing may be written from what
    /// the arena says of it.
    ///
    /// # Panics
    /// As [`Arena::enter_file`].
    pub fn interrupt_file(&self, number: u32) {
        self.record(number).expect(SHARED_ALONE).interrupt();
    }

    /// Stores the state of the flushes of a file, while the intent log has records of it.
    ///
    /// # Panics
    /// As [`Arena::enter_file`].
    pub fn set_file_flush(&self, number: u32, flush: Flush) {
        self.record(number).expect(SHARED_ALONE).set_flush(flush);
    }

    /// Stores the number of a record of the intent log whose bytes are in no frame of a file yet;
    /// `None` once they are.
    ///
    /// # Panics
    /// As [`Arena::enter_file`].
    pub fn set_file_unpublished(&self, number: u32, sequence: Option<u64>) {
        self.record(number).expect(SHARED_ALONE).set_unpublished(sequence);
    }

    /// Returns the record of a file, or `None` if it is missing or invalid.
    #[must_use]
    pub fn file(&self, number: u32) -> Option<FileRecord> {
        self.record(number)?.read(number)
    }

    /// Returns the numbers and records of all files.
    pub fn files(&self) -> impl Iterator<Item = (u32, FileRecord)> {
        // Beyond it nothing was ever entered, and a look would take memory.
        let entered = self.superblock(FILES_ENTERED).load(Ordering::Acquire);
        let numbers = 0..u32::try_from(entered).unwrap_or(u32::MAX).min(self.layout.records);
        numbers.filter_map(|number| Some((number, self.file(number)?)))
    }

    /// Leaks the mapping, for frames that are still in flight when their owner ends.
    pub fn leak(self: Arc<Self>) {
        tracing::warn!(
            bytes = self.layout.bytes,
            "requests are still in flight: their memory is leaked"
        );
        mem::forget(self);
    }

    /// Asserts that `bytes` from the frame's start on are frames.
    pub(crate) fn assert_holds(&self, first: Frame, bytes: u64) {
        let beyond = u64::from(first.0) + bytes.div_ceil(PAGE as u64);
        assert!(
            beyond <= u64::from(self.layout.frames),
            "{bytes} bytes from {first:?} on are beyond the arena"
        );
    }

    /// Where a frame begins in the memory; of the number behind the last one, where they end.
    pub(crate) fn frames_at(&self, frame: Frame) -> u64 {
        self.layout.frames_offset as u64 + u64::from(frame.0) * PAGE as u64
    }

    fn at(&self, frame: Frame) -> *mut u8 {
        assert!(
            frame.0 < self.layout.frames,
            "frame {} of an arena of {}",
            frame.0,
            self.layout.frames
        );
        // SAFETY: the frame's number was checked, so the offset is within the mapping.
        unsafe { self.memory.start().add(self.layout.frames_offset + frame.0 as usize * PAGE) }
    }

    fn words(&self, frame: Frame) -> &HeaderWords {
        assert!(
            frame.0 < self.layout.frames,
            "frame {} of an arena of {}",
            frame.0,
            self.layout.frames
        );
        let offset = self.layout.header_offset + frame.0 as usize * HEADER_BYTES;
        // SAFETY: the frame's number was checked, so the header is within their table; it is made
        // of atomics.
        unsafe { self.shared_words(offset) }
    }

    /// `None` where there are no masks.
    fn mask(&self, frame: Frame) -> Option<&MaskWords> {
        assert!(
            frame.0 < self.layout.frames,
            "frame {} of an arena of {}",
            frame.0,
            self.layout.frames
        );
        let offset = self.layout.masks_offset? + frame.0 as usize * MASK_BYTES;
        // SAFETY: the frame's number was checked, so the mask is within their table; it is made of
        // atomics.
        Some(unsafe { self.shared_words(offset) })
    }

    /// `None` where there is no such record.
    fn record(&self, number: u32) -> Option<&RecordWords> {
        let offset = self.layout.records_offset? + number as usize * RECORD_BYTES;
        // SAFETY: the number is checked, so the record is within their table; it is made of
        // atomics.
        (number < self.layout.records).then(|| unsafe { self.shared_words(offset) })
    }

    /// A word of the superblock.
    fn superblock(&self, index: usize) -> &AtomicU64 {
        assert!(index < SUPERBLOCK_WORDS, "word {index} of the superblock");
        // SAFETY: the word is within the first page, which is the superblock's.
        unsafe { self.shared_words(index * size_of::<u64>()) }
    }

    /// Returns the words at an offset, shared with other processes that map the memory.
    ///
    /// # Safety
    /// `T` is made of 64-bit atomics alone, the offset is a multiple of eight, and all of it is
    /// within the mapping and not within the frames.
    unsafe fn shared_words<T>(&self, offset: usize) -> &T {
        // SAFETY: the caller promises that the offset is within the mapping.
        let words = unsafe { self.memory.start().add(offset) };
        // SAFETY: the mapping is aligned to a page and the offset to a word; any bytes make valid
        // atomics, which are only ever used as such; the mapping lives as long as `self`.
        unsafe { &*words.cast::<T>() }
    }

    /// Refuses a range beyond the last frame.
    fn check(&self, frame: Frame, at: usize, length: usize) {
        let most = (self.layout.frames as usize).saturating_sub(frame.0 as usize) * PAGE;
        assert!(
            at.checked_add(length).is_some_and(|end| end <= most),
            "{length} bytes at {at} of {frame:?} are beyond the arena"
        );
    }

    /// The magic last: who sees it sees the rest.
    fn write_superblock(&self) {
        for (index, word) in self.layout.superblock().into_iter().enumerate().rev() {
            self.superblock(index).store(word, Ordering::Release);
        }
    }
}

/// Makes memory with a descriptor, sealed at this size: other processes that map it rely on its
/// size.
fn sealed_memory(bytes: u64) -> io::Result<OwnedFd> {
    // Beyond it the kernel would not only refuse but send a signal that ends the process.
    let limit = rustix::process::getrlimit(Resource::Fsize).current;
    if let Some(limit) = limit.filter(|&limit| limit < bytes) {
        let text = format!("of {bytes} bytes, and the limit is {limit}: raise it, `ulimit -f`");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Cautious systems ask for memory that is not to be executed; before 6.3 that cannot be said.
    let memfd = match rustix::fs::memfd_create("forebay", flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create("forebay", flags),
        made => made,
    }?;
    rustix::fs::ftruncate(&memfd, bytes)?;
    rustix::fs::fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(memfd)
}

/// Whether the kernel gives shared memory huge pages, to those who advise so or to all.
fn shared_memory_may_be_huge() -> bool {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    setting.is_ok_and(|setting| {
        ["[always]", "[within_size]", "[advise]", "[force]"]
            .iter()
            .any(|word| setting.contains(word))
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};

    use super::*;
    use crate::file::Identity;
    use crate::header::FrameState;
    use crate::layout::HUGE;
    use crate::records::FILE_RECORDS;

    #[test]
    fn frames_are_consecutive_pages_that_keep_their_bytes() {
        let arena = Arena::new(3).unwrap();
        assert_eq!(arena.address(Frame(0)) as usize % PAGE, 0);
        assert_eq!(arena.address(Frame(2)) as usize - arena.address(Frame(0)) as usize, 2 * PAGE);
        let mut back = [1; 6];
        // SAFETY: this thread alone knows the arena.
        unsafe { arena.copy_in(Frame(1), PAGE - 5, b"water") };
        // SAFETY: as above.
        unsafe { arena.copy_frame(Frame(1), Frame(2)) };
        // SAFETY: as above.
        unsafe { arena.zero(Frame(2), PAGE - 1..PAGE) };
        // SAFETY: as above.
        unsafe { arena.copy_out(Frame(2), PAGE - 6, &mut back) };
        assert_eq!(&back, b"\0wate\0");
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let arena = Arena::shared(200).unwrap();
        let header = Header {
            file: 9,
            generation: 5,
            page: 4,
            sequence: 1,
            length: 17,
            state: FrameState::Partial,
        };
        arena.publish(Frame(130), header);
        arena.clear_mask(Frame(130));
        arena.add_to_mask(Frame(130), 3..17);
        let record = record();
        arena.enter_file(9, &record);
        // SAFETY: this thread alone knows the arena.
        unsafe { arena.copy_in(Frame(199), 0, b"last") };
        let file = File::from(arena.memfd().unwrap().try_clone_to_owned().unwrap());
        let word = |at: u64| {
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, at).unwrap();
            u64::from_ne_bytes(bytes)
        };
        let superblock: Vec<u64> = (0..14).map(|index| word(index * 8)).collect();
        let (records, masks) = (203 * 4096, 203 * 4096 + 65_536 * 512);
        let known = [
            4,
            4096,
            200,
            4096,
            32,
            3 * 4096,
            masks + 25 * 4096,
            records,
            65_536,
            512,
            masks,
            512,
            10,
        ];
        assert_eq!(superblock[1..], known);
        assert_eq!(superblock[0].to_ne_bytes(), *b"FOREBAY\x04");
        assert_eq!(file.metadata().unwrap().len(), masks + 25 * 4096);
        assert_eq!(word(4096 + 130 * 32), 5 << 48 | 3 << 45 | 17 << 32 | 9);
        assert_eq!(word(4096 + 130 * 32 + 8), 4);
        assert_ne!(word(4096 + 130 * 32 + 24), 0);
        assert_eq!(word(records + 9 * 512), 4 << 32 | 0b0101 << 16 | 77);
        assert_eq!(word(records + 9 * 512 + 24), 4097);
        assert_eq!(word(records + 9 * 512 + 32), 12 + 1);
        assert_eq!(word(records + 9 * 512 + 40).to_ne_bytes(), *b"/log\0\0\0\0");
        assert_ne!(word(records + 9 * 512 + 504), 0);
        assert_eq!(word(masks + 130 * 512), 0x1_fff8);
        let mut last = [0; 4];
        file.read_exact_at(&mut last, (3 + 199) * 4096).unwrap();
        assert_eq!(&last, b"last");
        assert_eq!(arena.header(Frame(130)), Some(header));
        assert_eq!(arena.header(Frame(131)), None);
        assert_eq!(arena.files().collect::<Vec<_>>(), [(9, record)]);
    }

    fn record() -> FileRecord {
        FileRecord {
            generation: 77,
            leased: true,
            device: false,
            writable: true,
            created: false,
            identity: Identity { device: 1, inode: 2 },
            size: 4097,
            cut: Some(12),
            interrupted: false,
            flush: Flush::Well,
            unpublished: None,
            path: "/log".into(),
        }
    }

    #[test]
    fn what_one_process_published_another_finds() {
        let arena = Arena::shared(2048).unwrap();
        let header = Header {
            file: 3,
            generation: 77,
            page: 9,
            sequence: 4,
            length: 4096,
            state: FrameState::Dirty,
        };
        arena.publish(Frame(2047), header);
        arena.enter_file(3, &record());
        // SAFETY: this thread alone knows the arena.
        unsafe { arena.copy_in(Frame(2047), 0, b"accepted") };
        let memfd = arena.memfd().unwrap().try_clone_to_owned().unwrap();
        drop(arena);
        let found = Arena::of_memfd(memfd).unwrap();
        assert_eq!(found.frames(), 2048);
        assert_eq!((found.header(Frame(2047)), found.header(Frame(0))), (Some(header), None));
        let mut bytes = [0; 8];
        // SAFETY: as above.
        unsafe { found.copy_out(Frame(2047), 0, &mut bytes) };
        assert_eq!(&bytes, b"accepted");
        found.set_file_size(3, 5);
        found.set_file_cut(3, None);
        // Both see what either does.
        let again = Arena::of_memfd(found.memfd().unwrap().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(again.file(3), Some(FileRecord { size: 5, cut: None, ..record() }));
        found.leave_file(3);
        found.retire(Frame(2047));
        assert_eq!(
            (again.file(3), again.files().count(), again.header(Frame(2047))),
            (None, 0, None)
        );
        let file = File::from(found.memfd().unwrap().try_clone_to_owned().unwrap());
        assert!(file.set_len(4096).is_err(), "its size is sealed");
    }

    #[test]
    fn masks_and_records_take_no_memory_until_they_are_used() {
        let arena = Arena::shared(64).unwrap();
        let file = File::from(arena.memfd().unwrap().try_clone_to_owned().unwrap());
        let taken = || file.metadata().unwrap().blocks() as usize * 512;
        // One page, where shared memory has no huge ones.
        let first = if shared_memory_may_be_huge() { HUGE } else { PAGE };
        assert!(taken() <= first, "{} bytes", taken());
        assert_eq!(arena.files().count(), 0);
        assert_eq!(arena.file(FILE_RECORDS), None);
        assert!(taken() <= first, "{} bytes", taken());
        for number in 0..8 {
            arena.enter_file(number, &record());
        }
        for frame in (0..8).map(Frame) {
            arena.clear_mask(frame);
            arena.add_to_mask(frame, 1..2);
        }
        assert_eq!(arena.written_of(Frame(7)).as_slice(), std::slice::from_ref(&(1..2)));
        assert!(taken() <= first + 2 * PAGE, "a page of each, not {} bytes", taken());
    }

    /// Whether each of these frames has memory. The kernel may report up to 2 MiB as one page.
    fn resident(arena: &Arena, frames: Range<u32>) -> Vec<bool> {
        let mut pages = vec![0_u8; frames.len()];
        let start = arena.address(Frame(frames.start)).cast_mut().cast();
        // SAFETY: the frames are a part of the mapping, and there is a byte for each.
        let reported = unsafe { libc::mincore(start, frames.len() * PAGE, pages.as_mut_ptr()) };
        assert_eq!(reported, 0, "{}", io::Error::last_os_error());
        pages.iter().map(|page| page & 1 == 1).collect()
    }

    #[test]
    fn exactly_the_frames_asked_for_are_populated() {
        const HUGE_FRAMES: u32 = (HUGE / PAGE) as u32;
        let frames = 64 << 10;
        for arena in [Arena::private(frames).unwrap(), Arena::shared(frames).unwrap()] {
            let asked = 10 * HUGE_FRAMES..13 * HUGE_FRAMES;
            assert!(!resident(&arena, 0..frames).contains(&true));
            arena.populate(asked.clone());
            let populated = resident(&arena, 0..frames);
            let of = |frames: Range<u32>| &populated[frames.start as usize..frames.end as usize];
            assert!(!of(asked.clone()).contains(&false));
            assert!(!of(0..asked.start).contains(&true) && !of(asked.end..frames).contains(&true));
        }
    }

    #[test]
    fn an_arena_of_its_own_has_neither_files_nor_masks() {
        let arena = Arena::private(4).unwrap();
        assert_eq!(
            (arena.file(0), arena.files().count(), arena.written_of(Frame(0))),
            (None, 0, vec![])
        );
        assert!(arena.memfd().is_none());
        let header = Header {
            file: 3,
            generation: 1,
            page: 9,
            sequence: 4,
            length: 4096,
            state: FrameState::Clean,
        };
        arena.publish(Frame(2), header);
        assert_eq!(arena.header(Frame(2)), Some(header));
        arena.retire_clean(Frame(2));
        assert_eq!(arena.header(Frame(2)), None);
    }

    #[test]
    #[should_panic(expected = "beyond the arena")]
    fn a_copy_beyond_the_last_frame_is_refused() {
        let arena = Arena::new(2).unwrap();
        // SAFETY: this thread alone knows the arena.
        unsafe { arena.copy_in(Frame(1), 4095, b"ab") };
    }

    #[test]
    fn a_copy_goes_on_into_the_next_frame() {
        let arena = Arena::new(2).unwrap();
        let mut back = [0; 1];
        // SAFETY: this thread alone knows the arena.
        unsafe { arena.copy_in(Frame(0), 4095, b"ab") };
        // SAFETY: as above.
        unsafe { arena.copy_out(Frame(1), 0, &mut back) };
        assert_eq!(&back, b"b");
    }

    #[test]
    fn a_large_arena_lies_on_huge_pages_and_says_so() {
        for arena in [Arena::shared(2048).unwrap(), Arena::private(2048).unwrap()] {
            // SAFETY: the superblock is eight words at the start of the mapping.
            let place = unsafe { arena.memory.start().cast::<u64>().add(6) };
            // SAFETY: the place is aligned, and was written before anybody else knew the arena.
            let offset = unsafe { place.read() };
            assert_eq!(offset as usize % HUGE, 0);
            assert_eq!(
                arena.address(Frame(0)) as usize - arena.memory.start() as usize,
                offset as usize
            );
        }
    }

    #[test]
    fn no_frames_are_refused() {
        assert_eq!(Arena::new(0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
