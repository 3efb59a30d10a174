//! Kernel, processors, memory, and whether the machine is a guest.

use std::collections::BTreeMap;
use std::fs;

use forebay_uring::probe;
use procfs::{Current, Meminfo};
use serde::{Deserialize, Serialize};

use super::kernel::Kernel;

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    pub release: String,
    pub build: String,
    pub architecture: String,
    pub cpu_model: Option<String>,
    /// Processors this process may run on.
    pub cpus: u32,
    pub memory_bytes: u64,
    /// Memory limit of our control group.
    pub memory_limit_bytes: Option<u64>,
    /// The hypervisor or container it seems to run in. A hint, not a proof.
    pub virtualization: Option<String>,
    /// Governor of the first processor's frequency.
    pub cpu_governor: Option<String>,
    /// Processors of the machine that are in use.
    #[serde(default)]
    pub cpus_online: Option<String>,
    /// Threads of one core: `1` with simultaneous multithreading `0`.
    #[serde(default)]
    pub multithreading: Option<String>,
    /// Frequency driver of the first processor, its preference, and whether it may exceed its
    /// nominal frequency.
    #[serde(default)]
    pub cpu_frequency: BTreeMap<String, String>,
    /// Other limits of our control group, up to the root, that are not `max`.
    #[serde(default)]
    pub group_limits: Vec<String>,
    #[serde(default)]
    pub kernel: Kernel,
}

/// Files of a processor's frequency, with the names they get.
const FREQUENCY: [(&str, &str); 7] = [
    ("driver", "cpu0/cpufreq/scaling_driver"),
    ("preference", "cpu0/cpufreq/energy_performance_preference"),
    ("least_khz", "cpu0/cpufreq/scaling_min_freq"),
    ("most_khz", "cpu0/cpufreq/scaling_max_freq"),
    ("boost", "cpufreq/boost"),
    ("no_turbo", "intel_pstate/no_turbo"),
    ("idle", "cpuidle/current_driver"),
];

/// Files of limits that matter here.
const LIMITS: [&str; 4] = ["cpu.max", "memory.high", "memory.swap.max", "io.max"];

impl Machine {
    pub fn here() -> Self {
        let name = rustix::system::uname();
        let text = |field: &std::ffi::CStr| field.to_string_lossy().into_owned();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            release: text(name.release()),
            build: text(name.version()),
            architecture: text(name.machine()),
            cpu_model: field(&cpuinfo, &["model name", "Processor", "CPU part"]),
            cpus: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
            memory_bytes: memory_bytes().unwrap_or(0),
            memory_limit_bytes: memory_limit_bytes(),
            virtualization: virtualization(&cpuinfo),
            cpu_governor: word("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            cpus_online: word("/sys/devices/system/cpu/online"),
            multithreading: word("/sys/devices/system/cpu/smt/active"),
            cpu_frequency: FREQUENCY
                .into_iter()
                .filter_map(|(name, file)| {
                    Some((name.to_owned(), word(&format!("/sys/devices/system/cpu/{file}"))?))
                })
                .collect(),
            group_limits: group_limits(),
            kernel: Kernel::here(&text(name.release())),
        }
    }

    /// The release without what the distribution adds: `6.18`.
    pub fn short_release(&self) -> String {
        let end = self.release.match_indices('.').nth(1).map_or(self.release.len(), |(at, _)| at);
        self.release[..end].split('-').next().unwrap_or_default().to_owned()
    }
}

/// The content of a small file of one line; none if it cannot be read or is empty.
pub(super) fn word(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The value of the first of these keys in lines `key : value`.
fn field(text: &str, keys: &[&str]) -> Option<String> {
    keys.iter().find_map(|key| {
        let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
        let value = rest.trim_start().strip_prefix(':')?.trim();
        (!value.is_empty()).then(|| value.to_owned())
    })
}

fn memory_bytes() -> Option<u64> {
    Meminfo::current().ok().map(|memory| memory.mem_total)
}

/// The least limit of our control groups; none if that is not below the machine's memory.
fn memory_limit_bytes() -> Option<u64> {
    let limit = probe::memory_limit();
    (limit < memory_bytes()?).then_some(limit)
}

/// Of the one hierarchy that newer kernels have. The groups' own names are nobody's business.
fn group_limits() -> Vec<String> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some(path) = groups.lines().find_map(|line| line.strip_prefix("0::")) else {
        return Vec::new();
    };
    let ancestors = std::path::Path::new(path.trim_start_matches('/')).ancestors();
    let limits = ancestors.flat_map(|group| {
        LIMITS.iter().filter_map(move |name| {
            let told = word(&format!("/sys/fs/cgroup/{}/{name}", group.display()))?;
            (!told.starts_with("max")).then(|| format!("{name}: {}", told.replace('\n', "; ")))
        })
    });
    limits.collect()
}

fn virtualization(cpuinfo: &str) -> Option<String> {
    let container = word("/run/systemd/container")
        .or_else(|| fs::exists("/.dockerenv").unwrap_or(false).then(|| "docker".to_owned()))
        .or_else(|| fs::exists("/run/.containerenv").unwrap_or(false).then(|| "podman".to_owned()));
    let guest = field(cpuinfo, &["flags"])
        .is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"))
        .then(|| "hypervisor".to_owned());
    let product = word("/sys/hypervisor/type")
        .or_else(|| guest.as_ref().and(word("/sys/class/dmi/id/sys_vendor")));
    let hints: Vec<String> = [container, product.or(guest)].into_iter().flatten().collect();
    (!hints.is_empty()).then(|| hints.join(" on "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_cut_to_what_matters() {
        let short = |release: &str| {
            Machine { release: release.into(), ..Machine::default() }.short_release()
        };
        assert_eq!(short("6.18.44"), "6.18");
        assert_eq!(short("6.1.0-44-cloud-amd64"), "6.1");
        assert_eq!(short("7.0-rc3"), "7.0");
        assert_eq!(short(""), "");
    }

    #[test]
    fn fields_of_cpuinfo() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t\t: fpu hypervisor\n";
        assert_eq!(field(text, &["Processor", "model name"]).unwrap(), "Some CPU @ 2 GHz");
        assert_eq!(field(text, &["CPU part"]), None);
        assert!(virtualization(text).is_some());
    }
}
