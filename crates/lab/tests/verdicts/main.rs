//! How often a difference is reported where none exists, and that one of 5 % is found. All in
//! virtual time.

mod machine;

use std::time::Duration;

use forebay_block::{
    Bio, Class, Device, Frame, Moment, Operation, Segment, Source, Tag, Target, Wait,
};
use forebay_lab::compare::trial::BASE;
use forebay_lab::statistics::Verdict;
use forebay_uring::modelled::Clock;
use forebay_uring::{Modelled, Profile};

use machine::{Machine, NOISES, Noise, nothing_planted, verdict};

/// Of two hundred; eight in a hundred.
const MOST_FALSE: u32 = 16;

#[test]
fn of_two_hundred_noises_few_are_taken_for_a_difference() {
    let each = 200 / NOISES.len() as u32;
    for rounds in [4, 5, 6, 10] {
        let tried = nothing_planted(each, rounds, 0x7f3a);
        assert_eq!(tried.iter().map(|one| one.comparisons).sum::<u32>(), 200);
        let shown: u32 = tried.iter().map(|one| one.false_verdicts).sum();
        eprintln!("{rounds} rounds: {shown} of 200 false; {tried:?}");
        assert!(shown <= MOST_FALSE, "{rounds} rounds: {tried:?}");
    }
}

/// A clock that only the device moves.
#[derive(Debug, Default)]
struct ManualClock(Moment);

impl Clock for ManualClock {
    fn now(&mut self) -> Moment {
        self.0
    }

    fn pass_until(&mut self, moment: Moment) {
        self.0 = self.0.max(moment);
    }
}

const BLOCK: u32 = 4096;
const DEPTH: u16 = 32;

/// Requests per second of a device of this latency, at a depth of [`DEPTH`].
fn rate(latency: Duration) -> f64 {
    const COUNT: u32 = 2000;
    let profile = Profile { latency, ..Profile::GEN4 };
    let mut device = Modelled::with_clock(profile, ManualClock::default());
    let mut free: Vec<Tag> = (0..DEPTH).map(Tag).collect();
    let (mut sent, mut ended) = (0u64, 0);
    let mut done = Vec::new();
    let began = device.now();
    while ended < COUNT {
        while let Some(tag) = free.pop() {
            device.prepare(tag, &read(sent * u64::from(BLOCK))).unwrap();
            sent += 1;
        }
        device.doorbell(Wait::Something(None)).unwrap();
        device.reap(&mut done);
        ended += done.len() as u32;
        free.extend(done.drain(..).map(|completion| completion.tag));
    }
    f64::from(ended) / (device.now() - began).as_secs_f64()
}

fn read(offset: u64) -> Bio {
    Bio {
        operation: Operation::Read,
        target: Target(0),
        offset,
        length: u64::from(BLOCK),
        segments: [Segment::frames(Frame(0), BLOCK)].into(),
        class: Class::Waited,
        source: Source(0),
        owner: 0,
    }
}

#[test]
fn five_percent_on_the_modelled_device_are_found_within_ten_rounds() {
    const ROUNDS: u32 = 10;
    let latency = Profile::GEN4.latency;
    let (base, slower) = (rate(latency), rate(latency.mul_f64(1.05)));
    // The doorbell and the link take their share of it.
    let planted = slower / base;
    assert!((0.945..0.96).contains(&planted), "{planted}");
    for noise in [Noise::Independent, Noise::Drifting, Noise::HeavyTailed] {
        let found = (0..20).filter(|&seed| {
            let machine = Machine::with_amount(noise, 0.01, ROUNDS, seed);
            let figure = |arm: &str| if arm == BASE { base } else { slower };
            let verdict = verdict(machine, ROUNDS, seed, figure);
            assert_ne!(verdict, Verdict::Better, "{}: seed {seed}", noise.name());
            verdict == Verdict::Worse
        });
        let found = found.count();
        eprintln!("{}: found in {found} of 20", noise.name());
        let least = if noise == Noise::HeavyTailed { 14 } else { 20 };
        assert!(found >= least, "{}: {found} of 20", noise.name());
    }
}
