//! The service manager as the keeper. It stores the arena and the files while the program is not
//! running. The program itself finishes the files when it is started again.
//!
//! ```text
//! forebay.ID.arena       the memory
//! forebay.ID.gone        the descriptor that reports the end of the rings
//! forebay.ID.NUMBER.GENERATION    a file
//! ```
//!
//! The ID is the process id and the number of the engine in the process. The manager sends no
//! answers, so the number of descriptors that it accepts is unknown here: `FileDescriptorStoreMax=`
//! has to be large enough.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use forebay_uring::notify::{Manager, take_stored};
use forebay_uring::{Alive, Arena, Gone, OpenFile};

use super::devices::finish;
use super::image::Recovered;
use super::process::{Kept, let_go, received};
use super::progress::Progress;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::limits::{KEEPER_ANSWER, KEEPER_RINGS, PATIENCE};
use crate::core::recovery::finish::{Done, Job, Rings, places};
use crate::core::recovery::work::{Refused, Work, note_done, work_of};
use crate::platform::sync::Mutex;

const PREFIX: &str = "forebay.";

static ENGINES: AtomicU32 = AtomicU32::new(0);

/// Descriptors of an engine that the manager stores.
#[derive(Debug)]
pub(crate) struct Store {
    manager: Manager,
    id: String,
    alive: Arc<Alive>,
    files: Mutex<BTreeMap<u32, u16>>,
}

impl Store {
    /// Stores the arena.
    pub(crate) fn start(arena: &Arena) -> Result<Self> {
        let failed = |what: &str| Error::new(ErrorKind::Keeper, what);
        let manager = Manager::of_this_process()
            .map_err(|error| failed("could not connect to the service manager").because(error))?
            .ok_or_else(|| {
                failed(
                    "no service manager stores descriptors for this process: \
                     NOTIFY_SOCKET is not set",
                )
                .remedy(
                    "run it as a service of Type=notify with FileDescriptorStoreMax=, \
                     or use another keeper",
                )
            })?;
        let (alive, gone) =
            Alive::pair().map_err(|error| failed("could not create a pipe").because(error))?;
        let id = format!("{}-{}", std::process::id(), ENGINES.fetch_add(1, Ordering::Relaxed));
        let store = Self { manager, id, alive: Arc::new(alive), files: Mutex::default() };
        let memfd = arena.memfd().expect("the arena of an engine with a keeper is shared memory");
        let stored = store.put("arena", memfd).and_then(|()| store.put("gone", gone.as_fd()));
        stored.and_then(|()| store.catch_up())?;
        Ok(store)
    }

    /// Returns the object that every ring has to hold.
    pub(crate) fn alive(&self) -> &Arc<Alive> {
        &self.alive
    }

    /// Stores an opened file, and returns when the manager has it.
    pub(crate) fn add(&self, number: u32, generation: u16, file: &OpenFile) -> Result<()> {
        self.put(&format!("{number}.{generation}"), file.as_fd())?;
        self.catch_up()?;
        self.files.lock().insert(number, generation);
        Ok(())
    }

    /// Removes a closed file, and returns when the manager has closed it.
    pub(crate) fn remove(&self, number: u32, generation: u16) {
        let mut files = self.files.lock();
        if files.get(&number) == Some(&generation) {
            files.remove(&number);
        }
        drop(files);
        self.give_up(&format!("{number}.{generation}"));
        let _ = self.catch_up();
    }

    /// Returns the number of stored files.
    pub(crate) fn files(&self) -> usize {
        self.files.lock().len()
    }

    /// Removes everything, because all is written.
    pub(crate) fn say_goodbye(&self) {
        for (number, generation) in std::mem::take(&mut *self.files.lock()) {
            self.give_up(&format!("{number}.{generation}"));
        }
        self.give_up("gone");
        self.give_up("arena");
        let _ = self.catch_up();
    }

    fn put(&self, what: &str, descriptor: BorrowedFd<'_>) -> Result<()> {
        let text = format!("FDSTORE=1\nFDPOLL=0\nFDNAME={PREFIX}{}.{what}", self.id);
        self.manager.send(&text, &[descriptor]).map_err(|error| {
            Error::new(ErrorKind::Keeper, "could not send a descriptor to the service manager")
                .because(error)
        })
    }

    fn give_up(&self, what: &str) {
        give_up(&self.manager, &format!("{PREFIX}{}.{what}", self.id));
    }

    fn catch_up(&self) -> Result<()> {
        let failed = |what: &str| Error::new(ErrorKind::Keeper, what);
        match self.manager.catch_up(KEEPER_ANSWER) {
            Ok(true) => Ok(()),
            Ok(false) => Err(failed("the service manager does not accept descriptors")),
            Err(error) => Err(failed("could not connect to the service manager").because(error)),
        }
    }
}

fn give_up(manager: &Manager, name: &str) {
    if let Err(error) = manager.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), &[]) {
        tracing::warn!(%error, name, "could not ask the service manager to close a descriptor");
    }
}

/// Stored descriptors of one engine.
#[derive(Debug, Default)]
struct Stored {
    /// Names of the descriptors, with the file numbers of files.
    names: Vec<(Option<u32>, String)>,
    arena: Option<OwnedFd>,
    gone: Option<OwnedFd>,
    files: BTreeMap<u32, Kept>,
}

