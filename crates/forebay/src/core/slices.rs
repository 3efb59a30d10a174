//! Memory of a caller in one or several slices, used as one range of bytes.

use std::io::{IoSlice, IoSliceMut};

/// Bytes to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slices<'a> {
    slices: &'a [IoSlice<'a>],
    /// Bytes of the first slice that are already used.
    at: usize,
    length: usize,
}

impl<'a> Slices<'a> {
    pub(crate) fn new(slices: &'a [IoSlice<'a>]) -> Self {
        // Slices may overlap, so their sum has no bound.
        let length = slices.iter().fold(0, |sum: usize, slice| sum.saturating_add(slice.len()));
        Self { slices, at: 0, length }
    }

    /// Returns the number of bytes left.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Returns the first `most` bytes.
    pub(crate) fn cut(self, most: usize) -> Self {
        Self { length: self.length.min(most), ..self }
    }

    /// Skips bytes.
    pub(crate) fn advance(&mut self, mut bytes: usize) {
        assert!(bytes <= self.length, "{bytes} of {} bytes", self.length);
        while bytes > 0 {
            bytes -= self.take(bytes).len();
        }
    }

    /// Takes the next bytes of one slice: at least one and at most `most`, which must be left.
    pub(crate) fn take(&mut self, most: usize) -> &'a [u8] {
        assert!(0 < most && most <= self.length, "{most} of {} bytes", self.length);
        while self.at == self.slices[0].len() {
            (self.slices, self.at) = (&self.slices[1..], 0);
        }
        let slices: &'a [IoSlice<'a>] = self.slices;
        let piece = &slices[0][self.at..];
        let piece = &piece[..piece.len().min(most)];
        self.at += piece.len();
        self.length -= piece.len();
        piece
    }
}

/// Memory to read into.
#[derive(Debug)]
pub(crate) struct SlicesMut<'a, 'b> {
    slices: &'a mut [IoSliceMut<'b>],
    first: usize,
    at: usize,
    length: usize,
}

impl<'a, 'b> SlicesMut<'a, 'b> {
    pub(crate) fn new(slices: &'a mut [IoSliceMut<'b>]) -> Self {
        let length = slices.iter().map(|slice| slice.len()).sum();
        Self { slices, first: 0, at: 0, length }
    }

    /// Returns the number of bytes left.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// As [`Slices::take`].
    pub(crate) fn take(&mut self, most: usize) -> &mut [u8] {
        assert!(0 < most && most <= self.length, "{most} of {} bytes", self.length);
        while self.at == self.slices[self.first].len() {
            (self.first, self.at) = (self.first + 1, 0);
        }
        let piece = &mut self.slices[self.first][self.at..];
        let length = piece.len().min(most);
        self.at += length;
        self.length -= length;
        &mut piece[..length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_one_range_of_bytes() {
        let (one, two, three) = (*b"one", *b"twothree", *b"four");
        let slices = [&[][..], &one, &[], &two, &[], &three, &[]].map(IoSlice::new);
        for step in 1..20 {
            let mut left = Slices::new(&slices);
            let mut found = Vec::new();
            while left.len() > 0 {
                found.extend_from_slice(left.take(step.min(left.len())));
            }
            assert_eq!(found, b"onetwothreefour");
        }
        let mut left = Slices::new(&slices).cut(9);
        left.advance(4);
        assert_eq!((left.len(), left.take(5)), (5, &b"wothr"[..]));
        assert_eq!(left.len(), 0);
    }

    #[test]
    fn slices_are_filled_in_order() {
        let (mut one, mut two) = ([0; 3], [0; 5]);
        let mut slices =
            [IoSliceMut::new(&mut []), IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
        let mut left = SlicesMut::new(&mut slices);
        let mut byte = 0;
        while left.len() > 1 {
            let most = 2.min(left.len() - 1);
            for place in left.take(most) {
                byte += 1;
                *place = byte;
            }
        }
        assert_eq!((one, two), ([1, 2, 3], [4, 5, 6, 7, 0]));
    }
}
