//! The keeper: a second process that finishes what this one had accepted, should it die.
//!
//! The engine's arena is memory that both processes have, and the keeper has duplicates of the
//! engine's open files. While the program lives it does nothing: it sleeps until it is told of
//! another file, or until the program is gone. Then, if nobody said goodbye, it waits until the
//! kernel has let go of the dead program's requests, writes what is dirty to the files, syncs them,
//! gives back what was reserved, and ends. So written data survives the death of the process, as
//! with the kernel's page cache; what the *machine's* death takes is what was not synced.
//!
//! ```text
//! program ------ arena (memfd) ------ keeper            dead ------ arena ------ keeper: plan, write, sync, end
//!    |---- files, one by one --------->|                             files -------|
//!    |<--- "added" --------------------|
//!    |---- goodbye -----> ends
//! ```
//!
//! # Which program is the keeper
//!
//! One that calls [`run`], as `forebay keeper` does: [`Keeper::program`]. Or this very program,
//! executed again: [`Keeper::this_program`]. Its `main` has to call [`run_if_asked`] before
//! anything else, which in the keeper never returns. Both ends have to be of one build, as far as
//! version and layout go: others are refused when the engine is made.
//!
//! ```no_run
//! use forebay::{Engine, Keeper};
//!
//! # fn main() -> forebay::Result<()> {
//! forebay::keeper::run_if_asked();                   // first of all: this may be the keeper
//! let engine = Engine::builder().survive(Keeper::this_program()).build()?;
//! # let _ = engine; Ok(())
//! # }
//! ```
//!
//! # Going on where a program died
//!
//! With a [socket](Keeper::socket) the keeper stays for a while when all is written, and a program
//! that is started again takes over what it has: [`Builder::adopt`](crate::Builder::adopt). Its
//! cache is as warm as the dead one's was, its files are open, those that have no name any more
//! too, and nobody else had them in between, but who opened one meanwhile.
//!
//! # What it does not cover
//!
//! The machine's death. Both processes killed together, as by a service manager that ends all
//! processes of a service: see `docs/decisions/0019-keeper.md` for the ways out. What was reserved
//! for writes that never came is given back only where the file's lease is still held.
//!
//! Inside: `link` is the engine's end, `process` the keeper's, `message` what they say; `recover`
//! the plan of what is to be written, `finish` its execution, `progress` how far that is and
//! `report` what comes of it; `adopt` what a new program takes over; [`image`] an arena that was
//! saved to a file; `store` the service manager in the place of a keeper, `standby` either of them.

pub(crate) mod adopt;
pub(crate) mod finish;
pub mod image;
pub(crate) mod link;
pub(crate) mod log;
pub(crate) mod message;
pub(crate) mod process;
pub(crate) mod progress;
pub(crate) mod recover;
pub(crate) mod report;
pub(crate) mod standby;
pub(crate) mod store;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::limits::{KEEPER_LINGER, KEEPER_PATH_BYTES, PATIENCE};

pub use process::{run, run_if_asked};
pub use store::stored;

/// Says to a program that it is a keeper: the number of the descriptor by which it hears.
pub(crate) const ASKED: &str = "FOREBAY_KEEPER";

/// What a keeper exits with: all is written ...
pub(crate) const WRITTEN: i32 = 0;
/// ... something is not, and perhaps saved ...
pub(crate) const SAVED: i32 = 1;
/// ... it was not started as a keeper is, or by another version ...
pub(crate) const REFUSED: i32 = 2;
/// ... a device hangs.
pub(crate) const HUNG: i32 = 3;

/// What an engine does when its keeper is gone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum WhenLost {
    /// Starts another one, which gets all files again.
    #[default]
    Restart,
    /// Goes on without: until a sync returns, written data lives in the process.
    GoOn,
}

/// Which program keeps what the engine has accepted, and how: see
/// [`Builder::survive`](crate::Builder::survive).
#[derive(Clone, Debug)]
pub struct Keeper {
    program: Program,
    arguments: Vec<OsString>,
    pub(crate) socket: Option<PathBuf>,
    pub(crate) linger: Duration,
    pub(crate) patience: Duration,
    pub(crate) save_to: Option<PathBuf>,
    pub(crate) log: Option<PathBuf>,
    pub(crate) when_lost: WhenLost,
}

#[derive(Clone, Debug)]
enum Program {
    Path(PathBuf),
    This,
    /// None: the service manager stores what there is.
    Store,
}

/// An engine's keeper, at a moment: see [`Engine::keeper`](crate::Engine::keeper).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct KeeperState {
    /// Its process; none while there is none.
    pub process: Option<u32>,
    /// Files it holds, or will hold when it is there again.
    pub files: usize,
    /// How often another one was started.
    pub restarts: u64,
}

impl Keeper {
    /// A program that is started as `PATH keeper --channel 0`: the program `forebay`, or one of
    /// your own that calls [`run`] then.
    #[must_use]
    pub fn program(path: impl Into<PathBuf>) -> Self {
        Self::of(Program::Path(path.into()))
    }

    /// This program once more, from the file it was started from, even where that has been
    /// replaced. Its `main` has to call [`run_if_asked`] before it does anything.
    #[must_use]
    pub fn this_program() -> Self {
        Self::of(Program::This)
    }

