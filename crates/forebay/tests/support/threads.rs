//! The threads of contexts in this process.

use std::fs;
use std::ops::RangeBounds;
use std::path::PathBuf;

/// Counts how often the threads of these contexts went to sleep, in all engines of the process.
pub(crate) fn sleeps(contexts: impl RangeBounds<u32>) -> u64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let of_task = |path: PathBuf| {
        let name = fs::read_to_string(path.join("comm")).ok()?;
        let number = name.trim().strip_prefix("forebay-")?.parse().ok()?;
        let status = fs::read_to_string(path.join("status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"))?;
        let count = line.split_whitespace().last()?.parse::<u64>().ok()?;
        contexts.contains(&number).then_some(count)
    };
    tasks.filter_map(|task| of_task(task.unwrap().path())).sum()
}
