//! What was typed. Nothing here looks at the machine; what it means is [`crate::meaning`]'s.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

use forebay_lab::plan::MOST_ROUNDS;
use forebay_lab::suite::Bytes;

use crate::build::version;
use crate::failure::Failure;
use crate::simulate;

/// Buffered file I/O from user space: run jobs, and compare with the kernel's ways.
#[derive(Parser, Debug)]
#[command(
    name = "forebay",
    version = version(),
    max_term_width = 80,
    disable_help_subcommand = true,
    disable_help_flag = true,
    after_help = "Exit codes: 0 done, 1 it failed, 2 it cannot be meant or done here, 130 interrupted."
)]
pub(crate) struct Typed {
    #[command(subcommand)]
    pub(crate) verb: Verb,
    /// Print help.
    // The short form in any case: one line for each option.
    #[arg(short, long, global = true, display_order = 99, action = ArgAction::HelpShort)]
    help: Option<bool>,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Compare Forebay with the kernel's own ways on this machine.
    #[command(after_help = COMPARE_IN_FULL)]
    Compare(Box<CompareArgs>),
    /// Run a fio job file through Forebay or the kernel.
    #[command(after_help = run_in_full())]
    Run(RunArgs),
    /// Show a result again, or two side by side.
    #[command(after_help = REPORT_IN_FULL)]
    Report(ReportArgs),
    /// Get and set the knobs of an engine that runs, and read its numbers.
    #[command(after_help = CTL_IN_FULL)]
    Ctl(CtlArgs),
    /// Tell what this machine and a place for files offer, and what is in the way.
    #[command(after_help = DOCTOR_IN_FULL)]
    Doctor(DoctorArgs),
    /// Show a few bios on their way, step by step.
    Walk(WalkArgs),
    /// Work through a model in virtual time.
    #[command(after_help = simulate::in_full())]
    Simulate(SimulateArgs),
    /// Ask an echo server over sockets, in a closed loop.
    #[command(after_help = NETBENCH_IN_FULL)]
    Netbench(NetbenchArgs),
    /// Write what a keeper could not, from where it saved it.
    #[command(after_help = RECOVER_IN_FULL)]
    Recover(RecoverArgs),
    /// Stand by a program: started by it, not by hand.
    #[command(hide = true)]
    Keeper(KeeperArgs),
}

