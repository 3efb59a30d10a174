//! Two results side by side: two kernels, two machines, two versions. Ratios are shown only if both
//! ran the same arm on the same work in the same size; else a sentence says so and the figures
//! stand for themselves.

use serde_json::Value;

use crate::probes;
use crate::reader::Reader;
use crate::schema::{Document, Part, PartJob, Row};
use crate::statistics::Estimate;
use crate::statistics::unpaired::apart;
use crate::suite::model::Form;

use crate::figures::in_brackets;

use super::head::{folded, place};
use super::table::{Column, Table, absent, scale, spread};
use super::{Block, written};

const LEGEND: &str = "Ratios are not paired by round: they include every other difference between the two runs. ~ = not \
    shown: the interval includes 1, or the ratio is within a noise floor, or there are too few rounds.";

/// Fields of a manifest that differ by nature.
const PASSING: [&str; 8] =
    ["command_line", "date", "job_files", "left_out", "notes", "orders", "seed", "title"];

/// Figures that are never the same twice.
const RESTLESS: [&str; 4] = ["free_bytes", "free_extents", "mean_free_extent_bytes", "ground"];

/// Formats the second result beside the first. Ends with a newline.
pub fn side_by_side(first: &Document, second: &Document) -> String {
    let mut blocks = Vec::new();
    for (name, document) in [("A", first), ("B", second)] {
        let manifest = &document.manifest;
        let place = format!("{name}: {}, {}", place(manifest), manifest.date);
        blocks.push(Block::Lines(folded(&place)));
    }
    blocks.extend(differences(first, second).into_iter().map(Block::Text));
    let (parts, others) = (&first.parts, &second.parts);
    for part in parts {
        blocks.push(Block::Gap);
        blocks.push(Block::Lines(folded(&part.title)));
        match others.iter().find(|other| other.name == part.name && other.metric == part.metric) {
            Some(other) => blocks.extend(of_part((first, part), (second, other))),
            None => blocks.push(Block::Text("only in A".to_owned())),
        }
    }
    for other in others.iter().filter(|other| !parts.iter().any(|part| part.name == other.name)) {
        blocks.push(Block::Gap);
        blocks.push(Block::Lines(folded(&other.title)));
        blocks.push(Block::Text("only in B".to_owned()));
    }
    blocks.push(Block::Gap);
    blocks.push(Block::Text(LEGEND.to_owned()));
    written(&blocks)
}

type Side<'a> = (&'a Document, &'a Part);

/// Returns a table for each job that both have, and the names of the others.
fn of_part(first: Side<'_>, second: Side<'_>) -> Vec<Block> {
    let why_not = unlike(first, second);
    let mut blocks = Vec::new();
    blocks.extend(why_not.iter().map(|why| Block::Text(format!("no ratios: {why}"))));
    let others: Vec<Reader<'_>> = Reader::ran(second.0, second.1).collect();
    for one in Reader::ran(first.0, first.1) {
        let title = one.job.heading();
        let Some(other) = others.iter().find(|other| other.job.name == one.job.name) else {
            blocks.push(Block::Text(format!("{title}: only in A")));
            continue;
        };
        let same = why_not.is_none() && is_alike(one.job, other.job);
        if why_not.is_none() && !same {
            blocks.push(Block::Text(format!("{title}: no ratios: not the same work")));
        }
        blocks.push(Block::Text(format!("{title}, {}:", reported(&one.part.metric).0)));
        blocks.push(Block::Table(table(one, *other, same)));
    }
    let only = others.iter().filter(|other| first.0.arms_of(&other.job.name).is_empty());
    blocks.extend(only.map(|other| Block::Text(format!("{}: only in B", other.job.name))));
    blocks
}

