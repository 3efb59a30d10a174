//! One run: all actors work until enough bytes are settled; then all accepted pages are written to
//! the end.

use std::time::Duration;

use forebay_block::limits::PAGE;

use super::agenda::Agenda;
use super::context::{Context, Request, Step};
use super::cores::{Actor, Cores};
use super::device::Pipe;
use super::figures::{Figures, Side};
use super::file::{File, Piece};
use super::lock::GroupLocks;
use super::model::{Affinity, Layout, Locks, Model};
use super::space::Space;
use super::worker::{self, Worker};
use crate::random::Random;

/// Pages of a file written before the next file's turn: 1 MiB.
const VISIT: u32 = 256;

/// Maximum of pages per allocation: 1 MiB.
const LARGEST: u32 = 256;

/// Event at a certain time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// An actor has done a step of work.
    Worked(Actor),
    /// A request has ended, by its index in `flying`.
    Ended(usize),
}

/// State of a run.
#[derive(Debug)]
pub(super) struct Run<'a> {
    model: &'a Model,
    agenda: Agenda<Event>,
    cores: Cores,
    locks: GroupLocks,
    space: Space,
    pipe: Pipe,
    files: Vec<File>,
    contexts: Vec<Context>,
    /// The context of each file.
    bound: Vec<usize>,
    workers: Vec<Worker>,
    flying: Vec<Option<Request>>,
    free: Vec<usize>,
    accepted: u64,
    settled: u64,
    /// Set when the clock stops; no page is accepted afterwards.
    figures: Option<Figures>,
}

impl<'a> Run<'a> {
    /// Creates the run of a model that was checked.
    pub(super) fn new(model: &'a Model, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let group = |file: u64| (file / model.files) % model.groups;
        let all = model.directories * model.files;
        let files = (0..all)
            .map(|file| File::new(file as usize, group(file) as usize, model, random.fork()));
        let files: Vec<File> = files.collect();
        let hash = random.draw();
        let bound = |file: u64| match model.affinity {
            Affinity::Single => 0,
            Affinity::Hash => Random::new(hash ^ file).below(model.contexts),
            Affinity::Directory => (file / model.files) % model.contexts,
            Affinity::Group => group(file) % model.contexts,
        };
        let bound: Vec<usize> = (0..all).map(|file| bound(file) as usize).collect();
        let of = |context: usize| (0..bound.len()).filter(|&file| bound[file] == context).collect();
        Self {
            model,
            agenda: Agenda::new(),
            cores: Cores::new(model.cores),
            locks: GroupLocks::new(model.groups),
            space: Space::new(model.groups),
            pipe: Pipe::new(model.drive),
            workers: files.iter().map(|_| Worker::new()).collect(),
            files,
            contexts: (0..model.contexts as usize)
                .map(|context| Context::new(of(context)))
                .collect(),
            bound,
            flying: Vec::new(),
            free: Vec::new(),
            accepted: 0,
            settled: 0,
            figures: None,
        }
    }

    /// Runs to the end.
    ///
    /// # Panics
    /// If the accepted pages are not exactly those written and settled, or work is left.
    pub(super) fn finish(mut self) -> Figures {
        for file in 0..self.files.len() {
            self.accept(file);
        }
        for context in 0..self.contexts.len() {
            self.go_on(context);
        }
        while let Some(event) = self.agenda.next() {
            match event {
                Event::Worked(actor) => {
                    if let Some((next, work)) = self.cores.end(self.agenda.now()) {
                        self.agenda.put(self.agenda.now() + work, Event::Worked(next));
                    }
                    match actor {
                        Actor::Context(context) => self.context_worked(context),
                        Actor::Worker(file) => self.worker_worked(file),
                    }
                }
                Event::Ended(request) => self.ended(request),
            }
        }
        assert_eq!(self.accepted, self.settled, "accepted pages must all settle");
        assert_eq!(
            self.accepted,
            self.pipe.taken().pages,
            "accepted pages must be written exactly once"
        );
        assert!(self.files.iter().all(|file| file.unsettled() == 0 && !file.is_dirty()));
        assert!(
            self.contexts.iter().all(|context| context.step == Step::Idle && context.is_empty())
        );
        assert!(
            self.workers
                .iter()
                .all(|worker| worker.step == worker::Step::Idle && worker.is_empty())
        );
        assert!(self.locks.are_free() && self.flying.iter().all(Option::is_none));
        self.figures.expect("the clock stops once enough bytes are settled")
    }

