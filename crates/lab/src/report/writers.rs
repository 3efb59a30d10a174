//! The tables of writers: how fast, and in how many pieces the files lie after it, side by side; by
//! writeback contexts, by affinity, by what of the files was there before; and what each of these
//! three is worth by itself.

use crate::plan::again;
use crate::schema::{Against, Document, Part};
use crate::suite::cross::Crossed;
use crate::writers::Layout;

use super::Block;
use super::column::{Cell, Column, RATIO, column};
use super::figures::size;
use super::files::{CPU, DIRTY, MEMORY, OWN, PIECES, RATE, SYNC, SYSTEM, WRITTEN};
use super::reader::Reader;
use super::table::{Head, Table, head, with_interval};

const PIECE: Column = column(6, "mean", "piece", Cell::Mean("mean_extent_bytes", size));

const MAIN: &[Column] = &[column(24, "", "arm", Cell::Arm), RATE, RATIO, PIECES, PIECE, SYNC];

const COSTS: &[Column] =
    &[column(24, "", "arm", Cell::Arm), MEMORY, DIRTY, OWN, SYSTEM, CPU, WRITTEN];

const COSTS_LEGEND: &str = "cs = context switches, of the arm's process and of the whole system; - = not told (a device \
    has no files; files that were there keep their layout)";

const CONTEXTS: &[Column] = &[
    column(8, "", "contexts", Cell::Own),
    column(15, "", "affinity", Cell::Own),
    RATE,
    RATIO,
    PIECES,
    PIECE,
    SYNC,
];

const FACTORS: &[Column] = &[
    column(14, "contexts,", "affinity", Cell::Own),
    column(9, "", "layout", Cell::Own),
    RATE,
    RATIO,
    PIECES,
    PIECE,
    SYNC,
];

const WORTH: [Head; 5] = [
    head(11, "", "factor"),
    head(18, "", "between"),
    head(14, "", "at"),
    head(16, "", "ratio [95 %]"),
    head(9, "", "verdict"),
];

const WORTH_LEGEND: &str = "Ratio of MB/s, paired by round, between arms that differ in this alone. concurrency: files \
    spread over contexts by hash, to one context; affinity: to as many contexts by hash; idle: all files on one of the \
    contexts, to one context; layout: to the layout before it (holes, unwritten, written)";

/// Both tables of each job that ran.
pub(super) fn writers(document: &Document, part: &Part) -> Vec<Block> {
    let of_job = |reader: Reader<'_>| {
        let costs = Table::of_arms(COSTS, reader, &reader.arms());
        with_more(reader, Table::of_arms(MAIN, reader, &reader.arms()), Some(costs))
    };
    let blocks = Reader::ran(document, part).flat_map(of_job);
    blocks.chain([Block::Text(COSTS_LEGEND.to_owned())]).collect()
}

/// A line for each number of contexts and affinity, a table for each job.
pub(super) fn contexts(document: &Document, part: &Part) -> Vec<Block> {
    let words = |reader: Reader<'_>, arm: &str, one: &Crossed| {
        let affinity = match one.contexts {
            None => one.way(),
            Some(_) => one.affinity.clone().unwrap_or_default(),
        };
        [one.contexts.clone().unwrap_or_default(), twin(reader, arm, affinity)]
    };
    let table = |reader| of_crossed(CONTEXTS, reader, words);
    Reader::ran(document, part).flat_map(|reader| with_more(reader, table(reader), None)).collect()
}

/// A line for each combination, then what each factor is worth; both for each job.
pub(super) fn factors(document: &Document, part: &Part) -> Vec<Block> {
    let words = |reader: Reader<'_>, arm: &str, one: &Crossed| {
        let layout = one.layout.map_or("", Layout::name).to_owned();
        [twin(reader, arm, one.way()), layout]
    };
    let of_job = |reader: Reader<'_>| {
        let worth = Table { heads: WORTH.into(), lines: worth(reader) };
        with_more(reader, of_crossed(FACTORS, reader, words), Some(worth))
    };
    let blocks = Reader::ran(document, part).flat_map(of_job);
    blocks.chain([Block::Text(WORTH_LEGEND.to_owned())]).collect()
}

