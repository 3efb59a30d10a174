//! The control socket: clients set the knobs and read the counters of a running engine, line by
//! line.
//!
//! One thread serves all clients, and uses no CPU while no client sends anything. No client can
//! block it:
//!
//! - No call of the thread blocks on a client.
//! - Each client gets the requests of one read per turn.
//! - A client that does not fetch its answers stops only its own requests.
//! - The number of clients is limited. A new client replaces the one that has been silent for
//!   longest.
//!
//! The protocol is in [`line`](mod@line), the other end in [`client`].

pub(crate) mod client;
pub(crate) mod line;

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use forebay_uring::local::{Bell, BindError, Interest, Listener, Peer, this_user, wait};

use crate::core::engine::{self, Engine};
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::knobs;
use crate::core::limits::{CONTROL_CLIENTS, CONTROL_READ_BYTES};
use crate::core::shared::Shared;
use crate::platform::thread::mark_as_ours;
use line::{Input, Line, Request};

/// Thread that serves a control socket, until it is stopped.
#[derive(Debug)]
pub(crate) struct Serving {
    bell: Arc<Bell>,
    thread: JoinHandle<()>,
}

impl Serving {
    /// Creates the socket and starts the thread.
    pub(crate) fn start(path: &Path, shared: &Arc<Shared>) -> Result<Self> {
        let failed =
            |error| Error::new(ErrorKind::Io, "could not serve a control socket").because(error);
        let listener = Listener::bind(path).map_err(|error| no_socket(error).at_path(path))?;
        let bell = Arc::new(Bell::new().map_err(failed)?);
        let mut served = Served {
            shared: Arc::clone(shared),
            bell: Arc::clone(&bell),
            listener,
            clients: Vec::new(),
            turns: 0,
        };
        let run = move || {
            mark_as_ours();
            served.run();
        };
        let thread = thread::Builder::new().name("forebay-control".into()).spawn(run);
        Ok(Self { bell, thread: thread.map_err(failed)? })
    }
}

impl engine::Serving for Serving {
    /// Stops the thread and removes the socket.
    fn end(self: Box<Self>) {
        self.bell.ring();
        // The panic hook has reported a panic of this thread, and nothing else depends on it.
        let _ = self.thread.join();
    }
}

impl Engine {
    /// Serves a control socket at `path` until the engine ends, on a thread of its own.
    ///
    /// Other processes of the same user, and root, can then read the counters and read and set the
    /// knobs: with [`Control`](crate::Control), with `forebay ctl`, or by hand. The socket has mode
    /// 0600; other users are refused even if that is changed. An existing socket at `path` is
    /// replaced if it belongs to the same user and no process serves it; anything else is left
    /// alone.
    ///
    /// A request is one line of at most 256 bytes: `get`, `get NAME`, `set NAME VALUE`, `stats` or
    /// `stats NAME`. The answer has these lines:
    ///
    /// - for `get`, `knob NAME VALUE live|fixed CHOICES` for each knob;
    /// - for `stats`, `number NAME NUMBER` for each counter;
    /// - for `get NAME` and `stats NAME`, `value VALUE`;
    /// - at the end, `ok`, or `error KIND REASON` with the kind `invalid`, `refused`, `shutdown` or
    ///   `failed`.
    ///
    /// Requests may be sent ahead and are answered in order. A line that is too long closes the
    /// connection. Of more than 16 connections, the one idle for longest is closed.
    ///
    /// ```text
    /// $ echo get plug | nc -NU engine.socket
    /// value adaptive
    /// ok
    /// ```
    ///
    /// # Errors
    /// - `Busy` if a process serves a socket at `path`, or this engine already serves one.
    /// - `InvalidInput` if anything else exists at `path`, or a socket of another user.
    /// - `NotFound`, `PermissionDenied`, or for any other reason of the system `Open`.
    /// - `WouldDeadlock` on a thread of the engine.
    pub fn serve_control(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let start = |shared: &Arc<Shared>| -> Result<Box<dyn engine::Serving>> {
            Ok(Box::new(Serving::start(path, shared)?))
        };
        self.serve(start).map_err(|error| error.at_path(path))
    }
}

fn no_socket(error: BindError) -> Error {
    let (kind, remedy) = match error {
        BindError::InUse { .. } => (ErrorKind::Busy, "stop that process, or use another path"),
        BindError::NotASocket | BindError::Anothers { .. } => {
            (ErrorKind::InvalidInput, "use another path; nothing was changed")
        }
        BindError::System(error) => {
            return Error::new(ErrorKind::at_open(&error), "could not create the control socket")
                .because(error);
        }
        _ => (ErrorKind::Open, "use another path"),
    };
    Error::new(kind, format!("could not create the control socket: {error}")).remedy(remedy)
}

/// State of the thread.
#[derive(Debug)]
struct Served {
    shared: Arc<Shared>,
    bell: Arc<Bell>,
    listener: Listener,
    clients: Vec<Client>,
    /// Number of turns that clients have had.
    turns: u64,
}

impl Drop for Served {
    fn drop(&mut self) {
        // Not in a forked child: the socket belongs to the parent.
        if self.shared.is_parent() {
            self.listener.remove();
        }
    }
}

