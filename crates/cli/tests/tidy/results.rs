//! Whether the figures that a page quotes are in the result files it names.
//!
//! ```text
//! <!-- from results/A.txt, results/B.txt -->      <!-- ratios: SUITE -->
//! the block up to the next empty line             a table with a result file per column
//! ```
//!
//! A figure is a number outside code and links, with its sign, unit and interval. A row of a table
//! takes its figures from the lines of the file that begin with the row's first cell, if there are
//! such lines. If such a line is a heading, the figures may stand below it, up to the end of the
//! next paragraph. A cell of a table of ratios is the computed ratio of its row's job.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use crate::tree::Tree;

macro_rules! pattern {
    ($name:ident, $text:literal) => {
        static $name: LazyLock<Regex> = LazyLock::new(|| Regex::new($text).expect("a pattern"));
    };
}

pattern!(NAME, r"results/[\w.-]+\w");
pattern!(THOUSANDS, r"(\d),(\d\d\d)\b");
pattern!(SPACES, r"[ \t]+");
pattern!(UNIT, r"(\d[kM]?) (%|[KMG]i?B(?:/s)?\b|[num]?s\b)");
pattern!(CODE, r"`[^`]*`|\]\([^)]*\)|\b[Dd]ecision \d+");
pattern!(FIGURE, r"([+-]?)(\d+(?:\.\d+)?)([A-Za-z%][A-Za-z/]*)?(?: (\[[^\]]*\]))?");
pattern!(CHANGE, r"(\d[\d.]*)k? to (\d[\d.]*)k?[^(|]*\(~?([+-]?\d[\d.]*)%");
pattern!(COMPUTED, r"^# computed: (\S+) \S+ \S+ to \S+ (\d\S*) (\[.*\])$");

/// Headings of columns without figures of ours. The first column never has any.
const OTHERS: [&str; 5] = ["target", "published", "measure", "the thread says", "question"];

/// How lines of a result file begin that it must have.
const HEAD: [&str; 4] = ["# commit: ", "# date: ", "# machine: ", "$ "];

/// A ratio below this one is bold, and the page gives its cause.
const LEAST: f64 = 0.95;

/// Every quoted figure, result file and marker that is wrong.
pub(crate) fn broken(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    let mut named = BTreeSet::new();
    let results: BTreeMap<&str, &str> =
        tree.all().filter(|(path, _)| path.starts_with("results/")).collect();
    for (page, text) in tree.pages() {
        named.extend(NAME.find_iter(text).map(|found| found.as_str()));
        let lines: Vec<&str> = text.lines().collect();
        if let Some(at) = bare_block(&lines).filter(|_| page.starts_with("docs/measurements/")) {
            findings.push(format!("{page}:{}: output; move it to a file in results/", at + 1));
        }
        for (at, marker) in lines.iter().enumerate() {
            let below = lines[at + 1..].iter().take_while(|line| !line.is_empty());
            let block: Vec<&str> = below.copied().collect();
            let mut add = |what: String| findings.push(format!("{page}:{}: {what}", at + 1));
            if marker.starts_with("<!-- from") {
                match sources(marker, &results) {
                    Ok(files) => wrong_figures(&block, &files).into_iter().for_each(add),
                    Err(what) => add(what),
                }
            } else if marker.starts_with("<!-- ratios") {
                wrong_ratios(&block, &results).into_iter().for_each(add);
            }
        }
    }
    for (path, text) in &results {
        findings.extend(incomplete(text).map(|what| format!("{path}: no {what}")));
        if !named.contains(path) {
            findings.push(format!("{path}: no page names it"));
        }
    }
    findings
}

/// The first line of a fenced block without a language: it is output.
fn bare_block(lines: &[&str]) -> Option<usize> {
    let fences = lines.iter().enumerate().filter(|(_, line)| line.starts_with("```"));
    fences.step_by(2).find(|(_, line)| **line == "```").map(|(at, _)| at)
}

/// Returns the part that a result file lacks.
fn incomplete(text: &str) -> Option<&'static str> {
    let has = |start: &str| text.lines().any(|line| line.starts_with(start));
    let is_output = |line: &str| !(line.is_empty() || line.starts_with(['#', '$']));
    let missing = HEAD.into_iter().find(|start| !has(start));
    missing.or_else(|| (!text.lines().any(is_output)).then_some("output"))
}

