//! Pages that need more than one frame and the bits of their chunk: one record per such page.
//!
//! A page usually has one frame that is equal to the device, or newer, in all of its bytes. These
//! pages have more to them:
//!
//! ```text
//!            touched while it is sent             its write ended, a copy is being made
//!   Plain ---------------------------> Displaced ---------------------------------------> Copied
//!     |                                    |                                              |
//!     |                                    +--its write ended--> Plain <----published-----+
//!     +--a part is written, the rest is on the device--> Partial --whole--> Plain
//! ```
//!
//! Beside its [`Content`], a page of a shared file may have a record of the bytes that are ours
//! ([`Exact`]), and any page may have fills on their way whose frames are not the page's own.
//!
//! Invariants:
//! - a partial page has no older version: only whole pages are sent direct;
//! - an older version at the device and one whose write has ended exclude each other: a page that
//!   is being copied into is not sent;
//! - no record says nothing;
//! - a partial page that waits for a fill has a frame arriving with that fill.
//!
//! The bits of the index agree with these records; `verify.rs` checks that.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use forebay_block::Frame;

use crate::partial::{Exact, Partial, Rest};

/// Content of a page.
#[derive(Debug, Default)]
pub(crate) enum Content {
    /// Its frame.
    #[default]
    Plain,
    /// Its frame, and an older version that is at the device in a frame of its own, with the epoch
    /// of that version.
    Displaced { frame: Frame, epoch: u64 },
    /// Its frame, which is being copied into. The write of an older version has ended meanwhile.
    Copied(Older),
    /// Some bytes in its frame. The others are elsewhere.
    Partial(Box<PartialPage>),
}

/// Content of a partial page.
#[derive(Debug)]
pub(crate) struct PartialPage {
    partial: Partial,
    /// An epoch as in [`Older::Owed`].
    owed: Option<u64>,
}

impl PartialPage {
    pub(crate) fn owes(&self) -> bool {
        self.owed.is_some()
    }
}

/// Rest of an older version, held until the copy over it is published.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Older {
    /// Its frame. The copy may read from it.
    Parked(Frame),
    /// Its epoch: it was not written, so the copy stands for both versions.
    Owed(u64),
    /// Both.
    ParkedOwed(Frame, u64),
}

impl Older {
    fn frame(self) -> Option<Frame> {
        match self {
            Self::Parked(frame) | Self::ParkedOwed(frame, _) => Some(frame),
            Self::Owed(_) => None,
        }
    }

    fn epoch(self) -> Option<u64> {
        match self {
            Self::Owed(epoch) | Self::ParkedOwed(_, epoch) => Some(epoch),
            Self::Parked(_) => None,
        }
    }
}

/// Record of one page. It is small, because every page touched at the device has one for a while.
#[derive(Debug, Default)]
struct OddPage {
    content: Content,
    more: Option<Box<More>>,
}

/// Rare parts of a record.
#[derive(Debug, Default)]
struct More {
    /// Bytes that are ours; all of them without a record.
    exact: Option<Exact>,
    /// Fills on their way, by flight, with the frames that they read into. A later write may have
    /// made any of them useless.
    arriving: Vec<(u32, Frame)>,
}

impl OddPage {
    fn is_plain(&self) -> bool {
        matches!(self.content, Content::Plain) && self.more.is_none()
    }

    fn exact(&self) -> Option<&Exact> {
        self.more.as_ref()?.exact.as_ref()
    }

    fn arriving(&self) -> &[(u32, Frame)] {
        self.more.as_ref().map_or(&[], |more| &more.arriving)
    }

    fn owed(&self) -> Option<u64> {
        match &self.content {
            Content::Copied(older) => older.epoch(),
            Content::Partial(page) => page.owed,
            Content::Plain | Content::Displaced { .. } => None,
        }
    }
}

/// Numbers of records of each kind, so that a file without such pages pays for no look-up.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Tally {
    /// Pages with something left of an older version: parked frames and owed epochs.
    left: usize,
    partial: usize,
    exact: usize,
    arriving: usize,
}

/// The odd pages of one file.
#[derive(Debug, Default)]
pub(crate) struct OddPages {
    pages: BTreeMap<u64, OddPage>,
    tally: Tally,
}

