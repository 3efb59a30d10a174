//! From counts to metrics. Metrics that are not defined for a cell are left out.
//!
//! An *I/O* is one operation. Rates are over the time the loop ran, which is up to one turn longer
//! than asked.

use std::collections::BTreeMap;

use crate::detail::{Detail, Flow, Latency};
use crate::load::figures::add_usage;
use crate::load::timed::Counted;
use crate::metric::{self, put_latencies};
use crate::request::{Operation, RequestSpec};

type Metrics = BTreeMap<String, f64>;

/// Returns how it went. From another thread no latencies are known.
pub(crate) fn detail(spec: &RequestSpec, counted: &Counted) -> Detail {
    let flow = Some(Flow {
        operations: counted.tally.operations,
        bytes: counted.tally.bytes,
        runtime_ns: counted.elapsed.as_nanos() as u64,
        latency: Latency::of(&counted.tally.latencies),
    });
    let (read, write) = match spec.operation {
        Operation::Read => (flow, None),
        Operation::Write => (None, flow),
    };
    let (usage, holds) = (counted.usage.process, counted.holds.clone());
    Detail { read, write, usage, holds }
}

/// Returns everything that is defined for this cell.
pub(crate) fn of(spec: &RequestSpec, counted: &Counted, driver_ns: f64) -> Metrics {
    let mut metrics = Metrics::new();
    let (tally, seconds) = (&counted.tally, counted.elapsed.as_secs_f64());
    let operations = tally.operations as f64;
    let direction = spec.operation.name();
    if !tally.latencies.is_empty() {
        put_latencies(&mut metrics, &format!("{direction}_"), &tally.latencies);
        put_latencies(&mut metrics, "", &tally.latencies);
        metrics.remove("latency_p999_us");
    }
    let mut put = |name: &str, value: f64| metric::put(&mut metrics, name, value);
    put("elapsed_s", seconds);
    put("iops", operations / seconds);
    put(&format!("{direction}_iops"), operations / seconds);
    put(&format!("{direction}_bytes_per_s"), tally.bytes as f64 / seconds);
    put("ns_per_io", counted.seconds_each() * 1e9);
    put("driver_ns_per_io", driver_ns);
    // A lane that does not count something has none of it: nothing divided by nothing is left out.
    let counters = &counted.counters;
    put("doorbells_per_io", counters.doorbells as f64 / operations);
    put("requests_per_doorbell", counters.requests as f64 / counters.doorbells as f64);
    put("merged_share", counters.merged as f64 / counters.bios as f64);
    put("bios_per_run", counters.completions as f64 / counters.runs as f64);
    add_usage(&mut metrics, counted.usage, tally.operations, tally.bytes);
    metrics
}
