//! The block device and its queue: of a place that is one, whether it can be had, too. It is only
//! read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_uring::{Access, Create, How, Mode, OpenFile, Truncate, probe};
use rustix::fs::{major, minor};

use super::files::uncached_one;
use super::finding::{By, Finding, Level, Part, quoted};
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
                finding("queue", Level::NotKnown, "it has none in /sys")
                    .means("its queue settings are unknown"),
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
            Ok(alignment) => finding("direct I/O", Level::Full, alignment.as_str())
                .means("requests bypass the kernel's page cache"),
            Err(error) => {
                finding("direct I/O", Level::NotKnown, format!("cannot open it: {error}"))
                    .means("see access")
            }
        });
        findings
            .push(Finding { part: Part::Device, ..uncached_one("read", &self.uncached_read, "") });
        let written = match &self.uncached_read {
            Ok(()) => "not tried, for that would write; the kernel takes it both ways or neither",
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                "not tried, because that would write; a kernel that refuses it for reads refuses it for writes"
            }
            Err(_) => "not tried, for that would write",
        };
        findings.push(
            finding("uncached write", Level::NotKnown, written)
                .means("Forebay does not need it; the arm `kernel uncached` of a comparison does"),
        );
        findings
    }

    fn access(&self) -> Finding {
        let path = quoted(&self.path);
        match &self.exclusive {
            Ok(_) if self.is_read_only => finding("access", Level::Degraded, "read only")
                .means("Forebay can read it, but not write to it")
                .command(
                    "make it writable, if the device itself allows it",
                    By::Root,
                    format!("blockdev --setrw {path}"),
                ),
            Ok(_) => finding("access", Level::Full, "nobody else has it")
                .means("Forebay can open it exclusively"),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                let lost = finding("access", Level::Missing, self.why_busy())
                    .means("Forebay opens a device exclusively or not at all");
                match &self.mounted_at {
                    Some(point) => {
                        lost.command("unmount it", By::Root, format!("umount {}", quoted(point)))
                    }
                    None => lost.command("who has it", By::Root, format!("lsblk {path}")),
                }
            }
            Err(error) => {
                let lost = finding("access", Level::Missing, error.to_string())
                    .means("this user cannot use it");
                match self.user {
                    0 => lost.remedy(
                        "allow the device in the container, for example with docker's --device",
                    ),
                    user => lost.command(
                        "give it to this user, until it is plugged in again",
                        By::Root,
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
            "host-managed" => finding("zones", Level::Missing, zoned)
                .means("its zones accept only sequential writes; Forebay writes in any order")
                .remedy("use a file system for zoned devices on it (btrfs, f2fs, XFS)"),
            _ => finding("zones", Level::Degraded, zoned)
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
        let mut findings = Vec::new();
        findings.extend(self.below());
        findings.extend(self.scheduler());
        findings.extend(self.nomerges());
        findings.extend(self.nr_requests());
        findings.extend(self.request_size(huge_pages));
        findings.extend(self.blocks());
        findings.extend(self.io_poll());
        findings.extend(self.wbt(mode));
        findings.extend(self.iostats());
        findings.extend(self.write_cache());
        findings.extend(self.rotational());
        findings
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
        if let Some((file, is_direct)) = &self.backing {
            let found = format!("{} is the file {file}", self.name);
            if !is_direct {
                return Some(
                    finding("below it", Level::Degraded, found)
                        .means("the backing file goes through the kernel's page cache, and a flush writes that out")
                        .command("use direct I/O for the backing file", By::Root, format!("losetup --direct-io=on /dev/{}", self.name)),
                );
            }
            let look = format!("forebay doctor {}", quoted(file));
            let told = finding("below it", Level::Full, found)
                .means("its file system and device matter as well");
            return Some(told.command("check it as well", By::User, look));
        }
        let first = self.slaves.first()?;
        let found = format!("{} is made of {}", self.name, self.slaves.join(", "));
        let told = finding("below it", Level::Full, found).means("their queues matter as well");
        Some(told.command("check them as well", By::Root, format!("forebay doctor /dev/{first}")))
    }

    fn scheduler(&self) -> Option<Finding> {
        let list = self.scheduler.as_deref()?;
        let has = |name: &str| list.split([' ', '[', ']']).any(|one| one == name);
        let chosen = chosen(list);
        let finding = |level| finding("scheduler", level, chosen);
        let wanted = if self.turns() { "mq-deadline" } else { "none" };
        if chosen == wanted || !has(wanted) {
            let means = match chosen {
                "none" => "requests go to the device as Forebay has ordered them",
                _ => "requests of several programs are put in the disk's order",
            };
            return Some(finding(Level::Full).means(means));
        }
        let means = match chosen {
            "none" => "a rotating disk gets the requests of several programs unordered",
            "bfq" => {
                "every request takes its lock, and it lets the device idle for who may ask next"
            }
            _ => "every request takes its lock, and is ordered a second time",
        };
        Some(finding(Level::Degraded).means(means).command(
            "change it until the next boot (permanently: a udev rule)",
            By::Root,
            self.set(wanted, "scheduler"),
        ))
    }

    fn nomerges(&self) -> Option<Finding> {
        let value = self.nomerges?;
        let finding = |level| finding("nomerges", level, value.to_string());
        if value == 0 {
            return Some(
                finding(Level::Full).means(
                    "the kernel merges adjacent requests; Forebay has already merged its own",
                ),
            );
        }
        Some(
            finding(Level::Degraded)
                .means("writes of other programs, the journal and the page cache are merged little or not at all")
                .command("enable merging", By::Root, self.set("0", "nomerges")),
        )
    }

    fn nr_requests(&self) -> Option<Finding> {
        let value = self.nr_requests?;
        let finding = |level| finding("nr_requests", level, value.to_string());
        if value >= FLIGHT {
            return Some(finding(Level::Full).means(format!(
                "enough for the {FLIGHT} requests that Forebay keeps in flight at most"
            )));
        }
        let lost = finding(Level::Degraded).means(format!(
            "fewer than the {FLIGHT} requests that Forebay may keep in flight; the rest wait in kernel threads"
        ));
        Some(if self.scheduler.as_deref().is_some_and(|list| chosen(list) != "none") {
            lost.command("more", By::Root, self.set("256", "nr_requests"))
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
        let finding = |level| finding("request size", level, found.as_str());
        if kib < REQUEST_KIB {
            let lost = finding(Level::Degraded).means("a request of 1 MiB is split into several");
            let can = self.max_hardware_kib.unwrap_or(0).min(REQUEST_KIB);
            return Some(if can > kib {
                lost.command(
                    "raise it to the device's maximum",
                    By::Root,
                    self.set(&can.to_string(), "max_sectors_kb"),
                )
            } else {
                lost.remedy("none: this is the device's limit")
            });
        }
        if pieces < REQUEST_PIECES && huge_pages == HugePages::No {
            return Some(
                finding(Level::Degraded)
                    .means("with small pages a request of 1 MiB has 256 segments and is split")
                    .remedy("allow huge pages (see huge pages)"),
            );
        }
        Some(finding(Level::Full).means("a request of 1 MiB stays whole"))
    }

    fn blocks(&self) -> Option<Finding> {
        let (logical, physical) = (self.logical_block?, self.physical_block?);
        let found = format!("{logical} bytes, {physical} written without reading");
        if physical > PAGE {
            return Some(
                finding("blocks", Level::Degraded, found)
                    .means("the device reads before it writes a page of 4096 bytes")
                    .remedy("write in multiples of that size; Forebay gathers adjacent pages"),
            );
        }
        Some(
            finding("blocks", Level::Full, found).means("a cache page is a whole number of blocks"),
        )
    }

    fn io_poll(&self) -> Option<Finding> {
        let found = match self.io_poll? {
            0 => "no queues that are polled",
            _ => "queues that can be polled",
        };
        Some(
            finding("poll queues", Level::Full, found)
                .means("Forebay waits for interrupts and does not poll"),
        )
    }

    fn wbt(&self, mode: Mode) -> Option<Finding> {
        let Some(latency) = self.wbt_latency.filter(|latency| *latency > 0) else {
            self.scheduler.as_ref()?;
            return Some(
                finding("wbt", Level::Full, "off").means("writes are not held back for reads"),
            );
        };
        let found = format!("{latency} us (wbt_lat_usec)");
        if mode == Mode::Direct {
            return Some(finding("wbt", Level::Full, found).means(
                "the kernel's writeback slows down when reads are slow; Forebay's direct writes do not",
            ));
        }
        Some(
            finding("wbt", Level::Degraded, found)
                .means(
                    "without direct I/O Forebay's writes are held back as well when reads are slow",
                )
                .command("switch it off", By::Root, self.set("0", "wbt_lat_usec")),
        )
    }

    fn iostats(&self) -> Option<Finding> {
        let value = self.iostats?;
        let finding = |level, found| finding("iostats", level, found);
        Some(if value == 0 {
            finding(Level::Degraded, "off")
                .means("iostat and the device figures of a comparison stay at zero")
                .command(
                    "count requests (costs two clock reads per request)",
                    By::Root,
                    self.set("1", "iostats"),
                )
        } else {
            finding(Level::Full, "on").means("the device's requests are counted and timed")
        })
    }

    fn write_cache(&self) -> Option<Finding> {
        let cache = self.write_cache.as_deref()?;
        let fua = match self.fua {
            Some(0) => ", no FUA",
            Some(_) => ", FUA",
            None => "",
        };
        let finding = |level| finding("write cache", level, format!("{cache}{fua}"));
        Some(match (cache, self.fua) {
            ("write through", _) if self.is_virtual() => finding(Level::Full).means(
                "a sync flushes nothing: data is durable only if the host's file or cache is",
            ),
            ("write through", _) => finding(Level::Full)
                .means("the device reports no volatile cache: a sync flushes nothing"),
            (_, Some(0)) => {
                let lost = finding(Level::Degraded).means(
                    "each journal commit flushes the device twice, before and after its last block",
                );
                match self.name.starts_with("sd") {
                    true => lost.remedy("if the SATA disk supports it: boot with libata.fua=1"),
                    false => lost.remedy(
                        "none on this device; sync several files together to share a flush",
                    ),
                }
            }
            _ => finding(Level::Full)
                .means("a sync flushes the cache; the last block of a journal commit bypasses it"),
        })
    }

    fn rotational(&self) -> Option<Finding> {
        let value = self.rotational?;
        let finding = |level, found| finding("rotational", level, found);
        Some(match (value, self.is_virtual()) {
            (0, _) => finding(Level::Full, "no").means("the order of requests does not matter"),
            (_, true) => finding(Level::Degraded, "yes, reported by a virtual device")
                .means("file systems and schedulers optimize for a moving head")
                .command("declare it as not rotating", By::Root, self.set("0", "rotational")),
            _ => finding(Level::Full, "yes")
                .means("a rotating disk: each scattered request costs milliseconds"),
        })
    }
}

fn finding(name: &str, level: Level, found: impl Into<String>) -> Finding {
    Finding::new(Part::Device, name, level, found)
}

#[cfg(test)]
mod tests;
