//! Another process that is stopped in the middle of its work, and inspected: its open files, and
//! the memory of its engine.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::process::Child;

use forebay_block::Frame;
use forebay_uring::arena::Arena;
use forebay_uring::header::{FrameState, Header};
use forebay_uring::records::FileRecord;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, WaitOptions};

use super::PAGE;

/// Name of the memory of an engine with a keeper.
const MEMORY: &str = "/memfd:forebay (deleted)";

/// How much is read of a file at a time: whole pages.
const PIECE: usize = 1 << 20;

/// A process that is stopped; it goes on when this is dropped.
#[derive(Debug)]
pub(crate) struct Stopped {
    process: Pid,
    pidfd: OwnedFd,
}

impl Stopped {
    /// Stops all threads of a child; `None` where it has ended.
    pub(crate) fn new(child: &Child) -> Option<Self> {
        let process = Pid::from_child(child);
        rustix::process::kill_process(process, Signal::STOP).unwrap();
        let (_, status) =
            rustix::process::waitpid(Some(process), WaitOptions::UNTRACED).unwrap()?;
        if !status.stopped() {
            return None;
        }
        let pidfd = rustix::process::pidfd_open(process, PidfdFlags::empty()).unwrap();
        Some(Self { process, pidfd })
    }

    /// Whether we may have what it has open.
    pub(crate) fn may_be_looked_at(&self) -> bool {
        rustix::process::pidfd_getfd(&self.pidfd, 0, PidfdGetfdFlags::empty()).is_ok()
    }

    /// A duplicate of the first descriptor whose file is called so: the same open file, so no lease
    /// is asked for.
    pub(crate) fn descriptor(&self, name: &str) -> Option<OwnedFd> {
        let number = number_of(&self.process.as_raw_nonzero().to_string(), name)?;
        Some(rustix::process::pidfd_getfd(&self.pidfd, number, PidfdGetfdFlags::empty()).unwrap())
    }

    /// The memory of its engine; none where it has none yet.
    pub(crate) fn arena(&self) -> Option<Arena> {
        Some(Arena::of_memfd(self.descriptor(MEMORY)?).unwrap())
    }

    /// Content of a file as the kernel has it.
    pub(crate) fn content(&self, path: &Path) -> Vec<u8> {
        let file = match self.descriptor(path.to_str().unwrap()) {
            Some(descriptor) => File::from(descriptor),
            None => File::open(path).unwrap(),
        };
        read_whole_pages(&file)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        rustix::process::kill_process(self.process, Signal::CONT).unwrap();
    }
}

/// The number of the first descriptor of a process whose file is called so, and that can be read.
fn number_of(process: &str, name: &str) -> Option<i32> {
    let mut entries = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().map(Result::unwrap);
    let is_it = |entry: &std::fs::DirEntry| {
        std::fs::read_link(entry.path()).is_ok_and(|to| to == Path::new(name))
            && is_readable(process, entry)
    };
    entries.find(is_it)?.file_name().to_str().unwrap().parse().ok()
}

/// Whether a descriptor is open for reading. An engine has a second one of a file, for appends.
fn is_readable(process: &str, entry: &std::fs::DirEntry) -> bool {
    let number = entry.file_name();
    let path = Path::new("/proc").join(process).join("fdinfo").join(number);
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & libc::O_ACCMODE != libc::O_WRONLY)
}

/// Whether this process has an engine, or threads of one that is gone are still letting go of its
/// memory.
pub(crate) fn has_memory() -> bool {
    number_of("self", MEMORY).is_some()
}

/// The memory of the only engine of this process.
pub(crate) fn own_arena() -> Arena {
    let path = format!("/proc/self/fd/{}", number_of("self", MEMORY).expect("there is an engine"));
    let memory = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    Arena::of_memfd(memory.into()).unwrap()
}

