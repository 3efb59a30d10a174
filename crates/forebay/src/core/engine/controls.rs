//! The knobs of a running engine, with the effect of a change, and its numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use forebay_block::Latency;
use forebay_cache::limits::PAGE;
use forebay_cache::price::Price;

use crate::core::context::senders::Message;
use crate::core::error::Result;
use crate::core::inode::counts;
use crate::core::knobs;
use crate::core::logged::Numbers;
use crate::core::options::Options;
use crate::core::shared::Shared;
use crate::core::stats::{OfQueue, Stats};
use crate::core::user_code;

impl Shared {
    /// Returns the options.
    pub(crate) fn options(&self) -> Options {
        self.settings.lock().clone()
    }

    /// Changes options. After an error nothing has changed.
    pub(crate) fn change_options(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Options) -> Result<()>,
    ) -> Result<()> {
        self.check()?;
        let _spreading = self.spreading.lock();
        let mut settings = self.settings.lock();
        let mut changed = settings.clone();
        change(&mut changed)?;
        knobs::check_change(&settings, &changed)?;
        if changed.context_priority != settings.context_priority {
            changed.context_priority.check()?;
        }
        // This comes first because it may fail.
        if let Err(error) = self.spread(&changed) {
            self.load.resume(settings.contexts);
            return Err(error);
        }
        *settings = changed;
        let mut wakers = Vec::new();
        // Under the lock, so that all parts see changes in the same order.
        self.apply(&settings, &mut wakers);
        drop(settings);
        user_code::wake_all(wakers);
        Ok(())
    }

    /// Passes the values on to the parts that use them. Adds the tasks to wake to `wakers`.
    fn apply(&self, settings: &Options, wakers: &mut Vec<Waker>) {
        self.set_uncached(settings.uncached);
        let reserving = settings.prealloc.into();
        if self.set_reserving(reserving) {
            for inode in self.table().inodes() {
                inode.lock().cache.change_reserving(reserving);
            }
        }
        if self.level.set_throttle(settings.throttle(), wakers) {
            for inode in self.table().inodes() {
                counts::look_again(&inode.volume.failing, &self.level, wakers);
            }
        }
        self.send(Message::Knobs(settings.of_context()));
    }
}

impl Shared {
    /// Returns how long completions were held, by duration.
    pub(crate) fn holds(&self) -> Vec<(Duration, u64)> {
        self.counters.queue().holds.reported().collect()
    }

    /// Returns the numbers of this engine.
    pub(crate) fn stats(&self) -> Stats {
        let OfQueue { counters: queue, holds } = self.counters.queue();
        let latencies = self.counters.latencies();
        let micros = |latency: &Latency, per_mille| latency.per_mille(per_mille).as_micros() as u64;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (counters, level) = (&self.counters, &self.level);
        let reserved = [
            &counters.reserved_dense_bytes,
            &counters.reserved_stream_bytes,
            &counters.reserved_declared_bytes,
        ];
        let reserved = reserved.map(load);
        let of_log = |number: fn(&Numbers) -> &AtomicU64| {
            self.log.as_ref().map_or(0, |log| load(number(&log.numbers)))
        };
        let prices = self.table().prices();
        let least = |of: fn(&Price) -> u64| {
            let known = prices.iter().map(|(_, price)| of(price)).filter(|rate| *rate > 0);
            known.min().unwrap_or(0)
        };
        let flush = prices.iter().map(|(_, price)| price.flush).max().unwrap_or_default();
        Stats {
            accepted_bytes: load(&counters.accepted_bytes),
            written_bytes: queue.written_bytes,
            zero_bytes: queue.zero_bytes,
            clean_bytes: load(&counters.clean_bytes),
            read_bytes: queue.read_bytes,
            bios: queue.bios,
            requests: queue.requests,
            merged_bios: queue.merged_bios,
            doorbells: queue.doorbells,
            plug_holds: queue.plug_holds,
            completion_runs: queue.completion_runs,
            completion_holds: queue.completion_holds,
            completion_held_us: queue.completion_held_nanoseconds / 1000,
            completed_bios: queue.completed_bios,
            resubmitted: queue.resubmitted,
            syncs: load(&counters.syncs),
            flushes: load(&counters.flushes),
            logged_syncs: of_log(|numbers| &numbers.syncs),
            logged_bytes: of_log(|numbers| &numbers.bytes),
            log_batches: of_log(|numbers| &numbers.batches),
            emptied_files: of_log(|numbers| &numbers.emptied),
            log_bytes: self.log.as_ref().map_or(0, |log| log.used_bytes()),
            rewrites: load(&counters.rewrites),
            throttle_waits: level.waits(),
            dirty_bytes: level.dirty() * PAGE,
            peak_dirty_bytes: level.peak() * PAGE,
            peak_flight: load(&counters.peak_flight),
            contexts: self.contexts.active() as u64,
            handovers: load(&counters.handovers),
            reserved_bytes: reserved.iter().sum(),
            reserved_dense_bytes: reserved[0],
            reserved_stream_bytes: reserved[1],
            reserved_declared_bytes: reserved[2],
            reserved_scarce_bytes: load(&counters.reserved_scarce_bytes),
            given_back_bytes: load(&counters.given_back_bytes),
            unreserved_scarce: load(&counters.unreserved_scarce),
            unreserved_unmarked: load(&counters.unreserved_unmarked),
            unreserved_failed: load(&counters.unreserved_failed),
            bounced: load(&counters.bounced),
            plugged: load(&counters.plugged),
            arena_bytes: u64::from(self.pool.arena().frames()) * PAGE,
            hold_p99_us: micros(&holds, 990),
            written_latency_p50_us: micros(&latencies.written, 500),
            written_latency_p99_us: micros(&latencies.written, 990),
            writeback_latency_p50_us: micros(&latencies.durable, 500),
            writeback_latency_p99_us: micros(&latencies.durable, 990),
            throttle_wait_max_us: level.longest_wait().as_micros() as u64,
            readahead_bytes: load(&counters.readahead_bytes),
            bypassed_bytes: load(&counters.bypassed_bytes),
            evicted_pages: load(&counters.evicted_pages),
            disk_requests_per_second: least(|price| price.requests_per_second),
            disk_bytes_per_second: least(|price| price.bytes_per_second),
            flush_us: flush.as_micros() as u64,
        }
    }
}
