//! Whatever the order of events, what is read is what was written, and everything comes to an end.

mod common;

use common::swarm;
use forebay_sim::Plan;

#[test]
fn contract_16_calm() {
    let marks = swarm("contract_16_calm", 1000, Plan::calm);
    println!("{marks}");
}

#[test]
fn contract_16_passing() {
    let marks = swarm("contract_16_passing", 1000, Plan::passing);
    println!("{marks}");
}

#[test]
fn contract_16_swarm() {
    let marks = swarm("contract_16_swarm", 1000, Plan::swarm);
    println!("{marks}");
}

#[test]
fn contract_16_large() {
    let marks = swarm("contract_16_large", 100, Plan::large);
    println!("{marks}");
}
