use std::collections::BTreeMap;
use std::path::Path;

use super::judge::Judging;
use super::record::{Record, RecordError, Surroundings};
use super::*;
use crate::arm::Arm;
use crate::cell::CellSpec;
use crate::job::Amount;
use crate::plan::{Plan, Room, Wish};
use crate::request::{DATA_FILE, RequestCell};
use crate::scratch::{Scratch, Stop};
use crate::statistics::Verdict;
use crate::suite::{self, Base, Form};
use crate::tuning::{Claim, Tuning};

mod on_scratch;

fn wish(rounds: u32, time_limit: Option<Duration>) -> Wish<'static> {
    Wish {
        suite: "layout",
        form: Form::Quick,
        scale: None,
        rounds: Some(rounds),
        time_limit,
        seed: 0x7f3a,
        free_bytes: 1 << 40,
        room: Room::Shared,
        settings: &[],
        engine_settings: &[],
        target: None,
    }
}

fn plan(rounds: u32, time_limit: Option<Duration>) -> Plan {
    let suite = suite::find(Path::new("layout")).unwrap();
    Plan::new(&suite, &suite.parts[0], &wish(rounds, time_limit)).unwrap().unwrap()
}

/// Cells before the first round.
fn warm_ups(plan: &Plan) -> usize {
    plan.warm_ups().len()
}

/// The arm a cell is of, by the directory it was given: an arm and its twin differ in nothing else.
fn name_of(cell: &Cell) -> String {
    cell.directory.file_name().unwrap().to_str().unwrap().to_owned()
}

/// Returns the jobs of a cell.
fn spec_of(cell: &Cell) -> CellSpec {
    let Cell { directory, settings, seed, verify, .. } = cell.clone();
    let arm = Arm::by_name(&cell.arm).unwrap();
    CellSpec { arm, directory, settings, seed, verify, ..cell.shape().unwrap() }
}

/// A machine that gives every arm its speed, with a ripple of one percent over the rounds.
fn fixed_speed(cell: &Cell) -> CellResult {
    let spec = spec_of(cell);
    let speed = match spec.arm {
        Arm::KernelBuffered => 640e6,
        Arm::KernelBounded => 246e6,
        arm if arm.is_forebay() => 415e6,
        _ => 200e6,
    };
    let ripple = 1.0 + (spec.seed ^ name_of(cell).len() as u64) as f64 / u64::MAX as f64 / 100.0;
    let metrics = BTreeMap::from([("write_bytes_per_s".to_owned(), speed * ripple)]);
    CellResult { metrics, ..CellResult::default() }
}

struct Run {
    result: Result<Outcome, CompareError>,
    cells: Vec<Cell>,
    directory: tempfile::TempDir,
}

/// Runs a plan on a machine, and keeps what it was asked.
fn run(
    plan: &Plan,
    stop: &Stop,
    machine: impl FnMut(&Cell) -> Result<CellResult, RunError>,
) -> Run {
    run_as(plan, stop, Options::default(), machine)
}

static NO_CLAIM: Claim = Claim::none();

/// The optional parts of a comparison.
#[derive(Default)]
struct Options<'a> {
    writes: Writes,
    record: Option<PartOfRecord<'a>>,
}

fn run_as(
    plan: &Plan,
    stop: &Stop,
    options: Options<'_>,
    mut machine: impl FnMut(&Cell) -> Result<CellResult, RunError>,
) -> Run {
    // In memory where that is possible: these tests keep time, and a disk has other users.
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let scratch = Scratch::new_in(directory.path()).unwrap();
    let setting = Setting {
        plan,
        scratch: &scratch,
        target: None,
        quiet_within: Duration::ZERO,
        stop,
        metric: "write_bytes_per_s",
        claim: &NO_CLAIM,
        writes: &options.writes,
        record: options.record,
    };
    let mut cells = Vec::new();
    let mut runner = |cell: &Cell| {
        if cell.probe != "requests" {
            let there = std::fs::read_dir(&cell.directory).unwrap().count();
            assert_eq!(there, 0, "a cell starts in an empty directory");
            std::fs::write(cell.directory.join("data"), "left by the cell").unwrap();
        }
        cells.push(cell.clone());
        machine(cell)
    };
    let result = compare(&setting, &mut runner, &mut Progress::hidden(plan));
    drop(scratch);
    Run { result, cells, directory }
}

