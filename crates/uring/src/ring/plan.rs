//! How each operation is carried: by which of the kernel's requests, or by a system call at the
//! doorbell.

use std::os::fd::AsRawFd;

use forebay_block::{Bio, Operation, Tag};
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{opcode, squeue};

use super::Ring;
use super::synchronous::Synchronous;
use crate::direct::Mode;
use crate::file::Kind;
use crate::open::Directory;

/// The command that discards a range of a block device: `_IO(0x12, 0)`.
const COMMAND_DISCARD: u32 = 0x1200;

impl Ring {
    /// Plans a request: an entry for the ring, or a call for the doorbell.
    pub(super) fn plan(&mut self, tag: Tag, request: &Bio) -> Result<squeue::Entry, Synchronous> {
        let (has, target) = (self.setup.has, request.target);
        let attached = self.ledger.targets.attached(target);
        let (offset, length) = (request.offset, request.length);
        let name = attached.name;
        let file = name.number();
        let fallocate =
            |mode| Ok(opcode::Fallocate::new(file, length).offset(offset).mode(mode).build());
        let entry = match request.operation {
            Operation::Read | Operation::Write | Operation::WriteFua => {
                // Nothing is left of a read behind the end of the file.
                self.transfer(tag, file, request).ok_or(Synchronous::Ended(Ok(0)))
            }
            Operation::WriteBuffered => match attached.file.set_direct(Mode::Buffered) {
                Ok(()) => self.transfer(tag, file, request).ok_or(Synchronous::Ended(Ok(0))),
                Err(error) => Err(Synchronous::Ended(Err(super::errno_of(&error)))),
            },
            Operation::FlushData => {
                Ok(opcode::Fsync::new(file).flags(FsyncFlags::DATASYNC).build())
            }
            Operation::FlushAll => Ok(opcode::Fsync::new(file).build()),
            Operation::FlushDirectory => {
                return match attached.file.directory() {
                    Directory::Kept(directory) => {
                        Ok(opcode::Fsync::new(Fd(directory.as_raw_fd())).build())
                    }
                    Directory::Unreadable => Err(Synchronous::SyncFileSystem(target)),
                    Directory::NotNeeded => Err(Synchronous::Ended(Ok(0))),
                };
            }
            Operation::Allocate => fallocate(libc::FALLOC_FL_KEEP_SIZE),
            Operation::Punch => fallocate(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE),
            // The kernel does the same for a device, and writes the zeroes itself where the device
            // cannot.
            Operation::WriteZeroes => {
                fallocate(libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE)
            }
            Operation::Discard => match attached.file.kind() {
                Kind::Block if has.discard => Ok(discard(file, request)),
                Kind::Block => Err(Synchronous::Discard { target, offset, length }),
                Kind::Regular | Kind::Other => {
                    fallocate(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
                }
            },
            Operation::SetLength if has.set_length => {
                Ok(opcode::Ftruncate::new(file, offset).build())
            }
            Operation::SetLength => Err(Synchronous::SetLength { target, length: offset }),
        };
        entry.map(|entry| entry.flags(name.flags()))
    }

    /// A read or write, of one piece or of several; `None` if there is nothing to move.
    fn transfer(&mut self, tag: Tag, file: Fd, request: &Bio) -> Option<squeue::Entry> {
        let Bio { operation, offset, .. } = *request;
        let rw_flags = if operation == Operation::WriteFua { libc::RWF_DSYNC } else { 0 };
        let count = |pieces: &[_]| u32::try_from(pieces.len()).expect("at most 1024");
        Some(match (operation, self.ledger.describe(tag, &self.arena, request)) {
            (_, []) => return None,
            (Operation::Read, [piece]) => {
                opcode::Read::new(file, piece.start(), piece.length()).offset(offset).build()
            }
            (Operation::Read, pieces) => {
                opcode::Readv::new(file, pieces.as_ptr().cast(), count(pieces))
                    .offset(offset)
                    .build()
            }
            (_, [piece]) => {
                let write = opcode::Write::new(file, piece.start(), piece.length());
                write.offset(offset).rw_flags(rw_flags).build()
            }
            (_, pieces) => {
                let write = opcode::Writev::new(file, pieces.as_ptr().cast(), count(pieces));
                write.offset(offset).rw_flags(rw_flags).build()
            }
        })
    }
}

/// The command takes its start where other requests have an address, and its length in the first
/// word of the command.
fn discard(file: Fd, request: &Bio) -> squeue::Entry {
    let mut command = [0; 16];
    command[..8].copy_from_slice(&request.length.to_ne_bytes());
    opcode::UringCmd16::new(file, COMMAND_DISCARD).addr(Some(request.offset)).cmd(command).build()
}
