//! `docs/metrics.md` lists exactly what the feature `metrics` exports.

use crate::support;
use crate::support::how;
use std::collections::BTreeMap;

use forebay::Engine;

/// Description of a metric: kind, unit and meaning.
type Described = (String, String, String);

/// The rows of the page, by the name of the sample.
fn page() -> BTreeMap<String, Described> {
    let page = include_str!("../../../../docs/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")).map(|row| {
        let cells: Vec<_> = row.trim_end_matches(" |").split(" | ").map(str::to_owned).collect();
        let [name, kind, unit, meaning] =
            cells.try_into().unwrap_or_else(|cells| panic!("{cells:?} is no row"));
        (name.trim_end_matches('`').to_owned(), (kind, unit, meaning))
    });
    rows.collect()
}

/// The metrics of a text, by the name of the sample, with their values.
fn exported(text: &str) -> BTreeMap<String, (Described, f64)> {
    let mut families: BTreeMap<&str, Described> = BTreeMap::new();
    let mut metrics = BTreeMap::new();
    for line in text.lines() {
        let Some(said) = line.strip_prefix("# ") else {
            let (name, value) = line.split_once(' ').unwrap();
            let family = families.get(name.trim_end_matches("_total")).unwrap().clone();
            let value = value.parse().unwrap();
            assert!(metrics.insert(name.to_owned(), (family, value)).is_none(), "{name} twice");
            continue;
        };
        if said == "EOF" {
            break;
        }
        let [what, name, rest] = said.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
        let family = families.entry(name).or_default();
        match what {
            "HELP" => family.2 = rest.to_owned(),
            "TYPE" => family.0 = rest.to_owned(),
            "UNIT" => family.1 = rest.to_owned(),
            _ => panic!("{line}"),
        }
    }
    metrics
}

#[test]
fn the_page_lists_what_is_exported_and_nothing_else() {
    let text = Engine::new().unwrap().stats().open_metrics();
    assert!(text.ends_with("# EOF\n"));
    let exported: BTreeMap<String, Described> =
        exported(&text).into_iter().map(|(name, (described, _))| (name, described)).collect();
    let page = page();
    for (name, (kind, unit, meaning)) in &exported {
        let row = format!("| `{name}` | {kind} | {unit} | {meaning} |");
        assert!(page.contains_key(name), "docs/metrics.md has no row for this:\n{row}");
        assert_eq!(page[name], exported[name], "docs/metrics.md should say:\n{row}");
    }
    for name in page.keys() {
        assert!(exported.contains_key(name), "docs/metrics.md lists {name}, which is not exported");
    }
}

#[test]
fn a_registry_exports_the_numbers_of_the_engine_as_they_are() {
    let directory = support::directory();
    let engine = Engine::new().unwrap();
    let mut registry = prometheus_client::registry::Registry::default();
    registry.register_collector(Box::new(engine.clone()));
    let scrape = || {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        exported(&text)
    };
    assert_eq!(scrape()["forebay_accepted_bytes_total"].1, 0.0);
    let file = engine.open(directory.path().join("file"), &how::create()).unwrap();
    file.write_at(&[1; 10_000], 0).unwrap();
    file.sync_data().unwrap();
    let (found, stats) = (scrape(), engine.stats());
    assert_eq!(found["forebay_accepted_bytes_total"].1, 10_000.0);
    assert_eq!(found["forebay_syncs_total"].1, 1.0);
    assert_eq!(found["forebay_arena_bytes"].1, stats.arena_bytes as f64);
    let seconds = found["forebay_writeback_latency_p99_seconds"].1;
    assert_eq!(seconds, stats.writeback_latency_p99_us as f64 / 1e6);
    assert_eq!(found.len(), stats.named().len(), "each number is exported once");
    file.close().unwrap();
}
