//! The command lines of `forebay mount` and `forebay unmount`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// `forebay mount`.
#[derive(Args, Debug)]
pub(crate) struct MountArgs {
    /// Directory whose files are used
    #[arg(value_name = "SOURCE")]
    pub(crate) source: PathBuf,
    /// Empty directory where they appear
    #[arg(value_name = "MOUNTPOINT")]
    pub(crate) mount_point: PathBuf,
    /// Return once it is mounted, and go on in the background
    #[arg(long)]
    pub(crate) background: bool,
    /// Append messages to FILE [default: standard error; in the background a file that is printed]
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Run without a keeper: kill -9 of this process loses written data
    #[arg(long)]
    pub(crate) no_survive: bool,
    /// Make small syncs durable in an intent log in SOURCE [WHEN: price]
    ///
    /// After a crash nobody may use SOURCE before it is mounted again. `price` uses the log if a
    /// flush of the disk is slow, `always` on any disk, for tests.
    #[arg(long, value_name = "WHEN", conflicts_with = "plain")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "price")]
    #[arg(hide_short_help = true)]
    pub(crate) intent_log: Option<LogWhen>,
    /// Let other users in, with the permissions of the files [default: as root]
    #[arg(long)]
    pub(crate) allow_other: bool,
    /// Let set-user-ID programs and file capabilities have their effect (root alone)
    #[arg(long)]
    pub(crate) allow_suid: bool,
    /// Let device nodes be opened (root alone)
    #[arg(long)]
    pub(crate) allow_dev: bool,
    /// Take requests over io_uring, if the kernel offers it
    ///
    /// It does from Linux 6.14 on, if the parameter enable_uring of its module fuse is Y.
    #[arg(long)]
    pub(crate) rings: bool,
    /// Set a knob of Forebay (repeatable; see `forebay run --help`)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,
    /// Serve a control socket at SOCKET for `forebay ctl`
    #[arg(long, value_name = "SOCKET")]
    pub(crate) control: Option<PathBuf>,
    /// Read and write by plain system calls, to compare with
    #[arg(long, conflicts_with_all = ["settings", "control", "no_survive"])]
    pub(crate) plain: bool,
}

/// When a mount uses its intent log.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogWhen {
    Price,
    Always,
}

/// `forebay unmount`.
#[derive(Args, Debug)]
pub(crate) struct UnmountArgs {
    /// Directory where a source is mounted
    #[arg(value_name = "MOUNTPOINT")]
    pub(crate) mount_point: PathBuf,
}

/// Ends the help of `mount`.
pub(super) const MOUNT_IN_FULL: &str = "\
File data goes through Forebay in a fixed amount of memory. Names, attributes
and directories are those of SOURCE. Its files stay ordinary files.

fsync makes a file durable, as on SOURCE. sync and syncfs do not reach a file
system of a process: use fsync, or end the mount. Changes of SOURCE by other
programs are seen within a second. A keeper finishes the writing if this
process is killed: mount again to go on.

Examples:
  forebay mount /srv/data /mnt/data --background
  forebay mount /srv/data /mnt/data --set cache_bytes=256m
  forebay unmount /mnt/data

Exit codes: 0 unmounted with everything written, or in the background;
1 failure; 2 invalid arguments or not possible here.";

/// Ends the help of `unmount`.
pub(super) const UNMOUNT_IN_FULL: &str = "\
Makes everything durable that was written, unmounts, and waits for the end of
the process that serves the mount.

Exit codes: 0 success; 1 failure, such as data that could not be written; 2 not
a mount of forebay, or in use.";
