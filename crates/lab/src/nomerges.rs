//! Keeps the kernel from merging requests of one device while a cell runs, and puts back what was
//! set, whatever happens to whoever wanted it.
//!
//! `queue/nomerges` of a device belongs to the whole machine, so leaving it changed would be worse
//! than any figure is worth. A guard in this process would not do: nothing runs in a process that
//! is killed. So a process of its own holds it ([`holder_main`]): it reads what is set, sets 2,
//! says so, and waits for the end of its standard input. That comes when [`Held`] is dropped, in a
//! panic too, and when this process dies, by SIGKILL too; then it writes back what it read. It is
//! in a group of its own and does not die of the signals that end a comparison.
//!
//! ```text
//! this process            holder
//!   spawn  ------------->  lock, read old, write 2
//!          <---- "held" -
//!   ... cell ...
//!   end of input -------->  write old, unlock, exit
//! ```
//!
//! Of two holders at once the second would read the first one's 2 and leave it behind. So a holder
//! has the file locked from before it reads until after it has written back, and one that finds it
//! locked refuses.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::fs::{FlockOperation, flock};

use crate::child::HOLD_ARGUMENT;
use crate::manifest::mount;

/// What means "do not even look for something to merge with".
const NO_MERGES: &str = "2";

/// What the holder says when it is done.
const SAID: &str = "held\n";

/// As long as it lives the kernel merges nothing on the device; dropping it waits until all is as
/// it was.
#[derive(Debug)]
pub struct Held {
    holder: Child,
    file: PathBuf,
}

/// Has merging off on the device that `place` is or lies on, by a child of `program`. Or says why
/// that cannot be.
pub fn hold(program: &Path, place: &Path) -> Result<Held, String> {
    hold_file(program, file_of(place)?)
}

/// The `nomerges` of the queue below a directory, a file or a device.
pub(crate) fn file_of(place: &Path) -> Result<PathBuf, String> {
    let queue = mount::queue_directory_of(place);
    let queue =
        queue.ok_or("the file is on no block device of its own (use --dir or --target on one)")?;
    Ok(queue.join("nomerges"))
}

/// The same for the `nomerges` of one queue.
pub fn hold_file(program: &Path, file: PathBuf) -> Result<Held, String> {
    let mut command = Command::new(program);
    command.arg(HOLD_ARGUMENT).arg(&file).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let holder = command.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
    let mut held = Held { holder, file };
    let mut said = [0; SAID.len()];
    let output = held.holder.stdout.as_mut().expect("standard output is a pipe");
    if output.read_exact(&mut said).is_ok() && said == SAID.as_bytes() {
        return Ok(held);
    }
    let mut why = String::new();
    // Taken: what was never held need not be given back, and dropping it says nothing.
    if let Some(mut errors) = held.holder.stderr.take() {
        let _ = errors.read_to_string(&mut why);
    }
    Err(why.trim().to_owned())
}

impl Drop for Held {
    fn drop(&mut self) {
        // The end of its input is the word.
        drop(self.holder.stdin.take());
        let restored = self.holder.wait().is_ok_and(|status| status.success());
        if !restored && self.holder.stderr.is_some() {
            let path = self.file.display();
            // Not `eprintln!`: it panics where nobody reads, and this may run in a panic.
            let _ = writeln!(
                io::stderr(),
                "forebay: {path} may not be as it was (look at it, write 0 to it)"
            );
        }
    }
}

/// What the program does when its first argument is [`HOLD_ARGUMENT`] and the second a file.
#[must_use]
pub fn holder_main(file: Option<OsString>) -> ExitCode {
    let outcome = match file.map(PathBuf::from) {
        Some(file) => be_holder(&file).map_err(|error| {
            let remedy = match error.kind() {
                io::ErrorKind::WouldBlock => "another comparison holds it: wait for its end",
                _ => "it needs root: use sudo",
            };
            format!("{}: {error} ({remedy}, or leave the arm out)", file.display())
        }),
        None => Err("no file to hold".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = writeln!(io::stderr(), "{why}");
            ExitCode::FAILURE
        }
    }
}

fn be_holder(file: &Path) -> io::Result<()> {
    if file.file_name().is_none_or(|name| name != "nomerges") {
        return Err(io::Error::other("not the nomerges of a queue"));
    }
    // They no longer end this process; nobody looks at the flag.
    let ignored = Arc::new(AtomicBool::new(false));
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
        signal_hook::flag::register(signal, Arc::clone(&ignored))?;
    }
    // Given back when it is closed, which is when this process ends, however it does.
    let lock = File::open(file)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    let before = fs::read_to_string(file)?;
    let restore = Restore { file, before: before.trim() };
    fs::write(file, NO_MERGES)?;
    let mut output = io::stdout();
    // A parent that is gone already has closed the input as well.
    let _ = output.write_all(SAID.as_bytes()).and_then(|()| output.flush());
    let mut rest = Vec::new();
    let _ = io::stdin().read_to_end(&mut rest);
    let restored = restore.now();
    drop(lock);
    restored
}

/// Writes back what was set: by itself if nobody did.
struct Restore<'a> {
    file: &'a Path,
    before: &'a str,
}

impl Restore<'_> {
    fn now(self) -> io::Result<()> {
        let written = fs::write(self.file, self.before);
        std::mem::forget(self);
        written
    }
}

impl Drop for Restore<'_> {
    fn drop(&mut self) {
        let _ = fs::write(self.file, self.before);
    }
}