const COMPARE_IN_FULL: &str = "\
Every round runs every arm once, in a random order; figures are paired by round.
Suites: `layout` is random 4k writes into 12 new files, until synced; `plug` is
what batching requests costs and saves, by device and depth; `completion` is six
jobs by when their completions are ended: at --scale 1 a minute each on 2 GiB, at
0.03 of that unless told, an hour; `writeback` is what writing out from
several contexts is worth, and why; `order` is an echo server over sockets, by
the order of its work. A suite is a file: give the path of your own. Without
one it is a short look at the first three: a minute and a half, at most 6 GiB
and what job C writes. Files are in a directory of their own that is removed at
the end, after Ctrl-C too. --set takes the engine's knobs (see `forebay run
--help`) and, for requests, the queue's: plug, merge, tags, clock, doorbell,
completion, order. Where an arm has its own, that stands.
--scratch xfs,size=16g,agcount=16 makes and mounts a file system before each
cell, on a loop device over an image in --dir, and takes it away again (root).
Also ext4, btrfs; keys: size, agcount, inode32 (XFS), aged (nine tenths full, in
pieces), keep (one for all cells), sparse (an image that is not written first),
device=/dev/NAME in place of an image, with --allow-write-device.
--target PATH is read in place of a laid-out file, by `plug` (where it may be
mounted) and by job files that read. With --allow-write-device it is the block
device that job E of `completion` and the raw arms of `writeback` write over.
--arm NAME=ENGINE,KEY=VALUE,... adds an arm to each part that has such an engine
(kernel-buffered, kernel-direct, forebay, fio, ...: an unknown one tells them).
Keys: the engine's knobs; for requests batch; and settings of the machine, put
back after each of its cells (root): sysctl.vm.dirty_bytes=64000000,
queue.scheduler=none. --arms none leaves out all others; the first is the base.
--until 2% looks after each round from the fourth on, up to 20 or --rounds;
--resume FILE keeps rounds as they end: the same command goes on with it.
--max-writes is looked at before anything is done: it counts files that are laid
out, and the image of --scratch, too.
JOB.fio: its jobs through the kernel, fio and Forebay, in new directories; fio is
left out where it would do more than that, as remove the file it reads.
--from takes from a bundle what decides the figures; --cpus, --until, --max-writes
can be given anew. An --arm of it that sets the machine has to be given again.
--check-against-fio runs the kernel's own paths by our load generator and by
fio: direct and buffered, reads and writes, 4k and 128k, depth 1 and 32; exit
code 1 where rates or latencies are apart by more than 5 % and the noise. About
ten minutes, and 20 GiB and more are written; --scale and --rounds make it less.
--check-against-itself makes 20 comparisons of a thing with itself, and three of
a device with one that is 5 % slower: two minutes.";

const DOCTOR_IN_FULL: &str = "\
Each finding: how much of it is there (full, degraded, missing), what was found,
what follows, and what to do. Nothing is changed. What has to be tried is tried on
a file without a name in the directory, or beside the file; a block device is only
read. Root sees more, but is not needed.
Exit codes: 0 full strength, 1 something is lost, 2 Forebay does not work there.";

/// With the knobs there are, by name.
fn run_in_full() -> String {
    let knobs = forebay::Engine::builder().knobs();
    let names: Vec<_> = knobs.iter().map(|knob| knob.name.as_str()).collect();
    format!(
        "Every clock stops after the final sync. Files stay where the job puts them, unless it says unlink=1. A \
         mounted device is never written.\n\
         Knobs of --set: {}. What each can be is told where a value cannot be, and by `forebay ctl`.",
        names.join(", ")
    )
}

const REPORT_IN_FULL: &str = "\
A result is the file of --json or the directory of --bundle. Of two, ratios are
told where both ran the same arms on the same work in the same sizes; else that
is said. They are not paired by round: so are only arms of one comparison.";

const CTL_IN_FULL: &str = "\
What is set holds from then on, in the engine alone that is asked: each group of
a job file has its own. Names of numbers that end in _bytes are in bytes, in _us
in microseconds; they count from the engine's start.";

const NETBENCH_IN_FULL: &str = "\
A line each second: messages and bytes that came to the server, and of that
second the time in which its one thread had nothing to do and was in the program
itself. Percentiles at the end. Both ends are here unless --listen or --connect
is given. An ADDRESS is HOST:PORT, or a path (with a slash) of a Unix socket.";

const RECOVER_IN_FULL: &str = "\
A line for each file that something is to be written to. A file is written only
where its path names the same file as when it was opened, nobody else has it
open, and nobody has changed it since the image was saved. All that is written
is synced; then the image can go.";

/// `forebay recover`.
#[derive(Args, Debug)]
pub(crate) struct RecoverArgs {
    /// The image, as the keeper's log names it; or the memory of a program that
    /// is stopped, as /proc/PID/fd/N.
    #[arg(value_name = "IMAGE")]
    pub(crate) image: PathBuf,
    /// Only tell what would be written.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// `forebay keeper`.
#[derive(Args, Debug)]
pub(crate) struct KeeperArgs {
    /// The descriptor by which it hears.
    #[arg(long, value_name = "FD")]
    pub(crate) channel: i32,
}

/// What a check of the lab does not know: said, rather than left out in silence.
const NOT_OF_A_CHECK: [&str; 22] = [
    "suite",
    "suite_file",
    "list",
    "quick",
    "seconds",
    "target",
    "allow_write_device",
    "scratch",
    "own_arms",
    "kept_arms",
    "cpus",
    "until",
    "resume",
    "max_writes",
    "part",
    "settings",
    "from",
    "html",
    "fio_json",
    "bundle",
    "batching",
    "profile",
];

/// `forebay compare`.
#[derive(Args, Debug)]
pub(crate) struct CompareArgs {
    /// A suite, `all`, or JOB.fio [default: quick ones].
    pub(crate) suite: Option<PathBuf>,
    /// The file of a suite of your own.
    #[arg(long = "suite", value_name = "FILE", conflicts_with = "suite")]
    pub(crate) suite_file: Option<PathBuf>,
    /// Tell which suites there are.
    #[arg(long)]
    pub(crate) list: bool,
    /// Where the files go.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Rounds; below 4 no verdict [default: 10, quick 5].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_ROUNDS)))]
    pub(crate) rounds: Option<u32>,
    /// Most time, in seconds [default: no limit].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub(crate) seconds: Option<u64>,
    /// Small files, even where a suite is named.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Share of full sizes and times, above 0 [default: 1, or the suite's].
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) scale: Option<f64>,
    /// A file or device to read, never written [see below].
    #[arg(long, value_name = "PATH")]
    pub(crate) target: Option<PathBuf>,
    /// Write over the target: what is on it is lost.
    #[arg(long)]
    pub(crate) allow_write_device: bool,
    /// Make a file system for each cell [see below].
    #[arg(long, value_name = "SPEC")]
    pub(crate) scratch: Option<String>,
    /// An arm of one's own, as often as needed [see below].
    #[arg(long = "arm", value_name = "NAME=ENGINE,..")]
    pub(crate) own_arms: Vec<String>,
    /// Of the suite's arms these alone, or `none`.
    #[arg(long = "arms", value_name = "NAME,..", value_delimiter = ',')]
    pub(crate) kept_arms: Option<Vec<String>>,
    /// Processors of the cells, as 0-3,6 [default: all].
    #[arg(long, value_name = "LIST")]
    pub(crate) cpus: Option<String>,
    /// Go on until every interval is narrower, as 2%.
    #[arg(long, value_name = "SHARE", value_parser = percent)]
    pub(crate) until: Option<f64>,
    /// Keep rounds there; go on with those that are.
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,
    /// Most bytes written in all, as 20g.
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) max_writes: Option<u64>,
    /// Of the suite this part alone.
    #[arg(long, value_name = "NAME")]
    pub(crate) part: Option<String>,
    /// A knob of the forebay arms, as often as needed.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,
    /// Write the result there, too, as JSON.
    #[arg(long, value_name = "PATH")]
    pub(crate) json: Option<PathBuf>,
    /// Repeat an earlier order and data [default: new].
    #[arg(long, value_name = "HEX")]
    pub(crate) seed: Option<String>,
    /// Do again what a bundle is of [its directory].
    #[arg(long, value_name = "DIR", conflicts_with_all = [
        "suite", "suite_file", "list", "part", "rounds", "seconds", "quick", "scale", "settings", "seed", "kept_arms",
    ])]
    pub(crate) from: Option<PathBuf>,
    /// Write a page with pictures there, too.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write each cell there as fio's JSON, too.
    #[arg(long, value_name = "DIR")]
    pub(crate) fio_json: Option<PathBuf>,
    /// Write all that another needs there, too.
    #[arg(long, value_name = "DIR")]
    pub(crate) bundle: Option<PathBuf>,
    /// Tell in the result what this machine is called.
    #[arg(long)]
    pub(crate) host_name: bool,
    /// Count in the kernel what it batches (root).
    #[arg(long)]
    pub(crate) batching: bool,
    /// Leave a profile of each cell there (perf).
    #[arg(long, value_name = "DIR")]
    pub(crate) profile: Option<PathBuf>,
    /// Print the tables as markdown.
    #[arg(long)]
    pub(crate) markdown: bool,
    /// Instead: is the load generator one with fio?
    #[arg(long, conflicts_with = "check_against_itself", conflicts_with_all = NOT_OF_A_CHECK)]
    pub(crate) check_against_fio: bool,
    /// Instead: are verdicts right where the answer is known?
    #[arg(long, conflicts_with_all = NOT_OF_A_CHECK)]
    pub(crate) check_against_itself: bool,
}

/// `forebay report`.
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// A result, or a bundle.
    pub(crate) result: PathBuf,
    /// Another, to set beside it.
    pub(crate) other: Option<PathBuf>,
    /// Write a page with pictures there, too.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write each cell there as fio's JSON, too.
    #[arg(long, value_name = "DIR")]
    pub(crate) fio_json: Option<PathBuf>,
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
    /// forebay, kernel (as the job says), null.
    #[arg(long, value_enum, default_value_t = Engine::Forebay, hide_possible_values = true)]
    pub(crate) engine: Engine,
    /// Where files with relative names go.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,
    /// A knob of forebay, as often as needed.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,
    /// Serve a control socket there while a group runs: see `forebay ctl`.
    #[arg(long, value_name = "SOCKET")]
    pub(crate) control: Option<PathBuf>,
    /// Write the result there, too, as JSON.
    #[arg(long, value_name = "PATH")]
    pub(crate) json: Option<PathBuf>,
    /// Repeat earlier offsets and data [default: new].
    #[arg(long, value_name = "HEX")]
    pub(crate) seed: Option<String>,
    /// Count in the kernel what it batches (root).
    #[arg(long)]
    pub(crate) batching: bool,
    /// Leave a profile of each group there (perf).
    #[arg(long, value_name = "DIR")]
    pub(crate) profile: Option<PathBuf>,
    /// Unknown options are warnings, not errors.
    #[arg(long)]
    pub(crate) lenient: bool,
    /// Let the job write to block devices.
    #[arg(long)]
    pub(crate) allow_write_device: bool,
    /// Have a keeper stand by forebay: what is written survives its death.
    #[arg(long)]
    pub(crate) survive: bool,
}

/// `forebay ctl`.
#[derive(Args, Debug)]
pub(crate) struct CtlArgs {
    /// The engine's control socket: that of `forebay run --control`, or of a
    /// program that serves one.
    #[arg(value_name = "SOCKET")]
    pub(crate) socket: PathBuf,
    #[command(subcommand)]
    pub(crate) ask: Ask,
}

/// What to ask it.
#[derive(Subcommand, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    /// What a knob stands at [default: all, with what they can be set to].
    Get {
        #[arg(value_name = "KEY")]
        name: Option<String>,
    },
    /// Change a knob.
    Set {
        #[arg(value_name = "KEY")]
        name: String,
        #[arg(value_name = "VALUE", allow_hyphen_values = true)]
        value: String,
    },
    /// One of its numbers [default: all].
    Stats {
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
}

/// `forebay doctor`.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// A file, a directory or a block device.
    #[arg(default_value = ".")]
    pub(crate) path: PathBuf,
    /// Print the findings as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `forebay walk`.
#[derive(Args, Debug)]
pub(crate) struct WalkArgs {
    /// The way: `request`, from a bio to its end; `page`, from a write to a clean page.
    #[arg(hide_possible_values = true)]
    pub(crate) way: Way,
    /// Where the file is for the time [default: that for temporary files].
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// `forebay netbench`.
#[derive(Args, Debug)]
pub(crate) struct NetbenchArgs {
    /// Connections.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub(crate) connections: u32,
    /// Messages on their way on each.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) in_flight: u32,
    /// Bytes of a message.
    #[arg(long, value_name = "BYTES", default_value_t = 9)]
    pub(crate) size: u32,
    /// All messages of a connection go when all are answered.
    #[arg(long)]
    pub(crate) together: bool,
    /// What the server works for a message, on average, in us; it varies.
    #[arg(long, value_name = "MICROS", default_value_t = 0)]
    pub(crate) work: u32,
    /// By what means the server asks the kernel: ring, epoll.
    #[arg(long, value_enum, default_value_t = ServerMeans::Ring, hide_possible_values = true)]
    pub(crate) server: ServerMeans,
    /// In which order it works off what came: fifo, lifo.
    #[arg(long, value_enum, default_value_t = ServerOrder::Fifo, hide_possible_values = true)]
    pub(crate) order: ServerOrder,
    /// Over a Unix socket in the directory for temporary files.
    #[arg(long, conflicts_with_all = ["listen", "connect"])]
    pub(crate) unix: bool,
    /// Only the server, there.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "connect")]
    pub(crate) listen: Option<String>,
    /// Only the client, of a server there.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["server", "order", "work"])]
    pub(crate) connect: Option<String>,
    /// How long [default: 5; a server alone: no end].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub(crate) seconds: Option<u64>,
    /// Repeat how the work varied [default: new].
    #[arg(long, value_name = "HEX")]
    pub(crate) seed: Option<String>,
}

/// By what means a server asks the kernel.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ServerMeans {
    Ring,
    Epoll,
}

/// In which order a server works off what came.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ServerOrder {
    Fifo,
    Lifo,
}

/// The ways there are.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Request,
    Page,
}

/// `forebay simulate`.
#[derive(Args, Debug)]
pub(crate) struct SimulateArgs {
    /// The model.
    pub(crate) name: String,
    /// Something of the model, as often as needed.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,
    /// What is at random in it.
    #[arg(long, value_name = "HEX", default_value = "1")]
    pub(crate) seed: String,
    /// Print all figures as JSON, instead of the tables.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Through what `run` does its I/O.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Engine {
    Forebay,
    Kernel,
    Null,
}

/// A share in percent, as `2%`.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    let percent: f64 =
        number.parse().map_err(|_| "not a share in percent, such as 2%".to_owned())?;
    if percent > 0.0 && percent <= 100.0 {
        return Ok(percent / 100.0);
    }
    Err("not between 0% and 100%, such as 2%".to_owned())
}

/// Bytes, as `20g`.
fn bytes(text: &str) -> Result<u64, String> {
    let Bytes(bytes) = text.to_lowercase().try_into()?;
    if bytes > 0 { Ok(bytes) } else { Err("nothing can be written in no bytes".to_owned()) }
}

/// A share of a whole.
fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "not a number, such as 0.1".to_owned())?;
    if share > 0.0 && share <= 1.0 {
        Ok(share)
    } else {
        Err("not between 0 and 1, such as 0.1".to_owned())
    }
}

/// What was typed, or what to show instead (help, version).
#[derive(Debug)]
pub(crate) enum Parsed {
    Typed(Box<Typed>),
    Show(String),
}

/// Parses a command line.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Parsed, Failure> {
    match Typed::try_parse_from(words) {
        Ok(typed) => Ok(Parsed::Typed(Box::new(typed))),
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
    fn help_is_no_wider_than_a_terminal() {
        for words in [
            &["--help"][..],
            &["run", "--help"],
            &["compare", "--help"],
            &["report", "--help"],
            &["ctl", "--help"],
            &["doctor", "--help"],
        ] {
            let Ok(Parsed::Show(text)) = parse(["forebay"].iter().chain(words).map(Into::into))
            else {
                panic!("{words:?}")
            };
            assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        }
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
