//! Bios from another thread: one thread submits through a list, the context runs queue and device
//! and answers through another. The difference to the loop in one thread is the cost of crossing.
//!
//! ```text
//! submitter --plugs of bios, first in first out--> context: submit, dispatch, run
//!     ^                                               |
//!     +--------------- runs of free places -----------+
//! ```
//!
//! Bios cross in groups: the submitter hands over a plug (as many bios as a batch, or what it has
//! when no place is free), the context tells a completion run. A list's node is allocated by one
//! thread and freed by the other, which for each bio alone costs more than all of its way.
//!
//! Both ends look again and again instead of sleeping: the cost of a wake is the scheduler's, not
//! the list's. With one processor that still ends, because a thread that finds nothing for long
//! yields.

use std::hint;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::vec;

use forebay_block::limits::BATCH_REQUESTS;
use forebay_block::{Bio, Device, Ended, Moment, Wait};
use forebay_lists::fifo::{Receiver, Sender};
use forebay_lists::{Pop, WasEmpty, fifo};
use hdrhistogram::Histogram;

use super::drive::{Batch, Blocks, Outcome, broken};
use super::way::{Queued, Way};
use crate::child::SetOnDrop;
use crate::load::usage::Usage;
use crate::load::{CellError, Spans};
use crate::request::RequestSpec;

/// Looks in vain before the processor is given away.
const PATIENCE: u32 = 1000;

/// Runs for so long, counts, and waits until nothing is on its way.
pub(crate) fn count<D: Device>(
    spec: &RequestSpec,
    way: &mut Queued<D>,
    spans: Spans,
) -> Result<Outcome, CellError> {
    let (bios, from_submitter) = fifo();
    let (places, from_context) = fifo();
    wake_nobody(places.push((0..spec.depth).collect::<Vec<u32>>()));
    let stop = AtomicBool::new(false);
    let blocks = Blocks::new(spec);
    thread::scope(|scope| {
        let (blocks_there, stop_there) = (blocks.clone(), &stop);
        let most = Batch::of(spec).most.min(BATCH_REQUESTS);
        let submitter = scope.spawn(move || {
            Submitter { blocks: blocks_there, most, plug: Vec::with_capacity(most), bios }
                .submit(from_context, stop_there);
        });
        let mut context = Context {
            way,
            blocks,
            incoming: from_submitter,
            pending: Vec::new().into_iter(),
            places,
            on_their_way: vec![false; spec.depth as usize],
            ended: Vec::with_capacity(spec.depth as usize),
            told: 0,
        };
        let counted = {
            // However the counting ends, the submitter hears of it.
            let _stop = SetOnDrop(&stop);
            context.count(spans)
        };
        submitter.join().expect("the submitter does not panic");
        let outcome = counted?;
        context.finish()?;
        Ok(outcome)
    })
}

/// The other end looks by itself.
fn wake_nobody(_: WasEmpty) {}

/// The submitter: a bio for each free place, until told to stop.
struct Submitter {
    blocks: Blocks,
    most: usize,
    plug: Vec<Bio>,
    bios: Sender<Vec<Bio>>,
}

impl Submitter {
    fn submit(mut self, mut places: Receiver<Vec<u32>>, stop: &AtomicBool) {
        let mut idle = Idle::default();
        while !stop.load(Ordering::Relaxed) {
            match places.pop() {
                Pop::Node(run) => {
                    idle.over();
                    for place in run {
                        self.plug.push(self.blocks.next(place));
                        if self.plug.len() == self.most {
                            self.unplug();
                        }
                    }
                }
                // The plug gets no more bios.
                Pop::Empty | Pop::Busy if !self.plug.is_empty() => self.unplug(),
                Pop::Empty | Pop::Busy => idle.look_again(),
            }
        }
        if !self.plug.is_empty() {
            self.unplug();
        }
    }

    fn unplug(&mut self) {
        wake_nobody(self.bios.push(mem::replace(&mut self.plug, Vec::with_capacity(self.most))));
    }
}

/// The thread that runs queue and device.
struct Context<'a, D> {
    way: &'a mut Queued<D>,
    blocks: Blocks,
    incoming: Receiver<Vec<Bio>>,
    /// Bios that wait for room in the queue.
    pending: vec::IntoIter<Bio>,
    places: Sender<Vec<u32>>,
    on_their_way: Vec<bool>,
    ended: Vec<Ended>,
    told: u64,
}

impl<D: Device> Context<'_, D> {
    fn count(&mut self, spans: Spans) -> Result<Outcome, CellError> {
        let ramp_began = self.way.now();
        self.turns(ramp_began, ramp_began + spans.ramp)?;
        self.told = 0;
        let (before, held_before) = (self.way.counters(), self.way.holds());
        // The clock is read inside the two readings of the usage, so that these are not timed.
        let used_before = Usage::now();
        let began = self.way.now();
        let stopped = self.turns(began, began + spans.counted)?;
        Ok(Outcome {
            bios: self.told,
            elapsed: stopped - began,
            usage: Usage::now().since(used_before),
            latencies: Histogram::new(1).expect("one digit makes a histogram"),
            before,
            after: self.way.counters(),
            holds: self.way.holds().since(&held_before),
        })
    }

    /// Takes turns until `end`, and until at least one bio has ended. Returns the end of the last
    /// turn.
    fn turns(&mut self, mut now: Moment, end: Moment) -> Result<Moment, CellError> {
        let mut idle = Idle::default();
        while now < end || self.told == 0 {
            if self.turn()? == 0 {
                idle.look_again();
            } else {
                idle.over();
            }
            now = self.way.now();
        }
        Ok(now)
    }

    /// Submits new bios, dispatches, and returns ended ones with their number.
    fn turn(&mut self) -> Result<usize, CellError> {
        while self.way.room() > 0 {
            let Some(bio) = self.next() else { break };
            self.on_their_way[bio.owner as usize] = true;
            self.way.submit(bio);
        }
        self.way.dispatch(Wait::Not).map_err(broken)?;
        self.way.run(&mut self.ended);
        let count = self.ended.len();
        let mut run = Vec::with_capacity(count);
        for ended in self.ended.drain(..) {
            self.blocks.check(&ended)?;
            let place = ended.bio.owner;
            let was = mem::take(&mut self.on_their_way[place as usize]);
            assert!(was, "the bio of place {place} ended twice");
            run.push(place as u32);
        }
        if count > 0 {
            wake_nobody(self.places.push(run));
        }
        self.told += count as u64;
        Ok(count)
    }

    /// The oldest bio that has come.
    fn next(&mut self) -> Option<Bio> {
        loop {
            if let Some(bio) = self.pending.next() {
                return Some(bio);
            }
            match self.incoming.pop() {
                Pop::Node(bios) => self.pending = bios.into_iter(),
                // One in the middle of a push is looked for in the next turn.
                Pop::Empty | Pop::Busy => return None,
            }
        }
    }

    /// Ends all bios after the submitter has stopped.
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
