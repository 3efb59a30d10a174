//! Completed writes that the engine holds (`completion=delay`), and callers that begin to wait for
//! them.

use std::time::Duration;

use forebay_block::knobs::{Holding, Knobs};
use forebay_block::limits::HOLD_MAX;
use forebay_cache::limits::PAGE;

use super::PATIENCE;
use super::alone::{OnError, alone, alone_with_errors};
use super::stage::Heard;
use crate::core::options::{Measuring, Options};
use crate::faults::Faults;
use crate::random::PerMille;
use crate::run::how;
use crate::world;
use crate::world::machine::{self, MachinePlan};
use crate::world::others::{OpenAs, Program};

/// Pages are written once they are this old.
const AGE: Duration = Duration::from_millis(10);

/// By then they are at the device, and held.
const LATER: Duration = Duration::from_millis(30);

const PAGES: u64 = 16;

/// An act of a program while writes of its file are held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// Nothing until the hold is over.
    Waits,
    /// Writes other pages.
    Writes,
    /// Reads a held page, which is in memory.
    Reads,
    /// Syncs the file.
    Syncs,
    /// Closes the file.
    Closes,
    /// Shuts the engine down.
    ShutsDown,
    /// Another program opens the file, which breaks the lease.
    Visits,
}

/// How long something took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Took {
    /// The act.
    pub act: Duration,
    /// From the first completed write to the end of the hold.
    pub hold: Duration,
}

fn settings(holding: Holding) -> Options {
    let queue = Knobs { holding, ..Knobs::default() };
    Options {
        dirty_age: AGE,
        measuring: Measuring { queue, ..Measuring::default() },
        ..Options::default()
    }
}

/// Does `act` while writes are held for as long as the knob allows.
///
/// # Panics
/// If a call fails, or no write is held.
#[must_use]
pub fn beside_a_hold(act: Act) -> Took {
    alone(MachinePlan::default(), 1024, settings(Holding::Delay(HOLD_MAX)), move |engine| {
        let file = engine.open("/file", &how::create()).expect("a calm machine");
        file.write_at(&[1; 4 * PAGE as usize], PAGES * PAGE).expect("a calm machine");
        file.sync_data().expect("a calm machine");
        let before = engine.stats();
        for page in 0..PAGES / 2 {
            file.write_at(&[2; PAGE as usize], 2 * page * PAGE).expect("a calm machine");
        }
        world::sleep(LATER);
        assert_eq!(machine::in_flight(), 0, "the writes are completed");
        assert_eq!(machine::stored("/file", |stored| stored.read(0, 1)), [2], "and at the device");
        assert_eq!(engine.stats().completion_holds, before.completion_holds, "they are held");
        let start = world::now();
        let file = match act {
            Act::Waits => Some(file),
            Act::Writes => {
                file.write_at(&[3; PAGE as usize], PAGE).expect("a calm machine");
                file.write_at(&[3; PAGE as usize], 0).expect("a calm machine");
                Some(file)
            }
            Act::Reads => {
                file.read_at(&mut [0], 0).expect("a calm machine");
                Some(file)
            }
            Act::Syncs => {
                file.sync_data().expect("a calm machine");
                Some(file)
            }
            Act::Closes => {
                file.close().expect("a calm machine");
                None
            }
            Act::ShutsDown => {
                engine.shutdown(PATIENCE).expect("a calm machine");
                Some(file)
            }
            Act::Visits => {
                drop(Program::open("/file", OpenAs::WRITER).expect("a calm machine"));
                Some(file)
            }
        };
        let took = Duration::from_nanos(world::now().nanoseconds_since(start));
        world::sleep(2 * HOLD_MAX);
        let after = engine.stats();
        drop(file);
        let holds = after.completion_holds - before.completion_holds;
        assert!(holds > 0, "a hold has ended");
        let held = after.completion_held_us - before.completion_held_us;
        Took { act: took, hold: Duration::from_micros(held / holds) }
    })
}

/// Fails the writes of a file in the background, and syncs it three times without faults. Returns
/// which syncs fail, and the number of errors that the engine reports besides.
///
/// # Panics
/// If another call fails.
#[must_use]
pub fn syncs_after_failed_writes(holding: Holding) -> (Vec<bool>, usize) {
    let heard = Heard::default();
    let hears = heard.clone();
    let on_error: OnError = Box::new(move |error| hears.add(error.kind()));
    let plan = MachinePlan::default();
    let failed = alone_with_errors(plan, 1024, settings(holding), on_error, |engine| {
        let file = engine.open("/file", &how::create()).expect("a calm machine");
        machine::set_faults(Faults { write: PerMille(1000), ..Faults::NONE });
        file.write_at(&[1; 4 * PAGE as usize], 0).expect("a calm machine");
        world::sleep(LATER);
        machine::set_faults(Faults::NONE);
        (0..3).map(|_| file.sync_data().is_err()).collect()
    });
    (failed, heard.count())
}
