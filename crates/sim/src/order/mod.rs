//! Effect of the order of a work list: a closed loop of sources and one server, in virtual time.
//!
//! ```text
//! C sources, M messages each --wire--> [ list ] --pass, up to a limit--> server --wire--> client
//!      ^                              fifo: oldest first                                    |
//!      |                              lifo: newest first                                    |
//!      +-------- the next message, or the next M once all are answered <--------------------+
//! ```
//!
//! A lock-free list returns the entries since it was last taken, newest first. So a pass that takes
//! it as it is runs backwards, and entries left by a bounded pass stay beneath later ones. Both
//! orders are modelled, and they differ in nothing else.
//!
//! The effect of the order depends on what sources wait for. If each answer lets the next message
//! go, all messages are alike to the server. The same number waits at any moment, in either order,
//! so rate and idle time are the same, and only the latencies differ.
//!
//! If a source waits until *all* its messages are answered, one message that is served late keeps
//! the places of the others empty. Take a burst that the end of a pass cuts in two. In order, it is
//! served last in the one pass and first in the next; in reverse, first in the one and last in the
//! next. With few sources the server then runs out of work. With many there is always another
//! source, and the rate is the same.
//!
//! Nothing here reads a clock: time is a number of nanoseconds that the events advance, and the
//! same seed gives the same run. No kernel, no socket and no shared CPU is modelled: the client has
//! a CPU of its own.
//!
//! [`Load`] describes a run, [`run`] runs it once, [`rounds`] runs it with several seeds, and
//! [`table`] prints both orders.

mod figures;
mod load;
mod run;
mod table;

pub use figures::{Figures, Rounds};
pub use load::{Answers, Invalid, Load, Order, Source, Span};
pub use run::{rounds, run};
pub use table::{LOADS, NamedLoad, table};
