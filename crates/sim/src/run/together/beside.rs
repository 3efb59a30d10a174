//! A sync of a set beside a sync of one of its files, while syncs of directories fail.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::PATIENCE;
use crate::core::sync::together::sync;
use crate::core::wait;
use crate::faults::{Faults, Latency};
use crate::marks::{self, Marks};
use crate::plan::Plan;
use crate::random::{PerMille, Random};
use crate::run::engine::{OVER, run_program};
use crate::run::how;
use crate::stored::Keep;
use crate::trace::Tracing;
use crate::world::{self, Failure, Settings, machine};

/// Sets of a run.
const ROUNDS: u64 = 8;

/// Runs the syncs of a seed.
///
/// # Errors
/// If contract 1 or 19 is broken.
pub fn run(seed: u64, tracing: Tracing) -> Result<Marks, Failure> {
    // A request may end before a task that could run goes on.
    let settings = Settings { tracing, leaps: PerMille(500), ..Settings::swarm(seed) };
    world::run(settings, move || play(seed)).map(|(marks, _)| marks)
}

fn play(seed: u64) -> Marks {
    let mut random = Random::new(seed ^ 0x6265_7369);
    let age = Duration::from_secs(3600);
    let plan =
        Plan { frames: 320, dirty_pages: 280, age, is_survived: false, ..Plan::passing(seed) };
    machine::install(plan.machine.clone());
    // Requests that begin together end together.
    let time = Duration::from_micros(50);
    machine::set_latency(Latency { least: time, most: time });
    run_program(plan, move |_, engine, process| {
        let faults = machine::faults();
        for round in 0..ROUNDS {
            let paths = [format!("/one{round}"), format!("/two{round}")];
            let [one, two] = paths.each_ref().map(|path| {
                let file = engine.open(path, &how::create_new()).expect("it is new");
                file.write_at(&[7; 700], 0).expect("a calm machine");
                Rc::new(file)
            });
            machine::set_faults(Faults { flush_directory: PerMille(500), ..faults });
            let (of_other, its_result) = (Rc::clone(&one), Rc::new(RefCell::new(None)));
            let (result, pause) = (Rc::clone(&its_result), random.below(5) * random.below(20));
            world::spawn(process, "other", move || {
                world::sleep(Duration::from_micros(pause));
                *result.borrow_mut() = Some(of_other.sync_data());
                world::wake(OVER);
            });
            let of_set = wait::drive(sync(&engine.owner.shared, &[&*one, &two]));
            while its_result.borrow().is_none() {
                world::block(OVER, None);
            }
            machine::set_faults(faults);
            let alone = its_result.take().expect("it has ended");
            marks::hit(if alone.is_ok() { "synced alone" } else { "failed alone" });
            let results = [vec![&alone, &of_set[0]], vec![&of_set[1]]];
            for (path, results) in paths.iter().zip(results) {
                let found = machine::survivors(Keep::Nothing, &mut random).at(path);
                let is_ok = results.iter().any(|result| result.is_ok());
                assert!(
                    found.exists || !is_ok,
                    "contract 1: {path} has no name, after {results:?}"
                );
                marks::hit(if is_ok { "synced" } else { "sync failed" });
            }
            let files = [one, two].into_iter();
            files.for_each(|file| drop(Rc::into_inner(file).map(crate::core::file::File::close)));
        }
        let _ = engine.shutdown(PATIENCE);
    });
    marks::take()
}
