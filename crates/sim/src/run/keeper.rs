//! The keeper of an engine, and the next engine, which adopts what the keeper holds.
//!
//! The keeper is a process of the simulated machine. It has the same open files as the engine, so
//! their locks and leases outlive the engine's process. The messages between processes are left
//! out; the steps on both sides are those of the core.
//!
//! ```text
//! engine dies --> keeper: work_of, finish_device, note_done (some data may be unwritten)
//!             --files, arena--> next engine: whole_files, take_over
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay_cache::limits::PAGE;

use crate::core::engine::Engine;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::file;
use crate::core::intent_log::file::LogFile;
use crate::core::recovery::finish::{Done, Job, Rings, finish_device};
use crate::core::recovery::inherited::{
    HandedFile, Received, headers, matches_record, whole_files,
};
use crate::core::recovery::records::DeadLog;
use crate::core::recovery::{KeeperState, Standby};
use crate::core::recovery::{Work, note_done, work_of};
use crate::core::shared::Shared;
use crate::platform::{Access, Alive, Arena, Create, FrameState, How, OpenFile, Truncate};
use crate::random::Random;
use crate::run::stage::Stage;
use crate::world::{self, Process, machine, memory};

/// Patience of the keeper with a device that fails.
const PATIENCE: Duration = Duration::from_secs(2);

/// Patience of a keeper with a device that is well.
const PATIENCE_WELL: Duration = Duration::from_secs(600);

/// Tries to adopt files on a device that fails now and then.
const ADOPTIONS: u32 = 100;

/// The end of the keeper's work.
const DONE: world::Reason = world::Reason { what: "end of the keeper's work", number: 0 };

/// A file that the keeper holds.
#[derive(Debug)]
struct Held {
    generation: u16,
    file: OpenFile,
}

/// The keeper, for the engine and for the test.
#[derive(Clone, Debug)]
pub(super) struct Keeper {
    process: Process,
    held: Arc<Mutex<BTreeMap<u32, Held>>>,
    /// The rings of the engine hold the keeper off by this. The machine asserts that they do.
    alive: Arc<Alive>,
}

/// The arena and the files that a keeper hands over.
#[derive(Debug)]
pub(super) struct HandedOver {
    keeper: Process,
    pub(super) arena: Arc<Arena>,
    files: Vec<Kept>,
}

/// A file that a keeper hands over, in its process.
#[derive(Debug)]
struct Kept {
    number: u32,
    generation: u16,
    path: PathBuf,
    file: OpenFile,
}

impl Keeper {
    pub(super) fn new() -> Self {
        machine::have_keeper(world::process());
        let (alive, _) = Alive::pair().expect("few descriptors are open");
        let process = world::new_process("keeper");
        Self { process, held: Arc::default(), alive: Arc::new(alive) }
    }

    /// No task switches while this is locked: a file is dropped without it.
    fn held(&self) -> MutexGuard<'_, BTreeMap<u32, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes everything. The process ends with its engine, or with the power.
    pub(super) fn end(&self) {
        let held = std::mem::take(&mut *self.held());
        drop(held);
        machine::kill(self.process);
    }
}

impl HandedOver {
    pub(super) fn has(&self, path: &Path) -> bool {
        self.files.iter().any(|kept| kept.path == path)
    }
}

impl Standby for Keeper {
    fn alive(&self) -> Option<Arc<Alive>> {
        Some(Arc::clone(&self.alive))
    }

    fn is_there(&self) -> bool {
        true
    }

    fn confirm(&self) -> Result<()> {
        Ok(())
    }

    fn add(&self, number: u32, generation: u16, file: &Arc<OpenFile>) -> Result<()> {
        let sent = file.sent_to(self.process).map_err(|error| {
            Error::new(ErrorKind::Keeper, "the keeper cannot hold the file").because(error)
        })?;
        let before = self.held().insert(number, Held { generation, file: sent });
        drop(before);
        Ok(())
    }

    fn remove(&self, number: u32, generation: u16) {
        // A dead process says nothing more.
        if world::is_dead() {
            return;
        }
        let is_it = |held: &Held| held.generation == generation;
        let mut held = self.held();
        let removed =
            if held.get(&number).is_some_and(is_it) { held.remove(&number) } else { None };
        drop(held);
        drop(removed);
    }

    fn state(&self) -> KeeperState {
        KeeperState { process: Some(self.process.0), files: self.held().len(), restarts: 0 }
    }

    fn say_goodbye(&self) {
        if !world::is_dead() {
            self.end();
        }
    }

    fn leave_it(&self) {}
}

impl Stage {
    /// The engine has died. Its keeper writes what it can, and holds the files for the next engine.
    pub(super) fn hand_over(self: &Rc<Self>, arena: Arena, random: &mut Random) {
        let keeper = self.keeper.take().expect("every engine of this run has a keeper");
        // On a device that fails, some data is left to the next engine.
        let is_patient = random.below(2) == 0;
        let faults = machine::faults();
        if is_patient {
            machine::set_faults(faults.passing());
        }
        let (stage, process) = (Rc::clone(self), keeper.process);
        world::spawn(process, "keeper", move || {
            let handed = finish(keeper, Arc::new(arena));
            *stage.handed.borrow_mut() = Some(handed);
            world::wake(DONE);
        });
        while self.handed.borrow().is_none() {
            world::block(DONE, None);
        }
        machine::set_faults(faults);
    }

