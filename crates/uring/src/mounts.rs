//! The kernel's table of mounted file systems, and the mount that a path is on.
//!
//! A path is looked up by the kernel: it is opened with `O_PATH`, which resolves links and asks no
//! file system, not even a dead one. The number of its mount finds the line of the table. The
//! text of a path finds nothing here, because the table has real paths alone, with some bytes
//! written as octal numbers.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// A mounted file system: a line of `/proc/thread-self/mountinfo`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// Number of the mount. The kernel may give it to another one after an unmount.
    pub number: u64,
    /// Major and minor number of the file system.
    pub device: (u32, u32),
    /// Path within the file system of the directory that is mounted.
    pub root: PathBuf,
    /// Mount point.
    pub point: PathBuf,
    /// Type, as `mount` prints it.
    pub file_system: String,
    /// The mounted thing, mostly a device node.
    pub source: PathBuf,
    /// Options of the mount, then those of the file system that differ.
    pub options: String,
}

impl Mount {
    /// Returns all mounts that this thread sees, in the order of the table.
    ///
    /// # Errors
    /// The error of the system, for instance without `/proc`.
    pub fn all() -> io::Result<Vec<Self>> {
        fs::read("/proc/thread-self/mountinfo").map(|table| Self::listed(&table))
    }

    /// Returns the mounts in the text of such a table.
    #[must_use]
    pub fn listed(table: &[u8]) -> Vec<Self> {
        table.split(|&byte| byte == b'\n').filter_map(parse).collect()
    }

    /// Returns the mount that a path is on. Returns `None` if it is on no mount of the table, such
    /// as one that was detached.
    ///
    /// # Errors
    /// The error of the system for the path or the table.
    pub fn of(path: &Path) -> io::Result<Option<Self>> {
        Ok(found(path)?.map(|(mount, _)| mount))
    }

    /// Returns the mount whose mount point is this path, the uppermost one.
    ///
    /// # Errors
    /// As [`Mount::of`].
    pub fn at(path: &Path) -> io::Result<Option<Self>> {
        Ok(found(path)?.and_then(|(mount, full)| (mount.point == full).then_some(mount)))
    }

    /// Returns the mount with a number.
    ///
    /// # Errors
    /// The error of the system for the table.
    pub fn numbered(number: u64) -> io::Result<Option<Self>> {
        Ok(Self::all()?.into_iter().find(|mount| mount.number == number))
    }
}

/// The mount of a path, and the full path.
fn found(path: &Path) -> io::Result<Option<(Mount, PathBuf)>> {
    let opened = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let full = fs::read_link(format!("/proc/thread-self/fd/{}", opened.as_raw_fd()))?;
    let mount = Mount::numbered(number_of(&opened)?)?;
    Ok(mount.map(|mount| (mount, full)))
}

/// Returns the number of the mount that a descriptor was opened in. Asks no file system.
///
/// # Errors
/// The error of the system.
pub fn number_of(file: impl AsFd) -> io::Result<u64> {
    let number = file.as_fd().as_raw_fd();
    let text = fs::read_to_string(format!("/proc/thread-self/fdinfo/{number}"))?;
    let number = text.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    let number = number.and_then(|number| number.trim().parse().ok());
    number.ok_or_else(|| io::Error::other("the kernel names no mount of a descriptor"))
}

/// Fields: 1 the number; 3 the device's numbers; 4 the root; 5 the point; 6 its options; after a
/// lone dash the file system, its source and its options.
fn parse(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    let (major, minor) = std::str::from_utf8(fields.get(2)?).ok()?.split_once(':')?;
    let text = |at: usize| Some(OsStr::from_bytes(fields.get(at)?).to_string_lossy());
    let (of_mount, of_file_system) = (text(5)?, text(dash + 3).unwrap_or_default());
    let mut options: Vec<&str> = of_mount.split(',').collect();
    for option in of_file_system.split(',') {
        if !option.is_empty() && !options.contains(&option) {
            options.push(option);
        }
    }
    Some(Mount {
        number: text(0)?.parse().ok()?,
        device: (major.parse().ok()?, minor.parse().ok()?),
        root: unescape(fields.get(3)?),
        point: unescape(fields.get(4)?),
        file_system: text(dash + 1)?.into_owned(),
        source: unescape(fields.get(dash + 2)?),
        options: options.join(","),
    })
}

/// Blanks, tabs, line ends, backslashes and `#` stand as three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let octal = tail
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_with_their_odd_bytes() {
        let line = br"36 35 98:0 /a\011b /mnt/with\040blank\012 rw,noatime master:1 - ext3 /dev/ro\134ot rw,errors=continue";
        let mount = parse(line).unwrap();
        let expected = Mount {
            number: 36,
            device: (98, 0),
            root: "/a\tb".into(),
            point: "/mnt/with blank\n".into(),
            file_system: "ext3".into(),
            source: r"/dev/ro\ot".into(),
            options: "rw,noatime,errors=continue".into(),
        };
        assert_eq!(mount, expected);
        assert_eq!(Mount::listed(b"36 35\ngarbage\n"), []);
    }

    #[test]
    fn a_path_is_on_the_mount_that_the_kernel_finds_by_any_name() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("/proc", &link).unwrap();
        let kind = |mount: io::Result<Option<Mount>>| mount.unwrap().map(|mount| mount.file_system);
        for path in ["/proc", "/proc/", "/proc/../proc", link.to_str().unwrap()] {
            assert_eq!(kind(Mount::at(path.as_ref())).as_deref(), Some("proc"), "{path}");
        }
        assert_eq!(kind(Mount::of("/proc/self/status".as_ref())).as_deref(), Some("proc"));
        assert_eq!(Mount::at("/proc/self".as_ref()).unwrap(), None);
        assert_eq!(Mount::at(directory.path()).unwrap(), None);
        let missing = Mount::of(&directory.path().join("missing")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
