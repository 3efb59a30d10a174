//! Requests of the kernel, made from the input of a fuzzer. Compiled for the fuzzer (`fuzz/`) and
//! for the test of its corpus.
//!
//! A socket takes the place of `/dev/fuse`, so the requests pass the whole way of a mount. They are
//! carried out in a directory of this machine. So each has the form that the kernel gives it: a
//! name has no slash, a special file is a socket, and a read is short.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use forebay::{Engine, Options};
use rustix::net::RecvFlags;

use crate::attributes;
use crate::connection::Connection;
use crate::durable;
use crate::filesystem::Served;
use crate::mounted::Mount;
use crate::node::ROOT;
use crate::turns::{Turns, serve};

/// A field of a request.
#[derive(Clone, Copy)]
enum Field {
    /// Flags, modes and users: any number of 32 bits.
    Word,
    /// Times and owners of locks: any number of 64 bits.
    Long,
    /// A mode of `mknod(2)`.
    Kind,
    /// The number of an open file.
    Handle,
    /// The number of a node.
    Node,
    /// An offset, length or size of a file.
    Offset,
    /// Bytes to read.
    Size,
    /// Bytes to write: their number stands before three other fields.
    Write,
    /// An extended attribute: the length of its value, flags, its name and its value.
    Extended,
    /// A name in a directory, or of an extended attribute.
    Name,
}

use Field::{Extended, Handle, Kind, Long, Name, Node, Offset, Size, Word, Write};

const DESTROY: u32 = 38;
const FORGET: u32 = 2;
const INIT: u32 = 26;
const OPEN: u32 = 14;
const RELEASE: u32 = 18;
const CREATE: u32 = 35;
const TMPFILE: u32 = 51;
/// Requests whose reply begins with the number of a node.
const ENTRIES: [u32; 7] = [1, 6, 8, 9, 13, CREATE, TMPFILE];

/// Requests of `linux/fuse.h`, with their fields.
const REQUESTS: [(u32, &[Field]); 31] = [
    (1, &[Name]),
    (FORGET, &[Handle]),
    (3, &[Word, Word, Handle]),
    (
        4,
        &[
            Word, Word, Handle, Offset, Long, Long, Long, Long, Word, Word, Word, Word, Word, Word,
            Word, Word,
        ],
    ),
    (5, &[]),
    (6, &[Name, Name]),
    (8, &[Kind, Word, Word, Word, Name]),
    (9, &[Word, Word, Name]),
    (10, &[Name]),
    (11, &[Name]),
    (13, &[Node, Name]),
    (OPEN, &[Word, Word]),
    (15, &[Handle, Offset, Size, Word, Long, Word, Word]),
    (16, &[Handle, Offset, Write]),
    (17, &[]),
    (RELEASE, &[Handle, Word, Word, Long]),
    (20, &[Handle, Word, Word]),
    (21, &[Extended]),
    (22, &[Size, Word, Name]),
    (23, &[Size, Word]),
    (24, &[Name]),
    (25, &[Handle, Word, Word, Long]),
    (27, &[Word, Word]),
    (28, &[Handle, Offset, Size, Word, Long, Word, Word]),
    (29, &[Handle, Word, Word, Long]),
    (30, &[Handle, Word, Word]),
    (CREATE, &[Word, Word, Word, Word, Name]),
    (43, &[Handle, Offset, Offset, Word, Word]),
    (45, &[Node, Word, Word, Name, Name]),
    (46, &[Handle, Offset, Word, Word]),
    (47, &[Handle, Offset, Node, Handle, Offset, Offset, Long]),
];

const NAMES: [&[u8]; 9] = [
    b"a",
    b"b",
    b"c",
    b"user.a",
    b"security.capability",
    b"system.posix_acl_access",
    b"\xff\xfe",
    &[b'n'; 255],
    &[b'n'; 256],
];

/// Serves requests in an empty directory.
///
/// # Panics
/// If a request does not have one reply, or if a file has another size at the end than the mount
/// says.
pub fn requests(data: &[u8], directory: &Path) {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    let engine = ENGINE.get_or_init(|| {
        let options = Options { cache_bytes: Some(16 << 20), ..Options::default() };
        Engine::start(options).expect("an engine starts")
    });
    let mount = Arc::new(Mount::unmounted(directory, engine.clone()));
    let mut input = Unstructured::new(data);
    let (kernel, ours) = UnixDatagram::pair().expect("two sockets");
    kernel.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let mut kernel = Kernel { socket: kernel, last: 0, nodes: vec![ROOT], opened: 0 };
    let features: u32 = input.arbitrary().unwrap_or_default();
    let init = [7, 45, 1 << 20, features, features].map(u32::to_ne_bytes).concat();
    kernel.send(INIT, (ROOT, 0, 0), &[init, vec![0; 44]].concat());
    let connection = Connection::with(OwnedFd::from(ours)).expect("the features are agreed on");
    kernel.reply(INIT);
    let device = Arc::clone(&connection.device);
    let served = Served { mount: Arc::clone(&mount), device, opened: 0 };
    let serving = std::thread::spawn(move || serve(&served.device, &served, &Turns::new(1)));
    while !input.is_empty() && kernel.request(&mut input).is_ok() {}
    for handle in 1..=kernel.opened {
        kernel.send(RELEASE, (ROOT, 0, 0), &[handle, 0, 0].map(u64::to_ne_bytes).concat());
        kernel.reply(RELEASE);
    }
    kernel.send(DESTROY, (ROOT, 0, 0), &[]);
    kernel.reply(DESTROY);
    serving.join().expect("no panic").expect("the connection ends");
    let files: Vec<_> = mount.nodes.all().into_iter().filter(|node| node.is_file()).collect();
    let sizes: Vec<_> = files.iter().map(|node| attributes::of(node).map(|of| of.size)).collect();
    assert_eq!(durable::close_all(&mount), None, "all is written out");
    for (file, size) in files.iter().zip(sizes) {
        let in_source = file.status().expect("an open file has a status").st_size;
        assert_eq!(in_source as u64, size.expect("it had attributes"), "{}", file.name().display());
    }
}

