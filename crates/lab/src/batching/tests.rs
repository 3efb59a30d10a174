use super::*;

#[test]
fn what_was_counted_becomes_ratios_and_nothing_is_made_up() {
    let before = Counts::of(&[(Counter::AskedUnplugs, 5), (Counter::Issues, 100)]);
    let after = Counts::of(&[
        (Counter::AskedUnplugs, 8),
        (Counter::AskedRequests, 90),
        (Counter::SleepingUnplugs, 1),
        (Counter::SleepingRequests, 6),
        (Counter::FullUnplugs, 2),
        (Counter::Bios, 400),
        (Counter::Made, 100),
        (Counter::Inserts, 50),
        (Counter::Issues, 210),
        (Counter::Requeues, 10),
        (Counter::IssuedBytes, 110 * 4096),
        (Counter::Completions, 100),
        (Counter::CompletionRuns, 25),
        (Counter::Allocations, 500),
        (Counter::GroupWaits, 30),
    ]);
    let mut metrics = BTreeMap::from([("elapsed_s".to_owned(), 2.0)]);
    add(after.since(before), &mut metrics);
    let of = |name: &str| metrics.get(&format!("{PREFIX}{name}")).copied();
    assert_eq!((of("allocations_per_s"), of("group_waits_per_s")), (Some(250.0), Some(15.0)));
    assert_eq!(of("group_refusals_per_s"), Some(0.0), "something was allocated");
    assert_eq!(of("busiest_group_share"), Some(1.0));
    assert_eq!(of("requests_per_unplug"), Some(24.0));
    assert_eq!(of("unplug_asked_share"), Some(0.75));
    assert_eq!(of("unplug_full_share"), Some(0.5));
    assert_eq!(of("plugged_share"), Some(0.96));
    assert_eq!(of("insert_share"), Some(0.5));
    assert_eq!(of("bios_per_request"), Some(4.0));
    assert_eq!(of("request_bytes"), Some(4096.0));
    assert_eq!(of("polled_share"), Some(0.0));
    assert_eq!((of("requests_per_run"), of("bios_per_run")), (Some(4.0), Some(16.0)));
    for missing in ["bios_per_worker_run", "task_work_per_run", "completions_per_enter"] {
        assert_eq!(of(missing), None, "{missing}");
    }
    assert!(metrics.keys().all(|name| crate::probes::metric(name).is_some()), "{metrics:?}");
}

#[test]
fn every_metric_of_it_has_a_counter() {
    use Counter::*;
    let all = [
        AskedUnplugs,
        AskedRequests,
        Bios,
        Made,
        Issues,
        Completions,
        CompletionRuns,
        WorkerRuns,
        TaskWorkRuns,
        Enters,
        WritebackRuns,
        Allocations,
        GroupWaits,
    ];
    let mut metrics = BTreeMap::from([("elapsed_s".to_owned(), 1.0)]);
    add(Counts::of(&all.map(|counter| (counter, 2))), &mut metrics);
    let named = crate::metric::shared().filter(|metric| metric.name.starts_with(PREFIX)).count();
    assert_eq!(metrics.len() - 1, named);
}

/// On a kernel with BTF nothing is left out.
#[test]
fn this_kernel_takes_every_program() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let here = place(directory.path());
    let kinds = fs::read_to_string("/proc/filesystems").unwrap();
    let xfs = FileSystem { kind: Kind::Xfs, ..here.file_system };
    let on_xfs = kinds.contains("xfs").then_some(Place { file_system: xfs, ..here });
    for place in std::iter::once(here).chain(on_xfs) {
        match Counting::start(place, Ring::Used) {
            Ok((counting, missing)) => {
                assert_eq!(missing, [""; 0]);
                assert!(counting.read().is_ok());
            }
            Err(reason) => eprintln!("skipped: {reason}"),
        }
    }
}

#[test]
fn a_directory_is_on_a_file_system() {
    let directory = tempfile::tempdir_in(".").unwrap();
    assert_ne!(file_system_of(directory.path()).device, Disk { major: 0, minor: 0 });
}
