//! The engine of a mount: that of a process that has died, with its files and its cache, or a new
//! one.
//!
//! A mount of another build cannot take over. It waits until the keeper has ended, and has written
//! everything. Data that a keeper could not write is saved, and comes first (`saved.rs`).

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay::intent_log::{self, Ask, Fate, Recovered};
use forebay::{Adopted, Builder, Engine, Keeper, inside};
use forebay_uring::probe::memory_limit;
use forebay_uring::{Channel, Process};

use crate::data::{Access, OpenData, Way};
use crate::error::Error;
use crate::in_place::named;
use crate::limits::{CACHE_BYTES, CACHE_LEAST, CACHE_OF_MEMORY, KEEPER_ENDS};
use crate::mounted::{Log, Mount};
use crate::open_file::OpenFile;
use crate::places::Source;
use crate::saved;
use crate::small::Stack;

/// How the data of files is read and written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Data {
    /// By an engine with these knobs.
    Engine {
        /// Names and values of knobs.
        settings: Vec<(String, String)>,
        /// Whether a keeper finishes the writing if this process dies.
        survives: bool,
        /// Whether small syncs go to an intent log in the source. There is no keeper then.
        log: LogUse,
        /// Socket for `forebay ctl`.
        control: Option<PathBuf>,
    },
    /// By plain system calls, to compare with.
    Plain,
}

/// Use of an intent log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogUse {
    /// No log.
    #[default]
    Never,
    /// Where a flush of the disk is dear.
    ByPrice,
    /// On every disk, for tests.
    Always,
}

/// Files that a dead process had open.
#[derive(Debug)]
pub(crate) struct Inherited {
    process: u32,
    files: Vec<forebay::File>,
}

impl Inherited {
    /// Keeps the files open, because their pages are in memory. Returns the process.
    pub(crate) fn take_over(self, mount: &Mount) -> u32 {
        for file in self.files {
            if let Err(error) = adopt(mount, file) {
                mount
                    .log(&format!("could not take over a file; it is written and closed: {error}"));
            }
        }
        self.process
    }
}

/// Returns how the data of a mount is read and written: with an engine, by the one of a process
/// that has died, or else by a new one.
pub(crate) fn way_of(
    data: &Data,
    source: &Source,
    log: &Log,
) -> Result<(Way, Option<Inherited>), Error> {
    let log_use = match data {
        Data::Engine { log, .. } => *log,
        Data::Plain => LogUse::Never,
    };
    let has_log = log_use != LogUse::Never || put_back(source, log)?;
    let Data::Engine { settings, survives, control, .. } = data else {
        return Ok((Way::Plain, None));
    };
    let socket = source.keeper();
    let builder = || -> Result<Builder, Error> {
        let log = log.clone();
        let mut options = forebay::Options {
            cache_bytes: cache_bytes(memory_limit()),
            // A file that is closed has no page left to write (`settle::close`).
            close_timeout: Duration::MAX,
            ..forebay::Options::default()
        };
        for (name, value) in settings {
            options.set(name, value)?;
        }
        let mut builder = Engine::builder(options).on_error(move |error| match error.path() {
            // The file has no name left, and nobody has it open.
            _ if error.os_error() == Some(libc::ECANCELED) => {}
            // The engine may know the file by its descriptor.
            Some(path) if path.starts_with("/proc") => {
                (log.0)(&format!("{}: {error}", named(path).display()));
            }
            _ => (log.0)(&error.to_string()),
        });
        if *survives {
            builder = builder.survive(Keeper {
                socket: Some(socket.clone()),
                save_to: Some(saved::make_directory(source)?),
                ..Keeper::program("/proc/self/exe")
            });
        }
        Ok(match log_use {
            LogUse::Never => builder,
            LogUse::ByPrice => builder.intent_log(&source.path),
            LogUse::Always => builder.intent_log_always(&source.path),
        })
    };
    // A mount whose process died may have left a keeper there, with its files.
    let adopted = if socket.exists() { Some(builder()?.adopt(&socket)) } else { None };
    let (engine, inherited) = match adopted {
        Some(Ok(Adopted { engine, files, process, .. })) => {
            (engine, Some(Inherited { process, files }))
        }
        Some(Err(error)) => {
            (log.0)(&format!("nothing was adopted: {error}"));
            wait_for_end(source, log)?;
            (alone(source, log, builder()?)?, None)
        }
        None => (alone(source, log, builder()?)?, None),
    };
    if let Some(control) = control {
        engine.serve_control(control)?;
    }
    let cache = engine.options().cache_bytes.unwrap_or(0);
    let mut stack = Stack::new(engine, cache);
    stack.hides_log = has_log;
    Ok((Way::Engine(Arc::new(stack)), inherited))
}

