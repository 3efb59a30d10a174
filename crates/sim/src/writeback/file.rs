//! A file: the pages that its writer has written, the dirty ones, and the places of its blocks.

use std::collections::BTreeSet;

use forebay_block::limits::PAGE;

use super::model::{Layout, Model, Order};
use super::space::{Address, Space};
use crate::random::Random;

/// Adjacent pages of a file that are written together. If they have blocks, these are adjacent too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) file: usize,
    pub(super) first: u32,
    pub(super) pages: u32,
}

/// A sequence of files: when one is full and settled, a new one takes its place.
#[derive(Debug)]
pub(super) struct File {
    number: usize,
    group: usize,
    pages: u32,
    request: u32,
    window: u32,
    order: Order,
    layout: Layout,
    /// Requests of the present file, the written ones first.
    requests: Vec<u32>,
    written: u32,
    /// Dirty requests.
    dirty: BTreeSet<u32>,
    /// Request at which the last visit ended.
    cursor: u32,
    /// Pages accepted and not settled.
    unsettled: u32,
    /// Place of each page.
    places: Vec<Option<Address>>,
    /// Extents and pages of the earlier files in its place.
    before: (u64, u64),
    random: Random,
}

impl File {
    /// Creates an empty file.
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

    /// Returns the group of its next blocks: a random one for `stray` per mille of them.
    pub(super) fn next_group(&mut self, model: &Model) -> usize {
        if self.random.happens(model.stray) {
            self.random.below(model.groups) as usize
        } else {
            self.group
        }
    }

    /// Lets the writer fill the window. Returns the number of pages accepted.
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
            assert!(new, "each request of a file is written once");
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

    /// Returns whether any page is dirty.
    pub(super) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Takes the dirty pages of one visit, in order of offset from the end of the last visit:
    /// `visit` pages, or up to a request more, in pieces of at most `most` pages or one request.
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

    /// Returns the place of a piece, if it has blocks.
    pub(super) fn place(&self, piece: Piece) -> Option<Address> {
        self.places[piece.first as usize]
    }

    /// Records the blocks of a piece.
    pub(super) fn set_place(&mut self, piece: Piece, address: Address) {
        for page in 0..piece.pages {
            let place = self.places[(piece.first + page) as usize].replace(address.plus(page));
            assert_eq!(place, None, "a hole is filled once");
        }
    }

    /// Settles a piece.
    pub(super) fn settle(&mut self, piece: Piece) {
        self.unsettled =
            self.unsettled.checked_sub(piece.pages).expect("only accepted pages settle");
    }

    /// Returns the pages accepted and not settled.
    pub(super) fn unsettled(&self) -> u32 {
        self.unsettled
    }

    /// Returns the number of extents and of pages with blocks, including those of earlier files in
    /// its place.
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
            "{extents} extents: two visits of 8 pages each, in order of offset"
        );
    }

    #[test]
    fn blocks_laid_out_in_advance_are_one_extent() {
        let model = small(Layout::Unwritten, Order::Random);
        let (mut file, mut space) = file(&model);
        file.accept(&model, &mut space);
        for piece in file.visit(100, 100) {
            assert_eq!(file.place(piece).unwrap().page(), u64::from(piece.first));
        }
        assert_eq!(file.extents(), (1, 16));
    }
}
