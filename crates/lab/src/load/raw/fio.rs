//! fio as an arm: what a reader would otherwise measure with, over the same file in the same shape.
//!
//! It is started as a child with one thread, told the same block size, depth and batches, registered file and buffers,
//! and read from its JSON. With a batch its own options hand over `iodepth_batch_submit` at once and wait for as many;
//! without one it hands over what is free and waits for one, both as [`super::uring`] does. It dies with this process.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use serde::Deserialize;
use serde_json::Value;

use super::tally::direction;
use crate::cell::CellResult;
use crate::load::CellError;
use crate::request::{Operation, Pattern, RequestSpec, Switch};

const PROGRAM: &str = "fio";

/// The part of its report that is read.
#[derive(Deserialize)]
struct Report {
    #[serde(rename = "fio version")]
    version: String,
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    error: i64,
    usr_cpu: f64,
    sys_cpu: f64,
    ctx: f64,
    job_runtime: f64,
    read: Direction,
    write: Direction,
}

#[derive(Deserialize)]
struct Direction {
    iops: f64,
    total_ios: f64,
    runtime: f64,
    /// From made to ended, as it is counted on the other arms; not from handed over, which is `clat_ns`.
    lat_ns: Latency,
}

#[derive(Deserialize)]
struct Latency {
    /// Absent where nothing ended; keys are such as `99.000000`.
    #[serde(default)]
    percentile: serde_json::Map<String, Value>,
}

pub(super) fn run(spec: &RequestSpec, path: &Path) -> Result<CellResult, CellError> {
    let output = child(arguments(spec, path), path.parent())?;
    figures(spec, &output)
}

/// What fio says to some arguments, started in a directory. It ends with this process.
pub(in crate::load) fn child(arguments: Vec<String>, directory: Option<&Path>) -> Result<Vec<u8>, CellError> {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).stdin(Stdio::null());
    if let Some(directory) = directory {
        command.current_dir(directory);
    }
    let parent = getpid();
    let dies_with_us = move || {
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
        // A parent that died before that was asked for sends no signal any more.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
    };
    // SAFETY: between fork and exec there are two calls into the kernel, which neither allocate nor lock; nor does an
    // error that is made of a number.
    unsafe {
        command.pre_exec(dies_with_us);
    }
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => CellError::unavailable("fio is not installed (apt install fio)"),
        _ => CellError::system("could not start fio", &error),
    })?;
    let said = |text: &[u8]| {
        let text = String::from_utf8_lossy(text);
        text.lines().find(|line| line.contains("fio")).unwrap_or_default().trim().to_owned()
    };
    if !output.status.success() {
        return Err(CellError::Process { what: format!("fio: {}; {}", output.status, said(&output.stderr)) });
    }
    Ok(output.stdout)
}

