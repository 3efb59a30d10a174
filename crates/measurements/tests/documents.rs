//! The documents as they are: every figure stands below the command that makes it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use forebay_measurements::document::{Marker, all_marked, figures};
use forebay_measurements::list::List;

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn list() -> List {
    let text = fs::read_to_string(project().join("docs/measurements/measurements.toml")).unwrap();
    List::parse(&text).unwrap()
}

/// The first page, and those about measurements.
fn documents() -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(project().join("docs/measurements")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let pages = paths.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let all = pages.chain([project().join("README.md")]);
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
            }
        }
    }
}

#[test]
fn every_measurement_and_every_table_of_aims_is_shown() {
    let list = list();
    let mut shown = BTreeSet::new();
    for (_, text) in documents() {
        shown.extend(figures(&text).unwrap().into_iter().map(|one| match one.marker {
            Marker::Measured { name, .. } => name,
            Marker::Aims(table) => format!("aims {table}"),
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
