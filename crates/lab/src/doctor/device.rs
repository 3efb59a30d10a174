//! The block device of a place, and its queue. A place that is a device is opened as an engine
//! opens it, and only read.

use std::io;
use std::path::Path;
use std::time::Duration;

use forebay_uring::probe::mounted_at;
use forebay_uring::{Access, Create, Direct, How, OpenFile, Truncate};

use super::facts::{Disk, Facts, Kind};
use super::finding::{Finding, degraded, full, missing, quoted};
use super::machine::has_huge_pages;
use crate::chosen::chosen;

/// The largest request, and its pieces if memory has small pages.
const REQUEST_KIB: u64 = 1024;
const REQUEST_PIECES: u64 = 256;

/// Opens a device for reading as an engine does.
fn exclusive(path: &Path) -> io::Result<()> {
    let how = How { access: Access::Read, create: Create::No, truncate: Truncate::Keep, mode: 0 };
    OpenFile::open_within(path, &how, Duration::ZERO).map(drop)
}

/// Judges whether an engine can have the place that is a device.
pub(super) fn access(facts: &Facts) -> Option<Finding> {
    let place = facts.place.path.as_path();
    if facts.place.kind != Kind::Device {
        return None;
    }
    let (major, minor) =
        (rustix::fs::major(facts.place.device), rustix::fs::minor(facts.place.device));
    let read_only = facts.tree.number::<u32>(format!("/sys/dev/block/{major}:{minor}/ro"));
    let path = quoted(place);
    Some(match exclusive(place) {
        Ok(()) if read_only == Some(1) => {
            degraded("read only").means("Forebay can read it, but not write to it").root(
                "make it writable, if the device itself allows it",
                format!("blockdev --setrw {path}"),
            )
        }
        Ok(()) => full("nobody else has it").means("Forebay can open it exclusively"),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => busy(place),
        Err(error) => {
            let lost = missing(error.to_string()).means("this user cannot use it");
            match facts.process.user {
                0 => lost.remedy(
                    "allow the device in the container, for example with docker's --device",
                ),
                user => lost.root(
                    "give it to this user, until it is plugged in again",
                    format!("chown {user} {path}"),
                ),
            }
        }
    })
}

fn busy(path: &Path) -> Finding {
    let means = "Forebay opens a device exclusively or not at all";
    match mounted_at(path) {
        Some(point) => missing(format!("mounted at {}", point.display()))
            .means(means)
            .root("unmount it", format!("umount {}", quoted(&point))),
        None => {
            missing("in use: a partition of it is mounted, or it is swap or part of another device")
                .means(means)
                .root("who has it", format!("lsblk {}", quoted(path)))
        }
    }
}

impl Disk {
    /// Returns the command that changes a setting of the queue.
    fn set(&self, value: &str, file: &str) -> String {
        format!("echo {value} > /sys/block/{}/queue/{file}", self.name)
    }

    /// Returns whether it is made of memory or by a host: such a device reports that it rotates,
    /// and does not.
    fn is_virtual(&self) -> bool {
        ["vd", "xvd", "nbd", "loop", "zram", "ram"].iter().any(|begin| self.name.starts_with(begin))
    }

    fn rotates(&self) -> bool {
        self.queue_number("rotational") == Some(1) && !self.is_virtual()
    }
}

/// Judges the file below a loop device, or the devices it is made of.
pub(super) fn below(facts: &Facts) -> Option<Finding> {
    let disk = facts.disk.as_ref()?;
    let Some(file) = disk.files.word("/loop/backing_file") else {
        let slaves = disk.files.names("/slaves");
        let first = slaves.first()?;
        return Some(
            full(format!("{} is made of {}", disk.name, slaves.join(", ")))
                .means("their queues matter as well")
                .root("check them as well", format!("forebay doctor /dev/{first}")),
        );
    };
    let found = format!("{} is the file {file}", disk.name);
    if disk.files.number::<u32>("/loop/dio") == Some(1) {
        return Some(
            full(found)
                .means("its file system and device matter as well")
                .user("check it as well", format!("forebay doctor {}", quoted(file))),
        );
    }
    Some(
        degraded(found)
            .means(
                "the backing file goes through the kernel's page cache, and a flush writes that out",
            )
            .root(
                "use direct I/O for the backing file",
                format!("losetup --direct-io=on /dev/{}", disk.name),
            ),
    )
}

