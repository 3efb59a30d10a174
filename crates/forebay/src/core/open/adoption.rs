//! Adoption by an engine: the files of a dead program are opened again, with the pages that were in
//! memory.

use std::ops::{AddAssign, Range};
use std::sync::Arc;

use forebay_block::limits::PAGE as PAGE_BYTES;
use forebay_block::{Frame, Target};
use forebay_cache::file::{Entry, Reserving};
use forebay_cache::limits::PAGE;
use forebay_cache::{CachedFile, FrameRun, FrameRuns, Liberties, Origin};

use crate::core::engine::Engine;
use crate::core::error::{Error, Result};
use crate::core::file::File;
use crate::core::inode::change::Changing;
use crate::core::inode::{Exclusion, Inode};
use crate::core::lease::{flush_what_was_there, lock_out_engines, look_at_lease};
use crate::core::open::close::arm;
use crate::core::open::enter::give_back_after_crash;
use crate::core::open::open_options::OpenOptions;
use crate::core::recovery::Standby;
use crate::core::recovery::inherited::{HandedFile, Inherited, is_whole};
use crate::core::shared::Shared;
use crate::core::space::reserving;
use crate::platform::{Coverage, FrameState, Header, Kind, clock};

/// Engine and files taken over from a dead program by [`Builder::adopt`](crate::Builder::adopt).
///
/// ```no_run
/// use forebay::{Adopted, Engine, Options};
///
/// # fn main() -> forebay::Result<()> {
/// let builder = Engine::builder(Options::default());
/// let Adopted { engine, files, clean_pages, .. } = builder.adopt("/run/app/keeper.socket")?;
/// println!("{} files, {} pages in memory", files.len(), clean_pages);
/// for file in files {
///     file.close()?;
/// }
/// # drop(engine); Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Adopted {
    /// One handle for reading and writing for each file of the dead program.
    pub files: Vec<File>,
    /// The engine of these files.
    pub engine: Engine,
    /// Process id of the dead program.
    pub process: u32,
    /// Number of pages in the cache that are equal to the device.
    pub clean_pages: u64,
    /// Number of pages of the dead program that its [`keeper`](crate::keeper) could not write. They
    /// are dirty in this engine, which tries again.
    pub unwritten_pages: u64,
}

impl Adopted {
    pub(crate) fn new(engine: Engine, files: Vec<File>, process: u32, pages: Pages) -> Self {
        let Pages { clean, unwritten } = pages;
        Self { files, engine, process, clean_pages: clean, unwritten_pages: unwritten }
    }
}

/// A file that can be adopted, and is not in use yet. If it is dropped then, lease and lock stay
/// with the old keeper, which has the same open file.
struct Taken {
    inode: Arc<Inode>,
    inherited: Inherited,
    trust: Trust,
    is_in_use: bool,
}

impl Drop for Taken {
    fn drop(&mut self) {
        if !self.is_in_use {
            self.inode.file.leave();
        }
    }
}

impl Engine {
    /// Adopts files before any other caller has this engine. `confirm` is called after all steps
    /// that can fail, and before anything is used.
    pub(crate) fn take_over(
        &self,
        handed: Vec<HandedFile>,
        confirm: impl FnOnce(Option<&dyn Standby>) -> Result<()>,
    ) -> Result<(Vec<File>, Pages)> {
        let shared = &self.owner.shared;
        let mut table = shared.table();
        assert!(table.inodes().is_empty(), "numbers of open files would be given again");
        table.take_targets(&handed.iter().map(|file| file.inherited.number).collect());
        // The dead program's memory of closed files is lost.
        table.unsynced.forget();
        drop(table);
        shared.pass_generation(
            handed.iter().map(|file| file.inherited.record.generation).max().unwrap_or(0),
        );
        let mut frames = FrameRuns::default();
        frames
            .extend(handed.iter().flat_map(|file| &file.inherited.pages).map(|(frame, _)| *frame));
        shared.pool.take_these(&frames);
        // Steps that can fail come first, for all files. A file in use here is in the arena as a
        // file of this engine, and its close would remove it there.
        let mut taken = Vec::with_capacity(handed.len());
        for file in handed {
            let path = file.path.clone();
            taken.push(self.take_over_file(file).map_err(|error| error.at_path(&path))?);
        }
        confirm(shared.keeper.as_deref())?;
        let mut pages = Pages::default();
        let mut files = Vec::with_capacity(taken.len());
        let open = OpenOptions::new().read(true).write(true).clone();
        for file in taken {
            let (inode, of_file) = self.begin_with(file);
            pages += of_file;
            files.push(File::new(Arc::clone(shared), inode, open.clone()));
        }
        Ok((files, pages))
    }

