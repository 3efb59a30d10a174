//! Mounts a source, serves it, and ends.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use forebay::{Adopted, Builder, Engine, Keeper, inside};
use forebay_uring::mounts;
use forebay_uring::probe::memory_limit;
use forebay_uring::signals::not_ignored;
use fuser::{Config, MountOption, Session, SessionACL};
use rustix::fs::{Mode, OFlags, openat};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::caller::become_server;
use crate::control::{Client, Waiting};
use crate::data::{Access, OpenData, Way};
use crate::durable;
use crate::error::Error;
use crate::filesystem::Served;
use crate::limits::{
    CACHE_BYTES, CACHE_LEAST, CACHE_OF_MEMORY, LEAST_DESCRIPTORS, SHUTDOWN, THREADS,
};
use crate::mounted::{Log, Mount, descriptor_limit};
use crate::node::{Nodes, named};
use crate::open_file::OpenFile;
use crate::places::{self, Source};
use crate::ready;
use crate::small::{Room, Stack};

/// Time for the kernel's last requests after a mount that is in use was detached.
const DETACHED: Duration = Duration::from_secs(1);

/// How the data of files is read and written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Data {
    /// By an engine with these knobs.
    Engine {
        /// Names and values of knobs.
        settings: Vec<(String, String)>,
        /// Whether a keeper finishes the writing if this process dies.
        survives: bool,
        /// Socket for `forebay ctl`.
        control: Option<PathBuf>,
    },
    /// By plain system calls, to compare with.
    Plain,
}

/// Options of a mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The directory whose files are used.
    pub source: PathBuf,
    /// The empty directory where they appear.
    pub mount_point: PathBuf,
    /// How data is read and written.
    pub data: Data,
    /// Whether other users see the mount, as they always do if root mounts. The permissions of the
    /// files hold for them.
    pub allow_other: bool,
    /// Whether set-user-ID programs and file capabilities have an effect. For root alone.
    pub allow_suid: bool,
    /// Whether device nodes can be opened. For root alone.
    pub allow_dev: bool,
}

/// A mount that has begun.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Mounted {
    /// Full path of the source.
    pub source: PathBuf,
    /// Full path of the mount point.
    pub mount_point: PathBuf,
    /// Process whose files and cache were adopted from its keeper.
    pub adopted: Option<u32>,
}