/// Results for one engine.
#[derive(Debug, Default)]
struct Finished {
    recovered: Vec<Recovered>,
    /// Files that are not finished.
    left: BTreeSet<u32>,
}

impl Stored {
    /// Adds a descriptor, by the part of its name after the engine's.
    fn take(&mut self, name: String, what: &str, descriptor: OwnedFd) {
        let mut number_of_file = None;
        match what {
            "arena" => self.arena = Some(descriptor),
            "gone" => self.gone = Some(descriptor),
            file => {
                let numbers = file.split_once('.');
                let numbers = numbers.and_then(|(number, generation)| {
                    number.parse().ok().zip(generation.parse().ok())
                });
                match numbers {
                    Some((number, generation)) => {
                        number_of_file = Some(number);
                        self.files.insert(number, Kept { generation, file: descriptor });
                    }
                    None => {
                        tracing::warn!(what, "the service manager stored an unknown descriptor");
                    }
                }
            }
        }
        self.names.push((number_of_file, name));
    }

    fn recover(self) -> Result<Finished> {
        let failed = |what: String| Error::new(ErrorKind::Keeper, what);
        let arena = self
            .arena
            .ok_or_else(|| failed("the stored descriptors have files, but no memory".into()))?;
        let arena = Arena::of_memfd(arena)
            .map_err(|error| failed(format!("cannot use the stored memory: {error}")))?;
        let is_gone =
            self.gone.map(Gone::of_descriptor).and_then(|gone| gone.wait(Some(KEEPER_RINGS)).ok());
        let rings = if is_gone == Some(true) { Rings::Gone } else { Rings::MayBeThere };
        let Work { jobs, refused } = work_of(&arena, received(self.files));
        let jobs: BTreeMap<u32, Job> =
            jobs.into_iter().map(|(number, (_, job))| (number, job)).collect();
        let done = finish(&arena, jobs, rings, PATIENCE, &Progress::new());
        let mut finished = Finished::default();
        for (number, done) in done {
            if done.lost.is_none() {
                // It must not be written again at the next start, in any case: the file may be
                // newer by then.
                note_done(&arena, number, &done.plan);
                let_go(&done.file);
            } else {
                // Its lock stays with the descriptor that the manager has.
                done.file.leave();
                finished.left.insert(number);
            }
            if done.lost.is_some() || !done.plan.is_empty() {
                finished.recovered.push(told(done));
            }
        }
        for Refused { number, path, bytes, ranges, error } in refused {
            let error = io::Error::other(format!("{error}{}", places(&ranges)));
            let error = Error::new(ErrorKind::Keeper, "not written").at_path(&path).because(error);
            finished.left.insert(number);
            finished.recovered.push(Recovered { path, bytes, result: Err(error) });
        }
        Ok(finished)
    }
}

fn told(done: Done) -> Recovered {
    let Done { path, plan, lost, .. } = done;
    let result = lost.map_or(Ok(()), |lost| {
        Err(Error::new(ErrorKind::at_device(&lost.error), lost.to_string()).at_path(&path))
    });
    Recovered { bytes: plan.bytes(), path, result }
}

/// Writes what a previous run of this program left in the descriptor store of the service manager
/// ([`Keeper::descriptor_store`](super::Keeper::descriptor_store)). Blocks.
///
/// Call it at the start of a program, before it opens its files. Returns one result for each file
/// that had unwritten data; the list is empty if nothing was stored. Descriptors that the program
/// stored under other names are left alone.
///
/// Data that could not be written stays stored for the next start. Its file cannot be opened for
/// writing until then.
///
/// # Errors
/// `Keeper` if the stored data is of another version, or cannot be taken from the manager.
pub fn stored() -> Result<Vec<Recovered>> {
    let taken = take_stored(PREFIX).map_err(|error| {
        Error::new(ErrorKind::Keeper, "could not take the stored descriptors").because(error)
    })?;
    let mut engines: BTreeMap<String, Stored> = BTreeMap::new();
    for (name, descriptor) in taken {
        let Some((id, what)) = name[PREFIX.len()..].split_once('.') else { continue };
        let (id, what) = (id.to_owned(), what.to_owned());
        engines.entry(id).or_default().take(name, &what, descriptor);
    }
    let manager = Manager::of_this_process().ok().flatten();
    let (mut recovered, mut first_error) = (Vec::new(), None);
    for mut stored in engines.into_values() {
        let names = std::mem::take(&mut stored.names);
        let of_engine = match stored.recover() {
            Ok(of_engine) => of_engine,
            Err(error) => {
                first_error.get_or_insert(error);
                continue;
            }
        };
        let Finished { recovered: of_engine, left } = of_engine;
        let is_done =
            |number: &Option<u32>| number.map_or(left.is_empty(), |number| !left.contains(&number));
        if let Some(manager) = &manager {
            let done = names.iter().filter(|(number, _)| is_done(number));
            done.for_each(|(_, name)| give_up(manager, name));
        }
        recovered.extend(of_engine);
    }
    if let Some(Err(error)) = manager.map(|manager| manager.catch_up(KEEPER_ANSWER)) {
        tracing::warn!(%error, "the service manager may keep finished descriptors for a moment");
    }
    first_error.map_or(Ok(recovered), Err)
}
