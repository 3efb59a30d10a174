//! Resources registered with the kernel beforehand, so that requests need no lookup: the files, and
//! on request the arena.
//!
//! ```text
//! files    a table, an entry for each target, empty at first; set when a file is attached, cleared when detached;
//!          behind them one for what tells that the ring is gone (alive.rs), where that is wanted
//! buffers  the mapping of the arena, in stretches of 1 GiB, the most of one buffer
//! ```
//!
//! A registered file saves each request the lookup and the count of its descriptor; it stays the
//! same open file, so that its `O_DIRECT` flag can be switched as before. Registered memory saves
//! each direct request the pinning of its pages. The price of the second is the memory: all of the
//! mapping is taken and pinned at once, which counts against the limit of locked memory; so it is
//! asked for. Before kernel 6.13 a detached file is closed only when the requests that were
//! submitted before have ended, those of other files included.
//!
//! Nothing here can fail: if the kernel refuses, requests name descriptors and addresses as they
//! always could, and the offers say why.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use forebay_block::Target;
use io_uring::{IoUring, squeue, types::Fd};

use crate::detached;
use crate::file::OpenFile;
use crate::offer::{Feature, Offer};

/// Entries for targets in the table of files; targets beyond them use their descriptors.
const FILES: u32 = 1024;

/// Entries behind those: one, for what tells that the ring is gone.
const OTHERS: u32 = 1;

/// The most the kernel registers as one buffer.
const STRETCH_SHIFT: u32 = 30;

/// Resources that a ring registers with the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fixed {
    /// Whether to register files.
    pub files: Register,
    /// Whether to register the memory of the arena.
    pub buffers: Register,
}

/// Whether to register a resource with the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Register {
    /// Register it if the kernel permits.
    Yes,
    /// Do not register it.
    No,
}

/// Files, which cost nothing; not the arena, which is pinned by it.
impl Default for Fixed {
    fn default() -> Self {
        Self { files: Register::Yes, buffers: Register::No }
    }
}

/// Registered files and memory.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// Entries for targets in the table of files; one more is behind them.
    files: u32,
    /// Held by the ring while it has requests; in the last entry of the table.
    alive: Option<OwnedFd>,
    /// Whether there is a table of files, with or without entries for targets.
    has_table: bool,
    /// Whether a table of files can be made empty; `None` before it was tried.
    sparse: Option<bool>,
    files_refused: Option<String>,
    /// Address of the first registered byte.
    memory: usize,
    bytes: usize,
    buffers_refused: Option<String>,
}

/// How a request names its file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name {
    /// A descriptor, or an index of the table.
    number: i32,
    flags: squeue::Flags,
}

impl Name {
    pub(crate) fn descriptor(file: &OpenFile) -> Self {
        Self { number: file.as_fd().as_raw_fd(), flags: squeue::Flags::empty() }
    }

    /// Descriptor for a request: the file's number or the descriptor itself.
    pub(crate) fn number(self) -> Fd {
        Fd(self.number)
    }

    /// Flags that tell the two apart.
    pub(crate) fn flags(self) -> squeue::Flags {
        self.flags
    }

    pub(crate) fn is_registered(self) -> bool {
        self.flags.contains(squeue::Flags::FIXED_FILE)
    }
}

impl Tables {
    /// Makes the table of files.
    pub(crate) fn register_files(&mut self, uring: &IoUring) {
        if self.files > 0 {
            return;
        }
        self.drop_table(uring);
        // The kernel takes as many entries as the process may have descriptors.
        let limit = detached::descriptor_limit();
        let most = limit.map_or(FILES + OTHERS, |limit| u32::try_from(limit).unwrap_or(u32::MAX));
        let entries = most.min(FILES + OTHERS);
        match self.make_table(uring, entries) {
            Ok(()) => self.files = entries.saturating_sub(OTHERS),
            Err(error) => self.files_refused = Some(error.to_string()),
        }
        self.register_alive(uring);
    }

    /// Gives the entries for targets up; names that are indices count no more.
    pub(crate) fn unregister_files(&mut self, uring: &IoUring) {
        self.files_refused = None;
        self.drop_table(uring);
        self.register_alive(uring);
    }

    /// Lets go of the table, and of all that is in it.
    pub(crate) fn drop_table(&mut self, uring: &IoUring) {
        if self.has_table && uring.submitter().unregister_files().is_ok() {
            (self.files, self.has_table) = (0, false);
        }
    }

    fn make_table(&mut self, uring: &IoUring, entries: u32) -> io::Result<()> {
        let submitter = uring.submitter();
        let sparse = submitter.register_files_sparse(entries);
        self.sparse =
            Some(!matches!(&sparse, Err(error) if error.raw_os_error() == Some(libc::EINVAL)));
        sparse.or_else(|_| submitter.register_files(&vec![-1; entries as usize]))?;
        self.has_table = true;
        Ok(())
    }

    /// Has the ring hold the file for as long as it has requests.
    pub(crate) fn set_alive(&mut self, uring: &IoUring, alive: OwnedFd) -> io::Result<()> {
        self.alive = Some(alive);
        self.enter_alive(uring)
    }

    /// Puts what tells that the ring is gone back into the table.
    fn register_alive(&mut self, uring: &IoUring) {
        if let Err(error) = self.enter_alive(uring) {
            tracing::warn!(%error, "the end of the ring cannot be told to another process");
        }
    }

