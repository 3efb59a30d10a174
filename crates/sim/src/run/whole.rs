//! Atomic writes of several files: two callers whose ranges share sectors, other writes and syncs
//! beside them, a log that cannot be written for a while, other programs that open a file, and
//! losses of power at any moment. In the end the power is lost, or a keeper brings the files into
//! place. All ranges of a call are found, or none.

mod all_or_none;

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use forebay_log::HEADS;

use super::engine::assemble;
use super::how;
use super::keeper::finish_files;
use super::logged::LOG;
use super::stage::Heard;
use crate::core::engine::Engine;
use crate::core::error::{Error, ErrorKind};
use crate::core::file::File;
use crate::core::intent_log::recover::{Ask, recover};
use crate::faults::Faults;
use crate::marks::{self, Marks};
use crate::plan::Plan;
use crate::platform::Arena;
use crate::random::{PerMille, Random};
use crate::stored::{Keep, SECTOR};
use crate::trace::Tracing;
use crate::world::machine::{self, MachinePlan, VolumePlan};
use crate::world::others::{OpenAs, Program};
use crate::world::{self, Failure, Process, Reason, Settings};

const PATHS: [&str; 3] = ["/whole0", "/whole1", "/whole2"];
const CALLERS: usize = 2;

/// Blocks of the ring: some calls fill half of it.
const BLOCKS: u64 = 48;

/// Bytes of a generation of the first caller at the end of the first file.
const GROWTH: u64 = 700;

/// First end of the files, inside a sector.
const SIZE: u64 = 30_100;

/// End of a hole behind that.
const HOLE: u64 = 40_000;

/// The sector with the first end.
const TAIL: u64 = SIZE / SECTOR as u64 * SECTOR as u64;

const DONE: Reason = Reason { what: "end of the recovery", number: 2 };

/// A range of a caller: file, offset and length.
type Place = (usize, u64, usize);

/// Generations that a caller has asked for. They count from 1.
#[derive(Clone, Copy, Default)]
struct Asked {
    /// The last one that has returned.
    acknowledged: u64,
    /// The last one that has begun.
    begun: u64,
}

struct Test {
    callers: RefCell<[Asked; CALLERS]>,
    places: [Vec<Place>; CALLERS],
    /// Where each caller makes a file longer: file and end.
    grows: [(usize, u64); CALLERS],
    /// The range of the other writes, and their generations.
    beside: Place,
    others: Cell<Asked>,
    /// Callers whose calls can no longer succeed.
    ended: Cell<usize>,
    /// A flush of a file has failed too often: the log is not used again.
    is_poisoned: Cell<bool>,
    /// Nobody else has opened a file: no call may be refused.
    is_alone: Cell<bool>,
    /// The memory of the engine.
    arena: RefCell<Option<Arc<Arena>>>,
}

/// Runs a seed.
///
/// # Errors
/// If a part of a call is found, an acknowledged one is not, or a synced byte is lost.
pub fn run(seed: u64, tracing: Tracing) -> Result<Marks, Failure> {
    let settings = Settings { tracing, leaps: PerMille(0), ..Settings::swarm(seed) };
    world::run(settings, move || {
        let mut random = Random::new(seed ^ 0x7768_6f6c);
        let machine = MachinePlan::calm(vec![VolumePlan::ext4()]);
        machine::install(machine.clone());
        let plan = Plan { log_blocks: Some(BLOCKS), is_survived: true, ..Plan::swarm(seed) };
        let plan = Plan { machine, adopts: false, ..plan };
        let test = Rc::new(Test::new(&mut random));
        let process = world::new_process("engine");
        let (program, draws) = (Rc::clone(&test), random.draw());
        world::spawn(process, "program", move || program.play(&plan, draws));
        let visitor = world::new_process("visitor");
        if random.happens(PerMille(700)) {
            test.disturb(visitor, &mut random);
        }
        for _ in 0..random.within(100..400) {
            world::sleep(Duration::from_micros(random.within(1..900)));
            test.cut(&mut random);
        }
        machine::kill(visitor);
        machine::set_bad_if_there(LOG, 0..0);
        machine::set_faults(Faults::NONE);
        test.go_on();
        world::sleep(Duration::from_micros(random.below(3000)));
        let arena = test.arena.take().expect("the program has begun");
        let arena = arena.snapshot().expect("memory");
        machine::kill(process);
        if random.happens(PerMille(500)) {
            test.keep(arena);
        } else {
            let keep = *random.pick(&[Keep::Nothing, Keep::Everything, Keep::Some]);
            machine::cut_power(machine::survivors(keep, &mut random));
        }
        test.recover();
        marks::take()
    })
    .map(|(marks, _)| marks)
}

