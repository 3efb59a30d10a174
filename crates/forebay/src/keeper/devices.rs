//! The writing of a dead program's files, with one thread per device, so that a hung device delays
//! no other; and the progress with each device, for another thread: on a hung device no call
//! returns that could report it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::core::recovery::finish::{Done, Job, Rings, finish_device};
use crate::platform::Arena;
use crate::platform::sync::Mutex;

/// Progress by device.
#[derive(Debug)]
pub(crate) struct Progress(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Devices that are not finished. The key `None` stands for the time before the first device.
    waiting: BTreeMap<Option<u64>, Waiting>,
    /// Results for the files of finished devices, by number.
    done: BTreeMap<u32, Done>,
}

/// A device that is not finished.
#[derive(Debug)]
struct Waiting {
    /// Time when a call last returned.
    last: Instant,
    files: Vec<PathBuf>,
}

/// State of the work when no call has returned for too long.
#[derive(Debug)]
pub(crate) struct Hung<'a> {
    /// Time since a call last returned.
    pub(crate) time: Duration,
    /// Files on hung devices.
    pub(crate) files: Vec<&'a PathBuf>,
    /// Results for the other files, by number.
    pub(crate) done: BTreeMap<u32, Done>,
}

impl Progress {
    /// Starts before the first device.
    pub(crate) fn new() -> Self {
        let begun = Waiting { last: Instant::now(), files: Vec::new() };
        Self(Mutex::new(State { waiting: BTreeMap::from([(None, begun)]), done: BTreeMap::new() }))
    }

    /// Sets the devices to work on, with their files.
    fn begin(&self, devices: impl Iterator<Item = (u64, Vec<PathBuf>)>) {
        let last = Instant::now();
        let waiting =
            devices.map(|(device, files)| (Some(device), Waiting { last, files })).collect();
        self.0.lock().waiting = waiting;
    }

    /// Notes that a call has returned, with or without success.
    fn came_back(&self, device: u64) {
        if let Some(waiting) = self.0.lock().waiting.get_mut(&Some(device)) {
            waiting.last = Instant::now();
        }
    }

    /// Notes that a device is finished, with or without success.
    fn end(&self, device: u64, done: BTreeMap<u32, Done>) {
        let mut state = self.0.lock();
        state.waiting.remove(&Some(device));
        state.done.extend(done);
    }

    /// Removes and returns the results of all files.
    fn take_done(&self) -> BTreeMap<u32, Done> {
        std::mem::take(&mut self.0.lock().done)
    }

    /// Calls `act` if no call has returned from any unfinished device for longer than `patience`.
    /// Calls that return meanwhile wait for its end.
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

/// Finishes all files, or as many as possible before `patience` is over. Returns the results by
/// file number.
pub(crate) fn finish(
    arena: &Arena,
    jobs: BTreeMap<u32, Job>,
    rings: Rings,
    patience: Duration,
    progress: &Progress,
) -> BTreeMap<u32, Done> {
    let mut devices: BTreeMap<u64, BTreeMap<u32, Job>> = BTreeMap::new();
    for (number, job) in jobs {
        devices.entry(job.device()).or_default().insert(number, job);
    }
    let paths_of =
        |jobs: &BTreeMap<u32, Job>| jobs.values().map(|job| job.path().to_owned()).collect();
    progress.begin(devices.iter().map(|(device, jobs)| (*device, paths_of(jobs))));
    let others = devices.len().saturating_sub(1);
    let devices = Mutex::new(devices);
    let work = || {
        // The lock is released before the work.
        let next = || devices.lock().pop_first();
        while let Some((device, jobs)) = next() {
            let done = finish_device(arena, jobs, rings, patience, &|| progress.came_back(device));
            progress.end(device, done);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..others {
            // Without its thread, a device waits for others.
            let _ =
                std::thread::Builder::new().name("forebay-device".into()).spawn_scoped(scope, work);
        }
        work();
    });
    progress.take_done()
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
    fn a_hang_is_reported_if_all_unfinished_devices_hang() {
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
