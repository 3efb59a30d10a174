//! The data that a dead program had accepted, and the way to its files.
//!
//! The plan depends only on valid content of the arena. Of several frames of one page, the youngest
//! counts: it has what the program had accepted of that page. The pages of a file are written in
//! the order of their offsets, not in that of their writes. No two pieces of a plan overlap, so
//! their order cannot be observed afterwards, and this order makes long requests.
//!
//! Everything here can be repeated: a process that dies in the middle leaves the same plan to the
//! next.

use std::collections::BTreeMap;
use std::ops::Range;

use forebay_block::Frame;
use forebay_cache::limits::{MAX_OFFSET, PAGE};

use crate::platform::{FrameState, Header};

/// Properties of a file, beside its frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    /// Generation of the file; frames of other generations do not count.
    pub(crate) generation: u16,
    /// Size that the program had accepted.
    pub(crate) size: u64,
    /// Length that was being set.
    pub(crate) cut: Option<u64>,
}

/// Work to do for a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Plan {
    /// Length to set before anything else.
    pub(crate) cut: Option<u64>,
    /// Minimum length in the end.
    pub(crate) size: u64,
    /// Pieces to write, in the order of offsets, without overlap.
    pub(crate) pieces: Vec<Piece>,
    /// Frames that are of no use after the work: a younger one counts, or they are part of a page.
    pub(crate) spent: Vec<Frame>,
    /// Frames that equal the file after the work.
    pub(crate) clean: Vec<(Frame, Header)>,
}

/// Bytes of a frame, and their place in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    /// Offset in the file.
    pub(crate) offset: u64,
    /// Frame with the bytes.
    pub(crate) frame: Frame,
    /// First byte in the frame.
    pub(crate) at: usize,
    /// Number of bytes, at least one.
    pub(crate) length: usize,
}

impl Piece {
    /// Returns the end in the file.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.length as u64
    }

    fn bytes(&self) -> Range<u64> {
        self.offset..self.end()
    }

    /// Returns its parts before and behind a range.
    fn without(self, range: &Range<u64>) -> impl Iterator<Item = Self> {
        let before = self.offset..self.end().min(range.start);
        let behind = self.offset.max(range.end)..self.end();
        [before, behind].into_iter().filter(|part| part.start < part.end).map(move |part| Self {
            offset: part.start,
            at: self.at + (part.start - self.offset) as usize,
            length: (part.end - part.start) as usize,
            ..self
        })
    }
}

impl Plan {
    /// Returns the number of bytes to write.
    pub(crate) fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.length as u64).sum()
    }

    /// Returns the ranges to write; adjacent ones are joined.
    pub(crate) fn ranges(&self) -> Vec<Range<u64>> {
        ranges(self.pieces.iter().copied())
    }

    /// Leaves out the bytes of a range, which are newer in the file.
    pub(crate) fn leave_out(&mut self, newer: &Range<u64>) {
        let pieces = std::mem::take(&mut self.pieces).into_iter();
        self.pieces = pieces.flat_map(|piece| piece.without(newer)).collect();
    }

    /// Returns whether there is nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.cut.is_none()
    }
}

/// Returns the frames of these files in the order of files and pages, with the youngest frame of
/// each page last. Leaves out frames of other files.
pub(crate) fn frames_of(
    files: &BTreeMap<u32, Known>,
    headers: impl IntoIterator<Item = (Frame, Header)>,
) -> Vec<(Frame, Header)> {
    let is_known = |(_, header): &(Frame, Header)| {
        let known = files.get(&header.file);
        known.is_some_and(|known| known.generation == header.generation)
            && header.page <= MAX_OFFSET / PAGE
    };
    let mut frames: Vec<(Frame, Header)> = headers.into_iter().filter(is_known).collect();
    // The number only decides between equal sequences, which do not occur.
    frames.sort_unstable_by_key(|(frame, header)| {
        (header.file, header.page, header.sequence, frame.0)
    });
    frames
}

/// Returns the plan for each file. Leaves out frames of other files.
pub(crate) fn plan(
    files: &BTreeMap<u32, Known>,
    headers: impl IntoIterator<Item = (Frame, Header)>,
    written_of: impl Fn(Frame) -> Vec<Range<usize>>,
) -> BTreeMap<u32, Plan> {
    let frames = frames_of(files, headers);
    let new = |known: &Known| Plan {
        cut: known.cut,
        size: known.cut.unwrap_or(known.size),
        ..Plan::default()
    };
    let mut plans: BTreeMap<u32, Plan> =
        files.iter().map(|(file, known)| (*file, new(known))).collect();
    for of_page in
        frames.chunk_by(|(_, one), (_, next)| (one.file, one.page) == (next.file, next.page))
    {
        let ((frame, header), older) = of_page.split_last().expect("a chunk is not empty");
        let plan = plans.get_mut(&header.file).expect("frames of other files are left out");
        plan.spent.extend(older.iter().map(|(frame, _)| *frame));
        plan.take_page(*frame, *header, &written_of);
    }
    plans
}

