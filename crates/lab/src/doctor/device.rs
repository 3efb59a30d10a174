//! The block device and its queue: of a place that is one, whether it can be had, too. It is only
//! read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_uring::{Access, Create, How, Mode, OpenFile, Truncate, probe};
use rustix::fs::{major, minor};

use super::files::uncached_one;
use super::finding::{Finding, degraded, full, missing, quoted, unknown};
use super::machine::HugePages;
use super::place::{Kind, Place};
use super::tags::Tags;
use super::tree::Tree;
use super::trial;
use crate::chosen::chosen;
use crate::manifest::{Storage, mount};

/// Requests of small writes that Forebay has in flight at most.
const FLIGHT: u64 = 112;

/// The largest request, and its pieces where memory has small pages.
const REQUEST_KIB: u64 = 1024;
const REQUEST_PIECES: u64 = 256;

/// Blocks the device writes without reading are no larger than a page of the cache.
const PAGE: u64 = 4096;

/// The device of a place.
#[derive(Debug)]
pub(super) struct Device {
    queue: Option<Queue>,
    tags: Option<Tags>,
    /// Of a place that is a device.
    own: Option<Own>,
}

/// Trials on a place that is a device.
#[derive(Debug)]
struct Own {
    path: PathBuf,
    user: u32,
    /// Whether it can be had for itself alone, as an engine has it; else what the system said.
    exclusive: io::Result<String>,
    mounted_at: Option<PathBuf>,
    is_read_only: bool,
    uncached_read: io::Result<()>,
    zoned: Option<String>,
}

/// Queue settings of a device; none if the kernel does not report them.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Queue {
    /// Name of the disk, also for a partition.
    name: String,
    scheduler: Option<String>,
    nomerges: Option<u64>,
    nr_requests: Option<u64>,
    io_poll: Option<u64>,
    /// In microseconds; zero is off.
    wbt_latency: Option<i64>,
    iostats: Option<u64>,
    write_cache: Option<String>,
    fua: Option<u64>,
    rotational: Option<u64>,
    logical_block: Option<u64>,
    physical_block: Option<u64>,
    max_kib: Option<u64>,
    max_hardware_kib: Option<u64>,
    max_segments: Option<u64>,
    /// Devices it is made of.
    slaves: Vec<String>,
    /// Of a loop device the file below it, and whether that is read and written direct.
    backing: Option<(String, bool)>,
}

impl Device {
    /// Returns the device that a place is, or is on.
    pub(super) fn of(tree: &Tree, place: &Place, storage: Option<&Storage>) -> Option<Self> {
        let number = match storage {
            Some(storage) => mount::device_number(&storage.device, &place.directory)?,
            None => place.own_device,
        };
        let disk = disk(tree, major(number), minor(number));
        let queue = disk.as_deref().and_then(Queue::of);
        let tags = disk.map(|disk| Tags::of(&disk, probe::kernel_version()));
        let own = (place.kind == Kind::Device).then(|| Own::of(tree, place, queue.as_ref()));
        (queue.is_some() || own.is_some()).then_some(Self { queue, tags, own })
    }

    /// `mode`: how requests of files there go.
    pub(super) fn findings(&self, mode: Mode, huge_pages: HugePages) -> Vec<Finding> {
        let mut findings = self.own.as_ref().map(Own::findings).unwrap_or_default();
        match &self.queue {
            Some(queue) => findings.extend(queue.findings(mode, huge_pages)),
            None => findings.push(
                unknown("queue", "it has none in /sys").means("its queue settings are unknown"),
            ),
        }
        findings.extend(self.tags.iter().flat_map(Tags::findings));
        findings
    }
}

impl Own {
    fn of(tree: &Tree, place: &Place, queue: Option<&Queue>) -> Self {
        let path = place.path.clone();
        let (major, minor) = (major(place.own_device), minor(place.own_device));
        let disk = |file: &str| {
            queue.and_then(|queue| tree.word(format!("/sys/block/{}/{file}", queue.name)))
        };
        Self {
            user: rustix::process::geteuid().as_raw(),
            exclusive: exclusive(&path),
            mounted_at: probe::mounted_at(&path),
            is_read_only: tree.number::<u32>(format!("/sys/dev/block/{major}:{minor}/ro"))
                == Some(1),
            uncached_read: fs::File::open(&path).and_then(trial::uncached_read_of),
            zoned: disk("queue/zoned").filter(|zoned| zoned != "none"),
            path,
        }
    }

