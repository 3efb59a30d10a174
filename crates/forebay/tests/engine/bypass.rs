//! Large aligned writes under pressure go past the cache, and nobody can tell but by the counters.

use crate::support;
use crate::support::how;
use forebay::{Engine, Options};

const LENGTH: u64 = 40 << 20;
const MIB: usize = 1 << 20;

/// Memory aligned to a page.
fn aligned(engine: &Engine, data: &[u8]) -> forebay::Buffer {
    let mut buffer = engine.buffer(data.len()).unwrap();
    buffer.copy_from_slice(data);
    buffer
}

fn engine() -> Engine {
    Engine::start(Options {
        cache_bytes: Some(8 << 20),
        buffer_bytes: 64 << 20,
        ..Options::default()
    })
    .unwrap()
}

#[test]
fn contract_11_past_the_cache_or_through_it_the_bytes_are_the_same() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = engine();
    let file = engine.open(&path, &how::create()).unwrap();
    file.set_len(LENGTH).unwrap();
    let mut model = vec![0_u8; LENGTH as usize];
    let mut state = 7_u64;
    let mut random = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for step in 0..150_u64 {
        let large = random(3) > 0;
        let (offset, length) = if large {
            let length = (1 + random(8) as usize) * MIB;
            (random((LENGTH - length as u64) / 4096 + 1) * 4096, length)
        } else {
            let length = 1 + random(20_000) as usize;
            (random(LENGTH - length as u64), length)
        };
        let range = offset as usize..offset as usize + length;
        if random(4) == 0 {
            let mut back = vec![0; length];
            assert_eq!(file.read_at(&mut back, offset).unwrap(), length);
            assert!(
                back == model[range],
                "step {step}: {length} bytes at {offset} read back otherwise"
            );
            continue;
        }
        let data = support::pattern(step, length);
        file.write_at(&aligned(&engine, &data), offset).unwrap();
        model[range].copy_from_slice(&data);
        if random(10) == 0 {
            file.sync_data().unwrap();
        }
    }
    assert!(engine.stats().bypassed_bytes > 0, "nothing went past the cache");
    file.close().unwrap();
    assert!(std::fs::read(&path).unwrap() == model);
}

#[test]
fn what_is_not_aligned_or_moves_the_end_goes_through_the_cache() {
    let directory = support::directory();
    let engine = engine();
    let file = engine.open(directory.path().join("file"), &how::create()).unwrap();
    let data = aligned(&engine, &support::pattern(3, 32 * MIB));
    file.write_at(&data, 0).unwrap();
    file.write_at(&data[1..], 0).unwrap();
    file.write_at(&data, 100).unwrap();
    assert_eq!(engine.stats().bypassed_bytes, 0);
    file.close().unwrap();
}
