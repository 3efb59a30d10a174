//! A run: callers, one context and one disk, moved one step at a time by chance, and compared with
//! what was promised at every step.
//!
//! The context and the callers do what the engine's do, in the same order, and are woken by the
//! same events and no others: so a wake that is missing there is a run that stands still here. A
//! step is the least that happens under one lock in the engine, so every interleaving of locks is a
//! possible run.
//!
//! The run stops with a panic that names the contract broken; the seed replays it.

mod caller;
mod check;
mod context;
mod discarding;
mod inode;
mod memory;
mod operation;
mod reading;
mod writing;

use std::collections::VecDeque;

use forebay_block::{Frame, Knobs, Queue, Target};
use forebay_cache::limits::PAGE;
use forebay_cache::{Candidate, Evictor, Frames, Liberties, Settled};

use crate::account::Accounts;
use crate::disk::Disk;
use crate::driver::caller::{Activity, Caller};
use crate::driver::context::Context;
use crate::driver::inode::{Inode, Path};
use crate::level::Level;
use crate::marks::Marks;
use crate::plan::Plan;
use crate::random::{PerMille, Random};
use crate::stored::Keep;
use crate::trace::{Line, Trace, Tracing};

/// Ticks of the context with nothing else going on after which nobody will ever go on.
const IDLE_TICKS: u32 = 64;

/// Steps after which it is looked what another process would make of it all, if this one died now.
const DEATHS: PerMille = PerMille(40);

/// Steps a run may take per operation: far beyond what any takes.
const STEPS_PER_OPERATION: u64 = 1_000;

/// A run.
#[derive(Debug)]
pub struct Driver {
    plan: Plan,
    random: Random,
    /// Apart, so that looking at a loss of power changes nothing.
    crash_random: Random,
    disk: Disk,
    queue: Queue,
    frames: Frames,
    accounts: Accounts,
    frame_waiters: Vec<usize>,
    evictor: Evictor,
    /// Pages asked about, and not judged yet: somebody is in the middle of making room.
    asked: VecDeque<Vec<Candidate>>,
    level: Level,
    paths: Vec<Path>,
    callers: Vec<Caller>,
    context: Context,
    operations_left: u64,
    idle_ticks: u32,
    /// The device does nothing wrong any more that anybody hears of.
    is_well: bool,
    steps: u64,
    seen_transitions: u64,
    longest_wait: u64,
    trace: Trace,
    marks: Marks,
}

/// Whether a run has more to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    More,
    Over,
}

impl Driver {
    /// A run of a seed.
    #[must_use]
    pub fn new(seed: u64, plan: Plan, tracing: Tracing) -> Self {
        let mut random = Random::new(seed);
        let mut disk =
            Disk::new(plan.files, plan.frames, plan.space_pages, plan.latency, random.fork());
        disk.set_faults(plan.faults);
        let crash_random = random.fork();
        if plan.are_devices {
            (0..plan.files)
                .for_each(|device| disk.make_device(Target(device), plan.device_bytes()));
        }
        Self {
            disk,
            crash_random,
            queue: Queue::new(),
            frames: Frames::new(plan.frames),
            accounts: Accounts::new(plan.frames, plan.files),
            frame_waiters: Vec::new(),
            evictor: Evictor::new(plan.frames),
            asked: VecDeque::new(),
            level: Level::new(plan.throttle, plan.volumes),
            paths: (0..plan.files).map(|_| Path::new(&plan)).collect(),
            callers: (0..plan.callers).map(|_| Caller::new()).collect(),
            context: Context::new(&plan),
            operations_left: plan.operations,
            idle_ticks: 0,
            is_well: false,
            steps: 0,
            seen_transitions: 0,
            longest_wait: 0,
            trace: Trace::new(tracing),
            marks: Marks::default(),
            random,
            plan,
        }
    }

    /// Runs to the end, and checks what is left.
    ///
    /// # Panics
    /// When a contract is broken.
    pub fn run(&mut self) -> &Marks {
        self.queue.set_knobs(Knobs { merging: self.plan.merging, ..Knobs::default() });
        while self.step() == Progress::More {}
        self.check_end();
        &self.marks
    }

    /// Runs until the device's state has changed so many times, then looks at a state after a loss
    /// of power for each way of keeping what was not durable.
    ///
    /// # Panics
    /// When a contract is broken.
    pub fn run_until_power_loss(&mut self, transition: u64) -> &Marks {
        self.queue.set_knobs(Knobs { merging: self.plan.merging, ..Knobs::default() });
        while self.disk.transitions() < transition && self.step() == Progress::More {}
        for keep in [Keep::Nothing, Keep::Everything, Keep::Some, Keep::Some, Keep::Some] {
            self.check_power_loss(keep);
        }
        &self.marks
    }

    /// Times the state of the device has changed: the points at which the power may go.
    #[must_use]
    pub fn transitions(&self) -> u64 {
        self.disk.transitions()
    }

    /// The longest anybody waited for a sync, a close or a length, in changes of the device's
    /// state.
    #[must_use]
    pub fn longest_wait(&self) -> u64 {
        self.longest_wait
    }

