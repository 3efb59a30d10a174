//! Copying the content of one file to another, through the cache.
//!
//! ```text
//! from --read--> piece, piece, piece, piece --write--> to
//!                  \______ being read ____/   ^ this one is complete
//! ```
//!
//! Several pieces are being read while one is written, so both devices are busy. The bytes pass
//! through memory. `copy_file_range(2)` and reflinks are not used: they read what the file system
//! has, not what this engine has accepted; and a shared extent needs new space when it is
//! overwritten, so a write that was accepted could find none (contract 9).

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::pin::Pin;
use std::task::Poll;

use crate::core::direct::plug::plugged_no_more;
use crate::core::engine::Engine;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::file::File;
use crate::core::limits::{COPY_PIECE_BYTES, COPY_PIECES};
use crate::core::slices::Slices;
use crate::core::wait;

/// A piece that is being read: its buffer, and the number of bytes read.
type Piece<'a> = Pin<Box<dyn Future<Output = (Vec<u8>, Result<usize>)> + Send + 'a>>;

impl File {
    /// Copies the whole content of this file to the start of `to`, and makes `to` as long. Returns
    /// the number of bytes.
    pub(crate) async fn copy_to(&self, to: &File) -> Result<u64> {
        self.may_read()?;
        to.may_write_at()?;
        if self.inode.identity == to.inode.identity {
            let what = "cannot copy a file to itself";
            return Err(Error::new(ErrorKind::InvalidInput, what).at_path(to.path()));
        }
        let length = self.len()?;
        match to.inode.fixed_size {
            // Before anything is written.
            Some(_) => to.check_end(Some(length), 0)?,
            // No write moves the end then.
            None => to.set_len_async(length).await?,
        }
        let copied = self.copy_pieces(to, length).await?;
        if copied < length && to.inode.fixed_size.is_none() {
            // This file was cut meanwhile.
            to.set_len_async(copied).await?;
        }
        Ok(copied)
    }

    async fn copy_pieces(&self, to: &File, length: u64) -> Result<u64> {
        let mut pieces = VecDeque::with_capacity(COPY_PIECES);
        let (mut next, mut copied) = (0, 0);
        while next < length && pieces.len() < COPY_PIECES {
            pieces.push_back(self.read_piece(Vec::new(), next));
            next += COPY_PIECE_BYTES as u64;
        }
        while let Some(piece) = pieces.pop_front() {
            let (buffer, read) = first_of(piece, &mut pieces).await;
            let data = &buffer[..(read? as u64).min(length - copied) as usize];
            to.write_all(Slices::new(&[IoSlice::new(data)]), copied).await.1?;
            copied += data.len() as u64;
            if data.len() < COPY_PIECE_BYTES {
                break;
            }
            if next < length {
                pieces.push_back(self.read_piece(buffer, next));
                next += COPY_PIECE_BYTES as u64;
            }
        }
        Ok(copied)
    }

    fn read_piece(&self, mut buffer: Vec<u8>, offset: u64) -> Piece<'_> {
        Box::pin(async move {
            buffer.resize(COPY_PIECE_BYTES, 0);
            let read = self.read_at_async(&mut buffer, offset).await;
            (buffer, read)
        })
    }
}

/// Waits for the first piece, and lets the later ones make progress meanwhile.
async fn first_of<'a>(
    mut first: Piece<'a>,
    later: &mut VecDeque<Piece<'a>>,
) -> (Vec<u8>, Result<usize>) {
    // A piece that has ended is not polled again.
    let mut ended: VecDeque<_> = later.iter().map(|_| None).collect();
    let done = poll_fn(|context| {
        let done = first.as_mut().poll(context);
        for (piece, ended) in later.iter_mut().zip(&mut ended) {
            if ended.is_none()
                && let Poll::Ready(result) = piece.as_mut().poll(context)
            {
                *ended = Some(result);
            }
        }
        plugged_no_more(done)
    })
    .await;
    for (piece, ended) in later.iter_mut().zip(ended) {
        if let Some(result) = ended {
            *piece = Box::pin(std::future::ready(result));
        }
    }
    done
}

impl Engine {
    /// Copies the whole content of `from` to `to`, and makes `to` as long. Returns the number of
    /// bytes. Blocks.
    ///
    /// The copy has all data accepted by `from` before the call. It is in the cache, like any
    /// written data: a sync of `to` makes it durable. Reading runs ahead of writing, in a few
    /// MiB of memory beside the cache. If the handles are [uncached](crate::OpenOptions::uncached),
    /// the copied pages leave the cache at once, so a large copy evicts nothing else.
    ///
    /// Writes to either file during the copy may be missing from it. Holes become zeroes.
    /// Permission bits and times are not copied; [`File::set_times`] sets times. To show progress,
    /// copy with [`File::read_at`] and [`File::write_at`] instead, 1 MiB at a time.
    ///
    /// # Errors
    /// As [`File::read_at`] for `from`, and as [`File::write_at`] and [`File::set_len`] for `to`;
    /// `InvalidInput` if both are the same file. After an error, `to` has unspecified content.
    ///
    /// ```
    /// use forebay::{Engine, OpenOptions};
    ///
    /// # fn main() -> forebay::Result<()> {
    /// # let directory = tempfile::tempdir_in(".").unwrap();
    /// # let (one, other) = (directory.path().join("one"), directory.path().join("other"));
    /// # std::fs::write(&one, b"hello").unwrap();
    /// let engine = Engine::new()?;
    /// let from = engine.open(&one, OpenOptions::new().read(true).uncached(true))?;
    /// let to = engine.open(&other, OpenOptions::new().write(true).create(true).uncached(true))?;
    /// assert_eq!(engine.copy(&from, &to)?, 5);
    /// to.sync_all()?;
    /// # to.close()
    /// # }
    /// ```
    pub fn copy(&self, from: &File, to: &File) -> Result<u64> {
        wait::block_on(self.copy_async(from, to))
    }

    /// Asynchronous form of [`Engine::copy`]. The data is copied while the future is polled; a
    /// dropped future leaves `to` with unspecified content.
    pub(crate) async fn copy_async(&self, from: &File, to: &File) -> Result<u64> {
        self.owner.shared.check()?;
        from.copy_to(to).await
    }
}
