//! Result of a keeper: in the arena for an adopting program, in its log, and in a file if data is
//! not written.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use forebay_uring::Arena;

use super::devices::Hung;
use super::image;
use super::log::Log;
use crate::core::recovery::finish::{Done, places};
use crate::core::recovery::{Refused, note_done};

/// Sources and destinations of the result.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) arena: Arc<Arena>,
    pub(crate) log: Arc<Log>,
    /// Process id of the dead program.
    pub(crate) process: u32,
    /// Directory for unwritten data.
    pub(crate) save_to: Option<PathBuf>,
    /// Start of the work.
    pub(crate) start: Instant,
}

impl Report {
    /// Logs the files that were not touched.
    pub(crate) fn report_refused(&self, refused: &[Refused]) {
        for Refused { path, bytes, ranges, error, .. } in refused {
            let (path, places) = (path.display(), places(ranges));
            self.log.say(format_args!("{path}: {bytes} bytes are not written: {error}{places}"));
        }
    }

    /// Logs the files on hung devices.
    pub(crate) fn report_hung(&self, hung: &Hung<'_>) {
        self.log.say(format_args!("a device hangs: no call has returned for {:?}", hung.time));
        for path in &hung.files {
            self.log
                .say(format_args!("{}: it is unknown how much of it is written", path.display()));
        }
    }

    /// Logs the results of files, and marks finished ones in the arena.
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
                "process {process} is gone; wrote {bytes} bytes to {files} files, \
                 and synced them, in {} ms",
                self.start.elapsed().as_millis()
            ));
        }
    }

    /// Saves the arena if a directory is given, and logs that. Returns the path of the image.
    pub(crate) fn save(&self) -> Option<PathBuf> {
        let directory = self.save_to.as_ref()?;
        match image::save(&self.arena, directory, self.process) {
            Ok(path) => {
                self.log.say(format_args!("saved to {0}: forebay recover {0}", path.display()));
                Some(path)
            }
            Err(error) => {
                self.log.say(format_args!("could not save to {}: {error}", directory.display()));
                None
            }
        }
    }
}
