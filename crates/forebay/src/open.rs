//! How a file is opened: what the handle may do, and what happens to a file that is there or is
//! not.

/// Options of [`crate::Engine::open`]. Start from one of the constructors, refine, pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Open {
    pub(crate) write: bool,
    pub(crate) append: bool,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) truncate: bool,
    pub(crate) uncached: Option<bool>,
    pub(crate) mode: u32,
}

impl Open {
    /// An existing file, for reading.
    #[must_use]
    pub fn read() -> Self {
        Self {
            write: false,
            append: false,
            create: false,
            create_new: false,
            truncate: false,
            uncached: None,
            mode: 0o666,
        }
    }

    /// An existing file, for reading and writing.
    #[must_use]
    pub fn write() -> Self {
        Self { write: true, ..Self::read() }
    }

    /// For reading and writing, and made where it is not there.
    #[must_use]
    pub fn create() -> Self {
        Self { create: true, ..Self::write() }
    }

    /// For reading and writing, and made by this call: fails where it is there already.
    #[must_use]
    pub fn create_new() -> Self {
        Self { create_new: true, ..Self::write() }
    }

    /// As [`Open::create`], for a file whose writes go to its end. `write_at` is refused.
    #[must_use]
    pub fn append() -> Self {
        Self { append: true, ..Self::create() }
    }

    /// Cut the file to nothing on opening.
    #[must_use]
    pub fn truncate(mut self, truncate: bool) -> Self {
        self.truncate = truncate;
        self
    }

    /// Whether pages go when they are written, or read, instead of staying as clean ones; as the
    /// engine's knob `uncached` says unless told. Of several handles of one file, the one that
    /// touches a page decides.
    #[must_use]
    pub fn uncached(mut self, uncached: bool) -> Self {
        self.uncached = Some(uncached);
        self
    }

    /// Permission bits of a file that is made, before the process's umask; 0o666 unless told.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }
}
