//! How each cell went, as it stands in a document.

use serde::{Deserialize, Serialize};

use crate::cell::CellResult;
use crate::detail::Detail;

/// How one cell went.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CellRecord {
    /// The job, as rows have it.
    pub job: String,
    /// The arm's name.
    pub arm: String,
    /// Which round, from 0.
    pub round: u32,
    /// What was kept of it.
    #[serde(flatten)]
    pub detail: Detail,
}

/// Those of one arm, one for each round of which something was kept.
#[must_use]
pub fn cells(job: &str, arm: &str, rounds: &[CellResult]) -> Vec<CellRecord> {
    let kept = (0..).zip(rounds).filter_map(|(round, result)| Some((round, result.detail.as_deref()?)));
    kept.map(|(round, detail)| CellRecord {
        job: job.to_owned(),
        arm: arm.to_owned(),
        round,
        detail: detail.clone(),
    })
    .collect()
}
