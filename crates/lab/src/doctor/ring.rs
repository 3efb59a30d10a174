//! The kernel and its io_uring: whether it is allowed, who forbids it, its features, and the
//! resulting engine.

use std::io;
use std::time::Duration;

use forebay_uring::probe::{KernelVersion, kernel_version};
use forebay_uring::{Feature, Offers, SetupError, offer::State};

use super::finding::{Finding, degraded, full, missing};
use super::process::{Capability, Process};
use super::tree::Tree;

/// The oldest kernel Forebay is for.
const OLDEST: KernelVersion = KernelVersion { major: 5, minor: 15 };

/// The first with io_uring.
const FIRST_RING: KernelVersion = KernelVersion { major: 5, minor: 1 };

/// Memory of the engine that is made to see whether one can be: the least there can be.
const CACHE_BYTES: u64 = 8 << 20;
const BUFFER_BYTES: u64 = 1 << 20;

/// The engine has nothing to write, so only a hanging device takes longer.
const PATIENCE: Duration = Duration::from_secs(5);

const ALLOW: &str = "allow io_uring_setup, io_uring_enter and io_uring_register in the filter: in docker and podman \
                     by --security-opt seccomp=PROFILE, in a unit of systemd by SystemCallFilter=@aio";

#[derive(Debug)]
pub(super) struct Ring {
    version: KernelVersion,
    offers: Result<Offers, SetupError>,
    /// `kernel.io_uring_disabled`; none before 6.6.
    disabled: Option<u32>,
    /// `kernel.io_uring_group`.
    group: Option<i64>,
    is_filtered: bool,
    may_administer: bool,
    /// The group of this process.
    own_group: u32,
    /// Description of the engine, or the error that prevented it.
    engine: Result<String, String>,
}

impl Ring {
    /// Asks the kernel, with rings and an engine of its own that are gone afterwards.
    pub(super) fn of(tree: &Tree, process: &Process) -> Self {
        Self {
            version: kernel_version(),
            offers: Offers::of_this_kernel(),
            disabled: tree.number("/proc/sys/kernel/io_uring_disabled"),
            group: tree.number("/proc/sys/kernel/io_uring_group"),
            is_filtered: process.is_filtered,
            may_administer: process.may(Capability::SysAdmin),
            own_group: process.group,
            engine: engine(),
        }
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings = vec![self.kernel(), self.engine(), self.permission()];
        if let Ok(offers) = &self.offers {
            findings.extend([features(offers), minimal_wait(offers)]);
        }
        findings
    }

    fn kernel(&self) -> Finding {
        let found = format!("Linux {}", self.version);
        if self.version < OLDEST {
            return missing("kernel", found)
                .means("older than 5.15, the oldest supported kernel")
                .remedy("run a newer kernel");
        }
        full("kernel", found).means("5.15 or newer is required")
    }

    fn engine(&self) -> Finding {
        match &self.engine {
            Ok(described) if self.offers.is_ok() => {
                full("engine", described.as_str()).means("requests go through io_uring")
            }
            Ok(described) => degraded("engine", described.as_str())
                .means("a thread pool makes the system calls; a small request costs several times as much")
                .remedy("see io_uring"),
            Err(why) => missing("engine", why.as_str())
                .means("Forebay does not work here")
                .remedy("see the message, and the findings on memory and limits"),
        }
    }

    fn permission(&self) -> Finding {
        match &self.offers {
            Ok(_) => self.allowed(),
            Err(SetupError::Forbidden(_)) => self.forbidden(),
            Err(SetupError::Missing) => self.absent(),
            Err(SetupError::Other(error)) if self.is_filtered && is_refusal(error) => by_filter(),
            Err(SetupError::TooOld(what)) => {
                refused(format!("this kernel's io_uring lacks {what}"))
                    .remedy("run Linux 5.15 or newer")
            }
            Err(SetupError::Memory(error)) => refused(format!("no memory for a ring: {error}"))
                .root(
                    "raise the limit of locked memory, or the limit of the control group",
                    "prlimit --memlock=unlimited --pid $$",
                ),
            Err(error) => refused(error.to_string()).remedy("run Linux 5.15 or newer"),
        }
    }

