//! Processors, memory and the limits of this process.

use std::path::PathBuf;

use forebay_uring::probe;
use rustix::process::{Resource, getrlimit};

use super::finding::{Finding, degraded, full, missing, quoted};
use super::process::{Capability, Process, counted};
use super::tree::Tree;
use crate::chosen::chosen;
use crate::report::bytes;

const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage";

/// Default size of the cache, and the share of memory it takes if that is less.
const CACHE_BYTES: u64 = 256 << 20;
const CACHE_OF_MEMORY: u64 = 16;

/// Memory that some suites register.
const LOCKED_BYTES: u64 = 8 << 20;

/// Files that a ring may register, and the other descriptors of a process.
const DESCRIPTORS: u64 = 1024 + 64;

/// A limit as the kernel keeps it; none is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Limit {
    soft: Option<u64>,
    hard: Option<u64>,
}

/// The time processors may be used for.
#[derive(Clone, PartialEq, Debug)]
struct Quota {
    /// The control group that has it.
    group: PathBuf,
    processors: f64,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Limits {
    /// Processors this process may run on.
    allowed: u32,
    /// As the kernel lists them.
    list: String,
    /// Processors there are; none where that is not told.
    online: Option<u32>,
    quota: Option<Quota>,
    /// Memory of the machine, or of the control group where that is less.
    memory: u64,
    /// The control group that has the least limit, and that.
    memory_limit: Option<(PathBuf, u64)>,
    locked: Limit,
    may_lock: bool,
    descriptors: Limit,
    pub(super) huge: Huge,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Huge {
    /// For anonymous memory; none where they are compiled out.
    anonymous: Option<String>,
    /// For shared memory.
    shared: Option<String>,
    is_forbidden: bool,
}

/// Whether the arena gets huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HugePages {
    Yes,
    No,
}

impl Limits {
    pub(super) fn of(tree: &Tree, process: &Process) -> Self {
        let limit = |resource| {
            let limit = getrlimit(resource);
            Limit { soft: limit.current, hard: limit.maximum }
        };
        let setting =
            |name| tree.word(format!("{HUGE_PAGES}/{name}")).map(|list| chosen(&list).to_owned());
        let list = process.processors.clone().unwrap_or_default();
        let parallel = || std::thread::available_parallelism().map_or(1, |many| many.get() as u32);
        Self {
            allowed: counted(&list).unwrap_or_else(parallel),
            list,
            online: tree.word("/sys/devices/system/cpu/online").and_then(|list| counted(&list)),
            quota: quota(tree),
            memory: probe::memory_limit(),
            memory_limit: memory_limit(tree),
            locked: limit(Resource::Memlock),
            may_lock: process.may(Capability::IpcLock),
            descriptors: limit(Resource::Nofile),
            huge: Huge {
                anonymous: setting("enabled"),
                shared: setting("shmem_enabled"),
                is_forbidden: process.is_without_huge_pages,
            },
        }
    }

    /// Processors that can be used at a time.
    pub(super) fn processors(&self) -> u32 {
        let quota =
            self.quota.as_ref().map_or(f64::INFINITY, |quota| quota.processors.ceil().max(1.0));
        self.allowed.min(quota as u32).max(1)
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let quota = self.quota.as_ref().map(Quota::finding);
        let mut findings = vec![self.processors_finding()];
        findings.extend(quota);
        findings.extend([self.memory(), self.huge.finding(), self.locked(), self.descriptors()]);
        findings
    }

    fn processors_finding(&self) -> Finding {
        let of = match self.online {
            Some(online) if online != self.allowed => {
                format!(" of {online} (bound to {})", self.list)
            }
            _ => String::new(),
        };
        let found = format!("{}{of}", self.allowed);
        if self.allowed != 1 {
            return full("processors", found)
                .means("callers and writeback contexts have processors of their own");
        }
        let lost = degraded("processors", found)
            .means("callers and the writeback context share one processor");
        match self.online {
            Some(online) if online > 1 => lost.root(
                "allow more processors (in a container: its cpuset)",
                // Lets the shell that starts the program run everywhere.
                format!("taskset -p -c 0-{} $$", online - 1),
            ),
            _ => lost.remedy("use a machine with two processors"),
        }
    }

