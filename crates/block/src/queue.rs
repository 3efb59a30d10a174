//! Request queue of one context for one device. One thread, no locks.
//!
//! The loop of the caller is: submit while there is [`room`](Queue::room),
//! [`dispatch`](Queue::dispatch), [`run`](Queue::run). Every submitted bio ends exactly once, in a
//! run, even if the device refuses requests, completes them short, or fails.
//!
//! Overlapping bios of one target take effect in the order of submission if at least one changes
//! it. A flush is no barrier: it covers the bios that ended before it was submitted.
//!
//! The policy [`Plugging`] decides when a batch goes to the device, and [`Holding`] when completed
//! writes are ended. So a dispatch may submit nothing and a run may end nothing. Every hold has a
//! deadline. No plug outlasts the start of a wait, and no wait outlasts the deadline of a hold.
//!
//! [`Holding`]: crate::knobs::Holding

use alloc::vec::Vec;
use core::time::Duration;

use crate::bio::{Bio, Class, Errno};
use crate::counters::{Counters, Latency};
use crate::crowd::Crowd;
use crate::device::{Completion, Device, Wait};
use crate::dispatch::{Batch, Because, Taken, Waiting};
use crate::fair::Fair;
use crate::flight::{Flight, Flying};
use crate::footprint::Footprint;
use crate::hold::Hold;
use crate::knobs::{ClockReads, Holding, Knobs, Merging, Order, Plugging, Ringing, Tagging};
use crate::limits::{BATCH_BYTES, BATCH_REQUESTS, PASSED_OVER, PLUG_BIOS, PLUG_HOLD};
use crate::merge::Merge;
use crate::plug::Plug;
use crate::request::{Bound, Ended, Held, Next, Request};
use crate::slab::{Place, Slab};
use crate::time::Moment;
use crate::trial::Trial;
use crate::unplug::Unplug;
use crate::walk::{Asked, Step, Unwatched, Walk};

/// Queue of requests from submission to completion.
///
/// `W` observes each step; the default does nothing and costs nothing.
#[derive(Debug)]
pub struct Queue<W: Walk = Unwatched> {
    knobs: Knobs,
    crowd: Crowd,
    slab: Slab,
    /// Per class, so that the use of one class does not count against the other.
    fair: [Fair; 2],
    plug: Plug,
    unplug: Unplug,
    trial: Trial,
    merge: Merge,
    /// Merged requests not at the device: new, refused, held up by a conflict, or to be submitted
    /// again.
    waiting: Waiting,
    /// Bios in the plug and in `waiting`, per class.
    staged: [usize; 2],
    /// Consecutive batches that left background requests behind and took none of them.
    passed_over: u32,
    flight: Flight,
    /// Bios of the last reap, until they end or are held.
    reaped: Vec<Ended>,
    /// Their numbers of arrival, if an observer wants them.
    reaped_arrivals: Vec<u64>,
    hold: Hold,
    /// How long the first bio of the last run was held.
    held: Duration,
    counters: Counters,
    latency: [Latency; 2],
    completions: Vec<Completion>,
    walk: W,
}

/// Time that a request was at the device.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Took {
    class: Class,
    nanoseconds: u64,
}

impl Queue {
    /// Creates an empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl<W: Walk + Default> Default for Queue<W> {
    fn default() -> Self {
        Self::with_walk(W::default())
    }
}

impl<W: Walk> Queue<W> {
    /// Creates an empty queue that reports each of its steps to `walk`.
    #[must_use]
    pub fn with_walk(walk: W) -> Self {
        Self {
            knobs: Knobs::default(),
            crowd: Crowd::default(),
            slab: Slab::default(),
            fair: <[Fair; 2]>::default(),
            plug: Plug::default(),
            unplug: Unplug::default(),
            trial: Trial::default(),
            merge: Merge::default(),
            waiting: Waiting::default(),
            staged: [0; 2],
            passed_over: 0,
            flight: Flight::default(),
            reaped: Vec::new(),
            reaped_arrivals: Vec::new(),
            hold: Hold::default(),
            held: Duration::ZERO,
            counters: Counters::default(),
            latency: <[Latency; 2]>::default(),
            completions: Vec::new(),
            walk,
        }
    }

    /// Returns the observer of the steps.
    pub fn walk(&mut self) -> &mut W {
        &mut self.walk
    }

    /// Sets the policies, from the next dispatch or run on.
    pub fn set_knobs(&mut self, knobs: Knobs) {
        self.knobs = knobs;
    }

    /// Changes when completed writes are ended.
    pub fn set_holding(&mut self, holding: Holding) {
        self.knobs.holding = holding;
    }

