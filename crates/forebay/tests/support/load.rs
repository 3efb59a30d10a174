//! A load of every shape of writer on a file system whose power goes in the middle of it, and what
//! must hold after.

use std::panic;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use forebay::intent_log::{self, Ask, Fate};
use forebay::{Builder, Engine, ErrorKind, File, Options};
use forebay_block::random::Random;

use super::faulty::Disk;
use super::history::{History, SHAPES, Shape, Step, Workload};
use super::how;
use super::mount::Mount;
use super::{eventually, within};

/// A device under a mounted file system that can lose its power and get it back.
pub(crate) trait Power {
    /// Where the file system is mounted.
    fn path(&self) -> PathBuf;
    /// The power goes.
    fn cut(&mut self);
    /// The power is back, and the file system mounted again.
    fn reboot(&mut self);
}

impl Power for Mount {
    fn path(&self) -> PathBuf {
        self.path()
    }

    fn cut(&mut self) {
        self.cut_off();
    }

    fn reboot(&mut self) {
        self.reboot();
    }
}

impl Power for Disk {
    fn path(&self) -> PathBuf {
        self.path()
    }

    fn cut(&mut self) {
        self.cut_power();
    }

    fn reboot(&mut self) {
        self.reboot();
    }
}

/// Panics of the engine's own threads: they end no test by themselves.
static ENGINE_PANICS: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn count_engine_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            if name.starts_with("forebay") {
                ENGINE_PANICS.fetch_add(1, Ordering::Relaxed);
            }
            before(info);
        }));
    });
}

pub(crate) fn no_engine_panics() {
    assert_eq!(ENGINE_PANICS.load(Ordering::Relaxed), 0, "an engine's thread panicked");
}

/// How syncs become durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Syncs {
    InPlace,
    /// In an intent log on the same file system.
    Logged,
}

pub(crate) fn engine(errors: &Arc<Mutex<Vec<String>>>) -> Engine {
    builder(errors).build().unwrap()
}

fn builder(errors: &Arc<Mutex<Vec<String>>>) -> Builder {
    let errors = Arc::clone(errors);
    let engine = Engine::builder(Options {
        cache_bytes: Some(32 << 20),
        dirty_bytes: Some(16 << 20),
        background_bytes: Some(4 << 20),
        dirty_age: Duration::from_millis(40),
        close_timeout: Duration::from_secs(10),
        ..Options::default()
    });
    engine.on_error(move |error| errors.lock().unwrap().push(error.to_string()))
}

/// One file that is written until something fails.
struct Writer {
    path: PathBuf,
    shape: Shape,
    seed: u64,
}

/// How a writer ended.
struct Ended {
    path: PathBuf,
    history: History,
    what: String,
    syncs: usize,
}

