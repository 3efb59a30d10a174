use std::path::Path;

use proptest::prelude::*;

use super::planner::SHORTEST;
use super::*;
use crate::request::Switch;
use crate::suite;

/// What the form wrote in all before suites were files.
const QUICK_WRITES_AT_MOST_BYTES: u64 = 12 * GIB;

fn wish(form: Form) -> Wish<'static> {
    Wish {
        suite: "layout",
        form,
        scale: 1.0,
        rounds: None,
        time_limit: None,
        seed: 0x7f3a,
        free_bytes: 1 << 40,
        settings: &[],
    }
}

fn plan_of(suite: &str, part: usize, wish: &Wish<'_>) -> Result<Plan, PlanError> {
    let suite = suite::find(Path::new(suite)).unwrap();
    Plan::new(&suite, &suite.parts[part], wish).map(|plan| plan.expect("the part is in the form"))
}

fn layout(wish: &Wish<'_>) -> Result<Plan, PlanError> {
    plan_of("layout", 0, wish)
}

fn size(plan: &Plan) -> (u64, u64, u32) {
    let size = plan.size.unwrap();
    (size.file_bytes, size.budget_bytes, plan.rounds)
}

fn names(job: &Job) -> Vec<&str> {
    job.arms.iter().map(|arm| arm.name.as_str()).collect()
}

fn spec<'a>(job: &'a Job, arm: &str) -> &'a RequestSpec {
    match &job.arms.iter().find(|one| one.name == arm).unwrap().work {
        Work::Requests { spec, .. } => spec,
        Work::NewFiles { .. } => panic!("no requests"),
    }
}

#[test]
fn the_two_forms() {
    let quick = layout(&wish(Form::Quick)).unwrap();
    assert_eq!(size(&quick), (24 * MIB, 64 * MIB, 5));
    assert!(quick.most_written_bytes() <= QUICK_WRITES_AT_MOST_BYTES);
    let full = layout(&wish(Form::Full)).unwrap();
    assert_eq!(size(&full), (96 * MIB, 256 * MIB, 5));
    assert!(quick.notes.is_empty() && full.notes.is_empty());
    assert!(quick.announcement().iter().any(|line| line.contains("11.3 GiB at most")));
    assert_eq!(names(&quick.jobs[0])[6..], ["forebay", "forebay-again"]);
    let bounded = Work::NewFiles { arm: Arm::KernelBounded, size: quick.size.unwrap().smallest() };
    assert_eq!(quick.warm_up, bounded);
}

#[test]
fn every_round_is_a_permutation_and_replays() {
    let plan = plan_of("plug", 0, &wish(Form::Quick)).unwrap();
    let plan_of_many = plan_of("plug", 0, &wish(Form::Full)).unwrap();
    for plan in [plan, plan_of_many] {
        let orders: Vec<_> = (0..5).map(|round| plan.order(round)).collect();
        for order in &orders {
            assert_eq!(order.len() as u64, plan.cells_in_a_round());
            for (job, planned) in plan.jobs.iter().enumerate() {
                for arm in 0..planned.arms.len() {
                    assert_eq!(order.iter().filter(|turn| **turn == Turn { job, arm }).count(), 1);
                }
            }
            let changes = order.windows(2).filter(|two| two[0].job != two[1].job).count();
            assert_eq!(changes + 1, plan.jobs.len(), "the arms of a job run one after the other");
        }
        assert_ne!(orders[0], orders[1]);
        assert_eq!(orders[3], plan.order(3));
        assert_ne!(plan.cell_seed(0), plan.cell_seed(1));
    }
}

