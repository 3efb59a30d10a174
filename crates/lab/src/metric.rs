//! Metrics: names, units, and which direction is better. Names stay; later work adds.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::programs::spec::Probe;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    pub name: &'static str,
    pub unit: &'static str,
    pub better: Better,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Higher,
    Lower,
}

macro_rules! metrics {
    ($($name:literal, $unit:literal, $better:ident;)*) => {
        /// Those that no probe has to itself.
        const METRICS: &[Metric] =
            &[$(Metric { name: $name, unit: $unit, better: Better::$better }),*];
    };
}

metrics! {
    "iops", "1/s", Higher;
    "operations_per_s", "1/s", Higher;
    "read_iops", "1/s", Higher;
    "read_bytes_per_s", "B/s", Higher;
    "read_latency_p50_us", "us", Lower;
    "read_latency_p99_us", "us", Lower;
    "read_latency_p999_us", "us", Lower;
    "write_iops", "1/s", Higher;
    "write_bytes_per_s", "B/s", Higher;
    "write_latency_p50_us", "us", Lower;
    "write_latency_p99_us", "us", Lower;
    "write_latency_p999_us", "us", Lower;
    "elapsed_s", "s", Lower;
    "context_switches", "1", Lower;
    "context_switches_per_io", "1", Lower;
    "context_switches_per_gib", "1", Lower;
    "system_context_switches", "1", Lower;
    "system_context_switches_per_io", "1", Lower;
    "system_context_switches_per_gib", "1", Lower;
    "cpu_us_per_io", "us", Lower;
    "cpu_us_per_operation", "us", Lower;
    "system_calls_per_operation", "1", Lower;
    // Bytes passed to `write` by the bulk writer in another process.
    "beside_bytes_per_s", "B/s", Higher;
    "sync_probe_p50_us", "us", Lower;
    "sync_probe_p99_us", "us", Lower;
    "extents_per_file", "1", Lower;
    "mean_extent_bytes", "B", Higher;
    "written_per_asked", "1", Lower;
    "peak_memory_bytes", "B", Lower;
    "peak_dirty_bytes", "B", Lower;
    "resident_bytes", "B", Lower;
    "doorbells_per_io", "1", Lower;
    "requests_per_doorbell", "1", Higher;
    "bios_per_run", "1", Higher;
    "run_bytes", "B", Higher;
    "merged_share", "1", Higher;
    "completion_holds", "1", Lower;
    "hold_mean_us", "us", Lower;
    "hold_p99_us", "us", Lower;
    "written_latency_p99_us", "us", Lower;
    "writeback_latency_p99_us", "us", Lower;
    "latency_p50_us", "us", Lower;
    "latency_p99_us", "us", Lower;
    "latency_p999_us", "us", Lower;
    "ns_per_io", "ns", Lower;
    "driver_ns_per_io", "ns", Lower;
    "requests_per_s", "1/s", Higher;
    "idle_share", "1", Lower;
    "user_share", "1", Lower;
    "system_share", "1", Lower;
    "server_us_per_message", "us", Lower;
    "reorder_distance_p99", "1", Lower;
    // Items that a server served after one of the same pass that arrived later.
    "inversions_per_1000_items", "1", Lower;
    "coefficient_of_variation", "1", Lower;
    "start_late_p99_us", "us", Lower;
    "backlog_peak", "1", Lower;
    "never_started", "1", Lower;
    "kernel_requests_per_unplug", "1", Higher;
    "kernel_unplug_asked_share", "1", Higher;
    "kernel_unplug_full_share", "1", Higher;
    "kernel_plugged_share", "1", Higher;
    "kernel_insert_share", "1", Lower;
    "kernel_bios_per_request", "1", Higher;
    "kernel_request_bytes", "B", Higher;
    "kernel_polled_share", "1", Higher;
    "kernel_requests_per_run", "1", Higher;
    "kernel_bios_per_run", "1", Higher;
    "kernel_bios_per_worker_run", "1", Higher;
    "kernel_task_work_per_run", "1", Higher;
    "kernel_completions_per_enter", "1", Higher;
    "kernel_writeback_pages_per_run", "1", Higher;
    // Of XFS, and for the locks of its allocation groups.
    "kernel_allocations_per_s", "1/s", Lower;
    "kernel_group_waits_per_s", "1/s", Lower;
    "kernel_busiest_group_share", "1", Lower;
}

/// Adds a value unless it is not finite: nothing divided by nothing is left out.
pub(crate) fn put(metrics: &mut BTreeMap<String, f64>, name: &str, value: f64) {
    debug_assert!(find(name).is_some(), "{name}");
    if value.is_finite() {
        metrics.insert(name.to_owned(), value);
    }
}

/// Adds the percentiles of latencies in nanoseconds; `direction` is empty, `read_` or `write_`.
pub(crate) fn put_latencies(
    metrics: &mut BTreeMap<String, f64>,
    direction: &str,
    latencies: &Histogram<u64>,
) {
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
        let micros = latencies.value_at_quantile(quantile) as f64 / 1000.0;
        put(metrics, &format!("{direction}latency_{name}_us"), micros);
    }
}

pub fn all() -> impl Iterator<Item = &'static Metric> {
    METRICS.iter().chain(Probe::metrics())
}

pub fn find(name: &str) -> Option<&'static Metric> {
    all().find(|metric| metric.name == name)
}
