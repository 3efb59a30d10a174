//! The explicit plug, and the policies by name.

use std::pin::pin;
use std::sync::Barrier;
use std::task::{Context, Waker};
use std::time::Duration;

use crate::support::{self, MIB, block_on, eventually, how, kind_of, knobs, pattern, within};
use forebay::{DirectFile, Engine, ErrorKind, Options, Stats};

const SOON: Duration = Duration::from_secs(20);

fn engine() -> Engine {
    Engine::start(Options { cache_bytes: Some(8 << 20), close_timeout: SOON, ..Options::default() })
        .unwrap()
}

/// A file of a MiB, and the engine it is open in.
fn bench(directory: &std::path::Path) -> (Engine, DirectFile) {
    let path = directory.join("file");
    std::fs::write(&path, pattern(1, MIB as usize)).unwrap();
    let engine = engine();
    let file = engine.open_direct(&path, &how::write()).unwrap();
    (engine, file)
}

/// Reads neighbouring pages in a plug; what the engine did for it.
fn read_plugged(engine: &Engine, file: &DirectFile, pages: u64) -> (Stats, Stats) {
    let pages_of_file = pattern(1, pages as usize * 4096);
    let before = engine.stats();
    let outer = engine.plug();
    let inner = engine.plug();
    let buffers: Vec<_> = (0..pages).map(|_| engine.buffer(4096).unwrap()).collect();
    let reads: Vec<_> = buffers
        .into_iter()
        .zip(0..)
        .map(|(buffer, page)| file.read_at(buffer, page * 4096))
        .collect();
    drop(inner);
    drop(outer);
    for (page, read) in reads.into_iter().enumerate() {
        let (result, buffer) = block_on(read);
        assert_eq!(result.unwrap(), 4096);
        assert!(*buffer == pages_of_file[page * 4096..][..4096]);
    }
    (before, engine.stats())
}

/// Held for 50 us at most: a thread that is kept from running for longer sees its batch taken in
/// two. One in many tries goes together.
#[test]
fn what_is_plugged_goes_with_one_doorbell() {
    let directory = support::directory();
    let (engine, file) = bench(directory.path());
    let mut seen = Vec::new();
    for _ in 0..500 {
        let (before, after) = read_plugged(&engine, &file, 16);
        assert_eq!((after.bios - before.bios, after.plugged - before.plugged), (16, 16));
        let (requests, doorbells) =
            (after.requests - before.requests, after.doorbells - before.doorbells);
        // One carries the batch; the others are the context's waits: for the batch, and for its
        // end.
        if requests == 1 && doorbells <= 4 {
            return;
        }
        seen.push((requests, doorbells));
    }
    panic!("sixteen neighbours never went as one request; requests and doorbells: {seen:?}");
}

/// A full plug goes by itself, and so does what a thread holds that does nothing more.
#[test]
fn contract_16_no_hold_without_a_deadline() {
    within(Duration::from_secs(60), "a plug that is never dropped", || {
        let directory = support::directory();
        let (engine, file) = bench(directory.path());
        let path = directory.path().join("file");
        let plug = engine.plug();
        for part in 0..100u64 {
            drop(file.write_at(vec![part as u8; 512], part * 512));
            if part % 40 == 7 {
                let is_written =
                    || std::fs::read(&path).unwrap()[part as usize * 512] == part as u8;
                assert!(eventually(SOON, is_written), "held for ever");
            }
        }
        std::mem::forget(plug);
        assert!(eventually(SOON, || std::fs::read(&path).unwrap()[99 * 512..][..512] == [99; 512]));
        file.close().wait().unwrap();
    });
}

#[test]
fn waiting_hands_over_what_is_held() {
    within(Duration::from_secs(60), "waiting in a plug", || {
        let directory = support::directory();
        let (engine, file) = bench(directory.path());
        let _plug = engine.plug();
        for round in 0..200u64 {
            let write = file.write_at(vec![round as u8; 700], round * 700);
            let (result, found) = file.read_at(vec![0; 700], round * 700).wait();
            assert!(result.unwrap() == 700 && found == [round as u8; 700]);
            assert_eq!(block_on(write).0.unwrap(), 700);
            drop(file.write_at(vec![1; 700], round * 700));
            file.sync_data().wait().unwrap();
        }
        let (engines, second) = (engine.clone(), engine.plug());
        drop(engine);
        drop(second);
        file.close().wait().unwrap();
        drop(engines);
    });
}

