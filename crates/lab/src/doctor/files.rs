//! The file system: its type, mount options and free space. And files on it, by the trials.

use std::io;
use std::path::Path;

use forebay_uring::{Alignment, Coverage, Direct};
use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::facts::{Capability, Facts, Kind};
use super::finding::{Finding, degraded, full, missing, quoted, unknown};
use super::trial::Trial;
use crate::figures::bytes;

/// Free space that the default cache needs to accept writes: below, space is allocated before each
/// write.
const PLENTY_BYTES: u64 = 4 * (256 << 20);

/// Judges the type of the file system.
pub(super) fn kind(facts: &Facts) -> Option<Finding> {
    let storage = facts.storage.as_ref()?;
    let name = storage.file_system.as_str();
    let is_of_others = |name: &str| {
        let begins =
            ["nfs", "cifs", "smb", "ceph", "fuse", "9p", "virtiofs", "glusterfs", "afs", "lustre"];
        begins.iter().any(|begin| name.starts_with(begin))
    };
    let rewritten = "it does not overwrite in place: files that are rewritten are fragmented";
    Some(match name {
        "xfs" => full(name)
            .means("overwrites in place, keeps reserved space, and reports its allocation groups"),
        "ext4" | "ext3" | "ext2" => {
            full(name).means("overwrites in place, and keeps reserved space")
        }
        "btrfs" => degraded(name).means(rewritten).user(
            "let new files in this directory be overwritten in place (without checksums)",
            format!("chattr +C {}", quoted(&storage.mount_point)),
        ),
        "bcachefs" | "f2fs" | "zfs" => {
            degraded(name).means(rewritten).remedy("put such files on XFS or ext4")
        }
        "tmpfs" | "ramfs" => degraded(name)
            .means("it is memory: data does not survive a reboot, and the cache is a second copy")
            .remedy("use a directory on a disk"),
        "overlay" => degraded(name)
            .means("a file of the lower layer is copied as a whole when it is opened for writing")
            .remedy("use a directory of a volume, not of the container's image"),
        name if is_of_others(name) => degraded(name)
            .means(
                "the files are on a server: other machines can change them, and a lease covers only this machine",
            )
            .remedy("run Forebay on the machine that has the disk"),
        "" => unknown("not in /proc/self/mountinfo").means("no conclusion is possible"),
        _ => unknown(format!("{name}: not known to this program"))
            .means("the trials below still apply"),
    })
}

const SLOW_NAMES: &str = "creating and removing a file waits for the device";
const DISCARDS: &str = "freed space, such as the reserve of each closed file, is discarded at once while writes wait; \
                        the weekly fstrim does this at a better time";
const TWICE: &str = "data goes through the journal, twice, and direct I/O is refused";
const NO_FLUSH: &str = "the device is never flushed: a sync makes nothing durable unless the device's cache survives a \
                        power cut";

/// Mount options that cost speed or durability: the option, the name of the finding, the file
/// systems that it concerns (all if empty), its consequence, and the option that undoes it with a
/// remount (empty if only a new mount does).
const OPTIONS: [(&str, &str, &[&str], &str, &str); 9] = [
    ("ro", "ro", &[], "files can be read, but not written", "rw"),
    ("sync", "sync", &[], "each write is a sync and waits for the device", "async"),
    ("dirsync", "dirsync", &[], SLOW_NAMES, ""),
    ("wsync", "wsync", &["xfs"], SLOW_NAMES, ""),
    // XFS accepts the remount and changes nothing.
    ("discard", "discard", &["xfs"], DISCARDS, ""),
    ("discard", "discard", &["ext4", "ext3", "f2fs"], DISCARDS, "nodiscard"),
    ("nobarrier", "barrier", &[], NO_FLUSH, "barrier"),
    ("barrier=0", "barrier", &[], NO_FLUSH, "barrier"),
    ("data=journal", "data", &["ext4", "ext3"], TWICE, ""),
];

/// Judges the options that the file system is mounted with: a finding for each that costs
/// something.
pub(super) fn mount_options(facts: &Facts) -> Vec<Finding> {
    let Some(storage) = &facts.storage else { return Vec::new() };
    let (device, point) = (quoted(&storage.device), quoted(&storage.mount_point));
    let options: Vec<&str> = storage.options.split(',').collect();
    let set = OPTIONS.iter().filter(|(option, _, file_systems, ..)| {
        let kind = storage.file_system.as_str();
        options.contains(option) && (file_systems.is_empty() || file_systems.contains(&kind))
    });
    let judged = set.map(|(option, name, _, means, undone_by)| {
        let found = format!("mounted with {option}");
        let finding = if *name == "ro" { missing(found) } else { degraded(found) };
        let finding = finding.named(name).means(*means);
        if undone_by.is_empty() {
            return finding.root(
                "mount it again without this option, also in /etc/fstab (a remount does not change it)",
                format!("umount {point} && mount {device} {point}"),
            );
        }
        finding.root(
            "remount (permanently: in /etc/fstab)",
            format!("mount -o remount,{undone_by} {point}"),
        )
    });
    judged.collect()
}

