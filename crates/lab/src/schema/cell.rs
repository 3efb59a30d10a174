//! How each cell went, as it stands in a document.

use serde::{Deserialize, Serialize};

use crate::cell::CellResult;
use crate::detail::Detail;

/// How one cell went.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CellRecord {
    /// The job, as rows have it.
    pub job: String,
    pub arm: String,
    /// From 0.
    pub round: u32,
    #[serde(flatten)]
    pub detail: Detail,
}

/// Cells of an arm with details, one for each round.
pub fn cells(job: &str, arm: &str, rounds: &[CellResult]) -> Vec<CellRecord> {
    let kept =
        (0..).zip(rounds).filter_map(|(round, result)| Some((round, result.detail.as_deref()?)));
    kept.map(|(round, detail)| CellRecord {
        job: job.to_owned(),
        arm: arm.to_owned(),
        round,
        detail: detail.clone(),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detail::Holds;

    #[test]
    fn how_long_completions_were_held_is_reported_where_it_is_known() {
        // As results of before have it.
        let text = r#"{"job":"job","arm":"forebay","round":0,"usage":{"user_us":1,"system_us":2,
            "context_switches":3,"major_faults":4,"minor_faults":5}}"#;
        let mut cell: CellRecord = serde_json::from_str(text).unwrap();
        assert!(cell.detail.holds.is_empty());
        assert!(!serde_json::to_string(&cell).unwrap().contains("holds"));
        cell.detail.holds = Holds(vec![(0, 7), (24_576, 1)]);
        let text = serde_json::to_string(&cell).unwrap();
        assert!(text.contains(r#""holds":[[0,7],[24576,1]]"#), "{text}");
        assert_eq!(serde_json::from_str::<CellRecord>(&text).unwrap(), cell);
    }
}
