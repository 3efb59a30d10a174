//! How far a keeper has come with each device, to be looked at from another thread: where a device
//! hangs, no call comes back that could tell.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::core::recovery::finish::Done;
use crate::platform::sync::Mutex;

/// How far.
#[derive(Debug)]
pub(crate) struct Progress(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Devices with which it is not done. Under no device: what comes before any of them.
    waiting: BTreeMap<Option<u64>, Waiting>,
    /// What became of the files of the others.
    done: BTreeMap<u32, Done>,
}

/// A device that is worked with.
#[derive(Debug)]
struct Waiting {
    /// When a call last came back.
    last: Instant,
    files: Vec<PathBuf>,
}

/// What is known where nothing comes back any more.
#[derive(Debug)]
pub(crate) struct Hung<'a> {
    /// For so long.
    pub(crate) time: Duration,
    /// Files of devices that hang.
    pub(crate) files: Vec<&'a PathBuf>,
    /// What became of the others, by their numbers.
    pub(crate) done: BTreeMap<u32, Done>,
}

impl Progress {
    /// Nothing is begun.
    pub(crate) fn new() -> Self {
        let begun = Waiting { last: Instant::now(), files: Vec::new() };
        Self(Mutex::new(State { waiting: BTreeMap::from([(None, begun)]), done: BTreeMap::new() }))
    }

    /// From now on it is these devices, with these files, that are worked with.
    pub(super) fn begin(&self, devices: impl Iterator<Item = (u64, Vec<PathBuf>)>) {
        let last = Instant::now();
        let waiting =
            devices.map(|(device, files)| (Some(device), Waiting { last, files })).collect();
        self.0.lock().waiting = waiting;
    }

    /// A call has come back, well or not.
    pub(super) fn came_back(&self, device: u64) {
        if let Some(waiting) = self.0.lock().waiting.get_mut(&Some(device)) {
            waiting.last = Instant::now();
        }
    }

    /// A device is done with, well or not.
    pub(super) fn end(&self, device: u64, done: BTreeMap<u32, Done>) {
        let mut state = self.0.lock();
        state.waiting.remove(&Some(device));
        state.done.extend(done);
    }

    /// What became of all files.
    pub(super) fn take_done(&self) -> BTreeMap<u32, Done> {
        std::mem::take(&mut self.0.lock().done)
    }

    /// Does something where nothing came back for so long from any device that is left. Whatever
    /// comes back meanwhile waits for the end of it.
    pub(crate) fn if_hung(&self, patience: Duration, act: impl FnOnce(Hung<'_>)) {
        let mut guard = self.0.lock();
        let state = &mut *guard;
        let time = state.waiting.values().map(|waiting| waiting.last.elapsed()).min();
        if let Some(time) = time.filter(|time| *time > patience) {
            let files = state.waiting.values().flat_map(|waiting| &waiting.files).collect();
            act(Hung { time, files, done: std::mem::take(&mut state.done) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hung(progress: &Progress) -> Option<Vec<PathBuf>> {
        let mut found = None;
        progress.if_hung(Duration::ZERO, |hung| {
            found = Some(hung.files.into_iter().cloned().collect());
        });
        found
    }

    fn pause() {
        std::thread::sleep(Duration::from_millis(1));
    }

    #[test]
    fn it_hangs_when_all_that_is_left_does() {
        let progress = Progress::new();
        pause();
        assert_eq!(hung(&progress), Some(vec![]), "before any device");
        progress.begin([(1, vec!["/1".into()]), (2, vec!["/2".into(), "/3".into()])].into_iter());
        pause();
        let long = Duration::from_secs(600);
        progress.if_hung(long, |hung| panic!("{hung:?}"));
        progress.end(1, BTreeMap::new());
        assert_eq!(hung(&progress), Some(vec!["/2".into(), "/3".into()]));
        progress.end(2, BTreeMap::new());
        pause();
        assert_eq!(hung(&progress), None, "all is done");
    }
}
