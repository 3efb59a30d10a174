//! The arguments of `forebay recover`.

use std::path::PathBuf;

use clap::Args;

/// `forebay recover`.
#[derive(Args, Debug)]
pub(crate) struct RecoverArgs {
    /// Directory with an intent log, or image named in the keeper's log, or /proc/PID/fd/N of a
    /// stopped program
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Print what would be written, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Save bytes of an intent log that may not be put into their file in DIR [the log keeps them]
    #[arg(long, value_name = "DIR", conflicts_with = "dry_run")]
    pub(crate) save: Option<PathBuf>,
}
