//! The process that serves an image, and the end of it that started it.
//!
//! The same program is started again with [`SERVER_ARGUMENT`] before all others. Its order comes on
//! standard input, as a line of JSON; then a line `charge` or `free` for each change, and it
//! answers each with a line. It ends when standard input does: also when its starter was killed.
//! Then it first detaches the file system that was mounted on the image, which writes its log, and
//! waits until the image is closed.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fuser::{Config, MountOption, Session, SessionACL};
use rustix::mount::{UnmountFlags, unmount};
use serde::{Deserialize, Serialize};

use super::Charges;
use super::image::{Image, NAME, State};
use super::store::Store;
use crate::own_program::own_program;

/// The hidden first argument of a program that is to serve an image.
const SERVER_ARGUMENT: &str = "__disk";

/// Threads that make requests. Each can wait for the disk below.
const THREADS: usize = 16;

/// Time for the image to be closed.
const CLOSED_WITHIN: Duration = Duration::from_secs(10);

/// Time between two looks whether it is.
const LOOK: Duration = Duration::from_millis(10);

/// Where the bytes of an image are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Backing {
    File(PathBuf),
    Memory,
}

/// Task of a server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) backing: Backing,
    pub(crate) bytes: u64,
    pub(crate) charges: Charges,
    /// An empty directory to mount the served image at.
    pub(crate) at: PathBuf,
    /// Where a file system will be mounted on the image.
    pub(crate) above: PathBuf,
}

/// A running server. Ends it when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// `None` once the server was asked to end.
    asked: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    image: PathBuf,
}

impl Server {
    /// Serves an image. It charges nothing until [`Server::charge`].
    ///
    /// # Errors
    /// The reason in a few words, if FUSE cannot be used here.
    pub(crate) fn start(order: &Order) -> io::Result<Self> {
        let mut child = Command::new(own_program()?)
            .arg(SERVER_ARGUMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            // Ctrl-C is not for it.
            .process_group(0)
            .spawn()?;
        let asked = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut server = Self { child, asked, answers, image: order.at.join(NAME) };
        server.ask(&serde_json::to_string(order)?)?;
        Ok(server)
    }

    /// Returns the path of the served image.
    pub(crate) fn image(&self) -> &Path {
        &self.image
    }

    /// Begins or ends to charge, for all requests from now on.
    ///
    /// # Errors
    /// If the server has ended.
    pub(crate) fn charge(&mut self, charges: bool) -> io::Result<()> {
        self.ask(if charges { "charge" } else { "free" })
    }

    fn ask(&mut self, line: &str) -> io::Result<()> {
        let asked = self.asked.as_mut().expect("it was not asked to end");
        writeln!(asked, "{line}")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        match answer.trim_end() {
            "done" => Ok(()),
            "" => Err(io::Error::other("the server of the image has ended")),
            reason => Err(io::Error::other(reason.to_owned())),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.asked = None;
        // It ends by itself: it waits for the kernel to close the image, and not longer.
        let _ = self.child.wait();
    }
}

/// For `main`: whether the arguments ask for a server.
pub fn is_server(mut arguments: impl Iterator<Item = OsString>) -> bool {
    arguments.nth(1).is_some_and(|first| first == SERVER_ARGUMENT)
}

/// Serves the image that the program was started for; see [`is_server`].
pub fn server_main() -> ExitCode {
    let mut lines = io::stdin().lock().lines();
    let Some(Ok(order)) = lines.next() else { return ExitCode::FAILURE };
    let served = serde_json::from_str(&order).map_err(io::Error::from).and_then(serve);
    let (order, state, session) = match served {
        Ok(served) => served,
        Err(error) => {
            answer(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    answer("done");
    for line in lines.map_while(Result::ok) {
        state.charges.store(line == "charge", Ordering::Relaxed);
        answer("done");
    }
    state.charges.store(false, Ordering::Relaxed);
    // Nothing is mounted there, unless the starter was killed.
    let _ = unmount(&order.above, UnmountFlags::DETACH);
    let end = Instant::now() + CLOSED_WITHIN;
    while state.opens.load(Ordering::Acquire) > 0 && Instant::now() < end {
        std::thread::sleep(LOOK);
    }
    let _ = session.umount_and_join();
    ExitCode::SUCCESS
}

fn answer(line: &str) {
    // The starter may have ended.
    let _ = writeln!(io::stdout(), "{line}");
}

fn serve(order: Order) -> io::Result<(Order, Arc<State>, fuser::BackgroundSession)> {
    let store = match &order.backing {
        Backing::File(path) => Store::File(open(path)?),
        Backing::Memory => Store::in_memory(),
    };
    let image = Image::new(store, order.bytes, order.charges)?;
    let state = Arc::clone(&image.state);
    let mut config = Config::default();
    config.mount_options =
        vec![MountOption::FSName("forebay-disk".to_owned()), MountOption::DefaultPermissions];
    config.acl = SessionACL::Owner;
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    let session = Session::new(image, &order.at, &config)?.spawn()?;
    Ok((order, state, session))
}

/// Opens the image past the page cache, if its file system reads half a kilobyte so.
fn open(path: &Path) -> io::Result<File> {
    let open = |flags| OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    let mut sector = forebay_uring::AlignedMemory::new(512);
    match open(libc::O_DIRECT) {
        Ok(file) if file.read_exact_at(&mut sector, 512).is_ok() => Ok(file),
        _ => open(0),
    }
}
