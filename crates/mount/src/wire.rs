//! The protocol of FUSE, as `linux/fuse.h` lays it out: the parts of a request, and attributes.
//!
//! A request is a header, the fields of its kind, and then names or data:
//!
//! ```text
//!                 header     fields      names or data
//! /dev/fuse       one message: each part begins where the one before ends
//! ring            40 bytes   128 bytes   memory of its own
//! ```
//!
//! The bytes come from the kernel, which is another program: each access is checked.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::time::SystemTime;

use rustix::fs::FileType;

/// Numbers of the kinds of requests.
pub(crate) mod kind {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const TMPFILE: u32 = 51;
}

/// Bits of SETATTR: the fields that are set.
pub(crate) mod set {
    pub(crate) const MODE: u32 = 1;
    pub(crate) const USER: u32 = 1 << 1;
    pub(crate) const GROUP: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ACCESSED: u32 = 1 << 4;
    pub(crate) const MODIFIED: u32 = 1 << 5;
    pub(crate) const HANDLE: u32 = 1 << 6;
    pub(crate) const ACCESSED_NOW: u32 = 1 << 7;
    pub(crate) const MODIFIED_NOW: u32 = 1 << 8;
}

/// Bit in the flags of OPEN and RELEASE: the kernel runs the file as a program.
pub(crate) const TO_RUN: u32 = 1 << 5;

/// Bits of an answer to OPEN: how the kernel uses the file.
pub(crate) mod opened {
    pub(crate) const DIRECT_IO: u32 = 1;
    pub(crate) const NO_FLUSH: u32 = 1 << 5;
    pub(crate) const PASSTHROUGH: u32 = 1 << 7;
}

/// Bits of WRITE.
pub(crate) mod write {
    /// Pages of a map are written, without a caller.
    pub(crate) const CACHE: u32 = 1;
    /// The caller may not keep the bits for the identity of owner and group.
    pub(crate) const KILL_BITS: u32 = 1 << 2;
}

/// Bit of FSYNC: the data alone.
pub(crate) const FSYNC_DATA: u32 = 1;

/// The attributes of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes {
    pub(crate) number: u64,
    pub(crate) size: u64,
    /// Blocks of 512 bytes.
    pub(crate) blocks: u64,
    pub(crate) accessed: SystemTime,
    pub(crate) modified: SystemTime,
    pub(crate) changed: SystemTime,
    pub(crate) kind: FileType,
    pub(crate) permissions: u32,
    pub(crate) links: u32,
    pub(crate) user: u32,
    pub(crate) group: u32,
    /// The device that a node stands for, as the protocol encodes it.
    pub(crate) device: u32,
    pub(crate) block_bytes: u32,
}

/// Bytes of the header of a request.
const HEADER_BYTES: usize = 40;

/// A request of the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) kind: u32,
    /// Its number, which the answer repeats.
    pub(crate) unique: u64,
    /// The object that it is about, if any.
    pub(crate) node: u64,
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) process: u32,
    body: Body<'a>,
}

/// The bytes after the header.
#[derive(Clone, Copy, Debug)]
enum Body<'a> {
    /// Names or data begin at the end of the fields.
    Joint(&'a [u8]),
    Apart {
        fields: &'a [u8],
        rest: &'a [u8],
    },
}

impl<'a> Request<'a> {
    /// Takes a message of `/dev/fuse` apart. `None` if it is too short for a header.
    pub(crate) fn of_message(message: &'a [u8]) -> Option<Self> {
        let (header, body) = message.split_at_checked(HEADER_BYTES)?;
        Self::new(header, Body::Joint(body))
    }

    /// Takes a request in a ring apart.
    pub(crate) fn of_ring(header: &[u8], fields: &'a [u8], rest: &'a [u8]) -> Option<Self> {
        Self::new(header.get(..HEADER_BYTES)?, Body::Apart { fields, rest })
    }

    fn new(header: &[u8], body: Body<'a>) -> Option<Self> {
        let mut fields = Fields { body: Body::Joint(header) };
        let [_, kind] = fields.words().ok()?;
        let [unique, node] = fields.longs().ok()?;
        let [user, group, process, _] = fields.words().ok()?;
        Some(Self { kind, unique, node, user, group, process, body })
    }

    pub(crate) fn fields(&self) -> Fields<'a> {
        Fields { body: self.body }
    }
}

