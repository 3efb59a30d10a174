//! Facts for the checks: of a place, of this process, and of the machine they are on.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use forebay_uring::probe::{KernelVersion, kernel_version};
use forebay_uring::{Offers, OpenFile, SetupError};
use serde::{Deserialize, Serialize};

use super::trial;
use crate::chosen::chosen;
use crate::manifest::{Storage, mount};
use crate::refusal::Refusal;

/// Memory of the engine that is made as a trial: the least that is possible.
const CACHE_BYTES: u64 = 8 << 20;
const BUFFER_BYTES: u64 = 1 << 20;

/// The engine has nothing to write, so only a hanging device takes longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the kernel has its settings of huge pages.
pub(super) const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage";

/// How the names of disks begin that are made of memory or by a host.
const VIRTUAL: [&str; 6] = ["vd", "xvd", "nbd", "loop", "zram", "ram"];

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    File,
    Directory,
    Device,
}

/// The place that is examined: a file, a directory or a block device.
pub(super) struct Place {
    /// Its path without links.
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
    /// The directory itself, or the one that the file is in.
    pub(super) directory: PathBuf,
    /// The user it belongs to.
    pub(super) owner: u32,
    /// Number of the block device that it is.
    pub(super) device: u64,
}

#[derive(Default, Debug)]
pub(super) struct Process {
    pub(super) user: u32,
    pub(super) group: u32,
    /// Effective capabilities, one bit each.
    pub(super) capabilities: u64,
    /// Whether a filter inspects its system calls.
    pub(super) is_filtered: bool,
    /// Ranges of processors that it may run on.
    pub(super) processors: Vec<(u32, u32)>,
    /// Whether it may not use huge pages.
    pub(super) is_without_huge_pages: bool,
}

/// A capability, by the number that the kernel gives it.
#[derive(Clone, Copy)]
pub(super) enum Capability {
    SysAdmin = 21,
    Lease = 28,
}

/// The kernel's files `/proc` and `/sys`, below a root that a test can set.
pub(super) struct Tree(pub(super) PathBuf);

pub(super) struct Disk {
    /// Its name, also for a partition of it.
    pub(super) name: String,
    /// The files of it in `/sys`.
    pub(super) files: Tree,
}

/// All that the checks look at.
pub(super) struct Facts {
    pub(super) tree: Tree,
    pub(super) place: Place,
    pub(super) process: Process,
    pub(super) version: KernelVersion,
    pub(super) offers: Result<Offers, SetupError>,
    /// Description of an engine, or the error that prevented it.
    pub(super) engine: Result<String, String>,
    /// The file system; none of a bare device.
    pub(super) storage: Option<Storage>,
    /// A file in the place, to try things on; none on a bare device.
    pub(super) trial: Option<Result<OpenFile, String>>,
    pub(super) disk: Option<Disk>,
}

impl Facts {
    /// Gathers the facts of a place.
    ///
    /// # Errors
    /// If the path leads to no file, directory or block device.
    pub(super) fn of(path: &Path) -> Result<Self, Refusal> {
        let (tree, place) = (Tree("/".into()), Place::of(path)?);
        let is_device = place.kind == Kind::Device;
        let storage = (!is_device).then(|| Storage::of(&place.directory));
        let number = match &storage {
            Some(storage) => mount::device_number(&storage.device, &place.directory),
            None => Some(place.device),
        };
        Ok(Self {
            process: Process::own(),
            version: kernel_version(),
            offers: Offers::of_this_kernel(),
            engine: smallest_engine().map_err(|error| error.to_string()),
            trial: (!is_device).then(|| trial::file_in(&place.directory)),
            disk: number.and_then(|number| Disk::of(&tree, number)),
            storage,
            place,
            tree,
        })
    }

    /// Returns the file to try things on, if it could be made.
    pub(super) fn file(&self) -> Option<&OpenFile> {
        self.trial.as_ref()?.as_ref().ok()
    }