/// Returns the table of the arms of both, those of the first before those that only the second has.
fn table(first: Reader<'_>, second: Reader<'_>, same: bool) -> Table {
    let metric = first.part.metric.as_str();
    let unit = reported(metric).1;
    let mut arms = first.arms();
    arms.extend(second.arms().into_iter().filter(|arm| !first.arms().contains(arm)));
    // The larger of both; none where one has none.
    let floor = first.floor(metric).zip(second.floor(metric)).map(|(one, other)| one.max(other));
    let side = |head: &str, reader: Reader<'_>| {
        Column::new(head, arms.iter().map(|arm| spread(reader.row(arm, metric), unit)))
    };
    let ratio = |arm: &&str| {
        let both = first.row(arm, metric).zip(second.row(arm, metric)).filter(|_| same);
        let found = both.and_then(|(one, other)| of_rows(one, other));
        found.map_or_else(absent, |found| marked(&found, floor))
    };
    let names = Column::names("arm", arms.iter().copied());
    let ratios = Column::new("B/A [95 %]", arms.iter().map(ratio));
    Table { columns: vec![names, side("A", first), side("B", second), ratios] }
}

fn of_rows(first: &Row, second: &Row) -> Option<Estimate> {
    const SEED: u64 = 1;
    let values = |row: &Row| row.rounds.iter().flatten().copied().collect::<Vec<f64>>();
    apart(&values(first), &values(second), SEED)
}

fn marked(found: &Estimate, floor: Option<f64>) -> String {
    let mark = if found.is_ratio_shown(floor) { "" } else { "~" };
    // One round has no interval.
    let has_none = found.low == found.high;
    format!("{mark}{}", in_brackets([found.value, found.low, found.high], has_none))
}

/// Returns the reason why two parts cannot be compared; none if they can.
fn unlike((first, part): Side<'_>, (second, other): Side<'_>) -> Option<String> {
    let mib = |bytes: Option<u64>| {
        bytes.map_or("none".to_owned(), |bytes| format!("{} MiB", bytes >> 20))
    };
    let scale = |scale: Option<f64>| scale.map_or("unknown".to_owned(), |scale| scale.to_string());
    let form =
        |form: Option<Form>| form.map_or("unknown".to_owned(), |form| form.name().to_owned());
    let pairs = [
        ("cells wrote", mib(part.cell_bytes), mib(other.cell_bytes)),
        ("the file had", mib(part.data_bytes), mib(other.data_bytes)),
        ("memory was", mib(first.manifest.budget_bytes), mib(second.manifest.budget_bytes)),
        ("the form was", form(part.form), form(other.form)),
        ("the scale was", scale(part.scale), scale(other.scale)),
        (
            "settings were",
            format!("{:?}", first.manifest.settings),
            format!("{:?}", second.manifest.settings),
        ),
    ];
    let unlike: Vec<String> = pairs
        .into_iter()
        .filter(|(_, one, other)| one != other)
        .map(|(what, one, other)| format!("{what} {one} in A, {other} in B"))
        .collect();
    (!unlike.is_empty()).then(|| unlike.join("; "))
}

fn is_alike(job: &PartJob, other: &PartJob) -> bool {
    job.workload == other.workload && job.device == other.device && job.depth == other.depth
}

/// Returns a metric's heading and its divisor.
fn reported(name: &str) -> (String, f64) {
    let Some(found) = probes::metric(name) else { return (name.to_owned(), 1.0) };
    let (divisor, unit) = scale(found);
    (format!("{}{unit}", found.heading()), divisor)
}

/// Differences of machines, kernels and versions, by the names of the file.
fn differences(first: &Document, second: &Document) -> Vec<String> {
    let mut found = Vec::new();
    let value =
        |document: &Document| serde_json::to_value(&document.manifest).unwrap_or(Value::Null);
    let (first, second) = (value(first), value(second));
    let fields = first.as_object().into_iter().flatten();
    for (name, one) in fields.filter(|(name, _)| !PASSING.contains(&name.as_str())) {
        differ(name, one, second.get(name).unwrap_or(&Value::Null), &mut found);
    }
    if found.is_empty() {
        vec!["machine, kernel and storage: no difference is known".to_owned()]
    } else {
        found
    }
}

