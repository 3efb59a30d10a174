//! Calls that were begun, and whose futures are kept without being polled.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use forebay_cache::limits::PAGE;

use super::alone::alone;
use crate::core::options::Options;
use crate::core::wait;
use crate::faults::Latency;
use crate::run::how;
use crate::world;
use crate::world::machine::MachinePlan;

fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
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
        let page = [7; PAGE as usize];
        let (mut kept, mut number) = (Vec::new(), 0);
        while kept.len() < 2048 {
            let mut write = Box::pin(file.write_at_async(&page, 2 * number * PAGE));
            if poll(write.as_mut()).is_pending() {
                kept.push(write);
            }
            number += 1;
        }
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