/// Judges how much space is free.
pub(super) fn room(facts: &Facts) -> Option<Finding> {
    let storage = facts.storage.as_ref()?;
    let found = bytes(storage.free_bytes as f64);
    if storage.free_bytes >= PLENTY_BYTES || storage.total_bytes == 0 {
        return Some(full(found).means(
            "writes are accepted before their space is allocated; up to a hundredth is reserved ahead",
        ));
    }
    Some(
        degraded(found)
            .means(
                "less than four times a full cache: space is allocated before a write is accepted",
            )
            .root(
                "free some space; the largest directories:",
                format!("du -xh {} | sort -h | tail", quoted(&storage.mount_point)),
            ),
    )
}

/// Returns the trials, if a file could be made.
fn tried(facts: &Facts) -> Option<&Trial> {
    facts.trial.as_ref()?.as_ref().ok()
}

/// Judges whether this user can use the place at all.
pub(super) fn access(facts: &Facts) -> Option<Finding> {
    let (place, trial) = (&facts.place, facts.trial.as_ref()?);
    let what = if place.kind == Kind::File { "file" } else { "directory" };
    if let Err(error) = may(&place.path, Access::READ_OK) {
        return Some(
            missing(format!("the {what} cannot be read: {error}"))
                .means("this user cannot use it")
                .root("let this user read it", format!("chmod o+r {}", quoted(&place.path))),
        );
    }
    let written = match (place.kind, trial) {
        (Kind::File, _) => may(&place.path, Access::WRITE_OK).map_err(|error| error.to_string()),
        (_, trial) => trial.as_ref().map(drop).map_err(Clone::clone),
    };
    Some(match written {
        Ok(()) => full("read and write").means("this user can use it"),
        Err(error) => degraded(format!("read only: {error}"))
            .means("Forebay can read files here, but not write them")
            .remedy("run as another user, or use another directory"),
    })
}

fn may(path: &Path, access: Access) -> io::Result<()> {
    Ok(accessat(CWD, path, access, AtFlags::EACCESS)?)
}

/// Reports why the trials could not be made.
pub(super) fn trial(facts: &Facts) -> Option<Finding> {
    let error = facts.trial.as_ref()?.as_ref().err()?;
    Some(
        unknown(error.as_str())
            .means("direct I/O, lease, reservation, mark and free space were not tried"),
    )
}

/// Judges whether requests bypass the kernel's page cache.
pub(super) fn direct(facts: &Facts) -> Option<Finding> {
    let tried = tried(facts)?;
    Some(match &tried.direct {
        Direct::Yes => {
            let Alignment { memory, offset } = tried.alignment;
            full(format!("memory by {memory}, offsets and lengths by {offset} bytes"))
                .means("requests bypass the kernel's page cache; less aligned requests are copied")
        }
        Direct::Refused(reason) => missing(reason.as_str())
            .means(
                "requests go through the kernel's page cache, which keeps a second copy of the data",
            )
            .remedy("use a file system with direct I/O: XFS, ext4 (not data=journal), btrfs"),
    })
}

/// Judges whether an engine gets a write lease, which notifies it of other programs.
pub(super) fn lease(facts: &Facts) -> Option<Finding> {
    let (tried, place, process) = (tried(facts)?, &facts.place, &facts.process);
    let lost = |found: &str| {
        missing(found).means(
            "files count as shared with other programs: clean pages are not kept, holes are not filled with zeroes, \
             and reserved space is not given back",
        )
    };
    let is_foreign =
        place.kind == Kind::File && place.owner != process.user && !process.may(Capability::Lease);
    if let Coverage::NotEveryone(name) = &tried.coverage {
        let found = format!("of no use on {name}: its files can change without breaking it");
        return Some(lost(&found).remedy(
            "use XFS, ext4, btrfs or tmpfs; if no other program writes a file, open it with \
             Open::exclusive",
        ));
    }
    Some(match &tried.lease {
        Err(_) if facts.tree.number::<u32>("/proc/sys/fs/leases-enable") == Some(0) => {
            lost("switched off: fs.leases-enable is 0")
                .root("switch it on until the next boot", "sysctl -w fs.leases-enable=1")
        }
        Err(error) => match error.raw_os_error() {
            Some(libc::EACCES) => lost(&format!("refused to this user: {error}"))
                .remedy("use files that this user owns, or CAP_LEASE"),
            Some(libc::EAGAIN) => lost("refused: other processes hold every file open here")
                .remedy("use a file system in the kernel, such as XFS or ext4"),
            _ => lost(&format!("not supported by the file system: {error}"))
                .remedy("use XFS, ext4, btrfs or tmpfs"),
        },
        Ok(()) if is_foreign => lost(&format!(
            "the file belongs to user {}, but this is user {}",
            place.owner, process.user
        ))
        .root(
            "give the file to this user, or the program CAP_LEASE",
            format!("chown {} {}", process.user, quoted(&place.path)),
        ),
        Ok(()) => full("granted").means(
            "an engine uses a file alone until another program opens it, and is notified then",
        ),
    })
}

