//! A result as one page: a picture for each question, then the tables, then the details of every
//! round. It needs nothing but itself: no network, no script, no font. Pictures are inline SVG,
//! each with a title and a description, and follow the reader's light or dark scheme.
//!
//! The page is well-formed XML, so that other programs can read it. To look at it in both schemes
//! (0 is dark, 1 is light), with Debian's `chromium`:
//!
//! ```text
//! chromium --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --hide-scrollbars
//!     --blink-settings=preferredColorScheme=0 --window-size=1000,5200 --screenshot=dark.png page.html
//! ```

mod axis;
mod bars;
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

use crate::metric::Better;
use crate::schema::{Document, Part};

use super::reader::Reader;
use super::{Block, Table, blocks_of, disk, figures, parts_of, place, summary, table};
use strips::{Strip, Strips};
use svg::escape;

const STYLE: &str = include_str!("html/style.css");

/// Jobs that are shown at once; of more, the reader opens each.
const OPEN_JOBS: usize = 6;

/// Another metric shown of each arm if any has it: name, heading, text below.
type Beside = (&'static str, &'static str, &'static str);

/// Those that the cells count themselves.
const BESIDES: &[Beside] = &[
    ("requests_per_doorbell", "Requests handed over together", "mean of a cell"),
    ("bios_per_run", "Bios ended together", "mean of a completion run"),
    ("hold_p99_us", "Time that completions were held", "99th percentile"),
    ("sync_probe_p99_us", "A small sync beside it", "99th percentile"),
    ("extents_per_file", "Extents of a file", "mean of the files of a cell"),
    ("mean_extent_bytes", "Length of an extent", "mean"),
];

/// Those counted in the kernel: the tables have their means.
const OF_KERNEL: &[Beside] = &[
    ("kernel_requests_per_unplug", "Requests unplugged together", "mean of an unplug"),
    ("kernel_plugged_share", "Requests from a plug", "share of those made"),
    ("kernel_insert_share", "Requests that went through the scheduler", "share of those issued"),
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
    let head = [place(&document.manifest)].into_iter().chain(disk(&document.manifest));
    head.for_each(|line| put(&format!("<p>{}</p>\n", escape(&line))));
    for (number, part) in parts.iter().enumerate() {
        let title = part.question.as_ref().unwrap_or(&part.title);
        put(&format!("<section id=\"part-{}\">\n<h2>{}</h2>\n", number + 1, escape(title)));
        put(&jobs(document, part, |reader| answer(reader, &mut numbers)));
        put("</section>\n");
    }
    put("<section id=\"tables\">\n<h2>Tables</h2>\n");
    put(&tables(&blocks_of(document)));
    put("</section>\n");
    for (number, part) in parts.iter().enumerate() {
        let title = escape(&part.title);
        put(&format!("<section id=\"rounds-{}\">\n<h2>{title}: every round</h2>\n", number + 1));
        put(&jobs(document, part, |reader| of_job(reader, &mut numbers)));
        put("</section>\n");
    }
    put("<section id=\"manifest\">\n<h2>Machine, disk and program</h2>\n");
    put(&manifest::table(&document.manifest));
    put("</section>\n</main>\n</body>\n</html>\n");
    page
}

fn dateline(document: &Document) -> String {
    let manifest = &document.manifest;
    let commit = manifest.commit.as_deref().unwrap_or("commit unknown");
    format!(
        "Suite {}, {}, seed {}, forebay {} ({commit})",
        document.suite, manifest.date, manifest.seed, manifest.version
    )
}

fn tables(blocks: &[Block]) -> String {
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

/// Something of each job of a part that ran.
fn jobs<'a>(
    document: &'a Document,
    part: &'a Part,
    mut of: impl FnMut(Reader<'a>) -> String,
) -> String {
    let ran: Vec<Reader<'_>> = Reader::ran(document, part).collect();
    let open = if ran.len() <= OPEN_JOBS { " open=\"open\"" } else { "" };
    // The heading of the part has named it.
    if let [only] = ran[..]
        && (only.job.title.is_empty() || only.job.title == part.title)
    {
        return of(only);
    }
    let mut text = String::new();
    for reader in ran {
        let job = reader.job;
        let title = if job.title.is_empty() { &job.name } else { &job.title };
        let _ = writeln!(text, "<details{open}>\n<summary>{}</summary>", escape(title));
        text.push_str(&of(reader));
        text.push_str("</details>\n");
    }
    text
}

/// The answer to a question: the arms as bars, then the latencies.
fn answer(reader: Reader<'_>, numbers: &mut Numbers) -> String {
    let mut drawn: Vec<String> = bars::bars(reader, numbers).into_iter().collect();
    for direction in ["read", "write"] {
        drawn.extend(curves::curves(reader, direction, numbers));
    }
    drawn.concat()
}

fn of_job(reader: Reader<'_>, numbers: &mut Numbers) -> String {
    let mut drawn = Vec::new();
    drawn.extend(rounds(reader, numbers));
    for direction in ["read", "write"] {
        drawn.extend(course::courses(reader, direction, numbers));
    }
    drawn.extend(batches::batches(reader, numbers));
    drawn.extend(holds::holds(reader, numbers));
    let mut strips = |metrics: &[Beside]| -> String {
        metrics.iter().filter_map(|metric| besides(reader, *metric, numbers)).collect()
    };
    drawn.push(strips(BESIDES));
    let of_kernel = strips(OF_KERNEL);
    if !of_kernel.is_empty() {
        drawn.push(format!(
            "<details open=\"open\">\n<summary>Batches counted in the kernel</summary>\n{of_kernel}</details>\n"
        ));
    }
    drawn.concat()
}

/// Each round of each arm, divided by the same round of the base.
fn rounds(reader: Reader<'_>, numbers: &mut Numbers) -> Option<String> {
    let (base, metric) = (reader.job.base.as_deref()?, &reader.part.metric);
    let of_base = reader.row(base, metric)?;
    let strip = |(place, arm): (usize, &str)| {
        let row = reader.row(arm, metric)?;
        let pairs = row.rounds.iter().zip(&of_base.rounds);
        let ratios = pairs.filter_map(|(arm, base)| Some((*arm)? / (*base)?));
        let compared = reader.against_base(arm);
        Some(Strip {
            arm: place,
            name: summary::name(arm),
            values: ratios.filter(|ratio| ratio.is_finite() && *ratio > 0.0).collect(),
            interval: compared.map(|found| [found.ci_low, found.ratio, found.ci_high]),
            told: if arm == base { "1 (base)".to_owned() } else { table::marked(compared) },
        })
    };
    let better = better(of_base.better);
    let floor = reader.floor(metric);
    let band = floor.map_or_else(String::new, |_| "; band: the noise floor".to_owned());
    Strips {
        title: format!("{}, round by round against {}", spoken(metric), summary::name(base)),
        below: format!(
            "ratio ({better}); a dot for each round, a line for the 95 % interval{band}"
        ),
        strips: reader.placed_arms().into_iter().filter_map(strip).collect(),
        one: true,
        band: floor,
        shown: figures::short,
        bytes: false,
    }
    .drawn(numbers)
}

/// A metric of each arm in its own unit, where any has it.
fn besides(
    reader: Reader<'_>,
    (metric, heading, below): Beside,
    numbers: &mut Numbers,
) -> Option<String> {
    let shown = told(metric);
    let strip = |(place, arm): (usize, &str)| {
        let row = reader.row(arm, metric)?;
        Some(Strip {
            arm: place,
            name: summary::name(arm),
            values: row.rounds.iter().flatten().copied().filter(|value| *value > 0.0).collect(),
            interval: None,
            told: shown(row.mean),
        })
    };
    Strips {
        title: heading.to_owned(),
        below: format!("{below}; a dot for each round"),
        strips: reader.placed_arms().into_iter().filter_map(strip).collect(),
        one: false,
        band: None,
        shown,
        bytes: metric.ends_with("_bytes"),
    }
    .drawn(numbers)
}

/// Returns the format of a metric's values.
fn told(metric: &str) -> fn(f64) -> String {
    match metric {
        name if name.ends_with("_us") => figures::microseconds,
        name if name.ends_with("_bytes") => figures::bytes,
        name if name.ends_with("_share") => figures::percent,
        _ => figures::short,
    }
}

fn better(direction: Better) -> &'static str {
    match direction {
        Better::Higher => "more is better",
        Better::Lower => "less is better",
    }
}

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
