//! The model against arithmetic, over a clock that only the test and the device move.

use forebay_block::{Class, Frame, Operation, Segment, Source, Target};

use super::*;

/// A clock that stands still unless told.
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

fn device(profile: Profile) -> Modelled<ManualClock> {
    Modelled::with_clock(profile, ManualClock::default())
}

fn read(bytes: u32) -> Bio {
    Bio {
        operation: Operation::Read,
        target: Target(0),
        offset: 0,
        length: u64::from(bytes),
        segments: [Segment::frames(Frame(0), bytes)].into(),
        class: Class::Waited,
        source: Source(0),
        owner: 0,
    }
}

/// Keeps `depth` requests in flight until `count` have ended. Returns the time that took.
fn run(device: &mut Modelled<ManualClock>, depth: u16, count: u64, bytes: u32) -> Duration {
    let start = device.now();
    let mut free: Vec<Tag> = (0..depth).map(Tag).collect();
    let (mut sent, mut ended) = (0, 0);
    let mut done = Vec::new();
    while ended < count {
        while sent < count
            && let Some(tag) = free.pop()
        {
            device.prepare(tag, &read(bytes)).unwrap();
            sent += 1;
        }
        device.doorbell(Wait::Something(None)).unwrap();
        device.reap(&mut done);
        assert!(!done.is_empty(), "a wait without limit ends when something has completed");
        for completion in done.drain(..) {
            assert_eq!(completion.result, Ok(u64::from(bytes)));
            free.push(completion.tag);
            ended += 1;
        }
    }
    assert_eq!(device.in_flight(), 0);
    device.now() - start
}

#[test]
fn at_depth_one_each_request_takes_its_latency() {
    for profile in Profile::ALL {
        let each = profile.doorbell + profile.latency + profile.moving(4096);
        assert_eq!(run(&mut device(profile), 1, 1000, 4096), each * 1000, "{}", profile.name());
    }
}

#[test]
fn at_great_depth_the_ceiling_is_reached_and_not_exceeded() {
    for profile in Profile::ALL {
        // Doorbells of the caller aside: the device alone.
        let profile = Profile { doorbell: Duration::ZERO, ..profile };
        let took = run(&mut device(profile), 256, 100_000, 512);
        let ideal = profile.latency + profile.moving(512) + profile.gap() * 99_999;
        assert_eq!(took, ideal, "{}", profile.name());
    }
}

#[test]
fn depth_times_rate_is_latency_below_the_ceiling() {
    let profile = Profile { doorbell: Duration::ZERO, bytes_per_second: None, ..Profile::GEN4 };
    // Thirty-two at once, and again when they are back: the gap is what tells them apart.
    let took = run(&mut device(profile), 32, 3200, 4096);
    assert_eq!(took, profile.latency * 100 + profile.gap() * 31);
}

#[test]
fn units_bound_what_is_served_at_once() {
    let profile = Profile {
        units: 4,
        doorbell: Duration::ZERO,
        requests_per_second: None,
        bytes_per_second: None,
        ..Profile::GEN4
    };
    assert_eq!(run(&mut device(profile), 64, 400, 4096), profile.latency * 100);
}

#[test]
fn large_requests_reach_the_bandwidth_of_the_link() {
    let profile = Profile { doorbell: Duration::ZERO, ..Profile::GEN5 };
    let took = run(&mut device(profile), 8, 500, 1 << 20);
    assert_eq!(took, profile.latency + profile.moving(1 << 20) * 500);
}

#[test]
fn a_doorbell_costs_where_something_was_staged() {
    let cost = Duration::from_nanos(700);
    let mut device = device(Profile::free(cost));
    device.doorbell(Wait::Not).unwrap();
    assert_eq!(device.now(), Moment::default());
    for tag in 0..100 {
        device.prepare(Tag(tag), &read(4096)).unwrap();
    }
    device.doorbell(Wait::Not).unwrap();
    assert_eq!(device.now(), Moment::default() + cost);
    let mut done = Vec::new();
    device.reap(&mut done);
    assert!(done.iter().map(|done| done.tag.0).eq(0..100));
}

#[test]
fn a_wait_ends_as_it_was_reported() {
    let profile = Profile { doorbell: Duration::ZERO, bytes_per_second: None, ..Profile::GEN4 };
    let at = |micros: u64| Moment::default() + Duration::from_micros(micros);
    let mut device = device(profile);
    let mut done = Vec::new();
    let limit = Some(Duration::from_micros(5));
    device.doorbell(Wait::Something(None)).unwrap();
    assert_eq!(device.now(), at(0), "nothing can come");
    device.doorbell(Wait::Something(limit)).unwrap();
    assert_eq!(device.now(), at(5));
    for tag in 0..8 {
        device.prepare(Tag(tag), &read(4096)).unwrap();
    }
    // Due from the 85th microsecond on, 1.22 apart.
    device.doorbell(Wait::Something(limit)).unwrap();
    device.reap(&mut done);
    assert_eq!((device.now(), done.len()), (at(10), 0));
    let batch =
        |want, within| Wait::Batch { want, within: Duration::from_micros(within), limit: None };
    device.doorbell(batch(3, 200)).unwrap();
    device.reap(&mut done);
    assert_eq!((device.now(), done.len()), (at(85) + profile.gap() * 2, 3));
    device.doorbell(batch(100, 200)).unwrap();
    device.reap(&mut done);
    assert_eq!((device.now(), done.len()), (at(85) + profile.gap() * 7, 8), "no more can come");
    for tag in 0..2 {
        device.prepare(Tag(tag), &read(4096)).unwrap();
    }
    let start = device.now();
    device.doorbell(batch(2, 10)).unwrap();
    assert_eq!(
        device.now() - start,
        profile.latency,
        "its time is over, and it waits for the first alone"
    );
    device
        .doorbell(Wait::Batch { want: 2, within: Duration::ZERO, limit: Some(Duration::ZERO) })
        .unwrap();
    device.reap(&mut done);
    assert_eq!(done.len(), 9);
}

#[test]
fn the_real_clock_is_the_default_and_waits_as_long() {
    let mut device = Modelled::new(Profile::OPTANE);
    let start = device.now();
    device.prepare(Tag(0), &read(4096)).unwrap();
    let mut done = Vec::new();
    device.doorbell(Wait::Something(None)).unwrap();
    device.reap(&mut done);
    assert_eq!(done, [Completion { tag: Tag(0), result: Ok(4096) }]);
    let least = Profile::OPTANE.doorbell + Profile::OPTANE.latency;
    assert!(device.now() - start >= least);
}
