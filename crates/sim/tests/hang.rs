//! Devices that stop answering: files on other devices go on. A run without any progress is
//! reported with the waiting tasks.

mod common;

use std::time::Duration;

use common::{assert_marks, swarm};
use forebay_sim::plan::{Disturbance, Mix};
use forebay_sim::run::run;
use forebay_sim::trace::Tracing;
use forebay_sim::{PerMille, Plan};

#[test]
fn contract_15_a_hung_device_holds_up_no_other_device() {
    let marks = swarm("contract_15_a_hung_device", 40, Plan::hangs);
    assert_marks(&marks, &["device hangs", "others go on", "sync ok"]);
    assert_eq!(marks.count("sync failed"), 0);
}

/// Past the cache, with more operations that wait for each other than the queue of a context holds.
#[test]
fn contract_15_holds_past_the_cache() {
    let marks = swarm("contract_15_holds_past", 30, |seed| {
        let plan = Plan::hangs(seed).past_the_cache(seed);
        let hang_time = Some(Duration::from_secs(100));
        let pause = Duration::from_millis(10);
        let disturbance = Disturbance { hang_time, pause, ..plan.disturbance };
        let mix = Mix { write: 40, set_length: 0, close: 1, ..plan.mix };
        Plan { direct: PerMille(1000), bytes: 700, callers: 6, mix, disturbance, ..plan }
    });
    assert_marks(&marks, &["device hangs", "others go on", "moved together"]);
}

#[test]
fn a_run_in_which_nothing_goes_on_is_reported_with_the_waiting_tasks() {
    let disturbance = Disturbance {
        pause: Duration::from_millis(4),
        hang: PerMille(1000),
        ..Disturbance::default()
    };
    let age = Duration::from_secs(1);
    let plan = Plan { disturbance, age, files: 1, operations: 200, ..Plan::calm(1) };
    let failure = run(1, plan, Tracing::Off).expect_err("the only device never answers again");
    let report = failure.to_string();
    assert!(report.contains("contract 16: no call has ended for 300s"), "{report}");
    for waiting in ["caller 0", "waits for park", "forebay-0", "waits for doorbell of backend"] {
        assert!(report.contains(waiting), "{report}");
    }
}
