//! Ageing: files take all space, then holes are punched into them until one tenth is free again.
//! The free space then lies in pieces of 16 to 256 KiB all over the device, and an allocator has to
//! search.
//!
//! Nothing is written: space that is reserved and punched is as much in pieces as space that held
//! data.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate, statvfs, syncfs};
use rustix::io::Errno;

use crate::scratch::Stop;
use forebay_block::random::Random;

use super::spec::LEFT_PERCENT;

/// Of a file that takes space away.
const FILE_BYTES: u64 = 64 << 20;

/// The file system counts as full if no file of this size fits.
const LEAST_FILE_BYTES: u64 = 256 << 10;

/// Number of directories: XFS puts them into allocation groups in turn.
const DIRECTORIES: u64 = 32;

/// Kept until it is full, and given back then: a hole cannot be punched, nor a file made, where not
/// one block is free.
const ROOM_BYTES: u64 = 4 << 20;

/// The directory of all of it.
const DIRECTORY: &str = "aged";

/// Holes are of one to sixteen of these.
const HOLE_STEP_BYTES: u64 = 16 << 10;
const HOLE_STEPS: u64 = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Aged {
    pub(super) files: u64,
    pub(super) holes: u64,
    pub(super) full_percent: u64,
}

impl fmt::Display for Aged {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, holes, full_percent } = self;
        write!(
            formatter,
            "{files} files, {holes} holes of 16 to 256 KiB punched into them, {full_percent} % full"
        )
    }
}

/// Ages what is mounted here, and syncs it. The same seed always: each cell finds the same.
pub(super) fn age(mount_point: &Path, stop: &Stop) -> io::Result<Aged> {
    let directory = mount_point.join(DIRECTORY);
    for number in 0..DIRECTORIES {
        fs::create_dir_all(directory.join(number.to_string()))?;
    }
    let room = directory.join("room");
    fallocate(File::create(&room)?, FallocateFlags::empty(), 0, ROOM_BYTES)?;
    let files = fill(&directory, stop)?;
    fs::remove_file(room)?;
    let mut random = Random::stream(1, 5);
    let mut holes = 0;
    for number in 0..files {
        refuse_stopped(stop)?;
        holes += punch(&File::options().write(true).open(path(&directory, number))?, &mut random)?;
    }
    syncfs(File::open(mount_point)?)?;
    let space = statvfs(mount_point)?;
    let full_percent = 100 - space.f_bfree * 100 / space.f_blocks.max(1);
    Ok(Aged { files, holes, full_percent })
}

/// Files until there is no more space. How many.
fn fill(directory: &Path, stop: &Stop) -> io::Result<u64> {
    let (mut files, mut bytes) = (0, FILE_BYTES);
    while bytes >= LEAST_FILE_BYTES {
        refuse_stopped(stop)?;
        let file = match File::create(path(directory, files)) {
            // No room for its inode even.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
            file => file?,
        };
        files += 1;
        match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => {}
            // A failed allocation keeps its space; a smaller one may still fit.
            Err(Errno::NOSPC) => bytes /= 2,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(files)
}

/// Punches one hole per stretch of equal length, so that the share is right; its place and length
/// are random.
fn punch(file: &File, random: &mut Random) -> io::Result<u64> {
    let length = file.metadata()?.len();
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let (mut offset, mut holes) = (0, 0);
    loop {
        let hole = (random.draw() % HOLE_STEPS + 1) * HOLE_STEP_BYTES;
        let kept = hole * (100 - LEFT_PERCENT) / LEFT_PERCENT / HOLE_STEP_BYTES * HOLE_STEP_BYTES;
        if offset + kept + hole > length {
            return Ok(holes);
        }
        fallocate(file, flags, offset + kept, hole)?;
        offset += kept + hole;
        holes += 1;
    }
}

fn path(directory: &Path, number: u64) -> std::path::PathBuf {
    directory.join((number % DIRECTORIES).to_string()).join(number.to_string())
}

fn refuse_stopped(stop: &Stop) -> io::Result<()> {
    if stop.is_set() { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
}
