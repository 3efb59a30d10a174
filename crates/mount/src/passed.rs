//! Files that are open past the engine, and those that the kernel reads itself.
//!
//! A reader of a file without unwritten bytes needs no engine. The kernel gets the file of the
//! source with the answer to the open (`FUSE_PASSTHROUGH`), and reads without this process:
//!
//! ```text
//! open for reading --clean, and nobody has it open--> the kernel reads the source
//! another reader ------while the first has it open--> likewise, by the same backing file
//! a writer ------------while the first has it open--> its requests come here, and go to the page
//!                                                     cache of the source, as do maps of it
//! last close ---------------------------------------> the next open finds the engine again
//! ```
//!
//! The kernel permits no mixture: while an inode has a backing file, an open that does not name it
//! fails. So the decision is made under the lock of the node, and all open files of a node are
//! either past the engine or none is.
//!
//! A map outlives the close of its file, and then the kernel has pages of the source in use. A
//! write by the engine would not be in them at once. So the first open for writing after a reader
//! looks whether something still has the file open, and stays past the engine then.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_uring::fuse::Backing;
use forebay_uring::probe;
use forebay_uring::sharing::is_open_elsewhere;
use rustix::fs::OFlags;

use crate::data::{Access, Held, OpenData, Way};
use crate::node::Node;
use crate::open_file::{OpenFile, OpenState};
use crate::plain::{as_asked, plain};
use crate::small::Small;
use crate::wire::opened;

/// File systems that may have another one below. The kernel takes no files of these.
const STACKED: [&str; 2] = ["overlay", "fuse"];

