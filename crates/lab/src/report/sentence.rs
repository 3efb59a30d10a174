//! The figures of a job that its probe shows, and its result in one sentence. Sentences are
//! computed from the verdicts: only shown differences are reported as such.

use crate::figures::{bytes, ratio};
use crate::metric;
use crate::schema::Against;

use super::reader::Reader;
use super::summary::name;

const THROUGHPUT: &str = "write_bytes_per_s";

/// Completion at once, as Forebay has it by default.
const AT_ONCE: &str = "forebay-immediate";

/// Completions that are held for a fixed time.
const HELD: &str = "forebay-delay";

/// How a comparison without a shown difference begins.
const NO_DIFFERENCE: &str = "shows no difference from ";

/// Returns the sentence on a job; none if an arm that it speaks of did not run.
pub(super) fn sentence(reader: Reader<'_>) -> Option<String> {
    match reader.job.probe.as_str() {
        "requests" if reader.arms().contains(&"adaptive") => requests(reader),
        "jobs" if reader.arms().contains(&AT_ONCE) => completion(reader),
        "new-files" => new_files(reader),
        _ => usual(reader),
    }
}

/// Compares the arm that runs twice with the base, or the other arms with it if it is the base.
fn usual(reader: Reader<'_>) -> Option<String> {
    let (arm, base) = (reader.part.again.as_str(), reader.job.base.as_deref()?);
    let metric = metric::find(&reader.part.metric)?;
    let head = metric.head.replace('|', " ");
    let found = if arm == base {
        let all = reader.arms().into_iter().filter_map(|arm| reader.against_base(arm));
        let own = all.filter(|one| !one.arm.ends_with("-again"));
        own.max_by(|one, other| one.ratio.total_cmp(&other.ratio))?
    } else {
        reader.against_base(arm)?
    };
    let (arm, base) = (&found.arm, &found.base);
    Some(match reader.shown(found) {
        Some(factor) => format!("{arm} has {factor} the {head} of {base}."),
        None => format!("{arm} {NO_DIFFERENCE}{base} in {head}."),
    })
}

/// Compares Forebay with the best bounded arm of the kernel, in speed and memory.
fn new_files(reader: Reader<'_>) -> Option<String> {
    let Some(base) = reader.job.base.as_deref() else {
        return Some("no bounded arm of the kernel ran here.".to_owned());
    };
    let Some(found) = reader.compared(THROUGHPUT, Against { arm: "forebay", base }) else {
        let why = reader.why_left_out("forebay").unwrap_or_default();
        return Some(format!("forebay did not run here{why}."));
    };
    let best = format!("the best bounded kernel arm ({base})");
    let said = match reader.shown(found) {
        Some(factor) => format!("forebay writes {factor} the bytes per second of {best}"),
        None => format!("forebay {NO_DIFFERENCE}{best}"),
    };
    let memory = memory(reader, "forebay", base).map(|memory| format!(", with {memory}"));
    Some(format!("{said}{}.", memory.unwrap_or_default()))
}

/// Returns `66 MiB of memory against 64 MiB`, if both are known.
fn memory(reader: Reader<'_>, arm: &str, base: &str) -> Option<String> {
    let memory = |arm: &str| reader.mean(arm, "peak_memory_bytes").map(bytes);
    Some(format!("{} of memory against {}", memory(arm)?, memory(base)?))
}

/// Compares adaptive batching with submitting requests one by one, and with the best of the
/// kernel's paths.
fn requests(reader: Reader<'_>) -> Option<String> {
    let job = reader.job;
    let (adaptive, single) = ("adaptive", "never");
    let depth = job.depth.map(|depth| format!("at depth {depth}, ")).unwrap_or_default();
    let calls = |arm: &str| reader.mean(arm, "doorbells_per_io");
    let rate = |base: &str| {
        let compared = reader.compared("iops", Against { arm: adaptive, base })?;
        Some(reader.shown(compared))
    };
    let own = rate(single)?;
    let kernel = job.base.as_deref().filter(|base| base.starts_with("kernel-"));
    let kernel =
        kernel.and_then(|base| Some((format!("the best kernel path ({base})"), rate(base)?)));
    let mut said = match &own {
        Some(own) => format!("batching gives {own} the IOPS of single submission"),
        None => "batching shows no difference from single submission".to_owned(),
    };
    if let Some((path, other)) = kernel {
        said += &match (own, other) {
            (Some(_), Some(other)) => format!(" and {other} those of {path}"),
            (Some(_), None) => format!(" and {NO_DIFFERENCE}{path}"),
            (None, Some(other)) => format!(" and gives {other} the IOPS of {path}"),
            (None, None) => format!(" or from {path}"),
        };
    }
    let saved = match (calls(adaptive), calls(single)) {
        (Some(batched), Some(single)) if (single - batched).abs() >= 0.005 => {
            let [batched, single] = [batched, single].map(ratio);
            format!("; it makes {batched} system calls per I/O instead of {single}")
        }
        _ => String::new(),
    };
    Some(format!("{depth}{said}{saved}."))
}

