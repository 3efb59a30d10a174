//! Recovery of an intent log, without an engine: a plain writer keeps the rules of the log, its
//! process dies or the power goes, other programs change files, and recoveries are cut, too.
//!
//! ```text
//! writer --records, marks, in place--> files     ledgers: acknowledged bytes
//!   kill or power cut --> other programs --> recovery (cut, with faults, repeated) --> compare
//! ```

pub(super) mod saved;
mod visits;
mod writer;

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use crate::core::error::Result;
use crate::core::intent_log::create::create;
use crate::core::intent_log::recover::{Ask, Fate, Recovery, recover};
use crate::faults::Faults;
use crate::ledger::Ledger;
use crate::marks::{self, Marks};
use crate::random::{PerMille, Random};
use crate::stored::{Keep, SECTOR, Survivor};
use crate::trace::Tracing;
use crate::world::machine::{self, MachinePlan, VolumePlan};
use crate::world::{self, Failure, Process, Reason, Settings};

const DIRECTORY: &str = "/d";
pub(super) const SAVED: &str = "/saved";
const FILES: usize = 4;
const END: Reason = Reason { what: "end of the work", number: 1 };

/// A file of the run.
struct Tracked {
    path: PathBuf,
    ledger: Ledger,
    /// Content that another program left after the crash: no recovery may change it.
    touched: Option<Vec<u8>>,
    /// Another program removed it after the crash.
    is_removed: bool,
    /// Its owner is replacing it: the old file, the new one or none may be found.
    is_being_replaced: bool,
}

impl Tracked {
    fn check(&self, found: &Survivor) {
        if let Err(wrong) = self.ledger.check(found) {
            panic!("contract 23: {:?}: {wrong}", self.path);
        }
    }
}

/// The state that writer, recoveries and driver share.
struct Test {
    files: RefCell<Vec<Tracked>>,
    /// The writer was killed, and the power was not cut since. Found bytes may be volatile.
    is_volatile: Cell<bool>,
    /// Whether devices fail at times.
    fails: bool,
}

/// Runs lives of a writer, each with a recovery after it. Returns the places that it came by.
///
/// # Errors
/// If an acknowledged byte is lost or aged, or another program's change is undone.
pub fn run(seed: u64, fails: bool, tracing: Tracing) -> std::result::Result<Marks, Failure> {
    let settings = Settings { tracing, leaps: PerMille(0), ..Settings::swarm(seed) };
    world::run(settings, move || {
        let mut random = Random::new(seed ^ 0x6c6f_6773);
        let block = *random.pick(&[512, 4096]);
        let volume = VolumePlan {
            direct: VolumePlan::ext4()
                .direct
                .map(|direct| forebay_uring::Alignment { offset: block, ..direct }),
            ..VolumePlan::ext4()
        };
        machine::install(MachinePlan::calm(vec![volume]));
        for path in [DIRECTORY, "/d/sub", SAVED] {
            machine::make_directory(path);
        }
        let place = |number: usize| if number.is_multiple_of(2) { DIRECTORY } else { "/d/sub" };
        let files = (0..FILES).map(|number| Tracked {
            path: Path::new(place(number)).join(format!("f{number}")),
            ledger: bytewise(Ledger::new()),
            touched: None,
            is_removed: false,
            is_being_replaced: false,
        });
        let test = Rc::new(Test {
            files: RefCell::new(files.collect()),
            is_volatile: Cell::new(false),
            fails,
        });
        test.play(&mut random);
        marks::take()
    })
    .map(|(marks, _)| marks)
}

impl Test {
    fn play(self: &Rc<Self>, random: &mut Random) {
        let made = Rc::new(Cell::new(false));
        let done = Rc::clone(&made);
        let blocks = random.within(24..80);
        let process = self.spawn(move || {
            create(Path::new(DIRECTORY), blocks).expect("a calm machine");
            done.set(true);
        });
        self.wait(process, &made, None);
        for life in 0..random.within(2..6) {
            let test = Rc::clone(self);
            let writer = Random::new(random.draw());
            let never = Rc::new(Cell::new(false));
            let process = self.spawn(move || writer::write(&test, writer, life == 0));
            let time = Duration::from_micros(random.below(40_000));
            self.wait(process, &never, Some(time));
            machine::set_faults(Faults::NONE);
            self.end(process, random);
            visits::visit(self, random);
            self.recover(random);
        }
    }

    fn spawn(self: &Rc<Self>, work: impl FnOnce() + 'static) -> Process {
        let process = world::new_process("worker");
        world::spawn(process, "work", move || {
            work();
            world::wake(END);
        });
        process
    }

    /// Waits until the work of a process is done, or for a time. Returns whether it is done.
    fn wait(&self, _process: Process, is_done: &Cell<bool>, time: Option<Duration>) -> bool {
        let until = time.map(|time| world::after(world::now(), time));
        while !is_done.get() && until.is_none_or(|until| world::now() < until) {
            world::block(END, until);
        }
        is_done.get()
    }

    /// Ends a process: it is killed, or the power is cut.
    fn end(&self, process: Process, random: &mut Random) {
        if random.below(4) == 0 {
            machine::kill(process);
            marks::hit("killed");
            self.is_volatile.set(true);
            return;
        }
        let keep = *random.pick(&[Keep::Nothing, Keep::Everything, Keep::Some, Keep::Some]);
        machine::kill(process);
        machine::cut_power(machine::survivors(keep, random));
        marks::hit("power cut");
        self.is_volatile.set(false);
    }

