//! fio on a job file as it stands, in the directory of the cell: the usual tool to measure with.
//!
//! Two options are added in front so that the figures compare with the other arms: the final sync,
//! which ends the clock of every arm here, and a seed if the file has none. Percentiles exist only
//! for one job, because those of several cannot be combined.

use std::fs;

use super::error::{CellError, Context};
use crate::cell::{CellResult, FioCell};
use crate::fio_program::{self, Direction, Job, Report};
use crate::job::{Caching, Devices};
use crate::metric;

/// The job file, below the cell's directory.
const FILE: &str = "cell.fio";

/// The minor versions of fio 3 whose `uncached` sends the flag of another thing.
const WRONG_UNCACHED: std::ops::RangeInclusive<u32> = 17..=39;

/// Runs it to its end.
pub(super) fn run(cell: &FioCell) -> Result<CellResult, CellError> {
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
}
