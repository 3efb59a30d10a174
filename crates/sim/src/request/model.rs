//! Expected results: which bio must have written each word that a read returns, and which words a
//! loss of power must leave.
//!
//! Every bio is applied when it is submitted, because overlapping bios take effect in that order.
//! The model keeps only the stamp of the last writer per word, and with each read the stamps that
//! it must find. How these writers ended is looked up when the read has ended. A failed write or a
//! discard leaves unknown content: any older version of the word, but nothing newer and nothing
//! from another place.

use std::ops::Range;

use forebay_block::{Bio, Ended, Errno, Operation};

use super::word::{INITIAL, Place, Stamp, WORD, words};
use crate::faults::NO_SPACE;

/// A bio and the data to judge its end.
#[derive(Debug)]
struct Asked {
    bio: Bio,
    result: Option<Result<u64, Errno>>,
    /// For a write: the words that it writes zeroes to.
    zeroes: Range<usize>,
    /// For a read: the last writer of each word.
    last: Vec<Stamp>,
    /// For a read: number of changes of size before it. For a flush: number of changes that had
    /// ended.
    before: usize,
}

/// Effect of a bio on the size.
#[derive(Clone, Copy, Debug)]
enum Size {
    Becomes(u64),
    Reaches(u64),
}

/// A bio that may leave other content than its own words.
#[derive(Debug)]
struct Odd {
    stamp: Stamp,
    words: Range<usize>,
    leaves: Leaves,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leaves {
    Zeroes,
    /// Any bytes, because the write may be torn inside a word.
    Anything,
}

#[derive(Debug)]
struct File {
    initial_size: u64,
    /// Last writer of each word.
    last: Vec<Stamp>,
    /// Per word, the writer whose content, or newer content, survives a loss of power.
    durable: Vec<Stamp>,
    sizes: Vec<(Stamp, Size)>,
    odd: Vec<Odd>,
    /// Changes that succeeded, in the order of their ends.
    ended: Vec<Stamp>,
    /// Number of them that a flush has made durable.
    flushed: usize,
}

/// Expected state of all files.
#[derive(Debug)]
pub struct Model {
    files: Vec<File>,
    asked: Vec<Asked>,
    ended: usize,
}

impl Model {
    /// Creates the model of files with these sizes, which never grow beyond `most` bytes.
    #[must_use]
    pub fn new(sizes: &[u64], most: u64) -> Self {
        let count = most as usize / WORD;
        let file = |&initial_size: &u64| File {
            initial_size,
            last: vec![INITIAL; count],
            durable: vec![INITIAL; count],
            sizes: Vec::new(),
            odd: Vec::new(),
            ended: Vec::new(),
            flushed: 0,
        };
        Self { files: sizes.iter().map(file).collect(), asked: Vec::new(), ended: 0 }
    }

    /// Returns the stamp of the next bio.
    #[must_use]
    pub fn next(&self) -> Stamp {
        self.asked.len() as Stamp + INITIAL + 1
    }

    /// Returns the number of bios submitted.
    #[must_use]
    pub fn submitted(&self) -> usize {
        self.asked.len()
    }

    /// Returns whether all bios have ended.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.ended == self.asked.len()
    }