/// Judges the scheduler.
pub(super) fn scheduler(facts: &Facts) -> Option<Finding> {
    let disk = facts.disk.as_ref()?;
    let list = disk.queue("scheduler")?;
    let has = |name: &str| list.split([' ', '[', ']']).any(|one| one == name);
    let wanted = if disk.rotates() { "mq-deadline" } else { "none" };
    let chosen = chosen(&list);
    if chosen == wanted || !has(wanted) {
        return Some(full(chosen).means(match chosen {
            "none" => "requests go to the device as Forebay has ordered them",
            _ => "requests of several programs are put in the disk's order",
        }));
    }
    let lost = degraded(chosen).means(match chosen {
        "none" => "a rotating disk gets the requests of several programs unordered",
        "bfq" => "every request takes its lock, and it lets the device idle for who may ask next",
        _ => "every request takes its lock, and is ordered a second time",
    });
    let what = "change it until the next boot (permanently: a udev rule)";
    Some(lost.root(what, disk.set(wanted, "scheduler")))
}

/// Judges whether a request of 1 MiB stays whole.
pub(super) fn request_size(facts: &Facts) -> Option<Finding> {
    let disk = facts.disk.as_ref()?;
    let (kib, segments) = (disk.queue_number("max_sectors_kb")?, disk.queue_number("max_segments"));
    let pieces = segments.map(|pieces| format!(" in {pieces} pieces")).unwrap_or_default();
    let found = format!("up to {kib} KiB{pieces}");
    let possible = disk.queue_number("max_hw_sectors_kb").unwrap_or(0).min(REQUEST_KIB);
    Some(if kib < REQUEST_KIB {
        let lost = degraded(found).means("a request of 1 MiB is split into several");
        if possible > kib {
            let larger = disk.set(&possible.to_string(), "max_sectors_kb");
            lost.root("raise it to the device's maximum", larger)
        } else {
            lost.remedy("none: this is the device's limit")
        }
    } else if segments.is_some_and(|most| most < REQUEST_PIECES) && !has_huge_pages(facts) {
        degraded(found)
            .means("with small pages a request of 1 MiB has 256 segments and is split")
            .remedy("allow huge pages (see huge pages)")
    } else {
        full(found).means("a request of 1 MiB stays whole")
    })
}

/// Judges the write-back throttling.
pub(super) fn wbt(facts: &Facts) -> Option<Finding> {
    let disk = facts.disk.as_ref()?;
    let latency = disk.files.number::<i64>("/queue/wbt_lat_usec").filter(|latency| *latency > 0);
    let Some(latency) = latency else {
        disk.queue("scheduler")?;
        return Some(full("off").means("writes are not held back for reads"));
    };
    let found = format!("{latency} us (wbt_lat_usec)");
    let trial = facts.trial.as_ref().and_then(|trial| trial.as_ref().ok());
    if trial.is_none_or(|trial| trial.direct == Direct::Yes) {
        return Some(full(found).means(
            "the kernel's writeback slows down when reads are slow; Forebay's direct writes do not",
        ));
    }
    Some(
        degraded(found)
            .means("without direct I/O Forebay's writes are held back as well when reads are slow")
            .root("switch it off", disk.set("0", "wbt_lat_usec")),
    )
}

/// Judges whether the device reports that it rotates.
pub(super) fn rotational(facts: &Facts) -> Option<Finding> {
    let disk = facts.disk.as_ref()?;
    Some(match (disk.queue_number("rotational")?, disk.is_virtual()) {
        (0, _) => full("no").means("the order of requests does not matter"),
        (_, true) => degraded("yes, reported by a virtual device")
            .means("file systems and schedulers optimize for a moving head")
            .root("declare it as not rotating", disk.set("0", "rotational")),
        _ => full("yes").means("a rotating disk: each scattered request costs milliseconds"),
    })
}

#[cfg(test)]
mod tests {
    use super::super::facts::fake::Fake;
    use super::super::finding::Level;
    use super::*;

