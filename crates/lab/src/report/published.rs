//! The figures of a thread of the kernel's lists, ours beside: what the same change did there and
//! here. The first lines say how far the two can be compared.
//!
//! ```text
//! A             published              here                 kernel-uncached
//! MB/s          4333 to 4374 +0.9%     2781 to 2999 ~+7.9%  1500
//! ```

use crate::metric::Metric;
use crate::probes;
use crate::reader::Reader;
use crate::schema::{Against, Document, Part};
use crate::suite::model::Published;
use crate::text::counted;

use super::head::{head, heading, remarks};
use super::table::{Column, Table, shown};
use super::{Block, hold, written};

const LEGEND: &str = "~ = no difference is shown here. - = not measured.";

/// Formats a comparison beside the published figures. Ends with a newline.
pub fn published(document: &Document) -> String {
    let mut blocks: Vec<Block> = hold::lines(document).into_iter().map(Block::Text).collect();
    blocks.extend(document.parts.iter().map(|part| Block::Text(comparable(document, part))));
    blocks.push(Block::Lines(head(&document.manifest)));
    for part in document.parts.iter().filter(|part| !part.published.is_empty()) {
        blocks.extend([Block::Gap, Block::Lines(heading(document, part))]);
        blocks.extend(Reader::ran(document, part).flat_map(of_job));
    }
    blocks.extend([Block::Gap, Block::Text(LEGEND.to_owned())]);
    blocks.extend(remarks(document).into_iter().map(Block::Text));
    written(&blocks)
}

/// Returns what of the run is not as published.
fn comparable(document: &Document, part: &Part) -> String {
    let manifest = &document.manifest;
    let share = part.scale.unwrap_or(1.0);
    let sizes = match share {
        1.0 => "sizes and times are those of the thread".to_owned(),
        _ => format!("sizes and times are {share} of those of the thread, --scale 1 takes all"),
    };
    let commit = manifest.commit.as_deref().unwrap_or("an unknown commit");
    format!(
        "{}: {sizes}; {}; {}; {commit}.",
        part.name,
        counted(part.rounds.into(), "round"),
        counted(u64::from(manifest.machine.cpus), "processor")
    )
}

/// Returns a table for each pair of arms of a job.
fn of_job(reader: Reader<'_>) -> Vec<Block> {
    let figures = reader.part.published.iter();
    let figures: Vec<&Published> =
        figures.filter(|figure| figure.workload == reader.job.workload).collect();
    let mut pairs: Vec<Against<'_>> = Vec::new();
    for Published { arm, base, .. } in &figures {
        if !pairs.contains(&Against { arm, base }) {
            pairs.push(Against { arm, base });
        }
    }
    let title = reader.job.heading();
    let tables = pairs.into_iter().flat_map(|pair| {
        let of_pair = figures.iter().copied();
        let of_pair: Vec<&Published> =
            of_pair.filter(|figure| figure.arm == pair.arm && figure.base == pair.base).collect();
        let text = format!("{title}, {} to {}:", pair.base, pair.arm);
        let tables = of(reader, &of_pair).into_iter().map(Block::Table);
        [Block::Gap, Block::Text(text)].into_iter().chain(tables)
    });
    tables.collect()
}

