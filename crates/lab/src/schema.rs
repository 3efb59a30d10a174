//! The document of `--json`: the same for `run` and `compare`.
//!
//! ```text
//! { schema: 1, manifest, suite,
//!   rows:        [ { job, arm, metric, unit, better, mean, stddev, rounds: [..] } ],
//!   comparisons: [ { job, metric, base, arm, ratio, ci_low, ci_high, p, verdict } ],
//!   differences: [ { job, metric, unit, base, arm, value, ci_low, ci_high, p, floor, shown } ],
//!   parts:       [ { name, title, metric, .., jobs: [ { name, title, probe, depth, base } ] } ],
//!   cells:       [ { job, arm, round, read: { operations, latency, .. }, write, usage } ] }
//! ```
//!
//! The tables are made from this and nothing else, so a file can be shown again without running
//! anything. Names stay; a later version may add fields, and only a change of meaning raises
//! `schema`. Values not measured in a round are null, as are numbers that are not finite.
//! `docs/result.md` describes every field, those of the manifest and the details included.

mod lines;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cell::CellResult;
use crate::compare::state::CellState;
use crate::detail::Detail;
use crate::manifest::Manifest;
use crate::metric::{Better, Metric};
use crate::refusal::Refusal;
use crate::statistics::{Estimate, Verdict, verdict};
use crate::suite::model::{Form, Published};
use crate::whole_file;

/// The version of the document.
pub const SCHEMA: u32 = 1;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Document {
    pub schema: u32,
    pub manifest: Manifest,
    pub suite: String,
    pub rows: Vec<Row>,
    pub comparisons: Vec<Comparison>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<CellRecord>,
}

/// An arm and its base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Against<'a> {
    pub arm: &'a str,
    pub base: &'a str,
}

/// A metric of an arm above (or below) that of its base, in its own unit.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Difference {
    pub job: String,
    pub metric: String,
    pub unit: String,
    pub base: String,
    pub arm: String,
    pub value: f64,
    pub ci_low: f64,
    pub ci_high: f64,
    /// Exact paired sign-flip test of its ranks, two-sided; none in files from before it was asked
    /// for.
    #[serde(default)]
    pub p: Option<f64>,
    pub floor: Option<f64>,
    pub shown: bool,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    pub job: String,
    pub arm: String,
    pub metric: String,
    pub unit: String,
    pub better: Better,
    pub mean: f64,
    pub stddev: Option<f64>,
    pub rounds: Vec<Option<f64>>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Comparison {
    pub job: String,
    pub metric: String,
    pub base: String,
    pub arm: String,
    pub ratio: f64,
    pub ci_low: f64,
    pub ci_high: f64,
    pub p: f64,
    pub verdict: Verdict,
}

/// One part of a suite: one table, or one for each job.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Part {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    pub title: String,
    pub metric: String,
    pub again: String,
    pub rounds: u32,
    #[serde(default)]
    pub seconds: Option<f64>,
    pub cell_bytes: Option<u64>,
    #[serde(default)]
    pub form: Option<Form>,
    #[serde(default)]
    pub scale: Option<f64>,
    #[serde(default)]
    pub data_bytes: Option<u64>,
    pub orders: Vec<Vec<String>>,
    pub jobs: Vec<PartJob>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Published>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<CellState>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PartJob {
    pub name: String,
    pub title: String,
    pub workload: String,
    /// Name of its probe; empty in older results.
    #[serde(default)]
    pub probe: String,
    pub device: Option<String>,
    pub depth: Option<u32>,
    pub base: Option<String>,
}

impl PartJob {
    /// Returns its title, or its name if it has none.
    pub fn heading(&self) -> &str {
        if self.title.is_empty() { &self.name } else { &self.title }
    }
}

/// How one cell went.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CellRecord {
    pub job: String,
    pub arm: String,
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

impl Row {
    /// Returns a row of a mean without rounds.
    pub fn of(job: &str, arm: &str, metric: &Metric, mean: f64) -> Self {
        debug_assert!(!mean.is_nan(), "{job}, {arm}: {} is no number", metric.name);
        Self {
            job: job.to_owned(),
            arm: arm.to_owned(),
            metric: metric.name.to_owned(),
            unit: metric.unit.to_owned(),
            better: metric.better,
            mean,
            stddev: None,
            rounds: Vec::new(),
        }
    }
}

impl Comparison {
    /// Returns the comparison of a pair; `floor` is the noise floor of the metric.
    pub fn of(
        job: &str,
        metric: &Metric,
        pair: Against<'_>,
        found: &Estimate,
        floor: Option<f64>,
    ) -> Self {
        debug_assert!(
            found.low <= found.high && floor.is_none_or(|floor| floor >= 0.0),
            "{found:?}"
        );
        Self {
            job: job.to_owned(),
            metric: metric.name.to_owned(),
            base: pair.base.to_owned(),
            arm: pair.arm.to_owned(),
            ratio: found.value,
            ci_low: found.low,
            ci_high: found.high,
            p: found.p,
            verdict: verdict(found, floor, metric.better),
        }
    }

    /// Returns the mark of a difference that is not shown.
    pub fn mark(&self) -> &'static str {
        if self.verdict == Verdict::NotShown { "~" } else { "" }
    }
}

impl Document {
    pub fn new(
        manifest: Manifest,
        suite: impl Into<String>,
        rows: Vec<Row>,
        comparisons: Vec<Comparison>,
    ) -> Self {
        Self {
            schema: SCHEMA,
            manifest,
            suite: suite.into(),
            rows,
            comparisons,
            differences: Vec::new(),
            parts: Vec::new(),
            cells: Vec::new(),
        }
    }

