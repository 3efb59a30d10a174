//! What of a file is at the device: one entry per bio, found again by the number the bio carries.

use std::ops::Range;

use crate::ticket::TicketId;

/// One bio at the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Flight {
    /// Pages, direct.
    Pages(Pages),
    /// The page that contains the end of the file, up to the end.
    Tail { page: u64, length: u64 },
    /// Pages being read.
    Fill { pages: Range<u64> },
    /// Space being allocated.
    Allocate { bytes: Range<u64> },
    /// Space below the end being given back, for a release.
    Punch,
    /// Space beyond the end being given back, for a release.
    GiveBack,
    /// A flush, and whom it serves. `directory` tells that it is the directory's.
    Flush { serves: Vec<TicketId>, step: FlushStep },
    /// A change of length.
    SetLength { ticket: TicketId, length: u64 },
}

/// Where a sync has got to.
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
    /// A bit per page of the run: its data was sent (else zeroes were).
    pub(crate) carried: Vec<u64>,
    /// Whether it moves the end of the file.
    pub(crate) extending: bool,
}

impl Pages {
    pub(crate) fn starting_at(first: u64) -> Self {
        Self { first, count: 0, carried: Vec::new(), extending: false }
    }

    pub(crate) fn push(&mut self, carries: Carries) {
        let (word, bit) = ((self.count / 64) as usize, self.count % 64);
        if word == self.carried.len() {
            self.carried.push(0);
        }
        if carries == Carries::Data {
            self.carried[word] |= 1 << bit;
        }
        self.count += 1;
    }

    pub(crate) fn pages(&self) -> impl Iterator<Item = (u64, Carries)> + '_ {
        (0..self.count).map(|at| {
            let data = self.carried[(at / 64) as usize] & (1 << (at % 64)) != 0;
            (self.first + at, if data { Carries::Data } else { Carries::Zeroes })
        })
    }
}

/// What a write carries for a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carries {
    /// The page's frame.
    Data,
    /// Zeroes over a known hole.
    Zeroes,
}

/// All bios of a file at the device.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    slots: Vec<Option<Flight>>,
    free: Vec<u32>,
    /// Flights during which nothing else of the file may be sent.
    holding: usize,
    extending: usize,
    flushing: usize,
}

impl Flights {
    pub(crate) fn start(&mut self, flight: Flight) -> u32 {
        self.count(&flight, 1);
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(flight);
                slot
            }
            None => {
                self.slots.push(Some(flight));
                self.slots.len() as u32 - 1
            }
        }
    }

    /// Ends a flight.
    ///
    /// # Panics
    /// When there is none of this number: a bio ends exactly once.
    pub(crate) fn end(&mut self, slot: u32) -> Flight {
        let flight = self.slots[slot as usize].take().expect("a bio ends exactly once");
        self.free.push(slot);
        self.count(&flight, -1);
        flight
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    pub(crate) fn is_held(&self) -> bool {
        self.holding > 0
    }

    pub(crate) fn is_extending(&self) -> bool {
        self.extending > 0
    }

    pub(crate) fn is_flushing(&self) -> bool {
        self.flushing > 0
    }

    fn count(&mut self, flight: &Flight, by: isize) {
        let counter = match flight {
            Flight::Tail { .. }
            | Flight::Allocate { .. }
            | Flight::Punch
            | Flight::GiveBack
            | Flight::SetLength { .. } => &mut self.holding,
            Flight::Pages(pages) if pages.extending => &mut self.extending,
            Flight::Flush { .. } => &mut self.flushing,
            Flight::Pages(_) | Flight::Fill { .. } => return,
        };
        *counter = counter.checked_add_signed(by).expect("a flight is counted once");
    }
}
