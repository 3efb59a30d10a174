//! Calls that were begun, and whose futures are not polled until they end.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use forebay_cache::limits::PAGE;

use super::alone::{OnError, alone, alone_with_errors};
use super::stage::Heard;
use crate::core::error::Result;
use crate::core::file::File;
use crate::core::limits::UNCACHED_DIRTY_PAGES;
use crate::core::options::Options;
use crate::core::wait;
use crate::faults::{Faults, Latency};
use crate::platform::clock;
use crate::random::PerMille;
use crate::run::how;
use crate::world;
use crate::world::machine::{self, MachinePlan};

fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Begins writes of a page until this many wait for room. Returns these.
fn begin_writes_that_wait(
    file: &File,
    count: usize,
) -> Vec<Pin<Box<impl Future<Output = Result<()>>>>> {
    let (mut waiting, mut number) = (Vec::new(), 0);
    while waiting.len() < count {
        let mut write = Box::pin(file.write_at_async(&[7; PAGE as usize], 2 * number * PAGE));
        if poll(write.as_mut()).is_pending() {
            waiting.push(write);
        }
        number += 1;
    }
    waiting
}

/// Begins writes until 2048 of them wait for room, and polls none of them again. Returns how long
/// another write takes, or `None` if it does not end within ten seconds.
///
/// # Panics
/// If a call fails.
#[must_use]
pub fn write_beside_kept_ones() -> Option<Duration> {
    let latency = Duration::from_micros(100);
    let latency = Latency { least: latency, most: latency };
    let plan = MachinePlan { latency, ..MachinePlan::default() };
    let settings = Options { dirty_age: Duration::from_secs(3600), ..Options::default() };
    // No more pages than the writes that wait.
    alone(plan, 2048, settings, |engine| {
        let file = engine.open("/file", &how::create()).expect("a calm machine");
        let mut kept = begin_writes_that_wait(&file, 2048);
        world::sleep(Duration::from_secs(1));
        let start = world::now();
        let since = || Duration::from_nanos(world::now().nanoseconds_since(start));
        let large = vec![1; 1 << 20];
        let mut write = Box::pin(file.write_at_async(&large, 1 << 30));
        while poll(write.as_mut()).is_pending() {
            if since() > Duration::from_secs(10) {
                return None;
            }
            world::sleep(Duration::from_millis(1));
        }
        let waited = since();
        // One that is polled at last asks again.
        wait::drive(kept.swap_remove(0)).expect("a calm machine");
        Some(waited)
    })
}

/// Begins writes until 32 of them wait for room, polls none of them again, and shuts the engine
/// down. Returns how long that takes, or `None` if it fails.
///
/// # Panics
/// If another call fails.
#[must_use]
pub fn shutdown_beside_kept_ones() -> Option<Duration> {
    let settings = Options { dirty_age: Duration::from_secs(3600), ..Options::default() };
    alone(MachinePlan::default(), 2048, settings, |engine| {
        let file = engine.open("/file", &how::create()).expect("a calm machine");
        let mut kept = begin_writes_that_wait(&file, 32);
        // Some get room that they do not take.
        world::sleep(Duration::from_millis(10));
        let start = world::now();
        let ended = engine.shutdown(Duration::from_secs(10));
        let waited = Duration::from_nanos(world::now().nanoseconds_since(start));
        for write in &mut kept {
            let refused = poll(write.as_mut());
            assert!(matches!(refused, Poll::Ready(Err(_))), "no context makes room: {refused:?}");
        }
        ended.is_ok().then_some(waited)
    })
}

/// Puts writers of an uncached file in line, and polls none of them again. Returns how long another
/// one behind them takes, or `None` if it does not end within ten seconds.
///
/// # Panics
/// If a call fails, or a writer need not wait.
#[must_use]
pub fn write_behind_kept_ones() -> Option<Duration> {
    const BLOCK: usize = 256 << 10;
    let time = Duration::from_millis(1);
    let latency = Latency { least: time, most: time };
    let plan = MachinePlan { latency, ..MachinePlan::default() };
    let dirty_age = Duration::from_secs(3600);
    let settings = Options { dirty_bytes: Some(48 << 20), dirty_age, ..Options::default() };
    alone(plan, 16_384, settings, move |engine| {
        let file = engine.open("/file", how::create().uncached(true)).expect("a calm machine");
        let full = vec![1; (UNCACHED_DIRTY_PAGES * PAGE) as usize];
        file.write_at(&full, 0).expect("a calm machine");
        // The first request is at the device.
        world::sleep(time / 10);
        let block = vec![2; BLOCK];
        let write = |number: usize| {
            let mut write = Box::pin(file.write_at_async(&block, (number * BLOCK) as u64));
            assert!(poll(write.as_mut()).is_pending(), "the file may have no more dirty pages");
            write
        };
        // More than come through by the end of the requests.
        let kept: Vec<_> = (0..640).map(write).collect();
        let start = world::now();
        let deadline = clock::instant() + Duration::from_secs(10);
        let written = wait::block_on_until(file.write_at_async(&block, 0), Some(deadline));
        drop(kept);
        written.map(|written| {
            written.expect("a calm machine");
            Duration::from_nanos(world::now().nanoseconds_since(start))
        })
    })
}

/// Drops a sync whose flush has failed, and then the file. Returns the number of errors that the
/// engine reports.
///
/// # Panics
/// If another call fails.
#[must_use]
pub fn errors_of_a_dropped_sync() -> usize {
    const LATER: Duration = Duration::from_millis(30);
    let heard = Heard::default();
    let hears = heard.clone();
    let on_error: OnError = Box::new(move |error| hears.add(error.kind()));
    let settings = Options::default();
    alone_with_errors(MachinePlan::default(), 1024, settings, on_error, |engine| {
        let file = engine.open("/file", &how::create()).expect("a calm machine");
        file.write_at(&[1; PAGE as usize], 0).expect("a calm machine");
        machine::set_faults(Faults { flush: PerMille(1000), ..Faults::NONE });
        let mut sync = Box::pin(file.sync_data_async());
        assert!(poll(sync.as_mut()).is_pending(), "a context makes it");
        world::sleep(LATER);
        drop(sync);
        machine::set_faults(Faults::NONE);
        drop(file);
        world::sleep(LATER);
    });
    heard.count()
}
