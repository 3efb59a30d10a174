//! Few threads wait for the next request, and many can serve one.
//!
//! The kernel gives each request to the thread that has waited longest. With many threads that
//! wait, each request finds another one, whose stack and processor have cooled down. With few
//! threads, those that wait for the device would hold up all requests. So a thread that has served
//! a request rests if enough others wait, and the last one that waits wakes one that rests:
//!
//! ```text
//!   waits for a request --> serves it --> waits again, if fewer than WAITING do
//!         ^                   |  \------> rests
//!         |                   \ the last that waited
//!         \-- one that rests <-/
//! ```
//!
//! While requests overlap, no thread rests: to wake it would cost more.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, INodeNo, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use crate::accessed::now;
use crate::filesystem::Served;
use crate::limits::{OVERLAPS, THREADS, WAITING};
use crate::mounted::Mount;

thread_local! {
    /// Ends the rest of the others when this thread ends.
    static END: RefCell<Option<End>> = const { RefCell::new(None) };
}

struct End(Arc<Turns>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.resting().is_over = true;
        self.0.woken.notify_all();
    }
}

/// The threads that serve.
#[derive(Debug)]
struct Turns {
    /// Threads that wait for a request.
    waiting: AtomicUsize,
    /// Threads that have served one. Each of them reports its end.
    known: AtomicUsize,
    /// Milliseconds of the clock at which no thread was waiting.
    overlapped: AtomicU64,
    resting: Mutex<Resting>,
    woken: Condvar,
}

#[derive(Debug, Default)]
struct Resting {
    threads: usize,
    /// Threads that are to wake and have not yet.
    wakes: usize,
    is_over: bool,
}

/// The service of one request.
struct Turn<'a>(&'a Turns);

impl Turns {
    /// The kernel sends nothing before all threads wait.
    fn new() -> Self {
        Self {
            waiting: AtomicUsize::new(THREADS),
            known: AtomicUsize::new(0),
            overlapped: AtomicU64::new(0),
            resting: Mutex::default(),
            woken: Condvar::new(),
        }
    }

    fn resting(&self) -> MutexGuard<'_, Resting> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(self: &Arc<Self>) -> Turn<'_> {
        END.with_borrow_mut(|end| {
            if end.is_none() {
                *end = Some(End(Arc::clone(self)));
                self.known.fetch_add(1, Ordering::Relaxed);
            }
        });
        if self.waiting.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.overlapped.store(now(), Ordering::Relaxed);
            let mut resting = self.resting();
            if resting.threads > resting.wakes {
                resting.wakes += 1;
                self.woken.notify_one();
            }
        }
        Turn(self)
    }

    /// Whether a thread may rest. The end of one that is not known would wake none.
    fn is_quiet(&self) -> bool {
        let overlapped = self.overlapped.load(Ordering::Relaxed);
        now().saturating_sub(overlapped) > OVERLAPS.as_millis() as u64
            && self.known.load(Ordering::Relaxed) == THREADS
    }

    /// Rests until no thread waits, unless few do.
    fn rest(&self) {
        let mut resting = self.resting();
        // Under the lock: one that wakes finds this thread among those that rest.
        let enough = |waiting: usize| (waiting > WAITING).then(|| waiting - 1);
        let order = Ordering::SeqCst;
        if resting.is_over || self.waiting.fetch_update(order, order, enough).is_err() {
            return;
        }
        resting.threads += 1;
        while resting.wakes == 0 && !resting.is_over {
            resting = self.woken.wait(resting).unwrap_or_else(PoisonError::into_inner);
        }
        resting.wakes = resting.wakes.saturating_sub(1);
        resting.threads -= 1;
        drop(resting);
        self.waiting.fetch_add(1, order);
    }
}

impl Turn<'_> {
    /// Ends it without a rest: it may be one of many that arrived as one request.
    fn go_on(self) {
        self.0.waiting.fetch_add(1, Ordering::SeqCst);
        std::mem::forget(self);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.0.waiting.fetch_add(1, Ordering::SeqCst) >= WAITING && self.0.is_quiet() {
            self.0.rest();
        }
    }
}

/// Serves each request in a turn.
#[derive(Debug)]
pub(crate) struct InTurns {
    served: Served,
    turns: Arc<Turns>,
}

impl InTurns {
    pub(crate) fn new(mount: Arc<Mount>) -> Self {
        let served = Served { mount, opened: FopenFlags::empty() };
        Self { served, turns: Arc::new(Turns::new()) }
    }
}

macro_rules! in_turn {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        fn $name(&self, request: &Request, $($argument: $type),*) {
            let _turn = self.turns.begin();
            self.served.$name(request, $($argument),*);
        }
    )*};
}

impl Filesystem for InTurns {
    fn init(&mut self, request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.served.init(request, config)
    }

    fn forget(&self, request: &Request, node: INodeNo, lookups: u64) {
        let turn = self.turns.begin();
        self.served.forget(request, node, lookups);
        turn.go_on();
    }