/// A table of a job, its noise floor, and another table below.
fn with_more(reader: Reader<'_>, main: Table, more: Option<Table>) -> Vec<Block> {
    let title = Block::Text(reader.job.title.clone());
    let blocks = [Block::Gap, title, Block::Table(main), Block::Text(reader.noise())];
    let more = more.map(|more| [Block::Gap, Block::Table(more)]);
    blocks.into_iter().chain(more.into_iter().flatten()).collect()
}

fn worth(reader: Reader<'_>) -> Vec<Vec<String>> {
    let line = |one: &crate::suite::cross::Contrast| {
        let pair = Against { arm: &one.arm, base: &one.base };
        let found = reader.compared(&reader.part.metric, pair)?;
        Some(vec![
            one.factor.name().to_owned(),
            one.between.clone(),
            one.at.clone(),
            with_interval(found),
            found.verdict.name().to_owned(),
        ])
    };
    reader.part.contrasts.iter().filter_map(line).collect()
}

/// A table of the arms that came of crossing, and of the one that runs twice behind itself. `words`
/// says what stands in the first two columns.
fn of_crossed(
    columns: &[Column],
    reader: Reader<'_>,
    words: impl Fn(Reader<'_>, &str, &Crossed) -> [String; 2],
) -> Table {
    let crossed = |arm: &str| {
        let name = if is_twin(reader, arm) { &reader.part.again } else { arm };
        reader.part.crossed.iter().find(|one| one.arm == name)
    };
    let arms: Vec<&str> = reader.arms().into_iter().filter(|arm| crossed(arm).is_some()).collect();
    let mut table = Table::of_arms(columns, reader, &arms);
    for (arm, line) in arms.into_iter().zip(&mut table.lines) {
        let own = crossed(arm).map(|one| words(reader, arm, one));
        line.iter_mut().zip(own.into_iter().flatten()).for_each(|(cell, words)| *cell = words);
    }
    table
}

fn is_twin(reader: Reader<'_>, arm: &str) -> bool {
    arm == again(&reader.part.again)
}

/// The words, with a mark where it is the same once more.
fn twin(reader: Reader<'_>, arm: &str, words: String) -> String {
    if is_twin(reader, arm) { format!("{words} again").trim_start().to_owned() } else { words }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::CellResult;
    use crate::compare::Measured;
    use crate::compare::judge::{Judging, judge};
    use crate::manifest::Manifest;
    use crate::report::comparison;
    use crate::report::table::{assert_fits, assert_heads_fit};
    use crate::schema::PartJob;
    use crate::suite::cross::{Contrast, Factor};
    use crate::suite::{Base, Pair, TableKind};
    use crate::writers::Layout;

    #[test]
    fn the_columns_fit_the_width() {
        for columns in [MAIN, COSTS, CONTEXTS, FACTORS] {
            assert_fits(columns);
        }
        assert_heads_fit(&WORTH);
    }

    /// Five rounds with a ripple around a speed.
    fn measured(arm: &str, speed: f64, extents: f64) -> Measured {
        let cell = |ripple: &f64| {
            let metrics = [
                ("write_bytes_per_s", speed * 1e6 * ripple),
                ("extents_per_file", extents),
                ("mean_extent_bytes", 8.0 * 1048576.0 / extents),
                ("sync_probe_p99_us", 34e3),
                ("peak_memory_bytes", 271.0 * 1048576.0),
            ];
            CellResult {
                metrics: metrics.map(|(name, value)| (name.to_owned(), value)).into(),
                ..CellResult::default()
            }
        };
        let rounds = [1.0, 1.01, 0.99, 1.004, 0.996].iter().map(cell).collect();
        Measured { job: "A-12x12".into(), arm: arm.into(), rounds }
    }

    fn crossed(arm: &str, contexts: &str, affinity: Option<&str>) -> Crossed {
        Crossed {
            arm: arm.into(),
            of: "forebay".into(),
            contexts: Some(contexts.into()),
            affinity: affinity.map(str::to_owned),
            layout: Some(Layout::Holes),
        }
    }

    fn document(table: TableKind) -> Document {
        let cells = [
            measured("contexts-1-holes", 400.0, 1.0),
            measured("contexts-1-holes-again", 401.0, 1.0),
            measured("contexts-4-hash-holes", 500.0, 24523.0),
            measured("contexts-4-group-holes", 502.0, 2.0),
        ];
        let base = Base::Arm("contexts-1-holes".into());
        let contrast = |factor, between: &str, at: &str, [arm, base]: [&str; 2]| Contrast {
            factor,
            between: between.into(),
            at: at.into(),
            arm: arm.into(),
            base: base.into(),
        };
        let contrasts = vec![
            contrast(
                Factor::Concurrency,
                "4 hash : 1",
                "holes",
                ["contexts-4-hash-holes", "contexts-1-holes"],
            ),
            contrast(
                Factor::Affinity,
                "group : hash",
                "4 holes",
                ["contexts-4-group-holes", "contexts-4-hash-holes"],
            ),
        ];
        let also: Vec<Pair> = contrasts
            .iter()
            .map(|one| Pair { arm: one.arm.clone(), base: one.base.clone() })
            .collect();
        let metric = "write_bytes_per_s";
        let judging = Judging { base: &base, metric, again: "contexts-1-holes", also: &also };
        let judged = judge(&cells, judging, 1);
        let mut document =
            Document::new(Manifest::default(), "writeback", judged.rows, judged.comparisons);
        let job = |name: &str| PartJob {
            name: name.into(),
            title: format!("{name} random 4k"),
            base: Some("contexts-1-holes".into()),
            ..PartJob::default()
        };
        document.parts.push(Part {
            title: "Contexts".into(),
            table,
            metric: metric.into(),
            again: "contexts-1-holes".into(),
            rounds: 5,
            crossed: vec![
                crossed("contexts-1-holes", "1", None),
                crossed("contexts-4-hash-holes", "4", Some("hash")),
                crossed("contexts-4-group-holes", "4", Some("group")),
            ],
            contrasts,
            jobs: vec![job("A-12x12"), job("B-6x6")],
            ..Part::default()
        });
        document
    }

    #[test]
    fn what_each_factor_is_worth() {
        let text = comparison(&document(TableKind::Factors));
        assert!(text.contains("1 again            holes"), "{text}");
        let line = |start: &str| {
            let found = text.lines().find(|line| line.trim_start().starts_with(start));
            found.unwrap_or_else(|| panic!("no {start}: {text}")).to_owned()
        };
        let worth = |words: &str| {
            let found = text.lines().find(|line| line.contains(words)).unwrap();
            found.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(worth("4 hash : 1"), "concurrency 4 hash : 1 holes 1.25 [1.25-1.25] better");
        assert_eq!(
            worth("group : hash"),
            "affinity group : hash 4 holes 1.00 [1.00-1.00] better",
            "{text}"
        );
        assert!(line("4 hash").contains("24523"), "extents stand beside the rate: {text}");
        assert!(!text.contains("B-6x6"), "a job that did not run is not shown");
        assert!(text.lines().all(|line| line.chars().count() <= 72), "{text}");
    }

    #[test]
    fn by_contexts_and_by_arm() {
        let text = comparison(&document(TableKind::Contexts));
        assert!(
            text.lines().any(|line| line.starts_with("4                   hash  500+-")),
            "{text}"
        );
        let text = comparison(&document(TableKind::Writers));
        assert!(text.contains("contexts-4-group-holes") && text.contains("271MiB"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 72), "{text}");
    }
}
