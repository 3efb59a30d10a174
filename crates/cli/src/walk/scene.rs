//! A walk of requests: a handful of bios in four acts, on any device.
//!
//! ```text
//! size     page 0 .. 9 of a file that was empty
//! writes   0  8  1  2     held together: 0, 1 and 2 touch, and become one request
//! flush
//! read     7 .. 11        the file ends after 9: short, asked again, ended
//! ```
//!
//! The size is a whole number of pages, so that what is left of the short read is aligned on every
//! device; and it is set first, for a file's end is moved by one request at a time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use forebay_block::limits::{DEVICE_HOLD, PAGE};
use forebay_block::{
    Bio, Class, Completion, Device, Errno, Frame, Moment, Operation, Queue, Refused, Segment,
    Segments, Source, Step, Tag, Wait, Walk,
};

use super::TARGET;

/// Frames of the arena that are used.
pub(crate) const FRAMES: u32 = 8;

/// Pages of the file.
const PAGES: u64 = 9;

/// A line of a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Line {
    /// An act begins.
    Act(&'static str),
    /// A step was made, so long after the first act began.
    Step { after: Duration, step: Step },
}

/// Walks all acts; errors of bios are in their lines.
///
/// # Errors
/// Only when the device itself is broken.
pub(crate) fn walk(device: impl Device) -> Result<Vec<Line>, Errno> {
    let mut device = Stamped { device, now: Rc::default() };
    let start = device.stamp();
    let watcher = Watcher { now: Rc::clone(&device.now), start, lines: Rc::default() };
    let lines = Rc::clone(&watcher.lines);
    let mut queue = Queue::with_walk(watcher);
    for act in acts() {
        lines.borrow_mut().push(Line::Act(act.title));
        play(act, &mut queue, &mut device)?;
    }
    drop(queue);
    Ok(lines.take())
}

/// Bios that are submitted together.
struct Act {
    title: &'static str,
    bios: Vec<Bio>,
    /// Requests they make: so many are waited for together.
    requests: u32,
}

fn acts() -> [Act; 4] {
    let size = bio(Operation::SetLength, PAGES, 0);
    let mut writes = [(0, 0), (8, 3), (1, 1), (2, 2)]
        .map(|(page, frame)| Placed { page, pages: 1, frame }.write());
    writes.iter_mut().zip(1..).for_each(|(bio, owner)| bio.owner = owner);
    [
        Act {
            title: "set the size of the file to 9 pages: no data moves",
            bios: vec![size],
            requests: 1,
        },
        Act {
            title: "four writes at once; three are adjacent, and the plug merges them into one request",
            bios: writes.into(),
            requests: 2,
        },
        Act {
            title: "a flush: it covers the writes that have ended",
            bios: vec![bio(Operation::FlushData, 0, 0)],
            requests: 1,
        },
        Act {
            title: "read pages 7 to 10 of a file that ends after page 8: the read is short, so the rest is read again",
            bios: vec![Placed { page: 7, pages: 4, frame: 4 }.read()],
            requests: 1,
        },
    ]
}

/// Pages of the file, and the frames they are in.
struct Placed {
    page: u64,
    pages: u64,
    frame: u32,
}

impl Placed {
    fn write(&self) -> Bio {
        self.moving(Operation::Write)
    }

    fn read(&self) -> Bio {
        self.moving(Operation::Read)
    }

    fn moving(&self, operation: Operation) -> Bio {
        let segment = Segment::frames(Frame(self.frame), self.pages as u32 * PAGE as u32);
        Bio { segments: Segments::from([segment]), ..bio(operation, self.page, self.pages) }
    }
}

fn bio(operation: Operation, page: u64, pages: u64) -> Bio {
    Bio {
        operation,
        target: TARGET,
        offset: page * PAGE as u64,
        length: pages * PAGE as u64,
        segments: Segments::new(),
        class: Class::Waited,
        source: Source(0),
        owner: 0,
    }
}

/// Submits an act's bios, and sees them to their end.
fn play<W: Walk>(
    act: Act,
    queue: &mut Queue<W>,
    device: &mut Stamped<impl Device>,
) -> Result<(), Errno> {
    let mut left = act.bios.len();
    for bio in act.bios {
        device.stamp();
        queue.submit(bio);
    }
    let mut wait = Wait::Batch { want: act.requests, within: DEVICE_HOLD, limit: None };
    let mut ended = Vec::new();
    while left > 0 {
        queue.dispatch(device, wait)?;
        device.stamp();
        left -= queue.run(device, &mut ended);
        wait = Wait::Something(None);
    }
    Ok(())
}

/// Records each step with its time.
#[derive(Debug)]
struct Watcher {
    now: Rc<Cell<Moment>>,
    start: Moment,
    lines: Rc<RefCell<Vec<Line>>>,
}

impl Walk for Watcher {
    fn step(&mut self, step: Step) {
        let after = self.now.get().since(self.start);
        self.lines.borrow_mut().push(Line::Step { after, step });
    }
}

/// The device, with a note of what time it is that a watcher can read.
#[derive(Debug)]
struct Stamped<D> {
    device: D,
    now: Rc<Cell<Moment>>,
}

impl<D: Device> Stamped<D> {
    fn stamp(&mut self) -> Moment {
        let now = self.device.now();
        self.now.set(now);
        now
    }
}

impl<D: Device> Device for Stamped<D> {
    fn now(&mut self) -> Moment {
        self.stamp()
    }

    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        self.stamp();
        self.device.prepare(tag, request)
    }

    fn doorbell(&mut self, wait: Wait) -> Result<(), Errno> {
        let rung = self.device.doorbell(wait);
        self.stamp();
        rung
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.device.reap(completions);
    }
}

#[cfg(test)]
pub(super) mod tests;