    /// Recovers until it has succeeded, with some recoveries cut.
    fn recover(self: &Rc<Self>, random: &mut Random) {
        for attempt in 0.. {
            let result = Rc::new(RefCell::new(None));
            let is_done = Rc::new(Cell::new(false));
            let (done, found) = (Rc::clone(&is_done), Rc::clone(&result));
            let fails = self.fails && attempt < 6 && random.below(2) == 0;
            let rate = if fails { PerMille(30) } else { PerMille(0) };
            machine::set_faults(Faults { write: rate, read: rate, flush: rate, ..Faults::NONE });
            let process = self.spawn(move || {
                let ask = Ask { save: Some(SAVED.into()), ..Ask::default() };
                *found.borrow_mut() = Some(recover(Path::new(DIRECTORY), &ask));
                done.set(true);
            });
            let cut = attempt < 8 && random.below(2) == 0;
            let most = *random.pick(&[3000, 30_000]);
            let time = Duration::from_micros(random.below(most));
            let is_done = self.wait(process, &is_done, cut.then_some(time));
            machine::set_faults(Faults::NONE);
            if !is_done {
                marks::hit("recovery cut");
                self.end(process, random);
                continue;
            }
            let result = result.take().expect("the recovery has ended");
            if self.judge(result, fails) {
                return self.check();
            }
        }
    }

    /// Returns whether the log is empty.
    fn judge(&self, result: Result<Recovery>, fails: bool) -> bool {
        let recovery = match result {
            Ok(recovery) => recovery,
            Err(error) => {
                assert!(fails, "no fault explains this: {error}");
                marks::hit("recovery refused");
                return false;
            }
        };
        for file in &recovery.files {
            match &file.fate {
                Fate::InPlace => {
                    marks::hit(if file.bytes > 0 { "replayed" } else { "nothing counts" });
                }
                Fate::Deleted => marks::hit("of a removed file"),
                Fate::Skipped { saved, .. } => {
                    marks::hit("skipped");
                    let saved = saved.as_deref().expect("a directory was given");
                    self.judge_skipped(&Path::new(DIRECTORY).join(&file.path), saved);
                }
                Fate::Kept(error) => {
                    assert!(fails, "no fault explains this: {error}");
                    marks::hit("file refused");
                }
            }
        }
        assert!(fails || recovery.is_empty, "nothing keeps the log: {recovery:?}");
        recovery.is_empty
    }

    /// The records of a file were saved, so another program has changed it.
    fn judge_skipped(&self, path: &Path, saved: &Path) {
        let mut files = self.files.borrow_mut();
        let file = files.iter_mut().find(|file| file.path == path);
        let file = file.filter(|file| file.touched.is_some() || file.is_removed);
        let file = file.unwrap_or_else(|| panic!("nobody has changed {}", path.display()));
        if std::mem::take(&mut file.is_removed) {
            // A power cut has brought back its name, and not its time.
            let found = survivor_of(path);
            if !file.is_being_replaced {
                file.check(&saved::restored(&found, saved));
            }
            file.touched = Some(bytes_of(&found));
        }
    }

    /// Compares the files with their ledgers, after a recovery that emptied the log.
    fn check(&self) {
        for file in self.files.borrow_mut().iter_mut() {
            let found = survivor_of(&file.path);
            let is_touched = file.touched.is_some();
            if let Some(touched) = file.touched.take() {
                let bytes = bytes_of(&found);
                assert!(found.exists && bytes == touched, "contract 24: {:?}", file.path);
            } else if file.is_removed && !found.exists {
                file.is_removed = false;
                file.ledger = bytewise(Ledger::new());
                continue;
            } else if !file.is_being_replaced {
                // As above, and the recovery was cut once the log was empty.
                let is_whole = !file.is_removed || file.ledger.check(&found).is_ok();
                let saved = if is_whole { None } else { saved::newest(&file.path) };
                let restored = saved.map(|saved| {
                    marks::hit("saved by a recovery that was cut");
                    saved::restored(&found, &saved)
                });
                file.check(restored.as_ref().unwrap_or(&found));
            }
            (file.is_removed, file.is_being_replaced) = (false, false);
            if found.exists && (is_touched || !self.is_volatile.get()) {
                file.ledger = bytewise(Ledger::found(&found));
            } else if found.exists {
                file.ledger.pass_on(&bytes_of(&found));
            } else {
                file.ledger = bytewise(Ledger::new());
            }
        }
    }
}

/// Judges each byte alone: the writer does not write whole sectors.
fn bytewise(mut ledger: Ledger) -> Ledger {
    ledger.share();
    ledger
}

/// The file as the kernel has it.
pub(super) fn survivor_of(path: impl AsRef<Path>) -> Survivor {
    let path = path.as_ref();
    if machine::identity(path).is_none() {
        return Survivor { exists: false, size: 0, sectors: Vec::new() };
    }
    survivor_with(&machine::stored(path, |stored| stored.read(0, stored.size())))
}

fn survivor_with(bytes: &[u8]) -> Survivor {
    let sectors = bytes.chunks(SECTOR).map(|chunk| {
        let mut sector = [0; SECTOR];
        sector[..chunk.len()].copy_from_slice(chunk);
        Some(Rc::new(sector))
    });
    Survivor { exists: true, size: bytes.len() as u64, sectors: sectors.collect() }
}

pub(super) fn bytes_of(found: &Survivor) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        found.sectors.iter().flat_map(|sector| *crate::stored::bytes_of(sector)).collect();
    bytes.resize(found.size as usize, 0);
    bytes
}
