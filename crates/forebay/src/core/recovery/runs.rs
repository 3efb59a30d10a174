//! Runs of adjacent pieces of a plan. Each is written in one call.

use std::io;

use super::plan::Piece;
use crate::core::limits::KEEPER_WRITE_BYTES;
use crate::platform::{Arena, MOST_PARTS, OpenFile, Part};

/// Returns the runs of adjacent pieces that are written in one call each.
pub(super) fn runs(pieces: &[Piece]) -> impl Iterator<Item = &[Piece]> {
    let mut rest = pieces;
    std::iter::from_fn(move || {
        let first = rest.first()?;
        let mut bytes = first.length;
        let mut count = 1;
        while count < rest.len().min(MOST_PARTS)
            && rest[count].offset == rest[count - 1].end()
            && bytes + rest[count].length <= KEEPER_WRITE_BYTES
        {
            bytes += rest[count].length;
            count += 1;
        }
        let (run, left) = rest.split_at(count);
        rest = left;
        Some(run)
    })
}

/// Writes a run. After an error, the unwritten pieces are left in it.
pub(super) fn write_run(
    file: &OpenFile,
    arena: &Arena,
    run: &mut Vec<Piece>,
    came_back: &impl Fn(),
) -> io::Result<()> {
    debug_assert!(run.len() <= MOST_PARTS, "the system takes no more parts in one call");
    while let Some(first) = run.first() {
        let parts: Vec<Part> = run
            .iter()
            .map(|piece| Part { frame: piece.frame, at: piece.at, length: piece.length })
            .collect();
        let written = file.write_frames_at(arena, &parts, first.offset);
        came_back();
        match written? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => take_off(run, written),
        }
    }
    Ok(())
}

/// Removes bytes from the beginning of a run.
fn take_off(run: &mut Vec<Piece>, mut bytes: u64) {
    let is_whole = |piece: &&Piece| {
        let length = piece.length as u64;
        let is_whole = bytes >= length;
        bytes -= if is_whole { length } else { 0 };
        is_whole
    };
    let whole = run.iter().take_while(is_whole).count();
    run.drain(..whole);
    assert!(bytes == 0 || !run.is_empty(), "more bytes were written than the run has");
    if let Some(first) = run.first_mut() {
        first.offset += bytes;
        first.at += bytes as usize;
        assert!(first.length > bytes as usize, "a piece without bytes would be written for ever");
        first.length -= bytes as usize;
    }
}

#[cfg(test)]
mod tests {
    use forebay_block::Frame;

    use super::*;

    #[test]
    fn adjacent_pieces_are_written_in_one_call() {
        let piece = |offset: u64, length| Piece {
            offset,
            frame: Frame(0),
            at: (offset % 4096) as usize,
            length,
        };
        let pieces = [
            piece(0, 4096),
            piece(4096, 100),
            piece(5000, 10),
            piece(8192, 4096),
            piece(12_288, 1),
        ];
        let lengths: Vec<usize> = runs(&pieces).map(<[Piece]>::len).collect();
        assert_eq!(lengths, [2, 1, 2]);
        let many: Vec<Piece> = (0..5000).map(|page| piece(page * 4096, 4096)).collect();
        assert!(
            runs(&many)
                .all(|run| run.len() * 4096 <= KEEPER_WRITE_BYTES && run.len() <= MOST_PARTS)
        );
        assert_eq!(runs(&many).map(<[Piece]>::len).sum::<usize>(), 5000);
        assert_eq!(runs(&[]).count(), 0);
    }

    #[test]
    fn written_bytes_are_removed_from_a_run() {
        let run = [(0, 4096), (4096, 100), (4196, 3000)].map(|(offset, length)| Piece {
            offset,
            frame: Frame(0),
            at: (offset % 4096) as usize,
            length,
        });
        let left = |bytes| {
            let mut run = run.to_vec();
            take_off(&mut run, bytes);
            run.iter().map(|piece| (piece.offset, piece.at, piece.length)).collect::<Vec<_>>()
        };
        assert_eq!(left(1), [(1, 1, 4095), (4096, 0, 100), (4196, 100, 3000)]);
        assert_eq!(left(4096), [(4096, 0, 100), (4196, 100, 3000)]);
        assert_eq!(left(4200), [(4200, 104, 2996)]);
        assert_eq!(left(7196), []);
    }
}
