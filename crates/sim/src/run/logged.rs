//! The intent log of a run: how an engine opens it, and the recovery after a death or a loss of
//! power.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use crate::core::base::{LogUse, OpenLog};
use crate::core::error::ErrorKind;
use crate::core::intent_log::recover::{self, Ask, Fate, Recovery};
use crate::core::logged;
use crate::marks;
use crate::random::{PerMille, Random};
use crate::run::recovery::{SAVED, saved};
use crate::run::stage::Stage;
use crate::stored::Keep;
use crate::world::{self, Reason, machine};

/// Directory of the log. Its files lie there, and those of other file systems in directories of it.
const DIRECTORY: &str = "/";

/// The log of a run.
pub(super) const LOG: &str = "/.forebay-log";

/// Attempts until the device gets well.
const TRIES: usize = 20;

/// The end of a recovery.
const RECOVERY: Reason = Reason { what: "end of the recovery", number: 0 };

/// Opens the log of a run, which is made if it is missing, and recovers it. Called by a task of the
/// engine's process.
pub(super) fn open(blocks: u64) -> OpenLog {
    let directory = Path::new(DIRECTORY);
    let mut failures = 0;
    loop {
        match logged::open::open(directory, blocks, LogUse::Always, &[]) {
            Ok(opened) => return opened,
            Err(error) => {
                world::trace(format_args!("the log cannot be opened: {error}"));
                failures += 1;
                if failures > TRIES {
                    machine::set_faults(machine::faults().passing());
                    machine::set_space_pages(0, u64::MAX / 2);
                    mend();
                }
                assert!(failures < 10 * TRIES, "the log cannot be opened: {error}");
            }
        }
        crate::platform::thread::sleep(Duration::from_millis(10));
    }
}

/// Makes all blocks of the log writable again.
fn mend() {
    machine::set_bad_if_there(LOG, 0..0);
}

/// The reason of the only fate of records that are not put back. Their acknowledged bytes are
/// saved.
const NOT_WRITTEN: &str = "its engine could not write it";

fn note(stage: &Stage, recovery: &Recovery) {
    for file in &recovery.files {
        if let Fate::Skipped { reason, saved } = &file.fate {
            assert!(
                reason.starts_with(NOT_WRITTEN) && saved.is_some(),
                "contract 23: acknowledged bytes are not put back: {file:?}"
            );
            marks::hit("only saved");
            let path = Path::new(DIRECTORY).join(&file.path);
            let mut model = stage.model.borrow_mut();
            let of_file = model.files.iter_mut().find(|of_file| of_file.path == path);
            of_file.expect("a file of the run").ledger.forsake();
        }
        if file.bytes > 0 && matches!(file.fate, Fate::InPlace) {
            marks::hit("replayed");
            marks::add("bytes replayed", file.bytes);
        }
    }
}

impl Stage {
    /// Recovers the log after a death or a loss of power, as the next engine or a command does. The
    /// power may be cut meanwhile. Returns whether it was.
    pub(super) fn recover(self: &Rc<Self>, random: &mut Random) -> bool {
        if self.plan.log_blocks.is_none() {
            return false;
        }
        let mut is_cut = false;
        self.kill_visitors();
        if machine::identity(SAVED).is_none() {
            machine::make_directory(SAVED);
        }
        let copies = self.saved_copies();
        while random.happens(PerMille(400)) {
            // Interrupted somewhere.
            let (process, is_done) = self.begin_recovery();
            for _ in 0..random.below(60) {
                if is_done.get() {
                    break;
                }
                world::sleep(Duration::from_micros(random.below(200)));
            }
            let keep = *random.pick(&[Keep::Nothing, Keep::Everything, Keep::Some, Keep::Some]);
            machine::kill(process);
            let found = machine::survivors(keep, &mut self.crashes.borrow_mut());
            machine::cut_power(found);
            self.hit("recovery cut");
            is_cut = true;
        }
        let (_, is_done) = self.begin_recovery();
        while !is_done.get() {
            world::block(RECOVERY, None);
        }
        // Also by one that was cut.
        let later = self.saved_copies();
        let mut model = self.model.borrow_mut();
        for (file, (before, now)) in model.files.iter_mut().zip(copies.into_iter().zip(later)) {
            file.saved = now.filter(|now| before.as_ref() != Some(now));
        }
        is_cut
    }

    /// Returns the newest saved copy of each file.
    fn saved_copies(&self) -> Vec<Option<PathBuf>> {
        self.model.borrow().files.iter().map(|file| saved::newest(&file.path)).collect()
    }

    fn begin_recovery(self: &Rc<Self>) -> (world::Process, Rc<Cell<bool>>) {
        let process = world::new_process("recovery");
        let is_done = Rc::new(Cell::new(false));
        let (done, stage) = (Rc::clone(&is_done), Rc::clone(self));
        world::spawn(process, "recovery", move || {
            let mut tries = 0;
            let ask = Ask { save: Some(SAVED.into()), ..Ask::default() };
            loop {
                match recover::recover(Path::new(DIRECTORY), &ask) {
                    Ok(recovery) => {
                        note(&stage, &recovery);
                        if recovery.is_empty {
                            break;
                        }
                        world::trace(format_args!("the log is not empty: {recovery:?}"));
                    }
                    // It was never made, or its making was interrupted.
                    Err(error) if error.kind() == ErrorKind::NotFound => break,
                    Err(error) => world::trace(format_args!("no recovery: {error}")),
                }
                tries += 1;
                if tries > TRIES {
                    stage.get_well();
                    mend();
                }
                assert!(tries < 10 * TRIES, "the log cannot be recovered");
                crate::platform::thread::sleep(Duration::from_millis(10));
            }
            done.set(true);
            world::wake(RECOVERY);
        });
        (process, is_done)
    }
}
