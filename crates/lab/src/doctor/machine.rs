//! Processors, memory, other load, and the limits of this process.

use std::fs::OpenOptions;
use std::io;
use std::path::PathBuf;

use forebay_uring::probe::{self, KernelVersion};
use procfs::{CpuPressure, Current};
use rustix::process::{Resource, getrlimit};

use super::facts::{Capability, Facts, HUGE_PAGES};
use super::finding::{Finding, degraded, full, missing, quoted};
use crate::chosen::chosen;
use crate::figures::bytes;

const FREQUENCY: &str = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";

/// Default size of the cache, and the share of memory it takes if that is less.
const CACHE_BYTES: u64 = 256 << 20;
const CACHE_OF_MEMORY: u64 = 16;

/// The first kernel that reads files of a mount itself (FUSE passthrough).
const PASSTHROUGH: KernelVersion = KernelVersion { major: 6, minor: 9 };

/// The parameter that permits FUSE over io_uring (Linux 6.14).
const ENABLE_URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// Files that a ring may register, and the other descriptors of a process.
const DESCRIPTORS: u64 = 1024 + 64;

/// Descriptors that are enough for many files.
const MANY_DESCRIPTORS: u64 = 65_536;

/// Percent of the last ten seconds that tasks waited for a processor: more disturbs measurements.
const MUCH_WAITING: f32 = 10.0;

pub(super) fn processors(facts: &Facts) -> Option<Finding> {
    let ranges = &facts.process.processors;
    let allowed: u32 = ranges.iter().map(|(first, last)| last - first + 1).sum();
    let listed = facts.tree.word("/sys/devices/system/cpu/online");
    let online = listed.as_deref().and_then(probe::counted).unwrap_or(allowed);
    let found = match online == allowed {
        true => allowed.to_string(),
        false => format!("{allowed} of {online}"),
    };
    if allowed != 1 {
        return full(found, "callers and writeback contexts have processors of their own");
    }
    let lost = degraded(found, "callers and the writeback context share one processor");
    if online <= 1 {
        return lost.advise("use a machine with two processors");
    }
    // Lets the shell that starts the program run everywhere.
    let line = format!("taskset -p -c 0-{} $$", online - 1);
    lost.root("allow more processors (in a container: its cpuset)", line)
}

/// Judges the least processor time that a control group allows.
pub(super) fn quota(facts: &Facts) -> Option<Finding> {
    let quotas = facts.tree.groups().into_iter().filter_map(|group| {
        let text = facts.tree.word(group.join("cpu.max"))?;
        let (time, period) = text.split_once(' ')?;
        let (time, period): (f64, f64) = (time.parse().ok()?, period.parse().ok()?);
        (period > 0.0).then_some((group, time / period))
    });
    let (group, processors) = quotas.min_by(|one, other| one.1.total_cmp(&other.1))?;
    let found = format!("{processors:.2} processors ({})", group.display());
    let means = "when it is used up, all threads stop until the next period, also during a sync";
    let line = format!("echo max > {}", quoted(group.join("cpu.max")));
    degraded(found, means).root("remove or raise the quota", line)
}

