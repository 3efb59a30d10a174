//! Making files before the clock starts: their lengths, contents and space.
//!
//! A file that is there and long enough stays as it is. A file to be read is filled, so that a read
//! is a read of data and not of a hole. Nothing here is part of any figure, and every arm finds the
//! same.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::data;
use super::error::{CellError, Context};
use super::guard;
use super::kernel::drop_cached;
use super::layout::{FileKind, FilePlan, JobPlan};
use crate::cell::Verify;
use crate::job::{Create, Fallocate, Job, YesNo};
use crate::scratch::Stop;

/// Makes what has to be there, and drops what is cached of it. A device that is to be verified is
/// written over first: an earlier cell may have left what this one should write.
pub(crate) fn prepare(plans: &[JobPlan], verify: Verify) -> Result<(), CellError> {
    refuse_without_space(plans)?;
    for plan in plans {
        for file in &plan.files {
            let path = &file.path;
            if file.kind == FileKind::Regular {
                make(&plan.job, file)?;
            } else if plan.writes() && verify == Verify::After {
                let open = OpenOptions::new().write(true).open(path);
                fill(&open.context_at("could not open it", path)?, file, file.range.start)?;
            }
            let is_made = file.kind == FileKind::BlockDevice || is_made_before(&plan.job);
            if is_made && plan.job.invalidate == YesNo::Yes {
                drop_cached(path)?;
            }
        }
    }
    Ok(())
}

fn is_made_before(job: &Job) -> bool {
    job.create == Create::Before || job.is_filled()
}

/// Refuses files that the disk has no room for. A file system does not give back what it had found
/// when it finds no more: the disk would stay full.
fn refuse_without_space(plans: &[JobPlan]) -> Result<(), CellError> {
    let mut needed: BTreeMap<u64, (u64, &Path)> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (plan, file) in
        plans.iter().flat_map(|plan| plan.files.iter().map(move |file| (plan, file)))
    {
        let takes_space = plan.job.is_filled()
            || (plan.job.create == Create::Before
                && matches!(plan.job.fallocate, Fallocate::Native | Fallocate::KeepSize));
        if file.kind == FileKind::BlockDevice || !takes_space || !seen.insert(&file.path) {
            continue;
        }
        let there = fs::metadata(&file.path).map_or(0, |metadata| metadata.len());
        let directory = guard::nearest_directory(&file.path);
        let Ok(metadata) = fs::metadata(directory) else { continue };
        let of_disk = needed.entry(metadata.dev()).or_insert((0, directory));
        of_disk.0 = of_disk.0.saturating_add(file.length.saturating_sub(there));
    }
    for (bytes, directory) in needed.into_values() {
        let Ok(space) = rustix::fs::statvfs(directory) else { continue };
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        // One without blocks of its own says nothing about room.
        if space.f_blocks > 0 && bytes > free {
            return Err(CellError::invalid(format!(
                "{}: the files need {} MiB of space, {} MiB are free (use a smaller size, or another --dir)",
                directory.display(),
                bytes.div_ceil(1 << 20),
                free >> 20
            )));
        }
    }
    Ok(())
}

/// Makes a file with its directory, and gives it its data or space.
fn make(job: &Job, file: &FilePlan) -> Result<(), CellError> {
    let path = &file.path;
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).context_at("could not make its directory", parent)?;
    }
    let there = fs::metadata(path).map_or(0, |metadata| metadata.len());
    if !is_made_before(job) || there >= file.length {
        return Ok(());
    }
    let open = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    let handle = open.context_at("could not make it", path)?;
    if job.is_filled() {
        return fill(&handle, file, there);
    }
    let allocated = |flags| match fallocate(&handle, flags, 0, file.length) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(error) => Err(error.into()),
    };
    let given = match job.fallocate {
        Fallocate::None => Ok(()),
        Fallocate::Truncate => handle.set_len(file.length),
        Fallocate::Native => allocated(FallocateFlags::empty()),
        Fallocate::KeepSize => allocated(FallocateFlags::KEEP_SIZE),
    };
    given.context_at("could not give it space", path)
}

/// Fills a file, then syncs it, so that the layout owes nothing to the clock. The data is other
/// than will be written: a write that was lost would else go unnoticed.
fn fill(handle: &File, file: &FilePlan, from: u64) -> Result<(), CellError> {
    assert!(from <= file.length, "{} bytes of {} are there", from, file.length);
    let content = file.content.before();
    let make = |offset, part: &mut [u8]| content.fill(offset, part);
    let filled = data::write(handle, from..file.length, &Stop::default(), make);
    filled.map(drop).context_at("could not fill it", &file.path)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::job::{Access, Amount, Devices, Direction, Order, Workload};
    use crate::load::layout::resolve;

    fn writer(files: &[&str]) -> Job {
        Job {
            name: "w".into(),
            access: Access { direction: Direction::Write, order: Order::Sequential },
            files: files.iter().map(PathBuf::from).collect(),
            ..Job::default()
        }
    }

    #[test]
    fn more_than_is_free_is_refused_before_anything_is_made() {
        let directory = tempfile::tempdir().unwrap();
        let job = Job { size: Some(Amount::Bytes(1 << 60)), ..writer(&["a"]) };
        let workload = Workload { jobs: vec![job.clone()], devices: Devices::Refuse };
        let plans = resolve(&workload, directory.path(), 1).unwrap();
        let refused = prepare(&plans, Verify::Off).unwrap_err().to_string();
        assert!(refused.contains("MiB are free"), "{refused}");
        assert!(!directory.path().join("a").exists());
        // A length alone takes nothing.
        let sparse = Job { fallocate: Fallocate::None, ..job };
        let workload = Workload { jobs: vec![sparse], devices: Devices::Refuse };
        prepare(&resolve(&workload, directory.path(), 1).unwrap(), Verify::Off).unwrap();
    }

    #[test]
    fn files_to_be_read_are_filled_and_those_to_be_written_get_space() {
        let directory = tempfile::tempdir().unwrap();
        let size = Some(Amount::Bytes(1 << 20));
        let mut reader = Job { size, ..writer(&["r"]) };
        reader.access.direction = Direction::Read;
        let writes = Job { size, ..writer(&["sub/w"]) };
        let late = Job { size, create: Create::OnOpen, ..writer(&["late"]) };
        let workload = Workload { jobs: vec![reader, writes, late], devices: Devices::Refuse };
        let plans = resolve(&workload, directory.path(), 1).unwrap();
        prepare(&plans, Verify::Off).unwrap();
        let data = fs::read(directory.path().join("r")).unwrap();
        assert_eq!(data.len(), 1 << 20);
        let content = plans[0].files[0].content;
        assert_eq!(content.before().check(0, &data), Ok(()));
        assert!(
            content.check(0, &data[..4096]).is_err(),
            "what is there beforehand is not what is written"
        );
        assert_eq!(fs::metadata(directory.path().join("sub/w")).unwrap().len(), 1 << 20);
        assert!(!directory.path().join("late").exists());
    }
}
