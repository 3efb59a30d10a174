//! A document with figures: comments mark the places of outputs and tables, which are replaced.
//!
//! ````text
//! <!-- measured: NAME -->                               <!-- aims: TABLE -->
//! ```                                                   | asked | found | |
//! the command and its output                            |---|---|---|
//! ```                                                   ...
//! ````
//!
//! `<!-- ratios: SUITE on DISK, .. -->` and `<!-- first page: SUITE on DISK, .. -->` are tables of
//! the measurements `SUITE-DISK`.
//!
//! `<!-- measured: NAME, from = "A", to = "B" -->` shows the lines from the first with A on, up to
//! the next with B, or to the end. A table of `docs/kernel-questions.md` has one of the markers of
//! [`Part`].

use serde::Deserialize;

/// The request of a comment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Marker {
    /// The output of a measurement.
    Measured {
        /// Its name.
        name: String,
        /// Part to show.
        excerpt: Excerpt,
    },
    /// A table of aims.
    Aims(String),
    /// A table of a suite on several disks.
    Disks {
        /// Kind of table.
        table: Disks,
        /// The suite.
        suite: String,
        /// The disks, as in the names of the measurements.
        disks: Vec<String>,
    },
    /// A table about a thread of the kernel lists.
    Questions {
        /// Table.
        part: Part,
        /// Name of the thread.
        thread: String,
    },
}

/// A table of a suite on several disks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disks {
    /// `<!-- ratios: SUITE on DISK, .. -->`: the ratio to the best bounded kernel arm of each job.
    Ratios,
    /// `<!-- first page: SUITE on DISK, .. -->`: speed and small sync of each arm of its first job.
    FirstPage,
}

/// A table about the threads of the kernel lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// `<!-- threads: all -->`: the answer to each thread.
    Threads,
    /// `<!-- published: THREAD -->`: published figures beside ours.
    Published,
    /// `<!-- answers: THREAD -->`: an answer to each row.
    Answers,
    /// `<!-- commands: THREAD -->`: the commands of our figures.
    Commands,
}

/// A range of lines of an output.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Excerpt {
    /// Starts at the first line with this text; `None` means the first line.
    pub from: Option<String>,
    /// Ends before the next line with this text; `None` means the end.
    pub to: Option<String>,
}

/// Why a document was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DocumentError {
    /// A comment resembles a marker but is not valid.
    #[error(
        "line {line}: {text}: not a marker (<!-- measured: NAME -->, <!-- aims: TABLE -->, or \
         threads, published, answers, commands)"
    )]
    Marker {
        /// Line, from 1.
        line: usize,
        /// The comment.
        text: String,
    },
    /// A marker is not followed by its block or table.
    #[error("line {line}: {what} must follow the marker")]
    Follows {
        /// Line, from 1.
        line: usize,
        /// The expected content.
        what: &'static str,
    },
    /// A block has no marker, so no command.
    #[error("line {line}: a block without a marker; add <!-- measured: NAME -->")]
    Unmarked {
        /// Line, from 1.
        line: usize,
    },
}

/// A marker and the content below it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Figures {
    /// The marker.
    pub marker: Marker,
    /// Lines inside the fence, or of the table.
    pub lines: std::ops::Range<usize>,
}

const FENCE: &str = "```";

/// First words of markers.
const KINDS: [&str; 8] =
    ["measured", "aims", "ratios", "first page", "threads", "published", "answers", "commands"];

impl Excerpt {
    /// Returns the requested lines, or `None` if the output does not contain them.
    #[must_use]
    pub fn of(&self, output: &str) -> Option<String> {
        let lines: Vec<&str> = output.lines().collect();
        let next = |from: usize, text: &str| -> Option<usize> {
            lines.iter().skip(from).position(|line| line.contains(text)).map(|place| from + place)
        };
        let first = self.from.as_ref().map_or(Some(0), |from| next(0, from))?;
        let end = self.to.as_ref().and_then(|to| next(first + 1, to));
        let mut last = end.unwrap_or(lines.len());
        while last > first && lines[last - 1].trim().is_empty() {
            last -= 1;
        }
        Some(lines[first..last].iter().map(|line| format!("{line}\n")).collect())
    }
}

