//! What passes through uncached handles takes little of a large cache: alone in its process, for memory is counted.

mod support;

use forebay::{Engine, Open};
use support::{MIB, directory, pattern};

/// Shared memory this process has touched: the cache is of that kind.
fn touched() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssShmem")).expect("Linux tells it");
    let number = line.split_whitespace().nth(1).unwrap();
    number.parse::<u64>().unwrap() * 1024
}

#[test]
fn what_passes_takes_memory_for_its_flight_alone() {
    let directory = directory();
    let engine = Engine::builder().cache_bytes(512 * MIB).uncached(true).build().unwrap();
    let before = touched();
    let length = 320 * MIB;
    let file = engine.open(directory.path().join("file"), Open::create()).unwrap();
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
    println!("{} MiB of {} touched by writing, {} after reading", written / MIB, length / MIB, read / MIB);
    // 32 MiB dirty, a step and what each file keeps at hand; reading takes its windows of the same frames.
    assert!(written < 48 * MIB, "{written} bytes");
    assert!(read < 48 * MIB, "{read} bytes");
    // What stays takes all it can: else this test would show nothing.
    engine.set("uncached", "off").unwrap();
    (0..100).for_each(|part| file.write_at(&data, part * MIB).unwrap());
    file.sync_data().unwrap();
    assert!(touched() - before > 90 * MIB);
}
