//! The device of a request cell, by its word, and its file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_block::limits::TAGS;
use forebay_uring::{
    Access, Arena, Create, Direct, How, Modelled, Null, OpenFile, Profile, Register, Ring, Truncate,
};

use super::queued::{TARGET, frames_per_slot};
use crate::load::data;
use crate::load::error::{CellError, Context};
use crate::request::{DATA_FILE, Operation, RequestCell, RequestDevice, RequestSpec, Switch};
use crate::scratch::Stop;

/// A device, ready for use.
pub(crate) enum Opened {
    Null(Null),
    Modelled(Box<Modelled>),
    File { ring: Box<Ring>, notes: Vec<String> },
}

/// Whether everything that a doorbell handed over has ended when it returns.
pub(crate) fn ends_at_doorbell(device: &RequestDevice) -> bool {
    device.name() == "null" || device.free_nanos().is_some()
}

/// Opens the device, and lays the file out if it is one.
pub(crate) fn open(cell: &RequestCell) -> Result<Opened, CellError> {
    let spec = &cell.spec;
    let device = &spec.device;
    if !device.is_file() && spec.fixed_files == Switch::On {
        return Err(CellError::invalid(format!(
            "files are registered with a ring, and {device} has none: take device=file"
        )));
    }
    match (device.name(), device.free_nanos()) {
        ("null", _) => Ok(Opened::Null(Null::new())),
        ("file", _) => open_file(cell),
        (name, nanos) => {
            let free = nanos.map(|nanos| Profile::free(Duration::from_nanos(nanos)));
            let profile = free.or_else(|| Profile::by_name(name)).ok_or_else(|| {
                CellError::invalid(format!("{name}: no such device (of {})", Profile::CHOICES))
            })?;
            Ok(Opened::Modelled(Box::new(Modelled::new(profile))))
        }
    }
}

fn open_file(cell: &RequestCell) -> Result<Opened, CellError> {
    let (spec, path) = (&cell.spec, path_of(cell)?);
    let file = if cell.target.is_some() { open_shared(&path) } else { open_own(&path) };
    let file = file.context_at("could not open it", &path)?;
    let mut notes = Vec::new();
    if let Direct::Refused(reason) = file.direct() {
        notes.push(format!("the file is not direct: {reason}"));
    }
    let frames = u64::from(spec.depth) * u64::from(frames_per_slot(spec.block_bytes));
    debug_assert!(frames > 0, "a ring without memory");
    let arena = u32::try_from(frames)
        .map_err(io::Error::other)
        .and_then(Arena::new)
        .context("no memory for the blocks")?;
    let mut ring = Ring::new(Arc::new(arena), TAGS as u32)
        .map_err(|error| CellError::unavailable(error.to_string()))?;
    let is_registered = spec.fixed_files == Switch::On;
    ring.set_registered(if is_registered { Register::Yes } else { Register::No });
    ring.attach(TARGET, Arc::new(file));
    notes.push(ring.describe());
    Ok(Opened::File { ring: Box::new(ring), notes })
}

fn open_own(path: &Path) -> io::Result<OpenFile> {
    let how = How {
        access: Access::ReadWrite,
        create: Create::No,
        truncate: Truncate::Keep,
        mode: 0o600,
    };
    OpenFile::open(path, &how).map(|opened| opened.file)
}

/// Opens it for reading, also if others use it: our own open would refuse a mounted device.
fn open_shared(path: &Path) -> io::Result<OpenFile> {
    let mut file = OpenFile::of_descriptor(File::open(path)?.into())?;
    file.go_direct()?;
    Ok(file)
}

/// Returns the file of a cell: the target, which is only read, or the laid-out file, which this
/// makes if it does not exist.
pub(super) fn path_of(cell: &RequestCell) -> Result<PathBuf, CellError> {
    let RequestCell { spec, directory, target, .. } = cell;
    if let Some(target) = target {
        if spec.operation == Operation::Write {
            return Err(CellError::invalid(format!("{}: it is only read", target.display())));
        }
        return Ok(target.clone());
    }
    let path = directory.join(DATA_FILE);
    data::lay_out(directory, spec.file_bytes, spec.seed, &Stop::default())
        .context_at("could not lay it out", &path)?;
    Ok(path)
}

/// Opens it past the page cache.
pub(super) fn open_direct(spec: &RequestSpec, path: &Path) -> Result<File, CellError> {
    let mut options = OpenOptions::new();
    options.read(true).write(spec.operation == Operation::Write).custom_flags(libc::O_DIRECT);
    options.open(path).map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => CellError::unavailable(format!(
            "{}: no direct I/O on this file system (use --dir with another)",
            path.display()
        )),
        _ => CellError::failed_at("could not open it", path, &error),
    })
}
