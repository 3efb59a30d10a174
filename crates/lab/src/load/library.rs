//! Forebay's own path: every job's files in one engine, one blocking call after the other. The
//! engine's counters show its own requests in flight. A job with a depth goes by
//! [`super::futures`].

use std::future::Future;
use std::ops::DerefMut;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use forebay::{Buffer, Builder, DirectFile, Engine, ErrorKind, File, Keeper, OpenOptions, Options};

use super::error::{CellError, Context};
use super::lane::Serial;
use super::layout::{FileKind, JobPlan};
use super::sequence::{Kind, Operation};
use crate::job::{Caching, FinalSync, YesNo};

/// Gives an engine a keeper: this program, which has to be `forebay`.
pub(crate) fn with_keeper(builder: Builder) -> Builder {
    builder.survive(Keeper::program("/proc/self/exe"))
}

/// Builds an engine with this budget (its own default if zero), unless the settings say otherwise.
/// `with` adds what no setting can.
pub(crate) fn build_engine(
    budget_bytes: u64,
    settings: &[(String, String)],
    with: impl FnOnce(Builder) -> Builder,
) -> Result<Engine, CellError> {
    let cache_bytes = (budget_bytes > 0).then_some(budget_bytes);
    let mut options = Options { cache_bytes, ..Options::default() };
    for (key, value) in settings {
        options
            .set(key, value)
            .map_err(|error| CellError::invalid(format!("--set {key}={value}: {error}")))?;
    }
    with(Engine::builder(options)).build().map_err(|error| match error.kind() {
        // A setting that needs a right which this user does not have.
        ErrorKind::NotPermitted => CellError::unavailable(error.to_string()),
        _ => CellError::failed("could not make the engine", &error),
    })
}

/// Ends an engine whose files are closed. Returns its last error.
pub(crate) fn shut_down(engine: Arc<Engine>) -> Result<(), CellError> {
    const PATIENCE: Duration = Duration::from_secs(60);
    engine.shutdown(PATIENCE).context("could not shut the engine down")
}

/// An operation with its memory, until it has ended.
pub(crate) type Flight<Memory> =
    Pin<Box<dyn Future<Output = (Memory, Result<(), CellError>)> + Send>>;

/// A file of the library, through its cache or past it.
pub(crate) trait Handle: Send + Sync + Sized + 'static {
    /// Memory of one operation.
    type Memory: DerefMut<Target = [u8]> + Send;

    fn open(engine: &Engine, path: &Path, how: &OpenOptions) -> forebay::Result<Self>;

    /// Returns why the file is accessed in another way than its kind says.
    fn refused(&self) -> Option<String> {
        None
    }

    fn set_length(&self, length: u64) -> forebay::Result<()>;

    fn sync_as(&self, how: FinalSync) -> Result<(), CellError>;

    fn close_it(self) -> Result<(), CellError>;

    /// Submits an operation, if its kind does that before it is polled.
    fn submit(self: &Arc<Self>, memory: Self::Memory, operation: Operation)
    -> Flight<Self::Memory>;
}

/// Calls of the same names. Those of a direct file return what is waited for.
macro_rules! same_calls {
    ($open:ident $($wait:tt)*) => {
        fn open(engine: &Engine, path: &Path, how: &OpenOptions) -> forebay::Result<Self> {
            engine.$open(path, how)
        }

        fn set_length(&self, length: u64) -> forebay::Result<()> {
            self.set_len(length)$($wait)*
        }

        fn sync_as(&self, how: FinalSync) -> Result<(), CellError> {
            let synced = match how {
                FinalSync::Data => self.sync_data()$($wait)*,
                FinalSync::All => self.sync_all()$($wait)*,
            };
            synced.context("could not sync it")
        }

        fn close_it(self) -> Result<(), CellError> {
            self.close()$($wait)*.context("could not close it")
        }
    };
}

impl Handle for File {
    type Memory = Box<[u8]>;

    same_calls!(open);

