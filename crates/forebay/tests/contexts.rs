//! Several writeback contexts: files are spread among them, and go from one to another while they
//! are written, read and synced. Nothing is lost, and nobody waits long.

mod support;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use forebay::{Engine, ErrorKind, File, Options};
use forebay_block::random::Random;
use support::{MIB, assert_on_disk, how, kind_of, knobs, pattern};

const AFFINITIES: [&str; 4] = ["single", "hash", "directory", "group"];

fn engine(contexts: &str, affinity: &str) -> Engine {
    Engine::start(knobs::named(
        Options {
            cache_bytes: Some(16 << 20),
            dirty_bytes: Some(6 << 20),
            background_bytes: Some(2 << 20),
            ..Options::default()
        },
        [("contexts", contexts), ("affinity", affinity)],
    ))
    .unwrap()
}

/// A file, and its expected content.
struct Twin {
    path: PathBuf,
    file: File,
    bytes: Vec<u8>,
}

impl Twin {
    fn new(engine: &Engine, path: PathBuf, length: u64) -> Self {
        let file = engine.open(&path, &how::create_new()).unwrap();
        file.set_len(length).unwrap();
        Self { path, file, bytes: vec![0; length as usize] }
    }

    fn write(&mut self, random: &mut Random) {
        let most = if random.below(8) == 0 { 300_000 } else { 5_000 };
        let length = 1 + random.below(most);
        let offset = random.below(self.bytes.len() as u64 - length);
        let data = pattern(random.draw(), length as usize);
        self.file.write_at(&data, offset).unwrap();
        self.bytes[offset as usize..][..data.len()].copy_from_slice(&data);
    }

    fn read(&self, random: &mut Random) {
        let length = 1 + random.below(20_000);
        let offset = random.below(self.bytes.len() as u64 - length);
        let mut found = vec![0; length as usize];
        self.file.read_at(&mut found, offset).unwrap();
        assert_eq!(found, self.bytes[offset as usize..][..found.len()]);
    }

    /// Closes it, and looks what is on the disk.
    fn end(self) {
        self.file.close().unwrap();
        assert_on_disk(&self.path, &self.bytes, &self.path.display().to_string());
    }
}

fn twins(engine: &Engine, directory: &Path, count: usize, length: u64) -> Vec<Twin> {
    let twin = |at: usize| {
        let own = directory.join(format!("directory-{}", at % 5));
        std::fs::create_dir_all(&own).unwrap();
        Twin::new(engine, own.join(format!("file-{at}")), length)
    };
    (0..count).map(twin).collect()
}

#[test]
fn files_are_spread_by_every_affinity_and_hold_what_was_written() {
    let directory = support::directory();
    let seed = support::seed();
    for affinity in AFFINITIES {
        let engine = engine("5", affinity);
        let mut random = Random::new(seed);
        let within = directory.path().join(affinity);
        let mut twins = twins(&engine, &within, 12, 2 * MIB);
        for step in 0..600 {
            let at = random.below(12) as usize;
            twins[at].write(&mut random);
            twins[at].read(&mut random);
            if step % 40 == 0 {
                twins[at].file.sync_data().unwrap();
            }
        }
        twins.into_iter().for_each(Twin::end);
        assert_eq!(engine.stats().contexts, 5);
        engine.shutdown(Duration::from_secs(60)).unwrap();
    }
}

/// Writers, readers and syncers on every file, while the number and the affinity change.
#[test]
fn contexts_change_under_load() {
    let directory = support::directory();
    let seed = support::seed();
    let engine = engine("1", "hash");
    let stop = Arc::new(AtomicBool::new(false));
    let start = Arc::new(Barrier::new(4));
    let workers: Vec<_> = (0..3)
        .map(|worker| {
            let mut twins =
                twins(&engine, &directory.path().join(format!("worker-{worker}")), 6, 2 * MIB);
            let engine = engine.clone();
            let (stop, start, mut random) =
                (Arc::clone(&stop), Arc::clone(&start), Random::new(seed + worker));
            thread::spawn(move || {
                start.wait();
                let mut steps = 0;
                while !stop.load(Ordering::Relaxed) {
                    let at = random.below(6) as usize;
                    twins[at].write(&mut random);
                    twins[at].read(&mut random);
                    if random.below(50) == 0 {
                        twins[at].file.sync_data().unwrap();
                    }
                    if random.below(200) == 0 {
                        // Closed and opened again: it is let go of, and enters anew, in between.
                        let twin = &mut twins[at];
                        let again = engine.open(&twin.path, &how::write()).unwrap();
                        std::mem::replace(&mut twin.file, again).close().unwrap();
                    }
                    steps += 1;
                }
                twins.into_iter().for_each(Twin::end);
                steps
            })
        })
        .collect();
    start.wait();
    let mut random = Random::new(seed);
    for change in 0..150 {
        let number = ["1", "8", "2", "adaptive", "3", "5"][change % 6];
        knobs::set(&engine, "contexts", number).unwrap();
        if random.below(4) == 0 {
            knobs::set(&engine, "affinity", AFFINITIES[random.below(4) as usize]).unwrap();
        }
        thread::sleep(Duration::from_millis(random.below(10)));
    }
    stop.store(true, Ordering::Relaxed);
    let steps: u64 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
    let stats = engine.stats();
    println!("{steps} steps, {} handovers", stats.handovers);
    assert!(steps > 0 && stats.handovers > 100, "{stats:?}");
    engine.shutdown(Duration::from_secs(60)).unwrap();
}