    fn memory(&self) -> Finding {
        let found = match &self.memory_limit {
            Some((group, limit)) => {
                format!("{} (limit of {})", bytes(*limit as f64), group.display())
            }
            None => bytes(self.memory as f64),
        };
        let default = CACHE_BYTES.min(self.memory / CACHE_OF_MEMORY);
        let means = format!("the default cache is {} (cache_bytes)", bytes(default as f64));
        if default == CACHE_BYTES {
            return full("memory", found).means(means);
        }
        let finding = degraded("memory", found).means(means);
        let Some((group, _)) = &self.memory_limit else {
            return finding.remedy("set cache_bytes, if there is enough memory");
        };
        let is_old = group.starts_with("/sys/fs/cgroup/memory");
        let file = group.join(if is_old { "memory.limit_in_bytes" } else { "memory.max" });
        finding.root("raise the limit of the control group", format!("echo 4G > {}", quoted(file)))
    }

    fn locked(&self) -> Finding {
        if self.may_lock {
            return full("locked memory", "no limit (CAP_IPC_LOCK)")
                .means("memory can be registered with a ring");
        }
        let found = self.locked.told(|limit| bytes(limit as f64));
        if self.locked.soft.is_none_or(|limit| limit >= LOCKED_BYTES) {
            return full("locked memory", found)
                .means("memory can be registered with a ring, up to this limit");
        }
        degraded("locked memory", found)
            .means("memory cannot be registered with a ring; Forebay does not need it, but an arm of `compare plug` does")
            .with_limit(&self.locked, LOCKED_BYTES, ("-l", 1024), "memlock")
    }

    fn descriptors(&self) -> Finding {
        let found = self.descriptors.told(|limit| limit.to_string());
        if self.descriptors.soft.is_none_or(|limit| limit >= DESCRIPTORS) {
            return full("descriptors", found).means("each open file uses one");
        }
        degraded("descriptors", found)
            .means("each open file uses one: with a thousand files open, the next open fails")
            .with_limit(&self.descriptors, 65_536, ("-n", 1), "nofile")
    }
}

impl Finding {
    /// Adds the command that raises a limit: anyone may up to the hard limit, root beyond.
    /// `ulimit`: its option and unit; `name`: of the limit for `prlimit`.
    fn with_limit(self, limit: &Limit, wanted: u64, ulimit: (&str, u64), name: &str) -> Self {
        if limit.hard.is_none_or(|hard| hard >= wanted) {
            return self.user(
                "raise it in the shell that starts the program",
                format!("ulimit {} {}", ulimit.0, wanted / ulimit.1),
            );
        }
        self.root(
            "raise it for the running shell that starts the program ($$ is its process)",
            format!("prlimit --{name}={wanted} --pid $$"),
        )
    }
}

impl Limit {
    fn told(&self, shown: impl Fn(u64) -> String) -> String {
        let shown = |limit: Option<u64>| limit.map_or_else(|| "no limit".to_owned(), &shown);
        if self.soft == self.hard {
            return shown(self.soft);
        }
        format!("{} (can be raised to {})", shown(self.soft), shown(self.hard))
    }
}

impl Quota {
    fn finding(&self) -> Finding {
        let Self { group, processors } = self;
        let is_old = group.starts_with("/sys/fs/cgroup/cpu");
        let (none, file) = if is_old { ("-1", "cpu.cfs_quota_us") } else { ("max", "cpu.max") };
        let line = format!("echo {none} > {}", quoted(group.join(file)));
        degraded("processor quota", format!("{processors:.2} processors ({})", group.display()))
            .means("when it is used up, all threads stop until the next period, also during a sync")
            .root("remove or raise the quota", line)
    }
}

impl Huge {
    pub(super) fn answer(&self) -> HugePages {
        let is_one = |setting: &Option<String>, words: &[&str]| {
            setting.as_deref().is_some_and(|setting| words.contains(&setting))
        };
        let shared = is_one(&self.shared, &["always", "within_size", "advise", "force"]);
        let anonymous = is_one(&self.anonymous, &["always", "madvise"]);
        if (shared || anonymous) && !self.is_forbidden { HugePages::Yes } else { HugePages::No }
    }