/// Returns every marker of a document with its content, in order.
///
/// # Errors
/// [`DocumentError`] for an invalid marker, or one without content.
pub fn figures(document: &str) -> Result<Vec<Figures>, DocumentError> {
    let lines: Vec<&str> = document.lines().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let number = at + 1;
        if let Some(marker) = marker(lines[at], number)? {
            let (what, first, is_inside): (_, usize, fn(&str) -> bool) = match marker {
                Marker::Measured { .. } => ("a fenced block", at + 2, |line| line != FENCE),
                Marker::Aims(_) | Marker::Disks { .. } | Marker::Questions { .. } => {
                    ("a table", at + 1, |line| line.starts_with('|'))
                }
            };
            let fenced = first == at + 2;
            if fenced && lines.get(at + 1) != Some(&FENCE) {
                return Err(DocumentError::Follows { line: number, what });
            }
            let length = lines[first..].iter().position(|line| !is_inside(line));
            let last = match length {
                Some(length) => first + length,
                None if fenced => return Err(DocumentError::Follows { line: number, what }),
                None => lines.len(),
            };
            found.push(Figures { marker, lines: first..last });
            at = last + usize::from(fenced);
        } else {
            at += 1;
        }
    }
    Ok(found)
}

/// Checks that every fenced block has a marker.
///
/// # Errors
/// [`DocumentError`] for the first block without one, or an invalid marker.
pub fn all_marked(document: &str) -> Result<(), DocumentError> {
    let marked = figures(document)?;
    let inside = |line: usize| {
        marked.iter().any(|one| (one.lines.start - 1..=one.lines.end).contains(&line))
    };
    let mut fences = document.lines().enumerate().filter(|(_, line)| line.starts_with(FENCE));
    match fences.find(|(line, _)| !inside(*line)) {
        Some((line, _)) => Err(DocumentError::Unmarked { line: line + 1 }),
        None => Ok(()),
    }
}

/// Returns the document with the result of `content` below each marker. A result of `None` keeps
/// the present content.
///
/// # Errors
/// [`DocumentError`] for an invalid marker.
pub fn with_figures(
    document: &str,
    mut content: impl FnMut(&Marker) -> Option<String>,
) -> Result<String, DocumentError> {
    let lines: Vec<&str> = document.lines().collect();
    let mut text = String::new();
    let mut at = 0;
    let copy = |text: &mut String, range: std::ops::Range<usize>| {
        lines[range].iter().for_each(|line| text.extend([line, "\n"]));
    };
    for Figures { marker, lines: place } in figures(document)? {
        if let Some(new) = content(&marker) {
            copy(&mut text, at..place.start);
            text.push_str(&new);
            at = place.end;
        }
    }
    copy(&mut text, at..lines.len());
    Ok(text)
}

