//! `forebay simulate writeback`: contexts over allocation groups. The text answers in four tables;
//! the JSON has every cell of them with all its figures.

use std::fmt::Write;

use forebay_sim::writeback::Figures;
use forebay_sim::writeback::figures::Side;
use forebay_sim::writeback::model::{
    AFFINITIES, Affinity, LAYOUTS, Layout, Model, SETTINGS, named,
};
use forebay_sim::writeback::study::{self, Bounds, Cell, Separation};
use serde_json::{Value, json};

use super::{Outcome, Pairs, Simulation, as_set, model, rows};
use crate::failure::Failure;

pub(crate) const SIMULATION: Simulation = Simulation {
    name: "writeback",
    what: "what do contexts, affinity and layout each give?",
    settings: || rows(&SETTINGS),
    run,
};

const LEGEND: &str = "\
dir: by directory. knee: the fewest contexts within a tenth of the best.
waits: of 1000 times a group's lock was taken, before the I/O and at its
end; us: of a wait. alone: times the throughput when only this changes;
last: when all else has; share: of the gain, over every order. without:
times the throughput if nobody waited for a lock, conversions took no
time, the device had no limits, there were cores for all. Pure queueing:
no log, no metadata reads, no writers; ratios hold better than rates.
";

/// All that was worked through.
struct Study {
    model: Model,
    cells: Vec<Cell>,
    separation: Separation,
    bounds: Vec<Bounds>,
}

fn run(settings: &Pairs, seed: u64) -> Result<Outcome, Failure> {
    let model: Model = model(&SETTINGS, settings)?;
    let study = Study {
        cells: study::sweep(&model, seed).map_err(Failure::usage)?,
        separation: study::separate(&model, seed).map_err(Failure::usage)?,
        bounds: study::bounds(&model, seed).map_err(Failure::usage)?,
        model,
    };
    Ok(Outcome { text: text(&study, seed), figures: figures(&study) })
}

fn text(study: &Study, seed: u64) -> String {
    let model = &study.model;
    let mut text = format!(
        "Writeback from several contexts, modelled: {} groups, {} cores, seed {seed:x}\n\
         {} directories of {} files; writes of {} KiB; MiB/s unless it says else\n\n",
        model.groups,
        model.cores,
        model.directories,
        model.files,
        model.request >> 10,
    );
    for part in
        [sweep(&study.cells), fights(study), separation(&study.separation), bounds(&study.bounds)]
    {
        text.push_str(&part);
        text.push('\n');
    }
    text + LEGEND
}

/// Throughput by contexts, for each layout and affinity.
fn sweep(cells: &[Cell]) -> String {
    let mut text = format!("{:<9}", "");
    for (layout, _) in LAYOUTS {
        line(&mut text, format_args!("  {layout:-^18}"));
    }
    line(&mut text, format_args!("\n{:<9}", "contexts"));
    for _ in LAYOUTS {
        line(&mut text, format_args!("  {:>6}{:>6}{:>6}", "hash", "dir", "group"));
    }
    text.push('\n');
    let mut contexts: Vec<u64> = cells.iter().map(|cell| cell.contexts).collect();
    contexts.sort_unstable();
    contexts.dedup();
    for &contexts in &contexts {
        line(&mut text, format_args!("{contexts:<9}"));
        each_column(&mut text, |layout, affinity| {
            let cell = curve(cells, layout, affinity).find(|cell| cell.contexts == contexts);
            cell.map_or_else(String::new, |cell| format!("{:.0}", cell.figures.mib_per_second()))
        });
    }
    line(&mut text, format_args!("{:<9}", "knee"));
    each_column(&mut text, |layout, affinity| {
        knee(cells, layout, affinity).map_or_else(String::new, |contexts| contexts.to_string())
    });
    text
}

fn each_column(text: &mut String, shown: impl Fn(Layout, Affinity) -> String) {
    for (_, layout) in LAYOUTS {
        text.push_str("  ");
        for affinity in study::AFFINITIES {
            line(text, format_args!("{:>6}", shown(layout, affinity)));
        }
    }
    text.push('\n');
}

/// The cells of a layout and an affinity. One context is every affinity's first.
fn curve(cells: &[Cell], layout: Layout, affinity: Affinity) -> impl Iterator<Item = &Cell> {
    cells.iter().filter(move |cell| {
        cell.layout == layout && (cell.affinity == affinity || cell.affinity == Affinity::Single)
    })
}

fn knee(cells: &[Cell], layout: Layout, affinity: Affinity) -> Option<u64> {
    let points =
        curve(cells, layout, affinity).map(|cell| (cell.contexts, cell.figures.mib_per_second()));
    study::knee(&points.collect::<Vec<_>>())
}