    fn allowed(&self) -> Finding {
        match self.disabled {
            Some(1) => full("io_uring", format!("allowed for root{}", and_group(self.group)))
                .means("kernel.io_uring_disabled is 1: programs of other users get a thread pool")
                .root(
                    "allow it for all users, if they need it",
                    "sysctl -w kernel.io_uring_disabled=0",
                ),
            Some(_) => full("io_uring", "allowed (kernel.io_uring_disabled is 0)")
                .means("no setting forbids it"),
            None => full("io_uring", "allowed").means("this kernel has no setting that forbids it"),
        }
    }

    fn forbidden(&self) -> Finding {
        match self.disabled {
            Some(2) => refused("forbidden for all users: kernel.io_uring_disabled is 2")
                .root("allow it until the next boot", "sysctl -w kernel.io_uring_disabled=0"),
            Some(1) if !self.may_administer => {
                let own = self.own_group;
                refused(format!(
                    "forbidden: kernel.io_uring_disabled is 1, allowed for root{}",
                    and_group(self.group)
                ))
                .root(
                    format!("allow it for the group of this process ({own}), or for all users"),
                    format!("sysctl -w kernel.io_uring_group={own}"),
                )
            }
            _ if self.is_filtered => by_filter(),
            _ => refused("refused, but not by kernel.io_uring_disabled or a seccomp filter").root(
                "look for a denial by a security module (SELinux, AppArmor) in the kernel log",
                "dmesg | grep -i denied",
            ),
        }
    }

    /// There is no such call: or a filter says so.
    fn absent(&self) -> Finding {
        // The switch is there only where io_uring is.
        let is_built_in = self.disabled.is_some();
        match (self.is_filtered, self.version >= FIRST_RING) {
            (true, true) if is_built_in => by_filter(),
            (true, true) => {
                refused("missing: the kernel was built without it, or a seccomp filter hides it")
                    .remedy(ALLOW)
            }
            (_, false) => refused("not in this kernel (5.1)").remedy("run Linux 5.15 or newer"),
            (false, true) => refused("missing: this kernel was built without it")
                .remedy("run a kernel with CONFIG_IO_URING"),
        }
    }
}

/// An engine of the least size, made and shut down.
fn engine() -> Result<String, String> {
    let builder = forebay::Engine::builder().cache_bytes(CACHE_BYTES).buffer_bytes(BUFFER_BYTES);
    let engine = builder.build().map_err(|error| error.to_string())?;
    let described = engine.describe();
    engine.shutdown(PATIENCE).map_err(|error| error.to_string())?;
    Ok(described)
}

/// Features of the ring, except those with a finding of their own.
fn features(offers: &Offers) -> Finding {
    let is_apart =
        |feature: &Feature| matches!(feature, Feature::MinimalWait | Feature::MinimalWaitEnds);
    let all: Vec<_> = offers.0.iter().filter(|offer| !is_apart(&offer.feature)).collect();
    let missing: Vec<_> = all.iter().filter(|offer| offer.state != State::Had).collect();
    if missing.is_empty() {
        return full("ring features", format!("all {}", all.len()))
            .means("a request has no extra cost");
    }
    let names: Vec<_> = missing.iter().map(ToString::to_string).collect();
    let lacking =
        degraded("ring features", format!("{} of {}", all.len() - missing.len(), all.len())).means(
            format!("without {}, requests cost more system calls or copies", names.join(", ")),
        );
    let lost = missing.iter().filter(|offer| offer.state == State::Lost);
    match lost.map(|offer| offer.feature.since()).max() {
        Some(newest) => lacking.remedy(format!("run Linux {newest} or newer")),
        None => lacking.remedy("see the reasons given"),
    }
}

