//! Keeper: a second process that finishes writing accepted data if this process dies.
//!
//! With a keeper, written data survives `kill -9`, an abort and a crash of the process, as it would
//! in the page cache of the kernel. Only a failure of the machine loses what was not synced.
//!
//! Program and keeper share the memory of the cache, and the keeper holds duplicates of the open
//! files. While the program lives, the keeper sleeps. If the program ends without closing its
//! engine, the keeper waits until the kernel has finished the requests of the dead program. Then it
//! writes the dirty pages, syncs the files, gives back reserved space, and exits.
//!
//! ```text
//! program ------ memory (memfd) ------ keeper      dead ---- memory ---- keeper: plan, write, sync
//!    |---- files, one by one ---------->|                     files ------|
//!    |<--- "added" ---------------------|
//!    |---- goodbye ------> ends
//! ```
//!
//! # Which program is the keeper
//!
//! - [`Keeper::this_program`] executes the current program again. Its `main` must call
//!   [`run_if_asked`] before anything else. In the keeper that call never returns.
//! - [`Keeper::program`] executes another program, which calls [`run`]: the program `forebay`, or
//!   one of your own.
//!
//! Both programs must be built from the same version of this library. Otherwise building the engine
//! fails with `Keeper`.
//!
//! ```no_run
//! use forebay::{Engine, Keeper, Options};
//!
//! # fn main() -> forebay::Result<()> {
//! forebay::keeper::run_if_asked();                   // must come first: this may be the keeper
//! let engine = Engine::builder(Options::default()).survive(Keeper::this_program()).build()?;
//! # let _ = engine; Ok(())
//! # }
//! ```
//!
//! # Continuing where a program died
//!
//! With a [socket](Keeper::socket), the keeper stays for a while after it has written everything.
//! The restarted program can then take over its memory and files:
//! [`Builder::adopt`](crate::Builder::adopt). The cache is as warm as it was, and the files were
//! never closed.
//!
//! # Beside an intent log
//!
//! The keeper holds the log of the engine, and brings its files into place: everything that the
//! program had written is in them, synced or not, and the log is not needed after that. Until then
//! nobody else can open the log, so no recovery puts older bytes back. Files that could not be
//! written keep their records, and the next recovery of the log puts these into them.
//!
//! # What a keeper does not cover
//!
//! - A failure of the machine: call a sync.
//! - The death of both processes, as when a service manager kills all processes of a service. Use
//!   `KillMode=process`.
//! - Space reserved for writes that never came, unless the lease of the file is still held.

// The modules:
//
// - `link`: the engine's side. `process`: the keeper's side. `message`: the protocol between them.
// - `devices`: the writing of the files, and the watch for hung devices.
// - `report`: the account of the result. `log`: the log of the keeper.
// - `adopt`: the handover to a new program. `image`: saved arenas.

pub(crate) mod adopt;
pub(crate) mod devices;
pub mod image;
pub(crate) mod link;
pub(crate) mod log;
pub(crate) mod message;
pub(crate) mod process;
pub(crate) mod report;

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use forebay_uring::{Alive, Arena, OpenFile};

use self::link::Link;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::limits::{KEEPER_LINGER, KEEPER_PATH_BYTES, PATIENCE};
use crate::core::recovery::{KeeperState, Standby};
use crate::core::shared::Shared;

pub use process::{run, run_if_asked};

/// Environment variable that makes a program a keeper: the number of the descriptor of its channel.
pub(crate) const ASKED: &str = "FOREBAY_KEEPER";

/// Exit status of a keeper: everything is written.
pub(crate) const WRITTEN: i32 = 0;
/// Exit status: some data could not be written; it was saved if the keeper has a directory for
/// that.
pub(crate) const SAVED: i32 = 1;
/// Exit status: not started as a keeper, or by another version.
pub(crate) const REFUSED: i32 = 2;
/// Exit status: a device hangs.
pub(crate) const HUNG: i32 = 3;

/// Reaction of an engine to the death of its keeper.
///
/// ```
/// use forebay::{Keeper, WhenLost};
///
/// let keeper = Keeper { when_lost: WhenLost::GoOn, ..Keeper::this_program() };
/// assert_eq!(WhenLost::default(), WhenLost::Restart);
/// # drop(keeper);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum WhenLost {
    /// Starts another keeper and hands it all open files.
    #[default]
    Restart,
    /// Continues without a keeper: until a sync, written data lives in this process only.
    GoOn,
}