/// Judges whether space beyond the end of a file can be allocated.
pub(super) fn reservation(facts: &Facts) -> Option<Finding> {
    Some(match &tried(facts)?.reserve {
        Ok(()) => full("space beyond the end can be allocated")
            .means("growing files stay in one piece"),
        Err(error) => missing(format!("fallocate: {error}"))
            .means("files that grow together are fragmented; a full disk is reported at the sync, not at the write")
            .remedy("use a file system with fallocate (XFS, ext4, btrfs), or free space on this one"),
    })
}

/// Judges whether reserved space can be marked, so that it is found after a crash.
pub(super) fn mark(facts: &Facts) -> Option<Finding> {
    Some(match &tried(facts)?.mark {
        Ok(()) => full("user extended attributes work")
            .means("space reserved before a crash is given back at the next open"),
        Err(error) => missing(format!("no user extended attributes: {error}"))
            .means("no space is reserved beyond the end of a file: files that grow together are fragmented")
            .remedy("use a file system that has them (XFS, ext4 without nouser_xattr, btrfs)"),
    })
}

#[cfg(test)]
mod tests {
    use super::super::facts::fake::Fake;
    use super::super::finding::Level;
    use super::*;
    use crate::manifest::Storage;

    fn on(file_system: &str, options: &str) -> Facts {
        let storage = Storage {
            file_system: file_system.into(),
            options: options.into(),
            device: "/dev/sda".into(),
            mount_point: "/mnt/a b".into(),
            total_bytes: 1 << 40,
            ..Storage::default()
        };
        Facts { storage: Some(storage), ..Fake::new(&[]).facts }
    }

    fn line(finding: &Finding) -> &str {
        let command = finding.remedy.as_ref().and_then(|remedy| remedy.command.as_ref());
        command.map_or("", |command| &command.line)
    }

    #[test]
    fn harmless_options_have_no_finding() {
        for (kind, options) in [
            ("xfs", "rw,noatime,attr2,inode64,logbufs=8,noquota"),
            ("btrfs", "rw,discard=async,space_cache=v2"),
            // An option of another file system.
            ("ext4", "rw,wsync"),
            ("ext4", ""),
        ] {
            assert!(mount_options(&on(kind, options)).is_empty(), "{kind} {options}");
        }
    }

    #[test]
    fn each_harmful_option_has_its_finding_and_command() {
        let again = "umount '/mnt/a b' && mount /dev/sda '/mnt/a b'";
        for (kind, option, name, command) in [
            ("xfs", "ro", "ro", "mount -o remount,rw '/mnt/a b'"),
            ("xfs", "sync", "sync", "mount -o remount,async '/mnt/a b'"),
            ("ext4", "dirsync", "dirsync", again),
            ("xfs", "wsync", "wsync", again),
            ("xfs", "discard", "discard", again),
            ("ext4", "discard", "discard", "mount -o remount,nodiscard '/mnt/a b'"),
            ("ext4", "nobarrier", "barrier", "mount -o remount,barrier '/mnt/a b'"),
            ("ext4", "barrier=0", "barrier", "mount -o remount,barrier '/mnt/a b'"),
            ("ext4", "data=journal", "data", again),
        ] {
            let found = mount_options(&on(kind, &format!("rw,{option},relatime")));
            assert_eq!(found.len(), 1, "{option}");
            assert_eq!(found[0].name, name);
            assert_eq!(found[0].found, format!("mounted with {option}"));
            assert_ne!(found[0].level, Level::Full, "{option}");
            assert_eq!(line(&found[0]), command, "{option}");
        }
        assert_eq!(mount_options(&on("xfs", "ro,sync,wsync,discard")).len(), 4);
    }

    #[test]
    fn types_are_judged_by_their_effect_on_files() {
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
            assert_eq!(kind(&on(name, "rw")).unwrap().level, expected, "{name}");
        }
        assert_eq!(line(&kind(&on("btrfs", "rw")).unwrap()), "chattr +C '/mnt/a b'");
    }

    #[test]
    fn little_space_is_found() {
        let mut facts = on("xfs", "rw");
        let mut with = |free| {
            facts.storage.as_mut().unwrap().free_bytes = free;
            room(&facts).unwrap()
        };
        assert_eq!(with(1 << 30).level, Level::Full);
        let little = with((1 << 30) - 1);
        assert_eq!(
            (little.level, line(&little)),
            (Level::Degraded, "du -xh '/mnt/a b' | sort -h | tail")
        );
    }
}
