//! What the loop drives: a queue over its device, or nothing at all.
//!
//! Nothing at all ([`Echo`]) ends each bio as it comes. The same loop over it costs what the loop itself costs, which
//! is told beside every result, so that nobody takes the price of the generator for that of the way.

use forebay_block::Counters;
use forebay_block::{Bio, Device, Ended, Errno, Moment, Queue, Wait};

/// A way of a request, from submitted to told.
pub(crate) trait Way {
    /// The moment it is.
    fn now(&mut self) -> Moment;
    /// Bios it takes now.
    fn room(&self) -> usize;
    /// Takes one.
    fn submit(&mut self, bio: Bio);
    /// Hands on what it took, and waits as told.
    fn dispatch(&mut self, wait: Wait) -> Result<(), Errno>;
    /// Appends what has ended.
    fn run(&mut self, ended: &mut Vec<Ended>);
    /// What it did so far.
    fn counters(&self) -> Counters;
}

/// A queue over its device.
#[derive(Debug)]
pub(crate) struct Queued<D> {
    pub(crate) queue: Queue,
    pub(crate) device: D,
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
        self.queue.run(&mut self.device, ended);
    }

    fn counters(&self) -> Counters {
        self.queue.counters()
    }
}

/// Ends each bio as it comes.
#[derive(Debug, Default)]
pub(crate) struct Echo {
    ended: Vec<Ended>,
}

impl Way for Echo {
    #[inline]
    fn now(&mut self) -> Moment {
        forebay_uring::clock::now()
    }

    #[inline]
    fn room(&self) -> usize {
        usize::MAX
    }

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