fn judged(outcome: &Outcome, seed: u64) -> judge::Judged {
    let suite = suite::find(Path::new("layout")).unwrap();
    let part = &suite.parts[0];
    assert!(matches!(part.base, Base::BestOf(_)));
    let also = &part.cut(Form::Quick).unwrap().also;
    let judging = Judging { base: &part.base, metric: part.metric, again: &part.again, also };
    judge::judge(&outcome.measured, judging, seed)
}

#[test]
fn every_round_runs_every_arm_once_in_the_planned_order() {
    let flight = [("flight".to_owned(), "8".to_owned())];
    let suite = suite::find(Path::new("layout")).unwrap();
    let wish = Wish { engine_settings: &flight, ..wish(5, None) };
    let plan = Plan::new(&suite, &suite.parts[0], &wish).unwrap().unwrap();
    let Run { result, cells, directory } =
        run(&plan, &Stop::default(), |cell| Ok(fixed_speed(cell)));
    let outcome = result.unwrap();
    let planned = |round| -> Vec<String> {
        plan.order(round).into_iter().map(|turn| plan.arm(turn).name.clone()).collect()
    };
    assert_eq!(outcome.orders, (0..5).map(planned).collect::<Vec<_>>());
    assert!(outcome.measured.iter().all(|measured| measured.rounds.len() == 5));

    let (warm_ups, counted) = cells.split_at(warm_ups(&plan));
    assert_eq!(spec_of(&warm_ups[0]).arm, Arm::KernelBounded);
    for warm_up in warm_ups.iter().map(spec_of) {
        assert_eq!((warm_up.budget_bytes, warm_up.verify), (8 << 20, Verify::Off));
    }
    let ran: Vec<String> = counted.iter().map(name_of).collect();
    assert_eq!(ran, outcome.orders.concat());
    for (round, cells) in counted.chunks(9).enumerate() {
        let verify = if round == 0 { Verify::After } else { Verify::Off };
        for spec in cells.iter().map(spec_of) {
            assert!(spec.verify == verify && spec.seed == plan.cell_seed(round as u32));
            assert_eq!(spec.budget_bytes, 64 << 20);
            let settings: &[(String, String)] = if spec.arm.is_forebay() { &flight } else { &[] };
            assert_eq!(spec.settings, settings);
        }
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);

    let judged = judged(&outcome, plan.seed);
    assert_eq!(judged.bases[0].1, "kernel-bounded");
    let found =
        judged.comparisons.iter().find(|one| one.arm == "forebay" && one.base == "kernel-bounded");
    assert_eq!(found.unwrap().verdict, Verdict::Better);
}