/// The files of a marker, in a form for comparison.
fn sources(marker: &str, results: &BTreeMap<&str, &str>) -> Result<Vec<String>, String> {
    let inside = marker.strip_prefix("<!-- from ").and_then(|rest| rest.strip_suffix(" -->"));
    let inside = inside.ok_or_else(|| format!("{marker}: not `<!-- from results/NAME.txt -->`"))?;
    let text = |path: &str| results.get(path).map(|text| plain(text));
    inside.split(", ").map(|path| text(path).ok_or_else(|| format!("no file {path}"))).collect()
}

/// A text without separators of thousands, and units directly behind their numbers.
fn plain(text: &str) -> String {
    let text = SPACES.replace_all(text, " ");
    // Twice, because the digits of millions overlap.
    let text = THOUSANDS.replace_all(&text, "$1$2");
    let text = THOUSANDS.replace_all(&text, "$1$2");
    UNIT.replace_all(&text, "$1$2").into_owned()
}

/// The figures of a block that are in none of the files.
fn wrong_figures(block: &[&str], files: &[String]) -> Vec<String> {
    let Some((first, rows)) = block.split_first() else {
        return vec!["nothing below the marker".to_owned()];
    };
    if !first.starts_with('|') {
        let whole: Vec<Source> = files.iter().map(|file| Source { file, lines: file }).collect();
        let missing = missing(&block.join(" "), &whole);
        return missing.into_iter().map(|figure| format!("{figure} is in no result")).collect();
    }
    let heads = cells(first);
    let mut findings = Vec::new();
    for row in rows.iter().skip(1).map(|row| cells(row)) {
        let lines: Vec<String> = files.iter().map(|file| of_row(file, row[0])).collect();
        let pairs = files.iter().zip(&lines);
        let sources: Vec<Source> = pairs.map(|(file, lines)| Source { file, lines }).collect();
        for (head, cell) in heads.iter().zip(&row).skip(1) {
            let missing = if OTHERS.contains(head) { Vec::new() } else { missing(cell, &sources) };
            let reported = |figure| format!("{figure} of the row {} is in no result", row[0]);
            findings.extend(missing.into_iter().map(reported));
        }
    }
    findings
}

/// A result file, and the lines of it that a figure may stand on.
struct Source<'a> {
    file: &'a str,
    lines: &'a str,
}

pub(crate) fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

/// The lines of a file that begin with a row's label, and those below it if it is a heading; the
/// whole file if no line does.
fn of_row(file: &str, label: &str) -> String {
    let words = |text: &str| -> String {
        let text = text.trim().to_lowercase().replace('-', " ");
        text.chars().filter(|c| !"`*~".contains(*c)).collect()
    };
    let label = words(label);
    let is_of = |line: &str| {
        let line = words(line.strip_prefix("# computed: ").unwrap_or(line));
        let rest = line.strip_prefix(&label);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', ':']))
    };
    let mut found = String::new();
    // Ends of paragraphs that are still to come.
    let (mut is_first, mut below) = (true, 0_u32);
    for line in file.lines() {
        let is_row = is_of(line);
        if is_row && (is_first || line.ends_with(':')) {
            below = 2;
        }
        if is_row || below > 0 {
            found.extend([line, "\n"]);
        }
        below = below.saturating_sub(u32::from(line.is_empty()));
        is_first = line.is_empty();
    }
    if label.is_empty() || found.is_empty() { file.to_owned() } else { found }
}

/// The figures of a text that no file has.
fn missing(text: &str, sources: &[Source<'_>]) -> Vec<String> {
    let text = plain(&CODE.replace_all(text, " `").replace("**", ""));
    let mut missing = Vec::new();
    for one in FIGURE.captures_iter(&text) {
        let all = one.get(0).expect("the match");
        let before = text[..all.start()].chars().last();
        let after = text[one.get(3).or(one.get(2)).expect("digits").end()..].chars().next();
        // A part of a word, such as `p99`, `12x12` and `io_uring-32`.
        let is_part = |c: char| c.is_alphanumeric() || "_.-/".contains(c);
        if before.is_some_and(is_part) || after.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let group = |number: usize| one.get(number).map_or("", |found| found.as_str());
        let asked = Figure { sign: group(1), number: group(2), unit: group(3), range: group(4) };
        if !sources.iter().any(|source| asked.is_in(source)) && !is_change(&asked, &text) {
            missing.push(all.as_str().to_owned());
        }
    }
    missing
}

struct Figure<'a> {
    sign: &'a str,
    number: &'a str,
    unit: &'a str,
    range: &'a str,
}