/// Whether a batch can be waited for by one call.
fn minimal_wait(offers: &Offers) -> Finding {
    const MEANS: &str = "waiting for a batch of completions takes one more system call";
    let since = Feature::MinimalWaitEnds.since();
    match (offers.had(Feature::MinimalWait), offers.had(Feature::MinimalWaitEnds)) {
        (true, true) => full("minimal wait", "works, and a late completion ends it")
            .means("one system call waits for a batch of completions"),
        (true, false) => degraded(
            "minimal wait",
            "present, but a late completion does not end it, so it is not used",
        )
        .means(MEANS)
        .remedy(format!("run Linux {since} or newer, or a stable kernel with the fix")),
        (false, _) => missing("minimal wait", "not in this kernel")
            .means(MEANS)
            .remedy(format!("run Linux {since} or newer")),
    }
}

fn refused(found: impl Into<String>) -> Finding {
    missing("io_uring", found).means("a thread pool replaces it (see engine)")
}

fn by_filter() -> Finding {
    refused("forbidden by a seccomp filter of this process").remedy(ALLOW)
}

fn and_group(group: Option<i64>) -> String {
    match group {
        Some(group) if group >= 0 => format!(" and for group {group}"),
        _ => " only".to_owned(),
    }
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSYS))
}

#[cfg(test)]
mod tests {
    use forebay_uring::Offer;

    use super::super::finding::Level;
    use super::*;

    fn ring(offers: Result<Offers, SetupError>) -> Ring {
        Ring {
            version: KernelVersion { major: 6, minor: 18 },
            offers,
            disabled: Some(0),
            group: Some(-1),
            is_filtered: false,
            may_administer: false,
            own_group: 1000,
            engine: Ok("io_uring: full".to_owned()),
        }
    }

    fn forbidden() -> Ring {
        ring(Err(SetupError::Forbidden(String::new())))
    }

    fn permission(ring: &Ring) -> (Level, String, String) {
        let finding = ring.permission();
        let remedy = finding.remedy.map(|remedy| match remedy.command {
            Some(command) => command.line,
            None => remedy.what,
        });
        (finding.level, finding.found, remedy.unwrap_or_default())
    }

    #[test]
    fn who_forbids_it_is_told_with_what_allows_it() {
        let said = |ring: Ring| permission(&ring);
        let (level, found, remedy) =
            said(Ring { disabled: Some(2), is_filtered: true, ..forbidden() });
        assert_eq!(level, Level::Missing);
        assert!(
            found.contains("is 2") && remedy == "sysctl -w kernel.io_uring_disabled=0",
            "{found}"
        );

        let (_, found, remedy) = said(Ring { disabled: Some(1), ..forbidden() });
        assert!(found.ends_with("allowed for root only"), "{found}");
        assert_eq!(remedy, "sysctl -w kernel.io_uring_group=1000");
        let (_, found, _) = said(Ring { disabled: Some(1), group: Some(7), ..forbidden() });
        assert!(found.ends_with("for root and for group 7"), "{found}");

        // Root is let through by the switch, so it is somebody else.
        let (_, found, _) = said(Ring { disabled: Some(1), may_administer: true, ..forbidden() });
        assert!(found.starts_with("refused, but not by"), "{found}");
        let (_, found, remedy) = said(Ring { is_filtered: true, ..forbidden() });
        assert!(
            found.contains("seccomp filter") && remedy.contains("SystemCallFilter=@aio"),
            "{found}"
        );
        let (_, found, _) = said(Ring { disabled: None, is_filtered: true, ..forbidden() });
        assert!(found.contains("seccomp filter"), "{found}");
        let (_, found, _) = said(forbidden());
        assert!(found.starts_with("refused, but not by"), "{found}");
    }