/// Mounts a source and serves it until it is unmounted, or until SIGTERM, SIGINT or SIGHUP, unless
/// the process was started with that signal ignored. `ready` is called once it is mounted, and
/// `log` with a line for each event that no request can report, such as an error after the last
/// close of a file. Blocks.
///
/// It changes this process: its limits of open files and of their length, its umask, its right to
/// pass quotas, and its treatment when memory is short.
///
/// # Errors
/// If a directory is not suitable or the mount fails, and [`Error::Unwritten`] if at the end not
/// everything could be written.
pub fn mount(
    options: &Options,
    ready: impl FnOnce(&Mounted),
    log: impl Fn(&str) + Send + Sync + 'static,
) -> Result<(), Error> {
    let log = Log(Arc::new(log));
    check_rights(options)?;
    become_server();
    check_limit(options)?;
    let source = Source::lock(&options.source, |mount| Client::connect(mount.device).is_ok())?;
    let mount_point = places::mount_point(&options.mount_point, &source.path)?;
    let (way, adopted) = way_of(&options.data, &source, &log)?;
    let root = openat(&source.lock, c".", OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
        .map_err(|error| Error::failed(&source.path, "open the source", error))?;
    let nodes =
        Nodes::new(root).map_err(|error| Error::failed(&source.path, "examine it", error))?;
    let Source { lock, path: source, .. } = source;
    let mount = Arc::new(Mount::new(lock, way, nodes, log));
    let process = adopted.as_ref().map(|(process, _)| *process);
    for file in adopted.into_iter().flat_map(|(_, files)| files) {
        if let Err(error) = adopt(&mount, file) {
            mount.log(&format!("could not take over a file; it is written and closed: {error}"));
        }
    }
    let failed = |what, error| Error::failed(&mount_point, what, error);
    let config = config(options, &source);
    let session = Session::new(Served::new(Arc::clone(&mount)), &mount_point, &config)
        .map_err(|error| failed("mount", error))?;
    let _ = mount.notifier.set(session.notifier());
    let waiting = Waiting::default();
    let mounted = places::find(&mount_point)?;
    let listener = mounted.as_ref().map(|mounted| waiting.serve(mounted.device, &mount));
    let listener = listener.transpose();
    let listener = listener.map_err(|error| failed("serve `forebay unmount`", error))?;
    let ended = serve(session, &mount).map_err(|error| failed("start a thread", error))?;
    ready(&Mounted { source: source.clone(), mount_point: mount_point.clone(), adopted: process });
    if let Err(error) = ready::report() {
        mount.log(&format!("could not tell the service manager: {error}"));
    }
    let end = ended.recv().unwrap_or(End::Unmounted(Ok(())));
    if !matches!(end, End::Unmounted(Ok(()))) {
        if let Err(error) = mounted.as_ref().map_or(Ok(()), detach) {
            mount.log(&format!("{}: could not unmount: {error}", mount_point.display()));
        }
        // Programs that use it may have requests under way.
        let _ = ended.recv_timeout(DETACHED);
    }
    if let Some(listener) = listener {
        // The next mount may get the same device number, and with it the same address.
        let _ = rustix::net::shutdown(&listener, rustix::net::Shutdown::Both);
    }
    let unwritten = finish(&mount);
    waiting.report(unwritten.as_deref());
    if let Some(what) = unwritten {
        return Err(Error::Unwritten(what));
    }
    match end {
        End::Unmounted(served) => served.map_err(|error| failed("serve", error)),
        End::Signal => Ok(()),
    }
}

/// Refuses options that only root may use. The kernel would leave them out.
fn check_rights(options: &Options) -> Result<(), Error> {
    let asked = [("--allow-suid", options.allow_suid), ("--allow-dev", options.allow_dev)];
    let asked = asked.into_iter().find(|(_, is_asked)| *is_asked);
    match asked {
        Some((option, _)) if !rustix::process::geteuid().is_root() => {
            let what = format!("only root may mount with {option}");
            Err(Error::unsuitable(&options.mount_point, &what, "leave it out, or mount as root"))
        }
        _ => Ok(()),
    }
}

/// Refuses a limit of open files that leaves none for the files of programs.
fn check_limit(options: &Options) -> Result<(), Error> {
    let limit = descriptor_limit();
    if limit >= LEAST_DESCRIPTORS {
        return Ok(());
    }
    let what = format!("cannot be mounted with at most {limit} open files");
    let remedy = format!("raise the limit: `ulimit -n {LEAST_DESCRIPTORS}`");
    Err(Error::unsuitable(&options.source, &what, &remedy))
}

fn config(options: &Options, source: &Path) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(places::name_of(source)),
        MountOption::Subtype("forebay".to_owned()),
        MountOption::DefaultPermissions,
    ];
    // Without them the library mounts with `nosuid` and `nodev`.
    config.mount_options.extend(options.allow_suid.then_some(MountOption::Suid));
    config.mount_options.extend(options.allow_dev.then_some(MountOption::Dev));
    let is_for_all = options.allow_other || rustix::process::geteuid().is_root();
    config.acl = if is_for_all { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    config
}

/// Why a mount ends.
#[derive(Debug)]
enum End {
    Unmounted(io::Result<()>),
    Signal,
}

