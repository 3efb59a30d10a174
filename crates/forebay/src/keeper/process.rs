//! The keeper process: one thread that sleeps until a message comes, or until its program has died.
//!
//! A program counts as dead when its process has ended, or when its end of the channel is closed,
//! which an exec causes. Its earlier messages are read first. If the last one was not a goodbye,
//! the files are finished (`devices`).
//!
//! Nothing received is trusted. [`message`](super::message) parses messages. The memory is mapped
//! only if its description of itself is valid. Only data described in the arena is written, and
//! only to a file that matches its record.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay_uring::layout::LAYOUT_VERSION;
use forebay_uring::local::{BindError, Peer};
use forebay_uring::passing::{self, Listener, Received, WaitFor, wait};
use forebay_uring::{Arena, Channel, Gone, OpenFile, Process, detached};

use super::devices::{Progress, finish};
use super::log::Log;
use super::message::{Hello, Malformed, Message};
use super::report::Report;
use super::{ASKED, REFUSED, SAVED, WRITTEN};
use crate::core::intent_log::file::LogFile;
use crate::core::limits::{
    KEEPER_ADOPTION, KEEPER_FIRST_WORD, KEEPER_LOOKS, KEEPER_READS, KEEPER_RINGS, KEEPER_WATCHDOG,
};
use crate::core::recovery::finish::{Job, Rings};
use crate::core::recovery::inherited;
use crate::core::recovery::records::DeadLog;
use crate::core::recovery::{LogFound, Work, work_of};

/// Runs the keeper and exits, if this process was started as one by
/// [`Keeper::this_program`](super::Keeper::this_program). Otherwise returns at once.
///
/// Call it at the very start of `main`: the keeper closes all file descriptors that are not its
/// own.
///
/// ```no_run
/// fn main() -> forebay::Result<()> {
///     forebay::keeper::run_if_asked();
///     // The program proper.
///     Ok(())
/// }
/// ```
pub fn run_if_asked() {
    if let Some(number) = std::env::var_os(ASKED) {
        let number = number.to_str().and_then(|number| number.parse().ok());
        std::process::exit(number.map_or(REFUSED, run));
    }
}

/// Returns whether this process was started as a keeper.
pub(crate) fn is_asked() -> bool {
    std::env::var_os(ASKED).is_some()
}

/// Runs a keeper that talks to its program over the descriptor `channel`. Blocks until nothing is
/// left to keep.
///
/// Returns the exit status for the process: 0 if everything is written, 1 if some data is lost or
/// saved to a file, 2 if this process was not started by a program of this version. If a device
/// hangs, the function exits the process with status 3.
///
/// Call it at the very start of `main`: the keeper closes all file descriptors that are not its
/// own.
#[must_use]
pub fn run(channel: RawFd) -> i32 {
    let given = match channel {
        // Standard input has no owner in particular, so it can be cloned.
        0 => io::stdin().as_fd().try_clone_to_owned().and_then(Channel::of_descriptor),
        number => Channel::inherited(number),
    };
    let Ok(channel) = given else {
        let log = Log::default();
        log.say(format_args!("a keeper is started by its program, not by hand"));
        log.flush();
        return REFUSED;
    };
    detached::outlive("forebay-keeper");
    if let Err(error) = detached::detach(&[channel.as_fd()]) {
        return refuse(&channel, format!("could not detach from the program: {error}"));
    }
    match Keeping::begin(&channel) {
        Ok(mut keeping) => match keeping.keep(&channel) {
            Ended::Well => WRITTEN,
            // The previous keeper still has everything.
            Ended::Died if keeping.hello.on_trial => WRITTEN,
            Ended::Died => {
                drop(channel);
                keeping.recover()
            }
        },
        Err(reason) => refuse(&channel, reason),
    }
}

/// Remedy if a keeper and the program that starts it do not understand each other.
const ONE_BUILD: &str = "program and keeper must be of one build";