#[test]
fn requests_share_a_file_that_is_laid_out_once_and_is_gone_at_the_end() {
    let suite = suite::find(Path::new("plug")).unwrap();
    let wish = Wish { scale: Some(0.01), form: Form::Bare, ..wish(4, None) };
    let plan = Plan::new(&suite, &suite.parts[0], &wish).unwrap().unwrap();
    let mut written = None;
    let Run { result, cells, directory } = run(&plan, &Stop::default(), |cell| {
        let RequestCell { spec, .. } = cell.shape().unwrap();
        let data = std::fs::metadata(cell.directory.join(DATA_FILE)).unwrap();
        assert_eq!(data.len(), spec.file_bytes);
        assert_eq!(*written.get_or_insert(data.modified().unwrap()), data.modified().unwrap());
        let refused = spec.batch == Some(1) && spec.depth == 32;
        if refused {
            return Err(RunError::Refused("not here".into()));
        }
        let metrics = BTreeMap::from([("iops".to_owned(), 1e5), ("ns_per_io".to_owned(), 1e4)]);
        Ok(CellResult { metrics, ..CellResult::default() })
    });
    let outcome = result.unwrap();
    assert_eq!(outcome.measured.len() + 1, plan.cells_in_a_round() as usize);
    assert!(
        outcome.orders[0].contains(&"file/random-4k/file/1/never".to_owned()),
        "{:?}",
        outcome.orders[0]
    );
    let left_out = &outcome.left_out[0];
    assert_eq!(
        (left_out.job.as_str(), left_out.arm.as_str()),
        ("file/random-4k/file/32", "kernel-uring-1")
    );
    let first = &cells[warm_ups(&plan)..][..9];
    assert!(first.iter().all(|cell| cell.seed == plan.cell_seed(0)));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_refused_arm_is_left_out_and_asked_once() {
    let uncached = |cell: &Cell| spec_of(cell).arm == Arm::KernelUncached;
    let Run { result, cells, .. } = run(&plan(4, None), &Stop::default(), |cell| {
        if uncached(cell) {
            Err(RunError::Refused("needs Linux 6.14".into()))
        } else {
            Ok(fixed_speed(cell))
        }
    });
    let outcome = result.unwrap();
    assert_eq!(
        cells.iter().filter(|cell| uncached(cell)).count(),
        1 + 1,
        "warming up, and in the first round"
    );
    assert_eq!(outcome.measured.len(), 8);
    let reason = "needs Linux 6.14".into();
    let (job, arm) = ("random-writes-into-new-files".into(), "kernel-uncached".into());
    assert_eq!(outcome.left_out, [LeftOut { job, arm, reason, failed: false }]);
}

#[test]
fn an_arm_that_fails_late_loses_its_rounds() {
    let mut cells = 0;
    let outcome = run(&plan(4, None), &Stop::default(), |cell| {
        cells += usize::from(name_of(cell) == "forebay");
        if name_of(cell) == "forebay" && cells == 3 {
            return Err(RunError::Failed("wrong byte at 4096".into()));
        }
        Ok(fixed_speed(cell))
    });
    let outcome = outcome.result.unwrap();
    assert!(
        outcome.left_out[0].failed
            && outcome.measured.iter().all(|measured| measured.arm != "forebay")
    );
    let judged = judged(&outcome, 1);
    assert!(
        judged.comparisons.iter().all(|one| one.verdict == Verdict::NotShown),
        "no noise floor is left"
    );
}

#[test]
fn without_any_arm_there_is_no_result() {
    let refused =
        run(&plan(4, None), &Stop::default(), |_| Err(RunError::Refused("read-only".into())));
    assert_eq!(refused.result.unwrap_err().to_string(), "no arm could run: read-only");
}

#[test]
fn where_every_arm_failed_it_is_reported_which_and_why() {
    let failed = run(&plan(4, None), &Stop::default(), |cell| match spec_of(cell).arm {
        Arm::KernelUncached => Err(RunError::Refused("needs Linux 6.14".into())),
        _ => Err(RunError::Failed("wrong byte at 4096".into())),
    });
    let Err(CompareError::NoArm { left_out, .. }) = failed.result else {
        panic!("some arm is left")
    };
    assert_eq!(left_out.len(), 9);
    let refused = |one: &&LeftOut| one.arm == "kernel-uncached";
    assert!(left_out.iter().all(|one| one.failed != refused(&one)), "{left_out:?}");
}

#[test]
fn an_interruption_ends_it_and_leaves_nothing() {
    for at in [1, 2, 12] {
        let mut cells = 0;
        let ended = run(&plan(4, None), &Stop::default(), |cell| {
            cells += 1;
            if cells == at { Err(RunError::Interrupted) } else { Ok(fixed_speed(cell)) }
        });
        assert!(matches!(ended.result, Err(CompareError::Interrupted)));
        assert_eq!(ended.cells.len(), at);
        assert_eq!(std::fs::read_dir(ended.directory.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_stop_between_cells_is_seen() {
    let stop = Stop::default();
    let ended = run(&plan(4, None), &stop, |cell| {
        stop.set();
        Ok(fixed_speed(cell))
    });
    assert!(matches!(ended.result, Err(CompareError::Interrupted)));
    assert_eq!(ended.cells.len(), 1);
}

#[test]
fn a_cell_that_dies_of_the_same_ctrl_c_is_no_failure() {
    let stop = Stop::default();
    let mut cells = 0;
    let ended = run(&plan(4, None), &stop, |cell| {
        cells += 1;
        if cells < 3 {
            return Ok(fixed_speed(cell));
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
    let outcome = run(&plan(40, Some(limit)), &Stop::default(), |cell| {
        std::thread::sleep(Duration::from_millis(20));
        Ok(fixed_speed(cell))
    });
    assert!(began.elapsed() < limit * 4);
    let outcome = outcome.result.unwrap();
    let rounds = outcome.orders.len();
    assert!((1..40).contains(&rounds), "{rounds}");
    assert!(outcome.measured.iter().all(|measured| measured.rounds.len() == rounds));
    assert!(outcome.notes.iter().any(|note| note.contains(&format!("{rounds} of 40 rounds fit"))));
}

#[test]
fn not_even_a_round_names_the_time_it_needs() {
    let limit = Duration::from_millis(100);
    let ended = run(&plan(4, Some(limit)), &Stop::default(), |cell| {
        std::thread::sleep(Duration::from_millis(60));
        Ok(fixed_speed(cell))
    });
    let text = ended.result.unwrap_err().to_string();
    assert!(text.contains("no round was complete") && text.contains("--seconds"), "{text}");
}

#[test]
fn what_cells_note_is_reported_once_per_arm() {
    let outcome = run(&plan(4, None), &Stop::default(), |cell| {
        let mut result = fixed_speed(cell);
        if name_of(cell) == "forebay" {
            result.notes.push("thread pool: io_uring is forbidden here".into());
        }
        result.notes.push("verified".into());
        if spec_of(cell).arm.is_forebay() {
            result.notes.push("engine".into());
        }
        Ok(result)
    });
    let notes = outcome.result.unwrap().notes;
    assert_eq!(notes.iter().filter(|note| note.starts_with("forebay: thread pool")).count(), 1);
    let others = ["every arm: verified", "forebay, forebay-again, forebay-survive: engine"];
    assert!(others.iter().all(|other| notes.iter().any(|note| note == other)), "{notes:?}");
}

fn completion(form: Form, jobs: &[&str]) -> Plan {
    let suite = suite::find(Path::new("completion")).unwrap();
    let wish = Wish { scale: Some(0.0001), form, ..wish(4, None) };
    let mut plan = Plan::new(&suite, &suite.parts[0], &wish).unwrap().unwrap();
    plan.jobs.retain(|job| jobs.contains(&job.name.as_str()));
    plan
}

fn devices_of(cells: &[Cell]) -> Vec<Option<std::path::PathBuf>> {
    cells.iter().map(|cell| cell.device.clone()).collect()
}

#[test]
fn a_job_on_a_device_gets_one_or_is_skipped_with_its_reason() {
    let plan = completion(Form::Full, &["A", "E"]);
    let Run { result, cells, directory } = run(&plan, &Stop::default(), |cell| {
        if let Some(device) = devices_of(std::slice::from_ref(cell)).remove(0) {
            let length = std::fs::File::open(&device).unwrap();
            let length = std::io::Seek::seek(&mut &length, std::io::SeekFrom::End(0)).unwrap();
            assert_eq!(length, 32 << 20);
        }
        Ok(fixed_speed(cell))
    });
    let outcome = result.unwrap();
    let devices: Vec<_> = devices_of(&cells).into_iter().flatten().collect();
    let skipped =
        outcome.notes.iter().find(|note| note.starts_with("E raw 128k qd128 is skipped: "));
    let of_e = outcome.measured.iter().filter(|one| one.job == "E").count();
    match skipped {
        None => {
            assert_eq!(devices.len(), 4 * of_e);
            assert!(
                of_e > 4 && devices.iter().all(|device| device.starts_with("/dev")),
                "{devices:?}"
            );
        }
        Some(note) => {
            eprintln!("{note}");
            assert_eq!((devices.len(), of_e), (0, 0));
            assert!(
                outcome.orders[0].iter().all(|cell| cell.starts_with("A/")),
                "{:?}",
                outcome.orders[0]
            );
        }
    }
    assert!(outcome.measured.iter().any(|one| one.job == "A"));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_device_of_the_user_s_is_the_one_that_is_written() {
    let plan = completion(Form::Full, &["E"]);
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let scratch = Scratch::new_in(directory.path()).unwrap();
    let target = Path::new("/dev/some-device");
    let stop = Stop::default();
    let setting = Setting {
        plan: &plan,
        scratch: &scratch,
        target: Some(target),
        quiet_within: Duration::ZERO,
        stop: &stop,
        metric: "write_bytes_per_s",
        claim: &NO_CLAIM,
        writes: &Writes::default(),
        record: None,
    };
    let mut cells = Vec::new();
    let mut runner = |cell: &Cell| {
        cells.push(cell.clone());
        Ok(fixed_speed(cell))
    };
    compare(&setting, &mut runner, &mut Progress::hidden(&plan)).unwrap();
    assert!(devices_of(&cells[1..]).iter().all(|device| device.as_deref() == Some(target)));
    let allowed = |cell: &Cell| spec_of(cell).workload.devices == crate::job::Devices::Write;
    assert!(cells[1..].iter().all(allowed));
}

/// But for the last digit, which a file may lose.
fn assert_same(ours: &[Measured], whole: &[Measured]) {
    assert_eq!(ours.len(), whole.len());
    for (one, other) in ours.iter().zip(whole) {
        assert_eq!(
            (&one.job, &one.arm, one.rounds.len()),
            (&other.job, &other.arm, other.rounds.len())
        );
        for (one, other) in one.rounds.iter().zip(&other.rounds) {
            let [one, other] = [one, other].map(|result| result.metrics["write_bytes_per_s"]);
            assert!((one / other - 1.0).abs() < 1e-12, "{one} {other}");
        }
    }
}

fn linux(release: &str) -> Surroundings {
    [("kernel".to_owned(), release.to_owned())].into()
}

#[test]
fn rounds_of_other_surroundings_are_not_gone_on_with() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rounds");
    let plan = plan(4, None);
    let mut surroundings = linux("6.18");
    surroundings.insert("--set".to_owned(), "flight=8".to_owned());
    surroundings.insert("--cpus".to_owned(), String::new());
    Record::open(&path, &[&plan], &surroundings).unwrap();
    Record::open(&path, &[&plan], &surroundings).unwrap();
    for (name, value, reported) in [
        ("--set", "flight=64", "its --set is flight=8, not flight=64"),
        ("--cpus", "0-1", "its --cpus is none, not 0-1"),
        ("forebay", "0.1.0", "its forebay is none, not 0.1.0"),
    ] {
        let mut other = surroundings.clone();
        other.insert(name.to_owned(), value.to_owned());
        let refused = Record::open(&path, &[&plan], &other).unwrap_err().to_string();
        assert!(refused.contains(reported) && refused.contains("or name a new file"), "{refused}");
    }
    let older = std::fs::read_to_string(&path).unwrap().replacen("\"format\":3", "\"format\":2", 1);
    std::fs::write(&path, &older).unwrap();
    let refused = Record::open(&path, &[&plan], &surroundings).unwrap_err().to_string();
    assert!(refused.contains("of another version of this program"), "{refused}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), older);
}

#[test]
fn what_was_interrupted_goes_on_as_if_it_had_not_been() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rounds");
    let plan = plan(4, None);
    let whole = run(&plan, &Stop::default(), |cell| Ok(fixed_speed(cell))).result.unwrap();

    assert_eq!(Record::seed_of(&path).unwrap(), None);
    let mut ran = Vec::new();
    let warm_ups = warm_ups(&plan);
    for until in [warm_ups + 19, 7, 100] {
        let record =
            std::cell::RefCell::new(Record::open(&path, &[&plan], &linux("6.18")).unwrap());
        assert!(matches!(
            Record::open(&path, &[&plan], &linux("6.18")),
            Err(RecordError::Refused(why)) if why.contains("another comparison is writing")
        ));
        let options = Options {
            record: Some(PartOfRecord { record: &record, part: 0 }),
            ..Options::default()
        };
        let mut cells = 0;
        let part = run_as(&plan, &Stop::default(), options, |cell| {
            cells += 1;
            if cells == until { Err(RunError::Interrupted) } else { Ok(fixed_speed(cell)) }
        });
        ran.push(part.cells.len());
        if until == 100 {
            let outcome = part.result.unwrap();
            assert_eq!(outcome.orders, whole.orders);
            assert_same(&outcome.measured, &whole.measured);
            assert_eq!(outcome.states.len(), whole.states.len());
            assert!(
                outcome.notes.iter().any(|note| note.starts_with("the first 2 rounds ran earlier"))
            );
        } else {
            assert!(matches!(part.result, Err(CompareError::Interrupted)));
        }
    }
    // Two rounds of nine and the warm-ups before, then one that brought none to its end, then the
    // other two.
    assert_eq!(ran, [warm_ups + 19, 7, warm_ups + 18]);
    assert_eq!(Record::seed_of(&path).unwrap(), Some(plan.seed));

    let record = Record::open(&path, &[&plan], &linux("6.18")).unwrap();
    assert_eq!(record.rounds(), 4);
    let record = std::cell::RefCell::new(record);
    let options =
        Options { record: Some(PartOfRecord { record: &record, part: 0 }), ..Options::default() };
    let again = run_as(&plan, &Stop::default(), options, |_| panic!("all is there"));
    assert_same(&again.result.unwrap().measured, &whole.measured);
}

#[test]
fn a_record_of_something_else_is_refused_and_one_that_was_cut_short_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rounds");
    let four = plan(4, None);
    {
        let record =
            std::cell::RefCell::new(Record::open(&path, &[&four], &linux("6.18")).unwrap());
        let options = Options {
            record: Some(PartOfRecord { record: &record, part: 0 }),
            ..Options::default()
        };
        run_as(&four, &Stop::default(), options, |cell| Ok(fixed_speed(cell))).result.unwrap();
    }
    let open = |plan: &Plan, kernel: &str| {
        Record::open(&path, &[plan], &linux(kernel)).map(|record| record.rounds())
    };
    assert_eq!(open(&plan(5, None), "6.18").unwrap(), 4, "more rounds are the same comparison");
    let text = std::fs::read(&path).unwrap();
    std::fs::write(&path, &text[..text.len() - 9]).unwrap();
    assert_eq!(open(&four, "6.18").unwrap(), 3);
    assert!(open(&four, "6.19").unwrap_err().to_string().contains("its kernel is 6.18, not 6.19"));
    let smaller = Plan { jobs: Vec::new(), ..four.clone() };
    assert!(
        open(&smaller, "6.18").unwrap_err().to_string().contains("has other arms, jobs or sizes")
    );
    let other = Plan { seed: 1, ..four.clone() };
    assert!(open(&other, "6.18").unwrap_err().to_string().contains("its seed is 7f3a, not 1"));
    std::fs::write(&path, "a letter\n").unwrap();
    assert!(open(&four, "6.18").unwrap_err().to_string().contains("not a file of --resume"));
    assert!(Record::seed_of(&path).is_err());
}

#[test]
fn no_more_is_written_than_may_be() {
    let plan = plan(6, None);
    let a_round: u64 = plan.jobs[0].arms.iter().map(|arm| arm.work.written_bytes).sum();
    let warm_up = plan.most_written_bytes() - 6 * a_round;
    let most = |bytes| Options { writes: Writes::up_to(Some(bytes)), ..Options::default() };
    let ended = run_as(&plan, &Stop::default(), most(warm_up + 2 * a_round + 1), |cell| {
        Ok(fixed_speed(cell))
    });
    assert_eq!(ended.cells.len(), warm_ups(&plan) + 2 * 9);
    let outcome = ended.result.unwrap();
    assert!(outcome.measured.iter().all(|measured| measured.rounds.len() == 2));
    assert!(
        outcome.notes.iter().any(|note| note.starts_with("2 of 6 rounds fit in the ")),
        "{:?}",
        outcome.notes
    );
    let refused =
        run_as(&plan, &Stop::default(), most(a_round / 2), |cell| Ok(fixed_speed(cell))).result;
    assert!(refused.unwrap_err().to_string().contains("raise --max-writes"));
}

/// A group of a job file on every arm.
fn job_file_plan(text: &str, rounds: u32) -> Plan {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("jobs.fio");
    std::fs::write(&path, text).unwrap();
    let suite = suite::job_file::suite(&path, &mut Vec::new()).unwrap();
    Plan::new(&suite, &suite.parts[0], &wish(rounds, None)).unwrap().unwrap()
}

#[test]
fn what_is_laid_out_is_written_too() {
    const FILE: u64 = 1 << 20;
    let most = |bytes| Options { writes: Writes::up_to(Some(bytes)), ..Options::default() };
    let rate = |_: &Cell| {
        let metrics = [
            ("read_bytes_per_s", 1e9),
            ("write_bytes_per_s", 8.0 * FILE as f64),
            ("elapsed_s", 1.0),
        ];
        let metrics = metrics.map(|(name, value)| (name.to_owned(), value)).into();
        Ok(CellResult { metrics, ..CellResult::default() })
    };
    let reads = job_file_plan("[a]\nrw=randread\nsize=1m\n", 6);
    let (a_round, warm_ups) = (reads.cells_in_a_round(), warm_ups(&reads) as u64);
    assert_eq!(reads.most_written_bytes(), (6 * a_round + warm_ups) * FILE);
    let ended = run_as(&reads, &Stop::default(), most((2 * a_round + warm_ups) * FILE), rate);
    assert_eq!(ended.cells.len() as u64, warm_ups + 2 * a_round);
    let refused =
        run_as(&reads, &Stop::default(), most(FILE - 1), |_| panic!("not even the warm-up"));
    assert!(refused.result.unwrap_err().to_string().contains("raise --max-writes"));

    // A job for a time beside one of fixed size: the bytes that were written count.
    let beside = "[a]\nrw=write\nsize=1m\n[b]\nrw=write\nsize=1m\ntime_based\nruntime=1\n";
    let beside = job_file_plan(beside, 6);
    let ended = run_as(&beside, &Stop::default(), most((2 * a_round + warm_ups) * 8 * FILE), rate);
    assert_eq!(ended.cells.len() as u64, warm_ups + 2 * a_round);
}

#[test]
fn the_file_of_requests_is_not_laid_out_where_it_may_not_be() {
    let suite = suite::find(Path::new("plug")).unwrap();
    let wish = Wish { scale: Some(0.01), form: Form::Bare, ..wish(4, None) };
    let plan = Plan::new(&suite, &suite.parts[0], &wish).unwrap().unwrap();
    let most = plan.data_bytes.unwrap() - 1;
    let options = Options { writes: Writes::up_to(Some(most)), ..Options::default() };
    let refused = run_as(&plan, &Stop::default(), options, |_| panic!("nothing is run"));
    let refused = refused.result.unwrap_err().to_string();
    assert!(refused.contains("0 MiB were") && refused.contains("raise --max-writes"), "{refused}");
}
