//! Setting a ring up: the best this kernel has, step by step down to what 5.15 has, and what is lost on the way.
//!
//! Where it is refused altogether the error says why and what to do: io_uring is the one system call that sandboxes
//! and cautious distributions forbid by name.

use std::fs;
use std::io;

use io_uring::{IoUring, Probe, opcode};

/// Why there is no ring.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// There is no such system call.
    #[error(
        "this kernel has no io_uring: it is older than 5.1, was built without it, or a sandbox hides it \
         (run a kernel from 5.15 on, or allow io_uring_setup in the sandbox)"
    )]
    Missing,
    /// The kernel is older than what is needed.
    #[error("this kernel's io_uring lacks {0} (run a kernel from 5.15 on)")]
    TooOld(&'static str),
    /// There is one, but not for this process.
    #[error("io_uring is forbidden here: {0}")]
    Forbidden(String),
    /// Its memory was refused.
    #[error(
        "no memory for an io_uring: {0} (raise the limit of locked memory, `ulimit -l`, which counts rings before \
         kernel 5.12; or the container's memory limit)"
    )]
    Memory(io::Error),
    /// Anything else.
    #[error("could not set up an io_uring: {0}")]
    Other(#[from] io::Error),
}

/// How much of io_uring a ring uses, from all of it down.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Level {
    /// Completions are worked off in the ring's thread when it asks, and the submission queue has no index array.
    NoArray,
    /// Completions are worked off in the ring's thread when it asks.
    Deferred,
    /// One thread submits, and is not interrupted for completions.
    SingleIssuer,
    /// The thread is not interrupted for completions.
    Cooperative,
    /// A bad request does not hold up those behind it.
    SubmitAll,
    /// What 5.15 has.
    Plain,
}

impl Level {
    pub(crate) const ALL: [Level; 6] = [
        Level::NoArray,
        Level::Deferred,
        Level::SingleIssuer,
        Level::Cooperative,
        Level::SubmitAll,
        Level::Plain,
    ];

    /// What the next better level has, and since which kernel.
    fn lost(self) -> Option<&'static str> {
        match self {
            Level::NoArray => None,
            Level::Deferred => Some("a submission queue without an index array (6.6)"),
            Level::SingleIssuer => Some("deferred task work (6.1)"),
            Level::Cooperative => Some("a single issuer (6.0)"),
            Level::SubmitAll => Some("cooperative task work (5.19)"),
            Level::Plain => Some("submission past a bad request (5.18)"),
        }
    }

    fn build(self, entries: u32) -> io::Result<IoUring> {
        let mut builder = IoUring::builder();
        // Disabled until the thread that uses it says so: with a single issuer that thread becomes the one.
        builder.dontfork().setup_clamp().setup_r_disabled();
        if self <= Level::SubmitAll {
            builder.setup_submit_all();
        }
        if self <= Level::Cooperative {
            builder.setup_coop_taskrun().setup_taskrun_flag();
        }
        if self <= Level::SingleIssuer {
            builder.setup_single_issuer();
        }
        if self <= Level::Deferred {
            builder.setup_defer_taskrun();
        }
        if self <= Level::NoArray {
            builder.setup_no_sqarray();
        }
        builder.build(entries)
    }
}

/// A ring, and what this kernel can do with it.
pub(crate) struct Setup {
    pub(crate) uring: IoUring,
    pub(crate) level: Level,
    /// Whether the length of a file can be set through the ring.
    pub(crate) set_length: bool,
    /// Whether a wait need not be booked as waiting for I/O.
    pub(crate) no_iowait: bool,
}

impl Setup {
    /// The best ring from `best` down that the kernel grants.
    pub(crate) fn new(entries: u32, best: Level) -> Result<Self, SetupError> {
        let mut refused = io::Error::from_raw_os_error(libc::EINVAL);
        for level in Level::ALL.into_iter().filter(|&level| level >= best) {
            match level.build(entries) {
                Ok(uring) => return Self::probe(uring, level),
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refused = error,
                Err(error) => return Err(explain(error)),
            }
        }
        Err(explain(refused))
    }

    fn probe(uring: IoUring, level: Level) -> Result<Self, SetupError> {
        let parameters = uring.params();
        if !parameters.is_feature_ext_arg() {
            return Err(SetupError::TooOld("a wait with a time limit (5.11)"));
        }
        if !parameters.is_feature_nodrop() {
            return Err(SetupError::TooOld("a completion queue that loses nothing (5.5)"));
        }
        let mut probe = Probe::new();
        uring.submitter().register_probe(&mut probe)?;
        for (code, name) in [
            (opcode::Readv::CODE, "readv"),
            (opcode::Writev::CODE, "writev"),
            (opcode::Read::CODE, "read"),
            (opcode::Write::CODE, "write"),
            (opcode::Fsync::CODE, "fsync"),
            (opcode::Fallocate::CODE, "fallocate"),
        ] {
            if !probe.is_supported(code) {
                return Err(SetupError::TooOld(name));
            }
        }
        let set_length = probe.is_supported(opcode::Ftruncate::CODE);
        let no_iowait = parameters.is_feature_no_iowait();
        Ok(Self { uring, level, set_length, no_iowait })
    }

    /// One line: "io_uring: full", or what is lost and the kernel that has it.
    pub(crate) fn describe(&self) -> String {
        let better = Level::ALL.into_iter().filter(|&level| level <= self.level);
        let mut lost: Vec<&str> = better.filter_map(Level::lost).collect();
        if !self.set_length {
            lost.push("setting a file's length (6.9)");
        }
        if !self.no_iowait {
            lost.push("waiting unbooked (6.15)");
        }
        match lost.as_slice() {
            [] => "io_uring: full".into(),
            lost => format!("io_uring: without {}", lost.join(", ")),
        }
    }
}

fn explain(error: io::Error) -> SetupError {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => SetupError::Missing,
        Some(libc::EPERM | libc::EACCES) => SetupError::Forbidden(who_forbids(&disabled())),
        Some(libc::ENOMEM) => SetupError::Memory(error),
        _ => SetupError::Other(error),
    }
}

fn disabled() -> String {
    fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default()
}

fn who_forbids(disabled: &str) -> String {
    match disabled.trim() {
        "2" => "the sysctl kernel.io_uring_disabled is 2 (set it to 0)".into(),
        "1" => "the sysctl kernel.io_uring_disabled is 1 (set it to 0, or join the group in \
                kernel.io_uring_group)"
            .into(),
        _ => "a seccomp filter or security module refuses it (in a container, allow io_uring_setup, \
              io_uring_enter and io_uring_register in its seccomp profile)"
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_who_refuses_and_the_remedy() {
        let text = |code| explain(io::Error::from_raw_os_error(code)).to_string();
        assert!(text(libc::ENOSYS).contains("5.15"));
        assert!(text(libc::ENOMEM).contains("ulimit -l"));
        assert!(text(libc::EPERM).contains("forbidden"));
        assert!(who_forbids("2\n").contains("set it to 0"));
        assert!(who_forbids("1\n").contains("io_uring_group"));
        assert!(who_forbids("0\n").contains("seccomp"));
    }
}
