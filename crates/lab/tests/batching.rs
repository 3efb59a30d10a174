//! The kernel's batching, counted on a real XFS on a loop device. A cell is this program started
//! again, so it has a `main` and no test harness.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use forebay_lab::arm::Arm;
use forebay_lab::batching::Batching;
use forebay_lab::cell::{Cell, CellResult, CellSpec, SyncProbe, Verify};
use forebay_lab::child::{cell_main, is_cell, run_cell};
use forebay_lab::file_system::FileSystem;
use forebay_lab::job::Workload;
use forebay_lab::probes::{job_cell, request_cell};
use forebay_lab::programs::spec::{Beside, Form, Program, ProgramLoad, ProgramWay};
use forebay_lab::request::{RequestCell, RequestDevice, RequestSpec, Switch, Way};
use forebay_lab::scratch::Stop;

type Metrics = BTreeMap<String, f64>;

fn main() -> ExitCode {
    if is_cell(std::env::args_os()) {
        return cell_main();
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    without_being_asked_nothing_is_counted(directory.path());
    if !rustix::process::geteuid().is_root() {
        without_root_that_is_said(directory.path());
        println!("batching: 2 passed; skipped the others: only root can count and mount");
        return ExitCode::SUCCESS;
    }
    if let Some(why) = not_counted(directory.path()) {
        println!("batching: 1 passed; skipped the others: {why}");
        return ExitCode::SUCCESS;
    }
    let spec = "xfs,size=400m,sparse".parse().unwrap();
    let mut file_system = match FileSystem::new_in(directory.path(), &spec, &Stop::default()) {
        Ok(file_system) => file_system,
        Err(error) => {
            let in_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
            assert!(!in_ci, "an XFS on a loop device must be possible here: {error}");
            println!("batching: 1 passed; skipped the others: {error}");
            return ExitCode::SUCCESS;
        }
    };
    let mounted = file_system.renew().unwrap().to_owned();
    what_is_handed_over_together_is_unplugged_together(&mounted);
    what_is_handed_over_alone_is_unplugged_alone(&mounted);
    single_calls_use_no_ring(&mounted);
    what_is_written_back_is_gathered(&mounted);
    forebay_is_counted_like_the_kernel(&mounted);
    a_synced_file_costs_a_commit_and_a_flush(&mounted);
    println!("batching: 7 passed");
    ExitCode::SUCCESS
}

fn run(cell: &Cell, batching: Batching) -> CellResult {
    run_cell(cell, &[], batching, &AtomicBool::new(false)).unwrap().total
}

fn counted(cell: &Cell) -> Metrics {
    let result = run(cell, Batching::Counted);
    assert!(result.notes.iter().all(|note| !note.starts_with("batching: ")), "{:?}", result.notes);
    result.metrics
}

/// Direct 4k reads of a file of 16 MiB.
fn reads(directory: &Path, way: Way, depth: u32, batch: Option<u32>) -> Cell {
    let spec = RequestSpec {
        depth,
        fixed_files: Switch::On,
        batch,
        file_bytes: 16 << 20,
        seconds: 0.2,
        seed: 1,
        ..RequestSpec::random_reads(RequestDevice::file())
    };
    let directory = directory.to_owned();
    request_cell(RequestCell { directory, ..RequestCell::of(way, spec) })
}

/// Random 4k writes into two files of 16 MiB, until synced.
fn writes(directory: &Path, arm: Arm) -> Cell {
    let directory = directory.join(arm.name());
    std::fs::create_dir(&directory).unwrap();
    job_cell(CellSpec {
        workload: Workload::random_writes_into_new_files(2, 16 << 20, 4096),
        arm,
        directory,
        budget_bytes: 8 << 20,
        settings: Vec::new(),
        control: None,
        seed: 1,
        verify: Verify::After,
        sync_probe: SyncProbe::Off,
        text: None,
    })
}

fn without_being_asked_nothing_is_counted(directory: &Path) {
    let result = run(&reads(directory, Way::Uring, 4, None), Batching::Off);
    assert!(result.metrics["iops"] > 0.0);
    assert!(result.metrics.keys().all(|name| !name.starts_with("kernel_")), "{:?}", result.metrics);
}

fn without_root_that_is_said(directory: &Path) {
    let result = run(&reads(directory, Way::Uring, 4, None), Batching::Counted);
    assert!(result.metrics["iops"] > 0.0);
    assert!(
        result.notes.contains(&"batching: not counted (needs root)".to_owned()),
        "{:?}",
        result.notes
    );
}

/// Why this kernel lets nobody count, if it does not.
fn not_counted(directory: &Path) -> Option<String> {
    let result = run(&reads(directory, Way::Uring, 4, None), Batching::Counted);
    result.notes.into_iter().find(|note| note.starts_with("batching: not counted"))
}

fn what_is_handed_over_together_is_unplugged_together(directory: &Path) {
    let metrics = counted(&reads(directory, Way::Uring, 32, Some(32)));
    // Less than 32: neighbours among random blocks are merged, and the kernel hands over what a
    // thread has gathered if the thread loses its processor or waits for a tag.
    assert!((16.0..=32.5).contains(&metrics["kernel_requests_per_unplug"]), "{metrics:?}");
    assert!(metrics["kernel_plugged_share"] > 0.95, "{metrics:?}");
    assert!((4096.0..8192.0).contains(&metrics["kernel_request_bytes"]), "{metrics:?}");
    assert!(metrics["kernel_completions_per_enter"] > 2.0, "{metrics:?}");
    assert!(metrics["kernel_task_work_per_run"] >= 1.0, "{metrics:?}");
    assert!(metrics["kernel_requests_per_run"] >= 1.0, "{metrics:?}");
}

fn what_is_handed_over_alone_is_unplugged_alone(directory: &Path) {
    let metrics = counted(&reads(directory, Way::Uring, 32, Some(1)));
    assert!(
        metrics.get("kernel_requests_per_unplug").is_none_or(|&requests| requests < 1.5),
        "{metrics:?}"
    );
    assert!(metrics["kernel_completions_per_enter"] < 1.5, "{metrics:?}");
}

fn single_calls_use_no_ring(directory: &Path) {
    let metrics = counted(&reads(directory, Way::Pread, 1, None));
    assert!(metrics["kernel_request_bytes"] >= 4096.0, "{metrics:?}");
    for of_a_ring in ["kernel_completions_per_enter", "kernel_task_work_per_run"] {
        assert!(!metrics.contains_key(of_a_ring), "{metrics:?}");
    }
}

fn what_is_written_back_is_gathered(directory: &Path) {
    let metrics = counted(&writes(directory, Arm::KernelBuffered));
    assert!(metrics["kernel_request_bytes"] > 16_384.0, "{metrics:?}");
    assert!(metrics["kernel_bios_per_run"] > 0.0, "{metrics:?}");
}

fn forebay_is_counted_like_the_kernel(directory: &Path) {
    let metrics = counted(&writes(directory, Arm::Forebay));
    assert!(
        metrics["kernel_request_bytes"] > 4096.0 && metrics["requests_per_doorbell"] > 0.0,
        "{metrics:?}"
    );
}

fn a_synced_file_costs_a_commit_and_a_flush(directory: &Path) {
    let [synced, not_synced] = [ProgramWay::FilesFsyncEach, ProgramWay::FilesNoSync].map(|way| {
        let directory = directory.join(way.name());
        std::fs::create_dir(&directory).unwrap();
        let load = ProgramLoad {
            probe: Program::by_name("files").unwrap(),
            threads: 1,
            every: 1,
            warm: 0,
            rate: None,
            operations: Some(100),
            beside: Beside::Nothing,
            file_mib: 0,
            memory_mib: 0,
            sizes: (4096, 65_536),
            form: Form::Usual,
        };
        let source = directory.clone();
        let (seconds, seed, verify) = (1.0, 1, Verify::After);
        let cell = Cell::new("files", way.name(), &load);
        let cell = Cell { seconds, seed, verify, source, directory, ..cell };
        run(&cell, Batching::Off).metrics
    });
    assert!((1000.0..1500.0).contains(&synced["commits_per_1000_files"]), "{synced:?}");
    assert!(synced["flushes_per_1000_files"] >= 1000.0, "{synced:?}");
    assert!((4.0..10.0).contains(&synced["system_calls_per_operation"]), "{synced:?}");
    for metric in ["commits_per_1000_files", "flushes_per_1000_files"] {
        assert!(not_synced[metric] < 100.0, "{not_synced:?}");
    }
}