    /// Returns the policies.
    #[must_use]
    pub fn knobs(&self) -> Knobs {
        self.knobs
    }

    /// Adds a bio to the plug. It reaches the device with a later dispatch.
    ///
    /// # Panics
    /// If there is no [`room`](Queue::room), or if the bio is inconsistent.
    #[inline(always)]
    pub fn submit(&mut self, bio: Bio) {
        assert!(self.room() > 0, "the plug is full: dispatch and run before submitting more");
        bio.check();
        self.staged[bio.class as usize] += 1;
        let footprint = Footprint::of(&bio);
        let in_the_way = self.crowd.enter(footprint) && self.slab.has_conflict(footprint);
        let order = if in_the_way { Bound::Perhaps } else { Bound::Free };
        let start = self.fair[bio.class as usize].start(bio.source, bio.bytes());
        self.plug.look_at(&self.slab, &bio);
        let arrival = self.counters.bios;
        self.counters.bios += 1;
        self.walk.step(Step::Submitted { asked: Asked::of(arrival, &bio) });
        let key = (bio.class == Class::Background, start, arrival);
        let place = self.slab.insert(Request::new(Held { arrival, bio }, start, order));
        self.plug.hold(key, order, place);
        self.walk.step(Step::Plugged { arrival, bios: self.plug.len() });
        debug_assert!(self.plug.len() <= self.staged(), "plugged bios are not counted as staged");
    }

    /// Starts an explicit hold for bios that belong together. It nests: until the same number of
    /// calls of [`unplug`](Queue::unplug), a dispatch submits only if the plug is full, its time is
    /// over, or the dispatch waits.
    pub fn plug(&mut self) {
        self.plug.begin();
    }

    /// Ends the hold that [`plug`](Queue::plug) started.
    ///
    /// # Panics
    /// If no hold was started.
    pub fn unplug(&mut self) {
        self.plug.end();
    }

    /// Returns how many bios can be submitted before the plug is full. Refused requests count as
    /// plugged.
    #[must_use]
    #[inline]
    pub fn room(&self) -> usize {
        self.plug.room().min(PLUG_BIOS.saturating_sub(self.staged()))
    }

    /// Returns how many submitted bios are not at the device yet.
    #[must_use]
    #[inline]
    pub fn staged(&self) -> usize {
        self.staged[0] + self.staged[1]
    }

    /// Returns how many submitted bios of a class are not at the device yet.
    #[must_use]
    pub fn staged_of(&self, class: Class) -> usize {
        self.staged[class as usize]
    }

