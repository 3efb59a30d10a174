//! In what pieces the free space lies, and whether there is enough.

use std::io;

use forebay_uring::{Extents, FreeSpace};

use super::finding::{Finding, Level, degraded, full, quoted, unknown};
use super::trial::Trial;
use crate::manifest::Storage;
use crate::report::bytes;

/// Of this a request is made.
const REQUEST_BYTES: u64 = 1 << 20;

/// Free space that the default cache needs to accept writes: below, space is allocated before each
/// write.
const PLENTY_BYTES: u64 = 4 * (256 << 20);

/// Of the free bytes, the part that must be in pieces of a request's size.
const IN_LARGE: f64 = 0.9;

pub(super) fn findings(storage: &Storage, trial: &Trial) -> Vec<Finding> {
    let pieces = match trial {
        Trial::Made(tried) => pieces(storage, &tried.free_space, &tried.sample),
        Trial::Refused { error, .. } => unknown("free space in pieces", error.as_str())
            .means("no file could be created to find out"),
    };
    vec![room(storage), pieces]
}

fn room(storage: &Storage) -> Finding {
    let free = storage.free_bytes;
    let found = bytes(free as f64);
    if free >= PLENTY_BYTES || storage.total_bytes == 0 {
        return full("free space", found)
            .means("writes are accepted before their space is allocated; up to a hundredth is reserved ahead");
    }
    degraded("free space", found)
        .means("less than four times a full cache: space is allocated before a write is accepted")
        .root(
            "free some space; the largest directories:",
            format!("du -xh {} | sort -h | tail", quoted(&storage.mount_point)),
        )
}

/// Judges all free space if the file system reports it, else the space it gave to one file.
fn pieces(storage: &Storage, space: &io::Result<FreeSpace>, sample: &Option<Extents>) -> Finding {
    const NAME: &str = "free space in pieces";
    match (space, sample) {
        (Ok(space), _) => of_all(storage, space),
        (Err(_), Some(Extents { count, bytes: length })) if *count > 0 => {
            let found = format!(
                "{} reserved for one file lie in {count} (the file system does not report all free space)",
                bytes(*length as f64)
            );
            let is_large = *count == 1 || length / count >= REQUEST_BYTES;
            judged(storage, full(NAME, found), is_large)
        }
        (Err(error), _) => unknown(NAME, format!("the file system does not report it: {error}"))
            .means("fragmentation is visible only on existing files: filefrag FILE"),
    }
}

fn of_all(storage: &Storage, space: &FreeSpace) -> Finding {
    const NAME: &str = "free space in pieces";
    let FreeSpace { pieces, bytes: free, largest, in_large, looked_until } = *space;
    if free == 0 {
        return degraded(NAME, "no free space").means("no more data can be written");
    }
    let share = in_large as f64 / free as f64;
    let of =
        looked_until.map(|end| format!(", in the first {}", bytes(end as f64))).unwrap_or_default();
    let found = format!(
        "{pieces}, the largest {}; {:.0} % in pieces of 1 MiB and more{of}",
        bytes(largest as f64),
        (share * 100.0).floor()
    );
    judged(storage, full(NAME, found), share >= IN_LARGE)
}

fn judged(storage: &Storage, finding: Finding, is_large: bool) -> Finding {
    if is_large {
        return finding.means("reservations come in large pieces, and requests stay whole");
    }
    let finding = Finding { level: Level::Degraded, ..finding }.means(
        "new files are fragmented, with any program: requests are split, and metadata grows",
    );
    let what =
        "remove fragmented files, or copy all data to a new file system; to see the free space:";
    let (device, point) = (quoted(&storage.device), quoted(&storage.mount_point));
    match storage.file_system.as_str() {
        "xfs" => finding.root(what, format!("xfs_spaceman -c 'freesp -s' {point}")),
        "ext4" | "ext3" | "ext2" => finding.root(what, format!("e2freefrag {device}")),
        "btrfs" => finding
            .root("defragment the free space", format!("btrfs balance start -dusage=50 {point}")),
        _ => finding.remedy("remove fragmented files, or copy all data to a new file system"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage(file_system: &str, free_bytes: u64) -> Storage {
        Storage {
            file_system: file_system.into(),
            device: "/dev/sda".into(),
            mount_point: "/mnt".into(),
            total_bytes: 1 << 40,
            free_bytes,
            ..Storage::default()
        }
    }

    fn line(finding: &Finding) -> &str {
        let command = finding.remedy.as_ref().and_then(|remedy| remedy.command.as_ref());
        command.map_or("", |command| &command.line)
    }

    #[test]
    fn little_room_is_told() {
        assert_eq!(room(&storage("xfs", 1 << 30)).level, Level::Full);
        let little = room(&storage("xfs", (1 << 30) - 1));
        assert_eq!(
            (little.level, line(&little)),
            (Level::Degraded, "du -xh /mnt | sort -h | tail")
        );
    }

    #[test]
    fn pieces_are_judged_by_the_bytes_in_large_ones() {
        let space = FreeSpace {
            pieces: 9,
            bytes: 100 << 20,
            largest: 64 << 20,
            in_large: 95 << 20,
            looked_until: None,
        };
        let of = |file_system, space| pieces(&storage(file_system, 1 << 30), &Ok(space), &None);
        let whole = of("xfs", space);
        assert_eq!(
            (whole.level, whole.found.as_str()),
            (Level::Full, "9, the largest 64 MiB; 95 % in pieces of 1 MiB and more")
        );
        let apart = FreeSpace { in_large: 89 << 20, looked_until: Some(1 << 30), ..space };
        assert_eq!(of("xfs", apart).level, Level::Degraded);
        assert!(
            of("xfs", apart).found.ends_with("in the first 1.0 GiB"),
            "{}",
            of("xfs", apart).found
        );
        assert_eq!(line(&of("xfs", apart)), "xfs_spaceman -c 'freesp -s' /mnt");
        assert_eq!(line(&of("ext4", apart)), "e2freefrag /dev/sda");
        assert_eq!(line(&of("btrfs", apart)), "btrfs balance start -dusage=50 /mnt");
        assert_eq!(line(&of("zfs", apart)), "");
        assert_eq!(of("xfs", FreeSpace::default()).found, "no free space");
    }

    #[test]
    fn where_it_is_not_told_one_file_is_a_sample() {
        let silent = || Err(io::Error::from_raw_os_error(libc::ENOTTY));
        let of = |sample| pieces(&storage("btrfs", 1 << 30), &silent(), &sample);
        let few = of(Some(Extents { count: 2, bytes: 64 << 20 }));
        assert_eq!(few.level, Level::Full);
        assert!(few.found.starts_with("64 MiB reserved for one file lie in 2 "), "{}", few.found);
        assert_eq!(of(Some(Extents { count: 1, bytes: 396 << 10 })).level, Level::Full);
        assert_eq!(of(Some(Extents { count: 65, bytes: 64 << 20 })).level, Level::Degraded);
        assert_eq!(of(Some(Extents::default())).level, Level::NotKnown);
        assert_eq!(of(None).level, Level::NotKnown);
    }
}
