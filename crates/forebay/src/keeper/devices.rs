//! Writes out the files of a dead program, with one thread per device, so that a hung device delays
//! no other.

use std::collections::BTreeMap;
use std::time::Duration;

use super::progress::Progress;
use crate::core::recovery::finish::{Done, Job, Rings, finish_device};
use crate::platform::Arena;
use crate::platform::sync::Mutex;

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
