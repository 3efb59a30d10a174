//! Adoption: the file takes over pages that a dead program left in memory.

use std::ops::{AddAssign, Range};
use std::sync::Arc;

use forebay_block::Frame;
use forebay_block::limits::PAGE as PAGE_BYTES;
use forebay_cache::limits::PAGE;
use forebay_cache::{FrameRun, FrameRuns};

use crate::core::inode::Inode;
use crate::core::inode::change::Changing;
use crate::core::recovery::inherited::{Inherited, is_whole};
use crate::core::shared::Shared;
use crate::platform::clock;
use crate::platform::{FrameState, Header};

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

impl Inode {
    /// Adopts the pages of a file that was handed over, before any caller uses it. The pool must
    /// already hold their frames as taken.
    pub(crate) fn adopt_pages(
        self: &Arc<Self>,
        shared: &Shared,
        inherited: &Inherited,
        trust: Trust,
    ) -> Pages {
        shared.change(self, |file| {
            let disk_size = file.cache.size();
            if self.fixed_size.is_none() {
                file.cache.adopt_size(size_of(inherited, disk_size, trust));
            }
            let mut pages = Pages::default();
            for (frame, header) in &inherited.pages {
                pages.clean += adopt_page(file, shared, (*frame, header), trust);
            }
            pages.unwritten = file.cache.dirty_pages();
            // Before the arena is updated, where the pages are already marked clean.
            file.apply(|_, settled| shared.pool.enter_clean(self.target, &mut settled.clean));
            if pages.unwritten > 0 {
                let _ = shared.level.add(pages.unwritten);
                file.dirty_since = Some(clock::instant());
            }
            pages
        })
    }

    /// Has the context look at the file.
    pub(crate) fn announce(self: &Arc<Self>, shared: &Shared) {
        shared.change(self, |file| {
            file.look();
        });
    }
}

/// Adopts one page. Returns the number of pages that are clean in memory because of it.
fn adopt_page(
    file: &mut Changing<'_>,
    shared: &Shared,
    (frame, header): (Frame, &Header),
    trust: Trust,
) -> u64 {
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
