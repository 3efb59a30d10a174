//! The lease: the kernel tells us before anybody else opens (or truncates) a file that we hold a
//! lease on, and holds them back until we give it up, 45 s at most. With a write lease this
//! is so for every open, with a read lease for those for writing.
//!
//! The kernel sends a signal. A library must not install a handler, nor have the signal hit a
//! thread of the program, so: one thread of our own blocks the signal in itself before anybody
//! knows its number, the descriptor's owner is set to *that thread* (`F_SETOWN_EX`, `F_OWNER_TID`)
//! before the lease is taken, and the thread reads its signals from a signalfd. The rest of the
//! process never sees one, whatever its masks.
//!
//! The kernel's queue of signals is bounded; when it is full a plain `SIGIO` comes without a
//! descriptor. Then, and to weed out a signal that was late, the descriptors themselves are asked
//! which lease is being broken.
//!
//! The guarantee: the callback gets each broken lease's key, on the watch's thread, holding no lock
//! of ours. The price: one thread, made with the first lease.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::io::Errno;

use crate::fork::Home;

pub(crate) const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;

/// The argument of `F_SETOWN_EX`.
#[repr(C)]
struct Owner {
    kind: libc::c_int,
    thread: libc::pid_t,
}

type OnBreak = Box<dyn Fn(u64) + Send>;

/// Kind of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Nobody writes: for a file that is open for reading only.
    Read,
    /// Nobody else has it open.
    Write,
}

impl Kind {
    /// The number that the kernel knows it by.
    fn number(self) -> libc::c_int {
        match self {
            Kind::Read => libc::F_RDLCK,
            Kind::Write => libc::F_WRLCK,
        }
    }
}

/// A leased descriptor of a watch.
#[derive(Clone, Copy, Debug)]
struct Watched {
    key: u64,
    kind: Kind,
}

/// Watch for broken leases of the files of one engine, on a thread of its own.
pub struct LeaseWatch {
    shared: Arc<Shared>,
    stage: Mutex<Stage>,
    home: Home,
}

/// The watch's life: idle until the first lease.
enum Stage {
    Idle(OnBreak),
    Running(Watcher),
    Over,
}

struct Watcher {
    /// The kernel's number of the thread.
    number: libc::pid_t,
    handle: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    /// A descriptor in here is open, and stays so while the lock is held.
    leased: Mutex<HashMap<RawFd, Watched>>,
    stop: OwnedFd,
}

/// A lease that is held; gives itself up.
#[derive(Debug)]
pub(crate) struct Leased {
    shared: Arc<Shared>,
    descriptor: RawFd,
    kind: Kind,
    /// It stays with the open file.
    is_left: bool,
}

