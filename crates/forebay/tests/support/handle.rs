//! A handle of either kind, cached or direct, for tests that run the same operations through both.

use std::path::Path;

use forebay::{DirectFile, Engine, File, OpenOptions, Result};

/// How a test opens its files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// With [`Engine::open`].
    Cached,
    /// With [`Engine::open_direct`].
    Direct,
}

/// An open file.
#[derive(Debug)]
pub(crate) enum Handle {
    Cached(File),
    Direct(DirectFile),
}

impl Handle {
    pub(crate) fn open(
        engine: &Engine,
        kind: Kind,
        path: &Path,
        open: &OpenOptions,
    ) -> Result<Self> {
        match kind {
            Kind::Cached => engine.open(path, open).map(Self::Cached),
            Kind::Direct => engine.open_direct(path, open).map(Self::Direct),
        }
    }

    /// Returns the bytes read, fewer than asked at the end of the file.
    pub(crate) fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        // Bytes that the engine did not fill are neither zero nor any test's data.
        let mut buffer = vec![0xee; length];
        let read = match self {
            Self::Cached(file) => file.read_at(&mut buffer, offset),
            Self::Direct(file) => {
                let (read, filled) = file.read_at(buffer, offset).wait();
                buffer = filled;
                read
            }
        }?;
        buffer.truncate(read);
        Ok(buffer)
    }

    pub(crate) fn write(&self, data: &[u8], offset: u64) -> Result<()> {
        match self {
            Self::Cached(file) => file.write_at(data, offset),
            Self::Direct(file) => {
                let written = file.write_at(data.to_vec(), offset).wait().0?;
                assert_eq!(written, data.len(), "a short direct write at {offset}");
                Ok(())
            }
        }
    }

    /// Writes at the end of the file and returns the offset. Only this thread may move the end
    /// meanwhile.
    pub(crate) fn append(&self, data: &[u8]) -> Result<u64> {
        match self {
            Self::Cached(file) => file.append(data),
            Self::Direct(file) => {
                let end = file.len();
                self.write(data, end).map(|()| end)
            }
        }
    }

    pub(crate) fn set_len(&self, length: u64) -> Result<()> {
        match self {
            Self::Cached(file) => file.set_len(length),
            Self::Direct(file) => file.set_len(length).wait(),
        }
    }

    pub(crate) fn sync_data(&self) -> Result<()> {
        match self {
            Self::Cached(file) => file.sync_data(),
            Self::Direct(file) => file.sync_data().wait(),
        }
    }

    pub(crate) fn sync_all(&self) -> Result<()> {
        match self {
            Self::Cached(file) => file.sync_all(),
            Self::Direct(file) => file.sync_all().wait(),
        }
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Cached(file) => file.len().unwrap(),
            Self::Direct(file) => file.len(),
        }
    }

    /// Whether the engine holds the lease of the file. A direct file has no lease.
    pub(crate) fn is_leased(&self) -> bool {
        match self {
            Self::Cached(file) => !file.describe().contains("shared"),
            Self::Direct(_) => false,
        }
    }

    pub(crate) fn close(self) -> Result<()> {
        match self {
            Self::Cached(file) => file.close(),
            Self::Direct(file) => file.close().wait(),
        }
    }
}