    /// Starts the next step of a context.
    fn go_on(&mut self, number: usize) {
        loop {
            if !self.submit(number) {
                self.contexts[number].step = Step::Blocked;
                return;
            }
            let context = &mut self.contexts[number];
            if let Some(piece) = context.visit.front() {
                context.step = Step::Gathering;
                let work = self.model.page * piece.pages;
                return self.work(Actor::Context(number), work);
            }
            if context.unplug() {
                continue;
            }
            let files = &self.files;
            let Some(file) = context.next_file(|file| files[file].is_dirty()) else {
                context.step = Step::Idle;
                return;
            };
            context.visit = self.files[file].visit(VISIT, LARGEST).into();
        }
    }

    /// Submits the ready requests. Returns whether the device had room for all of them.
    fn submit(&mut self, number: usize) -> bool {
        while let Some(request) = self.contexts[number].ready.front() {
            let now = self.agenda.now();
            let Some(end) = self.pipe.take(number, request.start, request.pages, now) else {
                return false;
            };
            let request = self.contexts[number].ready.pop_front();
            let slot = self.free.pop().unwrap_or_else(|| {
                self.flying.push(None);
                self.flying.len() - 1
            });
            self.flying[slot] = request;
            self.agenda.put(end, Event::Ended(slot));
        }
        true
    }

    fn context_worked(&mut self, number: usize) {
        match self.contexts[number].step {
            Step::Waking => self.go_on(number),
            Step::Gathering => self.gathered(number),
            Step::Allocating(group) => {
                let piece = self.contexts[number]
                    .visit
                    .pop_front()
                    .expect("a context that allocates has a piece");
                let start = self.space.allocate(group, piece.pages);
                self.files[piece.file].set_place(piece, start);
                self.give(group, Actor::Context(number));
                self.contexts[number].plug(piece, start, self.model.merge);
                self.go_on(number);
            }
            step => unreachable!("a context that is {step:?} does not work"),
        }
    }

    fn gathered(&mut self, number: usize) {
        let piece = self.contexts[number].visit[0];
        let file = &mut self.files[piece.file];
        if self.model.layout != Layout::Holes {
            let start = file.place(piece).expect("its blocks were laid out in advance");
            self.contexts[number].visit.pop_front();
            self.contexts[number].plug(piece, start, self.model.merge);
            return self.go_on(number);
        }
        let group = file.next_group(self.model);
        if self.take(group, Actor::Context(number)) {
            self.contexts[number].step = Step::Allocating(group);
            self.work(Actor::Context(number), self.model.allocation);
        } else {
            self.contexts[number].step = Step::Locking(group);
        }
    }

    fn ended(&mut self, slot: usize) {
        let request = self.flying[slot].take().expect("a request that ends is in flight");
        self.free.push(slot);
        if let Some(context) = self.pipe.end(self.agenda.now()) {
            assert_eq!(self.contexts[context].step, Step::Blocked);
            self.wake(context);
        }
        let mut start = request.start;
        for piece in request.pieces {
            if self.model.layout == Layout::Written {
                self.settle(piece);
            } else {
                self.workers[piece.file].put(piece, start);
                if self.workers[piece.file].step == worker::Step::Idle {
                    self.workers[piece.file].step = worker::Step::Waking;
                    self.work(Actor::Worker(piece.file), self.model.wake);
                }
            }
            start = start.plus(piece.pages);
        }
    }