impl LeaseWatch {
    /// Starts a watch that calls `on_break` with the key of each lease that another program breaks.
    /// The callback runs on the thread of the watch and should be short; it may release leases.
    ///
    /// # Errors
    /// The error of the kernel if it grants no descriptor or thread.
    pub fn new(on_break: impl Fn(u64) + Send + 'static) -> io::Result<Self> {
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared { leased: Mutex::new(HashMap::new()), stop });
        Ok(Self { shared, stage: Mutex::new(Stage::Idle(Box::new(on_break))), home: Home::here() })
    }

    /// Releases all leases and ends the thread. Later leases are refused.
    pub fn shutdown(&self) {
        if !self.home.is_here() {
            // A forked child has no such thread, and the leases are its parent's.
            return;
        }
        let stage = mem::replace(&mut *self.stage(), Stage::Over);
        let Stage::Running(watcher) = stage else { return };
        for &descriptor in self.shared.leased().keys() {
            set_lease(descriptor, libc::F_UNLCK).unwrap_or_else(|error| {
                tracing::warn!(%error, descriptor, "could not give the lease up");
            });
        }
        rustix::io::write(&self.shared.stop, &1u64.to_ne_bytes())
            .expect("one signal fits an eventfd");
        // From the callback itself the thread cannot be waited for; it ends by itself.
        if watcher.handle.thread().id() != thread::current().id() {
            watcher
                .handle
                .join()
                .unwrap_or_else(|_| tracing::error!("the callback for broken leases panicked"));
        }
    }

    /// Takes a lease on the descriptor.
    pub(crate) fn take(
        &self,
        descriptor: BorrowedFd<'_>,
        key: u64,
        kind: Kind,
    ) -> io::Result<Leased> {
        let mut stage = self.stage();
        let leased = self.own(&mut stage, descriptor, Watched { key, kind })?;
        set_lease(leased.descriptor, kind.number())?;
        Ok(leased)
    }

    /// Takes over a write lease that the open file has already.
    pub(crate) fn adopt(&self, descriptor: BorrowedFd<'_>, key: u64) -> io::Result<Leased> {
        let mut stage = self.stage();
        let leased = self.own(&mut stage, descriptor, Watched { key, kind: Kind::Write })?;
        // The signal names the descriptor that asked for the lease last. The call is refused if
        // somebody waits for the lease; that process keeps waiting, and no new signal is needed.
        if let Err(error) = set_lease(leased.descriptor, libc::F_WRLCK) {
            tracing::debug!(%error, key, "the lease that is taken over is not whole");
        }
        Ok(leased)
    }

    /// Has breaks of the descriptor's lease told to this watch. Its stage is held until the lease
    /// is: a shutdown in between would leave it with nobody to hear of a break.
    fn own(
        &self,
        stage: &mut Stage,
        descriptor: BorrowedFd<'_>,
        watched: Watched,
    ) -> io::Result<Leased> {
        let owner = Owner { kind: F_OWNER_TID, thread: stage.run(&self.shared)? };
        let descriptor = descriptor.as_raw_fd();
        // Before the lease, or the kernel would name the whole process as the owner of a lease that
        // breaks at once. SAFETY: the command takes a pointer to an owner, which it reads during
        // the call.
        check(unsafe { libc::fcntl(descriptor, F_SETOWN_EX, &raw const owner) })?;
        // SAFETY: the command takes a number.
        check(unsafe { libc::fcntl(descriptor, F_SETSIG, break_signal()) })?;
        // Before the lease, so that a break finds its key.
        self.shared.leased().insert(descriptor, watched);
        let (shared, kind) = (Arc::clone(&self.shared), watched.kind);
        Ok(Leased { shared, descriptor, kind, is_left: false })
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stage {
    /// The kernel's number of the thread, which is started if need be.
    fn run(&mut self, shared: &Arc<Shared>) -> io::Result<libc::pid_t> {
        *self = match mem::replace(self, Stage::Over) {
            Stage::Idle(on_break) => Stage::Running(Watcher::start(Arc::clone(shared), on_break)?),
            stage => stage,
        };
        match self {
            Stage::Running(watcher) => Ok(watcher.number),
            _ => Err(io::Error::other("the watch for leases is shut down")),
        }
    }
}

impl Drop for LeaseWatch {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl fmt::Debug for LeaseWatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LeaseWatch").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl Leased {
    /// Whether nobody waits for it, and the kernel has not lost its patience and taken it.
    pub(crate) fn is_whole(&self) -> bool {
        !is_breaking(self.descriptor, self.kind)
    }

    /// Whether it is held, though somebody may be waiting for it.
    pub(crate) fn is_there(&self) -> bool {
        !is_breaking(self.descriptor, self.kind) || is_listed_as_breaking(self.descriptor)
    }

    /// The watch hears no more of it, and it stays with the open file.
    pub(crate) fn leave(mut self) {
        self.is_left = true;
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        let mut leased = self.shared.leased();
        leased.remove(&self.descriptor);
        if self.is_left {
            return;
        }
        // Refused where the lease was never had, or where the kernel lost patience and took it:
        // gone either way.
        let _ = set_lease(self.descriptor, libc::F_UNLCK);
    }
}

impl Shared {
    fn leased(&self) -> MutexGuard<'_, HashMap<RawFd, Watched>> {
        self.leased.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The keys of the leases being broken: of this descriptor, or of all where it is not known.
    fn broken(&self, descriptor: Option<RawFd>) -> Vec<u64> {
        let leased = self.leased();
        let asked = leased
            .iter()
            .filter(|&(&one, _)| descriptor.is_none_or(|descriptor| one == descriptor));
        let broken = asked.filter(|(one, watched)| is_breaking(**one, watched.kind));
        broken.map(|(_, watched)| watched.key).collect()
    }
}

impl Watcher {
    fn start(shared: Arc<Shared>, on_break: OnBreak) -> io::Result<Self> {
        let (reported, report) = mpsc::sync_channel(1);
        let handle = thread::Builder::new().name("forebay-lease".into()).spawn(move || {
            match listen() {
                Ok(signals) => {
                    // SAFETY: takes nothing and cannot fail.
                    let number = unsafe { libc::gettid() };
                    reported.send(Ok(number)).expect("the starter waits for it");
                    watch(&shared, &signals, &on_break);
                }
                Err(error) => reported.send(Err(error)).expect("the starter waits for it"),
            }
        })?;
        let number = report.recv().expect("the thread tells before it does anything else")?;
        Ok(Self { number, handle })
    }
}

/// Blocks the signals in this thread and gives a descriptor to read them from.
fn listen() -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the pointer is to a set, which the call makes empty.
    check(unsafe { libc::sigemptyset(set.as_mut_ptr()) })?;
    for signal in [break_signal(), libc::SIGIO] {
        // SAFETY: the pointer is to a set that was made empty.
        check(unsafe { libc::sigaddset(set.as_mut_ptr(), signal) })?;
    }
    // SAFETY: made empty, then filled, above.
    let set = unsafe { set.assume_init() };
    // SAFETY: the set is read during the call; no old one is asked for. Only this thread's mask
    // changes.
    let error =
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    // SAFETY: the set is read during the call; -1 asks for a new descriptor.
    let descriptor = check(unsafe {
        libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    })?;
    // SAFETY: the descriptor is new and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn watch(shared: &Shared, signals: &OwnedFd, on_break: &OnBreak) {
    loop {
        let mut waited = [
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(shared.stop.as_fd(), PollFlags::IN),
        ];
        match rustix::event::poll(&mut waited, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                tracing::error!(%error, "leases are watched no more");
                return;
            }
        }
        if !waited[1].revents().is_empty() {
            return;
        }
        while let Some(signal) = next_signal(signals) {
            let descriptor =
                (signal.ssi_signo.cast_signed() == break_signal()).then_some(signal.ssi_fd);
            for key in shared.broken(descriptor) {
                on_break(key);
            }
        }
    }
}

