//! The command line as it was typed. Nothing here looks at the machine; [`crate::meaning`] checks
//! what it means.
//!
//! `-h` shows the options that people use most, `--help` all of them, in groups and with examples.
//! Both are made from the same table: an option with `hide_short_help` appears in the long form
//! only.

mod help;
mod mount_args;
mod parse;
mod recover_args;
mod values;

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

use crate::build::version;
use help::{
    COMPARE_IN_FULL, COMPLETIONS_IN_FULL, DOCTOR_IN_FULL, MORE, RECOVER_IN_FULL, REPORT_IN_FULL,
    TOP_IN_FULL, ctl_in_full, run_in_full,
};
pub(crate) use mount_args::{LogWhen, MountArgs, UnmountArgs};
use mount_args::{MOUNT_IN_FULL, UNMOUNT_IN_FULL};
pub(crate) use parse::{Parsed, command, parse};
pub(crate) use recover_args::RecoverArgs;
use values::{bytes, disk, rounds, seconds, share};

/// Buffered file I/O from user space: compare it with the kernel, and run jobs
#[derive(Parser, Debug)]
#[command(
    name = "forebay",
    version = version(),
    max_term_width = 80,
    disable_help_subcommand = true,
    disable_help_flag = true,
    after_help = "Start with `forebay doctor` and `forebay compare`. More: `forebay --help`.",
    after_long_help = TOP_IN_FULL
)]
pub(crate) struct Typed {
    #[command(subcommand)]
    pub(crate) verb: Verb,
    /// Print help (--help: in full, with examples)
    #[arg(short, long, global = true, display_order = 99, action = ArgAction::HelpShort)]
    help: Option<bool>,
}

/// The subcommands.
#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Compare Forebay with the kernel's own ways on this machine
    #[command(after_help = MORE, after_long_help = COMPARE_IN_FULL)]
    Compare(Box<CompareArgs>),
    /// Report what limits Forebay on this machine, and the remedies
    #[command(after_long_help = DOCTOR_IN_FULL)]
    Doctor(DoctorArgs),
    /// Show a saved result, or two side by side
    #[command(after_long_help = REPORT_IN_FULL)]
    Report(ReportArgs),
    /// Run a fio job file through Forebay or the kernel
    #[command(after_long_help = run_in_full())]
    Run(RunArgs),
    /// Use a directory through Forebay, for programs that cannot be changed
    #[command(after_long_help = MOUNT_IN_FULL)]
    Mount(MountArgs),
    /// End a mount, with everything written
    #[command(after_long_help = UNMOUNT_IN_FULL)]
    Unmount(UnmountArgs),
    /// Read and set the knobs of a running engine, and read its counters
    #[command(after_long_help = ctl_in_full())]
    Ctl(CtlArgs),
    /// Write data that is not in its files after a crash: of an intent log, or saved by a keeper
    #[command(after_long_help = RECOVER_IN_FULL)]
    Recover(RecoverArgs),
    /// Show a few requests or pages step by step
    Walk(WalkArgs),
    /// Print a completion script for a shell
    #[command(after_long_help = COMPLETIONS_IN_FULL)]
    Completions(CompletionsArgs),
    /// Write the manual pages to a directory
    Man(ManArgs),
    /// Run as the keeper of a program (started by the library, not by hand)
    #[command(hide = true)]
    Keeper(KeeperArgs),
}

/// `forebay completions`.
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// bash, elvish, fish, powershell or zsh
    #[arg(value_name = "SHELL", hide_possible_values = true)]
    pub(crate) shell: clap_complete::Shell,
}

/// `forebay man`.
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Existing directory for forebay.1, forebay-compare.1 and the others
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

/// `forebay keeper`.
#[derive(Args, Debug)]
pub(crate) struct KeeperArgs {
    /// Descriptor of the channel to the program
    #[arg(long, value_name = "FD")]
    pub(crate) channel: i32,
}

/// Options that the check of the lab does not take.
const NOT_OF_A_CHECK: [&str; 23] = [
    "suite",
    "as_published",
    "list",
    "quick",
    "seconds",
    "target",
    "allow_write_device",
    "disk",
    "scratch",
    "own_arms",
    "kept_arms",
    "jobs",
    "cell_bytes",
    "cpus",
    "resume",
    "max_writes",
    "part",
    "settings",
    "from",
    "html",
    "bundle",
    "batching",
    "verbose",
];

const WORK: &str = "Work";
const LENGTH: &str = "Length";
const PLACE: &str = "Place";
const OUTPUT: &str = "Output";
const KERNEL: &str = "Kernel counters";
const CHECKS: &str = "Check of the lab, instead of a comparison";