    /// Carries out all steps that may fail.
    fn take_over_file(&self, handed: HandedFile) -> Result<Taken> {
        let shared = &self.owner.shared;
        let HandedFile { mut file, path, inherited } = handed;
        let target = Target(inherited.number);
        let is_device = file.kind() == Kind::Block;
        // The keeper wrote through the kernel's cache.
        file.go_direct().map_err(Error::not_examined)?;
        if inherited.record.created {
            file.made_at(&path);
        }
        let owned = if is_device {
            Ok((Exclusion::Private, true))
        } else {
            self.take_over_lease(&file, target)
        };
        let looked =
            owned.and_then(|owned| Ok((owned, file.length().map_err(Error::not_examined)?)));
        let ((exclusion, was_ours), length) = looked.inspect_err(|_| file.leave())?;
        let liberties = exclusion.liberties();
        if liberties == Liberties::Exclusive && !is_device {
            give_back_after_crash(&path, &file, length);
        }
        let origin = match length {
            _ if is_device => Origin::Device(length),
            0 => Origin::Empty { entry: Entry::Old },
            _ => Origin::Existing(length),
        };
        let mut cache = CachedFile::new(target, origin, liberties);
        if inherited.record.created {
            cache.set_entry(Entry::New);
        }
        cache.set_reserving(if is_device {
            Reserving::Off
        } else {
            reserving(&self.owner.shared, &file, length)
        });
        let volume = shared.table().volume(file.identity().device, file.kind());
        let inode = Arc::new(Inode::new(cache, file, volume, path, exclusion));
        arm(&inode, shared);
        // A file that we had alone is at most as long as its record says.
        let is_trusted = was_ours && (is_device || length <= inherited.record.size);
        let trust = if is_trusted { Trust::Yes } else { Trust::No };
        inode.go_on_in_arena(shared, &inherited);
        let taken = Taken { inode, inherited, trust, is_in_use: false };
        taken.inode.have_kept(shared)?;
        Ok(taken)
    }

    /// Puts an adopted file into use.
    fn begin_with(&self, mut taken: Taken) -> (Arc<Inode>, Pages) {
        let shared = &self.owner.shared;
        taken.is_in_use = true;
        let inode = Arc::clone(&taken.inode);
        let pages = adopt_pages(&inode, shared, &taken.inherited, taken.trust);
        self.insert_into(&mut shared.table(), &inode);
        if inode.file.kind() != Kind::Block {
            look_at_lease(&self.owner.shared, &inode);
            flush_what_was_there(&self.owner.shared, &inode);
        }
        if pages.unwritten > 0 {
            shared.change(&inode, |file| {
                file.look();
            });
        }
        (inode, pages)
    }

    /// Takes over lock and lease of a file. The lock came with the descriptor. The lease did, too,
    /// if the dead program held it and no other program has asked for it since; otherwise it is
    /// requested as at an open. Also returns whether the lease was ours all the time.
    fn take_over_lease(
        &self,
        file: &crate::platform::OpenFile,
        target: Target,
    ) -> Result<(Exclusion, bool)> {
        lock_out_engines(file)?;
        if file.lease_coverage() != Coverage::Everyone {
            return Ok((Exclusion::Shared, false));
        }
        let was_ours = file.is_leased();
        if let Err(error) = file.adopt_lease(&self.owner.leases, u64::from(target.0)) {
            tracing::debug!(%error, "no lease; the file counts as shared");
        }
        if file.has_lease() {
            return Ok((Exclusion::Leased, was_ours));
        }
        // A program that waits for it continues.
        file.release_lease();
        Ok((Exclusion::Shared, false))
    }
}

/// Numbers of adopted pages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Pages {
    /// Pages that are equal to the device.
    pub(crate) clean: u64,
    /// Pages that still have to be written.
    pub(crate) unwritten: u64,
}