fn next_signal(signals: &OwnedFd) -> Option<libc::signalfd_siginfo> {
    let mut bytes = [0; size_of::<libc::signalfd_siginfo>()];
    let length = rustix::io::retry_on_intr(|| rustix::io::read(signals, &mut bytes)).ok()?;
    assert_eq!(length, bytes.len(), "a signalfd gives whole records");
    // SAFETY: the record is plain numbers, any bytes are valid ones, and the read is of its whole
    // size.
    Some(unsafe { bytes.as_ptr().cast::<libc::signalfd_siginfo>().read_unaligned() })
}

/// Whether the open file has a write lease that nobody waits for.
pub(crate) fn is_whole(descriptor: BorrowedFd<'_>) -> bool {
    !is_breaking(descriptor.as_raw_fd(), Kind::Write)
}

/// Gives the lease up that the open file has, if it has one.
pub(crate) fn give_up(descriptor: BorrowedFd<'_>) {
    // Refused if there is no lease.
    let _ = set_lease(descriptor.as_raw_fd(), libc::F_UNLCK);
}

/// Whether somebody waits for this lease: then the kernel returns its next state, not the present
/// one.
fn is_breaking(descriptor: RawFd, kind: Kind) -> bool {
    // SAFETY: the command takes no argument.
    let lease = unsafe { libc::fcntl(descriptor, libc::F_GETLEASE) };
    lease != kind.number()
}

/// Whether the kernel lists a lease of the descriptor that somebody waits for. (`F_GETLEASE` says
/// the same of such a lease, which is to become none, as of none. It comes first: it has the
/// kernel take what is overdue.)
fn is_listed_as_breaking(descriptor: RawFd) -> bool {
    let listed = std::fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}"));
    let is_one = |line: &str| line.starts_with("lock:") && line.contains("LEASE  BREAKING");
    listed.is_ok_and(|listed| listed.lines().any(is_one))
}

pub(crate) fn set_lease(descriptor: RawFd, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: the command takes a number.
    check(unsafe { libc::fcntl(descriptor, libc::F_SETLEASE, kind) }).map(|_| ())
}

/// Any realtime signal does, for it is sent to our own thread, which blocks it. (An ordinary one
/// would not queue, nor say which descriptor.)
fn break_signal() -> libc::c_int {
    libc::SIGRTMIN() + 5
}

pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