/// The other end of a connection.
struct Kernel {
    socket: UnixDatagram,
    last: u64,
    nodes: Vec<u64>,
    /// Number of opens, and so the last handle.
    opened: u64,
}

impl Kernel {
    fn send(&mut self, code: u32, (node, user, group): (u64, u32, u32), body: &[u8]) {
        self.last += 1;
        let mut request = Vec::new();
        request.extend((40 + body.len() as u32).to_ne_bytes());
        request.extend(code.to_ne_bytes());
        request.extend(self.last.to_ne_bytes());
        request.extend(node.to_ne_bytes());
        request.extend([user, group, std::process::id(), 0].map(u32::to_ne_bytes).concat());
        request.extend(body);
        self.socket.send(&request).expect("the mount takes a request");
    }

    /// Receives the reply to the last request.
    fn reply(&mut self, code: u32) {
        let mut reply = vec![0; 256 << 10];
        // The fuzzer's timer interrupts it.
        let received = rustix::io::retry_on_intr(|| {
            rustix::net::recv(&self.socket, &mut reply, RecvFlags::empty())
        });
        let (_, bytes) = received.expect("each request has a reply");
        let word = |at| u32::from_ne_bytes(reply[at..at + 4].try_into().expect("four bytes"));
        let long = |at| u64::from_ne_bytes(reply[at..at + 8].try_into().expect("eight bytes"));
        let (error, unique) = (word(4).cast_signed(), long(8));
        assert_eq!((word(0) as usize, unique), (bytes, self.last), "the reply to {code}");
        assert!((-4095..=0).contains(&error), "error {error} of {code}");
        assert!(error == 0 || bytes == 16, "a reply with error and data to {code}");
        self.opened += u64::from(error == 0 && [OPEN, CREATE, TMPFILE].contains(&code));
        if error == 0 && ENTRIES.contains(&code) {
            self.nodes.push(long(16));
        }
    }

    fn request(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let (code, fields) = *input.choose(&REQUESTS)?;
        let who = input.int_in_range(0..=7)?;
        let caller = match who {
            0 => (input.arbitrary()?, input.arbitrary()?),
            1 => (1000, 1000),
            _ => (0, 0),
        };
        let mut body = Vec::new();
        let node = self.node(input)?;
        for field in fields {
            self.field(input, *field, &mut body)?;
        }
        // The flags come first.
        let unnamed = (libc::O_TMPFILE as u32).to_ne_bytes();
        let is_unnamed = body.iter().zip(unnamed).all(|(byte, bits)| byte & bits == bits);
        let code = if code == CREATE && is_unnamed { TMPFILE } else { code };
        // Some are sent once more, cut off.
        for bytes in [body.len(), body.len() / 2].into_iter().take(1 + usize::from(who == 7)) {
            self.send(code, (node, caller.0, caller.1), &body[..bytes]);
            if code != FORGET {
                self.reply(code);
            }
        }
        Ok(())
    }

    fn node(&self, input: &mut Unstructured<'_>) -> Result<u64> {
        match input.int_in_range(0..=15)? {
            0 => input.arbitrary(),
            at => Ok(self.nodes[usize::from(at - 1_u8) % self.nodes.len()]),
        }
    }

    fn field(&self, input: &mut Unstructured<'_>, field: Field, body: &mut Vec<u8>) -> Result<()> {
        match field {
            Word => body.extend(input.arbitrary::<u32>()?.to_ne_bytes()),
            Long => body.extend(input.arbitrary::<u64>()?.to_ne_bytes()),
            Kind => {
                let kind = [libc::S_IFREG, libc::S_IFSOCK, 0, libc::S_IFMT];
                let mode = input.choose(&kind)? | u32::from(input.arbitrary::<u16>()?) & 0o7777;
                body.extend(mode.to_ne_bytes());
            }
            Handle => body.extend(input.int_in_range(0..=9_u64)?.to_ne_bytes()),
            Node => body.extend(self.node(input)?.to_ne_bytes()),
            Offset => {
                let near = [0, 4096, 128 << 10, 1 << 32, 1 << 44, 1 << 63, u64::MAX];
                let (at, by) = (input.choose(&near)?, u64::from(input.arbitrary::<u16>()?));
                let offset = if by & 1 == 0 { at.wrapping_add(by) } else { at.wrapping_sub(by) };
                body.extend(offset.to_ne_bytes());
            }
            Size => body.extend(u32::from(input.arbitrary::<u16>()?).to_ne_bytes()),
            Write => {
                let data = vec![b'w'; input.arbitrary::<u16>()?.into()];
                body.extend((data.len() as u32).to_ne_bytes());
                [Word, Long, Word, Word].iter().try_for_each(|of| self.field(input, *of, body))?;
                body.extend(data);
            }
            Extended => {
                let value = vec![b'x'; input.int_in_range(0..=300)?];
                body.extend((value.len() as u32).to_ne_bytes());
                [Word, Name].iter().try_for_each(|of| self.field(input, *of, body))?;
                body.extend(value);
            }
            Name => {
                body.extend(*input.choose(&NAMES)?);
                body.push(0);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn kept_requests_of_the_fuzzer() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/mount");
        for input in fs::read_dir(corpus).unwrap() {
            let input = input.unwrap().path();
            println!("{}", input.display());
            let directory = tempfile::tempdir_in(".").unwrap();
            requests(&fs::read(input).unwrap(), directory.path());
        }
    }
}
