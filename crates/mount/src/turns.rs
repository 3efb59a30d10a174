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

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use forebay_uring::fuse;
use rustix::io::{Errno, read, write};

use crate::accessed::now;
use crate::filesystem::Served;
use crate::limits::{OVERLAPS, REQUEST_BYTES, WAITING};
use crate::reply::Reply;
use crate::threads::Threads;
use crate::wire::{Request, kind};

/// Bytes of the header of a reply.
const HEADER_BYTES: usize = 16;

/// Room for the header and the fields of the largest request.
const FIELDS_BYTES: usize = 4096;

/// The threads that serve.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Threads that wait for a request.
    waiting: AtomicUsize,
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

/// Ends the rest of the others when a thread ends.
struct End<'a>(&'a Turns);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.resting().is_over = true;
        self.0.woken.notify_all();
    }
}

impl Turns {
    /// The kernel sends nothing before all threads wait.
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            waiting: AtomicUsize::new(threads),
            overlapped: AtomicU64::new(0),
            resting: Mutex::default(),
            woken: Condvar::new(),
        }
    }

    fn resting(&self) -> MutexGuard<'_, Resting> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) -> Turn<'_> {
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

    /// Whether a thread may rest.
    fn is_quiet(&self) -> bool {
        let overlapped = self.overlapped.load(Ordering::Relaxed);
        now().saturating_sub(overlapped) > OVERLAPS.as_millis() as u64
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

/// Starts this many threads for a connection.
pub(crate) fn start(served: &Arc<Served>, count: usize, threads: &Threads) -> io::Result<()> {
    let turns = Arc::new(Turns::new(count));
    for number in 0..count {
        let device = match number {
            0 => Arc::clone(&served.device),
            _ => Arc::new(fuse::joined(&served.device)?),
        };
        let (served, turns) = (Arc::clone(served), Arc::clone(&turns));
        threads.start(&format!("forebay-{number}"), move || serve(&device, &served, &turns))?;
    }
    Ok(())
}

/// Serves requests that are read from a device, until the connection ends.
pub(crate) fn serve(device: &OwnedFd, served: &Served, turns: &Turns) -> io::Result<()> {
    let _end = End(turns);
    let mut message = vec![0; FIELDS_BYTES + REQUEST_BYTES as usize];
    let mut answer = vec![0; HEADER_BYTES + REQUEST_BYTES as usize];
    loop {
        let bytes = match read(device, &mut message[..]) {
            Ok(bytes) => bytes,
            // The second one for a request that was interrupted.
            Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => continue,
            // The second one for a mount that was detached, with its last file.
            Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let request = Request::of_message(&message[..bytes]);
        let request = request.ok_or_else(|| io::Error::other("a request is too short"))?;
        let turn = turns.begin();
        if matches!(request.kind, kind::FORGET | kind::BATCH_FORGET) {
            // A count of lookups that cannot be read stays, and so does its node.
            let _ = served.forget(&request);
            turn.go_on();
            continue;
        }
        let (header, result) = answer.split_at_mut(HEADER_BYTES);
        let mut reply = Reply::new(result);
        let error = number(served.serve(&request, &mut reply));
        let bytes = HEADER_BYTES + if error == 0 { reply.length() } else { 0 };
        header[..4].copy_from_slice(&(bytes as u32).to_ne_bytes());
        header[4..8].copy_from_slice(&error.to_ne_bytes());
        header[8..].copy_from_slice(&request.unique.to_ne_bytes());
        // The caller of a request may be gone.
        let _ = write(device, &answer[..bytes]);
        if request.kind == kind::DESTROY {
            return Ok(());
        }
    }
}

/// The result of a request as the kernel gets it: 0, or the number of an error below it.
pub(crate) fn number(result: io::Result<()>) -> i32 {
    result.err().map_or(0, |error| -error.raw_os_error().unwrap_or(libc::EIO))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::limits::THREADS;

    /// Requests as the kernel gives them out: each is the length of its service.
    fn serve_for_long(
        turns: &Arc<Turns>,
    ) -> (mpsc::Sender<Duration>, Vec<std::thread::JoinHandle<()>>) {
        let (send, requests) = mpsc::channel();
        let requests = Arc::new(Mutex::new(requests));
        let threads = (0..THREADS).map(|_| {
            let (turns, requests) = (Arc::clone(turns), Arc::clone(&requests));
            std::thread::spawn(move || {
                let _end = End(&turns);
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
        let turns = Turns::new(THREADS);
        (0..3).for_each(|_| turns.begin().go_on());
        assert!(turns.is_quiet() && turns.waiting.load(Ordering::Relaxed) == THREADS);
    }

    #[test]
    fn threads_rest_serve_a_burst_and_end() {
        let turns = Arc::new(Turns::new(THREADS));
        let (send, threads) = serve_for_long(&turns);
        let until = |is_so: &dyn Fn() -> bool| {
            let begin = std::time::Instant::now();
            while !is_so() {
                assert!(begin.elapsed() < Duration::from_secs(20), "{turns:?}");
                send.send(Duration::from_micros(1)).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        for _ in 0..3 {
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