    /// Returns the number of requests at the device. A request whose bios are held is not there.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.flight.len()
    }

    /// Returns the number of bios submitted and not ended: staged, at the device, or held.
    #[must_use]
    pub fn on_their_way(&self) -> usize {
        self.not_completed() + self.reaped.len() + self.hold.bios().len()
    }

    /// Returns the bytes of the requests at the device.
    #[must_use]
    pub fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes_of(Class::Waited) + self.in_flight_bytes_of(Class::Background)
    }

    /// Returns the bytes of the requests of a class at the device.
    #[must_use]
    pub fn in_flight_bytes_of(&self, class: Class) -> u64 {
        self.flight.load(class).bytes
    }

    /// Merges the plugged bios, submits a batch of requests, and waits as `wait` says. Returns the
    /// number of requests submitted.
    ///
    /// It submits nothing if the policy holds the plug. It does not wait after a full batch:
    /// dispatch again for the rest.
    ///
    /// # Errors
    /// The error if the device itself is broken. Requests that it had taken count as in flight.
    pub fn dispatch(&mut self, device: &mut impl Device, wait: Wait) -> Result<usize, Errno> {
        if wait == Wait::Not && self.keeps_plugged(device) {
            self.counters.plug_holds += 1;
            return Ok(0);
        }
        self.take_plugged();
        if self.waiting.is_empty() {
            if wait != Wait::Not {
                let wait = self.wait(device, wait);
                self.ring(device, 0, wait)?;
            }
            return Ok(0);
        }
        self.waiting.arrange(&mut self.slab);
        if self.passed_over >= PASSED_OVER {
            self.waiting.lead_with_background(&self.slab);
        }
        let now = device.now();
        self.hand_over(device, now, wait)
    }

    /// Returns whether the policy holds the plug.
    fn keeps_plugged(&mut self, device: &mut impl Device) -> bool {
        if self.plug.is_empty() || !self.waiting.is_empty() {
            return false;
        }
        let is_full = self.plug.len() >= BATCH_REQUESTS || self.plug.bytes() >= BATCH_BYTES;
        let plugging = match self.knobs.plugging {
            Plugging::Never => return false,
            _ if self.plug.is_begun() => Plugging::Always,
            plugging => plugging,
        };
        !is_full && self.unplug.keeps(plugging, self.plug.len(), self.flight.len(), || device.now())
    }

    /// Makes requests of the plugged bios.
    fn take_plugged(&mut self) {
        if self.plug.is_empty() {
            return;
        }
        self.unplug.goes();
        let bios = self.plug.len();
        let merges = self.plug.touches()
            && self.knobs.merging == Merging::On
            && self.knobs.plugging != Plugging::Never;
        let merge = merges.then_some(&mut self.merge);
        let requests = self.plug.pour(&mut self.slab, merge, &mut self.waiting);
        if W::WATCHED {
            self.report_merged(requests);
        }
        debug_assert!(requests <= bios, "{bios} bios made {requests} requests");
        self.counters.requests += requests as u64;
        self.counters.merged_bios += (bios - requests) as u64;
    }

    /// Submits a batch, with one doorbell per step. Waits with the last one.
    fn hand_over(
        &mut self,
        device: &mut impl Device,
        now: Moment,
        wait: Wait,
    ) -> Result<usize, Errno> {
        let step = self.step();
        let (mut handed, mut background) = (0, 0);
        loop {
            let taken = self.prepare(device, now, step.min(BATCH_REQUESTS - handed));
            handed += taken.requests;
            let is_full = taken.because == Because::Full;
            background += taken.bios[Class::Background as usize];
            let more = is_full && handed < BATCH_REQUESTS && taken.requests == step;
            let wait = if is_full { Wait::Not } else { self.wait(device, wait) };
            if self.unplug.measures(taken.requests, wait) {
                let before = device.now();
                self.ring(device, taken.requests, wait)?;
                self.unplug.measured(device.now().nanoseconds_since(before));
            } else {
                self.ring(device, taken.requests, wait)?;
            }
            if !more {
                let is_passed_over = background == 0 && self.staged[Class::Background as usize] > 0;
                self.passed_over = if is_passed_over { self.passed_over + 1 } else { 0 };
                self.trial.goes(handed);
                return Ok(handed);
            }
        }
    }

    /// Returns the maximum of requests per doorbell.
    fn step(&self) -> usize {
        match self.knobs {
            Knobs { plugging: Plugging::Never, .. } | Knobs { ringing: Ringing::Each, .. } => 1,
            // Steps only for waited bios outside an explicit plug. For background bios CPU time
            // matters more, and bios that a caller plugged belong together.
            Knobs { plugging: Plugging::Adaptive, .. }
                if self.is_waited_for() && !self.plug.is_begun() =>
            {
                self.trial.way().step()
            }
            _ => BATCH_REQUESTS,
        }
    }

    fn is_waited_for(&self) -> bool {
        self.staged[Class::Waited as usize] > 0
    }

    fn prepare(&mut self, device: &mut impl Device, now: Moment, requests: usize) -> Taken {
        let Knobs { plugging, mut tagging, mut clock, .. } = self.knobs;
        if plugging == Plugging::Never {
            (tagging, clock) = (Tagging::Single, ClockReads::Each);
        }
        let batch = Batch { requests, bytes: BATCH_BYTES, tagging, clock, now };
        let (slab, flight, fair) = (&self.slab, &mut self.flight, &mut self.fair);
        let taken = self.waiting.prepare(batch, slab, flight, fair, device, &mut self.walk);
        self.counters.dispatched += taken.requests as u64;
        for (staged, gone) in self.staged.iter_mut().zip(taken.bios) {
            assert!(*staged >= gone, "more bios were submitted than were staged");
            *staged -= gone;
        }
        taken
    }

    fn ring(&mut self, device: &mut impl Device, requests: usize, wait: Wait) -> Result<(), Errno> {
        self.counters.doorbells += 1;
        self.walk.step(Step::Rung { requests });
        device.doorbell(wait)
    }

    /// Returns how the device waits: not beyond the deadline of a hold. While bios are held, the
    /// end of each further write wakes nobody, but the device is not left to run dry.
    fn wait(&mut self, device: &mut impl Device, wait: Wait) -> Wait {
        let (Wait::Something(limit) | Wait::Batch { limit, .. }) = wait else { return wait };
        let Some(due) = self.hold.due(self.knobs.holding) else { return wait };
        let left = due - device.now();
        let left = limit.map_or(left, |limit| limit.min(left));
        let waited = self.staged_of(Class::Waited) + self.flight.load(Class::Waited).requests;
        let want = self.flight.len().div_ceil(2);
        if waited > 0 || want <= 1 {
            return Wait::Something(Some(left));
        }
        Wait::Batch { want: want as u32, within: left, limit: Some(left) }
    }

    /// Reaps completed requests and ends their bios: [`reap`](Queue::reap), then
    /// [`end`](Queue::end). Returns the number of bios ended.
    pub fn run(&mut self, device: &mut impl Device, ended: &mut Vec<Ended>) -> usize {
        self.reap(device);
        self.end(ended)
    }

    /// Reaps completed requests. Their tags are free, and the device has room for others. Keeps
    /// requests that must be submitted again for the next dispatch. Returns the bios that the
    /// device is done with; [`end`](Queue::end) returns them, now or later.
    ///
    /// The memory of a bio belongs to the queue until the bio ends.
    pub fn reap(&mut self, device: &mut impl Device) -> &[Ended] {
        debug_assert!(self.reaped.is_empty(), "the bios of the last reap were not ended");
        device.reap(&mut self.completions);
        let here = self.completions.len();
        if here == 0 {
            if self.hold.is_held() {
                self.hold.look(device.now());
            }
            return &[];
        }
        let now = device.now();
        self.hold.look(now);
        if W::WATCHED {
            self.report_completed();
        }
        let not_completed = self.not_completed();
        let mut completions = core::mem::take(&mut self.completions);
        let mut ended = core::mem::take(&mut self.reaped);
        let mut now = now;
        // Requests of one batch that end together took equally long: they are added to the
        // histogram at once.
        let mut alike = (Took { class: Class::Waited, nanoseconds: 0 }, 0);
        ended.reserve(here);
        for Completion { tag, result } in completions.drain(..) {
            if self.knobs.clock == ClockReads::Each {
                now = device.now();
            }
            let Flying { place, since, class, .. } = self.flight.remove(tag);
            let request = self.slab.get(place);
            let took = Took { class, nanoseconds: now.nanoseconds_since(since) };
            if alike.0 == took {
                alike.1 += 1;
            } else {
                self.latency[alike.0.class as usize].add(alike.0.nanoseconds, alike.1);
                alike = (took, 1);
            }
            if request.is_served_by(result) {
                let bio = request.asked();
                self.crowd.leave(Footprint::of(bio));
                self.counters.add(bio, result);
                let Held { arrival, bio } = self.slab.remove(place).into_held();
                if W::WATCHED {
                    self.reaped_arrivals.push(arrival);
                }
                ended.push(Ended { bio, result });
            } else {
                self.complete(place, result, &mut ended);
            }
        }
        self.latency[alike.0.class as usize].add(alike.0.nanoseconds, alike.1);
        self.completions = completions;
        let count = ended.len();
        self.trial.ended(count, not_completed, now);
        if not_completed == count {
            debug_assert_eq!(
                (self.staged(), self.in_flight(), self.in_flight_bytes()),
                (0, 0, 0),
                "the device is done with all bios, and some still count"
            );
            self.trial.rests();
        }
        self.reaped = ended;
        &self.reaped
    }

    /// Ends the bios of the last [`reap`](Queue::reap) and those whose hold is over: appends them
    /// to `ended` in the order of completion. The policy may hold completed writes that nobody
    /// waits for; bios that somebody waits for pass them. Returns the number of bios ended.
    pub fn end(&mut self, ended: &mut Vec<Ended>) -> usize {
        let before = ended.len();
        let mut held = Duration::ZERO;
        if self.hold.is_in_use(self.knobs.holding) {
            self.hold.sort(&mut self.reaped, &mut self.reaped_arrivals);
            if let Some(until) = self.hold.until(self.knobs.holding) {
                self.walk.step(Step::Held { bios: self.hold.bios().len(), until });
            } else if self.hold.is_held() {
                held = self.hold.end(&mut self.reaped, &mut self.reaped_arrivals);
                self.counters.completion_holds += u64::from(!held.is_zero());
                self.counters.completion_held_nanoseconds += held.as_nanos() as u64;
            }
        }
        if self.reaped.is_empty() {
            return 0;
        }
        self.held = held;
        if self.knobs.order == Order::Lifo {
            self.reaped.reverse();
            self.reaped_arrivals.reverse();
        }
        for (&arrival, end) in self.reaped_arrivals.iter().zip(&self.reaped) {
            self.walk.step(Step::Ended { arrival, result: end.result });
        }
        self.reaped_arrivals.clear();
        if ended.is_empty() {
            core::mem::swap(ended, &mut self.reaped);
        } else {
            ended.append(&mut self.reaped);
        }
        let count = ended.len() - before;
        self.counters.completion_runs += 1;
        self.counters.completions += count as u64;
        self.walk.step(Step::Run { bios: count });
        count
    }

    /// Ends the hold with the next run, because somebody waits for one of the held bios.
    pub fn end_hold(&mut self) {
        self.hold.end_now();
    }

    /// Returns the held bios, in the order of completion.
    #[must_use]
    pub fn held_bios(&self) -> &[Ended] {
        self.hold.bios()
    }

    /// Returns the number of bios submitted that the device is not done with.
    fn not_completed(&self) -> usize {
        let Counters { bios, completed_bios, .. } = self.counters;
        debug_assert!(completed_bios <= bios, "contract 16: more bios ended than were submitted");
        (bios - completed_bios) as usize
    }

    /// Completes a request in every case except the common one: a single bio, served whole the
    /// first time.
    fn complete(&mut self, place: Place, result: Result<u64, Errno>, ended: &mut Vec<Ended>) {
        let before = ended.len();
        let request = self.slab.remove(place);
        let bios = request.bios();
        let arrivals = if W::WATCHED { request.arrivals() } else { Vec::new() };
        let next = request.complete(result, ended);
        if W::WATCHED {
            self.report_next(arrivals, &ended[before..], &next);
        }
        let again = match next {
            Next::Done => Vec::new(),
            Next::Again(request) => Vec::from([request]),
            Next::Apart(requests) => requests,
        };
        debug_assert_eq!(
            ended.len() - before + again.iter().map(Request::bios).sum::<usize>(),
            bios,
            "contract 16: each bio of a request ends or is submitted again"
        );
        for request in again {
            self.counters.resubmitted += 1;
            self.staged[request.class() as usize] += request.bios();
            let place = self.slab.insert(request);
            self.waiting.push(&self.slab, place);
        }
        for end in &ended[before..] {
            self.crowd.leave(Footprint::of(&end.bio));
            self.counters.add(&end.bio, end.result);
        }
    }

    /// Reports the bios that joined another's request, among the last `requests` requests.
    fn report_merged(&mut self, requests: usize) {
        for request in self.waiting.last(requests).iter().map(|&place| self.slab.get(place)) {
            let into = request.arrival();
            for arrival in request.arrivals().into_iter().filter(|&arrival| arrival != into) {
                self.walk.step(Step::Merged { arrival, into });
            }
        }
    }

    fn report_completed(&mut self) {
        for &Completion { tag, result } in &self.completions {
            if let Some(request) = self.flight.get(&self.slab, tag) {
                self.walk.step(Step::Completed { arrival: request.arrival(), tag, result });
            }
        }
    }

    /// Reports the fate of the bios of a request, which arrived as `arrivals`. Bios end in the
    /// order of arrival.
    fn report_next(&mut self, mut arrivals: Vec<u64>, ended: &[Ended], next: &Next) {
        let asked = |request: &Request| Asked::of(request.arrival(), request.asked());
        if let Next::Apart(requests) = next {
            arrivals.retain(|&arrival| requests.iter().all(|request| request.arrival() != arrival));
        }
        self.reaped_arrivals.extend(arrivals.into_iter().take(ended.len()));
        match next {
            Next::Done => {}
            Next::Again(request) => self.walk.step(Step::Again { asked: asked(request) }),
            Next::Apart(requests) => {
                requests
                    .iter()
                    .for_each(|request| self.walk.step(Step::Apart { asked: asked(request) }));
            }
        }
    }

    /// Returns how long the caller may sleep before it must dispatch or run again, or `None` if no
    /// bio is held, before the device or after it.
    #[must_use]
    pub fn due(&self, now: Moment) -> Option<Duration> {
        let completions = self.hold.due(self.knobs.holding);
        let plugged = if self.plug.is_empty() {
            None
        } else {
            self.unplug.since().map(|since| since + PLUG_HOLD)
        };
        let due = completions.into_iter().chain(plugged).min()?;
        Some(due - now)
    }

    /// Returns the counters, and counts from zero again. Nothing may be in flight.
    #[must_use]
    pub fn take_counters(&mut self) -> Counters {
        core::mem::take(&mut self.counters)
    }

    /// Returns the counters since the queue was created.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns how long the first bio of the last run was held.
    #[must_use]
    pub fn held(&self) -> Duration {
        self.held
    }

    /// Returns how long requests of a class were at the device.
    #[must_use]
    pub fn latency(&self, class: Class) -> &Latency {
        &self.latency[class as usize]
    }
}
