//! Arms that come of crossing: each arm through the engine with each number of contexts and each
//! affinity, and every arm with each layout of the files. And the pairs among them that differ in
//! one thing alone: what that thing is worth.
//!
//! ```text
//! forebay  x  contexts [1, 4]  x  affinities [hash, group]  x  layouts [holes, written]
//!   -> contexts-1-holes   contexts-4-hash-holes   contexts-4-group-holes   contexts-1-written   ...
//! ```
//!
//! With one context there is nothing to choose, so that one has no affinity.

use super::model::{Arm, Layout, Pair};

/// Base of the numbers of contexts.
const ONE: &str = "1";

/// The affinity that only spreads files over contexts: concurrency alone.
const HASH: &str = "hash";

/// All files on one of the contexts: what contexts cost that have nothing to do.
const SINGLE: &str = "single";

/// Levels to cross arms with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Levels<'a> {
    pub(super) contexts: &'a [&'a str],
    pub(super) affinities: &'a [&'a str],
    pub(super) layouts: &'a [Layout],
}

/// An arm made by crossing, and its parts.
struct Crossed<'a> {
    name: String,
    /// The arm that was crossed.
    of: &'a str,
    /// Writeback contexts, and by what files are bound to them; none without the engine.
    way: (Option<&'a str>, Option<&'a str>),
    /// Layout of the files, if crossed.
    layout: Option<Layout>,
}

/// Returns all arms that come of it, in the order of a table, and the pairs among them that differ
/// in one thing.
pub(super) fn cross(arms: &[Arm], levels: Levels<'_>) -> (Vec<Arm>, Vec<Pair>) {
    let (mut all, mut crossed) = (Vec::new(), Vec::<Crossed<'_>>::new());
    let layouts: Vec<Option<Layout>> = match levels.layouts {
        [] => vec![None],
        layouts => layouts.iter().copied().map(Some).collect(),
    };
    for layout in layouts {
        for arm in arms {
            if arm.is_raw() && crossed.iter().any(|one| one.of == arm.name) {
                continue;
            }
            let of_engine = arm.way.is_engine() && !levels.contexts.is_empty();
            let ways = if of_engine { ways(levels) } else { vec![(None, None)] };
            for (contexts, affinity) in ways {
                let layout = layout.filter(|_| !arm.is_raw());
                let begin =
                    contexts.map_or(arm.name.clone(), |contexts| format!("contexts-{contexts}"));
                let parts = [affinity, layout.map(Layout::name)];
                let name =
                    parts.into_iter().flatten().fold(begin, |name, part| format!("{name}-{part}"));
                let knobs = [("contexts", contexts), ("affinity", affinity)];
                let own = knobs
                    .into_iter()
                    .filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())));
                all.push(Arm {
                    name: name.clone(),
                    knobs: arm.knobs.iter().cloned().chain(own).collect(),
                    layout: layout.unwrap_or(arm.layout),
                    ..arm.clone()
                });
                crossed.push(Crossed { name, of: &arm.name, way: (contexts, affinity), layout });
            }
        }
    }
    let pairs = contrasts(&crossed);
    assert!(pairs.iter().all(|pair| pair.arm != pair.base), "two arms of a pair differ");
    (all, pairs)
}

/// Returns each number of contexts with each affinity; one context with none.
fn ways<'a>(levels: Levels<'a>) -> Vec<(Option<&'a str>, Option<&'a str>)> {
    let mut ways = Vec::new();
    for &contexts in levels.contexts {
        if contexts == ONE {
            ways.push((Some(contexts), None));
        } else {
            ways.extend(levels.affinities.iter().map(|&affinity| (Some(contexts), Some(affinity))));
        }
    }
    ways
}

/// Returns the pairs that differ in one thing: more contexts, another way to bind files to them, or
/// the layout before in the order of growing readiness.
fn contrasts(crossed: &[Crossed<'_>]) -> Vec<Pair> {
    let pair = |arm: &Crossed<'_>, base: &Crossed<'_>| Pair {
        arm: arm.name.clone(),
        base: base.name.clone(),
    };
    let mut found = Vec::new();
    for arm in crossed {
        let (Some(contexts), Some(affinity)) = arm.way else { continue };
        let way = match affinity {
            HASH | SINGLE => (Some(ONE), None),
            _ => (Some(contexts), Some(HASH)),
        };
        let alike = |other: &&Crossed<'_>| other.layout == arm.layout && other.of == arm.of;
        let base = crossed.iter().filter(alike).find(|other| other.way == way);
        found.extend(base.map(|base| pair(arm, base)));
    }
    for arm in crossed {
        let before = crossed.iter().filter(|other| {
            other.of == arm.of && other.way == arm.way && other.layout < arm.layout
        });
        found.extend(before.max_by_key(|other| other.layout).map(|base| pair(arm, base)));
    }
    found
}

impl Arm {
    /// Returns whether it goes to a device, where nothing is laid out.
    fn is_raw(&self) -> bool {
        self.way.word.starts_with("raw-device")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{Form, Suite};

    fn writeback() -> Suite {
        crate::suite::find(std::path::Path::new("writeback")).unwrap()
    }

    #[test]
    fn what_is_crossed_has_each_combination_once() {
        let suite = writeback();
        let part = suite.parts.iter().find(|part| part.name == "factors").unwrap();
        let cut = part.cut(Form::Full).unwrap();
        let names: Vec<&str> = cut.arms.iter().map(|arm| arm.name.as_str()).collect();
        for name in [
            "contexts-1-holes",
            "contexts-4-group-written",
            "kernel-bounded-unwritten",
            "raw-device",
        ] {
            assert_eq!(
                names.iter().filter(|known| **known == name).count(),
                1,
                "{name} in {names:?}"
            );
        }
        assert!(
            !names.iter().any(|name| name.starts_with("contexts-1-hash")),
            "one context has no affinity"
        );
        let arm = cut.arms.iter().find(|arm| arm.name == "contexts-4-group-written").unwrap();
        assert_eq!(arm.layout, Layout::Written);
        let knob = |key: &str| {
            arm.knobs.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
        };
        assert_eq!((knob("contexts"), knob("affinity")), (Some("4"), Some("group")));
    }

    #[test]
    fn pairs_differ_in_one_thing() {
        let suite = writeback();
        let part = suite.parts.iter().find(|part| part.name == "factors").unwrap();
        let cut = part.cut(Form::Full).unwrap();
        let names = cut.names();
        let pairs: Vec<(&str, &str)> =
            cut.contrasts.iter().map(|pair| (pair.arm.as_str(), pair.base.as_str())).collect();
        assert!(cut.contrasts.iter().all(|pair| names.contains(&pair.arm)), "{pairs:?}");
        assert!(cut.contrasts.iter().all(|pair| names.contains(&pair.base)), "{pairs:?}");
        for pair in [
            ("contexts-4-hash-holes", "contexts-1-holes"),
            ("contexts-4-single-written", "contexts-1-written"),
            ("contexts-4-group-holes", "contexts-4-hash-holes"),
            ("kernel-direct-unwritten", "kernel-direct-holes"),
            ("contexts-1-written", "contexts-1-unwritten"),
        ] {
            assert!(pairs.contains(&pair), "{pair:?} in {pairs:?}");
        }
        // Two ways against one context and two against hash, on three layouts; five ways of the
        // engine and two of the kernel over two steps of layout.
        assert_eq!(pairs.len(), 3 * 4 + 2 * (5 + 2));
    }
}
