//! A run: from the first task to the end of the last one, or to a failure.

use std::any::Any;
use std::cell::{Cell, Ref, RefCell, RefMut};
use std::fmt;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::rc::Rc;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_block::Moment;

use super::failure::Failure;
use super::here::{CURRENT, Events, current, has_world};
use super::local::Extensions;
use super::schedule::Next;
use super::state::{Process, State, Status, TaskId};
use super::task::{Body, Coroutine, message_of, spawn};
use crate::random::{PerMille, Random};
use crate::trace::Tracing;

/// How a run is scheduled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Decides everything.
    pub seed: u64,
    /// Points of preemption at which tasks are switched.
    pub preemption: PerMille,
    /// Decisions at which an event that is due happens before a task runs.
    pub events: PerMille,
    /// Decisions at which time jumps to the next event although a task can run: that task is slow.
    pub leaps: PerMille,
    /// Waits for a condition variable that end without a wake.
    pub spurious: PerMille,
    /// Processors that tasks share, if processor time has a price; 0 if it has none, and each task
    /// has a processor of its own.
    pub processors: usize,
    /// Whether the lines of the trace are kept.
    pub tracing: Tracing,
    /// Decisions after which the run fails, as one that never ends.
    pub steps: u64,
}

impl Settings {
    /// Rates drawn from the seed: each of them is zero in some runs and high in others.
    #[must_use]
    pub fn swarm(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x776f_726c);
        let random = &mut random;
        let rate = |random: &mut Random, rates: &[u16]| PerMille(*random.pick(rates));
        Self {
            seed,
            preemption: rate(random, &[0, 5, 50, 300, 1000]),
            events: rate(random, &[20, 300, 900]),
            leaps: rate(random, &[0, 0, 2, 50]),
            spurious: rate(random, &[0, 0, 20]),
            processors: 0,
            tracing: Tracing::Off,
            steps: 2_000_000,
        }
    }
}

/// Figures of a run that ended well.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The virtual time at the end.
    pub end: Moment,
    /// Decisions of the scheduler.
    pub steps: u64,
    /// A hash of all decisions with their times: equal for equal runs.
    pub fingerprint: u64,
    /// The lines of the trace.
    pub trace: Vec<String>,
}

/// Runs `main` as the first task of a new world. The run ends with it: tasks that are left are
/// killed.
///
/// # Errors
/// If a task panics, if no task can run and nothing is due, or if the run takes too many steps.
///
/// # Panics
/// If the calling thread already runs a world.
pub fn run<T: 'static>(
    settings: Settings,
    main: impl FnOnce() -> T + 'static,
) -> Result<(T, Outcome), Failure> {
    assert!(!has_world(), "one thread runs one world");
    static HOOK: Once = Once::new();
    HOOK.call_once(hook_panics);
    let world = Rc::new(World::new(settings));
    CURRENT.set(Some(Rc::clone(&world)));
    let result = Rc::new(Cell::new(None));
    let slot = Rc::clone(&result);
    let first = spawn(Process::TEST, "main", move || slot.set(Some(main())));
    let driven = catch_unwind(AssertUnwindSafe(|| {
        world.drive(|state| first.is_some_and(|id| state.task(id).status == Status::Done));
        world.state().kill_all();
        world.drive(|state| state.dying == 0);
    }));
    if let Err(payload) = driven {
        world.record(format!("the disk or the scheduler: {}", message_of(payload.as_ref())));
    }
    let failure = world.failure.take();
    if failure.is_some() {
        // Destructors would meet a state that is wrong already: the stacks are not unwound.
        world.coroutines.take().into_iter().for_each(std::mem::forget);
    }
    world.extensions.clear();
    CURRENT.set(None);
    let outcome = world.outcome();
    match (failure, result.take()) {
        (Some(failure), _) => Err(Failure { trace: outcome.trace, ..failure }),
        (None, Some(value)) => Ok((value, outcome)),
        (None, None) => unreachable!("a task that ends without a panic has set its result"),
    }
}

/// Makes each panic of a task fail its run. The engine catches panics of its threads and of user
/// code, and the run would go on.
fn hook_panics() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if let Some(world) = current() {
            world.note_panic(info);
        }
        before(info);
    }));
}