impl AddAssign for Pages {
    fn add_assign(&mut self, other: Self) {
        self.clean += other.clean;
        self.unwritten += other.unwritten;
    }
}

/// Whether clean pages are known to be equal to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trust {
    /// No other program can have had the file open, so they are.
    Yes,
    /// Another program may have changed the file.
    No,
}

/// Adopts the pages of a file that was handed over, before any caller uses it. The pool must
/// already hold their frames as taken.
fn adopt_pages(inode: &Arc<Inode>, shared: &Shared, inherited: &Inherited, trust: Trust) -> Pages {
    shared.change(inode, |file| {
        let disk_size = file.cache.size();
        if inode.fixed_size.is_none() {
            file.cache.adopt_size(size_of(inherited, disk_size, trust));
        }
        let mut pages = Pages::default();
        for (frame, header) in &inherited.pages {
            pages.clean += adopt_page(file, shared, *frame, header, trust);
        }
        pages.unwritten = file.cache.dirty_pages();
        // Before the arena is updated, where the pages are already marked clean.
        file.apply(|_, settled| shared.pool.enter_clean(inode.target, &mut settled.clean));
        if pages.unwritten > 0 {
            let _ = shared.level.add(pages.unwritten);
            file.service.became_dirty(clock::instant());
        }
        pages
    })
}

/// Adopts one page. Returns the number of pages that are clean in memory because of it.
fn adopt_page(
    file: &mut Changing<'_>,
    shared: &Shared,
    frame: Frame,
    header: &Header,
    trust: Trust,
) -> u64 {
    assert_eq!(header.file, file.inode().target.0, "bytes of another file would be adopted");
    let page = header.page;
    let inside = file.cache.size().saturating_sub(page * PAGE).min(PAGE) as usize;
    let is_lost =
        inside == 0 || header.state == FrameState::Clean && !is_as_on_device(header, inside, trust);
    if is_lost {
        file.apply(|_, settled| settled.freed.push(frame));
        return 0;
    }
    shared.pool.zero(frame, inside..PAGE_BYTES);
    match header.state {
        FrameState::Clean => {
            let run = FrameRun { first: frame, count: 1 };
            file.apply(|cache, settled| cache.adopt_clean(page, run, settled));
            return 1;
        }
        FrameState::Dirty => file.cache.adopt_dirty(page, frame),
        FrameState::Partial => {
            let written = written_of(shared, frame, inside);
            if is_whole(&written, inside) {
                // Checked before a frame for the rest is taken, because no frame may be free.
                file.cache.adopt_dirty(page, frame);
                if shared.pool.is_survived() {
                    shared.pool.arena().add_to_mask(frame, 0..PAGE_BYTES);
                }
                return 0;
            }
            let mut spares = FrameRuns::default();
            shared.pool.take(1, &mut spares);
            let spare = spares.take().expect("frames were left for them");
            file.apply(|cache, settled| {
                cache.adopt_partial(page, (frame, spare), &written, settled);
            });
        }
    }
    0
}

/// Returns the size of the file. Unwritten pages may lie beyond the end on the device. Programs
/// that had the file open meanwhile may have cut it.
fn size_of(inherited: &Inherited, disk_size: u64, trust: Trust) -> u64 {
    let last = inherited.pages.iter().rev().find(|(_, header)| header.state != FrameState::Clean);
    match (trust, last) {
        (_, None) => disk_size,
        (Trust::Yes, Some(_)) => inherited.record.size,
        (Trust::No, Some((_, header))) => inherited.record.size.min((header.page + 1) * PAGE),
    }
}

/// Returns whether a clean frame is equal to the device, as far as the file goes.
fn is_as_on_device(header: &Header, inside: usize, trust: Trust) -> bool {
    trust == Trust::Yes && usize::from(header.length) >= inside
}

/// Returns the bytes of a partly written page that have to be written, as far as the file goes.
fn written_of(shared: &Shared, frame: Frame, inside: usize) -> Vec<Range<usize>> {
    let written = shared.pool.arena().written_of(frame).into_iter();
    written
        .map(|bytes| bytes.start.min(inside)..bytes.end.min(inside))
        .filter(|bytes| !bytes.is_empty())
        .collect()
}