fn refuse(channel: &Channel, reason: String) -> i32 {
    say(channel, &Message::Refused { reason }, &[]);
    REFUSED
}

/// Sends a message. It is lost if the other end is closed.
fn say(channel: &Channel, message: &Message, descriptors: &[BorrowedFd<'_>]) {
    let _ = channel.send(&message.encode(), descriptors);
}

/// End of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ended {
    /// With a goodbye.
    Well,
    /// Without a goodbye.
    Died,
}

/// Result of reading once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Heard {
    Something,
    Nothing,
    Goodbye,
    End,
}

/// State of a keeper.
#[derive(Debug)]
struct Keeping {
    hello: Hello,
    arena: Arc<Arena>,
    owner: Process,
    gone: Gone,
    /// The intent log of the program, with its lock.
    intent_log: Option<OwnedFd>,
    files: BTreeMap<u32, Kept>,
    listener: Option<Listener>,
    /// Time that an adopting program may be silent.
    adoption: Duration,
    log: Arc<Log>,
}

/// A file of the program.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) generation: u16,
    pub(crate) file: OwnedFd,
}

impl Drop for Keeping {
    fn drop(&mut self) {
        if let Some(listener) = &self.listener {
            listener.remove();
        }
        self.log.flush();
    }
}

impl Keeping {
    /// Receives the first message and answers it.
    fn begin(channel: &Channel) -> Result<Self, String> {
        let first = match channel.receive(Some(KEEPER_FIRST_WORD)) {
            Ok(Received::Message(message)) => message,
            Ok(Received::Nothing) => return Err("no message came".into()),
            Ok(Received::End) => return Err("the program has ended".into()),
            Err(error) => return Err(format!("could not receive a message: {error}")),
        };
        let hello = match Message::decode(&first.bytes) {
            Ok(Message::Hello(hello)) => hello,
            Ok(_) => return Err("the first message was no hello".into()),
            Err(malformed @ Malformed::Version(_)) => {
                return Err(format!("{malformed}; {ONE_BUILD}"));
            }
            Err(malformed) => {
                return Err(format!("invalid message from the program: {malformed}"));
            }
        };
        if hello.layout != LAYOUT_VERSION {
            return Err(format!(
                "the arena is of layout version {}, and this keeper knows {LAYOUT_VERSION}; \
                 {ONE_BUILD}",
                hello.layout
            ));
        }
        let expected = 2 + usize::from(hello.has_log);
        let mut descriptors = first.descriptors;
        let intent_log = if hello.has_log { descriptors.pop() } else { None };
        let [memfd, gone] = <[OwnedFd; 2]>::try_from(descriptors).map_err(|got| {
            let count = got.len() + usize::from(intent_log.is_some());
            format!("{count} descriptors came with the first message, not {expected}")
        })?;
        let arena =
            Arena::of_memfd(memfd).map_err(|error| format!("could not map the arena: {error}"))?;
        let owner = Process::of(hello.process)
            .map_err(|error| format!("could not watch the program: {error}"))?;
        let log = Log::to(hello.log.as_deref())
            .map_err(|error| format!("could not open the log: {error}"))?;
        let listener = if hello.on_trial { None } else { listen(&hello)? };
        let keeping = Self {
            hello,
            arena: Arc::new(arena),
            owner,
            gone: Gone::of_descriptor(gone),
            intent_log,
            files: BTreeMap::new(),
            listener,
            adoption: KEEPER_ADOPTION,
            log: Arc::new(log),
        };
        say(channel, &Message::Welcome { process: std::process::id() }, &[]);
        Ok(keeping)
    }