    fn findings(&self) -> Vec<Finding> {
        let mut findings = vec![self.access()];
        findings.extend(self.zones());
        findings.push(match &self.exclusive {
            Ok(alignment) => full("direct I/O", alignment.as_str())
                .means("requests bypass the kernel's page cache"),
            Err(error) => {
                unknown("direct I/O", format!("cannot open it: {error}")).means("see access")
            }
        });
        findings.push(uncached_one("read", &self.uncached_read, ""));
        let written = match &self.uncached_read {
            Ok(()) => "not tried, for that would write; the kernel takes it both ways or neither",
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                "not tried, because that would write; a kernel that refuses it for reads refuses it for writes"
            }
            Err(_) => "not tried, for that would write",
        };
        findings.push(
            unknown("uncached write", written)
                .means("Forebay does not need it; the arm `kernel uncached` of a comparison does"),
        );
        findings
    }

    fn access(&self) -> Finding {
        let path = quoted(&self.path);
        match &self.exclusive {
            Ok(_) if self.is_read_only => degraded("access", "read only")
                .means("Forebay can read it, but not write to it")
                .root(
                    "make it writable, if the device itself allows it",
                    format!("blockdev --setrw {path}"),
                ),
            Ok(_) => full("access", "nobody else has it").means("Forebay can open it exclusively"),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                let lost = missing("access", self.why_busy())
                    .means("Forebay opens a device exclusively or not at all");
                match &self.mounted_at {
                    Some(point) => lost.root("unmount it", format!("umount {}", quoted(point))),
                    None => lost.root("who has it", format!("lsblk {path}")),
                }
            }
            Err(error) => {
                let lost = missing("access", error.to_string()).means("this user cannot use it");
                match self.user {
                    0 => lost.remedy(
                        "allow the device in the container, for example with docker's --device",
                    ),
                    user => lost.root(
                        "give it to this user, until it is plugged in again",
                        format!("chown {user} {path}"),
                    ),
                }
            }
        }
    }

    fn why_busy(&self) -> String {
        match &self.mounted_at {
            Some(point) => format!("mounted at {}", point.display()),
            None => "in use: a partition of it is mounted, or it is swap or part of another device"
                .to_owned(),
        }
    }

    fn zones(&self) -> Option<Finding> {
        let zoned = self.zoned.as_deref()?;
        Some(match zoned {
            "host-managed" => missing("zones", zoned)
                .means("its zones accept only sequential writes; Forebay writes in any order")
                .remedy("use a file system for zoned devices on it (btrfs, f2fs, XFS)"),
            _ => degraded("zones", zoned)
                .means("it writes zone by zone: scattered data is written twice")
                .remedy("write to it sequentially"),
        })
    }
}

/// Opens it for reading as an engine does, and returns its alignment.
fn exclusive(path: &Path) -> io::Result<String> {
    let how = How { access: Access::Read, create: Create::No, truncate: Truncate::Keep, mode: 0 };
    let file = OpenFile::open_within(path, &how, Duration::ZERO)?.file;
    let alignment = file.alignment();
    Ok(format!("memory by {}, offsets and lengths by {} bytes", alignment.memory, alignment.offset))
}

/// Returns the directory of a disk in `/sys`, which has the queue; of a partition that of its disk.
fn disk(tree: &Tree, major: u32, minor: u32) -> Option<PathBuf> {
    let mut disk = fs::canonicalize(tree.place(format!("/sys/dev/block/{major}:{minor}"))).ok()?;
    if !disk.join("queue").is_dir() {
        disk.pop();
    }
    disk.join("queue").is_dir().then_some(disk)
}

impl Queue {
    fn of(disk: &Path) -> Option<Self> {
        let name = disk.file_name()?.to_string_lossy().into_owned();
        // From here on below the disk itself, wherever the tree begins.
        let disk = Tree::below(disk);
        let number = |file: &str| disk.number(format!("/queue/{file}"));
        let backing = disk.word("/loop/backing_file");
        Some(Self {
            scheduler: disk.word("/queue/scheduler"),
            nomerges: number("nomerges"),
            nr_requests: number("nr_requests"),
            io_poll: number("io_poll"),
            wbt_latency: disk.number("/queue/wbt_lat_usec"),
            iostats: number("iostats"),
            write_cache: disk.word("/queue/write_cache"),
            fua: number("fua"),
            rotational: number("rotational"),
            logical_block: number("logical_block_size"),
            physical_block: number("physical_block_size"),
            max_kib: number("max_sectors_kb"),
            max_hardware_kib: number("max_hw_sectors_kb"),
            max_segments: number("max_segments"),
            slaves: disk.names("/slaves"),
            backing: backing.map(|file| (file, disk.number::<u32>("/loop/dio") == Some(1))),
            name,
        })
    }

