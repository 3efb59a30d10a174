//! The documents as they are: every figure stands below the command that makes it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use forebay_measurements::document::{Marker, all_marked, figures};
use forebay_measurements::list::List;
use forebay_measurements::pages::{MEASUREMENTS, QUESTIONS, answered, measured};
use forebay_measurements::question::Questions;

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn list() -> List {
    let text = fs::read_to_string(project().join("docs/measurements/measurements.toml")).unwrap();
    List::parse(&text).unwrap()
}

/// The first page, and those about measurements.
fn documents() -> Vec<(PathBuf, String)> {
    let pages = measured(&project()).unwrap();
    let all = pages.into_iter().chain([project().join("README.md")]);
    all.map(|path| (path.clone(), fs::read_to_string(&path).unwrap())).collect()
}

#[test]
fn every_block_begins_with_its_command_and_every_table_has_aims() {
    let list = list();
    for (path, text) in documents() {
        let lines: Vec<&str> = text.lines().collect();
        for one in figures(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())) {
            match one.marker {
                Marker::Measured { name, excerpt } => {
                    let known = list.find(&name);
                    let known = known
                        .unwrap_or_else(|| panic!("{}: {name} is not in the list", path.display()));
                    let shown = lines[one.lines.clone()].join("\n");
                    assert!(!shown.is_empty(), "{}: {name} shows nothing", path.display());
                    let whole = excerpt.from.is_none();
                    assert!(
                        !whole || shown.starts_with(known.shown().trim_end()),
                        "{}: {name} was made by another command",
                        path.display()
                    );
                }
                Marker::Aims(table) => {
                    let rows = list.aims.iter().filter(|aim| aim.table == table).count();
                    assert_eq!(one.lines.len(), rows + 2, "{}: {table}", path.display());
                    assert!(rows > 0, "{}: there are no aims {table}", path.display());
                }
                Marker::Disks { suite, disks, .. } => {
                    for disk in disks {
                        let name = format!("{suite}-{disk}");
                        assert!(list.find(&name).is_some(), "{}: {name}", path.display());
                    }
                    assert!(one.lines.len() > 2, "{}: {suite} shows nothing", path.display());
                }
                Marker::Questions { .. } => panic!("{}: a table about a thread", path.display()),
            }
        }
    }
}

#[test]
fn every_measurement_and_every_table_of_aims_is_shown() {
    let list = list();
    let mut shown = BTreeSet::new();
    for (_, text) in documents() {
        shown.extend(figures(&text).unwrap().into_iter().flat_map(|one| match one.marker {
            Marker::Measured { name, .. } => vec![name],
            Marker::Aims(table) => vec![format!("aims {table}")],
            Marker::Disks { suite, disks, .. } => {
                disks.iter().map(|disk| format!("{suite}-{disk}")).collect()
            }
            Marker::Questions { thread, .. } => panic!("{thread}: not on a page of measurements"),
        }));
    }
    let measured = list.measurements.iter().map(|measurement| measurement.name.clone());
    let asked = list.aims.iter().map(|aim| format!("aims {}", aim.table));
    let missing: BTreeSet<String> =
        measured.chain(asked).filter(|name| !shown.contains(name)).collect();
    assert_eq!(missing, BTreeSet::new(), "measured and not shown");
}

#[test]
fn no_page_that_is_made_so_has_a_block_without_a_command() {
    let is_made =
        |path: &Path, text: &str| !path.ends_with("README.md") && text.contains("<!-- measured: ");
    for (path, text) in documents().into_iter().filter(|(path, text)| is_made(path, text)) {
        all_marked(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

#[test]
fn the_answers_to_the_threads_are_those_of_the_data_and_the_measured_blocks() {
    let (page, made) = answered(&project()).unwrap_or_else(|error| panic!("{error}"));
    let line = page.lines().zip(made.lines()).find(|(page, made)| page != made);
    assert!(
        page == made,
        "{QUESTIONS} is not up to date at {line:?}; cargo run --release -p forebay-measurements \
         -- BUNDLE --documents"
    );
}

#[test]
fn every_row_of_every_thread_is_answered_on_the_page() {
    let data = project().join(MEASUREMENTS).join("questions.toml");
    let questions = Questions::parse(&fs::read_to_string(data).unwrap()).unwrap();
    let rows: Vec<u32> = questions.threads.iter().map(|thread| thread.rows).collect();
    assert_eq!(rows, [26, 21, 23, 9]);
    let page = fs::read_to_string(project().join(QUESTIONS)).unwrap();
    for thread in &questions.threads {
        for part in ["published", "answers", "commands"] {
            let marker = format!("<!-- {part}: {} -->", thread.name);
            assert!(page.contains(&marker), "{QUESTIONS} lacks {marker}");
        }
    }
    assert!(page.contains("<!-- threads: all -->"));
}
