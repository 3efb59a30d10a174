use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::arm::Arm;
use crate::cell::{Cell, CellSpec};
use crate::planning::{MIB, SHORTEST};
use crate::request::{RequestCell, RequestSpec, Switch};
use crate::suite::{self, BARE, Form};
use crate::tuning::Tuning;

/// Bytes the form wrote before suites were files.
const QUICK_WRITES_AT_MOST_BYTES: u64 = 13 * GIB;

fn wish(form: Form) -> Wish<'static> {
    Wish {
        suite: "layout",
        form,
        scale: None,
        rounds: None,
        time_limit: None,
        seed: 0x7f3a,
        free_bytes: 1 << 40,
        room: Room::Shared,
        settings: &[],
        engine_settings: &[],
        target: None,
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
    (plan.cell_bytes.unwrap() / 12, plan.budget_bytes().unwrap(), plan.rounds)
}

fn names(job: &Job) -> Vec<&str> {
    job.arms.iter().map(|arm| arm.name.as_str()).collect()
}

fn spec(job: &Job, arm: &str) -> RequestSpec {
    requests(&job.arms.iter().find(|one| one.name == arm).unwrap().cell)
}

fn requests(cell: &Cell) -> RequestSpec {
    cell.shape::<RequestCell>().unwrap().spec
}

/// Returns the jobs of a cell.
fn spec_of(cell: &Cell) -> CellSpec {
    let Cell { directory, settings, seed, verify, .. } = cell.clone();
    let arm = Arm::by_name(&cell.arm).unwrap();
    CellSpec { arm, directory, settings, seed, verify, ..cell.shape().unwrap() }
}

#[test]
fn the_two_forms() {
    let quick = layout(&wish(Form::Quick)).unwrap();
    assert_eq!(size(&quick), (24 * MIB, 64 * MIB, 5));
    assert!(quick.most_written_bytes() <= QUICK_WRITES_AT_MOST_BYTES);
    let full = layout(&wish(Form::Full)).unwrap();
    assert_eq!(size(&full), (96 * MIB, 256 * MIB, 10));
    assert!(quick.notes.is_empty() && full.notes.is_empty());
    assert!(quick.announcement().iter().any(|line| line.contains("at most 12.9 GiB")));
    assert_eq!(names(&quick.jobs[0])[6..], ["forebay", "forebay-again", "forebay-survive"]);
    let first = quick.warm_ups().swap_remove(0);
    let warm_up = spec_of(&first.cell);
    assert_eq!((warm_up.arm, warm_up.budget_bytes), (Arm::KernelBounded, 8 * MIB));
    assert_eq!(first.work.written_bytes, 36 * MIB);
}

#[test]
fn every_arm_is_warmed_up_once_and_that_is_said() {
    let first = [
        (Form::Full, "kernel-bounded"),
        (Form::Quick, "kernel-bounded"),
        (Form::Bare, "kernel-bounded-prealloc"),
    ];
    for (form, first) in first {
        let plan = layout(&wish(form)).unwrap();
        let warm: Vec<PlannedArm> = plan.warm_ups();
        let mut warmed: Vec<&str> = warm.iter().map(|arm| arm.name.as_str()).collect();
        let mut all: Vec<&str> = names(&plan.jobs[0]);
        assert_eq!(warmed[0], first, "a bounded one is the first cell of all");
        // The one that runs twice is one.
        all.retain(|name| !name.ends_with("-again"));
        warmed.sort_unstable();
        all.sort_unstable();
        assert_eq!(warmed, all);
        assert!(warm.iter().all(|arm| arm.work.written_bytes == 36 * MIB));
        assert!(plan.announcement().iter().any(|line| line.contains("not counted")));
    }
    let several = plan_of("plug", 0, &wish(Form::Full)).unwrap().warm_ups();
    let names: std::collections::BTreeSet<&str> =
        several.iter().map(|arm| arm.name.as_str()).collect();
    assert_eq!(names.len(), several.len());
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
    assert_eq!(text, "only 100 MiB free; use --dir with at least 144 MiB free");
    let text = refused(Wish { rounds: Some(500), ..wish(Form::Quick) });
    assert!(text.contains("use `forebay compare layout`, or --rounds 40 or less"), "{text}");
    assert!(layout(&Wish { rounds: Some(40), ..wish(Form::Quick) }).is_ok());
    assert!(layout(&Wish { rounds: Some(41), ..wish(Form::Quick) }).is_err());
    assert!(refused(Wish { rounds: Some(0), ..wish(Form::Full) }).contains("out of range"));
    let text =
        plan_of("plug", 0, &Wish { free_bytes: MIB, ..wish(Form::Full) }).unwrap_err().to_string();
    assert!(text.contains("--dir with at least 64 MiB free"), "{text}");
}

