//! One engine with one caller in a machine without faults, and no switch of tasks except where one
//! waits.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use forebay_cache::limits::PAGE;

use super::PATIENCE;
use crate::core::engine::Engine;
use crate::core::error::Error;
use crate::core::options::Options;
use crate::core::shared::{Parts, Shared};
use crate::platform::{Arena, Buffers};
use crate::random::PerMille;
use crate::trace::Tracing;
use crate::world::machine::{self, MachinePlan};
use crate::world::{self, Reason};

pub(super) type OnError = Box<dyn Fn(&Error) + Send + Sync>;

const END: Reason = Reason { what: "end of the work", number: 0 };

/// Does work with an engine that has a cache of `frames`, shuts the engine down, and returns what
/// the work returned.
pub(super) fn alone<T: 'static>(
    plan: MachinePlan,
    frames: u32,
    settings: Options,
    work: impl FnOnce(&Engine) -> T + 'static,
) -> T {
    alone_with_errors(plan, frames, settings, no_error(), work)
}

/// Returns a callback for work that has no error.
pub(super) fn no_error() -> OnError {
    Box::new(|error| panic!("{error}"))
}

/// As [`alone`], with a callback for the errors that no call returns.
pub(super) fn alone_with_errors<T: 'static>(
    plan: MachinePlan,
    frames: u32,
    settings: Options,
    on_error: OnError,
    work: impl FnOnce(&Engine) -> T + 'static,
) -> T {
    alone_on((plan, 0), frames, settings, on_error, work)
}

/// As [`alone_with_errors`], on a machine with a number of processors whose time has a price, or
/// with 0 for none.
pub(super) fn alone_on<T: 'static>(
    (plan, processors): (MachinePlan, usize),
    frames: u32,
    settings: Options,
    on_error: OnError,
    work: impl FnOnce(&Engine) -> T + 'static,
) -> T {
    let world = world::Settings {
        seed: 1,
        preemption: PerMille(0),
        events: PerMille(0),
        leaps: PerMille(0),
        spurious: PerMille(0),
        processors,
        tracing: Tracing::Off,
        steps: u64::MAX,
    };
    let found = Rc::new(Cell::new(None));
    let result = Rc::clone(&found);
    let ended = world::run(world, move || {
        machine::install(plan);
        let is_over = Rc::new(Cell::new(false));
        let over = Rc::clone(&is_over);
        world::spawn(world::new_process("engine"), "caller", move || {
            let engine = start(frames, settings, on_error);
            result.set(Some(work(&engine)));
            engine.shutdown(PATIENCE).expect("a machine without faults");
            drop(engine);
            over.set(true);
            world::wake(END);
        });
        while !is_over.get() {
            world::block(END, None);
        }
    });
    ended.unwrap_or_else(|failure| panic!("{failure}"));
    found.take().expect("the caller ended")
}

fn start(frames: u32, settings: Options, on_error: OnError) -> Engine {
    let settings = Options {
        cache_bytes: Some(u64::from(frames) * PAGE),
        close_timeout: PATIENCE,
        ..settings
    };
    let parts = Parts {
        arena: Arc::new(Arena::private(frames).expect("memory")),
        is_survived: false,
        buffers: Buffers::new(1 << 20).expect("memory"),
        settings,
        on_error,
        log: None,
        keeper: None,
    };
    Engine::assemble(parts, |_: &Arc<Shared>| Ok(())).expect("a calm machine")
}
