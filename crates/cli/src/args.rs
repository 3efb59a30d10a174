//! What was typed. Nothing here looks at the machine; what it means is [`crate::meaning`]'s.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};

use forebay_lab::manifest::version;
use forebay_lab::plan::MOST_ROUNDS;

use crate::failure::Failure;

/// Fast, predictable buffered file I/O from user space: run jobs, and compare with the kernel's own ways.
#[derive(Parser, Debug)]
#[command(name = "forebay", version = version(), disable_help_subcommand = true)]
pub(crate) struct Typed {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Compare Forebay with the kernel's own ways on this machine.
    ///
    /// Every round runs every arm once, in a random order; the data written is removed again. Without a suite a
    /// quick look at `layout`: about two minutes, at most 12 GiB written.
    Compare(CompareArgs),
    /// Run a fio job file.
    Run(RunArgs),
}

/// `forebay compare`.
#[derive(Args, Debug)]
pub(crate) struct CompareArgs {
    /// The question: `layout` is random 4k writes into 12 new files, until synced.
    pub(crate) suite: Option<Suite>,
    /// Where the files go (in a directory of their own, removed at the end).
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Rounds [default: 5]; below 4 no verdict is given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_ROUNDS)))]
    pub(crate) rounds: Option<u32>,
    /// Take at most so long; rounds that do not fit are left out.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub(crate) seconds: Option<u64>,
    /// Small files, even where a suite is named.
    #[arg(long)]
    pub(crate) quick: bool,
    /// A knob of the forebay arms, as often as needed.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,
    /// Write the result there, too.
    #[arg(long, value_name = "PATH")]
    pub(crate) json: Option<PathBuf>,
    /// Repeat the order and the data of an earlier comparison.
    #[arg(long, value_name = "HEX")]
    pub(crate) seed: Option<String>,
    /// Print the tables as markdown.
    #[arg(long)]
    pub(crate) markdown: bool,
}

/// `forebay run`.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// The job file.
    #[arg(value_name = "JOB.fio")]
    pub(crate) job: PathBuf,
    /// Through what the job does its I/O.
    #[arg(long, value_enum, default_value_t = Engine::Forebay)]
    pub(crate) engine: Engine,
    /// A knob of the engine, as often as needed.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,
    /// Write the result there, too.
    #[arg(long, value_name = "PATH")]
    pub(crate) json: Option<PathBuf>,
    /// Warn about options that are not known, rather than refuse the job.
    #[arg(long)]
    pub(crate) lenient: bool,
    /// Let the job write to block devices.
    #[arg(long)]
    pub(crate) allow_write_device: bool,
    /// Where the job's files are, where it does not say so itself.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,
}

/// The questions there are.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Suite {
    /// Random writes into new files.
    Layout,
}

/// Through what `run` does its I/O.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Engine {
    /// Forebay.
    Forebay,
    /// What the job file itself says.
    Kernel,
    /// No I/O at all: what the load generator itself costs.
    Null,
}

/// What was typed, or what to show instead (help, version).
#[derive(Debug)]
pub(crate) enum Parsed {
    Typed(Typed),
    Show(String),
}

/// Parses a command line.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Parsed, Failure> {
    match Typed::try_parse_from(words) {
        Ok(typed) => Ok(Parsed::Typed(typed)),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                Ok(Parsed::Show(error.render().to_string()))
            }
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
                Err(Failure::usage("nothing to do (try `forebay compare`, or `forebay --help`)"))
            }
            _ => Err(Failure::Usage(one_line(&error.render().to_string()))),
        },
    }
}

/// The parser's complaint without its usage block: what is wrong, and its tip as the remedy.
fn one_line(complaint: &str) -> String {
    let mut what = Vec::new();
    let mut remedy = "see `forebay --help`";
    for line in complaint.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line.starts_with("Usage:") || line.starts_with("For more information") {
            break;
        }
        match line.strip_prefix("tip: ") {
            Some(tip) => remedy = tip,
            None => what.push(line.strip_prefix("error: ").unwrap_or(line)),
        }
    }
    format!("{} ({remedy})", what.join(" "))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_table_of_arguments_is_sound() {
        Typed::command().debug_assert();
    }

    #[test]
    fn a_complaint_becomes_one_line() {
        let complaint = "error: unexpected argument '--round' found\n\n  tip: a similar argument exists: '--rounds'\n\n\
                         Usage: forebay compare --rounds <N>\n\nFor more information, try '--help'.\n";
        assert_eq!(
            one_line(complaint),
            "unexpected argument '--round' found (a similar argument exists: '--rounds')"
        );
    }
}
