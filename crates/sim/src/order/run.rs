//! A run: events in the order of their times, with passes of the server between them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::figures::{Figures, Rounds, quantile};
use super::load::{Answers, Invalid, Load, Order, Source};
use crate::random::Random;

/// Message on its way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Message {
    connection: u32,
    /// Time at which it left the client.
    sent: u64,
    /// Time of its arrival at the server's list, and its number in the order of arrival.
    came: u64,
    place: u64,
}

/// Event at a certain time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// A message arrives at the server's list.
    Comes(Message),
    /// An answer arrives at the client.
    Answered(Message),
}

/// Runs a load once.
///
/// # Errors
/// The error of [`Load::check`].
pub fn run(load: &Load, seed: u64) -> Result<Figures, Invalid> {
    load.check()?;
    Ok(Run::new(load, seed).finish())
}

/// Runs a load `rounds` times, with consecutive seeds from `seed` on.
///
/// # Errors
/// The error of [`Load::check`].
pub fn rounds(load: &Load, seed: u64, rounds: u32) -> Result<Rounds, Invalid> {
    let seeds = (0..u64::from(rounds)).map(|round| seed.wrapping_add(round));
    Ok(Rounds { each: seeds.map(|seed| run(load, seed)).collect::<Result<_, _>>()? })
}

struct Run<'a> {
    load: &'a Load,
    random: Random,
    now: u64,
    /// By time, then in order of addition.
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    foreseen: u64,
    list: VecDeque<Message>,
    /// Number of messages that have arrived at the list, and that were taken from it.
    came: u64,
    served: u64,
    /// Served messages with answers that leave at the end of the pass.
    held: Vec<Message>,
    /// Time until which the client's thread is busy.
    client_busy: u64,
    sources: Vec<Sending>,
    counted: Counted,
}

/// A source. Its messages arrive in the order of sending, and so do its answers, as on a stream.
#[derive(Clone, Copy, Debug, Default)]
struct Sending {
    unanswered: u32,
    last_comes: u64,
    last_answer: u64,
}

/// Counts since the end of the warm-up.
#[derive(Debug, Default)]
struct Counted {
    from: u64,
    idle: u64,
    served: u64,
    passes: u64,
    longest_wait: u64,
    latencies: Vec<u64>,
    distances: Vec<u64>,
}

impl<'a> Run<'a> {
    fn new(load: &'a Load, seed: u64) -> Self {
        let counted = Counted { from: load.nanos / 10, ..Counted::default() };
        let mut run = Self {
            load,
            random: Random::new(seed),
            now: 0,
            events: BinaryHeap::new(),
            foreseen: 0,
            list: VecDeque::new(),
            came: 0,
            served: 0,
            held: Vec::new(),
            client_busy: 0,
            sources: vec![Sending::default(); load.connections as usize],
            counted,
        };
        for connection in 0..load.connections {
            run.send(connection, load.in_flight);
        }
        run
    }

    fn finish(mut self) -> Figures {
        while self.now < self.load.nanos {
            if self.list.is_empty() {
                self.wait();
            } else {
                self.pass();
            }
        }
        self.figures()
    }

    /// Waits for the next event, because the list is empty.
    fn wait(&mut self) {
        let Reverse((time, _, _)) =
            *self.events.peek().expect("messages are with the client or on their way");
        let until = time.max(self.now);
        self.counted.idle += until.saturating_sub(self.now.max(self.counted.from));
        self.now = until;
        self.take_events();
    }

    /// Serves the waiting messages, up to the limit of a pass.
    fn pass(&mut self) {
        let load = self.load;
        let many = self.list.len().min(load.pass_limit as usize);
        self.now += load.pass_cost;
        for _ in 0..many {
            let (next, older) = match load.order {
                Order::Fifo => (self.list.pop_front(), 0),
                // Later messages are not in the list yet, so all messages that are still there are
                // older.
                Order::Lifo => (self.list.pop_back(), self.list.len() as u64),
            };
            self.serve(next.expect("a pass takes at most the messages in the list"), older);
        }
        let mut held = std::mem::take(&mut self.held);
        for message in held.drain(..) {
            self.answer(message);
        }
        self.held = held;
        if self.now >= self.counted.from {
            self.counted.passes += 1;
        }
        self.take_events();
    }