    /// A fast disk, set as most are.
    fn disk(name: &str) -> Fake {
        let at = format!("/sys/devices/pci/{name}");
        let mut fake = Fake::new(&[("/sys/kernel/mm/transparent_hugepage/enabled", "[madvise]")]);
        for (file, text) in [
            ("queue/scheduler", "[none] mq-deadline kyber bfq \n"),
            ("queue/wbt_lat_usec", "2000\n"),
            ("queue/rotational", "0\n"),
            ("queue/max_sectors_kb", "1280\n"),
            ("queue/max_hw_sectors_kb", "2048\n"),
            ("queue/max_segments", "127\n"),
        ] {
            fake.write(&format!("{at}/{file}"), text);
        }
        fake.link("/sys/dev/block/8:0", &at);
        fake.facts.disk = Disk::of(&fake.facts.tree, rustix::fs::makedev(8, 0));
        fake
    }

    /// Changes files of the disk, and looks with one check.
    fn with(name: &str, files: &[(&str, &str)], look: fn(&Facts) -> Option<Finding>) -> Finding {
        let fake = disk(name);
        for (file, text) in files {
            fake.write(&format!("/sys/devices/pci/{name}/{file}"), text);
        }
        look(&fake.facts).unwrap()
    }

    fn line(finding: &Finding) -> &str {
        let command = finding.remedy.as_ref().and_then(|remedy| remedy.command.as_ref());
        command.map_or("", |command| &command.line)
    }

    #[test]
    fn a_fast_disk_is_full() {
        let fake = disk("sda");
        let all = [scheduler, request_size, wbt, rotational];
        for look in all {
            let finding = look(&fake.facts).unwrap();
            assert_eq!(finding.level, Level::Full, "{finding:?}");
            assert!(look(&Fake::new(&[]).facts).is_none(), "no disk, no finding");
        }
        assert!(below(&fake.facts).is_none());
        assert!(access(&fake.facts).is_none());
    }

    #[test]
    fn the_scheduler_depends_on_rotation() {
        let rotates = ("queue/rotational", "1\n");
        let of = |name, list, more: &[_]| {
            with(name, &[&[("queue/scheduler", list)], more].concat(), scheduler)
        };
        let slow = of("sda", "none [mq-deadline] bfq\n", &[]);
        assert_eq!(slow.level, Level::Degraded);
        assert_eq!(line(&slow), "echo none > /sys/block/sda/queue/scheduler");
        let unordered = of("sda", "[none] mq-deadline bfq\n", &[rotates]);
        assert_eq!(line(&unordered), "echo mq-deadline > /sys/block/sda/queue/scheduler");
        // A virtual disk only reports that it rotates.
        assert_eq!(of("vda", "[none] mq-deadline\n", &[rotates]).level, Level::Full);
        // Without a choice there is nothing to change.
        assert_eq!(of("sda", "[bfq]\n", &[]).level, Level::Full);
    }

    #[test]
    fn settings_in_the_way_are_found_with_their_commands() {
        for (files, look, command) in [
            (
                &[("queue/rotational", "1\n")][..],
                rotational as fn(&Facts) -> _,
                "echo 0 > /sys/block/vda/queue/rotational",
            ),
            (
                &[("queue/max_sectors_kb", "512\n")],
                request_size,
                "echo 1024 > /sys/block/vda/queue/max_sectors_kb",
            ),
            (
                &[("loop/backing_file", "/a b\n"), ("loop/dio", "0\n")],
                below,
                "losetup --direct-io=on /dev/vda",
            ),
        ] {
            let found = with("vda", files, look);
            assert_eq!((found.level, line(&found)), (Level::Degraded, command));
        }
        let limit = [("queue/max_sectors_kb", "512\n"), ("queue/max_hw_sectors_kb", "512\n")];
        assert_eq!(
            with("vda", &limit, request_size).remedy.unwrap().what,
            "none: this is the device's limit"
        );
        let fake = disk("vda");
        fake.write("/sys/kernel/mm/transparent_hugepage/enabled", "[never]");
        assert_eq!(request_size(&fake.facts).unwrap().level, Level::Degraded, "small pages");
        let direct = with("vda", &[("loop/backing_file", "/a b\n"), ("loop/dio", "1\n")], below);
        assert_eq!(line(&direct), "forebay doctor '/a b'");
        let made = with("dm-0", &[("slaves/sda/dev", "8:0\n")], below);
        assert_eq!(line(&made), "forebay doctor /dev/sda");
    }
}