impl OddPages {
    // Older versions

    /// A page at the device is touched: its version there keeps the frame.
    pub(crate) fn displace(&mut self, page: u64, frame: Frame, epoch: u64) {
        let odd = self.pages.entry(page).or_default();
        debug_assert!(matches!(odd.content, Content::Plain), "two older versions of page {page}");
        odd.content = Content::Displaced { frame, epoch };
    }

    pub(crate) fn is_displaced(&self, page: u64) -> bool {
        let odd = self.pages.get(&page);
        odd.is_some_and(|odd| matches!(odd.content, Content::Displaced { .. }))
    }

    /// Gives the older version of a page at the device another epoch, and returns the one before.
    pub(crate) fn redate_displaced(&mut self, page: u64, epoch: u64) -> Option<u64> {
        match &mut self.pages.get_mut(&page)?.content {
            Content::Displaced { epoch: before, .. } => Some(std::mem::replace(before, epoch)),
            _ => None,
        }
    }

    /// The write of an older version has ended. Returns its frame and its epoch.
    pub(crate) fn end_displaced(&mut self, page: u64) -> Option<(Frame, u64)> {
        let mut odd = self.pages.remove(&page)?;
        let displaced = match odd.content {
            Content::Displaced { frame, epoch } => {
                odd.content = Content::Plain;
                Some((frame, epoch))
            }
            _ => None,
        };
        // Nearly every displaced page has nothing else to its record.
        if !odd.is_plain() {
            self.pages.insert(page, odd);
        }
        displaced
    }

    /// Keeps the frame of an ended older version until the copy over it is published.
    pub(crate) fn park(&mut self, page: u64, frame: Frame) {
        let content = &mut self.pages.entry(page).or_default().content;
        debug_assert!(matches!(content, Content::Plain), "page {page} has an older version");
        *content = Content::Copied(Older::Parked(frame));
        self.tally.left += 1;
    }

    pub(crate) fn is_parked(&self, page: u64) -> bool {
        let content = self.pages.get(&page).map(|odd| &odd.content);
        matches!(content, Some(Content::Copied(older)) if older.frame().is_some())
    }

    /// An older version of a page that is being copied into was not written: the copy takes over
    /// its epoch. Returns whether the page owed none before.
    pub(crate) fn owe(&mut self, page: u64, epoch: u64) -> bool {
        let odd = self.pages.entry(page).or_default();
        let owed_before = odd.owed();
        match &mut odd.content {
            content @ Content::Plain => {
                *content = Content::Copied(Older::Owed(epoch));
                self.tally.left += 1;
            }
            Content::Copied(older) => {
                *older = older
                    .frame()
                    .map_or(Older::Owed(epoch), |frame| Older::ParkedOwed(frame, epoch));
            }
            Content::Partial(page) => {
                page.owed = Some(epoch);
                self.tally.left += usize::from(owed_before.is_none());
            }
            Content::Displaced { .. } => {
                unreachable!("page {page} is at the device, and owes an epoch")
            }
        }
        owed_before.is_none()
    }

    pub(crate) fn is_owed(&self, page: u64) -> bool {
        self.tally.left > 0 && self.pages.get(&page).is_some_and(|odd| odd.owed().is_some())
    }

    /// Returns whether a page has something left of an older version.
    pub(crate) fn has_left(&self) -> bool {
        self.tally.left > 0
    }

    /// A copy was published. Returns what an older version has left: its frame and its epoch.
    pub(crate) fn end_copy(&mut self, page: u64) -> (Option<Frame>, Option<u64>) {
        let Some(odd) = self.pages.get_mut(&page) else { return (None, None) };
        let left = match &mut odd.content {
            Content::Copied(older) => {
                let left = (older.frame(), older.epoch());
                odd.content = Content::Plain;
                left
            }
            Content::Partial(page) if page.owes() => (None, page.owed.take()),
            _ => return (None, None),
        };
        self.tally.left -= 1;
        self.tidy(page);
        left
    }

    // Partial pages

    pub(crate) fn has_partials(&self) -> bool {
        self.tally.partial > 0
    }