/// Reads a file that may be open for direct I/O.
fn read_whole_pages(file: &File) -> Vec<u8> {
    let length = file.metadata().unwrap().len() as usize;
    let mut memory = vec![0; PIECE + PAGE as usize];
    let start = memory.as_ptr().align_offset(PAGE as usize);
    let piece = &mut memory[start..start + PIECE];
    let mut content = Vec::with_capacity(length);
    while content.len() < length {
        let read = file.read_at(piece, content.len() as u64).unwrap();
        assert!(read > 0, "a file of {length} bytes ends after {}", content.len());
        content.extend_from_slice(&piece[..read]);
    }
    content
}

/// Record and pages of one file in an arena.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) record: FileRecord,
    /// The youngest frame of each page that has to be written.
    pub(crate) dirty: BTreeMap<u64, (Frame, Header)>,
    pub(crate) clean: BTreeMap<u64, (Frame, Header)>,
}

/// The accounts of all files; everything that is published belongs to one.
pub(crate) fn accounts(arena: &Arena) -> Vec<Account> {
    let of_file = |(number, record): (u32, FileRecord)| {
        (number, Account { record, dirty: BTreeMap::new(), clean: BTreeMap::new() })
    };
    let mut accounts: BTreeMap<u32, Account> = arena.files().map(of_file).collect();
    for frame in (0..arena.frames()).map(Frame) {
        let Some(header) = arena.header(frame) else { continue };
        let account =
            accounts.get_mut(&header.file).expect("what is published is of a file that is entered");
        assert_eq!(
            header.generation, account.record.generation,
            "of which the number was another's"
        );
        if header.state == FrameState::Clean {
            let other = account.clean.insert(header.page, (frame, header));
            assert_eq!(other, None, "a page has one clean frame");
            continue;
        }
        let youngest = account.dirty.entry(header.page).or_insert((frame, header));
        if header.sequence > youngest.1.sequence {
            *youngest = (frame, header);
        }
    }
    for account in accounts.values() {
        let both = account.clean.keys().find(|page| account.dirty.contains_key(page));
        assert_eq!(both, None, "a page is clean or dirty");
    }
    accounts.into_values().collect()
}

impl Account {
    /// That of a file, if it is entered.
    pub(crate) fn of<'a>(accounts: &'a [Account], path: &Path) -> Option<&'a Account> {
        let found = std::fs::metadata(path).ok()?;
        let is_it = |account: &&Account| account.record.identity.inode == found.ino();
        accounts.iter().find(is_it)
    }

    /// Length of the file after its pending cut.
    fn end(&self) -> u64 {
        self.record.cut.map_or(self.record.size, |cut| cut.min(self.record.size))
    }

    /// Puts the unwritten pages over the content that the kernel has.
    pub(crate) fn recover(&self, arena: &Arena, mut content: Vec<u8>) -> Vec<u8> {
        if let Some(cut) = self.record.cut {
            content.resize(cut as usize, 0);
        }
        for (frame, header) in self.dirty.values() {
            let whole = 0..usize::from(header.length);
            let parts = match header.state {
                FrameState::Partial => arena.written_of(*frame),
                _ => vec![whole],
            };
            let room = self.end().saturating_sub(header.page * PAGE).min(PAGE) as usize;
            let at = (header.page * PAGE) as usize;
            for part in parts {
                let (start, end) = (part.start.min(room), part.end.min(room));
                if start == end {
                    continue;
                }
                content.resize(content.len().max(at + end), 0);
                // SAFETY: the process that writes the frame is stopped.
                unsafe { arena.copy_out(*frame, start, &mut content[at + start..at + end]) };
            }
        }
        content
    }

    /// The bytes of clean pages, as far as they are the file's, and where they are.
    pub(crate) fn clean_pages(&self, arena: &Arena) -> impl Iterator<Item = (usize, Vec<u8>)> {
        self.clean.values().map(move |(frame, header)| {
            let room = self.end().saturating_sub(header.page * PAGE).min(PAGE) as usize;
            let mut bytes = vec![0; room];
            // SAFETY: as above.
            unsafe { arena.copy_out(*frame, 0, &mut bytes) };
            ((header.page * PAGE) as usize, bytes)
        })
    }
}