    /// Records a submitted bio. A write writes zeroes to the bytes `zeroes` of the file.
    pub fn submit(&mut self, bio: &Bio, zeroes: Range<u64>) {
        let stamp = self.next();
        assert_eq!(bio.owner, u64::from(stamp));
        let file = &mut self.files[bio.target.0 as usize];
        let mut range = words_of(bio.offset..bio.end());
        range.end = range.end.min(file.last.len());
        range.start = range.start.min(range.end);
        let (zeroes, mut last, mut before) = (words_of(zeroes), Vec::new(), 0);
        let mut odd = |words: Range<usize>, leaves| file.odd.push(Odd { stamp, words, leaves });
        match bio.operation {
            Operation::Read => {
                last = file.last[range].to_vec();
                before = file.sizes.len();
            }
            Operation::Write | Operation::WriteFua => {
                if !zeroes.is_empty() {
                    odd(zeroes.clone(), Leaves::Zeroes);
                }
                file.last[range].fill(stamp);
            }
            Operation::WriteBuffered => {
                odd(range.clone(), Leaves::Anything);
                file.last[range].fill(stamp);
                file.sizes.push((stamp, Size::Reaches(bio.end())));
            }
            Operation::WriteZeroes | Operation::Discard | Operation::Punch => {
                odd(range.clone(), Leaves::Zeroes);
                file.last[range].fill(stamp);
            }
            Operation::SetLength => {
                let beyond = range.start..file.last.len();
                odd(beyond.clone(), Leaves::Zeroes);
                file.last[beyond].fill(stamp);
                file.sizes.push((stamp, Size::Becomes(bio.offset)));
            }
            Operation::FlushData | Operation::FlushAll => before = file.ended.len(),
            Operation::FlushDirectory | Operation::Allocate => {}
        }
        self.asked.push(Asked { bio: bio.clone(), result: None, zeroes, last, before });
    }

    /// Records the end of a bio. For a read, `memory` is its content.
    pub fn end(&mut self, Ended { bio, result }: &Ended, memory: &[u8]) {
        let stamp = bio.owner as Stamp;
        let asked = &mut self.asked[place_of(stamp)];
        assert_eq!(*bio, asked.bio, "a bio ends as it was submitted");
        let before = asked.result.replace(*result);
        assert!(before.is_none(), "contract 16: a bio ended twice: {bio:?}");
        self.ended += 1;
        let bytes = match *result {
            Ok(bytes) => bytes,
            Err(errno) => {
                assert!([Errno::IO, NO_SPACE].contains(&errno), "{bio:?} failed with {errno}");
                return;
            }
        };
        if bio.operation == Operation::Read {
            self.check_read(stamp, bytes, memory);
            return;
        }
        assert_eq!(bytes, bio.bytes(), "{bio:?}");
        let file = &mut self.files[bio.target.0 as usize];
        match bio.operation {
            Operation::WriteFua => {
                raise(&mut file.durable[words_of(bio.offset..bio.end())], stamp);
                file.ended.push(stamp);
            }
            Operation::FlushData | Operation::FlushAll => {
                let covers = self.asked[place_of(stamp)].before;
                for &ended in &file.ended[file.flushed.min(covers)..covers] {
                    let bio = &self.asked[place_of(ended)].bio;
                    let range = match bio.operation {
                        Operation::SetLength => {
                            words_of(bio.offset..bio.offset).start..file.durable.len()
                        }
                        // A discard may leave the old content.
                        Operation::Discard => continue,
                        _ => words_of(bio.offset..bio.end()),
                    };
                    raise(&mut file.durable[range], ended);
                }
                file.flushed = file.flushed.max(covers);
            }
            Operation::FlushDirectory | Operation::Allocate => {}
            _ => file.ended.push(stamp),
        }
    }

    /// Checks the content of a file when no bio is in flight.
    pub fn check_file(&self, target: u32, bytes: &[u8], size: u64) {
        assert!(self.is_idle());
        let file = &self.files[target as usize];
        let possible = self.size(file, file.sizes.len());
        assert!(possible.contains(&size), "the size of {target} is {size}, not of {possible:?}");
        for (word, content) in words(bytes).enumerate() {
            self.check_word(file, Place { target, word: word as u32 }, content, file.last[word]);
        }
    }

    /// Checks the content of a file after a loss of power.
    pub fn check_survivor(&self, target: u32, bytes: &[u8]) {
        let file = &self.files[target as usize];
        for (word, content) in words(bytes).enumerate() {
            let place = Place { target, word: word as u32 };
            let (durable, last) = (file.durable[word], file.last[word]);
            if content == place.written_by(last) {
                continue;
            }
            let is_version = place.writer(content).is_some_and(|by| (durable..=last).contains(&by));
            // The durable version may itself be zeroes, but it cannot be torn.
            let is_zero = content == 0
                && (self.is_beyond_the_initial_size(file, word)
                    || has(file, word, durable..=last, Leaves::Zeroes));
            let is_torn = || has(file, word, durable + 1..=last, Leaves::Anything);
            assert!(
                is_version || is_zero || is_torn(),
                "contract 3: {place:?} is {content:#x} after a loss of power, and not of {durable}..={last}"
            );
        }
    }