    fn finding(&self) -> Finding {
        let lost = |found: &str| {
            missing("huge pages", found)
                .means("a request of 1 MiB has 256 segments, each pinned and mapped alone")
        };
        let Some(anonymous) = &self.anonymous else {
            return lost("not in this kernel")
                .remedy("run a kernel with CONFIG_TRANSPARENT_HUGEPAGE");
        };
        let shared = self.shared.as_deref().unwrap_or("never");
        let found = format!("{anonymous}; for shared memory: {shared}");
        if self.answer() == HugePages::Yes {
            return full("huge pages", found)
                .means("the arena uses them, so that a request of 1 MiB is one segment");
        }
        if self.is_forbidden {
            return lost(&found).remedy(
                "this process may not use them (PR_SET_THP_DISABLE); change how it is started",
            );
        }
        lost(&found).root(
            "allow them for programs that ask (madvise)",
            format!("echo madvise > {HUGE_PAGES}/enabled"),
        )
    }
}

/// The least time for processors of our control groups.
fn quota(tree: &Tree) -> Option<Quota> {
    let of = |group: PathBuf| {
        let told = tree.word(group.join("cpu.max")).or_else(|| {
            let quota = tree.word(group.join("cpu.cfs_quota_us"))?;
            Some(format!("{quota} {}", tree.word(group.join("cpu.cfs_period_us"))?))
        })?;
        let (time, period) = told.split_once(' ')?;
        let (time, period): (f64, f64) = (time.parse().ok()?, period.trim().parse().ok()?);
        (time > 0.0 && period > 0.0).then_some(Quota { group, processors: time / period })
    };
    let quotas = tree.groups("cpu").into_iter().filter_map(of);
    quotas.min_by(|one, other| one.processors.total_cmp(&other.processors))
}

/// The least memory limit of our control groups, if it is below the machine's memory.
fn memory_limit(tree: &Tree) -> Option<(PathBuf, u64)> {
    let total = tree.text("/proc/meminfo").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    let total = total.map_or(u64::MAX, |kibibytes| kibibytes.saturating_mul(1024));
    let of = |group: PathBuf| {
        let limit = tree
            .number(group.join("memory.max"))
            .or(tree.number(group.join("memory.limit_in_bytes")))?;
        (limit < total).then_some((group, limit))
    };
    tree.groups("memory").into_iter().filter_map(of).min_by_key(|(_, limit)| *limit)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::tree::fake::Fake;
    use super::*;

    const NO_LIMIT: Limit = Limit { soft: None, hard: None };

    fn limits() -> Limits {
        Limits {
            allowed: 4,
            list: "0-3".to_owned(),
            online: Some(4),
            quota: None,
            memory: 16 << 30,
            memory_limit: None,
            locked: NO_LIMIT,
            may_lock: false,
            descriptors: NO_LIMIT,
            huge: huge("madvise", "never"),
        }
    }

    fn huge(anonymous: &str, shared: &str) -> Huge {
        Huge { anonymous: Some(anonymous.into()), shared: Some(shared.into()), is_forbidden: false }
    }

    fn line(finding: Finding) -> String {
        finding
            .remedy
            .and_then(|remedy| remedy.command)
            .map(|command| command.line)
            .unwrap_or_default()
    }

    #[test]
    fn a_machine_with_everything_is_full() {
        for finding in limits().findings() {
            assert_eq!(finding.level, Level::Full, "{finding:?}");
        }
    }

    #[test]
    fn one_processor_is_few_and_a_binding_is_told() {
        let some = Limits { allowed: 2, list: "0,3".to_owned(), ..limits() }.processors_finding();
        assert_eq!((some.level, some.found.as_str()), (Level::Full, "2 of 4 (bound to 0,3)"));
        let one = Limits { allowed: 1, list: "2".to_owned(), ..limits() }.processors_finding();
        assert_eq!(one.level, Level::Degraded);
        assert_eq!(line(one), "taskset -p -c 0-3 $$");
        let small = Limits { allowed: 1, online: Some(1), ..limits() }.processors_finding();
        assert_eq!((small.level, line(small)), (Level::Degraded, String::new()));
    }

    #[test]
    fn quotas_of_both_versions_are_found() {
        let fake = Fake::new(&[
            ("/proc/self/cgroup", "0::/a/b\n"),
            ("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("/sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
        ]);
        let found = quota(&fake.tree).unwrap();
        assert_eq!((found.group.to_str(), found.processors), (Some("/sys/fs/cgroup/a"), 1.5));
        assert_eq!(found.finding().found, "1.50 processors (/sys/fs/cgroup/a)");
        assert_eq!(line(found.finding()), "echo max > /sys/fs/cgroup/a/cpu.max");
        let limited = Limits { quota: Some(found), ..limits() };
        assert_eq!(limited.processors(), 2);
        assert_eq!(limited.findings()[1].name, "processor quota");

        let fake = Fake::new(&[
            ("/proc/self/cgroup", "2:cpu,cpuacct:/x\n0::/\n"),
            ("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "50000\n"),
            ("/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n"),
            ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ]);
        let found = quota(&fake.tree).unwrap();
        assert_eq!(found.processors, 0.5);
        assert_eq!(line(found.finding()), "echo -1 > /sys/fs/cgroup/cpu/x/cpu.cfs_quota_us");
        assert_eq!(quota(&Fake::new(&[]).tree), None);
    }

    #[test]
    fn little_memory_makes_a_small_cache() {
        let fake = Fake::new(&[
            ("/proc/meminfo", "MemTotal:  16777216 kB\n"),
            ("/proc/self/cgroup", "0::/a/b\n"),
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "1073741824\n"),
        ]);
        let (group, limit) = memory_limit(&fake.tree).unwrap();
        assert_eq!((group.to_str(), limit), (Some("/sys/fs/cgroup/a"), 1 << 30));
        let small =
            Limits { memory: limit, memory_limit: Some((group, limit)), ..limits() }.memory();
        assert_eq!(small.level, Level::Degraded);
        assert_eq!(small.found, "1.0 GiB (limit of /sys/fs/cgroup/a)");
        assert!(small.means.starts_with("the default cache is 64 MiB"), "{}", small.means);
        assert_eq!(line(small), "echo 4G > /sys/fs/cgroup/a/memory.max");

        // More than there is limits nothing.
        fake.write("/sys/fs/cgroup/a/memory.max", "99999999999999\n");
        assert_eq!(memory_limit(&fake.tree), None);
        fake.write("/proc/self/cgroup", "3:memory:/v\n");
        fake.write("/sys/fs/cgroup/memory/v/memory.limit_in_bytes", "536870912\n");
        let (group, limit) = memory_limit(&fake.tree).unwrap();
        let small =
            Limits { memory: limit, memory_limit: Some((group, limit)), ..limits() }.memory();
        assert_eq!(line(small), "echo 4G > /sys/fs/cgroup/memory/v/memory.limit_in_bytes");
        let poor = Limits { memory: 2 << 30, ..limits() }.memory();
        assert_eq!((poor.level, line(poor)), (Level::Degraded, String::new()));
    }

    #[test]
    fn limits_are_raised_by_whoever_can() {
        let some = |soft, hard| Limit { soft: Some(soft), hard: Some(hard) };
        let locked = |locked| Limits { locked, ..limits() }.locked();
        assert_eq!(locked(some(8 << 20, 8 << 20)).level, Level::Full);
        assert_eq!(locked(some(64 << 10, 64 << 20)).found, "64 KiB (can be raised to 64 MiB)");
        assert_eq!(line(locked(some(64 << 10, 64 << 20))), "ulimit -l 8192");
        assert_eq!(line(locked(some(64 << 10, 64 << 10))), "prlimit --memlock=8388608 --pid $$");
        let may = Limits { locked: some(0, 0), may_lock: true, ..limits() }.locked();
        assert_eq!((may.level, may.found.as_str()), (Level::Full, "no limit (CAP_IPC_LOCK)"));

        let open = |descriptors| Limits { descriptors, ..limits() }.descriptors();
        assert_eq!(open(some(20_000, 20_000)).level, Level::Full);
        assert_eq!(line(open(some(1024, 1 << 20))), "ulimit -n 65536");
        assert_eq!(line(open(some(1024, 4096))), "prlimit --nofile=65536 --pid $$");
        assert_eq!(open(some(1024, 4096)).level, Level::Degraded);
    }

    #[test]
    fn huge_pages_of_either_memory_will_do() {
        for (anonymous, shared, answer) in [
            ("madvise", "never", HugePages::Yes),
            ("always", "deny", HugePages::Yes),
            ("never", "advise", HugePages::Yes),
            ("never", "within_size", HugePages::Yes),
            ("never", "never", HugePages::No),
        ] {
            assert_eq!(huge(anonymous, shared).answer(), answer, "{anonymous} {shared}");
        }
        let never = huge("never", "never").finding();
        assert_eq!(never.level, Level::Missing);
        assert_eq!(line(never), "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
        let forbidden = Huge { is_forbidden: true, ..huge("always", "always") };
        assert_eq!(forbidden.answer(), HugePages::No);
        assert!(forbidden.finding().remedy.unwrap().what.contains("PR_SET_THP_DISABLE"));
        let without = Huge { anonymous: None, shared: None, is_forbidden: false };
        assert_eq!((without.answer(), without.finding().level), (HugePages::No, Level::Missing));
        assert_eq!(chosen("always [madvise] never"), "madvise");
    }

    #[test]
    fn this_machine_is_read() {
        let tree = Tree::real();
        let limits = Limits::of(&tree, &Process::of(&tree));
        println!("{limits:?}");
        assert!(limits.processors() >= 1 && limits.memory > 1 << 20);
        assert!(limits.findings().len() >= 5);
    }
}