    in_turn! {
        lookup(dir: INodeNo, name: &OsStr, reply: ReplyEntry);
        getattr(node: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr);
        setattr(node: INodeNo, mode: Option<u32>, user: Option<u32>, group: Option<u32>,
            size: Option<u64>, accessed: Option<TimeOrNow>, modified: Option<TimeOrNow>,
            changed: Option<SystemTime>, fh: Option<FileHandle>, created: Option<SystemTime>,
            changed_mode: Option<SystemTime>, backed_up: Option<SystemTime>,
            flags: Option<BsdFileFlags>, reply: ReplyAttr);
        readlink(node: INodeNo, reply: ReplyData);
        mknod(dir: INodeNo, name: &OsStr, mode: u32, umask: u32, device: u32, reply: ReplyEntry);
        mkdir(dir: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry);
        unlink(dir: INodeNo, name: &OsStr, reply: ReplyEmpty);
        rmdir(dir: INodeNo, name: &OsStr, reply: ReplyEmpty);
        symlink(dir: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry);
        rename(dir: INodeNo, name: &OsStr, to: INodeNo, new_name: &OsStr, flags: RenameFlags,
            reply: ReplyEmpty);
        link(node: INodeNo, dir: INodeNo, name: &OsStr, reply: ReplyEntry);
        open(node: INodeNo, flags: OpenFlags, reply: ReplyOpen);
        create(dir: INodeNo, name: &OsStr, mode: u32, umask: u32, flags: i32, reply: ReplyCreate);
        read(node: INodeNo, fh: FileHandle, offset: u64, size: u32, flags: OpenFlags,
            owner: Option<LockOwner>, reply: ReplyData);
        write(node: INodeNo, fh: FileHandle, offset: u64, data: &[u8], kind: WriteFlags,
            flags: OpenFlags, owner: Option<LockOwner>, reply: ReplyWrite);
        flush(node: INodeNo, fh: FileHandle, owner: LockOwner, reply: ReplyEmpty);
        release(node: INodeNo, fh: FileHandle, flags: OpenFlags, owner: Option<LockOwner>,
            flushes: bool, reply: ReplyEmpty);
        fsync(node: INodeNo, fh: FileHandle, is_data: bool, reply: ReplyEmpty);
        opendir(node: INodeNo, flags: OpenFlags, reply: ReplyOpen);
        readdir(node: INodeNo, fh: FileHandle, offset: u64, reply: ReplyDirectory);
        readdirplus(node: INodeNo, fh: FileHandle, offset: u64, reply: ReplyDirectoryPlus);
        releasedir(node: INodeNo, fh: FileHandle, flags: OpenFlags, reply: ReplyEmpty);
        fsyncdir(node: INodeNo, fh: FileHandle, is_data: bool, reply: ReplyEmpty);
        statfs(node: INodeNo, reply: ReplyStatfs);
        setxattr(node: INodeNo, name: &OsStr, value: &[u8], flags: i32, position: u32,
            reply: ReplyEmpty);
        getxattr(node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr);
        listxattr(node: INodeNo, size: u32, reply: ReplyXattr);
        removexattr(node: INodeNo, name: &OsStr, reply: ReplyEmpty);
        ioctl(node: INodeNo, fh: FileHandle, flags: IoctlFlags, command: u32, data: &[u8],
            size: u32, reply: ReplyIoctl);
        fallocate(node: INodeNo, fh: FileHandle, offset: u64, length: u64, mode: i32,
            reply: ReplyEmpty);
        lseek(node: INodeNo, fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek);
        copy_file_range(from: INodeNo, from_fh: FileHandle, from_offset: u64, to: INodeNo,
            to_fh: FileHandle, to_offset: u64, length: u64, flags: CopyFileRangeFlags,
            reply: ReplyWrite);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Requests as the kernel gives them out: each is the length of its service.
    fn serve(turns: &Arc<Turns>) -> (mpsc::Sender<Duration>, Vec<std::thread::JoinHandle<()>>) {
        let (send, requests) = mpsc::channel();
        let requests = Arc::new(Mutex::new(requests));
        let threads = (0..THREADS).map(|_| {
            let (turns, requests) = (Arc::clone(turns), Arc::clone(&requests));
            std::thread::spawn(move || {
                loop {
                    let request = requests.lock().unwrap().recv();
                    let Ok(length) = request else { return };
                    let _turn = turns.begin();
                    std::thread::sleep(length);
                }
            })
        });
        (send, threads.collect())
    }

    #[test]
    fn a_thread_with_more_to_do_does_not_rest() {
        let turns = Arc::new(Turns::new());
        turns.known.store(THREADS - 1, Ordering::Relaxed);
        (0..3).for_each(|_| turns.begin().go_on());
        assert!(turns.is_quiet() && turns.waiting.load(Ordering::Relaxed) == THREADS);
    }

    #[test]
    fn threads_rest_serve_a_burst_and_end() {
        let turns = Arc::new(Turns::new());
        let (send, threads) = serve(&turns);
        let until = |is_so: &dyn Fn() -> bool| {
            let begin = std::time::Instant::now();
            while !is_so() {
                assert!(begin.elapsed() < Duration::from_secs(20), "{turns:?}");
                send.send(Duration::from_micros(1)).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        for _ in 0..3 {
            // All at once, so that each thread is known.
            (0..2 * THREADS).for_each(|_| send.send(Duration::from_millis(100)).unwrap());
            until(&|| turns.known.load(Ordering::Relaxed) == THREADS);
            until(&|| turns.resting().threads >= THREADS - WAITING - 1);
            // One long request for each thread.
            let begin = std::time::Instant::now();
            (0..THREADS).for_each(|_| send.send(Duration::from_millis(300)).unwrap());
            until(&|| turns.resting().threads == 0);
            until(&|| turns.waiting.load(Ordering::Relaxed) >= WAITING);
            assert!(begin.elapsed() >= Duration::from_millis(300));
        }
        until(&|| turns.resting().threads > 0);
        drop(send);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
