//! A cell in a process of its own: this program is its own child, so it has a `main` and no test
//! harness.

use std::path::Path;
use std::process::ExitCode;

use forebay_lab::arm::Arm;
use forebay_lab::batching::Batching;
use forebay_lab::cell::{Cell, CellSpec, SyncProbe, Verify};
use forebay_lab::child::{PROGRAM_VARIABLE, cell_main, is_cell, run_cell, run_cell_of};
use forebay_lab::job::{Caching, Workload};
use forebay_lab::load::{CellError, CellReport};
use forebay_lab::probes::{job_cell, request_cell};
use forebay_lab::request::{RequestCell, RequestDevice, RequestSpec, Switch, Way};

/// Nobody interrupts these.
static GO_ON: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

fn main() -> ExitCode {
    if is_cell(std::env::args_os()) {
        return cell_main();
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let spec = CellSpec {
        workload: Workload::random_writes_into_new_files(2, 1 << 20, 4096),
        arm: Arm::Forebay,
        directory: directory.path().to_owned(),
        budget_bytes: 8 << 20,
        settings: Vec::new(),
        control: None,
        seed: 1,
        verify: Verify::After,
        sync_probe: SyncProbe::Off,
        text: None,
    };
    assert_eq!(std::env::var_os(PROGRAM_VARIABLE), None);
    a_result_comes_back(&spec);
    a_death_is_reported(&spec);
    a_death_for_memory_is_a_refusal(&spec);
    a_refusal_stays_typed(&spec);
    requests_run_in_a_child_too(directory.path());
    println!("child: 5 passed");
    ExitCode::SUCCESS
}

fn run_in_child(cell: &Cell) -> Result<CellReport, CellError> {
    run_cell(cell, &[], Batching::Off, &GO_ON)
}

fn a_result_comes_back(spec: &CellSpec) {
    let report = run_in_child(&job_cell(spec.clone())).unwrap();
    assert_eq!(report.jobs.len(), 2);
    let result = report.total;
    assert!(result.metrics["write_iops"] > 0.0);
    assert!(
        result.notes.iter().any(|note| note.starts_with("verified 2097152")),
        "{:?}",
        result.notes
    );
}

/// No file system on a disk reads 1000 bytes past the page cache.
fn a_refusal_stays_typed(spec: &CellSpec) {
    let mut workload = Workload::random_writes_into_new_files(1, 50_000, 1000);
    workload.jobs[0].caching = Caching::Direct;
    let cell = CellSpec { workload, arm: Arm::Kernel, ..spec.clone() };
    let error = run_in_child(&job_cell(cell)).unwrap_err();
    assert!(matches!(error, CellError::ArmRefused { arm: Arm::Kernel, .. }), "{error}");
}

/// One write of the arm needs more memory than its group has. Without control groups the arm is
/// refused, too.
fn a_death_for_memory_is_a_refusal(spec: &CellSpec) {
    let cell = CellSpec {
        workload: Workload::random_writes_into_new_files(1, 64 << 20, 64 << 20),
        arm: Arm::KernelCgroup,
        budget_bytes: 1 << 20,
        ..spec.clone()
    };
    match run_in_child(&job_cell(cell)).unwrap_err() {
        CellError::ArmRefused { arm: Arm::KernelCgroup, reason } => {
            assert!(reason.contains("control group"), "{reason}");
            println!("kernel-cgroup: {reason}");
        }
        error => panic!("{error}"),
    }
}

fn a_death_is_reported(spec: &CellSpec) {
    let cell = job_cell(spec.clone());
    let error =
        run_cell_of("/bin/false".as_ref(), (&cell, &[]), Batching::Off, &GO_ON).unwrap_err();
    assert!(
        matches!(&error, CellError::Process { what } if what.contains("exit status: 1")),
        "{error}"
    );
    let error =
        run_cell_of("/nonexistent".as_ref(), (&cell, &[]), Batching::Off, &GO_ON).unwrap_err();
    assert!(matches!(error, CellError::Failed { .. }), "{error}");
}

fn requests_run_in_a_child_too(directory: &Path) {
    let cell = |way, device: RequestDevice| {
        let on_file = if device.is_file() { Switch::On } else { Switch::Off };
        let spec = RequestSpec {
            depth: 4,
            fixed_files: on_file,
            seed: 1,
            ..RequestSpec::random_reads(device)
        };
        let directory = directory.to_owned();
        request_cell(RequestCell { directory, ..RequestCell::of(way, spec) })
    };
    let null: RequestDevice = "null".parse().unwrap();
    for cell in [cell(Way::Queue, null.clone()), cell(Way::Uring, RequestDevice::file())] {
        let report = run_in_child(&cell).unwrap();
        assert!(report.total.metrics["iops"] > 0.0 && report.jobs.is_empty());
    }
    let refused = run_in_child(&cell(Way::Fio, null)).unwrap_err();
    assert!(matches!(&refused, CellError::Invalid { .. }), "{refused}");
}
