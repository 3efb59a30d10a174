//! An arm: one of the things compared. The ways of jobs on files, and how a probe names its arms.

use crate::words::words;

words! {
    /// Through what a cell does its I/O.
    #[derive(Hash, Default)]
    pub enum Arm {
        /// The kernel's page cache, as it comes.
        KernelBuffered = "kernel-buffered",
        /// The same after one `fallocate` of the whole file.
        KernelBufferedPrealloc = "kernel-buffered-prealloc",
        /// The page cache within a control group whose memory is limited to the budget.
        KernelCgroup = "kernel-cgroup",
        /// The page cache with `sync_file_range` behind the writer at the budget, and written pages
        /// dropped.
        KernelBounded = "kernel-bounded",
        /// The same after one `fallocate` of the whole file.
        KernelBoundedPrealloc = "kernel-bounded-prealloc",
        /// `RWF_DONTCACHE`.
        KernelUncached = "kernel-uncached",
        /// The same after one `fallocate` of the whole file.
        KernelUncachedPrealloc = "kernel-uncached-prealloc",
        /// `O_DIRECT` at the job's depth, 32 at least, after one `fallocate` of the whole file.
        KernelDirectPrealloc = "kernel-direct-prealloc",
        /// `O_DIRECT`, as the job asks for it.
        KernelDirect = "kernel-direct",
        /// `O_DIRECT` in pieces of 1 MiB, front to back, at a depth of 4, after one `fallocate`:
        /// what the same bytes cost the system at the least. Another job than that of the other
        /// arms, so no base of theirs.
        KernelDirect1m = "kernel-direct-1m",
        /// `O_DIRECT` to a block device, as the job asks for it: what its writes cost without a
        /// file system.
        RawDevice = "raw-device",
        /// The same bytes in pieces of 1 MiB, front to back, at a depth of 4.
        RawDevice1m = "raw-device-1m",
        /// As the job file says: its `ioengine`, `direct`, `uncached`.
        Kernel = "kernel",
        Forebay = "forebay",
        /// Forebay, with the final length of each file told by `set_len` when it is opened: nothing
        /// then moves the end.
        ForebayDeclared = "forebay-declared",
        /// Forebay, with a keeper: written data survives the death of the process.
        ForebaySurvive = "forebay-survive",
        /// No I/O at all: what the load generator itself costs.
        #[default]
        Null = "null",
    }
}

impl Arm {
    /// Returns whether it goes through the library.
    pub fn is_forebay(self) -> bool {
        matches!(self, Arm::Forebay | Arm::ForebayDeclared | Arm::ForebaySurvive)
    }

    /// Returns whether it goes to a block device and to no file.
    pub fn is_raw(self) -> bool {
        matches!(self, Arm::RawDevice | Arm::RawDevice1m)
    }

    /// Returns whether it goes past the page cache, and not through the library.
    pub fn is_direct_kernel(self) -> bool {
        self.is_raw()
            || matches!(self, Arm::KernelDirect | Arm::KernelDirectPrealloc | Arm::KernelDirect1m)
    }

    /// Returns whether its memory is bounded by the budget (or needs none): the base of a claim is
    /// the best of these.
    pub fn is_bounded_kernel(self) -> bool {
        matches!(
            self,
            Arm::KernelCgroup
                | Arm::KernelBounded
                | Arm::KernelBoundedPrealloc
                | Arm::KernelUncached
                | Arm::KernelUncachedPrealloc
                | Arm::KernelDirect
                | Arm::KernelDirectPrealloc
        )
    }
}

/// The owner of the knobs that an arm takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Knobs {
    /// It has none.
    #[default]
    None,
    /// Those of Forebay's engine.
    Engine,
    /// Those of Forebay's request queue.
    Queue,
}

/// An arm that a probe has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Way {
    /// Its word in a suite and in `--arm`.
    pub word: &'static str,
    /// Another word for it, or the same.
    pub alias: &'static str,
    pub knobs: Knobs,
}

impl Way {
    /// Returns an arm without knobs.
    pub const fn plain(word: &'static str) -> Self {
        Self { word, alias: word, knobs: Knobs::None }
    }

    /// Returns an arm of Forebay's engine.
    pub const fn engine(word: &'static str) -> Self {
        Self { word, alias: word, knobs: Knobs::Engine }
    }

    /// Returns the arm with another word.
    pub const fn or(self, alias: &'static str) -> Self {
        Self { alias, ..self }
    }

    pub fn is_engine(&self) -> bool {
        self.knobs == Knobs::Engine
    }

    /// Returns whether a word names it.
    pub fn is(&self, word: &str) -> bool {
        self.word == word || self.alias == word
    }
}