    /// No process: the service manager's store of descriptors (`FileDescriptorStoreMax=` of
    /// systemd, at least two and the most files open) has arena and files while the program is not
    /// running, and the program itself, started again, writes what was left: its `main` calls
    /// [`stored`] before it opens its files. For services whose processes are all killed together.
    /// Each first open and last close waits for the manager. Nothing else that can be told a keeper
    /// matters.
    #[must_use]
    pub fn descriptor_store() -> Self {
        Self::of(Program::Store)
    }

    pub(crate) fn is_store(&self) -> bool {
        matches!(self.program, Program::Store)
    }

    fn of(program: Program) -> Self {
        Self {
            program,
            arguments: Vec::new(),
            socket: None,
            linger: KEEPER_LINGER,
            patience: PATIENCE,
            save_to: None,
            log: None,
            when_lost: WhenLost::default(),
        }
    }

    /// Arguments for the keeper, before any others.
    #[must_use]
    pub fn arguments(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments = arguments.into_iter().map(Into::into).collect();
        self
    }

    /// A path at which the keeper listens (mode 0600; the same user, and root): once the program is
    /// dead, and all of it is written, another one may take over arena and files there.
    #[must_use]
    pub fn socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.socket = Some(path.into());
        self
    }

    /// How long it waits for that, with a socket; 30 s unless told.
    #[must_use]
    pub fn linger(mut self, time: Duration) -> Self {
        self.linger = time;
        self
    }

    /// How long it goes on trying while nothing can be written; 60 s unless told.
    #[must_use]
    pub fn patience(mut self, time: Duration) -> Self {
        self.patience = time;
        self
    }

    /// A directory to which it saves the arena if something could not be written: `forebay recover`
    /// writes that later. As large as what was used of the cache.
    #[must_use]
    pub fn save_to(mut self, directory: impl Into<PathBuf>) -> Self {
        self.save_to = Some(directory.into());
        self
    }

    /// A file to which it says what it did; standard error unless told.
    #[must_use]
    pub fn log(mut self, path: impl Into<PathBuf>) -> Self {
        self.log = Some(path.into());
        self
    }

    /// What the engine does when the keeper is gone; starts another one unless told.
    #[must_use]
    pub fn when_lost(mut self, what: WhenLost) -> Self {
        self.when_lost = what;
        self
    }

    /// With all paths as they are from everywhere, or why that cannot be.
    pub(crate) fn checked(mut self) -> Result<Self> {
        for (what, path) in
            [("socket", &mut self.socket), ("save_to", &mut self.save_to), ("log", &mut self.log)]
        {
            if let Some(path) = path {
                *path = absolute(what, path)?;
            }
        }
        if let Some(directory) = &self.save_to
            && !directory.is_dir()
        {
            let error = Error::new(
                ErrorKind::InvalidInput,
                "the keeper can save nothing there: no directory",
            );
            return Err(error.at_path(directory).remedy("give a directory that is there"));
        }
        Ok(self)
    }

    /// The keeper, to be started; by its standard input it hears.
    pub(crate) fn command(&self, channel: Stdio) -> Command {
        use std::os::unix::process::CommandExt as _;
        let mut command = match &self.program {
            Program::Path(path) => Command::new(path),
            Program::This | Program::Store => Command::new("/proc/self/exe"),
        };
        command.args(&self.arguments);
        match &self.program {
            Program::Path(_) => command.args(["keeper", "--channel", "0"]),
            Program::This | Program::Store => command.arg0("forebay-keeper").env(ASKED, "0"),
        };
        command.stdin(channel).stdout(Stdio::null());
        command.stderr(if self.log.is_some() { Stdio::null() } else { Stdio::inherit() });
        command
    }

    /// What to do where it does not start.
    pub(crate) fn remedy(&self) -> String {
        match &self.program {
            Program::Path(path) => {
                format!("{} has to be the program forebay of this version", path.display())
            }
            Program::This | Program::Store => {
                "main has to call forebay::keeper::run_if_asked first".to_owned()
            }
        }
    }
}

fn absolute(what: &str, path: &Path) -> Result<PathBuf> {
    let refused =
        |why: &str| Error::new(ErrorKind::InvalidInput, format!("{what} of the keeper: {why}"));
    let absolute = std::path::absolute(path).map_err(|error| refused("no path").because(error))?;
    if absolute.as_os_str().len() > KEEPER_PATH_BYTES {
        return Err(
            refused(&format!("a path of more than {KEEPER_PATH_BYTES} bytes")).at_path(path)
        );
    }
    Ok(absolute)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_absolute_and_bounded() {
        let keeper = Keeper::this_program().socket("socket").log("/log").checked().unwrap();
        assert!(keeper.socket.unwrap().is_absolute());
        assert_eq!(keeper.log.unwrap(), Path::new("/log"));
        for refused in [
            Keeper::this_program().log("x".repeat(70_000)),
            Keeper::this_program().socket(""),
            Keeper::this_program().save_to("/no/such/directory"),
        ] {
            assert_eq!(refused.checked().unwrap_err().kind(), ErrorKind::InvalidInput);
        }
    }
}
