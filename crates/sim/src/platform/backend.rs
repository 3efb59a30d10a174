//! Backends, with the names and the behaviour of `forebay_uring::Backend`: rings and thread pools.
//!
//! The two differ in what a program can notice. A ring registers its files, so an open file lives
//! until the ring has registered another one; and while it waits for a batch in the kernel no wake
//! ends that wait. A thread pool does neither.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use forebay_block::{Bio, BufferId, Completion, Device, Errno, Moment, Refused, Tag, Target, Wait};
use forebay_uring::{Alive, Arena, BackendError, Choice, Memory};

use crate::platform::file::OpenFile;
use crate::random::PerMille;
use crate::world::machine::{self, DOORBELL};
use crate::world::{self, Reason};

mod inline;
mod requests;

pub use inline::Inline;
use requests::Attached;
pub use requests::Requests;

/// Time that a dropped backend waits for its requests.
const GOODBYE: Duration = Duration::from_secs(1);

/// Share of waits that end without a cause.
const SPURIOUS: PerMille = PerMille(10);

/// The device over the files of the simulated machine.
#[derive(Debug)]
pub enum Backend {
    /// Like io_uring.
    Ring(Requests),
    /// Like system calls on threads.
    Threads(Requests),
}

/// Handle that wakes the thread waiting in a backend. Cheap to clone and to call.
#[derive(Clone, Debug)]
pub struct Waker {
    port: u64,
}

impl Waker {
    /// Makes the doorbell that waits now, or the next one that would wait, return.
    pub fn wake(&self) {
        world::preempt();
        if world::has_world() && !world::is_dead() {
            machine::with(|machine| machine.ring_bell(self.port));
        }
    }
}

impl Backend {
    /// Makes a backend for `entries` requests before each doorbell.
    ///
    /// # Errors
    /// If the process was killed.
    pub fn chosen(choice: Choice, arena: Arc<Arena>, entries: u32) -> Result<Self, BackendError> {
        world::preempt();
        if world::is_dead() {
            return Err(BackendError::Threads(io::Error::from_raw_os_error(libc::EIO)));
        }
        let outlives = choice != Choice::Threads;
        let port = machine::with(|machine| machine.add_port(world::process(), arena, outlives));
        let requests = Requests {
            port,
            entries: entries.max(1) as usize,
            targets: Vec::new(),
            flights: Vec::new(),
            staged: 0,
            task: None,
        };
        Ok(match choice {
            Choice::Auto | Choice::IoUring => Backend::Ring(requests),
            Choice::Threads => Backend::Threads(requests),
        })
    }

    fn requests(&self) -> &Requests {
        let (Backend::Ring(requests) | Backend::Threads(requests)) = self;
        requests
    }

    fn requests_mut(&mut self) -> &mut Requests {
        let (Backend::Ring(requests) | Backend::Threads(requests)) = self;
        requests
    }

    fn port(&self) -> u64 {
        self.requests().port
    }

    /// Makes the backend hold one end of a pipe until its last request has ended, if it can.
    pub fn set_alive(&mut self, alive: &Alive) -> bool {
        let Ok(alive) = alive.as_fd().try_clone_to_owned() else { return false };
        machine::with(|machine| machine.set_alive(self.port(), alive)).is_ok()
    }

    /// Returns one line that names the backend.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Backend::Ring(_) => "io_uring: simulated".to_owned(),
            Backend::Threads(_) => "thread pool: simulated".to_owned(),
        }
    }

    /// Returns a waker that ends a waiting doorbell from any thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker { port: self.port() }
    }

    /// Returns the number of requests that were prepared and have not been reaped.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        let flights = self.requests().flights.iter().flatten().count();
        u32::try_from(flights).expect("at most one for each tag")
    }

    /// Attaches a file under the number of a target.
    ///
    /// # Panics
    /// If the number is taken.
    pub fn attach(&mut self, target: Target, file: Arc<OpenFile>) {
        world::preempt();
        let registered = self.register(&file);
        let targets = &mut self.requests_mut().targets;
        let index = target.0 as usize;
        if targets.len() <= index {
            targets.resize_with(index + 1, || None);
        }
        assert!(targets[index].is_none(), "{target:?} is taken");
        targets[index] =
            Some(Attached { file, registered, in_flight: 0, moving: 0, is_buffered: false });
    }

    /// Has the ring refer to the open file.
    fn register(&self, file: &OpenFile) -> Option<u64> {
        if matches!(self, Backend::Threads(_)) || world::is_dead() {
            return None;
        }
        machine::with(|machine| {
            let description = machine.descriptor(file.number()).ok()?.description;
            machine.register(self.port(), description).ok()
        })
    }

    fn unregister(&self, description: Option<u64>) {
        if let Some(description) = description.filter(|_| world::has_world()) {
            machine::with(|machine| machine.unregister(self.port(), description));
        }
    }

    /// Registers the file under the number again, after [`OpenFile::make_writable`].
    pub fn renew(&mut self, target: Target) {
        world::preempt();
        let new = self.register(&self.requests().attached(target).file);
        let attached = self.requests_mut().attached_mut(target);
        let old = std::mem::replace(&mut attached.registered, new);
        self.unregister(old);
    }

    /// Detaches and returns the file of a target.
    ///
    /// # Panics
    /// If requests of it are in flight.
    pub fn detach(&mut self, target: Target) -> Arc<OpenFile> {
        world::preempt();
        let attached = self.requests().attached(target);
        assert!(attached.in_flight == 0 || world::is_dead(), "{target:?} has requests in flight");
        let attached = self.requests_mut().targets[target.0 as usize].take();
        let Attached { file, registered, .. } = attached.expect("looked at above");
        self.unregister(registered);
        file
    }

    /// Lends memory to requests and returns its number.
    pub fn lend(&mut self, memory: Memory) -> BufferId {
        world::preempt();
        let port = self.port();
        // In a dead process no request uses it, and the number leads to nothing.
        machine::with(|machine| machine.lend(port, memory)).unwrap_or(BufferId(u32::MAX))
    }

    /// Ends a loan and returns the memory.
    ///
    /// # Panics
    /// If the number is not lent, or a request in flight uses it.
    pub fn take_back(&mut self, buffer: BufferId) -> Memory {
        world::preempt();
        let taken = machine::with(|machine| machine.take_back(self.port(), buffer));
        taken.unwrap_or_else(|_| Memory::Vector(Vec::new()))
    }

    /// Sleeps until what is wanted has ended, the waker rings, or the time is over.
    fn wait(&mut self, plan: &Plan) {
        let (port, is_ring) = (self.port(), matches!(self, Backend::Ring(_)));
        loop {
            let (completed, is_rung, is_spurious) = machine::with(|machine| {
                let is_spurious = machine.random.happens(SPURIOUS);
                (machine.completed(port), machine.is_rung(port), is_spurious)
            });
            let now = world::now();
            let in_batch = plan.more.is_some_and(|more| now < more);
            let is_enough =
                completed >= plan.want || completed > 0 && plan.more.is_none_or(|more| now >= more);
            // The kernel's minimal wait for a batch is not ended by one more request. A wait for a
            // batch that is as long as its limit needs no minimal wait.
            let is_deaf = is_ring && in_batch && plan.first != plan.more;
            let is_woken = (is_rung || is_spurious) && !is_deaf;
            let is_late = completed == 0 && plan.first.is_some_and(|first| now >= first);
            if is_enough || is_woken || is_late || world::is_dead() {
                break;
            }
            // The first time matters only while nothing has completed.
            let first = plan.first.filter(|_| completed == 0);
            let more = plan.more.filter(|_| in_batch);
            let until = first.into_iter().chain(more).min();
            world::block(Reason { what: DOORBELL, number: port }, until);
        }
        machine::with(|machine| machine.was_rung(port));
    }
}

