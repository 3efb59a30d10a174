//! A file: what its writer has written, what is dirty, and where its blocks are.

use std::collections::BTreeSet;

use forebay_block::limits::PAGE;

use super::model::{Layout, Model, Order};
use super::space::{Address, Space};
use crate::random::Random;

/// Pages of a file that go together: neighbours, and once they have blocks, in these, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) file: usize,
    pub(super) first: u32,
    pub(super) pages: u32,
}

/// One file after the other: when one is full and settled, a new one takes its place.
#[derive(Debug)]
pub(super) struct File {
    number: usize,
    group: usize,
    pages: u32,
    request: u32,
    window: u32,
    order: Order,
    layout: Layout,
    /// The requests there are, those written first.
    requests: Vec<u32>,
    written: u32,
    /// Requests that are dirty.
    dirty: BTreeSet<u32>,
    /// Where the last visit ended, as a request.
    cursor: u32,
    /// Pages accepted and not settled.
    unsettled: u32,
    /// Where each page is.
    places: Vec<Option<Address>>,
    /// Extents and pages of the files that were in its place.
    before: (u64, u64),
    random: Random,
}

impl File {
    /// Nothing is written.
    pub(super) fn new(number: usize, group: usize, model: &Model, random: Random) -> Self {
        let pages = |bytes: u64| (bytes / PAGE as u64) as u32;
        Self {
            number,
            group,
            pages: pages(model.file),
            request: pages(model.request),
            window: pages(model.window),
            order: model.order,
            layout: model.layout,
            requests: Vec::new(),
            written: 0,
            dirty: BTreeSet::new(),
            cursor: 0,
            unsettled: 0,
            places: Vec::new(),
            before: (0, 0),
            random,
        }
    }

    /// The group its next blocks are from, where so many per mille are from another.
    pub(super) fn next_group(&mut self, model: &Model) -> usize {
        if self.random.happens(model.stray) {
            self.random.below(model.groups) as usize
        } else {
            self.group
        }
    }

    /// Its writer fills the window. How many pages were accepted.
    pub(super) fn accept(&mut self, model: &Model, space: &mut Space) -> u32 {
        let all = self.pages / self.request;
        if self.written == all && self.unsettled == 0 {
            self.before = self.extents();
            self.requests.clear();
        }
        if self.requests.is_empty() {
            self.begin(model, space, all);
        }
        let mut accepted = 0;
        while self.written < all && self.unsettled + self.request <= self.window {
            let at = self.written as usize;
            if self.order == Order::Random {
                let other = at + self.random.below(u64::from(all - self.written)) as usize;
                self.requests.swap(at, other);
            }
            let new = self.dirty.insert(self.requests[at]);
            assert!(new, "each place is written once");
            self.written += 1;
            self.unsettled += self.request;
            accepted += self.request;
        }
        accepted
    }

    fn begin(&mut self, model: &Model, space: &mut Space, all: u32) {
        self.requests = (0..all).collect();
        (self.written, self.cursor) = (0, 0);
        self.places.clear();
        self.places.resize(self.pages as usize, None);
        if self.layout != Layout::Holes {
            let start = space.allocate(self.next_group(model), self.pages);
            for (page, place) in self.places.iter_mut().enumerate() {
                *place = Some(start.plus(page as u32));
            }
        }
    }

    /// Whether anything is dirty.
    pub(super) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// What a context writes in a visit, in the order of offsets from where the last visit ended:
    /// `visit` pages or a request more, in pieces of `most` pages or a request.
    pub(super) fn visit(&mut self, visit: u32, most: u32) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut taken = 0;
        while taken < visit {
            let next =
                self.dirty.range(self.cursor..).next().or_else(|| self.dirty.first()).copied();
            let Some(request) = next else { break };
            self.dirty.remove(&request);
            self.cursor = request + 1;
            taken += self.request;
            let first = request * self.request;
            match pieces.last_mut() {
                Some(last)
                    if last.first + last.pages == first && last.pages + self.request <= most =>
                {
                    last.pages += self.request;
                }
                _ => pieces.push(Piece { file: self.number, first, pages: self.request }),
            }
        }
        pieces
    }

    /// Where a piece is, if it has blocks.
    pub(super) fn place(&self, piece: Piece) -> Option<Address> {
        self.places[piece.first as usize]
    }

    /// A piece has blocks.
    pub(super) fn set_place(&mut self, piece: Piece, address: Address) {
        for page in 0..piece.pages {
            let place = self.places[(piece.first + page) as usize].replace(address.plus(page));
            assert_eq!(place, None, "a hole is filled once");
        }
    }

    /// A piece is done with.
    pub(super) fn settle(&mut self, piece: Piece) {
        self.unsettled =
            self.unsettled.checked_sub(piece.pages).expect("what settles was accepted");
    }

    /// Pages accepted and not settled.
    pub(super) fn unsettled(&self) -> u32 {
        self.unsettled
    }

    /// Extents and pages with blocks, those of the files that were in its place too.
    pub(super) fn extents(&self) -> (u64, u64) {
        let (mut extents, mut blocks) = self.before;
        let mut last: Option<Address> = None;
        for &place in &self.places {
            if let Some(here) = place {
                blocks += 1;
                extents += u64::from(last.is_none_or(|last| last.plus(1) != here));
            }
            last = place;
        }
        (extents, blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(model: &Model) -> (File, Space) {
        (File::new(0, 0, model, Random::new(1)), Space::new(model.groups))
    }

    fn small(layout: Layout, order: Order) -> Model {
        Model { layout, order, file: 64 << 10, window: 32 << 10, ..Model::default() }
    }

    #[test]
    fn neighbours_go_together_and_the_window_is_a_bound() {
        let model = small(Layout::Holes, Order::Sequential);
        let (mut file, mut space) = file(&model);
        assert_eq!((file.accept(&model, &mut space), file.accept(&model, &mut space)), (8, 0));
        let pieces = file.visit(6, 4);
        let spans: Vec<_> = pieces.iter().map(|piece| (piece.first, piece.pages)).collect();
        assert_eq!(spans, [(0, 4), (4, 2)]);
        file.settle(pieces[0]);
        assert_eq!(file.accept(&model, &mut space), 4);
        assert_eq!(file.visit(100, 100)[0], Piece { file: 0, first: 6, pages: 6 });
    }

    #[test]
    fn at_random_each_place_comes_once_and_a_full_file_is_followed_by_another() {
        let model = small(Layout::Holes, Order::Random);
        let (mut file, mut space) = file(&model);
        for _ in 0..2 {
            let mut seen = BTreeSet::new();
            while seen.len() < 16 {
                file.accept(&model, &mut space);
                for piece in file.visit(8, 1) {
                    assert!(seen.insert(piece.first));
                    file.set_place(piece, space.allocate(0, 1));
                    file.settle(piece);
                }
            }
        }
        let (extents, blocks) = file.extents();
        assert_eq!(blocks, 32);
        assert!(
            (8..=32).contains(&extents),
            "{extents}: taken in two visits of 8 each, in order of offset"
        );
    }

    #[test]
    fn what_is_laid_out_before_is_in_one_piece() {
        let model = small(Layout::Unwritten, Order::Random);
        let (mut file, mut space) = file(&model);
        file.accept(&model, &mut space);
        for piece in file.visit(100, 100) {
            assert_eq!(file.place(piece).unwrap().page(), u64::from(piece.first));
        }
        assert_eq!(file.extents(), (1, 16));
    }
}
