//! The questions: how throughput depends on the number of contexts, what each change gains alone
//! and beside the others, and what limits a configuration.

use std::time::Duration;

use super::device::DRIVES;
use super::model::{Affinity, LAYOUTS, Layout, Locks, Model};
use super::{Figures, simulate};

/// The affinities that differ if there are several contexts.
pub const AFFINITIES: [Affinity; 3] = [Affinity::Hash, Affinity::Directory, Affinity::Group];

/// One configuration.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cell {
    /// Contexts.
    pub contexts: u64,
    /// Binding of files to contexts.
    pub affinity: Affinity,
    /// State of the blocks beforehand.
    pub layout: Layout,
    /// Results.
    pub figures: Figures,
}

/// Runs every layout and affinity with 1 to the model's number of contexts. With one context every
/// affinity equals [`Affinity::Single`], so only that one runs.
///
/// # Errors
/// As [`simulate`].
pub fn sweep(model: &Model, seed: u64) -> Result<Vec<Cell>, String> {
    let mut cells = Vec::new();
    for (_, layout) in LAYOUTS {
        for contexts in steps(model.contexts) {
            let affinities: &[Affinity] =
                if contexts == 1 { &[Affinity::Single] } else { &AFFINITIES };
            for &affinity in affinities {
                let figures =
                    simulate(&Model { contexts, affinity, layout, ..model.clone() }, seed)?;
                cells.push(Cell { contexts, affinity, layout, figures });
            }
        }
    }
    Ok(cells)
}

/// Returns the numbers of contexts to try: each up to 6, then ever fewer.
fn steps(most: u64) -> Vec<u64> {
    let mut steps = Vec::new();
    let mut next = 1;
    while next < most {
        steps.push(next);
        next += if next < 6 { 1 } else { (next / 8).next_power_of_two() * 2 };
    }
    steps.push(most);
    steps
}

/// Returns the fewest contexts with a throughput within a tenth of the best, or `None` without
/// points.
#[must_use]
pub fn knee(throughput: &[(u64, f64)]) -> Option<u64> {
    let best = throughput.iter().map(|point| point.1).fold(0.0, f64::max);
    throughput.iter().filter(|point| point.1 >= best * 0.9).map(|point| point.0).min()
}

/// A change of one factor.
#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    /// The factor.
    pub factor: &'static str,
    /// The old and the new value.
    pub change: String,
    /// Gain in throughput if only this factor is changed.
    pub alone: f64,
    /// Gain in throughput if this factor is changed after all others.
    pub last: f64,
    /// Share of the whole gain: the mean of logarithms over every order of the changes. 0 without a
    /// gain.
    pub share: f64,
}

/// Gains of each change.
#[derive(Clone, PartialEq, Debug)]
pub struct Separation {
    /// MiB per second without any change.
    pub none: f64,
    /// MiB per second with all changes.
    pub all: f64,
    /// The changes.
    pub changes: Vec<Change>,
}

/// Separates concurrency, affinity, layout and the size of requests, by the throughput with and
/// without each: sixteen configurations. The first has one context, files bound by a hash, holes,
/// and the model's request. The last has the model's contexts, bound by group, written blocks, and
/// requests up to sixteen times as large.
///
/// # Errors
/// As [`simulate`].
pub fn separate(model: &Model, seed: u64) -> Result<Separation, String> {
    model.check()?;
    let large = larger(model);
    let names = [
        ("contexts", format!("1 to {}", model.contexts)),
        ("affinity", "hash to group".to_owned()),
        ("layout", "holes to written".to_owned()),
        ("requests", format!("{} to {} KiB", model.request >> 10, large >> 10)),
    ];
    let of = |changed: usize| -> Result<f64, String> {
        let has = |factor: usize| changed & (1 << factor) != 0;
        let model = Model {
            contexts: if has(0) { model.contexts } else { 1 },
            affinity: if has(1) { Affinity::Group } else { Affinity::Hash },
            layout: if has(2) { Layout::Written } else { Layout::Holes },
            request: if has(3) { large } else { model.request },
            ..model.clone()
        };
        Ok(simulate(&model, seed)?.mib_per_second())
    };
    let all = (0..1 << names.len()).map(of).collect::<Result<Vec<f64>, String>>()?;
    Ok(Separation { none: all[0], all: all[all.len() - 1], changes: changes(&all, names) })
}

