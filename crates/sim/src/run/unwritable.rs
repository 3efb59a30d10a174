//! A file of an intent log whose writes all fail. The mark of the file can be written, or cannot
//! either.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use forebay_block::Moment;
use forebay_cache::limits::PAGE;
use forebay_log::HEADS;

use super::engine::run_program;
use super::how;
use super::logged::LOG;
use crate::core::engine::Engine;
use crate::core::error::ErrorKind;
use crate::core::file::File;
use crate::faults::Faults;
use crate::plan::Plan;
use crate::random::{PerMille, Random};
use crate::stored::{Keep, bytes_of};
use crate::world::machine::{self, MachinePlan, VolumePlan};
use crate::world::others::{OpenAs, Program};
use crate::world::{self, Settings};

pub(super) const PATH: &str = "/file";

/// Blocks of the ring.
const BLOCKS: u64 = 40;

/// Time between two syncs: the promise of the log ends meanwhile, and that of the mark.
const PAUSE: Duration = Duration::from_secs(50);

/// The part of the file system that cannot be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unwritable {
    /// The intent log.
    Log,
    /// The intent log, and the marks of its files.
    LogAndMarks,
}

/// A sync after the log has become unwritable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sync {
    /// Its error.
    pub error: Option<ErrorKind>,
    /// Its time.
    pub took: Duration,
    /// Whether a loss of power after it leaves all bytes that were written before.
    pub is_durable: bool,
}

/// Syncs a file again and again. After the first sync that is a record, the log cannot be written.
///
/// # Panics
/// If no sync is a record, or a write fails.
#[must_use]
pub fn syncs(what: Unwritable) -> Vec<Sync> {
    with_a_record(3, move |engine, file| {
        machine::set_bad(LOG, 0..HEADS + BLOCKS);
        if what == Unwritable::LogAndMarks {
            machine::set_attributes(0, false);
        }
        let syncs = (4..9).map(|byte| {
            write(&file, byte);
            let begin = world::now();
            let error = file.sync_data().err().map(|error| error.kind());
            let took = since(begin);
            let is_durable = error.is_none() && is_durable(byte);
            world::sleep(PAUSE);
            Sync { error, took, is_durable }
        });
        let syncs = syncs.collect();
        let _ = file.close();
        let _ = engine.shutdown(PAUSE);
        syncs
    })
}

/// Returns how long another program waits for a file with a record if every flush of its file
/// system fails.
///
/// # Panics
/// If no sync is a record.
#[must_use]
pub fn wait_for_lease() -> Duration {
    with_a_record(3, |engine, file| {
        let calm = machine::faults();
        machine::set_faults(Faults { flush: PerMille(1000), ..calm });
        let waited = Rc::new(Cell::new(None));
        let found = Rc::clone(&waited);
        let begin = world::now();
        world::spawn(world::new_process("visitor"), "visitor", move || {
            let program = Program::open(Path::new(PATH), OpenAs::WRITER).expect("it waits");
            found.set(Some(since(begin)));
            drop(program);
        });
        while waited.get().is_none() {
            world::sleep(Duration::from_millis(1));
        }
        machine::set_faults(calm);
        let _ = file.close();
        let _ = engine.shutdown(PAUSE);
        waited.get().expect("the loop ends with it")
    })
}

/// Runs a program with a file that has a record in the log.
pub(super) fn with_a_record<T: 'static>(
    seed: u64,
    program: impl FnOnce(&Engine, File) -> T + 'static,
) -> T {
    let found = Rc::new(Cell::new(None));
    let result = Rc::clone(&found);
    let settings = Settings { leaps: PerMille(0), ..Settings::swarm(seed) };
    let ended = world::run(settings, move || {
        let machine = MachinePlan::calm(vec![VolumePlan::ext4()]);
        let plan = Plan { log_blocks: Some(BLOCKS), is_survived: false, ..Plan::swarm(3) };
        machine::install(machine.clone());
        run_program(Plan { machine, ..plan }, move |_, engine, _| {
            let file = engine.open(PATH, &how::create()).expect("a calm machine");
            for byte in 1..4 {
                // The mark comes after the first sync.
                write(&file, byte);
                file.sync_data().expect("a calm machine");
                world::sleep(Duration::from_secs(1));
            }
            assert!(engine.stats().logged_syncs > 0, "no sync was logged");
            result.set(Some(program(engine, file)));
        });
    });
    ended.unwrap_or_else(|failure| panic!("{failure}"));
    found.take().expect("the program has ended")
}

fn since(begin: Moment) -> Duration {
    Duration::from_nanos(world::now().nanoseconds_since(begin))
}

fn write(file: &File, byte: u8) {
    file.write_at(&[byte; PAGE as usize], 0).expect("memory is free");
}

/// Returns whether the file has this byte everywhere after a loss of power and a recovery.
fn is_durable(byte: u8) -> bool {
    let mut found = machine::survivors(Keep::Nothing, &mut Random::new(1));
    found.replay(LOG);
    let found = found.at(PATH);
    let is_whole = |sector| bytes_of(sector).iter().all(|found| *found == byte);
    found.size == PAGE && found.sectors.iter().all(is_whole)
}
