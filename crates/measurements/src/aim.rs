//! Computes the tables of targets from results.
//!
//! A ratio is met if its whole 95 % interval is on the right side, missed if the whole interval is
//! on the other side, and not shown otherwise. It is also not shown if it is no further from the
//! target than an arm is from itself (the noise floor). Of other figures, the mean counts.

use forebay_lab::schema::{Against, Document, Row};
use forebay_lab::statistics::{Paired, distance, ratio};

use crate::list::Aim;

/// In a target: compare with the base of the job's table.
const BASE: &str = "base";

/// Seed of the intervals, fixed so that the same figures make the same table.
const SEED: u64 = 1;

/// A measured figure.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Found {
    value: f64,
    /// 95 % interval of a ratio.
    interval: Option<(f64, f64)>,
    /// Noise floor of the metric, if an arm ran twice.
    floor: Option<f64>,
}

/// Returns a table with its heading.
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

/// Returns the figure of a target, and its row.
fn found<'a>(aim: &Aim, document: &'a Document) -> Option<(Found, &'a Row)> {
    let wanted = |row: &&Row| row.arm == aim.arm && row.metric == aim.metric;
    let mut rows = document.rows.iter().filter(wanted);
    let row = rows.find(|row| aim.job.as_ref().is_none_or(|job| row.job == *job))?;
    let Some(against) = &aim.against else {
        return Some((Found { value: row.mean, interval: None, floor: None }, row));
    };
    let base = match against.as_str() {
        BASE => document
            .parts
            .iter()
            .flat_map(|part| &part.jobs)
            .find(|job| job.name == row.job)?
            .base_in(&aim.metric)?,
        arm => arm,
    };
    let (value, low, high) = ratio_to(document, row, base)?;
    let part = document.parts.iter().find(|part| part.jobs.iter().any(|job| job.name == row.job));
    let floor = part.and_then(|part| document.floor(&row.job, &part.again, &row.metric));
    Some((Found { value, interval: Some((low, high)), floor }, row))
}

/// Returns the ratio of a row to that of another arm, and its 95 % interval.
pub(crate) fn ratio_to(document: &Document, row: &Row, base: &str) -> Option<(f64, f64, f64)> {
    let recorded = document.compared(&row.job, &row.metric, Against { arm: &row.arm, base });
    let recorded = recorded.map(|one| (one.ratio, one.ci_low, one.ci_high));
    recorded.or_else(|| computed(document, row, base))
}

/// Returns a ratio that the comparison itself did not compute.
fn computed(document: &Document, row: &Row, base: &str) -> Option<(f64, f64, f64)> {
    let base = document.row_of(&row.job, base, &row.metric)?;
    let rounds =
        row.rounds.iter().zip(&base.rounds).filter_map(|(arm, base)| Some(((*arm)?, (*base)?)));
    let (arm, base): (Vec<f64>, Vec<f64>) = rounds.unzip();
    let found = ratio(Paired { arm: &arm, base: &base }, SEED)?;
    Some((found.ratio, found.low, found.high))
}