    /// Returns whether the arena gets huge pages: for shared or for anonymous memory.
    pub(super) fn has_huge_pages(&self) -> bool {
        let is_one_of = |name: &str, words: &[&str]| {
            let setting = self.tree.word(format!("{HUGE_PAGES}/{name}")).unwrap_or_default();
            words.contains(&chosen(&setting))
        };
        let is_on = is_one_of("shmem_enabled", &["always", "within_size", "advise", "force"])
            || is_one_of("enabled", &["always", "madvise"]);
        is_on && !self.process.is_without_huge_pages
    }
}

/// Makes the smallest engine, shuts it down, and returns its description.
fn smallest_engine() -> forebay::Result<String> {
    let engine = forebay::Engine::start(forebay::Options {
        cache_bytes: Some(CACHE_BYTES),
        buffer_bytes: BUFFER_BYTES,
        ..forebay::Options::default()
    })?;
    let described = engine.describe();
    engine.shutdown(PATIENCE)?;
    Ok(described)
}

impl Place {
    /// Resolves a path.
    ///
    /// # Errors
    /// With the kinds of places that there are.
    fn of(path: &Path) -> Result<Self, Refusal> {
        let refused = |error: io::Error| {
            let remedy = "give an existing file, directory or block device";
            Refusal(format!("cannot look at {}: {error}; {remedy}", path.display()))
        };
        let real = fs::canonicalize(path).map_err(refused)?;
        let data = fs::metadata(&real).map_err(refused)?;
        let above = || real.parent().unwrap_or(Path::new("/")).to_owned();
        let (kind, directory) = match data.file_type() {
            kind if kind.is_file() => (Kind::File, above()),
            kind if kind.is_dir() => (Kind::Directory, real.clone()),
            kind if kind.is_block_device() => (Kind::Device, above()),
            _ => {
                let what = "not a file, directory or block device; give one of these";
                return Err(Refusal(format!("{}: {what}", path.display())));
            }
        };
        Ok(Self { path: real, kind, directory, owner: data.uid(), device: data.rdev() })
    }
}

impl Process {
    /// Reads the facts of this process. Unreadable ones are as of a process without rights.
    fn own() -> Self {
        let own = procfs::process::Process::myself().and_then(|process| process.status()).ok();
        Self {
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
            capabilities: own.as_ref().map_or(0, |status| status.capeff),
            is_filtered: own.as_ref().is_some_and(|status| status.seccomp == Some(2)),
            is_without_huge_pages: own.as_ref().is_some_and(|one| one.thp_enabled == Some(false)),
            processors: own.and_then(|status| status.cpus_allowed_list).unwrap_or_default(),
        }
    }

    pub(super) fn may(&self, capability: Capability) -> bool {
        self.capabilities >> capability as u32 & 1 == 1
    }
}

impl Tree {
    /// Returns the path of a file; `path` begins with `/`.
    pub(super) fn place(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        debug_assert!(path.is_absolute(), "{} has its root here", path.display());
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Reads a file without the blanks around its text; none if nothing is left or readable.
    pub(super) fn word(&self, path: impl AsRef<Path>) -> Option<String> {
        let text = fs::read_to_string(self.place(path)).ok()?;
        Some(text.trim().to_owned()).filter(|word| !word.is_empty())
    }

    /// Reads a file that holds one number.
    pub(super) fn number<N: FromStr>(&self, path: impl AsRef<Path>) -> Option<N> {
        self.word(path)?.parse().ok()
    }

    /// Returns the sorted names in a directory; none if it cannot be read.
    pub(super) fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.place(path)).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Returns the control groups of this process, from its own to the root of the one hierarchy.
    pub(super) fn groups(&self) -> Vec<PathBuf> {
        let root = Path::new("/sys/fs/cgroup");
        let table = self.word("/proc/self/cgroup").unwrap_or_default();
        let own = table.lines().find_map(|line| line.strip_prefix("0::/"));
        let own = own.map(|own| root.join(own));
        let above = own.iter().flat_map(|own| own.ancestors());
        above.take_while(|group| group.starts_with(root)).map(Path::to_owned).collect()
    }
}