/// Compares completion at once with a delay and with the best bounded arm of the kernel.
fn completion(reader: Reader<'_>) -> Option<String> {
    let job = reader.job;
    let against = |base: &str, called: &str| {
        let found = |metric: &str| reader.compared(metric, Against { arm: AT_ONCE, base });
        let bandwidth = found(THROUGHPUT)?;
        let latency = found("write_latency_p99_us").and_then(|found| reader.shown(found));
        let differs: Vec<String> = reader
            .shown(bandwidth)
            .map(|times| format!("{times} the bandwidth"))
            .into_iter()
            .chain(latency.map(|times| format!("{times} the p99 latency")))
            .collect();
        Some(match differs.as_slice() {
            [] => format!("{NO_DIFFERENCE}{called}"),
            differs => format!("gives {} of {called}", differs.join(" and ")),
        })
    };
    let kernel = job.base.as_deref().map(|base| {
        let memory = memory(reader, AT_ONCE, base).map(|memory| format!(" ({memory})"));
        let memory = memory.unwrap_or_default();
        (base, format!("the best bounded kernel arm, {}{memory}", name(base)))
    });
    let said = [
        against(HELD, "holding them for 1 ms"),
        kernel.and_then(|(base, called)| against(base, &called)),
    ];
    let said: Vec<String> = said.into_iter().flatten().collect();
    // The name of the job stands before its title.
    let title = job.title.strip_prefix(&job.name).unwrap_or(&job.title);
    let title = title.trim_start_matches([':', ' ']);
    (!said.is_empty())
        .then(|| format!("{title}: ending completions at once {}.", said.join(". It ")))
}

/// Returns the figures that the tables of a probe show, in their order.
pub(super) fn figures(probe: &str) -> &'static [&'static str] {
    match probe {
        "new-files" => &[
            "peak_memory_bytes",
            "sync_probe_p99_us",
            "extents_per_file",
            "context_switches_per_io",
            "system_context_switches_per_io",
            "cpu_us_per_io",
            "doorbells_per_io",
            "written_per_asked",
            "peak_dirty_bytes",
        ],
        "writers" => &[
            "extents_per_file",
            "mean_extent_bytes",
            "sync_probe_p99_us",
            "peak_memory_bytes",
            "peak_dirty_bytes",
            "context_switches_per_io",
            "system_context_switches_per_io",
            "cpu_us_per_io",
            "written_per_asked",
        ],
        "jobs" => &[
            "peak_memory_bytes",
            "write_latency_p99_us",
            "write_latency_p999_us",
            "system_context_switches_per_gib",
            "read_bytes_per_s",
            "read_latency_p99_us",
            "read_latency_p999_us",
            "sync_probe_p50_us",
            "sync_probe_p99_us",
            "write_bytes_per_s",
            "system_context_switches",
            "system_context_switches_per_io",
            "context_switches",
            "context_switches_per_io",
            "cpu_us_per_io",
            "bios_per_run",
            "run_bytes",
            "completion_holds",
            "hold_mean_us",
            "hold_p99_us",
            "written_latency_p99_us",
            "writeback_latency_p99_us",
        ],
        "requests" | "job-file" => &[
            "latency_p50_us",
            "latency_p99_us",
            "read_iops",
            "read_latency_p50_us",
            "read_latency_p99_us",
            "write_iops",
            "write_latency_p50_us",
            "write_latency_p99_us",
            "cpu_us_per_io",
            "doorbells_per_io",
            "requests_per_doorbell",
        ],
        "copies" => &["write_bytes_per_s"],
        "files" => &[
            "elapsed_s",
            "cpu_us_per_operation",
            "system_calls_per_operation",
            "resident_bytes",
            "commits_per_1000_files",
            "flushes_per_1000_files",
            "beside_bytes_per_s",
        ],
        _ => &[
            "operations_per_s",
            "latency_p50_us",
            "latency_p99_us",
            "latency_p999_us",
            "cpu_us_per_operation",
            "system_calls_per_operation",
            "resident_bytes",
            "write_bytes_per_s",
        ],
    }
}

/// Returns the metrics whose ratios the tables of a probe show beside that of the part.
pub(super) fn compared(probe: &str) -> &'static [&'static str] {
    match probe {
        "new-files" | "writers" | "jobs" | "requests" | "job-file" | "copies" => &[],
        "files" => &["cpu_us_per_operation", "beside_bytes_per_s"],
        _ => &["latency_p99_us", "cpu_us_per_operation", "operations_per_s"],
    }
}
