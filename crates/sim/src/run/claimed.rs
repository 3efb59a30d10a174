//! An append past the cache, beside an open that takes the lease of the file again.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::PATIENCE;
use crate::marks::{self, Marks};
use crate::plan::Plan;
use crate::random::Random;
use crate::run::engine::{OVER, run_program};
use crate::run::how;
use crate::trace::Tracing;
use crate::world::machine::{self, MachinePlan, VolumePlan};
use crate::world::others::{OpenAs, Program};
use crate::world::{self, Failure, Settings};

/// Files of a run.
const ROUNDS: u64 = 8;

/// Runs the appends of a seed.
///
/// # Errors
/// If contract 6 is broken.
pub fn run(seed: u64, tracing: Tracing) -> Result<Marks, Failure> {
    let settings = Settings { tracing, ..Settings::swarm(seed) };
    world::run(settings, move || play(seed)).map(|(marks, _)| marks)
}

fn play(seed: u64) -> Marks {
    let mut random = Random::new(seed ^ 0x636c_6169);
    let machine = MachinePlan::calm(vec![VolumePlan::ext4()]);
    let plan = Plan { machine, is_survived: false, ..Plan::calm(seed) };
    machine::install(plan.machine.clone());
    run_program(plan, move |_, engine, process| {
        for round in 0..ROUNDS {
            let path = format!("/log{round}");
            let file = Rc::new(engine.open(&path, &how::create_new()).expect("it is new"));
            // From now on the file is shared, although no other program has it.
            drop(Program::open(&path, OpenAs::WRITER).expect("the lease is released"));
            let (appends, is_done) = (Rc::clone(&file), Rc::new(Cell::new(false)));
            let (done, pause) = (Rc::clone(&is_done), random.below(5) * random.below(20));
            world::spawn(process, "other", move || {
                world::sleep(Duration::from_micros(pause));
                appends.append(b"first;").expect("a calm machine");
                drop(appends);
                done.set(true);
                world::wake(OVER);
            });
            let again = engine.open(&path, &how::write()).expect("a calm machine");
            let is_shared = again.describe().contains("shared");
            marks::hit(if is_shared { "still shared" } else { "leased again" });
            while !is_done.get() {
                world::block(OVER, None);
            }
            again.append(b"second;").expect("a calm machine");
            again.sync_data().expect("a calm machine");
            let found = machine::stored(&path, |stored| stored.read(0, stored.size()));
            let found = String::from_utf8_lossy(&found);
            assert_eq!(found, "first;second;", "contract 6: {path} after both appends");
            again.close().expect("a calm machine");
        }
        engine.shutdown(PATIENCE).expect("a calm machine");
    });
    marks::take()
}
