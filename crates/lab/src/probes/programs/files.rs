//! Many new files that become durable together, each whole under its name or absent.
//!
//! ```text
//! 00/ .. 15/    0000042.tmp  --written, synced, renamed-->  0000042     then each directory synced
//! ```
//!
//! The clock stops when all files are durable under their names. Afterwards the files are counted,
//! and a sample of them is read.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use forebay::Engine;
use rustix::fs::syncfs;
use rustix::process::{Resource, getrlimit};

use crate::batching::Counter;
use crate::cell::Cell;
use crate::load::driver::histogram;
use crate::load::error::{CellError, Context};
use crate::load::ring;
use crate::metric::{Better, Metric};
use crate::programs::beside::Dd;
use crate::programs::clock::{Measured, Meter};
use crate::programs::program::{Program, Put, Sizes, Writes};
use crate::programs::spec::{Beside, ProgramLoad, ProgramWay};
use crate::programs::stage::{Stage, content};
use crate::programs::store::Store;
use crate::request::DATA_FILE;
use forebay_block::random::Random;
use forebay_uring::page_cache::{WHOLE, start_writing};

/// Files that became durable in a second.
const RATE: &str = "files_per_s";

pub(super) static PROBE: Program = Program {
    most_threads: 1,
    sizes: Sizes::Given,
    keeps_files: true,
    beside: &[Beside::Dd],
    suits: ProgramWay::is_of_files,
    ends_itself: true,
    writes: Writes::Fixed(|load| {
        load.operations.unwrap_or(0) * u64::midpoint(load.sizes.0, load.sizes.1)
    }),
    counters: &[
        ("commits of the journal", Counter::Commits),
        ("flushes of the disk", Counter::Flushes),
    ],
    figures,
    metrics: &[
        Metric {
            name: RATE,
            unit: "1/s",
            better: Better::Higher,
            head: "files|per s",
            about: "files that became durable under their names; no-sync makes none durable",
        },
        Metric {
            name: "commits_per_1000_files",
            unit: "1",
            better: Better::Lower,
            head: "commits",
            about: "for 1,000 files, of all processes: ends of commits of the journal on ext4, \
                log writes with a commit record on XFS",
        },
        Metric {
            name: "flushes_per_1000_files",
            unit: "1",
            better: Better::Lower,
            head: "flushes",
            about: "flush commands issued to the disk for 1,000 files, of all processes",
        },
    ],
    ..Program::new("files", run)
};

fn figures(measured: &Measured, put: Put<'_>) {
    let [_, commits, flushes] = measured.counted;
    let files = measured.operations as f64;
    put(RATE, files / measured.elapsed.as_secs_f64());
    for (name, count) in [("commits_per_1000_files", commits), ("flushes_per_1000_files", flushes)]
    {
        if let Some(count) = count {
            put(name, count as f64 / (files / 1000.0));
        }
    }
}

const DIRECTORIES: usize = 16;
const THREADS: usize = 8;
const RING_DEPTH: u32 = 64;

/// Descriptors that the process needs besides those of the files.
const OTHER_DESCRIPTORS: usize = 128;

/// Files that are read after the clock has stopped.
const SAMPLE: usize = 64;

/// The content of a file is a piece of one text, which begins at one of this many places, so that
/// neighbours differ.
const PLACES: usize = 1024;
const PLACE_BYTES: usize = 8;

