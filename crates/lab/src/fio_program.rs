//! The program fio as a child: started with options, and read from its JSON.
//!
//! It dies with this process. The latencies differ: `clat` begins, over a ring, only when the
//! submitting call has returned, `lat` when the operation was made; for single calls `clat` is the
//! call itself. Percentiles are those requested with `clat_percentiles` and `lat_percentiles`.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use serde::Deserialize;

use crate::load::error::CellError;

#[derive(Deserialize, Debug)]
pub(crate) struct Report {
    #[serde(rename = "fio version")]
    pub(crate) version: String,
    pub(crate) jobs: Vec<Job>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Job {
    #[serde(default)]
    jobname: String,
    error: i32,
    usr_cpu: f64,
    sys_cpu: f64,
    pub(crate) ctx: f64,
    job_runtime: f64,
    pub(crate) read: Direction,
    pub(crate) write: Direction,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Direction {
    pub(crate) total_ios: f64,
    #[serde(default)]
    pub(crate) io_bytes: f64,
    /// Milliseconds.
    pub(crate) runtime: f64,
    /// From made to ended.
    #[serde(default)]
    pub(crate) lat_ns: Latency,
    /// From handed over to ended.
    #[serde(default)]
    pub(crate) clat_ns: Latency,
}

#[derive(Deserialize, Default, Debug)]
pub(crate) struct Latency {
    /// Absent where nothing ended; keys are such as `99.000000`.
    #[serde(default)]
    percentile: BTreeMap<String, f64>,
}

impl Job {
    /// Returns microseconds of processor time.
    pub(crate) fn cpu_us(&self) -> f64 {
        (self.usr_cpu + self.sys_cpu) / 100.0 * self.job_runtime * 1e3
    }
}

impl Latency {
    /// Returns nanoseconds, if that percentile was asked for.
    pub(crate) fn percentile(&self, percent: f64) -> Option<f64> {
        self.percentile.get(&format!("{percent:.6}")).copied()
    }
}

/// Returns its version, such as `fio-3.33`.
pub fn version() -> Result<String, CellError> {
    let output = output(&["--version".to_owned()], Path::new("."))?;
    Ok(String::from_utf8_lossy(&output).trim().to_owned())
}

/// Runs it in a directory, to its end.
pub(crate) fn run(arguments: &[String], directory: &Path) -> Result<Report, CellError> {
    report(&output(arguments, directory)?)
}

fn output(arguments: &[String], directory: &Path) -> Result<Vec<u8>, CellError> {
    let parent = getpid();
    let dies_with_us = move || {
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
        // A parent that died before this call sends no signal.
        match getppid() == Some(parent) {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    };
    let mut command = Command::new("fio");
    command.args(arguments).current_dir(directory).stdin(Stdio::null());
    // SAFETY: between fork and exec there are two calls into the kernel, which neither allocate nor
    // lock; nor does an error that is made of a number.
    unsafe {
        command.pre_exec(dies_with_us);
    }
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => CellError::unavailable("fio is not installed (apt install fio)"),
        _ => CellError::failed("could not start fio", &error),
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let said = errors.lines().find(|line| line.contains("fio")).unwrap_or_default().trim();
    Err(nonsense(format!("{}; {said}", output.status)))
}

/// Reads what it has written; a job that failed is its failure.
pub(crate) fn report(output: &[u8]) -> Result<Report, CellError> {
    // It may say something before, such as that a job took longer to set up.
    let start = output.iter().position(|byte| *byte == b'{').unwrap_or(0);
    let report: Report = serde_json::from_slice(&output[start..])
        .map_err(|error| nonsense(format!("its report cannot be read: {error}")))?;
    if report.jobs.is_empty() {
        return Err(nonsense("it ran no job".into()));
    }
    match report.jobs.iter().find(|job| job.error != 0) {
        None => Ok(report),
        Some(Job { jobname, error, .. }) => {
            Err(nonsense(format!("{jobname}: {}", io::Error::from_raw_os_error(*error))))
        }
    }
}

fn nonsense(what: String) -> CellError {
    CellError::Process { what: format!("fio: {what}") }
}

/// Returns the option of a file's name. A colon would part two names.
pub(crate) fn filename(path: &Path) -> String {
    format!("--filename={}", path.display().to_string().replace(':', "\\:"))
}
