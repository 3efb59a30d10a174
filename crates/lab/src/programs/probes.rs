//! The programs with threads. Each is a closure for one operation.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};

use super::clock::{Measured, RESIDENT_BLOCK_BYTES, clocked};
use super::group_sync::GroupSync;
use super::spec::{Beside, COMMIT_FILE_BYTES, ProgramWay, RESIDENT_BYTES, SMALL_FILE_BYTES};
use super::store::{Handle, How, Store};
use super::{Stage, beside, drop_from_cache};
use crate::load::CellError;
use crate::request::DATA_FILE;
use forebay_block::random::Random;

const BLOCK: usize = 4096;
const PUT_BYTES: usize = 16_384;
const COPY_BYTES: usize = 1 << 20;
const RECORD_BYTES: (usize, usize) = (100, 200);
const COMMIT_PAGES: u32 = 20;
const SMALL_SYNC_EVERY: Duration = Duration::from_millis(10);

/// Durable puts: each a new file, whole under its name or absent.
pub(super) fn put(stage: &Stage<'_>) -> Result<Measured, CellError> {
    let path = &stage.cell.directory;
    let directory = File::open(path);
    let directory = directory.map_err(|error| CellError::io("cannot open it", path, &error))?;
    let data = content(PUT_BYTES, stage.cell.seed);
    let operation = |index: u32, turn: u64| {
        let name = path.join(format!("{index:04}-{turn:07}"));
        let temporary = name.with_extension("tmp");
        let began = Instant::now();
        let file = stage.store.open(&temporary, How::Temporary)?;
        file.write_at(&data, 0)?;
        file.sync_data()?;
        file.close()?;
        fs::rename(&temporary, &name)
            .and_then(|()| directory.sync_all())
            .map_err(|error| CellError::io("cannot put it", &name, &error))?;
        Ok(began)
    };
    let operation = &operation;
    let measured = clocked(stage, |index| Ok(move |turn| operation(index, turn)), || Ok(()))?;
    Ok(written(measured, PUT_BYTES as u64))
}

/// A log of several threads, with a sync after `every` records of a thread.
pub(super) fn log(stage: &Stage<'_>) -> Result<Measured, CellError> {
    let file = stage.store.open(&stage.cell.directory.join("log"), How::Append)?;
    let (group, bytes) = (GroupSync::default(), AtomicU64::new(0));
    let sync = || match &stage.store {
        Store::Std => group.sync(|| file.sync_data()),
        Store::Forebay(_) => file.sync_data(),
    };
    let every = u64::from(stage.cell.load.every);
    let (least, most) = RECORD_BYTES;
    let prepare = |index: u32| {
        let mut random = Random::new(stage.cell.seed ^ u64::from(index) << 32);
        let (record, file, sync, bytes) = (content(most, random.draw()), &file, &sync, &bytes);
        Ok(move |turn: u64| {
            let length = least + random.below((most - least + 1) as u64) as usize;
            let began = Instant::now();
            file.append(&record[..length])?;
            if (turn + 1).is_multiple_of(every) {
                sync()?;
            }
            bytes.fetch_add(length as u64, Ordering::Relaxed);
            Ok(began)
        })
    };
    let measured = clocked(stage, prepare, || file.sync_data())?;
    file.close()?;
    let appended = bytes.into_inner();
    let path = stage.cell.directory.join("log");
    let length = fs::metadata(&path).map_or(0, |data| data.len());
    if length != appended {
        let found = format!("{length} bytes, and {appended} were appended");
        return Err(CellError::Mismatch { path, offset: length, found });
    }
    Ok(Measured { bytes: appended, ..measured })
}

