//! Metrics: names, units, which direction is better, and how tables call them. Names stay; later
//! work adds.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    pub name: &'static str,
    pub unit: &'static str,
    pub better: Better,
    /// Head of its column; a bar divides two lines.
    pub head: &'static str,
    /// Text for the legend of a table, if the head does not say it.
    pub about: &'static str,
}

impl Metric {
    /// Returns the head of its column on one line.
    pub fn heading(&self) -> String {
        self.head.replace("-|", "").replace('|', " ")
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Higher,
    Lower,
}

macro_rules! metrics {
    ($($name:literal, $unit:literal, $better:ident, $head:literal, $about:literal;)*) => {
        /// Those that no probe has to itself.
        const METRICS: &[Metric] = &[$(Metric {
            name: $name,
            unit: $unit,
            better: Better::$better,
            head: $head,
            about: $about,
        }),*];
    };
}

metrics! {
    "iops", "1/s", Higher, "IOPS", "";
    "operations_per_s", "1/s", Higher, "per s", "";
    "read_iops", "1/s", Higher, "read|IOPS", "";
    "read_bytes_per_s", "B/s", Higher, "read|MB/s", "";
    "read_latency_p50_us", "us", Lower, "read|p50", "";
    "read_latency_p99_us", "us", Lower, "read|p99", "";
    "read_latency_p999_us", "us", Lower, "read|p999", "";
    "write_iops", "1/s", Higher, "write|IOPS", "";
    "write_bytes_per_s", "B/s", Higher, "MB/s", "";
    "write_latency_p50_us", "us", Lower, "write|p50", "";
    "write_latency_p99_us", "us", Lower, "write|p99", "";
    "write_latency_p999_us", "us", Lower, "write|p999", "";
    "elapsed_s", "s", Lower, "time", "";
    "context_switches", "1", Lower, "own cs", "context switches of the process";
    "context_switches_per_io", "1", Lower, "own cs|per I/O", "the same for each I/O";
    "context_switches_per_gib", "1", Lower, "own cs|per GiB", "";
    "system_context_switches", "1", Lower, "system|cs", "context switches of the whole system";
    "system_context_switches_per_io", "1", Lower, "system|cs/IO", "the same for each I/O";
    "system_context_switches_per_gib", "1", Lower, "system|cs/GiB", "the same for each GiB";
    "cpu_us_per_io", "us", Lower, "CPU us|per I/O", "processor time of the process";
    "cpu_us_per_operation", "us", Lower, "CPU", "processor time of the process for each operation, without kernel threads";
    "system_calls_per_operation", "1", Lower, "calls", "system calls of the process for each operation";
    "beside_bytes_per_s", "B/s", Higher, "beside|MB/s", "bytes passed to write by the bulk writer in another process";
    "sync_probe_p50_us", "us", Lower, "sync|p50", "a write of 4 KiB and its sync, beside the work";
    "sync_probe_p99_us", "us", Lower, "sync|p99", "a write of 4 KiB and its sync, beside the work";
    "extents_per_file", "1", Lower, "pieces|a file", "extents";
    "mean_extent_bytes", "B", Higher, "mean|piece", "";
    "groups_per_file", "1", Lower, "groups|a file", "allocation groups of its extents";
    "home_group_share", "1", Higher, "in own|group", "bytes in the group of the inode";
    "written_per_asked", "1", Lower, "written|/ asked", "bytes of the device per byte of the caller";
    "peak_memory_bytes", "B", Lower, "memory", "for data, at its peak";
    "peak_dirty_bytes", "B", Lower, "peak|dirty", "";
    "resident_bytes", "B", Lower, "RSS", "memory of the process above that at its start, without the page cache";
    "doorbells_per_io", "1", Lower, "bells|per I/O", "calls that submit or wait";
    "requests_per_doorbell", "1", Higher, "own|req/bell", "requests of a call, as the arm counts them";
    "bios_per_run", "1", Higher, "own|bios/run", "bios ended in one go, as the arm counts them";
    "run_bytes", "B", Higher, "bio|size", "bytes of a bio of writeback";
    "merged_share", "1", Higher, "merged", "";
    "completion_holds", "1", Lower, "holds", "runs that ended held writes";
    "hold_asked_us", "us", Lower, "hold|asked", "";
    "hold_mean_us", "us", Lower, "hold|mean", "";
    "hold_p99_us", "us", Lower, "hold|p99", "";
    "written_latency_p99_us", "us", Lower, "written|p99", "from the acceptance of a write until it was at the device";
    "writeback_latency_p99_us", "us", Lower, "durable|p99", "from the acceptance of a write until it was durable";
    "latency_p50_us", "us", Lower, "p50", "";
    "latency_p99_us", "us", Lower, "p99", "";
    "latency_p999_us", "us", Lower, "p999", "";
    "ns_per_io", "ns", Lower, "ns|per I/O", "";
    "driver_ns_per_io", "ns", Lower, "driver|ns/IO", "";
    "start_late_p99_us", "us", Lower, "late|p99", "";
    "backlog_peak", "1", Lower, "backlog", "";
    "never_started", "1", Lower, "never|started", "";
    "kernel_requests_per_unplug", "1", Higher, "reqs /|unplug", "requests of an unplug";
    "kernel_unplug_asked_share", "1", Higher, "asked", "unplugs that were asked for; the others are before a sleep";
    "kernel_unplug_full_share", "1", Higher, "full", "";
    "kernel_plugged_share", "1", Higher, "plugged", "of the requests made";
    "kernel_insert_share", "1", Lower, "sched-|uled", "of the requests issued";
    "kernel_bios_per_request", "1", Higher, "bios|/ req", "";
    "kernel_request_bytes", "B", Higher, "request|size", "";
    "kernel_polled_share", "1", Higher, "polled", "";
    "kernel_requests_per_run", "1", Higher, "reqs /|run", "run = one interrupt";
    "kernel_bios_per_run", "1", Higher, "bios /|run", "";
    "kernel_bios_per_worker_run", "1", Higher, "bios /|worker", "of a completion worker, of any disk";
    "kernel_task_work_per_run", "1", Higher, "items|/ task", "of a run of task work";
    "kernel_completions_per_enter", "1", Higher, "CQEs /|enter", "";
    "kernel_writeback_pages_per_run", "1", Higher, "pages/|wback", "of a call that writes pages back";
    "kernel_allocations_per_s", "1/s", Lower, "allocs|per s", "allocations of space by XFS";
    "kernel_group_waits_per_s", "1/s", Lower, "waits|per s", "for the lock of an allocation group";
    "kernel_group_refusals_per_s", "1/s", Lower, "refusals|per s", "of a locked group of XFS";
    "kernel_busiest_group_share", "1", Lower, "busiest|group", "its share of the allocations";
}

/// Adds a value unless it is not finite: nothing divided by nothing is left out.
pub(crate) fn put(metrics: &mut BTreeMap<String, f64>, name: &str, value: f64) {
    debug_assert!(!name.is_empty(), "a metric has a name");
    if value.is_finite() {
        metrics.insert(name.to_owned(), value);
    }
}

/// Adds a ratio, unless there is nothing to divide by.
pub(crate) fn put_ratio(metrics: &mut BTreeMap<String, f64>, name: &str, part: u64, whole: u64) {
    put(metrics, name, part as f64 / whole as f64);
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

/// Returns the metrics that no probe has to itself.
pub(crate) fn shared() -> impl Iterator<Item = &'static Metric> {
    METRICS.iter()
}
