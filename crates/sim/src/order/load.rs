//! Description of a run: its sources, what lets them send again, and how long everything takes.

use crate::random::{PerMille, Random};

/// Maximum of messages on their way at once, because a run holds them in memory.
const MOST_MESSAGES: u64 = 1 << 20;

/// Order of service within a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Oldest first.
    Fifo,
    /// Newest first, as a lock-free list returns them.
    Lifo,
}

impl Order {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Order::Fifo => "fifo",
            Order::Lifo => "lifo",
        }
    }
}

/// Condition for a source to send again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Each answer lets the source send one message.
    Each,
    /// When all its messages are answered, the source sends as many again, together.
    Together,
}

/// When answers leave the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answers {
    /// Each when its message is served.
    AsServed,
    /// All of a pass when it ends, in the order of service, as in one call to the kernel.
    WithThePass,
}

/// Random time in nanoseconds: uniform between two bounds, or rarely a long one instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Minimum.
    pub least: u64,
    /// Maximum.
    pub most: u64,
    /// How often the time is `long` instead.
    pub rarely: PerMille,
    /// The long time.
    pub long: u64,
}

impl Span {
    /// Returns a constant time.
    #[must_use]
    pub const fn fixed(nanos: u64) -> Self {
        Self { least: nanos, most: nanos, rarely: PerMille(0), long: 0 }
    }

    /// Returns a uniformly distributed time; both bounds are possible.
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

/// Description of a run. All times are in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// Number of sources; at least 1.
    pub connections: u32,
    /// Messages in flight per source; at least 1.
    pub in_flight: u32,
    /// Condition for a source to send again.
    pub source: Source,
    /// Order of a pass.
    pub order: Order,
    /// When answers leave the server.
    pub answers: Answers,
    /// Maximum of messages per pass; at least 1.
    pub pass_limit: u32,
    /// Cost of a pass besides its messages: a system call, a wake.
    pub pass_cost: u64,
    /// Time that the server takes for a message.
    pub service: Span,
    /// Time that the client's one thread takes between an answer and the next message.
    pub turnaround: Span,
    /// Time that a message, or its answer, is on its way.
    pub wire: Span,
    /// Length of the run; the first tenth does not count.
    pub nanos: u64,
}

/// Error: a load that cannot be run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invalid(pub(super) String);

impl std::fmt::Display for Invalid {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Invalid {}

impl Load {
    /// Returns a load of small messages between two threads of one machine. A wake and its system
    /// calls cost the server 20 us per pass and half a microsecond more per message. The client
    /// takes 2 us per message, and each message is on its way for 5 to 6 us. A pass takes all
    /// waiting messages. The run lasts 50 ms.
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

    /// Returns the same load with another order.
    #[must_use]
    pub const fn with_order(self, order: Order) -> Self {
        Self { order, ..self }
    }

    /// Checks that the load can be run.
    ///
    /// # Errors
    /// Names the value that is out of its bounds, and the bounds.
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
