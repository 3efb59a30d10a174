//! From counts to metrics. Metrics that are not defined for a cell are left out.
//!
//! An *I/O* is one bio. Rates are over the time the loop ran, which is up to one turn longer than
//! asked.

use std::collections::BTreeMap;

use super::drive::Outcome;
use crate::batching;
use crate::detail::{Course, Detail, Flow, Latency};
use crate::metric;
use crate::request::{Operation, RequestSpec};

type Metrics = BTreeMap<String, f64>;

/// How it went. From another thread no latencies are known.
pub(crate) fn detail(spec: &RequestSpec, outcome: &Outcome) -> Detail {
    let flow = Some(Flow {
        operations: outcome.bios,
        bytes: outcome.bios * u64::from(spec.block_bytes),
        runtime_ns: outcome.elapsed.as_nanos() as u64,
        latency: Latency::of(&outcome.latencies),
        course: Course::default(),
    });
    let (read, write) = match spec.operation {
        Operation::Read => (flow, None),
        Operation::Write => (None, flow),
    };
    let (usage, holds) = (outcome.usage.process, outcome.holds.clone());
    Detail { read, write, usage, holds, ..Detail::default() }
}

/// Everything that is defined for this cell.
pub(crate) fn of(spec: &RequestSpec, outcome: &Outcome, driver_ns: f64) -> Metrics {
    let mut metrics = Metrics::new();
    let mut put = |name: &str, value: f64| metric::put(&mut metrics, name, value);
    let (bios, seconds) = (outcome.bios as f64, outcome.elapsed.as_secs_f64());
    let direction = spec.operation.name();
    put("elapsed_s", seconds);
    put("iops", bios / seconds);
    put(&format!("{direction}_iops"), bios / seconds);
    put(&format!("{direction}_bytes_per_s"), bios * f64::from(spec.block_bytes) / seconds);
    put("ns_per_io", seconds * 1e9 / bios);
    put("driver_ns_per_io", driver_ns);
    // From another thread, when a bio was submitted is known there alone.
    if !outcome.latencies.is_empty() {
        for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
            let micros = outcome.latencies.value_at_quantile(quantile) as f64 / 1000.0;
            put(&format!("{direction}_latency_{name}_us"), micros);
            if name != "p999" {
                put(&format!("latency_{name}_us"), micros);
            }
        }
    }
    // A way that does not count something has none of it: nothing divided by nothing is left out.
    let (before, after) = (&outcome.before, &outcome.after);
    let doorbells = (after.doorbells - before.doorbells) as f64;
    put("doorbells_per_io", doorbells / bios);
    put("requests_per_doorbell", (after.dispatched - before.dispatched) as f64 / doorbells);
    put(
        "merged_share",
        (after.merged_bios - before.merged_bios) as f64 / (after.bios - before.bios) as f64,
    );
    let runs = (after.completion_runs - before.completion_runs) as f64;
    put("bios_per_run", (after.completed_bios - before.completed_bios) as f64 / runs);
    let usage = &outcome.usage;
    put("context_switches", usage.process.context_switches as f64);
    put("context_switches_per_io", usage.process.context_switches as f64 / bios);
    if let Some(switches) = usage.system_context_switches {
        put("system_context_switches_per_io", switches as f64 / bios);
    }
    put("cpu_us_per_io", usage.process.cpu_us() as f64 / bios);
    if let Some(batched) = usage.batched {
        batching::add(batched, &mut metrics);
    }
    metrics
}
