use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::*;
use crate::cell::CellResult;
use crate::compare::Measured;
use crate::compare::judge::{Judging, judge};
use crate::detail::{Detail, Flow, Latency};
use crate::manifest::Manifest;
use crate::schema::{PartJob, Row, cells};
use crate::suite::Base;

/// Text from outside with characters that have a meaning.
const STRANGE: &str = "<job> & \"co\"";

fn flow(speed: f64) -> Flow {
    let mut latencies = Histogram::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
    for number in 0..2000_u64 {
        let slow = if number % 500 == 499 { 40 } else { 1 };
        latencies.record((1e9 / speed) as u64 * (slow + number % 7)).unwrap();
    }
    Flow {
        operations: 2000,
        bytes: 2000 * 4096,
        runtime_ns: 2_000_000_000,
        latency: Latency::of(&latencies),
    }
}

fn measured(arm: &str, speed: f64) -> Measured {
    let cell = |ripple: &f64| {
        let metrics = [
            ("write_bytes_per_s", speed * 1e6 * ripple),
            ("peak_memory_bytes", 67e6),
            ("sync_probe_p99_us", 34e3 * ripple),
            ("extents_per_file", 1.5),
            ("requests_per_doorbell", 12.0 * ripple),
            ("kernel_requests_per_unplug", 31.5 * ripple),
            ("kernel_plugged_share", 0.9 * ripple),
        ];
        let detail = Detail { write: Some(flow(speed * ripple)), ..Detail::default() };
        CellResult {
            metrics: metrics.map(|(name, value)| (name.to_owned(), value)).into(),
            notes: vec![],
            detail: Some(Box::new(detail)),
        }
    };
    let rounds = [1.0, 1.02, 0.97, 1.004, 0.99].iter().map(cell).collect();
    Measured { job: STRANGE.into(), arm: arm.into(), rounds }
}

fn document() -> Document {
    let measured = [
        measured("kernel-direct", 300.0),
        measured("forebay", 450.0),
        measured("forebay-again", 452.0),
    ];
    let base = Base::Arm("kernel-direct".into());
    let judging = Judging { base: &base, metric: "write_bytes_per_s", again: "forebay", also: &[] };
    let judged = judge(&measured, judging, 1);
    let manifest = Manifest { notes: vec!["a note <with> marks".into()], ..Manifest::default() };
    let mut document = Document::new(manifest, "layout", judged.rows, judged.comparisons);
    let job = PartJob {
        name: STRANGE.into(),
        title: STRANGE.into(),
        probe: "new-files".into(),
        base: Some("kernel-direct".into()),
        ..PartJob::default()
    };
    document.parts.push(Part {
        name: "files".into(),
        title: "Random writes & more".into(),
        metric: "write_bytes_per_s".into(),
        again: "forebay".into(),
        rounds: 5,
        jobs: vec![job],
        ..Part::default()
    });
    for one in &measured {
        document.cells.extend(cells(&one.job, &one.arm, &one.rounds));
    }
    document
}

/// Every tag with its attributes; panics where the page is not well-formed.
fn tags(page: &str) -> Vec<(String, BTreeMap<String, String>)> {
    let mut found = Vec::new();
    let mut open: Vec<String> = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>\n").unwrap();
    while let Some(at) = rest.find('<') {
        let text = &rest[..at];
        for entity in text.match_indices('&') {
            let entity = &text[entity.0..];
            assert!(
                ["&amp;", "&lt;", "&gt;", "&quot;"].iter().any(|known| entity.starts_with(known)),
                "{entity}"
            );
        }
        let end = at + rest[at..].find('>').expect("a tag ends");
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "before {:.60}", rest);
            continue;
        }
        let (tag, is_empty) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let (name, attributes) = tag.split_once([' ', '\n']).unwrap_or((tag, ""));
        let mut pairs = BTreeMap::new();
        let mut left = attributes.trim();
        while !left.is_empty() {
            let (key, value) = left.split_once("=\"").unwrap_or_else(|| panic!("{tag}"));
            let (value, after) = value.split_once('"').unwrap_or_else(|| panic!("{tag}"));
            assert!(pairs.insert(key.to_owned(), value.to_owned()).is_none(), "{tag}");
            left = after.trim_start();
        }
        if !is_empty {
            open.push(name.to_owned());
        }
        found.push((name.to_owned(), pairs));
    }
    assert!(open.is_empty(), "{open:?}");
    found
}

