//! A profile of one cell: `perf record` beside its process, and its samples as folded stacks.
//!
//! perf is attached before the cell begins and says when it is: the cell's process waits for its
//! specification until then. It samples that process and its threads, not the kernel's own threads.
//! It ends with the process; should this one die first, the cell dies with it and perf then, too.
//!
//! `NAME.data` is perf's own, for `perf report -i`; `NAME.folded` has a line for each stack,
//! outermost first, with its number of samples, as flame graphs need them.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};

use crate::file_name::plain;

const PROGRAM: &str = "perf";

/// Samples a second of each thread that runs: few, so that being looked at costs little.
const SAMPLES_A_SECOND: &str = "97";

/// perf says within this that it is attached.
const ATTACHED_WITHIN: Duration = Duration::from_secs(20);

/// Where a profile goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Profile {
    pub directory: PathBuf,
    /// How its files begin.
    pub name: String,
}

/// perf, while it records.
#[derive(Debug)]
pub(crate) struct Recording {
    perf: Child,
    data: PathBuf,
    folded: PathBuf,
}

/// Whether there is a perf here; what to do if not.
pub fn check() -> Result<(), String> {
    let tried =
        Command::new(PROGRAM).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match tried {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{PROGRAM} --version: {status} (install one for this kernel)")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err("perf is not installed (apt install linux-perf)".to_owned())
        }
        Err(error) => Err(format!("{PROGRAM}: {error}")),
    }
}

impl Profile {
    /// A name of letters, digits, dots, dashes and underscores alone.
    pub fn new(directory: PathBuf, name: &str) -> Self {
        Self { directory, name: plain(name, "._-") }
    }

    /// Begins to record a process. Blocks until it is.
    pub(crate) fn attach(&self, process: Pid) -> Result<Recording, String> {
        self.try_to_attach(process).map_err(|error| format!("profile: {error}"))
    }

    fn try_to_attach(&self, process: Pid) -> io::Result<Recording> {
        let data = self.directory.join(format!("{}.data", self.name));
        let folded = self.directory.join(format!("{}.folded", self.name));
        let pipes = tempfile::tempdir()?;
        let (ask, answer) = (pipes.path().join("ask"), pipes.path().join("answer"));
        let (mut asking, mut answering) = (fifo(&ask)?, fifo(&answer)?);
        let process = process.as_raw_nonzero().to_string();
        let control = format!("fifo:{},{}", ask.display(), answer.display());
        let mut perf = Command::new(PROGRAM)
            .args([
                "record",
                "--quiet",
                "--call-graph",
                "fp",
                "--delay",
                "-1",
                "--freq",
                SAMPLES_A_SECOND,
            ])
            .args(["--control", &control, "--pid", &process, "--output"])
            .arg(&data)
            // Ctrl-C ends the cell, and perf by that.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        asking.write_all(b"enable\n")?;
        match wait_for_answer(&mut answering, &mut perf) {
            Ok(()) => Ok(Recording { perf, data, folded }),
            Err(error) => {
                let _ = perf.kill();
                let _ = perf.wait();
                Err(error)
            }
        }
    }
}

/// A pipe with a name, open at both of its ends so that nobody waits for the other.
fn fifo(path: &Path) -> io::Result<File> {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)
}