/// `forebay compare`.
#[derive(Args, Debug)]
pub(crate) struct CompareArgs {
    /// Suite, `all`, FILE.toml or JOB.fio [default: a summary of three]
    pub(crate) suite: Option<PathBuf>,
    /// List the suites and exit
    #[arg(long, help_heading = WORK)]
    pub(crate) list: bool,
    /// Run a kernel thread's experiment (see below)
    #[arg(long, value_name = "NAME", value_parser = ["completion", "plug", "writeback"])]
    #[arg(help_heading = WORK, hide_possible_values = true, hide_short_help = true)]
    #[arg(conflicts_with_all = ["suite", "list"])]
    pub(crate) as_published: Option<String>,
    /// Run only this part of the suite
    #[arg(long, value_name = "NAME", help_heading = WORK, conflicts_with = "as_published")]
    pub(crate) part: Option<String>,
    /// Keep only these arms of the suite, or `none`
    #[arg(long = "arms", value_name = "NAME,..", value_delimiter = ',', help_heading = WORK)]
    pub(crate) kept_arms: Option<Vec<String>>,
    /// Keep only these jobs of the suite
    #[arg(
        long,
        value_name = "NAME,..",
        value_delimiter = ',',
        help_heading = WORK,
        hide_short_help = true
    )]
    pub(crate) jobs: Option<Vec<String>>,
    /// Set a knob of the Forebay arms (repeatable)
    #[arg(long = "set", value_name = "KEY=VALUE", help_heading = WORK)]
    pub(crate) settings: Vec<String>,
    /// Add an arm (repeatable; see Arms below)
    #[arg(long = "arm", value_name = "SPEC", help_heading = WORK, hide_short_help = true)]
    pub(crate) own_arms: Vec<String>,
    /// Repeat the run recorded in a bundle
    #[arg(long, value_name = "DIR", help_heading = WORK, hide_short_help = true, conflicts_with_all = [
        "suite", "as_published", "list", "part", "rounds", "seconds", "quick", "scale", "settings",
        "seed", "kept_arms", "jobs", "cell_bytes",
    ])]
    pub(crate) from: Option<PathBuf>,
    /// Repeat the order and data of an earlier run
    #[arg(long, value_name = "HEX", help_heading = WORK, hide_short_help = true)]
    pub(crate) seed: Option<String>,

    /// Run N rounds [default: 10, short form 5]
    #[arg(long, value_name = "N", value_parser = rounds, help_heading = LENGTH)]
    pub(crate) rounds: Option<u32>,
    /// Stop after N seconds [default: no limit]
    #[arg(long, value_name = "N", value_parser = seconds, help_heading = LENGTH)]
    pub(crate) seconds: Option<u64>,
    /// Run the quick form of the suite, on small files
    #[arg(long, help_heading = LENGTH, conflicts_with = "as_published")]
    pub(crate) quick: bool,
    /// Scale sizes and times [default: 1, or the suite's]
    #[arg(long, value_name = "SHARE", value_parser = share, help_heading = LENGTH)]
    pub(crate) scale: Option<f64>,
    /// Write SIZE bytes in each run of `writeback`, as 2g
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = bytes,
        help_heading = LENGTH,
        hide_short_help = true
    )]
    pub(crate) cell_bytes: Option<u64>,
    /// Write at most SIZE bytes in all, as 20g
    #[arg(long, value_name = "SIZE", value_parser = bytes, help_heading = LENGTH, hide_short_help = true)]
    pub(crate) max_writes: Option<u64>,
    /// Save finished rounds to FILE and continue from it
    #[arg(long, value_name = "FILE", help_heading = LENGTH, hide_short_help = true)]
    pub(crate) resume: Option<PathBuf>,

    /// Put the files in DIR
    #[arg(long, value_name = "DIR", default_value = ".", help_heading = PLACE)]
    pub(crate) dir: PathBuf,
    /// Read this file or device instead of a new file
    #[arg(long, value_name = "PATH", help_heading = PLACE, hide_short_help = true)]
    pub(crate) target: Option<PathBuf>,
    /// Run on these processors, as 0-3,6 [default: all]
    #[arg(long, value_name = "LIST", help_heading = PLACE)]
    pub(crate) cpus: Option<String>,
    /// Imitate a disk below: volume, consumer or fast (root)
    #[arg(
        long,
        value_name = "NAME",
        value_parser = disk(),
        hide_possible_values = true,
        help_heading = PLACE
    )]
    pub(crate) disk: Option<String>,
    /// Make a file system for each run (see below)
    #[arg(long, value_name = "SPEC", help_heading = PLACE, hide_short_help = true)]
    pub(crate) scratch: Option<String>,
    /// Erase --target or the device of --scratch
    #[arg(long, help_heading = PLACE, hide_short_help = true)]
    pub(crate) allow_write_device: bool,

    /// Save the result as JSON to PATH
    #[arg(long, value_name = "PATH", help_heading = OUTPUT)]
    pub(crate) json: Option<PathBuf>,
    /// Save a page with charts to FILE
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub(crate) html: Option<PathBuf>,
    /// Print the full tables and a line for each run
    #[arg(short, long, help_heading = OUTPUT)]
    pub(crate) verbose: bool,
    /// Save everything that another person needs to DIR
    #[arg(long, value_name = "DIR", help_heading = OUTPUT, hide_short_help = true)]
    pub(crate) bundle: Option<PathBuf>,
    /// Count how the kernel batches requests (root)
    #[arg(long, help_heading = KERNEL, hide_short_help = true)]
    pub(crate) batching: bool,

    /// Check the verdicts on known differences and exit
    #[arg(long, help_heading = CHECKS, hide_short_help = true, conflicts_with_all = NOT_OF_A_CHECK)]
    pub(crate) check_against_itself: bool,
}

