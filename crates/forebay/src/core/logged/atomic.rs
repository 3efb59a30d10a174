//! [`Engine::atomic`], on the caller's thread: before its record, and after it.
//!
//! ```text
//! the files get their marks --> asked (asked.rs) --> batches/all_or_none.rs: the record is durable
//!                                 ^         |                          |
//!                                 +--again--+        the bytes enter the cache, file by file
//! ```
//!
//! The bytes enter the cache only after the record is durable: no write in place comes before it.
//!
//! [`Engine::atomic`]: crate::core::engine::Engine::atomic

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io::IoSlice;
use std::sync::Arc;

use forebay_cache::TicketKind;

use super::IntentLog;
use super::asked::{Again, Answer, Asked, Part, Write};
use super::batches::all_or_none::{cannot_use_log, check_length};
use super::logging::Stage;
use super::route::{self, Emptied};
use crate::core::direct::plug::plugged_no_more;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::file::File;
use crate::core::inode::Inode;
use crate::core::logged::bounds::{ATOMIC_TRIES, LOG_PAUSE, LOG_RETRY};
use crate::core::shared::Shared;
use crate::core::slices::Slices;
use crate::core::wait;
use crate::platform::{clock, thread};

/// Writes bytes of several files, all or none. Blocks.
pub(crate) fn write(shared: &Arc<Shared>, writes: &[(&File, u64, &[u8])]) -> Result<()> {
    wait::may_block()?;
    shared.check()?;
    let Some(log) = &shared.log else {
        let what = "this engine has no intent log, which an atomic write needs";
        return Err(Error::new(ErrorKind::Unsupported, what).remedy("use Builder::intent_log"));
    };
    let call = Call { shared, log, writes };
    let parts = call.parts()?;
    if parts.is_empty() {
        return Ok(());
    }
    let asked = Arc::new(Asked::new(parts));
    for attempt in 0..ATOMIC_TRIES {
        for part in &asked.parts {
            call.mark(&part.inode)?;
        }
        if !log.queue_atomic(&asked) {
            return Err(Error::new(ErrorKind::Shutdown, "the engine was shut down"));
        }
        match call.wait(&asked)? {
            Answer::Durable => return call.publish(&asked),
            Answer::Again(again) => call.prepare(&asked, again, attempt)?,
            Answer::Refused(error) | Answer::Unknown(error) => return Err(error),
        }
    }
    let what = "the files or the intent log were busy all the time; nothing was written";
    Err(Error::new(ErrorKind::Busy, what))
}

struct Call<'a> {
    shared: &'a Arc<Shared>,
    log: &'a Arc<IntentLog>,
    writes: &'a [(&'a File, u64, &'a [u8])],
}