fn arguments(spec: &RequestSpec, path: &Path) -> Vec<String> {
    let on = |switch| u8::from(switch == Switch::On);
    let order = match (spec.pattern, spec.operation) {
        (Pattern::Random, Operation::Read) => "randread",
        (Pattern::Random, Operation::Write) => "randwrite",
        (Pattern::Sequential, Operation::Read) => "read",
        (Pattern::Sequential, Operation::Write) => "write",
    };
    // Without a batch it hands over whatever is free and waits for one.
    let (at_once, waited_for) = (spec.batch.unwrap_or(spec.depth), spec.batch.unwrap_or(1));
    let millis = |seconds: f64| format!("{:.0}ms", (seconds * 1000.0).max(1.0));
    let mut arguments = vec![
        "--name=requests".to_owned(),
        // Before the options that are its own.
        "--ioengine=io_uring".to_owned(),
        format!("--filename={}", path.display().to_string().replace(':', "\\:")),
        format!("--size={}", spec.file_bytes),
        format!("--rw={order}"),
        format!("--bs={}", spec.block_bytes),
        format!("--iodepth={}", spec.depth),
        format!("--iodepth_batch_submit={}", at_once.min(spec.depth)),
        format!("--iodepth_batch_complete_min={}", waited_for.min(spec.depth)),
        format!("--iodepth_batch_complete_max={}", spec.depth),
        format!("--fixedbufs={}", on(spec.fixed_buffers)),
        format!("--registerfiles={}", on(spec.fixed_files)),
        format!("--runtime={}", millis(spec.seconds)),
        format!("--ramp_time={}", millis(spec.ramp().as_secs_f64())),
        format!("--randseed={}", spec.seed >> 1),
    ];
    let fixed = [
        "--direct=1",
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

fn figures(spec: &RequestSpec, output: &[u8]) -> Result<CellResult, CellError> {
    // It may say something before, such as that a job took longer to set up.
    let start = output.iter().position(|byte| *byte == b'{').unwrap_or(0);
    let nonsense = |what: String| CellError::Process { what: format!("fio: {what}") };
    let report: Report = serde_json::from_slice(&output[start..])
        .map_err(|error| nonsense(format!("its report cannot be read: {error}")))?;
    let job = report.jobs.first().ok_or_else(|| nonsense("it ran no job".into()))?;
    if job.error != 0 {
        let error = io::Error::from_raw_os_error(job.error as i32);
        return Err(nonsense(error.to_string()));
    }
    let found = match spec.operation {
        Operation::Read => &job.read,
        Operation::Write => &job.write,
    };
    let mut result = CellResult { notes: vec![report.version], ..CellResult::default() };
    if found.total_ios <= 0.0 || found.iops <= 0.0 {
        result.notes.push("nothing ended in the time given".into());
        return Ok(result);
    }
    let direction = direction(spec.operation);
    let mut put = |name: &str, value: f64| {
        if value.is_finite() {
            result.metrics.insert(name.to_owned(), value);
        }
    };
    put("iops", found.iops);
    put(&format!("{direction}_iops"), found.iops);
    put(&format!("{direction}_bytes_per_s"), found.iops * f64::from(spec.block_bytes));
    put("ns_per_io", 1e9 / found.iops);
    put("elapsed_s", found.runtime / 1e3);
    put("cpu_us_per_io", (job.usr_cpu + job.sys_cpu) / 100.0 * job.job_runtime * 1e3 / found.total_ios);
    put("context_switches", job.ctx);
    put("context_switches_per_io", job.ctx / found.total_ios);
    for (metric, key) in [("latency_p50_us", "50.000000"), ("latency_p99_us", "99.000000")] {
        if let Some(nanos) = found.lat_ns.percentile.get(key).and_then(Value::as_f64) {
            put(metric, nanos / 1e3);
        }
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> RequestSpec {
        super::super::tests::spec(Pattern::Random)
    }

    #[test]
    fn its_options_say_the_same_shape() {
        let arguments = arguments(&RequestSpec { batch: Some(8), ..spec() }, Path::new("/a:b/data"));
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
            assert!(arguments.iter().any(|argument| argument == expected), "{expected}: {arguments:?}");
        }
        let alone = RequestSpec { batch: Some(32), depth: 1, operation: Operation::Write, ..spec() };
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
        let result = figures(&spec(), text.as_bytes()).unwrap();
        assert_eq!(result.notes, ["fio-3.33"]);
        assert_eq!((result.metrics["iops"], result.metrics["ns_per_io"]), (50_000.0, 20_000.0));
        assert_eq!((result.metrics["cpu_us_per_io"], result.metrics["latency_p99_us"]), (10.0, 900.0));
        assert_eq!(result.metrics["context_switches_per_io"], 0.005);
        let failed = text.replace(r#""error": 0"#, r#""error": 5"#);
        assert!(figures(&spec(), failed.as_bytes()).unwrap_err().to_string().contains("Input/output error"));
        assert!(figures(&spec(), b"nothing").unwrap_err().to_string().contains("cannot be read"));
    }
}
