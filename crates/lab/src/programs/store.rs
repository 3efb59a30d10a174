//! The files of a program, through the standard library or through an engine.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay::Engine;

use super::spec::{ProgramLoad, ProgramWay};
use crate::cell::Cell;
use crate::load::error::{CellError, Context};
use crate::load::library::{build_engine, with_keeper};

/// The longest wait for the engine to write everything out.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) enum Store {
    Std,
    Forebay(Engine),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// A file that must not exist, for writing.
    New,
    /// The same, for a file that is renamed once it is complete.
    Temporary,
    /// A file, made if it does not exist, for writing.
    Write,
    /// The same, for appends alone.
    Append,
    /// An existing file, for reading.
    Read,
}

pub(crate) enum Handle {
    Std { file: File, path: PathBuf },
    Forebay(forebay::File),
}

impl Store {
    pub(crate) fn new(cell: &Cell, load: &ProgramLoad, way: ProgramWay) -> Result<Self, CellError> {
        if !way.is_forebay() {
            return Ok(Self::Std);
        }
        let bytes = load.memory_bytes().unwrap_or(0);
        let engine = build_engine(bytes, &cell.settings, |builder| match way {
            ProgramWay::ForebaySurvive => with_keeper(builder),
            ProgramWay::ForebayLog => builder.intent_log(&cell.directory),
            _ => builder,
        });
        engine.map(Self::Forebay)
    }

    pub(crate) fn open(&self, path: &Path, how: How) -> Result<Handle, CellError> {
        let Self::Forebay(engine) = self else {
            let mut options = OpenOptions::new();
            match how {
                How::New | How::Temporary => options.write(true).create_new(true),
                How::Write => options.read(true).write(true).create(true).truncate(false),
                How::Append => options.append(true).create(true),
                How::Read => options.read(true),
            };
            let file = options.open(path).context_at("cannot open it", path)?;
            return Ok(Handle::Std { file, path: path.to_owned() });
        };
        let mut options = forebay::OpenOptions::new();
        match how {
            How::New => options.write(true).create_new(true),
            How::Temporary => options.write(true).create_new(true).temporary(true),
            How::Write => options.read(true).write(true).create(true),
            How::Append => options.append(true).create(true),
            How::Read => options.read(true),
        };
        let file = engine.open(path, &options);
        file.map(Handle::Forebay).context("cannot open it")
    }

    /// Ends the engine. Returns its description where it lacks something.
    pub(crate) fn shutdown(self) -> Result<Option<String>, CellError> {
        let Self::Forebay(engine) = self else { return Ok(None) };
        let described = engine.describe().to_string();
        engine.shutdown(PATIENCE).context("cannot end the engine")?;
        let is_full = described.ends_with(": full");
        Ok((!is_full).then(|| format!("engine: {described}")))
    }
}

impl Handle {
    pub(crate) fn write_at(&self, data: &[u8], offset: u64) -> Result<(), CellError> {
        match self {
            Self::Std { file, path } => {
                file.write_all_at(data, offset).context_at("cannot write", path)
            }
            Self::Forebay(file) => file.write_at(data, offset).context("cannot write"),
        }
    }

    pub(crate) fn append(&self, data: &[u8]) -> Result<(), CellError> {
        match self {
            Self::Std { file, path } => (&*file).write_all(data).context_at("cannot append", path),
            Self::Forebay(file) => file.append(data).map(drop).context("cannot append"),
        }
    }

    /// Returns the number of bytes read, which is 0 at the end of the file.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, CellError> {
        match self {
            Self::Std { file, path } => {
                file.read_at(buffer, offset).context_at("cannot read", path)
            }
            Self::Forebay(file) => file.read_at(buffer, offset).context("cannot read"),
        }
    }

    pub(crate) fn sync_data(&self) -> Result<(), CellError> {
        match self {
            Self::Std { file, path } => file.sync_data().context_at("cannot sync it", path),
            Self::Forebay(file) => file.sync_data().context("cannot sync it"),
        }
    }

    pub(crate) fn close(self) -> Result<(), CellError> {
        match self {
            Self::Std { .. } => Ok(()),
            Self::Forebay(file) => file.close().context("cannot close it"),
        }
    }
}