/// A write that another thread holds was submitted before the sync all the same.
#[test]
fn contract_01_a_sync_covers_what_others_hold() {
    within(Duration::from_secs(60), "a sync beside a plug", || {
        let directory = support::directory();
        let (engine, file) = bench(directory.path());
        for round in 0..100u64 {
            let (held, hold) = std::sync::mpsc::channel();
            let synced = Barrier::new(2);
            std::thread::scope(|scope| {
                let (engine, file, synced) = (&engine, &file, &synced);
                scope.spawn(move || {
                    let _plug = engine.plug();
                    let write = file.write_at(vec![round as u8; 512], round * 512);
                    held.send(()).unwrap();
                    synced.wait();
                    let mut write = pin!(write);
                    let looked = write.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                    assert!(looked.is_ready(), "the sync did not wait for it");
                });
                hold.recv().unwrap();
                file.sync_data().wait().unwrap();
                synced.wait();
            });
        }
        file.close().wait().unwrap();
    });
}

#[test]
fn a_plug_is_of_one_engine_and_one_thread() {
    within(Duration::from_secs(60), "plugs of two engines", || {
        let directory = support::directory();
        let others = support::directory();
        let (one, other) = (bench(directory.path()), bench(others.path()));
        let first = one.0.plug();
        let second = other.0.plug();
        drop(one.1.write_at(vec![1; 512], 0));
        assert_eq!(other.0.stats().plugged, 0);
        drop(first);
        drop(other.1.write_at(vec![1; 512], 0));
        let file = &one.1;
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(file.write_at(vec![2; 512], 512).wait().0.unwrap(), 512));
        });
        assert_eq!((one.0.stats().plugged, other.0.stats().plugged), (1, 1));
        drop(second);
        assert_eq!(one.1.read_at(vec![0; 512], 0).wait().1, [1; 512]);
        one.1.close().wait().unwrap();
        other.1.close().wait().unwrap();
    });
}

#[test]
fn a_policy_that_is_not_there_is_refused_with_what_there_is() {
    let engine = engine();
    for (name, value) in
        [("plug", "sometimes"), ("completion", "delay=100001"), ("merge", ""), ("order", "FIFO")]
    {
        let error = knobs::set(&engine, name, value).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("allowed: "), "{error}");
    }
    let error = knobs::set(&engine, "plugs", "never").unwrap_err();
    assert!(error.to_string().contains("completion"), "{error}");
    assert_eq!(
        kind_of(knobs::set(&engine, "cache_bytes", "1g")),
        ErrorKind::InvalidInput,
        "fixed once it runs"
    );
    let built = Engine::start(knobs::named(
        Options { cache_bytes: Some(8 << 20), ..Options::default() },
        [("merge", "off"), ("completion", "delay=50")],
    ))
    .unwrap();
    knobs::set(&built, "merge", "on").unwrap();
    built.shutdown(SOON).unwrap();
    assert_eq!(kind_of(knobs::set(&built, "merge", "off")), ErrorKind::Shutdown);
}

/// Without merging the same plug goes as many requests: the policy reaches the queue, from the
/// builder and later.
#[test]
fn merging_is_switched_while_it_runs() {
    let directory = support::directory();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(1, MIB as usize)).unwrap();
    let engine = Engine::start(knobs::named(
        Options { cache_bytes: Some(8 << 20), ..Options::default() },
        [("merge", "off")],
    ))
    .unwrap();
    let file = engine.open_direct(&path, &how::write()).unwrap();
    for _ in 0..50 {
        let (before, after) = read_plugged(&engine, &file, 16);
        assert_eq!((after.requests - before.requests, after.merged_bios), (16, 0));
    }
    knobs::set(&engine, "merge", "on").unwrap();
    let merged = (0..500).any(|_| {
        let (before, after) = read_plugged(&engine, &file, 16);
        after.requests - before.requests < 16
    });
    assert!(merged);
}
