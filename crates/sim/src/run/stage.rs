//! The state of a run that is under way.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::core::error::ErrorKind;
use crate::core::shared::Shared;
use crate::marks;
use crate::plan::Plan;
use crate::random::Random;
use crate::run::hang::Calls;
use crate::run::keeper::{HandedOver, Keeper};
use crate::run::model::Model;
use crate::world::{Process, TaskId};

/// A run that is under way. All tasks of the test share it.
pub(super) struct Stage {
    pub(super) plan: Plan,
    pub(super) model: RefCell<Model>,
    /// For states after a loss of power, so that a look at one changes nothing.
    pub(super) crashes: RefCell<Random>,
    /// The process of the engine; another one after each death.
    pub(super) engine: Cell<Process>,
    /// The engine's parts, while it runs.
    pub(super) shared: RefCell<Option<Arc<Shared>>>,
    /// The engine's keeper, if the plan has one.
    pub(super) keeper: RefCell<Option<Keeper>>,
    /// Arena and files that a keeper holds for the next engine.
    pub(super) handed: RefCell<Option<HandedOver>>,
    pub(super) deaths_left: Cell<u32>,
    /// Deaths so far.
    pub(super) lives: Cell<u64>,
    /// Processes of other programs.
    pub(super) visitors: RefCell<Vec<Process>>,
    /// Other programs that wait for a lease of this life of the engine.
    pub(super) waiting_visitors: Cell<usize>,
    pub(super) heard: Heard,
    pub(super) calls: Calls,
    /// Errors of direct writes that no call has returned, and whose handles are dropped.
    pub(super) owed_errors: Cell<usize>,
    /// Callers that have not ended.
    pub(super) callers: Cell<usize>,
    /// No call fails from now on because of the device.
    pub(super) is_well: Cell<bool>,
    pub(super) is_over: Cell<bool>,
    pub(super) longest_sync: Cell<u64>,
    /// The task that changes knobs has not ended.
    pub(super) has_tuner: Cell<bool>,
    /// Tasks that are in a write.
    pub(super) writers: RefCell<BTreeSet<TaskId>>,
}

/// Errors that the engine reported to the program, because no call could.
#[derive(Clone, Default, Debug)]
pub(super) struct Heard(Arc<Mutex<Vec<ErrorKind>>>);

impl Heard {
    pub(super) fn add(&self, kind: ErrorKind) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(kind);
    }

    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns the number of failed flushes that the program heard of.
    pub(super) fn flushes(&self) -> usize {
        let heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heard.iter().filter(|kind| **kind == ErrorKind::Poisoned).count()
    }

    /// Returns the number of errors that the program heard of.
    pub(super) fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Stage {
    pub(super) fn new(seed: u64, plan: Plan) -> Self {
        Self {
            model: RefCell::new(Model::new(&plan)),
            crashes: RefCell::new(Random::new(seed ^ 0x6372_6173)),
            engine: Cell::new(Process::TEST),
            shared: RefCell::default(),
            keeper: RefCell::default(),
            handed: RefCell::default(),
            deaths_left: Cell::new(plan.deaths),
            lives: Cell::new(0),
            visitors: RefCell::default(),
            waiting_visitors: Cell::new(0),
            heard: Heard::default(),
            calls: Calls::default(),
            owed_errors: Cell::new(0),
            callers: Cell::new(plan.callers),
            is_well: Cell::new(false),
            is_over: Cell::new(false),
            longest_sync: Cell::new(0),
            has_tuner: Cell::new(plan.turns_knobs),
            writers: RefCell::default(),
            plan,
        }
    }

    pub(super) fn hit(&self, mark: &'static str) {
        marks::hit(mark);
    }
}