fn marker(line: &str, number: usize) -> Result<Option<Marker>, DocumentError> {
    let inside = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
    let bad = || DocumentError::Marker { line: number, text: line.to_owned() };
    let Some((kind, rest)) = inside.and_then(|inside| inside.split_once(": ")) else {
        // Other comments are ignored.
        let is_near = |kind: &&str| line.starts_with(&format!("<!-- {kind}"));
        return if KINDS.iter().any(is_near) { Err(bad()) } else { Ok(None) };
    };
    let table = |part| Ok(Some(Marker::Questions { part, thread: rest.to_owned() }));
    let disks = |table| {
        let (suite, disks) = rest.split_once(" on ").ok_or_else(bad)?;
        let disks = disks.split(", ").map(str::to_owned).collect();
        Ok(Some(Marker::Disks { table, suite: suite.to_owned(), disks }))
    };
    match kind {
        "measured" => {
            let (name, excerpt) = rest.split_once(',').unwrap_or((rest, ""));
            let excerpt =
                toml::from_str::<Excerpt>(&excerpt.replace(", to", "\nto")).map_err(|_| bad())?;
            Ok(Some(Marker::Measured { name: name.to_owned(), excerpt }))
        }
        "aims" => Ok(Some(Marker::Aims(rest.to_owned()))),
        "ratios" => disks(Disks::Ratios),
        "first page" => disks(Disks::FirstPage),
        "threads" => table(Part::Threads),
        "published" => table(Part::Published),
        "answers" => table(Part::Answers),
        "commands" => table(Part::Commands),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# T\n\n<!-- measured: one -->\n```\nold\nold\n```\n\nwords\n<!-- other -->\n<!-- aims: t -->\n\
                        | asked |\n|---|\n\nend\n";

    #[test]
    fn marked_content_is_replaced_and_the_rest_stays() {
        assert_eq!(with_figures(TEXT, |_| None).unwrap(), TEXT);
        let new = with_figures(TEXT, |marker| {
            Some(match marker {
                Marker::Measured { name, .. } => format!("{name}!\n"),
                Marker::Aims(table) => format!("| {table} |\n"),
                Marker::Disks { .. } | Marker::Questions { .. } => {
                    unreachable!("no such marker in TEXT")
                }
            })
        });
        let expected =
            TEXT.replace("old\nold\n", "one!\n").replace("| asked |\n|---|\n", "| t |\n");
        assert_eq!(new.unwrap(), expected);
        assert_eq!(with_figures(&expected, |_| None).unwrap(), expected);
    }

    #[test]
    fn a_table_may_not_be_there_yet_and_a_block_be_empty() {
        let text = "<!-- aims: t -->\n\n<!-- measured: one -->\n```\n```\n";
        let new = with_figures(text, |_| Some("| x |\n".into())).unwrap();
        assert_eq!(new, "<!-- aims: t -->\n| x |\n\n<!-- measured: one -->\n```\n| x |\n```\n");
    }

    #[test]
    fn an_excerpt_is_lines() {
        let output = "$ c\n\nA 1\nx\n\nB\ny\n";
        let of = |from: Option<&str>, to: Option<&str>| {
            Excerpt { from: from.map(str::to_owned), to: to.map(str::to_owned) }.of(output)
        };
        assert_eq!(of(None, None).unwrap(), output);
        assert_eq!(of(Some("A"), Some("B")).unwrap(), "A 1\nx\n");
        assert_eq!(of(Some("B"), None).unwrap(), "B\ny\n");
        assert_eq!(of(Some("C"), None), None);
        assert_eq!(of(Some("A"), Some("A")).unwrap(), "A 1\nx\n\nB\ny\n");
        let marked = "<!-- measured: one, from = \"A, a\", to = \"B\" -->\n```\n```\n";
        let excerpt = Excerpt { from: Some("A, a".into()), to: Some("B".into()) };
        assert_eq!(
            figures(marked).unwrap()[0].marker,
            Marker::Measured { name: "one".into(), excerpt }
        );
    }

    #[test]
    fn a_table_about_a_thread_has_its_part_in_the_marker() {
        let found = figures("<!-- commands: plug -->\n| a |\n").unwrap();
        let expected = Marker::Questions { part: Part::Commands, thread: "plug".into() };
        assert_eq!((&found[0].marker, found[0].lines.clone()), (&expected, 1..2));
    }

    #[test]
    fn what_is_not_of_the_form_is_told_with_its_line() {
        for (text, line) in [
            ("a\n<!-- measured: one -->\nno block\n", 2),
            ("<!-- measured: one -->\n```\nnever ends\n", 1),
            ("<!-- measured one -->\n", 1),
            ("<!-- answers -->\n", 1),
            ("\n<!-- measured: one, form = \"x\" -->\n```\n```\n", 2),
        ] {
            let error = figures(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("line {line}: ")), "{error}");
        }
        assert_eq!(all_marked(TEXT), Ok(()));
        let unmarked = format!("{TEXT}```\n1\n```\n");
        assert_eq!(all_marked(&unmarked), Err(DocumentError::Unmarked { line: 16 }));
    }
}
