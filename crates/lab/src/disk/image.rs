//! The served image: a file system of one file, whose requests end when the disk would end them.
//!
//! A thread of the session makes a request on the content at once, and then holds its reply back
//! until the moment that the meter says. One more thread sends the replies that are held.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use forebay_uring::AlignedMemory;
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, WriteFlags,
};

use super::Charges;
use super::meter::Meter;
use super::store::{BLOCK, Store, lock};

/// Name of the file.
pub(super) const NAME: &str = "image";

const ROOT: u64 = 1;
const IMAGE: u64 = 2;

/// Requests of the kernel that may be under way at once.
const UNDER_WAY: u16 = 1024;

/// Bytes of the largest request.
const LARGEST: usize = 1 << 20;

/// Life of names and attributes in the kernel: they never change.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);

/// Whether the disk charges now, and the number of its open descriptors.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) charges: AtomicBool,
    pub(super) opens: AtomicU64,
}

pub(super) struct Image {
    store: Store,
    bytes: u64,
    flush: Duration,
    meter: Mutex<Meter>,
    start: Instant,
    held: Arc<Held>,
    pub(super) state: Arc<State>,
}

impl Image {
    /// Serves `bytes` bytes of a store. The replies are sent by a new thread.
    pub(super) fn new(store: Store, bytes: u64, charges: Charges) -> io::Result<Self> {
        let held = Arc::new(Held::default());
        let sender = Arc::clone(&held);
        std::thread::Builder::new().name("disk-replies".to_owned()).spawn(move || sender.send())?;
        Ok(Self {
            store,
            bytes,
            flush: Duration::from_micros(charges.flush_us.unwrap_or(0)),
            meter: Mutex::new(Meter::new(charges)),
            start: Instant::now(),
            held,
            state: Arc::default(),
        })
    }

    /// Sends a reply when the disk would end a request of these bytes.
    fn end(&self, bytes: u64, reply: impl FnOnce() + Send + 'static) {
        let mut delay = Duration::ZERO;
        if self.state.charges.load(Ordering::Relaxed) {
            let now = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            delay = Duration::from_nanos(lock(&self.meter).take(now, bytes) - now);
        }
        self.end_after(delay, reply);
    }

    fn end_after(&self, delay: Duration, reply: impl FnOnce() + Send + 'static) {
        if delay.is_zero() {
            reply();
        } else {
            self.held.hold(Instant::now() + delay, Box::new(reply));
        }
    }

    fn attributes(&self, number: u64) -> FileAttr {
        let (kind, perm, size) = match number {
            ROOT => (FileType::Directory, 0o700, 0),
            _ => (FileType::RegularFile, 0o600, self.bytes),
        };
        FileAttr {
            ino: INodeNo(number),
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: BLOCK as u32,
            flags: 0,
        }
    }
}

impl Filesystem for Image {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Without it, the thread of the loop device would wait for each request.
        config
            .add_capabilities(InitFlags::FUSE_ASYNC_DIO)
            .map_err(|_| io::Error::other("this kernel's FUSE has no asynchronous direct I/O"))?;
        let _ = config.set_max_background(UNDER_WAY);
        let _ = config.set_congestion_threshold(UNDER_WAY);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent.0 == ROOT && name == NAME {
            reply.entry(&FOR_EVER, &self.attributes(IMAGE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOR_EVER, &self.attributes(ino.0));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.state.opens.fetch_add(1, Ordering::AcqRel);
        let how = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), how);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.state.opens.fetch_sub(1, Ordering::AcqRel);
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let size = (self.bytes.saturating_sub(offset)).min(u64::from(size)) as usize;
        let mut memory = AlignedMemory::new(size);
        if let Err(error) = self.store.read(offset, &mut memory) {
            return reply.error(error.into());
        }
        self.end(size as u64, move || reply.data(&memory));
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        thread_local! {
            /// Aligned as a file needs it that is written past the page cache.
            static MEMORY: std::cell::RefCell<AlignedMemory> =
                std::cell::RefCell::new(AlignedMemory::new(LARGEST));
        }
        let written = match &self.store {
            Store::File(_) if data.len() <= LARGEST => MEMORY.with_borrow_mut(|memory| {
                memory[..data.len()].copy_from_slice(data);
                self.store.write(offset, &memory[..data.len()])
            }),
            store => store.write(offset, data),
        };
        if let Err(error) = written {
            return reply.error(error.into());
        }
        let length = data.len() as u32;
        self.end(length.into(), move || reply.written(length));
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let charges = self.state.charges.load(Ordering::Relaxed);
        let delay = if charges { self.flush } else { Duration::ZERO };
        self.end_after(delay, move || reply.ok());
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let clears = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;
        if mode & clears == 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        match self.store.clear(offset, length) {
            Ok(()) => self.end(0, move || reply.ok()),
            Err(error) => reply.error(error.into()),
        }
    }
}

type Reply = Box<dyn FnOnce() + Send>;

/// Replies that wait for their moment. A number keeps those of one moment apart.
#[derive(Default)]
struct Held {
    replies: Mutex<BTreeMap<(Instant, u64), Reply>>,
    sooner: Condvar,
    count: AtomicU64,
}

impl Held {
    fn hold(&self, at: Instant, reply: Reply) {
        let key = (at, self.count.fetch_add(1, Ordering::Relaxed));
        let mut replies = lock(&self.replies);
        let before = replies.insert(key, reply);
        assert!(before.is_none(), "each reply has a key of its own");
        let is_first = replies.first_key_value().is_some_and(|(first, _)| *first == key);
        drop(replies);
        if is_first {
            self.sooner.notify_one();
        }
    }

    /// Sends each reply at its moment, for ever.
    fn send(&self) {
        // The kernel otherwise wakes a thread up to 50 us late. It may refuse.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut replies = lock(&self.replies);
        loop {
            let Some(first) = replies.first_entry() else {
                replies = self.sooner.wait(replies).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = first.key().0.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let reply = first.remove();
                drop(replies);
                reply();
                replies = lock(&self.replies);
            } else {
                let waited = self.sooner.wait_timeout(replies, left);
                replies = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

#[cfg(test)]
mod tests;