/// The world of a thread.
pub(super) struct World {
    settings: Settings,
    serial: u64,
    state: RefCell<State>,
    coroutines: RefCell<Vec<Option<Coroutine>>>,
    bodies: RefCell<Vec<Option<Body>>>,
    running: Cell<Option<TaskId>>,
    events: RefCell<Option<Rc<dyn Events>>>,
    random: RefCell<Random>,
    numbers: Cell<u64>,
    /// Calls of the running task since it was resumed.
    calls: Cell<u64>,
    lines: RefCell<Vec<String>>,
    steps: Cell<u64>,
    fingerprint: Cell<u64>,
    failure: RefCell<Option<Failure>>,
    /// Called at each point of preemption.
    look: RefCell<Option<Box<dyn Fn()>>>,
    expects_panics: Cell<bool>,
    /// The task that panicked last.
    panicked: Cell<Option<TaskId>>,
    pub(super) extensions: Extensions,
}

impl World {
    fn new(settings: Settings) -> Self {
        static SERIALS: AtomicU64 = AtomicU64::new(1);
        let mut random = Random::new(settings.seed);
        Self {
            serial: SERIALS.fetch_add(1, Ordering::Relaxed),
            state: RefCell::new(State::new(random.fork(), settings.processors)),
            coroutines: RefCell::default(),
            bodies: RefCell::default(),
            running: Cell::new(None),
            events: RefCell::default(),
            random: RefCell::new(random),
            numbers: Cell::new(0),
            calls: Cell::new(0),
            lines: RefCell::default(),
            steps: Cell::new(0),
            fingerprint: Cell::new(0),
            failure: RefCell::default(),
            look: RefCell::default(),
            expects_panics: Cell::new(false),
            panicked: Cell::new(None),
            extensions: Extensions::default(),
            settings,
        }
    }

    fn drive(&self, is_over: impl Fn(&mut State) -> bool) {
        while self.failure.borrow().is_none() && !is_over(&mut self.state()) {
            self.steps.set(self.steps.get() + 1);
            if self.steps.get() > self.settings.steps {
                return self.record("the run does not end".to_owned());
            }
            let next = self.next();
            self.add_to_fingerprint(next);
            match next {
                Next::Task(id) => self.resume(id),
                Next::Event => {
                    let events = self.events.borrow().clone();
                    events.expect("an event has a source").happen();
                }
                Next::Nothing => {
                    return self.record("no task can run, and nothing is due".to_owned());
                }
            }
        }
    }

    fn resume(&self, id: TaskId) {
        let at = id.0 as usize;
        let coroutine = self.coroutines.borrow_mut()[at].take();
        let mut coroutine = coroutine.expect("a task that can run has a stack");
        self.running.set(Some(id));
        self.calls.set(0);
        coroutine.resume();
        self.running.set(None);
        if coroutine.is_done() {
            drop(coroutine);
        } else {
            self.coroutines.borrow_mut()[at] = Some(coroutine);
        }
    }

    fn add_to_fingerprint(&self, next: Next) {
        let task = match next {
            Next::Task(id) => id.number(),
            Next::Event => u64::MAX,
            Next::Nothing => u64::MAX - 1,
        };
        let seen = self.fingerprint.get() ^ task.rotate_left(40) ^ self.state().now;
        self.fingerprint.set(Random::new(seen).draw());
    }

    fn outcome(&self) -> Outcome {
        Outcome {
            end: self.state().moment(),
            steps: self.steps.get(),
            fingerprint: self.fingerprint.get(),
            trace: self.lines.take(),
        }
    }

    /// Records a failure. The first one counts: the others follow from it.
    pub(super) fn record(&self, message: String) {
        let mut failure = self.failure.borrow_mut();
        if failure.is_none() {
            let seed = self.settings.seed;
            *failure = Some(Failure::new(seed, message, &self.state()));
        }
    }

    pub(super) fn expect_panics(&self, expected: bool) {
        self.expects_panics.set(expected);
    }

    /// Returns whether a panic unwinds the running task. The stacks of all tasks are on one thread,
    /// and a task of a killed process unwinds without a panic.
    pub(super) fn is_panicking(&self) -> bool {
        std::thread::panicking()
            && self.running() == self.panicked.get()
            && self.running().is_some_and(|id| !self.state_ref().is_dead(id))
    }

