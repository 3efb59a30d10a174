//! A task: a coroutine with a stack of its own, resumed by the scheduler.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use generator::{Generator, Gn};

use super::here::{is_killed, world};
use super::local::drop_locals;
use super::run::World;
use super::state::{Process, Status, TaskId};

/// Words of a task's stack: 256 KiB, backed by memory as far as it is touched.
const STACK_WORDS: usize = (256 << 10) / size_of::<usize>();

/// The payload of the unwinding that ends a task of a killed process.
struct Died;

pub(super) type Coroutine = Generator<'static, (), ()>;

/// The code of a task that has not started.
pub(super) type Body = Box<dyn FnOnce()>;

/// Starts a task. It runs when the scheduler picks it. In a process that was killed, the body is
/// dropped.
///
/// # Panics
/// Outside a world.
pub fn spawn(process: Process, name: &str, body: impl FnOnce() + 'static) -> Option<TaskId> {
    let world = world();
    if is_killed(process) {
        return None;
    }
    let id = world.state().add(name.to_owned(), process);
    world.add_coroutine(id, coroutine(id), Box::new(body));
    Some(id)
}

/// Makes the coroutine of a task. The body waits in the world, as it need not be `Send`.
fn coroutine(id: TaskId) -> Coroutine {
    Gn::new_opt(STACK_WORDS, move || {
        let body = world().take_body(id);
        let ended = catch_unwind(AssertUnwindSafe(|| {
            // A task that was killed before it started drops its body.
            die_if_due(&world());
            body();
        }));
        // Values of the task are dropped on its own stack, as those of a thread are.
        let dropped = catch_unwind(AssertUnwindSafe(|| drop_locals(id)));
        let world = world();
        for payload in [ended, dropped].into_iter().filter_map(Result::err) {
            if !payload.is::<Died>() {
                world.record_panic(id, payload.as_ref());
            }
        }
        let mut state = world.state();
        state.dying -= u32::from(state.is_dead(id));
        state.task(id).status = Status::Done;
    })
}

/// Gives the processor back to the scheduler. Returns when the scheduler resumes the task.
///
/// A task of a killed process that holds no mutex does not return: it unwinds.
pub(super) fn switch(world: Rc<World>) {
    // The stack may never be resumed, and would keep the world alive.
    drop(world);
    leave();
    die_if_due(&super::here::world());
}

/// Unwinds a task whose process was killed, unless it holds a mutex or unwinds already.
pub(super) fn die_if_due(world: &World) {
    let Some(id) = world.running() else { return };
    let is_due = || {
        let state = world.state_ref();
        state.is_dead(id) && state.tasks[id.0 as usize].holds == 0
    };
    while is_due() {
        if !std::thread::panicking() {
            world.state().task(id).is_unwinding = true;
            // Not a panic: the hook would print it.
            resume_unwind(Box::new(Died));
        }
        // All tasks have one count of panics. Another task unwinds, and waited for a mutex of this
        // one: it goes first.
        let goes_first = {
            let state = world.state_ref();
            !state.tasks[id.0 as usize].is_unwinding && state.unwinding().is_some()
        };
        if !goes_first {
            return;
        }
        world.state().set_runnable(id);
        leave();
    }
}

fn leave() {
    #[expect(deprecated, reason = "the scoped form cannot be called from deep in the stack")]
    generator::yield_with(());
}

/// The text of a panic.
pub(super) fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a text".to_owned())
}
