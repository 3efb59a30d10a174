//! A writer that keeps the rules of the log: mark before record, file before mark, mark before
//! head, and every change in place within the promise.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use forebay_log::{Batch, Counts, Mark, Point, Wall};

use super::{DIRECTORY, FILES, Test};
use crate::core::intent_log::file::LogFile;
use crate::core::intent_log::marks::{file_id, set_mark};
use crate::core::intent_log::recover::{Ask, recover_log};
use crate::faults::Faults;
use crate::ledger::Ledger;
use crate::marks;
use crate::platform::{Access, Create, How, OpenFile, Truncate, clock, files};
use crate::random::{PerMille, Random};
use crate::world::machine;

/// Largest end of a file.
const MOST: u64 = 24_000;

/// The longest promise. Other programs come later than this.
const PROMISE: i64 = 1_000_000_000;

struct Writer {
    test: Rc<Test>,
    random: Random,
    log: LogFile,
    open: Vec<OpenFile>,
    /// Live ranges of each file, and the first batch with one.
    live: Vec<(Vec<Range<u64>>, u64)>,
    /// The point before each batch that may be live.
    points: BTreeMap<u64, Point>,
    /// Ranges of each file that no sync covers.
    dirty: Vec<Vec<Range<u64>>>,
}

/// Writes until the process is killed.
pub(super) fn write(test: &Rc<Test>, random: Random, is_first: bool) {
    let directory = Path::new(DIRECTORY);
    let mut log = LogFile::open(directory, Duration::from_secs(5))
        .expect("a calm machine")
        .expect("the log was made");
    let recovery = recover_log(&mut log, directory, &Ask::default(), &[]).expect("a calm machine");
    assert!(recovery.is_empty && recovery.files.is_empty(), "it was recovered: {recovery:?}");
    let (open, live) = (Vec::new(), vec![(Vec::new(), 0); FILES]);
    let (points, dirty, test) = (BTreeMap::new(), vec![Vec::new(); FILES], Rc::clone(test));
    let mut writer = Writer { test, random, log, open, live, points, dirty };
    writer.promise();
    for number in 0..FILES {
        let file = writer.make(number);
        writer.open.push(file);
        writer.sync(number);
    }
    marks::hit(if is_first { "first life" } else { "later life" });
    if writer.test.fails {
        let rate = PerMille(20);
        machine::set_faults(Faults { write: rate, flush: rate, ..Faults::NONE });
    }
    loop {
        writer.step();
    }
}

impl Writer {
    fn step(&mut self) {
        self.promise();
        if self.log.is_uncertain() {
            return self.restart();
        }
        let number = self.random.below(FILES as u64) as usize;
        match self.random.below(16) {
            0..6 => self.log_some(),
            6..8 => self.accept(number),
            8..11 => self.image(number),
            11 => {
                self.empty(number);
            }
            12 => self.advance(),
            14 if self.test.fails => {}
            13 => self.sync(number),
            14 => self.cut(number),
            _ => self.replace(number),
        }
    }

    /// Renews the promise in time. All that is done in a step ends long before it.
    fn promise(&mut self) {
        let left = self.log.promise().0 - clock::wall();
        let length = self.random.within(200_000_000..PROMISE as u64).cast_signed();
        if left < 100_000_000 {
            while !self.log.is_uncertain()
                && self.log.advance(self.log.ring().start(), Wall(clock::wall() + length)).is_err()
            {
                machine::set_faults(Faults::NONE);
            }
        }
    }