    /// What happened.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    fn step(&mut self) -> Progress {
        self.steps += 1;
        let most = (self.plan.operations + 10) * STEPS_PER_OPERATION;
        assert!(self.steps < most, "the run does not end: {}", self.stuck());
        if self.steps > most / 2 {
            self.get_well();
        }
        self.disturb();
        let progress = self.move_one();
        if self.disk.transitions() != self.seen_transitions {
            self.seen_transitions = self.disk.transitions();
            if self.crash_random.happens(self.plan.disturbance.crash) {
                let keep = *self.crash_random.pick(&[
                    Keep::Nothing,
                    Keep::Everything,
                    Keep::Some,
                    Keep::Some,
                ]);
                self.check_power_loss(keep);
            }
        }
        if self.crash_random.happens(DEATHS) {
            self.check_process_death();
        }
        progress
    }

    /// Somebody who can moves.
    fn move_one(&mut self) -> Progress {
        let pace = self.plan.pace;
        let awake: Vec<usize> =
            (0..self.callers.len()).filter(|&id| self.callers[id].is_awake).collect();
        let callers = pace.caller * awake.len() as u64;
        let context = if self.context.is_awake { pace.context } else { 0 };
        let device = if self.disk.in_flight() > 0 { pace.device } else { 0 };
        let reap = if self.disk.has_completed() { pace.context } else { 0 };
        let chosen = self.random.below(callers + context + device + reap);
        if callers + context + device + reap == 0 {
            return self.stand_still();
        }
        self.idle_ticks = 0;
        if chosen < callers {
            self.step_caller(awake[(chosen / pace.caller) as usize]);
        } else if chosen < callers + context {
            self.pass();
        } else if chosen < callers + context + device {
            self.disk.complete_next();
        } else {
            self.reap();
        }
        Progress::More
    }

    /// Nobody can move: time passes until the context looks what is too old, or all is done.
    fn stand_still(&mut self) -> Progress {
        let is_over = self.callers.iter().all(|caller| matches!(caller.activity, Activity::Done));
        if is_over && self.paths.iter().all(|path| path.inode.is_none()) {
            return Progress::Over;
        }
        for path in &self.paths {
            let Some(inode) = &path.inode else { continue };
            // A tick may help who waits for memory. Who waits for a file is helped by those who use
            // it, or never.
            let is_stuck = |&&id: &&usize| !self.callers[id].waits_for_its_turn();
            let waits =
                inode.cache.has_tickets() || inode.page_waiters.iter().any(|id| is_stuck(&id));
            assert!(!waits, "contract 16: nobody will ever go on: {}", self.stuck());
        }
        self.idle_ticks += 1;
        if self.idle_ticks > IDLE_TICKS / 2 {
            self.get_well();
        }
        assert!(self.idle_ticks < IDLE_TICKS, "contract 12: nobody goes on: {}", self.stuck());
        match self.context.next_tick {
            Some(due) => self.disk.advance_to(due),
            None => panic!("contract 12: nobody will ever go on: {}", self.stuck()),
        }
        self.marks.hit("tick");
        self.context.is_awake = true;
        Progress::More
    }

    /// What happens from outside.
    fn disturb(&mut self) {
        let disturbance = self.plan.disturbance;
        let path = self.random.below(self.paths.len() as u64) as usize;
        if self.random.happens(disturbance.lease) && !self.plan.are_devices {
            self.disturb_lease(path);
        }
        if self.random.happens(disturbance.bad_pages) {
            let first = self.random.below(self.plan.file_pages);
            let end = first + self.random.below(4);
            self.disk.set_bad(Target(path as u32), first..end);
        }
        if self.random.happens(disturbance.evict) {
            let wanted = self.random.within(1..20) as usize;
            self.begin_evicting(wanted);
        }
        // Whoever began goes on, sooner or later.
        if self.random.happens(PerMille(100)) {
            self.end_evicting();
        }
        if self.operations_left == 0 {
            self.get_well();
        }
    }

    /// The device gets well, so that everything can end. Pages that cannot be written may hold all
    /// memory; what then helps is a device that is well, or giving up.
    fn get_well(&mut self) {
        if !self.is_well {
            self.is_well = true;
            self.plan.disturbance.bad_pages = PerMille(0);
            self.disk.set_faults(self.plan.faults.passing());
            self.disk.set_space_pages(u64::MAX / 2);
            (0..self.paths.len()).for_each(|path| self.disk.set_bad(Target(path as u32), 0..0));
        }
    }

    fn disturb_lease(&mut self, path: usize) {
        let change = self.paths[path].ledger.change();
        let Some(inode) = &mut self.paths[path].inode else { return };
        let mut settled = Settled::default();
        match inode.cache.liberties() {
            Liberties::Exclusive => {
                inode.cache.begin_break(&mut settled);
                inode.broken_at = Some(change);
                self.paths[path].ledger.share();
                self.kick(path);
                self.marks.hit("lease broken");
                self.note(path, "lease broken", 0, 0, 0);
            }
            Liberties::Shared => {
                let size = self.disk.file(Target(path as u32)).size();
                if inode.cache.own(size, inode.cache.look(), &mut settled) {
                    self.disk.set_others(Target(path as u32), false);
                    inode.origin_end = size.next_multiple_of(PAGE);
                    self.marks.hit("lease had");
                    self.note(path, "lease had", 0, 0, 0);
                }
            }
        }
        self.tell(path, &mut settled);
        self.absorb(&mut settled);
    }

    /// Zeroes and copies what the cache tells to.
    fn finish_memory(&mut self, path: usize, settled: &mut Settled) {
        let filled = settled.patches.iter().map(|patch| (patch.page, patch.to));
        let filled: Vec<(u64, Frame)> = filled.collect();
        self.disk.arena().finish(settled);
        let mut account = self.accounts.tell(path);
        let cache = &self.paths[path].inode.as_ref().expect("an open file").cache;
        filled.into_iter().for_each(|(page, frame)| cache.tell_filled(page, frame, &mut account));
    }

    /// What the cache of a file has told of frames is said.
    fn tell(&mut self, path: usize, settled: &mut Settled) {
        let inode = self.paths[path].inode.as_ref().expect("an open file");
        inode.cache.tell_settled(settled, &mut self.accounts.tell(path));
    }

    /// Takes in what was freed and is dirty no more, and wakes whom that concerns.
    fn absorb(&mut self, settled: &mut Settled) {
        let is_finished =
            settled.zero.is_empty() && settled.patches.is_empty() && settled.clean.is_empty();
        assert!(is_finished, "what is to be zeroed, patched or entered is, under the lock");
        assert!(
            settled.written.is_empty() && settled.dirty_again.is_empty(),
            "what is to be said was"
        );
        if !settled.freed.is_empty() {
            let said = settled.freed.frames().find(|frame| self.accounts.is_published(*frame));
            assert_eq!(said, None, "nothing is said of a frame that is free");
            settled.freed.drain().for_each(|run| {
                run.frames().for_each(|frame| self.evictor.leave(frame));
                self.disk.arena().spoil(run.first, 0, run.count as usize * PAGE as usize);
                self.frames.give_run(run);
            });
            let waiters = std::mem::take(&mut self.frame_waiters);
            self.wake(&waiters);
        }
        self.level_fell(std::mem::take(&mut settled.uncharged));
    }

    /// Pages are dirty no more, or somebody waits.
    fn level_fell(&mut self, pages: u64) {
        let of_volumes = (0..self.plan.volumes).map(|volume| self.dirty_of(volume)).collect();
        let woken = self.level.remove(pages, of_volumes);
        self.wake(&woken);
    }

    /// Pages of a file system's files that count as dirty.
    fn dirty_of(&self, volume: usize) -> u64 {
        let inodes = self.paths.iter().skip(volume).step_by(self.plan.volumes);
        let inodes = inodes.filter_map(|path| path.inode.as_ref());
        let dirty: u64 = inodes.map(|inode| inode.cache.dirty_pages() + inode.credit).sum();
        dirty + self.level.granted_for(volume)
    }

    fn volume_of(&self, path: usize) -> usize {
        path % self.plan.volumes
    }

    fn wake(&mut self, callers: &[usize]) {
        for &id in callers {
            self.callers[id].is_awake = true;
        }
    }

    /// Wakes whoever waits for a change of a file, and who waits for frames: a page that is used no
    /// more may be dropped, though nobody gave a frame back.
    fn wake_page_waiters(&mut self, path: usize) {
        let mut waiters = std::mem::take(&mut self.inode(path).page_waiters);
        waiters.append(&mut self.frame_waiters);
        self.wake(&waiters);
    }

    /// Tells the context to look at a file.
    fn kick(&mut self, path: usize) {
        let inode = self.inode(path);
        if !inode.kicked {
            inode.kicked = true;
            self.context.looks.push_back(path);
            self.context.is_awake = true;
        }
    }

    fn inode(&mut self, path: usize) -> &mut Inode {
        self.paths[path].inode.as_mut().expect("an open file")
    }

    fn note(&mut self, path: usize, event: &'static str, offset: u64, length: u64, errno: i32) {
        let time = self.disk.now();
        self.trace.add(Line { time, file: path as u32, event, offset, length, errno });
    }

    /// Who waits for what, for the message that says so.
    fn stuck(&self) -> String {
        let files = self.paths.iter().enumerate().filter_map(|(path, file)| {
            let inode = file.inode.as_ref()?;
            Some(format!(
                "\n  file {path}: {} handles, {} dirty, tickets {}, in flight {}, page waiters {:?}",
                inode.handles,
                inode.cache.dirty_pages(),
                inode.cache.has_tickets(),
                inode.cache.in_flight(),
                inode.page_waiters
            ))
        });
        format!(
            "{} frames free, {} dirty, {} staged, {} in flight{}\n  callers {:?}",
            self.frames.free(),
            self.level.dirty(),
            self.queue.staged(),
            self.disk.in_flight(),
            files.collect::<String>(),
            self.callers.iter().map(Caller::summary).collect::<Vec<_>>()
        )
    }
}