fn run(stage: &Stage<'_>) -> Result<Measured, CellError> {
    let Stage { cell, load, store, .. } = stage;
    if !stage.way.is_of_files() {
        let reason = format!("{} cannot publish files (use files-syncfs)", stage.way.name());
        return Err(CellError::invalid(reason));
    }
    let files = Files::prepare(cell, load)?;
    let dd = match load.beside {
        Beside::Dd => Some(Dd::start(&cell.source.join(DATA_FILE), load.file_bytes())?),
        Beside::Bulk | Beside::Nothing => None,
    };
    if dd.is_some() {
        // Until its dirty pages fill their share of memory and the disk is busy.
        thread::sleep(Duration::from_secs_f64(cell.seconds));
    }
    let before = dd.as_ref().map_or(0, Dd::bytes);
    let meter = Meter::start();
    files.publish(stage.way, store)?;
    let measured = meter.stop(stage, histogram(), || Ok(()))?;
    let beside_bytes = dd.as_ref().map(|dd| dd.bytes().saturating_sub(before));
    drop(dd);
    files.verify()?;
    Ok(Measured {
        operations: files.sizes.len() as u64,
        bytes: files.sizes.iter().sum::<usize>() as u64,
        beside_bytes,
        ..measured
    })
}

/// The files of a cell, by their numbers from zero.
struct Files {
    directories: Vec<PathBuf>,
    sizes: Vec<usize>,
    content: Vec<u8>,
    /// Files that may be open at once.
    most_open: usize,
}

