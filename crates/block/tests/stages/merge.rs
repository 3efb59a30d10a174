//! Merging: bios that may be in one request, and neighbours that must be.

use forebay_block::knobs::Merging;
use forebay_block::limits::{PLUG_BIOS, PLUG_BYTES, REQUEST_BYTES, REQUEST_SEGMENTS, TAGS};
use forebay_block::{Bio, Class, Frame, Knobs, Operation, Segment, Wait};
use proptest::prelude::*;

use crate::recorder::{World, bio, class, is_bound, knobs};

#[derive(Clone, Debug)]
enum Step {
    Submit { operation: Operation, target: u32, page: u64, pages: u64, class: Class, gap: usize },
    Dispatch(Wait),
    Run,
    Knobs(Knobs),
    Device { capacity: usize, completes: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let operation = prop_oneof![
        10 => Just(Operation::Write),
        6 => Just(Operation::Read),
        1 => prop::sample::select(&[
            Operation::WriteFua,
            Operation::WriteZeroes,
            Operation::Discard,
            Operation::WriteBuffered,
            Operation::FlushData,
            Operation::FlushAll,
            Operation::FlushDirectory,
            Operation::Allocate,
            Operation::Punch,
            Operation::SetLength,
        ][..]),
    ];
    let pages = prop_oneof![10 => 1..4u64, 1 => 60..300u64];
    let submit = (operation, 0..2u32, 0..48u64, pages, class(), 0..2usize).prop_map(
        |(operation, target, page, pages, class, gap)| Step::Submit {
            operation,
            target,
            page,
            pages,
            class,
            gap,
        },
    );
    prop_oneof![
        16 => submit,
        1 => prop_oneof![Just(Wait::Not), Just(Wait::Something(None))].prop_map(Step::Dispatch),
        1 => Just(Step::Run),
        1 => knobs().prop_map(Step::Knobs),
        1 => (1..TAGS, 0..8usize).prop_map(|(capacity, completes)| Step::Device { capacity, completes }),
    ]
}

/// Returns whether one request may carry `one` followed by `other`.
fn fit(one: &Bio, other: &Bio) -> bool {
    let fuses = match (one.segments.last(), other.segments.first()) {
        (Some(last), Some(&first)) => usize::from(last.fused(first).is_some()),
        _ => 0,
    };
    one.length + other.length <= REQUEST_BYTES
        && one.segments.len() + other.segments.len() - fuses <= REQUEST_SEGMENTS
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn contract_15_requests_hold_only_bios_that_may_merge(
        steps in prop::collection::vec(step(), 1..250),
        first in knobs(),
    ) {
        let mut world = World::new(TAGS, 1);
        world.queue.set_knobs(first);
        // The first bio since merging was switched off without a break, at each offer to the
        // device.
        let (mut off_since, mut offers) = ((first.merging == Merging::Off).then_some(0), Vec::new());
        for step in steps {
            match step {
                Step::Submit { operation, target, page, pages, class, gap } => {
                    world.submit(Bio { class, ..bio(operation, target, page, pages) }, gap);
                }
                Step::Dispatch(wait) => { world.queue.dispatch(&mut world.device, wait).unwrap(); }
                Step::Run => { world.queue.run(&mut world.device, &mut world.ended); }
                Step::Knobs(knobs) => {
                    world.queue.set_knobs(knobs);
                    let since = off_since.unwrap_or(world.bios.len());
                    off_since = (knobs.merging == Merging::Off).then_some(since);
                }
                Step::Device { capacity, completes } => {
                    (world.device.capacity, world.device.completes) = (capacity, completes);
                }
            }
            offers.resize(world.device.offers.len(), off_since);
        }
        world.finish();
        offers.resize(world.device.offers.len(), off_since);
        let mut carried = vec![false; world.bios.len()];
        for (offer, off_since) in world.device.offers.iter().zip(offers).filter(|(offer, _)| offer.is_taken) {
            let members = world.members(&offer.bio);
            for &member in &members {
                prop_assert!(!std::mem::replace(&mut carried[member], true), "bio {member} was written twice");
            }
            check_together(&world, &offer.bio, &members);
            let newest = *members.iter().max().expect("one bio at least");
            let is_off = off_since.is_some_and(|since| newest >= since);
            prop_assert!(members.len() == 1 || !is_off, "merging was off");
        }
        prop_assert!(carried.iter().all(|&carried| carried));
        let counters = world.queue.counters();
        prop_assert_eq!(counters.requests, world.device.taken().count() as u64);
        prop_assert_eq!(counters.requests + counters.merged_bios, world.bios.len() as u64);
        let result_of = |bio: &Bio| Ok(bio.bytes());
        prop_assert!(world.ended.iter().all(|end| end.result == result_of(&end.bio)));
    }

    /// Adjacent bios of one plug merge, however far apart they arrived, up to the size of a
    /// request.
    #[test]
    fn neighbours_are_found_over_the_whole_plug(
        places in Just((0..PLUG_BIOS as u64).collect::<Vec<_>>()).prop_shuffle(),
        pages in prop::collection::vec((1..50u64, 0..3usize, 0..10u8), PLUG_BIOS),
        count in 2..PLUG_BIOS,
        base in knobs(),
    ) {
        let mut world = World::new(TAGS, 0);
        let start_of = |place: u64| pages[..place as usize].iter().map(|(pages, _, hole)| pages + u64::from(*hole == 0)).sum();
        world.queue.set_knobs(Knobs {
            merging: Merging::On,
            plugging: forebay_block::knobs::Plugging::Always,
            ..base
        });
        let mut bytes = 0;
        for &place in &places[..count] {
            let (pages, gap, _) = pages[place as usize];
            bytes += pages * 4096;
            if bytes >= PLUG_BYTES {
                break;
            }
            let target = (place / 64) as u32;
            world.submit(bio(Operation::Write, target, start_of(place), pages), gap);
        }
        prop_assert_eq!(world.device.offers.len(), 0, "no request goes before the dispatch");
        world.finish();
        let requests: Vec<&Bio> = world.device.taken().map(|offer| &offer.bio).collect();
        for one in &requests {
            for other in requests.iter().filter(|other| other.target == one.target && other.offset == one.end()) {
                prop_assert!(!fit(one, other), "{} and {} pages could be one", one.length / 4096, other.length / 4096);
            }
        }
    }

    /// Scattered memory: the number of segments bounds a request.
    #[test]
    fn a_request_has_no_more_segments_than_one_carries(
        counts in prop::collection::vec(1..=REQUEST_SEGMENTS, 2..20),
        base in knobs(),
    ) {
        let mut world = World::new(TAGS, 1);
        world.queue.set_knobs(Knobs { merging: Merging::On, ..base });
        let mut offset = 0;
        for &count in &counts {
            let length = 16 * count as u64;
            let segment = |number: usize| {
                let first = Frame(2 * (offset / 16) as u32 + 2 * number as u32);
                Segment::Frames { first, offset: 0, length: 16 }
            };
            let segments = (0..count).map(segment).collect();
            world.submit(Bio { offset, length, segments, ..bio(Operation::Write, 0, 0, 0) }, 0);
            offset += length;
        }
        world.finish();
        let mut at = 0;
        for Bio { offset, length, segments, .. } in world.device.taken().map(|offer| &offer.bio) {
            prop_assert!(segments.len() <= REQUEST_SEGMENTS);
            prop_assert_eq!((*offset, *length), (at, 16 * segments.len() as u64));
            for (number, segment) in segments.iter().enumerate() {
                let first = Frame(2 * (at / 16) as u32 + 2 * number as u32);
                prop_assert_eq!(*segment, Segment::Frames { first, offset: 0, length: 16 });
            }
            at += length;
        }
        prop_assert_eq!(at, offset);
    }
}

fn check_together(world: &World, request: &Bio, members: &[usize]) {
    if members.len() == 1 {
        assert_eq!(
            *request, world.bios[members[0]],
            "a bio that did not merge reaches the device unchanged"
        );
        return;
    }
    assert!(request.length <= REQUEST_BYTES && request.segments.len() <= REQUEST_SEGMENTS);
    assert!(matches!(request.operation, Operation::Read | Operation::Write));
    for &member in members {
        let bio = &world.bios[member];
        let alike = (bio.operation, bio.target, bio.class);
        assert_eq!(alike, (request.operation, request.target, request.class));
    }
    let (oldest, newest) = (members.iter().min().copied(), members.iter().max().copied());
    for between in oldest.unwrap_or(0)..newest.unwrap_or(0) {
        let bio = &world.bios[between];
        let is_barrier = bio.target == request.target && !bio.operation.merges();
        assert!(!is_barrier, "{members:?} are merged across {:?}", bio.operation);
        for &member in members.iter().filter(|&&member| member > between) {
            let crosses = is_bound(bio, &world.bios[member])
                && members.iter().any(|&older| older < between)
                && !members.contains(&between);
            // A bio may join older ones only if all bios that it must not overtake have ended,
            // which the tests of dispatch check.
            assert!(!crosses, "bio {member} joined older ones and would overtake {between}");
        }
    }
}