#[test]
fn what_cannot_be_planned_is_refused_with_a_remedy() {
    let refused = |wish: Wish<'_>| layout(&wish).unwrap_err().to_string();
    let text = refused(Wish { free_bytes: 100 * MIB, ..wish(Form::Full) });
    assert_eq!(text, "100 MiB free: too little for a comparison (use --dir with 144 MiB or more free)");
    let text = refused(Wish { rounds: Some(500), ..wish(Form::Quick) });
    assert!(text.contains("use `forebay compare layout`, or --rounds 42 or less"), "{text}");
    assert!(layout(&Wish { rounds: Some(42), ..wish(Form::Quick) }).is_ok());
    assert!(layout(&Wish { rounds: Some(43), ..wish(Form::Quick) }).is_err());
    assert!(refused(Wish { rounds: Some(0), ..wish(Form::Full) }).contains("out of range"));
    let text = plan_of("plug", 0, &Wish { free_bytes: MIB, ..wish(Form::Full) }).unwrap_err().to_string();
    assert!(text.contains("--dir with 64 MiB or more free"), "{text}");
}

#[test]
fn few_rounds_and_small_disks_are_said() {
    let plan = layout(&Wish { rounds: Some(3), free_bytes: GIB, ..wish(Form::Full) }).unwrap();
    assert_eq!(size(&plan).0, 21 * MIB);
    assert!(plan.notes[0].contains("21 MiB, not 96") && plan.notes[1].contains("no verdict"));
    let plan = layout(&Wish { rounds: Some(10), ..wish(Form::Quick) }).unwrap();
    assert!(plan.notes[0].contains("the quick form writes 12 GiB at most"));
    let plan = layout(&Wish { scale: 0.05, ..wish(Form::Quick) }).unwrap();
    assert_eq!(size(&plan), (3 * MIB, 8 * MIB, 5));
    assert_eq!(plan.notes, ["smaller files (3 MiB, not 24): --scale"]);
    let plan = plan_of("plug", 0, &Wish { free_bytes: GIB, ..wish(Form::Full) }).unwrap();
    assert_eq!(plan.data_bytes, Some(256 * MIB));
    assert!(plan.notes[0].starts_with("a smaller file (256 MiB, not 1024)"), "{:?}", plan.notes);
}

#[test]
fn a_batch_that_never_comes_together_is_not_run() {
    let plan = plan_of("plug", 0, &wish(Form::Full)).unwrap();
    assert_eq!(plan.jobs.len(), 9);
    let arms = |depth| {
        let at = |job: &&Job| job.place.as_ref().is_some_and(|place| place.1 == depth);
        names(plan.jobs.iter().find(at).unwrap())
    };
    let queue = ["always", "merge-off", "never", "adaptive", "adaptive-again"];
    assert_eq!(arms(1), [&["kernel-pread", "kernel-uring", "kernel-uring-1", "fio"][..], &queue].concat());
    assert!(arms(32).contains(&"kernel-uring-32") && !arms(32).contains(&"kernel-uring-full"));
    assert!(!arms(128).contains(&"kernel-pread"));
    let in_step = ["kernel-uring-full", "fio-batch-32", "batch-32"];
    assert!(in_step.iter().all(|arm| arms(128).contains(arm) && !arms(32).contains(arm)));
    let ladder = plan_of("plug", 2, &wish(Form::Full)).unwrap();
    assert_eq!(names(&ladder.jobs[0]).first(), Some(&"batch-1"));
    assert_eq!(names(&ladder.jobs[0])[1], "batch-1-again");
    assert_eq!(names(&ladder.jobs[0]).last(), Some(&"batch-32"), "at a depth of 32");
    assert_eq!(names(&ladder.jobs[1]).last(), Some(&"batch-64"), "at a depth of 128");
}

