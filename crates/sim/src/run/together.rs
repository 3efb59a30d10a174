//! Syncs of many files at once, with other files dirty beside them.

pub mod beside;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::core::engine::Engine;
use crate::core::error::{Error, ErrorKind};
use crate::core::file::File;
use crate::core::sync::together::sync;
use crate::core::wait;
use crate::faults::Faults;
use crate::marks::{self, Marks};
use crate::plan::Plan;
use crate::platform::Arena;
use crate::random::{PerMille, Random};
use crate::run::batch::{DIRECTORIES, KEEPS, content};
use crate::run::death::bytes_of;
use crate::run::engine::{assemble, run_program};
use crate::run::how;
use crate::run::stage::Heard;
use crate::trace::Tracing;
use crate::world::{self, Failure, Settings, machine};

/// How long the engine may take to end.
const PATIENCE: Duration = Duration::from_secs(3600);

/// A file of the run.
struct Synced {
    path: PathBuf,
    file: File,
    bytes: Vec<u8>,
    is_new: bool,
    is_poisoned: bool,
    /// A sync whose future was dropped may go on, and may have failed.
    is_begun: bool,
}

/// Synced files, which every loss of power must leave.
#[derive(Default)]
struct Promised {
    files: RefCell<BTreeMap<PathBuf, Vec<u8>>>,
    crashes: RefCell<Option<Random>>,
}

/// Runs the syncs of a seed. With `fails`, the device fails during some of them.
///
/// # Errors
/// If contract 19 is broken.
pub fn run(seed: u64, fails: bool, tracing: Tracing) -> Result<Marks, Failure> {
    let settings = Settings { tracing, ..Settings::swarm(seed) };
    world::run(settings, move || play(seed, fails)).map(|(marks, _)| marks)
}

fn play(seed: u64, fails: bool) -> Marks {
    let mut random = Random::new(seed ^ 0x746f_6765);
    // Nothing is written but what a sync asks for.
    let age = Duration::from_secs(3600);
    let plan =
        Plan { frames: 320, dirty_pages: 280, age, is_survived: false, ..Plan::passing(seed) };
    machine::install(plan.machine.clone());
    DIRECTORIES.iter().for_each(machine::make_directory);
    let promised = Rc::new(Promised::default());
    *promised.crashes.borrow_mut() = Some(random.fork());
    let of_looks = Rc::clone(&promised);
    machine::points::look_at_each(move || of_looks.check());
    run_program(plan, move |plan, engine, _| {
        // The engine refuses files of another one.
        let mut refusals = Random::new(seed ^ 0x7265_6675);
        let foreign = (refusals.below(3) == 0).then(|| Foreign::new(plan));
        let mut files: Vec<Synced> = (0..random.within(2..9))
            .map(|number| {
                let path = PathBuf::from(*random.pick(&DIRECTORIES)).join(format!("file{number}"));
                let file = engine.open(&path, &how::create_new()).expect("it is new");
                let (is_new, is_poisoned, is_begun) = (true, false, false);
                Synced { path, file, bytes: Vec::new(), is_new, is_poisoned, is_begun }
            })
            .collect();
        for _ in 0..random.within(1..5) {
            for it in &mut files {
                if random.below(4) > 0 {
                    it.write(&promised, &mut random);
                }
            }
            let mut set: Vec<usize> = (0..files.len()).filter(|_| random.below(3) > 0).collect();
            if let Some(twice) = set.first().copied().filter(|_| random.below(4) == 0) {
                set.push(twice);
            }
            let faults = machine::faults();
            if fails {
                machine::set_faults(drawn(faults, &mut random));
            }
            let others: Vec<Vec<u8>> = files
                .iter()
                .map(|it| machine::stored(&it.path, |at| at.read(0, at.size())))
                .collect();
            let forsaken = (0..files.len()).filter(|at| files[*at].is_forsaken()).collect();
            let is_dropped = random.below(4) == 0;
            let refused = foreign
                .as_ref()
                .map(|foreign| (refusals.below(set.len() as u64 + 1) as usize, &foreign.file));
            let results = {
                let mut set: Vec<&File> = set.iter().map(|at| &files[*at].file).collect();
                if let Some((at, file)) = refused {
                    set.insert(at, file);
                }
                match is_dropped {
                    true => begin(sync(&engine.owner.shared, &set), &mut random),
                    false => Some(wait::drive(sync(&engine.owner.shared, &set))),
                }
            };
            let directories_fail = machine::faults().flush_directory.0 > 0;
            machine::set_faults(faults);
            let is_outside = |at: &usize| !set.contains(at) && !files[*at].is_begun;
            for at in (0..files.len()).filter(is_outside) {
                let it = &files[at];
                let now = machine::stored(&it.path, |at| at.read(0, at.size()));
                assert!(now == others[at], "contract 19: a file outside the set is written");
            }
            match results {
                None => {
                    set.iter().for_each(|at| files[*at].is_begun = true);
                    marks::hit("future dropped");
                }
                Some(mut results) => {
                    if let Some((at, _)) = refused {
                        check_refused(&set, &mut results, at);
                    }
                    judge(&mut files, &set, &results, (&forsaken, directories_fail), &promised);
                }
            }
        }
        files.into_iter().for_each(|it| drop(it.file.close()));
        foreign.into_iter().for_each(Foreign::end);
        let ended = engine.shutdown(PATIENCE);
        assert!(ended.is_ok() || fails, "contract 19: {ended:?}");
    });
    marks::take()
}

