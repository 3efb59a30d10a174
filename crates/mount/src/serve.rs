//! Mounts a source, serves it, and ends.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use forebay_uring::mounts;
use forebay_uring::signals::not_ignored;
use fuser::{Config, MountOption, SessionACL};
use rustix::fs::{Mode, OFlags, openat};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::caller::become_server;
use crate::connection::{Connection, Wanted};
use crate::control::{Client, Waiting};
use crate::data::Way;
use crate::durable;
use crate::engine::{Data, way_of};
use crate::error::Error;
use crate::filesystem::Served;
use crate::limits::{LEAST_DESCRIPTORS, SHUTDOWN, THREADS};
use crate::mounted::{Log, Mount, descriptor_limit};
use crate::node::Nodes;
use crate::places::{self, Source};
use crate::ready;
use crate::ring::Rings;
use crate::threads::Threads;
use crate::turns;

/// Time for the kernel's last requests after a mount that is in use was detached.
const DETACHED: Duration = Duration::from_secs(1);

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
    /// Whether requests come over io_uring, if the kernel offers it. The log says why not.
    pub rings: bool,
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
    /// Whether the kernel reads files without unwritten data itself.
    pub passes: bool,
    /// Whether requests come in rings (FUSE over io_uring), and not by `/dev/fuse`.
    pub in_rings: bool,
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
    let (way, inherited) = way_of(&options.data, &source, &log)?;
    let root = openat(&source.lock, c".", OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
        .map_err(|error| Error::failed(&source.path, "open the source", error))?;
    let nodes =
        Nodes::new(root).map_err(|error| Error::failed(&source.path, "examine it", error))?;
    let saved = source.saved();
    let Source { lock, path: source, .. } = source;
    let mount = Arc::new(Mount::new(lock, way, nodes, log));
    let process = inherited.map(|inherited| inherited.take_over(&mount));
    let failed = |what, error| Error::failed(&mount_point, what, error);
    let config = config(options, &source);
    let rings = options.rings.then(Rings::find);
    let is_possible = matches!(rings, Some(Ok(_)));
    let wanted = Wanted { passes: matches!(mount.way, Way::Engine(_)), rings: is_possible };
    let connection =
        Connection::mount(&mount_point, &config, wanted).map_err(|error| failed("mount", error))?;
    if connection.agreed.passes {
        mount.passing.check(&connection.device, &mount.source);
    }
    let _ = mount.notifier.set(connection.notifier());
    let waiting = Waiting::default();
    let mounted = places::find(&mount_point)?;
    let listener = mounted.as_ref().map(|mounted| waiting.serve(mounted.device, &mount));
    let listener = listener.transpose();
    let listener = listener.map_err(|error| failed("serve `forebay unmount`", error))?;
    let rings = rings.and_then(|rings| match rings {
        Ok(rings) if connection.agreed.rings => Some(rings),
        Ok(_) => not_in_rings(&mount, NOT_OFFERED),
        Err(error) => not_in_rings(&mount, &error),
    });
    let (ended, in_rings) =
        serve(connection, &mount, rings).map_err(|error| failed("start a thread", error))?;
    ready(&Mounted {
        source: source.clone(),
        mount_point: mount_point.clone(),
        adopted: process,
        passes: mount.passing.is_on(),
        in_rings,
    });
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
    if unwritten.is_none() {
        // Its keeper has ended. Images that an earlier one left to the user stay.
        let _ = std::fs::remove_dir(&saved);
    }
    waiting.report(unwritten.as_deref());
    if let Some(what) = unwritten {
        return Err(Error::Unwritten(what));
    }
    match end {
        End::Unmounted(served) => served.map_err(|error| failed("serve", error)),
        End::Signal => Ok(()),
    }
}

const NOT_OFFERED: &str = "the kernel does not offer it (Linux 6.14; \
                           `echo Y > /sys/module/fuse/parameters/enable_uring` permits it)";

/// Logs why io_uring is not used, although it was asked for.
fn not_in_rings(mount: &Mount, why: impl Display) -> Option<Rings> {
    mount.log(&format!("requests do not come over io_uring: {why}"));
    None
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
    config
}

/// Why a mount ends.
#[derive(Debug)]
enum End {
    Unmounted(io::Result<()>),
    Signal,
}

/// Starts the threads. The last one to end says why. Returns whether requests come in rings, too.
fn serve(
    connection: Connection,
    mount: &Arc<Mount>,
    rings: Option<Rings>,
) -> io::Result<(mpsc::Receiver<End>, bool)> {
    let (end, ended) = mpsc::channel();
    let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let of_signal = end.clone();
    let mut signals = Signals::new(not_ignored(&[SIGTERM, SIGINT, SIGHUP]))?;
    thread("forebay-signals").spawn(move || {
        for _signal in signals.forever() {
            let _ = of_signal.send(End::Signal);
        }
    })?;
    let (forgotten, notifier) = (Arc::clone(mount), connection.notifier());
    thread("forebay-forget").spawn(move || {
        let used = || forgotten.descriptors();
        forgotten.forgetting.run(&forgotten.nodes, used, &notifier);
    })?;
    let settled = Arc::clone(mount);
    thread("forebay-settle").spawn(move || settled.settling.run(&settled))?;
    let (device, opened) = (Arc::clone(&connection.device), connection.agreed.opened);
    let served = Arc::new(Served { mount: Arc::clone(mount), device, opened });
    let (threads, ends) = Threads::new();
    let in_rings = rings.is_some_and(|rings| match rings.start(&served, &threads) {
        Ok(()) => true,
        Err(error) => not_in_rings(mount, error).is_some(),
    });
    // Names to forget come there in any case.
    turns::start(&served, if in_rings { 1 } else { THREADS }, &threads)?;
    drop(threads);
    connection.keep();
    thread("forebay-fuse").spawn(move || {
        let _ = end.send(End::Unmounted(ends.wait()));
    })?;
    Ok((ended, in_rings))
}

/// Unmounts, unless somebody has. Programs that use the mount get errors.
fn detach(mounted: &mounts::Mount) -> io::Result<()> {
    let Some(point) = places::present(mounted)? else { return Ok(()) };
    places::unmount(&point).or_else(|_| places::detach(&point))
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
