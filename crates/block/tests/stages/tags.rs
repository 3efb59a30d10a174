//! Tags: no flight without a tag, no tag in two places, and no tag lost.

use forebay_block::limits::TAGS;
use forebay_block::{Knobs, Operation, Wait};
use proptest::prelude::*;

use crate::recorder::{World, bio, knobs};

#[derive(Clone, Debug)]
enum Step {
    Submit(usize),
    Dispatch(Wait),
    Run,
    Knobs(Knobs),
    Device { capacity: usize, completes: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..64usize).prop_map(Step::Submit),
        4 => prop_oneof![Just(Wait::Not), Just(Wait::Something(None))].prop_map(Step::Dispatch),
        3 => Just(Step::Run),
        1 => knobs().prop_map(Step::Knobs),
        2 => (1..2 * TAGS, 0..64usize).prop_map(|(capacity, completes)| Step::Device { capacity, completes }),
    ]
}

/// Fills the flight until all tags are in use.
fn fill(world: &mut World) {
    (world.device.capacity, world.device.completes) = (2 * TAGS, 0);
    let mut dispatches = 0;
    let mut page = 0;
    while world.queue.in_flight() < TAGS {
        while world.queue.room() > 0 && world.queue.in_flight() + world.queue.staged() < TAGS + 8 {
            world.submit(bio(Operation::Read, 0, 2 * page, 1), 1);
            page += 1;
        }
        world.queue.dispatch(&mut world.device, Wait::Not).unwrap();
        // Advances the clock, so that a timed hold of the plug ends.
        forebay_block::Device::now(&mut world.device);
        dispatches += 1;
        assert!(
            dispatches < 10_000,
            "{} in flight, and no further progress",
            world.queue.in_flight()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// The recorder panics at a tag that is used twice or is outside the set.
    #[test]
    fn contract_16_no_tag_is_in_two_places_and_none_is_lost(
        steps in prop::collection::vec(step(), 1..120),
        first in knobs(),
    ) {
        let mut world = World::new(TAGS, 1);
        world.queue.set_knobs(first);
        let mut page = 0;
        for step in steps {
            match step {
                Step::Submit(count) => {
                    for _ in 0..count {
                        // Reads that are not adjacent: only tags and the device hold them up.
                        world.submit(bio(Operation::Read, 1, 2 * page, 1), 1);
                        page += 1;
                    }
                }
                Step::Dispatch(wait) => { world.queue.dispatch(&mut world.device, wait).unwrap(); }
                Step::Run => { world.queue.run(&mut world.device, &mut world.ended); }
                Step::Knobs(knobs) => world.queue.set_knobs(knobs),
                Step::Device { capacity, completes } => {
                    (world.device.capacity, world.device.completes) = (capacity, completes);
                }
            }
            prop_assert!(world.device.active() <= world.queue.in_flight(), "the device holds a request that is not in flight");
            prop_assert!(world.queue.in_flight() <= TAGS);
        }
        world.device.completes = 1;
        world.finish();
        fill(&mut world);
        prop_assert_eq!((world.queue.in_flight(), world.device.active()), (TAGS, TAGS), "all tags are in use");
        prop_assert!(world.device.tags.iter().all(|&times| times > 0), "each tag was used");
        world.finish();
    }
}