impl Call<'_> {
    /// Checks the writes, and collects them by file.
    fn parts(&self) -> Result<Vec<Part>> {
        let mut parts: BTreeMap<u32, Part> = BTreeMap::new();
        for (file, offset, data) in self.writes {
            if !Arc::ptr_eq(&file.shared, self.shared) {
                let error = Error::new(ErrorKind::InvalidInput, "the file is of another engine");
                return Err(error.at_path(&file.inode.path));
            }
            file.may_write_at()?;
            file.check_end(offset.checked_add(data.len() as u64), *offset)?;
            if data.is_empty() {
                continue;
            }
            let inode = &file.inode;
            let part = parts
                .entry(inode.target.0)
                .or_insert_with(|| Part { inode: Arc::clone(inode), writes: Vec::new() });
            part.writes.push(Write { offset: *offset, data: data.to_vec() });
        }
        for part in parts.values_mut() {
            part.writes.sort_by_key(|write| write.offset);
            let overlap = part.writes.windows(2).find(|pair| pair[0].bytes().end > pair[1].offset);
            if let Some(pair) = overlap {
                let error = Error::new(ErrorKind::InvalidInput, "two ranges of the file overlap");
                return Err(error.at_path(&part.inode.path).at_offset(pair[1].offset));
            }
        }
        check_length(self.writes.iter().map(|(_, _, data)| data.len()).sum())?;
        Ok(parts.into_values().collect())
    }

    /// Has a file get its mark.
    fn mark(&self, inode: &Arc<Inode>) -> Result<()> {
        for _ in 0..ATOMIC_TRIES {
            // The lock is released before the waits.
            let stage = inode.lock().logging.stage();
            match stage {
                Stage::Marked => return Ok(()),
                Stage::Never => break,
                Stage::Marking => {}
                Stage::Plain(_) => {
                    let sync = route::sync(self.shared, self.log, inode, TicketKind::FlushData);
                    wait::block_on(sync)?;
                    let is_first = self.shared.change(inode, |file| {
                        let is_first = matches!(file.logging.stage(), Stage::Plain(_));
                        if is_first {
                            file.logging.set_stage(Stage::Marking);
                        }
                        is_first && file.logging.ask_to_empty().1
                    });
                    if is_first {
                        self.log.queue_to_empty(inode, false);
                    }
                }
            }
            wait::block_on(Emptied::ask(self.shared, self.log, inode))?;
        }
        Err(cannot_use_log(inode))
    }

    /// Waits for the answer.
    fn wait(&self, asked: &Asked) -> Result<Answer> {
        loop {
            let answer =
                poll_fn(|context| plugged_no_more(asked.poll(context.waker().clone())).map(Ok));
            let until = clock::instant() + LOG_RETRY;
            if let Some(answer) = wait::block_on_until(answer, Some(until)) {
                return answer;
            }
            if self.shared.is_orphaned() {
                drop(Unpublished { call: self, asked, from: 0 });
                let what = "the engine ended before the write did; whether the bytes are in the \
                            files after a recovery is unknown";
                return Err(Error::new(ErrorKind::Unknown, what));
            }
        }
    }

    /// Does what another attempt needs.
    fn prepare(&self, asked: &Asked, again: Again, attempt: u32) -> Result<()> {
        match again {
            Again::Bring(part, offset) => {
                wait::block_on(self.file_of(&asked.parts[part]).bring(offset))?;
            }
            Again::Empty(part) => {
                let inode = &asked.parts[part].inode;
                wait::block_on(Emptied::ask(self.shared, self.log, inode))?;
            }
            Again::Room => {}
        }
        if again == Again::Room || attempt > 2 {
            thread::sleep(LOG_PAUSE);
        }
        Ok(())
    }

    /// Puts the bytes of a durable record into the cache.
    fn publish(&self, asked: &Asked) -> Result<()> {
        let mut left = Unpublished { call: self, asked, from: 0 };
        for (number, part) in asked.parts.iter().enumerate() {
            let file = self.file_of(part);
            for write in &part.writes {
                let data = [IoSlice::new(&write.data)];
                let (_, result) = wait::drive(file.write_all(Slices::new(&data), write.offset));
                result.map_err(|error| {
                    let what = "the write is durable in the intent log, but its bytes could not \
                                enter the cache of all files";
                    Error::new(ErrorKind::Unknown, what)
                        .at_path(&part.inode.path)
                        .because(error.into())
                        .remedy("close the engine and recover: the write is in all files then")
                })?;
            }
            self.log.change_unpublished(self.shared, &part.inode, |file| {
                file.logging.end_atomic();
                file.account.report_unpublished(None);
            });
            left.from = number + 1;
        }
        Ok(())
    }

    /// Returns a handle of the file of a part.
    fn file_of(&self, part: &Part) -> &File {
        let mut files = self.writes.iter().map(|(file, ..)| file);
        let file = files.find(|file| Arc::ptr_eq(&file.inode, &part.inode));
        file.expect("each part is of a file of the call")
    }
}

/// The parts from a number on, whose bytes are in the log and not in the cache.
struct Unpublished<'a> {
    call: &'a Call<'a>,
    asked: &'a Asked,
    from: usize,
}

impl Drop for Unpublished<'_> {
    fn drop(&mut self) {
        for part in &self.asked.parts[self.from..] {
            let Call { shared, log, .. } = self.call;
            log.change_unpublished(shared, &part.inode, |file| file.logging.fail_atomic());
        }
    }
}