#[test]
fn few_rounds_and_small_disks_are_said() {
    let plan = layout(&Wish { rounds: Some(3), free_bytes: GIB, ..wish(Form::Full) }).unwrap();
    assert_eq!(size(&plan).0, 21 * MIB);
    assert!(
        plan.notes[0].contains("21 MiB, not 96") && plan.notes[1].contains("fewer than 4 rounds")
    );
    let plan = layout(&Wish { rounds: Some(10), ..wish(Form::Quick) }).unwrap();
    assert!(plan.notes[0].contains("the quick form writes at most 13 GiB"));
    let plan = layout(&Wish { scale: Some(0.05), ..wish(Form::Quick) }).unwrap();
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
    let queue =
        ["always", "no-merge", "above-two", "merge-off", "never", "adaptive", "adaptive-again"];
    assert_eq!(
        arms(1),
        [&["kernel-pread", "kernel-uring", "kernel-uring-1", "fio"][..], &queue].concat()
    );
    assert!(arms(32).contains(&"kernel-uring-32") && !arms(32).contains(&"kernel-uring-full"));
    assert!(!arms(128).contains(&"kernel-pread"));
    let in_step = ["kernel-uring-full", "fio-batch-32", "queue-batch-32"];
    assert!(in_step.iter().all(|arm| arms(128).contains(arm) && !arms(32).contains(arm)));
    let ladder = plan_of("plug", 2, &wish(Form::Full)).unwrap();
    assert_eq!(names(&ladder.jobs[0]).first(), Some(&"batch-1"));
    assert_eq!(names(&ladder.jobs[0])[1], "batch-1-again");
    assert_eq!(names(&ladder.jobs[0]).last(), Some(&"batch-32"), "at a depth of 32");
    assert_eq!(names(&ladder.jobs[1]).last(), Some(&"batch-64"), "at a depth of 128");
    let on_a_file = plan_of("plug", 3, &wish(Form::Full)).unwrap();
    assert_eq!(on_a_file.jobs.len(), 4);
    assert_eq!(names(&on_a_file.jobs[3]).last(), Some(&"batch-32"));
    assert!(on_a_file.data_bytes.is_some(), "its file is laid out");
}

#[test]
fn a_cell_of_requests_is_what_the_suite_says() {
    let settings = [("order".to_owned(), "lifo".to_owned())];
    let wish = Wish { scale: Some(0.5), settings: &settings, ..wish(Form::Full) };
    let plan = plan_of("plug", 0, &wish).unwrap();
    let job = plan.jobs.iter().find(|job| job.name == "file/sequential-128k/file/32").unwrap();
    assert_eq!(job.title, "sequential-128k, depth 32, file");
    let never = spec(job, "never");
    assert_eq!(
        (never.depth, never.block_bytes, never.batch, never.seconds),
        (32, 128 << 10, None, 0.5)
    );
    assert_eq!(never.file_bytes, 512 << 20);
    assert_eq!(never.knobs, [settings[0].clone(), ("plug".to_owned(), "never".to_owned())]);
    assert_eq!((spec(job, "kernel-uring-3").batch, spec(job, "fio").knobs.len()), (Some(3), 0));
    assert_eq!((spec(job, "kernel-uring").batch, spec(job, "fio").batch), (None, None));
    assert_eq!(never.fixed_files, Switch::On);
    let job = plan.jobs.iter().find(|job| job.name == "file/random-4k/file/128").unwrap();
    for arm in ["kernel-uring-full", "fio-batch-32", "queue-batch-32"] {
        assert_eq!(spec(job, arm).batch, Some(32), "{arm}");
    }
    let ladder = plan_of("plug", 2, &wish).unwrap();
    let modelled = spec(&ladder.jobs[0], "batch-8");
    assert_eq!((modelled.batch, modelled.fixed_files), (Some(8), Switch::Off));
    assert_eq!(ladder.data_bytes, None);
    assert!(!ladder.warm_ups()[0].work.on_disk && plan.warm_ups()[0].work.on_disk);
}

