use std::collections::{BTreeMap, BTreeSet, VecDeque};

use forebay_block::random::{Random, mix};
use proptest::prelude::*;

use super::*;

/// A cache of pages without files: a page that is missing is read, after room was made for it.
trait Policy {
    /// Whether the page was there.
    fn ask(&mut self, page: u64) -> bool;
}

/// The evictor, with the least of a file: the frames of its pages, and their uses.
struct Small {
    evictor: Evictor,
    free: Vec<Frame>,
    pages: BTreeMap<u64, (Frame, u8)>,
}

const FILE: Target = Target(7);

impl Small {
    fn new(frames: u32) -> Self {
        let free = (0..frames).map(Frame).collect();
        Self { evictor: Evictor::new(frames), free, pages: BTreeMap::new() }
    }

    fn judge(&mut self, candidate: &mut Candidate) {
        let Some((frame, uses)) = self.pages.get_mut(&candidate.page) else {
            candidate.verdict = Verdict::Gone;
            return;
        };
        assert_eq!(*frame, candidate.frame);
        (candidate.verdict, *uses) = candidate.judge(*uses);
        if candidate.verdict == Verdict::Dropped {
            self.pages.remove(&candidate.page);
            self.evictor.leave(candidate.frame);
            self.free.push(candidate.frame);
        }
    }

    fn evict(&mut self, wanted: usize) {
        let mut looks = 0;
        while self.free.len() < wanted {
            let mut batch = Vec::new();
            assert!(self.evictor.candidates(wanted, &mut batch) > 0, "every page is in a queue");
            batch.iter_mut().for_each(|candidate| self.judge(candidate));
            self.evictor.settle(&batch);
            looks += 1;
            assert!(looks < 1000, "a page used three times goes after as many rounds");
        }
    }
}

impl Policy for Small {
    fn ask(&mut self, page: u64) -> bool {
        if let Some((_, uses)) = self.pages.get_mut(&page) {
            *uses = (*uses + 1).min(3);
            return true;
        }
        if self.free.is_empty() {
            self.evict(4);
        }
        let frame = self.free.pop().expect("room was made");
        self.pages.insert(page, (frame, 0));
        self.evictor.enter(FILE, page, frame);
        false
    }
}

struct Fifo {
    frames: usize,
    queue: VecDeque<u64>,
    pages: BTreeSet<u64>,
}

impl Policy for Fifo {
    fn ask(&mut self, page: u64) -> bool {
        if !self.pages.insert(page) {
            return true;
        }
        self.queue.push_back(page);
        if self.queue.len() > self.frames {
            let gone = self.queue.pop_front().expect("there is one");
            self.pages.remove(&gone);
        }
        false
    }
}

#[derive(Default)]
struct Lru {
    frames: usize,
    time: u64,
    used: BTreeMap<u64, u64>,
    order: BTreeMap<u64, u64>,
}

impl Policy for Lru {
    fn ask(&mut self, page: u64) -> bool {
        self.time += 1;
        self.order.insert(self.time, page);
        let before = self.used.insert(page, self.time);
        if let Some(before) = before {
            self.order.remove(&before);
        } else if self.order.len() > self.frames {
            let (_, gone) = self.order.pop_first().expect("there is one");
            self.used.remove(&gone);
        }
        before.is_some()
    }
}

/// Draws pages by Zipf's law: the n-th most wanted page is wanted 1/n^`skew` times as often as the
/// first.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(pages: usize, skew: f64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=pages).map(|rank| {
            sum += (rank as f64).powf(-skew);
            sum
        });
        Self(sums.collect())
    }

    fn draw(&self, random: &mut Random) -> u64 {
        let unit = (random.draw() >> 11) as f64 / (1_u64 << 53) as f64;
        let wanted = unit * self.0.last().expect("there are pages");
        // Ranks are spread over the file.
        mix(self.0.partition_point(|sum| *sum < wanted) as u64) >> 20
    }
}

const FRAMES: u32 = 2000;

/// The part of the requests for wanted pages that is there, in per cent, after a time of warming
/// up. A scan interrupts at an interval: it reads pages that nobody reads again.
fn hits(policy: &mut dyn Policy, skew: f64, scan: Option<(usize, u64)>) -> f64 {
    let (zipf, mut random) = (Zipf::new(20_000, skew), Random::new(42));
    let (mut asked, mut found, mut scanned) = (0, 0, 1 << 60);
    for step in 0..200_000 {
        if let Some((every, length)) = scan
            && step % every == 0
        {
            (scanned..scanned + length).for_each(|page| assert!(!policy.ask(page)));
            scanned += length;
        }
        let there = policy.ask(zipf.draw(&mut random));
        if step >= 50_000 {
            asked += 1;
            found += u64::from(there);
        }
    }
    found as f64 * 100.0 / f64::from(asked)
}

