//! Programs that make batches, and the states that a loss of power leaves at every point of them.
//!
//! ```text
//! Program --Batch--> Engine --> machine --each point--> Judge: every state after a loss of power
//!    \--steps, contents--> Script: files after each step <------------------/
//! ```

mod recording;
mod script;

use std::cell::Cell;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::core::engine::Engine;
use crate::faults::Faults;
use crate::marks;
use crate::marks::Marks;
use crate::plan::Plan;
use crate::platform::Arena;
use crate::platform::OpenDirectory;
use crate::random::PerMille;
use crate::random::Random;
use crate::run::engine::assemble;
use crate::run::stage::Heard;
use crate::stored::Keep;
use crate::trace::Tracing;
use crate::world;
use crate::world::Failure;
use crate::world::Process;
use crate::world::Reason;
use crate::world::Settings;
use crate::world::machine;

use recording::Recording;
use script::{Content, Script, Tree};

/// Directories that exist before the batches: more than a batch keeps open.
pub(super) const DIRECTORIES: [&str; 4] = ["/a", "/b", "/b/c", "/d"];

/// Programs of a run. Only a crowd has all of them.
const CROWD: [&str; 7] = ["one", "two", "three", "four", "five", "six", "seven"];

/// Looks at each point.
pub(super) const KEEPS: [Keep; 4] = [Keep::Nothing, Keep::Everything, Keep::Some, Keep::Some];

/// How long an engine may take to end.
const PATIENCE: Duration = Duration::from_secs(3600);

/// A program has ended, or the time of a death has come.
const NEWS: Reason = Reason { what: "news of the programs", number: 0 };

/// Kind of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trial {
    /// Nothing fails.
    Calm,
    /// The device fails, and is full.
    Faults,
    /// The process dies, or the power is cut. A second program makes a batch meanwhile, and a third
    /// one makes the next batch in the same directories.
    Death,
    /// Several programs make batches in the same directories at the same time. Each removes what
    /// dead batches have left there, while the others begin.
    Crowd,
    /// Files are larger than the pages that may be unwritten, and the device fails: most errors
    /// come before the flush.
    WriteBack,
}

/// Runs the batches of a seed.
///
/// # Errors
/// If contract 20 is broken.
pub fn run(seed: u64, trial: Trial, tracing: Tracing) -> Result<Marks, Failure> {
    let settings = Settings { tracing, ..Settings::swarm(seed) };
    world::run(settings, move || play(seed, trial)).map(|(marks, _)| marks)
}

fn play(seed: u64, trial: Trial) -> Marks {
    let mut random = Random::new(seed ^ 0x6261_7463);
    let mut plan = Plan::passing(seed);
    if trial == Trial::WriteBack {
        // As few as a plan may have.
        plan.dirty_pages = 20;
    }
    let passing = plan.machine.faults;
    machine::install(plan.machine.clone());
    DIRECTORIES.iter().for_each(machine::make_directory);
    let judge = Rc::new(Judge {
        plan,
        trial,
        scripts: RefCell::default(),
        crashes: RefCell::new(random.fork()),
        alive: RefCell::default(),
        points: Cell::new(0),
        death: Cell::new(u64::MAX),
    });
    let names = if trial == Trial::Crowd { &CROWD[..] } else { &CROWD[..3] };
    let scripts: Vec<_> = names
        .iter()
        .map(|name| {
            let start = judge.put_files(name, &mut random);
            Rc::new(RefCell::new(Script::new(start)))
        })
        .collect();
    let of_looks = Rc::clone(&judge);
    machine::points::look_at_each(move || of_looks.look());
    judge.scripts.borrow_mut().extend(scripts.iter().map(Rc::clone));
    let (one, two, three) = (&scripts[0], &scripts[1], &scripts[2]);
    match trial {
        Trial::Calm => {
            judge.begin("one", one, random.fork(), Covers::Some);
        }
        Trial::Faults => {
            machine::set_faults(faults(passing, &mut random));
            if random.below(3) == 0 {
                let used = u64::MAX / 2 - machine::free_pages(0);
                machine::set_space_pages(0, used + random.below(20));
            }
            judge.begin("one", one, random.fork(), Covers::Some);
        }
        Trial::Death => {
            let first = judge.begin("one", one, random.fork(), Covers::Some);
            let second = judge.begin("two", two, random.fork(), Covers::Some);
            judge.die(&mut random, [(first, one), (second, two)]);
            judge.begin("three", three, random.fork(), Covers::EveryDirectory);
        }
        Trial::Crowd => {
            for (name, script) in names.iter().zip(&scripts) {
                judge.begin(name, script, random.fork(), Covers::EveryDirectory);
                world::sleep(Duration::from_micros(random.below(4) * random.below(100)));
            }
        }
        Trial::WriteBack => {
            machine::set_faults(Faults { write: PerMille(*random.pick(&[20, 60])), ..passing });
            judge.begin("one", one, random.fork(), Covers::Some);
        }
    }
    judge.wait_until(|judge| judge.alive.borrow().is_empty());
    if !may_leave_names() {
        for directory in DIRECTORIES {
            let names =
                OpenDirectory::open(directory.as_ref()).and_then(|it| it.names(".forebay-"));
            assert_eq!(names.expect("it is there"), [""; 0], "contract 20: names in {directory}");
        }
    }
    judge.look();
    marks::take()
}

