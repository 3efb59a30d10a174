//! Data that passes through uncached handles takes little of a large cache. The test runs alone in
//! its process, because it measures memory.

mod support;

use forebay::{Engine, Options};
use support::{MIB, directory, how, knobs, pattern};

/// Memory this process has touched, shared or its own: the cache is of either kind.
fn touched() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kinds =
        status.lines().filter(|line| line.starts_with("RssShmem") || line.starts_with("RssAnon"));
    kinds.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024).sum()
}

#[test]
fn what_passes_takes_memory_for_its_flight_alone() {
    let directory = directory();
    let engine = Engine::start(Options {
        cache_bytes: Some(512 * MIB),
        uncached: true,
        ..Options::default()
    })
    .unwrap();
    let before = touched();
    let length = 320 * MIB;
    let file = engine.open(directory.path().join("file"), &how::create()).unwrap();
    file.set_len(length).unwrap();
    let data = pattern(1, MIB as usize);
    (0..length / MIB).for_each(|part| file.write_at(&data, part * MIB).unwrap());
    file.sync_data().unwrap();
    let written = touched() - before;
    let mut buffer = vec![0; MIB as usize];
    for part in 0..length / MIB {
        assert_eq!(file.read_at(&mut buffer, part * MIB).unwrap(), buffer.len());
        assert!(buffer == data);
    }
    let read = touched() - before;
    println!(
        "{} MiB of {} touched by writing, {} after reading",
        written / MIB,
        length / MIB,
        read / MIB
    );
    // 32 MiB dirty, a step and what each file keeps at hand, on huge pages, each taken in whole
    // when first touched; reading takes its windows of the same frames.
    assert!(written < 80 * MIB, "{written} bytes");
    assert!(read < 80 * MIB, "{read} bytes");
    // With `uncached` off the same writes do fill memory, so the checks above can fail.
    knobs::set(&engine, "uncached", "off").unwrap();
    (0..200).for_each(|part| file.write_at(&data, part * MIB).unwrap());
    file.sync_data().unwrap();
    assert!(touched() - before > 190 * MIB);
}