/// Options of a keeper, for [`Builder::survive`](crate::Builder::survive).
///
/// See the module [`keeper`](crate::keeper) for what a keeper does.
///
/// ```no_run
/// use std::time::Duration;
/// use forebay::{Engine, Keeper, Options};
///
/// # fn main() -> forebay::Result<()> {
/// forebay::keeper::run_if_asked();
/// let keeper = Keeper {
///     socket: Some("/run/app/keeper.socket".into()),
///     log: Some("/var/log/app/keeper.log".into()),
///     linger: Duration::from_secs(60),
///     ..Keeper::this_program()
/// };
/// let engine = Engine::builder(Options::default()).survive(keeper).build()?;
/// # let _ = engine; Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keeper {
    /// The program to execute as the keeper, or `None` for the executable that this process runs,
    /// even if its file was replaced.
    pub program: Option<PathBuf>,
    /// Command line arguments for the keeper process. They come before `keeper --channel 0`.
    pub arguments: Vec<OsString>,
    /// Path of a socket that the keeper serves. After this program has died, another program takes
    /// over its cache and its open files there, with
    /// [`Builder::adopt`](crate::Builder::adopt). The socket has mode 0600: only the same user and
    /// root can connect.
    pub socket: Option<PathBuf>,
    /// How long a keeper with a socket waits for a program that takes over (default: 30 s).
    pub linger: Duration,
    /// How long the keeper retries while no data can be written (default: 60 s).
    pub patience: Duration,
    /// A directory where the keeper saves data that it could not write. The saved file is as large
    /// as the used part of the cache. `forebay recover`, or [`image::recover`], writes it to the
    /// files later. Without a directory such data is lost.
    pub save_to: Option<PathBuf>,
    /// The log file of the keeper (default: standard error).
    pub log: Option<PathBuf>,
    /// Reaction of the engine to the death of the keeper (default: start another one).
    pub when_lost: WhenLost,
}

impl Keeper {
    /// Uses another program as the keeper, started as `PATH keeper --channel 0`.
    ///
    /// It is the program `forebay`, or one of your own that calls [`run`] with the number after
    /// `--channel`.
    #[must_use]
    pub fn program(path: impl Into<PathBuf>) -> Self {
        Self { program: Some(path.into()), ..Self::this_program() }
    }

    /// Uses this program as the keeper, the second process that finishes the writing if this
    /// process dies. Its `main` must call [`run_if_asked`] before anything else.
    #[must_use]
    pub fn this_program() -> Self {
        Self {
            program: None,
            arguments: Vec::new(),
            socket: None,
            linger: KEEPER_LINGER,
            patience: PATIENCE,
            save_to: None,
            log: None,
            when_lost: WhenLost::default(),
        }
    }

    /// Makes all paths absolute and checks them.
    pub(crate) fn checked(mut self) -> Result<Self> {
        for (what, path) in
            [("socket", &mut self.socket), ("save_to", &mut self.save_to), ("log", &mut self.log)]
        {
            if let Some(path) = path {
                *path = absolute(what, path)?;
            }
        }
        for (what, path) in [("socket", &self.socket), ("log", &self.log)] {
            let directory = path.as_deref().and_then(Path::parent);
            if let Some(directory) = directory.filter(|directory| !directory.is_dir()) {
                let error = Error::new(
                    ErrorKind::InvalidInput,
                    format!("the directory of the keeper's `{what}` does not exist"),
                );
                return Err(error.at_path(directory).remedy("create it, or pass another path"));
            }
        }
        if let Some(directory) = &self.save_to
            && !directory.is_dir()
        {
            let error = Error::new(
                ErrorKind::InvalidInput,
                "the keeper cannot save there: not a directory",
            );
            return Err(error.at_path(directory).remedy("create it, or pass another directory"));
        }
        Ok(self)
    }

    /// Returns the command that starts the keeper, with `channel` as its standard input.
    pub(crate) fn command(&self, channel: Stdio) -> Command {
        use std::os::unix::process::CommandExt as _;
        let mut command = match &self.program {
            Some(path) => Command::new(path),
            None => Command::new("/proc/self/exe"),
        };
        command.args(&self.arguments);
        match &self.program {
            Some(_) => command.args(["keeper", "--channel", "0"]),
            None => command.arg0("forebay-keeper").env(ASKED, "0"),
        };
        command.stdin(channel).stdout(Stdio::null());
        command.stderr(if self.log.is_some() { Stdio::null() } else { Stdio::inherit() });
        command
    }