/// Returns the table of the figures of one pair, with the arms that stand in no figure beside.
fn of(reader: Reader<'_>, figures: &[&Published]) -> Vec<Table> {
    let named = |figure: &&Published| {
        let name = probes::metric(&figure.metric).map(Metric::heading).unwrap_or_default();
        if figure.on.is_empty() { name } else { format!("{name}, {}", figure.on) }
    };
    let names: Vec<String> = figures.iter().map(named).collect();
    let names = Column::names("", names.iter().map(String::as_str));
    let cells = |cell: &dyn Fn(&Published, &Metric) -> Option<String>| {
        let cell = |figure: &&Published| {
            probes::metric(&figure.metric)
                .and_then(|metric| cell(figure, metric))
                .unwrap_or_else(super::table::absent)
        };
        figures.iter().map(cell).collect::<Vec<_>>()
    };
    let theirs = cells(&|figure, metric| {
        let [before, after] = figure.values;
        Some(change(metric, [before, after], after / before, ""))
    });
    let ours = cells(&|figure, metric| {
        let pair = Against { arm: &figure.arm, base: &figure.base };
        let before = reader.mean(pair.base, metric.name)?;
        let after = reader.mean(pair.arm, metric.name)?;
        let compared = reader.compared(metric.name, pair);
        let (ratio, mark) = compared.map_or((after / before, "~"), |one| (one.ratio, one.mark()));
        Some(change(metric, [before, after], ratio, mark))
    });
    let mut columns =
        vec![Column::new("published", theirs.into_iter()), Column::new("here", ours.into_iter())];
    let in_a_figure = |arm: &str| {
        reader.part.published.iter().any(|figure| figure.arm == arm || figure.base == arm)
    };
    let twin = crate::schema::again(&reader.part.again);
    for arm in reader.arms().into_iter().filter(|arm| !in_a_figure(arm) && *arm != twin) {
        let of_arm = |_: &Published, metric: &Metric| {
            reader.mean(arm, metric.name).map(|mean| shown(metric, mean))
        };
        columns.push(Column::new(arm, cells(&of_arm).into_iter()));
    }
    Table::split(&names, columns)
}

/// Returns `4333 to 4374 +0.9%`.
fn change(metric: &Metric, [before, after]: [f64; 2], ratio: f64, mark: &str) -> String {
    let [before, after] = [before, after].map(|value| shown(metric, value));
    format!("{before} to {after} {mark}{:+.1}%", (ratio - 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Manifest;
    use crate::schema::{Comparison, PartJob, Row};
    use crate::statistics::Verdict;

    fn document() -> Document {
        let figure = Published {
            workload: "A".to_owned(),
            metric: "write_bytes_per_s".to_owned(),
            base: "held".to_owned(),
            arm: "at-once".to_owned(),
            values: [4333e6, 4374e6],
            on: String::new(),
        };
        let job = PartJob {
            name: "A".to_owned(),
            workload: "A".to_owned(),
            title: "sequential".to_owned(),
            ..PartJob::default()
        };
        let part = Part {
            name: "completion".to_owned(),
            jobs: vec![job],
            scale: Some(0.05),
            rounds: 5,
            again: "at-once".to_owned(),
            published: vec![figure],
            ..Part::default()
        };
        let metric = probes::metric("write_bytes_per_s").expect("there is one");
        let row = |arm: &str, mean| Row::of("A", arm, metric, mean);
        let rows = vec![row("held", 2781e6), row("at-once", 2999e6), row("kernel", 1500e6)];
        let comparison = Comparison {
            job: "A".to_owned(),
            metric: metric.name.to_owned(),
            base: "held".to_owned(),
            arm: "at-once".to_owned(),
            ratio: 1.079,
            ci_low: 0.99,
            ci_high: 1.17,
            p: 0.2,
            verdict: Verdict::NotShown,
        };
        let mut document = Document::new(Manifest::default(), "completion", rows, vec![comparison]);
        document.parts.push(part);
        document
    }

    #[test]
    fn ours_stands_beside_the_published_figure_and_the_kernel_beside_both() {
        let text = published(&document());
        let line = text.lines().find(|line| line.starts_with("MB/s")).expect(&text);
        let cells: Vec<&str> = line.split_whitespace().collect();
        let expected = "MB/s 4333 to 4374 +0.9% 2781 to 2999 ~+7.9% 1500";
        assert_eq!(cells.join(" "), expected, "{text}");
        assert!(text.starts_with("completion: sizes and times are 0.05 of"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 72), "{text}");
    }

    #[test]
    fn a_pair_that_was_not_compared_has_the_mark() {
        let without = Document { comparisons: Vec::new(), ..document() };
        assert!(published(&without).contains("2781 to 2999 ~+7.8%"), "{}", published(&without));
    }
}
