//! Comparisons on a file system that was made for them.

use super::*;

/// A file system of its own for a test; none where it cannot be made.
fn small_file_system(scratch: &Scratch, megabytes: u32) -> Option<std::path::PathBuf> {
    let spec = format!("ext4,size={megabytes}m,keep").parse().unwrap();
    match scratch.make_file_system(&spec, &Stop::default()) {
        Ok((storage, _)) => Some(storage.device.into()),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

fn on_scratch<'a>(
    plan: &'a Plan,
    scratch: &'a Scratch,
    stop: &'a Stop,
    writes: &'a Writes,
) -> Setting<'a> {
    Setting {
        plan,
        scratch,
        target: None,
        quiet_within: Duration::ZERO,
        stop,
        metric: "write_bytes_per_s",
        claim: &NO_CLAIM,
        writes,
        record: None,
    }
}

/// Real cells on a disk too small for one of them.
#[test]
fn a_full_disk_ends_its_arm_and_keeps_the_rest() {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let scratch = Scratch::new_in(directory.path()).unwrap();
    if small_file_system(&scratch, 96).is_none() {
        return;
    }
    let suite = suite::find(Path::new("layout")).unwrap();
    let wish = Wish { scale: Some(0.01), ..wish(2, None) };
    let mut plan = Plan::new(&suite, &suite.parts[0], &wish).unwrap().unwrap();
    plan.jobs[0].arms.retain(|arm| {
        ["kernel-buffered", "kernel-bounded", "forebay"].contains(&arm.name.as_str())
    });
    for arm in &mut plan.jobs[0].arms {
        let mut shape: CellSpec = arm.cell.shape().unwrap();
        shape.workload.jobs.truncate(2);
        if arm.name == "kernel-buffered" {
            let jobs = shape.workload.jobs.iter_mut();
            jobs.for_each(|job| job.size = Some(Amount::Bytes(120 << 20)));
        }
        arm.cell.shape = serde_json::to_value(&shape).unwrap();
    }
    let (stop, writes) = (Stop::default(), Writes::default());
    let setting = on_scratch(&plan, &scratch, &stop, &writes);
    let mut cells = 0;
    let mut runner = |cell: &Cell| {
        cells += 1;
        let report = crate::probes::run(cell, |_| ());
        report.map(|report| report.total).map_err(|error| RunError::Failed(error.to_string()))
    };
    let outcome = compare(&setting, &mut runner, &mut Progress::hidden(&plan)).unwrap();
    let [full] = outcome.left_out.as_slice() else { panic!("{:?}", outcome.left_out) };
    assert!(full.failed && full.arm == "kernel-buffered", "{full:?}");
    assert!(full.reason.contains("No space left"), "{full:?}");
    let kept: Vec<&str> = outcome.measured.iter().map(|one| one.arm.as_str()).collect();
    assert_eq!(kept, ["kernel-bounded", "forebay"]);
    assert!(outcome.measured.iter().all(|one| one.rounds.len() == 2));
    let expected = warm_ups(&plan) + 1 + 2 * 2;
    assert_eq!(cells, expected, "the warm-ups, the full one once, the others in both rounds");
    assert!(outcome.notes.iter().any(|note| note.contains("verified")), "{:?}", outcome.notes);
}

/// The device under the cells' own file system is written over: nothing may be mounted on it then.
#[test]
fn a_job_on_the_device_of_the_scratch_file_system_finds_it_unmounted() {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let scratch = Scratch::new_in(directory.path()).unwrap();
    let device = match scratch.make_file_system(&"ext4,size=64m".parse().unwrap(), &Stop::default())
    {
        Ok((storage, _)) => Path::new(&storage.device).to_owned(),
        Err(error) => {
            eprintln!("skipped: {error}");
            return;
        }
    };
    let plan = completion(Form::Full, &["A", "E"]);
    let (stop, writes) = (Stop::default(), Writes::default());
    let mut on_device = 0;
    let mut runner = |cell: &Cell| {
        assert!(cell.directory.is_dir());
        if let Some(path) = &cell.device {
            assert_eq!(*path, device);
            crate::load::check_target(path).unwrap();
            on_device += 1;
        }
        Ok(fixed_speed(cell))
    };
    let setting = on_scratch(&plan, &scratch, &stop, &writes);
    let outcome = compare(&setting, &mut runner, &mut Progress::hidden(&plan)).unwrap();
    assert!(on_device > 4 && outcome.left_out.is_empty(), "{on_device}: {:?}", outcome.left_out);
}