fn faults(passing: Faults, random: &mut Random) -> Faults {
    let mut rate = |rates: &[u16]| PerMille(*random.pick(rates));
    Faults {
        write: rate(&[0, 0, 30]),
        flush: rate(&[0, 0, 60]),
        flush_directory: rate(&[0, 0, 300]),
        names: rate(&[0, 0, 40]),
        ..passing
    }
}

/// Whether a temporary name may stay, because it could not be removed.
fn may_leave_names() -> bool {
    machine::faults().names.0 > 0
}

/// Returns bytes that differ for each stamp.
pub(super) fn content(length: usize, stamp: u64) -> Vec<u8> {
    let mut random = Random::new(stamp);
    let mut bytes: Vec<u8> =
        (0..length.div_ceil(8)).flat_map(|_| random.draw().to_le_bytes()).collect();
    bytes.truncate(length);
    bytes
}

fn draw_content(trial: Trial, random: &mut Random) -> Content {
    if trial == Trial::WriteBack {
        let length = *random.pick(&[4096, 40_000, 90_000]);
        return Rc::new(content(length, random.draw()));
    }
    // Each in a while more than a file gathers in memory.
    let large = if random.below(40) == 0 { 300_000 } else { 4096 };
    let length = *random.pick(&[0, 1, 511, 512, 4096, 5_000, 12_288, large]);
    Rc::new(content(length, random.draw()))
}

/// Where a program creates files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Covers {
    Some,
    EveryDirectory,
}

/// Compares the machine with the scripts.
struct Judge {
    plan: Plan,
    trial: Trial,
    scripts: RefCell<Vec<Rc<RefCell<Script>>>>,
    /// For states after a loss of power, so that a look at one changes nothing.
    crashes: RefCell<Random>,
    /// Programs that have not ended.
    alive: RefCell<BTreeSet<Process>>,
    points: Cell<u64>,
    /// The point at which a process dies.
    death: Cell<u64>,
}

impl Judge {
    /// Whether calls may fail because of the machine.
    fn may_fail(&self) -> bool {
        matches!(self.trial, Trial::Faults | Trial::WriteBack)
    }

    /// Looks at the files, and at states after a loss of power now.
    fn look(&self) {
        if std::thread::panicking() {
            // The run has failed, and a second panic would end all tests.
            return;
        }
        self.points.set(self.points.get() + 1);
        if self.points.get() == self.death.get() {
            world::wake(NEWS);
        }
        let scripts = self.scripts.borrow();
        for script in &*scripts {
            script.borrow_mut().check_now();
        }
        // A crowd has many points, and is about names that programs see.
        for keep in KEEPS.into_iter().filter(|_| self.trial != Trial::Crowd) {
            let found = machine::survivors(keep, &mut self.crashes.borrow_mut());
            let when = format!("a loss of power that keeps {keep:?}");
            for script in &*scripts {
                script.borrow().check(&found, &when);
            }
            marks::hit("power cut");
        }
    }

