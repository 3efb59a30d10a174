//! The bios of a file that are at the device: one entry per bio, found by the number that the bio
//! carries.

use std::ops::Range;

use crate::limits::PAGE;
use crate::space::Reservation;
use crate::ticket::TicketId;

/// One bio at the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Flight {
    /// Pages, direct.
    Pages(Pages),
    /// The page that contains the end of the file, up to the end.
    Tail { page: u64, length: u64 },
    /// These bytes of a shared file, through the kernel's cache.
    Exact { bytes: Range<u64> },
    /// Pages being read, for a reader that waits or ahead of one.
    Fill { pages: Range<u64>, waited: bool },
    /// A caller's own write, past the cache.
    Bypass,
    /// Space being allocated.
    Allocate(Reservation),
    /// Space below the end being given back, for a release.
    Punch,
    /// Space of this many bytes beyond the end being given back, for a release.
    GiveBack { bytes: u64 },
    /// A flush, and the tickets that it serves.
    Flush { serves: Vec<TicketId>, step: FlushStep },
    /// A change of length.
    SetLength { ticket: TicketId, length: u64 },
    /// Pages being discarded.
    Discard { ticket: TicketId, pages: Range<u64> },
}

/// Step of a sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FlushStep {
    /// The file.
    File,
    /// Its directory entry.
    Directory,
}

/// A run of pages at the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Pages {
    pub(crate) first: u64,
    pub(crate) count: u64,
    /// Kind of content of each stretch, in order.
    parts: Vec<(Range<u64>, Carries)>,
    /// Whether it moves the end of the file.
    pub(crate) extending: bool,
}

impl Pages {
    pub(crate) fn starting_at(first: u64) -> Self {
        Self { first, count: 0, parts: Vec::new(), extending: false }
    }

    pub(crate) fn push(&mut self, count: u64, carries: Carries) {
        let start = self.first + self.count;
        self.count += count;
        match self.parts.last_mut() {
            Some((pages, last)) if *last == carries => pages.end += count,
            _ => self.parts.push((start..start + count, carries)),
        }
    }

    pub(crate) fn parts(&self) -> &[(Range<u64>, Carries)] {
        &self.parts
    }

    /// Whether it carries more than dirty pages.
    pub(crate) fn has_more(&self) -> bool {
        self.parts.iter().any(|(_, carries)| *carries != Carries::Data)
    }

    /// The number of clean pages that it carries.
    pub(crate) fn clean(&self) -> u64 {
        let clean = self.parts.iter().filter(|(_, carries)| *carries == Carries::Clean);
        clean.map(|(pages, _)| pages.end - pages.start).sum()
    }
}

/// Content of a write for a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carries {
    /// The page's frame.
    Data,
    /// Zeroes over a known hole.
    Zeroes,
    /// The frame of a clean page, pinned meanwhile: nobody writes into it.
    Clean,
}

/// All bios of a file at the device.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    /// Without memory while nothing is in flight: an idle file has none, and the next flight finds
    /// that of another file in the processor's cache.
    slots: Vec<Option<Flight>>,
    free: Vec<u32>,
    /// Flights during which nothing else of the file may be sent.
    holding: usize,
    /// Of these, flights during which nothing of the file may be read either: they change the mode
    /// of the descriptor, or the length.
    alone: usize,
    extending: usize,
    flushing: usize,
    /// Fills ever sent.
    fills: u64,
    /// Pages of the exact flight. It sends them from the frames that they have.
    exact: Range<u64>,
}