    fn make(&self, number: usize) -> OpenFile {
        let path = self.test.files.borrow()[number].path.clone();
        let how = How {
            access: Access::ReadWrite,
            create: Create::IfMissing,
            truncate: Truncate::Keep,
            mode: 0o600,
        };
        let opened = OpenFile::open(&path, &how).expect("a calm machine");
        let mut file = opened.file;
        file.go_buffered().expect("an open file");
        assert!(file.try_ofd_lock().is_ok());
        let faults = machine::faults();
        machine::set_faults(Faults::NONE);
        files::sync_directory_of(&path).expect("no faults");
        self.test.files.borrow_mut()[number].ledger.name_synced();
        if self.test.fails && file.length().expect("an open file") < MOST {
            // A flush that fails while a file grows loses the journal, which no recovery mends.
            let announced = self.test.files.borrow_mut()[number].ledger.announce_length(MOST);
            file.truncate(MOST).expect("no faults");
            self.test.files.borrow_mut()[number].ledger.confirm_length(announced, MOST);
            file.sync().expect("no faults");
        }
        machine::set_faults(faults);
        file
    }

    /// Accepts bytes in memory.
    fn accept(&mut self, number: usize) {
        let length = self.random.within(1..3000);
        let offset = self.random.below(MOST - length);
        let data = vec![self.random.draw() as u8 | 1; length as usize];
        self.test.files.borrow_mut()[number].ledger.accept(offset, &data);
        self.dirty[number].push(offset..offset + length);
    }

    fn bytes(&self, number: usize, range: &Range<u64>) -> Vec<u8> {
        let files = self.test.files.borrow();
        files[number].ledger.bytes()[range.start as usize..range.end as usize].to_vec()
    }

    /// Changes some files, and makes that durable with a batch. A record holds all bytes that
    /// changed since the last sync of their file.
    fn log_some(&mut self) {
        let mut batch = Batch::new();
        let mut synced = Vec::new();
        for _ in 0..self.random.within(1..4) {
            let number = self.random.below(FILES as u64) as usize;
            self.accept(number);
            let ranges = self.dirty[number].clone();
            let data: Vec<u8> = ranges.iter().flat_map(|range| self.bytes(number, range)).collect();
            let id = file_id(&self.open[number]).expect("an open file");
            let path = self.test.files.borrow()[number].path.clone();
            let path = path.strip_prefix(DIRECTORY).expect("below it");
            batch.add(&id, path.as_os_str().as_encoded_bytes(), &ranges).copy_from_slice(&data);
            let change = self.test.files.borrow()[number].ledger.change();
            synced.push((number, change, ranges));
        }
        if self.log.ring().place(batch.blocks()).is_none() {
            (0..FILES).for_each(|number| {
                self.empty(number);
            });
            return self.advance();
        }
        let before = self.log.ring().next();
        let promise = self.log.promise();
        for (number, _, ranges) in &synced {
            let (live, first) = &mut self.live[*number];
            if *first == 0 {
                *first = before.sequence;
            }
            live.extend(ranges.iter().cloned());
        }
        self.points.insert(before.sequence, before);
        match self.log.append(&mut batch, promise) {
            Ok(sequence) => {
                assert_eq!(sequence, before.sequence);
                for (number, change, _) in synced {
                    self.dirty[number].clear();
                    self.test.files.borrow_mut()[number].ledger.synced(change);
                }
                marks::hit("logged");
            }
            Err(_) => marks::hit("append failed"),
        }
    }

    /// Writes some bytes in place, as early writeback does.
    fn image(&mut self, number: usize) {
        let size = self.test.files.borrow()[number].ledger.size();
        let (start, length) = (self.random.below(size + 1), self.random.within(1..4000));
        let range = start..(start + length).min(size);
        let data = self.bytes(number, &range);
        // Failed ones are written again when the file is emptied.
        if !data.is_empty() && self.open[number].write_all_at(&data, start).is_err() {
            self.live[number].0.push(range);
        }
    }

    /// Brings a file into place and moves its mark. Returns whether that succeeded.
    fn empty(&mut self, number: usize) -> bool {
        let file = &self.open[number];
        for range in self.live[number].0.clone() {
            let data = self.bytes(number, &range);
            if file.write_all_at(&data, range.start).is_err() {
                return false;
            }
        }
        if file.sync_data().is_err() {
            // Everything since the last good flush is written again.
            let size = self.test.files.borrow()[number].ledger.size();
            self.live[number].0.push(0..size);
            return false;
        }
        let counts = Counts::From(self.log.ring().next().sequence);
        let file_id = file_id(file).expect("an open file");
        let mark = Mark { log: self.log.id(), file: file_id, counts, promise: Wall::default() };
        if set_mark(file, &mark).is_err() {
            let size = self.test.files.borrow()[number].ledger.size();
            self.live[number].0.push(0..size);
            return false;
        }
        self.live[number] = (Vec::new(), 0);
        marks::hit("emptied");
        true
    }

