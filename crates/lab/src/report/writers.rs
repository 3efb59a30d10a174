//! The tables of writers: how fast, and in how many pieces the files lie after it, side by side; by
//! writeback contexts, by affinity, by what of the files was there before; and what each of these
//! three is worth by itself.

use crate::plan::again;
use crate::schema::{Against, Document, Part, PartJob};
use crate::statistics::Verdict;
use crate::suite::cross::Crossed;

use super::completion::ran;
use super::figures::{count, per_io, size, time};
use super::table::{Column, Table, column, mean_of, spread_of, with_interval};
use super::{Block, to_base};

const MAIN: &[Column] = &[
    column(24, "", "arm"),
    column(9, "", "MB/s"),
    column(17, "", "ratio [95 %]"),
    column(6, "pieces", "a file"),
    column(6, "mean", "piece"),
    column(5, "sync", "p99"),
];

const COSTS: &[Column] = &[
    column(24, "", "arm"),
    column(6, "", "memory"),
    column(6, "peak", "dirty"),
    column(6, "own", "cs/I/O"),
    column(6, "system", "cs/I/O"),
    column(6, "CPU us", "/ I/O"),
    column(7, "written", "/ asked"),
];

const COSTS_LEGEND: &str = "cs = context switches, of the arm's process and of the whole system; - = not told (a device \
    has no files; files that were there keep their layout)";

const CONTEXTS: &[Column] = &[
    column(8, "", "contexts"),
    column(15, "", "affinity"),
    column(9, "", "MB/s"),
    column(17, "", "ratio [95 %]"),
    column(6, "pieces", "a file"),
    column(6, "mean", "piece"),
    column(5, "sync", "p99"),
];

const FACTORS: &[Column] = &[
    column(14, "contexts,", "affinity"),
    column(9, "", "layout"),
    column(9, "", "MB/s"),
    column(17, "", "ratio [95 %]"),
    column(6, "pieces", "a file"),
    column(6, "mean", "piece"),
    column(5, "sync", "p99"),
];

const WORTH: &[Column] = &[
    column(11, "", "factor"),
    column(18, "", "between"),
    column(14, "", "at"),
    column(16, "", "ratio [95 %]"),
    column(9, "", "verdict"),
];

const WORTH_LEGEND: &str = "Ratio of MB/s, paired by round, between arms that differ in this alone. concurrency: files \
    spread over contexts by hash, to one context; affinity: to as many contexts by hash; idle: all files on one of the \
    contexts, to one context; layout: to the layout before it (holes, unwritten, written)";

/// Both tables of each job that ran.
pub(super) fn writers(document: &Document, part: &Part) -> Vec<Block> {
    let mut blocks = Vec::new();
    for job in part.jobs.iter().filter(|job| ran(document, job)) {
        let arms = document.arms_of(&job.name);
        let main = arms.iter().map(|arm| {
            let figures = figures(document, part, job, arm);
            std::iter::once((*arm).to_owned()).chain(figures).collect()
        });
        let costs = arms.iter().map(|arm| {
            let row = |metric: &str| document.row_of(&job.name, arm, metric);
            vec![
                (*arm).to_owned(),
                mean_of(row("peak_memory_bytes"), size),
                mean_of(row("peak_dirty_bytes"), size),
                mean_of(row("context_switches_per_io"), per_io),
                mean_of(row("system_context_switches_per_io"), per_io),
                mean_of(row("cpu_us_per_io"), per_io),
                mean_of(row("written_per_asked"), per_io),
            ]
        });
        let main = Table { columns: MAIN.into(), lines: main.collect() };
        let costs = Table { columns: COSTS.into(), lines: costs.collect() };
        blocks.extend([
            Block::Gap,
            Block::Text(job.title.clone()),
            Block::Table(main),
            Block::Text(super::noise(document, part, &job.name)),
            Block::Gap,
            Block::Table(costs),
        ]);
    }
    blocks.push(Block::Text(COSTS_LEGEND.to_owned()));
    blocks
}

