//! `forebay mount` and `forebay unmount`.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use forebay_mount::{Data, Error, Mounted, Options, Unmounted};

use crate::failure::Failure;
use crate::output::print;

/// A checked command line of `forebay mount`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) options: Options,
    /// Whether the program returns once it is mounted, and where the log is then.
    pub(crate) background: bool,
    pub(crate) log: Option<PathBuf>,
}

/// Mounts, and serves the mount until it ends.
pub(crate) fn mount(request: &Request) -> Result<(), Failure> {
    if request.background {
        return in_background(request);
    }
    let ready = |mounted: &Mounted| {
        // Nobody may read it.
        let _ = print(&told(mounted));
    };
    let file = request.log.as_deref().map(open_log).transpose()?;
    let log = move |line: &str| {
        let line = format!("forebay: {line}\n");
        // There is nowhere else to report a failure.
        let _ = match &file {
            Some(file) => {
                let mut file = file;
                file.write_all(line.as_bytes())
            }
            None => std::io::stderr().write_all(line.as_bytes()),
        };
    };
    if matches!(&request.options.data, Data::Engine { survives: false, .. }) {
        log("without a keeper, kill -9 of this process loses data that programs have not synced");
    }
    forebay_mount::mount(&request.options, ready, log).map_err(failure)
}

fn open_log(path: &Path) -> Result<File, Failure> {
    let file = File::options().append(true).create(true).open(path);
    file.map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
}

fn told(mounted: &Mounted) -> String {
    let line =
        format!("{} is mounted at {}", mounted.source.display(), mounted.mount_point.display());
    match mounted.adopted {
        None => line + "\n",
        Some(process) => format!("{line}, with the files of process {process}, which had died\n"),
    }
}

/// Starts the program again, and waits until it has mounted or failed.
fn in_background(request: &Request) -> Result<(), Failure> {
    use std::os::unix::process::CommandExt as _;
    let log = match &request.log {
        Some(log) => log.clone(),
        None => forebay_mount::runtime_directory().map_err(failure)?.join("mount.log"),
    };
    let file = open_log(&log)?;
    let start = file.metadata().map_or(0, |found| found.len());
    // The same command, without the option that led here.
    let arguments = std::env::args_os().skip(1).filter(|argument| argument != "--background");
    let mut child = Command::new("/proc/self/exe")
        .arg0("forebay")
        .args(arguments)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(file)
        .spawn()
        .map_err(|error| Failure::failed(format!("could not start: {error}")))?;
    let mut line = String::new();
    let read = child.stdout.take().map(BufReader::new).map(|mut from| from.read_line(&mut line));
    if matches!(read, Some(Ok(bytes)) if bytes > 0) {
        return print(&format!("{}; log: {}\n", line.trim_end(), log.display()));
    }
    let status = child.wait().ok().and_then(|status| status.code());
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    let said = said.get(start as usize..).unwrap_or_default().trim();
    let said = said.strip_prefix("forebay: ").unwrap_or(said).to_owned();
    Err(if status == Some(2) { Failure::usage(said) } else { Failure::failed(said) })
}

/// Ends a mount.
pub(crate) fn unmount(mount_point: &Path) -> Result<(), Failure> {
    match forebay_mount::unmount(mount_point).map_err(failure)? {
        Unmounted::Whole => Ok(()),
        Unmounted::Abandoned => Err(Failure::failed(format!(
            "{}: unmounted, but the process that served it had died: its keeper writes what was \
             left, and without a keeper that is lost",
            mount_point.display()
        ))),
    }
}

fn failure(error: Error) -> Failure {
    if error.is_unsuitable() { Failure::usage(error) } else { Failure::failed(error) }
}