impl Plan {
    /// Adds the youngest frame of a page. Called in the order of pages.
    fn take_page(
        &mut self,
        frame: Frame,
        header: Header,
        written_of: impl Fn(Frame) -> Vec<Range<usize>>,
    ) {
        let start = header.page * PAGE;
        // The part of the page that is in the file.
        let inside = self.size.saturating_sub(start).min(PAGE) as usize;
        let valid = inside.min(usize::from(header.length));
        match header.state {
            _ if inside == 0 => self.spent.push(frame),
            FrameState::Clean => self.clean.push((frame, header)),
            FrameState::Dirty => {
                self.push(start, frame, 0..valid);
                let length = valid as u16;
                self.clean.push((frame, Header { state: FrameState::Clean, length, ..header }));
            }
            FrameState::Partial => {
                for written in written_of(frame) {
                    self.push(start, frame, written.start.min(inside)..written.end.min(inside));
                }
                self.spent.push(frame);
            }
        }
    }

    fn push(&mut self, start: u64, frame: Frame, bytes: Range<usize>) {
        if bytes.is_empty() {
            return;
        }
        assert!(bytes.end <= PAGE as usize, "bytes of another frame would be written: {bytes:?}");
        assert!(start + bytes.end as u64 <= self.size, "a piece ends beyond the file");
        let offset = start + bytes.start as u64;
        let piece = Piece { offset, frame, at: bytes.start, length: bytes.len() };
        let last = self.pieces.last();
        assert!(last.is_none_or(|last| last.end() <= offset), "{last:?}, then {piece:?}");
        self.pieces.push(piece);
    }
}