/// `forebay report`.
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// File of --json, or directory of --bundle
    #[arg(required_unless_present = "last")]
    pub(crate) result: Option<PathBuf>,
    /// Second result, to compare with the first
    pub(crate) other: Option<PathBuf>,
    /// Show the last comparison that this user ran
    #[arg(long, conflicts_with = "result")]
    pub(crate) last: bool,
    /// Save a page with charts to FILE
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub(crate) html: Option<PathBuf>,
}

/// `forebay run`.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// fio job file
    #[arg(value_name = "JOB.fio")]
    pub(crate) job: PathBuf,
    /// Run through forebay, kernel (as the job says) or null
    #[arg(long, value_enum, default_value_t = Engine::Forebay, hide_possible_values = true, help_heading = WORK)]
    pub(crate) engine: Engine,
    /// Set a knob of Forebay (repeatable; see Knobs below)
    #[arg(long = "set", value_name = "KEY=VALUE", help_heading = WORK)]
    pub(crate) settings: Vec<String>,
    /// Run a keeper, so that written data survives kill -9
    #[arg(long, help_heading = WORK)]
    pub(crate) survive: bool,
    /// Warn about unknown options instead of failing
    #[arg(long, help_heading = WORK)]
    pub(crate) lenient: bool,
    /// Repeat the offsets and data of an earlier run [default: new]
    #[arg(long, value_name = "HEX", help_heading = WORK, hide_short_help = true)]
    pub(crate) seed: Option<String>,
    /// Put files with relative names in DIR
    #[arg(long, value_name = "DIR", default_value = ".", help_heading = PLACE)]
    pub(crate) dir: PathBuf,
    /// Let the job write to block devices
    #[arg(long, help_heading = PLACE)]
    pub(crate) allow_write_device: bool,
    /// Save the result as JSON to PATH
    #[arg(long, value_name = "PATH", help_heading = OUTPUT)]
    pub(crate) json: Option<PathBuf>,
    /// Serve a control socket at SOCKET for `forebay ctl`
    #[arg(long, value_name = "SOCKET", help_heading = OUTPUT, hide_short_help = true)]
    pub(crate) control: Option<PathBuf>,
    /// Count how the kernel batches requests (root)
    #[arg(long, help_heading = KERNEL, hide_short_help = true)]
    pub(crate) batching: bool,
}

/// `forebay ctl`.
#[derive(Args, Debug)]
pub(crate) struct CtlArgs {
    /// Control socket of `forebay run --control` or of a program
    #[arg(value_name = "SOCKET")]
    pub(crate) socket: PathBuf,
    #[command(subcommand)]
    pub(crate) ask: Ask,
}

/// A question to a running engine.
#[derive(Subcommand, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    /// Print the value of a knob [default: all knobs and their choices]
    Get {
        /// Name of the knob
        #[arg(value_name = "KEY")]
        name: Option<String>,
    },
    /// Set a knob
    Set {
        /// Name of the knob
        #[arg(value_name = "KEY")]
        name: String,
        /// New value
        #[arg(value_name = "VALUE", allow_hyphen_values = true)]
        value: String,
    },
    /// Print a counter [default: all counters]
    Stats {
        /// Name of the counter
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
}

/// `forebay doctor`.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// File, directory or block device
    #[arg(default_value = ".")]
    pub(crate) path: PathBuf,
    /// Print every passed check as well
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `forebay walk`.
#[derive(Args, Debug)]
pub(crate) struct WalkArgs {
    /// `request`: from a bio to its end; `page`: from a write to a clean page
    #[arg(hide_possible_values = true)]
    pub(crate) way: Way,
    /// Put the file in DIR [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// The subject of `walk`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Request,
    Page,
}

/// The engine of `run`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Engine {
    Forebay,
    Kernel,
    Null,
}
