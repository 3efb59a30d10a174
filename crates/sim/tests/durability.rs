//! Power may go at any moment. A seed is run once to count the moments at which the device's state
//! changes; then the same run is frozen at each of them (at some, where they are many), and what
//! may be left is compared with what was promised.

mod common;

use common::{Run, assert_marks, factor, seeds_of};
use forebay_sim::plan::Disturbance;
use forebay_sim::{Marks, PerMille, Plan};

/// Moments looked at per seed: all of a short run, every so many of a long one.
const MOMENTS: u64 = 24;

fn freeze_at_every_moment(name: &str, seeds: u64, plan: impl Fn(u64) -> Plan) -> Marks {
    let mut marks = Marks::default();
    for seed in seeds_of(seeds) {
        // Looking in between is the other tests' affair.
        let plan = || {
            let plan = plan(seed);
            let disturbance = Disturbance { crash: PerMille(0), ..plan.disturbance };
            Plan { disturbance, operations: plan.operations.min(60), ..plan }
        };
        let mut counted = Run::new(name, seed, plan());
        marks.merge(counted.driver.run());
        let moments = counted.driver.transitions();
        let stride = (moments / (MOMENTS * factor())).max(1);
        for moment in (seed % stride..=moments).step_by(stride as usize) {
            let mut frozen = Run::new(name, seed, plan());
            marks.merge(frozen.driver.run_until_power_loss(moment));
        }
    }
    marks
}

#[test]
fn contract_03_each_sector_holds_a_version_accepted_since_the_last_sync() {
    let name = "contract_03_each_sector";
    let marks = freeze_at_every_moment(name, 60, Plan::passing);
    assert_marks(&marks, &["power loss", "sync ok", "tail", "length set", "touched in flight"]);
}

#[test]
fn contract_03_holds_while_the_device_fails() {
    let name = "contract_03_holds_while";
    let marks = freeze_at_every_moment(name, 60, Plan::swarm);
    assert_marks(&marks, &["power loss", "page write failed", "flush failed"]);
}

/// New files, synced once and again: the entry, the size and the bytes must be there.
#[test]
fn contract_01_what_was_synced_is_there_with_its_name_and_size() {
    let name = "contract_01_what_was_synced";
    let marks = freeze_at_every_moment(name, 60, |seed| {
        let plan = Plan::passing(seed);
        let mix = forebay_sim::plan::Mix { sync: 30, append: 20, ..plan.mix };
        Plan { mix, operations: 40, file_pages: 16, shared: PerMille(100), ..plan }
    });
    assert_marks(&marks, &["power loss", "sync ok", "closed with its name unsynced"]);
}
