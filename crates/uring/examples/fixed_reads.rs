//! What registered files and a registered arena save: time of 4 KiB reads at depth 32, with and without either.
//!
//! ```text
//! cargo run --release -p forebay-uring --example fixed_reads -- FILE [cached|direct|beyond] [ROUNDS]
//! ```
//!
//! The file is read at random within its first 64 MiB, which must be there; or beyond its end, where nothing is moved
//! and what is left is the cost of a request. Each round does all four in turn, so that
//! what drifts drifts for all; printed is the median over the rounds of the time per read, of the processor's time per
//! read (its user and its kernel part), and the calls per read.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_block::{Bio, Class, Completion, Device, Frame, Operation, Segment, Source, Tag, Target, Wait};
use forebay_uring::{Access, Arena, Create, File, Fixed, How, Mode, Register, Ring, Truncate};

const DEPTH: u16 = 32;
const PAGES: u64 = (64 << 20) / 4096;
const READS: u64 = 200_000;

/// Where is read, and how many bytes a read gets there.
#[derive(Clone, Copy)]
struct Place {
    start: u64,
    moves: u64,
}

#[derive(Clone, Copy, Default)]
struct Cost {
    wall: Duration,
    user: Duration,
    system: Duration,
    enters: u64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let path = arguments.get(1).expect("a file to read");
    let (mode, place) = match arguments.get(2).map(String::as_str) {
        None | Some("cached") => (Mode::Buffered, Place { start: 0, moves: 4096 }),
        Some("direct") => (Mode::Direct, Place { start: 0, moves: 4096 }),
        Some("beyond") => (Mode::Buffered, Place { start: 1 << 40, moves: 0 }),
        Some(other) => panic!("{other}: cached, direct or beyond"),
    };
    let rounds: usize = arguments.get(3).map_or(9, |rounds| rounds.parse().expect("a number of rounds"));
    let how = How { access: Access::Read, create: Create::No, truncate: Truncate::Keep, mode: 0 };
    let file = Arc::new(File::open(Path::new(path), &how).expect("the file opens").file);
    file.set_direct(mode).expect("the descriptor is switched");
    let mut ring = Ring::new(Arc::new(Arena::new(u32::from(DEPTH)).expect("an arena")), 64).expect("a ring");
    ring.attach(Target(0), file);
    let both = [Register::No, Register::Yes];
    let ways: Vec<Fixed> =
        both.into_iter().flat_map(|files| both.map(|buffers| Fixed { files, buffers })).collect();
    let mut costs = vec![Vec::new(); ways.len()];
    for _ in 0..=rounds {
        for (way, costs) in ways.iter().zip(&mut costs) {
            ring.set_fixed(*way);
            costs.push(read(&mut ring, place));
        }
    }
    println!(
        "{}, {mode:?} from byte {}, depth {DEPTH}, median of {rounds} rounds of {READS} reads",
        ring.describe(),
        place.start
    );
    for (way, costs) in ways.iter().zip(&mut costs) {
        // The first round warms up.
        costs.remove(0);
        let median = |part: fn(&Cost) -> f64| {
            let mut parts: Vec<f64> = costs.iter().map(part).collect();
            parts.sort_by(f64::total_cmp);
            parts[parts.len() / 2] / READS as f64
        };
        println!(
            "files {:3?} buffers {:3?}: {:6.0} ns a read, processor {:6.0} ns ({:5.0} user, {:5.0} kernel), {:.3} calls",
            way.files,
            way.buffers,
            median(|cost| cost.wall.as_nanos() as f64),
            median(|cost| (cost.user + cost.system).as_nanos() as f64),
            median(|cost| cost.user.as_nanos() as f64),
            median(|cost| cost.system.as_nanos() as f64),
            median(|cost| cost.enters as f64),
        );
    }
}

fn read(ring: &mut Ring, place: Place) -> Cost {
    let mut requests: Vec<Bio> = (0..DEPTH)
        .map(|tag| Bio {
            operation: Operation::Read,
            target: Target(0),
            offset: 0,
            length: 4096,
            segments: [Segment::frames(Frame(u32::from(tag)), 4096)].into(),
            class: Class::Waited,
            source: Source(0),
            owner: 0,
        })
        .collect();
    let mut free: Vec<Tag> = (0..DEPTH).map(Tag).collect();
    let mut done: Vec<Completion> = Vec::with_capacity(64);
    let (mut left, mut random) = (READS, 0x9e37_79b9_7f4a_7c15u64);
    let (enters, start, before) = (ring.enters().all, Instant::now(), spent());
    while left > 0 || ring.in_flight() > 0 {
        while left > 0
            && let Some(tag) = free.pop()
        {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let request = &mut requests[usize::from(tag.0)];
            request.offset = place.start + random % PAGES * 4096;
            ring.prepare(tag, request).expect("there is a place for each tag");
            left -= 1;
        }
        ring.doorbell(Wait::Something(None)).expect("the ring works");
        ring.reap(&mut done);
        for end in done.drain(..) {
            assert_eq!(end.result, Ok(place.moves));
            free.push(end.tag);
        }
    }
    let after = spent();
    Cost {
        wall: start.elapsed(),
        user: after.0 - before.0,
        system: after.1 - before.1,
        enters: ring.enters().all - enters,
    }
}

/// The thread's time in user space and in the kernel.
fn spent() -> (Duration, Duration) {
    // SAFETY: all zeroes are a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes one `rusage`.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    assert_eq!(result, 0);
    let time = |value: libc::timeval| {
        Duration::from_secs(value.tv_sec as u64) + Duration::from_micros(value.tv_usec as u64)
    };
    (time(usage.ru_utime), time(usage.ru_stime))
}