/// Puts the records of an intent log back that an earlier mount has left: before that, nobody may
/// read the files. Returns whether there is a log.
fn put_back(source: &Source, log: &Log) -> Result<bool, Error> {
    if !source.path.join(intent_log::NAME).exists() {
        return Ok(false);
    }
    if source.keeper().exists() {
        // It has the log, or files with its marks.
        wait_for_end(source, log)?;
    }
    // A saved image is newer than the log. It recovers the log itself, before its own bytes.
    saved::write(source, log)?;
    let recovery = intent_log::recover(&source.path, &Ask::default())?;
    if !recovery.is_empty {
        let what = "its intent log has bytes that cannot be put back into their files";
        let remedy = "run `forebay recover` on it";
        return Err(Error::unsuitable(&source.path, what, remedy));
    }
    let is_put_back = |file: &&Recovered| matches!(file.fate, Fate::InPlace) && file.bytes > 0;
    let count = recovery.files.iter().filter(is_put_back).count();
    if count > 0 {
        (log.0)(&format!(
            "put bytes of the intent log back into {count} file{}",
            if count == 1 { "" } else { "s" }
        ));
    }
    Ok(true)
}

/// Makes an engine that takes nothing over.
fn alone(source: &Source, log: &Log, builder: Builder) -> Result<Engine, Error> {
    saved::write(source, log)?;
    Ok(builder.build()?)
}

/// Waits for the end of the keeper that this process cannot take over from. Until then it holds the
/// files and the socket.
fn wait_for_end(source: &Source, log: &Log) -> Result<(), Error> {
    let peer = Channel::connect(&source.keeper()).and_then(|channel| channel.peer());
    let process = peer.ok().and_then(|peer| peer.process);
    let Some(keeper) = process.and_then(|number| Process::of(number).ok()) else { return Ok(()) };
    let (number, seconds) = (keeper.number(), KEEPER_ENDS.as_secs());
    (log.0)(&format!("waiting for the end of keeper {number}, for {seconds} s at most"));
    if keeper.wait(Some(KEEPER_ENDS)).unwrap_or(true) {
        return Ok(());
    }
    let what = format!("keeper {number} of the mount before has not ended within {seconds} s");
    let remedy = "mount again once it has ended, or with the program of that mount";
    Err(Error::unsuitable(&source.path, &what, remedy))
}

/// Returns the bytes of the cache with this memory. `None` if the engine's own default is larger.
fn cache_bytes(memory: u64) -> Option<u64> {
    let bytes = (memory / CACHE_OF_MEMORY).min(CACHE_BYTES);
    (bytes >= CACHE_LEAST).then_some(bytes)
}

/// Keeps a file open that a dead process had open: its pages are in memory.
fn adopt(mount: &Mount, file: forebay::File) -> io::Result<()> {
    let (node, _) = mount.nodes.enter_open(&file, 0)?;
    inside::leave_accessed(&file);
    let data = OpenData::Engine(file);
    let open = OpenFile::new(&node, data, Access::ReadWrite);
    let mut state = node.state();
    state.keep(open);
    state.is_adopted = true;
    drop(state);
    mount.settling.plan(mount, &node);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::SystemTime;

    use super::*;
    use crate::attributes::Wanted;
    use crate::caller::Caller;
    use crate::durable;

    #[test]
    fn the_cache_is_a_quarter_of_the_memory_and_at_most_a_gibibyte() {
        for (memory, expected) in [
            (32 << 20, None),
            (256 << 20, Some(64 << 20)),
            (2 << 30, Some(512 << 20)),
            (64 << 30, Some(1 << 30)),
        ] {
            assert_eq!(cache_bytes(memory), expected, "{memory}");
        }
    }

    /// The mount of a directory that is not mounted. It has a file as it comes from a keeper, with
    /// pages that are not written.
    fn adopted(directory: &Path) -> (Engine, Mount) {
        let engine = Engine::start(forebay::Options {
            cache_bytes: Some(16 << 20),
            dirty_age: Duration::from_secs(60),
            ..forebay::Options::default()
        })
        .unwrap();
        let file = engine
            .open(
                directory.join("file"),
                forebay::OpenOptions::new().read(true).write(true).create(true),
            )
            .unwrap();
        file.write_at(b"hello", 0).unwrap();
        let mount = Mount::unmounted(directory, engine.clone());
        adopt(&mount, file).unwrap();
        (engine, mount)
    }

    #[test]
    fn what_a_dead_process_wrote_is_written_out_when_that_is_asked() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let (engine, mount) = adopted(directory.path());
        assert_eq!(durable::sync_all(&mount), None);
        assert_eq!(engine.stats().dirty_bytes, 0, "the flush covers it");
    }

    #[test]
    fn a_time_that_is_set_stays_although_a_dead_process_wrote_the_file() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let (engine, mount) = adopted(directory.path());
        let node = mount.nodes.all().into_iter().find(|node| node.is_file()).unwrap();
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let modified = Some(crate::times::Wish::At(then));
        let wanted = Wanted { modified, ..Wanted::default() };
        mount.set_attributes(&node, None, &wanted, &Caller::here()).unwrap();
        engine.shutdown(Duration::from_secs(10)).unwrap();
        let status = directory.path().join("file").metadata().unwrap();
        assert_eq!(status.modified().unwrap(), then);
    }
}
