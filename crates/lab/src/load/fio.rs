//! fio as an arm: the usual tool to measure with, over the same files in the same shape.
//!
//! A job file is run as it stands, in the directory of the cell. Two options are added in front so
//! that the figures compare with the other arms: the final sync, which ends the clock of every arm
//! here, and a seed if the file has none. Percentiles exist only for one job, because those of
//! several cannot be combined.
//!
//! Requests are one thread with the same block size, depth and batches, registered file and
//! buffers. With a batch fio hands over `iodepth_batch_submit` at once and waits for as many;
//! without one it hands over what is free and waits for one, both as the arm `uring` does.

use std::fs;
use std::path::Path;

use super::error::{CellError, Context};
use super::timed::Spans;
use crate::cell::{CellResult, FioCell};
use crate::fio_program::{self, Direction, Job, Report, filename};
use crate::job::{Caching, Devices};
use crate::metric;
use crate::request::{Operation, Pattern, RequestSpec, Switch};

/// The job file, below the cell's directory.
const FILE: &str = "cell.fio";

/// The minor versions of fio 3 whose `uncached` sends the flag of another thing.
const WRONG_UNCACHED: std::ops::RangeInclusive<u32> = 17..=39;

/// Runs a job file to its end.
pub(crate) fn run(cell: &FioCell) -> Result<CellResult, CellError> {
    let text = cell.text.as_ref().map_err(|why| CellError::unavailable(why.clone()))?;
    refuse_uncached(cell)?;
    let path = cell.directory.join(FILE);
    let writes = cell.workload.jobs.iter().any(|job| job.access.direction.writes());
    let sync = if writes { "end_fsync=1\n" } else { "" };
    let text = format!("[global]\nrandseed={}\n{sync}{text}", cell.seed >> 1);
    fs::write(&path, text).context_at("could not write it", &path)?;
    let mut arguments = vec!["--output-format=json".to_owned(), "--eta=never".to_owned()];
    if !writes && cell.workload.devices == Devices::ReadOnly {
        arguments.push("--readonly".to_owned());
    }
    arguments.push(FILE.to_owned());
    Ok(figures(&fio_program::run(&arguments, &cell.directory)?))
}

/// The older ones ask for something else, which no file system does.
fn refuse_uncached(cell: &FioCell) -> Result<(), CellError> {
    if cell.workload.jobs.iter().all(|job| job.caching != Caching::Uncached) {
        return Ok(());
    }
    let version = fio_program::version()?;
    let minor =
        version.strip_prefix("fio-3.").and_then(|rest| rest.split(['-', '.']).next()?.parse().ok());
    if minor.is_some_and(|minor| WRONG_UNCACHED.contains(&minor)) {
        return Err(CellError::unavailable(format!(
            "{version} sends another flag for uncached (use fio 3.40 or newer)"
        )));
    }
    Ok(())
}

fn figures(report: &Report) -> CellResult {
    let mut result = CellResult { notes: vec![report.version.clone()], ..CellResult::default() };
    let mut put = |name: &str, value: f64| metric::put(&mut result.metrics, name, value);
    let jobs = &report.jobs;
    let all = |of: fn(&Job) -> &Direction| {
        let of_all = jobs.iter().map(of);
        let seconds = of_all.clone().map(|one| one.runtime).fold(0.0, f64::max) / 1e3;
        (
            of_all.clone().map(|one| one.total_ios).sum::<f64>(),
            of_all.map(|one| one.io_bytes).sum::<f64>(),
            seconds,
        )
    };
    let (reads, writes) = (all(|job| &job.read), all(|job| &job.write));
    let (operations, seconds) = (reads.0 + writes.0, reads.2.max(writes.2));
    if operations <= 0.0 || seconds <= 0.0 {
        result.notes.push("nothing ended in the time given".into());
        return result;
    }
    put("iops", operations / seconds);
    put("elapsed_s", seconds);
    put("cpu_us_per_io", jobs.iter().map(Job::cpu_us).sum::<f64>() / operations);
    let switches: f64 = jobs.iter().map(|job| job.ctx).sum();
    put("context_switches", switches);
    put("context_switches_per_io", switches / operations);
    for (name, (count, bytes, seconds)) in [("read", reads), ("write", writes)] {
        if count > 0.0 {
            put(&format!("{name}_iops"), count / seconds);
            put(&format!("{name}_bytes_per_s"), bytes / seconds);
        }
    }
    if let [job] = jobs.as_slice() {
        for (name, direction) in [("read", &job.read), ("write", &job.write)] {
            for (label, percent) in [("p50", 50.0), ("p99", 99.0), ("p999", 99.9)] {
                if let Some(nanos) = direction.clat_ns.percentile(percent) {
                    put(&format!("{name}_latency_{label}_us"), nanos / 1e3);
                }
            }
        }
    }
    result
}

