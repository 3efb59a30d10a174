//! Order of service, conflicts in flight, and refused requests.

use std::collections::BTreeMap;

use forebay_block::knobs::{Holding, Merging, Order};
use forebay_block::limits::{PASSED_OVER, TAGS};
use forebay_block::{Bio, Class, Ended, Knobs, Operation, Source, Wait};
use proptest::prelude::*;

use crate::recorder::{World, bio, class, is_bound, knobs};

#[derive(Clone, Debug)]
enum Step {
    Submit { operation: Operation, target: u32, page: u64, class: Class, source: u32 },
    Dispatch(Wait),
    Run,
    Knobs(Knobs),
    Device { capacity: usize, completes: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let operation = prop_oneof![
        5 => Just(Operation::Write),
        5 => Just(Operation::Read),
        1 => Just(Operation::WriteFua),
        1 => Just(Operation::WriteZeroes),
        1 => Just(Operation::Discard),
        1 => Just(Operation::FlushAll),
        1 => Just(Operation::SetLength),
        1 => Just(Operation::WriteBuffered),
    ];
    let submit = (operation, 0..3u32, 0..40u64, class(), 0..3u32).prop_map(
        |(operation, target, page, class, source)| Step::Submit {
            operation,
            target,
            page,
            class,
            source,
        },
    );
    prop_oneof![
        10 => submit,
        2 => prop_oneof![Just(Wait::Not), Just(Wait::Something(None))].prop_map(Step::Dispatch),
        2 => Just(Step::Run),
        1 => knobs().prop_map(Step::Knobs),
        1 => (1..24usize, 0..6usize).prop_map(|(capacity, completes)| Step::Device { capacity, completes }),
    ]
}

fn apply(world: &mut World, step: Step, keep: impl Fn(Knobs) -> Knobs) {
    match step {
        Step::Submit { operation, target, page, class, source } => {
            world.submit(
                Bio { class, source: Source(source), ..bio(operation, target, page, 2) },
                1,
            );
        }
        Step::Dispatch(wait) => {
            world.queue.dispatch(&mut world.device, wait).unwrap();
        }
        Step::Run => {
            world.queue.run(&mut world.device, &mut world.ended);
        }
        Step::Knobs(knobs) => world.queue.set_knobs(keep(knobs)),
        Step::Device { capacity, completes } => {
            (world.device.capacity, world.device.completes) = (capacity, completes);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Conflicting bios reach the device in order of arrival and are never in flight together,
    /// because the device keeps no order.
    #[test]
    fn contract_15_conflicting_bios_keep_their_order(
        steps in prop::collection::vec(step(), 1..200),
        first in knobs(),
    ) {
        let mut world = World::new(TAGS, 1);
        world.queue.set_knobs(first);
        for step in steps {
            apply(&mut world, step, |knobs| knobs);
        }
        world.finish();
        let mut place = vec![None; world.bios.len()];
        for (number, offer) in world.device.taken().enumerate() {
            for beside in &offer.beside {
                prop_assert!(!is_bound(beside, &offer.bio), "{beside:?} and {:?} are in flight", offer.bio);
            }
            for member in world.members(&offer.bio) {
                prop_assert!(place[member].replace(number).is_none(), "bio {member} went twice");
            }
        }
        for later in 0..world.bios.len() {
            for earlier in (0..later).filter(|&earlier| is_bound(&world.bios[earlier], &world.bios[later])) {
                prop_assert!(place[earlier] < place[later], "{earlier} and {later} changed places");
            }
        }
    }

    /// Bios of one source and class that conflict with no other are taken in order of arrival, even
    /// if some are refused. Within one batch, waited bios come first, except for a background bio
    /// that was passed over often.
    #[test]
    fn contract_15_the_refused_come_back_in_order_and_the_waited_go_first(
        bios in prop::collection::vec((class(), 0..3u32, any::<bool>(), 0..12u8), 1..250),
        devices in prop::collection::vec((1..40usize, 0..6usize), 1..40),
        all_knobs in prop::collection::vec(knobs(), 1..40),
    ) {
        let mut world = World::new(TAGS, 1);
        let unmerged = |knobs: Knobs| Knobs { merging: Merging::Off, ..knobs };
        let mut batches = Vec::new();
        let mut turn = |world: &mut World, number: usize| {
            (world.device.capacity, world.device.completes) = devices[number % devices.len()];
            world.queue.set_knobs(unmerged(all_knobs[number % all_knobs.len()]));
            let before = world.device.offers.len();
            world.queue.dispatch(&mut world.device, Wait::Something(None)).unwrap();
            batches.push((before..world.device.offers.len(), world.bios.len()));
            world.queue.run(&mut world.device, &mut world.ended);
        };
        let mut turns = 0;
        for (number, &(class, source, is_write, turns_when)) in bios.iter().enumerate() {
            while turns_when == 0 || world.queue.room() == 0 {
                turn(&mut world, turns);
                turns += 1;
                prop_assert!(turns < 100_000, "no progress");
                if world.queue.room() > 0 {
                    break;
                }
            }
            let operation = if is_write { Operation::Write } else { Operation::Read };
            let asked = bio(operation, number as u32 % 2, 2 * number as u64, 1);
            world.submit(Bio { class, source: Source(source), ..asked }, 1);
        }
        while world.ended.len() < world.bios.len() {
            turn(&mut world, turns);
            turns += 1;
            prop_assert!(turns < 100_000, "no progress");
        }
        let mut last: BTreeMap<(Class, Source), u64> = BTreeMap::new();
        for Bio { class, source, owner, .. } in world.device.taken().map(|offer| &offer.bio) {
            let before = last.insert((*class, *source), *owner);
            prop_assert!(before < Some(*owner), "{before:?} of {class:?} was overtaken by {owner}");
        }
        let mut taken = vec![false; world.bios.len()];
        let mut passed_over = 0;
        for (offers, submitted) in batches {
            let (mut is_first, mut takes_background) = (true, false);
            for offer in &world.device.offers[offers] {
                let is_background = offer.bio.class == Class::Background;
                let waits = |number: &usize| world.bios[*number].class == Class::Waited && !taken[*number];
                if is_background && offer.is_taken {
                    let turn = is_first && passed_over >= PASSED_OVER;
                    let waiting = (0..submitted).find(waits).filter(|_| !turn);
                    prop_assert_eq!(waiting, None, "a background bio goes before a waited one");
                    takes_background = true;
                }
                is_first &= !offer.is_taken;
                taken[offer.bio.owner as usize] |= offer.is_taken;
            }
            passed_over = if takes_background { 0 } else { passed_over + 1 };
        }
    }

    /// Bios end in the order their requests completed. Under a hold, bios that somebody waits for
    /// pass held writes, and each of the two kinds keeps its order.
    #[test]
    fn contract_15_bios_end_in_the_order_reaped(
        steps in prop::collection::vec(step(), 1..200),
        first in knobs(),
        holds: bool,
    ) {
        let mut world = World::new(TAGS, 1);
        let in_order = move |knobs: Knobs| {
            let holding = if holds { knobs.holding } else { Holding::Immediate };
            Knobs { order: Order::Fifo, holding, ..knobs }
        };
        world.queue.set_knobs(in_order(first));
        for step in steps {
            apply(&mut world, step, in_order);
        }
        world.finish();
        let mut expected = Vec::new();
        for request in &world.device.completed {
            let mut members = world.members(request);
            members.sort_unstable();
            expected.extend(members);
        }
        let owner = |end: &Ended| end.bio.owner as usize;
        let mut ended: Vec<usize> = world.ended.iter().map(owner).collect();
        if holds {
            let may_be_held = |number: &usize| {
                let Bio { class, operation, .. } = world.bios[*number];
                class == Class::Background
                    && matches!(
                        operation,
                        Operation::Write | Operation::WriteFua | Operation::WriteBuffered
                    )
            };
            ended.sort_by_key(may_be_held);
            expected.sort_by_key(may_be_held);
        }
        prop_assert_eq!(ended, expected);
    }
}