impl Figure<'_> {
    fn is_in(&self, source: &Source<'_>) -> bool {
        let Self { sign, number, unit, range } = self;
        if !range.is_empty() {
            return has(source.lines, &format!("{sign}{number}{unit} {range}"));
        }
        // Thousands of a unit, such as `13.7k us`.
        let (scale, unit) = match unit.strip_prefix('k') {
            Some(unit) => ("k", unit),
            None => ("", *unit),
        };
        let bare = format!("{sign}{number}{scale}");
        has(source.lines, &format!("{bare}{unit}"))
            // The unit may stand in the head of a column.
            || has(source.lines, &bare) && unit != "M" && source.file.contains(unit)
    }
}

/// Whether a file has these words, and not as a part of a longer number.
fn has(file: &str, words: &str) -> bool {
    file.match_indices(words).any(|(at, _)| {
        let before = file[..at].chars().last();
        let mut after = file[at + words.len()..].chars();
        let (next, second) = (after.next(), after.next());
        let is_longer = match next {
            Some('.') => second.is_some_and(|c| c.is_ascii_digit()),
            Some('k' | 'M') => !second.is_some_and(|c| c.is_ascii_alphabetic()),
            Some(c) => c.is_ascii_digit(),
            None => false,
        };
        !is_longer && !before.is_some_and(|c| c.is_ascii_digit() || c == '.')
    })
}

/// Whether a figure is the change between two others of the text: `100 to 130 MB/s (+30.0%)`.
fn is_change(figure: &Figure<'_>, text: &str) -> bool {
    let is_wanted = |one: &regex::Captures<'_>| {
        let number = |group: usize| one[group].parse::<f64>().unwrap_or(f64::NAN);
        let change = format!("{:+.1}", (number(2) / number(1) - 1.0) * 100.0);
        change == one[3] && change == format!("{}{}", figure.sign, figure.number)
    };
    CHANGE.captures_iter(text).any(|one| is_wanted(&one))
}