impl Served {
    fn run(&mut self) {
        loop {
            let streams: Vec<_> = self.clients.iter().map(Client::waits_for).collect();
            let ready = match wait(&self.bell, &self.listener, &streams) {
                Ok(ready) => ready,
                Err(error) => {
                    tracing::error!(%error, "stopped serving the control socket");
                    return;
                }
            };
            if ready.rung {
                return;
            }
            let mut is_ready = ready.streams.into_iter();
            self.clients.retain_mut(|client| {
                if is_ready.next() != Some(true) {
                    return true;
                }
                self.turns += 1;
                client.last_turn = self.turns;
                client.go_on(&self.shared).is_ok_and(|going| going == Going::Stays)
            });
            if ready.came {
                self.accept();
            }
        }
    }

    fn accept(&mut self) {
        match self.listener.accept() {
            Ok(Some((stream, peer))) if peer.is_trusted() => {
                if self.clients.len() == CONTROL_CLIENTS
                    && let Some(silent) =
                        (0..CONTROL_CLIENTS).min_by_key(|at| self.clients[*at].last_turn)
                {
                    self.clients.swap_remove(silent);
                }
                self.turns += 1;
                self.clients.push(Client::new(stream, self.turns));
            }
            Ok(Some((mut stream, peer))) => {
                // The buffer of a new socket holds this line, so the write does not block.
                let _ = stream.write_all(refusal(peer).as_bytes());
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, "could not accept on the control socket");
                // Most likely too many open files: close one connection, and pause before the next
                // attempt.
                self.clients.pop();
                thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

fn refusal(peer: Peer) -> String {
    let what = format!("user {} may not: the engine is that of user {}", peer.user, this_user());
    Line::Error(Error::new(ErrorKind::NotPermitted, what)).to_string()
}

/// Whether a client stays connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Going {
    Stays,
    Leaves,
}

/// Connected client.
#[derive(Debug)]
struct Client {
    stream: UnixStream,
    input: Input,
    /// Answers that the client has not fetched. It is sent nothing else and read from only if this
    /// is empty.
    output: Vec<u8>,
    /// Whether the connection closes when `output` has been fetched.
    is_leaving: bool,
    last_turn: u64,
}

impl Client {
    fn new(stream: UnixStream, last_turn: u64) -> Self {
        Self { stream, input: Input::default(), output: Vec::new(), is_leaving: false, last_turn }
    }

    fn waits_for(&self) -> (&UnixStream, Interest) {
        (&self.stream, if self.output.is_empty() { Interest::Read } else { Interest::Write })
    }

    /// Answers pending requests, and those of one more read.
    fn go_on(&mut self, shared: &Arc<Shared>) -> io::Result<Going> {
        if self.answer(shared)? == Going::Leaves {
            return Ok(Going::Leaves);
        }
        if !self.output.is_empty() {
            return Ok(Going::Stays);
        }
        let mut bytes = [0; CONTROL_READ_BYTES];
        match self.stream.read(&mut bytes) {
            Ok(0) => return Ok(Going::Leaves),
            Ok(read) => self.input.push(&bytes[..read]),
            Err(error) if is_temporary(&error) => return Ok(Going::Stays),
            Err(error) => return Err(error),
        }
        self.answer(shared)
    }

    /// Answers received requests, until the client has to fetch an answer.
    fn answer(&mut self, shared: &Arc<Shared>) -> io::Result<Going> {
        loop {
            self.send()?;
            if !self.output.is_empty() {
                return Ok(Going::Stays);
            }
            if self.is_leaving {
                return Ok(Going::Leaves);
            }
            match self.input.next() {
                None => return Ok(Going::Stays),
                Some(Ok(request)) => self.output = answer(shared, &request).into_bytes(),
                Some(Err(error)) => {
                    self.output = Line::Error(error).to_string().into_bytes();
                    // The start of the next line is unknown.
                    self.is_leaving = true;
                }
            }
        }
    }

    fn send(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => drop(self.output.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Returns all lines of the answer to a request.
fn answer(shared: &Arc<Shared>, request: &[u8]) -> String {
    match Request::parse(request).and_then(|request| perform(shared, &request)) {
        Ok(lines) => lines.iter().chain([&Line::Done]).map(Line::to_string).collect(),
        Err(error) => Line::Error(error).to_string(),
    }
}

fn perform(shared: &Arc<Shared>, request: &Request) -> Result<Vec<Line>> {
    match request {
        Request::Get(None) => Ok(shared.options().knobs().into_iter().map(Line::Knob).collect()),
        Request::Get(Some(name)) => Ok(vec![Line::Value(knobs::get(&shared.options(), name)?)]),
        Request::Set { name, value } => {
            shared.change_options(|options| options.set(name, value)).map(|()| Vec::new())
        }
        Request::Stats(None) => Ok(shared
            .stats()
            .named()
            .map(|(name, number)| Line::Number(name.to_owned(), number))
            .collect()),
        Request::Stats(Some(name)) => {
            let stats = shared.stats();
            let found = stats.named().find(|(known, _)| known == name);
            let (_, number) = found.ok_or_else(|| {
                let names: Vec<_> = stats.named().map(|(name, _)| name).collect();
                Error::new(ErrorKind::InvalidInput, format!("unknown number `{name}`"))
                    .remedy(format!("known numbers: {}", names.join(", ")))
            })?;
            Ok(vec![Line::Value(number.to_string())])
        }
    }
}