impl Files {
    /// Makes the directories, durable, and chooses sizes and content.
    fn prepare(cell: &Cell, load: &ProgramLoad) -> Result<Self, CellError> {
        let path = |number| cell.directory.join(format!("{number:02}"));
        let directories: Vec<_> = (0..DIRECTORIES).map(path).collect();
        for path in &directories {
            fs::create_dir(path).context_at("cannot make it", path)?;
        }
        sync_directory(&cell.directory)?;
        let (least, most) = load.sizes;
        assert!(least <= most, "sizes from {least} to {most}");
        let mut random = Random::new(cell.seed);
        let mut size = || match most - least {
            0 => least,
            range => {
                let size = least + 1 + random.below(range);
                // The last page of a file is never a full one.
                size - u64::from(size.is_multiple_of(4096))
            }
        };
        let sizes = (0..load.operations.unwrap_or(0)).map(|_| size() as usize).collect();
        let content = content(most as usize + PLACES * PLACE_BYTES, cell.seed);
        let limit = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| limit as usize);
        let most_open = limit.saturating_sub(OTHER_DESCRIPTORS).max(1);
        Ok(Self { directories, sizes, content, most_open })
    }

    fn path(&self, number: usize) -> PathBuf {
        self.directories[number % DIRECTORIES].join(format!("{number:07}"))
    }

    fn temporary(&self, number: usize) -> PathBuf {
        self.path(number).with_extension("tmp")
    }

    fn data(&self, number: usize) -> &[u8] {
        debug_assert!(number < self.sizes.len(), "file {number}");
        &self.content[number % PLACES * PLACE_BYTES..][..self.sizes[number]]
    }

    fn publish(&self, way: ProgramWay, store: &Store) -> Result<(), CellError> {
        let all = || 0..self.sizes.len();
        let write_all = || all().try_for_each(|number| self.write(number).map(drop));
        let rename_all = || all().try_for_each(|number| self.rename(number));
        match way {
            ProgramWay::FilesFsyncEach => all().try_for_each(|number| self.put(number))?,
            ProgramWay::FilesFsyncThreads => thread::scope(|scope| {
                let put = |first| all().skip(first).step_by(THREADS).try_for_each(|n| self.put(n));
                let thread = |first| scope.spawn(move || put(first));
                let threads: Vec<_> = (0..THREADS).map(thread).collect();
                let mut threads = threads.into_iter();
                threads
                    .try_for_each(|one| one.join().expect("a thread of a program does not panic"))
            })?,
            ProgramWay::FilesRangeThenFsync => {
                let write = |number| {
                    let file = self.write(number)?;
                    let started = start_writing(&file, WHOLE);
                    started.context_at("cannot start writeback", &self.temporary(number))?;
                    Ok(file)
                };
                self.in_windows(write, |open| open.iter().try_for_each(File::sync_data))?;
                rename_all()?;
            }
            ProgramWay::FilesRingOfFsyncs => {
                let write = |number| self.write(number);
                self.in_windows(write, |open| ring::sync_data(open, RING_DEPTH))?;
                rename_all()?;
            }
            ProgramWay::FilesSyncfs => {
                write_all()?;
                let path = &self.directories[0];
                let synced = File::open(path).and_then(|directory| Ok(syncfs(directory)?));
                synced.context_at("cannot sync its file system", path)?;
                rename_all()?;
            }
            ProgramWay::FilesForebayBatch => {
                let Store::Forebay(engine) = store else { unreachable!("this way has an engine") };
                return self.batch(engine);
            }
            ProgramWay::FilesNoSync => {
                write_all()?;
                return rename_all();
            }
            _ => unreachable!("{way:?} is no way of files"),
        }
        self.directories.iter().try_for_each(|path| sync_directory(path))
    }

    /// Publishes all files as one batch.
    fn batch(&self, engine: &Engine) -> Result<(), CellError> {
        let batch = engine.batch();
        let written =
            (0..self.sizes.len()).try_for_each(|at| batch.write(self.path(at), self.data(at)));
        written.and_then(|()| Ok(batch.commit()?)).context("cannot publish the files")
    }

    /// Writes all files and syncs them, as many at a time as may be open.
    fn in_windows(
        &self,
        write: impl Fn(usize) -> Result<File, CellError>,
        sync: impl Fn(&[File]) -> io::Result<()>,
    ) -> Result<(), CellError> {
        for first in (0..self.sizes.len()).step_by(self.most_open) {
            let window = first..self.sizes.len().min(first.saturating_add(self.most_open));
            let open = window.map(&write).collect::<Result<Vec<_>, _>>()?;
            sync(&open).context("cannot sync the files")?;
        }
        Ok(())
    }

    fn put(&self, number: usize) -> Result<(), CellError> {
        let synced = self.write(number)?.sync_data();
        synced.context_at("cannot sync it", &self.temporary(number))?;
        self.rename(number)
    }

    fn write(&self, number: usize) -> Result<File, CellError> {
        let path = self.temporary(number);
        let written = File::create_new(&path).and_then(|mut file| {
            file.write_all(self.data(number))?;
            Ok(file)
        });
        written.context_at("cannot write it", &path)
    }

    fn rename(&self, number: usize) -> Result<(), CellError> {
        let path = self.path(number);
        fs::rename(self.temporary(number), &path).context_at("cannot rename to it", &path)
    }

    /// Checks the number of files, all sizes, and the content of a sample.
    fn verify(&self) -> Result<(), CellError> {
        let mismatch = |path: &Path, offset, found| CellError::Mismatch {
            path: path.to_owned(),
            offset,
            found,
        };
        for (place, path) in self.directories.iter().enumerate() {
            let found = fs::read_dir(path).context_at("cannot list it", path)?.count();
            let expected = (place..self.sizes.len()).step_by(DIRECTORIES).count();
            if found != expected {
                let found = format!("{found} files, and {expected} were published");
                return Err(mismatch(path, 0, found));
            }
        }
        for (number, size) in self.sizes.iter().enumerate() {
            let path = self.path(number);
            let found = fs::metadata(&path).context_at("cannot look at it", &path)?.len();
            if found != *size as u64 {
                let found = format!("{found} bytes, and {size} were published");
                return Err(mismatch(&path, 0, found));
            }
        }
        for number in (0..self.sizes.len()).step_by(self.sizes.len().div_ceil(SAMPLE)) {
            let path = self.path(number);
            let found = fs::read(&path).context_at("cannot read it", &path)?;
            let mut pairs = found.iter().zip(self.data(number));
            if let Some(offset) = pairs.position(|(found, expected)| found != expected) {
                return Err(mismatch(&path, offset as u64, format!("{:#04x}", found[offset])));
            }
        }
        Ok(())
    }
}

fn sync_directory(path: &Path) -> Result<(), CellError> {
    File::open(path).and_then(|directory| directory.sync_all()).context_at("cannot sync it", path)
}

#[cfg(test)]
mod tests;
