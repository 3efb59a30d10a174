//! The engine's side of the keeper: starts it, sends it each file, and notices its end.
//!
//! A caller waits for one answer of the keeper, a second at most. A keeper that does not answer in
//! time is killed, and counts as lost. While no keeper runs, no caller waits. The open files are
//! remembered for the next keeper.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use forebay_uring::layout::LAYOUT_VERSION;
use forebay_uring::passing::Received;
use forebay_uring::{Alive, Arena, Channel, Gone, OpenFile, Process};

use super::message::{Hello, Message};
use super::{Keeper, WhenLost};
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::limits::{
    KEEPER_ANSWER, KEEPER_BATCH, KEEPER_PAUSE, KEEPER_PAUSE_MOST, KEEPER_START, KEEPER_STEADY,
};
use crate::core::recovery::KeeperState;
use crate::core::shared::Shared;
use crate::platform::thread::mark_as_ours;

/// Connection to the keeper process.
#[derive(Debug)]
pub(crate) struct Link {
    keeper: Keeper,
    arena: Arc<Arena>,
    gone: Gone,
    /// Process id of the engine. A forked child sends nothing.
    home: u32,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    line: Line,
    files: BTreeMap<u32, Held>,
    /// Object that every ring has to hold. `None` once closed, so that the keeper sees the end of
    /// the rings while this process lives.
    alive: Option<Arc<Alive>>,
    /// The intent log of the engine: a keeper shares its lock. `None` once closed.
    log: Option<Arc<OwnedFd>>,
    restarts: u64,
    /// Whether another keeper still has the content.
    on_trial: bool,
    /// Whether the watching thread has ended.
    is_over: bool,
}

/// A file that the keeper holds, or that the next one will hold.
#[derive(Clone, Debug)]
struct Held {
    generation: u16,
    file: Arc<OpenFile>,
}

/// Connection to a keeper, if one runs.
#[derive(Debug)]
enum Line {
    Up(Up),
    /// No keeper runs now.
    Down,
    /// No keeper runs, and none will be started.
    Closed,
}

/// A keeper that runs.
#[derive(Debug)]
struct Up {
    channel: Channel,
    process: Process,
}

/// A keeper that was just started.
#[derive(Debug)]
pub(crate) struct Started {
    up: Up,
    child: Child,
}