    fn findings(&self, mode: Mode, huge_pages: HugePages) -> Vec<Finding> {
        let findings = [
            self.below(),
            self.scheduler(),
            self.nomerges(),
            self.nr_requests(),
            self.request_size(huge_pages),
            self.blocks(),
            self.io_poll(),
            self.wbt(mode),
            self.iostats(),
            self.write_cache(),
            self.rotational(),
        ];
        findings.into_iter().flatten().collect()
    }

    /// How something of the queue is set.
    fn set(&self, value: &str, file: &str) -> String {
        format!("echo {value} > /sys/block/{}/queue/{file}", self.name)
    }

    /// Made of memory or by a host: it says that it turns, and does not.
    fn is_virtual(&self) -> bool {
        ["vd", "xvd", "nbd", "loop", "zram", "ram"].iter().any(|begin| self.name.starts_with(begin))
    }

    fn turns(&self) -> bool {
        self.rotational == Some(1) && !self.is_virtual()
    }

    fn below(&self) -> Option<Finding> {
        let Some((file, is_direct)) = &self.backing else {
            let first = self.slaves.first()?;
            let found = format!("{} is made of {}", self.name, self.slaves.join(", "));
            let told = full("below it", found).means("their queues matter as well");
            return Some(told.root("check them as well", format!("forebay doctor /dev/{first}")));
        };
        let found = format!("{} is the file {file}", self.name);
        Some(if *is_direct {
            full("below it", found)
                .means("its file system and device matter as well")
                .user("check it as well", format!("forebay doctor {}", quoted(file)))
        } else {
            let means = "the backing file goes through the kernel's page cache, and a flush \
                         writes that out";
            let line = format!("losetup --direct-io=on /dev/{}", self.name);
            degraded("below it", found)
                .means(means)
                .root("use direct I/O for the backing file", line)
        })
    }

    fn scheduler(&self) -> Option<Finding> {
        let list = self.scheduler.as_deref()?;
        let has = |name: &str| list.split([' ', '[', ']']).any(|one| one == name);
        let chosen = chosen(list);
        let wanted = if self.turns() { "mq-deadline" } else { "none" };
        if chosen == wanted || !has(wanted) {
            return Some(full("scheduler", chosen).means(match chosen {
                "none" => "requests go to the device as Forebay has ordered them",
                _ => "requests of several programs are put in the disk's order",
            }));
        }
        let lost = degraded("scheduler", chosen).means(match chosen {
            "none" => "a rotating disk gets the requests of several programs unordered",
            "bfq" => {
                "every request takes its lock, and it lets the device idle for who may ask next"
            }
            _ => "every request takes its lock, and is ordered a second time",
        });
        let what = "change it until the next boot (permanently: a udev rule)";
        Some(lost.root(what, self.set(wanted, "scheduler")))
    }

    fn nomerges(&self) -> Option<Finding> {
        let value = self.nomerges?;
        Some(if value == 0 {
            full("nomerges", "0")
                .means("the kernel merges adjacent requests; Forebay has already merged its own")
        } else {
            degraded("nomerges", value.to_string())
                .means("writes of other programs, the journal and the page cache are merged little or not at all")
                .root("enable merging", self.set("0", "nomerges"))
        })
    }

    fn nr_requests(&self) -> Option<Finding> {
        let value = self.nr_requests?;
        if value >= FLIGHT {
            return Some(full("nr_requests", value.to_string()).means(format!(
                "enough for the {FLIGHT} requests that Forebay keeps in flight at most"
            )));
        }
        let lost = degraded("nr_requests", value.to_string()).means(format!(
            "fewer than the {FLIGHT} requests that Forebay may keep in flight; the rest wait in kernel threads"
        ));
        Some(if self.scheduler.as_deref().is_some_and(|list| chosen(list) != "none") {
            lost.root("more", self.set("256", "nr_requests"))
        } else {
            lost.remedy(
                "without a scheduler the device's own depth is the limit; set `flight` no higher",
            )
        })
    }