/// Who waits for locks, with one context and with all, and what becomes of requests and files.
fn fights(study: &Study) -> String {
    let mut text = String::new();
    line(
        &mut text,
        format_args!(
            "{:<28}  {:>12}  {:>12}{:>8}{:>8}\n",
            "", "submission", "completion", "request", "extents"
        ),
    );
    line(&mut text, format_args!("{:<10}{:<10}{:>8}", "affinity", "layout", "contexts"));
    for _ in 0..2 {
        line(&mut text, format_args!("  {:>6}{:>6}", "waits", "us"));
    }
    line(&mut text, format_args!("{:>8}{:>8}\n", "KiB", "a GiB"));
    let shown = study.cells.iter().filter(|cell| {
        cell.layout != Layout::Written
            && (cell.contexts == 1 || cell.contexts == study.model.contexts)
    });
    for Cell { contexts, affinity, layout, figures } in shown {
        let (affinity, layout) = (named(*affinity, &AFFINITIES), named(*layout, &LAYOUTS));
        line(&mut text, format_args!("{affinity:<10}{layout:<10}{contexts:>8}"));
        for side in [figures.submission, figures.completion] {
            let (waits, micros) = (side.waits_per_thousand(), side.mean_wait_micros());
            line(&mut text, format_args!("  {waits:>6.0}{micros:>6.1}"));
        }
        let (request, extents) = (figures.request_bytes / 1024.0, figures.extents_per_gib);
        line(&mut text, format_args!("{request:>8.1}{extents:>8.0}\n"));
    }
    text
}

/// What each change gives.
fn separation(separation: &Separation) -> String {
    let mut text = format!("{:<11}{:<20}{:>9}{:>9}{:>9}\n", "change", "", "alone", "last", "share");
    for change in &separation.changes {
        line(
            &mut text,
            format_args!(
                "{:<11}{:<20}{:>9.2}{:>9.2}{:>7.0} %\n",
                change.factor,
                change.change,
                change.alone,
                change.last,
                change.share * 100.0,
            ),
        );
    }
    let Separation { none, all, .. } = separation;
    line(
        &mut text,
        format_args!("{:<31}{none:>9.0} to {all:.0} MiB/s, {:.2} times\n", "all", all / none),
    );
    text
}

/// What holds a configuration back.
fn bounds(bounds: &[Bounds]) -> String {
    let mut text = String::new();
    line(&mut text, format_args!("{:<38}{:>34}\n", "", "without"));
    line(
        &mut text,
        format_args!("{:<10}{:>9}{:>8}{:>11}", "affinity", "contexts", "MiB/s", "in flight"),
    );
    line(
        &mut text,
        format_args!("{:>8}{:>12}{:>8}{:>6}\n", "locks", "conversion", "device", "cores"),
    );
    for Bounds { cell, without_locks, without_conversion, without_device, without_cores } in bounds
    {
        let Cell { contexts, affinity, figures, .. } = cell;
        let affinity = named(*affinity, &AFFINITIES);
        let (throughput, in_flight) = (figures.mib_per_second(), figures.in_flight);
        line(
            &mut text,
            format_args!("{affinity:<10}{contexts:>9}{throughput:>8.0}{in_flight:>11.1}"),
        );
        line(
            &mut text,
            format_args!(
                "{without_locks:>8.2}{without_conversion:>12.2}{without_device:>8.2}{without_cores:>6.2}\n"
            ),
        );
    }
    text
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("a string takes all");
}

/// Everything, to be read by a program. Throughput is MiB a second, times are microseconds where
/// they say so.
fn figures(study: &Study) -> Value {
    let knees: Vec<Value> = LAYOUTS
        .iter()
        .flat_map(|(word, layout)| study::AFFINITIES.map(|affinity| (word, *layout, affinity)))
        .map(|(word, layout, affinity)| {
            let contexts = knee(&study.cells, layout, affinity);
            json!({ "layout": word, "affinity": named(affinity, &AFFINITIES), "contexts": contexts })
        })
        .collect();
    let changes: Vec<Value> = study
        .separation
        .changes
        .iter()
        .map(|change| {
            json!({
                "factor": change.factor,
                "change": change.change,
                "alone": change.alone,
                "last": change.last,
                "share": change.share,
            })
        })
        .collect();
    let bounds: Vec<Value> = study
        .bounds
        .iter()
        .map(|each| {
            json!({
                "cell": cell(&each.cell),
                "without_locks": each.without_locks,
                "without_conversion": each.without_conversion,
                "without_device": each.without_device,
                "without_cores": each.without_cores,
            })
        })
        .collect();
    json!({
        "settings": as_set(&SETTINGS, &study.model),
        "cells": study.cells.iter().map(cell).collect::<Vec<_>>(),
        "knees": knees,
        "separation": {
            "none_mib_per_second": study.separation.none,
            "all_mib_per_second": study.separation.all,
            "changes": changes,
        },
        "bounds": bounds,
    })
}

fn cell(cell: &Cell) -> Value {
    let Cell { contexts, affinity, layout, figures } = cell;
    let Figures { seconds, bytes, busiest_lock, cores, device, in_flight, .. } = figures;
    json!({
        "contexts": contexts,
        "affinity": named(*affinity, &AFFINITIES),
        "layout": named(*layout, &LAYOUTS),
        "mib_per_second": figures.mib_per_second(),
        "seconds": seconds,
        "bytes": bytes,
        "submission": side(&figures.submission),
        "completion": side(&figures.completion),
        "busiest_lock_share": busiest_lock,
        "cores_share": cores,
        "device_share": device,
        "in_flight": in_flight,
        "request_bytes": figures.request_bytes,
        "extents_per_gib": figures.extents_per_gib,
    })
}

fn side(side: &Side) -> Value {
    json!({
        "locks_taken": side.taken,
        "locks_waited": side.waited,
        "wait_seconds": side.wait_seconds,
        "waits_per_thousand": side.waits_per_thousand(),
        "mean_wait_micros": side.mean_wait_micros(),
    })
}
