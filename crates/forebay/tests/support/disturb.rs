//! Disturbances of a long run: another program opens the files, and the knobs of the engine change.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use forebay::{Engine, Options};
use forebay_block::random::Random;

use super::knobs;
use super::other::Other;

/// Knobs that can change while an engine with the smallest cache runs, with values to choose from.
const KNOBS: [(&str, &[&str]); 12] = [
    ("contexts", &["adaptive", "1", "2", "3", "5"]),
    ("affinity", &["single", "hash", "directory", "group"]),
    ("dirty_bytes", &["4m", "5m", "7m"]),
    ("background_bytes", &["256k", "1m", "4m"]),
    ("dirty_age", &["1ms", "5ms", "50ms", "1s", "3600s"]),
    ("merge", &["on", "off"]),
    ("flight", &["1", "4", "112", "time=100", "time=2000"]),
    ("uncached", &["on", "off"]),
    ("prealloc", &["off", "adaptive", "1m", "64k"]),
    ("plug", &["never", "always", "adaptive"]),
    ("completion", &["immediate", "delay=200"]),
    ("order", &["fifo", "lifo"]),
];

/// Opens of another program.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Opens {
    pub(crate) to_read: u64,
    /// With `O_NONBLOCK`, and refused because the engine held the lease.
    pub(crate) refused: u64,
    pub(crate) at_once: u64,
    pub(crate) to_append: u64,
    /// To read, with a mapping whose pages were all touched.
    pub(crate) mapped: u64,
}

impl std::ops::AddAssign for Opens {
    fn add_assign(&mut self, more: Self) {
        self.to_read += more.to_read;
        self.refused += more.refused;
        self.at_once += more.at_once;
        self.to_append += more.to_append;
        self.mapped += more.mapped;
    }
}

/// Tells the threads that disturb a run that it is over, also if the run panics.
#[derive(Debug)]
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns builder options that differ from seed to seed: a cache that is small, and each backend.
pub(crate) fn engine(random: &mut Random, errors: &'static Mutex<Vec<String>>) -> Engine {
    let cache = [8 << 20, 12 << 20, 32 << 20][random.below(3) as usize];
    let backend = ["auto", "auto", "threads"][random.below(3) as usize];
    Engine::builder(knobs::named(
        Options {
            cache_bytes: Some(cache),
            dirty_bytes: Some(4 << 20),
            close_timeout: Duration::from_secs(60),
            ..Options::default()
        },
        [("backend", backend)],
    ))
    .on_error(move |error| errors.lock().unwrap().push(error.to_string()))
    .build()
    .unwrap()
}

/// Sets random knobs to random values until the run is over. Returns the number of changes.
pub(crate) fn change_knobs(engine: &Engine, mut random: Random, is_over: &AtomicBool) -> u64 {
    let mut changes = 0;
    while !is_over.load(Ordering::Relaxed) {
        let (name, values) = KNOBS[random.below(KNOBS.len() as u64) as usize];
        let value = values[random.below(values.len() as u64) as usize];
        knobs::set(engine, name, value).unwrap_or_else(|error| panic!("{name}={value}: {error}"));
        changes += 1;
        std::thread::sleep(Duration::from_micros(random.below(10_000)));
    }
    changes
}

/// Has another program open the files, one at a time, until the run is over. It writes nothing.
pub(crate) fn open_elsewhere(
    other: &mut Other,
    paths: &[PathBuf],
    mut random: Random,
    is_over: &AtomicBool,
) -> Opens {
    let mut opens = Opens::default();
    while !is_over.load(Ordering::Relaxed) {
        let path = &paths[random.below(paths.len() as u64) as usize];
        let hold = Duration::from_micros(random.below(4) * random.below(4000));
        open_once(other, path, random.below(5), hold, &mut opens);
        std::thread::sleep(Duration::from_micros(random.below(20_000)));
    }
    opens
}

fn open_once(other: &mut Other, path: &Path, how: u64, hold: Duration, opens: &mut Opens) {
    match how {
        0 => {
            other.open("read", path);
            opens.to_read += 1;
        }
        1 => {
            opens.at_once += 1;
            match other.ask(&format!("open read_at_once {}", path.display())).as_str() {
                "done" => {}
                "error 11" => opens.refused += 1,
                answer => panic!("an open with O_NONBLOCK: {answer}"),
            }
        }
        2 => {
            other.open("append", path);
            opens.to_append += 1;
        }
        _ => {
            other.open("read", path);
            other.do_now("map_to_read 262144");
            opens.mapped += 1;
        }
    }
    std::thread::sleep(hold);
    if how > 2 {
        // Again, so that pages are mapped while the engine writes the file. Behind the end of the
        // file there is nothing to map: EFAULT.
        let answer = other.ask("populate");
        assert!(["done", "error 14"].contains(&answer.as_str()), "a mapping: {answer}");
        other.do_now("unmap");
    }
    other.do_now("close");
}

/// Returns the knobs of an engine and their values, for a message about a failure.
pub(crate) fn settings(engine: &Engine) -> String {
    let knobs = engine.options().knobs();
    let settings: Vec<String> =
        knobs.iter().map(|knob| format!("{}={}", knob.name, knob.value)).collect();
    settings.join(" ")
}

/// Returns the result of a thread, or continues its panic.
pub(crate) fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
