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

use serde::{Deserialize, Serialize};

use super::Arm;
use crate::words::words;
use crate::writers::Layout;

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

/// An arm made by crossing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Crossed {
    pub arm: String,
    /// The arm that was crossed.
    pub of: String,
    /// Writeback contexts, as the knob has them; none of an arm without the engine.
    pub contexts: Option<String>,
    /// By what files are bound to contexts; none where there is nothing to choose.
    pub affinity: Option<String>,
    /// Layout of the files, if crossed.
    pub layout: Option<Layout>,
}

words! {
    /// The difference of a pair of arms.
    #[derive(PartialOrd, Ord)]
    pub enum Factor {
        /// More contexts, files spread over them by hash.
        Concurrency = "concurrency",
        /// As many contexts, files bound to them by something that knows where they lie.
        Affinity = "affinity",
        /// More contexts, and one has all files.
        Idle = "idle",
        /// State of the files before.
        Layout = "layout",
    }
}

/// Two arms that differ in one thing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Contrast {
    pub factor: Factor,
    /// Between what and what: `4 hash : 1`.
    pub between: String,
    /// Their common properties.
    pub at: String,
    pub arm: String,
    pub base: String,
}

impl Crossed {
    /// `4 hash`, or the arm's name.
    pub fn way(&self) -> String {
        match (&self.contexts, &self.affinity) {
            (Some(contexts), Some(affinity)) => format!("{contexts} {affinity}"),
            (Some(contexts), None) => contexts.clone(),
            (None, _) => self.of.replace('-', " "),
        }
    }

    fn is(&self, contexts: &str, affinity: Option<&str>) -> bool {
        self.contexts.as_deref() == Some(contexts) && self.affinity.as_deref() == affinity
    }
}

/// All that comes of it, in the order of a table.
pub(super) fn cross(arms: &[Arm], levels: Levels<'_>) -> (Vec<Arm>, Vec<Crossed>) {
    let (mut all, mut crossed) = (Vec::new(), Vec::new());
    let layouts: Vec<Option<Layout>> = match levels.layouts {
        [] => vec![None],
        layouts => layouts.iter().copied().map(Some).collect(),
    };
    for layout in layouts {
        for arm in arms {
            if arm.is_raw() && crossed.iter().any(|one: &Crossed| one.of == arm.name) {
                continue;
            }
            let of_engine = arm.through.is_engine() && !levels.contexts.is_empty();
            let ways = if of_engine { ways(levels) } else { vec![(None, None)] };
            for (contexts, affinity) in ways {
                let layout = layout.filter(|_| !arm.is_raw());
                let word = |knob: Option<&str>| knob.map(str::to_owned);
                let parts = [affinity, layout.map(Layout::name)];
                let begin =
                    contexts.map_or(arm.name.clone(), |contexts| format!("contexts-{contexts}"));
                let name =
                    parts.into_iter().flatten().fold(begin, |name, part| format!("{name}-{part}"));
                let knobs = [("contexts", contexts), ("affinity", affinity)];
                let own = knobs
                    .into_iter()
                    .filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())));
                crossed.push(Crossed {
                    arm: name.clone(),
                    of: arm.name.clone(),
                    contexts: word(contexts),
                    affinity: word(affinity),
                    layout,
                });
                all.push(Arm {
                    name,
                    knobs: arm.knobs.iter().cloned().chain(own).collect(),
                    layout: layout.unwrap_or(arm.layout),
                    ..arm.clone()
                });
            }
        }
    }
    (all, crossed)
}

/// Each number of contexts with each affinity; one context with none.
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

