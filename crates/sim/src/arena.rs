//! The memory of the frames: bytes that really move, so that a page sent from the wrong frame is
//! found.

use forebay_block::limits::PAGE;
use forebay_block::{Frame, Segment};
use forebay_cache::{Patch, Settled};

/// What a frame holds that was handed out and not filled: nobody may ever read it.
const GARBAGE: u8 = 0xa5;

/// Frames, in one piece.
#[derive(Debug)]
pub struct Arena {
    bytes: Vec<u8>,
}

impl Arena {
    /// Memory for so many frames.
    #[must_use]
    pub fn new(frames: u32) -> Self {
        Self { bytes: vec![GARBAGE; frames as usize * PAGE] }
    }

    /// Bytes from a frame on, and on into those that follow.
    #[must_use]
    pub fn span(&self, frame: Frame, at: usize, length: usize) -> &[u8] {
        &self.bytes[frame.0 as usize * PAGE + at..][..length]
    }

    /// Bytes from a frame on, and on into those that follow, to be changed.
    pub fn span_mut(&mut self, frame: Frame, at: usize, length: usize) -> &mut [u8] {
        &mut self.bytes[frame.0 as usize * PAGE + at..][..length]
    }

    /// Does what the cache tells to: zeroes, and bytes that were missing of a page.
    pub fn finish(&mut self, settled: &mut Settled) {
        for (frame, from) in settled.zero.drain(..) {
            self.frame_mut(frame)[from..].fill(0);
        }
        for Patch { from, to, bytes, filled, .. } in settled.patches.drain(..) {
            for range in bytes {
                let filled = filled.clamp(range.start, range.end);
                let data = self.frame(from)[range.start..filled].to_vec();
                self.frame_mut(to)[range.start..filled].copy_from_slice(&data);
                self.frame_mut(to)[filled..range.end].fill(0);
            }
        }
    }

    /// The bytes of a frame.
    #[must_use]
    pub fn frame(&self, frame: Frame) -> &[u8] {
        self.span(frame, 0, PAGE)
    }

    /// The bytes of a frame, to be changed.
    pub fn frame_mut(&mut self, frame: Frame) -> &mut [u8] {
        self.span_mut(frame, 0, PAGE)
    }

    /// Makes one frame hold what another does.
    pub fn copy(&mut self, from: Frame, to: Frame) {
        let from = from.0 as usize * PAGE;
        self.bytes.copy_within(from..from + PAGE, to.0 as usize * PAGE);
    }

    /// Spoils a part of a frame.
    pub fn spoil(&mut self, frame: Frame, at: usize, length: usize) {
        self.span_mut(frame, at, length).fill(GARBAGE);
    }

    /// The data of segments, one after the other.
    #[must_use]
    pub fn gather(&self, segments: &[Segment]) -> Vec<u8> {
        let mut data = Vec::new();
        for segment in segments {
            match *segment {
                Segment::Frames { first, offset, length } => {
                    data.extend_from_slice(self.span(first, offset as usize, length as usize));
                }
                Segment::Lent { .. } => panic!("nothing is lent in the simulation"),
                Segment::Zeroes { length } => data.resize(data.len() + length as usize, 0),
            }
        }
        data
    }

    /// Puts data into the segments, as far as it goes.
    ///
    /// # Panics
    /// When some of it would go into zeroes.
    pub fn scatter(&mut self, segments: &[Segment], mut data: &[u8]) {
        for segment in segments {
            let Segment::Frames { first, offset, length } = *segment else {
                panic!("zeroes cannot be read into")
            };
            let (part, rest) = data.split_at(data.len().min(length as usize));
            self.span_mut(first, offset as usize, part.len()).copy_from_slice(part);
            data = rest;
        }
    }
}
