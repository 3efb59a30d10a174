//! The largest size of a file: of its file system, and of this process (`RLIMIT_FSIZE`).

use std::os::fd::AsFd;

use rustix::fs::{SeekFrom, seek};
use rustix::process::{Resource, getrlimit};

/// Returns whether a file can have `end` bytes. Moves the offset of the descriptor.
pub fn can_hold(file: impl AsFd, end: u64) -> bool {
    limit().is_none_or(|limit| end <= limit) && seek(file, SeekFrom::Start(end)).is_ok()
}

/// Returns the limit of this process.
pub(crate) fn limit() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}

/// Returns the largest size that a file can have. Moves the offset of the descriptor.
pub fn largest(file: impl AsFd) -> u64 {
    let (mut holds, mut over) = (0, 1 << 63);
    while over - holds > 1 {
        let between = holds + (over - holds) / 2;
        if can_hold(&file, between) {
            holds = between;
        } else {
            over = between;
        }
    }
    holds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_size_can_be_set_and_no_larger_one() {
        let file = tempfile::tempfile_in(".").unwrap();
        let largest = largest(&file);
        assert!(can_hold(&file, largest) && !can_hold(&file, largest + 1));
        file.set_len(largest).unwrap();
        let errno = file.set_len(largest + 1).unwrap_err().raw_os_error();
        // Without a number it is beyond all offsets.
        assert!(matches!(errno, Some(libc::EFBIG) | None), "{errno:?}");
    }
}
