//! The most memory a cell used, load generator apart: its process, and the page cache of its files.
//!
//! A thread looks every 20 ms, or less often where looking is dear: `cachestat` walks every cached
//! page, so the pause is at least twenty times what the last look took. Peaks between two looks are
//! missed. The files are found among the descriptors this process has open already: opening them
//! once more would break the write lease an engine holds on its files. The baseline is taken when
//! the load generator has set itself up and the arm has not.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use procfs::process::{Process, Status};

/// Peaks of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Peak {
    /// Of the process, above the baseline, and the page cache of the files, together.
    pub(crate) memory_bytes: u64,
    /// Dirty and being written, in the page cache and in the engine together; none where nothing
    /// could tell.
    pub(crate) dirty_bytes: Option<u64>,
}

/// Samples until `stop` is set. `engine_dirty` returns the dirty bytes of an engine.
pub(crate) fn sample(
    directory: &Path,
    files: &[&Path],
    baseline_bytes: u64,
    engine_dirty: &dyn Fn() -> u64,
    stop: &AtomicBool,
) -> Peak {
    const EVERY: Duration = Duration::from_millis(20);
    const SHARE: u32 = 20;
    let mut peak = Peak::default();
    loop {
        let began = Instant::now();
        let cached = cached_of(directory, files);
        let resident = resident_bytes().saturating_sub(baseline_bytes);
        peak.memory_bytes = peak.memory_bytes.max(resident + cached.pages_bytes);
        let dirty = cached.dirty_bytes.map(|bytes| bytes + engine_dirty());
        peak.dirty_bytes = peak.dirty_bytes.max(dirty);
        let pause = EVERY.max(began.elapsed() * SHARE);
        let until = Instant::now() + pause;
        while Instant::now() < until {
            if stop.load(Ordering::Acquire) {
                return peak;
            }
            std::thread::park_timeout(until - Instant::now());
        }
    }
}

/// Returns the memory of this process: its own, shared, and in huge pages, which the kernel counts
/// apart.
pub(crate) fn resident_bytes() -> u64 {
    let status = Process::myself().and_then(|process| process.status());
    let kilobytes =
        |status: Status| status.vmrss.unwrap_or_default() + status.hugetlbpages.unwrap_or_default();
    status.map_or(0, kilobytes) * 1024
}

fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

#[derive(Clone, Copy, Default)]
struct Cached {
    pages_bytes: u64,
    dirty_bytes: Option<u64>,
}

/// Sums over the files of the cell that are open now, each once however often it is open.
fn cached_of(directory: &Path, files: &[&Path]) -> Cached {
    let mut seen = BTreeSet::new();
    let mut sum = Cached::default();
    for entry in fs::read_dir("/proc/self/fd").into_iter().flatten().flatten() {
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        if !(target.starts_with(directory) || files.contains(&target.as_path())) {
            continue;
        }
        let number = entry.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok());
        let Some(number) = number.filter(|_| seen.insert(target)) else { continue };
        // SAFETY: the descriptor was open a moment ago. Should its owner have closed it since, the
        // call below fails or tells about another file once; nothing is read through it, written to
        // it or closed.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        if let Some(cached) = cachestat(descriptor) {
            sum.pages_bytes += cached.pages_bytes;
            sum.dirty_bytes = Some(sum.dirty_bytes.unwrap_or(0) + cached.dirty_bytes.unwrap_or(0));
        } else if let Some(bytes) = mincore(descriptor) {
            sum.pages_bytes += bytes;
        }
    }
    sum
}

/// As the kernel's own headers lay them out.
#[repr(C)]
struct CachestatRange {
    offset: u64,
    length: u64,
}

#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// The call's number, the same on every architecture.
const CACHESTAT: libc::c_long = 451;

/// Asks what the page cache has of a file, since Linux 6.5.
fn cachestat(file: BorrowedFd<'_>) -> Option<Cached> {
    let whole = CachestatRange { offset: 0, length: 0 };
    let mut stat = Cachestat::default();
    // SAFETY: both pointers are to structs of the layout this call takes; it writes to the second
    // only.
    let failed = unsafe {
        libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const whole, &raw mut stat, 0_u32)
    };
    debug_assert!(failed != 0 || stat.dirty <= stat.cached, "more is dirty than cached");
    (failed == 0).then(|| Cached {
        pages_bytes: stat.cached * page_bytes(),
        dirty_bytes: Some((stat.dirty + stat.writeback) * page_bytes()),
    })
}

/// Counts the cached pages of a file, for older kernels. It says nothing about dirty ones.
fn mincore(file: BorrowedFd<'_>) -> Option<u64> {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    let length = rustix::fs::fstat(file).ok()?.st_size as usize;
    if length == 0 {
        return Some(0);
    }
    // SAFETY: a new mapping at an address of the kernel's choice; it is never dereferenced.
    let start = unsafe {
        mmap(std::ptr::null_mut(), length, ProtFlags::empty(), MapFlags::SHARED, file, 0)
    }
    .ok()?;
    let mut present = vec![0_u8; length.div_ceil(page_bytes() as usize)];
    // SAFETY: the range is the mapping just made, and there is a byte for each of its pages.
    let failed = unsafe { libc::mincore(start, length, present.as_mut_ptr()) };
    // SAFETY: the same range, no longer used.
    let _ = unsafe { munmap(start, length) };
    (failed == 0)
        .then(|| present.iter().filter(|&&page| page & 1 != 0).count() as u64 * page_bytes())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn sees_the_cached_pages_of_an_open_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(&vec![1; 1 << 20]).unwrap();
        let cached = cached_of(directory.path(), &[]);
        assert!(cached.pages_bytes >= 1 << 20, "{} bytes", cached.pages_bytes);
        file.sync_all().unwrap();
        assert!(cached_of(directory.path(), &[]).dirty_bytes.is_none_or(|bytes| bytes == 0));
        let readable = fs::File::open(&path).unwrap();
        use std::os::fd::AsFd;
        assert!(mincore(readable.as_fd()).is_none_or(|bytes| bytes >= 1 << 20));
        drop(file);
    }

    #[test]
    fn a_process_has_memory() {
        assert!(resident_bytes() > 100_000);
    }
}
