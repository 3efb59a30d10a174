//! Content of a dead program's arena, and the part that can be adopted.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use forebay_block::Frame;
use forebay_cache::limits::PAGE;

use super::plan::{Known, frames_of};
use crate::core::error::{Error, ErrorKind, Result};
use crate::platform::{Access, Arena, FileRecord, FrameState, Header, OpenFile, files};

/// A file of a dead program.
#[derive(Debug)]
pub(crate) struct HandedFile {
    pub(crate) file: OpenFile,
    /// Path of the file.
    pub(crate) path: PathBuf,
    pub(crate) inherited: Inherited,
}

/// File received from the keeper.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) generation: u16,
    /// Its path now, as the kernel reports it.
    pub(crate) found: PathBuf,
    pub(crate) file: io::Result<OpenFile>,
}

/// Content of the arena for a file.
#[derive(Debug)]
pub(crate) struct Inherited {
    /// Number of the file in the headers of frames.
    pub(crate) number: u32,
    /// Record; no change of length is in progress.
    pub(crate) record: FileRecord,
    /// Pages in memory: the youngest frame of each, in the order of the file, within its size.
    pub(crate) pages: Vec<(Frame, Header)>,
    /// Largest sequence number of its headers.
    pub(crate) sequence: u64,
}

/// Returns the part of a record that a plan needs.
pub(crate) fn known_of(record: &FileRecord) -> Known {
    Known { generation: record.generation, size: record.size, cut: record.cut }
}

/// The reason why nothing is written of a file that is marked as interrupted.
pub(crate) const INTERRUPTED: &str =
    "the program panicked while it changed this file's state, so its data may be half changed";

/// Returns all published headers.
pub(crate) fn headers(arena: &Arena) -> impl Iterator<Item = (Frame, Header)> {
    (0..arena.frames()).map(Frame).filter_map(|frame| Some((frame, arena.header(frame)?)))
}

/// Returns whether a file is the one of a record, and may be written.
pub(crate) fn matches_record(file: &OpenFile, record: &FileRecord) -> bool {
    file.identity() == record.identity && record.writable && file.access() == Access::ReadWrite
}

/// Returns the files that the arena has records of, with their frames. Removes everything else from
/// the arena.
pub(crate) fn whole_files(
    arena: &Arena,
    handed: BTreeMap<u32, Received>,
) -> Result<Vec<HandedFile>> {
    let mut files = BTreeMap::new();
    for (number, Received { generation, found, file }) in handed {
        let record = arena.file(number).filter(|record| record.generation == generation);
        let file = file
            .map_err(|error| failed("could not adopt the file").at_path(&found).because(error))?;
        match record {
            // Its pages may be half changed. A new open has the content of the file system.
            Some(record) if record.interrupted => {
                tracing::warn!(path = %found.display(), "not taken over: {INTERRUPTED}");
            }
            Some(mut record) if matches_record(&file, &record) => {
                finish_cut(arena, number, &file, &mut record)
                    .map_err(|error| error.at_path(&found))?;
                let path = path_now(&file, &record, found);
                let inherited = Inherited { number, record, pages: Vec::new(), sequence: 0 };
                files.insert(number, HandedFile { file, path, inherited });
            }
            // Its last handle was being closed.
            _ => {
                tracing::info!(
                    path = %found.display(),
                    "not taken over: the arena has no record of it"
                );
            }
        }
    }
    let known: BTreeMap<_, _> =
        files.iter().map(|(number, file)| (*number, known_of(&file.inherited.record))).collect();
    let frames = frames_of(&known, headers(arena));
    for of_page in
        frames.chunk_by(|(_, one), (_, next)| (one.file, one.page) == (next.file, next.page))
    {
        let (frame, header) = of_page.last().expect("a chunk is not empty");
        let inherited =
            &mut files.get_mut(&header.file).expect("frames of other files are left out").inherited;
        assert_eq!(inherited.record.generation, header.generation, "pages of an earlier file");
        inherited.sequence = inherited.sequence.max(header.sequence);
        if header.page * PAGE < inherited.record.size {
            let last = inherited.pages.last().map(|(_, last)| last.page);
            assert!(last.is_none_or(|last| last < header.page), "a page would have two frames");
            inherited.pages.push((*frame, *header));
        }
    }
    let mut files: Vec<HandedFile> = files.into_values().collect();
    leave_spares(arena.frames(), &mut files, |frame| {
        is_whole(&arena.written_of(frame), PAGE as usize)
    })?;
    forget_all_but(arena, &files);
    Ok(files)
}

/// Sets a length that was being set, because the keeper could not.
fn finish_cut(arena: &Arena, number: u32, file: &OpenFile, record: &mut FileRecord) -> Result<()> {
    let Some(length) = record.cut else { return Ok(()) };
    file.truncate(length)
        .map_err(|error| failed("could not set the length of the file").because(error))?;
    arena.set_file_size(number, length);
    arena.set_file_cut(number, None);
    (record.size, record.cut) = (length, None);
    Ok(())
}

/// Returns the path of a file: the path of its open if that still names it, otherwise the path that
/// the kernel reports.
fn path_now(file: &OpenFile, record: &FileRecord, found: PathBuf) -> PathBuf {
    let names_it =
        |path: &Path| files::identity_of(path).is_ok_and(|identity| identity == file.identity());
    let is_known = !record.path.as_os_str().is_empty();
    if is_known && (names_it(&record.path) || !names_it(&found)) {
        record.path.clone()
    } else {
        found
    }
}

/// Returns whether a page that was written in parts is complete up to this byte.
pub(crate) fn is_whole(written: &[Range<usize>], inside: usize) -> bool {
    matches!(written, [bytes] if bytes.start == 0 && bytes.end >= inside)
}

