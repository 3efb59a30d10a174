//! From words to [`Typed`], or to help or a complaint.

use std::ffi::{OsStr, OsString};

use clap::error::ErrorKind;
use clap::{Command, CommandFactory, FromArgMatches};

use super::Typed;
use crate::failure::Failure;

/// A parsed command line, or the text to show instead (help, version).
#[derive(Debug)]
pub(crate) enum Parsed {
    Typed(Box<Typed>),
    Show(String),
}

/// How much the help shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Help {
    /// Of `-h`: the options that people use most, in one list.
    Short,
    /// Of `--help`: all of them in groups, and the examples.
    Full,
}

/// The commands, options and their help, for completion scripts and manual pages.
pub(crate) fn command() -> Command {
    Typed::command()
}

/// The same with the help of one form.
fn command_with(help: Help) -> Command {
    fn with(command: Command, help: Help) -> Command {
        let command = match (help, command.get_after_long_help().cloned()) {
            (Help::Full, Some(text)) => command.after_help(text),
            _ => command,
        };
        let verbs: Vec<String> =
            command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
        let command = command.mut_args(|argument| match help {
            Help::Short => argument.help_heading(None::<&str>),
            Help::Full => argument.hide_short_help(false),
        });
        let form =
            |command: Command, verb: String| command.mut_subcommand(verb, |verb| with(verb, help));
        verbs.into_iter().fold(command, form)
    }
    with(Typed::command(), help)
}

/// Parses a command line.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Parsed, Failure> {
    let words: Vec<OsString> = words.into_iter().collect();
    let full = words.iter().any(|word| word == "--help");
    let help = if full { Help::Full } else { Help::Short };
    let matches = command_with(help).try_get_matches_from(&words);
    match matches.and_then(|matches| Typed::from_arg_matches(&matches)) {
        Ok(typed) => Ok(Parsed::Typed(Box::new(typed))),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                Ok(Parsed::Show(error.render().to_string()))
            }
            ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                Err(Failure::usage(missing(&words)))
            }
            _ => Err(Failure::Usage(one_line(&error.render().to_string(), &verb_of(&words)))),
        },
    }
}

/// The subcommand that was typed, with a space before it; empty if none was.
fn verb_of(words: &[OsString]) -> String {
    let verb = words.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    let known = Typed::command().find_subcommand(verb).is_some();
    if known { format!(" {verb}") } else { String::new() }
}

fn missing(words: &[OsString]) -> String {
    match words.get(1).map(OsString::as_os_str) {
        Some(verb) if verb == OsStr::new("ctl") => {
            "ctl: no command; use get, set or stats, as in `forebay ctl SOCKET get`".to_owned()
        }
        _ => "no command; use `forebay compare` or `forebay --help`".to_owned(),
    }
}

/// The parser's complaint without its usage block: the problem, then its tip as the remedy.
fn one_line(complaint: &str, verb: &str) -> String {
    let mut what = Vec::new();
    let mut remedy = None;
    for line in complaint.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line.starts_with("Usage:") || line.starts_with("For more information") {
            break;
        }
        match line.strip_prefix("tip: ") {
            Some(tip) => remedy = Some(tip),
            None => what.push(line.strip_prefix("error: ").unwrap_or(line)),
        }
    }
    let what = what.join(" ");
    match remedy {
        Some(tip) => format!("{what} ({tip})"),
        // A value's own complaint names what to give.
        None if what.contains(": give ") || what.contains("[possible values:") => what,
        None => format!("{what} (see `forebay{verb} --help`)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(words: &[&str]) -> String {
        match parse(["forebay"].iter().chain(words).map(Into::into)) {
            Ok(Parsed::Show(text)) => text,
            other => panic!("{words:?}: {other:?}"),
        }
    }

    #[test]
    fn the_table_of_arguments_is_sound() {
        Typed::command().debug_assert();
    }

    #[test]
    fn help_fits_a_terminal_and_the_short_one_a_screen() {
        let verbs: Vec<String> =
            Typed::command().get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
        for verb in verbs.iter().map(String::as_str).chain([""]) {
            let words = |form| [verb, form].into_iter().filter(|word| !word.is_empty());
            let (short, full) =
                (words("-h").collect::<Vec<_>>(), words("--help").collect::<Vec<_>>());
            let (short, full) = (shown(&short), shown(&full));
            assert!(short.lines().count() <= 25, "{verb}: {short}");
            assert!(full.lines().count() >= short.lines().count(), "{verb}: {full}");
            for text in [short, full] {
                assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            }
        }
    }

    #[test]
    fn every_option_is_in_the_full_help_and_fifteen_are_in_the_short_one() {
        let (short, full) = (shown(&["compare", "-h"]), shown(&["compare", "--help"]));
        let compare = Typed::command().find_subcommand("compare").unwrap().clone();
        let names: Vec<&str> = compare.get_arguments().filter_map(|one| one.get_long()).collect();
        assert!(names.iter().all(|name| full.contains(&format!("--{name}"))), "{full}");
        let options =
            |text: &str| text.lines().filter(|line| line.trim_start().starts_with('-')).count();
        assert_eq!(options(&short), 15, "{short}");
        for heading in ["Work:", "Length:", "Place:", "Output:", "Examples:", "Exit codes:"] {
            assert!(full.contains(heading), "{heading}");
        }
    }

    #[test]
    fn a_complaint_becomes_one_line() {
        let complaint = "error: unexpected argument '--round' found\n\n  tip: a similar argument exists: '--rounds'\n\n\
                         Usage: forebay compare --rounds <N>\n\nFor more information, try '--help'.\n";
        assert_eq!(
            one_line(complaint, " compare"),
            "unexpected argument '--round' found (a similar argument exists: '--rounds')"
        );
        assert_eq!(one_line("error: no", " run"), "no (see `forebay run --help`)");
    }
}
