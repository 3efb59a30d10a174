//! Cells in fio's format: the fields of `fio --output-format=json+`, by the same names and in the
//! same units, so that readers of fio's files read these. A file for each cell, with one job.
//!
//! Unknown values are left out, not given as zero: depths, the time of day, the latencies of syncs.
//! Latencies are taken from before an operation is handed over until its end is seen, which stands
//! as both `clat_ns` and `lat_ns`. Bandwidth over time (`bw_min` and such) is of slots of at least
//! 10 ms, which are longer in longer cells.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::detail::{Bins, Flow, Latency};
use crate::file_name::plain;
use crate::schema::{CellRecord, Document};
use crate::statistics::{mean, sample_stddev};

/// Those fio tells where nobody asks for others.
const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];

/// Ends of its ranges of latencies, in each of its three units.
const RANGES: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];

/// One cell as fio would have told it.
#[derive(Clone, PartialEq, Debug)]
pub struct FioFile {
    pub name: String,
    pub report: Value,
}

/// Returns a file for every cell with details.
pub fn fio_files(document: &Document) -> Vec<FioFile> {
    let version = format!("forebay-{}", document.manifest.version);
    let mut taken = BTreeSet::new();
    let file = |cell: &CellRecord| {
        let [of, arm] = [&cell.job, &cell.arm].map(|name| plain(name, "-_+"));
        let stem = format!("{of}.{arm}.{}", cell.round + 1);
        let mut name = format!("{stem}.json");
        let mut number = 1;
        while !taken.insert(name.clone()) {
            number += 1;
            name = format!("{stem}-{number}.json");
        }
        FioFile { name, report: json!({ "fio version": version, "jobs": [job(cell)] }) }
    };
    document.cells.iter().map(file).collect()
}

fn job(cell: &CellRecord) -> Value {
    let detail = &cell.detail;
    let none = Flow::default();
    let (read, write) =
        (detail.read.as_ref().unwrap_or(&none), detail.write.as_ref().unwrap_or(&none));
    let runtime_ns = read.runtime_ns.max(write.runtime_ns);
    let access = match (&detail.read, &detail.write) {
        (Some(_), Some(_)) => "rw",
        (Some(_), None) => "read",
        _ => "write",
    };
    let share_of_time = |micros: u64| 100.0 * micros as f64 * 1e3 / (runtime_ns as f64).max(1.0);
    let all = Bins::sum([&read.latency.bins, &write.latency.bins]);
    json!({
        "jobname": format!("{} {}", cell.job, cell.arm),
        "groupid": 0,
        "error": 0,
        "elapsed": runtime_ns.div_ceil(1_000_000_000),
        "job options": { "name": cell.job, "ioengine": cell.arm, "rw": access },
        "read": direction(read),
        "write": direction(write),
        "trim": direction(&none),
        "job_runtime": runtime_ns / 1_000_000,
        "usr_cpu": share_of_time(detail.usage.user_us),
        "sys_cpu": share_of_time(detail.usage.system_us),
        "ctx": detail.usage.context_switches,
        "majf": detail.usage.major_faults,
        "minf": detail.usage.minor_faults,
        "latency_ns": shares(&all, 1, 0),
        "latency_us": shares(&all, 1_000, 1_000),
        "latency_ms": shares(&all, 1_000_000, 1_000_000),
    })
}

fn direction(flow: &Flow) -> Value {
    let seconds = flow.runtime_ns as f64 / 1e9;
    let rate = |count: u64| if flow.runtime_ns == 0 { 0.0 } else { count as f64 / seconds };
    let kib: Vec<f64> = flow.course.bytes_per_s().map(|speed| speed / 1024.0).collect();
    let operations: Vec<f64> = flow.course.operations_per_s().collect();
    let least = |values: &[f64]| values.iter().copied().reduce(f64::min).unwrap_or(0.0) as u64;
    let most = |values: &[f64]| values.iter().copied().reduce(f64::max).unwrap_or(0.0) as u64;
    let middle = |values: &[f64]| mean(values).unwrap_or(0.0);
    let spread = |values: &[f64]| sample_stddev(values).unwrap_or(0.0);
    json!({
        "io_bytes": flow.bytes,
        "io_kbytes": flow.bytes / 1024,
        "bw_bytes": rate(flow.bytes) as u64,
        "bw": rate(flow.bytes / 1024) as u64,
        "iops": rate(flow.operations),
        "runtime": flow.runtime_ns / 1_000_000,
        "total_ios": flow.operations,
        // An operation that ends short is taken up again where it ended.
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": summary(&Latency::default()),
        "clat_ns": with_bins(&flow.latency),
        "lat_ns": summary(&flow.latency),
        "bw_min": least(&kib),
        "bw_max": most(&kib),
        "bw_agg": if kib.is_empty() { 0.0 } else { 100.0 },
        "bw_mean": middle(&kib),
        "bw_dev": spread(&kib),
        "bw_samples": kib.len(),
        "iops_min": least(&operations),
        "iops_max": most(&operations),
        "iops_mean": middle(&operations),
        "iops_stddev": spread(&operations),
        "iops_samples": operations.len(),
    })
}

fn summary(latency: &Latency) -> Value {
    json!({
        "min": latency.least_ns,
        "max": latency.most_ns,
        "mean": latency.mean_ns,
        "stddev": latency.stddev_ns,
        "N": latency.bins.count(),
    })
}

/// Adds percentiles and all bins.
fn with_bins(latency: &Latency) -> Value {
    let mut told = summary(latency);
    if latency.bins.count() > 0 {
        let percentile = PERCENTILES.iter().filter_map(|percent| {
            let nanos = latency.bins.quantile(percent / 100.0)?;
            Some((format!("{percent:.6}"), Value::from(nanos)))
        });
        let bins =
            latency.bins.0.iter().map(|(nanos, count)| (nanos.to_string(), Value::from(*count)));
        told["percentile"] = Value::Object(percentile.collect());
        told["bins"] = Value::Object(bins.collect());
    }
    told
}

/// How many of a hundred were in each range of a unit; a shorter one than `from` belongs to the
/// unit before.
fn shares(bins: &Bins, unit_ns: u64, from_ns: u64) -> Value {
    let all = bins.count().max(1) as f64;
    let percent =
        |above: u64, upto: u64| Value::from(bins.between(above, upto) as f64 * 100.0 / all);
    let mut table = Map::new();
    let mut above = from_ns.saturating_sub(u64::from(from_ns > 0));
    for end in RANGES {
        // The end itself belongs to the next.
        let upto = end * unit_ns - 1;
        table.insert(end.to_string(), percent(above, upto));
        above = upto;
    }
    if unit_ns == 1_000_000 {
        table.insert("2000".to_owned(), percent(above, 2000 * unit_ns - 1));
        table.insert(">=2000".to_owned(), percent(2000 * unit_ns - 1, u64::MAX));
    }
    Value::Object(table)
}

#[cfg(test)]
mod tests;