fn jobs_of(plan: &Plan, job: &str, arm: &str) -> CellSpec {
    let job = plan.jobs.iter().find(|one| one.name == job).unwrap();
    spec_of(&job.arms.iter().find(|one| one.name == arm).unwrap().cell)
}

/// Bytes of a file of a cell, and its seconds.
fn extent(cell: &CellSpec) -> (u64, f64) {
    let each = cell.workload.file_bytes() / cell.workload.jobs.len() as u64;
    (each, cell.workload.seconds().unwrap())
}

#[test]
fn a_job_with_limits_has_the_kernels_own_for_arms_that_nothing_else_bounds() {
    let plan = plan_of("completion", 0, &Wish { scale: Some(1.0), ..wish(Form::Full) }).unwrap();
    let limits = |job: &str, arm: &str| -> Vec<String> {
        let job = plan.jobs.iter().find(|one| one.name == job).unwrap();
        let arm = job.arms.iter().find(|one| one.name == arm).unwrap();
        arm.settings_of_machine().iter().map(ToString::to_string).collect()
    };
    let expected = ["sysctl.vm.dirty_bytes=67108864", "sysctl.vm.dirty_background_bytes=33554432"];
    for arm in ["kernel-buffered", "kernel-uncached", "kernel-uncached-prealloc"] {
        assert_eq!(limits("F", arm), expected, "{arm}");
        assert!(limits("B", arm).is_empty(), "{arm}");
    }
    for arm in ["kernel-bounded", "kernel-direct", "forebay-immediate"] {
        assert!(limits("F", arm).is_empty(), "{arm}");
    }
    let note = "F: kernel-buffered, kernel-uncached, kernel-uncached-prealloc with \
                sysctl.vm.dirty_bytes=67108864 and sysctl.vm.dirty_background_bytes=33554432";
    assert!(plan.notes.contains(&note.to_owned()), "{:?}", plan.notes);
    // The user's own value wins.
    let job = plan.jobs.iter().find(|one| one.name == "F").unwrap();
    let mut own = job.arms.iter().find(|one| one.name == "kernel-buffered").unwrap().clone();
    let knob = "sysctl.vm.dirty_bytes".parse().unwrap();
    own.tunings = vec![Tuning { knob, value: "1".to_owned() }];
    let settings: Vec<String> = own.settings_of_machine().iter().map(Tuning::to_string).collect();
    assert_eq!(settings, ["sysctl.vm.dirty_bytes=1", expected[1]]);
}

#[test]
fn completion_is_the_six_jobs_at_a_share_of_their_time() {
    let completion = |scale| plan_of("completion", 0, &Wish { scale, ..wish(Form::Full) }).unwrap();
    let plan = completion(None);
    assert_eq!(plan.jobs.iter().map(|job| job.name.as_str()).collect::<String>(), "ABCDEF");
    assert_eq!((plan.jobs[2].title.as_str(), plan.rounds), ("C random 4 KiB writes, depth 32", 10));
    let work = jobs_of(&plan, "B", "forebay-delay");
    assert_eq!((extent(&work), work.budget_bytes), ((320 * MIB, 1.8), 64 * MIB));
    assert_eq!(work.settings, [("completion".to_owned(), "delay=1000".to_owned())]);
    let whole = completion(Some(1.0));
    let work = jobs_of(&whole, "F", "forebay-immediate-again");
    assert_eq!(extent(&work), (2 * GIB, 60.0));
    assert_eq!((work.budget_bytes, work.workload.jobs.len()), (80 * MIB, 4));
    let dirty = [("dirty_bytes", 64 * MIB), ("background_bytes", 32 * MIB)];
    let dirty = dirty.map(|(knob, bytes)| (knob.to_owned(), bytes.to_string()));
    assert_eq!(work.settings[..2], dirty);
    assert_eq!(jobs_of(&whole, "F", "kernel-bounded").settings, []);
    let least = completion(Some(0.0001));
    let work = jobs_of(&least, "F", "forebay-immediate");
    assert_eq!((extent(&work).0, work.budget_bytes), (32 * MIB, 8 * MIB));
    assert!(extent(&work).1 >= SHORTEST);
    // At any scale the file exceeds the memory.
    for scale in [0.001, 0.005, 0.02, 0.1, 0.7] {
        let plan = completion(Some(scale));
        let work = jobs_of(&plan, "A", "forebay-immediate");
        assert!(extent(&work).0 >= 4 * work.budget_bytes, "{scale}");
    }
}