/// Starts the threads. The last one to end says why.
fn serve(session: Session<Served>, mount: &Arc<Mount>) -> io::Result<mpsc::Receiver<End>> {
    let (end, ended) = mpsc::channel();
    let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let of_signal = end.clone();
    let mut signals = Signals::new(not_ignored(&[SIGTERM, SIGINT, SIGHUP]))?;
    thread("forebay-signals").spawn(move || {
        for _signal in signals.forever() {
            let _ = of_signal.send(End::Signal);
        }
    })?;
    let (forgotten, notifier) = (Arc::clone(mount), session.notifier());
    thread("forebay-forget").spawn(move || {
        let used = || forgotten.descriptors();
        forgotten.forgetting.run(&forgotten.nodes, used, &notifier);
    })?;
    let settled = Arc::clone(mount);
    thread("forebay-settle").spawn(move || settled.settling.run(&settled))?;
    thread("forebay-fuse").spawn(move || {
        let _ = end.send(End::Unmounted(run(session)));
    })?;
    Ok(ended)
}

/// Unmounts, unless somebody has. Programs that use the mount get errors.
fn detach(mounted: &mounts::Mount) -> io::Result<()> {
    let Some(point) = places::present(mounted)? else { return Ok(()) };
    places::unmount(&point).or_else(|_| places::detach(&point))
}

/// Runs a session until it is unmounted. The library would unmount the path of the mount point
/// afterwards once more, and so another file system that is mounted there by then.
fn run(session: Session<Served>) -> io::Result<()> {
    let mut background = session.spawn()?;
    let nothing = std::thread::spawn(|| Ok(()));
    let guard = std::mem::replace(&mut background.guard, nothing);
    std::mem::forget(background);
    match guard.join() {
        // The kernel has ended the connection: of a mount that was detached, with its last file.
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
        Ok(ended) => ended,
        Err(_) => Err(io::Error::other("a thread of the session panicked")),
    }
}

/// Writes everything out and ends the engine. Returns what could not be written.
fn finish(mount: &Mount) -> Option<String> {
    mount.settling.end();
    mount.forgetting.end();
    let first = durable::close_all(mount);
    let shut = match &mount.way {
        Way::Engine(stack) => stack.engine.shutdown(SHUTDOWN).err().map(|error| error.to_string()),
        Way::Plain => None,
    };
    first.or(shut)
}

/// Files that a dead process had open, and its number.
type Inherited = Option<(u32, Vec<forebay::File>)>;

fn way_of(data: &Data, source: &Source, log: &Log) -> Result<(Way, Inherited), Error> {
    let Data::Engine { settings, survives, control } = data else {
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
                ..Keeper::program("/proc/self/exe")
            });
        }
        Ok(builder)
    };
    // A mount whose process died may have left a keeper there, with its files.
    let adopted = if socket.exists() { Some(builder()?.adopt(&socket)) } else { None };
    let adopted = adopted.and_then(|adopted| {
        adopted.inspect_err(|error| (log.0)(&format!("nothing was adopted: {error}"))).ok()
    });
    let (engine, inherited) = match adopted {
        Some(Adopted { engine, files, process, .. }) => (engine, Some((process, files))),
        None => (builder()?.build()?, None),
    };
    if let Some(control) = control {
        engine.serve_control(control)?;
    }
    let cache = engine.options().cache_bytes.unwrap_or(0);
    let stack = Stack { engine, room: Room::beside(cache) };
    Ok((Way::Engine(Arc::new(stack)), inherited))
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
    use std::time::SystemTime;

    use super::*;
    use crate::attributes::Wanted;
    use crate::caller::Caller;

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
        let modified = Some(fuser::TimeOrNow::SpecificTime(then));
        let wanted = Wanted { modified, ..Wanted::default() };
        mount.set_attributes(&node, None, &wanted, &Caller::here()).unwrap();
        engine.shutdown(Duration::from_secs(10)).unwrap();
        let status = directory.path().join("file").metadata().unwrap();
        assert_eq!(status.modified().unwrap(), then);
    }
}
