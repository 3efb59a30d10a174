//! A server on a thread of its own: started, observed by others, stopped.

use std::io::{self, PipeWriter};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::epoll::EpollServer;
use crate::load::{MOST_CONNECTIONS, Order, Way};
use crate::pass::Pass;
use crate::ring::RingServer;

/// Counts of a server, for other threads.
#[derive(Debug, Default)]
pub(crate) struct Served {
    /// Bytes received.
    pub(crate) bytes: AtomicU64,
    /// Items served, and inversions among them.
    pub(crate) items: AtomicU64,
    pub(crate) inversions: AtomicU64,
}

impl Served {
    /// Adds the counts of a pass.
    pub(crate) fn add(&self, pass: Pass) {
        self.items.fetch_add(pass.items, Ordering::Relaxed);
        self.inversions.fetch_add(pass.inversions, Ordering::Relaxed);
    }
}

/// A server that runs.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) way: Way,
    pub(crate) address: SocketAddr,
    pub(crate) served: Arc<Served>,
    thread: i32,
    /// Dropped to stop it.
    stop: PipeWriter,
    ended: JoinHandle<Result<(), String>>,
}

impl Server {
    /// Listens, and starts to serve. A client can connect when this returns.
    ///
    /// # Errors
    /// The address cannot be listened at.
    pub(crate) fn start(way: Way, order: Order, address: SocketAddr) -> Result<Self, String> {
        let listener = listen(address)
            .map_err(|error| with_remedy(&format!("could not listen on {address}"), &error))?;
        let pipe = || Ok((listener.local_addr()?, io::pipe()?));
        let (address, (stopped, stop)) =
            pipe().map_err(|error: io::Error| with_remedy("could not start the server", &error))?;
        let served = Arc::new(Served::default());
        let (says, thread) = mpsc::channel();
        let counts = Arc::clone(&served);
        let started = thread::Builder::new().name("echo-server".into()).spawn(move || {
            let _ = says.send(rustix::thread::gettid().as_raw_nonzero().get());
            match way {
                Way::Ring => RingServer::new(listener, stopped, order, counts)?.serve(),
                Way::Epoll => EpollServer::new(listener, stopped, order, counts)
                    .and_then(EpollServer::serve)
                    .map_err(|error| with_remedy("the server failed", &error)),
            }
        });
        let ended = started.map_err(|error| format!("no thread for the server: {error}"))?;
        let thread = thread.recv().expect("the thread sends it first");
        Ok(Self { way, address, served, thread, stop, ended })
    }

    /// Returns the time of its thread; `None` if the kernel does not report it, or it has ended.
    pub(crate) fn thread_time(&self) -> Option<ThreadTime> {
        ThreadTime::of(self.thread)
    }

    /// Returns whether it has failed.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_finished()
    }

    /// Stops it and waits for its end.
    ///
    /// # Errors
    /// The failure of the server, if it failed before.
    pub(crate) fn stop(self) -> Result<(), String> {
        drop(self.stop);
        self.ended.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Listens with room for every connection of a load. Accepted sockets have its options.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    rustix::net::listen(&listener, MOST_CONNECTIONS as i32)?;
    rustix::net::sockopt::set_tcp_nodelay(&listener, true)?;
    Ok(listener)
}

/// Returns an error with its remedy, if it has one.
pub(crate) fn with_remedy(what: &str, error: &io::Error) -> String {
    let remedy = match error.raw_os_error() {
        Some(libc::EADDRINUSE) => " (something listens there: choose another address)",
        Some(libc::EACCES) => " (ports below 1024 need permission)",
        Some(libc::ECONNREFUSED) => " (no program listens there: start the server first)",
        Some(libc::EMFILE) => {
            " (raise the limit of open files, `ulimit -n`, or use fewer connections)"
        }
        _ => "",
    };
    format!("{what}: {error}{remedy}")
}

/// Time of a thread since its start, as the kernel accounts it.
///
/// A thread that is ready but waits for a processor is neither idle nor working: `schedstat` has
/// that time. Without `schedstat` it counts as idle.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct ThreadTime {
    running: Duration,
    delayed: Duration,
    user_ticks: u64,
    system_ticks: u64,
}

/// Use of a span of time by a thread.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Used {
    pub(crate) idle: Duration,
    pub(crate) user: Duration,
    /// On a processor, in user mode or in the kernel.
    pub(crate) running: Duration,
}

impl ThreadTime {
    fn of(thread: i32) -> Option<Self> {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/self/task/{thread}/{name}"));
        // The name of the thread stands in brackets and may contain spaces.
        let stat = read("stat").ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11).map(str::parse);
        let (user_ticks, system_ticks) = (fields.next()?.ok()?, fields.next()?.ok()?);
        let schedule = read("schedstat").unwrap_or_default();
        let mut nanos = schedule.split_whitespace().map_while(|field| field.parse().ok());
        let (running, delayed) = match (nanos.next(), nanos.next()) {
            (Some(running), Some(delayed)) => (running, delayed),
            _ => {
                let each = 1_000_000_000 / rustix::param::clock_ticks_per_second();
                (each * (user_ticks + system_ticks), 0)
            }
        };
        let [running, delayed] = [running, delayed].map(Duration::from_nanos);
        Some(Self { running, delayed, user_ticks, system_ticks })
    }

    /// Returns the use of a span that began with `before` and took `elapsed`.
    pub(crate) fn since(self, before: Self, elapsed: Duration) -> Used {
        let running = self.running.saturating_sub(before.running);
        let delayed = self.delayed.saturating_sub(before.delayed);
        let user = self.user_ticks.saturating_sub(before.user_ticks) as f64;
        let system = self.system_ticks.saturating_sub(before.system_ticks) as f64;
        // A tick is too coarse for a length, but good enough for a share.
        let share = if user + system > 0.0 { user / (user + system) } else { 0.0 };
        let idle = elapsed.saturating_sub(running + delayed);
        Used { idle, user: running.mul_f64(share), running }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_without_work_is_idle() {
        let before = ThreadTime::default();
        let millis = Duration::from_millis;
        let after =
            ThreadTime { running: millis(60), delayed: millis(10), user_ticks: 1, system_ticks: 5 };
        let used = after.since(before, millis(100));
        assert_eq!((used.idle, used.user, used.running), (millis(30), millis(10), millis(60)));
        assert_eq!(after.since(before, millis(50)).idle, Duration::ZERO);
    }

    #[test]
    fn the_kernel_reports_this_thread() {
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_millis(30) {
            std::hint::spin_loop();
        }
        let this = rustix::thread::gettid().as_raw_nonzero().get();
        let time = ThreadTime::of(this).unwrap();
        assert!(time.running > Duration::ZERO, "{time:?}");
        assert_eq!(ThreadTime::of(i32::MAX), None);
    }
}
