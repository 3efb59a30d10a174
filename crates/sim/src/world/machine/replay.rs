//! The records of an intent log, put into the files that a loss of power left: the result of a
//! recovery, without its requests. So many states can be looked at in a run.

use std::convert::Infallible;
use std::path::Path;
use std::rc::Rc;

use forebay_log::replay::Copy;
use forebay_log::{
    BLOCK, Counts, Damage, FileId, HEADS, Head, Mark, Replay, ScanError, Source, Wall, scan,
};
use forebay_uring::Lasting;

use super::attributes::Attributes;
use super::power::{FoundFile, Survivors, copy_of};
use super::state::with;
use crate::stored::{SECTOR, Survivor, bytes_of};

/// The bytes of a file that was found.
struct Bytes(Vec<u8>);

impl Source for Bytes {
    type Error = Infallible;

    fn read(&mut self, block: u64, into: &mut [u8]) -> Result<(), Infallible> {
        let at = block as usize * BLOCK;
        into.copy_from_slice(&self.0[at..at + into.len()]);
        Ok(())
    }
}

impl Survivors {
    /// Puts the records of an intent log that count into their files. Returns the bytes put there.
    ///
    /// # Panics
    /// If the log is damaged, or a file with records that count looks as if another program had
    /// changed it.
    pub fn replay(&mut self, log: impl AsRef<Path>) -> u64 {
        self.replay_into(log, None)
    }

    /// As [`replay`](Self::replay), into one file alone.
    ///
    /// # Panics
    /// As [`replay`](Self::replay).
    pub fn replay_into(&mut self, log: impl AsRef<Path>, path: Option<&Path>) -> u64 {
        let only = path.map(|path| self.paths.get(path).copied());
        let Some(node) = self.paths.get(log.as_ref()) else { return 0 };
        let mut bytes = Bytes(bytes_of_file(&self.files[node].survivor));
        let blocks: Vec<&[u8]> = bytes.0.chunks(BLOCK).take(HEADS as usize).collect();
        // It is being made.
        let &[one, other] = &blocks[..] else { return 0 };
        let Ok(head) = Head::newest([one, other]) else { return 0 };
        let scanned = scan(&head, &mut bytes).unwrap_or_else(|error| match error {
            ScanError::Read { error, .. } => match error {},
            ScanError::Damage(Damage { expected, found }) => {
                panic!("the log is damaged: {found:?} is there behind {expected:?}")
            }
        });
        let mut all = 0;
        for plan in &Replay::new(&scanned.batches).files {
            let found = self.files.iter_mut().find(|(node, _)| {
                let lasting = with(|machine| machine.lasting(**node));
                plan.file.is_same(&id_of(&lasting))
            });
            // Its name is lost.
            let Some((node, found)) = found else { continue };
            let FoundFile { survivor, saved, logged, .. } = found;
            if only.is_some_and(|only| only != Some(*node)) {
                continue;
            }
            let Attributes { mark, changed } = logged;
            let mark = mark.as_ref().and_then(|mark| Mark::decode(mark));
            let mark = mark.filter(|mark| mark.log == head.log && mark.file.is_same(&plan.file));
            let Some(Mark { counts, promise, .. }) = mark else { continue };
            let (first, survivor) = match counts {
                Counts::From(first) => (first, survivor),
                Counts::SavedFrom(first) => {
                    let copies = plan.newest_from(first);
                    if !copies.is_empty() {
                        put(&bytes, &copies, saved.insert(copy_of(survivor)));
                    }
                    continue;
                }
            };
            let copies = plan.newest_from(first);
            let until = scanned.promise.max(promise).0;
            assert!(
                copies.is_empty() || *changed <= until,
                "a recovery takes the changes of the engine for those of others: {changed} is \
                 later than {until}"
            );
            put(&bytes, &copies, survivor);
            all += copies.iter().map(|copy| copy.length).sum::<u64>();
        }
        all
    }
}

fn put(log: &Bytes, copies: &[Copy], survivor: &mut Survivor) {
    let length = survivor.size;
    for copy in copies {
        let at = copy.from as usize;
        write(survivor, copy.offset, &log.0[at..at + copy.length as usize]);
        let zeroes = copy.zeroes_behind(length) as usize;
        write(survivor, copy.end(), &[0; SECTOR][..zeroes]);
    }
}

fn id_of(lasting: &Lasting) -> FileId {
    let Lasting { inode, generation, born, .. } = *lasting;
    FileId { inode, generation, born: born.map(Wall) }
}

fn bytes_of_file(survivor: &Survivor) -> Vec<u8> {
    let mut bytes: Vec<u8> = survivor.sectors.iter().flat_map(bytes_of).copied().collect();
    bytes.resize(survivor.size as usize, 0);
    bytes
}

fn write(survivor: &mut Survivor, offset: u64, data: &[u8]) {
    let (start, end) = (offset as usize, offset as usize + data.len());
    // Bytes behind the end are not found when the file grows.
    let size = survivor.size as usize;
    for (at, content) in survivor.sectors.iter_mut().enumerate().skip(size / SECTOR) {
        let inside = size.saturating_sub(at * SECTOR).min(SECTOR);
        let mut bytes = *bytes_of(content);
        bytes[inside..].fill(0);
        *content = Some(Rc::new(bytes));
    }
    if survivor.sectors.len() < end.div_ceil(SECTOR) {
        survivor.sectors.resize(end.div_ceil(SECTOR), None);
    }
    for at in start / SECTOR..end.div_ceil(SECTOR) {
        let (first, last) = (start.max(at * SECTOR), end.min((at + 1) * SECTOR));
        let mut bytes = *bytes_of(&survivor.sectors[at]);
        bytes[first - at * SECTOR..last - at * SECTOR]
            .copy_from_slice(&data[first - start..last - start]);
        survivor.sectors[at] = Some(Rc::new(bytes));
    }
    survivor.size = survivor.size.max(end as u64);
}