/// Gives a file to the kernel, which reads it from then on.
pub(crate) type Pass<'a> = &'a dyn Fn(BorrowedFd<'_>) -> io::Result<Backing>;

/// Whether the kernel reads files itself.
#[derive(Debug, Default)]
pub(crate) struct Passing(AtomicBool);

impl Passing {
    /// Asks the kernel whether this process may give it files, which is a right of root. The
    /// directory of the source is no file to read, and has another error.
    pub(crate) fn check(&self, device: &Arc<OwnedFd>, source: &impl AsFd) {
        let name = probe::known_file_system_of(source);
        let is_stacked = name.is_some_and(|name| STACKED.contains(&name));
        let is_refused = Backing::new(device, source.as_fd())
            .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
        self.0.store(!is_stacked && !is_refused, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn switch_on(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns how the kernel uses an open file.
pub(crate) fn how(file: &OpenFile, flags: OFlags, otherwise: u32) -> u32 {
    let reads = Access::of(flags) == Access::Read;
    let how = match file.backing {
        Some(_) if is_for_kernel(flags) => 0,
        // The kernel sends reads and writes here, and maps the backing file.
        Some(_) => opened::DIRECT_IO,
        None => otherwise,
    };
    // The close of a reader has nothing to do, and that of a new file replaces no content.
    if reads || file.is_new() { how | opened::NO_FLUSH } else { how }
}

/// Whether the kernel can serve an open alone. For direct I/O the source has rules of alignment,
/// which a mount has not.
fn is_for_kernel(flags: OFlags) -> bool {
    Access::of(flags) == Access::Read && !flags.contains(OFlags::DIRECT)
}

/// Opens the file of a node for a caller with these flags. `pass` gives it to the kernel, if that
/// can read it. Blocks.
pub(crate) fn open_for(
    way: &Way,
    node: &Arc<Node>,
    flags: OFlags,
    mut pass: Option<Pass<'_>>,
) -> io::Result<Arc<OpenFile>> {
    let access = Access::of(flags);
    loop {
        if let Some(file) = open_passed(node, flags, pass.take())? {
            return Ok(file);
        }
        let opened = match flags.contains(OFlags::TRUNC) {
            true => OpenFile::open_to_cut(way, node),
            false => OpenFile::open(way, node, access),
        };
        match opened {
            Ok(Some(file)) => return Ok(file),
            Ok(None) => {}
            Err(error) if access == Access::ReadWrite && is_refused(&error) => {
                return open_as_asked(node, flags);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether this process may not open a file in this way.
fn is_refused(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

/// Opens a new file of a node, which is open already. Blocks.
pub(crate) fn take(way: &Way, node: &Arc<Node>, file: OwnedFd) -> io::Result<Arc<OpenFile>> {
    let opened = OpenFile::opening(node, Access::ReadWrite, || {
        Ok(match way {
            Way::Engine(stack) => OpenData::Small(Small::new(stack, file.into())),
            Way::Plain => OpenData::Plain(file.into()),
        })
    });
    // A program may have found it by another name.
    opened?.map_or_else(|| open_as_asked(node, OFlags::RDWR), Ok)
}

/// Opens the file of a node past the engine, with no more rights than the caller asked for. The
/// engine needs both reading and writing, at any offset: it completes and rewrites pages. Blocks.
pub(crate) fn open_as_asked(node: &Arc<Node>, flags: OFlags) -> io::Result<Arc<OpenFile>> {
    Ok(open(node, flags, Why::Needed)?.expect("it is opened in this way or not at all"))
}

/// Opens the file of a node past the engine if it is open in that way, or if the kernel can read it
/// itself. Otherwise returns `None`. Blocks.
fn open_passed(
    node: &Arc<Node>,
    flags: OFlags,
    pass: Option<Pass<'_>>,
) -> io::Result<Option<Arc<OpenFile>>> {
    if Access::of(flags) == Access::ReadWrite && is_mapped(node) {
        return open_as_asked(node, flags).map(Some);
    }
    let why = pass.filter(|_| is_for_kernel(flags)).map_or(Why::Joins, Why::Passes);
    let may_be_past = {
        let state = node.state();
        state.is_past() || matches!(why, Why::Passes(_)) && state.is_clean()
    };
    if may_be_past { open(node, flags, why) } else { Ok(None) }
}

/// Why a file is opened past the engine.
#[derive(Clone, Copy)]
enum Why<'a> {
    /// The engine cannot have it.
    Needed,
    /// The others are open in this way.
    Joins,
    /// The same, or the kernel can read it.
    Passes(Pass<'a>),
}

/// Opens a file past the engine, one at a time.
fn open(node: &Arc<Node>, flags: OFlags, why: Why<'_>) -> io::Result<Option<Arc<OpenFile>>> {
    // Pages of the engine would be written over what this descriptor writes. The first of several
    // opens at once makes the backing file.
    let _closing = node.closing();
    let (begins, backing) = {
        let mut state = node.state();
        let is_past = state.is_open_as_asked();
        let begins = match why {
            Why::Passes(pass) if !is_past && state.is_clean() => Some(pass),
            Why::Needed => None,
            _ if is_past => None,
            _ => return Ok(None),
        };
        if begins.is_none()
            && let Some(file) = state.share(flags)
        {
            return Ok(Some(file));
        }
        // From here on the engine does not open it. A call that waits for this one says nothing:
        // many of them would keep each other from the engine forever.
        state.is_passing = true;
        (begins, state.backing())
    };
    let opened = open_begun(node, flags, begins, backing);
    let mut state = node.state();
    state.is_passing = false;
    if let Ok(Some(file)) = &opened {
        state.add(file);
    }
    opened
}

/// Opens a file past the engine, which cannot open it meanwhile. `begins` is how the kernel gets
/// it, `backing` what the kernel has. Returns `None` if the kernel does not take it.
fn open_begun(
    node: &Arc<Node>,
    flags: OFlags,
    begins: Option<Pass<'_>>,
    backing: Option<Arc<Backing>>,
) -> io::Result<Option<Arc<OpenFile>>> {
    let file = match as_asked(node.as_fd(), flags) {
        // The engine may have a descriptor, or reports the error.
        Err(_) if begins.is_some() => return Ok(None),
        opened => opened?,
    };
    let backing = match begins.map(|pass| pass(file.as_fd())) {
        Some(Ok(backing)) => Some(Arc::new(backing)),
        Some(Err(_)) => return Ok(None),
        None => backing,
    };
    if backing.is_some() {
        node.may_be_mapped.store(true, Ordering::Relaxed);
    }
    Ok(Some(OpenFile::past(node, OpenData::Plain(file), backing, flags)))
}

/// Whether something has the file of a node open that the kernel has read, although no program of
/// the mount has: a map does not end with a close.
fn is_mapped(node: &Node) -> bool {
    if !node.may_be_mapped.load(Ordering::Relaxed) {
        return false;
    }
    let kept = {
        let state = node.state();
        if !state.is_clean() {
            return false;
        }
        state.any().cloned()
    };
    let is_mapped = match kept {
        Some(kept) => kept.data.with(|held| match held {
            Held::Plain(file) => is_open_elsewhere(file),
            Held::Engine(_) => false,
        }),
        None => plain(node.as_fd(), true).is_ok_and(|file| is_open_elsewhere(&file)),
    };
    if !is_mapped {
        node.may_be_mapped.store(false, Ordering::Relaxed);
    }
    is_mapped
}

impl OpenState {
    /// Whether the node is open past the engine, or is just being opened in that way.
    pub(crate) fn is_past(&self) -> bool {
        self.is_passing || self.is_open_as_asked()
    }

    /// Adds an open for reading by an open file that the kernel reads: it needs no descriptor of
    /// its own.
    fn share(&mut self, flags: OFlags) -> Option<Arc<OpenFile>> {
        let reads = |file: &&Arc<OpenFile>| file.backing.is_some() && !file.is_opened_to_write();
        let file = self.open.iter().find(reads).filter(|_| is_for_kernel(flags))?.clone();
        self.add(&file);
        Some(file)
    }

    /// The backing file, if the kernel reads the node itself.
    fn backing(&self) -> Option<Arc<Backing>> {
        self.open.iter().find_map(|file| file.backing.clone())
    }

    /// Whether the source has all bytes, and nobody has the file open. A new small file is in the
    /// page cache of the source.
    fn is_clean(&self) -> bool {
        let is_idle = self.open.is_empty() && self.opening == 0;
        let is_shown = self.written.is_none() && !self.is_poisoned && !self.is_adopted;
        let is_in_source =
            |file: &Arc<OpenFile>| file.data.small().is_some_and(|small| !small.is_refused());
        is_idle && is_shown && self.kept.as_ref().is_none_or(is_in_source)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::fs::{CWD, Mode, openat};

    use super::*;
    use crate::node::Nodes;

    /// The first open keeps the engine from the file, and the kernel does not take it then.
    #[test]
    fn many_opens_beside_a_pass_that_fails_end() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, b"text").unwrap();
        let open = |path: &std::path::Path| openat(CWD, path, OFlags::PATH, Mode::empty()).unwrap();
        let nodes = Nodes::new(open(directory.path())).unwrap();
        let status = rustix::fs::stat(&path).unwrap();
        let (node, _) = nodes.enter(open(&path), &status, 1);
        let refuse = |_: BorrowedFd<'_>| {
            std::thread::sleep(Duration::from_millis(20));
            Err(io::ErrorKind::Unsupported.into())
        };
        let (send, done) = std::sync::mpsc::channel();
        for number in 0..16 {
            let (send, node) = (send.clone(), Arc::clone(&node));
            std::thread::spawn(move || {
                for turn in 0..20 {
                    let (flags, pass) = match (number + turn) % 4 {
                        0 => (OFlags::RDONLY, Some(&refuse as Pass<'_>)),
                        _ => (OFlags::RDWR, None),
                    };
                    let file = open_for(&Way::Plain, &node, flags, pass).unwrap();
                    assert!(file.backing.is_none());
                    file.end();
                }
                send.send(()).unwrap();
            });
        }
        for _ in 0..16 {
            done.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        assert!(!node.state().is_past() && !node.state().is_open());
    }
}
