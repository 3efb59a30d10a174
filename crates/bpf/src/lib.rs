//! Counts in the kernel how block I/O is batched.
//!
//! ```text
//! submission:  bio --merge?--> request --plug?--> unplug --scheduler?--> issue
//! completion:  interrupt: a run of requests --> worker? --> task work --> completions of the ring
//! writeback:   a run of pages
//! ```
//!
//! [`Counting`] attaches small programs to the kernel's tracepoints (`programs`) and reads their
//! counters. Histogram triggers would not do: many kernels are built without them, they do not
//! report why a plug was flushed, and a killed process leaves them behind in tracefs. The kernel
//! removes a program with its last descriptor, however the process ends. An event costs some tens
//! of nanoseconds.
//!
//! The programs are assembled here (`code`) for the types of the running kernel (`btf`). aya-obj
//! would not do: it loads object files, which needs a compiler at build time, and its BTF has no
//! public way to the members of a struct.
//!
//! Counting needs root. Counters that this kernel, disk or file system does not support are left
//! out, with one sentence about the reason.

mod btf;
mod code;
mod counter;
mod kernel;
mod place;
mod programs;

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use btf::Btf;
pub use counter::{COUNTERS, Counter, Counts};
use kernel::PerProcessor;
pub use place::{Disk, FileSystem, Kind};
use place::{Namespace, completion_workers};
use programs::{Means, Program};

/// Whether the process uses io_uring. If it does not, task work and system calls are not counted,
/// because that costs time in every system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ring {
    /// It does, or may.
    Used,
    /// It does not.
    Unused,
}

/// Where to count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place<'a> {
    /// File, directory or device, for messages.
    pub path: &'a Path,
    /// The disk below it; `None` if it has none of its own.
    pub disk: Option<Disk>,
    /// The file system that it is on.
    pub file_system: FileSystem,
}

/// Attached programs and their counters. The kernel stops counting when it is dropped.
#[derive(Debug)]
pub struct Counting {
    counters: PerProcessor,
    _links: Vec<OwnedFd>,
}

impl Counting {
    /// Starts all counters that this kernel supports at a place. Also returns a sentence for each
    /// group of counters that is left out.
    ///
    /// Requests are counted for all processes, io_uring for this process, pages for the file
    /// system.
    ///
    /// # Errors
    /// The reason, if nothing can be counted.
    pub fn start(place: Place<'_>, ring: Ring) -> Result<(Self, Vec<String>), String> {
        let (counters, btf) = prepare()?;
        let mut missing = Vec::new();
        if place.disk.is_none() {
            let path = place.path.display();
            missing.push(format!("requests are not counted: {path} is on no disk of its own"));
        }
        let workers = completion_workers();
        if workers.is_empty() {
            let what = "completion workers are not counted: /proc/kallsyms shows no addresses";
            missing.push(what.to_owned());
        }
        let mut links = Vec::new();
        for group in programs::groups(&btf, &means(&counters, place, &workers, ring)?) {
            let what = group.what;
            let Some(programs) = group.programs else {
                missing.push(format!("{what} are not counted: this kernel has other events"));
                continue;
            };
            match programs.iter().map(attach).collect::<Result<Vec<_>, _>>() {
                Ok(attached) => links.extend(attached),
                Err(reason) => missing.push(format!("{what} are not counted: {reason}")),
            }
        }
        if links.is_empty() {
            return Err(format!("not counted: {}", missing.join("; ")));
        }
        Ok((Self { counters, _links: links }, missing))
    }

    /// Starts one counter: system calls, commits or flushes.
    ///
    /// # Errors
    /// The reason, if it cannot be counted.
    pub fn start_one(counter: Counter, place: Place<'_>) -> Result<Self, String> {
        let (counters, btf) = prepare()?;
        let program = programs::alone(counter, &btf, &means(&counters, place, &[], Ring::Unused)?)
            .ok_or("not counted: this kernel or file system has other events")?;
        let link = attach(&program).map_err(|reason| format!("not counted: {reason}"))?;
        Ok(Self { counters, _links: vec![link] })
    }

    /// Returns the counts since the start.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn read(&self) -> io::Result<Counts> {
        Ok(Counts::sum(&self.counters.read()?))
    }
}

fn prepare() -> Result<(PerProcessor, Btf), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("not counted (needs root)".to_owned());
    }
    let counters = PerProcessor::new(COUNTERS).map_err(refused)?;
    let btf = Btf::of_kernel().map_err(|reason| format!("not counted: {reason}"))?;
    Ok((counters, btf))
}

fn refused(error: io::Error) -> String {
    format!("not counted: the kernel refuses BPF: {error}")
}

fn means<'a>(
    counters: &'a PerProcessor,
    place: Place<'_>,
    workers: &'a [u64],
    ring: Ring,
) -> Result<Means<'a>, String> {
    Ok(Means {
        counters: counters.descriptor(),
        disk: place.disk,
        file_system: place.file_system,
        process: std::process::id(),
        namespace: Namespace::here().map_err(refused)?,
        workers,
        ring,
    })
}

fn attach(program: &Program) -> Result<OwnedFd, String> {
    kernel::attach(&program.instructions, program.to)
}
