//! A sync of many files: one durable point for a set.
//!
//! Syncs one after the other commit the journal and flush the device once for each file. So a set
//! goes in three steps. The first flush commits the journal for all, and those beside it share the
//! flush of the device.
//!
//! ```text
//! write out A, B, C --> sync the directory of A and B, once --> fdatasync A | B | C
//! ```
//!
//! Nothing here starts or waits for a write outside the set. The limit of requests in flight bounds
//! the flushes that run at a time. Each file has a result of its own, as from a sync of that file.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use forebay_block::Errno;
use forebay_cache::TicketKind;
use forebay_cache::file::Entry;

use super::tickets;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::file::File;
use crate::core::inode::Inode;
use crate::core::limits::LEAD_PAGES;
use crate::core::logged::IntentLog;
use crate::core::logged::route::{Emptied, Tried, note_ordinary, try_record};
use crate::core::shared::Shared;
use crate::core::stats::Counters;
use crate::core::sync::tickets::Ticket;
use crate::core::wait;
use crate::platform::Identity;
use crate::platform::collections::HashMap;

/// Error of [`Engine::sync_many`](crate::Engine::sync_many): the files that may not be durable.
///
/// ```
/// use forebay::{Engine, File, SyncManyError};
///
/// /// Makes files durable. Returns those that may not be.
/// fn sync<'a>(engine: &Engine, files: &[&'a File]) -> Vec<&'a File> {
///     match engine.sync_many(files) {
///         Ok(()) => Vec::new(),
///         Err(SyncManyError { errors, .. }) => {
///             errors.iter().map(|(index, _)| files[*index]).collect()
///         }
///     }
/// }
/// ```
#[non_exhaustive]
pub struct SyncManyError {
    /// Index of each file in the arguments of the call, with its error as from
    /// [`File::sync_data`](crate::File::sync_data). In the order of the arguments.
    pub errors: Vec<(usize, Error)>,
}

impl SyncManyError {
    /// Returns the failures among the results of a set of files.
    pub(crate) fn check(results: Vec<Result<()>>) -> std::result::Result<(), Self> {
        let numbered = results.into_iter().enumerate();
        let errors: Vec<_> =
            numbered.filter_map(|(index, result)| Some((index, result.err()?))).collect();
        if errors.is_empty() { Ok(()) } else { Err(Self { errors }) }
    }
}

impl fmt::Display for SyncManyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errors.as_slice() {
            [] => formatter.write_str("a file could not be synced"),
            [(_, first)] => write!(formatter, "{first}"),
            [(_, first), others @ ..] => {
                write!(formatter, "{first}; {} more files could not be synced", others.len())
            }
        }
    }
}

impl fmt::Debug for SyncManyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(&self.errors).finish()
    }
}

impl std::error::Error for SyncManyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.errors.first().map(|(_, first)| first as _)
    }
}

/// Keeps the first error.
impl From<SyncManyError> for Error {
    fn from(error: SyncManyError) -> Self {
        let text = error.to_string();
        let first = error.errors.into_iter().next();
        first.map_or_else(|| Error::new(ErrorKind::Io, text), |(_, first)| first)
    }
}

/// Makes the data of files durable that was accepted before the call. Returns a result for each.
pub(crate) async fn sync(shared: &Arc<Shared>, files: &[&File]) -> Vec<Result<()>> {
    let checked: Vec<_> = files.iter().map(|file| check(shared, file)).collect();
    if let Some(log) = &shared.log {
        return sync_with_log(shared, log, files, checked).await;
    }
    let inodes: Vec<_> = files
        .iter()
        .zip(&checked)
        .filter(|(_, checked)| checked.is_ok())
        .map(|(file, _)| &file.inode)
        .collect();
    // A set of one is synced as ever: its caller may make the requests.
    let tickets = if inodes.len() > 1 { flush(shared, &inodes).await } else { Vec::new() };
    let is_whole = tickets.is_empty() || tickets.len() == inodes.len();
    assert!(is_whole, "a file would get the result of another one");
    let mut tickets = tickets.into_iter();
    let mut results = Vec::with_capacity(files.len());
    for (file, checked) in files.iter().zip(checked) {
        results.push(match checked {
            Err(refused) => Err(refused),
            Ok(()) => match tickets.next() {
                Some(ticket) => file.and_unreported(ticket.await),
                None => file.sync_data_async().await,
            },
        });
    }
    assert_eq!(results.len(), files.len(), "a caller would take a file for durable");
    results
}

