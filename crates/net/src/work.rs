//! Items that arrived, and the passes that hand them out. Pure: no socket, system call or clock.
//!
//! ```text
//! push(source, ...) -> queue of the source --+
//!                      queue of the source --+--> pass: a share of each -> sorted -> handed out
//!                      queue of the source --+    the rest: next pass, behind the other sources
//! ```
//!
//! Why a queue per source: a bounded pass over one list would stop inside the flood of one source,
//! and the next pass would start there. Why numbers: a pass takes from the queues in turn, and then
//! puts the items back into the order of their arrival. A pass that empties all queues hands out in
//! exactly that order. A bounded pass keeps the order within each source.
//!
//! The guarantee: an item waits for at most as many passes as the shares of the sources before its
//! own fill. One other source, however much it pushed, delays it by one share.

use std::collections::VecDeque;

use forebay_block::knobs::Order;

/// Number of a source: an index, so it should be small.
pub(crate) type Source = u32;

/// The source of unrelated items. The other sources are streams.
pub(crate) const LOOSE: Source = 0;

/// Bytes that a pass hands out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// For each source; its last item may exceed it.
    pub(crate) share: usize,
    /// For all sources; the last item may exceed it.
    pub(crate) budget: usize,
}

/// Whether a pass takes items of a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Gate {
    #[default]
    Open,
    /// Items wait.
    Held,
}

#[derive(Debug)]
struct Arrived<T> {
    number: u64,
    bytes: usize,
    item: T,
}

#[derive(Debug)]
struct Queue<T> {
    arrived: VecDeque<Arrived<T>>,
    bytes: usize,
    gate: Gate,
    listed: bool,
}

/// The queues, and the order of turns.
#[derive(Debug)]
pub(crate) struct Work<T> {
    queues: Vec<Queue<T>>,
    /// Sources with items to hand out, each once.
    turns: VecDeque<Source>,
    arrivals: u64,
    taken: Vec<Taken<T>>,
    later: Vec<Source>,
}

#[derive(Debug)]
struct Taken<T> {
    place: (u64, u64),
    number: u64,
    source: Source,
    item: T,
}

impl<T> Work<T> {
    pub(crate) fn new() -> Self {
        let (queues, turns, taken, later) = (Vec::new(), VecDeque::new(), Vec::new(), Vec::new());
        Self { queues, turns, arrivals: 0, taken, later }
    }

    /// Appends an item to the queue of its source.
    pub(crate) fn push(&mut self, source: Source, bytes: usize, item: T) {
        let number = self.arrivals;
        self.arrivals += 1;
        let queue = self.queue(source);
        queue.bytes += bytes;
        queue.arrived.push_back(Arrived { number, bytes, item });
        self.list(source);
    }

    /// Returns the queued bytes of a source.
    pub(crate) fn bytes(&mut self, source: Source) -> usize {
        self.queue(source).bytes
    }

