//! Ends a mount from outside: writes everything out, unmounts, and waits for the result.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use forebay_uring::mounts::Mount;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::control::Client;
use crate::error::Error;
use crate::places;

/// Time from the mount until its process has a socket.
const STARTING: Duration = Duration::from_secs(1);

/// Time for the end of a mount that is unmounted here, before it is looked for elsewhere.
const ENDING: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// State of a mount when it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmounted {
    /// The mount ended, and everything written to it is durable.
    Whole,
    /// The process that served the mount was gone. Its keeper has what was written, or it was lost.
    Abandoned,
}

/// Makes everything durable that was written to a mount, unmounts it, and waits for the end of the
/// process that serves it. Blocks.
///
/// # Errors
/// If the path is not such a mount, if programs use it, or if not all could be written; then it
/// stays mounted. If another mount namespace has it, too, its process goes on there.
pub fn unmount(mount_point: &Path) -> Result<Unmounted, Error> {
    let failed = |what, error| Error::failed(mount_point, what, error);
    let mount = match places::find(mount_point)? {
        None => {
            let what = "is not a mount point";
            return Err(Error::unsuitable(mount_point, what, "`findmnt` lists the mounts"));
        }
        Some(mount) if !places::is_ours(&mount) => {
            let what = format!("is mounted, but not by forebay ({})", mount.file_system);
            return Err(Error::unsuitable(mount_point, &what, "use umount(8)"));
        }
        Some(mount) => mount,
    };
    let Some(mut client) = connect(mount_point, &mount)? else {
        places::detach(&mount.point).map_err(|error| failed("detach the mount", error))?;
        return Ok(Unmounted::Abandoned);
    };
    let unwritten = |text: String| {
        Error::Unwritten(format!(
            "{}: not all is written, so it stays mounted: {text} (`umount` ends it all the same)",
            mount_point.display()
        ))
    };
    let server = client.server();
    let (process, server) =
        server.map_err(|error| failed("find the process of the mount", error))?;
    let asked = client.write_out();
    if let Some(error) = asked.map_err(|error| failed("have everything written", error))? {
        return Err(unwritten(error));
    }
    places::unmount(&mount.point).map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => busy(mount_point, &mount),
        _ => failed("unmount", error),
    })?;
    while !client.is_answered(&ENDING).map_err(|error| failed("wait for the end", error))? {
        if let Some(elsewhere) = elsewhere(&mount) {
            let why = format!(
                "it is unmounted here, and {elsewhere}; all is durable, and `kill {process}` \
                 ends it there, too"
            );
            return Err(failed("end the mount", io::Error::other(why)));
        }
    }
    let result = client.answer();
    wait_for(&server).map_err(|error| failed("wait for the process of the mount", error))?;
    match result.map_err(|error| failed("hear from the process of the mount", error))? {
        None => Ok(Unmounted::Whole),
        Some(error) => Err(Error::Unwritten(error)),
    }
}

/// Connects to the process of a mount. Returns `None` if it has died.
fn connect(mount_point: &Path, mount: &Mount) -> Result<Option<Client>, Error> {
    let begin = Instant::now();
    loop {
        match Client::connect(mount.device) {
            Ok(client) => return Ok(Some(client)),
            Err(error) if error.kind() != io::ErrorKind::ConnectionRefused => {
                return Err(Error::failed(mount_point, "reach the process of the mount", error));
            }
            Err(_) if places::examine(mount_point).is_err() => return Ok(None),
            Err(_) if begin.elapsed() > STARTING => {
                let what = "its process is alive, but has no socket in this network namespace";
                return Err(Error::unsuitable(mount_point, what, "use umount(8)"));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// The error for a mount that is in use.
fn busy(mount_point: &Path, mount: &Mount) -> Error {
    match places::inside(mount) {
        Some(other) => {
            let what =
                format!("another file system is mounted inside of it, at {}", other.display());
            Error::unsuitable(mount_point, &what, "unmount that one first")
        }
        None => {
            let what = "programs have files of it open, or work in it";
            Error::unsuitable(mount_point, what, "end them; `fuser -vm` lists them")
        }
    }
}

/// Names a process that sees a mount which was unmounted here: at a second mount point, or in
/// another mount namespace, such as that of a container.
fn elsewhere(mount: &Mount) -> Option<String> {
    let is_it = |other: &Mount| (other.device, &other.source) == (mount.device, &mount.source);
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.into_iter().find_map(|number| {
        let table = std::fs::read(format!("/proc/{number}/mountinfo")).ok()?;
        let found = Mount::listed(&table).into_iter().find(is_it)?;
        let name = std::fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
        Some(format!("process {number} ({}) has it at {}", name.trim_end(), found.point.display()))
    })
}

/// Waits for the end of a process. It has closed all its files then.
fn wait_for(process: &OwnedFd) -> io::Result<()> {
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, None))?;
    Ok(())
}
