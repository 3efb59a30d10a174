//! The surface over plain system calls, until the cache stands behind it.
#![allow(missing_docs, clippy::unused_async)]
use std::fs;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use crate::{Error, ErrorKind, Open, Result, Stats};

#[derive(Debug, Default)]
pub struct Builder {
    pub(crate) cache_bytes: u64,
}
impl Builder {
    /// Any knob by its name, as `--set KEY=VALUE` gives it: cache_bytes, dirty_bytes, background_bytes,
    /// dirty_age, flight, prealloc. Sizes take k/m/g suffixes, times us/ms/s.
    pub fn set(self, _key: &str, _value: &str) -> Result<Self> { Ok(self) }
    pub fn cache_bytes(mut self, bytes: u64) -> Self { self.cache_bytes = bytes; self }
    pub fn dirty_bytes(self, _bytes: u64) -> Self { self }
    pub fn dirty_age(self, _age: Duration) -> Self { self }
    pub fn on_error(self, _told: impl Fn(&Error) + Send + Sync + 'static) -> Self { self }
    pub fn build(self) -> Result<Engine> { Ok(Engine) }
}
#[derive(Debug, Clone)]
pub struct Engine;
impl Engine {
    pub fn new() -> Result<Self> { Self::builder().build() }
    pub fn builder() -> Builder { Builder::default() }
    pub fn open(&self, path: impl AsRef<Path>, open: Open) -> Result<File> {
        let path = path.as_ref();
        let file = fs::OpenOptions::new().read(open.read || open.write).write(open.write)
            .create(open.create).create_new(open.create_new).truncate(open.truncate).mode(open.mode).open(path)
            .map_err(|e| Error::new(ErrorKind::Open, "could not open").at_path(path).because(e))?;
        let end = file.metadata().map_or(0, |m| m.len());
        Ok(File { file, path: path.to_owned(), end: Mutex::new(end) })
    }
    pub fn stats(&self) -> Stats { Stats::default() }
    /// One line: which engine runs and what is lost, e.g. "io_uring: full".
    pub fn describe(&self) -> String { "passthrough".into() }
    /// Writes everything out and stops; handles that are left answer `Shutdown`.
    pub fn shutdown(&self, _timeout: Duration) -> Result<()> { Ok(()) }
}
#[derive(Debug)]
pub struct File { file: fs::File, path: PathBuf, end: Mutex<u64> }
impl File {
    fn fail(&self, what: &str, e: std::io::Error) -> Error { Error::new(ErrorKind::Io, what).at_path(&self.path).because(e) }
    /// Bytes read; less than asked only at the end of the file.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> { self.file.read_at(buffer, offset).map_err(|e| self.fail("read", e)) }
    /// Accepts all of `data`, or says how far it got.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<()> { self.file.write_all_at(data, offset).map_err(|e| self.fail("write", e)) }
    /// Where the data went.
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        let mut end = self.end.lock().unwrap();
        self.write_at(data, *end)?;
        *end += data.len() as u64;
        Ok(*end - data.len() as u64)
    }
    pub fn len(&self) -> u64 { self.file.metadata().map_or(0, |m| m.len()) }
    pub fn is_empty(&self) -> bool { self.len() == 0 }
    pub fn set_len(&self, length: u64) -> Result<()> { self.file.set_len(length).map_err(|e| self.fail("set length", e)) }
    pub fn sync_data(&self) -> Result<()> { self.file.sync_data().map_err(|e| self.fail("sync", e)) }
    pub fn sync_all(&self) -> Result<()> { self.file.sync_all().map_err(|e| self.fail("sync", e)) }
    /// The last chance to hear an error.
    pub fn close(self) -> Result<()> { Ok(()) }
    pub async fn read_at_async(&self, buffer: &mut [u8], offset: u64) -> Result<usize> { self.read_at(buffer, offset) }
    pub async fn write_at_async(&self, data: &[u8], offset: u64) -> Result<()> { self.write_at(data, offset) }
    pub async fn append_async(&self, data: &[u8]) -> Result<u64> { self.append(data) }
    pub async fn set_len_async(&self, length: u64) -> Result<()> { self.set_len(length) }
    pub async fn sync_data_async(&self) -> Result<()> { self.sync_data() }
    pub async fn sync_all_async(&self) -> Result<()> { self.sync_all() }
}
