//! A result as one page: pictures for each question first, then the tables, then machine and disk.
//! It needs nothing but itself: no network, no script, no font. Pictures are inline SVG, each with
//! a title and a description, and follow the reader's light or dark scheme.
//!
//! The page is well-formed XML, so that other programs can read it. To look at it in both schemes
//! (0 is dark, 1 is light), with Debian's `chromium`:
//!
//! ```text
//! chromium --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --hide-scrollbars
//!     --blink-settings=preferredColorScheme=0 --window-size=1000,5200 --screenshot=dark.png page.html
//! ```

mod bars;
mod curves;
mod svg;

use std::fmt::Write;

use serde_json::Value;

use crate::probes;
use crate::schema::{Document, Part};

use super::head::head;
use super::table::{Table, shown_figures};
use super::{Block, blocks_of};
use crate::reader::Reader;
use svg::{Numbers, escape};

const STYLE: &str = include_str!("html/style.css");

/// Jobs that are open at once; of more, the reader opens each.
const OPEN_JOBS: usize = 6;

/// Returns the page of a result.
pub fn html(document: &Document) -> String {
    let title = match document.parts.as_slice() {
        [one] => one.title.clone(),
        _ => format!("forebay compare {}", document.suite),
    };
    let title = escape(&title);
    let mut numbers = Numbers::default();
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>\n\
         <p>{}</p>\n</header>\n<main>\n",
        escape(&dateline(document))
    );
    head(&document.manifest)
        .iter()
        .for_each(|line| page.push_str(&format!("<p>{}</p>\n", escape(line))));
    for (number, part) in document.parts.iter().enumerate() {
        let title = part.question.as_ref().unwrap_or(&part.title);
        let answer = |reader: Reader<'_>| answer(reader, &mut numbers);
        let jobs = jobs(document, part, answer);
        page.push_str(&section(&format!("part-{}", number + 1), title, &jobs));
    }
    let tables: String = blocks_of(document).iter().map(block).collect();
    page.push_str(&section("tables", "Tables", &tables));
    for (number, part) in document.parts.iter().enumerate() {
        let title = format!("{}: all figures", part.title);
        let figures = |reader: Reader<'_>| all_figures(reader, &mut numbers);
        let jobs = jobs(document, part, figures);
        page.push_str(&section(&format!("figures-{}", number + 1), &title, &jobs));
    }
    // It was written as JSON before, or will be.
    let manifest = serde_json::to_value(&document.manifest).unwrap_or(Value::Null);
    let mut lines = String::new();
    facts(&manifest, "", &mut lines);
    let facts = format!(
        "<div class=\"wide\"><table class=\"facts\">\n<tbody>\n{lines}</tbody>\n</table></div>\n"
    );
    page.push_str(&section("manifest", "Machine, disk and program", &facts));
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn section(id: &str, title: &str, content: &str) -> String {
    format!("<section id=\"{id}\">\n<h2>{}</h2>\n{content}</section>\n", escape(title))
}

fn dateline(document: &Document) -> String {
    let manifest = &document.manifest;
    let commit = manifest.commit.as_deref().unwrap_or("commit unknown");
    format!(
        "Suite {}, {}, seed {}, forebay {} ({commit})",
        document.suite, manifest.date, manifest.seed, manifest.version
    )
}

/// Returns the pictures that answer a question: the arms as bars, then the latencies.
fn answer(reader: Reader<'_>, numbers: &mut Numbers) -> String {
    let mut drawn: Vec<String> =
        bars::bars(reader, &reader.part.metric, numbers).into_iter().collect();
    for direction in ["read", "write"] {
        drawn.extend(curves::curves(reader, direction, numbers));
    }
    drawn.concat()
}

/// Returns the pictures of the other figures of a job.
fn all_figures(reader: Reader<'_>, numbers: &mut Numbers) -> String {
    let probe = probes::by_name(&reader.job.probe);
    let figures = probe.map_or(&[][..], |probe| probe.figures);
    let shown = shown_figures(reader, figures);
    shown.filter_map(|metric| bars::bars(reader, metric.name, numbers)).collect()
}

/// Returns something of each job of a part that ran.
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
    let details = |reader: Reader<'a>| {
        let title = escape(reader.job.heading());
        format!("<details{open}>\n<summary>{title}</summary>\n{}</details>\n", of(reader))
    };
    ran.into_iter().map(details).collect()
}

fn block(block: &Block) -> String {
    match block {
        Block::Lines(lines) => {
            let words = lines.iter().flat_map(|line| line.split("  "));
            let words: Vec<&str> = words.map(str::trim).filter(|part| !part.is_empty()).collect();
            format!("<p class=\"head\">{}</p>\n", escape(&words.join(", ")))
        }
        Block::Text(paragraph) => format!("<p>{}</p>\n", escape(paragraph)),
        Block::Table(table) => table_of(table),
        Block::Gap => String::new(),
    }
}

fn table_of(table: &Table) -> String {
    let head = |head: &str| escape(&head.replace("-|", "").replace('|', " "));
    let heads: String = table
        .columns
        .iter()
        .map(|column| format!("<th scope=\"col\">{}</th>", head(&column.head)))
        .collect();
    let mut lines = String::new();
    for at in 0..table.columns.first().map_or(0, |names| names.cells.len()) {
        let mut cells = table.columns.iter().map(|column| escape(&column.cells[at]));
        let name = cells.next().unwrap_or_default();
        let rest: String = cells.map(|text| format!("<td>{text}</td>")).collect();
        let _ = writeln!(lines, "<tr><th scope=\"row\">{name}</th>{rest}</tr>");
    }
    format!(
        "<div class=\"wide\"><table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{lines}</tbody>\n</table></div>\n"
    )
}

/// Adds a line for each fact, by the name that it has in the file; the reader opens long ones.
fn facts(value: &Value, name: &str, lines: &mut String) {
    const LONG: usize = 160;
    if let Value::Object(fields) = value {
        for (field, value) in fields {
            let name = if name.is_empty() { field.clone() } else { format!("{name}.{field}") };
            facts(value, &name, lines);
        }
        return;
    }
    let text = words(value);
    let cell = if text.is_empty() {
        "<td class=\"unknown\">unknown, or none</td>".to_owned()
    } else if text.len() > LONG || text.contains('\n') {
        let first: String = text.lines().next().unwrap_or_default().chars().take(60).collect();
        let (first, text) = (escape(&first), escape(&text));
        format!("<td><details><summary>{first} ...</summary><pre>{text}</pre></details></td>")
    } else {
        format!("<td>{}</td>", escape(&text))
    };
    let _ = writeln!(lines, "<tr><th scope=\"row\">{}</th>{cell}</tr>", escape(name));
}

/// Returns a value as text, lists of words on one line each.
fn words(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.trim_end().to_owned(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(words).collect();
            items.join(if items.iter().any(|item| item.contains(' ')) { "\n" } else { " " })
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
