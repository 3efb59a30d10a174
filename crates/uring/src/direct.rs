//! Direct I/O: whether a descriptor has it, the alignment it needs, and its switch.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use forebay_block::limits::PAGE;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::block_device;
use crate::file::Kind;

/// Whether a file is accessed with direct I/O.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Direct {
    /// With direct I/O.
    Yes,
    /// With buffered I/O, for this reason.
    Refused(String),
}

/// Mode of the next request on a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// Direct I/O, past the page cache of the kernel.
    Direct,
    /// Buffered I/O, through the page cache of the kernel.
    Buffered,
}

/// Alignment that direct I/O needs, in bytes. Both values are powers of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Alignment {
    /// Alignment of memory addresses.
    pub memory: u32,
    /// Alignment of file offsets and lengths.
    pub offset: u32,
}

impl Alignment {
    /// No alignment, for buffered I/O.
    pub const NONE: Alignment = Alignment { memory: 1, offset: 1 };

    /// Safe if the kernel reports none: no device in use has larger blocks.
    const UNKNOWN: Alignment = Alignment { memory: 4096, offset: 4096 };
}

/// Returns the alignment that direct I/O needs, or `None` if it is impossible. The kernel reports
/// it since 6.1. Before, the size of the device's logical blocks is enough, says `open(2)`.
pub(crate) fn alignment(
    descriptor: BorrowedFd<'_>,
    kind: Kind,
    reported: Option<Alignment>,
) -> Option<Alignment> {
    if let Some(reported) = reported {
        return (reported.memory > 0 && reported.offset > 0).then_some(reported);
    }
    let block = match kind {
        Kind::Block => block_device::logical_block(descriptor).ok(),
        Kind::Regular => {
            let device = rustix::fs::fstat(descriptor).ok().map(|status| status.st_dev);
            device.and_then(crate::probe::device).and_then(|device| device.logical_block())
        }
        Kind::Other => None,
    };
    let aligned = |block: u32| Alignment { memory: block, offset: block };
    Some(block.filter(|block| block.is_power_of_two()).map_or(Alignment::UNKNOWN, aligned))
}

impl fmt::Display for Direct {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Direct::Yes => formatter.write_str("direct"),
            Direct::Refused(reason) => write!(formatter, "through the page cache: {reason}"),
        }
    }
}

/// Switches a descriptor with these flags to direct, if that is granted with the alignment of a
/// page.
pub(crate) fn go_direct(
    descriptor: BorrowedFd<'_>,
    kind: Kind,
    alignment: Option<Alignment>,
    flags: OFlags,
) -> io::Result<Direct> {
    if kind == Kind::Other {
        return Ok(Direct::Refused("neither a regular file nor a block device".into()));
    }
    if let Some(reason) = misaligned(alignment) {
        return Ok(Direct::Refused(reason));
    }
    match rustix::fs::fcntl_setfl(descriptor, flags | OFlags::DIRECT) {
        Ok(()) => Ok(Direct::Yes),
        Err(Errno::INVAL) => Ok(Direct::Refused("the file system has no direct I/O".into())),
        Err(error) => Err(error.into()),
    }
}

/// Why direct I/O in pages would fail, as far as the kernel can tell.
fn misaligned(alignment: Option<Alignment>) -> Option<String> {
    let Some(Alignment { memory, offset }) = alignment else {
        return Some("the file system has no direct I/O for this file".into());
    };
    let page = u32::try_from(PAGE).expect("a page is small");
    (memory > page || offset > page).then(|| {
        format!("direct I/O needs an alignment of {memory} in memory and {offset} in the file")
    })
}

pub(crate) fn set_flags(descriptor: BorrowedFd<'_>, flags: OFlags) -> Result<(), Errno> {
    let now = rustix::fs::fcntl_getfl(descriptor)?;
    rustix::fs::fcntl_setfl(descriptor, now | flags)
}

pub(crate) fn clear_flags(descriptor: BorrowedFd<'_>, flags: OFlags) -> io::Result<()> {
    let now = rustix::fs::fcntl_getfl(descriptor)?;
    Ok(rustix::fs::fcntl_setfl(descriptor, now - flags)?)
}
