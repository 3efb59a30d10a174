//! `forebay mount` and `forebay unmount`.

use std::cell::Cell;
use std::fs::{File, Permissions};
use std::io::{self, PipeReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use forebay_mount::{Data, Error, Mounted, Options, Unmounted};
use forebay_uring::detached::{self, Side};

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
    let file = request.log.as_deref().map(open_log).transpose()?;
    // Nobody may read it.
    serve(&request.options, file, |mounted| drop(print(&format!("{}\n", reported(mounted)))))
}

/// Serves a mount. Messages go to the file, or to standard error.
fn serve(
    options: &Options,
    log: Option<File>,
    ready: impl FnOnce(&Mounted),
) -> Result<(), Failure> {
    let log = move |line: &str| {
        let line = format!("forebay: {line}\n");
        // There is nowhere else to report a failure.
        let _ = match &log {
            Some(file) => {
                let mut file = file;
                file.write_all(line.as_bytes())
            }
            None => io::stderr().write_all(line.as_bytes()),
        };
    };
    if matches!(&options.data, Data::Engine { survives: false, .. }) {
        log("without a keeper, kill -9 of this process loses data that programs have not synced");
    }
    forebay_mount::mount(options, ready, log).map_err(failure)
}

fn open_log(path: &Path) -> Result<File, Failure> {
    let file = File::options().append(true).create(true).open(path);
    file.map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
}

/// Opens the log of all mounts that name none. It belongs to this user alone, with any umask.
fn open_own_log() -> Result<(PathBuf, File), Failure> {
    let path = forebay_mount::runtime_directory().map_err(failure)?.join("mount.log");
    let file = open_log(&path)?;
    file.set_permissions(Permissions::from_mode(0o600))
        .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
    Ok((path, file))
}

fn reported(mounted: &Mounted) -> String {
    let mut line =
        format!("{} is mounted at {}", mounted.source.display(), mounted.mount_point.display());
    if let Some(process) = mounted.adopted {
        line += &format!(", with the files of process {process}, which had died");
    }
    if mounted.passes {
        line += "; the kernel reads files without unwritten data itself";
    }
    if mounted.in_rings {
        line += "; requests come over io_uring";
    }
    line
}

/// Serves the mount in a detached process, and returns once that has mounted or failed.
fn in_background(request: &Request) -> Result<(), Failure> {
    // The detached process has another working directory.
    let options = absolute(&request.options)?;
    let (path, log) = match &request.log {
        Some(path) => (path.clone(), open_log(path)?),
        None => open_own_log()?,
    };
    let not_started = |error: io::Error| Failure::failed(format!("could not start: {error}"));
    let (answer, answering) = io::pipe().map_err(not_started)?;
    let kept = [log.as_fd(), answer.as_fd(), answering.as_fd()];
    match detached::fork(log.as_fd(), &kept).map_err(not_started)? {
        Side::Caller => {
            drop(answering);
            wait_for(answer, &path)
        }
        Side::Daemon => {
            drop((log, answer));
            answer_by(answering, &options)
        }
    }
}

/// Waits for the answer of the detached process: an exit code, and a sentence.
fn wait_for(mut answer: PipeReader, log: &Path) -> Result<(), Failure> {
    let mut text = String::new();
    // Without an answer the text is empty.
    let _ = answer.read_to_string(&mut text);
    match text.split_at_checked(1) {
        Some(("0", mounted)) => print(&format!("{mounted}; log: {}\n", log.display())),
        Some(("2", why)) => Err(Failure::usage(why)),
        Some((_, why)) => Err(Failure::failed(why)),
        None => Err(Failure::failed(format!(
            "the process of the mount ended before it had mounted (its log: {})",
            log.display()
        ))),
    }
}

/// Serves the mount in the detached process. Until it has mounted, a failure is the answer, and
/// later it goes to the log.
fn answer_by(pipe: io::PipeWriter, options: &Options) -> Result<(), Failure> {
    let pipe = Cell::new(Some(pipe));
    // Returns whether this is the first answer.
    let answer = |code: u8, text: &str| {
        let Some(mut pipe) = pipe.take() else { return false };
        // A caller that has gone does not need it.
        let _ = write!(pipe, "{code}{text}");
        true
    };
    let served = serve(options, None, |mounted| {
        answer(0, &reported(mounted));
    });
    match served {
        Err(Failure::Usage(why)) if answer(2, &why) => Ok(()),
        Err(Failure::Failed(why)) if answer(1, &why) => Ok(()),
        served => served,
    }
}

/// The same options, with paths that hold in any working directory.
fn absolute(options: &Options) -> Result<Options, Failure> {
    let mut options = options.clone();
    let mut paths = vec![&mut options.source, &mut options.mount_point];
    if let Data::Engine { control, .. } = &mut options.data {
        paths.extend(control);
    }
    for path in paths {
        *path = std::path::absolute(&path).map_err(|error| {
            let path = path.display();
            Failure::usage(format!("{path}: no full path, in this working directory: {error}"))
        })?;
    }
    Ok(options)
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