/// A job file that reads a device: the queue that is set is the device's, not that of the disk of
/// the directory.
#[test]
fn what_an_arm_sets_is_set_on_the_device_that_is_read() {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let file = directory.path().join("file");
    std::fs::File::create(&file).unwrap().set_len(1 << 20).unwrap();
    let device = match crate::loop_device::LoopDevice::over(&file) {
        Ok(device) => device,
        Err(error) => {
            eprintln!("skipped: no loop device: {error}");
            return;
        }
    };
    let queue = crate::manifest::mount::queue_directory_of(device.path()).unwrap();
    let nomerges = || std::fs::read_to_string(queue.join("nomerges")).unwrap().trim().to_owned();
    let before = nomerges();
    let job_file = directory.path().join("job.fio");
    let text = format!("[a]\nrw=read\nsize=1m\nfilename={}\n", device.path().display());
    std::fs::write(&job_file, text).unwrap();
    let suite = suite::job_file::suite(&job_file, &mut std::io::sink()).unwrap();
    let mut plan = Plan::new(&suite, &suite.parts[0], &wish(1, None)).unwrap().unwrap();
    assert!(plan.jobs[0].arms.iter().all(|arm| arm.work.outside.is_some()));
    for arm in &mut plan.jobs[0].arms {
        arm.tunings =
            vec![Tuning { knob: "queue.nomerges".parse().unwrap(), value: "2".to_owned() }];
    }
    let mut set = 0;
    let mut runner = |cell: &Cell| {
        // Nothing is set for the first cell of all.
        if !cell.directory.ends_with("warm-up") {
            assert_eq!(nomerges(), "2");
            set += 1;
        }
        Ok(CellResult::default())
    };
    let scratch = Scratch::new_in(directory.path()).unwrap();
    let (stop, writes) = (Stop::default(), Writes::default());
    let setting = on_scratch(&plan, &scratch, &stop, &writes);
    let outcome = compare(&setting, &mut runner, &mut Progress::hidden(&plan)).unwrap();
    assert!(outcome.left_out.is_empty() && set > 2, "{set}: {:?}", outcome.left_out);
    assert_eq!(nomerges(), before);
    let exclusively = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::EXCL;
    let _held = rustix::fs::open(device.path(), exclusively, rustix::fs::Mode::empty()).unwrap();
    let refused = Plan::new(&suite, &suite.parts[0], &wish(1, None)).unwrap_err().to_string();
    assert!(refused.contains("unmount it"), "{refused}");
}

#[test]
fn what_an_arm_sets_holds_in_its_cells_alone() {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let scratch = Scratch::new_in(directory.path()).unwrap();
    let Some(device) = small_file_system(&scratch, 64) else { return };
    let queue = crate::manifest::mount::queue_directory_of(&device).unwrap();
    let nomerges = || std::fs::read_to_string(queue.join("nomerges")).unwrap().trim().to_owned();
    let before = nomerges();
    let mut plan = plan(2, None);
    let mut named = |arm: &str, value: &str| {
        let mut arms = plan.jobs[0].arms.iter_mut();
        let found = arms.find(|one| one.name == arm).unwrap();
        found.tunings =
            vec![Tuning { knob: "queue.nomerges".parse().unwrap(), value: value.to_owned() }];
    };
    named("kernel-bounded", "2");
    named("forebay", "2");
    named("kernel-uncached", "77");
    // A limit of the job that cannot be set leaves its arm out, too.
    let limited = plan.jobs[0].arms.iter_mut().find(|one| one.name == "kernel-uncached").unwrap();
    limited.needs = std::mem::take(&mut limited.tunings);
    let (stop, writes) = (Stop::default(), Writes::default());
    let setting = on_scratch(&plan, &scratch, &stop, &writes);
    let mut forebay = 0;
    let mut runner = |cell: &Cell| {
        let name = name_of(cell);
        let of_tuned = [Arm::Forebay, Arm::KernelBounded].contains(&spec_of(cell).arm);
        let warmed = name == "warm-up" && of_tuned;
        let tuned = name == "kernel-bounded" || name == "forebay" || warmed;
        let expected = if tuned { "2" } else { before.as_str() };
        assert_eq!(nomerges(), expected, "{name}");
        forebay += u32::from(name == "forebay");
        match forebay {
            2 if name == "forebay" => Err(RunError::Failed("it died".into())),
            _ => Ok(fixed_speed(cell)),
        }
    };
    let outcome = compare(&setting, &mut runner, &mut Progress::hidden(&plan)).unwrap();
    assert_eq!(nomerges(), before);
    let left_out: Vec<(&str, bool)> =
        outcome.left_out.iter().map(|one| (one.arm.as_str(), one.failed)).collect();
    assert!(
        left_out.contains(&("kernel-uncached", false)) && left_out.contains(&("forebay", true)),
        "{left_out:?}"
    );
    let refused = outcome.left_out.iter().find(|one| one.arm == "kernel-uncached").unwrap();
    assert!(refused.reason.contains("queue.nomerges=77: "), "{refused:?}");
}