impl Disk {
    /// Returns the disk with a device number; of a partition its disk.
    pub(super) fn of(tree: &Tree, number: u64) -> Option<Self> {
        let directory = mount::disk_directory(&tree.0, number)?;
        let name = directory.file_name()?.to_string_lossy().into_owned();
        directory.join("queue").is_dir().then_some(Self { name, files: Tree(directory) })
    }

    pub(super) fn queue(&self, file: &str) -> Option<String> {
        self.files.word(format!("/queue/{file}"))
    }

    pub(super) fn queue_number(&self, file: &str) -> Option<u64> {
        self.queue(file)?.parse().ok()
    }

    /// Returns the command that changes a setting of its queue.
    pub(super) fn set(&self, value: &str, file: &str) -> String {
        format!("echo {value} > /sys/block/{}/queue/{file}", self.name)
    }

    /// Returns whether it is made of memory or by a host: such a disk reports that it rotates, and
    /// does not.
    pub(super) fn is_virtual(&self) -> bool {
        VIRTUAL.iter().any(|begin| self.name.starts_with(begin))
    }

    pub(super) fn rotates(&self) -> bool {
        self.queue_number("rotational") == Some(1) && !self.is_virtual()
    }
}

#[cfg(test)]
#[path = "fake_tests.rs"]
pub(super) mod fake;

#[cfg(test)]
mod tests {
    use super::fake::Fake;
    use super::*;

    #[test]
    fn files_are_read_below_the_root() {
        let fake = Fake::new(&[("/proc/a", " 7\n"), ("/proc/b", "\n")]);
        let tree = &fake.facts.tree;
        assert_eq!((tree.number::<u32>("/proc/a"), tree.word("/proc/b")), (Some(7), None));
        assert_eq!((tree.number::<u32>("/proc/b"), tree.word("/proc/c")), (None, None));
        assert_eq!(tree.names("/proc"), ["a", "b"]);
        assert!(tree.names("/nothing").is_empty());
    }

    #[test]
    fn groups_are_found_up_to_their_root() {
        let fake = Fake::new(&[("/proc/self/cgroup", "4:memory:/x\n0::/a/b\n")]);
        let groups = fake.facts.tree.groups();
        let expected = ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"];
        assert_eq!(groups, expected.map(PathBuf::from));
        assert!(Fake::new(&[]).facts.tree.groups().is_empty());
    }

    #[test]
    fn a_partition_has_its_disk() {
        let fake = Fake::new(&[
            ("/sys/devices/pci/sda/queue/nr_requests", "64\n"),
            ("/sys/devices/pci/sda/sda1/partition", "1\n"),
        ]);
        fake.link("/sys/dev/block/8:1", "/sys/devices/pci/sda/sda1");
        let disk = |number| Disk::of(&fake.facts.tree, number);
        let disk_of_partition = disk(rustix::fs::makedev(8, 1)).unwrap();
        assert_eq!(disk_of_partition.name, "sda");
        assert_eq!(disk_of_partition.queue_number("nr_requests"), Some(64));
        assert!(disk(rustix::fs::makedev(9, 9)).is_none());
    }

    #[test]
    fn a_place_is_what_the_path_leads_to() {
        let directory = tempfile::tempdir().unwrap();
        let real = directory.path().canonicalize().unwrap();
        let (file, link) = (real.join("file"), real.join("link"));
        fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let place = Place::of(&link).unwrap();
        assert_eq!((place.kind, &place.path, &place.directory), (Kind::File, &file, &real));
        assert_eq!(Place::of(directory.path()).unwrap().kind, Kind::Directory);
    }

    #[test]
    fn this_process_has_processors() {
        let own = Process::own();
        assert!(!own.processors.is_empty(), "{own:?}");
    }
}