fn compared(skew: f64, scan: Option<(usize, u64)>) -> [f64; 3] {
    let frames = FRAMES as usize;
    let own = hits(&mut Small::new(FRAMES), skew, scan);
    let fifo =
        hits(&mut Fifo { frames, queue: VecDeque::new(), pages: BTreeSet::new() }, skew, scan);
    let lru = hits(&mut Lru { frames, ..Lru::default() }, skew, scan);
    println!(
        "skew {skew}, scans {scan:?}: {own:.1} % of wanted pages there; fifo {fifo:.1}, lru {lru:.1}"
    );
    [own, fifo, lru]
}

#[test]
fn a_scan_does_not_push_out_what_is_wanted() {
    for skew in [0.8, 1.0] {
        for scan in [(2000, 4000), (500, 1000), (10, 10)] {
            let [own, fifo, lru] = compared(skew, Some(scan));
            assert!(own > fifo + 5.0 && own > lru + 5.0);
        }
    }
}

#[test]
fn without_scans_nothing_is_lost() {
    for skew in [0.6, 0.8, 1.0, 1.2] {
        let [own, fifo, lru] = compared(skew, None);
        assert!(own > fifo - 1.0 && own > lru - 1.0);
    }
}

/// Another set of pages is wanted from now on: the old one does not stay for ever.
#[test]
fn what_is_wanted_no_more_goes() {
    let mut cache = Small::new(1000);
    for round in 0..20 {
        (0..800).for_each(|page| assert_eq!(cache.ask(page), round > 0));
    }
    let mut found = 0;
    for _ in 0..20 {
        found = (10_000..10_800).filter(|page| cache.ask(*page)).count();
    }
    assert!(found > 780, "{found} of 800");
}

/// S3-FIFO as published: two lists and a table of ghosts.
struct Naive {
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    ghost: Ghost,
    uses: BTreeMap<u64, u8>,
}

impl Naive {
    fn hash(page: u64) -> u64 {
        Evictor::new(1).hash(FILE, page)
    }

    fn ask(&mut self, page: u64) {
        if let Some(uses) = self.uses.get_mut(&page) {
            *uses = (*uses + 1).min(3);
            return;
        }
        self.uses.insert(page, 0);
        if self.ghost.take(Self::hash(page)) {
            self.main.push_back(page);
        } else {
            self.small.push_back(page);
        }
    }

    fn evict_one(&mut self) -> Option<u64> {
        loop {
            let all = self.small.len() + self.main.len();
            if !self.small.is_empty() && self.small.len() * SMALL_ONE_IN >= all
                || self.main.is_empty()
            {
                let page = self.small.pop_front()?;
                if self.uses[&page] == 0 {
                    self.ghost.remember(Self::hash(page));
                    self.uses.remove(&page);
                    return Some(page);
                }
                self.uses.insert(page, 0);
                self.main.push_back(page);
            } else {
                let page = self.main.pop_front()?;
                if self.uses[&page] == 0 {
                    self.uses.remove(&page);
                    return Some(page);
                }
                *self.uses.get_mut(&page).expect("it is there") -= 1;
                self.main.push_back(page);
            }
        }
    }

    fn drop(&mut self, page: u64) {
        self.uses.remove(&page);
        self.small.retain(|listed| *listed != page);
        self.main.retain(|listed| *listed != page);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Ask(u64),
    Evict(usize),
    Drop(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0_u64..60).prop_map(Step::Ask),
        3 => (1_usize..6).prop_map(Step::Evict),
        1 => (0_u64..60).prop_map(Step::Drop),
    ];
    proptest::collection::vec(step, 1..400)
}

