//! The ends of the help of each subcommand: examples, reference, exit codes.

use forebay_lab::text::folded_to;

pub(super) const MORE: &str = "All options, with examples and exit codes: --help.";

pub(super) const TOP_IN_FULL: &str = "\
Examples:
  forebay doctor /data              what limits Forebay there, and the remedy
  forebay compare --dir /data       a comparison of two minutes
  forebay report --last             the last comparison in full
  forebay run job.fio               a fio job file through Forebay

Exit codes:
  0    success
  1    failure: an I/O error, a failed arm, or results that disagree
  2    invalid arguments, or not possible here (too little space, unsupported)
  130  interrupted by a signal; nothing is left behind
`forebay doctor` uses 0 full strength, 1 degraded, 2 does not work or
invalid arguments.";

pub(super) const COMPARE_IN_FULL: &str = "\
Examples:
  forebay compare                         a summary, two minutes, at most 6 GiB
  forebay compare --dir /data             the same on another disk
  forebay compare layout --rounds 20      one suite, in more rounds
  forebay compare plug --target /dev/sdX  read an unmounted device
  forebay compare --as-published plug     a kernel thread's table, ours beside
  forebay compare layout --arm small=forebay,cache_bytes=32m
  forebay compare layout --scratch xfs,size=16g,agcount=16
  forebay compare job.fio --bundle out    a fio job file, with all results

Suites:
  layout      random 4 KiB writes into 12 new files, until synced
  plug        cost and gain of batching requests, by device and depth
  completion  six jobs by the policy of ending completions; an hour in full
  writeback   gain of writing back from several contexts, and its causes
  programs    small programs: puts, logs, commits, copies, against std::fs
  files       many files that become durable together, alone and beside dd
  all         every suite; FILE.toml, JOB.fio: your own
Without a suite: a short form of the first three, with a summary. Every round
runs every arm once in random order; ratios are paired by round.
--as-published completion, plug or writeback runs the experiment of a thread of
the kernel lists, five minutes at most, and prints our figures beside its own.

Arms (--arm NAME=ENGINE,KEY=VALUE,...):
  engines: kernel-buffered, kernel-cgroup, kernel-bounded, kernel-direct,
  forebay, fio, ...
  keys: engine knobs; batch; sysctl.vm.dirty_bytes=64000000 and
  queue.scheduler=none (root), restored after each run. --arms none drops the
  suite's arms; the first --arm is then the base.

Scratch (--scratch SPEC): makes a file system for each run on a loop device in
--dir and removes it afterwards (root). xfs, ext4 or btrfs, with keys: size,
agcount, inode32, data=journal, keep (one for all runs), sparse (do not write
the image first), memory (keep the image in memory; zeroes and the jobs' data
take none, so 720 GiB fit),
device=/dev/NAME (erases the device; needs --allow-write-device).

Disks (--disk NAME, or keys of --scratch): imitates below that file system what
a disk charges, also for reads: iops=3000 (requests/s of at most 256 KiB),
rate=125m (bytes/s), flush=1ms. volume is these three, consumer flush=2ms, and
fast nothing. Without --scratch the file system is ext4,size=4g,keep.

Check of the lab: --check-against-itself takes two minutes. It accepts --scale
and --rounds.

Exit codes: 0 success, 1 failure (also a failed arm, or a failed check), 2
invalid arguments or not possible here, 130 interrupted. All files are in a
directory of their own that is removed at the end, also after Ctrl-C.";

pub(super) const DOCTOR_IN_FULL: &str = "\
Nothing is changed. Trials use an unnamed file in the directory, or beside the
file, and write up to 64 MiB to it in three seconds; a block device is only
read. Root sees more, but is not needed.

Examples:
  forebay doctor                    this directory
  forebay doctor /dev/nvme0n1 -v    a device, with every passed check

Exit codes: 0 full strength, 1 degraded, 2 does not work or invalid arguments.";

/// Ends the help of `run`, with the table of knobs.
pub(super) fn run_in_full() -> String {
    format!(
        "Every clock stops after the final sync. Files stay where the job puts them, unless it\n\
         says unlink=1. A mounted device is never written.\n\n\
         Examples:\n  \
         forebay run job.fio --dir /data --set cache_bytes=64m\n  \
         forebay run job.fio --engine kernel --json kernel.json\n\n\
         Knobs (--set KEY=VALUE) [default]:\n{}\n\
         Exit codes: 0 success, 1 failure, 2 invalid arguments or job file, 130 interrupted.",
        knobs()
    )
}

/// Ends the help of `ctl`, with the same table.
pub(super) fn ctl_in_full() -> String {
    format!(
        "A new value applies to this engine from then on. Counters count from the start of the\n\
         engine; names in _bytes are bytes, names in _us microseconds.\n\n\
         Examples:\n  \
         forebay ctl /run/app.ctl get\n  \
         forebay ctl /run/app.ctl set dirty_bytes 64m\n  \
         forebay ctl /run/app.ctl stats doorbells\n\n\
         Knobs:\n{}\n\
         Exit codes: 0 success, 1 no answer, 2 invalid arguments.",
        knobs()
    )
}

/// Each knob: its name and meaning, its values, its default.
fn knobs() -> String {
    let indented = |text: &str| folded_to(58, text).join(&format!("\n{:<20}", ""));
    let line = |knob: forebay::Knob| {
        let (help, values) = (indented(&knob.help), indented(&format!("Values: {}", knob.choices)));
        let default = indented(&format!("[default: {}]", knob.default));
        format!("  {:<17} {help}\n{:<20}{values}\n{:<20}{default}\n", knob.name, "", "")
    };
    forebay::Options::default().knobs().into_iter().map(line).collect()
}

pub(super) const REPORT_IN_FULL: &str = "\
A result is a file of --json or a directory of --bundle. Two results are
compared where they ran the same arms on the same work in the same sizes. Their
ratios are not paired by round: only arms of one comparison are.

Examples:
  forebay report --last                 the last comparison on this machine
  forebay report --last --html out.html
  forebay report before.json after.json";

pub(super) const RECOVER_IN_FULL: &str = "\
Prints a line for each file. A file is written only if it is the same file as
before the crash, no other program has it open, and nobody has changed it since.
Everything written is synced.

Of a directory, the intent log is recovered: until that has succeeded, no program
may open the files below the directory. Bytes that may not be put into their file
stay in the log, or are saved with --save. After an image, the image can be
deleted.

Examples:
  forebay recover --dry-run /srv/store
  forebay recover --save /root/rescued /srv/store
  forebay recover /var/lib/app/forebay-4711-1764374400000.image

Exit codes: 0 success, 1 a file was not written, 2 no log and not an image.";

pub(super) const COMPLETIONS_IN_FULL: &str = "\
Examples:
  forebay completions bash > ~/.local/share/bash-completion/completions/forebay
  forebay completions fish > ~/.config/fish/completions/forebay.fish
  forebay completions zsh > ~/.zfunc/_forebay";