#[test]
fn a_cell_of_requests_is_what_the_suite_says() {
    let settings = [("order".to_owned(), "lifo".to_owned())];
    let wish = Wish { scale: 0.5, settings: &settings, ..wish(Form::Full) };
    let plan = plan_of("plug", 0, &wish).unwrap();
    let job = plan.jobs.iter().find(|job| job.name == "file/sequential-128k/file/32").unwrap();
    assert_eq!(job.title, "sequential-128k, depth 32, file");
    let never = spec(job, "never");
    assert_eq!((never.depth, never.block_bytes, never.batch, never.seconds), (32, 128 << 10, None, 0.5));
    assert_eq!(never.file_bytes, 512 << 20);
    assert_eq!(never.knobs, [settings[0].clone(), ("plug".to_owned(), "never".to_owned())]);
    assert_eq!((spec(job, "kernel-uring-3").batch, spec(job, "fio").knobs.len()), (Some(3), 0));
    assert_eq!((spec(job, "kernel-uring").batch, spec(job, "fio").batch), (None, None));
    assert_eq!(never.fixed_buffers, Switch::On);
    let job = plan.jobs.iter().find(|job| job.name == "file/random-4k/file/128").unwrap();
    for arm in ["kernel-uring-full", "fio-batch-32", "batch-32"] {
        assert_eq!(spec(job, arm).batch, Some(32), "{arm}");
    }
    let ladder = plan_of("plug", 2, &wish).unwrap();
    let modelled = spec(&ladder.jobs[0], "batch-8");
    assert_eq!(
        (modelled.batch, modelled.fixed_buffers, modelled.fixed_files),
        (Some(8), Switch::Off, Switch::Off)
    );
    assert_eq!(ladder.data_bytes, None);
    assert!(!ladder.warm_up.on_disk() && plan.warm_up.on_disk());
}

#[test]
fn a_setting_that_an_arm_overrides_is_noted() {
    let settings = [("plug".to_owned(), "always".to_owned()), ("order".to_owned(), "lifo".to_owned())];
    let plan = plan_of("plug", 0, &Wish { settings: &settings, ..wish(Form::Bare) }).unwrap();
    let expected = "--set plug=always does not reach never, always, adaptive: the suite says their plug";
    assert_eq!(plan.notes, [expected]);
    assert_eq!(spec(&plan.jobs[0], "never").knobs.last().unwrap().1, "never");
}

#[test]
fn the_bare_form_takes_seconds_and_few_arms() {
    let suite = suite::find(Path::new("plug")).unwrap();
    let plans = suite.parts.iter().filter_map(|part| Plan::new(&suite, part, &wish(Form::Bare)).unwrap());
    let plans: Vec<Plan> = plans.collect();
    assert_eq!(plans.len(), 1);
    assert!(plans[0].jobs.iter().all(|job| job.arms.len() <= 6), "with the one that runs twice");
    assert!(plans[0].expected(None) < Duration::from_secs(60), "{:?}", plans[0].expected(None));
}

proptest! {
    #[test]
    fn bounds_hold(
        rounds in 1u32..=MOST_ROUNDS,
        free in 0u64..1 << 36,
        scale in 0.001f64..=1.0,
        quick: bool,
        seed: u64,
    ) {
        let form = if quick { Form::Quick } else { Form::Full };
        let wish = Wish { form, scale, rounds: Some(rounds), free_bytes: free, seed, ..wish(form) };
        if let Ok(plan) = layout(&wish) {
            let size = plan.size.unwrap();
            prop_assert!(size.data_bytes() <= free / 4);
            prop_assert!(size.smallest().data_bytes() <= size.data_bytes());
            prop_assert!(!quick || plan.most_written_bytes() <= QUICK_WRITES_AT_MOST_BYTES);
            prop_assert_eq!(size.budget_bytes * 9, size.data_bytes() * 2);
            prop_assert!(size.budget_bytes.is_multiple_of(4 * MIB));
        }
        if let Ok(plan) = plan_of("plug", 0, &wish) {
            prop_assert!(plan.data_bytes.unwrap() <= free / 4);
            for arm in plan.jobs.iter().flat_map(|job| &job.arms) {
                let Work::Requests { spec, .. } = &arm.work else { unreachable!("requests alone") };
                prop_assert!(spec.file_bytes.is_multiple_of(u64::from(spec.block_bytes)));
                prop_assert!(spec.seconds >= SHORTEST);
            }
        }
    }
}

#[test]
fn the_time_expected_follows_the_speed_and_the_limit() {
    let mut plan = layout(&wish(Form::Full)).unwrap();
    assert!(plan.expected(Some(1e9)) < plan.expected(Some(1e8)));
    assert_eq!(plan.expected(Some(f64::NAN)), plan.expected(None));
    plan.time_limit = Some(Duration::from_secs(20));
    assert_eq!(plan.expected(Some(1e6)), Duration::from_secs(20));
    assert_eq!(spoken(Duration::from_secs(150)), "3 min");
}