/// A line for each number of contexts and affinity, a table for each job.
pub(super) fn contexts(document: &Document, part: &Part) -> Vec<Block> {
    let mut blocks = Vec::new();
    for job in part.jobs.iter().filter(|job| ran(document, job)) {
        let lines = in_order(document, part, job).into_iter().map(|(arm, crossed)| {
            let contexts = crossed.contexts.clone().unwrap_or_default();
            let affinity = match &crossed.contexts {
                None => crossed.way(),
                Some(_) => crossed.affinity.clone().unwrap_or_default(),
            };
            [contexts, twin(part, arm, affinity)]
                .into_iter()
                .chain(figures(document, part, job, arm))
                .collect()
        });
        blocks.extend([
            Block::Gap,
            Block::Text(job.title.clone()),
            Block::Table(Table { columns: CONTEXTS.into(), lines: lines.collect() }),
            Block::Text(super::noise(document, part, &job.name)),
        ]);
    }
    blocks
}

/// A line for each combination, then what each factor is worth; both for each job.
pub(super) fn factors(document: &Document, part: &Part) -> Vec<Block> {
    let mut blocks = Vec::new();
    for job in part.jobs.iter().filter(|job| ran(document, job)) {
        let lines = in_order(document, part, job).into_iter().map(|(arm, crossed)| {
            let layout = crossed.layout.map_or("", crate::writers::Layout::name).to_owned();
            [twin(part, arm, crossed.way()), layout]
                .into_iter()
                .chain(figures(document, part, job, arm))
                .collect()
        });
        let worth = part.contrasts.iter().filter_map(|one| {
            let pair = Against { arm: &one.arm, base: &one.base };
            let found = document.compared(&job.name, &part.metric, pair)?;
            let verdict = match found.verdict {
                Verdict::Better => "better",
                Verdict::Worse => "worse",
                Verdict::NotShown => "not shown",
            };
            Some(vec![
                one.factor.name().to_owned(),
                one.between.clone(),
                one.at.clone(),
                with_interval(found),
                verdict.to_owned(),
            ])
        });
        blocks.extend([
            Block::Gap,
            Block::Text(job.title.clone()),
            Block::Table(Table { columns: FACTORS.into(), lines: lines.collect() }),
            Block::Text(super::noise(document, part, &job.name)),
            Block::Gap,
            Block::Table(Table { columns: WORTH.into(), lines: worth.collect() }),
        ]);
    }
    blocks.push(Block::Text(WORTH_LEGEND.to_owned()));
    blocks
}

/// What every table has of an arm: rate, ratio, pieces, their mean length, the small syncing
/// writer.
fn figures(document: &Document, part: &Part, job: &PartJob, arm: &str) -> [String; 5] {
    let row = |metric: &str| document.row_of(&job.name, arm, metric);
    [
        spread_of(row("write_bytes_per_s"), 1e6),
        to_base(document, part, job, arm),
        mean_of(row("extents_per_file"), count),
        mean_of(row("mean_extent_bytes"), size),
        mean_of(row("sync_probe_p99_us"), time),
    ]
}

/// Arms of a job that came of crossing, in the order of the table, and the one that runs twice
/// behind itself.
fn in_order<'a>(
    document: &'a Document,
    part: &'a Part,
    job: &PartJob,
) -> Vec<(&'a str, &'a Crossed)> {
    let twin = again(&part.again);
    let of = |arm: &str| {
        let name = if arm == twin { &part.again } else { arm };
        part.crossed.iter().find(|one| one.arm == name)
    };
    document.arms_of(&job.name).into_iter().filter_map(|arm| Some((arm, of(arm)?))).collect()
}

/// The words, with a mark where it is the same once more.
fn twin(part: &Part, arm: &str, words: String) -> String {
    if arm == again(&part.again) { format!("{words} again").trim_start().to_owned() } else { words }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::CellResult;
    use crate::compare::Measured;
    use crate::compare::judge::{Judging, judge};
    use crate::manifest::Manifest;
    use crate::report::table::assert_fits;
    use crate::report::{Format, comparison};
    use crate::suite::cross::{Contrast, Factor};
    use crate::suite::{Base, Pair, TableKind};
    use crate::writers::Layout;

    #[test]
    fn the_columns_fit_the_width() {
        for columns in [MAIN, COSTS, CONTEXTS, FACTORS, WORTH] {
            assert_fits(columns);
        }
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
        let text = comparison(&document(TableKind::Factors), Format::Text);
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
        let text = comparison(&document(TableKind::Contexts), Format::Text);
        assert!(
            text.lines().any(|line| line.starts_with("4                   hash  500+-")),
            "{text}"
        );
        let text = comparison(&document(TableKind::Writers), Format::Text);
        assert!(text.contains("contexts-4-group-holes") && text.contains("271MiB"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 72), "{text}");
    }
}
