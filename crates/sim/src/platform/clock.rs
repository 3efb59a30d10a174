//! Virtual time, in the types of the real clocks.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use forebay_block::Moment;

use crate::world;
use crate::world::machine;

/// Returns the virtual time.
#[must_use]
pub fn now() -> Moment {
    world::now()
}

/// Returns the virtual time. The real clock of this name is late by up to a tick.
#[must_use]
pub fn coarse() -> Moment {
    world::now()
}

/// Returns the wall clock of the machine in nanoseconds since 1970.
#[must_use]
pub fn wall() -> i64 {
    machine::with(|machine| machine.wall())
}

/// Returns the virtual time as an instant: a fixed one plus the time since the world began.
#[must_use]
pub fn instant() -> Instant {
    base() + Duration::from_nanos(world::now().nanoseconds())
}

/// Returns a window that ends in short runs; see the real clock of this name.
#[must_use]
pub fn contexts_window() -> Duration {
    if world::processors() > 0 { Duration::from_millis(50) } else { Duration::from_micros(500) }
}

/// The moment of an instant that was made from [`instant`].
pub(crate) fn moment_of(instant: Instant) -> Moment {
    world::after(Moment::from_nanoseconds(0), instant.saturating_duration_since(base()))
}

/// The only read of a real clock: an `Instant` cannot be made from a number. Its value has no
/// effect, since only differences are used.
fn base() -> Instant {
    static BASE: OnceLock<Instant> = OnceLock::new();
    *BASE.get_or_init(Instant::now)
}
