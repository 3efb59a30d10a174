//! Values per task, and values per world.

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::fmt;
use std::mem::needs_drop;
use std::rc::Rc;
use std::task::Waker;

use super::here::{current, world};
use super::state::{Ends, TaskId};

/// A value that each task has for itself; see `task_local!`.
pub struct LocalKey<T: 'static> {
    make: fn() -> T,
}

/// The error of a task-local value that was dropped, or of code outside all tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gone;

impl<T: 'static> LocalKey<T> {
    /// A key, whose values are made by a function.
    #[must_use]
    pub const fn new(make: fn() -> T) -> Self {
        Self { make }
    }

    /// Runs something with the value of the running task, which is made at first use.
    ///
    /// # Panics
    /// After the value was dropped at the end of the task, and outside all tasks.
    pub fn with<R>(&'static self, run: impl FnOnce(&T) -> R) -> R {
        self.try_with(run).expect("a value of a task that has not ended")
    }

    /// Runs something with the value of the running task, which is made at first use.
    ///
    /// # Errors
    /// [`Gone`] after the value was dropped at the end of the task, and outside all tasks.
    pub fn try_with<R>(&'static self, run: impl FnOnce(&T) -> R) -> Result<R, Gone> {
        let value = self.value().ok_or(Gone)?;
        Ok(run(&value))
    }

    fn value(&'static self) -> Option<Rc<T>> {
        let world = current()?;
        let id = world.running()?;
        let key = std::ptr::from_ref(self).addr();
        let found = {
            let mut state = world.state();
            let locals = &state.task(id).locals;
            if locals.dropped.contains(&key) {
                return None;
            }
            let of_key = locals.values.iter().find(|(other, ..)| *other == key);
            of_key.map(|(_, value, _)| Rc::clone(value))
        };
        let value = found.unwrap_or_else(|| {
            let value: Rc<dyn Any> = Rc::new((self.make)());
            let ends = if needs_drop::<T>() { Ends::WithDrop } else { Ends::Silently };
            world.state().task(id).locals.values.push((key, Rc::clone(&value), ends));
            value
        });
        Some(value.downcast().expect("a key has values of one type"))
    }
}

impl<T> fmt::Debug for LocalKey<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LocalKey").finish_non_exhaustive()
    }
}

/// Drops the values of the running task, the youngest first, as the standard library does. A
/// destructor may use values that are not dropped yet, and may make others.
pub(super) fn drop_locals(id: TaskId) {
    let world = world();
    loop {
        let next = {
            let mut state = world.state();
            let locals = &mut state.task(id).locals;
            let last = locals.values.iter().rposition(|(.., ends)| *ends == Ends::WithDrop);
            last.map(|at| {
                let (key, value, _) = locals.values.remove(at);
                locals.dropped.push(key);
                value
            })
        };
        let Some(value) = next else { return };
        drop(value);
    }
}

/// Returns the waker of a task, which is made at first use.
pub(crate) fn waker_of(task: TaskId, make: impl FnOnce() -> Waker) -> Waker {
    let world = world();
    let mut state = world.state();
    state.task(task).waker.get_or_insert_with(make).clone()
}

/// Values per world, by type.
#[derive(Default)]
pub(super) struct Extensions {
    values: RefCell<Vec<(TypeId, Rc<dyn Any>)>>,
}

impl Extensions {
    fn find<T: 'static>(&self) -> Option<Rc<T>> {
        let values = self.values.borrow();
        let found = values.iter().find(|(id, _)| *id == TypeId::of::<T>())?;
        Rc::clone(&found.1).downcast().ok()
    }

    /// Drops all values, while the world can still be reached.
    pub(super) fn clear(&self) {
        drop(self.values.take());
    }
}

/// Returns the value of a type that belongs to the world, which is made at first use and dropped at
/// the end of the world.
///
/// # Panics
/// Outside a world.
pub fn extension<T: 'static>(make: impl FnOnce() -> T) -> Rc<T> {
    let world = world();
    if let Some(found) = world.extensions.find() {
        return found;
    }
    let made = Rc::new(make());
    let value: Rc<dyn Any> = Rc::clone(&made) as Rc<dyn Any>;
    world.extensions.values.borrow_mut().push((TypeId::of::<T>(), value));
    made
}
