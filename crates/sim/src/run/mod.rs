//! A run of the engine in a simulated machine, compared with a plain model of its files.
//!
//! The engine is the one that ships (`crate::core`). It runs in a process of the simulated machine,
//! with callers as tasks of that process. The test is a process of its own: it disturbs the machine,
//! and looks at states after a loss of power at random moments.
//!
//! ```text
//! process engine: callers --File, DirectFile--> Engine --contexts, asides--> machine
//!                    |                                                          |
//!                    +--begin, end--> model and ledgers <--compare, power cut---+
//! process test:   faults, bad pages, knobs, other programs, kill
//! ```
//!
//! A run fails if a contract is broken, if a task panics, or if no task can run. The seed replays
//! it.

mod alone;
pub mod batch;
pub mod below;
mod caller;
mod check;
pub mod claimed;
pub mod contexts;
pub mod costs;
mod death;
mod disturb;
mod engine;
pub mod given_up;
mod hang;
pub mod hold;
mod how;
mod keeper;
pub mod learned;
mod logged;
mod model;
pub mod new_pages;
mod operation;
mod reading;
pub mod recovery;
mod stage;
pub mod stall;
pub mod together;
pub mod unwritable;
mod visitors;
pub mod whole;

use std::rc::Rc;
use std::time::Duration;

use crate::core::error::ErrorKind;
use crate::core::shared::Shared;
use crate::core::stats::Stats;
use crate::marks::{self, Marks};
use crate::plan::Plan;
use crate::random::Random;
use crate::stored::SECTOR;
use crate::trace::Tracing;
use crate::world::{self, Failure, Outcome, Reason, Settings, machine};

use stage::Stage;

/// How long the engine may take to write everything out at the end, on a device that is well.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Figures of a run that ended well.
#[derive(Debug)]
pub struct Report {
    /// Places that the run came by.
    pub marks: Marks,
    /// The longest wait for a sync, in requests taken and ended by the devices.
    pub longest_sync: u64,
    /// Figures of the world, with the trace.
    pub outcome: Outcome,
}

/// Runs a plan.
///
/// # Errors
/// If a contract is broken: what happened, and the tasks that were left.
pub fn run(seed: u64, plan: Plan, tracing: Tracing) -> Result<Report, Failure> {
    let settings = Settings { tracing, ..Settings::swarm(seed) };
    let ((marks, longest_sync), outcome) = world::run(settings, move || Stage::play(seed, plan))?;
    Ok(Report { marks, longest_sync, outcome })
}

/// The end of all callers.
const CALLERS: Reason = Reason { what: "end of all callers", number: 0 };

/// The end of the engine.
const ENGINE: Reason = Reason { what: "end of the engine", number: 0 };

impl Stage {
    fn play(seed: u64, plan: Plan) -> (Marks, u64) {
        machine::install(plan.machine.clone());
        if plan.are_devices {
            let bytes = plan.device_bytes();
            let devices = 0..plan.files as usize;
            devices
                .for_each(|number| machine::make_device(plan.path(number), bytes, SECTOR as u32));
        }
        let stage = Rc::new(Self::new(seed, plan));
        if stage.plan.looks_into_writes {
            let of_look = Rc::downgrade(&stage);
            world::look_at_each_turn(move || {
                let stage = of_look.upgrade().expect("the first task has it");
                let is_writer = |task| stage.writers.borrow().contains(&task);
                if world::task().is_some_and(is_writer) {
                    stage.check_process_death();
                }
            });
        }
        stage.start_process();
        stage.disturb();
        while !stage.is_over.get() {
            world::block(ENGINE, None);
        }
        stage.check_end();
        (marks::take(), stage.longest_sync.get())
    }

    /// Starts a process with the engine and its callers.
    fn start_process(self: &Rc<Self>) {
        self.engine.set(world::new_process("engine"));
        self.callers.set(self.plan.callers);
        self.has_tuner.set(self.plan.turns_knobs);
        let of_engine = Rc::clone(self);
        world::spawn(self.engine.get(), "program", move || of_engine.run_engine());
    }

    /// The program's first thread: starts the engine and the callers, and ends the engine.
    fn run_engine(self: &Rc<Self>) {
        let handed = self.handed.take();
        let (engine, shared, mut adopted) = match handed {
            Some(handed) => self.adopt(handed),
            None => self.start_engine(),
        };
        self.keep(&shared);
        for number in 0..self.plan.callers {
            let (stage, engine) = (Rc::clone(self), engine.clone());
            let random = world::draw(Random::fork);
            // One for each, and the rest for the last.
            let left = if number + 1 < self.plan.callers { 1 } else { adopted.len() };
            let files = adopted.split_off(adopted.len().saturating_sub(left));
            world::spawn(self.engine.get(), &format!("caller {number}"), move || {
                caller::Caller::new(&stage, engine, random).run(files);
                stage.callers.set(stage.callers.get() - 1);
                world::wake(CALLERS);
            });
        }
        if self.plan.turns_knobs {
            let (stage, engine) = (Rc::clone(self), engine.clone());
            let random = world::draw(Random::fork);
            world::spawn(self.engine.get(), "knobs", move || {
                stage.turn_knobs(&engine, random);
                stage.has_tuner.set(false);
                drop(engine);
                world::wake(CALLERS);
            });
        }
        while self.callers.get() > 0 || self.has_tuner.get() {
            world::block(CALLERS, None);
        }
        self.shared.take();
        self.get_well();
        let has_failed = self.may_fail() && self.has_failed(&shared);
        let ended = engine.shutdown(PATIENCE);
        let is_of_flush = ended.as_ref().is_err_and(|error| error.kind() == ErrorKind::Poisoned);
        assert!(
            ended.is_ok() || has_failed || is_of_flush && self.may_fail(),
            "contract 5: the engine could not write everything: {ended:?}"
        );
        if is_of_flush {
            self.heard.add(ErrorKind::Poisoned);
        }
        self.check_ended(&shared);
        count(&shared.stats());
        drop(engine);
        self.is_over.set(true);
        world::wake(ENGINE);
    }

    /// Returns whether a close that is in progress fails, because a page could not be written
    /// before the device got well. It ends when the other pages are written.
    fn has_failed(&self, shared: &Shared) -> bool {
        // The engine knows by then of every request that failed.
        world::sleep(Duration::from_millis(1));
        shared.table().inodes().iter().any(|inode| inode.lock().cache.failing_pages() > 0)
    }
}

/// Counts places by the engine's own counters.
fn count(stats: &Stats) {
    for (name, count) in [
        ("merged", stats.merged_bios),
        ("resubmitted", stats.resubmitted),
        ("rewritten", stats.rewrites),
        ("throttled", stats.throttle_waits),
        ("handed over", stats.handovers),
        ("reserved", stats.reserved_bytes),
        ("evicted", stats.evicted_pages),
        ("zeroes written", stats.zero_bytes),
        ("clean pages written", stats.clean_bytes),
        ("completions held", stats.completion_holds),
        ("plug held", stats.plug_holds),
        ("plugged", stats.plugged),
        ("bounced", stats.bounced),
        ("logged syncs", stats.logged_syncs),
        ("log batches", stats.log_batches),
        ("files emptied", stats.emptied_files),
    ] {
        marks::add(name, count);
    }
}
