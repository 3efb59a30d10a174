//! A server on a thread of its own: started, looked at, stopped.

use std::io::{self, PipeWriter};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use forebay_net::{Address, Poster};

use super::epoll::EpollServer;
use super::inversions::Pass;
use super::sockets::{EchoSockets, Stop};
use super::thread_use::ThreadUse;
use super::work::Work;
use crate::echo::{EchoLoad, EchoWay, WorkOrder};
use crate::load::{CellError, Context};

/// Counts of a server, for other threads.
#[derive(Debug, Default)]
pub(crate) struct Served {
    /// Bytes that came.
    pub(super) bytes: AtomicU64,
    /// Connections that are there.
    pub(super) connections: AtomicU32,
    /// Why the last that was to be accepted could not be; 0 if none.
    pub(super) accept_error: AtomicI32,
    items: AtomicU64,
    inversions: AtomicU64,
}

impl Served {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Adds the counts of a pass.
    pub(super) fn add(&self, pass: Pass) {
        self.items.fetch_add(pass.items, Ordering::Relaxed);
        self.inversions.fetch_add(pass.inversions, Ordering::Relaxed);
    }

    /// Returns the number of items that passes served, and of inversions among them. No items if
    /// the server has no passes.
    pub(crate) fn order(&self) -> (u64, u64) {
        (self.items.load(Ordering::Relaxed), self.inversions.load(Ordering::Relaxed))
    }

    /// Why a connection could not be accepted, once for each time that happened.
    pub(crate) fn take_accept_error(&self) -> Option<io::Error> {
        match self.accept_error.swap(0, Ordering::Relaxed) {
            0 => None,
            code => Some(io::Error::from_raw_os_error(code)),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerPlan<'a> {
    pub(crate) way: EchoWay,
    pub(crate) order: WorkOrder,
    pub(crate) load: &'a EchoLoad,
    pub(crate) address: &'a Address,
    pub(crate) seed: u64,
}

/// A server that runs.
#[derive(Debug)]
pub(crate) struct Server {
    /// Where it listens.
    pub(crate) address: Address,
    /// Its runtime, in one line.
    pub(crate) describe: String,
    pub(crate) served: Arc<Served>,
    thread: i32,
    stop: Stopping,
    ended: JoinHandle<Result<(), CellError>>,
}

#[derive(Debug)]
enum Stopping {
    Sockets(Poster<Stop>),
    /// Dropped.
    Epoll(PipeWriter),
    #[cfg(feature = "peers")]
    Peer(tokio::sync::oneshot::Sender<()>),
}

impl Server {
    /// Listens, and starts to serve. When this returns a client can connect.
    pub(crate) fn start(plan: ServerPlan<'_>) -> Result<Self, CellError> {
        let ServerPlan { way, order, load, address, seed } = plan;
        let (load, address) = (*load, address.clone());
        let work = Work::new(&load, seed);
        match way {
            EchoWay::Epoll => Self::on_a_thread(move |served, begun| {
                let (server, stop) = EpollServer::new(order, &address, work, served)?;
                begun(Begun {
                    address: server.address.clone(),
                    describe: "epoll, one thread".to_owned(),
                    stop: Stopping::Epoll(stop),
                });
                server.serve()
            }),
            EchoWay::Ring => Self::on_a_thread(move |served, begun| {
                let sockets = EchoSockets::new(order, &load, &address, work, served)?;
                let stop = Stopping::Sockets(sockets.poster());
                begun(Begun {
                    address: sockets.address.clone(),
                    describe: sockets.describe(),
                    stop,
                });
                sockets.serve()
            }),
            #[cfg(feature = "peers")]
            EchoWay::Tokio | EchoWay::Compio => Self::on_a_thread(move |served, begun| {
                let (listener, address) = super::stream::listen(&address)?;
                let (stop, stopped) = tokio::sync::oneshot::channel();
                begun(Begun {
                    address: address.clone(),
                    describe: super::peers::describe(way),
                    stop: Stopping::Peer(stop),
                });
                super::peers::serve(way, (listener, &address), work, &served, stopped)
            }),
            #[cfg(not(feature = "peers"))]
            EchoWay::Tokio | EchoWay::Compio => Err(CellError::unavailable(
                "this program was built without it (build forebay-cli with --features peers)",
            )),
        }
    }

    /// Everything of a server is made on its thread, and stays there.
    fn on_a_thread(
        serve: impl FnOnce(Arc<Served>, &dyn Fn(Begun)) -> Result<(), CellError> + Send + 'static,
    ) -> Result<Self, CellError> {
        let served = Arc::new(Served::default());
        let (tell, told) = mpsc::channel();
        let for_the_thread = Arc::clone(&served);
        let started = thread::Builder::new().name("echo-server".into()).spawn(move || {
            let thread = rustix::thread::gettid().as_raw_nonzero().get();
            // The starter waits for this message, or for the thread's end.
            serve(for_the_thread, &|begun| drop(tell.send((begun, thread))))
        });
        let ended = started.context("no thread for the server")?;
        match told.recv() {
            Ok((Begun { address, describe, stop }, thread)) => {
                Ok(Self { address, describe, served, thread, stop, ended })
            }
            Err(mpsc::RecvError) => match ended.join() {
                Ok(ended) => Err(ended.expect_err("a server that serves has reported it")),
                Err(panic) => std::panic::resume_unwind(panic),
            },
        }
    }

    pub(crate) fn thread_use(&self) -> io::Result<ThreadUse> {
        ThreadUse::of(self.thread)
    }

    /// Whether it has ended by itself, which only a failure makes it.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_finished()
    }

    /// Stops it, and waits until it has. Why it failed, if it did.
    pub(crate) fn stop(self) -> Result<(), CellError> {
        match self.stop {
            Stopping::Sockets(poster) => poster.post(Stop),
            Stopping::Epoll(pipe) => drop(pipe),
            #[cfg(feature = "peers")]
            Stopping::Peer(stop) => {
                // A failed server no longer listens; it reports its error below.
                let _ = stop.send(());
            }
        }
        match self.ended.join() {
            Ok(ended) => ended,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

struct Begun {
    address: Address,
    describe: String,
    stop: Stopping,
}
