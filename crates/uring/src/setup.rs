//! Setup of a ring with the best features of the running kernel, down to those of 5.15, with a list
//! of the missing ones.
//!
//! If io_uring is refused altogether, as in many sandboxes, the error says why and what to do.

use std::fmt;
use std::fs;
use std::io;

use io_uring::{IoUring, Probe, opcode};

use crate::enter::{Booked, Door};
use crate::offer::{Feature, Offer};
use crate::probe::kernel_version;

/// Error of setting up a ring.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// There is no such system call.
    #[error(
        "this kernel has no io_uring: it is older than 5.1, was built without it, or a sandbox hides it \
         (run a kernel from 5.15 on, or allow io_uring_setup in the sandbox)"
    )]
    Missing,
    /// The kernel lacks a required feature, which is named.
    #[error("this kernel's io_uring lacks {0} (run a kernel from 5.15 on)")]
    TooOld(&'static str),
    /// io_uring is forbidden for this process, for this reason.
    #[error("io_uring is forbidden here: {0}")]
    Forbidden(String),
    /// Its memory was refused.
    #[error(
        "no memory for an io_uring: {0} (raise the limit of locked memory, `ulimit -l`, which counts rings on many \
         kernels; or the container's memory limit)"
    )]
    Memory(io::Error),
    /// Any other error of the kernel.
    #[error("could not set up an io_uring: {0}")]
    Other(#[from] io::Error),
}

/// How much of io_uring a ring uses, from all of it down.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Level {
    /// Completions are worked off in the ring's thread when it asks, and the submission queue has
    /// no index array.
    NoArray,
    /// Completions are worked off in the ring's thread when it asks.
    Deferred,
    /// One thread submits, and is not interrupted for completions.
    SingleIssuer,
    /// The thread is not interrupted for completions.
    Cooperative,
    /// A bad request does not hold up those behind it.
    SubmitAll,
    /// Linux 5.15.
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

    /// Feature that this level adds.
    fn brings(self) -> Option<Feature> {
        match self {
            Level::NoArray => Some(Feature::NoIndexArray),
            Level::Deferred => Some(Feature::DeferredTaskWork),
            Level::SingleIssuer => Some(Feature::SingleIssuer),
            Level::Cooperative => Some(Feature::CooperativeTaskWork),
            Level::SubmitAll => Some(Feature::SubmitAll),
            Level::Plain => None,
        }
    }

    pub(crate) fn build(self, entries: u32) -> io::Result<IoUring> {
        self.builder().build(entries)
    }

    fn builder(self) -> io_uring::Builder {
        let mut builder = IoUring::builder();
        // Disabled until the thread that uses it says so: with a single issuer that thread becomes
        // the one.
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
        builder
    }
}

/// A ring that is disabled until its thread enables it, and its features.
pub(crate) struct Setup {
    /// The queues.
    pub uring: IoUring,
    /// Enters the ring.
    pub door: Door,
    pub(crate) level: Level,
    pub(crate) has: Has,
}

/// Abilities of the kernel's ring, besides its level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Has {
    /// The length of a file can be set.
    pub(crate) set_length: bool,
    /// A block device's range can be discarded.
    pub(crate) discard: bool,
    /// There is a minimal wait; whether it can be used, `min_wait` finds out.
    pub(crate) min_wait: bool,
    /// A wait need not be booked as waiting for I/O.
    pub(crate) no_iowait: bool,
}

impl Setup {
    /// Sets up a ring with the best features that the kernel grants.
    ///
    /// # Errors
    /// [`SetupError`], with the remedy.
    pub(crate) fn best(entries: u32) -> Result<Self, SetupError> {
        Self::new(entries, Level::NoArray)
    }

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
        // The probe reports commands as a whole; a backported one is not worth a try on a device.
        let commands = kernel_version() >= Feature::DiscardCommand.since();
        let has = Has {
            set_length: probe.is_supported(opcode::Ftruncate::CODE),
            discard: commands && probe.is_supported(opcode::UringCmd16::CODE),
            min_wait: parameters.is_feature_min_timeout(),
            no_iowait: parameters.is_feature_no_iowait(),
        };
        Ok(Self { door: Door::of(&uring), uring, level, has })
    }
    /// Returns the accounting of a wait that is idleness, as far as the kernel has it.
    #[must_use]
    pub(crate) fn idle_wait(&self) -> Booked {
        if self.has.no_iowait { Booked::Idle } else { Booked::WaitingForIo }
    }

    /// Returns the features that were known after the setup.
    #[must_use]
    pub(crate) fn offers(&self) -> Vec<Offer> {
        let levels =
            Level::ALL.into_iter().filter_map(|level| Some((level.brings()?, level >= self.level)));
        let Has { set_length, discard, min_wait, no_iowait } = self.has;
        let rest = [
            (Feature::TimedWait, true),
            (Feature::SetLength, set_length),
            (Feature::DiscardCommand, discard),
            (Feature::MinimalWait, min_wait),
            (Feature::UnbookedWait, no_iowait),
        ];
        levels.chain(rest).map(|(feature, had)| feature.when(had)).collect()
    }

    /// Whether the calling thread can register the ring's descriptor. It is not registered
    /// afterwards.
    pub(crate) fn registers_its_descriptor(&mut self) -> bool {
        let registered = self.door.register();
        self.door.unregister();
        registered
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Setup").field("level", &self.level).finish_non_exhaustive()
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
        _ => {
            "a seccomp filter or security module refuses it (in a container, allow io_uring_setup, \
              io_uring_enter and io_uring_register in its seccomp profile)"
                .into()
        }
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