/// The part of a request that was not read yet.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    body: Body<'a>,
}

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let (Body::Joint(from) | Body::Apart { fields: from, .. }) = &mut self.body;
        let (bytes, rest) = from.split_at_checked(count).ok_or_else(too_short)?;
        *from = rest;
        Ok(bytes)
    }

    /// Reads numbers of 32 bits.
    pub(crate) fn words<const COUNT: usize>(&mut self) -> io::Result<[u32; COUNT]> {
        let mut words = self.bytes(4 * COUNT)?.chunks_exact(4);
        Ok(std::array::from_fn(|_| {
            let word = words.next().and_then(|word| word.try_into().ok());
            u32::from_ne_bytes(word.expect("as many words as asked for"))
        }))
    }

    /// Reads numbers of 64 bits.
    pub(crate) fn longs<const COUNT: usize>(&mut self) -> io::Result<[u64; COUNT]> {
        let mut longs = self.bytes(8 * COUNT)?.chunks_exact(8);
        Ok(std::array::from_fn(|_| {
            let long = longs.next().and_then(|long| long.try_into().ok());
            u64::from_ne_bytes(long.expect("as many numbers as asked for"))
        }))
    }

    pub(crate) fn long(&mut self) -> io::Result<u64> {
        let [long] = self.longs()?;
        Ok(long)
    }

    /// Reads this much of what follows the fields. No field can be read after it.
    pub(crate) fn data(&mut self, count: usize) -> io::Result<&'a [u8]> {
        *self = self.rest();
        self.bytes(count)
    }

    /// Returns what follows the fields.
    pub(crate) fn rest(&self) -> Self {
        let (Body::Joint(rest) | Body::Apart { rest, .. }) = self.body;
        Self { body: Body::Joint(rest) }
    }

    /// Reads a name. No field can be read after it.
    pub(crate) fn name(&mut self) -> io::Result<&'a OsStr> {
        let (Body::Joint(rest) | Body::Apart { rest, .. }) = self.body;
        let length = rest.iter().position(|&byte| byte == 0).ok_or_else(too_short)?;
        Ok(OsStr::from_bytes(&self.data(length + 1)?[..length]))
    }
}

fn too_short() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: &[u8]) -> Vec<u8> {
        let mut message = [40 + body.len() as u32, kind::RENAME2].map(u32::to_ne_bytes).concat();
        message.extend([7, 9].map(u64::to_ne_bytes).concat());
        message.extend([1000, 100, 4711, 0].map(u32::to_ne_bytes).concat());
        message.extend(body);
        message
    }

    /// Reads the same from both forms of a request.
    fn each(fields: &[u8], rest: &[u8], look: impl Fn(&Request<'_>)) {
        let whole = message(&[fields, rest].concat());
        look(&Request::of_message(&whole).unwrap());
        // The room for the fields is larger, and keeps bytes of earlier requests.
        let apart = [fields, &[0xee; 64]].concat();
        look(&Request::of_ring(&message(&[]), &apart, rest).unwrap());
    }

    #[test]
    fn a_request_is_the_same_in_a_message_and_in_a_ring() {
        let fields = [8_u64.to_ne_bytes(), 0x1_0000_0002_u64.to_ne_bytes()].concat();
        each(&fields, b"old\0new\0", |request| {
            assert_eq!((request.kind, request.unique, request.node), (kind::RENAME2, 7, 9));
            assert_eq!((request.user, request.group, request.process), (1000, 100, 4711));
            let mut fields = request.fields();
            assert_eq!(fields.long().unwrap(), 8);
            assert_eq!(fields.words().unwrap(), [2, 1]);
            assert_eq!([fields.name().unwrap(), fields.name().unwrap()], ["old", "new"]);
            assert!(fields.name().is_err() && fields.data(1).is_err());
        });
        each(&3_u64.to_ne_bytes(), b"data", |request| {
            let mut fields = request.fields();
            assert_eq!(fields.long().unwrap(), 3);
            assert_eq!(fields.data(4).unwrap(), b"data");
        });
    }

    #[test]
    fn a_request_that_is_cut_off_is_an_error_wherever_it_is_cut() {
        let body = [&[0; 16][..], b"old\0new\0"].concat();
        let whole = message(&body);
        for length in 0..whole.len() {
            let Some(request) = Request::of_message(&whole[..length]) else {
                assert!(length < HEADER_BYTES);
                continue;
            };
            let mut fields = request.fields();
            let read = fields.longs::<2>().and_then(|_| Ok((fields.name()?, fields.name()?)));
            assert_eq!(read.unwrap_err().raw_os_error(), Some(libc::EINVAL), "{length}");
        }
        assert!(Request::of_ring(&whole[..39], &[], &[]).is_none());
    }
}