    fn check_read(&self, stamp: Stamp, bytes: u64, memory: &[u8]) {
        let Asked { bio, last, before, .. } = &self.asked[place_of(stamp)];
        let file = &self.files[bio.target.0 as usize];
        let sizes = self.size(file, *before);
        let most = |size: u64| size.saturating_sub(bio.offset).min(bio.length);
        let possible = most(*sizes.start())..=most(*sizes.end());
        assert!(possible.contains(&bytes), "a read of {bytes} bytes, not of {possible:?}: {bio:?}");
        let first = words_of(bio.offset..bio.offset).start;
        for ((number, content), &last) in words(&memory[..bytes as usize]).enumerate().zip(last) {
            let place = Place { target: bio.target.0, word: (first + number) as u32 };
            self.check_word(file, place, content, last);
        }
    }

    /// Checks one word that was read; `last` is its last writer.
    fn check_word(&self, file: &File, place: Place, content: u64, last: Stamp) {
        let word = place.word as usize;
        if last == INITIAL {
            let expected = if self.is_beyond_the_initial_size(file, word) {
                0
            } else {
                place.written_by(INITIAL)
            };
            assert_eq!(content, expected, "{place:?} was never written");
            return;
        }
        let Asked { bio, result, zeroes, .. } = &self.asked[place_of(last)];
        // A partly served write holds up all bios that touch its rest, so a read may find its first
        // part. The same holds for zeroes if the device cannot make them and they are written.
        let is_sure = match result {
            Some(result) => result.is_ok() && bio.operation != Operation::Discard,
            None => bio.operation.moves_bytes() || bio.operation == Operation::WriteZeroes,
        };
        if is_sure {
            let is_data = bio.operation.moves_bytes() && !zeroes.contains(&word);
            let expected = if is_data { place.written_by(last) } else { 0 };
            assert_eq!(
                content, expected,
                "contract 15: {place:?} was written by {bio:?}, which ended {result:?}"
            );
            return;
        }
        assert!(result.is_some(), "contract 15: {place:?} was read before {bio:?} ended");
        let is_version = content == 0 || place.writer(content).is_some_and(|by| by <= last);
        assert!(
            is_version || has(file, word, 0..=last, Leaves::Anything),
            "{place:?} is {content:#x} after {bio:?} with {result:?}"
        );
    }

    fn is_beyond_the_initial_size(&self, file: &File, word: usize) -> bool {
        (word * WORD) as u64 >= file.initial_size
    }

    /// Returns the least and the largest possible size after `changes` changes of it.
    fn size(&self, file: &File, changes: usize) -> std::ops::RangeInclusive<u64> {
        let (mut least, mut most) = (file.initial_size, file.initial_size);
        for &(stamp, size) in &file.sizes[..changes] {
            let is_sure = self.asked[place_of(stamp)].result.is_some_and(|result| result.is_ok());
            match size {
                Size::Becomes(size) if is_sure => (least, most) = (size, size),
                Size::Becomes(size) => (least, most) = (least.min(size), most.max(size)),
                Size::Reaches(end) => {
                    least = if is_sure { least.max(end) } else { least };
                    most = most.max(end);
                }
            }
        }
        least..=most
    }
}

fn place_of(stamp: Stamp) -> usize {
    (stamp - INITIAL - 1) as usize
}

/// Returns all words that the bytes touch.
fn words_of(bytes: Range<u64>) -> Range<usize> {
    bytes.start as usize / WORD..(bytes.end as usize).div_ceil(WORD)
}

fn raise(durable: &mut [Stamp], stamp: Stamp) {
    durable.iter_mut().for_each(|durable| *durable = stamp.max(*durable));
}

fn has(file: &File, word: usize, stamps: std::ops::RangeInclusive<Stamp>, leaves: Leaves) -> bool {
    let mut odd = file.odd.iter().rev();
    odd.any(|odd| odd.leaves == leaves && stamps.contains(&odd.stamp) && odd.words.contains(&word))
}
