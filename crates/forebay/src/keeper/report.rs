//! What a keeper leaves behind: in the arena, for who takes it over; in its log; and in a file,
//! where something is not written.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use forebay_uring::Arena;

use super::image;
use super::log::Log;
use super::process::Refused;
use super::progress::Hung;
use crate::core::recovery::finish::{Done, places};
use crate::core::recovery::plan::Plan;

/// What it is made of, and where it goes.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) arena: Arc<Arena>,
    pub(crate) log: Arc<Log>,
    /// The program that is gone.
    pub(crate) process: u32,
    /// The directory for what is not written.
    pub(crate) save_to: Option<PathBuf>,
    /// When that began.
    pub(crate) start: Instant,
}

impl Report {
    /// Says which files were not touched.
    pub(crate) fn tell_refused(&self, refused: &[Refused]) {
        for Refused { path, bytes, ranges, error, .. } in refused {
            let (path, places) = (path.display(), places(ranges));
            self.log.say(format_args!("{path}: {bytes} bytes are not written: {error}{places}"));
        }
    }

    /// Says that the rest cannot be waited for.
    pub(crate) fn tell_hung(&self, hung: &Hung<'_>) {
        self.log.say(format_args!("a device hangs: nothing came back for {:?}", hung.time));
        for path in &hung.files {
            self.log.say(format_args!("{}: what of it is written is not known", path.display()));
        }
    }

    /// Says what became of files, here and in the arena.
    pub(crate) fn conclude(&self, done: &BTreeMap<u32, Done>) {
        for (number, Done { path, plan, lost, .. }) in done {
            match lost {
                Some(lost) => self.log.say(format_args!("{}: {lost}", path.display())),
                None => note_done(&self.arena, *number, plan),
            }
        }
        let written: Vec<&Done> =
            done.values().filter(|done| done.lost.is_none() && !done.plan.is_empty()).collect();
        let bytes: u64 = written.iter().map(|done| done.plan.bytes()).sum();
        let (process, files) = (self.process, written.len());
        if files == 0 {
            self.log.say(format_args!("process {process} is gone; wrote nothing"));
        } else {
            self.log.say(format_args!(
                "process {process} is gone; wrote {bytes} bytes to {files} files, and synced them, in {} ms",
                self.start.elapsed().as_millis()
            ));
        }
    }

    /// Saves the arena where that is wanted, and says so.
    pub(crate) fn save(&self) {
        let Some(directory) = &self.save_to else { return };
        match image::save(&self.arena, directory, self.process) {
            Ok(path) => {
                self.log.say(format_args!("saved to {0}: forebay recover {0}", path.display()));
            }
            Err(error) => {
                self.log.say(format_args!("could not save to {}: {error}", directory.display()));
            }
        }
    }
}

/// Says in the arena what is done now: who takes it over, or a saved copy of it, finds nothing owed
/// for the file.
pub(crate) fn note_done(arena: &Arena, number: u32, plan: &Plan) {
    debug_assert!(plan.clean.iter().all(|(_, header)| header.file == number), "of one file");
    plan.spent.iter().for_each(|frame| arena.retire(*frame));
    plan.clean.iter().for_each(|(frame, header)| arena.publish(*frame, *header));
    if let Some(length) = plan.cut {
        arena.set_file_size(number, length);
        arena.set_file_cut(number, None);
    }
}
