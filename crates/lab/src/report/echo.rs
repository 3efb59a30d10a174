//! The tables of the suite `order`: for each job a line for each arm, and then what is asked about
//! against each other.

use crate::schema::{Against, Document, Part};

use super::Block;
use super::column::{Cell, Column, column};
use super::figures::{count, time};
use super::reader::Reader;
use super::table::{Table, named_head};

const ARMS: &[Column] = &[
    column(10, "", "arm", Cell::Arm),
    column(9, "", "per s", Cell::Spread("requests_per_s", 1.0)),
    column(4, "", "cv %", Cell::Mean("coefficient_of_variation", variation)),
    column(4, "", "idle", Cell::Mean("idle_share", in_percent)),
    column(4, "", "user", Cell::Mean("user_share", in_percent)),
    column(6, "", "us/msg", Cell::Mean("server_us_per_message", |micros| format!("{micros:.2}"))),
    column(5, "", "p50", Cell::Mean("latency_p50_us", time)),
    column(5, "", "p99", Cell::Mean("latency_p99_us", time)),
    column(5, "", "p999", Cell::Mean("latency_p999_us", time)),
    column(6, "", "passed", Cell::Mean("reorder_distance_p99", count)).if_measured(),
    column(4, "inv/", "1000", Cell::Mean("inversions_per_1000_items", count)).if_measured(),
];

/// Metrics of the columns of ratios, and their heads.
const RATIOS: [(&str, &str); 3] =
    [("requests_per_s", "per s"), ("server_us_per_message", "us/msg"), ("latency_p99_us", "p99")];

const LEGEND: &str = "Mean +- sd. cv = the deviation of the rate from round to round, of its mean. \
    idle, user: of the server's thread, in %; us/msg: its processor time for each message. \
    passed = messages sent later that were answered before, p99. inv/1000 = inversions inside \
    the server: of 1000 items, those that it served after one of the same pass that arrived \
    later. Ratios with 95 %. ~ = not shown";

pub(super) fn echo(document: &Document, part: &Part) -> Vec<Block> {
    let mut blocks = Vec::new();
    for reader in Reader::ran(document, part) {
        let [gap, title, table, noise] = reader.titled(ARMS);
        blocks.extend([gap, title, table]);
        let ratios = ratios(reader);
        if !ratios.lines.is_empty() {
            blocks.extend([Block::Gap, Block::Table(ratios)]);
        }
        blocks.push(noise);
    }
    blocks.extend([Block::Gap, Block::Text(LEGEND.to_owned())]);
    blocks
}

/// The arm that runs twice against every other.
fn ratios(reader: Reader<'_>) -> Table {
    let arm = reader.part.again.as_str();
    let others = reader.arms().into_iter().filter(|base| *base != arm);
    let pairs = others
        .map(|base| (base, Against { arm, base }))
        .filter(|(_, pair)| reader.compared(RATIOS[0].0, *pair).is_some());
    Table::of_ratios(named_head(10, &format!("{arm} to")), &RATIOS, reader, pairs)
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
    }

    #[test]
    fn a_variation_fits_into_its_column() {
        assert_eq!(
            [0.058, 0.487, 0.9994, 0.9996, 1.41].map(variation).join(" "),
            "5.8 48.7 99.9 100 141"
        );
    }
}
