//! Files registered with the kernel beforehand, so that requests need no lookup.
//!
//! The table has an entry for each target, empty at first. An entry is set when a file is attached
//! and cleared when it is detached. Behind them is one entry for the descriptor that reports the end
//! of the ring (alive.rs), if it is wanted.
//!
//! A registered file saves each request the lookup and the count of its descriptor; it stays the
//! same open file, so that its `O_DIRECT` flag can be switched as before. Before kernel 6.13 a
//! detached file is closed only when the requests that were submitted before have ended, those of
//! other files included. Memory is not registered: no gain was shown, and all of it would be pinned.
//!
//! Nothing here can fail: if the kernel refuses, requests name descriptors as they always could, and
//! the offers say why.

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

/// Whether to register the files of a ring with the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Register {
    /// Register it if the kernel permits.
    Yes,
    /// Do not register it.
    No,
}

/// Registered files.
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

    /// Requested registrations, and whether the kernel granted them.
    pub(crate) fn offers(&self) -> Vec<Offer> {
        let files = match &self.files_refused {
            Some(reason) => Some(Feature::RegisteredFiles.asked(Err(reason.clone()))),
            None => (self.files > 0).then(|| Feature::RegisteredFiles.when(true)),
        };
        let sparse = self.sparse.map(|sparse| Feature::SparseFiles.when(sparse));
        files.into_iter().chain(sparse).collect()
    }
}
