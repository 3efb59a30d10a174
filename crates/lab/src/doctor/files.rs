//! Findings on files in the place, judged from the trials.

use std::io;
use std::path::Path;

use forebay_uring::{Alignment, Coverage, Direct, Extents};
use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::finding::{Finding, degraded, full, missing, quoted, unknown};
use super::place::{Kind, Place};
use super::process::{Capability, Process};
use super::trial::{Own, Trial, Tried};
use crate::report::bytes;

/// Of this a request is made.
const REQUEST_BYTES: u64 = 1 << 20;

pub(super) fn findings(place: &Place, trial: &Trial, process: &Process) -> Vec<Finding> {
    let own = trial.own().and_then(|own| own.as_ref().ok());
    let mut findings = vec![access(place, trial)];
    if let Some(Err(why)) = trial.own() {
        let beside = "the checks below used another file beside it";
        findings.push(unknown("file", why.as_str()).means(beside));
    }
    match trial {
        Trial::Made(tried) => {
            findings.push(match own {
                Some(own) => direct(&own.direct, own.alignment),
                None => direct(&tried.direct, tried.alignment),
            });
            let beside = if own.is_some() { " (tried on a file beside it)" } else { "" };
            let read = own.map_or(&tried.uncached_read, |own| &own.uncached_read);
            findings.push(uncached_one("read", read, ""));
            findings.push(uncached_one("write", &tried.uncached_write, beside));
            findings.push(lease(place, tried, process));
            findings.push(reservation(tried));
            findings.push(mark(tried));
            findings.push(hint(place, own.map_or(tried.hint, |own| own.hint)));
        }
        Trial::Refused { error, .. } => {
            if let Some(own) = own {
                findings.push(direct(&own.direct, own.alignment));
                findings.push(uncached_one("read", &own.uncached_read, ""));
            }
            findings.push(
                unknown("trial", error.as_str())
                    .means("lease, reservation, mark and uncached writes were not tried"),
            );
        }
    }
    findings.extend(own.and_then(|own| pieces(place, own)));
    findings
}

/// Whether this user can use it at all.
fn access(place: &Place, trial: &Trial) -> Finding {
    let what = if place.kind == Kind::File { "file" } else { "directory" };
    if let Err(error) = may(&place.path, Access::READ_OK) {
        return missing("access", format!("the {what} cannot be read: {error}"))
            .means("this user cannot use it")
            .root("let this user read it", format!("chmod o+r {}", quoted(&place.path)));
    }
    let written = match (place.kind, trial) {
        (Kind::File, _) => may(&place.path, Access::WRITE_OK).map_err(|error| error.to_string()),
        (_, Trial::Made(_)) => Ok(()),
        (_, Trial::Refused { error, .. }) => Err(error.clone()),
    };
    match written {
        Ok(()) => full("access", "read and write").means("this user can use it"),
        Err(error) => degraded("access", format!("read only: {error}"))
            .means("Forebay can read files here, but not write them")
            .remedy("run as another user, or use another directory"),
    }
}

fn may(path: &Path, access: Access) -> io::Result<()> {
    Ok(accessat(CWD, path, access, AtFlags::EACCESS)?)
}

fn direct(direct: &Direct, alignment: Alignment) -> Finding {
    match direct {
        Direct::Yes => {
            let Alignment { memory, offset } = alignment;
            let found = format!("memory by {memory}, offsets and lengths by {offset} bytes");
            full("direct I/O", found)
                .means("requests bypass the kernel's page cache; less aligned requests are copied")
        }
        Direct::Refused(reason) => missing("direct I/O", reason.as_str())
            .means(
                "requests go through the kernel's page cache, which keeps a second copy of the data",
            )
            .remedy("use a file system with direct I/O: XFS, ext4 (not data=journal), btrfs"),
    }
}

/// `RWF_DONTCACHE` one way. Batches use it if it is there; arms of a comparison need it.
pub(super) fn uncached_one(way: &str, tried: &io::Result<()>, beside: &str) -> Finding {
    let name = format!("uncached {way}");
    match tried {
        Ok(()) => full(&name, format!("RWF_DONTCACHE is supported{beside}"))
            .means("the arm `kernel uncached` of a comparison can run"),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => missing(
            &name,
            format!("RWF_DONTCACHE is not supported{beside}"),
        )
        .means("Forebay does not need it; the arm `kernel uncached` of a comparison is left out")
        .remedy("use Linux 6.15 or newer with XFS, 6.17 or newer with ext4"),
        Err(error) => unknown(&name, format!("cannot try it: {error}"))
            .means("Forebay does not need it; the arm `kernel uncached` of a comparison does"),
    }
}

