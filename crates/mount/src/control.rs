//! The connection between `unmount` and the process that serves a mount.
//!
//! It is a socket without a file, named after the device number of the mount, which nothing else
//! has while it is mounted. A client sends [`WRITE_OUT`] and gets one line; after the end of the
//! mount it gets another one with the result.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::num::NonZeroI32;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::PidfdFlags;

use crate::durable;
use crate::mounted::Mount;

/// Asks to make everything durable.
const WRITE_OUT: &str = "write-out\n";

/// Answer to a request that was done.
const DONE: &str = "done";

/// Time for a client to send its request.
const PATIENCE: Duration = Duration::from_secs(10);

fn address((major, minor): (u32, u32)) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("forebay-mount-{major}:{minor}"))
}

/// Line for a result.
fn line(error: Option<&str>) -> String {
    format!("{}\n", error.unwrap_or(DONE).replace('\n', " "))
}

/// Clients that wait for the end of the mount.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting(Arc<Mutex<Vec<UnixStream>>>);

impl Waiting {
    /// Serves clients on a thread of its own, until the listener is shut down.
    pub(crate) fn serve(&self, device: (u32, u32), mount: &Arc<Mount>) -> io::Result<UnixListener> {
        let listener = bind(&address(device)?)?;
        let accepting = listener.try_clone()?;
        let (waiting, mount) = (self.clone(), Arc::clone(mount));
        std::thread::Builder::new().name("forebay-control".to_owned()).spawn(move || {
            for client in accepting.incoming() {
                let Ok(client) = client else { break };
                match waiting.answer(client, &mount) {
                    // It only wanted to know whether this process is there.
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                    Err(error) => {
                        mount.log(&format!("could not answer `forebay unmount`: {error}"));
                    }
                    Ok(()) => {}
                }
            }
        })?;
        Ok(listener)
    }

    fn answer(&self, mut client: UnixStream, mount: &Mount) -> io::Result<()> {
        let peer = rustix::net::sockopt::socket_peercred(&client)?.uid;
        if !peer.is_root() && peer != rustix::process::geteuid() {
            return client.write_all(line(Some("this mount is of another user")).as_bytes());
        }
        client.set_read_timeout(Some(PATIENCE))?;
        let mut asked = String::new();
        BufReader::new(&client).read_line(&mut asked)?;
        if asked != WRITE_OUT {
            return client.write_all(line(Some("the request is unknown")).as_bytes());
        }
        let failed = durable::sync_all(mount);
        client.write_all(line(failed.as_deref()).as_bytes())?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(client);
        Ok(())
    }

    /// Tells the result of the mount.
    pub(crate) fn report(&self, error: Option<&str>) {
        for client in &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            // One that is gone does not need it.
            let _ = client.write_all(line(error).as_bytes());
        }
    }
}

/// Takes the address. A mount that ended a moment ago may have had the same device number.
fn bind(address: &SocketAddr) -> io::Result<UnixListener> {
    let begin = Instant::now();
    loop {
        match UnixListener::bind_addr(address) {
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse && begin.elapsed() < PATIENCE =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            bound => return bound,
        }
    }
}

/// The client's end.
#[derive(Debug)]
pub(crate) struct Client(BufReader<UnixStream>);

impl Client {
    pub(crate) fn connect(device: (u32, u32)) -> io::Result<Self> {
        UnixStream::connect_addr(&address(device)?).map(BufReader::new).map(Self)
    }

    /// Has everything made durable. Returns the error of the mount, if it has one.
    pub(crate) fn write_out(&mut self) -> io::Result<Option<String>> {
        self.0.get_mut().write_all(WRITE_OUT.as_bytes())?;
        self.answer()
    }

    /// Waits for a line. Returns the error that it tells.
    pub(crate) fn answer(&mut self) -> io::Result<Option<String>> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        match line.trim_end() {
            "" => Err(io::ErrorKind::UnexpectedEof.into()),
            DONE => Ok(None),
            error => Ok(Some(error.to_owned())),
        }
    }

    /// Waits until there is an answer, or the mount has ended. Returns false if that takes longer.
    pub(crate) fn is_answered(&self, patience: &Timespec) -> io::Result<bool> {
        let mut polled = [PollFd::new(self.0.get_ref(), PollFlags::IN)];
        Ok(rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, Some(patience)))? > 0)
    }

    /// The process of the mount.
    pub(crate) fn server(&self) -> io::Result<(NonZeroI32, OwnedFd)> {
        let server = rustix::net::sockopt::socket_peercred(self.0.get_ref())?.pid;
        let opened = rustix::process::pidfd_open(server, PidfdFlags::empty())?;
        Ok((server.as_raw_nonzero(), opened))
    }
}