    pub(crate) fn begin_partial(&mut self, page: u64, partial: Partial) {
        let content = &mut self.pages.entry(page).or_default().content;
        assert!(matches!(content, Content::Plain), "page {page} has other content: {content:?}");
        *content = Content::Partial(Box::new(PartialPage { partial, owed: None }));
        self.tally.partial += 1;
    }

    pub(crate) fn partial(&self, page: u64) -> Option<&Partial> {
        if self.tally.partial == 0 {
            return None;
        }
        match &self.pages.get(&page)?.content {
            Content::Partial(page) => Some(&page.partial),
            _ => None,
        }
    }

    pub(crate) fn partial_mut(&mut self, page: u64) -> Option<&mut Partial> {
        if self.tally.partial == 0 {
            return None;
        }
        match &mut self.pages.get_mut(&page)?.content {
            Content::Partial(page) => Some(&mut page.partial),
            _ => None,
        }
    }

    /// Partial pages in order.
    pub(crate) fn partials(&self) -> impl Iterator<Item = (u64, &Partial)> {
        let pages = self.pages.iter().filter_map(|(page, odd)| match &odd.content {
            Content::Partial(odd) => Some((*page, &odd.partial)),
            _ => None,
        });
        pages.take(self.tally.partial)
    }

    /// The page is whole now, or is dropped. Returns its record.
    pub(crate) fn end_partial(&mut self, page: u64) -> Option<Partial> {
        if self.tally.partial == 0 {
            return None;
        }
        let odd = self.pages.get_mut(&page)?;
        let Content::Partial(content) = &odd.content else { return None };
        let rest = content.owed.map_or(Content::Plain, |epoch| Content::Copied(Older::Owed(epoch)));
        let Content::Partial(content) = std::mem::replace(&mut odd.content, rest) else {
            unreachable!("matched above")
        };
        self.tally.partial -= 1;
        self.tidy(page);
        Some(content.partial)
    }

    // Exact pages

    pub(crate) fn has_exact(&self) -> bool {
        self.tally.exact > 0
    }

    pub(crate) fn exact(&self, page: u64) -> Option<&Exact> {
        if self.tally.exact == 0 {
            return None;
        }
        self.pages.get(&page)?.exact()
    }

    pub(crate) fn exact_mut(&mut self, page: u64) -> Option<&mut Exact> {
        if self.tally.exact == 0 {
            return None;
        }
        self.pages.get_mut(&page)?.more.as_mut()?.exact.as_mut()
    }

    pub(crate) fn set_exact(&mut self, page: u64, exact: Exact) {
        let before = self.more(page).exact.replace(exact);
        self.tally.exact += usize::from(before.is_none());
    }

    /// Returns whether the page had a record of its bytes.
    pub(crate) fn end_exact(&mut self, page: u64) -> bool {
        if self.tally.exact == 0 {
            return false;
        }
        let more = self.pages.get_mut(&page).and_then(|odd| odd.more.as_mut());
        let had = more.is_some_and(|more| more.exact.take().is_some());
        if had {
            self.tally.exact -= 1;
            self.tidy(page);
        }
        had
    }

    // Fills apart

    pub(crate) fn has_arriving(&self) -> bool {
        self.tally.arriving > 0
    }

    /// A fill reads into a frame that is not the page's own.
    pub(crate) fn begin_arriving(&mut self, flight: u32, page: u64, frame: Frame) {
        debug_assert!(!self.is_arriving(flight, page), "a fill brings a page once");
        self.more(page).arriving.push((flight, frame));
        self.tally.arriving += 1;
    }

    pub(crate) fn is_arriving(&self, flight: u32, page: u64) -> bool {
        let odd = self.pages.get(&page);
        odd.is_some_and(|odd| odd.arriving().iter().any(|(of, _)| *of == flight))
    }

    /// A fill has ended. Returns the frame that it read into, if that is not the page's own.
    pub(crate) fn end_arriving(&mut self, flight: u32, page: u64) -> Option<Frame> {
        let more = self.pages.get_mut(&page)?.more.as_mut()?;
        let at = more.arriving.iter().position(|(of, _)| *of == flight)?;
        let (_, frame) = more.arriving.swap_remove(at);
        self.tally.arriving -= 1;
        self.tidy(page);
        Some(frame)
    }

