//! The commands, options, knobs and metrics that the program and the library have.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use regex::Regex;

/// Asked of the program and the library themselves.
pub(crate) struct Facts {
    /// The long help of each command; that of the program itself under "".
    helps: BTreeMap<String, String>,
    pub(crate) knobs: BTreeSet<String>,
    pub(crate) metrics: BTreeSet<String>,
}

impl Facts {
    pub(crate) fn gather() -> Self {
        let top = help(&["--help"]);
        let commands: Vec<String> = commands(&top);
        assert!(commands.len() > 5, "the program's help has no list of commands:\n{top}");
        let mut helps = BTreeMap::from([(String::new(), top)]);
        for command in commands {
            let text = help(&[&command, "--help"]);
            helps.insert(command, text);
        }
        let engine = forebay::Engine::new().expect("an engine starts");
        let knobs = engine.options().knobs().into_iter().map(|knob| knob.name).collect();
        let text = engine.stats().open_metrics();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let metrics = lines.filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect();
        Self { helps, knobs, metrics }
    }

    #[cfg(test)]
    pub(crate) fn of(helps: &[(&str, &str)], knobs: &[&str], metrics: &[&str]) -> Self {
        let owned = |(command, help): &(&str, &str)| ((*command).to_owned(), (*help).to_owned());
        Self {
            helps: helps.iter().map(owned).collect(),
            knobs: knobs.iter().map(|knob| (*knob).to_owned()).collect(),
            metrics: metrics.iter().map(|metric| (*metric).to_owned()).collect(),
        }
    }

    /// Each command with its long help.
    pub(crate) fn helps(&self) -> impl Iterator<Item = (&str, &str)> {
        self.helps.iter().map(|(command, help)| (command.as_str(), help.as_str()))
    }

    pub(crate) fn has_command(&self, name: &str) -> bool {
        name == "help" || self.helps.contains_key(name)
    }

    /// Whether a command takes an option; any command, if none is named.
    pub(crate) fn has_option(&self, command: Option<&str>, option: &str) -> bool {
        let takes = |help: &str| ["--help", "--version"].contains(&option) || offers(help, option);
        match command {
            Some(command) => self.helps.get(command).is_some_and(|help| takes(help)),
            None => self.helps.values().any(|help| takes(help)),
        }
    }
}

fn help(arguments: &[&str]) -> String {
    let shown = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(arguments)
        .output()
        .expect("the program starts");
    assert!(shown.status.success(), "forebay {arguments:?} failed: {shown:?}");
    String::from_utf8(shown.stdout).expect("help is UTF-8")
}

/// The names below the heading of the commands, up to the next line that is not indented.
fn commands(help: &str) -> Vec<String> {
    let below = help.split_once("Commands:\n").map_or("", |(_, below)| below);
    let name = Regex::new(r"^  ([a-z][a-z-]*)(?:  |$)").expect("a pattern");
    below
        .lines()
        .take_while(|line| line.is_empty() || line.starts_with(' '))
        .filter_map(|line| Some(name.captures(line)?[1].to_owned()))
        .filter(|command| command != "help")
        .collect()
}

/// Whether a help has a line that begins with the option.
fn offers(help: &str, option: &str) -> bool {
    help.lines().any(|line| {
        let line = line.trim_start();
        let line = match line.as_bytes() {
            [b'-', letter, b',', ..] if letter.is_ascii_alphabetic() => line[3..].trim_start(),
            _ => line,
        };
        line.strip_prefix(option)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '=', '[', ',']))
    })
}