/// A file of another engine of the process.
struct Foreign {
    engine: Engine,
    file: File,
}

impl Foreign {
    fn new(plan: &Plan) -> Self {
        let arena = Arc::new(Arena::shared(plan.frames).expect("memory"));
        let (engine, _) = assemble(plan, arena, Heard::default(), None);
        let file = engine.open("/foreign", &how::create_new()).expect("it is new");
        Self { engine, file }
    }

    fn end(self) {
        drop(self.file.close());
        drop(self.engine.shutdown(PATIENCE));
    }
}

/// Takes the result of a refused file out of the others.
fn check_refused(set: &[usize], results: &mut Vec<crate::core::error::Result<()>>, at: usize) {
    assert_eq!(results.len(), set.len() + 1, "contract 19: a result for each file");
    let refused = results.remove(at).map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::InvalidInput), "contract 19: the file of another engine");
    marks::hit("refused");
    let is_failure = |error: &Error| error.kind() != ErrorKind::InvalidInput;
    if results[at..].iter().flat_map(|result| result.as_ref().err()).any(is_failure) {
        marks::hit("failed behind a refused file");
    }
}

/// Polls a future some times, and drops it unless it has ended.
fn begin<T>(future: impl Future<Output = T>, random: &mut Random) -> Option<T> {
    let mut future = pin!(future);
    for _ in 0..random.within(1..5) {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(done);
        }
        world::sleep(Duration::from_micros(random.below(2_000)));
    }
    None
}

fn drawn(passing: Faults, random: &mut Random) -> Faults {
    let mut rate = |rates: &[u16]| PerMille(*random.pick(rates));
    let (write, flush) = (rate(&[0, 0, 100]), rate(&[0, 0, 300]));
    Faults { write, flush, flush_directory: rate(&[0, 0, 500]), ..passing }
}

impl Synced {
    fn write(&mut self, promised: &Promised, random: &mut Random) {
        promised.files.borrow_mut().remove(&self.path);
        let length = *random.pick(&[1, 700, 4096, 9_000]);
        let offset = random.below(self.bytes.len() as u64 + 1) as usize;
        let data = content(length, random.draw());
        let written = self.file.write_at(&data, offset as u64);
        assert!(written.is_ok() || self.is_poisoned, "contract 19: {written:?}");
        if written.is_ok() {
            self.bytes.resize(self.bytes.len().max(offset + length), 0);
            self.bytes[offset..offset + length].copy_from_slice(&data);
        }
    }

    /// Whether the device has failed so that a sync of this file must.
    fn has_cause(&self) -> bool {
        self.is_poisoned
            || self.is_begun && self.is_new
            || machine::failed_flushes(&self.path) > 0
            || machine::has_failed(&self.path)
            || self.is_forsaken()
    }

    fn is_forsaken(&self) -> bool {
        machine::is_name_forsaken(&self.path)
    }
}

/// Compares the results with the device.
fn judge(
    files: &mut [Synced],
    set: &[usize],
    results: &[crate::core::error::Result<()>],
    (forsaken, directories_fail): (&BTreeSet<usize>, bool),
    promised: &Promised,
) {
    assert_eq!(results.len(), set.len(), "contract 19: a result for each file");
    // The sync of their directory has lost the name of one, so it has failed for all of them.
    let directory = |at: &usize| files[*at].path.parent().map(Path::to_owned);
    let new: Vec<usize> = set.iter().filter(|at| files[**at].is_new).copied().collect();
    let is_lost = |at: &&usize| files[**at].is_forsaken() && !forsaken.contains(at);
    let lost: BTreeSet<_> = new.iter().filter(is_lost).map(directory).collect();
    let is_in_lost = |at: &usize| lost.contains(&directory(at));
    let must_fail: BTreeSet<usize> = new.into_iter().filter(is_in_lost).collect();
    for (at, result) in set.iter().zip(results) {
        let it = &mut files[*at];
        match result {
            Ok(()) => {
                assert!(!it.is_poisoned, "contract 2: a sync ends well on a poisoned file");
                assert!(!must_fail.contains(at), "contract 19: its directory could not be synced");
                promised.files.borrow_mut().insert(it.path.clone(), it.bytes.clone());
                it.is_new = false;
                marks::hit("synced");
            }
            Err(error) => {
                let has_cause = it.has_cause() || it.is_new && directories_fail;
                assert!(has_cause, "contract 19: {error:?} of a file that is well");
                if must_fail.contains(at) {
                    marks::hit("directory not synced");
                }
                it.is_poisoned |= error.kind() == ErrorKind::Poisoned;
                marks::hit("sync failed");
            }
        }
    }
    promised.check();
}

impl Promised {
    fn check(&self) {
        for keep in KEEPS {
            let mut crashes = self.crashes.borrow_mut();
            let found = machine::survivors(keep, crashes.as_mut().expect("set at the beginning"));
            for (path, bytes) in &*self.files.borrow() {
                let survivor = found.at(path);
                assert!(
                    survivor.exists && bytes_of(&survivor) == *bytes,
                    "contract 19: a power cut that keeps {keep:?} leaves {} bytes of {}, not {}",
                    survivor.size,
                    path.display(),
                    bytes.len()
                );
            }
            marks::hit("power cut");
        }
    }
}