impl Link {
    /// Starts a keeper for an arena. With `on_trial`, it is on trial until [`Link::confirm`],
    /// because another keeper still has everything.
    pub(crate) fn start(
        keeper: Keeper,
        arena: Arc<Arena>,
        log: Option<OwnedFd>,
        on_trial: bool,
    ) -> Result<(Arc<Self>, Child)> {
        if super::process::is_asked() {
            let error = Error::new(
                ErrorKind::Keeper,
                "cannot build an engine: this process was started as a keeper",
            );
            return Err(error.remedy(keeper.remedy()));
        }
        let keeper = keeper.checked()?;
        let (alive, gone) = Alive::pair().map_err(|error| {
            Error::new(ErrorKind::Io, "could not create a pipe to the keeper").because(error)
        })?;
        let line = Line::Closed;
        let alive = Some(Arc::new(alive));
        let (files, log) = (BTreeMap::new(), log.map(Arc::new));
        let state = State { line, files, alive, log, restarts: 0, on_trial, is_over: true };
        let link = Self {
            keeper,
            arena,
            gone,
            home: std::process::id(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        };
        let Started { up, child } = link.start_one()?;
        link.lock().line = Line::Up(up);
        Ok((Arc::new(link), child))
    }

    /// Returns the object that every ring has to hold.
    pub(crate) fn alive(&self) -> Option<Arc<Alive>> {
        self.lock().alive.clone()
    }

    /// Returns whether a keeper runs now.
    pub(crate) fn is_there(&self) -> bool {
        matches!(self.lock().line, Line::Up(_))
    }

    /// Starts a process, and waits until it reports that it is a keeper.
    fn start_one(&self) -> Result<Started> {
        let failed = |what: &str| Error::new(ErrorKind::Keeper, what).remedy(self.keeper.remedy());
        let (channel, theirs) = Channel::pair()
            .map_err(|error| failed("could not create a socket to the keeper").because(error))?;
        let end = theirs.as_fd().try_clone_to_owned();
        let end =
            end.map_err(|error| failed("could not create a socket to the keeper").because(error))?;
        let child = self.keeper.command(end.into()).spawn();
        // The keeper alone must hold it, so that its end is noticed.
        drop(theirs);
        let mut child =
            child.map_err(|error| failed("could not start the keeper").because(error))?;
        match self.greet(&channel, &child) {
            Ok(process) => Ok(Started { up: Up { channel, process }, child }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    fn greet(&self, channel: &Channel, child: &Child) -> Result<Process> {
        let failed =
            |what: String| Error::new(ErrorKind::Keeper, what).remedy(self.keeper.remedy());
        let process = Process::of(child.id())
            .map_err(|error| failed("could not watch the keeper process".into()).because(error))?;
        let Keeper { patience, linger, socket, save_to, log, .. } = self.keeper.clone();
        let state = self.lock();
        let (on_trial, intent_log) = (state.on_trial, state.log.clone());
        drop(state);
        let hello = Hello {
            layout: LAYOUT_VERSION,
            process: self.home,
            patience,
            linger,
            on_trial,
            has_log: intent_log.is_some(),
            socket,
            save_to,
            log,
        };
        let memfd =
            self.arena.memfd().expect("the arena of an engine with a keeper is shared memory");
        let mut descriptors = vec![memfd, self.gone.as_fd()];
        descriptors.extend(intent_log.as_ref().map(|log| log.as_fd()));
        let sent = channel.send(&Message::Hello(hello).encode(), &descriptors);
        // A program that has already ended may have sent the reason.
        match receive(channel, KEEPER_START) {
            Ok(Message::Welcome { .. }) => Ok(process),
            // It ran as a keeper, so the reason says what to do.
            Ok(Message::Refused { reason }) => {
                Err(Error::new(ErrorKind::Keeper, format!("the keeper refused to start: {reason}")))
            }
            Ok(_) => {
                Err(failed("the program started as the keeper sent an unexpected answer".into()))
            }
            Err(error) => {
                Err(failed("the keeper does not answer".into())
                    .because(sent.err().unwrap_or(error)))
            }
        }
    }

    /// Sends an opened file, and returns when the keeper has it, if one runs.
    pub(crate) fn add(&self, number: u32, generation: u16, file: &Arc<OpenFile>) -> Result<()> {
        let mut state = self.lock();
        state.files.insert(number, Held { generation, file: Arc::clone(file) });
        match state.ask(&Message::Add { number, generation }, &[file.as_fd()]) {
            Some(Message::NotAdded { reason, .. }) => {
                state.files.remove(&number);
                let error = Error::new(
                    ErrorKind::Keeper,
                    format!("the keeper cannot hold the file: {reason}"),
                );
                Err(error.remedy("raise the hard limit of open files (ulimit -Hn), or open fewer"))
            }
            _ => Ok(()),
        }
    }

    /// Ends the trial of the keeper: it has everything, and acts from now on if this process dies.
    /// Returns when the keeper listens.
    ///
    /// # Errors
    /// `Keeper` if it refuses or has ended; then it is still on trial.
    pub(crate) fn confirm(&self) -> Result<()> {
        let mut state = self.lock();
        match state.ask(&Message::Taken, &[]) {
            Some(Message::Taken) => {
                state.on_trial = false;
                Ok(())
            }
            Some(Message::Refused { reason }) => {
                Err(Error::new(ErrorKind::Keeper, format!("the keeper refused: {reason}")))
            }
            _ => Err(Error::new(ErrorKind::Keeper, "the keeper ended right after its start")),
        }
    }

    /// Removes a closed file, and returns when the keeper has closed it.
    pub(crate) fn remove(&self, number: u32, generation: u16) {
        let mut state = self.lock();
        // The number may belong to another file by now.
        if state.files.get(&number).is_some_and(|held| held.generation == generation) {
            state.files.remove(&number);
            state.ask(&Message::Remove { number, generation }, &[]);
        }
    }

    /// Returns the state of the keeper.
    pub(crate) fn state(&self) -> KeeperState {
        let state = self.lock();
        let process = match &state.line {
            Line::Up(up) => Some(up.process.number()),
            Line::Down | Line::Closed => None,
        };
        KeeperState { process, files: state.files.len(), restarts: state.restarts }
    }

    /// Lets the keeper end, because everything is written. Waits until it has ended, a second at
    /// most.
    pub(crate) fn say_goodbye(&self) {
        self.unlock_log();
        let Some(up) = self.close() else { return };
        let said = up.channel.send(&Message::Goodbye.encode(), &[]);
        let has_ended = said.is_ok() && up.process.wait(Some(KEEPER_ANSWER)).unwrap_or(false);
        if !has_ended {
            let _ = up.process.kill();
        }
        self.wait_for_watcher();
    }

    /// Leaves unwritten data to the keeper, which acts as if this process were dead.
    pub(crate) fn leave_it(&self) {
        drop(self.close());
    }

    /// Releases the lock of the intent log: else a child of this process would keep it.
    fn unlock_log(&self) {
        if std::process::id() != self.home {
            return;
        }
        let log = self.lock().log.take().and_then(|log| log.try_clone().ok());
        if let Some(Ok(log)) = log.map(OpenFile::of_descriptor) {
            let _ = log.ofd_unlock();
        }
    }

    /// Closes the connection, and returns the running keeper.
    fn close(&self) -> Option<Up> {
        if std::process::id() != self.home {
            return None;
        }
        let mut state = self.lock();
        state.files.clear();
        state.alive = None;
        state.log = None;
        let line = std::mem::replace(&mut state.line, Line::Closed);
        drop(state);
        self.changed.notify_all();
        match line {
            Line::Up(up) => Some(up),
            Line::Down | Line::Closed => None,
        }
    }

    fn wait_for_watcher(&self) {
        let is_there = |state: &mut State| !state.is_over;
        let _ = self.changed.wait_timeout_while(self.lock(), KEEPER_ANSWER, is_there);
    }

    /// Starts a thread that waits for the keeper's end.
    pub(crate) fn watch(self: &Arc<Self>, shared: &Arc<Shared>, child: Child) -> Result<()> {
        let (link, shared) = (Arc::clone(self), Arc::downgrade(shared));
        self.lock().is_over = false;
        let run = move || {
            mark_as_ours();
            link.stand_by(&shared, child);
            link.lock().is_over = true;
            link.changed.notify_all();
        };
        let thread = thread::Builder::new().name("forebay-keeper".into()).spawn(run);
        thread.map(drop).map_err(|error| {
            self.lock().is_over = true;
            Error::new(ErrorKind::Io, "could not start the thread that watches the keeper")
                .because(error)
        })
    }

    /// Waits for the end of the keeper and replaces it, until the engine ends or no other keeper is
    /// wanted.
    fn stand_by(&self, shared: &Weak<Shared>, mut child: Child) {
        let mut pause = Duration::ZERO;
        loop {
            let start = Instant::now();
            let ended = child.wait();
            if !self.is_lost() {
                return;
            }
            report(shared, &self.lost(&ended));
            if self.keeper.when_lost == WhenLost::GoOn {
                return;
            }
            if start.elapsed() >= KEEPER_STEADY {
                pause = Duration::ZERO;
            }
            child = loop {
                if !self.rest(pause) {
                    return;
                }
                pause = (pause * 2).clamp(KEEPER_PAUSE, KEEPER_PAUSE_MOST);
                match self.start_again() {
                    Ok(Some(child)) => break child,
                    Ok(None) => return,
                    Err(error) => report(shared, &error),
                }
            };
        }
    }

    /// Returns whether the end of the keeper was unexpected. Then notes that no keeper runs.
    fn is_lost(&self) -> bool {
        let mut state = self.lock();
        let is_lost = !matches!(state.line, Line::Closed);
        if is_lost {
            state.line = Line::Down;
        }
        is_lost
    }

    fn lost(&self, ended: &io::Result<ExitStatus>) -> Error {
        let how = ended.as_ref().map_or("unseen".to_owned(), ToString::to_string);
        let then = match self.keeper.when_lost {
            WhenLost::Restart => "another one is being started; until then",
            WhenLost::GoOn => "from now on",
        };
        let what = format!(
            "the keeper has ended ({how}); {then} the death of this process loses unsynced data"
        );
        Error::new(ErrorKind::Keeper, what)
    }

    /// Waits for a pause. Returns false if the engine ends meanwhile.
    fn rest(&self, pause: Duration) -> bool {
        let is_open = |state: &mut State| !matches!(state.line, Line::Closed);
        let waited = self.changed.wait_timeout_while(self.lock(), pause, is_open);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !matches!(state.line, Line::Closed)
    }

    /// Starts a new keeper with all files. Returns `None` if the engine ends meanwhile.
    fn start_again(&self) -> Result<Option<Child>> {
        let Started { up, mut child } = self.start_one()?;
        let mut state = self.lock();
        if matches!(state.line, Line::Closed) {
            drop(state);
            let _ = up.channel.send(&Message::Goodbye.encode(), &[]);
            let _ = child.wait();
            return Ok(None);
        }
        let sent = state.send_all(&up.channel);
        if let Err(error) = sent {
            drop(state);
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        state.line = Line::Up(up);
        state.restarts += 1;
        Ok(Some(child))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the keeper of an engine that never ran.
impl Drop for Link {
    fn drop(&mut self) {
        self.say_goodbye();
    }
}

impl State {
    /// Sends a message and waits for the answer. A keeper without a valid answer is killed. The
    /// watching thread then continues from there.
    fn ask(&mut self, message: &Message, descriptors: &[BorrowedFd<'_>]) -> Option<Message> {
        let Line::Up(up) = &self.line else { return None };
        let answer = up
            .channel
            .send(&message.encode(), descriptors)
            .and_then(|()| receive(&up.channel, KEEPER_ANSWER));
        match answer {
            Ok(answer) if is_answer(message, &answer) => Some(answer),
            other => {
                tracing::warn!(
                    ?message,
                    answer = ?other,
                    "the keeper sent no valid answer; killing it"
                );
                let _ = up.process.kill();
                self.line = Line::Down;
                None
            }
        }
    }

    /// Sends all files to a new keeper, a few at a time: more than the channel holds would block
    /// both ends.
    fn send_all(&self, channel: &Channel) -> Result<()> {
        let failed = |why: String| {
            Error::new(
                ErrorKind::Keeper,
                format!("could not hand the open files to a new keeper: {why}"),
            )
        };
        let files: Vec<_> = self.files.iter().collect();
        for batch in files.chunks(KEEPER_BATCH) {
            for (number, held) in batch {
                let message = Message::Add { number: **number, generation: held.generation };
                let sent = channel.send(&message.encode(), &[held.file.as_fd()]);
                sent.map_err(|error| failed(error.to_string()))?;
            }
            for (number, _) in batch {
                match receive(channel, KEEPER_ANSWER) {
                    Ok(Message::Added { number: added }) if added == **number => {}
                    Ok(Message::NotAdded { reason, .. }) => return Err(failed(reason)),
                    Ok(_) => return Err(failed("unexpected answer".into())),
                    Err(error) => return Err(failed(error.to_string())),
                }
            }
        }
        Ok(())
    }
}

/// Returns whether a message answers a request.
fn is_answer(asked: &Message, answer: &Message) -> bool {
    match (asked, answer) {
        (
            Message::Add { number, .. },
            Message::Added { number: of } | Message::NotAdded { number: of, .. },
        )
        | (Message::Remove { number, .. }, Message::Removed { number: of }) => number == of,
        (Message::Taken, Message::Taken | Message::Refused { .. }) => true,
        _ => false,
    }
}

/// Receives the next message.
fn receive(channel: &Channel, patience: Duration) -> io::Result<Message> {
    match channel.receive(Some(patience))? {
        Received::Message(message) => Message::decode(&message.bytes)
            .map_err(|malformed| io::Error::other(malformed.to_string())),
        Received::Nothing => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")),
        Received::End => Err(io::Error::new(io::ErrorKind::BrokenPipe, "the process has ended")),
    }
}

/// Logs and reports an error that no caller waits for.
fn report(shared: &Weak<Shared>, error: &Error) {
    tracing::error!(%error);
    if let Some(shared) = shared.upgrade() {
        shared.report(error);
    }
}
