//! The level of dirty pages and who waits for it to fall, as the engine keeps it: freed room goes
//! to whoever waits longest of those whose file system may have more, in grants that are charged
//! when they are made.

use std::collections::{BTreeMap, VecDeque};

use forebay_cache::{Admission, DevicePart, Dirty, Throttle};

/// The level.
#[derive(Debug)]
pub(crate) struct Level {
    throttle: Throttle,
    dirty: u64,
    lines: Vec<Line>,
    /// How many ever waited.
    came: u64,
    /// Pages granted and not taken, by caller, with the file system they are for.
    granted: BTreeMap<usize, (usize, u64)>,
}

/// One file system.
#[derive(Debug)]
struct Line {
    part: DevicePart,
    rate: Option<u64>,
    /// Callers with the numbers they came with.
    waiting: VecDeque<(u64, usize)>,
}

impl Level {
    pub(crate) fn new(throttle: Throttle, volumes: usize) -> Self {
        let line = || Line { part: throttle.whole(), rate: None, waiting: VecDeque::new() };
        let lines = (0..volumes).map(|_| line()).collect();
        Self { throttle, dirty: 0, lines, came: 0, granted: BTreeMap::new() }
    }

    pub(crate) fn dirty(&self) -> u64 {
        self.dirty
    }

    pub(crate) fn has_waiters(&self) -> bool {
        self.lines.iter().any(|line| !line.waiting.is_empty())
    }

    pub(crate) fn wants_writeback(&self, volume: usize, of_volume: u64) -> bool {
        self.dirty >= self.throttle.background || of_volume >= self.lines[volume].part.background
    }

    pub(crate) fn admit(&self, volume: usize, of_device: u64, of_file: u64) -> Admission {
        self.throttle.admit(Dirty { all: self.dirty, of_device, of_file }, self.lines[volume].part)
    }

    pub(crate) fn set_rate(&mut self, volume: usize, rate: u64) {
        self.lines[volume].rate = Some(rate).filter(|rate| *rate > 0);
    }

    /// Says what part each file system that is written may have; true where there are several.
    pub(crate) fn share_out(&mut self, written: &[usize]) -> bool {
        let rates: Vec<_> = written.iter().map(|&volume| self.lines[volume].rate).collect();
        for (&volume, part) in written.iter().zip(self.throttle.parts(&rates)) {
            self.lines[volume].part = part;
        }
        written.len() > 1
    }

    /// Pages became dirty; true when the background level was crossed by it.
    pub(crate) fn add(&mut self, pages: u64) -> bool {
        let before = self.dirty;
        self.dirty += pages;
        before < self.throttle.background && self.dirty >= self.throttle.background
    }

    /// Pages granted to callers that write to a file system, and not taken yet.
    pub(crate) fn granted_for(&self, volume: usize) -> u64 {
        self.granted.values().filter(|(of, _)| *of == volume).map(|(_, pages)| pages).sum()
    }

    /// Pages are dirty no more, after which so many are of each file system; returns whom that lets
    /// on.
    pub(crate) fn remove(&mut self, pages: u64, mut of_volumes: Vec<u64>) -> Vec<usize> {
        assert!(self.dirty >= pages, "more pages cleaned than were dirty");
        self.dirty -= pages;
        let mut woken = Vec::new();
        while let Some((_, volume, grant)) = self.next_grant(&of_volumes) {
            let Some((_, caller)) = self.lines[volume].waiting.pop_front() else { break };
            self.add(grant);
            of_volumes[volume] += grant;
            self.granted.insert(caller, (volume, grant));
            woken.push(caller);
        }
        woken
    }

    fn next_grant(&self, of_volumes: &[u64]) -> Option<(u64, usize, u64)> {
        let lines = self.lines.iter().enumerate().filter_map(|(volume, line)| {
            let (number, _) = *line.waiting.front()?;
            let grant = self.throttle.grant(line.rate, line.waiting.len() as u64);
            let dirty = Dirty { all: self.dirty, of_device: of_volumes[volume], of_file: 0 };
            self.throttle.fits(dirty, line.part, grant).then_some((number, volume, grant))
        });
        lines.min()
    }

    /// A caller waits for a grant.
    pub(crate) fn queue(&mut self, caller: usize, volume: usize) {
        self.lines[volume].waiting.push_back((self.came, caller));
        self.came += 1;
    }

    /// What a caller was granted.
    pub(crate) fn take_grant(&mut self, caller: usize) -> u64 {
        self.granted.remove(&caller).map_or(0, |(_, pages)| pages)
    }
}
