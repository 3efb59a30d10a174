//! Bios from another thread: one thread submits through a list, the context runs queue and device and tells back
//! through another. What this costs more than the loop in one thread is what crossing costs.
//!
//! ```text
//! submitter --bios, first in first out--> context: submit, dispatch, run
//!     ^                                      |
//!     +------------ free places -------------+
//! ```
//!
//! Both ends look again and again instead of sleeping: what a wake costs is the scheduler's and not the list's. With
//! fewer processors than two that still ends, for who finds nothing for long gives its processor away.

use std::hint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use forebay_block::{Bio, Device, Ended, Moment, Wait};
use forebay_lists::fifo::{Receiver, Sender};
use forebay_lists::{Pop, WasEmpty, fifo};
use hdrhistogram::Histogram;

use super::drive::{Batch, Blocks, Outcome, broken};
use super::way::{Queued, Way};
use crate::load::CellError;
use crate::request::RequestSpec;

/// Looks in vain before the processor is given away.
const PATIENCE: u32 = 1000;

/// Runs for so long, counts, and waits until nothing is on its way.
pub(crate) fn count<D: Device>(
    spec: &RequestSpec,
    way: &mut Queued<D>,
    span: Duration,
) -> Result<Outcome, CellError> {
    let (bios, from_submitter) = fifo();
    let (places, from_context) = fifo();
    for place in 0..spec.depth {
        wake_nobody(places.push(place));
    }
    let stop = AtomicBool::new(false);
    let blocks = Blocks::new(spec);
    thread::scope(|scope| {
        let (blocks_there, stop_there) = (blocks.clone(), &stop);
        let submitter = scope.spawn(move || submit(blocks_there, &bios, from_context, stop_there));
        let mut context = Context {
            batch: Batch::of(spec).most,
            way,
            blocks,
            incoming: from_submitter,
            places,
            on_their_way: vec![false; spec.depth as usize],
            ended: Vec::with_capacity(spec.depth as usize),
            told: 0,
        };
        let counted = {
            let _stop = SetOnDrop(&stop);
            context.count(span)
        };
        submitter.join().expect("the submitter does not panic");
        let outcome = counted?;
        context.finish()?;
        Ok(outcome)
    })
}

/// However the counting ends, the submitter hears of it.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The other end looks by itself.
fn wake_nobody(_: WasEmpty) {}

/// The submitter: a bio for each free place, until told to stop.
fn submit(mut blocks: Blocks, bios: &Sender<Bio>, mut places: Receiver<u32>, stop: &AtomicBool) {
    let mut idle = Idle::default();
    while !stop.load(Ordering::Relaxed) {
        match places.pop() {
            Pop::Node(place) => {
                idle.over();
                wake_nobody(bios.push(blocks.next(place)));
            }
            Pop::Empty | Pop::Busy => idle.look_again(),
        }
    }
}

/// The thread that runs queue and device.
struct Context<'a, D> {
    way: &'a mut Queued<D>,
    blocks: Blocks,
    batch: usize,
    incoming: Receiver<Bio>,
    places: Sender<u32>,
    on_their_way: Vec<bool>,
    ended: Vec<Ended>,
    told: u64,
}

impl<D: Device> Context<'_, D> {
    fn count(&mut self, span: Duration) -> Result<Outcome, CellError> {
        let before = self.way.counters();
        let began = self.way.now();
        let mut now: Moment = began;
        let mut idle = Idle::default();
        while now < began + span || self.told == 0 {
            if self.turn()? == 0 {
                idle.look_again();
            } else {
                idle.over();
            }
            now = self.way.now();
        }
        Ok(Outcome {
            bios: self.told,
            elapsed: now - began,
            latencies: Histogram::new(1).expect("one digit makes a histogram"),
            before,
            after: self.way.counters(),
        })
    }

    /// Submits what has come, hands it over, tells what has ended; says how many those were.
    fn turn(&mut self) -> Result<usize, CellError> {
        let limit = self.way.room().min(self.batch);
        let (way, on_their_way) = (&mut *self.way, &mut self.on_their_way);
        // What is left is looked at in the next turn in any case.
        let _rest = self.incoming.drain(limit, |bio| {
            on_their_way[bio.owner as usize] = true;
            way.submit(bio);
        });
        self.way.dispatch(Wait::Not).map_err(broken)?;
        self.way.run(&mut self.ended);
        let count = self.ended.len();
        for ended in self.ended.drain(..) {
            self.blocks.check(&ended)?;
            let place = ended.bio.owner;
            let was = std::mem::take(&mut self.on_their_way[place as usize]);
            assert!(was, "the bio of place {place} was told twice");
            wake_nobody(self.places.push(place as u32));
        }
        self.told += count as u64;
        Ok(count)
    }

    /// After the submitter has stopped: until all it pushed was told.
    fn finish(&mut self) -> Result<(), CellError> {
        let mut turns_without = 0;
        while turns_without < 2 || self.way.queue.staged() + self.way.queue.in_flight() > 0 {
            turns_without = if self.turn()? == 0 { turns_without + 1 } else { 0 };
        }
        let lost = self.on_their_way.iter().filter(|&&there| there).count();
        assert_eq!(lost, 0, "bios were never told");
        Ok(())
    }
}

/// Looks in vain.
#[derive(Default)]
struct Idle {
    looks: u32,
}

impl Idle {
    fn look_again(&mut self) {
        self.looks += 1;
        if self.looks.is_multiple_of(PATIENCE) {
            thread::yield_now();
        } else {
            hint::spin_loop();
        }
    }

    fn over(&mut self) {
        self.looks = 0;
    }
}
