//! Taking over what a keeper holds of a dead program: the talk with it, and what of it is whole.
//!
//! ```text
//! new program --- adopt ------------------> keeper    (which has written all it could, and waits)
//!             <-- arena, files, "that is all" ---
//!             ... maps, looks ...
//!             ... has a keeper of its own, on trial, which gets the files ...
//!             --- room ----------------------> keeper    (no longer at its socket: the next one will be there)
//!             ... its own keeper listens, and is on trial no more ...
//!             --- taken --------------------->         ends
//! ```
//!
//! Until the last word the keeper has everything, and everything that is done here may be done
//! twice: whoever dies in the middle of it, or cannot go on, leaves it to the next. What comes is
//! trusted in nothing: the memory is mapped only where all it says of itself is so, and a file
//! counts only where it is the one the arena means.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_block::Frame;
use forebay_cache::limits::PAGE;
use forebay_uring::layout::LAYOUT_VERSION;
use forebay_uring::passing::{self, Received};
use forebay_uring::{Arena, Channel, File, FileRecord, FrameState, Header};

use super::message::Message;
use super::process::{headers, is_meant, known_of, path_of};
use super::recover::frames_of;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{KEEPER_ANSWER, KEEPER_FINISHING, KEEPER_FIRST_WORD};

/// What a keeper has handed over, and may still get back.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) channel: Channel,
    pub(crate) arena: Arc<Arena>,
    /// Of whom it was.
    pub(crate) process: u32,
    pub(crate) files: Vec<HandedFile>,
}

/// One file of it.
#[derive(Debug)]
pub(crate) struct HandedFile {
    pub(crate) file: File,
    /// Where it is.
    pub(crate) path: PathBuf,
    pub(crate) inherited: Inherited,
}

/// What the arena says of a file.
#[derive(Debug)]
pub(crate) struct Inherited {
    /// By which frames name it.
    pub(crate) number: u32,
    /// Nothing of its length is under way any more.
    pub(crate) record: FileRecord,
    /// The pages that are here: of each its youngest frame, in the order of the file, all within
    /// its size.
    pub(crate) pages: Vec<(Frame, Header)>,
    /// No header of it has a larger one.
    pub(crate) sequence: u64,
}

impl Handed {
    /// Asks who listens there for what he holds. Blocks: he may be writing still.
    pub(crate) fn ask(socket: &Path) -> Result<Self> {
        let channel = connect(socket).map_err(|error| error.at_path(socket))?;
        Self::receive(channel).map_err(|error| error.at_path(socket))
    }

    fn receive(channel: Channel) -> Result<Self> {
        let sent = channel.send(&Message::Adopt { layout: LAYOUT_VERSION }.encode(), &[]);
        // Whoever does not listen has perhaps said why.
        let (first, descriptors) = match channel.receive(Some(KEEPER_FINISHING)) {
            Ok(Received::Message(message)) => decode(message)?,
            Ok(Received::Nothing) => return Err(failed("the keeper does not answer")),
            Ok(Received::End) => {
                let gone =
                    failed("the keeper is gone, or another program has adopted its files already");
                return Err(sent
                    .err()
                    .map_or(gone.remedy(OPEN_ANEW), |error| failed("no keeper").because(error)));
            }
            Err(error) => return Err(failed("could not receive from the keeper").because(error)),
        };
        let (process, count) = match first {
            Message::Handed { process, files } => (process, files),
            Message::Refused { reason } => {
                return Err(failed(&format!("the keeper refused the adoption: {reason}")));
            }
            _ => return Err(failed("the process at the socket sent an unexpected answer")),
        };
        let [memfd] = one(descriptors)?;
        let arena = Arena::of_memfd(memfd).map_err(|error| {
            failed(&format!("could not adopt the memory of the dead program: {error}"))
        })?;
        let mut files = BTreeMap::new();
        for _ in 0..count {
            let (number, generation, file) = next_file(&channel)?;
            files.insert(number, (generation, file));
        }
        match next(&channel)? {
            (Message::End, _) => {}
            _ => return Err(failed("the keeper sent more files than it announced")),
        }
        let arena = Arc::new(arena);
        let files = whole_files(&arena, files)?;
        Ok(Self { channel, arena, process, files })
    }

