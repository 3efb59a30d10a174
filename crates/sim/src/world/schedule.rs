//! The choice of the next task or event, and the points at which tasks give way.

use std::rc::Rc;
use std::thread::panicking;

use forebay_block::Moment;

use super::run::World;
use super::state::{Ended, MUTEX, Reason, State, TaskId};
use super::task::{die_if_due, switch};

/// Nanoseconds that pass at each point of preemption, so that a loop that polls sees time move.
const TICK: u64 = 50;

/// Waits that a destructor of a killed task may ask for. Each ends at once, so a loop without a
/// deadline would never end.
const MOST_WAITS_AFTER_DEATH: u32 = 10_000;

/// Calls that a task may make before it waits, or is preempted: far more than any operation makes.
const MOST_CALLS_OF_TURN: u64 = 1_000_000;

/// Times in a row that a task may wake itself: on a machine it would use a processor without end.
const MOST_OWN_WAKES: u32 = 50;

/// The next step of the scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    Task(TaskId),
    Event,
    /// No task can run, and nothing is due.
    Nothing,
}

impl World {
    pub(super) fn next(&self) -> Next {
        let due = self.next_event();
        let mut state = self.state();
        if state.dying > 0 {
            return state.next_of_dying();
        }
        state.end_late_waits();
        if let Some(due) = due {
            let can_wait = !state.runnable.is_empty();
            let rate =
                if due <= state.now { self.settings().events } else { self.settings().leaps };
            if can_wait && state.order.happens(rate) {
                state.now = state.now.max(due);
                return Next::Event;
            }
        }
        if state.runnable.is_empty() {
            // Of a deadline and an event at the same time, the event is first: the task is woken
            // late more often than its deadline is early.
            let deadline = state.next_deadline();
            if let Some(due) = due.filter(|due| deadline.is_none_or(|deadline| *due <= deadline)) {
                state.now = state.now.max(due);
                return Next::Event;
            }
            let Some(deadline) = deadline else { return Next::Nothing };
            state.now = state.now.max(deadline);
            state.end_late_waits();
        }
        let count = state.runnable.len() as u64;
        let at = if count == 1 { 0 } else { state.order.below(count) };
        Next::Task(state.take_runnable(at as usize))
    }

    /// Moves time on, unless processor time has a price: then only work does.
    fn tick(&self) {
        if self.settings().processors == 0 {
            self.state().now += TICK;
        }
    }

    /// A point where another task may run.
    pub(super) fn preempt(self: Rc<Self>) {
        let Some(id) = self.running() else { return };
        self.tick();
        self.count_call(id);
        die_if_due(&self);
        self.look();
        let wants = {
            let mut state = self.state();
            let rate = self.settings().preemption;
            state.order.happens(rate) && !state.is_dead(id) && !panicking()
        };
        if wants {
            self.state().set_runnable(id);
            switch(self);
        }
    }

    /// Fails the run if a task calls the world again and again, and never waits.
    fn count_call(&self, id: TaskId) {
        let calls = self.calls_of_turn();
        if calls == MOST_CALLS_OF_TURN {
            let name = self.state().task(id).name.clone();
            panic!("task {} ({name}) goes on without waiting", id.0);
        }
    }

    /// Takes the token of a task that was unparked. Returns whether there was one. Fails the run if
    /// the task wakes itself again and again.
    pub(super) fn take_unpark(&self, id: TaskId) -> bool {
        let mut state = self.state();
        let is_dead = state.is_dead(id);
        let task = state.task(id);
        let was_unparked = std::mem::take(&mut task.token);
        let is_own = was_unparked && !std::mem::take(&mut task.is_woken_by_others);
        task.own_wakes = if is_own { task.own_wakes + 1 } else { 0 };
        if task.own_wakes >= MOST_OWN_WAKES && !is_dead {
            let name = task.name.clone();
            drop(state);
            panic!("task {} ({name}) wakes itself again and again", id.0);
        }
        was_unparked
    }

    /// Lets another task run if one can.
    pub(super) fn yield_now(self: Rc<Self>) {
        let Some(id) = self.running() else { return };
        self.tick();
        if self.state().is_dead(id) {
            self.end_at_once(id, None, "yield");
            return die_if_due(&self);
        }
        self.state().set_runnable(id);
        switch(self);
    }

    pub(super) fn block(self: Rc<Self>, on: Reason, until: Option<Moment>) -> Ended {
        let id = self.running().expect("only a task can wait");
        die_if_due(&self);
        let until = until.map(Moment::nanoseconds);
        // A mutex is waited for even then: the task that holds it runs on until it does not.
        if self.state().is_dead(id) && on.what != MUTEX {
            return self.end_at_once(id, until, on.what);
        }
        self.state().wait(id, on, until);
        let world = Rc::clone(&self);
        switch(self);
        world.state().task(id).ended
    }

    /// Ends a wait of a killed process: its deadline has passed.
    fn end_at_once(&self, id: TaskId, until: Option<u64>, what: &str) -> Ended {
        let mut state = self.state();
        let task = state.task(id);
        task.waits_after_death += 1;
        task.late = task.late.max(until.unwrap_or(0));
        let (count, name) = (task.waits_after_death, task.name.clone());
        drop(state);
        if count > MOST_WAITS_AFTER_DEATH {
            // Unwinding once more would abort the process without a word.
            eprintln!("a destructor of the killed task {name} waits without end for: {what}");
            std::process::abort();
        }
        Ended::TimedOut
    }
}

impl State {
    /// Returns a task that unwinds because its process was killed, and can run.
    pub(super) fn unwinding(&self) -> Option<TaskId> {
        self.runnable.iter().copied().find(|id| self.tasks[id.0 as usize].is_unwinding)
    }

    /// While a process dies nothing else runs: first a task that unwinds, then the tasks that hold
    /// a mutex, until none does, then one task after the other to its end.
    fn next_of_dying(&mut self) -> Next {
        if let Some(first) = self.unwinding() {
            let at = self.runnable.iter().position(|id| *id == first);
            return Next::Task(self.take_runnable(at.expect("it can run")));
        }
        let of_dead = |state: &State, holds: bool| -> Vec<usize> {
            let can_run = state.runnable.iter().enumerate();
            can_run
                .filter(|(_, id)| state.is_dead(**id))
                .filter(|(_, id)| (state.tasks[id.0 as usize].holds > 0) == holds)
                .map(|(at, _)| at)
                .collect()
        };
        let holders = of_dead(self, true);
        if !holders.is_empty() {
            let at = *self.order.pick(&holders);
            return Next::Task(self.take_runnable(at));
        }
        let others = of_dead(self, false);
        let first = others.into_iter().min_by_key(|at| self.runnable[*at]);
        first.map_or(Next::Nothing, |at| Next::Task(self.take_runnable(at)))
    }
}
