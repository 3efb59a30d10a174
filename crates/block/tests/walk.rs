//! The steps that an observer receives match the events: each bio is reported once, with the result
//! of its caller, on a device that refuses, shortens, interrupts and fails.

mod common;

use std::collections::BTreeMap;

use common::{Erratic, Temper};
use forebay_block::knobs::Knobs;
use forebay_block::limits::PAGE;
use forebay_block::{
    Bio, Class, Ended, Frame, Operation, Queue, Segment, Source, Step, Tag, Target, Wait,
};
use proptest::prelude::*;

const PAGES: u64 = 32;

fn bio(owner: u64, page: u64, writes: bool) -> Bio {
    Bio {
        operation: if writes { Operation::Write } else { Operation::Read },
        target: Target(0),
        offset: page * PAGE as u64,
        length: PAGE as u64,
        segments: [Segment::frames(Frame(owner as u32), PAGE as u32)].into(),
        class: if owner.is_multiple_of(3) { Class::Background } else { Class::Waited },
        source: Source(0),
        owner,
    }
}

/// Submits bios in groups of four and returns the steps. The owner of a bio is its number of
/// arrival.
fn walk(temper: Temper, seed: u64, asked: &[(u64, bool)], knobs: Knobs) -> (Vec<Step>, Vec<Ended>) {
    let mut device =
        Erratic::new(temper, seed, vec![vec![1; (PAGES as usize) * PAGE]], asked.len());
    device.bad_pages[0] = Some(5);
    let mut steps: Vec<Step> = Vec::new();
    let mut queue = Queue::with_walk(&mut steps);
    queue.set_knobs(knobs);
    let mut ended = Vec::new();
    let mut bios =
        (0..).zip(asked).map(|(owner, &(page, writes))| bio(owner, page, writes)).peekable();
    while bios.peek().is_some() || queue.on_their_way() > 0 {
        let room = queue.room().min(4);
        bios.by_ref().take(room).for_each(|bio| queue.submit(bio));
        queue.dispatch(&mut device, Wait::Something(None)).unwrap();
        queue.run(&mut device, &mut ended);
    }
    drop(queue);
    (steps, ended)
}

/// Checks the steps one by one.
#[derive(Default)]
struct Reader {
    /// The request at the device, by tag.
    flying: BTreeMap<Tag, u64>,
    /// Number of times that each request was dispatched.
    dispatched: BTreeMap<u64, usize>,
    ended: Vec<u64>,
    handed_over: usize,
    completed: usize,
    ended_in_run: usize,
}

impl Reader {
    fn read(&mut self, step: Step, ended: &[Ended]) {
        match step {
            Step::Dispatched { asked, tag, bios } => {
                assert_eq!(
                    self.flying.insert(tag, asked.arrival),
                    None,
                    "{tag:?} is in two places"
                );
                assert!(bios >= 1);
                *self.dispatched.entry(asked.arrival).or_default() += 1;
                self.handed_over += 1;
            }
            Step::Rung { requests } => {
                assert_eq!(
                    requests, self.handed_over,
                    "the doorbell submits the requests that were dispatched"
                );
                self.handed_over = 0;
            }
            Step::Completed { arrival, tag, .. } => {
                assert_eq!(self.flying.remove(&tag), Some(arrival));
                self.completed += 1;
            }
            Step::Ended { arrival, result } => {
                let end = &ended[self.ended.len()];
                assert_eq!(
                    (arrival, result),
                    (end.bio.owner, end.result),
                    "the step has the result of the caller"
                );
                self.ended.push(arrival);
                self.ended_in_run += 1;
            }
            Step::Run { bios } => {
                assert_eq!(bios, self.ended_in_run);
                self.ended_in_run = 0;
            }
            _ => {}
        }
    }
}

proptest! {
    #[test]
    fn contract_16_each_bio_is_reported_from_submission_to_its_one_end(
        asked in prop::collection::vec((0..PAGES, any::<bool>()), 1..60),
        capacity in 1..20usize,
        refuses in 0..30u32,
        shortens in 0..60u32,
        interrupts in 0..30u32,
        seed in any::<u64>(),
        holding in prop::sample::select(vec!["immediate", "delay=10"]),
        plug in prop::sample::select(vec!["never", "always", "adaptive"]),
    ) {
        let mut knobs = Knobs::default();
        prop_assert_eq!(knobs.set("completion", holding), Some(Ok(())));
        prop_assert_eq!(knobs.set("plug", plug), Some(Ok(())));
        let temper = Temper { capacity, refuses, shortens, interrupts };
        let (steps, ended) = walk(temper, seed, &asked, knobs);
        let mut reader = Reader::default();
        steps.iter().for_each(|&step| reader.read(step, &ended));
        prop_assert_eq!(reader.ended.len(), asked.len());
        reader.ended.sort_unstable();
        prop_assert!(reader.ended.iter().copied().eq(0..asked.len() as u64));
        prop_assert!(reader.flying.is_empty());
        let arrivals = steps.iter().filter_map(|step| match step {
            Step::Submitted { asked } => Some(asked.arrival),
            _ => None,
        });
        prop_assert!(arrivals.eq(0..asked.len() as u64));
        // A bio that did not join another's request was dispatched as a request.
        let merged = steps.iter().filter(|step| matches!(step, Step::Merged { .. })).count();
        let apart = steps.iter().any(|step| matches!(step, Step::Apart { .. }));
        prop_assert!(apart || reader.dispatched.len() + merged == asked.len());
    }
}