    /// Returns whether a source has a turn. Its gate may have been closed since.
    pub(crate) fn is_ready(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Opens or closes the gate of a source.
    pub(crate) fn set_gate(&mut self, source: Source, gate: Gate) {
        self.queue(source).gate = gate;
        self.list(source);
    }

    /// Drops all queued items of a source.
    pub(crate) fn clear(&mut self, source: Source) {
        let queue = self.queue(source);
        queue.arrived.clear();
        queue.bytes = 0;
    }

    fn queue(&mut self, source: Source) -> &mut Queue<T> {
        let index = source as usize;
        if self.queues.len() <= index {
            let empty =
                || Queue { arrived: VecDeque::new(), bytes: 0, gate: Gate::Open, listed: false };
            self.queues.resize_with(index + 1, empty);
        }
        &mut self.queues[index]
    }

    /// Gives a source a turn, if it has items and no turn yet.
    fn list(&mut self, source: Source) {
        let queue = &mut self.queues[source as usize];
        if !queue.listed && queue.gate == Gate::Open && !queue.arrived.is_empty() {
            queue.listed = true;
            self.turns.push_back(source);
        }
    }

    /// Hands out one pass: number, source and value of each item.
    pub(crate) fn pass(
        &mut self,
        bounds: Bounds,
        order: Order,
        mut hand: impl FnMut(u64, Source, T),
    ) {
        let mut taken = std::mem::take(&mut self.taken);
        let mut spent = 0;
        while spent < bounds.budget
            && let Some(source) = self.turns.pop_front()
        {
            let queue = &mut self.queues[source as usize];
            queue.listed = false;
            if queue.gate == Gate::Held {
                continue;
            }
            spent += queue.take(source, bounds.share.min(bounds.budget - spent), order, &mut taken);
            if !queue.arrived.is_empty() {
                queue.listed = true;
                self.later.push(source);
            }
        }
        self.turns.extend(self.later.drain(..));
        taken.sort_unstable_by_key(|taken| taken.place);
        for Taken { number, source, item, .. } in taken.drain(..) {
            hand(number, source, item);
        }
        self.taken = taken;
    }
}

impl<T> Queue<T> {
    /// Moves items to `taken` until they have `share` bytes. Returns their bytes.
    fn take(
        &mut self,
        source: Source,
        share: usize,
        order: Order,
        taken: &mut Vec<Taken<T>>,
    ) -> usize {
        let mut bytes = 0;
        let first = self.arrived.front().map_or(0, |first| first.number);
        while bytes < share
            && let Some(arrived) = self.arrived.pop_front()
        {
            let Arrived { number, item, .. } = arrived;
            bytes += arrived.bytes;
            let place = match order {
                Order::Fifo => (number, 0),
                Order::Lifo if source == LOOSE => (u64::MAX - number, 0),
                Order::Lifo => (u64::MAX - first, number),
            };
            taken.push(Taken { place, number, source, item });
        }
        self.bytes -= bytes;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Bounds = Bounds { share: usize::MAX, budget: usize::MAX };

    fn pass(work: &mut Work<char>, bounds: Bounds, order: Order) -> String {
        let mut handed = String::new();
        work.pass(bounds, order, |_, _, item| handed.push(item));
        handed
    }

    fn of(pushes: &[(Source, char)]) -> Work<char> {
        let mut work = Work::new();
        for &(source, item) in pushes {
            work.push(source, 1, item);
        }
        work
    }

    #[test]
    fn contract_15_what_fits_is_handed_out_as_it_arrived() {
        let mut work = of(&[(2, 'a'), (1, 'b'), (2, 'c'), (0, 'd'), (1, 'e'), (0, 'f')]);
        assert_eq!(pass(&mut work, ALL, Order::Fifo), "abcdef");
        assert!(!work.is_ready());
    }

    #[test]
    fn reversed_work_turns_who_is_served_and_no_stream() {
        let mut work = of(&[(2, 'a'), (1, 'b'), (2, 'c'), (0, 'd'), (1, 'e'), (0, 'f')]);
        // Loose items are reversed one by one. The stream that arrived last goes first, in its own
        // order.
        assert_eq!(pass(&mut work, ALL, Order::Lifo), "fdbeac");
    }

    #[test]
    fn contract_15_a_flood_delays_another_by_its_share() {
        let mut work = Work::new();
        for _ in 0..1000 {
            work.push(1, 1, 'a');
        }
        work.push(2, 1, 'b');
        let bounds = Bounds { share: 3, budget: 8 };
        assert_eq!(pass(&mut work, bounds, Order::Fifo), "aaab");
        assert_eq!(work.bytes(1), 997);
    }

    #[test]
    fn contract_15_among_many_floods_all_have_their_turns() {
        let mut work = Work::new();
        for source in 1..=3 {
            for _ in 0..1000 {
                work.push(source, 1, char::from_digit(source, 10).unwrap());
            }
        }
        work.push(4, 1, 'z');
        let bounds = Bounds { share: 3, budget: 8 };
        let handed: Vec<String> = (0..3).map(|_| pass(&mut work, bounds, Order::Fifo)).collect();
        // The last source waits for one pass, and has the first turn in the next.
        assert_eq!(handed, ["11122233", "1112223z", "11122233"].map(String::from));
    }

    #[test]
    fn a_held_source_waits_and_keeps_its_order() {
        let mut work = of(&[(1, 'a'), (2, 'b')]);
        work.set_gate(1, Gate::Held);
        work.push(1, 1, 'c');
        assert_eq!(pass(&mut work, ALL, Order::Fifo), "b");
        assert!(!work.is_ready());
        work.set_gate(1, Gate::Open);
        work.set_gate(1, Gate::Open);
        assert_eq!(pass(&mut work, ALL, Order::Fifo), "ac");
    }

    #[test]
    fn what_is_cleared_is_not_handed_out() {
        let mut work = of(&[(1, 'a'), (2, 'b'), (1, 'c')]);
        work.clear(1);
        assert_eq!(work.bytes(1), 0);
        work.push(1, 1, 'd');
        assert_eq!(pass(&mut work, ALL, Order::Fifo), "bd");
    }

    /// Against a naive model: nothing is lost, streams stay in order, and no source waits longer
    /// than one round of the others' shares.
    #[test]
    fn contract_15_nobody_starves() {
        let bounds = Bounds { share: 5, budget: 12 };
        let mut state = 42u64;
        let mut random = move |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut work = Work::new();
        let mut expected: Vec<VecDeque<u64>> = vec![VecDeque::new(); 8];
        let mut waited = [0; 8];
        for step in 0..20_000u64 {
            let source = random(8);
            for number in 0..random(4) {
                let item = step << 8 | number;
                work.push(
                    u32::try_from(source).unwrap(),
                    1 + usize::try_from(random(4)).unwrap(),
                    item,
                );
                expected[source as usize].push_back(item);
            }
            if step % 2 == 0 {
                let mut served = [false; 8];
                work.pass(bounds, Order::Fifo, |_, source, item| {
                    assert_eq!(
                        expected[source as usize].pop_front(),
                        Some(item),
                        "in order, and nothing lost"
                    );
                    served[source as usize] = true;
                });
                for (source, served) in served.into_iter().enumerate() {
                    let waits = !served && !expected[source].is_empty();
                    waited[source] = if waits { waited[source] + 1 } else { 0 };
                    // Seven others, each with a share and the overshoot of one item, in passes of
                    // twelve.
                    assert!(waited[source] <= 7 * 8 / 12 + 1, "source {source} starves");
                }
            }
        }
        while work.is_ready() {
            work.pass(bounds, Order::Fifo, |_, source, item| {
                assert_eq!(expected[source as usize].pop_front(), Some(item));
            });
        }
        assert!(expected.iter().all(VecDeque::is_empty));
    }
}
