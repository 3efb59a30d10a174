//! The engine of a run: the one that ships, with a small cache.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use forebay_cache::file::Reserving;

use crate::core::context::placement::Affinity;
use crate::core::engine::Engine;
use crate::core::file::File;
use crate::core::knobs;
use crate::core::options::{Contexts, Measuring, Options, Prealloc};
use crate::core::recovery::Standby;
use crate::core::shared::{Parts, Shared};
use crate::plan::Plan;
use crate::platform::{Arena, Buffers};
use crate::run::keeper::Keeper;
use crate::run::stage::{Heard, Stage};
use crate::world::{self, Process};

/// Bytes of the pool of buffers for direct I/O.
const BUFFER_BYTES: usize = 1 << 20;

/// Wait for the end of a program, or of a part of it.
pub(super) const OVER: world::Reason = world::Reason { what: "end of the program", number: 0 };

/// How long a close waits for the device, which gets well in time.
const CLOSE_PATIENCE: Duration = Duration::from_secs(3600);

impl Stage {
    /// Builds the engine as `Builder::build` does, in the process of the caller.
    pub(super) fn start_engine(&self) -> (Engine, Arc<Shared>, Vec<File>) {
        let arena = Arena::shared(self.plan.frames).expect("memory");
        let (engine, shared) = self.assemble(Arc::new(arena));
        (engine, shared, Vec::new())
    }

    /// Makes an engine on an arena, with a keeper if the plan has one.
    pub(super) fn assemble(&self, arena: Arc<Arena>) -> (Engine, Arc<Shared>) {
        assemble(&self.plan, arena, self.heard.clone(), self.start_keeper())
    }

    fn start_keeper(&self) -> Option<Box<dyn Standby>> {
        if !self.plan.adopts {
            return None;
        }
        let keeper = Keeper::new();
        *self.keeper.borrow_mut() = Some(keeper.clone());
        Some(Box::new(keeper))
    }
}

/// Runs a program that has an engine in a process of its own, and waits for its end. The program
/// shuts the engine down.
pub(super) fn run_program(plan: Plan, program: impl FnOnce(&Plan, &Engine, Process) + 'static) {
    let is_over = Rc::new(Cell::new(false));
    let over = Rc::clone(&is_over);
    let process = world::new_process("engine");
    world::spawn(process, "program", move || {
        let arena = Arc::new(Arena::shared(plan.frames).expect("memory"));
        let (engine, _) = assemble(&plan, arena, Heard::default(), None);
        program(&plan, &engine, process);
        over.set(true);
        world::wake(OVER);
    });
    while !is_over.get() {
        world::block(OVER, None);
    }
}

/// Makes an engine with the settings of a plan.
pub(super) fn assemble(
    plan: &Plan,
    arena: Arc<Arena>,
    heard: Heard,
    keeper: Option<Box<dyn Standby>>,
) -> (Engine, Arc<Shared>) {
    let settings = Options {
        cache_bytes: Some(u64::from(plan.frames) * forebay_cache::limits::PAGE),
        dirty_bytes: Some(plan.dirty_pages * forebay_cache::limits::PAGE),
        dirty_age: plan.age,
        flight: plan.flight,
        prealloc: match plan.reserving {
            Reserving::Adaptive => Prealloc::Adaptive,
            Reserving::Ahead(bytes) => Prealloc::Ahead(bytes),
            Reserving::Paused | Reserving::Off => Prealloc::Off,
        },
        buffer_bytes: BUFFER_BYTES as u64,
        contexts: plan.contexts.map_or(Contexts::Adaptive, Contexts::Fixed),
        close_timeout: CLOSE_PATIENCE,
        measuring: Measuring {
            queue: plan.queue,
            affinity: Affinity::by_name(plan.affinity).expect("a name of one"),
        },
        ..Options::default()
    };
    knobs::check(&settings).expect("the plan's settings are valid");
    let parts = Parts {
        arena,
        is_survived: plan.is_survived,
        buffers: Buffers::new(BUFFER_BYTES).expect("memory"),
        settings,
        on_error: Box::new(move |error| {
            world::trace(format_args!("reported: {error}"));
            heard.add(error.kind());
        }),
        keeper,
        log: plan.log_blocks.map(super::logged::open),
    };
    let mut kept = None;
    let keep = |shared: &Arc<Shared>| {
        kept = Some(Arc::clone(shared));
        Ok(())
    };
    let engine = Engine::assemble(parts, keep);
    let engine = engine.unwrap_or_else(|error| panic!("the engine does not start: {error}"));
    (engine, kept.expect("the engine has its parts"))
}
