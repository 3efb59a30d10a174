//! Direct reads at the end of files on an XFS whose free space is in pieces. XFS allocates more
//! than a buffered write needs, and late. A part of that can stay unallocated beyond the end of the
//! file, and the kernel fails a direct read that reaches it with `EIO`.

mod support;

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::Path;

use forebay::options::Backend;
use forebay::{Engine, Options};
use forebay_block::random::Random;
use rustix::fs::FallocateFlags;
use support::mount::{FileSystem, Mount};
use support::{MIB, how, pattern};

const FILES: u64 = 250;
const APPENDS: u64 = 40;

/// Leaves free space in single blocks, and a little in one piece for metadata.
fn fragment(directory: &Path) {
    let file = std::fs::File::create(directory.join("taken")).unwrap();
    let allocate =
        |flags, offset, length| rustix::fs::fallocate(file.as_fd(), flags, offset, length);
    let free = || {
        let found = rustix::fs::statvfs(directory).unwrap();
        found.f_bavail * found.f_frsize
    };
    let length = free() - 30 * MIB;
    allocate(FallocateFlags::empty(), 0, length).unwrap();
    for block in (0..120 * MIB).step_by(8192) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        allocate(flags, block, 4096).unwrap();
    }
    // Nothing in one piece is left but what the single blocks add up to.
    let rest = free().saturating_sub(50 * MIB);
    if rest > 0 {
        allocate(FallocateFlags::empty(), length, rest).unwrap();
    }
    file.sync_all().unwrap();
}

#[test]
fn contract_13_reads_across_the_end_do_not_fail_where_free_space_is_in_pieces() {
    let test = "contract_13_reads_across_the_end";
    let Some(mount) = Mount::new(test, FileSystem::XfsOfFour, 400 * MIB) else { return };
    fragment(&mount.path());
    for backend in [Backend::Auto, Backend::Threads] {
        let engine = Engine::start(Options { backend, ..Options::default() }).unwrap();
        let mut random = Random::new(7);
        for number in 0..FILES {
            let path = mount.path().join(number.to_string());
            // Another program appends, through the page cache of the kernel.
            let mut other = std::fs::File::create(&path).unwrap();
            let file = engine.open_direct(&path, &how::read()).unwrap();
            let mut content = Vec::new();
            for _ in 0..APPENDS {
                let more = pattern(content.len() as u64, 1 + random.below(20_000) as usize);
                other.write_all(&more).unwrap();
                content.extend(more);
                let end = content.len() as u64;
                let from = end.saturating_sub(random.below(9_000));
                let length = [4096, 16_384, 65_536][random.below(3) as usize];
                let (read, bytes) = file.read_at(vec![0; length], from).wait();
                let expected = &content[from as usize..];
                let expected = &expected[..expected.len().min(length)];
                assert_eq!(read.unwrap(), expected.len(), "{path:?} at {from} of {end}");
                assert_eq!(&bytes[..expected.len()], expected, "{path:?} at {from}");
            }
            file.close().wait().unwrap();
            std::fs::remove_file(&path).unwrap();
        }
    }
}