    // Checks

    fn more(&mut self, page: u64) -> &mut More {
        self.pages.entry(page).or_default().more.get_or_insert_default()
    }

    /// Drops what has become empty of a record.
    fn tidy(&mut self, page: u64) {
        let Entry::Occupied(mut odd) = self.pages.entry(page) else { return };
        let is_empty = |more: &mut Box<More>| more.exact.is_none() && more.arriving.is_empty();
        odd.get_mut().more.take_if(is_empty);
        if odd.get().is_plain() {
            odd.remove();
        }
    }

    /// Number of records.
    #[cfg(debug_assertions)]
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    /// All records: the page, its content, and whether only some of its bytes are ours.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, &Content, bool)> {
        self.pages.iter().map(|(page, odd)| (*page, &odd.content, odd.exact().is_some()))
    }

    /// Asserts the invariants of this part.
    pub(crate) fn verify(&self) {
        let mut tally = Tally::default();
        for (page, odd) in &self.pages {
            assert!(!odd.is_plain(), "the record of page {page} says nothing");
            tally.left += usize::from(matches!(odd.content, Content::Copied(_)));
            tally.exact += usize::from(odd.exact().is_some());
            tally.arriving += odd.arriving().len();
            if let Content::Partial(content) = &odd.content {
                let partial = &content.partial;
                tally.partial += 1;
                tally.left += usize::from(content.owes());
                if let Rest::OnTheWay(flight) = partial.rest() {
                    let arrives = odd.arriving().iter().any(|(of, _)| *of == flight);
                    assert!(arrives, "page {page} waits for a fill without a frame");
                }
            }
        }
        assert_eq!(self.tally, tally, "records are counted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 7;

    #[test]
    fn a_version_whose_write_failed_during_a_copy_is_owed_until_it_is_published() {
        let mut odd = OddPages::default();
        odd.displace(PAGE, Frame(1), 5);
        assert!(odd.is_displaced(PAGE) && !odd.has_left());
        assert_eq!(odd.end_displaced(PAGE), Some((Frame(1), 5)));
        assert_eq!((odd.end_displaced(PAGE), odd.len()), (None, 0));
        odd.park(PAGE, Frame(1));
        assert!(odd.owe(PAGE, 5) && odd.is_parked(PAGE) && odd.is_owed(PAGE));
        assert!(!odd.owe(PAGE, 0), "it owes one epoch");
        odd.verify();
        assert_eq!(odd.end_copy(PAGE), (Some(Frame(1)), Some(0)));
        assert_eq!((odd.end_copy(PAGE), odd.len()), ((None, None), 0));
        odd.verify();
    }

    #[test]
    fn a_partial_page_that_owes_is_made_whole_and_still_owes() {
        let mut odd = OddPages::default();
        odd.begin_partial(PAGE, Partial::new(Rest::OnDevice(Frame(2))));
        assert!(odd.owe(PAGE, 3));
        odd.verify();
        assert!(odd.end_partial(PAGE).is_some() && odd.end_partial(PAGE).is_none());
        odd.verify();
        assert_eq!(odd.end_copy(PAGE), (None, Some(3)));
        assert_eq!(odd.len(), 0);
    }

    #[test]
    fn two_fills_of_a_page_are_distinguished() {
        let mut odd = OddPages::default();
        odd.begin_arriving(4, PAGE, Frame(1));
        odd.begin_arriving(9, PAGE, Frame(2));
        odd.verify();
        assert_eq!(odd.end_arriving(9, PAGE), Some(Frame(2)));
        assert_eq!((odd.end_arriving(9, PAGE), odd.end_arriving(4, PAGE)), (None, Some(Frame(1))));
        assert_eq!((odd.len(), odd.has_arriving()), (0, false));
    }

    #[test]
    #[should_panic(expected = "without a frame")]
    fn a_page_that_waits_for_nothing_is_found() {
        let mut odd = OddPages::default();
        odd.begin_partial(PAGE, Partial::new(Rest::OnTheWay(3)));
        odd.verify();
    }
}
