//! A mounted source: its nodes, its open files, and where their data goes.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use fuser::Notifier;

use crate::data::Way;
use crate::directory::OpenDirectory;
use crate::forgetting::Forgetting;
use crate::limits::DESCRIPTORS;
use crate::node::Nodes;
use crate::open_file::OpenFile;
use crate::passed::Passing;
use crate::settle::Settling;

/// A mounted source.
#[derive(Debug)]
pub(crate) struct Mount {
    /// The directory that is mounted, locked while it is.
    pub(crate) source: File,
    pub(crate) way: Way,
    pub(crate) nodes: Nodes,
    pub(crate) settling: Settling,
    pub(crate) forgetting: Forgetting,
    pub(crate) files: Handles<OpenFile>,
    pub(crate) directories: Handles<OpenDirectory>,
    pub(crate) passing: Passing,
    /// The way to the kernel, once it is mounted.
    pub(crate) notifier: OnceLock<Notifier>,
    /// The first error of a close after the last one of a program, which no call reports.
    lost: Mutex<Option<String>>,
    log: Log,
}

/// Receiver of one line for each event that no request can report.
#[derive(Clone)]
pub(crate) struct Log(pub(crate) Arc<dyn Fn(&str) + Send + Sync>);

impl fmt::Debug for Log {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Log")
    }
}

impl Mount {
    pub(crate) fn log(&self, line: &str) {
        (self.log.0)(line);
    }

    /// Logs that data was lost, and keeps the first such line for the end of the mount.
    pub(crate) fn lose(&self, line: String) {
        self.log(&line);
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(line);
    }

    /// Returns the first loss.
    pub(crate) fn lost(&self) -> Option<String> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the descriptors of nodes and of open files, or a few more.
    pub(crate) fn descriptors(&self) -> usize {
        let open = self.files.count() + self.directories.count();
        self.nodes.count() + open + self.settling.count()
    }

    pub(crate) fn new(source: File, way: Way, nodes: Nodes, log: Log) -> Self {
        Self {
            forgetting: Forgetting::new(descriptor_limit()),
            source,
            way,
            nodes,
            log,
            settling: Settling::default(),
            files: Handles::default(),
            directories: Handles::default(),
            passing: Passing::default(),
            notifier: OnceLock::new(),
            lost: Mutex::default(),
        }
    }
}

#[cfg(any(test, fuzzing))]
impl Mount {
    /// The mount of a directory that is not mounted.
    pub(crate) fn unmounted(directory: &std::path::Path, engine: forebay::Engine) -> Self {
        use rustix::fs::{CWD, Mode, OFlags, openat};

        use crate::small::Stack;

        let root = openat(CWD, directory, OFlags::PATH, Mode::empty()).unwrap();
        let way = Way::Engine(Arc::new(Stack::new(engine, 16 << 20)));
        let source = File::open(directory).unwrap();
        Self::new(source, way, Nodes::new(root).unwrap(), Log(Arc::new(|_: &str| {})))
    }
}

/// Returns the limit of open files of this process.
pub(crate) fn descriptor_limit() -> u64 {
    forebay_uring::detached::descriptor_limit().unwrap_or(DESCRIPTORS)
}

/// Numbers of open files, as the kernel sends them.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    last: AtomicU64,
    open: RwLock<HashMap<u64, Arc<T>>>,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self { last: AtomicU64::new(0), open: RwLock::default() }
    }
}

impl<T> Handles<T> {
    fn count(&self) -> usize {
        self.open.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(crate) fn add(&self, open: Arc<T>) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(number, open);
        number
    }

    pub(crate) fn get(&self, handle: u64) -> io::Result<Arc<T>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&handle).cloned().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    pub(crate) fn remove(&self, handle: u64) -> Option<Arc<T>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&handle)
    }
}
