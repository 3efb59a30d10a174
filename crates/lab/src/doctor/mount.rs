//! The file system: its type, and mount options that are in the way.

use super::finding::{Finding, degraded, full, missing, quoted, unknown};
use super::groups::Groups;
use crate::manifest::Storage;

pub(super) fn findings(storage: &Storage, groups: Option<Groups>) -> Vec<Finding> {
    let mut findings = vec![kind(storage)];
    let before = findings.len();
    findings.extend(
        storage.options.split(',').filter_map(|option| in_the_way(storage, option, groups)),
    );
    if findings.len() == before {
        let none = full("mount options", if_any(&storage.options.replace(',', ", ")))
            .means("none of them costs reserved space, affinity or durability");
        findings.push(none);
    }
    findings
}

fn kind(storage: &Storage) -> Finding {
    let name = storage.file_system.as_str();
    let degraded = |means: &str| degraded("type", name).means(means);
    match name {
        "xfs" => full("type", name)
            .means("overwrites in place, keeps reserved space, and reports its allocation groups"),
        "ext4" | "ext3" | "ext2" => {
            full("type", name).means("overwrites in place, and keeps reserved space")
        }
        "btrfs" | "bcachefs" | "f2fs" | "nilfs2" | "zfs" => {
            let finding =
                degraded("it does not overwrite in place: files that are rewritten are fragmented");
            match name {
                "btrfs" => finding.user(
                    "let new files in this directory be overwritten in place (without checksums)",
                    format!("chattr +C {}", quoted(&storage.mount_point))),
                _ => finding.remedy("put such files on XFS or ext4"),
            }
        }
        "tmpfs" | "ramfs" => {
            degraded("it is memory: data does not survive a reboot, and the cache is a second copy")
                .remedy("use a directory on a disk")
        }
        "overlay" => {
            degraded("a file of the lower layer is copied as a whole when it is opened for writing")
                .remedy("use a directory of a volume, not of the container's image")
        }
        name if is_of_others(name) => degraded(
            "the files are on a server: other machines can change them, and a lease covers only this machine",
        )
        .remedy("run Forebay on the machine that has the disk"),
        "" => unknown("type", "not in /proc/self/mountinfo").means("no conclusion is possible"),
        _ => unknown("type", format!("{name}: not known to this program"))
            .means("the trials below still apply"),
    }
}

fn is_of_others(name: &str) -> bool {
    let begins =
        ["nfs", "cifs", "smb", "ceph", "fuse", "9p", "virtiofs", "glusterfs", "afs", "lustre"];
    begins.iter().any(|begin| name.starts_with(begin))
}

/// Returns what is lost by a mount option, if anything.
fn in_the_way(storage: &Storage, option: &str, groups: Option<Groups>) -> Option<Finding> {
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    let kind = storage.file_system.as_str();
    let with = || format!("mounted with {option}");
    let lost = |means: &str| degraded(name, with()).means(means);
    let remount = |finding: Finding, what: &str| {
        let point = quoted(&storage.mount_point);
        finding.root(
            "remount (permanently: in /etc/fstab)",
            format!("mount -o remount,{what} {point}"),
        )
    };
    Some(match (name, kind) {
        ("ro", _) => {
            remount(missing(name, with()).means("files can be read, but not written"), "rw")
        }
        ("sync", _) => remount(lost("each write is a sync and waits for the device"), "async"),
        ("dirsync", _) => again(lost("creating and removing a file waits for the device"), storage),
        ("wsync", "xfs") => {
            again(lost("creating and removing a file waits for the journal"), storage)
        }
        ("inode32", "xfs") if groups.is_some_and(|groups| !groups.has_long_numbers) => {
            full(name, with())
                .means("no effect: inode numbers have 32 bits on a file system of this size")
        }
        ("inode32", "xfs") => remount(
            lost(
                "inodes are only in the first groups, and their data anywhere: the context of a \
                 file is known only when its data is allocated",
            ),
            "inode64",
        ),
        ("allocsize", "xfs") => again(
            lost(
                "data appended through the page cache, such as the last block of a file, reserves this much space \
                  beyond the end; Forebay reserves space itself",
            ),
            storage,
        ),
        ("discard", _) if value != "async" => {
            let lost = lost(
                "freed space, such as the reserve of each closed file, is discarded at once while writes wait; the \
                 weekly fstrim does this at a better time",
            );
            // XFS takes the remount, and goes on as before.
            if kind == "xfs" { again(lost, storage) } else { remount(lost, "nodiscard") }
        }
        ("nobarrier", _) => no_flush(storage, option),
        ("barrier", _) if value == "0" => no_flush(storage, option),
        ("data", "ext4" | "ext3") if value == "journal" => {
            again(lost("data goes through the journal, twice, and direct I/O is refused"), storage)
        }
        ("compress" | "compress-force", "btrfs") => lost(
            "compressed data goes through the kernel's page cache and is not overwritten in place",
        )
        .remedy("mount without this option for Forebay's files"),
        _ => return None,
    })
}