/// As [`sync`] in an engine with an intent log. All records go into one batch, or a few. Files that
/// have to be emptied are emptied together, and the others flushed together.
async fn sync_with_log(
    shared: &Arc<Shared>,
    log: &Arc<IntentLog>,
    files: &[&File],
    checked: Vec<Result<()>>,
) -> Vec<Result<()>> {
    let _syncing = log.begin_syncs(files.len());
    let tries = files.iter().zip(&checked).map(|(file, checked)| {
        let inode = &file.inode;
        checked.is_ok().then(|| {
            let tried = try_record(shared, log, inode, TicketKind::FlushData);
            // The first poll of each queues its file.
            Box::pin(tried)
        })
    });
    let tried = Together::new(tries.collect()).await;
    let ordinary: Vec<_> = files
        .iter()
        .zip(&tried)
        .filter(|(_, tried)| matches!(tried, Some(Tried::Ordinary)))
        .map(|(file, _)| &file.inode)
        .collect();
    let emptied: Vec<_> = files
        .iter()
        .zip(&tried)
        .map(|(file, tried)| {
            let is_emptied = matches!(tried, Some(Tried::Emptied));
            is_emptied.then(|| Emptied::ask(shared, log, &file.inode))
        })
        .collect();
    let flushed = if ordinary.is_empty() { Vec::new() } else { flush(shared, &ordinary).await };
    let (mut flushed, mut results) = (flushed.into_iter(), Vec::with_capacity(files.len()));
    for (((file, checked), tried), emptied) in files.iter().zip(checked).zip(tried).zip(emptied) {
        let result = match (tried, emptied) {
            (_, Some(emptied)) => emptied.await,
            (None, _) => {
                results.push(checked);
                continue;
            }
            (Some(Tried::Failed(error)), _) => Err(error),
            (Some(Tried::Logged), _) => Ok(()),
            (Some(Tried::Ordinary | Tried::Emptied), None) => {
                let flush = flushed.next().expect("each of these files has a ticket");
                let flushed = flush.await;
                if flushed.is_ok() {
                    note_ordinary(shared, log, &file.inode);
                }
                flushed
            }
        };
        results.push(file.and_unreported(result));
    }
    assert_eq!(results.len(), files.len(), "a caller would take a file for durable");
    results
}

/// Future of several futures. It polls all of them before it waits for one.
struct Together<F: Future>(Vec<Part<F>>);

/// A future, and its result once it has one.
struct Part<F: Future> {
    future: Option<Pin<Box<F>>>,
    result: Option<F::Output>,
}

impl<F: Future> Together<F> {
    fn new(futures: Vec<Option<Pin<Box<F>>>>) -> Self {
        Self(futures.into_iter().map(|future| Part { future, result: None }).collect())
    }
}

impl<F: Future> Future for Together<F>
where
    F::Output: Unpin,
{
    /// The results, in order. `None` for no future.
    type Output = Vec<Option<F::Output>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        for part in &mut self.0 {
            if let Some(future) = &mut part.future
                && let Poll::Ready(ended) = future.as_mut().poll(context)
            {
                (part.future, part.result) = (None, Some(ended));
            }
        }
        if self.0.iter().any(|part| part.future.is_some()) {
            return Poll::Pending;
        }
        Poll::Ready(self.0.drain(..).map(|part| part.result).collect())
    }
}