pub(super) fn governor(facts: &Facts) -> Option<Finding> {
    let governor = facts.tree.word(FREQUENCY)?;
    if governor == "performance" {
        return full(governor, "processors keep their frequency between requests");
    }
    let means = "processors slow down between requests: latency is higher, and figures vary";
    degraded(governor, means).root(
        "keep the frequency up until the next boot",
        "echo performance | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    )
}

pub(super) fn load(_: &Facts) -> Option<Finding> {
    judged_load(CpuPressure::current().ok()?.some.avg10)
}

fn judged_load(waiting: f32) -> Option<Finding> {
    let found = format!("tasks waited for a processor {waiting:.0} % of the last ten seconds");
    if waiting <= MUCH_WAITING {
        return full(found, "other programs leave the processors free");
    }
    let means = "other programs take the processors: figures vary, and syncs take longer";
    degraded(found, means).user(
        "end other work, or measure on processors of your own (--cpus); to see what runs:",
        "top -b -n 1 | head -n 20",
    )
}

pub(super) fn memory(facts: &Facts) -> Option<Finding> {
    let limits = facts.tree.groups().into_iter().filter_map(|group| {
        let file = group.join("memory.max");
        Some((facts.tree.number::<u64>(&file)?, file))
    });
    judged_memory(probe::memory_limit(), limits.min())
}

/// Judges the usable memory; `limit` is the least of the control groups, and its file.
fn judged_memory(usable: u64, limit: Option<(u64, PathBuf)>) -> Option<Finding> {
    let limit = limit.filter(|(limit, _)| *limit <= usable);
    let found = match &limit {
        Some((limit, file)) => format!("{} (limit in {})", bytes(*limit as f64), file.display()),
        None => bytes(usable as f64),
    };
    let default = CACHE_BYTES.min(usable / CACHE_OF_MEMORY);
    let means = format!("the default cache is {} (cache_bytes)", bytes(default as f64));
    match limit {
        _ if default == CACHE_BYTES => full(found, means),
        Some((_, file)) => degraded(found, means)
            .root("raise the limit of the control group", format!("echo 4G > {}", quoted(file))),
        None => degraded(found, means).advise("set cache_bytes, if there is enough memory"),
    }
}

pub(super) fn huge_pages(facts: &Facts) -> Option<Finding> {
    let lost = |found: &str| {
        missing(found, "a request of 1 MiB has 256 segments, each pinned and mapped alone")
    };
    let Some(anonymous) = facts.tree.word(format!("{HUGE_PAGES}/enabled")) else {
        let what = "run a kernel with CONFIG_TRANSPARENT_HUGEPAGE";
        return lost("not in this kernel").advise(what);
    };
    let shared = facts.tree.word(format!("{HUGE_PAGES}/shmem_enabled"));
    let shared = shared.unwrap_or_else(|| "never".to_owned());
    let found = format!("{}; for shared memory: {}", chosen(&anonymous), chosen(&shared));
    if facts.has_huge_pages() {
        return full(found, "the arena uses them, so that a request of 1 MiB is one segment");
    }
    if facts.process.is_without_huge_pages {
        let what = "this process may not use them (PR_SET_THP_DISABLE); change how it is started";
        return lost(&found).advise(what);
    }
    let line = format!("echo madvise > {HUGE_PAGES}/enabled");
    lost(&found).root("allow them for programs that ask (madvise)", line)
}

pub(super) fn descriptors(_: &Facts) -> Option<Finding> {
    let limit = getrlimit(Resource::Nofile);
    judged_descriptors(limit.current, limit.maximum)
}

/// Judges the soft and the hard limit of descriptors; none is no limit.
fn judged_descriptors(soft: Option<u64>, hard: Option<u64>) -> Option<Finding> {
    let shown =
        |limit: Option<u64>| limit.map_or_else(|| "no limit".to_owned(), |limit| limit.to_string());
    let found = match soft == hard {
        true => shown(soft),
        false => format!("{} (can be raised to {})", shown(soft), shown(hard)),
    };
    if soft.is_none_or(|limit| limit >= DESCRIPTORS) {
        return full(found, "each open file uses one");
    }
    let means = "each open file uses one: with a thousand files open, the next open fails";
    if hard.is_none_or(|limit| limit >= MANY_DESCRIPTORS) {
        let line = format!("ulimit -n {MANY_DESCRIPTORS}");
        return degraded(found, means).user("raise it in the shell that starts the program", line);
    }
    degraded(found, means).root(
        "raise it for the running shell that starts the program ($$ is its process)",
        format!("prlimit --nofile={MANY_DESCRIPTORS} --pid $$"),
    )
}

pub(super) fn fuse(facts: &Facts) -> Option<Finding> {
    let device = facts.tree.place("/dev/fuse");
    let error = match OpenOptions::new().read(true).write(true).open(device) {
        Ok(_) => {
            // Without it the engine of a mount reads every file.
            let reads = match facts.process.may(Capability::SysAdmin) {
                _ if facts.version < PASSTHROUGH => "with Linux 6.9, the kernel reads files itself",
                true => "the kernel reads files without unwritten data itself",
                false => "on a mount of root, the kernel reads files itself",
            };
            let rings = match facts.tree.word(ENABLE_URING).as_deref() {
                Some("Y") => "; with --rings, requests come over io_uring (enable_uring is Y)",
                Some(_) => "; not over io_uring (the parameter enable_uring is N)",
                None => "",
            };
            let means = format!("`forebay mount` works; {reads}{rings}");
            return full("/dev/fuse can be opened", means);
        }
        Err(error) => error,
    };
    let means = "`forebay mount` and the disks that `compare --disk` imitates do not work";
    let lost = missing(format!("/dev/fuse: {error}"), means);
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            lost.root("let all users serve file systems", "chmod 666 /dev/fuse")
        }
        _ => lost.root("load its module (in a container: --device /dev/fuse)", "modprobe fuse"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::fake::Fake;
    use super::super::finding::Level;
    use super::*;

    const ONLINE: &str = "/sys/devices/system/cpu/online";

    fn line(finding: Finding) -> String {
        let command = finding.remedy.and_then(|remedy| remedy.command);
        command.map(|command| command.line).unwrap_or_default()
    }

    #[test]
    fn one_processor_is_few() {
        let mut fake = Fake::new(&[(ONLINE, "0-3\n")]);
        assert_eq!(processors(&fake.facts).unwrap().found, "4");
        fake.facts.process.processors = vec![(0, 0), (3, 3)];
        let some = processors(&fake.facts).unwrap();
        assert_eq!((some.level, some.found.as_str()), (Level::Full, "2 of 4"));
        fake.facts.process.processors = vec![(2, 2)];
        assert_eq!(line(processors(&fake.facts).unwrap()), "taskset -p -c 0-3 $$");
        fake.write(ONLINE, "2\n");
        let small = processors(&fake.facts).unwrap();
        assert_eq!((small.level, line(small)), (Level::Degraded, String::new()));
    }

    #[test]
    fn the_least_quota_and_limit_of_the_groups_count() {
        let fake = Fake::new(&[
            ("/proc/self/cgroup", "0::/a/b\n"),
            ("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("/sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "1048576\n"),
        ]);
        let found = quota(&fake.facts).unwrap();
        assert_eq!(found.found, "1.50 processors (/sys/fs/cgroup/a)");
        assert_eq!(line(found), "echo max > /sys/fs/cgroup/a/cpu.max");
        assert!(quota(&Fake::new(&[]).facts).is_none());

        let small = memory(&fake.facts).unwrap();
        assert_eq!(small.found, "1 MiB (limit in /sys/fs/cgroup/a/memory.max)");
        let small =
            judged_memory(1 << 30, Some((1 << 30, "/sys/fs/cgroup/a/memory.max".into()))).unwrap();
        assert!(small.means.starts_with("the default cache is 64 MiB"), "{}", small.means);
        assert_eq!(line(small), "echo 4G > /sys/fs/cgroup/a/memory.max");
        // A limit above the machine's memory limits nothing.
        assert_eq!(
            judged_memory(16 << 30, Some((1 << 60, "x".into()))).unwrap().level,
            Level::Full
        );
        let poor = judged_memory(2 << 30, None).unwrap();
        assert_eq!((poor.level, line(poor)), (Level::Degraded, String::new()));
    }

    #[test]
    fn a_limit_is_raised_by_its_user_or_by_root() {
        let judged = |soft, hard| judged_descriptors(Some(soft), Some(hard)).unwrap();
        assert_eq!(judged(20_000, 20_000).level, Level::Full);
        assert_eq!(line(judged(1024, 1 << 20)), "ulimit -n 65536");
        assert_eq!(line(judged(1024, 4096)), "prlimit --nofile=65536 --pid $$");
        assert_eq!(judged(1024, 4096).level, Level::Degraded);
    }

    #[test]
    fn huge_pages_of_either_memory_suffice() {
        let fake = Fake::new(&[]);
        assert_eq!(huge_pages(&fake.facts).unwrap().found, "not in this kernel");
        for (anonymous, shared, level) in [
            ("always [madvise] never", "[never]", Level::Full),
            ("[always] madvise never", "[deny]", Level::Full),
            ("always madvise [never]", "[advise]", Level::Full),
            ("always madvise [never]", "[never]", Level::Missing),
        ] {
            fake.write(&format!("{HUGE_PAGES}/enabled"), anonymous);
            fake.write(&format!("{HUGE_PAGES}/shmem_enabled"), shared);
            assert_eq!(huge_pages(&fake.facts).unwrap().level, level, "{anonymous} {shared}");
        }
        let never = huge_pages(&fake.facts).unwrap();
        assert_eq!(line(never), "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
        let mut forbidden = fake;
        forbidden.facts.process.is_without_huge_pages = true;
        let reported = huge_pages(&forbidden.facts).unwrap().remedy.unwrap().what;
        assert!(reported.contains("PR_SET_THP_DISABLE"), "{reported}");
    }

    #[test]
    fn a_governor_that_slows_down_and_other_load_are_found() {
        let fake = Fake::new(&[(FREQUENCY, "powersave\n")]);
        let slow = governor(&fake.facts).unwrap();
        assert!(slow.level == Level::Degraded && line(slow).contains("performance"));
        fake.write(FREQUENCY, "performance\n");
        assert_eq!(governor(&fake.facts).unwrap().level, Level::Full);
        assert!(governor(&Fake::new(&[]).facts).is_none());
        assert_eq!(judged_load(3.0).unwrap().level, Level::Full);
        assert_eq!(judged_load(42.0).unwrap().level, Level::Degraded);
    }

    #[test]
    fn without_its_device_there_is_no_fuse() {
        let mut fake = Fake::new(&[]);
        assert_eq!(line(fuse(&fake.facts).unwrap()), "modprobe fuse");
        fake.write("/dev/fuse", "");
        for (minor, capabilities, says) in [
            (8, u64::MAX, "works; with Linux 6.9, the kernel reads"),
            (9, u64::MAX, "works; the kernel reads"),
            (9, 0, "works; on a mount of root, the kernel reads"),
        ] {
            fake.facts.version = KernelVersion { major: 6, minor };
            fake.facts.process.capabilities = capabilities;
            let found = fuse(&fake.facts).unwrap();
            assert!(found.level == Level::Full && found.means.contains(says), "{}", found.means);
            assert!(!found.means.contains("enable_uring"), "{}", found.means);
        }
        for value in ["Y", "N"] {
            fake.write(ENABLE_URING, &format!("{value}\n"));
            let means = fuse(&fake.facts).unwrap().means;
            assert!(means.contains(&format!("enable_uring is {value})")), "{means}");
        }
    }
}
