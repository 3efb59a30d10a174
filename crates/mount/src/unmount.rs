//! Ends a mount from outside: writes everything out, unmounts, and waits for the result.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::event::{PollFd, PollFlags};

use crate::control::Client;
use crate::error::Error;
use crate::places;

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
/// stays mounted.
pub fn unmount(mount_point: &Path) -> Result<Unmounted, Error> {
    let full = places::full_path(mount_point)?;
    let failed = |what, error| Error::failed(mount_point, what, error);
    let found = places::mounted_at(&full).map_err(|error| failed("read the mounts", error))?;
    let device = match found {
        None => {
            let what = "is not a mount point";
            return Err(Error::unsuitable(mount_point, what, "`findmnt` lists the mounts"));
        }
        Some(mounted) if !mounted.is_ours() => {
            let what = format!("is mounted, but not by forebay ({})", mounted.kind());
            return Err(Error::unsuitable(mount_point, &what, "use umount(8)"));
        }
        Some(mounted) => mounted.device,
    };
    let mut client = match Client::connect(&device) {
        Ok(client) => client,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            places::detach(&full).map_err(|error| failed("detach the mount", error))?;
            return Ok(Unmounted::Abandoned);
        }
        Err(error) => return Err(failed("reach the process of the mount", error)),
    };
    let unwritten = |text: String| {
        Error::Unwritten(format!(
            "{}: not all is written, so it stays mounted: {text} (`umount` ends it all the same)",
            mount_point.display()
        ))
    };
    let server = client.server();
    let server = server.map_err(|error| failed("find the process of the mount", error))?;
    let asked = client.write_out();
    if let Some(error) = asked.map_err(|error| failed("have everything written", error))? {
        return Err(unwritten(error));
    }
    places::unmount(&full).map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => Error::unsuitable(
            mount_point,
            "programs have files of it open, or work in it",
            "end them; `fuser -vm` lists them",
        ),
        _ => failed("unmount", error),
    })?;
    let result = client.answer();
    wait_for(&server).map_err(|error| failed("wait for the process of the mount", error))?;
    match result.map_err(|error| failed("hear from the process of the mount", error))? {
        None => Ok(Unmounted::Whole),
        Some(error) => Err(Error::Unwritten(error)),
    }
}

/// Waits for the end of a process. It has closed all its files then.
fn wait_for(process: &OwnedFd) -> io::Result<()> {
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, None))?;
    Ok(())
}