    /// Returns the arms of a job in the order of their first rows.
    pub fn arms_of(&self, job: &str) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        let rows = self.rows.iter().filter(|row| row.job == job);
        rows.map(|row| row.arm.as_str()).filter(|arm| seen.insert(*arm)).collect()
    }

    /// Writes it as JSON: in full or not at all. An older file stays until it is complete.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        whole_file::write(path, |file| self.write_to(file))
    }

    /// Reads what [`Document::write`] has written.
    pub fn read(path: &Path) -> Result<Self, Refusal> {
        let (file, path) = (path, path.display());
        let text = fs::read_to_string(file).map_err(|error| {
            let remedy = "give a file of --json or a directory of --bundle";
            Refusal(format!("cannot read {path}: {error}; {remedy}"))
        })?;
        let other = |error: serde_json::Error| {
            Refusal(format!("{path} is not a result of forebay: {error}; give a file of --json"))
        };
        // The version before the rest: what another version calls its fields is not known.
        let Version { schema } = serde_json::from_str(&text).map_err(other)?;
        if schema != SCHEMA {
            return Err(Refusal(format!(
                "{path} has schema {schema}, this program reads {SCHEMA}; use the forebay that \
                 wrote it"
            )));
        }
        serde_json::from_str(&text).map_err(other)
    }

    fn write_to(&self, file: impl Write) -> io::Result<()> {
        let mut file = BufWriter::new(file);
        lines::write(&mut file, self)?;
        file.write_all(b"\n")?;
        file.flush()
    }
}

#[derive(Deserialize)]
struct Version {
    schema: u32,
}

/// Returns the name of the arm that is the other one once more: what differs between them is noise.
pub fn again(arm: &str) -> String {
    format!("{arm}-again")
}
#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::compare::judge::rows;
    use crate::detail::Holds;

    fn result(speed: f64) -> CellResult {
        let metrics = [("write_bytes_per_s".to_owned(), speed), ("no_such_metric".to_owned(), 1.0)];
        CellResult { metrics: metrics.into(), ..CellResult::default() }
    }

    fn document() -> Document {
        let comparison = Comparison {
            job: "job".into(),
            metric: "write_bytes_per_s".into(),
            base: "kernel-bounded".into(),
            arm: "forebay".into(),
            ratio: 1.5,
            ci_low: 1.25,
            ci_high: 1.75,
            p: 0.0625,
            verdict: Verdict::NotShown,
        };
        let rows = rows("job", "forebay", &[result(100.0), result(f64::NAN), result(300.0)]);
        Document::new(Manifest::default(), "layout", rows, vec![comparison])
    }

    #[test]
    fn the_names_are_the_agreed_ones() {
        let value = serde_json::to_value(document()).unwrap();
        assert_eq!(value["schema"], 1);
        let row = &value["rows"][0];
        assert_eq!(
            (row["arm"].as_str(), row["better"].as_str()),
            (Some("forebay"), Some("higher"))
        );
        assert_eq!((row["unit"].as_str(), row["mean"].as_f64()), (Some("B/s"), Some(200.0)));
        assert_eq!(row["rounds"], serde_json::json!([100.0, null, 300.0]));
        assert_eq!(value["comparisons"][0]["verdict"], "not shown");
        assert_eq!(value["rows"].as_array().unwrap().len(), 1, "only known metrics are rows");
    }

    #[test]
    fn one_round_has_no_spread() {
        let value = serde_json::to_value(rows("job", "null", &[result(1.0)])).unwrap();
        assert!(value[0]["stddev"].is_null());
    }

    #[test]
    fn it_is_read_as_it_was_written_and_nothing_else_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("result.json");
        document().write(&path).unwrap();
        document().write(&path).unwrap();
        assert_eq!(Document::read(&path).unwrap(), document());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        assert_ne!(fs::metadata(&path).unwrap().permissions().mode() & 0o044, 0o000);
    }

    #[test]
    fn fields_of_a_later_version_are_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("result.json");
        document().write(&path).unwrap();
        let mut later: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        for place in ["", "/manifest", "/manifest/machine", "/rows/0"] {
            later.pointer_mut(place).unwrap()["later"] = 7.into();
        }
        fs::write(&path, later.to_string()).unwrap();
        assert_eq!(Document::read(&path).unwrap(), document());
    }

    #[test]
    fn a_link_stays_a_link_and_a_device_a_device() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("result.json"), directory.path().join("link"));
        fs::write(&path, "old").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        document().write(&link).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(Document::read(&path).unwrap(), document());
        document().write(Path::new("/dev/null")).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn what_is_no_result_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("result.json");
        assert!(Document::read(&path).unwrap_err().to_string().contains("No such file"));
        fs::write(&path, "{}").unwrap();
        assert!(Document::read(&path).unwrap_err().to_string().contains("--json"));
        Document { schema: 9, ..document() }.write(&path).unwrap();
        assert!(
            Document::read(&path)
                .unwrap_err()
                .to_string()
                .contains("has schema 9, this program reads 1")
        );
        fs::write(&path, r#"{"schema": 2, "measured": {}}"#).unwrap();
        let refused = || Document::read(&path).unwrap_err().to_string();
        assert!(refused().contains("has schema 2, this program reads 1"));
        fs::write(&path, r#"{"schema": 0, "rows": []}"#).unwrap();
        assert!(refused().contains("has schema 0, this program reads 1"));
    }

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