fn verdict(aim: &Aim, found: &Found) -> &'static str {
    let (low, high) = found.interval.unwrap_or((found.value, found.value));
    let (bound, met, missed) = match (aim.at_least, aim.at_most) {
        (Some(least), _) => (least, low >= least, high < least),
        (None, Some(most)) => (most, high <= most, low > most),
        (None, None) => return "not shown",
    };
    if found.floor.is_some_and(|floor| distance(found.value / bound) <= floor) {
        return "not shown";
    }
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
        "1/s" if value >= 1e6 => format!("{:.1} million/s", value / 1e6),
        // A share.
        "1" => format!("{value:.2}"),
        unit if value >= 100.0 => format!("{value:.0} {unit}"),
        unit => format!("{value:.3} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use forebay_lab::manifest::Manifest;
    use forebay_lab::metric::Better;
    use forebay_lab::schema::{Comparison, Part, PartJob};
    use forebay_lab::statistics::Verdict;

    use super::*;

    fn row(arm: &str, rounds: [f64; 2]) -> Row {
        Row {
            job: "j".into(),
            arm: arm.into(),
            metric: "iops".into(),
            unit: "1/s".into(),
            better: Better::Higher,
            mean: (rounds[0] + rounds[1]) / 2.0,
            stddev: None,
            rounds: rounds.map(Some).into(),
        }
    }

    fn document() -> Document {
        let rows = vec![row("forebay", [1233.0, 1235.0]), row("other", [616.5, 617.5])];
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
        let mut document = Document::new(Manifest::default(), "s", rows, vec![comparison]);
        let job = PartJob { name: "j".into(), base: Some("kernel".into()), ..PartJob::default() };
        document.parts.push(Part { jobs: vec![job], ..Part::default() });
        document
    }

    #[test]
    fn figures_are_told_in_units_that_are_read() {
        let told = |unit: &str, mean: f64| {
            let row = Row { unit: unit.into(), ..row("a", [1.0, 1.0]) };
            told(&Found { value: mean, interval: None, floor: None }, &row)
        };
        assert_eq!(told("1/s", 11.2e6), "11.2 million/s");
        assert_eq!(told("1/s", 1234.0), "1234 1/s");
        assert_eq!(told("B", 64e6), "61.0 MiB");
        assert_eq!(told("1", 0.031), "0.03");
        assert_eq!(told("us", 3.5), "3.500 us");
    }

    fn aim() -> Aim {
        Aim {
            table: "t".into(),
            what: "fast".into(),
            measurement: "m".into(),
            job: None,
            metric: "iops".into(),
            arm: "forebay".into(),
            against: None,
            at_least: None,
            at_most: None,
        }
    }

    fn line(against: Option<&str>, at_least: Option<f64>, at_most: Option<f64>) -> String {
        let aim = Aim { against: against.map(str::to_owned), at_least, at_most, ..aim() };
        let table = table(&[&aim], |name| (name == "m").then(document));
        table.lines().nth(2).unwrap().to_owned()
    }

    #[test]
    fn a_ratio_is_met_where_its_whole_interval_is() {
        assert_eq!(line(Some("base"), Some(1.4), None), "| fast | 1.50 [1.40-1.60] | met |");
        assert_eq!(
            line(Some("kernel"), Some(1.5), None),
            "| fast | 1.50 [1.40-1.60] | not shown |"
        );
        assert_eq!(
            line(Some("kernel"), Some(2.0), None),
            "| fast | 1.50 [1.40-1.60] | **missed** |"
        );
        assert_eq!(line(Some("kernel"), None, Some(1.6)), "| fast | 1.50 [1.40-1.60] | met |");
        assert_eq!(
            line(Some("kernel"), None, Some(1.0)),
            "| fast | 1.50 [1.40-1.60] | **missed** |"
        );
    }

    #[test]
    fn what_is_within_the_noise_is_not_shown() {
        let noisy = |again: [f64; 2]| {
            let mut document = document();
            document.rows.push(row("other-again", again));
            document.parts[0].again = "other".into();
            let aim = Aim { against: Some("other".into()), at_least: Some(1.5), ..aim() };
            verdict(&aim, &found(&aim, &document).unwrap().0)
        };
        assert_eq!(noisy([620.0, 620.0]), "met");
        assert_eq!(noisy([900.0, 400.0]), "not shown");
    }

    #[test]
    fn a_ratio_that_was_not_recorded_is_computed() {
        assert_eq!(line(Some("other"), Some(1.9), None), "| fast | 2.00 [2.00-2.00] | met |");
    }

    #[test]
    fn a_figure_counts_by_its_mean_and_what_is_not_there_is_not_measured() {
        assert_eq!(line(None, Some(1000.0), None), "| fast | 1234 1/s | met |");
        assert_eq!(line(None, None, Some(1000.0)), "| fast | 1234 1/s | **missed** |");
        assert_eq!(
            line(Some("third"), Some(1.0), None),
            "| fast | - | not measured: it did not run here |"
        );
        let aim = "table='t'\nwhat='w'\nmeasurement='x'\nmetric='iops'\narm='a'\nat_least=1.0\n";
        let aim: Aim = toml::from_str(aim).unwrap();
        assert!(table(&[&aim], |_| None).ends_with("| w | - | not measured |\n"));
    }
}
