//! How the kernel was built and started, as far as it changes figures.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::machine::word;

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Kernel {
    pub hz: Option<u32>,
    /// When one thread may take the processor from another.
    pub preemption: Option<String>,
    /// Kernel parameters: in full if known to change figures, else the name alone, because the
    /// value may be private.
    pub parameters: Vec<String>,
    /// Mitigations of processor flaws.
    pub mitigations: BTreeMap<String, String>,
    /// Of the page cache and of memory.
    pub memory: BTreeMap<String, String>,
    pub clock_source: Option<String>,
}

/// Parameters that are shown whole; one that ends in `.` or `_` stands for all that begin so.
const SHOWN: [&str; 36] = [
    "mitigations",
    "spectre_",
    "spec_",
    "retbleed",
    "mds",
    "tsx",
    "l1tf",
    "srbds",
    "gather_data_sampling",
    "pti",
    "nopti",
    "nospectre_",
    "kpti",
    "preempt",
    "nohz",
    "nohz_full",
    "isolcpus",
    "rcu_nocbs",
    "irqaffinity",
    "threadirqs",
    "maxcpus",
    "nr_cpus",
    "nosmt",
    "mem",
    "transparent_hugepage",
    "swiotlb",
    "iommu",
    "intel_iommu",
    "amd_iommu",
    "intel_pstate",
    "amd_pstate",
    "intel_idle.",
    "processor.",
    "nvme.",
    "psi",
    "clocksource",
];

/// Files of memory's settings, with the names they get.
const MEMORY: [(&str, &str); 9] = [
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

impl Kernel {
    pub fn here(release: &str) -> Self {
        let config = config(release).unwrap_or_default();
        let memory =
            MEMORY.into_iter().filter_map(|(name, path)| Some((name.to_owned(), word(path)?)));
        Self {
            hz: configured(&config, "HZ").and_then(|hz| hz.parse().ok()),
            preemption: preemption(&config),
            parameters: word("/proc/cmdline").map(|line| parameters(&line)).unwrap_or_default(),
            mitigations: mitigations(),
            memory: memory.collect(),
            clock_source: word("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        }
    }
}

/// Returns the build configuration if the kernel shows it.
fn config(release: &str) -> Option<String> {
    let beside = format!("/boot/config-{release}");
    fs::read_to_string(beside).ok().or_else(|| {
        let unpacked = Command::new("gzip")
            .args(["-dc", "/proc/config.gz"])
            .stdin(Stdio::null())
            .output()
            .ok()?;
        unpacked.status.success().then(|| String::from_utf8_lossy(&unpacked.stdout).into_owned())
    })
}

fn configured(config: &str, name: &str) -> Option<String> {
    let value = config
        .lines()
        .find_map(|line| line.strip_prefix("CONFIG_")?.strip_prefix(name)?.strip_prefix('='));
    value.map(|value| value.trim_matches('"').to_owned())
}

/// As it is set now, which root may see; else as it was built.
fn preemption(config: &str) -> Option<String> {
    if let Some(modes) = word("/sys/kernel/debug/sched/preempt") {
        let chosen = modes.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
        return chosen.map(|(mode, _)| mode.to_owned());
    }
    let built = [("PREEMPT_RT", "rt"), ("PREEMPT_LAZY", "lazy"), ("PREEMPT_NONE", "none")];
    let built = built.into_iter().chain([("PREEMPT_VOLUNTARY", "voluntary"), ("PREEMPT", "full")]);
    let mode =
        built.into_iter().find(|(name, _)| configured(config, name).as_deref() == Some("y"))?.1;
    let dynamic = configured(config, "PREEMPT_DYNAMIC").is_some();
    Some(if dynamic { format!("{mode} (as built; it can be changed)") } else { mode.to_owned() })
}

/// Words after `--` are not for the kernel.
fn parameters(line: &str) -> Vec<String> {
    let words = line.split_whitespace().take_while(|word| *word != "--");
    let told = words.map(|word| match word.split_once('=') {
        Some((name, _)) if !is_shown(name) => format!("{name}=..."),
        _ => word.to_owned(),
    });
    told.collect()
}

fn is_shown(name: &str) -> bool {
    SHOWN.iter().any(|known| match known.ends_with(['.', '_']) {
        true => name.starts_with(known),
        false => name == *known,
    })
}

fn mitigations() -> BTreeMap<String, String> {
    let Ok(entries) = fs::read_dir("/sys/devices/system/cpu/vulnerabilities") else {
        return BTreeMap::new();
    };
    let of = |entry: fs::DirEntry| {
        let told = word(entry.path().to_str()?)?;
        Some((entry.file_name().to_string_lossy().into_owned(), told))
    };
    let all = entries.filter_map(|entry| of(entry.ok()?));
    all.filter(|(_, told)| told != "Not affected").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_parameter_is_set_to_is_told_only_where_it_matters() {
        let line = "mitigations=auto quiet root=UUID=1234 intel_idle.max_cstate=1 ip=10.0.0.2::::host nosmt -- --token x";
        let told = parameters(line);
        assert_eq!(
            told,
            ["mitigations=auto", "quiet", "root=...", "intel_idle.max_cstate=1", "ip=...", "nosmt"]
        );
    }

    #[test]
    fn what_it_was_built_with() {
        let config =
            "CONFIG_HZ_250=y\nCONFIG_HZ=250\nCONFIG_PREEMPT_NONE=y\nCONFIG_PREEMPT_DYNAMIC=y\n";
        assert_eq!(configured(config, "HZ").as_deref(), Some("250"));
        assert_eq!(configured(config, "PREEMPT"), None);
        if !fs::exists("/sys/kernel/debug/sched/preempt").unwrap_or(false) {
            assert_eq!(preemption(config).as_deref(), Some("none (as built; it can be changed)"));
            assert_eq!(preemption(""), None);
        }
    }
}
