//! The process to count for, and the workers of the kernel.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Returns the device and the number of the namespace of this process.
pub(crate) fn namespace() -> io::Result<(u64, u64)> {
    let data = fs::metadata("/proc/self/ns/pid")?;
    Ok((data.dev(), data.ino()))
}

/// Workers that end I/O outside of an interrupt: buffered writes, and direct writes with work left.
const WORKERS: &[&str] =
    &["xfs_end_io", "ext4_end_io_rsv_work", "iomap_dio_complete_work", "dio_aio_complete_work"];

/// Returns the addresses of the workers that end I/O; empty if the kernel hides addresses.
pub(crate) fn completion_workers() -> Vec<u64> {
    fs::read_to_string("/proc/kallsyms").map(|text| addresses(&text, WORKERS)).unwrap_or_default()
}

/// Returns the addresses of symbols in lines such as `ffffffff818f9c80 T xfs_end_io`. The kernel
/// shows zeroes to a reader without the right.
fn addresses(symbols: &str, wanted: &[&str]) -> Vec<u64> {
    let address = |line: &str| {
        let mut words = line.split_whitespace();
        let (address, _, name) = (words.next()?, words.next()?, words.next()?);
        // The name of a module may follow.
        let address = wanted.contains(&name).then(|| u64::from_str_radix(address, 16).ok())??;
        (address != 0).then_some(address)
    };
    symbols.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn workers_are_found_by_name() {
        let text = "ffffffff818f9c70 T xfs_end_bio\nffffffff818f9c80 T xfs_end_io\n\
                    0000000000000000 t iomap_dio_complete_work\n\
                    ffffffffc0123450 t ext4_end_io_rsv_work\t[ext4]\nx\n";
        assert_eq!(addresses(text, WORKERS), [0xffff_ffff_818f_9c80, 0xffff_ffff_c012_3450]);
        assert!(namespace().unwrap().1 > 0);
    }

    proptest! {
        #[test]
        fn no_list_of_symbols_makes_it_panic(
            text in "([0-9a-fx]{0,20}[ \t]?(T|t)? ?(xfs_end_io)?\n?){0,8}",
        ) {
            addresses(&text, WORKERS);
        }
    }
}
