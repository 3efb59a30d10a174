//! Syncs that their callers make themselves, while others use the file.

mod support;

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay::{Engine, Options};
use forebay_block::random::Random;
use support::MIB;
use support::how;

const PAGE: u64 = 4096;

fn engine() -> Engine {
    Engine::start(Options { cache_bytes: Some(16 * MIB), ..Options::default() }).unwrap()
}

/// Two threads write pages of their own, and sync them. A third one cuts the file behind these
/// pages and makes it longer again. A fourth one begins syncs and drops their futures.
#[test]
fn contract_01_two_threads_sync_a_file_while_a_third_truncates_it() {
    const PAGES: u64 = 16;
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = engine();
    let file = engine.open(&path, &how::create()).unwrap();
    file.set_len(2 * PAGES * PAGE).unwrap();
    let is_over = AtomicBool::new(false);
    let end = Instant::now() + Duration::from_secs(2);
    std::thread::scope(|scope| {
        let (file, path, is_over) = (&file, &path, &is_over);
        let writers: Vec<_> = (0..2_u64)
            .map(|writer| {
                scope.spawn(move || {
                    let mut random = Random::new(support::seed() ^ writer);
                    let mut rounds = 0;
                    while Instant::now() < end {
                        let page = 2 * random.below(PAGES) + writer;
                        let length = 1 + random.below(PAGE);
                        let bytes = vec![random.below(255) as u8 + 1; length as usize];
                        file.write_at(&bytes, page * PAGE).unwrap();
                        file.sync_data().unwrap();
                        let mut found = vec![0; length as usize];
                        fs::File::open(path)
                            .unwrap()
                            .read_exact_at(&mut found, page * PAGE)
                            .unwrap();
                        assert!(found == bytes, "page {page} after its sync");
                        rounds += 1;
                    }
                    rounds
                })
            })
            .collect();
        scope.spawn(move || {
            let mut random = Random::new(support::seed() ^ 7);
            while !is_over.load(Ordering::Relaxed) {
                file.set_len(2 * PAGES * PAGE + random.below(3 * PAGE)).unwrap();
            }
        });
        scope.spawn(move || {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            while !is_over.load(Ordering::Relaxed) {
                let mut sync = Box::pin(file.asynchronous().sync_data());
                let _ = sync.as_mut().poll(&mut context);
                drop(sync);
                std::thread::yield_now();
            }
        });
        let rounds: u64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        is_over.store(true, Ordering::Relaxed);
        assert!(rounds > 20, "only {rounds} syncs");
    });
    let length = file.len().unwrap();
    file.close().unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), length);
}
