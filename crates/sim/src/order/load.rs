//! What a run is like: how many sources, what they wait for, and what everything takes.

use crate::random::{PerMille, Random};

/// Most messages on their way at once: what a run holds in memory.
const MOST_MESSAGES: u64 = 1 << 20;

/// In which order a pass works off what came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Oldest first.
    Fifo,
    /// Newest first, as a lock-free list hands it over.
    Lifo,
}

impl Order {
    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Order::Fifo => "fifo",
            Order::Lifo => "lifo",
        }
    }
}

/// What lets a source send again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Each answer lets one message go.
    Each,
    /// All its messages being answered lets as many go together.
    Together,
}

/// When answers leave the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answers {
    /// Each when its message is served.
    AsServed,
    /// All of a pass when it ends, in the order in which they were served: handed to the kernel in
    /// one call.
    WithThePass,
}

/// A time in nanoseconds that varies: evenly between two bounds, and now and then a long one
/// instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// At the least.
    pub least: u64,
    /// At the most.
    pub most: u64,
    /// How often it is `long` instead.
    pub rarely: PerMille,
    /// The long one.
    pub long: u64,
}

impl Span {
    /// Always the same.
    #[must_use]
    pub const fn fixed(nanos: u64) -> Self {
        Self { least: nanos, most: nanos, rarely: PerMille(0), long: 0 }
    }

    /// Evenly between two bounds, both of them possible.
    #[must_use]
    pub const fn between(least: u64, most: u64) -> Self {
        Self { least, most, rarely: PerMille(0), long: 0 }
    }

    pub(super) fn draw(self, random: &mut Random) -> u64 {
        if random.happens(self.rarely) {
            return self.long;
        }
        self.least + random.below(self.most - self.least + 1)
    }
}

/// What is asked of a run. All times are nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// Sources; one at least.
    pub connections: u32,
    /// Messages of each; one at least.
    pub in_flight: u32,
    /// What lets a source send again.
    pub source: Source,
    /// In which order a pass goes.
    pub order: Order,
    /// When answers leave.
    pub answers: Answers,
    /// Most messages of one pass; one at least.
    pub pass_limit: u32,
    /// What a pass costs besides its messages: a system call, a wake.
    pub pass_cost: u64,
    /// What the server does for a message.
    pub service: Span,
    /// What the client's one thread does between an answer and the message after it.
    pub turnaround: Span,
    /// What a message, or its answer, is on its way for.
    pub wire: Span,
    /// How long it runs; the first tenth is not counted.
    pub nanos: u64,
}

/// A load that cannot be run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invalid(pub(super) String);

impl std::fmt::Display for Invalid {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Invalid {}

impl Load {
    /// So many sources with so many messages each, as small messages between two threads of one
    /// machine are: a wake and its system calls cost the server 20 us a pass and half a microsecond
    /// more each message, the client 2 us each, and all of them 5 to 6 us on the way. Passes take
    /// all that came. For 50 ms.
    #[must_use]
    pub const fn of(connections: u32, in_flight: u32, source: Source) -> Self {
        Self {
            connections,
            in_flight,
            source,
            order: Order::Fifo,
            answers: Answers::AsServed,
            pass_limit: u32::MAX,
            pass_cost: 20_000,
            service: Span::between(250, 750),
            turnaround: Span::fixed(2_000),
            wire: Span::between(5_000, 6_000),
            nanos: 50_000_000,
        }
    }

    /// The same in another order.
    #[must_use]
    pub const fn with_order(self, order: Order) -> Self {
        Self { order, ..self }
    }

    /// Whether it can be run; if not, what would do.
    ///
    /// # Errors
    /// With what is out of its bounds, and the bounds.
    pub fn check(&self) -> Result<(), Invalid> {
        let invalid = |what: &str| Err(Invalid(what.to_owned()));
        let messages = u64::from(self.connections) * u64::from(self.in_flight);
        if !(1..=MOST_MESSAGES).contains(&messages) {
            return invalid("connections times messages in flight: not between 1 and 1048576");
        }
        if self.pass_limit == 0 {
            return invalid("a pass takes one message at least");
        }
        let spans = [self.service, self.turnaround, self.wire];
        if spans
            .iter()
            .any(|span| span.least > span.most || span.most.max(span.long) > 1_000_000_000)
        {
            return invalid("times: not from a lesser to a greater, of a second at most");
        }
        if self.service.least == 0 && self.pass_cost == 0 {
            return invalid(
                "a message that costs nothing, in a pass that costs nothing, never lets time pass",
            );
        }
        if !(1_000_000..=60_000_000_000).contains(&self.nanos) {
            return invalid("a run takes between 1 ms and 60 s of its own time");
        }
        Ok(())
    }
}