    /// Serves the program until it ends.
    fn keep(&mut self, channel: &Channel) -> Ended {
        loop {
            let mut awaited = vec![WaitFor::Message(channel), WaitFor::Death(&self.owner)];
            awaited.extend(self.listener.as_ref().map(WaitFor::Connection));
            let Ok(ready) = wait(&awaited, None) else {
                // Out of memory: try again after a moment.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            if ready[0] || ready[1] {
                // All earlier messages are read before its end counts.
                match self.receive_all(channel) {
                    Heard::Goodbye => return Ended::Well,
                    Heard::End => return Ended::Died,
                    Heard::Something | Heard::Nothing if ready[1] => return Ended::Died,
                    Heard::Something | Heard::Nothing => {}
                }
            }
            if ready.get(2) == Some(&true) {
                self.send_away();
            }
        }
    }

    /// Reads messages until none is left.
    fn receive_all(&mut self, channel: &Channel) -> Heard {
        loop {
            let heard = self.receive(channel);
            if heard != Heard::Something {
                return heard;
            }
        }
    }

    /// Reads the next message, if one is there.
    fn receive(&mut self, channel: &Channel) -> Heard {
        let message = match channel.receive(Some(Duration::ZERO)) {
            Ok(Received::Message(message)) => message,
            Ok(Received::Nothing) => return Heard::Nothing,
            Ok(Received::End) => return Heard::End,
            // A message that is too large is lost; others may follow.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Heard::Something,
            Err(error) => {
                self.log.say(format_args!("could not receive from the program: {error}"));
                return Heard::End;
            }
        };
        match Message::decode(&message.bytes) {
            Ok(Message::Add { number, generation }) => {
                let answer = self.add(number, generation, message);
                say(channel, &answer, &[]);
            }
            Ok(Message::Remove { number, generation }) => {
                if self.files.get(&number).is_some_and(|kept| kept.generation == generation) {
                    self.files.remove(&number);
                }
                say(channel, &Message::Removed { number }, &[]);
            }
            Ok(Message::Taken) if self.hello.on_trial => {
                let answer = self.end_trial();
                say(channel, &answer, &[]);
            }
            Ok(Message::Goodbye) => return Heard::Goodbye,
            Ok(other) => {
                self.log.say(format_args!("unexpected message from the program: {other:?}"));
            }
            Err(malformed) => {
                self.log.say(format_args!("invalid message from the program: {malformed}"));
            }
        }
        Heard::Something
    }

    /// Ends the trial.
    fn end_trial(&mut self) -> Message {
        match listen(&self.hello) {
            Ok(listener) => {
                self.listener = listener;
                self.hello.on_trial = false;
                Message::Taken
            }
            Err(reason) => Message::Refused { reason },
        }
    }

    fn add(&mut self, number: u32, generation: u16, message: passing::Message) -> Message {
        match <[OwnedFd; 1]>::try_from(message.descriptors) {
            Ok([file]) => {
                self.files.insert(number, Kept { generation, file });
                Message::Added { number }
            }
            Err(_) => {
                let limit =
                    detached::descriptor_limit().map_or("many".into(), |limit| limit.to_string());
                let reason = format!("it has reached its limit of {limit} open files");
                Message::NotAdded { number, reason }
            }
        }
    }

    /// Refuses an adoption, because the program is alive.
    fn send_away(&self) {
        let reason = format!("process {} is alive and uses its files", self.hello.process);
        match self.listener.as_ref().map(Listener::accept) {
            Some(Ok(Some((channel, _)))) => say(&channel, &Message::Refused { reason }, &[]),
            // Most likely too many open files: pause before the next attempt.
            Some(Err(_)) => std::thread::sleep(Duration::from_millis(100)),
            _ => {}
        }
    }