/// Returns pairs that differ in one thing, by factor, and within it by their common properties.
pub(super) fn contrasts(crossed: &[Crossed]) -> Vec<Contrast> {
    let mut found = Vec::new();
    for arm in crossed.iter().filter(|arm| arm.contexts.is_some()) {
        let alike = |other: &&Crossed| other.layout == arm.layout && other.of == arm.of;
        let with = |contexts: &str, affinity| {
            crossed.iter().filter(alike).find(|other| other.is(contexts, affinity))
        };
        let (Some(contexts), Some(affinity)) = (arm.contexts.as_deref(), arm.affinity.as_deref())
        else {
            continue;
        };
        let (factor, base) = match affinity {
            HASH => (Factor::Concurrency, with(ONE, None)),
            SINGLE => (Factor::Idle, with(ONE, None)),
            _ => (Factor::Affinity, with(contexts, Some(HASH))),
        };
        let layout = arm.layout.map_or("", Layout::name);
        found.extend(base.map(|base| match factor {
            Factor::Affinity => {
                let words = [affinity.to_owned(), HASH.to_owned()];
                contrast(factor, [arm, base], words, format!("{contexts} {layout}").trim_end())
            }
            _ => contrast(factor, [arm, base], [arm.way(), base.way()], layout),
        }));
    }
    for arm in crossed {
        // Each layout with the one before it in the order of growing readiness.
        let before =
            crossed.iter().filter(|other| other.way() == arm.way() && other.layout < arm.layout);
        let base = before.max_by_key(|other| other.layout);
        let words = |one: &Crossed| one.layout.map_or("", Layout::name).to_owned();
        found.extend(base.map(|base| {
            contrast(Factor::Layout, [arm, base], [words(arm), words(base)], &arm.way())
        }));
    }
    found.sort_by_key(|one| one.factor);
    found
}

fn contrast(
    factor: Factor,
    [arm, base]: [&Crossed; 2],
    [new, old]: [String; 2],
    at: &str,
) -> Contrast {
    Contrast {
        factor,
        between: format!("{new} : {old}"),
        at: at.to_owned(),
        arm: arm.arm.clone(),
        base: base.arm.clone(),
    }
}

impl Arm {
    /// Whether it goes to a device, where nothing is laid out.
    fn is_raw(&self) -> bool {
        matches!(self.through, crate::through::Through::Files(arm) if arm.is_raw())
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
    fn a_contrast_differs_in_one_thing_alone() {
        let suite = writeback();
        for part in &suite.parts {
            for form in [Form::Full, Form::Quick] {
                let Some(cut) = part.cut(form) else { continue };
                let of = |arm: &str| cut.crossed.iter().find(|one| one.arm == arm).unwrap();
                for contrast in &cut.contrasts {
                    let (arm, base) = (of(&contrast.arm), of(&contrast.base));
                    match contrast.factor {
                        Factor::Layout => {
                            assert!(
                                arm.way() == base.way() && arm.layout > base.layout,
                                "{contrast:?}"
                            );
                        }
                        Factor::Affinity => {
                            assert!(
                                arm.contexts == base.contexts && arm.layout == base.layout,
                                "{contrast:?}"
                            );
                            assert_eq!(base.affinity.as_deref(), Some(HASH));
                        }
                        Factor::Concurrency | Factor::Idle => {
                            assert!(
                                base.contexts.as_deref() == Some(ONE) && arm.layout == base.layout
                            );
                        }
                    }
                }
            }
        }
        let part = suite.parts.iter().find(|part| part.name == "factors").unwrap();
        let contrasts = &part.cut(Form::Full).unwrap().contrasts;
        let count = |factor| contrasts.iter().filter(|one| one.factor == factor).count();
        // One number of contexts above one, on three layouts; two affinities that know where files
        // lie.
        assert_eq!(
            (count(Factor::Concurrency), count(Factor::Idle), count(Factor::Affinity)),
            (3, 3, 6)
        );
        // Five ways of the engine and those of the kernel, each over two steps of layout.
        assert_eq!(count(Factor::Layout), 2 * (5 + 2));
        let first = &contrasts[0];
        assert_eq!((first.between.as_str(), first.at.as_str()), ("4 hash : 1", "holes"));
    }
}