/// Small syncs at a pace, alone or beside another writer.
pub(super) fn small_sync(stage: &Stage<'_>) -> Result<Measured, CellError> {
    let path = stage.cell.directory.join("small");
    fill(&path, SMALL_FILE_BYTES, stage.cell.seed)?;
    let large = stage.cell.directory.join("large");
    let load = &stage.cell.load;
    let writer = beside::Writer::default();
    let dd = match load.beside {
        Beside::Dd => Some(beside::Dd::start(&large, load.file_bytes())?),
        Beside::Bulk | Beside::Nothing => None,
    };
    let file = stage.store.open(&path, How::Write)?;
    let data = content(BLOCK, stage.cell.seed);
    let before = AtomicU64::new(0);
    let operation = |turn: u64, due: &mut Option<Instant>| {
        let at = *due.get_or_insert_with(Instant::now);
        thread::sleep(at.saturating_duration_since(Instant::now()));
        let began = Instant::now();
        file.write_at(&data, turn * BLOCK as u64 % SMALL_FILE_BYTES)?;
        file.sync_data()?;
        // Missed turns are skipped.
        let mut next = at + SMALL_SYNC_EVERY;
        while next < Instant::now() {
            next += SMALL_SYNC_EVERY;
        }
        *due = Some(next);
        Ok(began)
    };
    let operation = &operation;
    let small = || {
        if let Some(dd) = &dd {
            dd.wait_for_file();
        }
        if load.beside != Beside::Nothing {
            // The other writer has filled its share of memory, and the disk is busy.
            thread::sleep(Duration::from_secs_f64(stage.cell.seconds.min(2.0) / 4.0));
        }
        before.store(writer.bytes(), Ordering::Relaxed);
        let prepare = |_| {
            let mut due = None;
            Ok(move |turn| operation(turn, &mut due))
        };
        clocked(stage, prepare, || Ok(()))
    };
    let measured = match load.beside {
        Beside::Bulk => thread::scope(|scope| {
            let bulk = scope.spawn(|| writer.run(&stage.store, &large, load.file_bytes()));
            let measured = small();
            let written = writer.bytes() - before.load(Ordering::Relaxed);
            writer.stop();
            bulk.join().expect("the bulk writer does not panic")?;
            Ok(Measured { bytes: written, ..measured? })
        }),
        Beside::Dd | Beside::Nothing => small().map(|measured| written(measured, BLOCK as u64)),
    }?;
    file.close()?;
    Ok(measured)
}

/// One copy of a file, with its sync.
pub(super) fn copy(stage: &Stage<'_>) -> Result<Measured, CellError> {
    let (from, to) = (stage.cell.source.join(DATA_FILE), stage.cell.directory.join("copy"));
    let cursors = stage.cell.way == ProgramWay::ForebayIoCopy;
    let operation = |_| {
        let began = Instant::now();
        let (from, to) = (stage.store.open(&from, How::Read)?, stage.store.open(&to, How::New)?);
        match (&from, &to) {
            (Handle::Forebay(from), Handle::Forebay(to)) if cursors => {
                io::copy(&mut from.cursor(), &mut to.cursor())
                    .map_err(|error| CellError::system("cannot copy", &error))?;
            }
            _ => copy_by_hand(&from, &to)?,
        }
        to.sync_data()?;
        to.close()?;
        from.close()?;
        Ok(began)
    };
    let operation = &operation;
    let measured = clocked(stage, |_| Ok(operation), || Ok(()))?;
    let length = fs::metadata(&to).map_or(0, |data| data.len());
    if length != stage.cell.load.file_bytes() {
        let found = format!("{length} bytes");
        return Err(CellError::Mismatch { path: to, offset: length, found });
    }
    Ok(written(measured, length))
}

fn copy_by_hand(from: &Handle, to: &Handle) -> Result<(), CellError> {
    let (mut buffer, mut offset) = (vec![0; COPY_BYTES], 0);
    loop {
        let read = from.read_at(&mut buffer, offset)?;
        if read == 0 {
            return Ok(());
        }
        to.write_at(&buffer[..read], offset)?;
        offset += read as u64;
    }
}

/// Small files that nobody syncs.
pub(super) fn create(stage: &Stage<'_>) -> Result<Measured, CellError> {
    let data = content(BLOCK, stage.cell.seed);
    let operation = |index: u32, turn: u64| {
        let path = stage.cell.directory.join(format!("{index:04}-{turn:07}"));
        let began = Instant::now();
        let file = stage.store.open(&path, How::New)?;
        file.write_at(&data, 0)?;
        // Nobody waits for the data, or for its errors, as in the standard library.
        drop(file);
        Ok(began)
    };
    let operation = &operation;
    let measured = clocked(stage, |index| Ok(move |turn| operation(index, turn)), || Ok(()))?;
    Ok(written(measured, BLOCK as u64))
}