    /// Finishes the files of the dead program. Returns the exit status.
    fn recover(mut self) -> i32 {
        let start = Instant::now();
        let rings = self.wait_for_rings();
        let progress = Arc::new(Progress::new());
        let report = self.report(start);
        let log = self.read_log(start, &progress);
        let watchdog = Watchdog::start(self.report(start), self.hello.patience, &progress);
        let Work { jobs, refused } =
            work_of(&self.arena, received(std::mem::take(&mut self.files)), &log);
        let log_is_lost = matches!(log, Some(Err(_)));
        drop(log);
        report.report_refused(&refused);
        let (generations, jobs): (Vec<u16>, BTreeMap<u32, Job>) =
            jobs.into_iter().map(|(number, (generation, job))| (generation, (number, job))).unzip();
        let done = finish(&self.arena, jobs, rings, self.hello.patience, &progress);
        drop(watchdog);
        report.conclude(&done);
        let has_lost = !refused.is_empty() || done.values().any(|done| done.lost.is_some());
        // A program that took over would make them newer than these records.
        let has_records = done.values().any(|done| done.has_records);
        let image = if has_lost { report.save() } else { None };
        if has_records || log_is_lost {
            return SAVED;
        }
        let files = done.into_iter().zip(generations);
        let status = if has_lost { SAVED } else { WRITTEN };
        let is_taken = self.stand_by(
            files.map(|((number, done), generation)| (number, generation, done.file)).collect(),
            status,
        );
        if let Some(image) = image.filter(|_| is_taken && refused.is_empty()) {
            // The program that took over has this data, and makes it old.
            match std::fs::remove_file(&image) {
                Ok(()) => self.log.say(format_args!("removed {}", image.display())),
                Err(error) => {
                    self.log.say(format_args!("could not remove {}: {error}", image.display()));
                }
            }
        }
        status
    }

