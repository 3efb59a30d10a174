//! fio as an arm: what a reader would otherwise measure with, over the same file in the same shape.
//!
//! It is started as a child with one thread, told the same block size, depth and batches,
//! registered file and buffers, and read from its JSON. With a batch its own options hand over
//! `iodepth_batch_submit` at once and wait for as many; without one it hands over what is free and
//! waits for one, both as [`super::uring`] does. It dies with this process.

use std::path::Path;

use crate::cell::CellResult;
use crate::fio_program::{self, Report, filename};
use crate::load::error::CellError;
use crate::load::timed::Spans;
use crate::metric;
use crate::request::{Operation, Pattern, RequestSpec, Switch};

pub(super) fn run(spec: &RequestSpec, path: &Path) -> Result<CellResult, CellError> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    Ok(figures(spec, &fio_program::run(&arguments(spec, path), directory)?))
}

fn arguments(spec: &RequestSpec, path: &Path) -> Vec<String> {
    let order = match (spec.pattern, spec.operation) {
        (Pattern::Random, Operation::Read) => "randread",
        (Pattern::Random, Operation::Write) => "randwrite",
        (Pattern::Sequential, Operation::Read) => "read",
        (Pattern::Sequential, Operation::Write) => "write",
    };
    // Without a batch it hands over all free places and waits for one.
    let (at_once, waited_for) = (spec.batch.unwrap_or(spec.depth), spec.batch.unwrap_or(1));
    let millis = |seconds: f64| format!("{:.0}ms", (seconds * 1000.0).max(1.0));
    let mut arguments = vec![
        "--name=requests".to_owned(),
        // Before the options that are its own.
        "--ioengine=io_uring".to_owned(),
        filename(path),
        format!("--size={}", spec.file_bytes),
        format!("--rw={order}"),
        format!("--bs={}", spec.block_bytes),
        format!("--iodepth={}", spec.depth),
        format!("--iodepth_batch_submit={}", at_once.min(spec.depth)),
        format!("--iodepth_batch_complete_min={}", waited_for.min(spec.depth)),
        format!("--iodepth_batch_complete_max={}", spec.depth),
        format!("--registerfiles={}", u8::from(spec.fixed_files == Switch::On)),
        format!("--runtime={}", millis(spec.seconds)),
        format!("--ramp_time={}", millis(Spans::of(spec.counted()).ramp.as_secs_f64())),
        format!("--randseed={}", spec.seed >> 1),
    ];
    let fixed = [
        "--direct=1",
        "--fixedbufs=1",
        "--norandommap=1",
        "--time_based=1",
        "--thread=1",
        "--invalidate=0",
        "--allow_file_create=0",
        "--fallocate=none",
        "--lat_percentiles=1",
        "--clat_percentiles=0",
        "--percentile_list=50:99",
        "--output-format=json",
        "--eta=never",
    ];
    arguments.extend(fixed.map(str::to_owned));
    if spec.operation == Operation::Read {
        arguments.push("--readonly".to_owned());
    }
    arguments
}

fn figures(spec: &RequestSpec, report: &Report) -> CellResult {
    let job = &report.jobs[0];
    let found = match spec.operation {
        Operation::Read => &job.read,
        Operation::Write => &job.write,
    };
    let mut result = CellResult { notes: vec![report.version.clone()], ..CellResult::default() };
    if found.total_ios <= 0.0 || found.iops <= 0.0 {
        result.notes.push("nothing ended in the time given".into());
        return result;
    }
    let direction = spec.operation.name();
    let mut put = |name: &str, value: f64| metric::put(&mut result.metrics, name, value);
    put("iops", found.iops);
    put(&format!("{direction}_iops"), found.iops);
    put(&format!("{direction}_bytes_per_s"), found.iops * f64::from(spec.block_bytes));
    put("ns_per_io", 1e9 / found.iops);
    put("elapsed_s", found.runtime / 1e3);
    put("cpu_us_per_io", job.cpu_us() / found.total_ios);
    put("context_switches", job.ctx);
    put("context_switches_per_io", job.ctx / found.total_ios);
    for (metric, percent) in [("latency_p50_us", 50.0), ("latency_p99_us", 99.0)] {
        // From made to ended, as it is counted on the other arms; not from handed over.
        if let Some(nanos) = found.lat_ns.percentile(percent) {
            put(metric, nanos / 1e3);
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> RequestSpec {
        super::super::tests::on_file(Pattern::Random)
    }

    #[test]
    fn its_options_say_the_same_shape() {
        let arguments =
            arguments(&RequestSpec { batch: Some(8), ..spec() }, Path::new("/a:b/data"));
        for expected in [
            "--filename=/a\\:b/data",
            "--rw=randread",
            "--iodepth=16",
            "--iodepth_batch_submit=8",
            "--iodepth_batch_complete_min=8",
            "--readonly",
            "--norandommap=1",
            "--lat_percentiles=1",
        ] {
            assert!(
                arguments.iter().any(|argument| argument == expected),
                "{expected}: {arguments:?}"
            );
        }
        let alone =
            RequestSpec { batch: Some(32), depth: 1, operation: Operation::Write, ..spec() };
        let arguments = super::arguments(&alone, Path::new("data"));
        assert!(arguments.contains(&"--iodepth_batch_submit=1".to_owned()));
        assert!(!arguments.contains(&"--readonly".to_owned()));
        let free = super::arguments(&spec(), Path::new("data"));
        assert!(free.contains(&"--iodepth_batch_submit=16".to_owned()), "{free:?}");
        assert!(free.contains(&"--iodepth_batch_complete_min=1".to_owned()), "{free:?}");
    }

    #[test]
    fn its_report_becomes_metrics() {
        let text = r#"fio: a line before
            {"fio version": "fio-3.33", "jobs": [{"error": 0, "usr_cpu": 10.0, "sys_cpu": 40.0, "ctx": 500,
             "job_runtime": 2000, "write": {"iops": 0.0, "total_ios": 0, "runtime": 0, "lat_ns": {}},
             "read": {"iops": 50000.0, "total_ios": 100000, "runtime": 2000,
                      "lat_ns": {"percentile": {"50.000000": 300000, "99.000000": 900000}}}}]}"#;
        let figures = |text: &str| {
            fio_program::report(text.as_bytes()).map(|report| figures(&spec(), &report))
        };
        let result = figures(text).unwrap();
        assert_eq!(result.notes, ["fio-3.33"]);
        assert_eq!((result.metrics["iops"], result.metrics["ns_per_io"]), (50_000.0, 20_000.0));
        assert_eq!(
            (result.metrics["cpu_us_per_io"], result.metrics["latency_p99_us"]),
            (10.0, 900.0)
        );
        assert_eq!(result.metrics["context_switches_per_io"], 0.005);
        let failed = text.replace(r#""error": 0"#, r#""error": 5"#);
        assert!(figures(&failed).unwrap_err().to_string().contains("Input/output error"));
        assert!(figures("nothing").unwrap_err().to_string().contains("cannot be read"));
    }
}