    fn enter_alive(&mut self, uring: &IoUring) -> io::Result<()> {
        let Some(alive) = self.alive.as_ref().map(AsRawFd::as_raw_fd) else { return Ok(()) };
        if !self.has_table {
            self.make_table(uring, OTHERS)?;
        }
        match uring.submitter().register_files_update(self.files, &[alive])? {
            1 => Ok(()),
            _ => Err(io::Error::other("the kernel did not take the file")),
        }
    }

    /// How requests name the file under a target's number from here on.
    pub(crate) fn enter(&self, uring: &IoUring, target: Target, file: &OpenFile) -> Name {
        let name = Name::descriptor(file);
        if target.0 >= self.files {
            return name;
        }
        match uring.submitter().register_files_update(target.0, &[name.number]) {
            Ok(1) => Name { number: target.0.cast_signed(), flags: squeue::Flags::FIXED_FILE },
            Ok(_) => name,
            Err(error) => {
                tracing::debug!(%error, ?target, "the file goes unregistered");
                name
            }
        }
    }

    /// Takes the file out of the table again, which lets go of it.
    pub(crate) fn leave(&self, uring: &IoUring, target: Target, name: Name) {
        if name.is_registered()
            && let Err(error) = uring.submitter().register_files_update(target.0, &[-1])
        {
            tracing::warn!(%error, ?target, "a detached file stays registered until its number is used again");
        }
    }

    /// Registers memory that outlives the ring, or is leaked with it. Blocks while its pages are
    /// taken.
    pub(crate) fn register_memory(&mut self, uring: &IoUring, memory: (*mut u8, usize)) {
        if self.bytes > 0 {
            return;
        }
        let (start, bytes) = memory;
        let stretch = 1usize << STRETCH_SHIFT;
        let stretches: Vec<libc::iovec> = (0..bytes)
            .step_by(stretch)
            .map(|from| libc::iovec {
                iov_base: start.wrapping_add(from).cast(),
                iov_len: stretch.min(bytes - from),
            })
            .collect();
        // SAFETY: the stretches are the arena, which the ring holds. It is leaked if requests that
        // use it outlive the ring.
        match unsafe { uring.submitter().register_buffers(&stretches) } {
            Ok(()) => {
                (self.memory, self.bytes) = (start.addr(), bytes);
                self.buffers_refused = None;
            }
            Err(error) => self.buffers_refused = Some(why(&error, bytes)),
        }
    }

    /// Lets the memory go.
    pub(crate) fn unregister_memory(&mut self, uring: &IoUring) {
        self.buffers_refused = None;
        if self.bytes > 0 && uring.submitter().unregister_buffers().is_ok() {
            self.bytes = 0;
        }
    }

    /// The registered buffer that all of a piece of memory is in.
    pub(crate) fn buffer(&self, start: *const u8, length: u32) -> Option<u16> {
        let from = start.addr().wrapping_sub(self.memory);
        if from >= self.bytes || length == 0 {
            return None;
        }
        let last = from + (length as usize - 1);
        let index = from >> STRETCH_SHIFT;
        (last < self.bytes && last >> STRETCH_SHIFT == index)
            .then(|| u16::try_from(index).ok())
            .flatten()
    }

    /// Requested registrations, and whether the kernel granted them.
    pub(crate) fn offers(&self) -> Vec<Offer> {
        let asked = |feature: Feature, had: bool, refused: &Option<String>| match refused {
            Some(reason) => Some(feature.asked(Err(reason.clone()))),
            None => had.then(|| feature.when(true)),
        };
        [
            asked(Feature::RegisteredFiles, self.files > 0, &self.files_refused),
            self.sparse.map(|sparse| Feature::SparseFiles.when(sparse)),
            asked(Feature::RegisteredBuffers, self.bytes > 0, &self.buffers_refused),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    pub(crate) fn has_buffers(&self) -> bool {
        self.bytes > 0
    }
}

/// Why memory was not registered, and what to do about it.
fn why(error: &io::Error, bytes: usize) -> String {
    let needed = bytes.div_ceil(1 << 10);
    match error.raw_os_error() {
        Some(libc::ENOMEM) => {
            let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
            let limit = limit.map_or("unlimited".into(), |limit| format!("{} KiB", limit >> 10));
            format!(
                "no memory: {needed} KiB were to be locked, the limit is {limit}; raise `ulimit -l`"
            )
        }
        Some(libc::EOPNOTSUPP) => "this kernel registers no shared memory".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_in_one_buffer_or_in_none() {
        let stretch = 1usize << STRETCH_SHIFT;
        let tables = Tables { memory: 1 << 20, bytes: 2 * stretch + 4096, ..Tables::default() };
        let at = |from: usize| std::ptr::without_provenance::<u8>((1 << 20) + from);
        assert_eq!(tables.buffer(at(0), 4096), Some(0));
        assert_eq!(tables.buffer(at(stretch - 4096), 4096), Some(0));
        assert_eq!(tables.buffer(at(stretch - 4096), 4097), None, "across two");
        assert_eq!(tables.buffer(at(2 * stretch), 4096), Some(2));
        assert_eq!(tables.buffer(at(2 * stretch), 4097), None, "beyond the end");
        assert_eq!(
            tables.buffer(std::ptr::without_provenance(4096), 4096),
            None,
            "before the start"
        );
        assert_eq!(Tables::default().buffer(at(0), 1), None, "nothing is registered");
    }
}