    /// Serves one message, before `older` messages that are older.
    fn serve(&mut self, message: Message, older: u64) {
        let waited = self.now - message.came;
        self.now += self.load.service.draw(&mut self.random);
        if self.now >= self.counted.from {
            self.counted.served += 1;
            self.counted.longest_wait = self.counted.longest_wait.max(waited);
            let before_it = message.place - older;
            self.counted.distances.push(self.served - before_it);
        }
        self.served += 1;
        match self.load.answers {
            Answers::AsServed => self.answer(message),
            Answers::WithThePass => self.held.push(message),
        }
    }

    /// Sends an answer. On a stream it arrives behind the answers before it.
    fn answer(&mut self, message: Message) {
        let comes = self.now + self.load.wire.draw(&mut self.random);
        let source = &mut self.sources[message.connection as usize];
        source.last_answer = source.last_answer.max(comes);
        let comes = source.last_answer;
        self.foresee(comes, Event::Answered(message));
    }

    /// Handles all events that are due.
    fn take_events(&mut self) {
        while let Some(&Reverse((time, _, event))) = self.events.peek() {
            if time > self.now {
                break;
            }
            self.events.pop();
            match event {
                Event::Comes(message) => {
                    self.list.push_back(Message { came: time, place: self.came, ..message });
                    self.came += 1;
                }
                Event::Answered(message) => self.answered(time, message),
            }
        }
    }

    /// Handles an answer. The client's thread takes answers in the order of their arrival.
    fn answered(&mut self, time: u64, message: Message) {
        let load = self.load;
        self.client_busy = self.client_busy.max(time);
        if time >= self.counted.from {
            self.counted.latencies.push(time - message.sent);
        }
        let source = &mut self.sources[message.connection as usize];
        source.unanswered -= 1;
        let all = source.unanswered == 0;
        match load.source {
            Source::Each => self.send(message.connection, 1),
            Source::Together if all => self.send(message.connection, load.in_flight),
            Source::Together => self.client_busy += load.turnaround.draw(&mut self.random),
        }
    }

    /// Sends `many` messages of a source, one after the other; each takes time of the client.
    fn send(&mut self, connection: u32, many: u32) {
        for _ in 0..many {
            self.client_busy += self.load.turnaround.draw(&mut self.random);
            let sent = self.client_busy;
            let comes = sent + self.load.wire.draw(&mut self.random);
            let source = &mut self.sources[connection as usize];
            source.last_comes = source.last_comes.max(comes);
            let comes = source.last_comes;
            self.foresee(comes, Event::Comes(Message { connection, sent, came: 0, place: 0 }));
        }
        self.sources[connection as usize].unanswered += many;
    }

    fn foresee(&mut self, time: u64, event: Event) {
        self.events.push(Reverse((time, self.foreseen, event)));
        self.foreseen += 1;
    }

    fn figures(mut self) -> Figures {
        // Messages that still wait count too.
        let oldest = self.list.iter().map(|message| self.now - message.came).max().unwrap_or(0);
        let nanos = (self.now - self.counted.from) as f64;
        let counted = &mut self.counted;
        Figures {
            requests_per_s: counted.served as f64 * 1e9 / nanos,
            idle_share: counted.idle as f64 / nanos,
            latency_p50: quantile(&mut counted.latencies, 500),
            latency_p99: quantile(&mut counted.latencies, 990),
            latency_p999: quantile(&mut counted.latencies, 999),
            longest_wait: counted.longest_wait.max(oldest),
            reorder_distance_p99: quantile(&mut counted.distances, 990),
            reorder_distance_most: quantile(&mut counted.distances, 1000),
            per_pass: counted.served as f64 / counted.passes.max(1) as f64,
        }
    }
}