impl Writer {
    /// Writes until a call fails. From then on every sync must fail, and closing reports the error.
    ///
    /// A sync that returns after the power went is not counted: without power nobody would see it.
    /// (ext4 reports to some of them that its journal is written, if the sync of another file found
    /// the journal aborted first.)
    fn run(self, file: File, power_gone: &AtomicBool, all_syncs: &AtomicUsize) -> Ended {
        let mut history = History::default();
        let mut syncs = 0;
        let mut failed = None;
        // Something was accepted since the last sync that went well.
        let mut owes = false;
        for step in Workload::new(self.seed, self.shape) {
            history.begin(&step);
            match take(&file, &step) {
                Ok(()) if step == Step::Sync && !power_gone.load(Ordering::Acquire) => {
                    history.synced();
                    syncs += 1;
                    owes = false;
                    all_syncs.fetch_add(1, Ordering::Relaxed);
                }
                Ok(()) => owes = step != Step::Sync,
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let failed = failed.expect("a workload has no end");
        assert!(
            matches!(failed.kind(), ErrorKind::Io | ErrorKind::Poisoned),
            "{:?}: {failed}",
            self.shape
        );
        assert!(failed.os_error().is_some(), "without the system's word: {failed}");
        // More is accepted, or refused where too many pages of the device could not be written.
        let more = Step::Write { offset: 0, data: vec![1] };
        if self.shape != Shape::Append {
            history.begin(&more);
            owes |= take(&file, &more).is_ok();
        }
        // Accepted data is dirty or lost, so no sync may succeed.
        let all_failed = file.sync_data().is_err() && file.sync_all().is_err();
        assert!(all_failed || !owes, "a sync on a dead file system went well");
        let start = Instant::now();
        let closed = file.close();
        assert!(closed.is_err() || !owes, "what was accepted could not be written");
        assert!(start.elapsed() < Duration::from_secs(5), "closing took {:?}", start.elapsed());
        Ended {
            path: self.path,
            history,
            what: format!("{:?}, seed {}", self.shape, self.seed),
            syncs,
        }
    }
}

fn take(file: &File, step: &Step) -> forebay::Result<()> {
    match step {
        Step::Write { offset, data } => file.write_at(data, *offset),
        Step::Append { data } => file.append(data).map(drop),
        Step::SetLength(length) => file.set_len(*length),
        Step::Sync => file.sync_data(),
    }
}

/// Cuts the power under load `rounds` times, or `FOREBAY_TEST_CUTS` times if that is set.
pub(crate) fn lose_power_under_load(disk: &mut (impl Power + Sync), syncs: Syncs, rounds: usize) {
    count_engine_panics();
    let rounds = super::number("FOREBAY_TEST_CUTS", rounds);
    let is_logged = syncs == Syncs::Logged;
    let seed = super::seed();
    let mut random = Random::new(seed);
    let (mut synced, mut logged, mut put_back) = (0, 0, PutBack::default());
    for round in 0..rounds {
        let errors = Arc::default();
        let builder = builder(&errors);
        let builder = if is_logged { builder.intent_log_always(disk.path()) } else { builder };
        let engine = builder.build().unwrap();
        let start = Arc::new(Barrier::new(SHAPES.len() + 1));
        let power_gone = Arc::new(AtomicBool::new(false));
        let syncs = Arc::new(AtomicUsize::new(0));
        let writers: Vec<_> = SHAPES
            .into_iter()
            .map(|shape| {
                let path = disk.path().join(format!("{round}-{shape:?}"));
                let writer = Writer { path, shape, seed: random.draw() >> 1 };
                let (engine, start) = (engine.clone(), Arc::clone(&start));
                let (power_gone, syncs) = (Arc::clone(&power_gone), Arc::clone(&syncs));
                std::thread::spawn(move || {
                    let file = engine.open(&writer.path, &how::create_new()).unwrap();
                    start.wait();
                    writer.run(file, &power_gone, &syncs)
                })
            })
            .collect();
        start.wait();
        std::thread::sleep(Duration::from_micros(20_000 + random.below(350_000)));
        // On a busy machine it takes longer until there is something to lose.
        let wanted = random.below(6) as usize;
        assert!(
            eventually(Duration::from_secs(30), || {
                let are_logged = engine.stats().logged_syncs > wanted as u64;
                // In every second round the power may go before the first record.
                let may_go = are_logged || !is_logged || round % 2 == 1;
                syncs.load(Ordering::Relaxed) >= wanted && may_go
            }),
            "no syncs"
        );
        power_gone.store(true, Ordering::Release);
        disk.cut();
        let ended = within(Duration::from_secs(20), "a writer on a dead file system", move || {
            writers.into_iter().map(std::thread::JoinHandle::join).collect::<Vec<_>>()
        });
        let ended: Vec<Ended> = ended
            .into_iter()
            .map(|ended| ended.unwrap_or_else(|panic| panic::resume_unwind(panic)))
            .collect();
        no_engine_panics();
        elsewhere_all_is_well(&engine);
        logged += engine.stats().logged_syncs;
        let ended_well = engine.shutdown(Duration::from_secs(10));
        assert!(ended_well.is_ok() || is_logged, "{ended_well:?}");
        drop(engine);
        disk.reboot();
        if is_logged {
            recover_with_a_cut(disk, &mut random, &mut put_back);
        }
        for Ended { path, history, what, syncs } in ended {
            synced += syncs;
            if !path.exists() {
                assert_eq!(syncs, 0, "round {round}, {what}: synced, and not there");
                continue;
            }
            let found = std::fs::read(&path).unwrap();
            history.check(&found).unwrap_or_else(|wrong| panic!("round {round}, {what}: {wrong}"));
            std::fs::remove_file(&path).unwrap();
        }
    }
    println!("{rounds} losses of power, {synced} syncs before them; {logged} logged, {put_back:?}");
    assert!(synced > rounds, "too few syncs before the power went: {synced}");
    let is_used = logged >= rounds as u64 / 2 && put_back.bytes > 0;
    assert_eq!(is_used, is_logged, "{logged} syncs were logged, {put_back:?}");
}

/// Counts over the recoveries of a series.
#[derive(Debug, Default)]
struct PutBack {
    /// Recoveries that the power ended.
    cut: usize,
    files: usize,
    bytes: u64,
}

/// Recovers the log of a disk. The power goes once more at some moment of that, and the recovery is
/// repeated.
fn recover_with_a_cut(disk: &mut (impl Power + Sync), random: &mut Random, sums: &mut PutBack) {
    let directory = disk.path();
    let recovering = {
        let directory = directory.clone();
        std::thread::spawn(move || intent_log::recover(&directory, &Ask::default()))
    };
    std::thread::sleep(Duration::from_micros(random.below(20_000)));
    disk.cut();
    let first = recovering.join().expect("a recovery does not panic");
    disk.reboot();
    let again = intent_log::recover(&directory, &Ask::default()).unwrap();
    assert!(again.is_empty, "the log keeps records: {again:?}");
    sums.cut += usize::from(first.is_err());
    for file in first.into_iter().chain([again]).flat_map(|recovery| recovery.files) {
        assert!(!matches!(file.fate, Fate::Skipped { .. }), "{file:?}");
        if let Fate::InPlace = file.fate {
            sums.files += 1;
            sums.bytes += file.bytes;
        }
    }
}

pub(crate) fn elsewhere_all_is_well(engine: &Engine) {
    let directory = super::directory();
    let path = directory.path().join("elsewhere");
    let file = engine.open(&path, &how::create()).unwrap();
    file.write_at(&[5; 300_000], 1000).unwrap();
    file.sync_data().unwrap();
    file.close().unwrap();
    assert_eq!(std::fs::read(&path).unwrap().len(), 301_000);
}