    /// Returns what to do if the keeper does not start.
    pub(crate) fn remedy(&self) -> String {
        match &self.program {
            Some(path) => {
                format!("use the program forebay of this version as {}", path.display())
            }
            None => "call forebay::keeper::run_if_asked at the start of main".to_owned(),
        }
    }
}

fn absolute(what: &str, path: &Path) -> Result<PathBuf> {
    let refused = |why: &str| {
        Error::new(ErrorKind::InvalidInput, format!("invalid `{what}` path of the keeper: {why}"))
    };
    let absolute = std::path::absolute(path)
        .map_err(|error| refused("cannot be made absolute").because(error))?;
    if absolute.as_os_str().len() > KEEPER_PATH_BYTES {
        return Err(refused(&format!("longer than {KEEPER_PATH_BYTES} bytes")).at_path(path));
    }
    Ok(absolute)
}

/// The keeper of an engine, and the process it runs in.
pub(crate) struct Started {
    link: Arc<Link>,
    process: Child,
}

impl Started {
    /// Starts the keeper of an arena. With `on_trial`, another keeper still has everything until
    /// [`Standby::confirm`].
    pub(crate) fn start(
        keeper: Keeper,
        arena: &Arc<Arena>,
        log: Option<&OpenFile>,
        on_trial: bool,
    ) -> Result<Self> {
        let log = log.map(|log| log.as_fd().try_clone_to_owned()).transpose();
        let log = log.map_err(|error| {
            let what = "could not share the intent log with the keeper";
            Error::new(ErrorKind::Keeper, what).because(error)
        })?;
        let (link, process) = Link::start(keeper, Arc::clone(arena), log, on_trial)?;
        Ok(Self { link, process })
    }

    /// Separates the standby from the call that starts to watch its process.
    pub(crate) fn split(self) -> (Box<dyn Standby>, impl FnOnce(&Arc<Shared>) -> Result<()>) {
        let Self { link, process } = self;
        let standby: Box<dyn Standby> = Box::new(Arc::clone(&link));
        (standby, move |shared: &Arc<Shared>| link.watch(shared, process))
    }
}

impl Standby for Arc<Link> {
    fn alive(&self) -> Option<Arc<Alive>> {
        Link::alive(self)
    }

    fn is_there(&self) -> bool {
        Link::is_there(self)
    }

    fn confirm(&self) -> Result<()> {
        Link::confirm(self)
    }

    fn add(&self, number: u32, generation: u16, file: &Arc<OpenFile>) -> Result<()> {
        Link::add(self, number, generation, file)
    }

    fn remove(&self, number: u32, generation: u16) {
        Link::remove(self, number, generation);
    }

    fn state(&self) -> KeeperState {
        Link::state(self)
    }

    fn say_goodbye(&self) {
        Link::say_goodbye(self);
    }

    fn leave_it(&self) {
        Link::leave_it(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_absolute_and_bounded() {
        let keeper = Keeper {
            socket: Some("socket".into()),
            log: Some("/log".into()),
            ..Keeper::this_program()
        }
        .checked()
        .unwrap();
        assert!(keeper.socket.unwrap().is_absolute());
        assert_eq!(keeper.log.unwrap(), Path::new("/log"));
        for missing in [
            Keeper { socket: Some("/no/socket".into()), ..Keeper::this_program() },
            Keeper { log: Some("/no/log".into()), ..Keeper::this_program() },
        ] {
            let error = missing.checked().unwrap_err();
            assert_eq!(
                (error.kind(), error.path()),
                (ErrorKind::InvalidInput, Some(Path::new("/no")))
            );
            assert!(error.to_string().contains("does not exist"), "{error}");
        }
        for refused in [
            Keeper { log: Some("x".repeat(70_000).into()), ..Keeper::this_program() },
            Keeper { socket: Some("".into()), ..Keeper::this_program() },
            Keeper { save_to: Some("/no/such/directory".into()), ..Keeper::this_program() },
        ] {
            assert_eq!(refused.checked().unwrap_err().kind(), ErrorKind::InvalidInput);
        }
    }
}
