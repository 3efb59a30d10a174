//! Kernel, processors, memory, whether the machine is a guest, and settings that change figures.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use forebay_uring::probe;
use procfs::{Current, Meminfo};
use serde::{Deserialize, Serialize};

use crate::chosen::chosen;

/// The machine of a result.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    pub release: String,
    pub build: String,
    pub architecture: String,
    pub cpu_model: Option<String>,
    pub cpus: u32,
    pub memory_bytes: u64,
    pub memory_limit_bytes: Option<u64>,
    pub virtualization: Option<String>,
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    #[serde(default)]
    pub mitigations: BTreeMap<String, String>,
    #[serde(default)]
    pub parameters: Vec<String>,
}

/// Files of settings, with the names they get.
#[rustfmt::skip]
const SETTINGS: [(&str, &str); 18] = [
    ("cpus_online", "/sys/devices/system/cpu/online"),
    ("multithreading", "/sys/devices/system/cpu/smt/active"),
    ("governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    ("frequency_driver", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver"),
    ("boost", "/sys/devices/system/cpu/cpufreq/boost"),
    ("no_turbo", "/sys/devices/system/cpu/intel_pstate/no_turbo"),
    ("idle_driver", "/sys/devices/system/cpu/cpuidle/current_driver"),
    ("clock_source", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    ("preemption", "/sys/kernel/debug/sched/preempt"),
    ("dirty_ratio", "/proc/sys/vm/dirty_ratio"),
    ("dirty_background_ratio", "/proc/sys/vm/dirty_background_ratio"),
    ("dirty_bytes", "/proc/sys/vm/dirty_bytes"),
    ("dirty_background_bytes", "/proc/sys/vm/dirty_background_bytes"),
    ("dirty_expire_centisecs", "/proc/sys/vm/dirty_expire_centisecs"),
    ("dirty_writeback_centisecs", "/proc/sys/vm/dirty_writeback_centisecs"),
    ("swappiness", "/proc/sys/vm/swappiness"),
    ("overcommit_memory", "/proc/sys/vm/overcommit_memory"),
    ("transparent_hugepage", "/sys/kernel/mm/transparent_hugepage/enabled"),
];

/// Begins of the kernel parameters that are shown whole.
const SHOWN: [&str; 18] = [
    "mitigations",
    "spec",
    "nospec",
    "retbleed",
    "pti",
    "nopti",
    "preempt",
    "nohz",
    "isolcpus",
    "rcu_nocbs",
    "threadirqs",
    "nosmt",
    "transparent_hugepage",
    "iommu",
    "intel_",
    "amd_",
    "nvme.",
    "processor.",
];

impl Machine {
    /// Reads the facts of this machine.
    pub fn here() -> Self {
        let name = rustix::system::uname();
        let text = |field: &std::ffi::CStr| field.to_string_lossy().into_owned();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory_bytes = Meminfo::current().map_or(0, |memory| memory.mem_total);
        let limit = probe::memory_limit();
        let setting =
            |(name, path): (&str, &str)| Some((name.to_owned(), chosen(&word(path)?).to_owned()));
        Self {
            release: text(name.release()),
            build: text(name.version()),
            architecture: text(name.machine()),
            cpu_model: field(&cpuinfo, &["model name", "Processor", "CPU part"]),
            cpus: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
            memory_bytes,
            memory_limit_bytes: (limit < memory_bytes).then_some(limit),
            virtualization: virtualization(&cpuinfo),
            settings: SETTINGS.into_iter().filter_map(setting).collect(),
            mitigations: mitigations(),
            parameters: word("/proc/cmdline").map(|line| parameters(&line)).unwrap_or_default(),
        }
    }

    /// Returns the release without what the distribution adds: `6.18`.
    pub fn short_release(&self) -> String {
        let end = self.release.match_indices('.').nth(1).map_or(self.release.len(), |(at, _)| at);
        self.release[..end].split('-').next().unwrap_or_default().to_owned()
    }
}

/// Reads a small file of one line; none if it cannot be read or is empty.
pub(super) fn word(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Returns the value of the first of these keys in lines `key : value`.
fn field(text: &str, keys: &[&str]) -> Option<String> {
    keys.iter().find_map(|key| {
        let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
        let value = rest.trim_start().strip_prefix(':')?.trim();
        (!value.is_empty()).then(|| value.to_owned())
    })
}

/// Returns the kernel's parameters. Words after `--` are for other programs.
fn parameters(line: &str) -> Vec<String> {
    let is_shown = |name: &str| SHOWN.iter().any(|begin| name.starts_with(begin));
    let words = line.split_whitespace().take_while(|word| *word != "--");
    let shown = words.map(|word| match word.split_once('=') {
        Some((name, _)) if !is_shown(name) => format!("{name}=..."),
        _ => word.to_owned(),
    });
    shown.collect()
}

fn mitigations() -> BTreeMap<String, String> {
    let entries = fs::read_dir("/sys/devices/system/cpu/vulnerabilities").into_iter().flatten();
    let of = |entry: fs::DirEntry| {
        Some((entry.file_name().to_string_lossy().into_owned(), word(entry.path())?))
    };
    let all = entries.filter_map(|entry| of(entry.ok()?));
    all.filter(|(_, mitigation)| mitigation != "Not affected").collect()
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
    fn the_release_is_cut_to_its_first_two_numbers() {
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

    #[test]
    fn values_of_parameters_that_may_be_private_are_left_out() {
        let line = "mitigations=auto quiet root=UUID=1234 intel_idle.max_cstate=1 ip=10.0.0.2::::host nosmt -- --token x";
        assert_eq!(
            parameters(line),
            ["mitigations=auto", "quiet", "root=...", "intel_idle.max_cstate=1", "ip=...", "nosmt"]
        );
    }

    #[test]
    fn settings_are_read() {
        let machine = Machine::here();
        assert!(machine.settings.contains_key("swappiness"), "{:?}", machine.settings);
    }
}