/// The end of a wait.
struct Plan {
    /// Requests that end it.
    want: usize,
    /// The time that ends it if nothing has completed.
    first: Option<Moment>,
    /// The time from which on one completed request ends it.
    more: Option<Moment>,
}

impl Plan {
    fn of(wait: Wait) -> Option<Self> {
        let after = |span: Duration| world::after(world::now(), span);
        match wait {
            Wait::Not | Wait::Something(Some(Duration::ZERO)) => None,
            Wait::Something(limit) => Some(Self { want: 1, first: limit.map(after), more: None }),
            Wait::Batch { want, within, limit } => Some(Self {
                want: want.max(1) as usize,
                first: limit.map(after),
                more: Some(after(within)),
            }),
        }
    }
}

impl Device for Backend {
    fn now(&mut self) -> Moment {
        world::now()
    }

    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        let port = self.port();
        let requests = self.requests_mut();
        if requests.staged >= requests.entries {
            return Err(Refused);
        }
        let file = requests.attached(request.target);
        let (registered, descriptor) = (file.registered, file.file.number());
        let taken = machine::with(|machine| {
            if machine.refuses(port) {
                return Err(Refused);
            }
            // In a dead process the request goes nowhere, and nobody hears of it.
            let Ok(found) = machine.descriptor(descriptor) else { return Ok(()) };
            let to = (registered.unwrap_or(found.description), found.directory);
            machine.check(port, tag, request, to.0);
            let _ = machine.stage(port, (tag, request), to);
            Ok(())
        });
        taken?;
        let requests = self.requests_mut();
        requests.begin(tag, request.target, request.operation);
        requests.staged += 1;
        Ok(())
    }

    fn doorbell(&mut self, wait: Wait) -> Result<(), Errno> {
        world::preempt();
        let (port, is_ring) = (self.port(), matches!(self, Backend::Ring(_)));
        let requests = self.requests_mut();
        let task = *requests.task.get_or_insert_with(|| world::task().expect("a task waits"));
        assert!(
            !is_ring || world::task() == Some(task),
            "a ring belongs to the thread of its first doorbell"
        );
        requests.staged = 0;
        machine::pay(port);
        machine::with(|machine| machine.ring(port));
        if let Some(plan) = Plan::of(wait) {
            self.wait(&plan);
        }
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let reaped = machine::with(|machine| machine.reap(self.port()));
        for completion in reaped {
            self.requests_mut().end(completion.tag);
            completions.push(completion);
        }
    }
}

/// Waits up to a second for the requests in flight. Those that last longer keep their memory and
/// files until they end.
impl Drop for Backend {
    fn drop(&mut self) {
        if !world::has_world() {
            return;
        }
        let port = self.port();
        let until = world::after(world::now(), GOODBYE);
        let waits = |machine: &mut machine::Machine| {
            machine.flying_of(port) > 0 && machine.port(port).is_ok()
        };
        let is_task = world::task().is_some() && !std::thread::panicking();
        while is_task && !world::is_dead() && world::now() < until && machine::with(waits) {
            world::block(Reason { what: DOORBELL, number: port }, Some(until));
        }
        machine::with(|machine| machine.drop_port(port));
    }
}

// A context takes its backend along to its thread.
const _: fn() = || {
    fn sent<T: Send>() {}
    sent::<Backend>();
};
