//! How the kernel gives a batch of requests their tags, and whether it merges neighbours in a plug.
//!
//! A batch gets its tags in one sweep if the device has no scheduler and a set of tags of its own.
//! Two faults of Linux are judged by the version. A kernel may have the correction earlier.

use std::path::Path;

use forebay_uring::probe::KernelVersion;

use super::finding::{Finding, degraded, full};
use super::tree::Tree;
use crate::chosen::chosen;

/// First kernel that takes the tags of a batch together.
const BATCHES: KernelVersion = KernelVersion { major: 5, minor: 16 };

/// First kernel that tries again until the batch has all its tags.
const WHOLE_BATCHES: KernelVersion = KernelVersion { major: 6, minor: 19 };

/// First kernel whose plug no longer merges at its tail, and the first that does again.
const LOST_MERGES: KernelVersion = KernelVersion { major: 6, minor: 13 };
const MERGES: KernelVersion = KernelVersion { major: 6, minor: 16 };

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Tags {
    version: KernelVersion,
    has_scheduler: bool,
    merges: bool,
    /// Hardware queues have tags; a device of the device mapper has none. An NVMe namespace with
    /// several paths has those of its paths.
    has_tags: bool,
    /// Disks that take their tags from the same set.
    others: Vec<String>,
}

impl Tags {
    /// Reads the facts of a disk from its directory in `/sys`.
    pub(super) fn of(disk: &Path, version: KernelVersion) -> Self {
        let tree = Tree::below(disk);
        Self {
            version,
            has_scheduler: tree
                .word("/queue/scheduler")
                .is_some_and(|list| chosen(&list) != "none"),
            merges: tree.number::<u32>("/queue/nomerges").unwrap_or(0) == 0,
            has_tags: !tree.names("/mq").is_empty() || is_subsystem(disk),
            others: others(disk),
        }
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        [self.tags(), self.merges()].into_iter().flatten().collect()
    }

    fn tags(&self) -> Option<Finding> {
        if !self.has_tags {
            return None;
        }
        let version = self.version;
        Some(if !self.others.is_empty() {
            degraded("tags", format!("shared with {}", self.others.join(", ")))
                .means("each request takes its tag alone; a busy disk leaves this one fewer")
                .remedy("put the files on a disk with a controller of its own")
        } else if version < BATCHES {
            degraded("tags", format!("one at a time in Linux {version}"))
                .means("a batch of requests saves the kernel less than it could")
                .remedy("run Linux 5.16 or newer")
        } else if self.has_scheduler {
            full("tags", "one at a time, because of the scheduler")
                .means("the scheduler decides anyway which request gets a tag")
        } else if version < WHOLE_BATCHES {
            degraded("tags", format!("a batch may get only a part of them in Linux {version}"))
                .means("the other requests take their tags alone, which costs processor time")
                .remedy("run Linux 6.19, or a kernel with commit ddc32b7f2921")
        } else {
            full("tags", "together for a batch").means("a batch takes its tags in one sweep")
        })
    }

    fn merges(&self) -> Option<Finding> {
        let version = self.version;
        let is_lost = self.has_tags && self.merges && LOST_MERGES <= version && version < MERGES;
        is_lost.then(|| {
            let found = format!("not at the tail of a plug in Linux {version}");
            degraded("merges", found)
                .means("requests of other programs stay unmerged; Forebay merges its own")
                .remedy("run Linux 6.16, or a kernel with commit 961296e89dc3")
        })
    }
}

/// Returns the disks beside this one that have the same controller. Namespaces of an NVMe
/// controller and disks of a SCSI host share a set of tags.
fn others(disk: &Path) -> Vec<String> {
    let own = name(disk);
    let Some(parent) = disk.parent() else { return Vec::new() };
    let mut found = if is_numbered(&name(parent), &["nvme", "nvme-subsys"]) {
        namespaces(parent)
    } else {
        let host = disk.ancestors().find(|place| is_numbered(&name(place), &["host"]));
        host.map(scsi_disks).unwrap_or_default()
    };
    found.retain(|other| *other != own);
    found
}

/// Returns the namespaces below a controller or subsystem. Paths of a namespace with several
/// controllers (`nvme0c1n1`) are not disks of their own.
fn namespaces(controller: &Path) -> Vec<String> {
    let tree = Tree::below(controller);
    let is_namespace = |name: &String| {
        name.starts_with("nvme") && !name["nvme".len()..].contains('c') && {
            tree.place(format!("/{name}/queue")).is_dir()
        }
    };
    tree.names("/").into_iter().filter(is_namespace).collect()
}

/// Returns the disks of a host: `hostN/targetN:C:T/N:C:T:L/block/NAME`.
fn scsi_disks(host: &Path) -> Vec<String> {
    let tree = Tree::below(host);
    let below = |path: &String| {
        let names = tree.names(path).into_iter();
        names.map(|name| format!("{path}/{name}")).collect::<Vec<_>>()
    };
    let targets = below(&String::new()).into_iter().filter(|path| path.starts_with("/target"));
    let units = targets.flat_map(|target| below(&target));
    let mut names: Vec<String> =
        units.flat_map(|unit| tree.names(format!("{unit}/block"))).collect();
    names.sort();
    names
}

fn is_subsystem(disk: &Path) -> bool {
    disk.parent().is_some_and(|parent| is_numbered(&name(parent), &["nvme-subsys"]))
}

