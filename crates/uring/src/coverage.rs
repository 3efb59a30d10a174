//! Whether a lease holds off every program that can change the data of a file.
//!
//! A lease is kept by one kernel. Where the code of that kernel serves the data to all its users,
//! nobody passes the lease by. A FUSE process, a file server or the host of a virtual machine
//! serves the same data to others, whose kernels know nothing of the lease. `F_SETLEASE` may
//! succeed there all the same: before Linux 7.0, FUSE grants it unless the FUSE process has a rule
//! of its own.
//!
//! So this module lists the file systems whose leases count. A lease on any other file system, also
//! on an unknown one, holds off some programs at most.
//!
//! An overlay counts if all its layers do. Their paths may be those of another mount namespace, as
//! in a container; then the layers are unknown, and the overlay does not count.

use std::os::fd::BorrowedFd;
use std::path::Path;

use crate::mounts::{self, Mount};
use crate::probe;

/// Programs that a lease of a file holds off.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Coverage {
    /// Every program that can change the data.
    Everyone,
    /// Perhaps only programs that use the file by the same path, because of this file system.
    NotEveryone(String),
}

/// File systems that the kernel serves to all their users, by the names of [`probe::file_system`].
const COVERED: [&str; 6] = ["ext4", "xfs", "btrfs", "f2fs", "bcachefs", "tmpfs"];

impl Coverage {
    /// Returns the coverage of a lease of an open file.
    pub(crate) fn of(descriptor: BorrowedFd<'_>) -> Self {
        let Ok(found) = rustix::fs::fstatfs(descriptor) else {
            return Self::NotEveryone("a file system that cannot be examined".to_owned());
        };
        match probe::known_file_system(found.f_type) {
            Some(name) if COVERED.contains(&name) => Self::Everyone,
            Some("overlay") => of_overlay(descriptor),
            Some(name) => Self::NotEveryone(name.to_owned()),
            None => Self::NotEveryone(format!("file system {:#x}", found.f_type)),
        }
    }

    /// Returns the reason why a lease does not count, unless it holds off everyone.
    #[must_use]
    pub fn gap(&self) -> Option<String> {
        match self {
            Self::Everyone => None,
            Self::NotEveryone(name) => {
                Some(format!("a lease on {name} does not hold off all its users"))
            }
        }
    }
}

fn of_overlay(descriptor: BorrowedFd<'_>) -> Coverage {
    let uncovered = |what: &str| Coverage::NotEveryone(format!("overlay over {what}"));
    let mount = mounts::number_of(descriptor).and_then(Mount::numbered).ok().flatten();
    let options = mount.map(|mount| mount.options).unwrap_or_default();
    let layers = layers(&options);
    if layers.is_empty() {
        return uncovered("unknown layers");
    }
    for layer in layers {
        match probe::file_system(Path::new(layer)) {
            Ok(name) if COVERED.contains(&name.as_str()) => {}
            Ok(name) => return uncovered(&name),
            Err(_) => return uncovered("layers that cannot be examined"),
        }
    }
    Coverage::Everyone
}

/// Returns the directories in the options of an overlay. A directory with an escaped letter is
/// returned as it stands, and then not found.
fn layers(options: &str) -> Vec<&str> {
    let of_option = |option| {
        let (name, value): (&str, &str) = str::split_once(option, '=')?;
        let is_layer = matches!(name, "lowerdir" | "lowerdir+" | "datadir+" | "upperdir");
        is_layer.then(|| value.split(':').filter(|layer| !layer.is_empty()))
    };
    options.split(',').filter_map(of_option).flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn layers_of_an_overlay_are_found_in_its_options() {
        let found = layers("rw,relatime,lowerdir=/a:/b,upperdir=/c/diff,workdir=/c/work,xino=off");
        assert_eq!(found, ["/a", "/b", "/c/diff"]);
        assert_eq!(layers("ro,lowerdir+=/a,datadir+=/d,lowerdir+=/b"), ["/a", "/d", "/b"]);
        assert_eq!(layers("lowerdir=/a::/data"), ["/a", "/data"]);
        assert_eq!(layers("rw,relatime"), [""; 0]);
    }

    #[test]
    fn contract_06_a_lease_counts_where_the_kernel_serves_all_users() {
        let of = |path: &str| Coverage::of(std::fs::File::open(path).unwrap().as_fd());
        assert_eq!(of("/dev/shm"), Coverage::Everyone);
        assert_eq!(of("/proc/self/status"), Coverage::NotEveryone("proc".to_owned()));
    }
}