fn wait_for_answer(answer: &mut File, perf: &mut Child) -> io::Result<()> {
    let until = Instant::now() + ATTACHED_WITHIN;
    let mut said = [0; 64];
    loop {
        match answer.read(&mut said) {
            Ok(bytes) if bytes > 0 => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if perf.try_wait()?.is_some() {
            let mut why = String::new();
            if let Some(errors) = &mut perf.stderr {
                let _ = errors.read_to_string(&mut why);
            }
            return Err(io::Error::other(format!("{PROGRAM} ended: {}", last_line(&why))));
        }
        if Instant::now() >= until {
            return Err(io::Error::other(format!("{PROGRAM} does not say that it is attached")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Recording {
    /// Waits for perf after the cell has ended, and folds what it found.
    pub(crate) fn end(mut self) -> Result<(), String> {
        let failed = |error: io::Error| format!("profile: {error}");
        self.stop().map_err(failed)?;
        let script = Command::new(PROGRAM)
            .args(["script", "--fields", "comm,ip,sym", "--input"])
            .arg(&self.data)
            .stdin(Stdio::null())
            .output()
            .map_err(failed)?;
        if !script.status.success() {
            let why = String::from_utf8_lossy(&script.stderr);
            return Err(format!("profile: {PROGRAM} script: {}", last_line(&why)));
        }
        fs::write(&self.folded, fold(&String::from_utf8_lossy(&script.stdout))).map_err(failed)
    }

    fn stop(&mut self) -> io::Result<()> {
        if self.perf.try_wait()?.is_none() {
            // Not waited for, so the number is still perf's.
            let _ = kill_process(Pid::from_child(&self.perf), Signal::INT);
            self.perf.wait()?;
        }
        Ok(())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

fn last_line(text: &str) -> &str {
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it says nothing").trim()
}

/// From samples as `perf script` prints them (a task's name, then its frames from the inside out,
/// then an empty line) to a line for each stack from the outside in, with how often it was there.
fn fold(samples: &str) -> String {
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    for sample in samples.split("\n\n") {
        let mut lines = sample.lines().map(str::trim).filter(|line| !line.is_empty());
        let Some(task) = lines.next() else { continue };
        let frames: Vec<&str> =
            lines.filter_map(|line| line.split_once(' ')).map(|(_, name)| name).collect();
        let mut stack = task.replace([';', ' '], "_");
        for frame in frames.iter().rev() {
            stack.push(';');
            stack.push_str(&frame.replace(';', ":"));
        }
        *stacks.entry(stack).or_default() += 1;
    }
    stacks.iter().map(|(stack, seen)| format!("{stack} {seen}\n")).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAMPLES: &str = "\
forebay 
\tffffffff8110 clear_page
\tffffffff8120 do_writepages
\t    55d0 forebay::main

ring 2 
\tffffffff8110 clear_page

forebay 
\tffffffff8110 clear_page
\tffffffff8120 do_writepages
\t    55d0 forebay::main

";

    #[test]
    fn stacks_are_folded_from_the_outside_in() {
        let folded = fold(SAMPLES);
        assert_eq!(
            folded,
            "forebay;forebay::main;do_writepages;clear_page 2\nring_2;clear_page 1\n"
        );
        assert_eq!(fold(""), "");
    }

    #[test]
    fn names_of_files_are_plain() {
        assert_eq!(Profile::new(".".into(), "job 1/a-b.2").name, "job_1_a-b.2");
    }

    #[test]
    fn a_process_is_recorded_until_it_ends() {
        if let Err(reason) = check() {
            eprintln!("skipped: {reason}");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let profile = Profile::new(directory.path().to_owned(), "busy");
        let recording = profile.attach(Pid::from_child(&busy));
        std::thread::sleep(Duration::from_millis(500));
        busy.kill().unwrap();
        busy.wait().unwrap();
        let recording = match recording {
            Ok(recording) => recording,
            Err(reason) => {
                eprintln!("skipped: {reason}");
                return;
            }
        };
        recording.end().unwrap();
        let folded = fs::read_to_string(directory.path().join("busy.folded")).unwrap();
        assert!(folded.lines().any(|line| line.starts_with("sh")), "{folded}");
        assert!(directory.path().join("busy.data").exists());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "([a-z0-9; \t]{0,12}\n?){0,20}") {
            let folded = fold(&text);
            prop_assert!(folded.lines().all(|line| line.rsplit(' ').next().is_some_and(|count| count.parse::<u64>().is_ok())));
        }
    }
}
