//! Why the order of a work list matters: a closed loop of sources and one server, in virtual time.
//!
//! ```text
//! C sources, M messages each --wire--> [ list ] --a pass: all that came, up to a limit--> server --wire--> client
//!      ^                                           fifo: oldest first                                        |
//!      |                                           lifo: newest first                                        |
//!      +--------------- the next message, or the next M once all are answered <------------------------------+
//! ```
//!
//! A lock-free list hands over what came since it was last taken, newest first. So a pass over it
//! as it is runs backwards; what was left by a bounded pass stays beneath what comes later. Both
//! orders are here, and nothing else differs between them.
//!
//! What the order can change follows from what sources wait for. Where each answer lets the next
//! message go, all messages are alike to the server: the same number waits at any moment whichever
//! of them is taken, so rate and idle time are the same in both orders and only the latencies
//! differ. Where a source waits until *all* its messages are answered, one message that is served
//! late keeps the others' places empty: a burst cut in two by the end of a pass is served last of
//! the one pass and first of the next in order, and first of the one and last of the next in
//! reverse. With few sources the server then runs out of work; with many there is always another,
//! and the rate is the same.
//!
//! Nothing here reads a clock: time is a number of nanoseconds that the events move, and the same
//! seed gives the same run. No kernel is modelled, no socket and no processor that is shared: the
//! client has one of its own.
//!
//! [`Load`] is what is asked, [`run`] does it once, [`rounds`] from several seeds, [`table`] both
//! orders as text.

mod figures;
mod load;
mod run;
mod table;

pub use figures::{Figures, Rounds};
pub use load::{Answers, Invalid, Load, Order, Source, Span};
pub use run::{rounds, run};
pub use table::{LOADS, NamedLoad, table};