    /// Reads the intent log of the dead program, again and again while patience lasts.
    fn read_log(&mut self, start: Instant, progress: &Arc<Progress>) -> LogFound {
        let descriptor = self.intent_log.take()?;
        let patience = self.hello.patience;
        let _watchdog =
            Watchdog::start(self.report(start), patience.saturating_add(KEEPER_READS), progress);
        loop {
            let read = descriptor
                .try_clone()
                .and_then(OpenFile::of_descriptor)
                .map_err(|error| error.to_string())
                .and_then(|file| {
                    LogFile::of(file).and_then(DeadLog::read).map_err(|error| error.to_string())
                });
            if read.is_ok() || start.elapsed() >= patience {
                return Some(read.map(Arc::new));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn report(&self, start: Instant) -> Report {
        let (arena, log) = (Arc::clone(&self.arena), Arc::clone(&self.log));
        Report {
            arena,
            log,
            process: self.hello.process,
            save_to: self.hello.save_to.clone(),
            start,
        }
    }

    fn wait_for_rings(&self) -> Rings {
        match self.gone.wait(Some(KEEPER_RINGS)) {
            Ok(true) => Rings::Gone,
            _ => {
                let process = self.hello.process;
                self.log.say(format_args!(
                    "requests of process {process} may still be under way after {KEEPER_RINGS:?} \
                     (maybe of a child); waiting for each file"
                ));
                Rings::MayBeThere
            }
        }
    }

    /// Waits for an adopting program, if the keeper has a socket. Returns whether one took over.
    /// The keeper will exit with `status`.
    fn stand_by(&mut self, files: Vec<(u32, u16, OpenFile)>, status: i32) -> bool {
        let end = Instant::now().checked_add(self.hello.linger);
        while self.hello.socket.is_some() {
            let left =
                end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            let Some(listener) = &self.listener else {
                // An adopting program got the path of the socket, and then failed. Its keeper may
                // end, too.
                if left.is_zero() {
                    break;
                }
                std::thread::sleep(left.min(KEEPER_LOOKS));
                self.listener = listen(&self.hello).ok().flatten();
                continue;
            };
            let Ok(ready) = wait(&[WaitFor::Connection(listener)], Some(left.min(KEEPER_LOOKS)))
            else {
                break;
            };
            if !ready[0] {
                if left.is_zero() {
                    break;
                }
                // A program that opens a leased file waits, and this keeper gets no message about
                // that.
                files
                    .iter()
                    .filter(|(_, _, file)| !file.is_leased())
                    .for_each(|(_, _, file)| file.give_up_lease());
                continue;
            }
            match listener.accept() {
                Ok(Some((channel, peer))) if peer.is_trusted() => {
                    if wants_to_adopt(&channel, left, status)
                        && self.hand_over(&channel, peer, &files)
                    {
                        self.log.say(format_args!(
                            "{} files were taken over by a new program",
                            files.len()
                        ));
                        // Lease and lock now belong to that program.
                        files.iter().for_each(|(_, _, file)| file.leave());
                        // The channel is closed after that: its end confirms the handover.
                        drop(files);
                        return true;
                    }
                }
                Ok(Some((channel, peer))) => {
                    let reason = format!(
                        "user {} may not adopt: the keeper belongs to another user",
                        peer.user
                    );
                    say(&channel, &Message::Refused { reason }, &[]);
                }
                Ok(None) => {}
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
        files.into_iter().for_each(|(_, _, file)| release(&file));
        false
    }

    /// Hands everything over to a program that adopts. Returns whether it took everything.
    fn hand_over(&mut self, channel: &Channel, peer: Peer, files: &[(u32, u16, OpenFile)]) -> bool {
        let given = self.give(channel, files).ok();
        let mut word = given.and_then(|()| self.next_word(channel, peer));
        while word == Some(Message::Room) {
            // The keeper of that program will listen at the path.
            self.listener.take().iter().for_each(Listener::remove);
            say(channel, &Message::Room, &[]);
            word = self.next_word(channel, peer);
        }
        let is_taken = word == Some(Message::Taken);
        if !is_taken && self.listener.is_none() {
            let listening = listen(&self.hello);
            self.listener = listening.unwrap_or_else(|reason| {
                self.log.say(format_args!("{reason}; trying again"));
                None
            });
        }
        is_taken
    }

    /// Returns the next message of the adopting program. `None` if it dies, closes the channel, or
    /// is silent for too long.
    ///
    /// The program has all descriptors by now, and two processes must never use them. So a silent
    /// program is sent a refusal. It reads that when it reports the adoption, before it uses any
    /// descriptor.
    fn next_word(&self, channel: &Channel, peer: Peer) -> Option<Message> {
        let process = peer.process.and_then(|number| Process::of(number).ok());
        let mut awaited = vec![WaitFor::Message(channel)];
        awaited.extend(process.as_ref().map(WaitFor::Death));
        let deadline = Instant::now() + self.adoption;
        let ready = loop {
            match wait(&awaited, Some(deadline.saturating_duration_since(Instant::now()))) {
                Ok(ready) => break ready,
                // Out of memory: try again after a moment.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        };
        if !ready.contains(&true) {
            let silent = self.adoption;
            self.log.say(format_args!(
                "the adopting program was silent for {silent:?}; the adoption is refused"
            ));
            let reason = format!("the adoption took too long: no message came for {silent:?}");
            say(channel, &Message::Refused { reason }, &[]);
            return None;
        }
        match channel.receive(Some(Duration::ZERO)) {
            Ok(Received::Message(message)) => Message::decode(&message.bytes).ok(),
            _ => None,
        }
    }

    fn give(&self, channel: &Channel, files: &[(u32, u16, OpenFile)]) -> io::Result<()> {
        let memfd = self.arena.memfd().expect("the arena of a keeper is a memfd");
        let handed = Message::Handed { process: self.hello.process, files: files.len() as u32 };
        channel.send(&handed.encode(), &[memfd])?;
        for (number, generation, file) in files {
            let message = Message::File { number: *number, generation: *generation };
            channel.send(&message.encode(), &[file.as_fd()])?;
        }
        channel.send(&Message::End.encode(), &[])
    }
}

/// Listens for adopting programs, if a path is given.
fn listen(hello: &Hello) -> Result<Option<Listener>, String> {
    let bind = |path: &PathBuf| {
        Listener::bind(path).map_err(|error| {
            let remedy = match error {
                BindError::InUse { .. } => {
                    "; if it is the keeper of a dead program, take over from it, or try again once \
                     it has ended"
                }
                _ => "",
            };
            format!("could not listen at the socket {}: {error}{remedy}", path.display())
        })
    };
    hello.socket.as_ref().map(bind).transpose()
}

/// Releases lease and lock of a file, although another process still has the open file.
pub(crate) fn release(file: &OpenFile) {
    file.give_up_lease();
    if let Err(error) = file.ofd_unlock() {
        tracing::debug!(%error, "this file system has no locks");
    }
}

/// Returns whether a program asks to adopt and knows the layout. Otherwise sends it the reason. The
/// keeper waits for the time `left`, and then exits with `status`.
fn wants_to_adopt(channel: &Channel, left: Duration, status: i32) -> bool {
    let Ok(Received::Message(message)) = channel.receive(Some(KEEPER_FIRST_WORD)) else {
        return false;
    };
    let reason = match Message::decode(&message.bytes) {
        Ok(Message::Adopt { layout: LAYOUT_VERSION }) => return true,
        Ok(Message::Adopt { layout }) => {
            let versions = format!(
                "the arena is of layout version {LAYOUT_VERSION}, and the program knows {layout}"
            );
            of_another_build(&versions, left, status)
        }
        Err(malformed @ Malformed::Version(_)) => {
            of_another_build(&malformed.to_string(), left, status)
        }
        Ok(_) => "expected a request to adopt".to_owned(),
        Err(malformed) => malformed.to_string(),
    };
    say(channel, &Message::Refused { reason }, &[]);
    false
}

/// Returns the refusal for a program of another build, with the remedy.
fn of_another_build(versions: &str, left: Duration, status: i32) -> String {
    let (process, seconds) = (std::process::id(), left.as_secs().saturating_add(1));
    let (state, remedy) = match status {
        WRITTEN => ("has written everything", "try again then, or use the program of that build"),
        _ => ("could not write everything", "the program of that build can take over the rest"),
    };
    format!(
        "{versions}; keeper {process} is of another build, {state}, and ends within {seconds} s: \
         {remedy}"
    )
}

/// Returns the files of descriptors that a keeper holds.
pub(crate) fn received(kept: BTreeMap<u32, Kept>) -> BTreeMap<u32, inherited::Received> {
    let receive = |(number, Kept { generation, file })| {
        let found = path_of(&file);
        (number, inherited::Received { generation, found, file: OpenFile::of_descriptor(file) })
    };
    kept.into_iter().map(receive).collect()
}

/// Returns the present path of a file, as the kernel reports it.
pub(crate) fn path_of(file: &OwnedFd) -> PathBuf {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::read_link(link).unwrap_or_else(|_| PathBuf::from("a file"))
}

/// Ends the process if a call on a hung device does not return; stopped by its drop.
struct Watchdog {
    is_over: Arc<AtomicBool>,
}

impl Watchdog {
    fn start(report: Report, patience: Duration, progress: &Arc<Progress>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let log = Arc::clone(&report.log);
        let (over, progress) = (Arc::clone(&is_over), Arc::clone(progress));
        let watch = move || {
            while !over.load(Ordering::Acquire) {
                progress.if_hung(patience.saturating_add(KEEPER_WATCHDOG), |hung| {
                    report.report_hung(&hung);
                    report.conclude(&hung.done);
                    // The file descriptors stay open, with their leases and locks: a process with a
                    // hung call does not end.
                    drop(hung);
                    let _ = report.save();
                    report.log.flush();
                    std::process::exit(super::HUNG);
                });
                std::thread::sleep(Duration::from_millis(200));
            }
        };
        if let Err(error) = std::thread::Builder::new().name("forebay-watchdog".into()).spawn(watch)
        {
            log.say(format_args!("could not start the watchdog: {error}"));
        }
        Self { is_over }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use forebay_uring::Alive;

    use super::*;

    fn hello() -> Hello {
        Hello {
            layout: LAYOUT_VERSION,
            process: std::process::id(),
            patience: Duration::from_secs(1),
            linger: Duration::ZERO,
            on_trial: false,
            has_log: false,
            socket: None,
            save_to: None,
            log: Some("/dev/null".into()),
        }
    }

    /// Returns the answer of a keeper to these bytes, sent with or without the right descriptors.
    fn answer(bytes: &[u8], arena: Option<&Arena>) -> Result<Keeping, String> {
        let (ours, theirs) = Channel::pair().unwrap();
        let (_alive, gone) = Alive::pair().unwrap();
        let descriptors: Vec<_> =
            arena.iter().flat_map(|arena| [arena.memfd().unwrap(), gone.as_fd()]).collect();
        ours.send(bytes, &descriptors).unwrap();
        Keeping::begin(&theirs)
    }

    #[test]
    fn a_program_of_another_version_is_refused_with_the_versions() {
        let arena = Arena::shared(64).unwrap();
        assert!(answer(&Message::Hello(hello()).encode(), Some(&arena)).is_ok());
        let mut other = Message::Hello(hello()).encode();
        other[5] += 1;
        let refused = answer(&other, Some(&arena)).unwrap_err();
        assert!(
            refused.contains("version 4") && refused.contains("this is version 3"),
            "{refused}"
        );
        let layout = Message::Hello(Hello { layout: 7, ..hello() });
        let refused = answer(&layout.encode(), Some(&arena)).unwrap_err();
        assert!(refused.contains("version 7") && refused.contains("knows 4"), "{refused}");
    }

    #[test]
    fn contract_21_a_refused_adopter_gets_both_versions() {
        let (program, keeper) = Channel::pair().unwrap();
        for (layout, is_known) in [(LAYOUT_VERSION, true), (2, false), (5, false)] {
            program.send(&Message::Adopt { layout }.encode(), &[]).unwrap();
            let left = Duration::from_millis(28_500);
            let status = if layout == 2 { WRITTEN } else { SAVED };
            assert_eq!(wants_to_adopt(&keeper, left, status), is_known);
            if is_known {
                continue;
            }
            let said = program.receive(Some(Duration::from_secs(30))).unwrap();
            let Received::Message(message) = said else { panic!("{said:?}") };
            let Ok(Message::Refused { reason }) = Message::decode(&message.bytes) else {
                panic!("{message:?}")
            };
            let says = format!("layout version {LAYOUT_VERSION}, and the program knows {layout}");
            assert!(reason.contains(&says), "{reason}");
            let state = if layout == 2 { "has written everything" } else { "could not write" };
            let keeper = format!("keeper {} is of another build, {state}", std::process::id());
            assert!(reason.contains(&keeper) && reason.contains("ends within 29 s"), "{reason}");
        }
    }

    #[test]
    fn an_invalid_first_message_is_refused() {
        let arena = Arena::shared(64).unwrap();
        for (bytes, why) in [
            (Message::Goodbye.encode(), "no hello"),
            (b"GET / HTTP/1.1".to_vec(), "no known kind"),
            (Message::Hello(Hello { process: u32::MAX, ..hello() }).encode(), "could not watch"),
            (Message::Hello(Hello { log: Some("/no/such/log".into()), ..hello() }).encode(), "log"),
            (
                Message::Hello(Hello { socket: Some("/no/such/socket".into()), ..hello() })
                    .encode(),
                "socket",
            ),
        ] {
            let refused = answer(&bytes, Some(&arena)).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        let refused = answer(&Message::Hello(hello()).encode(), None).unwrap_err();
        assert!(refused.contains("0 descriptors"), "{refused}");
    }

    #[test]
    fn memory_that_is_no_arena_is_refused() {
        let (ours, theirs) = Channel::pair().unwrap();
        let (_alive, gone) = Alive::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        ours.send(&Message::Hello(hello()).encode(), &[file.as_fd(), gone.as_fd()]).unwrap();
        let refused = Keeping::begin(&theirs).unwrap_err();
        assert!(refused.contains("arena"), "{refused}");
    }

    /// A program that is stopped in the middle of an adoption.
    #[test]
    fn contract_06_a_silent_adopter_does_not_keep_the_leases() {
        use forebay_uring::{Access, Create, How, LeaseWatch, Lock, Truncate};

        let directory = tempfile::tempdir_in(".").unwrap();
        let (socket, path) = (directory.path().join("socket"), directory.path().join("file"));
        let hello = Hello { socket: Some(socket.clone()), ..hello() };
        let arena = Arena::shared(64).unwrap();
        let mut keeping = answer(&Message::Hello(hello).encode(), Some(&arena)).unwrap();
        keeping.adoption = Duration::from_millis(300);
        keeping.hello.linger = Duration::from_millis(600);
        let (access, truncate) = (Access::ReadWrite, Truncate::Keep);
        let how = How { access, create: Create::IfMissing, truncate, mode: 0o600 };
        let file = OpenFile::open(&path, &how).unwrap().file;
        let watch = LeaseWatch::new(|_| {}).unwrap();
        let has_lease = file.try_lease(&watch, 0).is_ok();
        let has_lock = matches!(file.try_ofd_lock(), Ok(Lock::Taken));
        let keeper = std::thread::spawn(move || keeping.stand_by(vec![(0, 1, file)], WRITTEN));
        let adopter = Channel::connect(&socket).unwrap();
        adopter.send(&Message::Adopt { layout: LAYOUT_VERSION }.encode(), &[]).unwrap();
        // The descriptors stay open, as a stopped program's would.
        let mut said = Vec::new();
        while !matches!(said.last(), Some((Message::End, _))) {
            let received = adopter.receive(Some(Duration::from_secs(30))).unwrap();
            let Received::Message(message) = received else { panic!("{received:?}") };
            said.push((Message::decode(&message.bytes).unwrap(), message.descriptors));
        }
        assert_eq!(said.iter().map(|(_, descriptors)| descriptors.len()).sum::<usize>(), 2);
        keeper.join().unwrap();
        println!("lease: {has_lease}, lock: {has_lock}");
        let mut options = std::fs::OpenOptions::new();
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
        options.read(true).write(true).open(&path).expect("no process has a lease on it");
        let other = OpenFile::open(&path, &How { create: Create::No, ..how }).unwrap().file;
        assert!(matches!(other.try_ofd_lock(), Ok(Lock::Taken)) || !has_lock);
        let late = crate::keeper::adopt::Handed::report_taken(&adopter).unwrap_err();
        assert!(late.to_string().contains("took too long"), "{late}");
    }

    proptest::proptest! {
        #[test]
        fn only_a_goodbye_ends_a_keeper(
            said in proptest::collection::vec(
                proptest::collection::vec(proptest::num::u8::ANY, 1..40),
                0..12,
            ),
        ) {
            let arena = Arena::shared(64).unwrap();
            let mut keeping = answer(&Message::Hello(hello()).encode(), Some(&arena)).unwrap();
            let (ours, theirs) = Channel::pair().unwrap();
            for bytes in &said {
                ours.send(bytes, &[]).unwrap();
                let is_goodbye = Message::decode(bytes) == Ok(Message::Goodbye);
                let expected = if is_goodbye { Heard::Goodbye } else { Heard::Something };
                assert_eq!(keeping.receive(&theirs), expected);
            }
            assert!(keeping.files.is_empty());
            drop(ours);
            // A child of another test has a copy of the other end until its `exec`.
            let end = loop {
                match keeping.receive(&theirs) {
                    Heard::Nothing => std::thread::yield_now(),
                    heard => break heard,
                }
            };
            assert_eq!(end, Heard::End);
        }
    }
}
