//! The probes, one file each.

mod commit;
mod copy;
mod create;
mod files;
mod log;
mod put;
mod read_miss;
mod resident;
mod small_sync;
mod tasks;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::probe::Probe;
use crate::metric::Metric;

/// Every probe.
static PROBES: &[&Probe] = &[
    &put::PROBE,
    &log::PROBE,
    &tasks::PROBE,
    &small_sync::PROBE,
    &copy::PROBE,
    &create::PROBE,
    &resident::PROBE,
    &commit::PROBE,
    &read_miss::PROBE,
    &files::PROBE,
];

impl Probe {
    /// Returns the probe of a name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        PROBES.iter().copied().find(|probe| probe.name == name)
    }

    /// Returns metrics that only one probe has.
    pub(crate) fn metrics() -> impl Iterator<Item = &'static Metric> {
        PROBES.iter().flat_map(|probe| probe.metrics)
    }
}

/// A probe by its name, in a suite and in a cell.
impl Serialize for Probe {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

impl<'de> Deserialize<'de> for &'static Probe {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Probe::by_name(&name).ok_or_else(|| {
            let known: Vec<&str> = PROBES.iter().map(|probe| probe.name).collect();
            serde::de::Error::custom(format!(
                "{name}: no such probe (there are: {})",
                known.join(", ")
            ))
        })
    }
}
