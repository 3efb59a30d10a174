//! Whether what was asked for was found: a table that is computed from a result.
//!
//! A ratio is met where its whole 95 % interval is on the asked side, missed where the whole of it is on the other, and
//! else not shown. A figure that is no ratio counts by its mean.

use forebay_lab::schema::{Against, Document, Row};

use crate::list::Aim;

/// The word for what compares with what the job's table does.
const BASE: &str = "base";

/// What was found.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Found {
    value: f64,
    /// Of a ratio.
    interval: Option<(f64, f64)>,
}

/// The lines of a table, with its heading.
#[must_use]
pub fn table(aims: &[&Aim], mut result: impl FnMut(&str) -> Option<Document>) -> String {
    let mut text = "| asked | found | |\n|---|---|---|\n".to_owned();
    for aim in aims {
        let document = result(&aim.measurement);
        let found = document.as_ref().and_then(|document| found(aim, document));
        let (figure, verdict) = match (&found, &document) {
            (Some((found, row)), _) => (told(found, row), verdict(aim, found)),
            (None, Some(_)) => ("-".to_owned(), "not measured: it did not run here"),
            (None, None) => ("-".to_owned(), "not measured"),
        };
        text.push_str(&format!("| {} | {figure} | {verdict} |\n", aim.what));
    }
    text
}

/// The figure an aim is about, and its row.
fn found<'a>(aim: &Aim, document: &'a Document) -> Option<(Found, &'a Row)> {
    let wanted = |row: &&Row| row.arm == aim.arm && row.metric == aim.metric;
    let mut rows = document.rows.iter().filter(wanted);
    let row = rows.find(|row| aim.job.as_ref().is_none_or(|job| row.job == *job))?;
    let Some(against) = &aim.against else { return Some((Found { value: row.mean, interval: None }, row)) };
    let base = match against.as_str() {
        BASE => document
            .parts
            .iter()
            .flat_map(|part| &part.jobs)
            .find(|job| job.name == row.job)?
            .base_in(&aim.metric)?,
        arm => arm,
    };
    let found = document.compared(&row.job, &aim.metric, Against { arm: &aim.arm, base })?;
    Some((Found { value: found.ratio, interval: Some((found.ci_low, found.ci_high)) }, row))
}

fn verdict(aim: &Aim, found: &Found) -> &'static str {
    let (low, high) = found.interval.unwrap_or((found.value, found.value));
    let (met, missed) = match (aim.at_least, aim.at_most) {
        (Some(least), _) => (low >= least, high < least),
        (None, Some(most)) => (high <= most, low > most),
        (None, None) => (false, false),
    };
    match (met, missed) {
        (true, _) => "met",
        (_, true) => "**missed**",
        _ => "not shown",
    }
}

fn told(found: &Found, row: &Row) -> String {
    if let Some((low, high)) = found.interval {
        return format!("{:.2} [{low:.2}-{high:.2}]", found.value);
    }
    let value = found.value;
    match row.unit.as_str() {
        "B" => format!("{:.1} MiB", value / f64::from(1 << 20)),
        "B/s" => format!("{:.0} MB/s", value / 1e6),
        // Of a count, a share.
        "1" => format!("{value:.2}"),
        unit if value >= 100.0 => format!("{value:.0} {unit}"),
        unit => format!("{value:.3} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use forebay_lab::manifest::Manifest;
    use forebay_lab::schema::{Comparison, Direction, Part, PartJob};
    use forebay_lab::statistics::Verdict;

    use super::*;

    fn document() -> Document {
        let row = Row {
            job: "j".into(),
            arm: "forebay".into(),
            metric: "iops".into(),
            unit: "1/s".into(),
            better: Direction::Higher,
            mean: 1234.0,
            stddev: None,
            rounds: vec![Some(1234.0)],
        };
        let comparison = Comparison {
            job: "j".into(),
            metric: "iops".into(),
            base: "kernel".into(),
            arm: "forebay".into(),
            ratio: 1.5,
            ci_low: 1.4,
            ci_high: 1.6,
            p: 0.01,
            verdict: Verdict::Better,
        };
        let mut document = Document::new(Manifest::default(), "s", vec![row], vec![comparison]);
        let job = PartJob { name: "j".into(), base: Some("kernel".into()), ..PartJob::default() };
        document.parts.push(Part { jobs: vec![job], ..Part::default() });
        document
    }

    fn line(against: Option<&str>, at_least: Option<f64>, at_most: Option<f64>) -> String {
        let aim = Aim {
            table: "t".into(),
            what: "fast".into(),
            measurement: "m".into(),
            job: None,
            metric: "iops".into(),
            arm: "forebay".into(),
            against: against.map(str::to_owned),
            at_least,
            at_most,
        };
        let table = table(&[&aim], |name| (name == "m").then(document));
        table.lines().nth(2).unwrap().to_owned()
    }

    #[test]
    fn a_ratio_is_met_where_its_whole_interval_is() {
        assert_eq!(line(Some("base"), Some(1.4), None), "| fast | 1.50 [1.40-1.60] | met |");
        assert_eq!(line(Some("kernel"), Some(1.5), None), "| fast | 1.50 [1.40-1.60] | not shown |");
        assert_eq!(line(Some("kernel"), Some(2.0), None), "| fast | 1.50 [1.40-1.60] | **missed** |");
        assert_eq!(line(Some("kernel"), None, Some(1.6)), "| fast | 1.50 [1.40-1.60] | met |");
        assert_eq!(line(Some("kernel"), None, Some(1.0)), "| fast | 1.50 [1.40-1.60] | **missed** |");
    }

    #[test]
    fn a_figure_counts_by_its_mean_and_what_is_not_there_is_not_measured() {
        assert_eq!(line(None, Some(1000.0), None), "| fast | 1234 1/s | met |");
        assert_eq!(line(None, None, Some(1000.0)), "| fast | 1234 1/s | **missed** |");
        assert_eq!(line(Some("other"), Some(1.0), None), "| fast | - | not measured: it did not run here |");
        let aim = "table='t'\nwhat='w'\nmeasurement='x'\nmetric='iops'\narm='a'\nat_least=1.0\n";
        let aim: Aim = toml::from_str(aim).unwrap();
        assert!(table(&[&aim], |_| None).ends_with("| w | - | not measured |\n"));
    }
}
