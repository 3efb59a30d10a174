use std::collections::BTreeMap;

use super::*;
use crate::plan::Wish;
use crate::statistics::Verdict;

fn workload(_files: u32, _file_bytes: u64, _block_bytes: u32) -> Workload {
    Workload::default()
}

fn plan(rounds: u32, time_limit: Option<Duration>) -> Plan {
    let wish = Wish {
        form: Form::Quick,
        scale: 1.0,
        rounds: Some(rounds),
        time_limit,
        seed: Some(0x7f3a),
        free_bytes: 1 << 40,
    };
    Plan::new(&wish, &ARMS).unwrap()
}

/// A machine on which every arm has its speed, the same in every round but for a ripple of one percent.
fn fixed_speed(spec: &CellSpec) -> CellResult {
    let speed = match spec.arm {
        Arm::KernelBuffered => 640e6,
        Arm::KernelBounded => 246e6,
        arm if arm.is_forebay() => 415e6,
        _ => 200e6,
    };
    let ripple = 1.0 + (spec.seed ^ spec.arm as u64) as f64 / u64::MAX as f64 / 100.0;
    let metrics = BTreeMap::from([("write_bytes_per_s".to_owned(), speed * ripple)]);
    CellResult { metrics, notes: vec![] }
}

struct Run {
    result: Result<Outcome, CompareError>,
    specs: Vec<CellSpec>,
    directory: tempfile::TempDir,
}

/// Runs a plan on a machine, and keeps what it was asked.
fn run(plan: &Plan, stop: &Stop, mut machine: impl FnMut(&CellSpec) -> Result<CellResult, RunError>) -> Run {
    // In memory where that is possible: these tests keep time, and a disk has other users.
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let scratch = Scratch::new_in(directory.path()).unwrap();
    let setting = Setting {
        question: Question::layout(workload),
        plan,
        settings: &[("flight".to_owned(), "8".to_owned())],
        scratch: &scratch,
        quiet_within: Duration::ZERO,
        stop,
    };
    let mut specs = Vec::new();
    let mut runner = |spec: &CellSpec| {
        assert_eq!(
            std::fs::read_dir(&spec.directory).unwrap().count(),
            0,
            "a cell starts in an empty directory"
        );
        std::fs::write(spec.directory.join("data"), "left by the cell").unwrap();
        specs.push(spec.clone());
        machine(spec)
    };
    let result = compare(&setting, &mut runner, &mut Progress::hidden(plan));
    drop(scratch);
    Run { result, specs, directory }
}

#[test]
fn every_round_runs_every_arm_once_in_the_planned_order() {
    let plan = plan(5, None);
    let Run { result, specs, directory } = run(&plan, &Stop::default(), |spec| Ok(fixed_speed(spec)));
    let outcome = result.unwrap();
    assert_eq!(outcome.orders, (0..5).map(|round| plan.order(round)).collect::<Vec<_>>());
    assert!(outcome.measured.iter().all(|measured| measured.rounds.len() == 5));

    let (warm_up, counted) = specs.split_first().unwrap();
    assert_eq!((warm_up.arm, warm_up.verify), (Arm::KernelBounded, Verify::Off));
    assert_eq!(warm_up.budget_bytes, plan.warm_up.budget_bytes);
    let ran: Vec<Arm> = counted.iter().map(|spec| spec.arm).collect();
    assert_eq!(ran, outcome.orders.concat());
    for (round, specs) in counted.chunks(ARMS.len()).enumerate() {
        let verify = if round == 0 { Verify::After } else { Verify::Off };
        assert!(specs.iter().all(|spec| spec.verify == verify && spec.seed == plan.cell_seed(round as u32)));
        assert!(specs.iter().all(|spec| spec.budget_bytes == 64 << 20 && spec.settings[0].0 == "flight"));
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);

    let judged = judge::judge("job", &outcome.measured, plan.seed);
    assert_eq!(judged.base, Some(Arm::KernelBounded));
    let found = judged.comparisons.iter().find(|one| one.arm == "forebay" && one.base == "kernel-bounded");
    assert_eq!(found.unwrap().verdict, Verdict::Better);
}

#[test]
fn a_refused_arm_is_left_out_and_asked_once() {
    let uncached = |spec: &CellSpec| spec.arm == Arm::KernelUncached;
    let Run { result, specs, .. } = run(&plan(4, None), &Stop::default(), |spec| {
        if uncached(spec) { Err(RunError::Refused("needs Linux 6.14".into())) } else { Ok(fixed_speed(spec)) }
    });
    let outcome = result.unwrap();
    assert_eq!(specs.iter().filter(|spec| uncached(spec)).count(), 1);
    assert_eq!(outcome.measured.len(), 7);
    let reason = "needs Linux 6.14".into();
    assert_eq!(outcome.left_out, [LeftOut { arm: Arm::KernelUncached, reason, failed: false }]);
}

