//! The counter of group locks counts where tasks must meet at a lock: twelve threads allocate in a
//! file system of one group. A control for results that say that nobody waited.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use forebay_bpf::{Counter, Counting, Disk, FileSystem, Kind, Place, Ring};

const THREADS: usize = 12;

/// Blocks of a file, and bytes of a block.
const BLOCKS: u64 = 2048;
const BLOCK: u64 = 4096;

/// Longest time until the threads meet.
const PATIENCE: Duration = Duration::from_secs(30);

/// A mounted file system on a loop device. Unmounts it when dropped.
struct Mounted(tempfile::TempDir);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path().join("mounted")).status();
    }
}

/// Runs a command. Returns its error if it fails.
fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = || format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    if output.status.success() { Ok(()) } else { Err(said()) }
}

fn mounted() -> Result<Mounted, String> {
    let directory = tempfile::tempdir_in(".").map_err(|error| error.to_string())?;
    let (image, at) = (directory.path().join("image"), directory.path().join("mounted"));
    let make = || -> std::io::Result<()> {
        fs::create_dir(&at)?;
        File::create(&image)?.set_len(1 << 30)
    };
    make().map_err(|error| error.to_string())?;
    // A file system of one group has no second superblock, so mkfs refuses to make it otherwise.
    let mut mkfs = Command::new("mkfs.xfs");
    run(mkfs.args(["-q", "-f", "--unsupported", "-d", "agcount=1"]).arg(&image))?;
    run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&at))?;
    Ok(Mounted(directory))
}

/// Writes every other block of a file without space, past the page cache: each is an allocation of
/// its own.
fn write_holes(path: &Path) {
    let mut open = OpenOptions::new();
    open.write(true).create(true).truncate(true);
    let file = std::os::unix::fs::OpenOptionsExt::custom_flags(&mut open, libc::O_DIRECT)
        .open(path)
        .unwrap();
    let memory = vec![7; 2 * BLOCK as usize];
    let at = memory.as_ptr().align_offset(BLOCK as usize);
    for block in 0..BLOCKS {
        file.write_all_at(&memory[at..at + BLOCK as usize], 2 * block * BLOCK).unwrap();
    }
}

#[test]
fn threads_that_allocate_in_one_group_are_seen_to_wait() {
    let skip = |reason: &str| eprintln!("skipped threads_that_allocate_in_one_group: {reason}");
    if !rustix::process::geteuid().is_root() {
        return skip("only root can mount a file system and count");
    }
    let mounted = match mounted() {
        Ok(mounted) => mounted,
        Err(reason) => return skip(&reason),
    };
    let at = mounted.0.path().join("mounted");
    let device = fs::metadata(&at).unwrap().dev();
    let device = Disk { major: libc::major(device), minor: libc::minor(device) };
    let file_system = FileSystem { device, kind: Kind::Xfs };
    let counting = Counting::start(Place { path: &at, disk: None, file_system }, Ring::Unused);
    let counting = match counting {
        Ok((_, missing)) if missing.iter().any(|what| what.contains("allocation groups")) => {
            return skip(&missing.join("; "));
        }
        Ok((counting, _)) => counting,
        Err(reason) => return skip(&reason),
    };
    let end = Instant::now() + PATIENCE;
    loop {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let path = at.join(format!("file-{thread}"));
                scope.spawn(move || write_holes(&path));
            }
        });
        let counts = counting.read().unwrap();
        let waits: u64 = counts.group_waits().iter().sum();
        let [allocations, refusals] =
            [Counter::Allocations, Counter::GroupRefusals].map(|counter| counts.get(counter));
        println!("{allocations} allocations, {waits} waits, {refusals} refusals");
        assert!(allocations >= THREADS as u64 * BLOCKS, "each block is an allocation");
        if waits > 0 {
            return;
        }
        assert!(Instant::now() < end, "no task waited for the only group in {PATIENCE:?}");
    }
}