/// Writes the files out, syncs directories of new files, and begins the flushes.
async fn flush(shared: &Arc<Shared>, inodes: &[&Arc<Inode>]) -> Vec<Ticket> {
    Counters::add(&shared.counters.syncs, inodes.len() as u64);
    for inode in inodes {
        if inode.lock().cache.dirty_pages() <= LEAD_PAGES {
            inode.volume.note_small_sync();
        }
    }
    for ticket in ask(shared, inodes, TicketKind::WriteOut) {
        // A page that could not be written fails the flush, too, which reports it.
        let _ = ticket.await;
    }
    sync_directories(shared, inodes).await;
    ask(shared, inodes, TicketKind::FlushData)
}

/// Checks that this engine can sync a file.
fn check(shared: &Arc<Shared>, file: &File) -> Result<()> {
    shared.check()?;
    if Arc::ptr_eq(shared, &file.shared) {
        return Ok(());
    }
    let what = "the file was opened by another engine";
    Err(Error::new(ErrorKind::InvalidInput, what)
        .at_path(file.path())
        .remedy("sync it with that engine"))
}

/// Sends the same request for several files.
fn ask(shared: &Shared, inodes: &[&Arc<Inode>], request: TicketKind) -> Vec<Ticket> {
    shared.finishing(|after| {
        let ask = |inode: &&Arc<Inode>| {
            Ticket::new(Arc::clone(inode), tickets::ask(inode, shared, request, after))
        };
        inodes.iter().map(ask).collect()
    })
}

/// Syncs each directory that has several new files of the set, once. The kernel reports a failed
/// flush once, so a failure poisons all of these files, also if the future is dropped before.
async fn sync_directories(shared: &Arc<Shared>, inodes: &[&Arc<Inode>]) {
    let mut new: HashMap<Identity, Vec<&Arc<Inode>>> = HashMap::default();
    for inode in inodes {
        if inode.lock().cache.entry() == Entry::New
            && let Ok(Some(directory)) = inode.file.kept_directory()
        {
            new.entry(directory).or_default().push(inode);
        }
    }
    new.retain(|_, inodes| inodes.len() > 1);
    let mut begun = Vec::with_capacity(new.len());
    for inodes in new.into_values() {
        let Some(flush) = DirectoryFlush::begin(shared, &inodes) else { continue };
        begun.push(shared.offload.call(move || {
            flush.make();
            Ok(())
        }));
    }
    for synced in begun {
        // If the call was not made, each file syncs the directory itself.
        let _ = wait::called(synced).await;
    }
}

/// Sync of the directory of new files, which meanwhile do not sync it themselves. Dropping it
/// without a result leaves that to them.
struct DirectoryFlush {
    shared: Arc<Shared>,
    inodes: Vec<Arc<Inode>>,
    result: Option<std::result::Result<(), Errno>>,
}

impl DirectoryFlush {
    /// Begins a sync for those files that have not begun one. Returns `None` if all have.
    fn begin(shared: &Arc<Shared>, inodes: &[&Arc<Inode>]) -> Option<Self> {
        let begins =
            |inode: &&Arc<Inode>| shared.change(inode, |file| file.cache.begin_directory());
        let inodes: Vec<_> = inodes.iter().copied().filter(begins).cloned().collect();
        let shared = Arc::clone(shared);
        (!inodes.is_empty()).then_some(Self { shared, inodes, result: None })
    }

    /// Blocks.
    fn make(mut self) {
        assert!(!self.inodes.is_empty() && self.result.is_none(), "a directory is synced once");
        let errno = |error: &std::io::Error| error.raw_os_error().map_or(Errno::IO, Errno);
        let made = self.inodes[0].file.sync_directory();
        self.result = Some(made.map_err(|error| errno(&error)));
    }
}

impl Drop for DirectoryFlush {
    fn drop(&mut self) {
        for inode in &self.inodes {
            self.shared.change(inode, |file| {
                file.apply(|cache, settled| cache.settle_directory(self.result, settled));
                // A sync of the file may wait for this.
                file.look();
            });
        }
    }
}
