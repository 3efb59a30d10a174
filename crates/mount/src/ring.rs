//! Requests that come in rings, a queue for each processor (FUSE over io_uring).
//!
//! ```text
//! program on processor 0 --> queue 0 --> threads of processor 0 --> `Served`
//! program on processor 1 --> queue 1 --> threads of processor 1 --> `Served`
//! names to forget ---------> /dev/fuse --> one thread of `turns`
//! ```
//!
//! The kernel gives a request to the thread of its queue that became free last. A queue begins with
//! one thread. One that takes a request while no other one waits starts another, up to a limit:
//! each may wait for a disk, and the requests after it need a thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};

use forebay_uring::fuse_ring::{Entry, Parts};
use forebay_uring::probe;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::filesystem::Served;
use crate::limits::{
    MOST_QUEUES, QUEUE_THREADS, REQUEST_BYTES, RING_THREADS, RINGS_OF_DESCRIPTORS, THREADS,
};
use crate::mounted::descriptor_limit;
use crate::reply::Reply;
use crate::threads::Threads;
use crate::turns::number;
use crate::wire::Request;

/// Bytes of the largest result of a request that has data itself: an extended attribute.
const BESIDE_DATA: usize = 64 << 10;

/// Queues of a connection that has not begun.
#[derive(Debug)]
pub(crate) struct Rings {
    queues: u16,
    /// Has the kernel use no rings, if the queues cannot be served.
    spare: Entry,
}

/// A queue with its threads.
#[derive(Debug)]
struct Queue {
    number: u16,
    /// Whether its threads stay on its processor.
    is_bound: bool,
    /// Largest number of threads.
    most: usize,
    served: Arc<Served>,
    /// Threads that wait for a request.
    waiting: AtomicUsize,
    threads: AtomicUsize,
}

impl Rings {
    /// Finds out whether this process may use rings.
    ///
    /// # Errors
    /// If io_uring is forbidden, or there are too many processors for the descriptors.
    pub(crate) fn find() -> io::Result<Self> {
        let queues = probe::possible_processors().unwrap_or(0);
        let queues = queues_for(queues, descriptor_limit())?;
        let mut spare = Entry::new(1)?;
        // Otherwise the kernel would wait for queues, and could not be asked to do without.
        spare.check()?;
        Ok(Self { queues, spare })
    }

    /// Starts a thread for each queue, and returns once the kernel has all of them.
    ///
    /// # Errors
    /// If one could not be started. The kernel uses no rings for this connection then.
    pub(crate) fn start(self, served: &Arc<Served>, threads: &Threads) -> io::Result<()> {
        let started = self.start_queues(served, threads);
        if started.is_err() {
            self.spare.decline(&served.device);
        }
        started
    }

    fn start_queues(&self, served: &Arc<Served>, threads: &Threads) -> io::Result<()> {
        let allowed = sched_getaffinity(None)?;
        let most = threads_for(self.queues);
        let (report, reports) = channel();
        for number in 0..self.queues {
            let queue = Arc::new(Queue {
                number,
                is_bound: allowed.is_set(number.into()),
                most,
                served: Arc::clone(served),
                waiting: AtomicUsize::new(0),
                threads: AtomicUsize::new(0),
            });
            queue.start_thread(threads, Some(report.clone()))?;
        }
        drop(report);
        reports.into_iter().fold(Ok(()), io::Result::and)
    }
}

/// Returns the number of queues, one for each processor.
///
/// # Errors
/// If this process may not have that many open files, or no machine has that many processors.
fn queues_for(processors: u32, descriptors: u64) -> io::Result<u16> {
    let most = MOST_QUEUES.min(descriptors / RINGS_OF_DESCRIPTORS);
    let queues = u16::try_from(processors).ok();
    queues.filter(|&queues| (1..=most).contains(&queues.into())).ok_or_else(|| {
        io::Error::other(format!(
            "{processors} processors need a queue each, and {most} are possible with at most \
             {descriptors} open files"
        ))
    })
}

/// Returns the largest number of threads of each queue.
fn threads_for(queues: u16) -> usize {
    (RING_THREADS / usize::from(queues)).clamp(QUEUE_THREADS, THREADS)
}

