//! `forebay walk request` and `forebay walk page`: a few real bios, or pages, on their way, one
//! line for each step.
//!
//! Nothing is measured here and nothing is asked of the data: it is for seeing what the words mean.
//! The same scenes ([`scene`], [`page`]) are walked on a real file through a ring and, in their
//! tests, on the simulated disk.

mod lines;
mod page;
mod scene;

use std::path::Path;
use std::sync::Arc;

use forebay_block::Target;
use forebay_block::limits::TAGS;
use forebay_uring::{Access, Arena, Create, Direct, How, OpenFile, Ring, Truncate};

use crate::failure::Failure;
use crate::output::print;

/// The file's name in the directory made for it.
const FILE: &str = "walk";

/// The file's number at the device.
const TARGET: Target = Target(0);

/// Walks requests, in a directory of its own below the one named.
pub(crate) fn request(directory: &Path) -> Result<(), Failure> {
    on_a_new_file(directory, scene::FRAMES, |ring, device| {
        Ok(lines::text(device, &scene::walk(ring)?))
    })
}

/// Walks pages, in a directory of its own below the one named.
pub(crate) fn page(directory: &Path) -> Result<(), Failure> {
    on_a_new_file(directory, page::FRAMES, |ring, device| {
        Ok(lines::pages(device, &page::walk(ring)?))
    })
}

/// Makes a file and a ring for it, and prints what is walked there.
fn on_a_new_file(
    directory: &Path,
    frames: u32,
    walk: impl FnOnce(Ring, &str) -> Result<String, forebay_block::Errno>,
) -> Result<(), Failure> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        Failure::failed(format!("{}: {what}: {error}", directory.display()))
    };
    let scratch = tempfile::Builder::new().prefix("forebay-walk-").tempdir_in(directory);
    let scratch = scratch.map_err(|error| failed("no directory could be made in it", &error))?;
    let how = How {
        access: Access::ReadWrite,
        create: Create::New,
        truncate: Truncate::Keep,
        mode: 0o600,
    };
    let opened = OpenFile::open(&scratch.path().join(FILE), &how);
    let file =
        Arc::new(opened.map_err(|error| failed("no file could be made in it", &error))?.file);
    let arena = Arena::new(frames).map_err(|error| failed("no memory", &error))?;
    let mut ring = Ring::new(Arc::new(arena), TAGS as u32).map_err(Failure::failed)?;
    ring.attach(TARGET, Arc::clone(&file));
    let kind = match file.direct() {
        Direct::Yes => "direct".to_owned(),
        Direct::Refused(reason) => format!("through the page cache ({reason})"),
    };
    let device = format!("a new file, {kind}, over {}", ring.describe());
    print(&walk(ring, &device).map_err(|errno| failed("the device is broken", &errno))?)
}