#[test]
fn an_arm_that_fails_late_loses_its_rounds() {
    let mut cells = 0;
    let outcome = run(&plan(4, None), &Stop::default(), |spec| {
        cells += usize::from(spec.arm == Arm::Forebay);
        if spec.arm == Arm::Forebay && cells == 3 {
            return Err(RunError::Failed("wrong byte at 4096".into()));
        }
        Ok(fixed_speed(spec))
    });
    let outcome = outcome.result.unwrap();
    assert!(
        outcome.left_out[0].failed && outcome.measured.iter().all(|measured| measured.arm != Arm::Forebay)
    );
    let judged = judge::judge("job", &outcome.measured, 1);
    assert!(judged.comparisons.iter().all(|one| one.verdict == Verdict::NotShown), "no noise floor is left");
}

#[test]
fn without_any_arm_there_is_no_result() {
    let refused = run(&plan(4, None), &Stop::default(), |_| Err(RunError::Refused("read-only".into())));
    assert_eq!(refused.result.unwrap_err().to_string(), "no arm could run: read-only");
}

#[test]
fn an_interruption_ends_it_and_leaves_nothing() {
    for at in [1, 2, 12] {
        let mut cells = 0;
        let ended = run(&plan(4, None), &Stop::default(), |spec| {
            cells += 1;
            if cells == at { Err(RunError::Interrupted) } else { Ok(fixed_speed(spec)) }
        });
        assert!(matches!(ended.result, Err(CompareError::Interrupted)));
        assert_eq!(ended.specs.len(), at);
        assert_eq!(std::fs::read_dir(ended.directory.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_stop_between_cells_is_seen() {
    let stop = Stop::default();
    let ended = run(&plan(4, None), &stop, |spec| {
        stop.set();
        Ok(fixed_speed(spec))
    });
    assert!(matches!(ended.result, Err(CompareError::Interrupted)));
    assert_eq!(ended.specs.len(), 1);
}

#[test]
fn a_cell_that_dies_of_the_same_ctrl_c_is_no_failure() {
    let stop = Stop::default();
    let mut cells = 0;
    let ended = run(&plan(4, None), &stop, |spec| {
        cells += 1;
        if cells < 3 {
            return Ok(fixed_speed(spec));
        }
        stop.set();
        Err(RunError::Failed("ended by signal 2".into()))
    });
    assert!(matches!(ended.result, Err(CompareError::Interrupted)));
}

#[test]
fn rounds_that_do_not_fit_are_left_out_and_said() {
    let limit = Duration::from_millis(1500);
    let began = Instant::now();
    let outcome = run(&plan(40, Some(limit)), &Stop::default(), |spec| {
        std::thread::sleep(Duration::from_millis(20));
        Ok(fixed_speed(spec))
    });
    assert!(began.elapsed() < limit * 4);
    let outcome = outcome.result.unwrap();
    let rounds = outcome.orders.len();
    assert!((1..40).contains(&rounds), "{rounds}");
    assert!(outcome.measured.iter().all(|measured| measured.rounds.len() == rounds));
    assert!(outcome.notes.iter().any(|note| note.contains(&format!("{rounds} rounds of 40 fit"))));
}

#[test]
fn not_even_a_round_names_the_time_it_needs() {
    let limit = Duration::from_millis(100);
    let ended = run(&plan(4, Some(limit)), &Stop::default(), |spec| {
        std::thread::sleep(Duration::from_millis(60));
        Ok(fixed_speed(spec))
    });
    let text = ended.result.unwrap_err().to_string();
    assert!(text.contains("not one round fit") && text.contains("--seconds"), "{text}");
}

#[test]
fn what_cells_note_is_told_once_per_arm() {
    let outcome = run(&plan(4, None), &Stop::default(), |spec| {
        let mut result = fixed_speed(spec);
        if spec.arm == Arm::Forebay {
            result.notes.push("thread pool: io_uring is forbidden here".into());
        }
        result.notes.push("verified".into());
        if spec.arm.is_forebay() {
            result.notes.push("engine".into());
        }
        Ok(result)
    });
    let notes = outcome.result.unwrap().notes;
    assert_eq!(notes.iter().filter(|note| note.starts_with("forebay: thread pool")).count(), 1);
    let others = ["every arm: verified", "forebay, forebay-again: engine"];
    assert!(others.iter().all(|other| notes.iter().any(|note| note == other)), "{notes:?}");
}
