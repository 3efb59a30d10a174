//! The load generator against fio: the same requests on the same file, past the page cache.
//!
//! The bound is wide, because tests run on machines that do other things. It catches a generator
//! that waits, copies or counts something else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use forebay_lab::arm::Arm;
use forebay_lab::cell::CellSpec;
use forebay_lab::job::{
    Access, Amount, BlockSize, Blocks, Caching, Devices, Direction, Fallocate, IoEngine, Job,
    Order, RandomMap, Workload, YesNo,
};
use forebay_lab::load::run_cell;
use serde_json::Value;

/// Figures agree if they are within this factor of each other.
const WITHIN: f64 = 1.5;

/// Rounds. The best pair counts.
const ROUNDS: usize = 5;

const FILE_BYTES: u64 = 64 << 20;
const BLOCK: u32 = 4096;
const MILLIS: u64 = 300;

/// Operations per second, and the median of their latencies in microseconds.
type Figures = [f64; 2];

/// The file in the directory, filled by the first round.
const FILE: &str = "data";

fn ours(directory: &Path, direction: Direction, depth: u32) -> Option<Figures> {
    let block = BlockSize::Fixed(BLOCK);
    let job = Job {
        name: "check".into(),
        access: Access { direction, order: Order::Random },
        blocks: Blocks { read: block.clone(), write: block },
        files: vec![PathBuf::from(FILE)],
        size: Some(Amount::Bytes(FILE_BYTES)),
        random_map: RandomMap::WithReplacement,
        time_based: YesNo::Yes,
        runtime_us: Some(MILLIS * 1000),
        overwrite: YesNo::Yes,
        fallocate: Fallocate::None,
        depth,
        io_engine: if depth > 1 { IoEngine::Ring } else { IoEngine::Calls },
        caching: Caching::Direct,
        ..Job::default()
    };
    let workload = Workload { jobs: vec![job], devices: Devices::Refuse };
    let spec = CellSpec { seed: 7, ..CellSpec::of(Arm::KernelDirect, workload) };
    let result = run_cell(&CellSpec { directory: directory.to_owned(), ..spec });
    let metrics = match result {
        Ok(result) => result.metrics,
        Err(error) => {
            eprintln!("skipped: {error}");
            return None;
        }
    };
    let median = if direction.reads() { "read_latency_p50_us" } else { "write_latency_p50_us" };
    Some([metrics["iops"], metrics[median]])
}

fn fio(directory: &Path, direction: Direction, depth: u32) -> Figures {
    let word = if direction.reads() { "read" } else { "write" };
    let engine = if depth > 1 { "io_uring" } else { "psync" };
    let arguments = [
        "--name=check".to_owned(),
        format!("--ioengine={engine}"),
        format!("--filename={FILE}"),
        format!("--size={FILE_BYTES}"),
        format!("--rw=rand{word}"),
        format!("--bs={BLOCK}"),
        format!("--iodepth={depth}"),
        format!("--iodepth_batch_submit={depth}"),
        format!("--iodepth_batch_complete_max={depth}"),
        format!("--runtime={MILLIS}ms"),
    ];
    let fixed = "--direct=1 --time_based=1 --norandommap=1 --thread=1 --fallocate=none \
        --allow_file_create=0 --lat_percentiles=1 --percentile_list=50 --end_fsync=1 \
        --output-format=json";
    let output = Command::new("fio")
        .args(arguments)
        .args(fixed.split_whitespace())
        .current_dir(directory)
        .output()
        .unwrap();
    let start = output.stdout.iter().position(|byte| *byte == b'{').expect("fio prints JSON");
    let report: Value = serde_json::from_slice(&output.stdout[start..]).unwrap();
    let found = &report["jobs"][0][word];
    // Over a ring `clat` begins only when the submitting call has returned.
    let latency = if depth > 1 { &found["lat_ns"] } else { &found["clat_ns"] };
    let median = latency["percentile"]["50.000000"].as_f64().unwrap();
    [found["iops"].as_f64().unwrap(), median / 1e3]
}

#[test]
fn requests_per_second_and_medians_are_those_of_fio() {
    if !Command::new("fio").arg("--version").output().is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("CI").is_none(), "fio has to be installed");
        eprintln!("skipped: fio is not installed");
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for direction in [Direction::Read, Direction::Write] {
        for depth in [1, 32] {
            let mut best = [f64::INFINITY; 2];
            for _ in 0..ROUNDS {
                let Some(ours) = ours(directory.path(), direction, depth) else { return };
                let its = fio(directory.path(), direction, depth);
                for (best, (ours, its)) in best.iter_mut().zip(ours.into_iter().zip(its)) {
                    assert!(ours > 0.0 && its > 0.0, "{direction:?} {depth}: {ours} {its}");
                    *best = best.min((ours / its).max(its / ours));
                }
            }
            eprintln!("{direction:?}, depth {depth}: rate and median apart by {best:?}");
            assert!(best.iter().all(|apart| *apart <= WITHIN), "{direction:?} {depth}: {best:?}");
        }
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "only the file is left");
}
