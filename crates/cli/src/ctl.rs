//! `forebay ctl`: the knobs and counters of a running engine, over its control socket.

use std::path::Path;

use forebay::{Control, Error, ErrorKind, Knob};
use forebay_lab::nearest::nearest;

use crate::args::Ask;
use crate::failure::Failure;
use crate::output::print;

/// Asks an engine that runs, and prints what it answers: nothing where something was set.
pub(crate) fn ctl(socket: &Path, ask: &Ask) -> Result<(), Failure> {
    let mut control = Control::connect(socket).map_err(Failure::failed)?;
    let answer = match ask {
        Ask::Get { name: None } => control.knobs().map(|knobs| table(&knobs)),
        Ask::Get { name: Some(name) } => control.get(name).map(|value| value + "\n"),
        Ask::Set { name, value } => control.set(name, value).map(|()| String::new()),
        Ask::Stats { name: None } => control.stats().map(|stats| numbers(&stats)),
        Ask::Stats { name: Some(name) } => control.number(name).map(|number| format!("{number}\n")),
    };
    match answer {
        Ok(text) => print(&text),
        Err(error) if error.kind() == ErrorKind::InvalidInput => Err(Failure::usage(
            meant(&mut control, ask).unwrap_or_else(|| reported(socket, &error)),
        )),
        Err(error) => Err(Failure::failed(error)),
    }
}

fn reported(socket: &Path, error: &Error) -> String {
    match error.path() {
        Some(_) => error.to_string(),
        None => format!("{}: {error}", socket.display()),
    }
}

/// Suggests a known name or value close to an unknown one.
fn meant(control: &mut Control, ask: &Ask) -> Option<String> {
    let no_such = |what: &str, name: &str, names: &[&str]| {
        let near = nearest(name, names.iter().copied()).filter(|near| *near != name)?;
        Some(format!("{name}: no such {what}; did you mean {near}?"))
    };
    match ask {
        Ask::Get { name: Some(name) } | Ask::Set { name, .. } => {
            let knobs = control.knobs().ok()?;
            let Some(knob) = knobs.iter().find(|knob| knob.name == *name) else {
                let names: Vec<_> = knobs.iter().map(|knob| knob.name.as_str()).collect();
                return no_such("knob", name, &names);
            };
            let Ask::Set { value, .. } = ask else { return None };
            let words: Vec<_> =
                knob.choices.split(", ").filter(|choice| !choice.contains([' ', '='])).collect();
            no_such(name, value, &words)
        }
        Ask::Stats { name: Some(name) } => {
            let stats = control.stats().ok()?;
            let names: Vec<_> = stats.iter().map(|(name, _)| name.as_str()).collect();
            no_such("counter", name, &names)
        }
        Ask::Get { name: None } | Ask::Stats { name: None } => None,
    }
}

/// One line per knob: its name, its value, whether it can be changed, and its choices.
fn table(knobs: &[Knob]) -> String {
    let widest = |of: fn(&Knob) -> usize| knobs.iter().map(of).max().unwrap_or(0);
    let (names, values) = (widest(|knob| knob.name.len()), widest(|knob| knob.value.len()));
    let line = |Knob { name, value, change, choices, .. }: &Knob| {
        format!("{name:names$}  {value:values$}  {change:5}  {choices}\n")
    };
    knobs.iter().map(line).collect()
}

fn numbers(stats: &[(String, u64)]) -> String {
    let widest = stats.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    stats.iter().map(|(name, number)| format!("{name:widest$}  {number}\n")).collect()
}

#[cfg(test)]
mod tests {
    use forebay::Options;

    use super::*;

    #[test]
    fn an_engine_is_asked_and_what_was_meant_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let failed = |result: Result<(), Failure>| match result {
            Err(Failure::Usage(what)) => (2, what),
            Err(Failure::Failed(what)) => (1, what),
            other => panic!("{other:?}"),
        };
        let get = |name: &str| Ask::Get { name: Some(name.to_owned()) };
        let set =
            |name: &str, value: &str| Ask::Set { name: name.to_owned(), value: value.to_owned() };
        let (code, what) = failed(ctl(&socket, &get("plug")));
        assert!(
            code == 1 && what.contains("No such file") && what.contains("must be running"),
            "{what}"
        );
        let engine =
            forebay::Engine::start(Options { cache_bytes: Some(8 << 20), ..Options::default() })
                .unwrap();
        engine.serve_control(&socket).unwrap();
        for (ask, expected) in [
            (get("plgu"), "plgu: no such knob; did you mean plug?"),
            (set("dirty_byte", "4m"), "dirty_byte: no such knob; did you mean dirty_bytes?"),
            (set("plug", "alwyas"), "alwyas: no such plug; did you mean always?"),
            (
                set("plug", "7"),
                "invalid value `7` for knob `plug` (allowed: never, always, adaptive, above-two)",
            ),
            (
                set("flight", "0"),
                "invalid value `0` for knob `flight` (allowed: a number of requests",
            ),
            (set("backend", "threads"), "cannot change knob `backend` while the engine runs"),
            (set("cash", "x"), "unknown knob `cash` (known knobs: plug, merge"),
            (
                Ask::Stats { name: Some("dorbells".into()) },
                "dorbells: no such counter; did you mean doorbells?",
            ),
        ] {
            let (code, what) = failed(ctl(&socket, &ask));
            assert_eq!(code, 2, "{what}");
            assert!(what.contains(expected), "{what}");
        }
        ctl(&socket, &set("plug", "never")).unwrap();
        let knobs = engine.options().knobs();
        assert!(
            knobs.iter().any(|knob| (knob.name.as_str(), knob.value.as_str()) == ("plug", "never"))
        );
    }

    #[test]
    fn knobs_and_numbers_stand_in_columns() {
        let knobs = Options::default().knobs();
        let text = table(&knobs);
        assert_eq!(text.lines().count(), knobs.len());
        assert!(text.starts_with("plug              adaptive"), "{text}");
        assert!(
            text.contains("live   never, always, adaptive, above-two\n")
                && text.contains("  fixed  "),
            "{text}"
        );
        let text = numbers(&[("bios".into(), 7), ("requests".into(), 12)]);
        assert_eq!(text, "bios      7\nrequests  12\n");
    }
}