proptest! {
    /// Asked one by one, pages go in exactly the order of the two lists.
    #[test]
    fn model_of_the_two_queues(steps in steps()) {
        let mut own = Small::new(64);
        let ghost = Ghost::new(64 - 6);
        let mut reported =
            Naive { small: VecDeque::new(), main: VecDeque::new(), ghost, uses: BTreeMap::new() };
        for step in steps {
            match step {
                Step::Ask(page) => {
                    own.ask(page);
                    reported.ask(page);
                }
                Step::Evict(wanted) => {
                    for _ in 0..wanted {
                        let gone = reported.evict_one();
                        let before: Vec<u64> = own.pages.keys().copied().collect();
                        let all = own.free.len();
                        while own.free.len() == all && !own.evictor.is_empty() {
                            let mut batch = Vec::new();
                            own.evictor.candidates(1, &mut batch);
                            own.judge(&mut batch[0]);
                            own.evictor.settle(&batch);
                        }
                        let went = before.into_iter().find(|page| !own.pages.contains_key(page));
                        prop_assert_eq!(went, gone);
                    }
                }
                Step::Drop(page) => {
                    reported.drop(page);
                    if let Some((frame, _)) = own.pages.remove(&page) {
                        own.evictor.leave(frame);
                        own.free.push(frame);
                    }
                }
            }
            prop_assert_eq!(own.evictor.len(), own.pages.len());
            prop_assert_eq!(own.evictor.small.length, reported.small.len());
        }
    }

    /// However batches overlap with frames that leave and come again, every clean page is in a
    /// queue or in one batch, once, and no free frame is.
    #[test]
    fn pages_are_neither_lost_nor_doubled(steps in proptest::collection::vec((0_u8..6, 0_u64..40, any::<u8>()), 1..300)) {
        let mut evictor = Evictor::new(16);
        let mut free: Vec<Frame> = (0..16).map(Frame).collect();
        let mut pages: BTreeMap<u64, Frame> = BTreeMap::new();
        let mut out: VecDeque<Vec<Candidate>> = VecDeque::new();
        for (what, page, choice) in steps {
            match what {
                0 | 1 => {
                    if !pages.contains_key(&page) && let Some(frame) = free.pop() {
                        pages.insert(page, frame);
                    }
                    if let Some(frame) = pages.get(&page) {
                        evictor.enter(FILE, page, *frame);
                    }
                }
                2 => {
                    if let Some(frame) = pages.remove(&page) {
                        evictor.leave(frame);
                        free.insert(usize::from(choice) % (free.len() + 1), frame);
                    }
                }
                3 | 4 => {
                    let mut batch = Vec::new();
                    evictor.candidates(1 + usize::from(choice) % 4, &mut batch);
                    out.push_back(batch);
                }
                _ => {
                    let Some(mut batch) = out.pop_front() else { continue };
                    for candidate in &mut batch {
                        let is_its = pages.get(&candidate.page) == Some(&candidate.frame);
                        candidate.verdict = match (is_its, choice % 3) {
                            (false, _) => Verdict::Gone,
                            (true, 0) => {
                                pages.remove(&candidate.page);
                                evictor.leave(candidate.frame);
                                free.push(candidate.frame);
                                Verdict::Dropped
                            }
                            (true, 1) => Verdict::Stays,
                            (true, _) => Verdict::Unread,
                        };
                    }
                    evictor.settle(&batch);
                }
            }
            let queued = walk(&evictor);
            prop_assert_eq!(queued.len(), evictor.len());
            prop_assert!(free.iter().all(|frame| !queued.contains_key(frame)));
            for (page, frame) in &pages {
                let asked = out.iter().flatten().any(|candidate| candidate.frame == *frame);
                prop_assert!(queued.get(frame) == Some(page) || asked, "page {} is lost", page);
            }
        }
        out.iter().for_each(|batch| evictor.settle(batch));
    }
}

/// Every frame that is in a queue, with its page.
fn walk(evictor: &Evictor) -> BTreeMap<Frame, u64> {
    let mut found = BTreeMap::new();
    for (queue, place) in [(evictor.small, Place::Small), (evictor.main, Place::Main)] {
        let (mut at, mut before, mut length) = (queue.first, NONE, 0);
        while at != NONE {
            let slot = evictor.slots.get(at);
            assert_eq!((slot.place, slot.before), (place, before));
            assert!(found.insert(Frame(at), slot.page).is_none());
            (before, at, length) = (at, slot.after, length + 1);
        }
        assert_eq!((length, before), (queue.length, queue.last));
    }
    found
}

#[test]
fn memory_is_taken_for_what_was_entered() {
    let mut evictor = Evictor::new(1 << 20);
    assert_eq!(evictor.slots.bytes(), 0);
    evictor.leave(Frame(5));
    assert_eq!(evictor.slots.bytes(), 0);
    (0..1000).for_each(|page| evictor.enter(Target(0), page, Frame(page as u32)));
    assert!(evictor.slots.bytes() <= 24 << 10, "{}", evictor.slots.bytes());
}

#[test]
fn a_file_that_is_closed_leaves_no_ghosts_to_the_next() {
    let mut evictor = Evictor::new(100);
    let go = |evictor: &mut Evictor| {
        (0..50).for_each(|page| evictor.enter(FILE, u64::from(page), Frame(page)));
        let mut batch = Vec::new();
        evictor.candidates(50, &mut batch);
        batch.iter_mut().for_each(|candidate| candidate.verdict = Verdict::Dropped);
        evictor.settle(&batch);
    };
    go(&mut evictor);
    evictor.enter(FILE, 1, Frame(1));
    assert_eq!(evictor.main.length, 1, "asked for again soon");
    evictor.leave(Frame(1));
    go(&mut evictor);
    evictor.forget(FILE);
    evictor.enter(FILE, 1, Frame(1));
    assert_eq!(evictor.main.length, 0, "another file's page of that number");
}
