//! A result as text that can be pasted into a mail: at most 72 columns, complete in itself.
//!
//! It is made from the [`Document`] alone, so that it says what the file says. MB/s is 10^6 bytes
//! asked for per second until all was synced. A ratio is to the base of its job.

pub mod check;
mod head;
mod hold;
mod html;
mod pair;
mod published;
mod run;
mod summary;
mod table;

use crate::probes;
use crate::schema::Document;

pub use crate::figures::{bytes, microseconds};
pub use crate::reader::arm_name;
pub use html::html;
pub use pair::side_by_side;
pub use published::published;
pub use run::run;
pub use summary::summary;

use crate::reader::Reader;
use head::{folded, head, heading, remarks};
use table::Table;

enum Block {
    Lines(Vec<String>),
    Table(Table),
    Text(String),
    /// An empty line between what belongs to different things.
    Gap,
}

/// Returns the result of a comparison, with the machine and the notes. Ends with a newline.
pub fn comparison(document: &Document) -> String {
    written(&blocks_of(document))
}

/// Returns the result of a comparison, beside published figures if it has some, or of a run.
pub fn any(document: &Document) -> String {
    if document.parts.is_empty() {
        run(document)
    } else if document.parts.iter().any(|part| !part.published.is_empty()) {
        published(document)
    } else {
        comparison(document)
    }
}

fn blocks_of(document: &Document) -> Vec<Block> {
    let mut blocks: Vec<Block> = hold::lines(document).into_iter().map(Block::Text).collect();
    blocks.push(Block::Lines(head(&document.manifest)));
    let mut shown: Vec<&str> = Vec::new();
    for (number, part) in document.parts.iter().enumerate() {
        if number > 0 {
            blocks.push(Block::Gap);
        }
        blocks.extend(part.question.iter().map(|question| Block::Lines(folded(question))));
        blocks.push(Block::Lines(heading(document, part)));
        for reader in Reader::ran(document, part) {
            let (probe, title) = (probes::by_name(&reader.job.probe), &reader.job.title);
            if !title.is_empty() && *title != part.title {
                blocks.extend([Block::Gap, Block::Text(format!("{title}:"))]);
            }
            let figures = probe.map_or(&[][..], |probe| probe.figures);
            let compared = probe.map_or(&[][..], |probe| probe.compared);
            let tables = table::of_job(reader, figures, compared);
            for (number, table) in tables.into_iter().enumerate() {
                blocks.extend((number > 0).then_some(Block::Gap));
                blocks.push(Block::Table(table));
            }
            blocks.push(Block::Text(reader.noise()));
            blocks.extend(probe.and_then(|probe| (probe.sentence)(reader)).map(Block::Text));
            let own = table::shown_figures(reader, figures).map(|metric| metric.name);
            shown.extend(own.chain([part.metric.as_str()]));
        }
    }
    blocks.push(Block::Gap);
    blocks.extend(legend(&shown).map(Block::Text));
    blocks.extend(remarks(document).into_iter().map(Block::Text));
    blocks
}

/// Returns what the heads of the shown columns mean, each once.
fn legend(shown: &[&str]) -> Option<String> {
    let about = probes::metrics().filter(|metric| !metric.about.is_empty());
    let about = about.filter(|metric| shown.contains(&metric.name));
    let said: Vec<String> =
        about.map(|metric| format!("{}: {}", metric.heading(), metric.about)).collect();
    (!said.is_empty()).then(|| format!("{}. - = not measured", said.join("; ")))
}

fn written(blocks: &[Block]) -> String {
    let lines = blocks.iter().map(|block| match block {
        Block::Lines(lines) => lines.clone(),
        Block::Table(table) => table.text(),
        Block::Text(text) => folded(text),
        Block::Gap => vec![String::new()],
    });
    let mut lines = lines.collect::<Vec<_>>().concat();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests;