    #[test]
    fn a_call_that_is_not_there_may_be_hidden() {
        let absent = || ring(Err(SetupError::Missing));
        let found = |ring: Ring| permission(&ring).1;
        assert!(
            found(Ring { is_filtered: true, ..absent() })
                .starts_with("forbidden by a seccomp filter")
        );
        assert!(
            found(Ring { is_filtered: true, disabled: None, ..absent() })
                .contains("or a seccomp filter")
        );
        assert!(found(Ring { disabled: None, ..absent() }).contains("built without it"));
        let old = KernelVersion { major: 4, minor: 19 };
        assert!(found(Ring { version: old, disabled: None, ..absent() }).contains("(5.1)"));
        let other = |errno| ring(Err(SetupError::Other(io::Error::from_raw_os_error(errno))));
        assert!(found(Ring { is_filtered: true, ..other(libc::EPERM) }).contains("seccomp"));
        assert!(found(other(libc::EMFILE)).contains("Too many open files"));
        let memory = ring(Err(SetupError::Memory(io::Error::from_raw_os_error(libc::ENOMEM))));
        assert!(permission(&memory).2.contains("--memlock"));
        assert!(found(ring(Err(SetupError::TooOld("readv")))).contains("lacks readv"));
    }

    #[test]
    fn where_it_is_allowed_to_some_that_is_said() {
        let allowed = || ring(Ok(Offers::default()));
        assert_eq!(permission(&allowed()).0, Level::Full);
        let (level, found, remedy) =
            permission(&Ring { disabled: Some(1), group: Some(5), ..allowed() });
        assert_eq!((level, found.as_str()), (Level::Full, "allowed for root and for group 5"));
        assert_eq!(remedy, "sysctl -w kernel.io_uring_disabled=0");
        assert_eq!(permission(&Ring { disabled: None, ..allowed() }).1, "allowed");
    }

    #[test]
    fn the_engine_decides() {
        let level = |ring: Ring| ring.engine().level;
        assert_eq!(level(ring(Ok(Offers::default()))), Level::Full);
        assert_eq!(level(forbidden()), Level::Degraded);
        let dead = Ring { engine: Err("no memory".to_owned()), ..forbidden() };
        assert!(dead.engine().stops_everything());
        let old = Ring { version: KernelVersion { major: 5, minor: 10 }, ..forbidden() };
        assert!(old.kernel().stops_everything());
        assert_eq!(forbidden().kernel().level, Level::Full);
    }

    #[test]
    fn what_the_ring_lacks_is_told_with_the_kernel_that_has_it() {
        let offer = |feature, state| Offer { feature, state };
        let most =
            vec![offer(Feature::SubmitAll, State::Had), offer(Feature::MinimalWait, State::Lost)];
        assert_eq!(features(&Offers(most.clone())).found, "all 1");
        let mut some = most;
        some.extend([
            offer(Feature::SetLength, State::Lost),
            offer(Feature::UnbookedWait, State::Lost),
            offer(Feature::RegisteredBuffers, State::Refused("no memory may be locked".into())),
        ]);
        let told = features(&Offers(some));
        assert_eq!((told.level, told.found.as_str()), (Level::Degraded, "1 of 4"));
        assert!(told.means.contains("setting a file's length (6.9)"), "{}", told.means);
        assert_eq!(told.remedy.unwrap().what, "run Linux 6.15 or newer");
        let refused = Offers(vec![offer(Feature::RegisteredBuffers, State::Refused("no".into()))]);
        assert_eq!(features(&refused).remedy.unwrap().what, "see the reasons given");
    }

    #[test]
    fn the_minimal_wait_has_three_answers() {
        let offers = |minimal, ends| {
            let state = |had| if had { State::Had } else { State::Lost };
            Offers(vec![
                Offer { feature: Feature::MinimalWait, state: state(minimal) },
                Offer { feature: Feature::MinimalWaitEnds, state: state(ends) },
            ])
        };
        let level = |minimal, ends| minimal_wait(&offers(minimal, ends)).level;
        assert_eq!(level(true, true), Level::Full);
        assert_eq!(level(true, false), Level::Degraded);
        assert_eq!(level(false, false), Level::Missing);
    }

    #[test]
    fn this_machine_has_an_answer() {
        let tree = Tree::real();
        for finding in Ring::of(&tree, &Process::of(&tree)).findings() {
            println!("{finding:?}");
            assert!(!finding.found.is_empty() && !finding.means.is_empty());
        }
    }
}