impl Flights {
    pub(crate) fn start(&mut self, flight: Flight) -> u32 {
        if let Flight::Exact { bytes } = &flight {
            self.exact = bytes.start / PAGE..bytes.end.div_ceil(PAGE);
        }
        self.fills += u64::from(matches!(flight, Flight::Fill { .. }));
        self.count(&flight, 1);
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(flight);
                slot
            }
            None => {
                if self.slots.is_empty() {
                    self.slots.reserve_exact(1);
                }
                self.slots.push(Some(flight));
                self.slots.len() as u32 - 1
            }
        }
    }

    /// Ends a flight.
    ///
    /// # Panics
    /// If no flight has this number: a bio ends exactly once.
    pub(crate) fn end(&mut self, slot: u32) -> Flight {
        let flight = self.slots[slot as usize].take().expect("a bio ends exactly once");
        self.free.push(slot);
        if self.is_empty() {
            (self.slots, self.free) = (Vec::new(), Vec::new());
        }
        self.count(&flight, -1);
        if matches!(flight, Flight::Exact { .. }) {
            self.exact = 0..0;
        }
        flight
    }

    /// Returns a flight.
    ///
    /// # Panics
    /// If no flight has this number.
    pub(crate) fn get(&self, slot: u32) -> &Flight {
        self.slots[slot as usize].as_ref().expect("a bio that has not ended has a flight")
    }

    /// The numbers of the fills of a page.
    pub(crate) fn fills_of(&self, page: u64) -> impl Iterator<Item = u32> + '_ {
        let brings = move |flight: &Option<Flight>| matches!(flight, Some(Flight::Fill { pages, .. }) if pages.contains(&page));
        self.slots
            .iter()
            .enumerate()
            .filter(move |(_, flight)| brings(flight))
            .map(|(slot, _)| slot as u32)
    }

    /// Returns whether a page of a range is being read.
    pub(crate) fn fill_some_of(&self, range: &Range<u64>) -> bool {
        self.all().any(|flight| {
            matches!(flight, Flight::Fill { pages, .. }
                if pages.start < range.end && range.start < pages.end)
        })
    }

    /// Returns the number of pages from `page` on that are not being sent from the frames that they
    /// have: 0 if `page` is.
    pub(crate) fn unsent_from(&self, page: u64) -> u64 {
        let Range { start, end } = self.exact;
        if page < end { start.saturating_sub(page) } else { u64::MAX }
    }

    /// Flights at the device.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Flight> {
        self.slots.iter().flatten()
    }

    /// Asserts the invariants of this part.
    pub(crate) fn verify(&self) {
        let count =
            |counted: fn(&Flight) -> bool| self.all().filter(|flight| counted(flight)).count();
        assert_eq!(
            self.all().count(),
            self.slots.len() - self.free.len(),
            "a slot is free or used"
        );
        assert!(self.alone <= self.holding, "a flight that is alone holds the file");
        assert!(self.holding <= 1, "a flight that holds the file is not alone");
        assert!(self.extending <= 1, "two requests move the end of the file");
        assert_eq!(self.flushing, count(|flight| matches!(flight, Flight::Flush { .. })));
        let exact = count(|flight| matches!(flight, Flight::Exact { .. }));
        assert_eq!(exact > 0, !self.exact.is_empty(), "the pages of an exact flight are known");
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    pub(crate) fn is_held(&self) -> bool {
        self.holding > 0
    }

    pub(crate) fn are_alone(&self) -> bool {
        self.alone > 0
    }

    pub(crate) fn is_extending(&self) -> bool {
        self.extending > 0
    }

    /// Returns the number of the fill that was sent last. They are counted from 1.
    pub(crate) fn last_fill(&self) -> u64 {
        self.fills
    }

    pub(crate) fn is_flushing(&self) -> bool {
        self.flushing > 0
    }

    /// Whether one is at the device that only the holder of the file's lease may send. Looks at
    /// each.
    pub(crate) fn take_liberties(&self) -> bool {
        self.slots.iter().flatten().any(|flight| match flight {
            Flight::Pages(run) => run.has_more(),
            Flight::Punch | Flight::GiveBack { .. } => true,
            _ => false,
        })
    }

    /// Returns whether one gives space back. Looks at each.
    pub(crate) fn give_back(&self) -> bool {
        let gives_back =
            |flight: &Flight| matches!(flight, Flight::Punch | Flight::GiveBack { .. });
        self.all().any(gives_back)
    }

    fn count(&mut self, flight: &Flight, by: isize) {
        let is_alone = matches!(
            flight,
            Flight::Tail { .. }
                | Flight::Exact { .. }
                | Flight::GiveBack { .. }
                | Flight::SetLength { .. }
        );
        if is_alone {
            self.alone = self.alone.checked_add_signed(by).expect("a flight is counted once");
        }
        let counter = match flight {
            Flight::Tail { .. }
            | Flight::Exact { .. }
            | Flight::Allocate(_)
            | Flight::Punch
            | Flight::GiveBack { .. }
            | Flight::SetLength { .. } => &mut self.holding,
            Flight::Pages(pages) if pages.extending => &mut self.extending,
            Flight::Flush { .. } => &mut self.flushing,
            Flight::Pages(_) | Flight::Fill { .. } | Flight::Bypass | Flight::Discard { .. } => {
                return;
            }
        };
        *counter = counter.checked_add_signed(by).expect("a flight is counted once");
    }
}
