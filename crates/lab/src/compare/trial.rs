//! Three arms that are one and the same: a base, an arm, and the arm once more for the noise floor.
//! Unless an effect was planted, every verdict of the arm against the base is a false one.

use super::judge::{Judging, judge};
use super::outcome::Measured;
use crate::schema::Comparison;
use crate::suite::model::Base;
use forebay_block::random::Random;

/// The metric that is judged.
pub const METRIC: &str = "iops";

/// The arm it is judged against.
pub const BASE: &str = "same";

/// The arm that is judged.
pub const ARM: &str = "arm";

/// The arms of a trial, in the order of the table.
pub const ARMS: [&str; 3] = [BASE, ARM, "arm-again"];

/// Returns the verdict on the arm against [`BASE`].
pub fn judged(measured: &[Measured], seed: u64) -> Option<Comparison> {
    let base = Base::Arm(BASE.to_owned());
    let judged =
        judge(measured, Judging { base: &base, metric: METRIC, again: ARM, also: &[] }, seed);
    let mut comparisons = judged.comparisons.into_iter();
    comparisons.find(|one| one.arm == ARM && one.base == BASE && one.metric == METRIC)
}

/// Returns the arms of a round in their order.
pub fn order(seed: u64, round: u32) -> [&'static str; 3] {
    let mut arms = ARMS;
    Random::stream(seed, u64::from(round) << 8).shuffle(&mut arms);
    arms
}