    fn worker_worked(&mut self, file: usize) {
        match self.workers[file].step {
            worker::Step::Waking => {}
            worker::Step::Converting(group) => {
                let piece = self.workers[file].take();
                self.give(group, Actor::Worker(file));
                self.settle(piece);
            }
            step => unreachable!("a worker that is {step:?} does not work"),
        }
        let Some(group) = self.workers[file].next() else {
            self.workers[file].step = worker::Step::Idle;
            return;
        };
        if self.take(group, Actor::Worker(file)) {
            self.workers[file].step = worker::Step::Converting(group);
            self.work(Actor::Worker(file), self.model.conversion);
        } else {
            self.workers[file].step = worker::Step::Locking(group);
        }
    }

    /// Settles a piece. Lets its writer continue, and wakes its context if that is idle.
    fn settle(&mut self, piece: Piece) {
        self.files[piece.file].settle(piece);
        self.settled += u64::from(piece.pages);
        if self.figures.is_none() && self.settled * PAGE as u64 >= self.model.amount {
            self.figures = Some(self.stop_the_clock());
        }
        self.accept(piece.file);
        let context = self.bound[piece.file];
        if self.contexts[context].step == Step::Idle && self.files[piece.file].is_dirty() {
            self.wake(context);
        }
    }

    fn accept(&mut self, file: usize) {
        if self.figures.is_none() {
            self.accepted += u64::from(self.files[file].accept(self.model, &mut self.space));
        }
    }

    fn take(&mut self, group: usize, actor: Actor) -> bool {
        self.model.locks == Locks::Off || self.locks.take(group, actor, self.agenda.now())
    }

    fn give(&mut self, group: usize, actor: Actor) {
        if self.model.locks == Locks::Off {
            return;
        }
        // The new holder holds the lock while it wakes.
        match self.locks.give(group, actor, self.agenda.now()) {
            Some(Actor::Context(number)) => {
                assert_eq!(self.contexts[number].step, Step::Locking(group));
                self.contexts[number].step = Step::Allocating(group);
                self.work(Actor::Context(number), self.model.wake + self.model.allocation);
            }
            Some(Actor::Worker(file)) => {
                assert_eq!(self.workers[file].step, worker::Step::Locking(group));
                self.workers[file].step = worker::Step::Converting(group);
                self.work(Actor::Worker(file), self.model.wake + self.model.conversion);
            }
            None => {}
        }
    }

    fn wake(&mut self, context: usize) {
        self.contexts[context].step = Step::Waking;
        self.work(Actor::Context(context), self.model.wake);
    }

    fn work(&mut self, actor: Actor, work: Duration) {
        if self.cores.begin(actor, work, self.agenda.now()) {
            self.agenda.put(self.agenda.now() + work, Event::Worked(actor));
        }
    }

    fn stop_the_clock(&mut self) -> Figures {
        let now = self.agenda.now();
        let seconds = now.as_secs_f64();
        let taken = self.pipe.taken();
        let (contexts, workers) = self.locks.tallies();
        let (mut extents, mut blocks) = (0, 0);
        for file in &self.files {
            let counted = file.extents();
            extents += counted.0;
            blocks += counted.1;
        }
        let bytes = |pages: u64| (pages * PAGE as u64) as f64;
        Figures {
            seconds,
            bytes: self.settled * PAGE as u64,
            submission: Side::of(contexts),
            completion: Side::of(workers),
            busiest_lock: self.locks.longest_held(now).as_secs_f64() / seconds,
            cores: self.cores.worked(now).as_secs_f64() / seconds / self.model.cores as f64,
            device: self.pipe.busy(now).as_secs_f64() / seconds,
            in_flight: self.pipe.mean_flight(now),
            request_bytes: bytes(taken.pages) / taken.requests as f64,
            extents_per_gib: extents as f64 / (bytes(blocks) / f64::from(1 << 30)),
        }
    }
}