/// The number is one until trials find more: an engine without a load has one thread.
#[test]
fn contexts_are_found_from_one_upward() {
    let directory = support::directory();
    let engine =
        Engine::start(Options { cache_bytes: Some(16 << 20), ..Options::default() }).unwrap();
    assert_eq!(
        (knobs::get(&engine, "contexts").as_str(), engine.stats().contexts),
        ("adaptive", 1)
    );
    let mut random = Random::new(support::seed());
    let mut twins = twins(&engine, directory.path(), 6, MIB);
    twins.iter_mut().for_each(|twin| twin.write(&mut random));
    knobs::set(&engine, "contexts", "5").unwrap();
    assert_eq!(engine.stats().contexts, 5);
    twins.iter_mut().for_each(|twin| twin.write(&mut random));
    knobs::set(&engine, "contexts", "adaptive").unwrap();
    assert_eq!(engine.stats().contexts, 1, "the search begins anew");
    twins.iter_mut().for_each(|twin| twin.write(&mut random));
    twins.into_iter().for_each(Twin::end);
    engine.shutdown(Duration::from_secs(60)).unwrap();
}

/// A move of more files than one pass hands over is called off while files are closed: each close
/// comes to its end.
#[test]
fn contract_05_a_close_ends_although_a_move_is_called_off() {
    let directory = support::directory();
    let engine = engine("1", "hash");
    for round in 0..6 {
        let open = |file| {
            let path = directory.path().join(format!("{round}-{file}"));
            engine.open(path, &how::create_new()).unwrap()
        };
        let mut files: Vec<File> = (0..3000).map(open).collect();
        let closing: Vec<File> = files.split_off(1000);
        thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0..300 {
                    knobs::set(&engine, "contexts", ["2", "1"][turn % 2]).unwrap();
                    thread::sleep(Duration::from_micros(40 * (turn as u64 % 7)));
                }
            });
            let mut closing = closing.into_iter();
            for _ in 0..8 {
                let files: Vec<File> = closing.by_ref().take(250).collect();
                scope.spawn(move || {
                    for file in files {
                        let begun = Instant::now();
                        file.close().unwrap();
                        assert!(begun.elapsed() < Duration::from_secs(20), "it was forgotten");
                    }
                });
            }
        });
        drop(files);
        knobs::set(&engine, "contexts", "1").unwrap();
    }
    engine.shutdown(Duration::from_secs(60)).unwrap();
}

/// Direct files stay with the first context, and files that move beside them do not disturb them.
#[test]
fn direct_files_stay_while_others_go() {
    let directory = support::directory();
    let engine = engine("3", "hash");
    let direct = engine.open_direct(directory.path().join("direct"), &how::create_new()).unwrap();
    let mut random = Random::new(support::seed());
    let mut twins = twins(&engine, directory.path(), 6, MIB);
    for number in ["1", "4", "2", "3"].into_iter().cycle().take(40) {
        knobs::set(&engine, "contexts", number).unwrap();
        let data = pattern(random.draw(), 8192);
        let (written, _) = direct.write_at(data.clone(), 4096).wait();
        written.unwrap();
        twins.iter_mut().for_each(|twin| twin.write(&mut random));
        let (read, found) = direct.read_at(vec![0; 8192], 4096).wait();
        assert_eq!(read.unwrap(), 8192);
        assert_eq!(found, data);
    }
    direct.close().wait().unwrap();
    twins.into_iter().for_each(Twin::end);
}

/// An invalid number of contexts changes nothing.
#[test]
fn contract_18_contexts_are_bounded_and_what_cannot_be_is_refused() {
    let engine = engine("2", "group");
    for value in ["0", "65", "10000", "many", "", "-1"] {
        assert_eq!(
            kind_of(knobs::set(&engine, "contexts", value)),
            ErrorKind::InvalidInput,
            "{value}"
        );
    }
    assert_eq!(kind_of(knobs::set(&engine, "affinity", "groups")), ErrorKind::InvalidInput);
    let stands = ["contexts", "affinity"].map(|name| knobs::get(&engine, name));
    assert_eq!(stands, ["2", "group"]);
    assert_eq!(engine.stats().contexts, 2);
    knobs::set(&engine, "contexts", "64").unwrap();
    assert_eq!(engine.stats().contexts, 64);
    engine.shutdown(Duration::from_secs(60)).unwrap();
}