fn name(place: &Path) -> String {
    place.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn is_numbered(name: &str, kinds: &[&str]) -> bool {
    let number = |kind: &&str| name.strip_prefix(*kind).and_then(|rest| rest.parse::<u32>().ok());
    kinds.iter().any(|kind| number(kind).is_some())
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::tree::fake::Fake;
    use super::*;

    const NEW: KernelVersion = KernelVersion { major: 7, minor: 0 };

    fn disk(fake: &Fake, path: &str, scheduler: &str) {
        fake.write(&format!("{path}/queue/scheduler"), scheduler);
        fake.write(&format!("{path}/mq/0/nr_tags"), "127\n");
    }

    fn tags(fake: &Fake, path: &str, version: KernelVersion) -> Tags {
        Tags::of(&fake.tree.place(path), version)
    }

    fn found(tags: &Tags, name: &str) -> Option<(Level, String)> {
        let finding = tags.findings().into_iter().find(|finding| finding.name == name)?;
        assert!(!finding.means.is_empty());
        assert_eq!(finding.remedy.is_some(), finding.level == Level::Degraded, "{finding:?}");
        Some((finding.level, finding.found))
    }

    fn one(minor: u32, scheduler: &str) -> Tags {
        let fake = Fake::new(&[]);
        disk(&fake, "/sys/devices/pci/nvme/nvme0/nvme0n1", scheduler);
        let version = KernelVersion { major: 6, minor };
        tags(&fake, "/sys/devices/pci/nvme/nvme0/nvme0n1", version)
    }

    #[test]
    fn batches_that_fall_short_are_found_by_the_version() {
        let level = |minor, scheduler: &str| found(&one(minor, scheduler), "tags").unwrap().0;
        assert_eq!(level(18, "[none] mq-deadline\n"), Level::Degraded);
        assert_eq!(level(19, "[none] mq-deadline\n"), Level::Full);
        assert_eq!(level(18, "none\n"), Level::Degraded);
        // A scheduler takes each tag alone in every version.
        assert_eq!(level(18, "none [mq-deadline]\n"), Level::Full);
        let old = KernelVersion { major: 5, minor: 15 };
        let old = Tags { version: old, ..one(18, "[none]\n") };
        assert!(found(&old, "tags").unwrap().1.contains("one at a time in Linux 5.15"));
    }

    #[test]
    fn lost_merges_are_found_by_the_version() {
        let level = |minor| found(&one(minor, "[none]\n"), "merges").map(|(level, _)| level);
        assert_eq!(level(12), None);
        assert_eq!(level(13), Some(Level::Degraded));
        assert_eq!(level(15), Some(Level::Degraded));
        assert_eq!(level(16), None);
        // Nobody merges there anyway.
        let off = Tags { merges: false, ..one(15, "[none]\n") };
        assert_eq!(found(&off, "merges"), None);
    }

    #[test]
    fn namespaces_of_a_controller_share_their_tags() {
        let fake = Fake::new(&[("/sys/devices/pci/nvme/nvme0/ng0n1/dev", "1:1\n")]);
        let controller = "/sys/devices/pci/nvme/nvme0";
        for name in ["nvme0n1", "nvme0n2", "nvme0c0n3"] {
            disk(&fake, &format!("{controller}/{name}"), "[none]\n");
        }
        let first = tags(&fake, &format!("{controller}/nvme0n1"), NEW);
        assert_eq!(
            found(&first, "tags"),
            Some((Level::Degraded, "shared with nvme0n2".to_owned()))
        );
        // With several paths the disks are those of the subsystem, which have no queues.
        let subsystem = "/sys/devices/virtual/nvme-subsystem/nvme-subsys0";
        fake.write(&format!("{subsystem}/nvme0n1/queue/scheduler"), "none\n");
        fake.write(&format!("{subsystem}/nvme0n2/queue/scheduler"), "none\n");
        let first = tags(&fake, &format!("{subsystem}/nvme0n1"), NEW);
        assert_eq!(found(&first, "tags").unwrap().1, "shared with nvme0n2");
        disk(&fake, "/sys/devices/pci/nvme/nvme1/nvme1n1", "[none]\n");
        let alone = tags(&fake, "/sys/devices/pci/nvme/nvme1/nvme1n1", NEW);
        assert_eq!(found(&alone, "tags").unwrap().0, Level::Full);
    }

    #[test]
    fn disks_of_a_host_share_their_tags() {
        let fake = Fake::new(&[]);
        let unit = |host: u32, unit: u32, name: &str| {
            format!(
                "/sys/devices/pci/host{host}/target{host}:0:{unit}/{host}:0:{unit}:0/block/{name}"
            )
        };
        for (host, number, name) in [(2, 0, "sda"), (2, 1, "sdb"), (3, 0, "sdc")] {
            disk(&fake, &unit(host, number, name), "[none]\n");
        }
        let first = tags(&fake, &unit(2, 0, "sda"), NEW);
        assert_eq!(found(&first, "tags").unwrap().1, "shared with sdb");
        assert_eq!(found(&tags(&fake, &unit(3, 0, "sdc"), NEW), "tags").unwrap().0, Level::Full);
    }

    #[test]
    fn a_device_without_hardware_queues_has_no_tags() {
        let fake = Fake::new(&[("/sys/devices/virtual/block/dm-0/queue/scheduler", "none\n")]);
        let old = KernelVersion { major: 6, minor: 15 };
        assert!(tags(&fake, "/sys/devices/virtual/block/dm-0", old).findings().is_empty());
    }
}
