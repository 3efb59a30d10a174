//! Objects in local files, with puts that are durable when they return.
//!
//! ```
//! use forebay::Engine;
//! use forebay_object_store::Store;
//! use object_store::{ObjectStoreExt as _, path::Path};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Store::new(Engine::new()?, "data")?;
//! store.put(&Path::from("table/1.parquet"), "content".into()).await?;   // durable from here on
//! # Ok(())
//! # }
//! ```
//!
//! A put writes a temporary file, syncs it, renames it, and syncs the directory. So after a crash
//! an object is the old one, the new one, or absent; it is never a part. A put with
//! [`PutMode::Create`] makes a hard link instead of the rename. Conditional updates
//! ([`PutMode::Update`]) and attributes are not supported, as by [`LocalFileSystem`].
//!
//! Only the writing is done by Forebay. Everything else is that of [`LocalFileSystem`] with
//! [`fsync`](LocalFileSystem::with_fsync): reads of objects, lists, copies (hard links), renames
//! and deletes. Both may use the same directory. A delete is durable with the next put into its
//! directory.
//!
//! A crash may leave a temporary file, `.forebay#NUMBER`; in earlier versions, `OBJECT#NUMBER`.
//! Lists do not show it, and no later put uses it; remove such files while no program puts objects.
//!
//! Within a runtime of tokio, blocking calls run on its threads for such calls. Elsewhere they
//! block the caller, as those of [`LocalFileSystem`].

mod staged;
mod upload;

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use async_trait::async_trait;
use bytes::Bytes;
use forebay::Engine;
use futures_util::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions,
    Result,
};

use staged::{Publish, Staged};
use upload::Upload;

/// Bytes of an object from which on its file gets its length before its data: then several requests
/// write it at the same time.
const LENGTH_FIRST: usize = 1 << 20;

/// Store of objects in a directory.
#[derive(Clone, Debug)]
pub struct Store {
    engine: Engine,
    local: LocalFileSystem,
}

impl Store {
    /// Returns a store of the objects in a directory, which must exist. Blocks.
    ///
    /// # Errors
    /// If the directory does not exist.
    pub fn new(engine: Engine, directory: impl AsRef<std::path::Path>) -> Result<Self> {
        let local = LocalFileSystem::new_with_prefix(directory)?.with_fsync(true);
        Ok(Self { engine, local })
    }

    /// Returns the path of the file of an object.
    ///
    /// # Errors
    /// If a name ends in `#` and a number, as temporary files do.
    pub fn path_of(&self, location: &Path) -> Result<PathBuf> {
        self.local.path_to_filesystem(location)
    }

    fn refuse<T>(&self, operation: &str) -> Result<T> {
        let implementer = self.to_string();
        Err(Error::NotImplemented { operation: operation.to_owned(), implementer })
    }
}

impl fmt::Display for Store {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Forebay({})", self.local)
    }
}

#[async_trait]
impl ObjectStore for Store {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let publish = match options.mode {
            PutMode::Overwrite => Publish::Replace,
            PutMode::Create => Publish::Create,
            PutMode::Update(_) => return self.refuse("a put with PutMode::Update"),
        };
        if !options.attributes.is_empty() {
            return self.refuse("a put with attributes");
        }
        let (path, engine) = (self.path_of(location)?, self.engine.clone());
        blocking(move || {
            let staged = Staged::create(&engine, path)?;
            if payload.content_length() >= LENGTH_FIRST {
                staged.set_len(payload.content_length() as u64)?;
            }
            staged.write(&payload, 0)?;
            staged.publish(publish)
        })
        .await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        if !options.attributes.is_empty() {
            return self.refuse("a multipart put with attributes");
        }
        let (path, engine) = (self.path_of(location)?, self.engine.clone());
        let staged = blocking(move || Staged::create(&engine, path)).await?;
        Ok(Box::new(Upload::new(staged)))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.local.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.local.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.local.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.local.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.local.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.local.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.local.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.local.rename_opts(from, to, options).await
    }
}

/// Makes a call that blocks, on a thread of the runtime for such calls if there is a runtime.
async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime.spawn_blocking(call).await?,
        Err(_) => call(),
    }
}