impl Queue {
    fn start_thread(
        self: &Arc<Self>,
        threads: &Threads,
        report: Option<Sender<io::Result<()>>>,
    ) -> io::Result<()> {
        let index = self.threads.fetch_add(1, Ordering::Relaxed);
        let (queue, more) = (Arc::clone(self), threads.clone());
        let name = format!("forebay-{}.{index}", self.number);
        let started = threads.start(&name, move || {
            let registered = queue.register();
            let report = |result| report.map_or(Ok(()), |report| report.send(result));
            match registered {
                Ok(entry) => {
                    // The receiver waits for all of them.
                    let _ = report(Ok(()));
                    queue.serve(entry, &more)
                }
                Err(error) => {
                    // The others of the queue go on.
                    queue.threads.fetch_sub(1, Ordering::Relaxed);
                    let _ = report(Err(error));
                    Ok(())
                }
            }
        });
        if started.is_err() {
            self.threads.fetch_sub(1, Ordering::Relaxed);
        }
        started
    }

    /// Gives an entry of this thread to the kernel.
    fn register(&self) -> io::Result<Entry> {
        if self.is_bound {
            let mut own = CpuSet::new();
            own.set(self.number.into());
            // The processor may be off.
            let _ = sched_setaffinity(None, &own);
        }
        let mut entry = Entry::new(REQUEST_BYTES as usize)?;
        // Counted before its first request.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let registered = entry.register(&self.served.device, self.number);
        if registered.is_err() {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        registered.map(|()| entry)
    }

    /// Serves requests until the connection ends.
    fn serve(self: &Arc<Self>, mut entry: Entry, threads: &Threads) -> io::Result<()> {
        let mut beside = vec![0; BESIDE_DATA];
        loop {
            match entry.wait() {
                Err(error) if is_end(&error) => return Ok(()),
                waited => waited?,
            }
            let others = self.waiting.fetch_sub(1, Ordering::SeqCst) - 1;
            if others == 0 && self.threads.load(Ordering::Relaxed) < self.most {
                // Without descriptors or memory for another one, these go on.
                let _ = self.start_thread(threads, None);
            }
            let length = serve_one(&self.served, entry.parts(), &mut beside)?;
            self.waiting.fetch_add(1, Ordering::SeqCst);
            entry.commit(length)?;
        }
    }
}

/// Serves the request in an entry. Returns the length of its result.
fn serve_one(served: &Served, parts: Parts<'_>, beside: &mut [u8]) -> io::Result<u32> {
    let Parts { header, fields, data, length } = parts;
    // A request without data leaves the room to its result.
    let (sent, room) = match length {
        0 => (&[][..], &mut data[..]),
        _ => (&data[..length], &mut beside[..]),
    };
    let request = Request::of_ring(header, fields, sent);
    let request = request.ok_or_else(|| io::Error::other("a request is too short"))?;
    let mut reply = Reply::new(room);
    let error = number(served.serve(&request, &mut reply));
    let (unique, bytes) = (request.unique, if error == 0 { reply.length() } else { 0 });
    if length > 0 {
        data[..bytes].copy_from_slice(&beside[..bytes]);
    }
    header[..4].copy_from_slice(&(16 + bytes as u32).to_ne_bytes());
    header[4..8].copy_from_slice(&error.to_ne_bytes());
    header[8..16].copy_from_slice(&unique.to_ne_bytes());
    Ok(bytes as u32)
}

/// Whether an error is the end of the connection.
fn is_end(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use forebay::{Engine, Options};

    use super::*;
    use crate::mounted::Mount;
    use crate::node::ROOT;
    use crate::wire::kind;

    /// Memory of an entry, and the receiver of its requests.
    struct Memory {
        served: Served,
        header: [u8; 128],
        fields: [u8; 128],
        data: Vec<u8>,
    }

    impl Memory {
        fn new(directory: &Path) -> Self {
            let options = Options { cache_bytes: Some(16 << 20), ..Options::default() };
            let mount = Arc::new(Mount::unmounted(directory, Engine::start(options).unwrap()));
            let device = Arc::new(std::fs::File::open("/dev/null").unwrap().into());
            let served = Served { mount, device, opened: 0 };
            Self { served, header: [0; 128], fields: [0xee; 128], data: vec![0xee; 1 << 20] }
        }

        /// Sends a request, and returns the error and the data of the reply.
        fn ask(&mut self, kind: u32, node: u64, fields: &[u64], data: &[u8]) -> (i32, Vec<u8>) {
            let number = 0x1234_5678_9abc_u64;
            self.header[4..8].copy_from_slice(&kind.to_ne_bytes());
            self.header[8..16].copy_from_slice(&number.to_ne_bytes());
            self.header[16..24].copy_from_slice(&node.to_ne_bytes());
            for (room, field) in self.fields.chunks_mut(8).zip(fields) {
                room.copy_from_slice(&field.to_ne_bytes());
            }
            self.data[..data.len()].copy_from_slice(data);
            let Self { served, header, fields, data: memory } = self;
            let parts = Parts { header, fields, data: memory, length: data.len() };
            let bytes = serve_one(served, parts, &mut vec![0; BESIDE_DATA]).unwrap();
            let word = |at: usize| u32::from_ne_bytes(self.header[at..at + 4].try_into().unwrap());
            assert_eq!(
                (word(0), self.header[8..16].to_vec()),
                (16 + bytes, number.to_ne_bytes().into())
            );
            (word(4).cast_signed(), self.data[..bytes as usize].to_vec())
        }
    }

    #[test]
    fn each_processor_has_a_queue_and_threads_or_none_has() {
        let found = |processors, descriptors| queues_for(processors, descriptors).ok();
        assert_eq!(
            (found(2, 256), found(4, 1024), found(256, 1 << 20)),
            (Some(2), Some(4), Some(256))
        );
        assert_eq!((found(0, 1 << 20), found(257, 1 << 20), found(9, 256)), (None, None, None));
        assert_eq!(found(1 << 20, 1 << 20), None);
        let why = queues_for(128, 1024).unwrap_err().to_string();
        assert!(why.contains("128 processors") && why.contains("1024 open files"), "{why}");
        let threads = [1, 2, 4, 8, 16, 64, 256].map(threads_for);
        assert_eq!(threads, [16, 16, 16, 8, 4, 4, 4]);
    }

    fn long(bytes: &[u8]) -> u64 {
        u64::from_ne_bytes(bytes[..8].try_into().unwrap())
    }

    #[test]
    fn a_reply_takes_the_place_of_its_request() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let mut memory = Memory::new(directory.path());
        let create = [(0o600 << 32) | 2, 0];
        let (error, made) = memory.ask(kind::CREATE, ROOT, &create, b"name\0");
        assert_eq!((error, made.len()), (0, 144));
        let (node, handle) = (long(&made), long(&made[128..]));
        let (error, found) = memory.ask(kind::LOOKUP, ROOT, &[], b"name\0");
        assert_eq!((error, found.len(), long(&found)), (0, 128, node));
        assert_eq!(memory.ask(kind::LOOKUP, ROOT, &[], b"other\0"), (-libc::ENOENT, vec![]));
        assert_eq!(memory.ask(kind::LOOKUP, ROOT, &[], b"endless"), (-libc::EINVAL, vec![]));
        let whole = vec![7; 1 << 20];
        let (error, written) = memory.ask(kind::WRITE, node, &[handle, 0, 1 << 20, 0, 2], &whole);
        assert_eq!((error, long(&written)), (0, 1 << 20));
        let (error, read) = memory.ask(kind::READ, node, &[handle, 0, 1 << 20, 0, 2], &[]);
        assert!(error == 0 && read == whole, "{error} {}", read.len());
        // A write that names more bytes than it has.
        let (error, _) = memory.ask(kind::WRITE, node, &[handle, 0, 9, 0, 2], b"12345678");
        assert_eq!(error, -libc::EINVAL);
        assert_eq!(memory.ask(kind::RELEASE, node, &[handle, 0, 0], &[]), (0, vec![]));
        assert_eq!(memory.ask(4711, node, &[], &[]), (-libc::ENOSYS, vec![]));
    }
}