    fn request_size(&self, huge_pages: HugePages) -> Option<Finding> {
        let (kib, pieces) = (self.max_kib?, self.max_segments.unwrap_or(u64::MAX));
        let found = match self.max_segments {
            Some(pieces) => format!("up to {kib} KiB in {pieces} pieces"),
            None => format!("up to {kib} KiB"),
        };
        let can = self.max_hardware_kib.unwrap_or(0).min(REQUEST_KIB);
        Some(if kib < REQUEST_KIB {
            let lost =
                degraded("request size", found).means("a request of 1 MiB is split into several");
            if can > kib {
                let larger = self.set(&can.to_string(), "max_sectors_kb");
                lost.root("raise it to the device's maximum", larger)
            } else {
                lost.remedy("none: this is the device's limit")
            }
        } else if pieces < REQUEST_PIECES && huge_pages == HugePages::No {
            degraded("request size", found)
                .means("with small pages a request of 1 MiB has 256 segments and is split")
                .remedy("allow huge pages (see huge pages)")
        } else {
            full("request size", found).means("a request of 1 MiB stays whole")
        })
    }

    fn blocks(&self) -> Option<Finding> {
        let (logical, physical) = (self.logical_block?, self.physical_block?);
        let found = format!("{logical} bytes, {physical} written without reading");
        Some(if physical > PAGE {
            degraded("blocks", found)
                .means("the device reads before it writes a page of 4096 bytes")
                .remedy("write in multiples of that size; Forebay gathers adjacent pages")
        } else {
            full("blocks", found).means("a cache page is a whole number of blocks")
        })
    }

    fn io_poll(&self) -> Option<Finding> {
        let found = match self.io_poll? {
            0 => "no queues that are polled",
            _ => "queues that can be polled",
        };
        Some(full("poll queues", found).means("Forebay waits for interrupts and does not poll"))
    }

    fn wbt(&self, mode: Mode) -> Option<Finding> {
        let Some(latency) = self.wbt_latency.filter(|latency| *latency > 0) else {
            self.scheduler.as_ref()?;
            return Some(full("wbt", "off").means("writes are not held back for reads"));
        };
        let found = format!("{latency} us (wbt_lat_usec)");
        Some(if mode == Mode::Direct {
            full("wbt", found).means(
                "the kernel's writeback slows down when reads are slow; Forebay's direct writes do not",
            )
        } else {
            degraded("wbt", found)
                .means(
                    "without direct I/O Forebay's writes are held back as well when reads are slow",
                )
                .root("switch it off", self.set("0", "wbt_lat_usec"))
        })
    }

    fn iostats(&self) -> Option<Finding> {
        Some(if self.iostats? == 0 {
            degraded("iostats", "off")
                .means("iostat and the device figures of a comparison stay at zero")
                .root(
                    "count requests (costs two clock reads per request)",
                    self.set("1", "iostats"),
                )
        } else {
            full("iostats", "on").means("the device's requests are counted and timed")
        })
    }

    fn write_cache(&self) -> Option<Finding> {
        let cache = self.write_cache.as_deref()?;
        let found = match self.fua {
            Some(0) => format!("{cache}, no FUA"),
            Some(_) => format!("{cache}, FUA"),
            None => cache.to_owned(),
        };
        let full = full("write cache", found.as_str());
        Some(match (cache, self.fua) {
            ("write through", _) if self.is_virtual() => full.means(
                "a sync flushes nothing: data is durable only if the host's file or cache is",
            ),
            ("write through", _) => {
                full.means("the device reports no volatile cache: a sync flushes nothing")
            }
            (_, Some(0)) => {
                let lost = degraded("write cache", found).means(
                    "each journal commit flushes the device twice, before and after its last block",
                );
                lost.remedy(match self.name.starts_with("sd") {
                    true => "if the SATA disk supports it: boot with libata.fua=1",
                    false => "none on this device; sync several files together to share a flush",
                })
            }
            _ => full
                .means("a sync flushes the cache; the last block of a journal commit bypasses it"),
        })
    }

    fn rotational(&self) -> Option<Finding> {
        Some(match (self.rotational?, self.is_virtual()) {
            (0, _) => full("rotational", "no").means("the order of requests does not matter"),
            (_, true) => degraded("rotational", "yes, reported by a virtual device")
                .means("file systems and schedulers optimize for a moving head")
                .root("declare it as not rotating", self.set("0", "rotational")),
            _ => full("rotational", "yes")
                .means("a rotating disk: each scattered request costs milliseconds"),
        })
    }
}

#[cfg(test)]
mod tests;
