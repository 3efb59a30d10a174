//! Preparation before the clock starts: files with lengths, contents and space, and a range for
//! each job.
//!
//! Resolving comes first and touches nothing; making the files comes second. A file that is there
//! and long enough stays as it is. A file to be read is filled, so that a read is a read of data
//! and not of a hole. Nothing here is part of any figure, and every arm finds the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};
use rustix::io::Errno;

use super::content::Content;
use super::guard;
use super::sequence::{Range, Sequence};
use super::{CellError, Context};
use crate::cell::Verify;
use crate::job::{Amount, Create, Devices, Direction, Fallocate, FileSize, Job, Workload, YesNo};
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
    let ground = Ground { directory, seed };
    let jobs = workload.jobs.iter().enumerate();
    let plans: Vec<JobPlan> =
        jobs.map(|(index, job)| ground.resolve_job(job, index)).collect::<Result<_, _>>()?;
    if workload.devices == Devices::ReadOnly {
        plans.iter().try_for_each(refuse_to_write)?;
    }
    Ok(plans)
}

/// Files that are only read must exist and be long enough: else they would be made or filled.
fn refuse_to_write(plan: &JobPlan) -> Result<(), CellError> {
    let name = &plan.job.name;
    if plan.writes() || plan.job.overwrite == YesNo::Yes {
        return Err(CellError::invalid(format!(
            "job {name}: it writes, and its files are only to be read"
        )));
    }
    for file in &plan.files {
        let there = Present::look(&file.path)?.map_or(0, |present| present.length);
        if there < file.length {
            let (path, length) = (file.path.display(), file.length);
            return Err(CellError::invalid(format!(
                "job {name}: {path} has {there} bytes and is only to be read, {length} are asked for"
            )));
        }
    }
    Ok(())
}

/// Before anything is made: directories that are not there or closed, devices that are not ours to
/// write.
pub(crate) fn refuse_unwritable(workload: &Workload, directory: &Path) -> Result<(), CellError> {
    guard::check_directory(directory)?;
    for job in &workload.jobs {
        if let Some(named) = &job.directory {
            guard::check_directory(&directory.join(named))?;
        }
        for path in job.files.iter().map(|name| directory.join(name)) {
            guard::check_can_be_made(&path)?;
            if !job.access.direction.writes() {
                continue;
            }
            match (guard::is_block_device(&path), workload.devices) {
                (false, _) => {}
                (true, Devices::Refuse | Devices::ReadOnly) => {
                    return Err(guard::refuse_device(&path));
                }
                (true, Devices::Write) => guard::refuse_mounted(&path)?,
            }
        }
    }
    Ok(())
}

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