    fn submit(self: &Arc<Self>, mut memory: Box<[u8]>, operation: Operation) -> Flight<Box<[u8]>> {
        let file = Arc::clone(self);
        Box::pin(async move {
            let Operation { kind, offset, bytes, .. } = operation;
            let part = &mut memory[..bytes as usize];
            let moved = match kind {
                Kind::Write => {
                    file.asynchronous().write_at(part, offset).await.map(|()| part.len())
                }
                Kind::Read => file.asynchronous().read_at(part, offset).await,
            };
            (memory, check(operation, moved))
        })
    }
}

impl Handle for DirectFile {
    type Memory = Buffer;

    same_calls!(open_direct.wait());

    fn refused(&self) -> Option<String> {
        Some(self.describe()).filter(|how| !how.starts_with("direct"))
    }

    fn submit(self: &Arc<Self>, mut memory: Buffer, operation: Operation) -> Flight<Buffer> {
        let Operation { kind, offset, bytes, .. } = operation;
        memory.set_len(bytes as usize);
        let transfer = match kind {
            Kind::Write => self.write_at(memory, offset),
            Kind::Read => self.read_at(memory, offset),
        };
        Box::pin(async move {
            let (moved, mut memory) = transfer.await;
            memory.set_len(memory.capacity());
            (memory, check(operation, moved))
        })
    }
}

/// Opens a job's files: uncached where the job is, with their length told where the job does that.
pub(crate) fn open_files<F: Handle>(engine: &Engine, plan: &JobPlan) -> Result<Vec<F>, CellError> {
    let job = &plan.job;
    let mut files = Vec::with_capacity(plan.files.len());
    for file in &plan.files {
        let mut how = OpenOptions::new();
        how.read(true).write(plan.writes());
        how.create(plan.writes() && file.kind == FileKind::Regular);
        if job.caching == Caching::Uncached {
            how.uncached(true);
        }
        let open = F::open(engine, &file.path, &how);
        let open = open.map_err(|error| match error.kind() {
            // It serves no such file, or not here.
            ErrorKind::Unsupported => CellError::unavailable(error.to_string()),
            _ => CellError::failed("could not open it", &error),
        })?;
        if let Some(how) = open.refused() {
            let (name, path) = (&job.name, file.path.display());
            return Err(CellError::unavailable(format!(
                "job {name}: direct=1, but {path} is {how} (set direct=0, or use --dir with \
                 another file system)"
            )));
        }
        if plan.writes() && job.declared == YesNo::Yes && file.kind == FileKind::Regular {
            open.set_length(file.length).context("could not give it its length")?;
        }
        files.push(open);
    }
    Ok(files)
}

/// Returns memory of the engine's pool for direct operations.
pub(crate) fn pool_buffers(
    engine: &Engine,
    count: usize,
    bytes: usize,
) -> Result<Vec<Buffer>, CellError> {
    let buffers: forebay::Result<_> = (0..count).map(|_| engine.buffer(bytes)).collect();
    buffers.context("could not take its buffers")
}

/// Compares the length of a transfer with the expected one.
fn check(operation: Operation, moved: forebay::Result<usize>) -> Result<(), CellError> {
    let Operation { kind, offset, bytes, .. } = operation;
    let verb = if kind == Kind::Read { "read" } else { "write" };
    match moved {
        Ok(moved) if moved == bytes as usize => Ok(()),
        Ok(moved) => {
            Err(CellError::Process { what: format!("{verb} {moved} of {bytes} bytes at {offset}") })
        }
        Err(error) => Err(CellError::failed(format!("could not {verb}"), &error)),
    }
}

/// Files of an engine for blocking calls.
pub(crate) struct Blocking(pub(crate) Vec<File>);

impl Serial for Blocking {
    fn transfer(&mut self, operation: Operation, buffer: &mut [u8]) -> Result<(), CellError> {
        let Operation { file, offset, bytes, kind } = operation;
        let (file, buffer) = (&self.0[file], &mut buffer[..bytes as usize]);
        let moved = match kind {
            Kind::Write => file.write_at(buffer, offset).map(|()| buffer.len()),
            Kind::Read => file.read_at(buffer, offset),
        };
        check(operation, moved)
    }

    fn sync(&mut self, file: usize, how: FinalSync) -> Result<(), CellError> {
        self.0[file].sync_as(how)
    }

    fn close(self) -> Result<(), CellError> {
        self.0.into_iter().try_for_each(Handle::close_it)
    }
}
