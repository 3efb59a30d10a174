//! A result as one page: the tables, and what tables have no room for. It needs nothing but itself:
//! no network, no script, no font that is not there. Pictures are SVG in it, each with a title and
//! a description; light or dark as the reader has it.
//!
//! The page is well-formed XML besides, so that other programs can read it. Whether it is pleasant
//! is for eyes; in both schemes (0 is dark, 1 is light), with Debian's `chromium`:
//!
//! ```text
//! chromium --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --hide-scrollbars
//!     --blink-settings=preferredColorScheme=0 --window-size=1000,5200 --screenshot=dark.png page.html
//! ```

mod axis;
mod batches;
mod course;
mod curves;
mod histograms;
mod holds;
mod key;
mod manifest;
mod strips;
mod svg;

use std::fmt::Write;

use crate::schema::{Document, Part, PartJob};

use super::{Block, Table, blocks_of, figures, parts_of, table};
use strips::{Strip, Strips};
use svg::escape;

const STYLE: &str = include_str!("html/style.css");

/// So many jobs are shown at once; of more each is opened by the reader.
const OPEN_JOBS: usize = 6;

/// A metric that is shown of each arm besides, where somebody has it: name, heading, what stands
/// below.
type Beside = (&'static str, &'static str, &'static str);

/// Those that the cells count themselves.
const BESIDES: &[Beside] = &[
    ("requests_per_doorbell", "Requests handed over together", "mean of a cell"),
    ("bios_per_run", "Bios ended together", "mean of a completion run"),
    ("hold_p99_us", "How long completions were held", "99th percentile"),
    ("sync_probe_p99_us", "A small sync beside it", "99th percentile"),
    ("extents_per_file", "Extents of a file", "mean of the files of a cell"),
    ("mean_extent_bytes", "Length of an extent", "mean"),
];

/// Those that are counted in the kernel, where they are: the tables have their means.
const OF_KERNEL: &[Beside] = &[
    ("kernel_requests_per_unplug", "Requests unplugged together", "mean of an unplug"),
    ("kernel_plugged_share", "Requests that came through a plug", "share of those made"),
    ("kernel_insert_share", "Requests that the scheduler had", "share of those issued"),
    ("kernel_bios_per_request", "Bios of a request", "mean of those issued"),
    ("kernel_requests_per_run", "Requests ended together", "mean of an interrupt"),
    (
        "kernel_bios_per_worker_run",
        "Bios ended by a completion worker",
        "mean of its runs, for any disk",
    ),
    ("kernel_task_work_per_run", "Items of task work done together", "mean of a run"),
    ("kernel_writeback_pages_per_run", "Pages written back together", "mean of a call"),
];

/// Pictures get numbers, so that no two share an id.
#[derive(Debug, Default)]
struct Numbers(u32);

impl Numbers {
    fn next(&mut self) -> u32 {
        self.0 += 1;
        self.0
    }
}

/// The page. Ends with a newline.
#[must_use]
pub fn html(document: &Document) -> String {
    let parts = parts_of(document);
    let title = match parts.as_ref() {
        [one] => one.title.clone(),
        _ => format!("forebay compare {}", document.suite),
    };
    let mut numbers = Numbers::default();
    let mut page = String::new();
    let mut put = |text: &str| page.push_str(text);
    put(
        "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n<meta charset=\"utf-8\"/>\n",
    );
    put("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n");
    put("<meta name=\"color-scheme\" content=\"light dark\"/>\n");
    put(&format!("<title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n", escape(&title)));
    put(&format!("<header>\n<h1>{}</h1>\n", escape(&title)));
    put(&format!("<p>{}</p>\n</header>\n<main>\n", escape(&dateline(document))));
    put("<section id=\"summary\">\n<h2>Summary</h2>\n");
    put(&summary(&blocks_of(document)));
    put("</section>\n");
    for (number, part) in parts.iter().enumerate() {
        put(&format!("<section id=\"part-{}\">\n<h2>{}</h2>\n", number + 1, escape(&part.title)));
        put(&pictures(document, part, &mut numbers));
        put("</section>\n");
    }
    put("<section id=\"manifest\">\n<h2>What it was taken on</h2>\n");
    put(&manifest::table(&document.manifest));
    put("</section>\n</main>\n</body>\n</html>\n");
    page
}

/// Of what, when, and with which program.
fn dateline(document: &Document) -> String {
    let manifest = &document.manifest;
    let commit = manifest.commit.as_deref().unwrap_or("commit unknown");
    format!(
        "Suite {}, {}, seed {}, forebay {} ({commit})",
        document.suite, manifest.date, manifest.seed, manifest.version
    )
}

/// What the text says, as paragraphs and tables.
fn summary(blocks: &[Block]) -> String {
    let mut text = String::new();
    for block in blocks {
        let _ = match block {
            Block::Lines(lines) => {
                writeln!(text, "<p class=\"head\">{}</p>", escape(&heading(lines)))
            }
            Block::Text(paragraph) => writeln!(text, "<p>{}</p>", escape(paragraph)),
            Block::Table(table) => writeln!(text, "{}", table_of(table)),
            Block::Gap => Ok(()),
        };
    }
    text
}

/// What stands at both ends of a line, one after the other.
fn heading(lines: &[String]) -> String {
    let ends = lines.iter().map(|line| {
        let parts: Vec<&str> =
            line.split("  ").map(str::trim).filter(|part| !part.is_empty()).collect();
        parts.join(", ")
    });
    ends.collect::<Vec<_>>().join(" ")
}

fn table_of(table: &Table) -> String {
    let cell = |tag: &str, text: &str| format!("<{tag}>{}</{tag}>", escape(text.trim()));
    let heads: String =
        table.heads().map(|head| format!("<th scope=\"col\">{}</th>", escape(&head))).collect();
    let mut lines = String::new();
    for line in &table.lines {
        let mut cells = line.iter();
        let first =
            cells.next().map(|name| format!("<th scope=\"row\">{}</th>", escape(name.trim())));
        let rest: String = cells.map(|text| cell("td", text)).collect();
        let _ = writeln!(lines, "<tr>{}{rest}</tr>", first.unwrap_or_default());
    }
    format!(
        "<div class=\"wide\"><table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{lines}</tbody>\n</table></div>"
    )
}

/// The pictures of each job of a part.
fn pictures(document: &Document, part: &Part, numbers: &mut Numbers) -> String {
    let ran: Vec<&PartJob> =
        part.jobs.iter().filter(|job| !document.arms_of(&job.name).is_empty()).collect();
    let open = if ran.len() <= OPEN_JOBS { " open=\"open\"" } else { "" };
    let mut text = String::new();
    for job in ran {
        let title = if job.title.is_empty() { &job.name } else { &job.title };
        let _ = writeln!(text, "<details{open}>\n<summary>{}</summary>", escape(title));
        text.push_str(&of_job(document, part, job, numbers));
        text.push_str("</details>\n");
    }
    text
}

fn of_job(document: &Document, part: &Part, job: &PartJob, numbers: &mut Numbers) -> String {
    let arms = document.arms_of(&job.name);
    let mut drawn = Vec::new();
    drawn.extend(rounds(document, part, job, numbers));
    for direction in ["read", "write"] {
        drawn.extend(curves::curves(document, job, &arms, direction, numbers));
        drawn.extend(course::courses(document, job, &arms, direction, numbers));
    }
    drawn.extend(batches::batches(document, job, &arms, numbers));
    drawn.extend(holds::holds(document, job, &arms, numbers));
    let mut strips = |metrics: &[Beside]| -> String {
        metrics
            .iter()
            .filter_map(|metric| besides(document, job, &arms, *metric, numbers))
            .collect()
    };
    drawn.push(strips(BESIDES));
    let of_kernel = strips(OF_KERNEL);
    if !of_kernel.is_empty() {
        drawn.push(format!(
            "<details open=\"open\">\n<summary>What the kernel batched</summary>\n{of_kernel}</details>\n"
        ));
    }
    drawn.concat()
}

/// Each round of each arm, divided by the same round of the base.
fn rounds(
    document: &Document,
    part: &Part,
    job: &PartJob,
    numbers: &mut Numbers,
) -> Option<String> {
    let base = job.base.as_deref()?;
    let of_base = document.row_of(&job.name, base, &part.metric)?;
    let strip = |(place, arm): (usize, &str)| {
        let row = document.row_of(&job.name, arm, &part.metric)?;
        let pairs = row.rounds.iter().zip(&of_base.rounds);
        let ratios = pairs.filter_map(|(arm, base)| Some((*arm)? / (*base)?));
        let pair = crate::schema::Against { arm, base };
        let compared = document.compared(&job.name, &part.metric, pair);
        Some(Strip {
            arm: place,
            name: arm.to_owned(),
            values: ratios.filter(|ratio| ratio.is_finite() && *ratio > 0.0).collect(),
            interval: compared.map(|found| [found.ci_low, found.ratio, found.ci_high]),
            told: if arm == base { "1 (base)".to_owned() } else { table::marked(compared) },
        })
    };
    let arms = document.arms_of(&job.name);
    let strips: Vec<Strip> = arms.into_iter().enumerate().filter_map(strip).collect();
    let better = match of_base.better {
        crate::schema::Direction::Higher => "more is better",
        crate::schema::Direction::Lower => "less is better",
    };
    let floor = crate::compare::judge::Floor { job: &job.name, again: &part.again };
    let floor = crate::compare::judge::floor_of(&document.rows, floor, &part.metric);
    let band = floor.map_or_else(String::new, |_| "; band: the noise floor".to_owned());
    Strips {
        title: format!("{}, round by round against {base}", spoken(&part.metric)),
        below: format!(
            "ratio ({better}); a dot for each round, a line for the 95 % interval{band}"
        ),
        strips,
        one: true,
        band: floor,
        shown: figures::short,
        bytes: false,
    }
    .drawn(numbers)
}

/// A metric of each arm in its own unit, where any has it.
fn besides(
    document: &Document,
    job: &PartJob,
    arms: &[&str],
    (metric, heading, below): Beside,
    numbers: &mut Numbers,
) -> Option<String> {
    let shown = told(metric);
    let strip = |(place, arm): (usize, &&str)| {
        let row = document.row_of(&job.name, arm, metric)?;
        Some(Strip {
            arm: place,
            name: (*arm).to_owned(),
            values: row.rounds.iter().flatten().copied().filter(|value| *value > 0.0).collect(),
            interval: None,
            told: shown(row.mean),
        })
    };
    let strips: Vec<Strip> = arms.iter().enumerate().filter_map(strip).collect();
    let (title, below) = (heading.to_owned(), below.to_owned());
    Strips {
        title,
        below: format!("{below}; a dot for each round"),
        strips,
        one: false,
        band: None,
        shown,
        bytes: metric.ends_with("_bytes"),
    }
    .drawn(numbers)
}

/// How a value of a metric is told.
fn told(metric: &str) -> fn(f64) -> String {
    match metric {
        name if name.ends_with("_us") => figures::microseconds,
        name if name.ends_with("_bytes") => figures::bytes,
        name if name.ends_with("_share") => figures::percent,
        _ => figures::short,
    }
}

/// A metric's name as words.
fn spoken(metric: &str) -> String {
    match metric {
        "write_bytes_per_s" => "Bytes written per second".to_owned(),
        "read_bytes_per_s" => "Bytes read per second".to_owned(),
        "iops" => "I/Os per second".to_owned(),
        other => other.replace('_', " "),
    }
}

#[cfg(test)]
mod tests;