/// One file, written in order and synced.
pub(super) fn resident(stage: &Stage<'_>) -> Result<Measured, CellError> {
    let file = stage.store.open(&stage.cell.directory.join("data"), How::New)?;
    let data = content(RESIDENT_BLOCK_BYTES as usize, stage.cell.seed);
    let operation = |turn: u64| {
        let offset = turn * RESIDENT_BLOCK_BYTES;
        let length = RESIDENT_BLOCK_BYTES.min(RESIDENT_BYTES - offset);
        let began = Instant::now();
        file.write_at(&data[..length as usize], offset)?;
        Ok(began)
    };
    let operation = &operation;
    let measured = clocked(stage, |_| Ok(operation), || file.sync_data())?;
    file.close()?;
    Ok(Measured { bytes: RESIDENT_BYTES, ..measured })
}

/// Commits of a database, without one.
pub(super) fn commit(stage: &Stage<'_>) -> Result<Measured, CellError> {
    let path = stage.cell.directory.join("database");
    fill(&path, COMMIT_FILE_BYTES, stage.cell.seed)?;
    let file = stage.store.open(&path, How::Write)?;
    let data = content(BLOCK, stage.cell.seed);
    let prepare = |_| {
        let (mut random, file, data) = (Random::new(stage.cell.seed), &file, &data);
        Ok(move |_| {
            let began = Instant::now();
            for _ in 0..COMMIT_PAGES {
                let page = random.below(COMMIT_FILE_BYTES / BLOCK as u64);
                file.write_at(data, page * BLOCK as u64)?;
            }
            file.sync_data()?;
            Ok(began)
        })
    };
    let measured = clocked(stage, prepare, || Ok(()))?;
    file.close()?;
    Ok(written(measured, u64::from(COMMIT_PAGES) * BLOCK as u64))
}

/// Reads that mostly miss every cache.
pub(super) fn read_miss(stage: &Stage<'_>) -> Result<Measured, CellError> {
    let path = stage.cell.source.join(DATA_FILE);
    let file = stage.store.open(&path, How::Read)?;
    if let Handle::Std { file, .. } = &file {
        // Without readahead, which these reads do not use.
        fadvise(file, 0, None, Advice::Random)
            .map_err(|error| CellError::io("cannot advise", &path, &error.into()))?;
    }
    let blocks = stage.cell.load.file_bytes() / BLOCK as u64;
    let prepare = |index: u32| {
        let mut random = Random::new(stage.cell.seed ^ u64::from(index) << 32);
        let (mut buffer, file) = (vec![0; BLOCK], &file);
        Ok(move |_| {
            let offset = random.below(blocks) * BLOCK as u64;
            let began = Instant::now();
            match file.read_at(&mut buffer, offset)? {
                BLOCK => Ok(began),
                read => Err(CellError::Process { what: format!("read {read} of {BLOCK} bytes") }),
            }
        })
    };
    let measured = clocked(stage, prepare, || Ok(()))?;
    file.close()?;
    Ok(measured)
}

/// With the bytes of all operations.
pub(super) fn written(measured: Measured, bytes_each: u64) -> Measured {
    Measured { bytes: measured.latencies.len() * bytes_each, ..measured }
}

/// Bytes that cannot be compressed.
pub(super) fn content(bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let words = (0..bytes.div_ceil(8)).flat_map(|_| random.draw().to_le_bytes());
    words.take(bytes).collect()
}

/// Makes a file that is on the disk and not in the page cache.
fn fill(path: &PathBuf, bytes: u64, seed: u64) -> Result<(), CellError> {
    let failed = |error| CellError::io("cannot fill it", path, &error);
    let piece = content(COPY_BYTES, seed);
    let mut file = File::create_new(path).map_err(failed)?;
    for _ in 0..bytes / COPY_BYTES as u64 {
        io::Write::write_all(&mut file, &piece).map_err(failed)?;
    }
    file.sync_all().map_err(failed)?;
    drop(file);
    drop_from_cache(Path::new(path))
}
