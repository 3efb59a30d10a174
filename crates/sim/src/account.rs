//! What a process has said of its frames when it dies, and what another one makes of that: every
//! file as its program was told.

use std::collections::BTreeMap;
use std::ops::Range;

use forebay_block::Frame;
use forebay_block::limits::PAGE;
use forebay_cache::account::{Account, Said};

use crate::arena::Arena;

/// The accounts of all files.
#[derive(Debug)]
pub struct Accounts {
    frames: Vec<Option<Published>>,
    /// Of frames that are published in part.
    masks: BTreeMap<u32, Vec<bool>>,
    files: Vec<Option<Entered>>,
}

/// What is said of a frame.
#[derive(Clone, Copy, Debug)]
struct Published {
    file: usize,
    page: u64,
    said: Said,
    sequence: u64,
}

/// What is said of an open file.
#[derive(Clone, Debug)]
struct Entered {
    size: u64,
    cut: Option<u64>,
    sequence: u64,
}

/// The account of one file, to say something.
#[derive(Debug)]
pub struct Telling<'a> {
    accounts: &'a mut Accounts,
    file: usize,
}

impl Accounts {
    /// Nothing is said of so many frames, for so many files.
    #[must_use]
    pub fn new(frames: u32, files: u32) -> Self {
        let (frames, files) = (vec![None; frames as usize], vec![None; files as usize]);
        Self { frames, masks: BTreeMap::new(), files }
    }

    /// A file is opened, of so many bytes.
    pub fn enter(&mut self, file: usize, size: u64) {
        self.files[file] = Some(Entered { size, cut: None, sequence: 0 });
    }

    /// A file is closed.
    ///
    /// # Panics
    /// When something is said of it.
    pub fn leave(&mut self, file: usize) {
        let left = self.frames.iter().flatten().find(|published| published.file == file);
        assert!(left.is_none(), "a file leaves when nothing is said of it any more: {left:?}");
        self.files[file] = None;
    }

    /// To say something of a file that is open.
    pub fn tell(&mut self, file: usize) -> Telling<'_> {
        self.files[file].as_mut().expect("a file is entered").sequence += 1;
        Telling { accounts: self, file }
    }

    /// A file is being cut to a length, or not any more.
    pub fn set_cut(&mut self, file: usize, cut: Option<u64>) {
        self.files[file].as_mut().expect("a file is entered").cut = cut;
    }

    /// The length that a file is being cut to.
    #[must_use]
    pub fn cut(&self, file: usize) -> Option<u64> {
        self.files[file].as_ref().and_then(|entered| entered.cut)
    }

    /// Whether something is said of a frame.
    #[must_use]
    pub fn is_published(&self, frame: Frame) -> bool {
        self.frames[frame.0 as usize].is_some()
    }

    /// What another process makes of a file that the kernel has so.
    ///
    /// # Panics
    /// When the file is not open.
    #[must_use]
    pub fn recover(&self, file: usize, arena: &Arena, mut content: Vec<u8>) -> Vec<u8> {
        let entered = self.files[file].as_ref().expect("a file is entered");
        let end = entered.cut.map_or(entered.size, |cut| cut.min(entered.size));
        if let Some(cut) = entered.cut {
            content.resize(cut as usize, 0);
        }
        let mut youngest: BTreeMap<u64, (u64, Frame)> = BTreeMap::new();
        for (frame, published) in
            self.of(file).filter(|(_, published)| published.said != Said::Clean)
        {
            let this = (published.sequence, frame);
            let known = youngest.entry(published.page).or_insert(this);
            *known = if this.0 > known.0 { this } else { *known };
        }
        for (page, (_, frame)) in youngest {
            let start = page as usize * PAGE;
            let room = (end as usize).saturating_sub(start).min(PAGE);
            let mask = self.masks.get(&frame.0);
            for at in (0..room).filter(|at| mask.is_none_or(|mask| mask[*at])) {
                if content.len() <= start + at {
                    content.resize(start + at + 1, 0);
                }
                content[start + at] = arena.frame(frame)[at];
            }
        }
        content
    }

    /// The clean pages of a file.
    pub fn clean(&self, file: usize) -> impl Iterator<Item = (u64, Frame)> {
        let clean = self.of(file).filter(|(_, published)| published.said == Said::Clean);
        clean.map(|(frame, published)| (published.page, frame))
    }

    /// Frames of a file that are said to have to be written.
    #[must_use]
    pub fn unwritten(&self, file: usize) -> u64 {
        self.of(file).filter(|(_, published)| published.said != Said::Clean).count() as u64
    }

    fn of(&self, file: usize) -> impl Iterator<Item = (Frame, &Published)> {
        let frames = self.frames.iter().zip(0..);
        frames.filter_map(move |(published, frame)| {
            published
                .as_ref()
                .filter(|published| published.file == file)
                .map(|published| (Frame(frame), published))
        })
    }
}

impl Account for Telling<'_> {
    fn said(&self, frame: Frame) -> Option<Said> {
        self.accounts.frames[frame.0 as usize].map(|published| published.said)
    }

    fn publish(&mut self, page: u64, frame: Frame, said: Said) {
        let Self { accounts, file } = self;
        let sequence = accounts.files[*file].as_ref().expect("a file is entered").sequence;
        let before = accounts.frames[frame.0 as usize].replace(Published {
            file: *file,
            page,
            said,
            sequence,
        });
        assert!(before.is_none(), "{frame:?} is published over {before:?}");
        if said != Said::Partial {
            accounts.masks.remove(&frame.0);
        }
    }

    fn retire(&mut self, frame: Frame) {
        self.accounts.frames[frame.0 as usize] = None;
        self.accounts.masks.remove(&frame.0);
    }

    fn clear_mask(&mut self, frame: Frame) {
        assert!(!self.accounts.is_published(frame), "a mask is cleared before it means something");
        self.accounts.masks.insert(frame.0, vec![false; PAGE]);
    }

    fn add_to_mask(&mut self, frame: Frame, bytes: Range<usize>) {
        self.accounts.masks.get_mut(&frame.0).expect("a mask that was cleared")[bytes].fill(true);
    }

    fn set_size(&mut self, bytes: u64) {
        self.accounts.files[self.file].as_mut().expect("a file is entered").size = bytes;
    }
}
