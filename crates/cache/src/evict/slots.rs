//! The place of each frame in the queues. Memory is taken in pieces, once a frame of a piece is
//! entered: a cache that holds little needs little beside it.

use forebay_block::Target;

/// No frame.
pub(super) const NONE: u32 = u32::MAX;

/// Frames of a piece: 4 MiB of the cache.
const PIECE: usize = 1024;

/// Where a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Out,
    Small,
    Main,
    /// Taken as a candidate; `before` has the number of the batch.
    Asked,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) page: u64,
    pub(super) target: Target,
    pub(super) before: u32,
    pub(super) after: u32,
    pub(super) place: Place,
}

impl Slot {
    const OUT: Self =
        Self { page: 0, target: Target(0), before: NONE, after: NONE, place: Place::Out };
}

/// The slots, by frame.
#[derive(Debug)]
pub(super) struct Slots(Vec<Option<Box<[Slot; PIECE]>>>);

impl Slots {
    pub(super) fn new(frames: u32) -> Self {
        let mut pieces = Vec::new();
        pieces.resize_with((frames as usize).div_ceil(PIECE), || None);
        Self(pieces)
    }

    pub(super) fn get(&self, frame: u32) -> Slot {
        let piece = self.0[frame as usize / PIECE].as_ref();
        piece.map_or(Slot::OUT, |piece| piece[frame as usize % PIECE])
    }

    pub(super) fn get_mut(&mut self, frame: u32) -> &mut Slot {
        let piece = &mut self.0[frame as usize / PIECE];
        &mut piece.get_or_insert_with(|| Box::new([Slot::OUT; PIECE]))[frame as usize % PIECE]
    }

    /// Bytes of the pieces.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().flatten().count() * size_of::<[Slot; PIECE]>()
    }
}