fn differ(name: &str, one: &Value, other: &Value, found: &mut Vec<String>) {
    const LONGEST: usize = 60;
    let last = name.rsplit('.').next().unwrap_or(name);
    if one == other || RESTLESS.contains(&last) {
        return;
    }
    if let (Value::Object(one), Value::Object(other)) = (one, other) {
        let more = other.keys().filter(|key| !one.contains_key(*key));
        for key in one.keys().chain(more) {
            let of = |fields: &serde_json::Map<String, Value>| {
                fields.get(key).cloned().unwrap_or(Value::Null)
            };
            differ(&format!("{name}.{key}"), &of(one), &of(other), found);
        }
        return;
    }
    let reported = |value: &Value| match value {
        Value::Null => "unknown".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let (one, other) = (reported(one), reported(other));
    let short =
        one.len().max(other.len()) <= LONGEST && !one.contains('\n') && !other.contains('\n');
    found.push(if short { format!("{name}: {one} | {other}") } else { format!("{name}: differs") });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::CellResult;
    use crate::compare::judge;
    use crate::manifest::{Machine, Manifest};

    fn document(release: &str, speed: f64, cell_bytes: u64) -> Document {
        let machine = Machine { release: release.into(), cpus: 2, ..Machine::default() };
        let manifest =
            Manifest { machine, date: "2026-03-01T12:00:00Z".into(), ..Manifest::default() };
        let cell = |ripple: f64| CellResult {
            metrics: [("write_bytes_per_s".to_owned(), speed * 1e6 * ripple)].into(),
            ..CellResult::default()
        };
        let rounds = [1.0, 1.01, 0.99, 1.004, 0.996].map(cell);
        let mut all = judge::rows("files", "forebay", &rounds);
        all.extend(judge::rows("files", "forebay-again", &rounds));
        let mut document = Document::new(manifest, "layout", all, Vec::new());
        document.parts.push(Part {
            name: "files".into(),
            title: "Random 4k writes".into(),
            metric: "write_bytes_per_s".into(),
            again: "forebay".into(),
            cell_bytes: Some(cell_bytes),
            jobs: vec![PartJob { name: "files".into(), ..PartJob::default() }],
            ..Part::default()
        });
        document
    }

    #[test]
    fn two_kernels() {
        let (old, new) = (document("6.12.1", 200.0, 1 << 28), document("6.18.44", 300.0, 1 << 28));
        let text = side_by_side(&old, &new);
        assert!(text.contains("machine.release: 6.12.1 | 6.18.44"), "{text}");
        assert!(text.contains("MB/s:") && text.contains("1.50 [1.4"), "{text}");
        assert!(text.contains("200+-") && text.contains("300+-"), "{text}");
        let same = side_by_side(&old, &old);
        assert!(same.contains("~1.00 [") && same.contains("no difference is known"), "{same}");
        for text in [text, same] {
            assert!(
                text.lines().all(|line| line.chars().count() <= crate::report::table::WIDTH),
                "{text}"
            );
        }
    }

    #[test]
    fn no_ratio_of_what_is_not_the_same() {
        let (small, large) =
            (document("6.18.44", 200.0, 1 << 28), document("6.18.44", 300.0, 1 << 29));
        let text = side_by_side(&small, &large);
        assert!(text.contains("no ratios: cells wrote 256 MiB in A, 512 MiB in B"), "{text}");
        assert!(!text.contains("1.50 ["), "{text}");
        let mut other = document("6.18.44", 300.0, 1 << 28);
        other.parts[0].name = "others".into();
        let text = side_by_side(&small, &other);
        assert!(text.contains("only in A") && text.contains("only in B"), "{text}");
        let mut arms = document("6.18.44", 300.0, 1 << 28);
        arms.rows.iter_mut().for_each(|row| row.arm = row.arm.replace("forebay", "kernel"));
        let text = side_by_side(&small, &arms);
        assert!(
            text.lines().any(|line| line.starts_with("forebay ") && line.trim_end().ends_with('-')),
            "{text}"
        );
    }
}