#[test]
fn it_is_well_formed_complete_and_alone() {
    let page = html(&document());
    let tags = tags(&page);
    let mut ids = std::collections::BTreeSet::new();
    for (name, attributes) in &tags {
        assert!(
            !["script", "link", "img", "iframe", "object", "foreignObject"]
                .contains(&name.as_str())
        );
        if let Some(id) = attributes.get("id") {
            assert!(ids.insert(id.clone()), "{id} twice");
        }
        for (key, value) in attributes {
            assert!(
                !["src", "href", "style"].contains(&key.as_str()) && !key.starts_with("on"),
                "{key}"
            );
            assert!(key == "xmlns" || !value.contains("://"), "{key}={value}");
            assert!(!value.contains("NaN") && !value.contains("inf"), "{name} {key}={value}");
        }
    }
    let outside = page.replace("http://www.w3.org/", "");
    assert!(!outside.contains("://") && !outside.contains("url(") && !outside.contains("@import"));
    // Each picture has a description.
    for (_, svg) in tags.iter().filter(|(name, _)| name == "svg") {
        let about = &svg["aria-labelledby"];
        assert!(about.split(' ').all(|id| ids.contains(id)), "{about}");
    }
    for heading in [
        "Bytes written per second",
        "Forebay, round 1: 450 MB/s",
        "Latency of a write",
        "kernel requests per unplug",
        "extents per file",
        "sync probe p99 us",
        "&lt;job&gt; &amp; &quot;co&quot;",
        "forebay writes 1.5",
        "noise floor",
        "a note &lt;with&gt; marks",
        "machine.release",
    ] {
        assert!(page.contains(heading), "{heading}");
    }
    assert!(page.contains("prefers-color-scheme: dark"));
}

#[test]
fn nothing_is_drawn_of_what_was_not_kept() {
    let mut document = document();
    document.cells.clear();
    document.rows.retain(|row| row.metric != "extents_per_file");
    let page = html(&document);
    tags(&page);
    assert!(!page.contains("Latency of a write") && page.contains("Bytes written per second"));
    assert!(!page.contains("extents per file"));
    document.rows.clear();
    document.comparisons.clear();
    document.parts.clear();
    tags(&html(&document));
}

/// Also where an arm before it has no such picture.
#[test]
fn an_arm_has_one_colour() {
    let mut document = document();
    document.rows.retain(|row| row.metric != "extents_per_file" || row.arm != "kernel-direct");
    let page = html(&document);
    let shape = page.lines().find(|line| line.contains("<title>Forebay, round 1: 1.50")).unwrap();
    assert!(shape.contains(&svg::fill(1)), "{shape}");
}

/// Also in a job that it is alone in.
#[test]
fn an_arm_has_one_colour_and_one_name_on_a_page() {
    let mut document = document();
    let mut alone: Vec<Row> =
        document.rows.iter().filter(|row| row.arm == "forebay").cloned().collect();
    alone.iter_mut().for_each(|row| row.job = "alone".into());
    document.rows.extend(alone);
    let job = PartJob { name: "alone".into(), title: "alone".into(), ..PartJob::default() };
    document.parts[0].jobs.push(job);
    let page = html(&document);
    let bars: Vec<&str> = page.lines().filter(|line| line.contains("<title>Forebay: ")).collect();
    assert!(bars.len() >= 2);
    assert!(bars.iter().all(|bar| bar.contains(&svg::fill(1))), "{bars:?}");
    assert!(!page.contains(">forebay</text>"), "the name of the tables is in a picture");
}

#[test]
fn nothing_of_a_picture_is_outside_of_it() {
    for (name, attributes) in tags(&html(&document())) {
        let number = |key: &str| {
            attributes.get(key).map_or(0.0, |value| value.parse::<f64>().unwrap_or(0.0))
        };
        if ["circle", "line", "rect", "text"].contains(&name.as_str()) {
            for key in ["x", "x1", "x2", "cx"] {
                assert!((0.0..=svg::WIDTH).contains(&number(key)), "{name} {attributes:?}");
            }
        }
    }
}

/// The contrast of two colours, as the guidelines for the web define it.
fn contrast(one: &str, other: &str) -> f64 {
    let luminance = |colour: &str| {
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    };
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[test]
fn everything_can_be_seen_in_light_and_dark() {
    let (light, dark) = STYLE.split_once("@media (prefers-color-scheme: dark)").unwrap();
    for scheme in [light, dark] {
        let colour = |name: &str| {
            let (_, rest) = scheme.split_once(&format!("--{name}: ")).unwrap();
            rest[..7].to_owned()
        };
        let page = colour("page");
        for text in ["text", "quiet"] {
            assert!(contrast(&colour(text), &page) >= 4.5, "{text}");
            assert!(contrast(&colour(text), &colour("band")) >= 4.5, "{text} in a table");
        }
        for number in 0..svg::COLOURS {
            assert!(contrast(&colour(&format!("c{number}")), &page) >= 4.5, "c{number}");
        }
    }
}
