//! The target of the loop: a queue over its device, or nothing at all.
//!
//! Nothing at all ([`Echo`]) ends each bio as it comes. The same loop over it costs what the loop
//! itself costs, which is reported beside every result, so that it is not taken for the cost of the
//! way.

use std::time::Duration;

use forebay_block::{Bio, Counters, Device, Ended, Errno, Latency, Moment, Queue, Wait};

use crate::detail::Holds;

/// A way of a request, from submission to completion.
pub(crate) trait Way {
    /// The moment it is.
    #[inline]
    fn now(&mut self) -> Moment {
        forebay_uring::clock::now()
    }
    /// Bios it takes now.
    #[inline]
    fn room(&self) -> usize {
        usize::MAX
    }
    /// Takes one.
    fn submit(&mut self, bio: Bio);
    /// Hands on submitted bios, and waits.
    fn dispatch(&mut self, wait: Wait) -> Result<(), Errno>;
    /// Appends what has ended.
    fn run(&mut self, ended: &mut Vec<Ended>);
    fn counters(&self) -> Counters;
    /// How long it held completions so far.
    fn holds(&self) -> Holds {
        Holds::default()
    }
}

/// A queue over its device.
#[derive(Debug)]
pub(crate) struct Queued<D> {
    pub(crate) queue: Queue,
    pub(crate) device: D,
    /// Of the completions that were held, how long.
    held: Latency,
}

impl<D> Queued<D> {
    pub(crate) fn new(queue: Queue, device: D) -> Self {
        Self { queue, device, held: Latency::default() }
    }
}

impl<D: Device> Way for Queued<D> {
    #[inline]
    fn now(&mut self) -> Moment {
        self.device.now()
    }

    #[inline]
    fn room(&self) -> usize {
        self.queue.room()
    }

    #[inline]
    fn submit(&mut self, bio: Bio) {
        self.queue.submit(bio);
    }

    #[inline]
    fn dispatch(&mut self, wait: Wait) -> Result<(), Errno> {
        self.queue.dispatch(&mut self.device, wait).map(|_| ())
    }

    #[inline]
    fn run(&mut self, ended: &mut Vec<Ended>) {
        let before = self.queue.counters().completions;
        self.queue.run(&mut self.device, ended);
        // This is inside the clock: completions without a hold are the rest of all, so they are not
        // counted here.
        let completions = self.queue.counters().completions - before;
        if completions > 0 && self.queue.held() > Duration::ZERO {
            self.held.add(self.queue.held().as_nanos() as u64, completions);
        }
    }

    fn counters(&self) -> Counters {
        self.queue.counters()
    }

    fn holds(&self) -> Holds {
        let mut all = self.held.clone();
        all.add(0, self.queue.counters().completions - self.held.count());
        Holds::of(all.told())
    }
}

/// Ends each bio as it comes.
#[derive(Debug, Default)]
pub(crate) struct Echo {
    ended: Vec<Ended>,
}

impl Way for Echo {
    #[inline]
    fn submit(&mut self, bio: Bio) {
        self.ended.push(Ended { result: Ok(bio.length), bio });
    }

    #[inline]
    fn dispatch(&mut self, _wait: Wait) -> Result<(), Errno> {
        Ok(())
    }

    #[inline]
    fn run(&mut self, ended: &mut Vec<Ended>) {
        ended.append(&mut self.ended);
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}
