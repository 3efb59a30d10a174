//! Knobs by owner. Block requests have the knobs of the queue. Work on files has the knobs of the
//! engine, and those of the queue below it. Each setting goes to every owner that knows it. A
//! setting that no arm knows is refused before anything runs.

use forebay_lab::arm::Knobs;
use forebay_lab::queue_knobs;

use crate::failure::Failure;
use crate::meaning::CompareRequest;

/// Settings by owner.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Settings {
    /// For the engine, which checks them itself.
    pub(super) engine: Vec<(String, String)>,
    /// For the queue, already checked.
    pub(super) queue: Vec<(String, String)>,
}

impl Settings {
    /// Those of a request, for the suites it names.
    pub(super) fn sort(request: &CompareRequest) -> Result<Self, Failure> {
        let cuts = || request.suites.iter().flat_map(|suite| &suite.parts);
        let cuts = || cuts().filter_map(|part| part.cut(request.form));
        let has = |knobs| cuts().flat_map(|cut| &cut.arms).any(|arm| arm.way.knobs == knobs);
        let (requests, files) = (has(Knobs::Queue), has(Knobs::Engine));
        if let (false, false, Some((key, value))) = (requests, files, request.settings.first()) {
            return Err(Failure::usage(format!(
                "--set {key}={value}: no arm of this suite has knobs; leave --set out"
            )));
        }
        let mut settings = Self::default();
        for (key, value) in &request.settings {
            let own = (key.clone(), value.clone());
            let of_queue = queue_knobs::NAMES.contains(&key.as_str());
            if requests && (of_queue || !files) {
                queue_knobs::check(key, value)
                    .map_err(|why| Failure::usage(format!("--set {key}={value}: {why}")))?;
                settings.queue.push(own.clone());
            }
            // It knows those of the queue too, and looks at all of them itself.
            if files || !requests {
                settings.engine.push(own);
            }
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parse;
    use crate::meaning::{self, Command};

    fn sorted(words: &[&str]) -> Result<Settings, Failure> {
        let typed = parse(["forebay", "compare"].iter().chain(words).map(Into::into)).unwrap();
        let Ok(Command::Compare(request)) = meaning::of(typed) else {
            panic!("no comparison: {words:?}")
        };
        Settings::sort(&request)
    }

    #[test]
    fn a_setting_goes_to_everyone_who_knows_it() {
        let of = |key: &str, value: &str| vec![(key.to_owned(), value.to_owned())];
        let both = sorted(&["--set", "plug=always"]).unwrap();
        assert_eq!((both.engine, both.queue), (of("plug", "always"), of("plug", "always")));
        let files = sorted(&["--set", "flight=8"]).unwrap();
        assert_eq!((files.engine, files.queue), (of("flight", "8"), vec![]));
        let layout = sorted(&["layout", "--set", "plug=always"]).unwrap();
        assert_eq!((layout.engine, layout.queue), (of("plug", "always"), vec![]));
        let plug = sorted(&["plug", "--set", "plug=always"]).unwrap();
        assert_eq!((plug.engine, plug.queue), (vec![], of("plug", "always")));
        assert!(matches!(sorted(&["plug", "--set", "flight=8"]), Err(Failure::Usage(_))));
        assert!(matches!(sorted(&["--set", "plug=often"]), Err(Failure::Usage(_))));
    }
}
