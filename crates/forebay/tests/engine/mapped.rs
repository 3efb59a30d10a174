//! Other programs map the file, or have it in the kernel's cache: ours lands all the same, and what
//! they have cached stays, but for what our own writes make stale.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::mount::{FileSystem, Mount};
use crate::support::other::{Other, POKED};
use crate::support::{self, MIB, PAGE, how, pattern, process, within};
use forebay::{Engine, File, Options};
use forebay_block::random::Random;

const SOON: Duration = Duration::from_secs(60);

/// Bytes of the file that is mapped.
const BYTES: u64 = 4 * MIB;

fn engine() -> Engine {
    Engine::start(Options {
        cache_bytes: Some(16 << 20),
        dirty_age: Duration::from_millis(20),
        ..Options::default()
    })
    .unwrap()
}

fn pages_of(other: &mut Other, offset: u64, length: u64) -> u64 {
    other.ask(&format!("resident {offset} {length}")).parse().unwrap()
}

/// Pages that another program reads repeatedly stay cached while we write and read another part of
/// the file.
#[test]
fn contract_07_what_others_have_cached_stays() {
    let directory = support::directory();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(1, 8 << 20)).unwrap();
    let mut other = Other::start();
    other.open("both", &path);
    other.do_now(&format!("map {}", 8 * MIB));
    other.do_now(&format!("touch 0 {}", 8 * MIB));
    let before = pages_of(&mut other, 0, 8 * MIB);
    if before < 2048 {
        return support::skip("cached", "the kernel keeps less than all of a small file");
    }
    other.do_now("sync");
    let engine = engine();
    let file = engine.open(&path, &how::write()).unwrap();
    file.write_at(&pattern(2, 2 << 20), 2 * MIB).unwrap();
    file.sync_data().unwrap();
    let mut found = vec![0; 8 << 20];
    assert_eq!(file.read_at(&mut found, 0).unwrap(), 8 << 20);
    file.append(&pattern(3, 100_000)).unwrap();
    file.sync_data().unwrap();
    file.close().unwrap();
    drop(engine);
    let stale = pages_of(&mut other, 2 * MIB, 2 * MIB);
    let others = pages_of(&mut other, 0, 2 * MIB) + pages_of(&mut other, 4 * MIB, 4 * MIB);
    println!("of 512 pages written over {stale} are cached, of 1536 others {others}");
    assert_eq!(others, 1536, "what we did not write over was evicted");
    // And what is stale is not seen.
    assert_eq!(other.ask(&format!("holds {} {} 2", 2 * MIB, 2 * MIB)), "true");
}

/// The same while we hold the lease, for pages that were cached before our open.
#[test]
fn contract_07_what_was_cached_before_stays_under_the_lease() {
    let directory = support::directory();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(1, 8 << 20)).unwrap();
    process::shell("sync \"$1\"; cat \"$1\" >/dev/null", &path).unwrap();
    let engine = engine();
    let file = engine.open(&path, &how::write()).unwrap();
    file.write_at(&pattern(2, 2 << 20), 2 * MIB).unwrap();
    file.sync_data().unwrap();
    let mut found = vec![0; 8 << 20];
    assert_eq!(file.read_at(&mut found, 0).unwrap(), 8 << 20);
    file.close().unwrap();
    drop(engine);
    let mut other = Other::start();
    other.open("both", &path);
    other.do_now(&format!("map {}", 8 * MIB));
    let others = pages_of(&mut other, 0, 2 * MIB) + pages_of(&mut other, 4 * MIB, 4 * MIB);
    assert_eq!(others, 1536, "what we did not write over was evicted");
}

/// Writes and syncs while other programs make the same pages dirty through a mapping, without
/// changing them. The kernel cannot always drop its cached pages, and reports this once, by an
/// error of the flush. It later writes the pages that it did not drop over ours.
fn write_under_pokes(path: &Path, seconds: u64) {
    let mut expected = vec![0; BYTES as usize];
    expected.iter_mut().step_by(PAGE as usize).for_each(|byte| *byte = POKED);
    std::fs::write(path, &expected).unwrap();
    let mut others = [Other::start(), Other::start()];
    for other in &mut others {
        other.open("both", path);
        other.do_now(&format!("map {BYTES}"));
        other.report(&format!("poke_on 0 {BYTES}"));
    }
    let engine = engine();
    let file = engine.open(path, &how::write()).unwrap();
    let (mut random, start, mut syncs) = (Random::new(support::seed()), Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..1 + random.below(30) {
            let length = 1 + random.below(40_000);
            let at = random.below(BYTES - length);
            let mut data = pattern(random.below(1000), length as usize);
            (at.next_multiple_of(PAGE)..at + length)
                .step_by(PAGE as usize)
                .for_each(|page| data[(page - at) as usize] = POKED);
            file.write_at(&data, at).unwrap();
            expected[at as usize..(at + length) as usize].copy_from_slice(&data);
        }
        file.sync_data().unwrap_or_else(|error| panic!("after {syncs} syncs: {error}"));
        syncs += 1;
        if syncs % 16 == 0 {
            check_contents(&file, path, &expected);
        }
    }
    println!("{syncs} syncs, {} rewrites", engine.stats().rewrites);
    for other in &mut others {
        other.report("enough");
        assert_eq!(other.answer(), "done");
    }
    check_contents(&file, path, &expected);
    file.close().unwrap();
}

fn check_contents(file: &File, path: &Path, expected: &[u8]) {
    let mut found = vec![0; expected.len()];
    assert_eq!(file.read_at(&mut found, 0).unwrap(), expected.len());
    assert!(found == expected, "as we see it");
    assert!(std::fs::read(path).unwrap() == expected, "as others see it");
}

#[test]
fn contract_06_pages_that_another_program_writes_here() {
    let directory = support::directory();
    let path = directory.path().join("file");
    within(SOON, "a file that is poked", move || write_under_pokes(&path, 6));
}

#[test]
fn contract_06_pages_that_another_program_writes_on_xfs() {
    let Some(mount) = Mount::new("poked_on_xfs", FileSystem::Xfs, 2 << 30) else { return };
    within(SOON, "a file that is poked", move || write_under_pokes(&mount.path().join("file"), 6));
}
