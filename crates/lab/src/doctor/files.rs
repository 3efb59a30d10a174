//! The file system: its type, mount options and free space. And files on it, by the trials.

use std::io;
use std::path::Path;

use forebay_uring::{Alignment, Coverage, Direct, FreeSpace};
use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::facts::{Capability, Facts, Kind};
use super::finding::{Finding, Level, degraded, full, missing, quoted, unknown};
use super::trial::Trial;
use crate::manifest::Storage;
use crate::report::bytes;

/// Free space that the default cache needs to accept writes: below, space is allocated before each
/// write.
const PLENTY_BYTES: u64 = 4 * (256 << 20);

/// Share of the free bytes that must be in pieces of a request's size.
const IN_LARGE: f64 = 0.9;

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
        "bcachefs" | "f2fs" | "nilfs2" | "zfs" => {
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

/// A mount option that costs speed or durability.
struct MountOption {
    /// The option; with its value, if only that value counts.
    option: &'static str,
    /// Name of the finding.
    name: &'static str,
    /// File systems that it concerns; all if empty.
    file_systems: &'static [&'static str],
    means: &'static str,
    /// Option that undoes it with a remount; empty if only a new mount does.
    undone_by: &'static str,
}

const SLOW_NAMES: &str = "creating and removing a file waits for the device";
const DISCARDS: &str = "freed space, such as the reserve of each closed file, is discarded at once while writes wait; \
                        the weekly fstrim does this at a better time";
const NO_FLUSH: &str = "the device is never flushed: a sync makes nothing durable unless the device's cache survives a \
                        power cut";

#[rustfmt::skip]
const OPTIONS: [MountOption; 9] = [
    MountOption { option: "ro", name: "ro", file_systems: &[], means: "files can be read, but not written", undone_by: "rw" },
    MountOption { option: "sync", name: "sync", file_systems: &[], means: "each write is a sync and waits for the device", undone_by: "async" },
    MountOption { option: "dirsync", name: "dirsync", file_systems: &[], means: SLOW_NAMES, undone_by: "" },
    MountOption { option: "wsync", name: "wsync", file_systems: &["xfs"], means: SLOW_NAMES, undone_by: "" },
    // XFS accepts the remount and changes nothing.
    MountOption { option: "discard", name: "discard", file_systems: &["xfs"], means: DISCARDS, undone_by: "" },
    MountOption { option: "discard", name: "discard", file_systems: &["ext4", "ext3", "f2fs"], means: DISCARDS, undone_by: "nodiscard" },
    MountOption { option: "nobarrier", name: "barrier", file_systems: &[], means: NO_FLUSH, undone_by: "barrier" },
    MountOption { option: "barrier=0", name: "barrier", file_systems: &[], means: NO_FLUSH, undone_by: "barrier" },
    MountOption { option: "data=journal", name: "data", file_systems: &["ext4", "ext3"], means: "data goes through the journal, twice, and direct I/O is refused", undone_by: "" },
];

/// Judges the options that the file system is mounted with: a finding for each that costs
/// something.
pub(super) fn mount_options(facts: &Facts) -> Vec<Finding> {
    let Some(storage) = &facts.storage else { return Vec::new() };
    let has = |known: &&MountOption| {
        let is_set = storage.options.split(',').any(|option| option == known.option);
        let kinds = known.file_systems;
        is_set && (kinds.is_empty() || kinds.contains(&storage.file_system.as_str()))
    };
    OPTIONS.iter().filter(has).map(|option| option.finding(storage)).collect()
}

impl MountOption {
    fn finding(&self, storage: &Storage) -> Finding {
        let found = format!("mounted with {}", self.option);
        let finding = if self.option == "ro" { missing(found) } else { degraded(found) };
        let finding = finding.named(self.name).means(self.means);
        let (device, point) = (quoted(&storage.device), quoted(&storage.mount_point));
        if self.undone_by.is_empty() {
            return finding.root(
                "mount it again without this option, also in /etc/fstab (a remount does not change it)",
                format!("umount {point} && mount {device} {point}"),
            );
        }
        finding.root(
            "remount (permanently: in /etc/fstab)",
            format!("mount -o remount,{} {point}", self.undone_by),
        )
    }
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

/// Judges the pieces of the free space, if the file system reports them.
pub(super) fn free_space(facts: &Facts) -> Option<Finding> {
    let space = tried(facts)?.free_space.as_ref().ok()?;
    Some(judged_space(facts.storage.as_ref()?, space))
}

fn judged_space(storage: &Storage, space: &FreeSpace) -> Finding {
    let FreeSpace { pieces, bytes: free, largest, in_large, looked_until } = *space;
    assert!(in_large <= free && largest <= free, "{space:?}: a part is larger than the whole");
    if free == 0 {
        return degraded("no free space")
            .means("no more data can be written")
            .remedy("free some space");
    }
    let share = in_large as f64 / free as f64;
    let of =
        looked_until.map(|end| format!(", in the first {}", bytes(end as f64))).unwrap_or_default();
    let found = full(format!(
        "{pieces}, the largest {}; {:.0} % in pieces of 1 MiB and more{of}",
        bytes(largest as f64),
        (share * 100.0).floor()
    ));
    if share >= IN_LARGE {
        return found.means("reservations come in large pieces, and requests stay whole");
    }
    let finding = Finding { level: Level::Degraded, ..found }.means(
        "new files are fragmented, with any program: requests are split, and metadata grows",
    );
    let what =
        "remove fragmented files, or copy all data to a new file system; to see the free space:";
    match storage.file_system.as_str() {
        "xfs" => {
            let point = quoted(&storage.mount_point);
            finding.root(what, format!("xfs_spaceman -c 'freesp -s' {point}"))
        }
        _ => finding.root(what, format!("e2freefrag {}", quoted(&storage.device))),
    }
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
    use super::*;

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
    fn little_space_and_space_in_pieces_are_found() {
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

        let space = FreeSpace {
            pieces: 9,
            bytes: 100 << 20,
            largest: 64 << 20,
            in_large: 95 << 20,
            looked_until: None,
        };
        let of = |kind, space| judged_space(on(kind, "rw").storage.as_ref().unwrap(), &space);
        let whole = of("xfs", space);
        let expected = "9, the largest 64 MiB; 95 % in pieces of 1 MiB and more";
        assert_eq!((whole.level, whole.found.as_str()), (Level::Full, expected));
        let apart = FreeSpace { in_large: 89 << 20, looked_until: Some(1 << 30), ..space };
        let found = of("xfs", apart);
        assert!(found.found.ends_with("in the first 1.0 GiB"), "{}", found.found);
        assert_eq!(line(&found), "xfs_spaceman -c 'freesp -s' '/mnt/a b'");
        assert_eq!(line(&of("ext4", apart)), "e2freefrag /dev/sda");
        assert_eq!(of("xfs", FreeSpace::default()).found, "no free space");
    }
}