fn lease(place: &Place, tried: &Tried, process: &Process) -> Finding {
    let lost = |found: &str| {
        missing("write lease", found).means(
            "files count as shared with other programs: clean pages are not kept, holes are not filled with zeroes, \
             and reserved space is not given back",
        )
    };
    let foreign =
        place.kind == Kind::File && place.owner != process.user && !process.may(Capability::Lease);
    if let Coverage::NotEveryone(name) = &tried.coverage {
        return lost(&format!("of no use on {name}: its files can change without breaking it"))
            .remedy(
                "use XFS, ext4, btrfs or tmpfs; if no other program writes a file, open it with \
                 Open::exclusive",
            );
    }
    match &tried.lease {
        Err(_) if tried.leases_enabled == Some(0) => lost("switched off: fs.leases-enable is 0")
            .root("switch it on until the next boot", "sysctl -w fs.leases-enable=1"),
        Err(error) => match error.raw_os_error() {
            Some(libc::EACCES) => lost(&format!("refused to this user: {error}"))
                .remedy("use files that this user owns, or CAP_LEASE"),
            Some(libc::EAGAIN) => lost("refused: other processes hold every file open here")
                .remedy("use a file system in the kernel, such as XFS or ext4"),
            _ => lost(&format!("not supported by the file system: {error}"))
                .remedy("use XFS, ext4, btrfs or tmpfs"),
        },
        Ok(()) if foreign => lost(&format!(
            "the file belongs to user {}, but this is user {}",
            place.owner, process.user
        ))
        .root(
            "give the file to this user, or the program CAP_LEASE",
            format!("chown {} {}", process.user, quoted(&place.path)),
        ),
        Ok(()) => full("write lease", "granted").means(
            "an engine uses a file alone until another program opens it, and is notified then",
        ),
    }
}

fn reservation(tried: &Tried) -> Finding {
    match &tried.reserve {
        Ok(()) => full("reservation", "space beyond the end can be allocated")
            .means("growing files stay in one piece"),
        Err(error) => missing("reservation", format!("fallocate: {error}"))
            .means("files that grow together are fragmented; a full disk is reported at the sync, not at the write")
            .remedy("use a file system with fallocate (XFS, ext4, btrfs), or free space on this one"),
    }
}

fn mark(tried: &Tried) -> Finding {
    match &tried.mark {
        Ok(()) => full("reservation mark", "user extended attributes work")
            .means("space reserved before a crash is given back at the next open"),
        Err(error) => missing("reservation mark", format!("no user extended attributes: {error}"))
        .means("no space is reserved beyond the end of a file: files that grow together are fragmented")
        .remedy("use a file system that has them (XFS, ext4 without nouser_xattr, btrfs)"),
    }
}

fn hint(place: &Place, hint: Option<u32>) -> Finding {
    let Some(hint) = hint else {
        return full("extent-size hint", "none").means("space is allocated as Forebay reserves it");
    };
    let means = "each write into a hole allocates this much space";
    let finding = degraded("extent-size hint", bytes(f64::from(hint))).means(means);
    let path = quoted(&place.directory);
    match place.kind {
        Kind::File => finding
            .remedy("a file that has data keeps its hint; copy it to a directory without one"),
        _ => finding.user(
            "remove it from the directory (existing files keep theirs)",
            format!("xfs_io -c 'extsize 0' {path}"),
        ),
    }
}

/// Of the file that the place is.
fn pieces(place: &Place, own: &Own) -> Option<Finding> {
    let Extents { count, bytes: length } = own.pieces.filter(|pieces| pieces.count > 0)?;
    let found = format!("{} of data in {count}", bytes(length as f64));
    if count == 1 || length / count >= REQUEST_BYTES {
        let means = "requests have their full size";
        return Some(full("pieces of the file", found).means(means));
    }
    let path = quoted(&place.path);
    Some(
        degraded("pieces of the file", found)
            .means("a request ends at the end of each piece")
            .user(
                "copy it while no program has it open",
                format!("cp -p --reflink=never {path} {path}.new && mv {path}.new {path}"),
            ),
    )
}
