use super::*;

fn counted(values: &[(Counter, u64)]) -> Batched {
    let mut all = [0; COUNTERS];
    values.iter().for_each(|(counter, value)| all[*counter as usize] = *value);
    Batched(all)
}

#[test]
fn what_was_counted_becomes_ratios_and_nothing_is_made_up() {
    let before = counted(&[(Counter::AskedUnplugs, 5), (Counter::Issues, 100)]);
    let after = counted(&[
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
    ]);
    let mut metrics = BTreeMap::new();
    after.since(before).add_to(&mut metrics);
    let of = |name: &str| metrics.get(&format!("{PREFIX}{name}")).copied();
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
    assert!(metrics.keys().all(|name| crate::metric::find(name).is_some()), "{metrics:?}");
}

#[test]
fn every_metric_of_it_has_a_counter() {
    let mut all = Batched([2; COUNTERS]);
    all.0[Counter::Requeues as usize] = 1;
    let mut metrics = BTreeMap::new();
    all.add_to(&mut metrics);
    let named = crate::metric::all().filter(|metric| metric.name.starts_with(PREFIX)).count();
    assert_eq!(metrics.len(), named);
}

/// Whatever is missing says so; on a kernel that tells its types nothing is.
#[test]
fn this_kernel_takes_every_program() {
    let directory = tempfile::tempdir_in(".").unwrap();
    match attach(directory.path(), Ring::Used) {
        Ok((counting, missing)) => {
            assert_eq!(missing, [""; 0]);
            assert!(counting.counters.read().is_ok());
        }
        Err(reason) => eprintln!("skipped: {reason}"),
    }
}