/// A file system does not give back what it had found when it finds no more: the disk would stay
/// full.
fn refuse_without_space(plans: &[JobPlan]) -> Result<(), CellError> {
    let mut needed: BTreeMap<u64, (u64, &Path)> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (plan, file) in
        plans.iter().flat_map(|plan| plan.files.iter().map(move |file| (plan, file)))
    {
        let takes_space = is_filled(&plan.job)
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

/// Whether a job's files hold data before the clock starts.
pub(crate) fn is_filled(job: &Job) -> bool {
    job.access.direction.reads() || job.overwrite == YesNo::Yes
}

/// Refuses a job that does nothing, or nothing on one of its files.
fn refuse_without_work(job: &Job, files: &[FilePlan], pass_bytes: u64) -> Result<(), CellError> {
    let block = largest_least_block(job);
    let refused = |what: String| {
        let remedy = "use a larger size, fewer files or smaller blocks";
        Err(CellError::invalid(format!("job {}: {what}; {remedy}", job.name)))
    };
    if let Some(FilePlan { path, range, .. }) = files.iter().find(|file| file.range.length < block)
    {
        let Range { start, length } = range;
        let (path, count) = (path.display(), files.len());
        let all: u64 = files.iter().map(|file| file.range.length).sum();
        return refused(format!(
            "{path} holds no block of {block} bytes: its range is {length} bytes from {start}, of \
             {all} bytes in {count} files"
        ));
    }
    if pass_bytes < block {
        return refused(format!("{pass_bytes} bytes to do are less than a block of {block} bytes"));
    }
    Ok(())
}

/// Returns the least block of reads or of writes, the larger one if the job does both: what every
/// range must hold.
fn largest_least_block(job: &Job) -> u64 {
    let (read, write) = (job.blocks.read.min(), job.blocks.write.min());
    u64::from(match job.access.direction {
        Direction::Read | Direction::Mixed { read_percent: 100 } => read,
        Direction::Write | Direction::Mixed { read_percent: 0 } => write,
        Direction::Mixed { .. } => read.max(write),
    })
}

struct Ground<'a> {
    directory: &'a Path,
    seed: u64,
}

impl Ground<'_> {
    fn resolve_job(&self, job: &Job, index: usize) -> Result<JobPlan, CellError> {
        if job.files.is_empty() {
            return Err(CellError::invalid(format!("job {}: it names no file", job.name)));
        }
        let seed = fold(fold(job.seed.unwrap_or(self.seed), index as u64), u64::from(job.number));
        let mut lengths = Random::new(fold(seed, 2));
        let files: Result<Vec<_>, _> = job
            .files
            .iter()
            .enumerate()
            .map(|(number, name)| self.resolve_file(job, number as u64, name, lengths.draw()))
            .collect();
        let files = files?;
        let ranges_bytes: u64 = files.iter().map(|file| file.range.length).sum();
        let whole = match (job.file_size, job.size) {
            (Some(_), Some(Amount::Bytes(bytes))) => bytes.min(ranges_bytes),
            _ => ranges_bytes,
        };
        let pass_bytes = job.io_bytes.map_or(whole, |amount| amount.of(whole));
        refuse_without_work(job, &files, pass_bytes)?;
        let filling = Filling::Whole;
        Ok(JobPlan { job: job.clone(), files, pass_bytes, seed, filling })
    }

    fn resolve_file(
        &self,
        job: &Job,
        number: u64,
        name: &Path,
        drawn: u64,
    ) -> Result<FilePlan, CellError> {
        let path = self.directory.join(name);
        let present = Present::look(&path)?;
        let missing = |what: &str| {
            CellError::invalid(format!("job {}: {}: {what}", job.name, path.display()))
        };
        let there = present.map(|present| present.length);
        let start = match job.offset {
            Amount::Bytes(bytes) => bytes,
            Amount::Percent(_) => {
                let there =
                    there.ok_or_else(|| missing("offset in percent needs a file that is there"))?;
                let block = least_block(job);
                job.offset.of(there) / block * block
            }
        };
        let start =
            start.saturating_add(job.offset_increment.saturating_mul(u64::from(job.number)));
        let wanted = match (job.file_size, job.size) {
            (Some(FileSize::Fixed(bytes)), _) => bytes.saturating_sub(start),
            (Some(FileSize::Range { min, max }), _) => {
                let block = least_block(job);
                let length = min + Random::new(drawn).below(max - min + 1);
                (length / block * block).max(min).saturating_sub(start)
            }
            (None, Some(Amount::Bytes(bytes))) => {
                let count = job.files.len() as u64;
                bytes / count + if number == 0 { bytes % count } else { 0 }
            }
            (None, Some(percent @ Amount::Percent(_))) => percent
                .of(there.ok_or_else(|| {
                    missing("size in percent needs a file or device that is there")
                })?)
                .saturating_sub(start),
            (None, None) => there
                .filter(|&length| length > 0)
                .ok_or_else(|| {
                    missing("it is not there or empty, and the job has no size= or filesize=")
                })?
                .saturating_sub(start),
        };
        let kind = present.map_or(FileKind::Regular, |present| present.kind);
        let length = match (kind, there) {
            (FileKind::BlockDevice, Some(device)) => wanted.min(device.saturating_sub(start)),
            _ => wanted,
        };
        let end = start.checked_add(length).filter(|&end| end <= 1 << 62);
        let end =
            end.ok_or_else(|| missing("offset and size together pass what a file can hold"))?;
        Ok(FilePlan {
            content: Content::new(self.seed, name),
            path,
            range: Range { start, length },
            length: end,
            kind,
        })
    }
}

impl Amount {
    fn of(self, whole: u64) -> u64 {
        match self {
            Amount::Bytes(bytes) => bytes,
            Amount::Percent(percent) => (u128::from(whole) * u128::from(percent) / 100) as u64,
        }
    }
}

fn least_block(job: &Job) -> u64 {
    let (read, write) = (job.blocks.read.min(), job.blocks.write.min());
    u64::from(match job.access.direction {
        Direction::Read => read,
        Direction::Write => write,
        Direction::Mixed { .. } => read.min(write),
    })
}

#[derive(Clone, Copy)]
struct Present {
    length: u64,
    kind: FileKind,
}

impl Present {
    fn look(path: &Path) -> Result<Option<Self>, CellError> {
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(CellError::failed_at("could not look at it", path, &error)),
        };
        let kind = metadata.file_type();
        if kind.is_file() {
            return Ok(Some(Self { length: metadata.len(), kind: FileKind::Regular }));
        }
        if kind.is_block_device() {
            let length = guard::device_length(path)?;
            return Ok(Some(Self { length, kind: FileKind::BlockDevice }));
        }
        Err(CellError::invalid(format!("{}: neither a file nor a block device", path.display())))
    }
}

fn prepare_file(job: &Job, file: &FilePlan) -> Result<(), CellError> {
    let path = &file.path;
    if file.kind == FileKind::BlockDevice {
        return drop_cached(job, path);
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).context_at("could not make its directory", parent)?;
    }
    let filled = is_filled(job);
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
    drop_cached(job, path)
}

/// In megabytes, then synced, so that the layout owes nothing to the clock. With other data than
/// will be written: a write that was lost would else go unnoticed.
fn fill(handle: &File, file: &FilePlan, from: u64) -> Result<(), CellError> {
    const STEP: u64 = 1 << 20;
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

fn drop_cached(job: &Job, path: &Path) -> Result<(), CellError> {
    if job.invalidate == YesNo::No {
        return Ok(());
    }
    let dropped = File::open(path).and_then(|file| Ok(fadvise(file, 0, None, Advice::DontNeed)?));
    dropped.context_at("could not drop what is cached of it", path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Access, BlockSize, Blocks, Order};

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