impl Test {
    fn new(random: &mut Random) -> Self {
        // Both callers and the other writes are in the same sectors at times.
        let mut places = [Vec::new(), Vec::new()];
        for number in 0..7 {
            let at = number as u64 * 4000 + random.below(40);
            let length = random.within(1..1500) as usize;
            places[0].push((number % 3, at, length));
            places[1].push((number % 3, at + length as u64, random.within(1..900) as usize));
        }
        let (file, at, length) = places[1][3];
        let beside = (file, at + length as u64, 300);
        Self {
            callers: RefCell::default(),
            places,
            grows: [(0, SIZE), (2, HOLE)],
            beside,
            others: Cell::default(),
            ended: Cell::new(0),
            is_poisoned: Cell::new(false),
            is_alone: Cell::new(true),
            arena: RefCell::default(),
        }
    }

    /// The program: callers, and other writes.
    fn play(self: &Rc<Self>, plan: &Plan, draws: u64) {
        let arena = Arc::new(Arena::shared(plan.frames).expect("memory"));
        *self.arena.borrow_mut() = Some(Arc::clone(&arena));
        let (engine, _) = assemble(plan, arena, Heard::default(), None);
        let files = PATHS.map(|path| engine.open(path, &how::create()).expect("a calm machine"));
        for file in &files {
            file.write_at(&[0; SIZE as usize], 0).expect("memory is free");
            file.sync_data().expect("a calm machine");
        }
        let files = Rc::new(files);
        for number in 0..CALLERS {
            let (test, engine, files) = (Rc::clone(self), engine.clone(), Rc::clone(&files));
            let random = Random::new(draws ^ number as u64);
            world::spawn(world::process(), "caller", move || {
                test.call(number, &engine, &*files, random);
            });
        }
        let (test, random) = (Rc::clone(self), Random::new(draws ^ 0x6f74_6865));
        world::spawn(world::process(), "others", move || test.write_beside(&*files, random));
        loop {
            world::sleep(Duration::from_secs(1));
        }
    }

    fn call(&self, number: usize, engine: &Engine, files: &[File], mut random: Random) {
        for generation in 1.. {
            self.callers.borrow_mut()[number].begun = generation;
            let data = [byte_of(generation); 1500];
            let mut writes: Vec<(&File, u64, &[u8])> = self.places[number]
                .iter()
                .map(|(file, at, length)| (&files[*file], *at, &data[..*length]))
                .collect();
            let grown = (generation - 1) * GROWTH;
            let (file, end) = self.grows[number];
            writes.push((&files[file], end + grown, &data[..GROWTH as usize]));
            while let Err(error) = engine.atomic(&writes) {
                if self.is_final(&error) {
                    self.ended.set(self.ended.get() + 1);
                    return;
                }
                world::sleep(Duration::from_millis(random.within(1..20)));
            }
            marks::hit("atomic write");
            self.callers.borrow_mut()[number].acknowledged = generation;
            world::sleep(Duration::from_micros(random.below(300)));
        }
    }

    /// Returns whether no later call can succeed.
    fn is_final(&self, error: &Error) -> bool {
        world::trace(format_args!("refused: {error}"));
        match error.kind() {
            ErrorKind::Unknown => marks::hit("unknown"),
            ErrorKind::Io => marks::hit("log cannot be written"),
            ErrorKind::Busy => marks::hit("busy"),
            ErrorKind::Poisoned => {
                self.is_poisoned.set(true);
                marks::hit("poisoned");
                return true;
            }
            ErrorKind::Unsupported => {
                assert!(!self.is_alone.get(), "no other program is the reason: {error}");
                marks::hit("another program has the file");
                return true;
            }
            _ => panic!("no fault explains this: {error}"),
        }
        false
    }

    fn write_beside(&self, files: &[File], mut random: Random) {
        let (file, at, length) = self.beside;
        for generation in 1.. {
            let before = self.others.get();
            self.others.set(Asked { begun: generation, ..before });
            let file = &files[file];
            let written = file.write_at(&[byte_of(generation); 300][..length], at);
            let synced = match random.below(4) {
                0 => file.sync_all(),
                1 => file.write_out(),
                _ => file.sync_data(),
            };
            let of_any = files[random.below(3) as usize].sync_data();
            let of_any = of_any.as_ref().err().or(synced.as_ref().err());
            if of_any.is_some_and(|error| error.kind() == ErrorKind::Poisoned) {
                self.is_poisoned.set(true);
            }
            if written.is_ok() && synced.is_ok() {
                marks::hit("sync beside");
            }
            // At the first end of another file, and without a sync.
            if files[2].write_at(&[byte_of(generation); SECTOR], TAIL).is_ok()
                && random.below(2) == 0
            {
                let _ = files[2].write_out();
            }
            let acknowledged = written.is_ok() && file.sync_data().is_ok();
            if acknowledged {
                self.others.set(Asked { acknowledged: generation, begun: generation });
            }
            world::sleep(Duration::from_micros(random.below(400)));
        }
    }

