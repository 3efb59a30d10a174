//! A plan for each job before the clock starts: its files, and a range in each. Nothing is made or
//! changed here.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::content::Content;
use super::error::{CellError, Context};
use super::guard;
use super::sequence::{Range, Sequence};
use crate::job::{Amount, Devices, Direction, FileSize, Job, Workload, YesNo};
use forebay_block::random::{Random, fold};

/// A job with everything known that its thread needs.
#[derive(Debug)]
pub(crate) struct JobPlan {
    pub(crate) job: Job,
    pub(crate) files: Vec<FilePlan>,
    pub(crate) pass_bytes: u64,
    pub(crate) seed: u64,
    pub(crate) filling: Filling,
}

/// How much of a block is made before it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Filling {
    /// All of it, for it will be read back and compared.
    Whole,
    /// A word of each sector, as other generators do it: the price of making data is not that of
    /// writing it.
    Marked,
}

/// One file of a job.
#[derive(Clone, Debug)]
pub(crate) struct FilePlan {
    pub(crate) path: PathBuf,
    pub(crate) content: Content,
    pub(crate) range: Range,
    /// The length the file has when the job is done.
    pub(crate) length: u64,
    pub(crate) kind: FileKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileKind {
    Regular,
    BlockDevice,
}

impl JobPlan {
    pub(crate) fn sequence(&self) -> Sequence {
        let ranges: Vec<_> = self.files.iter().map(|file| file.range).collect();
        Sequence::new(&self.job, &ranges, self.pass_bytes, self.seed)
    }

    pub(crate) fn writes(&self) -> bool {
        self.job.access.direction.writes()
    }