/// Returns the ranges of some pieces; adjacent ones are joined.
pub(crate) fn ranges(pieces: impl IntoIterator<Item = Piece>) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for piece in pieces {
        match ranges.last_mut() {
            Some(last) if last.end == piece.offset => last.end = piece.end(),
            _ => ranges.push(piece.bytes()),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GENERATION: u16 = 7;

    fn known(size: u64) -> Known {
        Known { generation: GENERATION, size, cut: None }
    }

    fn header(page: u64, sequence: u64, state: FrameState, length: u16) -> Header {
        Header { file: 3, generation: GENERATION, page, sequence, length, state }
    }

    fn plan_of(
        known: Known,
        frames: &[(u32, Header)],
        masks: impl Fn(Frame) -> Vec<Range<usize>>,
    ) -> Plan {
        let files = BTreeMap::from([(3, known)]);
        plan(&files, frames.iter().map(|(frame, header)| (Frame(*frame), *header)), masks)
            .remove(&3)
            .expect("every file has a plan")
    }

    fn whole(_: Frame) -> Vec<Range<usize>> {
        panic!("nothing is partial")
    }

    #[test]
    fn the_youngest_frame_of_a_page_counts_and_the_end_is_exact() {
        let frames = [
            (5, header(1, 20, FrameState::Dirty, 100)),
            (9, header(0, 4, FrameState::Dirty, 4096)),
            (2, header(0, 9, FrameState::Dirty, 4096)),
        ];
        let plan = plan_of(known(4196), &frames, whole);
        let pieces = [
            Piece { offset: 0, frame: Frame(2), at: 0, length: 4096 },
            Piece { offset: 4096, frame: Frame(5), at: 0, length: 100 },
        ];
        assert_eq!((plan.size, plan.pieces.as_slice(), plan.bytes()), (4196, &pieces[..], 4196));
        assert_eq!(plan.spent, [Frame(9)]);
        assert_eq!(ranges(pieces), std::slice::from_ref(&(0..4196)));
    }

    #[test]
    fn a_younger_clean_frame_means_that_the_older_one_is_written() {
        let frames = [
            (1, header(0, 4, FrameState::Dirty, 4096)),
            (0, header(0, 5, FrameState::Clean, 4096)),
        ];
        assert!(plan_of(known(4096), &frames, whole).is_empty());
    }

    #[test]
    fn pages_beyond_a_cut_are_dropped_and_the_rest_is_clamped() {
        let frames = [0, 1, 2].map(|page| (page as u32, header(page, 1, FrameState::Dirty, 4096)));
        let cut = Known { cut: Some(5000), ..known(12_288) };
        let plan = plan_of(cut, &frames, whole);
        assert_eq!((plan.cut, plan.size), (Some(5000), 5000));
        assert_eq!(ranges(plan.pieces), std::slice::from_ref(&(0..5000)));
        // Also to a larger length.
        let plan = plan_of(Known { cut: Some(1 << 20), ..known(12_288) }, &frames, whole);
        assert_eq!((plan.cut, plan.size, plan.pieces.len()), (Some(1 << 20), 1 << 20, 3));
    }

    #[test]
    fn only_the_written_parts_of_a_page_are_written() {
        let frames = [(4, header(2, 1, FrameState::Partial, 4096))];
        let masks = |_| vec![10..20, 4000..4096];
        let plan = plan_of(known(8192 + 4050), &frames, masks);
        assert_eq!(ranges(plan.pieces), [8202..8212, 12_192..12_242]);
        assert_eq!(plan.spent, [Frame(4)]);
    }

    #[test]
    fn frames_of_other_files_and_generations_do_not_count() {
        let other = header(0, 1, FrameState::Dirty, 4096);
        let frames = [
            (0, Header { file: 4, ..other }),
            (1, Header { generation: GENERATION + 1, ..other }),
            (2, Header { page: u64::MAX / 2, ..other }),
        ];
        assert!(plan_of(known(1 << 40), &frames, whole).is_empty());
    }

    /// A few random frames of a few pages of three files.
    fn frames() -> impl Strategy<Value = Vec<(u32, Header, Vec<Range<usize>>)>> {
        let state = prop_oneof![
            4 => Just(FrameState::Dirty),
            1 => Just(FrameState::Clean),
            2 => Just(FrameState::Partial)
        ];
        let length = prop_oneof![3 => Just(PAGE as u16), 1 => 0..=PAGE as u16];
        let one = (0..3_u32, 6..9_u16, 0..5_u64, 0..50_u64, length, state, masks());
        prop::collection::vec(one, 0..24).prop_map(|all| {
            all.into_iter()
                .enumerate()
                .map(|(frame, (file, generation, page, sequence, length, state, mask))| {
                    // An engine uses each sequence number once.
                    let sequence = sequence * 64 + frame as u64;
                    (frame as u32, Header { file, generation, page, sequence, length, state }, mask)
                })
                .collect()
        })
    }

    fn masks() -> impl Strategy<Value = Vec<Range<usize>>> {
        prop::collection::vec((0..=PAGE as usize, 0..=PAGE as usize), 0..4).prop_map(|ends| {
            let mut ends: Vec<usize> =
                ends.into_iter().flat_map(|(one, other)| [one, other]).collect();
            ends.sort_unstable();
            ends.dedup();
            ends.chunks_exact(2).map(|pair| pair[0]..pair[1]).collect()
        })
    }

    /// Returns the frame that each byte of a file comes from, byte by byte.
    fn naive(
        known: Known,
        frames: &[(u32, Header, Vec<Range<usize>>)],
        file: u32,
    ) -> Vec<Option<u32>> {
        let size = known.cut.unwrap_or(known.size);
        let bytes = (0..6 * PAGE).map(|offset| {
            let of_page = frames.iter().filter(|(_, header, _)| {
                header.file == file
                    && header.generation == known.generation
                    && header.page == offset / PAGE
            });
            let (frame, header, mask) = of_page.max_by_key(|(_, header, _)| header.sequence)?;
            let at = (offset % PAGE) as usize;
            let is_written = match header.state {
                FrameState::Clean => false,
                FrameState::Dirty => at < usize::from(header.length),
                FrameState::Partial => mask.iter().any(|range| range.contains(&at)),
            };
            (is_written && offset < size).then_some(*frame)
        });
        bytes.collect()
    }

    proptest! {
        #[test]
        fn plans_match_a_naive_model(
            frames in frames(),
            sizes in prop::array::uniform3((0..6 * PAGE, prop::option::weighted(0.2, 0..6 * PAGE))),
        ) {
            let known: BTreeMap<u32, Known> = (0..3_u32)
                .zip(sizes)
                .map(|(file, (size, cut))| (file, Known { generation: GENERATION, size, cut }))
                .collect();
            let headers = frames.iter().map(|(frame, header, _)| (Frame(*frame), *header));
            let plans = plan(&known, headers, |frame| frames[frame.0 as usize].2.clone());
            prop_assert_eq!(plans.len(), 3);
            for (file, plan) in plans {
                let mut found = vec![None; 6 * PAGE as usize];
                for piece in &plan.pieces {
                    prop_assert_eq!(piece.at as u64, piece.offset % PAGE);
                    for byte in &mut found[piece.offset as usize..piece.end() as usize] {
                        prop_assert!(byte.is_none(), "written twice");
                        *byte = Some(piece.frame.0);
                    }
                }
                prop_assert!(found == naive(known[&file], &frames, file), "file {}", file);
                prop_assert!(plan.pieces.is_sorted_by_key(|piece| piece.offset));
            }
        }
    }

    #[test]
    fn newer_bytes_are_left_out() {
        let piece = Piece { offset: 4096, frame: Frame(1), at: 0, length: 4096 };
        let mut plan = Plan { size: 9000, pieces: vec![piece], ..Plan::default() };
        plan.leave_out(&(0..4096));
        assert_eq!(plan.bytes(), 4096);
        plan.leave_out(&(5000..5010));
        assert_eq!(plan.ranges(), [4096..5000, 5010..8192]);
        assert_eq!((plan.pieces[1].at, plan.pieces[1].length), (914, 3182));
        plan.leave_out(&(4000..9000));
        assert!(plan.is_empty());
    }
}