/// Runs the requests of a cell on a file.
pub(super) fn run_requests(spec: &RequestSpec, path: &Path) -> Result<CellResult, CellError> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    Ok(request_figures(spec, &fio_program::run(&arguments(spec, path), directory)?))
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

/// Returns the figures of requests.
fn request_figures(spec: &RequestSpec, report: &Report) -> CellResult {
    let mut result = figures(report);
    let Some(&iops) = result.metrics.get("iops") else { return result };
    metric::put(&mut result.metrics, "ns_per_io", 1e9 / iops);
    let job = &report.jobs[0];
    let found = if spec.operation == Operation::Read { &job.read } else { &job.write };
    for (name, percent) in [("latency_p50_us", 50.0), ("latency_p99_us", 99.0)] {
        // From made to ended, as it is counted on the other arms; not from handed over.
        if let Some(nanos) = found.lat_ns.percentile(percent) {
            metric::put(&mut result.metrics, name, nanos / 1e3);
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Workload;

    fn job(name: &str, ios: u32, error: i32) -> String {
        format!(
            r#"{{"jobname":"{name}","error":{error},"usr_cpu":10.0,"sys_cpu":10.0,"ctx":50,"job_runtime":1000,
            "read":{{"total_ios":0,"io_bytes":0,"runtime":0,"clat_ns":{{}}}},
            "write":{{"total_ios":{ios},"io_bytes":{},"runtime":2000,
            "clat_ns":{{"percentile":{{"50.000000":3000,"99.000000":9000}}}}}}}}"#,
            ios * 4096
        )
    }

    fn read(jobs: &[String]) -> Result<CellResult, CellError> {
        let text = format!(r#"{{"fio version":"fio-3.33","jobs":[{}]}}"#, jobs.join(","));
        fio_program::report(text.as_bytes()).map(|report| figures(&report))
    }

    #[test]
    fn jobs_add_up_and_percentiles_do_not() {
        let one = read(&[job("a", 1000, 0)]).unwrap();
        assert_eq!((one.metrics["iops"], one.metrics["write_latency_p99_us"]), (500.0, 9.0));
        let two = read(&[job("a", 1000, 0), job("b", 3000, 0)]).unwrap();
        assert_eq!((two.metrics["write_iops"], two.metrics["context_switches"]), (2000.0, 100.0));
        assert_eq!(two.metrics["write_bytes_per_s"], 2000.0 * 4096.0);
        assert!(
            !two.metrics.contains_key("write_latency_p99_us")
                && !two.metrics.contains_key("read_iops")
        );
        let failed = read(&[job("a", 1, 0), job("b", 1, 28)]).unwrap_err().to_string();
        assert!(failed.contains("fio: b: No space left"), "{failed}");
    }

    #[test]
    fn why_fio_cannot_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let cell = FioCell {
            text: Err("several groups".into()),
            workload: Workload::default(),
            directory: directory.path().to_owned(),
            seed: 7,
        };
        assert_eq!(run(&cell).unwrap_err().to_string(), "several groups");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    fn spec() -> RequestSpec {
        crate::load::request::tests::on_file(Pattern::Random)
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
            fio_program::report(text.as_bytes()).map(|report| request_figures(&spec(), &report))
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
