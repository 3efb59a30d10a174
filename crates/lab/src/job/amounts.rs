//! How much a workload reads and writes, as far as its jobs say so.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Amount, Devices, FileSize, Job, Workload, YesNo};

impl Workload {
    /// Returns the bytes of all its files, as far as the jobs say so; none if it only reads
    /// existing files.
    pub fn file_bytes(&self) -> u64 {
        if self.devices == Devices::ReadOnly {
            return 0;
        }
        self.jobs.iter().map(length).fold(0, u64::saturating_add)
    }

    /// Returns the bytes of the files that are filled before the clock starts; none of a device, or
    /// if it only reads existing files. Jobs that name the same file find it filled by the first.
    pub fn laid_out_bytes(&self) -> u64 {
        if self.devices != Devices::Refuse {
            return 0;
        }
        let mut files: BTreeMap<&Path, u64> = BTreeMap::new();
        for job in self.jobs.iter().filter(|job| job.is_filled()) {
            let each = length(job).div_ceil(job.files.len().max(1) as u64);
            let start = match job.offset {
                Amount::Bytes(bytes) => bytes,
                Amount::Percent(_) => 0,
            };
            let start =
                start.saturating_add(job.offset_increment.saturating_mul(u64::from(job.number)));
            for path in &job.files {
                let bytes = files.entry(path).or_insert(0);
                *bytes = (*bytes).max(start.saturating_add(each));
            }
        }
        files.into_values().fold(0, u64::saturating_add)
    }

    /// Returns whether a job writes as much as it can in a time.
    pub fn writes_for_a_time(&self) -> bool {
        let mut jobs = self.jobs.iter();
        jobs.any(|job| job.access.direction.writes() && job.time_based == YesNo::Yes)
    }

    /// Returns the bytes that the jobs write, as far as that number is fixed.
    pub fn written_bytes(&self) -> u64 {
        let writers = self.jobs.iter().filter(|job| job.access.direction.writes());
        let fixed = writers.filter(|job| job.time_based == YesNo::No);
        let written = fixed.map(|job| match job.io_bytes {
            Some(Amount::Bytes(bytes)) => bytes,
            _ => length(job).saturating_mul(u64::from(job.loops.max(1))),
        });
        written.fold(0, u64::saturating_add)
    }

    /// Returns the longest that any of its jobs runs, if all say so.
    pub fn seconds(&self) -> Option<f64> {
        let micros = |job: &Job| Some(job.ramp_us + job.runtime_us? + job.start_delay_us);
        let all: Option<Vec<u64>> = self.jobs.iter().map(micros).collect();
        all?.into_iter().max().map(|micros| micros as f64 / 1e6)
    }
}

/// Returns the bytes of all files of a job.
fn length(job: &Job) -> u64 {
    match (job.size, job.file_size) {
        (Some(Amount::Bytes(bytes)), _) => bytes,
        (_, Some(FileSize::Fixed(bytes) | FileSize::Range { max: bytes, .. })) => {
            bytes.saturating_mul(job.files.len() as u64)
        }
        _ => 0,
    }
}