/// Computes the gains from the throughputs; the index has a bit for each change made.
fn changes<const FACTORS: usize>(
    all: &[f64],
    names: [(&'static str, String); FACTORS],
) -> Vec<Change> {
    let every = all.len() - 1;
    let gain = (all[every] / all[0]).ln();
    let of = |(factor, (name, change)): (usize, (&'static str, String))| {
        let bit = 1 << factor;
        let shares = (0..all.len()).filter(|others| others & bit == 0).map(|others| {
            all[others | bit].ln() * weight(others, FACTORS)
                - all[others].ln() * weight(others, FACTORS)
        });
        let share: f64 = shares.sum();
        Change {
            factor: name,
            change,
            alone: all[bit] / all[0],
            last: all[every] / all[every & !bit],
            share: if gain.abs() < 1e-9 { 0.0 } else { share / gain },
        }
    };
    names.into_iter().enumerate().map(of).collect()
}

/// Returns the share of all orders that make exactly these changes before the next one.
fn weight(others: usize, factors: usize) -> f64 {
    let factorial = |number: u32| (1..=number).map(f64::from).product::<f64>();
    let before = others.count_ones();
    let factors = factors as u32;
    factorial(before) * factorial(factors - 1 - before) / factorial(factors)
}

/// Returns the largest request, up to sixteen times the model's, that fits its window and file.
fn larger(model: &Model) -> u64 {
    let sizes = [16, 8, 4, 2].map(|times| model.request * times);
    let fits = |size: &u64| *size <= model.window && model.file.is_multiple_of(*size);
    sizes.into_iter().find(fits).unwrap_or(model.request)
}

/// Gains of a configuration if one of its bounds is removed.
#[derive(Clone, PartialEq, Debug)]
pub struct Bounds {
    /// The configuration.
    pub cell: Cell,
    /// Gain in throughput without locks.
    pub without_locks: f64,
    /// Gain if a conversion takes no time.
    pub without_conversion: f64,
    /// Gain with a device without limits.
    pub without_device: f64,
    /// Gain with a core for every actor.
    pub without_cores: f64,
}

/// Finds what limits one context, several contexts by hash, and several by group, over the model's
/// layout.
///
/// # Errors
/// As [`simulate`].
pub fn bounds(model: &Model, seed: u64) -> Result<Vec<Bounds>, String> {
    let several = [(model.contexts, Affinity::Hash), (model.contexts, Affinity::Group)];
    let of = |(contexts, affinity): (u64, Affinity)| {
        let model = Model { contexts, affinity, ..model.clone() };
        let figures = simulate(&model, seed)?;
        let times = |without: Model| {
            simulate(&without, seed)
                .map(|without| without.mib_per_second() / figures.mib_per_second())
        };
        let unbounded = DRIVES[DRIVES.len() - 1].1;
        Ok(Bounds {
            cell: Cell { contexts, affinity, layout: model.layout, figures },
            without_locks: times(Model { locks: Locks::Off, ..model.clone() })?,
            without_conversion: times(Model { conversion: Duration::ZERO, ..model.clone() })?,
            without_device: times(Model { drive: unbounded, ..model.clone() })?,
            without_cores: times(Model { cores: 4096, ..model.clone() })?,
        })
    };
    [(1, Affinity::Single)].into_iter().chain(several).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_few_and_end_with_the_most() {
        assert_eq!(steps(1), [1]);
        assert_eq!(steps(4), [1, 2, 3, 4]);
        assert_eq!(steps(12), [1, 2, 3, 4, 5, 6, 8, 10, 12]);
        assert_eq!(steps(13), [1, 2, 3, 4, 5, 6, 8, 10, 12, 13]);
        assert!(steps(1024).len() < 30 && steps(1024).is_sorted());
    }

    #[test]
    fn a_knee_is_where_the_best_is_nearly_reached() {
        assert_eq!(
            knee(&[(1, 9.7), (2, 18.1), (3, 46.4), (4, 135.0), (5, 160.0), (6, 163.0)]),
            Some(5)
        );
        assert_eq!(knee(&[(1, 5.0), (2, 5.1)]), Some(1));
        assert_eq!(knee(&[]), None);
    }

    #[test]
    fn shares_are_of_the_whole_and_symmetric() {
        let names = || [("one", String::new()), ("other", String::new())];
        // Two changes that multiply: by 2 and by 8.
        let independent = changes(&[1.0, 2.0, 8.0, 16.0], names());
        let shares: Vec<f64> = independent.iter().map(|change| change.share).collect();
        assert!((shares[0] - 0.25).abs() < 1e-9 && (shares[1] - 0.75).abs() < 1e-9, "{shares:?}");
        // Neither change gains without the other.
        let together = changes(&[1.0, 1.0, 1.0, 4.0], names());
        assert!(together.iter().all(|change| (change.share - 0.5).abs() < 1e-9));
        assert!(together.iter().all(|change| (change.alone, change.last) == (1.0, 4.0)));
        assert!(changes(&[3.0; 4], names()).iter().all(|change| change.share == 0.0));
    }

    #[test]
    fn the_larger_request_fits() {
        let model = Model::default();
        assert_eq!(larger(&model), 64 << 10);
        assert_eq!(larger(&Model { window: 20 << 10, ..model.clone() }), 16 << 10);
        assert_eq!(larger(&Model { file: 12 << 10, ..model }), 4 << 10);
    }
}