    /// The next engine, with the files of the dead one.
    pub(super) fn adopt(&self, handed: HandedOver) -> (Engine, Arc<Shared>, Vec<file::File>) {
        for _ in 0..ADOPTIONS {
            match self.try_to_adopt(&handed) {
                Ok(adopted) => {
                    // Lease and lock belong to the new engine.
                    handed.files.iter().for_each(|kept| kept.file.leave());
                    let process = handed.keeper;
                    drop(handed);
                    machine::kill(process);
                    self.hit("adopted");
                    return adopted;
                }
                Err(error) => {
                    let faults = self.plan.machine.faults;
                    assert!(faults != faults.passing(), "files cannot be adopted: {error:?}");
                    self.hit("adoption failed");
                }
            }
        }
        panic!("files cannot be adopted");
    }

    fn try_to_adopt(&self, handed: &HandedOver) -> Result<(Engine, Arc<Shared>, Vec<file::File>)> {
        let arena = &handed.arena;
        let mut received = BTreeMap::new();
        for Kept { number, generation, path, file } in &handed.files {
            let file = file.sent_to(world::process());
            let (generation, found) = (*generation, path.clone());
            received.insert(*number, Received { generation, found, file });
        }
        let files: Vec<HandedFile> = whole_files(arena, received)?;
        let (engine, shared) = self.assemble(Arc::clone(arena));
        let confirm = |keeper: Option<&dyn Standby>| keeper.map_or(Ok(()), Standby::confirm);
        let (files, pages) = engine.take_over(files, confirm)?;
        let count = handed.files.len();
        assert_eq!(files.len(), count, "contract 4: files of the keeper that are adopted");
        crate::marks::add("adopted clean", pages.clean);
        crate::marks::add("adopted unwritten", pages.unwritten);
        Ok((engine, shared, files))
    }
}

/// Writes the files of a dead engine, one device after the other.
fn finish(keeper: Keeper, arena: Arc<Arena>) -> HandedOver {
    let held = std::mem::take(&mut *keeper.held());
    let receive = |(number, Held { generation, file })| {
        let record = arena.file(number);
        let found = record.map_or_else(PathBuf::new, |record| record.path);
        (number, Received { generation, found, file: Ok(file) })
    };
    let Work { jobs, refused } = work_of(&arena, held.into_iter().map(receive).collect(), &None);
    assert!(refused.is_empty(), "contract 4: the keeper may not write {refused:?}");
    let files = write_out(&arena, jobs, PATIENCE).into_iter().map(|(number, generation, done)| {
        let Done { path, file, .. } = done;
        Kept { number, generation, path, file }
    });
    HandedOver { keeper: keeper.process, files: files.collect(), arena }
}

/// Does the jobs of a keeper, one device after the other. Returns the results, with the numbers and
/// generations of the files.
fn write_out(
    arena: &Arena,
    jobs: BTreeMap<u32, (u16, Job)>,
    patience: Duration,
) -> Vec<(u32, u16, Done)> {
    let mut devices: BTreeMap<u64, BTreeMap<u32, Job>> = BTreeMap::new();
    let mut generations = BTreeMap::new();
    for (number, (generation, job)) in jobs {
        generations.insert(number, generation);
        devices.entry(job.device()).or_default().insert(number, job);
    }
    let mut files = Vec::new();
    for jobs in devices.into_values() {
        for (number, done) in finish_device(arena, jobs, Rings::Gone, patience, &|| ()) {
            if done.lost.is_none() {
                note_done(arena, number, &done.plan);
            }
            files.push((number, generations[&number], done));
        }
    }
    files
}

/// Writes the files of a dead engine, as its keeper does on a device that is well.
pub(super) fn finish_files(arena: &Arena, has_log: bool) {
    let how =
        How { access: Access::ReadWrite, create: Create::No, truncate: Truncate::Keep, mode: 0 };
    let mut kept = BTreeMap::new();
    for (number, record) in arena.files().filter(|(_, record)| record.writable) {
        let Ok(opened) = OpenFile::open(&record.path, &how) else { continue };
        if matches_record(&opened.file, &record) {
            let (generation, found) = (record.generation, record.path);
            kept.insert(number, Received { generation, found, file: Ok(opened.file) });
        }
    }
    let log = has_log.then(|| {
        let log = LogFile::open(Path::new("/"), PATIENCE_WELL).expect("the device is well");
        let log = log.expect("the engine has made it");
        Arc::new(DeadLog::read(log).expect("the log is whole"))
    });
    let work = work_of(arena, kept, &log.map(Ok));
    for (number, _, done) in write_out(arena, work.jobs, PATIENCE_WELL) {
        // Another program may have a file open whose journal has ended.
        let is_lost = done.lost.is_some() && !machine::is_aborted(&done.path);
        assert!(!is_lost, "the keeper loses {:?} of file {number}", done.lost);
        if has_log && done.lost.is_none() {
            check_clean(arena, number, &done.path);
        }
    }
}

/// The pages that a program takes over as clean are equal to the file.
fn check_clean(arena: &Arena, number: u32, path: &Path) {
    let file = machine::stored(path, |stored| stored.read(0, stored.size()));
    for (frame, header) in headers(arena).filter(|(_, header)| header.file == number) {
        let start = (header.page * PAGE) as usize;
        let length = file.len().saturating_sub(start).min(usize::from(header.length));
        if header.state == FrameState::Clean && length > 0 {
            let mut page = vec![0; length];
            memory::read_part(arena, frame, 0, &mut page);
            let is_equal = page[..] == file[start..start + length];
            assert!(is_equal, "contract 4: page {} of file {number} is older", header.page);
        }
    }
}
