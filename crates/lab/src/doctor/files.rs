//! The file system: its type, mount options and free space. And files on it, by the trials.

use std::io;
use std::path::Path;

use forebay_uring::{Alignment, Coverage, Direct};
use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::facts::{Capability, Facts, Kind};
use super::finding::{Finding, degraded, full, missing, quoted, unknown};
use super::trial;
use crate::figures::bytes;

/// Free space that the default cache needs to accept writes: below, space is allocated before each
/// write.
const PLENTY_BYTES: u64 = 4 * (256 << 20);

/// Space that is reserved as a trial.
const RESERVED_BYTES: u64 = 1 << 20;

/// How the names of file systems begin whose files are on a server.
const OF_SERVERS: [&str; 10] =
    ["nfs", "cifs", "smb", "ceph", "fuse", "9p", "virtiofs", "glusterfs", "afs", "lustre"];

pub(super) fn kind(facts: &Facts) -> Option<Finding> {
    let storage = facts.storage.as_ref()?;
    let name = storage.file_system.as_str();
    let rewritten = "it does not overwrite in place: files that are rewritten are fragmented";
    match name {
        "xfs" => {
            let and = "keeps reserved space, and reports its allocation groups";
            full(name, format!("overwrites in place, {and}"))
        }
        "ext4" | "ext3" | "ext2" => full(name, "overwrites in place, and keeps reserved space"),
        "btrfs" => degraded(name, rewritten).user(
            "let new files in this directory be overwritten in place (without checksums)",
            format!("chattr +C {}", quoted(&storage.mount_point)),
        ),
        "bcachefs" | "f2fs" | "zfs" => {
            degraded(name, rewritten).advise("put such files on XFS or ext4")
        }
        "tmpfs" | "ramfs" => {
            let means =
                "it is memory: data does not survive a reboot, and the cache is a second copy";
            degraded(name, means).advise("use a directory on a disk")
        }
        "overlay" => {
            let means =
                "a file of the lower layer is copied as a whole when it is opened for writing";
            let what = "use a directory of a volume, not of the container's image";
            degraded(name, means).advise(what)
        }
        name if OF_SERVERS.iter().any(|begin| name.starts_with(begin)) => {
            let means = "the files are on a server: other machines can change them, and a lease \
                         covers only this machine";
            degraded(name, means).advise("run Forebay on the machine that has the disk")
        }
        "" => unknown("not in /proc/self/mountinfo", "no conclusion is possible"),
        _ => unknown(format!("{name}: not known to this program"), "the trials below still apply"),
    }
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

/// Judges the options that the file system is mounted with: a finding, with its name, for each that
/// costs something.
pub(super) fn mount_options(facts: &Facts) -> Vec<(&'static str, Finding)> {
    let Some(storage) = &facts.storage else { return Vec::new() };
    let (device, point) = (quoted(&storage.device), quoted(&storage.mount_point));
    let is_set = |option: &str| storage.options.split(',').any(|one| one == option);
    let judged = OPTIONS.iter().filter_map(|(option, name, file_systems, means, undone_by)| {
        let concerns = file_systems.is_empty() || file_systems.contains(&&*storage.file_system);
        if !is_set(option) || !concerns {
            return None;
        }
        let found = format!("mounted with {option}");
        let lost = if *name == "ro" { missing(found, *means) } else { degraded(found, *means) };
        let finding = if undone_by.is_empty() {
            lost.root(
                "mount it again without this option, also in /etc/fstab (a remount does not change it)",
                format!("umount {point} && mount {device} {point}"),
            )
        } else {
            let line = format!("mount -o remount,{undone_by} {point}");
            lost.root("remount (permanently: in /etc/fstab)", line)
        };
        Some((*name, finding?))
    });
    judged.collect()
}

pub(super) fn room(facts: &Facts) -> Option<Finding> {
    let storage = facts.storage.as_ref()?;
    let found = bytes(storage.free_bytes as f64);
    if storage.free_bytes >= PLENTY_BYTES || storage.total_bytes == 0 {
        let means = "writes are accepted before their space is allocated; up to a hundredth is \
                     reserved ahead";
        return full(found, means);
    }
    let means = "less than four times a full cache: space is allocated before a write is accepted";
    let line = format!("du -xh {} | sort -h | tail", quoted(&storage.mount_point));
    degraded(found, means).root("free some space; the largest directories:", line)
}

/// Judges whether this user can use the place at all.
pub(super) fn access(facts: &Facts) -> Option<Finding> {
    let (place, trial) = (&facts.place, facts.trial.as_ref()?);
    let what = if place.kind == Kind::File { "file" } else { "directory" };
    if let Err(error) = may(&place.path, Access::READ_OK) {
        let found = format!("the {what} cannot be read: {error}");
        let line = format!("chmod o+r {}", quoted(&place.path));
        return missing(found, "this user cannot use it").root("let this user read it", line);
    }
    let written = match place.kind {
        Kind::File => may(&place.path, Access::WRITE_OK).map_err(|error| error.to_string()),
        _ => trial.as_ref().map(drop).map_err(Clone::clone),
    };
    match written {
        Ok(()) => full("read and write", "this user can use it"),
        Err(error) => {
            let means = "Forebay can read files here, but not write them";
            degraded(format!("read only: {error}"), means)
                .advise("run as another user, or use another directory")
        }
    }
}

fn may(path: &Path, access: Access) -> io::Result<()> {
    Ok(accessat(CWD, path, access, AtFlags::EACCESS)?)
}

/// Reports why the trials could not be made.
pub(super) fn trial(facts: &Facts) -> Option<Finding> {
    let error = facts.trial.as_ref()?.as_ref().err()?;
    unknown(error, "direct I/O, lease, reservation, mark and free space were not tried")
}

pub(super) fn direct(facts: &Facts) -> Option<Finding> {
    let file = facts.file()?;
    match file.direct() {
        Direct::Yes => {
            let Alignment { memory, offset } = file.alignment();
            full(
                format!("memory by {memory}, offsets and lengths by {offset} bytes"),
                "requests bypass the kernel's page cache; less aligned requests are copied",
            )
        }
        Direct::Refused(reason) => missing(
            reason,
            "requests go through the kernel's page cache, which keeps a second copy of the data",
        )
        .advise("use a file system with direct I/O: XFS, ext4 (not data=journal), btrfs"),
    }
}

/// Judges whether an engine gets a write lease, which notifies it of other programs.
pub(super) fn lease(facts: &Facts) -> Option<Finding> {
    let (file, place, process) = (facts.file()?, &facts.place, &facts.process);
    let lost = |found: &str| {
        let means = "files count as shared with other programs: clean pages are not kept, holes \
                     are not filled with zeroes, and reserved space is not given back";
        missing(found, means)
    };
    if let Coverage::NotEveryone(name) = file.lease_coverage() {
        let found = format!("of no use on {name}: its files can change without breaking it");
        return lost(&found).advise(
            "use XFS, ext4, btrfs or tmpfs; if no other program writes a file, open it with \
             Open::exclusive",
        );
    }
    if let Err(error) = trial::lease(file) {
        if facts.tree.number("/proc/sys/fs/leases-enable") == Some(0) {
            let what = "switch it on until the next boot";
            return lost("switched off: fs.leases-enable is 0")
                .root(what, "sysctl -w fs.leases-enable=1");
        }
        return match error.raw_os_error() {
            Some(libc::EACCES) => lost(&format!("refused to this user: {error}"))
                .advise("use files that this user owns, or CAP_LEASE"),
            Some(libc::EAGAIN) => lost("refused: other processes hold every file open here")
                .advise("use a file system in the kernel, such as XFS or ext4"),
            _ => lost(&format!("not supported by the file system: {error}"))
                .advise("use XFS, ext4, btrfs or tmpfs"),
        };
    }
    let (user, owner) = (process.user, place.owner);
    if place.kind == Kind::File && owner != user && !process.may(Capability::Lease) {
        return lost(&format!("the file belongs to user {owner}, but this is user {user}")).root(
            "give the file to this user, or the program CAP_LEASE",
            format!("chown {user} {}", quoted(&place.path)),
        );
    }
    let means = "an engine uses a file alone until another program opens it, and is notified then";
    full("granted", means)
}

pub(super) fn reservation(facts: &Facts) -> Option<Finding> {
    let Err(error) = facts.file()?.allocate(RESERVED_BYTES, RESERVED_BYTES) else {
        return full("space beyond the end can be allocated", "growing files stay in one piece");
    };
    let means = "files that grow together are fragmented; a full disk is reported at the sync, not \
                 at the write";
    missing(format!("fallocate: {error}"), means)
        .advise("use a file system with fallocate (XFS, ext4, btrfs), or free space on this one")
}

/// Judges whether reserved space can be marked, so that it is found after a crash.
pub(super) fn mark(facts: &Facts) -> Option<Finding> {
    let file = facts.file()?;
    let marked = file.set_reservation_mark(RESERVED_BYTES);
    let Err(error) = marked.and_then(|()| file.remove_reservation_mark()) else {
        let means = "space reserved before a crash is given back at the next open";
        return full("user extended attributes work", means);
    };
    let means = "no space is reserved beyond the end of a file: files that grow together are \
                 fragmented";
    missing(format!("no user extended attributes: {error}"), means)
        .advise("use a file system that has them (XFS, ext4 without nouser_xattr, btrfs)")
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
            let (called, found) = &found[0];
            assert_eq!(*called, name);
            assert_eq!(found.found, format!("mounted with {option}"));
            assert_ne!(found.level, Level::Full, "{option}");
            assert_eq!(line(found), command, "{option}");
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
