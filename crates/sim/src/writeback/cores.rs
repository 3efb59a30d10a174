//! Cores: an actor gets a core for one step of work, first come first served.

use std::collections::VecDeque;
use std::time::Duration;

/// Actor that does work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Actor {
    /// A writeback context, by number.
    Context(usize),
    /// The worker that converts the blocks of a file, by the file's number.
    Worker(usize),
}

/// The cores of the machine.
#[derive(Debug)]
pub(super) struct Cores {
    all: u64,
    free: u64,
    waiting: VecDeque<(Actor, Duration)>,
    /// CPU time used by all cores together, up to `counted`.
    worked: Duration,
    counted: Duration,
}

impl Cores {
    /// Creates free cores.
    pub(super) fn new(cores: u64) -> Self {
        let (worked, counted) = (Duration::ZERO, Duration::ZERO);
        Self { all: cores, free: cores, waiting: VecDeque::new(), worked, counted }
    }

    /// Starts a step of work on a free core. Returns false if no core is free; the work then waits
    /// in line.
    pub(super) fn begin(&mut self, actor: Actor, work: Duration, now: Duration) -> bool {
        if self.free == 0 {
            self.waiting.push_back((actor, work));
            return false;
        }
        self.count(now);
        self.free -= 1;
        true
    }

    /// Ends a step of work. Returns the next work in line, which starts now on the same core.
    pub(super) fn end(&mut self, now: Duration) -> Option<(Actor, Duration)> {
        self.count(now);
        let next = self.waiting.pop_front();
        if next.is_none() {
            self.free += 1;
        }
        next
    }

    /// Returns the CPU time used by all cores together until now.
    pub(super) fn worked(&mut self, now: Duration) -> Duration {
        self.count(now);
        self.worked
    }

    fn count(&mut self, now: Duration) {
        self.worked += (now - self.counted) * (self.all - self.free) as u32;
        self.counted = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_served_in_order_of_arrival() {
        let mut cores = Cores::new(2);
        let micros = Duration::from_micros;
        let mut begin = |number| cores.begin(Actor::Context(number), micros(5), micros(0));
        assert_eq!([begin(0), begin(1), begin(2), begin(3)], [true, true, false, false]);
        assert_eq!(cores.end(micros(5)), Some((Actor::Context(2), micros(5))));
        assert_eq!(cores.end(micros(5)), Some((Actor::Context(3), micros(5))));
        assert_eq!((cores.end(micros(10)), cores.end(micros(10))), (None, None));
        assert_eq!(cores.worked(micros(30)), micros(20));
        assert!(cores.begin(Actor::Worker(0), micros(1), micros(30)));
    }
}
