//! A job: what one thread does to its files, whatever file it was read from.

use serde::{Deserialize, Serialize};

/// Jobs that start together.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Workload {
    /// In the order of the job file; a job with `numjobs` stands here once per clone.
    pub jobs: Vec<Job>,
}

/// What one thread does.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Its name, unique within the workload.
    pub name: String,
}