#[test]
fn a_job_on_a_device_has_the_arms_that_can_and_is_not_the_warm_up() {
    let plan = plan_of("completion", 0, &wish(Form::Full)).unwrap();
    let on_device: Vec<&Job> =
        plan.jobs.iter().filter(|job| job.arms.iter().any(|arm| arm.work.wants_device())).collect();
    assert_eq!(on_device.len(), 1);
    assert_eq!(on_device[0].name, "E");
    let arms = names(on_device[0]);
    assert!(arms.contains(&"kernel-direct-1m") && arms.contains(&"forebay-immediate-again"));
    assert!(
        !arms.iter().any(|arm| arm.contains("prealloc") || arm.contains("declared")),
        "{arms:?}"
    );
    let first = plan.warm_ups().swap_remove(0);
    let warm_up = spec_of(&first.cell);
    assert!(warm_up.arm.is_bounded_kernel() && !first.work.wants_device());
    assert!(plan.announcement()[0].contains("rounds, 1.8 s each, on files of 320 MiB"));
    let small = plan_of("completion", 0, &Wish { free_bytes: GIB, ..wish(Form::Full) }).unwrap();
    assert_eq!(extent(&jobs_of(&small, "A", "forebay-immediate")).0, 48 * MIB);
    assert!(small.notes[0].contains("smaller files (48 MiB, not 320)"), "{:?}", small.notes);
    let refused =
        plan_of("completion", 0, &Wish { free_bytes: 100 * MIB, ..wish(Form::Full) }).unwrap_err();
    assert!(matches!(refused, PlanError::NoSpace { .. }), "{refused}");
}

#[test]
fn an_engine_s_setting_reaches_the_arms_that_have_none_of_their_own() {
    let settings = [("completion".to_owned(), "immediate".to_owned())];
    let wish = Wish { engine_settings: &settings, ..wish(Form::Full) };
    let plan = plan_of("completion", 0, &wish).unwrap();
    let own = jobs_of(&plan, "C", "forebay-delay").settings;
    assert_eq!(own.last().unwrap().1, "delay=1000");
    assert!(
        plan.notes[0].starts_with("--set completion=immediate does not apply to forebay-delay, ")
    );
    let beside = plan_of("completion", 2, &wish).unwrap();
    assert_eq!(jobs_of(&beside, "bulk-beside-sync", "forebay-time").settings, settings);
    let copy = plan_of("completion", 1, &wish).unwrap();
    assert!(!copy.warm_ups()[0].work.on_disk, "the first is a bare copy");
    let copy = &copy.jobs[0].arms[2].cell;
    assert_eq!((copy.settings[0].1.as_str(), copy.settings.len()), ("immediate", 3));
    assert_eq!((copy.arm.as_str(), copy.shape["block"].as_str()), ("copy-forebay", Some("4k")));
}

