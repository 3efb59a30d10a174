//! A cell in a process of its own: this program is its own child, so it has a `main` and no test
//! harness.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use forebay_lab::arm::Arm;
use forebay_lab::cell::{Cell, CellSpec, SyncProbe, Verify};
use forebay_lab::child::{
    PROGRAM_VARIABLE, cell_main, is_cell, run_cell_in_child, run_cell_in_child_of,
};
use forebay_lab::job::{Caching, Workload};
use forebay_lab::load::CellError;
use forebay_lab::nomerges;
use forebay_lab::request::{Operation, Pattern, RequestDevice, RequestSpec, Submitter, Switch};
use forebay_lab::through::{KernelMerges, Poll, RequestCell, Way};

/// The first argument of this program when it is to be killed.
const HOLD_AND_WAIT: &str = "hold-and-wait";

/// Nobody interrupts these.
static GO_ON: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

fn main() -> ExitCode {
    if is_cell(std::env::args_os()) {
        return cell_main();
    }
    if let [_, word, file] = std::env::args().collect::<Vec<_>>().as_slice()
        && word == HOLD_AND_WAIT
    {
        hold_and_wait(file.as_ref());
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut spec = CellSpec {
        workload: Workload::random_writes_into_new_files(2, 1 << 20, 4096),
        arm: Arm::Forebay,
        directory: directory.path().to_owned(),
        budget_bytes: 8 << 20,
        settings: Vec::new(),
        control: None,
        seed: 1,
        verify: Verify::After,
        sync_probe: SyncProbe::Off,
    };
    assert_eq!(std::env::var_os(PROGRAM_VARIABLE), None);
    a_result_comes_back(&spec);
    a_death_is_told(&spec);
    spec.workload.jobs[0].caching = Caching::Direct;
    a_refusal_stays_typed(&spec);
    merging_is_held_and_given_back(directory.path());
    a_killed_holder_of_the_holder_gives_it_back_too(directory.path());
    requests_run_in_a_child_too(directory.path());
    println!("child: 6 passed");
    ExitCode::SUCCESS
}

fn a_result_comes_back(spec: &CellSpec) {
    let report = run_cell_in_child(&Cell::Jobs(spec.clone()), &GO_ON).unwrap();
    assert_eq!(report.jobs.len(), 2);
    let result = report.total;
    assert!(result.metrics["write_iops"] > 0.0);
    assert!(
        result.notes.iter().any(|note| note.starts_with("verified 2097152")),
        "{:?}",
        result.notes
    );
}

fn a_refusal_stays_typed(spec: &CellSpec) {
    let error = run_cell_in_child(&Cell::Jobs(spec.clone()), &GO_ON).unwrap_err();
    assert!(matches!(error, CellError::ArmRefused { arm: Arm::Forebay, .. }), "{error}");
}

fn a_death_is_told(spec: &CellSpec) {
    let cell = Cell::Jobs(spec.clone());
    let error = run_cell_in_child_of("/bin/false".as_ref(), &cell, &GO_ON).unwrap_err();
    assert!(
        matches!(&error, CellError::Process { what } if what.contains("exit status: 1")),
        "{error}"
    );
    let error = run_cell_in_child_of("/nonexistent".as_ref(), &cell, &GO_ON).unwrap_err();
    assert!(matches!(error, CellError::Failed { .. }), "{error}");
}

/// The file of a queue, as it was set by somebody.
fn queue_file(directory: &Path) -> PathBuf {
    let file = directory.join("nomerges");
    fs::write(&file, "1\n").unwrap();
    file
}

fn merging_is_held_and_given_back(directory: &Path) {
    let (program, file) = (std::env::current_exe().unwrap(), queue_file(directory));
    let held = nomerges::hold_file(&program, file.clone()).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "2");
    drop(held);
    assert_eq!(fs::read_to_string(&file).unwrap(), "1");

    let held = nomerges::hold_file(&program, file.clone()).unwrap();
    let refused = nomerges::hold_file(&program, file.clone()).unwrap_err();
    assert!(refused.contains("another comparison holds it: wait for its end"), "{refused}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "2", "who is refused changes nothing");
    drop(held);
    assert_eq!(fs::read_to_string(&file).unwrap(), "1", "what was there before the first");

    let panicked = std::panic::catch_unwind(|| {
        let _held = nomerges::hold_file(&program, file.clone()).unwrap();
        // Not `panic!`: nobody has to read about it.
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(panicked.is_err());
    assert_eq!(fs::read_to_string(&file).unwrap(), "1");

    let refused = nomerges::hold_file(&program, directory.join("nowhere/nomerges")).unwrap_err();
    assert!(refused.contains("No such file") && refused.contains("it needs root"), "{refused}");
    let refused = nomerges::hold_file(&program, directory.join("scheduler")).unwrap_err();
    assert!(refused.contains("not the nomerges of a queue"), "{refused}");
}

fn hold_and_wait(file: &Path) -> ! {
    let held = nomerges::hold_file(&std::env::current_exe().unwrap(), file.to_owned());
    println!("{}", if held.is_ok() { "held" } else { "not held" });
    loop {
        std::thread::park();
    }
}

fn a_killed_holder_of_the_holder_gives_it_back_too(directory: &Path) {
    let file = queue_file(directory);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .arg(HOLD_AND_WAIT)
        .arg(&file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!((line.as_str(), fs::read_to_string(&file).unwrap().as_str()), ("held\n", "2"));
    child.kill().unwrap();
    child.wait().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while fs::read_to_string(&file).unwrap() != "1" {
        assert!(Instant::now() < until, "it never came back");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn requests_run_in_a_child_too(directory: &Path) {
    let cell = |way, device: RequestDevice| {
        let on_file = if device.is_file() { Switch::On } else { Switch::Off };
        let spec = RequestSpec {
            device,
            depth: 4,
            block_bytes: 4096,
            pattern: Pattern::Random,
            operation: Operation::Read,
            knobs: Vec::new(),
            fixed_buffers: on_file,
            fixed_files: on_file,
            batch: None,
            from: Submitter::Local,
            file_bytes: 1 << 20,
            seconds: 0.05,
            seed: 1,
        };
        let (kernel_merges, poll) = (KernelMerges::AsSet, Poll::Never);
        let directory = directory.to_owned();
        Cell::Requests(RequestCell { way, spec, kernel_merges, poll, directory, target: None })
    };
    let null: RequestDevice = "null".parse().unwrap();
    for cell in [cell(Way::Queue, null.clone()), cell(Way::Uring, RequestDevice::file())] {
        let report = run_cell_in_child(&cell, &GO_ON).unwrap();
        assert!(report.total.metrics["iops"] > 0.0 && report.jobs.is_empty());
    }
    let refused = run_cell_in_child(&cell(Way::Fio, null), &GO_ON).unwrap_err();
    assert!(matches!(&refused, CellError::Invalid { .. }), "{refused}");
}
