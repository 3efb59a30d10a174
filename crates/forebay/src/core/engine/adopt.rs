//! Adoption by an engine: the files of a dead program are opened again, with the pages that were in
//! memory.

use std::sync::Arc;

use forebay_block::Target;
use forebay_cache::file::{Entry, Reserving};
use forebay_cache::{CachedFile, FrameRuns, Liberties, Origin};

use super::lease::lock_out_engines;
use super::{Engine, cannot_look, give_back_after_crash};
use crate::core::adopt::{Pages, Trust};
use crate::core::error::Result;
use crate::core::file::File;
use crate::core::inode::{Hold, Inode};
use crate::core::open::Open;
use crate::core::recovery::inherited::{HandedFile, Inherited};
use crate::core::standby::Standby;
use crate::platform::{Coverage, Kind};

/// Engine and files taken over from a dead program by [`Builder::adopt`](crate::Builder::adopt).
///
/// ```no_run
/// use forebay::{Adopted, Engine};
///
/// # fn main() -> forebay::Result<()> {
/// let Adopted { engine, files, clean_pages, .. } = Engine::adopt("/run/app/keeper.socket")?;
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
        for file in taken {
            let (inode, of_file) = self.begin_with(file);
            pages += of_file;
            files.push(File::new(Arc::clone(shared), inode, Open::write(), self.owner.patience));
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
        file.go_direct().map_err(cannot_look)?;
        if inherited.record.created {
            file.made_at(&path);
        }
        let owned =
            if is_device { Ok((Hold::Private, true)) } else { self.take_over_lease(&file, target) };
        let looked = owned.and_then(|owned| Ok((owned, file.length().map_err(cannot_look)?)));
        let ((hold, was_ours), length) = looked.inspect_err(|_| file.leave())?;
        let liberties = hold.liberties();
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
        cache.set_reserving(if is_device { Reserving::Off } else { self.reserving(&file, length) });
        let volume = shared.table().volume(file.identity().device, file.kind());
        let inode = Arc::new(Inode::new(cache, file, volume, path, hold));
        inode.arm(shared);
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
        let pages = inode.adopt_pages(shared, &taken.inherited, taken.trust);
        self.insert_into(&mut shared.table(), &inode);
        if inode.file.kind() != Kind::Block {
            self.look_at_lease(&inode);
            self.flush_what_was_there(&inode);
        }
        if pages.unwritten > 0 {
            inode.announce(shared);
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
    ) -> Result<(Hold, bool)> {
        lock_out_engines(file)?;
        if file.lease_coverage() != Coverage::Everyone {
            return Ok((Hold::Shared, false));
        }
        let was_ours = file.is_leased();
        if let Err(error) = file.adopt_lease(&self.owner.leases, u64::from(target.0)) {
            tracing::debug!(%error, "no lease; the file counts as shared");
        }
        if file.has_lease() {
            return Ok((Hold::Leased, was_ours));
        }
        // A program that waits for it continues.
        file.release_lease();
        Ok((Hold::Shared, false))
    }
}