    fn disturb(self: &Rc<Self>, visitor: Process, random: &mut Random) {
        let (test, mut random) = (Rc::clone(self), Random::new(random.draw()));
        world::spawn(visitor, "visitor", move || {
            let kind = random.below(3);
            while test.callers.borrow().iter().any(|caller| caller.begun == 0) {
                world::sleep(Duration::from_micros(100));
            }
            loop {
                world::sleep(Duration::from_micros(random.within(500..15_000)));
                if kind == 0 {
                    test.is_alone.set(false);
                    let path = *random.pick(&PATHS);
                    if let Ok(program) = Program::open(Path::new(path), OpenAs::READER) {
                        world::sleep(Duration::from_micros(random.below(2000)));
                        drop(program);
                    }
                } else if kind == 1 {
                    // A batch that is written, and not known to be.
                    machine::set_faults(Faults { flush: PerMille(300), ..Faults::NONE });
                    world::sleep(Duration::from_micros(random.within(100..2000)));
                    machine::set_faults(Faults::NONE);
                } else {
                    let from = *random.pick(&[0, HEADS]);
                    machine::set_bad_if_there(LOG, from..HEADS + BLOCKS);
                    world::sleep(Duration::from_micros(random.within(100..6_000)));
                    machine::set_bad_if_there(LOG, 0..0);
                }
            }
        });
    }

    /// Waits until every task has made progress, after the last disturbance.
    fn go_on(&self) {
        let numbers = || {
            let callers = self.callers.borrow();
            let calls: Vec<u64> = callers.iter().map(|caller| caller.acknowledged).collect();
            (calls, self.others.get().begun)
        };
        let (calls, others) = numbers();
        let is_going = || {
            let (later, others_later) = numbers();
            let going = later.iter().zip(&calls).filter(|(later, before)| later > before).count();
            let is_over = self.is_poisoned.get() || going + self.ended.get() >= CALLERS;
            is_over && others_later > others + 1
        };
        for _ in 0..20_000 {
            if is_going() {
                return;
            }
            world::sleep(Duration::from_millis(1));
        }
        panic!("a task waits forever: {:?} and {others} before, {:?} now", calls, numbers());
    }

    /// Looks at the state that a loss of power would leave now.
    fn cut(&self, random: &mut Random) {
        let keep = *random.pick(&[Keep::Nothing, Keep::Everything, Keep::Some, Keep::Some]);
        let mut found = machine::survivors(keep, random);
        found.replay(LOG);
        marks::hit("power cut");
        self.check(|path| found.at(path));
    }

    /// A keeper brings the files into place.
    fn keep(&self, arena: Arena) {
        while machine::in_flight() > 0 {
            world::sleep(Duration::from_millis(1));
        }
        in_process("keeper", move || finish_files(&arena, true));
        marks::hit("kept");
        self.check(|path| super::recovery::survivor_of(path));
    }

    fn recover(&self) {
        in_process("recovery", || match recover(Path::new("/"), &Ask::default()) {
            Ok(recovery) => assert!(recovery.is_empty, "nothing keeps the log: {recovery:?}"),
            // It was never made.
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
        });
        marks::hit("recovered");
        self.check(|path| super::recovery::survivor_of(path));
    }
}

/// Makes a call in a process of its own, and waits for its end.
fn in_process(name: &'static str, call: impl FnOnce() + 'static) {
    let is_done = Rc::new(Cell::new(false));
    let done = Rc::clone(&is_done);
    world::spawn(world::new_process(name), name, move || {
        call();
        done.set(true);
        world::wake(DONE);
    });
    while !is_done.get() {
        world::block(DONE, None);
    }
}
impl std::fmt::Debug for Asked {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}..={}", self.acknowledged, self.begun)
    }
}

/// The byte of a generation; that of none is zero.
fn byte_of(generation: u64) -> u8 {
    if generation == 0 { 0 } else { (generation % 250 + 1) as u8 }
}