    /// Writes a head behind all that is not live.
    fn advance(&mut self) {
        let firsts = self.live.iter().filter(|(live, _)| !live.is_empty());
        let first = firsts.map(|(_, first)| *first).min();
        let start = first.and_then(|first| self.points.get(&first).copied());
        let start = match (first, start) {
            (None, _) => self.log.ring().next(),
            (Some(_), Some(start)) => start,
            // Only bytes that are not in the log, from a failed flush.
            (Some(_), None) => return,
        };
        if self.log.advance(start, self.log.promise()).is_ok() {
            self.points.retain(|sequence, _| *sequence >= start.sequence);
            marks::hit("advanced");
        }
    }

    /// A sync without the log: all bytes in place, and the mark moved.
    fn sync(&mut self, number: usize) {
        let size = self.test.files.borrow()[number].ledger.size();
        let change = self.test.files.borrow()[number].ledger.change();
        self.live[number].0.push(0..size);
        if self.live[number].1 == 0 {
            self.live[number].1 = self.log.ring().next().sequence;
            self.points.insert(self.log.ring().next().sequence, self.log.ring().next());
        }
        if self.empty(number) {
            self.dirty[number].clear();
            self.test.files.borrow_mut()[number].ledger.synced(change);
            marks::hit("synced in place");
        }
    }

    /// Cuts a file: emptied before, synced after.
    fn cut(&mut self, number: usize) {
        let size = self.test.files.borrow()[number].ledger.size();
        let length = self.random.below(size + 1);
        self.sync(number);
        if !self.live[number].0.is_empty() {
            return;
        }
        let announced = self.test.files.borrow_mut()[number].ledger.announce_length(length);
        let is_cut = self.open[number].truncate(length).is_ok();
        let mut files = self.test.files.borrow_mut();
        if is_cut {
            files[number].ledger.confirm_length(announced, length);
        } else {
            files[number].ledger.withdraw_length(announced);
        }
        drop(files);
        marks::hit("cut by its owner");
        // Not logged before it is synced the ordinary way.
        let faults = machine::faults();
        machine::set_faults(Faults::NONE);
        self.sync(number);
        machine::set_faults(faults);
    }

    /// Removes a file, emptied before, and makes another one.
    fn replace(&mut self, number: usize) {
        let faults = machine::faults();
        machine::set_faults(Faults::NONE);
        self.sync(number);
        if self.live[number].0.is_empty() {
            let path = self.test.files.borrow()[number].path.clone();
            // From here on neither the old file nor the new one must be found.
            self.test.files.borrow_mut()[number].is_being_replaced = true;
            machine::unlink(&path).expect("a name");
            self.test.files.borrow_mut()[number].ledger = super::bytewise(Ledger::new());
            self.open[number] = self.make(number);
            self.test.files.borrow_mut()[number].is_being_replaced = false;
            self.sync(number);
            marks::hit("replaced by its owner");
        }
        machine::set_faults(faults);
    }

    /// After a failed write: all files are emptied, then the log is used again.
    fn restart(&mut self) {
        let faults = machine::faults();
        machine::set_faults(Faults::NONE);
        for number in 0..FILES {
            // Each open file gets an error of the device once.
            let tried = (0..3).any(|_| {
                self.sync(number);
                self.live[number].0.is_empty()
            });
            assert!(tried, "no faults");
        }
        let (next, promise) = (self.log.ring().next(), self.log.promise());
        self.log.restart(next, promise).expect("no faults");
        self.points.clear();
        marks::hit("restarted");
        for number in 0..FILES {
            self.sync(number);
        }
        machine::set_faults(faults);
    }
}
