//! The tables of the suite `order`: for each job a line for each arm, and then what is asked about
//! against each other.

use crate::schema::{Against, Document, Part, PartJob, Row};

use super::Block;
use super::figures::{count, mean_and_deviation, time};
use super::table::{Column, Table, absent, column, marked, mean_of};

const ARMS: &[Column] = &[
    column(10, "", "arm"),
    column(9, "", "per s"),
    column(4, "", "cv %"),
    column(4, "", "idle"),
    column(4, "", "user"),
    column(6, "", "us/msg"),
    column(5, "", "p50"),
    column(5, "", "p99"),
    column(5, "", "p999"),
    column(6, "", "passed"),
    column(4, "inv/", "1000"),
];

const AGAINST: &[Column] =
    &[column(10, "", ""), column(17, "", "per s"), column(17, "", "us/msg"), column(17, "", "p99")];

/// What the columns of ratios are of.
const RATIOS: [&str; 3] = ["requests_per_s", "server_us_per_message", "latency_p99_us"];

const LEGEND: &str = "Mean +- sd. cv = the deviation of the rate from round to round, of its mean. \
    idle, user: of the server's thread, in %; us/msg: its processor time for each message. \
    passed = messages sent later that were answered before, p99. inv/1000 = inversions inside \
    the server: of 1000 items, those that it served after one of the same pass that arrived \
    later. Ratios with 95 %. ~ = not shown";

/// Both tables of each job that ran.
pub(super) fn echo(document: &Document, part: &Part) -> Vec<Block> {
    let mut blocks = Vec::new();
    for job in part.jobs.iter().filter(|job| !document.arms_of(&job.name).is_empty()) {
        blocks.extend([
            Block::Gap,
            Block::Text(format!("{}:", job.title)),
            Block::Table(Table { columns: ARMS.into(), lines: lines(document, job) }),
        ]);
        let ratios = ratios(document, part, job);
        if !ratios.is_empty() {
            let mut columns = AGAINST.to_vec();
            columns[0] = super::table::named_column(10, &format!("{} to", part.again));
            blocks.push(Block::Gap);
            blocks.push(Block::Table(Table { columns: columns.into(), lines: ratios }));
        }
        blocks.push(Block::Text(super::noise(document, part, &job.name)));
    }
    blocks.push(Block::Gap);
    blocks.push(Block::Text(LEGEND.to_owned()));
    blocks
}

fn lines(document: &Document, job: &PartJob) -> Vec<Vec<String>> {
    let lines = document.arms_of(&job.name).into_iter().map(|arm| {
        let row = |metric: &str| document.row_of(&job.name, arm, metric);
        let rate = row("requests_per_s").map(|row: &Row| mean_and_deviation(row.mean, row.stddev));
        vec![
            arm.to_owned(),
            rate.unwrap_or_else(absent),
            mean_of(row("coefficient_of_variation"), variation),
            mean_of(row("idle_share"), in_percent),
            mean_of(row("user_share"), in_percent),
            mean_of(row("server_us_per_message"), |micros| format!("{micros:.2}")),
            mean_of(row("latency_p50_us"), time),
            mean_of(row("latency_p99_us"), time),
            mean_of(row("latency_p999_us"), time),
            mean_of(row("reorder_distance_p99"), count),
            mean_of(row("inversions_per_1000_items"), count),
        ]
    });
    lines.collect()
}

/// The arm that runs twice against every other.
fn ratios(document: &Document, part: &Part, job: &PartJob) -> Vec<Vec<String>> {
    let arm = part.again.as_str();
    let to = |base: &str| {
        let found =
            RATIOS.map(|metric| document.compared(&job.name, metric, Against { arm, base }));
        found[0]?;
        let ratios = found.into_iter().map(marked);
        Some(std::iter::once(base.to_owned()).chain(ratios).collect())
    };
    document.arms_of(&job.name).into_iter().filter(|base| *base != arm).filter_map(to).collect()
}

/// In percent, with a digit after the point if that fits into four characters.
fn variation(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 99.95 { format!("{percent:.1}") } else { format!("{percent:.0}") }
}

fn in_percent(share: f64) -> String {
    format!("{:.0}", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::table::assert_fits;

    #[test]
    fn the_columns_fit() {
        assert_fits(ARMS);
        assert_fits(AGAINST);
    }

    #[test]
    fn a_variation_fits_into_its_column() {
        assert_eq!(
            [0.058, 0.487, 0.9994, 0.9996, 1.41].map(variation).join(" "),
            "5.8 48.7 99.9 100 141"
        );
    }
}