    /// Makes durable files for a program.
    fn put_files(&self, program: &str, random: &mut Random) -> Tree {
        let faults = machine::faults();
        machine::set_faults(Faults::NONE);
        let mut tree = Tree::new();
        for directory in DIRECTORIES {
            let at = OpenDirectory::open(directory.as_ref()).expect("it is there");
            for number in 0..4 {
                if random.below(2) == 0 {
                    continue;
                }
                let (name, content) =
                    (format!("{program}{number}"), draw_content(self.trial, random));
                let file = at.create(name.as_ref(), 0o644).expect("it is new");
                file.write_all_at(&content, 0).and_then(|()| file.sync()).expect("it is well");
                tree.insert(PathBuf::from(directory).join(name), content);
            }
            at.sync().expect("it is well");
        }
        machine::set_faults(faults);
        tree
    }

    /// Starts a program in a process of its own.
    fn begin(
        self: &Rc<Self>,
        name: &'static str,
        script: &Rc<RefCell<Script>>,
        random: Random,
        covers: Covers,
    ) -> Process {
        let process = world::new_process(name);
        self.alive.borrow_mut().insert(process);
        let (judge, script) = (Rc::clone(self), Rc::clone(script));
        world::spawn(process, name, move || {
            let program = Program { judge: Rc::clone(&judge), name, script };
            let arena = Arc::new(Arena::shared(judge.plan.frames).expect("memory"));
            let (engine, _) = assemble(&judge.plan, arena, Heard::default(), None);
            program.make_batch(&engine, random, covers);
            let ended = engine.shutdown(PATIENCE);
            assert!(ended.is_ok(), "an engine without files: {ended:?}");
            judge.alive.borrow_mut().remove(&process);
            world::wake(NEWS);
        });
        process
    }

    fn wait_until(&self, is_so: impl Fn(&Self) -> bool) {
        while !is_so(self) {
            world::block(NEWS, None);
        }
    }

    /// Ends the first program, or all of them with the power, at a random point.
    fn die(&self, random: &mut Random, programs: [(Process, &Rc<RefCell<Script>>); 2]) {
        self.death.set(self.points.get() + random.within(1..60));
        let is_over = |it: &Self| !it.alive.borrow().contains(&programs[0].0);
        self.wait_until(|it| it.points.get() >= it.death.get() || is_over(it));
        if is_over(self) {
            return;
        }
        let is_power_cut = random.below(3) == 0;
        for (process, script) in &programs[..if is_power_cut { 2 } else { 1 }] {
            if self.alive.borrow_mut().remove(process) {
                machine::kill(*process);
                script.borrow_mut().killed();
            }
        }
        marks::hit(if is_power_cut { "power went" } else { "killed" });
        if is_power_cut {
            let keep = *random.pick(&KEEPS);
            let found = machine::survivors(keep, &mut self.crashes.borrow_mut());
            // They start with another tree now.
            let is_other = |script: &Rc<RefCell<Script>>| {
                programs.iter().all(|(_, ended)| !Rc::ptr_eq(ended, script))
            };
            self.scripts.borrow_mut().retain(is_other);
            machine::cut_power(found);
        }
    }
}

/// A program that makes one batch.
struct Program {
    judge: Rc<Judge>,
    name: &'static str,
    script: Rc<RefCell<Script>>,
}

impl Program {
    fn make_batch(self, engine: &Engine, mut random: Random, covers: Covers) {
        let mut batch = engine.batch();
        self.script.borrow_mut().is_ordered = random.below(2) == 0;
        if self.script.borrow().is_ordered {
            batch = batch.ordered();
        }
        let recording = Rc::new(Recording { program: self, batch, tasks: Cell::new(0) });
        recording.record(&mut random, covers);
        while recording.tasks.get() > 0 {
            world::block(recording.ends(), None);
        }
        let recording = Rc::try_unwrap(recording).ok().expect("its tasks have ended");
        recording.end(&mut random);
    }

    /// Returns a path of this program, of a file that may exist.
    fn path(&self, directories: &[PathBuf], random: &mut Random) -> PathBuf {
        random.pick(directories).join(format!("{}{}", self.name, random.below(4)))
    }
}
