//! Making files before the clock starts: their lengths, contents and space.
//!
//! A file that is there and long enough stays as it is. A file to be read is filled, so that a read
//! is a read of data and not of a hole. Nothing here is part of any figure, and every arm finds the
//! same.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::error::{CellError, Context};
use super::guard;
use super::kernel::drop_cached;
use super::layout::{FileKind, FilePlan, JobPlan};
use crate::cell::Verify;
use crate::job::{Create, Fallocate, Job, YesNo};

/// Makes what has to be there, and drops what is cached of it. A device that is to be verified is
/// written over first: an earlier cell may have left what this one should write.
pub(crate) fn prepare(plans: &[JobPlan], verify: Verify) -> Result<(), CellError> {
    refuse_without_space(plans)?;
    for plan in plans {
        for file in &plan.files {
            if file.kind == FileKind::BlockDevice && plan.writes() && verify == Verify::After {
                let open = OpenOptions::new().write(true).open(&file.path);
                let device = open.context_at("could not open it", &file.path)?;
                fill(&device, file, file.range.start)?;
            }
            prepare_file(&plan.job, file)?;
        }
    }
    Ok(())
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

fn prepare_file(job: &Job, file: &FilePlan) -> Result<(), CellError> {
    let path = &file.path;
    if file.kind == FileKind::BlockDevice {
        return invalidate(job, path);
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).context_at("could not make its directory", parent)?;
    }
    let filled = job.is_filled();
    if job.create == Create::OnOpen && !filled {
        return Ok(());
    }
    let there = fs::metadata(path).map_or(0, |metadata| metadata.len());
    if there < file.length {
        let open = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let handle = open.context_at("could not make it", path)?;
        if filled {
            fill(&handle, file, there)?;
        } else {
            give_space(&handle, job.fallocate, file)?;
        }
    }
    invalidate(job, path)
}

/// Fills a file in megabytes, then syncs it, so that the layout owes nothing to the clock. The data
/// is other than will be written: a write that was lost would else go unnoticed.
fn fill(handle: &File, file: &FilePlan, from: u64) -> Result<(), CellError> {
    const STEP: u64 = 1 << 20;
    assert!(from <= file.length, "{} bytes of {} are there", from, file.length);
    let content = file.content.before();
    const FILL: &str = "could not fill it";
    let mut buffer = vec![0; STEP as usize];
    let mut offset = from;
    while offset < file.length {
        let part = &mut buffer[..STEP.min(file.length - offset) as usize];
        content.fill(offset, part);
        handle.write_all_at(part, offset).context_at(FILL, &file.path)?;
        offset += part.len() as u64;
    }
    handle.sync_all().context_at(FILL, &file.path)
}

fn give_space(handle: &File, fallocate_as: Fallocate, file: &FilePlan) -> Result<(), CellError> {
    const GIVE: &str = "could not give it space";
    let flags = match fallocate_as {
        Fallocate::None => return Ok(()),
        Fallocate::Truncate => return handle.set_len(file.length).context_at(GIVE, &file.path),
        Fallocate::Native => FallocateFlags::empty(),
        Fallocate::KeepSize => FallocateFlags::KEEP_SIZE,
    };
    match fallocate(handle, flags, 0, file.length) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        failed => failed.context_at(GIVE, &file.path),
    }
}

fn invalidate(job: &Job, path: &Path) -> Result<(), CellError> {
    if job.invalidate == YesNo::No { Ok(()) } else { drop_cached(path) }
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