fn no_flush(storage: &Storage, option: &str) -> Finding {
    let lost = degraded("barrier", format!("mounted with {option}")).means(
        "the device is never flushed: a sync makes nothing durable unless the device's cache survives a power cut",
    );
    let point = quoted(&storage.mount_point);
    lost.root("enable flushes", format!("mount -o remount,barrier {point}"))
}

/// Of what a remount does not change.
fn again(finding: Finding, storage: &Storage) -> Finding {
    let (device, point) = (quoted(&storage.device), quoted(&storage.mount_point));
    finding.root(
        "mount it again without this option, also in /etc/fstab (a remount does not change it)",
        format!("umount {point} && mount {device} {point}"),
    )
}

fn if_any(options: &str) -> &str {
    if options.is_empty() { "none are reported" } else { options }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::groups::tests::groups;
    use super::*;

    fn storage(file_system: &str, options: &str) -> Storage {
        Storage {
            file_system: file_system.into(),
            options: options.into(),
            device: "/dev/sda".into(),
            mount_point: "/mnt/a b".into(),
            ..Storage::default()
        }
    }

    fn of(file_system: &str, options: &str) -> Vec<Finding> {
        findings(&storage(file_system, options), None)
    }

    fn line(finding: &Finding) -> &str {
        let command = finding.remedy.as_ref().and_then(|remedy| remedy.command.as_ref());
        command.map_or("", |command| &command.line)
    }

    #[test]
    fn options_that_take_nothing_away_are_one_line() {
        let found = of("xfs", "rw,noatime,attr2,inode64,logbufs=8,noquota");
        assert_eq!(found.len(), 2);
        assert_eq!((found[1].name.as_str(), found[1].level), ("mount options", Level::Full));
        assert_eq!(of("ext4", "")[1].found, "none are reported");
        assert_eq!(of("btrfs", "rw,discard=async,space_cache=v2").len(), 2);
        // Another file system's option.
        assert_eq!(of("ext4", "rw,allocsize=64m,inode32").len(), 2);
    }

    #[test]
    fn each_option_in_the_way_has_its_line_and_command() {
        for (kind, option, name, command) in [
            ("xfs", "ro", "ro", "mount -o remount,rw '/mnt/a b'"),
            ("xfs", "sync", "sync", "mount -o remount,async '/mnt/a b'"),
            ("ext4", "dirsync", "dirsync", "umount '/mnt/a b' && mount /dev/sda '/mnt/a b'"),
            ("xfs", "wsync", "wsync", "umount '/mnt/a b' && mount /dev/sda '/mnt/a b'"),
            ("xfs", "inode32", "inode32", "mount -o remount,inode64 '/mnt/a b'"),
            (
                "xfs",
                "allocsize=65536k",
                "allocsize",
                "umount '/mnt/a b' && mount /dev/sda '/mnt/a b'",
            ),
            ("xfs", "discard", "discard", "umount '/mnt/a b' && mount /dev/sda '/mnt/a b'"),
            ("ext4", "discard", "discard", "mount -o remount,nodiscard '/mnt/a b'"),
            ("ext4", "nobarrier", "barrier", "mount -o remount,barrier '/mnt/a b'"),
            ("ext4", "barrier=0", "barrier", "mount -o remount,barrier '/mnt/a b'"),
            ("ext4", "data=journal", "data", "umount '/mnt/a b' && mount /dev/sda '/mnt/a b'"),
            ("btrfs", "compress=zstd:3", "compress", ""),
        ] {
            let found = of(kind, &format!("rw,{option},relatime"));
            assert_eq!(found.len(), 2, "{option}");
            assert_eq!(
                (found[1].name.as_str(), &found[1].found),
                (name, &format!("mounted with {option}"))
            );
            assert_ne!(found[1].level, Level::Full, "{option}");
            assert_eq!(line(&found[1]), command, "{option}");
        }
        assert_eq!(of("xfs", "ro,sync,wsync,discard").len(), 5);
    }

    #[test]
    fn inode32_is_in_the_way_only_where_numbers_would_be_longer() {
        let level = |long| findings(&storage("xfs", "inode32"), Some(groups(9, long)))[1].level;
        assert_eq!((level(true), level(false)), (Level::Degraded, Level::Full));
    }

    #[test]
    fn types_are_judged_by_what_they_do_to_files() {
        let level = |name| of(name, "rw")[0].level;
        for (name, expected) in [
            ("xfs", Level::Full),
            ("ext4", Level::Full),
            ("btrfs", Level::Degraded),
            ("f2fs", Level::Degraded),
            ("tmpfs", Level::Degraded),
            ("overlay", Level::Degraded),
            ("nfs4", Level::Degraded),
            ("fuse.sshfs", Level::Degraded),
            ("", Level::NotKnown),
            ("newfs", Level::NotKnown),
        ] {
            assert_eq!(level(name), expected, "{name}");
        }
        assert_eq!(line(&of("btrfs", "rw")[0]), "chattr +C '/mnt/a b'");
    }
}