    fn note_panic(&self, info: &PanicHookInfo<'_>) {
        self.panicked.set(self.running());
        let Some(id) = self.running().filter(|_| !self.expects_panics.get()) else { return };
        let place = info.location().map_or_else(String::new, |place| format!(" at {place}"));
        let text = message_of(info.payload());
        // The panic may have come while the tables were being changed.
        let (Ok(state), Ok(mut failure)) = (self.state.try_borrow(), self.failure.try_borrow_mut())
        else {
            return;
        };
        // A killed process would not have come so far.
        if failure.is_none() && !state.is_dead(id) {
            let name = &state.tasks[id.0 as usize].name;
            let message = format!("task {} ({name}) panicked{place}: {text}", id.0);
            *failure = Some(Failure::new(self.settings.seed, message, &state));
        }
    }

    pub(super) fn record_panic(&self, id: TaskId, payload: &(dyn Any + Send)) {
        if self.state().is_dead(id) {
            return;
        }
        let name = self.state().task(id).name.clone();
        self.record(format!("task {} ({name}) panicked: {}", id.0, message_of(payload)));
    }

    pub(super) fn add_coroutine(&self, id: TaskId, coroutine: Coroutine, body: Body) {
        let (mut coroutines, mut bodies) = (self.coroutines.borrow_mut(), self.bodies.borrow_mut());
        assert_eq!(coroutines.len(), id.0 as usize, "tasks are numbered in order");
        coroutines.push(Some(coroutine));
        bodies.push(Some(body));
    }

    pub(super) fn take_body(&self, id: TaskId) -> Body {
        self.bodies.borrow_mut()[id.0 as usize].take().expect("a task starts once")
    }

    pub(super) fn state(&self) -> RefMut<'_, State> {
        self.state.borrow_mut()
    }

    pub(super) fn state_ref(&self) -> Ref<'_, State> {
        self.state.borrow()
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) fn serial(&self) -> u64 {
        self.serial
    }

    /// Counts a call of the running task; returns the number since it was resumed.
    pub(super) fn calls_of_turn(&self) -> u64 {
        self.calls.set(self.calls.get() + 1);
        self.calls.get()
    }

    pub(super) fn running(&self) -> Option<TaskId> {
        self.running.get()
    }

    /// The time as the running task sees it: past each deadline it waited for after its death.
    pub(super) fn now(&self) -> Moment {
        let state = self.state_ref();
        let late = self.running().map_or(0, |id| state.tasks[id.0 as usize].late);
        Moment::from_nanoseconds(state.now.max(late))
    }

    pub(super) fn next_event(&self) -> Option<u64> {
        let events = self.events.borrow().clone();
        events.and_then(|events| events.next()).map(Moment::nanoseconds)
    }

    pub(super) fn set_look(&self, look: Box<dyn Fn()>) {
        *self.look.borrow_mut() = Some(look);
    }

    /// Calls the look of this world, but not for a point of preemption inside of it.
    pub(super) fn look(&self) {
        let look = self.look.take();
        if let Some(look) = look {
            look();
            self.set_look(look);
        }
    }

    pub(super) fn set_events(&self, events: Rc<dyn Events>) {
        *self.events.borrow_mut() = Some(events);
    }

    pub(super) fn draw<T>(&self, from: impl FnOnce(&mut Random) -> T) -> T {
        from(&mut self.random.borrow_mut())
    }

    pub(super) fn number(&self) -> u64 {
        self.numbers.set(self.numbers.get() + 1);
        self.numbers.get()
    }

    pub(super) fn is_tracing(&self) -> bool {
        self.settings.tracing == Tracing::Kept
    }

    pub(super) fn trace(&self, line: fmt::Arguments<'_>) {
        if !self.is_tracing() {
            return;
        }
        let mut state = self.state();
        let name = self.running().map_or("-".to_owned(), |id| state.task(id).name.clone());
        let line = format!("{:>14} {name:<18} {line}", state.now);
        drop(state);
        self.lines.borrow_mut().push(line);
    }
}

impl State {
    fn moment(&self) -> Moment {
        Moment::from_nanoseconds(self.now)
    }
}
