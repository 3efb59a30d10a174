//! The block device of a place, and its queue. A place that is a device is opened as an engine
//! opens it, and only read.

use std::io;
use std::path::Path;
use std::time::Duration;

use forebay_uring::probe::mounted_at;
use forebay_uring::{Access, Create, Direct, How, OpenFile, Truncate};

use super::facts::{Facts, Kind};
use super::finding::{Finding, advised, degraded, full, missing, quoted};
use crate::chosen::chosen;

/// The largest request, and its pieces if memory has small pages.
const REQUEST_KIB: u64 = 1024;
const REQUEST_PIECES: u64 = 256;

pub(super) fn access(facts: &Facts) -> Option<Finding> {
    let place = facts.place.path.as_path();
    if facts.place.kind != Kind::Device {
        return None;
    }
    let how = How { access: Access::Read, create: Create::No, truncate: Truncate::Keep, mode: 0 };
    let error = match OpenFile::open_within(place, &how, Duration::ZERO).map(drop) {
        Ok(()) => return writable(facts),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => return busy(place),
        Err(error) => error.to_string(),
    };
    let lost = missing(error, "this user cannot use it");
    match facts.process.user {
        0 => lost.advise("allow the device in the container, for example with docker's --device"),
        user => lost.root(
            "give it to this user, until it is plugged in again",
            format!("chown {user} {}", quoted(place)),
        ),
    }
}

fn writable(facts: &Facts) -> Option<Finding> {
    let number = facts.place.device;
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    if facts.tree.number(format!("/sys/dev/block/{major}:{minor}/ro")) != Some(1) {
        return full("nobody else has it", "Forebay can open it exclusively");
    }
    degraded("read only", "Forebay can read it, but not write to it").root(
        "make it writable, if the device itself allows it",
        format!("blockdev --setrw {}", quoted(&facts.place.path)),
    )
}

fn busy(path: &Path) -> Option<Finding> {
    let means = "Forebay opens a device exclusively or not at all";
    if let Some(point) = mounted_at(path) {
        return missing(format!("mounted at {}", point.display()), means)
            .root("unmount it", format!("umount {}", quoted(&point)));
    }
    missing("in use: a partition of it is mounted, or it is swap or part of another device", means)
        .root("who has it", format!("lsblk {}", quoted(path)))
}

/// Judges the file below a loop device, or the devices it is made of.
pub(super) fn below(facts: &Facts) -> Option<Finding> {
    let disk = facts.disk.as_ref()?;
    let Some(file) = disk.files.word("/loop/backing_file") else {
        let slaves = disk.files.names("/slaves");
        let found = format!("{} is made of {}", disk.name, slaves.join(", "));
        return advised(found, "their queues matter as well")
            .root("check them as well", format!("forebay doctor /dev/{}", slaves.first()?));
    };
    let found = format!("{} is the file {file}", disk.name);
    if disk.files.number("/loop/dio") == Some(1) {
        return advised(found, "its file system and device matter as well")
            .user("check it as well", format!("forebay doctor {}", quoted(file)));
    }
    let means =
        "the backing file goes through the kernel's page cache, and a flush writes that out";
    degraded(found, means).root(
        "use direct I/O for the backing file",
        format!("losetup --direct-io=on /dev/{}", disk.name),
    )
}

pub(super) fn scheduler(facts: &Facts) -> Option<Finding> {
    let disk = facts.disk.as_ref()?;
    let list = disk.queue("scheduler")?;
    let has = |name: &str| list.split([' ', '[', ']']).any(|one| one == name);
    let wanted = if disk.rotates() { "mq-deadline" } else { "none" };
    let chosen = chosen(&list);
    if chosen == wanted || !has(wanted) {
        return full(
            chosen,
            match chosen {
                "none" => "requests go to the device as Forebay has ordered them",
                _ => "requests of several programs are put in the disk's order",
            },
        );
    }
    let means = match chosen {
        "none" => "a rotating disk gets the requests of several programs unordered",
        "bfq" => "every request takes its lock, and it lets the device idle for who may ask next",
        _ => "every request takes its lock, and is ordered a second time",
    };
    let what = "change it until the next boot (permanently: a udev rule)";
    degraded(chosen, means).root(what, disk.set(wanted, "scheduler"))
}

pub(super) fn request_size(facts: &Facts) -> Option<Finding> {
    let disk = facts.disk.as_ref()?;
    let (kib, segments) = (disk.queue_number("max_sectors_kb")?, disk.queue_number("max_segments"));
    let pieces = segments.map(|pieces| format!(" in {pieces} pieces")).unwrap_or_default();
    let found = format!("up to {kib} KiB{pieces}");
    if kib < REQUEST_KIB {
        let lost = degraded(found, "a request of 1 MiB is split into several");
        let possible = disk.queue_number("max_hw_sectors_kb").unwrap_or(0).min(REQUEST_KIB);
        if possible <= kib {
            return lost.advise("none: this is the device's limit");
        }
        let larger = disk.set(&possible.to_string(), "max_sectors_kb");
        return lost.root("raise it to the device's maximum", larger);
    }
    if segments.is_some_and(|most| most < REQUEST_PIECES) && !facts.has_huge_pages() {
        let means = "with small pages a request of 1 MiB has 256 segments and is split";
        return degraded(found, means).advise("allow huge pages (see huge pages)");
    }
    full(found, "a request of 1 MiB stays whole")
}

pub(super) fn wbt(facts: &Facts) -> Option<Finding> {
    let disk = facts.disk.as_ref()?;
    let latency = disk.files.number::<i64>("/queue/wbt_lat_usec").filter(|latency| *latency > 0);
    let Some(latency) = latency else {
        disk.queue("scheduler")?;
        return full("off", "writes are not held back for reads");
    };
    let found = format!("{latency} us (wbt_lat_usec)");
    if facts.file().is_none_or(|file| *file.direct() == Direct::Yes) {
        let means = "the kernel's writeback slows down when reads are slow; Forebay's direct \
                     writes do not";
        return full(found, means);
    }
    let means = "without direct I/O Forebay's writes are held back as well when reads are slow";
    degraded(found, means).root("switch it off", disk.set("0", "wbt_lat_usec"))
}

pub(super) fn rotational(facts: &Facts) -> Option<Finding> {
    let disk = facts.disk.as_ref()?;
    match (disk.queue_number("rotational")?, disk.is_virtual()) {
        (0, _) => full("no", "the order of requests does not matter"),
        (_, true) => {
            let means = "file systems and schedulers optimize for a moving head";
            degraded("yes, reported by a virtual device", means)
                .root("declare it as not rotating", disk.set("0", "rotational"))
        }
        _ => full("yes", "a rotating disk: each scattered request costs milliseconds"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::Disk;
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