    /// A new keeper may listen where the old one did.
    ///
    /// # Errors
    /// `Keeper` if the old one does not answer, or has ended the adoption.
    pub(crate) fn make_room(channel: &Channel) -> Result<()> {
        // Whoever is gone needs no room.
        let asked = channel
            .send(&Message::Room.encode(), &[])
            .and_then(|()| channel.receive(Some(KEEPER_ANSWER)));
        match asked {
            Ok(Received::Nothing) => Err(failed("the keeper does not answer")),
            Ok(Received::Message(message)) => unless_refused(message),
            Ok(Received::End) | Err(_) => Ok(()),
        }
    }

    /// Says that everything is taken over, before anything of it is used. Returns when the keeper
    /// has let go of it, or is gone; after a second at most.
    ///
    /// # Errors
    /// `Keeper` if that has ended the adoption because it took too long: others may have the files.
    pub(crate) fn tell_taken(channel: &Channel) -> Result<()> {
        // A keeper that is gone has nothing that it could give to others. Its last message can
        // still be read.
        let sent = channel.send(&Message::Taken.encode(), &[]);
        match channel.receive(Some(KEEPER_ANSWER)) {
            Ok(Received::Message(message)) => unless_refused(message),
            Ok(Received::Nothing) if sent.is_ok() => {
                tracing::warn!("the keeper of the dead program does not end");
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// What to do where there is nothing to be taken over.
const OPEN_ANEW: &str = "accepted data is already written: build a new engine and open the files";

/// The old keeper's answer, which may be that the adoption took too long.
fn unless_refused(message: passing::Message) -> Result<()> {
    match decode(message)?.0 {
        Message::Refused { reason } => {
            Err(failed(&format!("the keeper refuses: {reason}")).remedy(OPEN_ANEW))
        }
        _ => Ok(()),
    }
}

fn failed(what: &str) -> Error {
    Error::new(ErrorKind::Keeper, what)
}

fn connect(socket: &Path) -> Result<Channel> {
    let channel = Channel::connect(socket).map_err(|error| {
        let is_gone =
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused);
        let nobody = failed("no keeper listens at the socket").because(error);
        if is_gone { nobody.remedy(OPEN_ANEW) } else { nobody }
    })?;
    let peer = channel.peer().map_err(|error| {
        failed("could not determine the user of the process at the socket").because(error)
    })?;
    if !peer.is_trusted() {
        return Err(failed(&format!(
            "the keeper at the socket belongs to another user ({})",
            peer.user
        )));
    }
    Ok(channel)
}

fn decode(message: passing::Message) -> Result<(Message, Vec<OwnedFd>)> {
    let decoded = Message::decode(&message.bytes).map_err(|malformed| {
        failed(&format!("invalid message from the process at the socket: {malformed}"))
    })?;
    if message.lost {
        let error = failed("this process has reached its limit of open files");
        return Err(error.remedy("raise the limit of open files (ulimit -n)"));
    }
    Ok((decoded, message.descriptors))
}

/// What was announced is there, or comes at once.
fn next(channel: &Channel) -> Result<(Message, Vec<OwnedFd>)> {
    match channel.receive(Some(KEEPER_FIRST_WORD)) {
        Ok(Received::Message(message)) => decode(message),
        Ok(_) => Err(failed("the keeper stopped sending its files")),
        Err(error) => Err(failed("could not receive from the keeper").because(error)),
    }
}

fn next_file(channel: &Channel) -> Result<(u32, u16, OwnedFd)> {
    match next(channel)? {
        (Message::File { number, generation }, descriptors) => {
            let [file] = one(descriptors)?;
            Ok((number, generation, file))
        }
        _ => Err(failed("the keeper sent fewer files than it announced")),
    }
}

fn one(descriptors: Vec<OwnedFd>) -> Result<[OwnedFd; 1]> {
    let wrong = |got: Vec<OwnedFd>| {
        failed(&format!("the keeper sent {} descriptors instead of one", got.len()))
    };
    descriptors.try_into().map_err(wrong)
}

/// The files that the arena means, with what is in it of them; of everything else it says nothing
/// any more.
fn whole_files(arena: &Arena, handed: BTreeMap<u32, (u16, OwnedFd)>) -> Result<Vec<HandedFile>> {
    let mut files = BTreeMap::new();
    for (number, (generation, descriptor)) in handed {
        let found = path_of(&descriptor);
        let record = arena.file(number).filter(|record| record.generation == generation);
        let file = File::of_descriptor(descriptor);
        let file = file
            .map_err(|error| failed("could not adopt the file").at_path(&found).because(error))?;
        match record {
            Some(mut record) if is_meant(&file, &record) => {
                finish_cut(arena, number, &file, &mut record)
                    .map_err(|error| error.at_path(&found))?;
                let path = path_now(&file, &record, found);
                let inherited = Inherited { number, record, pages: Vec::new(), sequence: 0 };
                files.insert(number, HandedFile { file, path, inherited });
            }
            // Its last handle was being closed.
            _ => {
                tracing::info!(path = %found.display(), "not taken over: the arena does not mean it");
            }
        }
    }
    let known: HashMap<_, _> =
        files.iter().map(|(number, file)| (*number, known_of(&file.inherited.record))).collect();
    let frames = frames_of(&known, headers(arena));
    for of_page in
        frames.chunk_by(|(_, one), (_, next)| (one.file, one.page) == (next.file, next.page))
    {
        let (frame, header) = of_page.last().expect("a chunk is not empty");
        let inherited = &mut files
            .get_mut(&header.file)
            .expect("frames of other files were left out")
            .inherited;
        inherited.sequence = inherited.sequence.max(header.sequence);
        if header.page * PAGE < inherited.record.size {
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

/// A length that was being set is set, where the keeper could not.
fn finish_cut(arena: &Arena, number: u32, file: &File, record: &mut FileRecord) -> Result<()> {
    let Some(length) = record.cut else { return Ok(()) };
    file.truncate(length)
        .map_err(|error| failed("could not set the length of the file").because(error))?;
    arena.set_file_size(number, length);
    arena.set_file_cut(number, None);
    (record.size, record.cut) = (length, None);
    Ok(())
}

/// Where a file is: at the path by which it was opened, if it still is there, else where the kernel
/// says.
fn path_now(file: &File, record: &FileRecord, found: PathBuf) -> PathBuf {
    let names_it =
        |path: &Path| File::identity_of(path).is_ok_and(|identity| identity == file.identity());
    let is_known = !record.path.as_os_str().is_empty();
    if is_known && (names_it(&record.path) || !names_it(&found)) {
        record.path.clone()
    } else {
        found
    }
}

/// Whether nothing is missing of a page that was written in parts, up to this byte of it.
pub(crate) fn is_whole(written: &[Range<usize>], inside: usize) -> bool {
    matches!(written, [bytes] if bytes.start == 0 && bytes.end >= inside)
}

/// What was written of a page in part needs a frame for the rest of it, if there is one: clean
/// pages make room.
///
/// # Errors
/// `Keeper` where they cannot make enough of it, which no program leaves behind.
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

/// The arena says nothing of others from now on.
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

#[cfg(test)]
mod tests {
    use forebay_uring::Identity;

    use super::*;

    fn file(number: u32, pages: Vec<(Frame, Header)>) -> HandedFile {
        let file = File::of_descriptor(tempfile::tempfile().unwrap().into()).unwrap();
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
    fn clean_pages_make_room_for_what_is_missing_of_others() {
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
        // Where nothing is missing no room is needed for it, and none is made that there cannot be.
        leave_spares(6, &mut files, |_| true).unwrap();
        assert_eq!([files[0].inherited.pages.len(), files[1].inherited.pages.len()], [2, 4]);
        assert_eq!(leave_spares(6, &mut files, never).unwrap_err().kind(), ErrorKind::Keeper);
    }

    #[test]
    fn what_is_not_taken_over_is_not_in_the_arena_any_more() {
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