    /// Returns its first block device.
    pub(crate) fn device(&self) -> Option<&FilePlan> {
        self.files.iter().find(|file| file.kind == FileKind::BlockDevice)
    }
}

/// Works every job out; nothing is made or changed.
pub(crate) fn resolve(
    workload: &Workload,
    directory: &Path,
    seed: u64,
) -> Result<Vec<JobPlan>, CellError> {
    if workload.jobs.is_empty() {
        return Err(CellError::invalid("there is no job to run"));
    }
    refuse_unwritable(workload, directory)?;
    let jobs = workload.jobs.iter().enumerate();
    let plans: Result<Vec<_>, _> =
        jobs.map(|(index, job)| resolve_job(job, index, directory, seed)).collect();
    let plans = plans?;
    if workload.devices == Devices::ReadOnly {
        plans.iter().try_for_each(refuse_to_write)?;
    }
    Ok(plans)
}

/// Refuses to make or fill files that are only read: they must exist and be long enough.
fn refuse_to_write(plan: &JobPlan) -> Result<(), CellError> {
    let name = &plan.job.name;
    if plan.writes() || plan.job.overwrite == YesNo::Yes {
        return Err(CellError::invalid(format!(
            "job {name}: it writes, and its files are only to be read"
        )));
    }
    for file in &plan.files {
        let there = look(&file.path)?.map_or(0, |(_, length)| length);
        if there < file.length {
            let (path, length) = (file.path.display(), file.length);
            return Err(CellError::invalid(format!(
                "job {name}: {path} has {there} bytes and is only to be read, {length} are asked for"
            )));
        }
    }
    Ok(())
}

/// Refuses directories that are not there or closed, and devices that are not ours to write, before
/// anything is made.
pub(crate) fn refuse_unwritable(workload: &Workload, directory: &Path) -> Result<(), CellError> {
    guard::check_directory(directory)?;
    for job in &workload.jobs {
        if let Some(named) = &job.directory {
            guard::check_directory(&directory.join(named))?;
        }
        for path in job.files.iter().map(|name| directory.join(name)) {
            guard::check_can_be_made(&path)?;
            if !job.access.direction.writes() || !guard::is_block_device(&path) {
                continue;
            }
            if workload.devices != Devices::Write {
                return Err(CellError::invalid(format!(
                    "{}: a block device, whose data would be lost; add --allow-write-device to \
                     confirm",
                    path.display()
                )));
            }
            guard::refuse_mounted(&path)?;
        }
    }
    Ok(())
}

/// Refuses a job that does nothing, or nothing on one of its files.
fn refuse_without_work(job: &Job, files: &[FilePlan], pass_bytes: u64) -> Result<(), CellError> {
    // Every range must hold one.
    let block = least_block(job, u32::max);
    let short = files.iter().find(|file| file.range.length < block);
    let what = if let Some(FilePlan { path, range: Range { start, length }, .. }) = short {
        let (path, count) = (path.display(), files.len());
        let all: u64 = files.iter().map(|file| file.range.length).sum();
        format!(
            "{path} holds no block of {block} bytes: its range is {length} bytes from {start}, of \
             {all} bytes in {count} files"
        )
    } else if pass_bytes < block {
        format!("{pass_bytes} bytes to do are less than a block of {block} bytes")
    } else {
        return Ok(());
    };
    let remedy = "use a larger size, fewer files or smaller blocks";
    Err(CellError::invalid(format!("job {}: {what}; {remedy}", job.name)))
}

/// Returns the least block of reads or of writes; `of_both` says which if the job does both.
fn least_block(job: &Job, of_both: fn(u32, u32) -> u32) -> u64 {
    let (read, write) = (job.blocks.read.min(), job.blocks.write.min());
    u64::from(match job.access.direction {
        Direction::Read | Direction::Mixed { read_percent: 100 } => read,
        Direction::Write | Direction::Mixed { read_percent: 0 } => write,
        Direction::Mixed { .. } => of_both(read, write),
    })
}

fn resolve_job(
    job: &Job,
    index: usize,
    directory: &Path,
    cell_seed: u64,
) -> Result<JobPlan, CellError> {
    if job.files.is_empty() {
        return Err(CellError::invalid(format!("job {}: it names no file", job.name)));
    }
    let seed = fold(fold(job.seed.unwrap_or(cell_seed), index as u64), u64::from(job.number));
    let mut lengths = Random::new(fold(seed, 2));
    let files = job.files.iter().enumerate().map(|(number, name)| {
        let path = directory.join(name);
        resolve_file(job, number as u64, path, Content::new(cell_seed, name), lengths.draw())
    });
    let files: Vec<_> = files.collect::<Result<_, _>>()?;
    let ranges_bytes: u64 = files.iter().map(|file| file.range.length).sum();
    let whole = match (job.file_size, job.size) {
        (Some(_), Some(Amount::Bytes(bytes))) => bytes.min(ranges_bytes),
        _ => ranges_bytes,
    };
    let pass_bytes = job.io_bytes.map_or(whole, |amount| amount.of(whole));
    refuse_without_work(job, &files, pass_bytes)?;
    Ok(JobPlan { job: job.clone(), files, pass_bytes, seed, filling: Filling::Whole })
}

/// Works one file out. `drawn` decides its length if that is between two.
fn resolve_file(
    job: &Job,
    number: u64,
    path: PathBuf,
    content: Content,
    drawn: u64,
) -> Result<FilePlan, CellError> {
    let missing =
        |what: &str| CellError::invalid(format!("job {}: {}: {what}", job.name, path.display()));
    let (kind, there) = look(&path)?.unzip();
    let block = least_block(job, u32::min);
    let start = match job.offset {
        Amount::Bytes(bytes) => bytes,
        Amount::Percent(_) => {
            let there =
                there.ok_or_else(|| missing("offset in percent needs a file that is there"))?;
            job.offset.of(there) / block * block
        }
    };
    let start = start.saturating_add(job.offset_increment.saturating_mul(u64::from(job.number)));
    let length = match (job.file_size, job.size) {
        (Some(FileSize::Fixed(bytes)), _) => bytes.saturating_sub(start),
        (Some(FileSize::Range { min, max }), _) => {
            let length = min + Random::new(drawn).below(max - min + 1);
            (length / block * block).max(min).saturating_sub(start)
        }
        (None, Some(Amount::Bytes(bytes))) => {
            let count = job.files.len() as u64;
            bytes / count + if number == 0 { bytes % count } else { 0 }
        }
        (None, Some(percent)) => {
            let there = there
                .ok_or_else(|| missing("size in percent needs a file or device that is there"))?;
            percent.of(there).saturating_sub(start)
        }
        (None, None) => {
            let what = "it is not there or empty, and the job has no size= or filesize=";
            let there = there.filter(|&length| length > 0).ok_or_else(|| missing(what))?;
            there.saturating_sub(start)
        }
    };
    let kind = kind.unwrap_or(FileKind::Regular);
    let length = match (kind, there) {
        (FileKind::BlockDevice, Some(device)) => length.min(device.saturating_sub(start)),
        _ => length,
    };
    let end = start.checked_add(length).filter(|&end| end <= 1 << 62);
    let end = end.ok_or_else(|| missing("offset and size together pass what a file can hold"))?;
    assert!(start <= end, "a range from {start} to {end}");
    Ok(FilePlan { content, path, range: Range { start, length }, length: end, kind })
}

impl Amount {
    fn of(self, whole: u64) -> u64 {
        match self {
            Amount::Bytes(bytes) => bytes,
            Amount::Percent(percent) => (u128::from(whole) * u128::from(percent) / 100) as u64,
        }
    }
}

/// Returns the kind and the length of a path, or `None` if there is nothing.
fn look(path: &Path) -> Result<Option<(FileKind, u64)>, CellError> {
    let metadata = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found.context_at("could not look at it", path)?,
    };
    if metadata.is_file() {
        Ok(Some((FileKind::Regular, metadata.len())))
    } else if metadata.file_type().is_block_device() {
        Ok(Some((FileKind::BlockDevice, guard::device_length(path)?)))
    } else {
        Err(CellError::invalid(format!("{}: neither a file nor a block device", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Verify;
    use crate::job::{Access, BlockSize, Blocks, Order};
    use crate::load::making::prepare;

    fn writer(files: &[&str]) -> Job {
        Job {
            name: "w".into(),
            access: Access { direction: Direction::Write, order: Order::Sequential },
            files: files.iter().map(PathBuf::from).collect(),
            ..Job::default()
        }
    }

    fn resolve_one(job: Job, directory: &Path) -> Result<JobPlan, CellError> {
        let workload = Workload { jobs: vec![job], devices: Devices::Refuse };
        Ok(resolve(&workload, directory, 1)?.remove(0))
    }

    #[test]
    fn a_size_is_shared_by_the_files_of_a_job() {
        let directory = tempfile::tempdir().unwrap();
        let job = Job { size: Some(Amount::Bytes((1 << 20) + 1)), ..writer(&["a", "b"]) };
        let plan = resolve_one(job, directory.path()).unwrap();
        assert_eq!(plan.files[0].length, (1 << 19) + 1);
        assert_eq!(plan.files[1].length, 1 << 19);
        assert_eq!(plan.pass_bytes, (1 << 20) + 1);
    }

    #[test]
    fn clones_work_side_by_side_in_one_file() {
        let directory = tempfile::tempdir().unwrap();
        let mut job =
            Job { size: Some(Amount::Bytes(8192)), offset_increment: 8192, ..writer(&["a"]) };
        job.number = 3;
        let plan = resolve_one(job, directory.path()).unwrap();
        assert_eq!(plan.files[0].range, Range { start: 24_576, length: 8192 });
        assert_eq!(plan.files[0].length, 32_768);
    }

    #[test]
    fn what_cannot_be_resolved_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let no_size = resolve_one(writer(&["a"]), directory.path()).unwrap_err();
        assert!(no_size.to_string().contains("no size="), "{no_size}");
        let mut small = Job { size: Some(Amount::Bytes(100)), ..writer(&["a"]) };
        small.blocks = Blocks { read: BlockSize::Fixed(4096), write: BlockSize::Fixed(4096) };
        let small = resolve_one(small, directory.path()).unwrap_err();
        assert!(small.to_string().contains("holds no block"), "{small}");
        let device = resolve_one(writer(&["/dev/null"]), directory.path()).unwrap_err();
        assert!(device.to_string().contains("neither a file nor"), "{device}");
    }

    #[test]
    fn what_is_only_read_is_there_and_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("r"), [7; 8192]).unwrap();
        let read_only = |size, direction| {
            let mut job = Job { size: Some(Amount::Bytes(size)), ..writer(&["r"]) };
            job.access.direction = direction;
            let workload = Workload { jobs: vec![job], devices: Devices::ReadOnly };
            resolve(&workload, directory.path(), 1).map(|plans| prepare(&plans, Verify::Off))
        };
        read_only(8192, Direction::Read).unwrap().unwrap();
        let longer = read_only(8193, Direction::Read).unwrap_err().to_string();
        assert!(longer.contains("only to be read"), "{longer}");
        assert!(read_only(4096, Direction::Write).is_err());
        assert_eq!(fs::read(directory.path().join("r")).unwrap(), [7; 8192]);
        fs::remove_file(directory.path().join("r")).unwrap();
        assert!(read_only(4096, Direction::Read).is_err() && !directory.path().join("r").exists());
    }
}
