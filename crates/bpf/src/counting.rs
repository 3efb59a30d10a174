//! Attaches the programs and reads their counters.

use std::io;
use std::os::fd::OwnedFd;

use crate::btf::Btf;
use crate::counter::{COUNTERS, Counter, Counts};
use crate::here::{completion_workers, namespace};
use crate::kernel::{self, PerProcessor};
use crate::place::{Place, Ring};
use crate::programs::{Program, Writer};

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
        for group in writer(&btf, &counters, place)?.groups(&workers, ring) {
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
        let program = writer(&btf, &counters, place)?.alone(counter);
        let program = program.ok_or("not counted: this kernel or file system has other events")?;
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

fn writer<'a>(
    btf: &'a Btf,
    counters: &'a PerProcessor,
    place: Place<'a>,
) -> Result<Writer<'a>, String> {
    let namespace = namespace().map_err(refused)?;
    Ok(Writer { btf, counters: counters.descriptor(), place, namespace })
}

fn attach(program: &Program) -> Result<OwnedFd, String> {
    kernel::attach(&program.instructions, program.to)
}
