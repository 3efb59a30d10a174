//! The memory of a bio, as it is gathered: written, or read into.

use std::ops::Range;

use forebay_block::{Frame, Segment};

use crate::frames::FrameRun;
use crate::limits::PAGE;

/// Segments of a bio; neighbours in memory become one.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    list: Vec<Segment>,
}

impl Segments {
    pub(crate) fn push_frame(&mut self, frame: Frame) {
        self.push_frames(FrameRun { first: frame, count: 1 });
    }

    pub(crate) fn push_frames(&mut self, run: FrameRun) {
        self.push(Segment::frames(run.first, run.count * PAGE as u32));
    }

    /// Some bytes of a frame.
    pub(crate) fn push_part(&mut self, first: Frame, bytes: Range<usize>) {
        let (offset, length) = (bytes.start as u32, (bytes.end - bytes.start) as u32);
        self.push(Segment::Frames { first, offset, length });
    }

    pub(crate) fn push_zeroes(&mut self, pages: u64) {
        self.push(Segment::Zeroes { length: (pages * PAGE) as u32 });
    }

    fn push(&mut self, segment: Segment) {
        if let Some(last) = self.list.last_mut()
            && let Some(fused) = last.fused(segment)
        {
            *last = fused;
            return;
        }
        self.list.push(segment);
    }

    pub(crate) fn count(&self) -> usize {
        self.list.len()
    }

    /// Returns the segments of this many bytes. A part of the last page may be left out.
    pub(crate) fn cut_to(mut self, length: u64) -> Vec<Segment> {
        let have: u64 = self.list.iter().map(|segment| u64::from(segment.length())).sum();
        if have > length {
            let last = self.list.last_mut().expect("what is too long has a segment");
            let Segment::Frames { length: whole, .. } = last else {
                unreachable!("zeroes are not written up to an end")
            };
            *whole -= (have - length) as u32;
        }
        self.list
    }
}
