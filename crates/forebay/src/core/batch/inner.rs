//! The state of a batch that its files share: directories and steps.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use super::flushing::Flushing;
use super::place::{Place, Places};
use super::{Step, absolute};
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::shared::Shared;
use crate::core::wait;
use crate::platform::files;
use crate::platform::sync::Mutex;

/// State that a batch shares with its files.
pub(crate) struct Inner {
    pub(super) shared: Arc<Shared>,
    pub(super) flushing: Arc<Flushing>,
    pub(super) plan: Mutex<Plan>,
}

/// Directories and steps of a batch.
pub(super) struct Plan {
    pub(super) places: Places,
    pub(super) steps: Vec<Step>,
    /// Set at the end of the batch: its files can no longer be written.
    pub(super) is_over: bool,
}

impl Inner {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        let limit = files::descriptor_limit();
        let plan = Plan { places: Places::new(limit), steps: Vec::new(), is_over: false };
        Self {
            shared: Arc::clone(shared),
            flushing: Arc::new(Flushing::new(shared, limit)),
            plan: Mutex::new(plan),
        }
    }

    /// Checks whether the batch may be changed on this thread.
    pub(super) fn may_change(&self) -> Result<()> {
        self.shared.check()?;
        wait::may_block()
    }

    /// Returns the directory and the name of a path.
    pub(super) fn locate(&self, path: &Path) -> Result<(Arc<Place>, OsString)> {
        self.may_change()?;
        let absolute = absolute(path)?;
        let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
            let what = "the path does not end in the name of a file";
            return Err(Error::new(ErrorKind::InvalidInput, what).at_path(path));
        };
        let known = self.plan.lock().places.known(parent);
        let place = match known {
            Some(place) => place,
            None => self.open_place(parent).map_err(|error| error.at_path(path))?,
        };
        Ok((place, name.to_owned()))
    }

    /// Opens a directory. No lock is held meanwhile, so another thread may open it, too.
    fn open_place(&self, path: &Path) -> Result<Arc<Place>> {
        let opened = Place::open(path);
        let opened =
            opened.map_err(|error| Error::at_open("could not open the directory", path, error))?;
        self.plan.lock().places.enter(path, opened)
    }

    /// Returns the directory of temporary names for files of `place`.
    pub(super) fn home(&self, place: &Arc<Place>) -> Arc<Place> {
        self.plan.lock().places.home(place)
    }

    pub(super) fn add(&self, step: Step) -> Result<usize> {
        let mut plan = self.plan.lock();
        if plan.is_over {
            return Err(over());
        }
        plan.steps.push(step);
        Ok(plan.steps.len() - 1)
    }

    /// Checks that the batch was neither committed nor dropped.
    pub(super) fn goes_on(&self) -> Result<()> {
        if self.plan.lock().is_over { Err(over()) } else { Ok(()) }
    }

    /// Notes that a file is complete.
    pub(super) fn finished(&self, step: usize) -> Result<()> {
        match self.plan.lock().steps.get_mut(step) {
            Some(Step::Publish { is_finished, .. }) => {
                assert!(!*is_finished, "two writers would end the same file");
                *is_finished = true;
                Ok(())
            }
            _ => Err(over()),
        }
    }

    /// Ends the batch for its files, and returns its steps and directories.
    pub(super) fn close(&self) -> (Vec<Step>, Vec<Arc<Place>>) {
        let mut plan = self.plan.lock();
        plan.is_over = true;
        (std::mem::take(&mut plan.steps), plan.places.take())
    }

    /// Ends a batch that was not committed. A child made by `fork` leaves it to its parent.
    pub(super) fn end(&self) {
        if !self.shared.is_parent() {
            return;
        }
        let (steps, places) = self.close();
        self.flushing.give_up();
        undo(steps.iter(), places);
    }
}

/// Error of a call on a file of a batch that has ended.
fn over() -> Error {
    Error::new(ErrorKind::InvalidInput, "the batch has ended")
}

/// Removes the temporary files of steps that were not done, the lock files, and the directories
/// that were made and are empty.
pub(super) fn undo<'a>(
    steps: impl DoubleEndedIterator<Item = &'a Step> + Clone,
    places: impl IntoIterator<Item = Arc<Place>>,
) {
    for step in steps.clone() {
        if let Step::Publish { home, number, .. } = step {
            home.remove_temporary(*number);
        }
    }
    places.into_iter().for_each(|place| place.unlock());
    for step in steps.rev() {
        if let Step::Made { at, name } = step {
            // Other programs may have put files there.
            let _ = at.remove_directory(name);
        }
    }
}