/// The cells of a table of ratios that are not the computed ratios of their files.
fn wrong_ratios(block: &[&str], results: &BTreeMap<&str, &str>) -> Vec<String> {
    let Some((heads, rows)) = block.split_first() else { return vec!["no table".to_owned()] };
    let mut findings = Vec::new();
    for (column, head) in cells(heads).iter().enumerate().skip(1) {
        let links = head.split("](../../").skip(1);
        let paths = links.map(|link| link.split(')').next().unwrap_or_default());
        // A later file takes the place of an earlier one, job by job.
        let mut ratios: BTreeMap<String, String> = BTreeMap::new();
        for path in paths {
            let text = results.get(path).copied().unwrap_or_default();
            for one in text.lines().filter_map(|line| COMPUTED.captures(line)) {
                let is_low = one[2].parse::<f64>().is_ok_and(|ratio| ratio < LEAST);
                let mark = if is_low { "**" } else { "" };
                let ratio = format!("{mark}{} {}{mark}", &one[2], &one[3]);
                ratios.insert(format!("`{}`", &one[1]), ratio);
            }
        }
        if ratios.is_empty() {
            findings.push(format!("no computed ratios of the column {head}"));
        }
        for row in rows.iter().skip(1).map(|row| cells(row)) {
            let expected = ratios.remove(row[0]).unwrap_or_else(|| "-".to_owned());
            let shown = row.get(column).copied().unwrap_or_default();
            if shown != expected {
                findings.push(format!("{} of {head}: {shown}, and {expected} there", row[0]));
            }
        }
        findings.extend(ratios.into_keys().map(|job| format!("no row {job}, which {head} has")));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULT: &str = "# commit: 1\n# date: 2\n# machine: 3\n\
        # computed: A speed forebay to kernel 0.90 [0.80-1.00]\n$ forebay compare\n\n\
        A first\narm      MB/s  ratio [95 %]\nforebay  1,234+-9 2.03 [1.59-2.66]  78MiB\n\
        kernel   620  1 (base) 41MiB\n\nrate   100  ~+7.9%\n";

    fn findings(page: &str) -> Vec<String> {
        broken(&Tree::of(&[("results/a.txt", RESULT), ("docs/x/p.md", page)]))
    }

    fn marked(block: &str) -> Vec<String> {
        findings(&format!("<!-- from results/a.txt -->\n{block}\n\n99 is not in the block\n"))
    }

    #[test]
    fn quoted_figures_pass() {
        let table = "| arm | MB/s | ratio | target | memory |\n\
            |---|---|---|---|---|\n\
            | `forebay` | 1,234 | 2.03 [1.59-2.66] | 5.0x | 78 MiB |\n\
            | kernel | 620 MB/s | 1 | - |";
        assert_eq!(marked(table), Vec::<String>::new());
        let prose = "At p99, `12` of 4x2 ([decision 7](d.md)): **2.03 [1.59-2.66]**, 620 MB/s, \
            ~+7.9%, 100 to 620 (+520.0%).";
        assert_eq!(marked(prose), Vec::<String>::new());
    }

    #[test]
    fn a_planted_figure_is_found() {
        for wrong in ["2.04", "2.03 [1.59-2.67]", "78 GiB", "1,235 MB/s", "8 MiB", "+7.8%", "20.3"]
        {
            assert_eq!(marked(&format!("It makes {wrong}.")).len(), 1, "{wrong}");
        }
        assert_eq!(marked("100 to 620 (+521.0%)").len(), 1);
        // A figure of another row.
        let row = |figure: &str| format!("| | MB/s |\n|---|---|\n| forebay | {figure} |");
        assert_eq!(marked(&row("1,234")).len(), 0);
        assert_eq!(marked(&row("620")).len(), 1);
    }

    #[test]
    fn a_marker_without_its_file_or_block_is_found() {
        assert_eq!(marked("").len(), 1);
        assert_eq!(findings("<!-- from results/b.txt -->\n1\n\nresults/a.txt").len(), 1);
        assert_eq!(findings("<!-- from: results/a.txt -->\n1").len(), 1);
    }

    #[test]
    fn a_result_that_no_page_names_or_that_lacks_a_line_is_found() {
        assert_eq!(findings("words"), ["results/a.txt: no page names it"]);
        for line in ["# commit", "# date", "# machine", "$ "] {
            let text = RESULT.replace(line, "#");
            assert!(incomplete(&text).is_some_and(|what| what.contains(line)), "{line}");
        }
    }

    #[test]
    fn output_on_a_page_is_found() {
        let page = |fence: &str| format!("results/a.txt\n```sh\n```\n{fence}\n1\n```\n");
        let found = |page: &str| {
            let files = [("results/a.txt", RESULT), ("docs/measurements/p.md", page)];
            broken(&Tree::of(&files)).len()
        };
        assert_eq!((found(&page("```sh")), found(&page("```"))), (0, 1));
    }

    #[test]
    fn a_ratio_is_that_of_its_file_and_bold_if_it_is_low() {
        let table = |row: &str| {
            findings(&format!(
                "<!-- ratios: s -->\n| | [d](../../results/a.txt) |\n|---|---|\n{row}\n"
            ))
        };
        assert_eq!(table("| `A` | **0.90 [0.80-1.00]** |\n| `B` | - |"), Vec::<String>::new());
        assert_eq!(table("| `A` | 0.90 [0.80-1.00] |").len(), 1);
        assert_eq!(table("| `A` | **0.91 [0.80-1.00]** |").len(), 1);
        assert_eq!(table("| `B` | - |").len(), 1);
        let more = RESULT.replace("0.90 [0.80-1.00]", "0.97 [0.96-0.98]");
        let page = "<!-- ratios: s -->\n\
            | | [d](../../results/a.txt), [more](../../results/b.txt) |\n|---|---|\n\
            | `A` | 0.97 [0.96-0.98] |\n";
        let files = [("results/a.txt", RESULT), ("results/b.txt", &more), ("docs/p.md", page)];
        assert_eq!(broken(&Tree::of(&files)), Vec::<String>::new());
    }
}