/// Makes room for the frames that partly written pages need in addition, by dropping clean pages.
///
/// # Errors
/// `Keeper` if they are not enough, a state that no program leaves behind.
fn leave_spares(
    frames: u32,
    files: &mut [HandedFile],
    is_whole: impl Fn(Frame) -> bool,
) -> Result<()> {
    let pages = || files.iter().flat_map(|file| &file.inherited.pages);
    let needs_spare = |(frame, header): &&(Frame, Header)| {
        header.state == FrameState::Partial && !is_whole(*frame)
    };
    let mut lacking =
        (pages().count() + pages().filter(needs_spare).count()).saturating_sub(frames as usize);
    for file in files {
        file.inherited.pages.retain(|(_, header)| {
            let goes = lacking > 0 && header.state == FrameState::Clean;
            lacking -= usize::from(goes);
            !goes
        });
    }
    if lacking > 0 {
        return Err(failed(&format!(
            "{lacking} more pages of memory are needed for partly written pages"
        )));
    }
    Ok(())
}

/// Removes all other files from the arena.
pub(crate) fn forget_all_but(arena: &Arena, files: &[HandedFile]) {
    let kept: BTreeSet<Frame> =
        files.iter().flat_map(|file| &file.inherited.pages).map(|(frame, _)| *frame).collect();
    for frame in (0..arena.frames()).map(Frame) {
        if arena.published(frame).is_some() && !kept.contains(&frame) {
            arena.retire(frame);
        }
    }
    let numbers: BTreeSet<u32> = files.iter().map(|file| file.inherited.number).collect();
    let others: Vec<u32> = arena
        .files()
        .map(|(number, _)| number)
        .filter(|number| !numbers.contains(number))
        .collect();
    others.into_iter().for_each(|number| arena.leave_file(number));
}

fn failed(what: &str) -> Error {
    Error::new(ErrorKind::Keeper, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{Flush, Identity};

    fn file(number: u32, pages: Vec<(Frame, Header)>) -> HandedFile {
        let file = OpenFile::of_descriptor(tempfile::tempfile().unwrap().into()).unwrap();
        let identity = Identity { device: 0, inode: 0 };
        let record = FileRecord {
            generation: 1,
            leased: true,
            device: false,
            writable: true,
            created: false,
            identity,
            size: 1 << 20,
            cut: None,
            interrupted: false,
            flush: Flush::Well,
            unpublished: None,
            path: PathBuf::new(),
        };
        HandedFile {
            file,
            path: PathBuf::new(),
            inherited: Inherited { number, record, pages, sequence: 0 },
        }
    }

    fn page(frame: u32, state: FrameState) -> (Frame, Header) {
        let header = Header {
            file: 0,
            generation: 1,
            page: u64::from(frame),
            sequence: 1,
            length: 4096,
            state,
        };
        (Frame(frame), header)
    }

    #[test]
    fn clean_pages_make_room_for_partly_written_ones() {
        use FrameState::{Clean, Dirty, Partial};
        let of = |states: &[FrameState]| {
            (0..).zip(states).map(|(frame, state)| page(frame, *state)).collect()
        };
        let mut files =
            [file(0, of(&[Dirty, Clean, Partial])), file(1, of(&[Clean, Partial, Partial, Clean]))];
        let never = |_| false;
        leave_spares(9, &mut files, never).unwrap();
        assert_eq!(
            [files[0].inherited.pages.len(), files[1].inherited.pages.len()],
            [2, 4],
            "one goes: 6 pages and 3 spares"
        );
        leave_spares(100, &mut files, never).unwrap();
        assert_eq!([files[0].inherited.pages.len(), files[1].inherited.pages.len()], [2, 4]);
        // Complete pages need no room, so a full memory is enough.
        leave_spares(6, &mut files, |_| true).unwrap();
        assert_eq!([files[0].inherited.pages.len(), files[1].inherited.pages.len()], [2, 4]);
        assert_eq!(leave_spares(6, &mut files, never).unwrap_err().kind(), ErrorKind::Keeper);
    }

    #[test]
    fn contract_21_an_interrupted_file_is_not_taken_over() {
        let arena = Arena::shared(16).unwrap();
        let mut handed = BTreeMap::new();
        for number in [3, 4] {
            let file = OpenFile::of_descriptor(tempfile::tempfile().unwrap().into()).unwrap();
            let record = self::file(number, Vec::new()).inherited.record;
            arena.enter_file(number, &FileRecord { identity: file.identity(), ..record });
            arena.publish(Frame(number), Header { file: number, ..page(5, FrameState::Dirty).1 });
            let (generation, found) = (1, PathBuf::new());
            handed.insert(number, Received { generation, found, file: Ok(file) });
        }
        arena.interrupt_file(4);
        let files = whole_files(&arena, handed).unwrap();
        let taken: Vec<_> = files.iter().map(|file| file.inherited.number).collect();
        assert_eq!((taken, files[0].inherited.pages.len()), (vec![3], 1));
        assert_eq!(headers(&arena).map(|(frame, _)| frame.0).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn files_that_are_not_taken_over_leave_the_arena() {
        let arena = Arena::shared(16).unwrap();
        let kept = file(3, vec![page(5, FrameState::Clean)]);
        for number in [3, 4] {
            arena.enter_file(number, &kept.inherited.record);
        }
        for frame in [4, 5, 6] {
            arena.publish(Frame(frame), page(frame, FrameState::Dirty).1);
        }
        forget_all_but(&arena, std::slice::from_ref(&kept));
        assert_eq!(arena.files().map(|(number, _)| number).collect::<Vec<_>>(), [3]);
        assert_eq!(headers(&arena).map(|(frame, _)| frame.0).collect::<Vec<_>>(), [5]);
    }
}
