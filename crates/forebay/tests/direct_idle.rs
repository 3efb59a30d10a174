//! No processor time where nothing happens. A program of its own: the threads of other engines
//! would be counted, too.

mod support;

use std::time::Duration;

use forebay::{Engine, Options};
use support::eventually;
use support::how;

/// How often the engine's thread has been put to sleep or taken off its processor.
fn switches() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let status = |task: std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("status")).unwrap_or_default()
    };
    let ours = tasks
        .map(|task| status(task.unwrap()))
        .filter(|status| status.starts_with("Name:\tforebay-0\n"));
    let count = |line: &str| line.rsplit('\t').next().and_then(|count| count.parse::<u64>().ok());
    ours.flat_map(|status| {
        let lines: Vec<u64> = status
            .lines()
            .filter(|line| line.contains("ctxt_switches"))
            .filter_map(count)
            .collect();
        lines
    })
    .sum()
}

#[test]
fn contract_16_an_open_direct_file_uses_no_processor() {
    let directory = support::directory();
    let engine =
        Engine::start(Options { cache_bytes: Some(8 << 20), ..Options::default() }).unwrap();
    let file = engine.open_direct(directory.path().join("file"), &how::create()).unwrap();
    {
        let _plug = engine.plug();
        for part in 0..50 {
            drop(file.write_at(vec![1; 1000], part * 1000));
        }
    }
    file.sync_data().wait().unwrap();
    let _plug = engine.plug();
    // A thread that sleeps is not switched, however long one looks.
    let is_quiet = || {
        let before = switches();
        std::thread::sleep(Duration::from_millis(200));
        before > 0 && switches() == before
    };
    assert!(
        eventually(Duration::from_secs(20), is_quiet),
        "the engine's thread never comes to rest"
    );
    drop(file.write_at(vec![1; 1000], 0));
    assert!(eventually(Duration::from_secs(20), is_quiet), "nor after a plug's deadline");
}