#[test]
fn a_setting_that_an_arm_overrides_is_noted() {
    let settings =
        [("plug".to_owned(), "always".to_owned()), ("order".to_owned(), "lifo".to_owned())];
    let plan = plan_of("plug", 0, &Wish { settings: &settings, ..wish(Form::Bare) }).unwrap();
    let expected =
        "--set plug=always does not apply to never, always, adaptive: the suite sets their plug";
    assert_eq!(plan.notes, [expected]);
    assert_eq!(spec(&plan.jobs[0], "never").knobs.last().unwrap().1, "never");
}

#[test]
fn the_bare_form_is_three_questions_of_few_arms_in_less_than_two_minutes() {
    let suites = BARE.map(|name| suite::find(Path::new(name)).unwrap());
    let parts = suites.iter().flat_map(|suite| suite.parts.iter().map(move |part| (suite, part)));
    let plans =
        parts.filter_map(|(suite, part)| Plan::new(suite, part, &wish(Form::Bare)).unwrap());
    let plans: Vec<Plan> = plans.collect();
    assert_eq!(
        plans.iter().map(|plan| plan.part.as_str()).collect::<Vec<_>>(),
        ["layout", "file", "completion"]
    );
    for job in plans.iter().flat_map(|plan| &plan.jobs) {
        let distinct: Vec<&str> =
            names(job).into_iter().filter(|name| !name.ends_with("-again")).collect();
        assert!(distinct.len() <= 5 && job.arms.len() == distinct.len() + 1, "{:?}", names(job));
    }
    let expected: Vec<Duration> = plans.iter().map(|plan| plan.expected(None)).collect();
    assert!(expected.iter().sum::<Duration>() < Duration::from_secs(120), "{expected:?}");
    assert!(
        plans
            .iter()
            .all(|plan| plan.rounds as usize > ROUNDS_FOR_A_VERDICT && plan.notes.is_empty())
    );
    let written: u64 = plans.iter().map(Plan::most_written_bytes).sum();
    assert!(written < 6 * GIB, "{written}");
    assert_eq!(size(&plans[0]), (15 * MIB, 40 * MIB, 5));
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
        let wish = Wish { form, scale: Some(scale), rounds: Some(rounds), free_bytes: free, seed, ..wish(form) };
        if let Ok(plan) = layout(&wish) {
            let (bytes, budget) = (plan.cell_bytes.unwrap(), plan.budget_bytes().unwrap());
            prop_assert!(bytes <= free / 4);
            prop_assert!(plan.warm_ups()[0].work.written_bytes <= bytes);
            prop_assert!(!quick || plan.most_written_bytes() <= QUICK_WRITES_AT_MOST_BYTES);
            prop_assert_eq!(budget * 9, bytes * 2);
            prop_assert!(budget.is_multiple_of(4 * MIB));
        }
        if let Ok(plan) = plan_of("plug", 0, &wish) {
            prop_assert!(plan.data_bytes.unwrap() <= free / 4);
            for arm in plan.jobs.iter().flat_map(|job| &job.arms) {
                let spec = requests(&arm.cell);
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
}

#[test]
fn writers_write_as_much_in_every_job_with_two_ninths_of_it_as_memory() {
    let plan = plan_of("writeback", 0, &wish(Form::Full)).unwrap();
    assert_eq!(plan.jobs.len(), 6);
    for arm in plan.jobs.iter().flat_map(|job| &job.arms) {
        let (written, budget) = (arm.work.written_bytes, arm.work.budget_bytes);
        assert_eq!((written, budget), (1152 * MIB, Some(256 * MIB)), "{}", arm.name);
        assert_eq!(arm.work.wants_device(), arm.name.starts_with("raw-device"));
    }
    let one = jobs_of(&plan, &plan.jobs[0].name, "forebay-one-context");
    assert_eq!(one.settings, [("contexts".to_owned(), "1".to_owned())]);
    assert!(plan.announcement()[0].contains("1152 MiB each"), "{:?}", plan.announcement());
    let warm_up = plan.warm_ups()[0].work.written_bytes;
    assert!(warm_up > 0 && warm_up <= 1152 * MIB / 8, "{warm_up}");
}

#[test]
fn published_writers_have_files_of_the_published_lengths() {
    let whole = Wish { scale: Some(1.0), free_bytes: 4 << 40, ..wish(Form::Published) };
    let plan = plan_of("writeback", 1, &whole).unwrap();
    let written = |job: &Job| (job.workload.clone(), job.arms[0].work.written_bytes / GIB);
    let [a, b, c] = [("A-12x12", 144), ("B-6x6", 720), ("C-6-one-directory", 6)]
        .map(|(name, gib)| (name.to_owned(), gib));
    assert_eq!(plan.jobs.iter().map(written).collect::<Vec<_>>(), [a, b, c]);
    let said = plan.announcement().swap_remove(0);
    assert!(said.contains("147456 MiB each, 737280 MiB in B-6x6, 6144 MiB in C-6-"), "{said}");
}

#[test]
fn writers_stay_within_their_room() {
    let most = |room, free_bytes| {
        let wish = Wish { free_bytes, room, ..wish(Form::Full) };
        let plan = plan_of("writeback", 1, &wish)?;
        let works = plan.jobs.iter().flat_map(|job| &job.arms).map(|arm| arm.work.written_bytes);
        Ok::<_, PlanError>((works.max().unwrap(), plan.notes))
    };
    let (bytes, notes) = most(Room::Shared, GIB).unwrap();
    assert!(
        bytes <= GIB / 4 && notes[0].contains("a run uses at most a quarter"),
        "{bytes} {notes:?}"
    );
    let (bytes, notes) = most(Room::Own, GIB).unwrap();
    assert!(bytes > GIB / 2 && bytes <= GIB / 4 * 3, "{bytes}");
    assert!(notes[0].contains("three quarters"), "{notes:?}");
    let said = most(Room::Own, MIB).unwrap_err().to_string();
    assert!(said.contains("only 1 MiB free"), "{said}");
}

#[test]
fn parts_with_the_same_writers_keep_their_rows_apart() {
    let suite = suite::find(Path::new("writeback")).unwrap();
    for form in [Form::Full, Form::Quick] {
        let plans =
            suite.parts.iter().filter_map(|part| Plan::new(&suite, part, &wish(form)).unwrap());
        let jobs: Vec<String> = plans.flat_map(|plan| plan.jobs).map(|job| job.name).collect();
        let distinct: std::collections::BTreeSet<&String> = jobs.iter().collect();
        assert_eq!(distinct.len(), jobs.len(), "{jobs:?}");
    }
}

/// A result finds rows, ratios and noise by the name of the job alone.
#[test]
fn parts_with_the_same_workload_keep_their_rows_apart() {
    for name in ["layout", "completion"] {
        let mut suite = suite::find(Path::new(name)).unwrap();
        let alone: Vec<String> = suite.parts.iter().map(|part| part.name.clone()).collect();
        let jobs = |suite: &Suite| -> Vec<(String, String)> {
            let planned = |part: &Part| Plan::new(suite, part, &wish(Form::Full)).unwrap();
            let jobs = suite.parts.iter().filter_map(planned).flat_map(|plan| plan.jobs);
            jobs.map(|job| (job.name, job.workload)).collect()
        };
        assert!(
            jobs(&suite).iter().all(|(job, workload)| job == workload),
            "{name}: none is shared"
        );
        let mut twice = suite.parts.clone();
        twice.iter_mut().for_each(|part| part.name.push_str("-more"));
        suite.parts.extend(twice);
        let jobs = jobs(&suite);
        let distinct: std::collections::BTreeSet<&String> =
            jobs.iter().map(|(job, _)| job).collect();
        assert_eq!(distinct.len(), jobs.len(), "{jobs:?}");
        let (job, workload) = &jobs[0];
        assert_eq!(*job, format!("{}/{workload}", alone[0]));
    }
}

#[test]
fn what_differs_in_one_thing_alone_is_compared() {
    let plan = plan_of("writeback", 1, &wish(Form::Full)).unwrap();
    assert!(!plan.also.is_empty());
    let arms = names(&plan.jobs[0]);
    for pair in &plan.also {
        assert!(arms.contains(&pair.arm.as_str()) && arms.contains(&pair.base.as_str()));
    }
    assert!(arms.contains(&"contexts-1-holes-again"));
}
